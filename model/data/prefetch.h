// PrefetchLoader: the batches of a TrainLoader, read ahead by a thread of its own.
//
// It gives exactly what TrainLoader::fill gives for the same samples; it only reads them earlier. A
// fixed number of buffers goes round: memory is that and no more, however long the run.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "model/data/loader.h"

namespace tailor::data {

/// Where a batch lies: (rows, T) each, row after row.
struct BatchBuffer {
  std::span<std::int64_t> inputs;
  std::span<std::int64_t> targets;
};

/// Which samples the batches are: batch i holds [first_sample + i * stride, ... + rows).
struct BatchPlan {
  std::uint64_t first_sample = 0;
  std::uint64_t stride = 0;   ///< samples of one step, over all ranks
  std::uint64_t rows = 0;     ///< of this rank, at least 1
  std::uint64_t batches = 0;  ///< none is read beyond
};

/// `next` and `waited_s` are for one thread at a time. Destroying it ends the thread, after the
/// read it is in.
class PrefetchLoader {
 public:
  /// Reads ahead by one batch, in buffers of its own. `loader` outlives this.
  /// REQUIRES: plan.rows >= 1.
  PrefetchLoader(const TrainLoader& loader, const BatchPlan& plan);
  /// The same in the caller's buffers (such as page-locked memory), which outlive this: it reads
  /// ahead by buffers.size() - kept batches.
  /// REQUIRES: spans of plan.rows * T; 1 <= kept < buffers.size().
  PrefetchLoader(const TrainLoader& loader, const BatchPlan& plan, std::vector<BatchBuffer> buffers,
                 std::size_t kept = 1);
  ~PrefetchLoader();
  PrefetchLoader(const PrefetchLoader&) = delete;
  PrefetchLoader& operator=(const PrefetchLoader&) = delete;

  /// Index of the buffer that holds the next batch, waiting until it is read. The newest `kept`
  /// buffers given out stay as they are; older ones are written again.
  /// Errors: those of TrainLoader::fill, at the batch they belong to and for ever after;
  /// kOutOfRange after the last batch.
  Result<std::size_t> next();

  const BatchBuffer& buffer(std::size_t index) const { return buffers_[index]; }
  std::size_t buffer_count() const { return buffers_.size(); }

  /// Seconds that `next` has waited in all.
  double waited_s() const { return waited_s_; }

 private:
  void read_ahead(const std::stop_token& stop);

  const TrainLoader& loader_;
  const BatchPlan plan_;
  const std::size_t kept_;
  std::vector<std::int64_t> own_;  // behind buffers_, unless they are the caller's
  std::vector<BatchBuffer> buffers_;
  double waited_s_ = 0;

  std::mutex mutex_;  // guards the three below
  std::condition_variable_any changed_;
  std::uint64_t read_ = 0;   // batches that are whole
  std::uint64_t given_ = 0;  // batches that `next` has returned
  Status failure_;           // of batch read_

  std::jthread thread_;  // last: it ends before what it uses
};

}  // namespace tailor::data
