// ArtifactStore: checkpoints that workers bring to the coordinator, so that a trial goes on where
// its worker's disk cannot be reached.
//
//     ROOT/t41/2-3fa-000000120-1f0c.../          whole: verified, synced, renamed
//                  files.json                    what it holds: names, sizes, SHA-256
//                  data/manifest.json ...        the files of the checkpoint
//     ROOT/t41/2-3fa-000000120-1f0c....part/     on its way; writing goes on where it ended
//     ROOT/identity                              of which database they are
//     ROOT/.lock                                 held while a coordinator lives
//
// The folder is the truth: it is read when the store is opened. A file is whole when its bytes have
// the SHA-256 that was declared for it, read back from the disk; an artifact, when all are.
// Threads: any. Calls on one artifact wait for each other; `finish` reads all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "storage/file_guard.h"

namespace tailor::storage {

/// Names a checkpoint. The hash makes it unique; the rest says what it is good for.
struct ArtifactKey {
  AttemptId attempt;
  std::uint64_t generation = 0;  ///< of the database that gave the attempt its number
  std::int64_t step = 0;
  std::string sha256;  ///< of its manifest, 64 hex digits
  friend auto operator<=>(const ArtifactKey&, const ArtifactKey&) = default;
};

struct ArtifactFile {
  std::string name;  ///< no folders
  std::uint64_t bytes = 0;
  std::string sha256;
  friend bool operator==(const ArtifactFile&, const ArtifactFile&) = default;
};

struct Artifact {
  ArtifactKey key;
  std::uint64_t bytes = 0;     ///< of a part: announced
  bool whole = true;           ///< false: a part, on its way
  std::int64_t written_s = 0;  ///< of a part: when it was last written to, by the system's clock
  friend bool operator==(const Artifact&, const Artifact&) = default;
};

/// What a trial's artifacts are still good for.
enum class ArtifactUse {
  kOpen,       ///< the trial runs, waits or is paused: its newest one is never let go
  kEnded,      ///< may be tried again by a person: the newest one is kept until space is needed
  kCompleted,  ///< needs none
  kUnknown,    ///< no such trial here (a restored database): as kEnded
};

/// What the rows of a trial say of its artifacts.
struct ArtifactNeeds {
  ArtifactUse use = ArtifactUse::kUnknown;
  /// The checkpoints that it reported: attempt's number, step, SHA-256. Others are another
  /// history's, in which the trial's number was another one's, or the trial went another way: they
  /// are neither offered nor do they supersede anything.
  std::set<std::tuple<std::uint32_t, std::int64_t, std::string>> named;
  bool names(const ArtifactKey& key) const {
    return named.contains({key.attempt.number, key.step, key.sha256});
  }
};

/// Newest first: of a later generation, of a later attempt, of a later step. (An attempt that had
/// to start over begins another history.)
bool is_newer(const ArtifactKey& a, const ArtifactKey& b);

/// What may be removed of the artifacts of one trial. Pure.
struct Garbage {
  /// Whatever the space: what is superseded, what completed trials left, parts that nobody has
  /// written to since `stale_before_s`.
  std::vector<ArtifactKey> now;
  // When space is needed, in this order: parts that nobody has written to since `idle_before_s`,
  // other histories', the last of trials that have ended.
  std::vector<ArtifactKey> idle;
  std::vector<ArtifactKey> others;
  std::vector<ArtifactKey> ended;
};
struct PartAges {
  std::int64_t stale_before_s = 0;
  std::int64_t idle_before_s = 0;
};
Garbage garbage_of(const std::vector<Artifact>& of_trial, const ArtifactNeeds& needs,
                   const PartAges& ages);

/// A sum of sizes that others declared: exact for taking away again, and at most the greatest
/// number for who asks.
class ByteSum {
 public:
  void add(std::uint64_t bytes) {
    low_ += bytes;
    high_ += low_ < bytes ? 1 : 0;
  }
  /// REQUIRES: it was added.
  void take(std::uint64_t bytes) {
    high_ -= low_ < bytes ? 1 : 0;
    low_ -= bytes;
  }
  std::uint64_t value() const {
    return high_ > 0 ? std::numeric_limits<std::uint64_t>::max() : low_;
  }

 private:
  std::uint64_t low_ = 0;
  std::uint64_t high_ = 0;  // times that `low_` went around
};

class ArtifactStore {
 public:
  /// Makes ROOT if it is missing and reads what is there. `quota_bytes` bounds everything in it.
  /// The folder is locked for this process until destruction, and bears the name of `database`
  /// (ROOT/identity): nobody else can tell what is garbage in it. What is damaged or foreign is
  /// named in `*warnings` and left alone, until an artifact is whole that has its name. Errors:
  /// kAlreadyExists (another process has it), kAborted (it is another database's), the system's
  /// reason.
  static Result<std::unique_ptr<ArtifactStore>> open(const std::string& root,
                                                     std::uint64_t quota_bytes,
                                                     const std::string& database,
                                                     std::vector<std::string>* warnings);

  /// The whole ones, by key.
  std::vector<Artifact> list() const;
  /// Those of a trial by key, parts too.
  std::vector<Artifact> list(TrialId trial) const;
  /// The trials that have any, parts too.
  std::vector<TrialId> trials() const;
  std::vector<TrialId> trials_with_parts() const;
  std::optional<Artifact> find(TrialId trial, std::string_view sha256) const;
  /// Bytes of everything, parts included at their full size.
  std::uint64_t bytes() const;
  std::uint64_t quota() const { return quota_bytes_; }

  /// How far each declared file is there already, by name. `whole`: nothing is left to do.
  struct Progress {
    bool whole = false;
    std::map<std::string, std::uint64_t> bytes;
  };
  /// Announces an artifact, or asks how far an announced one has come. Errors: kInvalidArgument (a
  /// name, a hash, no manifest.json of the key's hash), kResourceExhausted (the quota; with how
  /// much is missing), kFailedPrecondition (announced before with other files).
  Result<Progress> begin(const ArtifactKey& key, const std::vector<ArtifactFile>& files);
  /// Appends to a file. Errors: kNotFound (not announced), kOutOfRange when `offset` is not where
  /// the file ends (ask `begin`) or the file would grow beyond its declared size.
  Status write(const ArtifactKey& key, std::string_view file, std::uint64_t offset,
               std::string_view bytes);
  /// Verifies and keeps it. Errors: kFailedPrecondition (bytes are missing), kDataLoss (a file is
  /// not what was declared: that file is started over), the system's reason.
  Status finish(const ArtifactKey& key);

  Result<std::vector<ArtifactFile>> files(const ArtifactKey& key) const;
  /// At most `bytes_max` from `offset`; fewer only at the end. Errors: kNotFound.
  Result<std::string> read(const ArtifactKey& key, std::string_view file, std::uint64_t offset,
                           std::size_t bytes_max) const;
  /// Whole or not. Nothing happens when it is not there.
  Status remove(const ArtifactKey& key);

 private:
  struct Entry {
    std::vector<ArtifactFile> files;
    std::uint64_t bytes = 0;
    bool whole = false;
    std::shared_ptr<std::mutex> busy = std::make_shared<std::mutex>();
  };
  ArtifactStore(std::string root, std::uint64_t quota_bytes, FileLock lock)
      : root_(std::move(root)), quota_bytes_(quota_bytes), lock_(std::move(lock)) {}

  std::string folder_of(const ArtifactKey& key) const;
  std::optional<Entry> entry(const ArtifactKey& key) const;
  /// The entry, and nobody else at work on it; nullopt when there is none (any more).
  struct Held {
    Entry entry;
    std::unique_lock<std::mutex> busy;
  };
  std::optional<Held> hold(const ArtifactKey& key) const;
  void forget(const ArtifactKey& key);
  void load(std::vector<std::string>* warnings);

  const std::string root_;
  const std::uint64_t quota_bytes_;
  const FileLock lock_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<ArtifactKey, Entry> entries_;
  ByteSum bytes_;  // of all entries
};

}  // namespace tailor::storage
