// The durable Store: one SQLite file in WAL mode with synchronous=FULL (storage/README.md has the
// schema and the formats). Threads: as Store says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "storage/migrations.h"
#include "storage/store.h"

namespace tailor::storage {

struct SqliteOptions {
  /// Open even on NFS, SMB, FUSE and the like.
  /// For people who know that theirs locks and syncs truly.
  bool allow_network_file_system = false;
  /// `PRAGMA quick_check` at start for files up to this size (about 0.1 s a 30 MB); larger files
  /// are checked by `tailor backup` and, page by page, in use.
  std::uint64_t quick_check_bytes_max = 64ull << 20;
  /// Idle read connections that are kept; more are opened and closed as needed.
  std::size_t readers_idle_max = 4;
  /// Of a new file, and of one that is migrated: a power of two, 512 to 65,536. A page is the least
  /// that a batch writes to the log for each place that it changes.
  std::uint32_t page_bytes = 1024;
  /// Tests: the file may not grow over this many pages, as if the disk were full.
  /// 0 = no limit.
  std::uint32_t pages_max = 0;
  /// Tests: other migrations than the embedded ones.
  std::span<const Migration> migrations = {};
  /// Told what there is to say about the file that was opened, on the calling thread. May be empty.
  std::function<void(const std::string&)> notice = {};
};

/// Opens or creates the database `path`, whose folder must exist. Takes PATH.lock, checks the file
/// system, migrates (after a copy to PATH.schema-N.backup), verifies the schema. Errors:
/// kAlreadyExists (open in another process, which is named); kFailedPrecondition (a network file
/// system; a newer schema; a schema changed by hand; another program's database), kDataLoss
/// (corrupt, with what to do), kNotFound, kPermissionDenied, kResourceExhausted, kUnavailable.
Result<std::unique_ptr<Store>> open_sqlite(const std::string& path,
                                           const SqliteOptions& options = {});

/// The name of a database, which it keeps for ever; its backups and copies have the same. Errors:
/// it cannot be read.
Result<std::string> database_identity(const Store& store);

}  // namespace tailor::storage
