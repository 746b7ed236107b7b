// The folder of one attempt, TRIALS_DIR/t41/2, and what this worker notes in it.
//
//     worker.json        this worker's note: name, token, slots, process, acknowledged sequence.
//                        Renamed to worker-done.json when the attempt is over, so that a restart
//                        passes it by
//     spec.json          what the trainer is to do
//     lease              decimal milliseconds of the node's boot clock, one line
//     reports.jsonl, log, checkpoints/, artifacts/    the trainer's
//     end.json           the end that this worker reported for a trainer that reported none
//
// The trials folder may be shared by workers and nodes: a worker restores only attempts whose note
// carries its own name. Not thread-safe; one process owns a folder (work_dir's
// lock file sees to it).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "protocol/messages.h"

namespace tailor::agent {

/// A process that survives its pid's reuse: the same pid with another start time, or on another
/// boot of the node, is another process.
struct ProcessIdentity {
  pid_t pid = 0;                 ///< 0 = none
  std::uint64_t start_time = 0;  ///< clock ticks since boot, field 22 of /proc/PID/stat
  std::string boot_id;           ///< /proc/sys/kernel/random/boot_id
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

/// The content of worker.json.
struct AttemptNote {
  std::string worker_name;
  protocol::AttemptRef ref;
  std::vector<std::uint32_t> slots;
  ProcessIdentity process;
  std::uint64_t acked_sequence = 0;
  friend bool operator==(const AttemptNote&, const AttemptNote&) = default;
};

class AttemptDirectory {
 public:
  /// Makes TRIALS_DIR/tN/A, which must not exist. Errors: kAlreadyExists, kResourceExhausted and
  /// others of the file system.
  static Result<AttemptDirectory> create(const std::string& trials_dir, const AttemptId& attempt);
  /// Names an existing one.
  explicit AttemptDirectory(std::string path) : path_(std::move(path)) {}
  static std::string path_of(const std::string& trials_dir, const AttemptId& attempt);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  Status write_note(const AttemptNote& note) const;
  Result<AttemptNote> read_note() const;
  Status write_spec(const protocol::TrialSpec& spec) const;
  /// On a full disk the old lease is overwritten in place: a few bytes that need no new block.
  Status write_lease(MonotonicMs deadline_ms) const;
  Status write_end(const protocol::Report& report) const;
  /// nullopt when there is none. Errors: unreadable.
  Result<std::optional<protocol::Report>> read_end() const;
  /// The attempt is over. A rename: works on a full disk.
  Status finish() const;

 private:
  std::string path_;
};

/// Checkpoint folders of all attempts of `trial`, newest attempt first, without that of `attempt`.
std::vector<std::string> checkpoint_folders(const std::string& trials_dir,
                                            const AttemptId& attempt);

/// The unfinished attempts of `worker_name` under `trials_dir`, in order. A note that cannot be
/// read is named in `*warnings` and passed by. Errors: the folder itself cannot be read.
Result<std::vector<AttemptNote>> find_attempts(const std::string& trials_dir,
                                               const std::string& worker_name,
                                               std::vector<std::string>* warnings);

}  // namespace tailor::agent
