// SQLite connections and their failures.
#include "storage/sqlite_connection.h"

#include <SQLiteCpp/Backup.h>
#include <errno.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <system_error>

#include "storage/query_memory.h"

namespace tailor::storage {
namespace {

// An administrator's sqlite3 shell may hold a lock for a moment.
constexpr int kBusyTimeoutMs = 5000;

bool no_space(int error_number) { return error_number == ENOSPC || error_number == EDQUOT; }

}  // namespace

Status sqlite_status(const SQLite::Exception& failure, sqlite3* handle, const std::string& path) {
  const int extended =
      failure.getExtendedErrorCode() > 0 ? failure.getExtendedErrorCode() : failure.getErrorCode();
  const int primary = failure.getErrorCode() & 0xff;
  const int system = handle != nullptr ? sqlite3_system_errno(handle) : 0;
  const std::string why = failure.what();
  switch (primary) {
    case SQLITE_FULL:
      return Status(
          Code::kResourceExhausted,
          fmt::format("{}: the disk is full, nothing was written; free space and it goes on",
                      path));
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Status(
          Code::kDataLoss,
          fmt::format("{}: the database is corrupt ({}); keep the file and what lies beside it, "
                      "put the latest backup in its place, or try `sqlite3 {} .recover`",
                      path, why, path));
    case SQLITE_IOERR:
      if (no_space(system)) {
        return Status(
            Code::kResourceExhausted,
            fmt::format("{}: the disk is full, nothing was written; free space and it goes on",
                        path));
      }
      return Status(
          Code::kUnavailable,
          fmt::format("{}: reading or writing failed ({}, {}); look at the disk and the kernel log",
                      path, why, std::generic_category().message(system)));
    case SQLITE_NOMEM:
      return Status(Code::kResourceExhausted, fmt::format("{}: out of memory", path));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Status(
          Code::kUnavailable,
          fmt::format("{}: locked by another program ({}); close it and try again", path, why));
    case SQLITE_CANTOPEN:
      if (no_space(system)) {
        return Status(Code::kResourceExhausted, fmt::format("{}: the disk is full", path));
      }
      return Status(
          system == EACCES || system == EPERM ? Code::kPermissionDenied : Code::kUnavailable,
          fmt::format("{}: cannot be opened ({})", path,
                      system != 0 ? std::generic_category().message(system) : why));
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return Status(
          Code::kPermissionDenied,
          fmt::format("{}: not writable ({}); check the owner and mode of the file and its folder",
                      path, why));
    case SQLITE_AUTH:
      return Status(Code::kPermissionDenied, why);
    case SQLITE_INTERRUPT:
      return Status(Code::kDeadlineExceeded, fmt::format("{}: interrupted", path));
    case SQLITE_CONSTRAINT:
      return Status(extended == SQLITE_CONSTRAINT_UNIQUE || extended == SQLITE_CONSTRAINT_PRIMARYKEY
                        ? Code::kAlreadyExists
                        : Code::kFailedPrecondition,
                    fmt::format("{}: {}", path, why));
    default:
      return Status(Code::kInternal, fmt::format("{}: SQLite: {} (code {})", path, why, extended));
  }
}

void throw_corrupt(std::string_view what) {
  throw SQLite::Exception(std::string(what), SQLITE_CORRUPT);
}

Connection::Connection(const std::string& path, int flags)
    : db_((install_query_memory(), path), flags | SQLite::OPEN_NOMUTEX, kBusyTimeoutMs) {
  sqlite3_extended_result_codes(handle(), 1);
}

SQLite::Statement& Connection::statement(std::string_view sql) {
  std::unique_ptr<SQLite::Statement>& entry = statements_[sql];
  if (!entry) entry = std::make_unique<SQLite::Statement>(db_, std::string(sql));
  return *entry;
}

void copy_database(SQLite::Database& from, const std::string& to_path) {
  SQLite::Database to(to_path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE | SQLite::OPEN_NOMUTEX,
                      kBusyTimeoutMs);
  // All pages in one step: in WAL mode a reader never delays the writer, and a copy made in several
  // steps would start anew after every commit of another connection.
  {
    SQLite::Backup backup(to, from);
    if (const int result = backup.executeStep(-1); result != SQLITE_DONE) {
      throw SQLite::Exception("the copy is not complete", result);
    }
  }
  to.exec("PRAGMA synchronous=FULL");
  // Leaves WAL mode: the copy is then one file that can be moved about alone.
  to.exec("PRAGMA journal_mode=DELETE");
}

}  // namespace tailor::storage
