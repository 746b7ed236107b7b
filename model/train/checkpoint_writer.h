// CheckpointWriter: saves checkpoints while training goes on, and removes old ones.
//
// `start` copies weights and moments into host memory and returns; one background thread writes,
// reads back and verifies. One checkpoint is under way at a time: the next start waits for it. What
// became of it is asked for by `poll` or `wait`, from the training thread.
//
// Kept are the newest `last` and, with `best`, the one of the lowest validation loss. An older one
// is removed only after a newer one was read back and verified; damaged ones are not counted.
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <string>

#include "base/status.h"
#include "model/train/checkpoint.h"

namespace tailor::train {

struct KeepPolicy {
  std::int32_t last = 2;  ///< >= 1
  bool best = false;
};

/// Threads: one (it starts its own for writing).
class CheckpointWriter {
 public:
  /// What became of a checkpoint; errors as write_checkpoint.
  using Outcome = Result<CheckpointInfo>;

  /// Writes into `folder`, which this object alone writes to; removes what a crash left there. The
  /// references must outlive it.
  CheckpointWriter(std::string folder, KeepPolicy keep, const net::Decoder& decoder,
                   AdamW& optimizer, CheckpointStage stage = {});
  /// Waits for the checkpoint under way.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Starts saving the weights and moments of now. REQUIRES: not busy (take the outcome first).
  /// Errors: those of take_snapshot.
  Status start(const CheckpointState& state);
  /// A checkpoint was started and its outcome not taken yet.
  bool busy() const { return under_way_.valid(); }
  /// The outcome, once, if it is there; does not wait.
  std::optional<Outcome> poll();
  /// The outcome, once, after waiting for it; nullopt when none is under way.
  std::optional<Outcome> wait();

 private:
  Outcome write(const Snapshot& snapshot);
  void remove_old(const CheckpointInfo& newest);
  const CheckpointState* whole(const std::string& path, const std::string& identity);

  const std::string folder_;
  const KeepPolicy keep_;
  const net::Decoder& decoder_;
  AdamW& optimizer_;
  const CheckpointStage stage_;
  // Of the background thread: checkpoints in `folder_` that were verified since
  // this object was made.
  std::map<std::string, CheckpointState> verified_;
  std::future<Outcome> under_way_;  // last: its thread uses the above
};

}  // namespace tailor::train
