// Migrations.
#include "storage/migrations.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "storage/sqlite_connection.h"

namespace tailor::storage {
namespace {

using Objects = std::map<std::string, std::string>;  // "index event_by_trial" -> its SQL

// White space outside of meaning: SQLite keeps the text of CREATE as it was typed.
std::string normalised(const std::string& sql) {
  std::string out;
  bool space = false;
  for (const char c : sql) {
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      space = true;
      continue;
    }
    if (space && !out.empty()) out += ' ';
    space = false;
    out += c;
  }
  return out;
}

Objects objects_of(SQLite::Database& db) {
  Objects objects;
  // sqlite_% are SQLite's own: automatic indexes (they follow from the tables)
  // and ANALYZE's statistics.
  SQLite::Statement rows(db,
                         "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema "
                         "WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'");
  while (rows.executeStep()) {
    objects[rows.getColumn(0).getString()] = normalised(rows.getColumn(1).getString());
  }
  return objects;
}

int integer_pragma(SQLite::Database& db, const char* pragma) {
  return db.execAndGet(pragma).getInt();
}

void apply(SQLite::Database& db, const Migration& migration) {
  db.exec("BEGIN IMMEDIATE");
  try {
    db.exec(std::string(migration.sql));
    db.exec(fmt::format("PRAGMA user_version = {}", migration.version));
    db.exec("COMMIT");
  } catch (const SQLite::Exception&) {
    (void)db.tryExec("ROLLBACK");  // SQLite may have rolled back already
    throw;
  }
}

Status back_up_before(SQLite::Database& db, const std::string& path, int version) {
  const std::string target = fmt::format("{}.schema-{}.backup", path, version);
  const std::string temporary = target + ".tmp";
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  Status status = guarded(db.getHandle(), target, [&]() -> Status {
    copy_database(db, temporary);
    return {};
  });
  if (status.is_ok() && ::rename(temporary.c_str(), target.c_str()) != 0) {
    status = errno_status(errno, "rename", temporary);
  }
  if (!status.is_ok()) {
    std::filesystem::remove(temporary, ignored);
    return status.with_context("the copy before the migration failed, nothing was changed");
  }
  return sync_directory(std::filesystem::path(target).parent_path().string());
}

}  // namespace

Result<bool> migrate(SQLite::Database& db, const std::string& path,
                     std::span<const Migration> migrations) {
  TAILOR_CHECK(!migrations.empty());
  const int latest = migrations.back().version;
  return guarded(db.getHandle(), path, [&]() -> Result<bool> {
    const int version = integer_pragma(db, "PRAGMA user_version");
    const int application = integer_pragma(db, "PRAGMA application_id");
    const bool empty = objects_of(db).empty();
    if (!empty && application != kApplicationId) {
      return error(
          Code::kFailedPrecondition,
          fmt::format("{} is the SQLite database of another program; give another path", path));
    }
    if (version > latest) {
      return error(Code::kFailedPrecondition,
                   fmt::format("{} has schema {}, newer than this program's {}; run the newer "
                               "tailor-coordinator, or restore a backup made by this one",
                               path, version, latest));
    }
    if (version == latest) return false;
    if (empty) {
      db.exec(fmt::format("PRAGMA application_id = {}", kApplicationId));
    } else {
      TAILOR_RETURN_IF_ERROR(back_up_before(db, path, version));
    }
    for (const Migration& migration : migrations) {
      if (migration.version > version) apply(db, migration);
    }
    return true;
  });
}

Status verify_schema(SQLite::Database& db, const std::string& path,
                     std::span<const Migration> migrations) {
  return guarded(db.getHandle(), path, [&]() -> Status {
    SQLite::Database reference(":memory:", SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    for (const Migration& migration : migrations) apply(reference, migration);
    const Objects expected = objects_of(reference);
    const Objects found = objects_of(db);
    const auto wrong = [&](const std::string& object, std::string_view how) {
      return Status(
          Code::kFailedPrecondition,
          fmt::format("{}: {} {}; the schema was changed by hand: undo that, or restore a backup",
                      path, object, how));
    };
    for (const auto& [object, sql] : expected) {
      const auto it = found.find(object);
      if (it == found.end()) return wrong(object, "is missing");
      if (it->second != sql) return wrong(object, "is not as this program makes it");
    }
    for (const auto& [object, sql] : found) {
      if (expected.count(object) == 0) return wrong(object, "is unknown");
    }
    return {};
  });
}

}  // namespace tailor::storage
