// The tail stays short, slow series do not hold it back, and writing stays cheap.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "rows.h"
#include "storage/sqlite_store.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT
using test::TemporaryFolder;

class MetricTailTest : public ::testing::Test {
 protected:
  void SetUp() override { reopen(); }
  void reopen() {
    store_.reset();
    auto opened = open_sqlite(path(), {.allow_network_file_system = true});
    ASSERT_TRUE(opened.has_value()) << status_of(opened).to_string();
    store_ = *std::move(opened);
  }
  std::string path() const { return folder_.file("a.db"); }
  void commit(const std::vector<Mutation>& batch) {
    const Status status = store_->commit(batch);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
  std::int64_t number(const std::string& sql) {
    SQLite::Database db(path(), SQLite::OPEN_READONLY);
    return db.execAndGet(sql).getInt64();
  }

  TemporaryFolder folder_;
  std::unique_ptr<Store> store_;
};

TEST_F(MetricTailTest, SealedRowsLeaveTheTail) {
  commit(make_base(4));
  for (int step = 0; step < 4000; step += 10) {
    std::vector<Mutation> batch;
    for (int i = 0; i < 10; ++i) {
      for (std::uint64_t trial = 1; trial <= 4; ++trial)
        batch.emplace_back(make_point(trial, 1, "loss", step + i, 1));
    }
    commit(batch);
  }
  EXPECT_LT(number("SELECT count(*) FROM metric_tail"), 4000);
  EXPECT_GE(number("SELECT sum(points) FROM metric_chunk"), 4 * 4000 - 4 * 512);
  EXPECT_EQ(
      number("SELECT (SELECT sum(points) FROM metric_chunk) + (SELECT count(*) FROM metric_tail t "
             "JOIN series s ON s.id = t.series WHERE t.id >= s.tail_from)"),
      4 * 4000);
}

TEST_F(MetricTailTest, TheLastPointsOfAnEndedAttemptAreSealed) {
  commit(make_base());
  for (int step = 0; step < 10; ++step) commit({make_point(1, 1, "loss", step, step)});
  EXPECT_EQ(number("SELECT count(*) FROM metric_chunk"), 0);
  AttemptRow ended = make_attempt(1, 1);
  ended.state = AttemptState::kEnded;
  commit({make_point(1, 1, "loss", 10, 10), ended});
  commit({});
  EXPECT_EQ(number("SELECT sum(points) FROM metric_chunk"), 11);
  EXPECT_EQ(store_->series(TrialId{1}, "loss")->steps.size(), 11u);
}

TEST_F(MetricTailTest, AnEndedAttemptIsSealedAfterARestartToo) {
  commit(make_base());
  AttemptRow ended = make_attempt(1, 1);
  ended.state = AttemptState::kEnded;
  commit({make_point(1, 1, "loss", 1, 1), ended});
  reopen();
  commit({});
  EXPECT_EQ(number("SELECT sum(points) FROM metric_chunk"), 1);
}

TEST_F(MetricTailTest, ASlowSeriesDoesNotHoldTheTailBack) {
  commit(make_base(2));
  commit({make_point(1, 1, "validation_loss", 0, 9.0)});
  std::int64_t step = 0;
  for (int round = 0; round < 150; ++round) {
    std::vector<Mutation> batch;
    for (int i = 0; i < 1000; ++i, ++step) batch.emplace_back(make_point(2, 1, "loss", step, 1.0));
    commit(batch);
  }
  EXPECT_LT(number("SELECT count(*) FROM metric_tail"), 80'000);
  EXPECT_EQ(store_->series(TrialId{1}, "validation_loss")->values, std::vector<double>{9.0});
  EXPECT_EQ(store_->series(TrialId{2}, "loss")->steps.size(), 150'000u);
  reopen();
  commit({make_point(1, 1, "validation_loss", 1, 8.0)});
  EXPECT_EQ(store_->series(TrialId{1}, "validation_loss")->values, (std::vector<double>{9.0, 8.0}));
}

TEST_F(MetricTailTest, IdsOfTheTailAreNotUsedTwiceAfterItRanEmpty) {
  commit(make_base(2));
  AttemptRow ended = make_attempt(1, 1);
  ended.state = AttemptState::kEnded;
  std::vector<Mutation> batch;
  for (int step = 0; step < 2000; ++step) batch.emplace_back(make_point(1, 1, "loss", step, step));
  batch.emplace_back(ended);
  commit(batch);
  for (int i = 0; i < 10; ++i) commit({});
  EXPECT_EQ(number("SELECT count(*) FROM metric_tail"), 0);
  reopen();
  // Would be behind tail_from, and so invisible, if ids began anew.
  commit({make_point(1, 1, "loss", 2000, 2000), make_point(2, 1, "loss", 0, 0)});
  EXPECT_EQ(store_->series(TrialId{1}, "loss")->steps.size(), 2001u);
  EXPECT_EQ(store_->series(TrialId{2}, "loss")->steps.size(), 1u);
}

// notes: a table clustered on the series writes 3.8 kB of log a point
// when many series report in turn.
TEST_F(MetricTailTest, ManySeriesInTurnCostFewBytesAPoint) {
  constexpr std::uint64_t kTrials = 200;
  constexpr int kSteps = 500;
  commit(make_base(kTrials));
  // A reader that stays at the start keeps the log from being reused,
  // so that its size counts every byte.
  SQLite::Database reader(path(), SQLite::OPEN_READONLY);
  reader.exec("BEGIN");
  reader.execAndGet("SELECT count(*) FROM trial");
  const auto before = std::filesystem::file_size(path() + "-wal");
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Mutation> batch;
    for (std::uint64_t trial = 1; trial <= kTrials; ++trial) {
      batch.emplace_back(make_point(trial, 1, "loss", step, 1.0 / (step + 1)));
    }
    commit(batch);
  }
  const auto bytes = std::filesystem::file_size(path() + "-wal") - before;
  EXPECT_LT(bytes / (kTrials * kSteps), 200u) << "must, of the targets: 200 bytes of log a point";
  RecordProperty("wal_bytes_per_point", static_cast<int>(bytes / (kTrials * kSteps)));
  EXPECT_GT(number("SELECT count(*) FROM metric_chunk"), 100);
}

}  // namespace
}  // namespace tailor::storage
