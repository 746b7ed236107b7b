// The tail stays short, slow series do not hold it back, and writing stays cheap.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "base/clock.h"
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
  /// As an idle store does by itself.
  void seal_all() {
    for (;;) {
      const auto more = store_->maintain();
      ASSERT_TRUE(more.has_value()) << status_of(more).to_string();
      if (!*more) break;
    }
  }
  /// Points that are in chunks.
  std::int64_t sealed() {
    return number(
        "SELECT coalesce(sum(points), 0) FROM (SELECT max(sealed) AS points FROM "
        "metric_chunk GROUP BY attempt, metric)");
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
  seal_all();
  EXPECT_LT(number("SELECT count(*) FROM metric_tail"), 100) << "a row a commit, of 400 commits";
  seal_all();
  EXPECT_GE(sealed(), 4 * 4000 - 4 * 256);
  EXPECT_EQ(sealed() + static_cast<std::int64_t>(store_->health().unsealed_points), 4 * 4000);
}

TEST_F(MetricTailTest, TheLastPointsOfAnEndedAttemptAreSealed) {
  commit(make_base());
  for (int step = 0; step < 10; ++step) commit({make_point(1, 1, "loss", step, step)});
  EXPECT_EQ(number("SELECT count(*) FROM metric_chunk"), 0);
  AttemptRow ended = make_attempt(1, 1);
  ended.state = AttemptState::kEnded;
  commit({make_point(1, 1, "loss", 10, 10), ended});
  seal_all();
  EXPECT_EQ(sealed(), 11);
  EXPECT_EQ(store_->series(TrialId{1}, "loss")->steps.size(), 11u);
}

TEST_F(MetricTailTest, AnEndedAttemptIsSealedAfterARestartToo) {
  commit(make_base());
  AttemptRow ended = make_attempt(1, 1);
  ended.state = AttemptState::kEnded;
  commit({make_point(1, 1, "loss", 1, 1), ended});
  reopen();
  seal_all();
  EXPECT_EQ(sealed(), 1);
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
  EXPECT_LT(number("SELECT count(*) FROM metric_tail"), 80) << "rows of 1,000 points";
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
  seal_all();
  EXPECT_EQ(number("SELECT count(*) FROM metric_tail"), 0);
  reopen();
  // Would be before tail_to, and so invisible, if ids began anew.
  commit({make_point(1, 1, "loss", 2000, 2000), make_point(2, 1, "loss", 0, 0)});
  EXPECT_EQ(store_->series(TrialId{1}, "loss")->steps.size(), 2001u);
  EXPECT_EQ(store_->series(TrialId{2}, "loss")->steps.size(), 1u);
}

// 64 workers with short trials of four series: most of the tail is of trials that have ended.
TEST_F(MetricTailTest, SealingKeepsUpWithTrialsThatEndWithinOneCommit) {
  constexpr std::uint64_t kTrials = 16;  // a commit
  constexpr std::uint64_t kCommits = 60;
  commit(make_base(kTrials * kCommits));
  std::int64_t most = 0;
  for (std::uint64_t round = 0; round < kCommits; ++round) {
    std::vector<Mutation> batch;
    for (std::uint64_t trial = round * kTrials + 1; trial <= (round + 1) * kTrials; ++trial) {
      for (const char* name : {"a", "b", "c", "d"}) {
        for (int step = 0; step < 20; ++step) {
          batch.emplace_back(make_point(trial, 1, name, step, step));
        }
      }
      AttemptRow ended = make_attempt(trial, 1);
      ended.state = AttemptState::kEnded;
      batch.emplace_back(ended);
    }
    commit(batch);
    most = std::max(most, static_cast<std::int64_t>(store_->health().unsealed_points));
  }
  // 1,280 points a commit: what waits is what a few commits brought, not what all did (76,800).
  EXPECT_LT(most, 20'000);
  seal_all();
  EXPECT_EQ(store_->health().unsealed_points, 0u);
  EXPECT_EQ(number("SELECT count(*) FROM metric_tail"), 0);
  EXPECT_EQ(sealed(), static_cast<std::int64_t>(kTrials * kCommits * 80));
  EXPECT_EQ(store_->series(TrialId{7}, "c")->steps.size(), 20u);
}

TEST_F(MetricTailTest, AnIdleStoreSealsAndIndexesByItself) {
  commit(make_base());
  AttemptRow ended = make_attempt(1, 1);
  ended.state = AttemptState::kEnded;
  commit({make_point(1, 1, "loss", 1, 1),
          EventRow{0, 1, EventKind::kTrialQueued, SweepId{1}, TrialId{1}, 0, {}, ""}, ended});
  const SystemClock clock;
  const MonotonicMs limit = clock.now_ms() + 60'000;
  while (clock.now_ms() < limit &&
         (sealed() == 0 || number("SELECT events_indexed FROM upkeep") == 0)) {
    std::this_thread::yield();
  }
  EXPECT_EQ(sealed(), 1);
  EXPECT_EQ(number("SELECT count(*) FROM event_of_trial"), 1);
}

// Points are read from memory and from chunks while they move from one to the other.
TEST_F(MetricTailTest, ReadersSeeEveryPointOnceWhilePointsAreSealed) {
  commit(make_base(2));
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::atomic<int> reads = 0;
  std::vector<std::jthread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      std::size_t before = 0;
      while (!stop) {
        const auto series = store_->series(TrialId{1}, "loss");
        bool good =
            series.has_value() && series->steps.size() % 10 == 0 && series->steps.size() >= before;
        for (std::size_t at = 0; good && at < series->steps.size(); ++at) {
          good = series->steps[at] == static_cast<std::int64_t>(at);
        }
        if (good) before = series->steps.size();
        wrong += good ? 0 : 1;
        ++reads;
      }
    });
  }
  std::int64_t step = 0;
  for (int round = 0; round < 300 || reads < 50; ++round) {
    std::vector<Mutation> batch;
    for (int i = 0; i < 10; ++i, ++step) batch.emplace_back(make_point(1, 1, "loss", step, 1.0));
    commit(batch);
    if (round % 10 == 0) seal_all();
  }
  stop = true;
  readers.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(sealed(), 0);
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
  EXPECT_LT(bytes / (kTrials * kSteps), 100u) << "must, of the targets: 100 bytes of log a point";
  RecordProperty("wal_bytes_per_point", static_cast<int>(bytes / (kTrials * kSteps)));
  EXPECT_GT(number("SELECT count(*) FROM metric_chunk"), 100);
}

}  // namespace
}  // namespace tailor::storage
