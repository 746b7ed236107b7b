// Rules are carried out without being asked, and a Pruner ends at once whatever it does.
#include "coordinator/engine/pruner.h"

#include <gtest/gtest.h>

#include <thread>

#include "storage/memory_store.h"

namespace tailor::engine {
namespace {

constexpr std::int64_t kDayMs = 86'400'000;

/// A trial that ended at 0, with ten bytes of log.
std::vector<storage::Mutation> ended_trial() {
  storage::SweepRow sweep;
  sweep.id = SweepId{1};
  sweep.name = "s";
  storage::CandidateRow candidate;
  candidate.sweep = SweepId{1};
  storage::WorkerRow worker;
  worker.id = WorkerId{1};
  worker.name = "w";
  storage::TrialRow trial;
  trial.id = TrialId{1};
  trial.sweep = SweepId{1};
  trial.state = storage::TrialState::kCompleted;
  storage::AttemptRow attempt;
  attempt.id = {TrialId{1}, 1};
  attempt.worker = WorkerId{1};
  attempt.state = storage::AttemptState::kEnded;
  return {sweep, candidate, worker,
          trial, attempt,   storage::LogRow{{TrialId{1}, 1}, 0, "0123456789"}};
}

bool log_is_gone(const storage::Store& store) {
  const SystemClock clock;
  for (const MonotonicMs limit = clock.now_ms() + 60'000; clock.now_ms() < limit;) {
    if (store.log({TrialId{1}, 1}, 0, 100)->empty()) return true;
    std::this_thread::yield();
  }
  return false;
}

TEST(Pruner, CarriesOutItsRulesByItself) {
  storage::MemoryStore store;
  ASSERT_TRUE(store.commit(ended_trial()).is_ok());
  const ManualClock clock(0, 10 * kDayMs);
  const Pruner pruner(store, {.logs_ms = 5 * kDayMs}, clock);
  EXPECT_TRUE(log_is_gone(store));
}

TEST(Pruner, DoesNothingWithoutRulesAndEndsAtOnce) {
  storage::MemoryStore store;
  ASSERT_TRUE(store.commit(ended_trial()).is_ok());
  const ManualClock clock(0, 10 * kDayMs);
  { const Pruner pruner(store, {}, clock); }
  { const Pruner pruner(store, {.logs_ms = 20 * kDayMs}, clock); }
  EXPECT_EQ(store.log({TrialId{1}, 1}, 0, 100)->size(), 10u);
}

TEST(Pruner, EndsWhileTheStoreRefuses) {
  storage::MemoryStore store;
  ASSERT_TRUE(store.commit(ended_trial()).is_ok());
  store.lose_file();
  const ManualClock clock(0, 10 * kDayMs);
  { const Pruner pruner(store, {.logs_ms = 5 * kDayMs}, clock); }
  EXPECT_EQ(store.log({TrialId{1}, 1}, 0, 100)->size(), 10u);
}

}  // namespace
}  // namespace tailor::engine
