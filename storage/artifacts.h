// ArtifactStore: checkpoints that workers bring to the coordinator, so that a trial goes on where
// its worker's disk cannot be reached.
//
//     ROOT/t41/2-3fa-000000120-1f0c.../          whole: verified, synced, renamed
//                  files.json                    what it holds: names, sizes, SHA-256
//                  data/manifest.json ...        the files of the checkpoint
//     ROOT/t41/2-3fa-000000120-1f0c....part/     on its way; writing goes on where it ended
//
// The folder is the truth: it is read when the store is opened. A file is whole when its bytes have
// the SHA-256 that was declared for it, read back from the disk; an artifact, when all are.
// Threads: any. Calls on one artifact wait for each other; `finish` reads all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

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
  std::uint64_t bytes = 0;
  friend bool operator==(const Artifact&, const Artifact&) = default;
};

/// What a trial's artifacts are still good for.
enum class ArtifactUse {
  kOpen,       ///< the trial runs, waits or is paused: its newest one is never let go
  kEnded,      ///< may be tried again by a person: the newest one is kept until space is needed
  kCompleted,  ///< needs none
  kUnknown,    ///< no such trial here (a restored database): as kEnded
};

/// What may be removed: now, whatever the space (superseded ones, those of completed trials), and
/// what only when space is needed, in that order. Pure.
struct Garbage {
  std::vector<ArtifactKey> now;
  std::vector<ArtifactKey> for_space;
};
Garbage garbage_of(const std::vector<Artifact>& all,
                   const std::function<ArtifactUse(TrialId)>& use_of);

class ArtifactStore {
 public:
  /// Makes ROOT if it is missing and reads what is there. `quota_bytes` bounds everything in it.
  /// What is damaged or foreign is named in `*warnings` and left alone. Errors: the system's
  /// reason.
  static Result<std::unique_ptr<ArtifactStore>> open(const std::string& root,
                                                     std::uint64_t quota_bytes,
                                                     std::vector<std::string>* warnings);

  /// The whole ones, by key.
  std::vector<Artifact> list() const;
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
  /// Removes parts that nothing was written to since `before` (seconds of the system's clock).
  void remove_stale_parts(std::int64_t before_s);

 private:
  struct Entry {
    std::vector<ArtifactFile> files;
    std::uint64_t bytes = 0;
    bool whole = false;
    std::shared_ptr<std::mutex> busy = std::make_shared<std::mutex>();
  };
  ArtifactStore(std::string root, std::uint64_t quota_bytes)
      : root_(std::move(root)), quota_bytes_(quota_bytes) {}

  std::string folder_of(const ArtifactKey& key) const;
  std::optional<Entry> entry(const ArtifactKey& key) const;
  void load(std::vector<std::string>* warnings);

  const std::string root_;
  const std::uint64_t quota_bytes_;
  mutable std::mutex mutex_;  // guards: entries_
  std::map<ArtifactKey, Entry> entries_;
};

}  // namespace tailor::storage
