// Backup.
#include "storage/backup.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdio.h>

#include <filesystem>

#include "base/file.h"
#include "storage/generation.h"
#include "storage/sqlite_connection.h"

namespace tailor::storage {
namespace {

namespace fs = std::filesystem;

Status copy_and_check(const std::string& from, const std::string& temporary,
                      std::span<const Migration> migrations) {
  TAILOR_RETURN_IF_ERROR(guarded(nullptr, temporary, [&]() -> Status {
    Connection source(from, SQLite::OPEN_READONLY);
    copy_database(source.db(), temporary);
    return {};
  }));
  TAILOR_RETURN_IF_ERROR(guarded(nullptr, temporary, [&]() -> Status {
    Connection copy(temporary, SQLite::OPEN_READWRITE);
    mark_backup(copy);
    return {};
  }));
  const Status checked = guarded(nullptr, temporary, [&]() -> Status {
    Connection copy(temporary, SQLite::OPEN_READONLY);
    TAILOR_RETURN_IF_ERROR(check_integrity(copy.db(), temporary, false));
    return verify_schema(copy.db(), temporary, migrations);
  });
  TAILOR_RETURN_IF_ERROR(checked);
  return sync_file(temporary);
}

}  // namespace

Status check_integrity(SQLite::Database& db, const std::string& path, bool quick) {
  return guarded(db.getHandle(), path, [&]() -> Status {
    SQLite::Statement check(db, quick ? "PRAGMA quick_check(1)" : "PRAGMA integrity_check(1)");
    check.executeStep();
    const std::string answer = check.getColumn(0).getString();
    if (answer != "ok") throw_corrupt(answer);
    return {};
  });
}

Status backup_database(const std::string& from, const std::string& to,
                       std::span<const Migration> migrations) {
  std::error_code ec;
  const fs::path target = fs::absolute(to, ec);
  if (to.empty() || ec || target.filename().empty()) {
    return Status(Code::kInvalidArgument, fmt::format("`{}` is no file name for a backup", to));
  }
  if (!fs::is_directory(target.parent_path(), ec)) {
    return Status(Code::kNotFound, fmt::format("{}: there is no such folder for the backup",
                                               target.parent_path().string()));
  }
  if (fs::is_directory(target, ec)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is a folder; give a file name", target.string()));
  }
  if (fs::equivalent(target, from, ec)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is the database itself", target.string()));
  }
  if (fs::exists(target.string() + "-wal", ec)) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("{}-wal exists: {} is a database in use; choose another name",
                              target.string(), target.string()));
  }
  const std::string temporary = fmt::format("{}.tmp.{}", target.string(), ::getpid());
  fs::remove(temporary, ec);
  Status status = copy_and_check(from, temporary, migrations);
  if (status.is_ok() && ::rename(temporary.c_str(), target.c_str()) != 0) {
    status = errno_status(errno, "rename", temporary);
  }
  if (!status.is_ok()) {
    for (const char* suffix : {"", "-journal", "-wal", "-shm"}) fs::remove(temporary + suffix, ec);
    return status.with_context("backup");
  }
  return sync_directory(target.parent_path().string());
}

}  // namespace tailor::storage
