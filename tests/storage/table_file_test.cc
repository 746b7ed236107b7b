// Tables as a file of their own: values come back, equal tables give equal bytes, and a failure
// leaves what was there.
#include "storage/table_file.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage {
namespace {

const std::vector<Table> kTables = {
    {"numbers",
     {"name", "value", "count", "none"},
     {{std::string("a'b\"c"), 0.1, std::int64_t{1} << 60, std::monostate()},
      {std::string(), -1e300, std::int64_t{-3}, std::monostate()}}},
    {"empty", {"x"}, {}}};

TEST(TableFile, GivesBackWhatWasWritten) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/t.db";
  ASSERT_TRUE(write_table_file(path, kTables).is_ok());
  SQLite::Database file(path);
  SQLite::Statement rows(file, "SELECT name, value, count, none FROM numbers ORDER BY rowid");
  ASSERT_TRUE(rows.executeStep());
  EXPECT_EQ(rows.getColumn(0).getString(), "a'b\"c");
  EXPECT_EQ(rows.getColumn(1).getDouble(), 0.1);
  EXPECT_EQ(rows.getColumn(2).getInt64(), std::int64_t{1} << 60);
  EXPECT_TRUE(rows.getColumn(3).isNull());
  ASSERT_TRUE(rows.executeStep());
  EXPECT_EQ(rows.getColumn(1).getDouble(), -1e300);
  EXPECT_FALSE(rows.executeStep());
  EXPECT_EQ(file.execAndGet("SELECT count(*) FROM empty").getInt(), 0);
  EXPECT_FALSE(std::filesystem::exists(path + ".new"));
}

TEST(TableFile, EqualTablesGiveEqualBytes) {
  const test::TemporaryFolder folder;
  ASSERT_TRUE(write_table_file(folder.path() + "/a.db", kTables).is_ok());
  ASSERT_TRUE(write_table_file(folder.path() + "/b.db", kTables).is_ok());
  ASSERT_TRUE(write_table_file(folder.path() + "/b.db", kTables).is_ok());  // over itself
  EXPECT_EQ(*read_file(folder.path() + "/a.db"), *read_file(folder.path() + "/b.db"));
}

TEST(TableFile, RefusesWhatDoesNotFit) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/t.db";
  ASSERT_TRUE(write_table_file(path, kTables).is_ok());
  const std::string before = *read_file(path);
  EXPECT_EQ(write_table_file(path, {{"t", {"x"}, {{0.1, 0.2}}}}).code(), Code::kInvalidArgument);
  EXPECT_EQ(write_table_file(path, {{"t; DROP", {"x"}, {}}}).code(), Code::kInvalidArgument);
  EXPECT_EQ(write_table_file(path, {{"t", {}, {}}}).code(), Code::kInvalidArgument);
  EXPECT_FALSE(write_table_file(path, {kTables[0], kTables[0]}).is_ok());  // one name twice
  EXPECT_EQ(*read_file(path), before);
  EXPECT_FALSE(write_table_file(folder.path() + "/none/t.db", kTables).is_ok());
}

}  // namespace
}  // namespace tailor::storage
