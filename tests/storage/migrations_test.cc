// Migrations: from every earlier schema to this one, and what is refused.
#include "storage/migrations.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "rows.h"
#include "storage/chunk.h"
#include "storage/sqlite_store.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT
using test::TemporaryFolder;
using ::testing::ElementsAre;
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
    {
      SQLite::Database db(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
      ASSERT_TRUE(migrate(db, path, embedded_migrations().first(count)).has_value());
    }
    const auto store = open(path);
    ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
    EXPECT_TRUE((*store)->commit(make_base()).is_ok());
  }
}

// Rows as every schema before 005 had them.
void fill_old_schema(const std::string& path, bool with_profile_settings) {
  SQLite::Database db(path, SQLite::OPEN_READWRITE);
  db.exec(R"(
    INSERT INTO counters (id, next_sweep, next_trial, next_worker, next_token)
      VALUES (1, 2, 4, 2, 9);
    INSERT INTO sweep (id, name, spec_hash, base_dir, state, priority, search_state, infeasible,
      created_ms, ended_ms) VALUES (1, 'old', 'h', '/d', 'running', 0, x'', 0, 1, 0);
    INSERT INTO sweep_file VALUES (1, 'name = "old"');
    INSERT INTO candidate VALUES (1, 0, 'c', '{}', '{}', 'h', 1, 2);
    INSERT INTO worker (id, name, instance, host, version, slots_json, draining, first_seen_ms,
      last_seen_ms) VALUES (1, 'n', 'i', 'h', 'v', '[]', 0, 1, 1);
    INSERT INTO trial (id, sweep, candidate, seed, state, attempts, failures_json, end_class,
      message, objective, objective_nan, final_values_json, created_ms, started_ms, ended_ms)
      VALUES (1, 1, 0, 1, 'completed', 1, '{}', 'completed', '', 2.5, 0, '{}', 1, 2, 3),
             (2, 1, 0, 2, 'running', 2, '{}', '', '', NULL, 0, '{}', 1, 2, 0),
             (3, 1, 0, 3, 'queued', 0, '{}', '', '', NULL, 0, '{}', 1, 0, 0);
    INSERT INTO attempt (trial, number, token, worker, slots_json, state, acked_sequence, log_bytes,
      end_class, message, started_json, assigned_ms, ended_ms)
      VALUES (1, 1, 5, 1, '[0]', 'ended', 3, 0, 'completed', '', '', 1, 3),
             (2, 1, 6, 1, '[0]', 'ended', 3, 6, 'oom', 'text', '', 1, 3),
             (2, 2, 7, 1, '[1,2]', 'running', 4, 0, '', '', '{}', 1, 0);
    INSERT INTO series VALUES (1, 1, 1, 'loss', 3, 2, 2, 20, 2, 8.0), (2, 2, 1, 'loss', 4, 0, 0, 0,
      0, NULL), (3, 2, 2, 'lr', 5, 0, 0, 0, 0, NULL);
    INSERT INTO metric_tail VALUES (1, 1, 1, 10, 1, 9.0), (2, 1, 2, 20, 2, 8.0),
      (3, 1, 3, 30, 3, 7.0), (4, 2, 1, 10, 1, 6.0), (5, 3, 1, 10, 1, NULL);
    INSERT INTO checkpoint VALUES (2, 1, 100, '/c', 's', 5, 6);
    INSERT INTO event VALUES (1, 1, 'a', 1, 0, 0, 0, ''), (2, 1, 'b', 1, 2, 1, 1, 'm'),
      (3, 1, 'c', 0, 0, 0, 1, '');
    INSERT INTO log_chunk VALUES (1, 2, 1, 0, x'616263'), (2, 2, 1, 3, x'646566');
  )");
  db.exec(with_profile_settings
              ? "INSERT INTO profile VALUES (2, 1, 9, 0, -1, 'raw', 'shift', 1.5, 0.5, 6, 7, 8, "
                "0.25, 9, 10)"
              : "INSERT INTO profile VALUES (2, 1, 9, 0, -1, 'raw', 'shift', 1.5, 0.5, 6, 7)");
  const Point points[] = {{1, 10, 1, 9.0}, {2, 20, 2, 8.0}};
  const std::string chunk = encode_chunk(points);
  SQLite::Statement insert(db, "INSERT INTO metric_chunk (series, points, data) VALUES (1, 2, ?)");
  insert.bind(1, chunk.data(), static_cast<int>(chunk.size()));
  insert.exec();
}

TEST(Migrations, WhatEveryEarlierSchemaHeldIsReadAsItWas) {
  for (std::size_t count = 1; count <= 4; ++count) {
    const TemporaryFolder folder;
    const std::string path = folder.file("a.db");
    {
      SQLite::Database db(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
      ASSERT_TRUE(migrate(db, path, embedded_migrations().first(count)).has_value());
    }
    fill_old_schema(path, count >= 2);
    for (int round = 0; round < 2; ++round) {
      const auto opened = open(path);
      ASSERT_TRUE(opened.has_value()) << count << ": " << status_of(opened).to_string();
      Store& store = **opened;
      EXPECT_EQ(store.series(TrialId{1}, "loss")->values, (std::vector<double>{9, 8, 7})) << count;
      EXPECT_EQ(store.series(TrialId{2}, "loss")->values, std::vector<double>{6});
      EXPECT_TRUE(std::isnan(store.series(TrialId{2}, "lr")->values.at(0)));
      EXPECT_EQ(store.attempts(TrialId{2})->size(), 2u);
      EXPECT_EQ(store.attempts(TrialId{2})->at(1).slots, (std::vector<std::uint32_t>{1, 2}));
      EXPECT_EQ(store.attempts(TrialId{2})->at(0).message, "text");
      EXPECT_EQ(*store.log({TrialId{2}, 1}, 0, 100), "abcdef");
      EXPECT_EQ(store.checkpoints(TrialId{2})->at(0).step, 100);
      EXPECT_EQ(store.profile(TrialId{2})->at(0).value, 1.5);
      EXPECT_EQ(store.profile(TrialId{2})->at(0).dropped, count >= 2 ? 10 : 0);
      // Its error is no longer believed; the number is kept under another name.
      EXPECT_FALSE(store.profile(TrialId{2})->at(0).standard_error);
      EXPECT_THAT(store.profile(TrialId{2})->at(0).no_error, HasSubstr("earlier version"));
      EXPECT_EQ(store.profile(TrialId{2})->at(0).positions, 0);
      EXPECT_EQ(store.events(0, 10)->size(), 3u);
      EXPECT_EQ(store.events(0, 10, SweepId{1})->size(), 2u);
      EXPECT_EQ(store.events(0, 10, {}, TrialId{2})->at(0).message, "m");
      const TrialCounts counts = *store.trial_counts(SweepId{1});
      EXPECT_EQ(counts.of(TrialState::kCompleted) + counts.of(TrialState::kRunning) +
                    counts.of(TrialState::kQueued),
                3u);
      const auto snapshot = store.load_open();
      ASSERT_TRUE(snapshot.has_value()) << status_of(snapshot).to_string();
      EXPECT_EQ(snapshot->trials.size(), 3u);
      EXPECT_EQ(snapshot->attempts.size(), 2u);
      EXPECT_EQ(snapshot->counters.next_token, 9u);
      // New points come after the old ones, in the same series.
      const std::int64_t step = 10 + round;
      ASSERT_TRUE(store.commit(std::vector<Mutation>{make_point(2, 2, "lr", step, 1.0)}).is_ok());
      EXPECT_EQ(store.series(TrialId{2}, "lr")->steps.back(), step);
    }
  }
}

TEST(Migrations, ErrorsOfOldProfilesAreKeptUnderAnotherName) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  {
    SQLite::Database db(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    ASSERT_TRUE(migrate(db, path, embedded_migrations().first(6)).has_value());
    db.exec(R"(INSERT INTO profile VALUES
      (2, 1, 9, 0, -1, 'raw', 'shift', 1.5, 0.5, 6, 7, 8, 0.25, 9, 10))");
    ASSERT_TRUE(migrate(db, path, embedded_migrations()).has_value());
  }
  SQLite::Database db(path, SQLite::OPEN_READONLY);
  SQLite::Statement row(db, "SELECT standard_error, earlier_standard_error, value FROM profile");
  ASSERT_TRUE(row.executeStep());
  EXPECT_TRUE(row.isColumnNull(0));
  EXPECT_EQ(row.getColumn(1).getDouble(), 0.5);
  EXPECT_EQ(row.getColumn(2).getDouble(), 1.5);
}

TEST(Migrations, TheCauseOfAQuarantineIsReadFromItsOldReason) {
  const TemporaryFolder folder;
  const std::string path = folder.file("a.db");
  {
    SQLite::Database db(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
    ASSERT_TRUE(migrate(db, path, embedded_migrations().first(5)).has_value());
    db.exec(R"(INSERT INTO worker (id, name, instance, host, version, slots_json, draining,
      first_seen_ms, last_seen_ms, quarantine) VALUES
      (1, 'a', 'i', 'h', 'v', '[]', 0, 1, 1, ''),
      (2, 'b', 'i', 'h', 'v', '[]', 0, 1, 1, 'by request: fan'),
      (3, 'c', 'i', 'h', 'v', '[]', 0, 1, 1, 'a log says: ECC (log of t1.1)'),
      (4, 'd', 'i', 'h', 'v', '[]', 0, 1, 1, '3 attempts in a row went wrong there');)");
  }
  const auto store = open(path);
  ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
  std::vector<QuarantineCause> causes;
  const std::vector<WorkerRow> rows = (*store)->workers().value();
  for (const WorkerRow& row : rows) causes.push_back(row.quarantine_cause);
  EXPECT_THAT(causes, ElementsAre(QuarantineCause::kNone, QuarantineCause::kRequest,
                                  QuarantineCause::kLog, QuarantineCause::kTroubles));
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
      {"DROP INDEX trial_open", "index trial_open is missing"},
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
