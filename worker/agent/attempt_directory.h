// The folder of one attempt, TRIALS_DIR/t41/2, and what this worker notes in it.
//
// Its name is the attempt's number; `-HEX` follows when the coordinator's database has been
// restored from a backup (its numbers may then come again), and `.rN` for the workers of a gang
// that run ranks from N on, which may share the trials folder with rank 0's: t41/2-3fa.r4.
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
#include "worker/agent/event.h"

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
  protocol::Gang gang = {};
  AttemptLimits limits = {};
  MonotonicMs started_ms = 0;  ///< boot clock
  std::string cgroup = {};     ///< folder of its control group; "" = none
  friend bool operator==(const AttemptNote&, const AttemptNote&) = default;
};

/// "2", "2-3fa", "2.r4": the name of an attempt's folder, below that of its trial.
std::string attempt_folder_name(const protocol::AttemptRef& ref, std::uint32_t first_rank = 0);

/// The generation in such a name; nullopt = it is none.
std::optional<std::uint64_t> folder_generation(const std::string& name);

class AttemptDirectory {
 public:
  /// Makes TRIALS_DIR/tN/A, which must not exist. `sync` makes it last. Errors: kAlreadyExists,
  /// kResourceExhausted and others of the file system.
  static Result<AttemptDirectory> create(const std::string& trials_dir,
                                         const protocol::AttemptRef& ref,
                                         std::uint32_t first_rank = 0);
  /// Names an existing one.
  explicit AttemptDirectory(std::string path) : path_(std::move(path)) {}
  static std::string path_of(const std::string& trials_dir, const protocol::AttemptRef& ref,
                             std::uint32_t first_rank = 0);

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }

  /// Readers see the old note or the new one; after a power cut, too, once `sync` was called.
  Status write_note(const AttemptNote& note) const;
  Result<AttemptNote> read_note() const;
  Status write_spec(const protocol::TrialSpec& spec) const;
  /// Makes what is in the folder, the folder and those above it up to TRIALS_DIR survive a power
  /// cut. Until then the coordinator may hear of no checkpoint in it.
  Status sync() const;
  /// Takes back a folder in which no trainer ran. Anything unknown in it stays, and so does it.
  void discard() const;
  /// On a full disk the old lease is overwritten in place: a few bytes that need no new block.
  Status write_lease(MonotonicMs deadline_ms) const;
  Status write_end(const protocol::Report& report) const;
  /// nullopt when there is none. Errors: unreadable.
  Result<std::optional<protocol::Report>> read_end() const;
  /// The attempt is over. A rename: works on a full disk. A power cut may undo it: the attempt is
  /// then asked about once more.
  Status finish() const;

 private:
  std::string path_;
};

/// Checkpoint folders of all attempts of the trial, newest attempt first, without that of `ref`.
std::vector<std::string> checkpoint_folders(const std::string& trials_dir,
                                            const protocol::AttemptRef& ref);

/// The unfinished attempts of `worker_name` under `trials_dir`, in order. A note that cannot be
/// read is named in `*warnings` and passed by. Errors: the folder itself cannot be read.
Result<std::vector<AttemptNote>> find_attempts(const std::string& trials_dir,
                                               const std::string& worker_name,
                                               std::vector<std::string>* warnings);

}  // namespace tailor::agent
