// Paired tables from rows: computed once while nothing changes, and never old.
#include "coordinator/engine/comparisons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "coordinator/core/json.h"
#include "storage/memory_store.h"
#include "sweep/candidate.h"
#include "tests/sweep/sweep_text.h"

namespace tailor::engine {
namespace {

using storage::Mutation;
using storage::TrialRow;
using storage::TrialState;

/// Sweep 1 with `candidates` x `seeds` completed trials; candidate c has the loss 3 - c / 100 and a
/// little of its seed.
class ComparisonsTest : public ::testing::Test {
 protected:
  void fill(std::uint32_t candidates, std::uint64_t seeds) {
    std::vector<Mutation> batch;
    storage::SweepRow sweep;
    sweep.id = SweepId{1};
    sweep.name = "s";
    batch.emplace_back(sweep);
    storage::WorkerRow worker;
    worker.id = WorkerId{1};
    worker.name = "w";
    batch.emplace_back(worker);
    std::uint64_t id = 0;
    for (std::uint32_t c = 0; c < candidates; ++c) {
      storage::CandidateRow candidate;
      candidate.sweep = SweepId{1};
      candidate.index = c;
      candidate.name = "c" + std::to_string(c);
      batch.emplace_back(candidate);
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) add(batch, ++id, c, seed, "data");
    }
    ASSERT_TRUE(store_.commit(batch).is_ok());
    happen();
  }

  static void add(std::vector<Mutation>& batch, std::uint64_t id, std::uint32_t candidate,
                  std::uint64_t seed, const std::string& data) {
    TrialRow trial;
    trial.id = TrialId{id};
    trial.sweep = SweepId{1};
    trial.candidate = candidate;
    trial.seed = seed;
    trial.state = TrialState::kCompleted;
    trial.attempts = 1;
    trial.objective = 3 - candidate / 100.0 + 1e-3 * static_cast<double>((seed * 7 + id) % 11);
    batch.emplace_back(trial);
    storage::AttemptRow attempt;
    attempt.id = {TrialId{id}, 1};
    attempt.token = id;
    attempt.worker = WorkerId{1};
    attempt.started_json = R"({"data_hash":")" + data + R"(","version":"0.1.0"})";
    batch.emplace_back(attempt);
  }

  /// Something of the sweep changed.
  void happen(SweepId sweep = SweepId{1}) {
    storage::EventRow event;
    event.kind = storage::EventKind::kTrialCompleted;
    event.sweep = sweep;
    ASSERT_TRUE(store_.commit(std::vector<Mutation>{event}).is_ok());
  }

  /// Reading the candidates, the first thing that a table needs, waits while it is held back.
  class SlowStore final : public storage::MemoryStore {
   public:
    void hold_back() { set(true); }
    void let_go() { set(false); }
    Result<std::vector<storage::CandidateRow>> candidates(SweepId sweep) const override {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !held_; });
      }
      return MemoryStore::candidates(sweep);
    }

   private:
    void set(bool held) {
      const std::scoped_lock lock(mutex_);
      held_ = held;
      changed_.notify_all();
    }
    mutable std::mutex mutex_;  // guards: held_
    mutable std::condition_variable changed_;
    bool held_ = false;
  };
  SlowStore store_;
  Comparisons comparisons_{store_};
};

TEST_F(ComparisonsTest, ATableIsComputedOnceWhileNothingOfItsSweepChanges) {
  fill(3, 4);
  const auto first = comparisons_.get(SweepId{1}, "c0", "").value();
  EXPECT_EQ(first->rows.size(), 3u);
  happen(SweepId{2});
  EXPECT_EQ(comparisons_.get(SweepId{1}, "c0", "").value(), first);
  EXPECT_EQ(comparisons_.computed(), 1u);
  comparisons_.get(SweepId{1}, "c1", "").value();
  EXPECT_EQ(comparisons_.computed(), 2u) << "another baseline is another table";
}

TEST_F(ComparisonsTest, AChangeOfTheSweepIsSeen) {
  fill(2, 3);
  const auto before = comparisons_.get(SweepId{1}, "c0", "").value();
  std::vector<Mutation> batch;
  add(batch, 100, 1, 4, "data");
  add(batch, 101, 0, 4, "data");
  ASSERT_TRUE(store_.commit(batch).is_ok());
  happen();
  const auto after = comparisons_.get(SweepId{1}, "c0", "").value();
  EXPECT_EQ(before->rows[1].paired.n, 3u);
  EXPECT_EQ(after->rows[1].paired.n, 4u);
  EXPECT_GT(after->as_of, before->as_of);
}

TEST_F(ComparisonsTest, ATableOfARunningSweepIsOldOnceItEndedAlsoWhenItsEventsWerePruned) {
  fill(2, 3);
  EXPECT_EQ(comparisons_.get(SweepId{1}, "c0", "").value()->rows[1].paired.n, 3u);
  std::vector<Mutation> batch;
  add(batch, 100, 1, 4, "data");
  add(batch, 101, 0, 4, "data");
  storage::SweepRow ended = store_.sweep(SweepId{1}).value();
  ended.state = storage::SweepState::kCompleted;
  ended.ended_ms = 1'000;
  batch.emplace_back(ended);
  ASSERT_TRUE(store_.commit(batch).is_ok());
  happen();
  storage::PruneRules rules;
  rules.events_ms = 3'600'000;
  happen(SweepId{2});  // the newest event of all stays
  EXPECT_GT(store_.prune(rules, 7'200'000).value().events, 0u);
  ASSERT_TRUE(store_.events(0, 10, SweepId{1}).value().empty());
  EXPECT_EQ(comparisons_.get(SweepId{1}, "c0", "").value()->rows[1].paired.n, 4u);
}

TEST_F(ComparisonsTest, WhoAsksForTheSameAtOnceWaitsForOneTable) {
  fill(50, 20);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back(
        [this] { EXPECT_TRUE(comparisons_.get(SweepId{1}, "c0", "").has_value()); });
  }
  threads.clear();
  EXPECT_EQ(comparisons_.computed(), 1u);
}

TEST_F(ComparisonsTest, WhoLooksGetsTheKeptTableWithItsAgeWhileANewOneIsMade) {
  fill(2, 3);
  const std::chrono::milliseconds none(0);
  const std::chrono::milliseconds long_enough(60'000);
  const auto first = comparisons_.get_or_kept(SweepId{1}, "c0", "", none).value();
  EXPECT_TRUE(first.current) << "there was none to give: it waited";
  EXPECT_TRUE(comparisons_.get_or_kept(SweepId{1}, "c0", "", none)->current);
  std::vector<Mutation> batch;
  add(batch, 100, 1, 4, "data");
  add(batch, 101, 0, 4, "data");
  ASSERT_TRUE(store_.commit(batch).is_ok());
  happen();
  store_.hold_back();
  const auto old = comparisons_.get_or_kept(SweepId{1}, "c0", "", none).value();
  EXPECT_FALSE(old.current);
  EXPECT_EQ(old.table, first.table);
  EXPECT_GE(old.age_ms, 0);
  EXPECT_FALSE(comparisons_.get_or_kept(SweepId{1}, "c0", "", none)->current) << "nobody waits";
  store_.let_go();
  const auto fresh = comparisons_.get_or_kept(SweepId{1}, "c0", "", long_enough).value();
  EXPECT_TRUE(fresh.current);
  EXPECT_EQ(fresh.table->rows[1].paired.n, 4u);
  EXPECT_EQ(comparisons_.computed(), 2u) << "both asked for one";
  EXPECT_EQ(comparisons_.get_or_kept(SweepId{1}, "none", "", none).error().code(),
            Code::kInvalidArgument);
}

TEST_F(ComparisonsTest, OnlyTheNewestTablesAreKept) {
  fill(12, 2);
  for (int c = 0; c < 12; ++c) {
    comparisons_.get(SweepId{1}, "c" + std::to_string(c), "").value();
  }
  comparisons_.get(SweepId{1}, "c11", "").value();
  EXPECT_EQ(comparisons_.computed(), 12u);
  comparisons_.get(SweepId{1}, "c0", "").value();
  EXPECT_EQ(comparisons_.computed(), 13u) << "the oldest were let go";
}

TEST_F(ComparisonsTest, WhatTrialsWereTrainedOnComesFromTheirStarts) {
  fill(2, 2);
  std::vector<Mutation> batch;
  add(batch, 100, 0, 3, "data");
  add(batch, 101, 1, 3, "other data");
  ASSERT_TRUE(store_.commit(batch).is_ok());
  happen();
  const auto table = comparisons_.get(SweepId{1}, "c0", "").value();
  EXPECT_EQ(table->rows[1].paired.n, 2u);
  EXPECT_EQ(table->rows[1].other_data, 1u);
}

// What it takes is measured by `tailor-bench dashboard`.
TEST_F(ComparisonsTest, FourHundredCandidatesOfTwentyFiveSeedsAreComparedExactly) {
  fill(400, 25);
  const auto table = comparisons_.get(SweepId{1}, "c0", "").value();
  EXPECT_EQ(table->rows.size(), 400u);
  EXPECT_EQ(table->rows[399].paired.sign_flip->draws, 0u) << "25 seeds are exact";
  EXPECT_EQ(table->best, 399u);
}

TEST_F(ComparisonsTest, ThePrimaryComparisonComesFromTheStoredFile) {
  fill(3, 4);
  storage::SweepRow sweep = store_.sweep(SweepId{1}).value();
  // Not a whole sweep file: what else stands there does not matter.
  sweep.toml = "[compare]\nprimary = \"c2\"\nsmallest_effect = 0.5\n";
  ASSERT_TRUE(store_.commit(std::vector<Mutation>{sweep}).is_ok());
  const auto table = comparisons_.get(SweepId{1}, "c0", "").value();
  EXPECT_TRUE(table->rows[2].primary);
  EXPECT_EQ(table->family_tests, 1u);
  EXPECT_EQ(table->smallest_effect, 0.5);
  sweep.toml = "[compare]\nprimary = 7\n";
  ASSERT_TRUE(store_.commit(std::vector<Mutation>{sweep}).is_ok());
  happen();
  const auto unread = comparisons_.get(SweepId{1}, "c0", "").value();
  EXPECT_FALSE(unread->rows[2].primary);
  EXPECT_THAT(unread->notes.back(), testing::HasSubstr("cannot be read"));
}

TEST_F(ComparisonsTest, TheScalingComparisonReadsSizesFromTheRowsAndIsKept) {
  sweep::SweepText text;
  text.top = "name = \"s\"\n";
  text.architecture =
      "[architecture]\nhead_dim = 32\nvocab_size = 512\nd_h_ratio = 4\nffn.kind = \"swiglu\"\n";
  text.budget = "[budget]\nparameters = \"of each size\"\n";
  text.candidates =
      "[scaling]\n[[scaling.family]]\nname = \"a\"\n"
      "[[scaling.family]]\nname = \"b\"\nffn = { kind = \"hourglass\", k = 2 }\n"
      "[[scaling.family]]\nname = \"same as a\"\n";
  for (const int layers : {2, 4, 8}) {
    text.candidates += "[[scaling.size]]\nname = \"" + std::to_string(layers) +
                       "\"\nd_model = 64\nlayers = " + std::to_string(layers) + "\n";
  }
  const sweep::Spec spec = sweep::parse_or_die(text);
  fill(0, 0);
  storage::SweepRow sweep = store_.sweep(SweepId{1}).value();
  sweep.toml = text.text();
  sweep.base_dir = "/base";
  std::vector<Mutation> batch{sweep};
  std::uint64_t id = 0;
  std::uint32_t index = 0;
  const std::vector<sweep::Candidate> named = sweep::resolve_named(spec).value();
  for (const sweep::Candidate& candidate : named) {
    if (candidate.name.starts_with("same")) continue;  // trained once, as "a"
    storage::CandidateRow row;
    row.sweep = SweepId{1};
    row.index = index++;
    row.name = candidate.name;
    row.point_json = core::point_to_json(candidate.point);
    row.architecture_json = shape::canonical_json(candidate.architecture);
    row.hash = candidate.hash;
    row.parameters_body = candidate.counts.body;
    batch.emplace_back(row);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) add(batch, ++id, row.index, seed, "data");
  }
  ASSERT_TRUE(store_.commit(batch).is_ok());
  happen();
  const auto table = comparisons_.scaling(SweepId{1}, "", "").value();
  ASSERT_EQ(table->families.size(), 3u);
  EXPECT_EQ(table->baseline, "a");
  const auto& size = table->families[0].sizes[1];
  EXPECT_EQ(size.parameters_body, 16 * 64 * 64 * 4);
  // 3 (2 body + 2 V d + 2 L T H e) a token, 2 tokens a parameter (as plan_test.cc).
  const double body = 16.0 * 64 * 64 * 4;
  EXPECT_DOUBLE_EQ(size.flops, 3 * (2 * body + 2.0 * 512 * 64 + 2.0 * 4 * 128 * 64) * 2 * body);
  EXPECT_EQ(size.finished, 3u);
  EXPECT_EQ(table->families[2].sizes[1].candidate, "a @ 4") << "one architecture, trained once";
  EXPECT_EQ(table->families[2].sizes[1].finished, 3u);
  EXPECT_EQ(comparisons_.scaling(SweepId{1}, "", "").value(), table);
  EXPECT_EQ(comparisons_.computed(), 1u);
  EXPECT_EQ(comparisons_.scaling(SweepId{1}, "c", "").error().code(), Code::kInvalidArgument);
}

TEST_F(ComparisonsTest, ASweepWithoutScalingSaysSo) {
  fill(2, 2);
  storage::SweepRow sweep = store_.sweep(SweepId{1}).value();
  sweep.toml = sweep::SweepText().text();
  sweep.base_dir = "/base";
  ASSERT_TRUE(store_.commit(std::vector<Mutation>{sweep}).is_ok());
  const auto none = comparisons_.scaling(SweepId{1}, "", "");
  EXPECT_EQ(none.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(none.error().message(), testing::HasSubstr("has no [scaling]"));
}

TEST_F(ComparisonsTest, ASweepWithoutCandidatesIsAnErrorWithWords) {
  EXPECT_EQ(comparisons_.get(SweepId{1}, "c0", "").error().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tailor::engine
