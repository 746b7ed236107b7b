#include "storage/table_file.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "base/file.h"

namespace tailor::storage {
namespace {

bool is_word(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

Status check(const Table& table) {
  bool named = is_word(table.name) && !table.columns.empty();
  for (const std::string& column : table.columns) named = named && is_word(column);
  if (!named) {
    return Status(Code::kInvalidArgument,
                  fmt::format("table \"{}\": names are words, and it has columns", table.name));
  }
  for (const auto& row : table.rows) {
    if (row.size() == table.columns.size()) continue;
    return Status(Code::kInvalidArgument,
                  fmt::format("table \"{}\": a row of {} values for {} columns", table.name,
                              row.size(), table.columns.size()));
  }
  return Status::ok();
}

void bind(SQLite::Statement& statement, int index, const Cell& cell) {
  if (const auto* integer = std::get_if<std::int64_t>(&cell)) {
    statement.bind(index, *integer);
  } else if (const auto* real = std::get_if<double>(&cell)) {
    statement.bind(index, *real);
  } else if (const auto* text = std::get_if<std::string>(&cell)) {
    statement.bindNoCopy(index, *text);
  } else {
    statement.bind(index);  // NULL
  }
}

void write_tables(const std::string& path, const std::vector<Table>& tables) {
  SQLite::Database file(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  // The file gets its name only when it is whole, so a journal would protect nothing.
  file.exec("PRAGMA journal_mode = OFF");
  SQLite::Transaction transaction(file);
  for (const Table& table : tables) {
    file.exec(fmt::format("CREATE TABLE \"{}\" (\"{}\")", table.name,
                          fmt::join(table.columns, "\", \"")));
    const std::vector<std::string> marks(table.columns.size(), "?");
    SQLite::Statement insert(
        file, fmt::format("INSERT INTO \"{}\" VALUES ({})", table.name, fmt::join(marks, ", ")));
    for (const auto& row : table.rows) {
      for (std::size_t i = 0; i < row.size(); ++i) bind(insert, static_cast<int>(i) + 1, row[i]);
      insert.exec();
      insert.reset();
    }
  }
  transaction.commit();
}

}  // namespace

Status write_table_file(const std::string& path, const std::vector<Table>& tables) {
  for (const Table& table : tables) TAILOR_RETURN_IF_ERROR(check(table));
  const std::string temporary = path + ".new";
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  try {
    write_tables(temporary, tables);
  } catch (const SQLite::Exception& failure) {
    std::filesystem::remove(temporary, ignored);
    const bool full = failure.getErrorCode() == 13;  // SQLITE_FULL
    return Status(full ? Code::kResourceExhausted : Code::kUnavailable,
                  fmt::format("{}: {}", path, failure.what()));
  }
  TAILOR_RETURN_IF_ERROR(sync_file(temporary));
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return errno_status(errno, "rename", temporary);
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return sync_directory(folder.empty() ? "." : folder);
}

}  // namespace tailor::storage
