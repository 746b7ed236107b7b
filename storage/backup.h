// Backup of a running database. Internal to storage/.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "storage/migrations.h"

namespace tailor::storage {

/// Copies the database file `from` to `to` while others write it: to a temporary name, checked
/// (integrity_check, schema), synced, renamed. `to` is as it was unless ok. The copy is one file,
/// usable by `open_sqlite` as it is. Errors: kInvalidArgument (`to` is the database),
/// kFailedPrecondition (`to` has a write-ahead log: a database in use), kDataLoss (the copy does
/// not check), kResourceExhausted, kNotFound, … Threads: any.
Status backup_database(const std::string& from, const std::string& to,
                       std::span<const Migration> migrations);

/// PRAGMA integrity_check (or quick_check). Errors: kDataLoss with what it said.
Status check_integrity(SQLite::Database& db, const std::string& path, bool quick);

}  // namespace tailor::storage
