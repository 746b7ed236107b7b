// A user's SQL: a table within the limits or an error, whatever it says, and the database as it
// was.
#include <unistd.h>

#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "storage/guarded_query.h"
#include "storage/sqlite_store.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

const SystemClock& clock_of_this() {
  static const SystemClock clock;
  return clock;
}

/// A closed, empty database of this process.
const std::string& database() {
  static const struct Folder {
    Folder() {
      path = (std::filesystem::temp_directory_path() /
              ("tailor-fuzz-query-" + std::to_string(::getpid())))
                 .string();
      std::filesystem::create_directories(path);
      file = path + "/tailor.db";
      auto store = storage::open_sqlite(file);
      expect(store.has_value(), "the database opens");
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    std::string path, file;
  } folder;
  return folder.file;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  std::string deep = "SELECT ", sums = "SELECT 1", unions = "SELECT 1", cases = "1",
              many = "SELECT 1";
  for (int i = 0; i < 3000; ++i) {
    deep += "(";
    sums += "+1";
    unions += " UNION SELECT 1";
    cases = "CASE WHEN " + cases + " THEN 1 END";
    many += ",1";
  }
  return {
      "SELECT * FROM sweep_view",
      "SELECT name, count(*) FROM sqlite_master GROUP BY 1 ORDER BY 2 DESC LIMIT 5",
      "SELECT * FROM metric_view WHERE trial = 1",
      "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
      "SELECT randomblob(1000000000), zeroblob(1000000000), printf('%.*c', 100000000, 'x')",
      "SELECT replace(hex(zeroblob(100000)), '0', hex(zeroblob(100000)))",
      "SELECT group_concat(a.name, b.name) FROM sqlite_master a, sqlite_master b, sqlite_master c",
      "SELECT 'a' LIKE '%a%a%a%a%a%a%a%a%', 'x' GLOB '*[a-z]*[a-z]*'",
      "SELECT json_extract('[1]', '$[0]'), json('[[[[[[[[1]]]]]]]]')",
      "INSERT INTO sweep VALUES (1)",
      "ATTACH 'x' AS y",
      "PRAGMA journal_mode = DELETE",
      std::string("SELECT 1\0 garbage", 17),
      "SELECT '" + std::string(3000, 'a') + "' LIKE '" + many + "'",
      deep,
      sums,
      unions,
      "SELECT " + cases,
      many};
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  storage::QueryLimits limits;
  limits.rows_max = 100;
  limits.time_ms_max = 100;
  const auto table = storage::guarded_query(fuzz::database(), fuzz::as_text(data, size), limits,
                                            fuzz::clock_of_this());
  if (!table) {
    fuzz::expect(!table.error().message().empty(), "an error says something");
    return 0;
  }
  fuzz::expect(table->rows.size() <= limits.rows_max, "the limit of rows holds");
  for (const auto& row : table->rows)
    fuzz::expect(row.size() == table->columns.size(), "rows are whole");
  return 0;
}
