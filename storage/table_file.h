// Tables as a SQLite file of their own: results that somebody wants to query, beside no database.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"

namespace tailor::storage {

/// A value of a table: NULL, INTEGER, REAL or TEXT.
using Cell = std::variant<std::monostate, std::int64_t, double, std::string>;

struct Table {
  std::string name;                  ///< a word of letters, digits and _
  std::vector<std::string> columns;  ///< the same
  std::vector<std::vector<Cell>> rows;
};

/// Writes `path` anew, atomically: temporary name, one transaction, rename. The same tables give
/// the same bytes. Errors: kInvalidArgument for a name or a row that does not fit, those of SQLite
/// and of the file system.
Status write_table_file(const std::string& path, const std::vector<Table>& tables);

}  // namespace tailor::storage
