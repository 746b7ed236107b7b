// Migrations: from every earlier schema to this one, and what is refused.
#include "storage/migrations.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "rows.h"
#include "storage/sqlite_store.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT
using test::TemporaryFolder;
using ::testing::HasSubstr;

std::vector<Migration> with_future(std::string_view sql) {
  std::vector<Migration> all(embedded_migrations().begin(), embedded_migrations().end());
  all.push_back({all.back().version + 1, "future", sql});
  return all;
}

Result<std::unique_ptr<Store>> open(const std::string& path,
                                    std::span<const Migration> migrations = {}) {
  SqliteOptions options;
  options.allow_network_file_system = true;
  options.migrations = migrations;
  return open_sqlite(path, options);
}

void make_database(const std::string& path) {
  auto store = open(path);
  ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
  ASSERT_TRUE((*store)->commit(make_base(2)).is_ok());
}

void execute(const std::string& path, const std::string& sql) {
  SQLite::Database db(path, SQLite::OPEN_READWRITE);
  db.exec(sql);
}

TEST(Migrations, AreNumberedFromOneWithoutGaps) {
  int expected = 1;
  for (const Migration& migration : embedded_migrations()) {
    EXPECT_EQ(migration.version, expected++);
    EXPECT_FALSE(migration.sql.empty());
  }
  EXPECT_GT(expected, 1);
}

TEST(Migrations, EveryEarlierSchemaIsBroughtUpToDate) {
  for (std::size_t count = 1; count <= embedded_migrations().size(); ++count) {
    const TemporaryFolder folder;
    const std::string path = folder.file("a.db");
    ASSERT_TRUE(open(path, embedded_migrations().first(count)).has_value());
    const auto store = open(path);
    ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
    EXPECT_TRUE((*store)->commit(make_base()).is_ok());
  }
}

TEST(Migrations, AnExistingDatabaseIsCopiedFirstAndKeepsItsRows) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  make_database(path);
  const auto future =
      with_future("ALTER TABLE event ADD COLUMN extra TEXT; CREATE INDEX later ON event (kind);");
  {
    const auto store = open(path, future);
    ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
    EXPECT_EQ((*store)->trials({})->total, 2u);
  }
  const int version = embedded_migrations().back().version;
  const std::string copy = path + ".schema-" + std::to_string(version) + ".backup";
  const auto old = open(copy);  // this program's schema, and all rows
  ASSERT_TRUE(old.has_value()) << status_of(old).to_string();
  EXPECT_EQ((*old)->trials({})->total, 2u);
}

TEST(Migrations, ANewDatabaseNeedsNoCopy) {
  const TemporaryFolder folder;
  make_database(folder.file("a.db"));
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().string().find("backup"), std::string::npos);
  }
}

TEST(Migrations, AFailedMigrationChangesNothing) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  make_database(path);
  const auto broken =
      with_future("CREATE TABLE extra (a TEXT) STRICT; INSERT INTO no_such_table VALUES (1);");
  EXPECT_FALSE(open(path, broken).has_value());
  const auto store = open(path);
  ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
  EXPECT_EQ((*store)->trials({})->total, 2u);
}

TEST(Migrations, ANewerSchemaIsRefusedWithBothVersionsAndLeftAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  const int version = embedded_migrations().back().version;
  { ASSERT_TRUE(open(path, with_future("CREATE TABLE extra (a TEXT) STRICT;")).has_value()); }
  const std::string before = *read_file(path);
  const auto refused = open(path);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().message(), HasSubstr("schema " + std::to_string(version + 1)));
  EXPECT_THAT(refused.error().message(), HasSubstr("this program's " + std::to_string(version)));
  EXPECT_EQ(*read_file(path), before);
}

TEST(Migrations, AChangedSchemaIsRefusedByTheNameOfWhatChanged) {
  const std::vector<std::pair<std::string, std::string>> changes{
      {"DROP INDEX event_by_trial", "index event_by_trial is missing"},
      {"DROP VIEW trial_view", "view trial_view is missing"},
      {"ALTER TABLE event ADD COLUMN extra TEXT", "table event is not as this program makes it"},
      {"CREATE TRIGGER t AFTER INSERT ON event BEGIN DELETE FROM trial; END",
       "trigger t is unknown"},
  };
  for (const auto& [sql, complaint] : changes) {
    const TemporaryFolder folder;
    make_database(folder.file("a.db"));
    execute(folder.file("a.db"), sql);
    const auto refused = open(folder.file("a.db"));
    ASSERT_FALSE(refused.has_value()) << sql;
    EXPECT_EQ(refused.error().code(), Code::kFailedPrecondition);
    EXPECT_THAT(refused.error().message(), HasSubstr(complaint));
  }
}

TEST(Migrations, StatisticsOfAnalyzeAreNoChange) {
  const TemporaryFolder folder;
  make_database(folder.file("a.db"));
  execute(folder.file("a.db"), "ANALYZE");
  EXPECT_TRUE(open(folder.file("a.db")).has_value());
}

}  // namespace
}  // namespace tailor::storage
