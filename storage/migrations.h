// Migrations: numbered SQL files that lead from any earlier schema to this program's, and the check
// that a database has exactly the schema that they give. Internal to storage/.
//
// The version is SQLite's user_version; application_id marks the file as ours. Every migration is
// one transaction that also sets the version, so a crash leaves the old schema or the new one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace SQLite {
class Database;
}

namespace tailor::storage {

struct Migration {
  int version = 0;        ///< from 1, without gaps
  std::string_view name;  ///< "001_initial"
  std::string_view sql;
};

/// schema/*.sql, embedded at build time.
std::span<const Migration> embedded_migrations();

/// "TLOR": application_id of every Tailor database.
inline constexpr std::int32_t kApplicationId = 0x544C4F52;

/// Brings `db` (the file `path`) to the last of `migrations`. A database that has a schema already
/// is first copied to "PATH.schema-N.backup". Errors: kFailedPrecondition (another program's file;
/// a newer schema, both versions named), kInternal (a migration that does not run), those of the
/// file; the schema is then as it was. True when something was migrated.
Result<bool> migrate(SQLite::Database& db, const std::string& path,
                     std::span<const Migration> migrations);

/// Tables, indexes, views and triggers are those that `migrations` give, nothing missing, changed
/// or more. Errors: kFailedPrecondition naming the object.
Status verify_schema(SQLite::Database& db, const std::string& path,
                     std::span<const Migration> migrations);

}  // namespace tailor::storage
