// One SQLite connection with its prepared statements, and the one place where SQLite's failures
// become a Status. Internal to storage/: nothing outside sees SQLite.
//
// SQLiteCpp throws; code between `guarded` and SQLite lets exceptions pass, and nothing else does.
// Threads: a Connection is used by one thread at a time (opened with NOMUTEX).
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/status.h"

struct sqlite3;

namespace tailor::storage {

/// The Status for a failure of SQLite on the file `path`. `handle` may be null.
Status sqlite_status(const SQLite::Exception& failure, sqlite3* handle, const std::string& path);

/// Throws what `guarded` turns into kDataLoss: a stored value that this program
/// could not have written.
[[noreturn]] void throw_corrupt(std::string_view what);

/// Runs `f`, which returns Status or a Result, and turns SQLite's exceptions into its failing side.
template <typename F>
auto guarded(sqlite3* handle, const std::string& path, F&& f) -> std::invoke_result_t<F> {
  try {
    return std::forward<F>(f)();
  } catch (const SQLite::Exception& failure) {
    return ::tailor::internal::as_return(sqlite_status(failure, handle, path));
  } catch (const std::bad_alloc&) {
    return ::tailor::internal::as_return(
        Status(Code::kResourceExhausted, path + ": out of memory"));
  }
}

/// Bytes to bind as a BLOB rather than as TEXT.
struct Blob {
  const std::string& bytes;
};

/// A use of a cached statement: parameters bound at construction, reset at the end of the scope.
/// Bound strings are not copied: they must outlive the Query.
class Query {
 public:
  template <typename... Args>
  explicit Query(SQLite::Statement& statement, const Args&... args) : statement_(statement) {
    statement_.reset();
    [[maybe_unused]] int index = 0;
    (bind(++index, args), ...);
  }
  ~Query() {
    (void)statement_.tryReset();  // a failure was already reported by the step
  }
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;

  /// Runs a statement without result rows.
  void run() { statement_.exec(); }
  /// The next row, false at the end.
  bool next() { return statement_.executeStep(); }

  std::int64_t integer(int column) { return statement_.getColumn(column).getInt64(); }
  std::uint64_t u64(int column) { return static_cast<std::uint64_t>(integer(column)); }
  std::uint32_t u32(int column) { return narrow<std::uint32_t>(column); }
  std::int32_t i32(int column) { return narrow<std::int32_t>(column); }
  /// NaN where the column is NULL.
  double real(int column) {
    const SQLite::Column value = statement_.getColumn(column);
    return value.isNull() ? std::nan("") : value.getDouble();
  }
  bool null(int column) { return statement_.isColumnNull(column); }
  /// TEXT or BLOB, whole.
  std::string text(int column) { return statement_.getColumn(column).getString(); }

 private:
  template <typename T>
  T narrow(int column) {
    const std::int64_t value = integer(column);
    if (!std::in_range<T>(value)) throw_corrupt("a number out of range");
    return static_cast<T>(value);
  }
  void bind(int index, std::int64_t value) { statement_.bind(index, value); }
  void bind(int index, std::uint64_t value) {
    statement_.bind(index, static_cast<std::int64_t>(value));
  }
  void bind(int index, std::int32_t value) { statement_.bind(index, value); }
  void bind(int index, std::uint32_t value) { statement_.bind(index, value); }
  void bind(int index, bool value) { statement_.bind(index, value ? 1 : 0); }
  void bind(int index, double value) {
    if (std::isnan(value)) {
      statement_.bind(index);  // SQLite has no NaN
    } else {
      statement_.bind(index, value);
    }
  }
  void bind(int index, const std::string& text) { statement_.bindNoCopy(index, text); }
  void bind(int index, std::string_view text) { statement_.bind(index, std::string(text)); }
  void bind(int index, const Blob& blob) {
    statement_.bindNoCopy(index, blob.bytes.data(), static_cast<int>(blob.bytes.size()));
  }

  SQLite::Statement& statement_;
};

class Connection {
 public:
  /// Opens; throws SQLite::Exception. `path` is absolute (a name "file:…" would be read as a URI).
  Connection(const std::string& path, int flags);

  SQLite::Database& db() { return db_; }
  sqlite3* handle() { return db_.getHandle(); }

  /// The statement of this text, prepared once. `sql` is a literal: it must outlive the connection.
  SQLite::Statement& statement(std::string_view sql);

 private:
  SQLite::Database db_;
  std::unordered_map<std::string_view, std::unique_ptr<SQLite::Statement>> statements_;
};

/// Copies the database `from` into the new file `to_path` (online, one consistent state, WAL
/// included), as one file without a write-ahead log, synced. Throws SQLite::Exception. The caller
/// checks and renames it.
void copy_database(SQLite::Database& from, const std::string& to_path);

}  // namespace tailor::storage
