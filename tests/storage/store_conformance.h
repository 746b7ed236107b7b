// The suite that every Store passes. A new store: one INSTANTIATE_TEST_SUITE_P in its test file.
//
// `reopen` closes the store and opens it again where there is something to reopen (durable stores);
// tests call it between writing and reading, so they also show that nothing lives in memory only.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "rows.h"
#include "storage/store.h"

namespace tailor::storage::testing {

/// Owns one store and what it stands on.
class StoreHolder {
 public:
  virtual ~StoreHolder() = default;
  virtual Store& store() = 0;
  virtual void reopen() {}
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<StoreHolder>()> make;
};

class StoreConformance : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override { holder_ = GetParam().make(); }
  Store& store() { return holder_->store(); }
  void reopen() { holder_->reopen(); }
  void commit(const std::vector<Mutation>& batch) {
    const Status status = store().commit(batch);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
  Code code_of(const std::vector<Mutation>& batch) { return store().commit(batch).code(); }
  std::vector<std::uint64_t> trial_ids(const TrialQuery& query) {
    std::vector<std::uint64_t> ids;
    const auto page = store().trials(query);
    EXPECT_TRUE(page.has_value()) << status_of(page).to_string();
    if (page) {
      for (const TrialRow& row : page->trials) ids.push_back(row.id.value);
    }
    return ids;
  }

 private:
  std::unique_ptr<StoreHolder> holder_;
};

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_P(StoreConformance, ANewStoreIsEmptyAndCountsFromOne) {
  const auto snapshot = store().load();
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->counters, CountersRow{});
  EXPECT_THAT(snapshot->sweeps, IsEmpty());
  EXPECT_THAT(snapshot->trials, IsEmpty());
  EXPECT_THAT(*store().sweeps(), IsEmpty());
  EXPECT_THAT(*store().workers(), IsEmpty());
  EXPECT_THAT(*store().events(0, 10), IsEmpty());
}

TEST_P(StoreConformance, RowsComeBackAsTheyWere) {
  const SweepRow sweep = make_sweep(1);
  const CandidateRow candidate = make_candidate(1, 0);
  const WorkerRow worker = make_worker(1);
  TrialRow trial = make_trial(1, 1, 0, 0xFFFF'FFFF'FFFF'FFFFull);
  trial.state = TrialState::kRunning;
  trial.objective = 3.25;
  trial.final_values = {{"validation_loss", 3.25}, {"\"odd\" name", 0.1}, {"tiny", 5e-324}};
  const AttemptRow attempt = make_attempt(1, 1);
  const CountersRow counters{2, 3, 4, 5, kGenerationMax, "a file"};
  commit({sweep, candidate, worker, trial, attempt, counters});
  reopen();
  EXPECT_EQ(*store().sweep(SweepId{1}), sweep);
  EXPECT_EQ(*store().sweep_by_name("sweep-1"), sweep);
  EXPECT_THAT(*store().sweeps(), ElementsAre(sweep));
  EXPECT_THAT(*store().candidates(SweepId{1}), ElementsAre(candidate));
  EXPECT_EQ(*store().trial(TrialId{1}), trial);
  EXPECT_THAT(*store().attempts(TrialId{1}), ElementsAre(attempt));
  EXPECT_THAT(*store().workers(), ElementsAre(worker));
  const auto snapshot = store().load();
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_EQ(snapshot->counters.next_sweep, counters.next_sweep);
  EXPECT_EQ(snapshot->counters.next_trial, counters.next_trial);
  EXPECT_EQ(snapshot->counters.next_worker, counters.next_worker);
  EXPECT_GE(snapshot->counters.next_token, counters.next_token);
  EXPECT_THAT(snapshot->sweeps, ElementsAre(sweep));
  EXPECT_THAT(snapshot->candidates, ElementsAre(candidate));
  EXPECT_THAT(snapshot->trials, ElementsAre(trial));
  EXPECT_THAT(snapshot->attempts, ElementsAre(attempt));
  EXPECT_THAT(snapshot->workers, ElementsAre(worker));
}

TEST_P(StoreConformance, SweepsComeInPagesTheNewestFirstAndOthersAreCounted) {
  commit({make_sweep(1), make_sweep(2), make_sweep(3), make_candidate(3, 0), make_candidate(2, 0)});
  SweepRow ended = make_sweep(2);
  ended.state = SweepState::kCompleted;
  TrialRow done = make_trial(1, 2);
  done.state = TrialState::kCompleted;
  TrialRow failed = make_trial(2, 2, 0, 9);
  failed.state = TrialState::kFailed;
  TrialRow of_an_open_one = make_trial(3, 3);
  of_an_open_one.state = TrialState::kFailed;
  commit({ended, done, failed, of_an_open_one});
  reopen();
  const auto page = store().sweep_page(1, 1);
  ASSERT_TRUE(page.has_value());
  EXPECT_EQ(page->total, 3u);
  ended.toml.clear();  // pages are without them
  EXPECT_THAT(page->sweeps, ElementsAre(ended));
  EXPECT_EQ(store().sweep_page(0, 9)->sweeps.size(), 3u);
  EXPECT_EQ(store().sweep_page(0, 9)->sweeps.front().id, SweepId{3});
  EXPECT_TRUE(store().sweep_page(3, 9)->sweeps.empty());
  EXPECT_TRUE(store().sweep_page(~0ull, ~0ull)->sweeps.empty());
  const Snapshot open = store().load_open().value();
  EXPECT_EQ(open.sweeps.size(), 2u);
  EXPECT_EQ(open.other_sweeps, (std::map<SweepState, std::uint64_t>{{SweepState::kCompleted, 1}}));
  EXPECT_EQ(open.other_trials, (std::map<TrialState, std::uint64_t>{{TrialState::kCompleted, 1},
                                                                    {TrialState::kFailed, 1}}));
}

TEST_P(StoreConformance, ARowWithAKnownKeyReplacesTheOldOneWhole) {
  commit(make_base());
  SweepRow sweep = make_sweep(1, "renamed");
  sweep.state = SweepState::kPaused;
  sweep.toml = "other";
  sweep.search_state.clear();
  sweep.ended_ms = 77;
  TrialRow trial = make_trial(1);
  trial.state = TrialState::kFailed;
  trial.end_class = protocol::EndClass::kOom;
  trial.priority = 0;
  AttemptRow attempt = make_attempt(1, 1);
  attempt.state = AttemptState::kEnded;
  attempt.slots.clear();
  attempt.members.clear();
  attempt.stop_reason = protocol::StopReason::kNone;
  attempt.awaits_step = false;
  WorkerRow worker = make_worker(1, "renamed");
  worker.draining = true;
  worker.labels.clear();
  worker.quarantine.clear();
  worker.quarantined_ms = 0;
  CandidateRow candidate = make_candidate(1, 0);
  candidate.name = "renamed";
  commit({sweep, trial, attempt, worker, candidate});
  reopen();
  EXPECT_EQ(*store().sweep(SweepId{1}), sweep);
  EXPECT_EQ(store().sweep_by_name("sweep-1").error().code(), Code::kNotFound);
  EXPECT_EQ(*store().trial(TrialId{1}), trial);
  EXPECT_THAT(*store().attempts(TrialId{1}), ElementsAre(attempt));
  EXPECT_THAT(*store().workers(), ElementsAre(worker));
  EXPECT_THAT(*store().candidates(SweepId{1}), ElementsAre(candidate));
}

TEST_P(StoreConformance, TheLastOfSeveralRowsWithOneKeyInABatchStays) {
  std::vector<Mutation> batch = make_base();
  TrialRow trial = make_trial(1);
  trial.message = "later";
  batch.emplace_back(trial);
  commit(batch);
  EXPECT_EQ(store().trial(TrialId{1})->message, "later");
}

TEST_P(StoreConformance, MissingRowsAreNotFoundAndMissingListsEmpty) {
  EXPECT_EQ(store().sweep(SweepId{9}).error().code(), Code::kNotFound);
  EXPECT_EQ(store().sweep_by_name("nobody").error().code(), Code::kNotFound);
  EXPECT_EQ(store().trial(TrialId{9}).error().code(), Code::kNotFound);
  EXPECT_THAT(*store().candidates(SweepId{9}), IsEmpty());
  EXPECT_THAT(*store().attempts(TrialId{9}), IsEmpty());
  EXPECT_THAT(*store().metric_names(TrialId{9}), IsEmpty());
  EXPECT_THAT(store().series(TrialId{9}, "loss")->steps, IsEmpty());
  EXPECT_THAT(*store().checkpoints(TrialId{9}), IsEmpty());
  EXPECT_THAT(*store().profile(TrialId{9}), IsEmpty());
  EXPECT_EQ(*store().log({TrialId{9}, 1}, 0, 10), "");
}

TEST_P(StoreConformance, NaNAndMissingObjectivesAreNotTheSame) {
  commit({make_sweep(1), make_candidate(1, 0)});
  TrialRow missing = make_trial(1);
  TrialRow nan = make_trial(2);
  nan.objective = std::nan("");
  TrialRow infinite = make_trial(3);
  infinite.objective = std::numeric_limits<double>::infinity();
  infinite.final_values = {
      {"a", std::nan("")}, {"b", -std::numeric_limits<double>::infinity()}, {"c", 1.0}};
  commit({missing, nan, infinite});
  reopen();
  EXPECT_FALSE(store().trial(TrialId{1})->objective.has_value());
  ASSERT_TRUE(store().trial(TrialId{2})->objective.has_value());
  EXPECT_TRUE(std::isnan(*store().trial(TrialId{2})->objective));
  const TrialRow back = *store().trial(TrialId{3});
  EXPECT_EQ(back.objective, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(back.final_values.at("a")));
  EXPECT_EQ(back.final_values.at("b"), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(back.final_values.at("c"), 1.0);
}

TEST_P(StoreConformance, AFailedBatchLeavesNothingBehind) {
  commit(make_base());
  SweepRow changed = make_sweep(1);
  changed.toml = "changed";
  // The last row needs an attempt that is not there.
  const CountersRow counters{9, 9, 9, 9, 1, "a file"};
  EXPECT_EQ(code_of({changed, make_sweep(2), make_point(1, 1, "loss", 1, 1.0),
                     EventRow{0, 1, EventKind::kTrialQueued, {}, {}, 0, {}, "m"}, counters,
                     CheckpointRow{{TrialId{1}, 5}, 1, "p", "s", 1, 1}}),
            Code::kFailedPrecondition);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(store().sweep(SweepId{1})->toml, make_sweep(1).toml);
    EXPECT_FALSE(store().sweep(SweepId{2}).has_value());
    EXPECT_THAT(store().series(TrialId{1}, "loss")->steps, IsEmpty());
    EXPECT_THAT(*store().metric_names(TrialId{1}), IsEmpty());
    EXPECT_THAT(*store().events(0, 10), IsEmpty());
    EXPECT_EQ(store().load()->counters, CountersRow{});
    reopen();
  }
  commit({make_point(1, 1, "loss", 2, 2.0)});
  EXPECT_THAT(store().series(TrialId{1}, "loss")->steps, ElementsAre(2));
}

TEST_P(StoreConformance, RowsNeedWhatTheyBelongTo) {
  EXPECT_EQ(code_of({make_candidate(1, 0)}), Code::kFailedPrecondition);
  commit({make_sweep(1)});
  EXPECT_EQ(code_of({make_trial(1)}), Code::kFailedPrecondition);
  commit({make_candidate(1, 0), make_trial(1)});
  EXPECT_EQ(code_of({make_attempt(1, 1)}), Code::kFailedPrecondition);  // no worker
  commit({make_worker(1)});
  EXPECT_EQ(code_of({make_attempt(2, 1)}), Code::kFailedPrecondition);  // no trial
  EXPECT_EQ(code_of({make_point(1, 1, "loss", 1, 1)}), Code::kFailedPrecondition);
  EXPECT_EQ(
      code_of({ProfileRow{{TrialId{1}, 1}, 1, 0, -1, "raw", "shift", 1, 1, 1, 1, 1, 0.5, 1, 0}}),
      Code::kFailedPrecondition);
  EXPECT_EQ(code_of({LogRow{{TrialId{1}, 1}, 0, "x"}}), Code::kFailedPrecondition);
  commit({make_attempt(1, 1)});
}

TEST_P(StoreConformance, TheOrderInsideABatchDoesNotMatter) {
  commit({make_point(1, 1, "loss", 1, 1), LogRow{{TrialId{1}, 1}, 0, "x"}, make_attempt(1, 1),
          make_trial(1), make_worker(1), make_candidate(1, 0), make_sweep(1)});
  EXPECT_THAT(store().series(TrialId{1}, "loss")->steps, ElementsAre(1));
}

TEST_P(StoreConformance, UniqueNamesAreKept) {
  commit(make_base());
  EXPECT_EQ(code_of({make_sweep(2, "sweep-1")}), Code::kAlreadyExists);
  EXPECT_EQ(code_of({make_worker(2, "node1")}), Code::kAlreadyExists);
  EXPECT_EQ(code_of({make_trial(2, 1, 0, 1)}), Code::kAlreadyExists);  // candidate and seed of t1
  EXPECT_EQ(code_of({make_sweep(3, "twin"), make_sweep(4, "twin")}), Code::kAlreadyExists);
  EXPECT_EQ(store().sweeps()->size(), 1u);
}

TEST_P(StoreConformance, RowsWithoutKeysAreRefused) {
  EXPECT_EQ(code_of({make_sweep(5), make_sweep(0, "x")}), Code::kInvalidArgument);
  EXPECT_THAT(*store().sweeps(), IsEmpty());
}

TEST_P(StoreConformance, TextIsKeptByteForByte) {
  SweepRow sweep = make_sweep(1, "na\"me'; DROP TABLE sweep; --");
  sweep.toml = std::string("zero\0inside \xF0\x9F\x93\x90 \xFF", 19);
  sweep.base_dir = "";
  commit({sweep});
  reopen();
  EXPECT_EQ(*store().sweep(SweepId{1}), sweep);
  EXPECT_EQ(*store().sweep_by_name(sweep.name), sweep);
}

TEST_P(StoreConformance, LoadBringsEveryAttemptThatCanStillMatter) {
  std::vector<Mutation> batch = make_base(3);
  AttemptRow ended = make_attempt(1, 1);
  ended.state = AttemptState::kEnded;
  batch.emplace_back(ended);               // t1 runs: its ended attempt counts failures
  batch.emplace_back(make_attempt(1, 2));  // and its live one
  TrialRow done = make_trial(2);
  done.state = TrialState::kCompleted;
  ended.id.trial = TrialId{2};
  batch.emplace_back(done);
  batch.emplace_back(ended);  // t2 is over and so is its attempt
  TrialRow cancelled = make_trial(3);
  cancelled.state = TrialState::kCancelled;
  batch.emplace_back(cancelled);  // t3 is over, its attempt still runs somewhere
  commit(batch);
  reopen();
  const auto snapshot = store().load();
  ASSERT_TRUE(snapshot.has_value());
  std::vector<std::string> names;
  for (const AttemptRow& attempt : snapshot->attempts) names.push_back(attempt.id.to_string());
  EXPECT_THAT(names, ElementsAre("t1.1", "t1.2", "t3.1"));
  EXPECT_EQ(snapshot->trials.size(), 3u);
}

TEST_P(StoreConformance, LoadOpenBringsWhatIsOpenAndNothingOfWhatHasEnded) {
  EXPECT_THAT(store().load_open()->sweeps, IsEmpty());
  SweepRow over = make_sweep(2);
  over.state = SweepState::kCompleted;
  SweepRow stopping = make_sweep(3);  // cancelled, and a trainer has not gone yet
  stopping.state = SweepState::kCancelled;
  SweepRow paused = make_sweep(4);
  paused.state = SweepState::kPaused;
  const auto trial = [](std::uint64_t id, std::uint64_t sweep, TrialState state) {
    TrialRow row = make_trial(id, sweep);
    row.state = state;
    return row;
  };
  AttemptRow first = make_attempt(1, 1);
  first.state = AttemptState::kEnded;
  commit({make_sweep(1),
          over,
          stopping,
          paused,
          make_candidate(1, 0),
          make_candidate(1, 1),
          make_candidate(2, 0),
          make_candidate(3, 0),
          make_candidate(4, 0),
          make_worker(1),
          make_worker(2),
          trial(1, 1, TrialState::kRunning),
          trial(2, 1, TrialState::kFailed),
          trial(3, 2, TrialState::kCompleted),
          trial(4, 3, TrialState::kRunning),
          trial(5, 3, TrialState::kCancelled),
          first,
          make_attempt(1, 2),
          make_attempt(2, 1),
          make_attempt(3, 1),
          make_attempt(4, 1),
          make_attempt(5, 1),
          CountersRow{5, 6, 3, 9, 0, ""}});
  reopen();
  const auto snapshot = store().load_open();
  ASSERT_TRUE(snapshot.has_value()) << status_of(snapshot).to_string();
  std::string found;
  for (const SweepRow& row : snapshot->sweeps) found += row.id.to_string() + " ";
  for (const CandidateRow& row : snapshot->candidates) {
    found += row.sweep.to_string() + "/" + std::to_string(row.index) + " ";
  }
  for (const TrialRow& row : snapshot->trials) found += row.id.to_string() + " ";
  for (const AttemptRow& row : snapshot->attempts) found += row.id.to_string() + " ";
  for (const WorkerRow& row : snapshot->workers) found += row.id.to_string() + " ";
  EXPECT_EQ(found, "s1 s3 s4 s1/0 s1/1 s3/0 s4/0 t1 t2 t4 t5 t1.1 t1.2 t4.1 w1 w2 ");
  EXPECT_EQ(snapshot->counters.next_trial, 6u);
  EXPECT_GE(snapshot->counters.next_token, 9u);
  // The rest is read when it is asked for.
  EXPECT_EQ(store().sweep(SweepId{2})->state, SweepState::kCompleted);
  EXPECT_EQ(store().trial(TrialId{3})->state, TrialState::kCompleted);
  EXPECT_EQ(store().load()->trials.size(), 5u);
}

TEST_P(StoreConformance, StartsAreThoseOfTheLastAttemptsOfCompletedTrials) {
  std::vector<Mutation> batch = make_base(3);
  TrialRow done = make_trial(1);
  done.state = TrialState::kCompleted;
  done.attempts = 2;
  AttemptRow first = make_attempt(1, 1);
  first.started_json = R"({"data_hash":"old"})";
  AttemptRow second = make_attempt(1, 2);
  second.started_json = R"({"data_hash":"new"})";
  TrialRow silent = make_trial(3);
  silent.state = TrialState::kCompleted;
  silent.attempts = 1;
  AttemptRow never_said = make_attempt(3, 1);
  never_said.started_json = "";
  for (const auto& row : {first, second, never_said, make_attempt(2, 1)}) batch.emplace_back(row);
  batch.emplace_back(done);
  batch.emplace_back(silent);
  commit(batch);
  reopen();
  const auto starts = store().starts(SweepId{1});
  ASSERT_TRUE(starts.has_value()) << status_of(starts).to_string();
  EXPECT_THAT(*starts, ElementsAre(StartRow{TrialId{1}, second.started_json},
                                   StartRow{TrialId{3}, ""}));  // t2 has not completed
  EXPECT_THAT(store().starts(SweepId{9}).value(), IsEmpty());
}

TEST_P(StoreConformance, TrialsAreFilteredOrderedAndPaged) {
  commit({make_sweep(1), make_sweep(2), make_candidate(1, 0), make_candidate(1, 1),
          make_candidate(2, 0)});
  TrialRow one = make_trial(1, 1, 1, 5);
  one.objective = 2.0;
  one.state = TrialState::kCompleted;
  TrialRow two = make_trial(2, 1, 0, 0x8000'0000'0000'0000ull);
  two.objective = std::nan("");
  two.state = TrialState::kFailed;
  TrialRow three = make_trial(3, 1, 0, 6);
  three.objective = 1.0;
  three.state = TrialState::kCompleted;
  const TrialRow four = make_trial(4, 1, 1, 4);
  const TrialRow five = make_trial(5, 2, 0, 1);
  commit({one, two, three, four, five});
  reopen();
  TrialQuery query;
  EXPECT_THAT(trial_ids(query), ElementsAre(1, 2, 3, 4, 5));
  query.descending = true;
  EXPECT_THAT(trial_ids(query), ElementsAre(5, 4, 3, 2, 1));
  query.sweep = SweepId{1};
  query.order = "objective";
  EXPECT_THAT(trial_ids(query), ElementsAre(1, 3, 2, 4));
  query.descending = false;
  EXPECT_THAT(trial_ids(query), ElementsAre(3, 1, 2, 4));
  query.order = "state";
  EXPECT_THAT(trial_ids(query), ElementsAre(4, 1, 3, 2));
  query.descending = true;
  EXPECT_THAT(trial_ids(query), ElementsAre(2, 1, 3, 4));
  query.order = "candidate";
  EXPECT_THAT(trial_ids(query), ElementsAre(1, 4, 2, 3));
  query.descending = false;
  EXPECT_THAT(trial_ids(query), ElementsAre(3, 2, 4, 1));
  query.state = TrialState::kCompleted;
  EXPECT_THAT(trial_ids(query), ElementsAre(3, 1));
  query.offset = 1;
  query.limit = 1;
  EXPECT_THAT(trial_ids(query), ElementsAre(1));
  EXPECT_EQ(store().trials(query)->total, 2u);
  query.offset = ~0ull;
  EXPECT_THAT(trial_ids(query), IsEmpty());
  EXPECT_EQ(store().trials(query)->total, 2u);
  query.order = "colour";
  EXPECT_EQ(store().trials(query).error().code(), Code::kInvalidArgument);
  query.order = "id";
  query.limit = 10'001;
  EXPECT_EQ(store().trials(query).error().code(), Code::kInvalidArgument);
}

TEST_P(StoreConformance, TrialsBehindOneArePagedWithoutACount) {
  commit({make_sweep(1), make_sweep(2), make_candidate(1, 0), make_candidate(2, 0)});
  std::vector<Mutation> batch;
  for (std::uint64_t id = 1; id <= 8; ++id) {
    TrialRow row = make_trial(id, id % 4 == 0 ? 2 : 1, 0, id);
    if (id % 2 == 1) row.state = TrialState::kFailed;
    batch.emplace_back(row);
  }
  commit(batch);
  reopen();
  TrialQuery query;
  query.after = TrialId{2};
  query.limit = 3;
  EXPECT_THAT(trial_ids(query), ElementsAre(3, 4, 5));
  EXPECT_EQ(store().trials(query)->total, 8u) << "what matches, wherever the page is";
  query.count = false;
  EXPECT_EQ(store().trials(query)->total, 0u);
  query.sweep = SweepId{1};
  query.state = TrialState::kFailed;
  EXPECT_THAT(trial_ids(query), ElementsAre(3, 5, 7));
  query.after = TrialId{7};
  EXPECT_THAT(trial_ids(query), IsEmpty());
  query.descending = true;
  EXPECT_THAT(trial_ids(query), ElementsAre(5, 3, 1));
  query.after = TrialId{0};
  query.descending = false;
  EXPECT_THAT(trial_ids(query), ElementsAre(1, 3, 5));
  query.order = "objective";
  EXPECT_EQ(store().trials(query).error().code(), Code::kInvalidArgument);
}

TEST_P(StoreConformance, CandidatesComeInPagesAndOneByOne) {
  std::vector<Mutation> batch = {make_sweep(1), make_sweep(2), make_candidate(2, 0)};
  for (std::uint32_t number = 0; number < 5; ++number) {
    batch.emplace_back(make_candidate(1, number));
  }
  commit(batch);
  reopen();
  const auto page = store().candidate_page(SweepId{1}, 2, 2);
  ASSERT_TRUE(page.has_value()) << status_of(page).to_string();
  EXPECT_THAT(page->candidates, ElementsAre(make_candidate(1, 2), make_candidate(1, 3)));
  EXPECT_EQ(page->total, 5u);
  EXPECT_THAT(store().candidate_page(SweepId{1}, 4, 100)->candidates,
              ElementsAre(make_candidate(1, 4)));
  EXPECT_THAT(store().candidate_page(SweepId{1}, ~0ull, ~0ull)->candidates, IsEmpty());
  EXPECT_EQ(store().candidate_page(SweepId{9}, 0, 10)->total, 0u);
  EXPECT_EQ(*store().candidate(SweepId{1}, 3), make_candidate(1, 3));
  EXPECT_EQ(store().candidate(SweepId{1}, 5).error().code(), Code::kNotFound);
  EXPECT_EQ(store().candidate(SweepId{9}, 0).error().code(), Code::kNotFound);
}

// Every order, filter, direction and offset against a plain list.
TEST_P(StoreConformance, EveryPageIsAPieceOfTheWholeList) {
  commit({make_sweep(1), make_sweep(2), make_candidate(1, 0), make_candidate(1, 1),
          make_candidate(1, 2), make_candidate(2, 0)});
  constexpr TrialState kStates[] = {TrialState::kCompleted, TrialState::kQueued,
                                    TrialState::kFailed,    TrialState::kRunning,
                                    TrialState::kCancelled, TrialState::kStopped};
  for (std::uint64_t id = 1; id <= 40; ++id) {
    TrialRow row = make_trial(id, id % 10 == 9 ? 2 : 1,
                              static_cast<std::uint32_t>(id % 10 == 9 ? 0 : id * 7 % 3),
                              id % 4 == 0 ? ~id : id);
    row.state = kStates[id * 5 % 11 % 6];
    if (id % 5 == 1) row.objective = std::nan("");
    if (id % 5 > 2) row.objective = static_cast<double>(id * 13 % 7);
    if (id == 23) row.objective = -std::numeric_limits<double>::infinity();
    commit({row});
  }
  reopen();
  TrialQuery query;
  query.sweep = SweepId{1};
  for (const char* order : {"id", "objective", "state", "candidate"}) {
    for (const bool descending : {false, true}) {
      for (int state = -1; state < 6; ++state) {
        query.order = order;
        query.descending = descending;
        query.state.reset();
        if (state >= 0) query.state = static_cast<TrialState>(state);
        query.offset = 0;
        query.limit = 100;
        const std::vector<std::uint64_t> whole = trial_ids(query);
        EXPECT_EQ(store().trials(query)->total, whole.size());
        std::vector<std::uint64_t> paged;
        query.limit = 3;
        for (; query.offset < whole.size(); query.offset += 3) {
          for (const std::uint64_t id : trial_ids(query)) paged.push_back(id);
        }
        EXPECT_EQ(paged, whole) << order << descending << state;
        EXPECT_THAT(trial_ids(query), IsEmpty());
      }
    }
  }
}

TEST_P(StoreConformance, TrialsAreCountedByStateWhateverBecomesOfThem) {
  std::vector<Mutation> batch{make_sweep(1), make_sweep(2)};
  batch.emplace_back(make_candidate(1, 0));
  for (std::uint64_t id = 1; id <= 5; ++id) batch.emplace_back(make_trial(id));
  commit(batch);
  TrialRow done = make_trial(2);
  done.state = TrialState::kCompleted;
  TrialRow failed = make_trial(3);
  failed.state = TrialState::kFailed;
  commit({done, failed, failed});
  failed.state = TrialState::kQueued;  // tried again
  commit({failed});
  TrialRow lost = make_trial(4);
  lost.state = TrialState::kCompleted;
  EXPECT_NE(code_of({lost, CheckpointRow{{TrialId{1}, 5}, 1, "p", "s", 1, 1}}), Code::kOk);
  reopen();
  const TrialCounts counts = *store().trial_counts(SweepId{1});
  EXPECT_EQ(counts.of(TrialState::kQueued), 4u);
  EXPECT_EQ(counts.of(TrialState::kCompleted), 1u);
  EXPECT_EQ(counts.of(TrialState::kFailed), 0u);
  EXPECT_EQ(counts.total(), 5u);
  EXPECT_EQ(store().trial_counts(SweepId{2})->total(), 0u);
}

TEST_P(StoreConformance, AllCurvesOfASweepComeInPages) {
  std::vector<Mutation> batch = make_base(6);
  batch.emplace_back(make_sweep(2));
  batch.emplace_back(make_candidate(2, 0));
  batch.emplace_back(make_trial(7, 2));
  batch.emplace_back(make_attempt(7, 1));
  for (std::uint64_t trial : {1, 2, 4, 6, 7}) {
    for (int step = 0; step < 10; ++step) {
      batch.emplace_back(make_point(trial, 1, "loss", step, static_cast<double>(trial)));
      if (trial != 4) batch.emplace_back(make_point(trial, 1, "lr", step, step));
    }
  }
  AttemptRow ended = make_attempt(2, 1);
  ended.state = AttemptState::kEnded;
  batch.emplace_back(ended);
  commit(batch);
  for (int i = 0; i < 300; ++i) commit({make_point(1, 1, "loss", 10 + i, 1.0)});
  reopen();
  while (store().maintain().value_or(false)) {
  }
  const auto all = [&](CurveQuery query) {
    std::string text;
    for (int pages = 0; pages < 20; ++pages) {
      const auto page = store().curves(query);
      EXPECT_TRUE(page.has_value()) << status_of(page).to_string();
      if (!page) break;
      for (const TrialCurves& trial : page->trials) {
        for (const Series& one : trial.series) {
          text += trial.trial.to_string() + one.name + std::to_string(one.steps.size()) + " ";
        }
      }
      if (!page->next) return text;
      query.after = *page->next;
      text += "| ";
    }
    return text + "endless";
  };
  CurveQuery query;
  query.sweep = SweepId{1};
  EXPECT_EQ(all(query), "t1loss310 t1lr10 t2loss10 t2lr10 t4loss10 t6loss10 t6lr10 ");
  query.metric = "lr";
  EXPECT_EQ(all(query), "t1lr10 t2lr10 t6lr10 ");
  query.metric.clear();
  query.points_max = 15;
  EXPECT_EQ(all(query), "t1loss310 t1lr10 | t2loss10 t2lr10 | t4loss10 t6loss10 t6lr10 ");
  query.trials_max = 1;
  EXPECT_EQ(all(query), "t1loss310 t1lr10 | t2loss10 t2lr10 | | t4loss10 | | t6loss10 t6lr10 ");
  query.sweep = SweepId{9};
  EXPECT_EQ(all(query), "");
}

TEST_P(StoreConformance, PruningTakesOnlyWhatRulesSayOfTrialsThatHaveEnded) {
  constexpr std::int64_t kDay = 86'400'000;
  constexpr WallMs kNow = 100 * kDay;
  std::vector<Mutation> batch = make_base(4);
  SweepRow over = make_sweep(2);
  over.state = SweepState::kCompleted;
  batch.emplace_back(over);
  for (std::uint64_t id = 1; id <= 4; ++id) {  // t1 runs, t2 to t4 ended 10, 20, 30 days ago
    TrialRow trial = make_trial(id);
    trial.state = id == 1 ? TrialState::kRunning : TrialState::kCompleted;
    trial.ended_ms = id == 1 ? 0 : kNow - static_cast<WallMs>(id - 1) * 10 * kDay;
    AttemptRow attempt = make_attempt(id, 1);
    if (id != 1) attempt.state = AttemptState::kEnded;
    batch.emplace_back(trial);
    batch.emplace_back(attempt);
    batch.emplace_back(LogRow{{TrialId{id}, 1}, 0, std::string(1000, 'x')});
    for (int step = 0; step < 5 && id != 1; ++step) {
      batch.emplace_back(make_point(id, 1, "loss", step, 1));
    }
    batch.emplace_back(EventRow{
        0, kNow - 50 * kDay, EventKind::kTrialQueued, SweepId{1}, TrialId{id}, 0, {}, "k"});
  }
  batch.emplace_back(
      EventRow{0, kNow - 50 * kDay, EventKind::kTrialQueued, SweepId{1}, {}, 0, {}, "open"});
  batch.emplace_back(
      EventRow{0, kNow - 50 * kDay, EventKind::kTrialQueued, SweepId{2}, {}, 0, {}, "over"});
  batch.emplace_back(
      EventRow{0, kNow - 50 * kDay, EventKind::kTrialQueued, {}, {}, 0, WorkerId{1}, "worker"});
  batch.emplace_back(EventRow{
      0, kNow - 1 * kDay, EventKind::kTrialQueued, {}, TrialId{4}, 0, WorkerId{1}, "young"});
  batch.emplace_back(
      EventRow{0, kNow - 50 * kDay, EventKind::kTrialQueued, {}, {}, 0, WorkerId{1}, "newest"});
  commit(batch);
  while (store().maintain().value_or(false)) {
  }
  commit({make_point(1, 1, "loss", 1, 1)});
  const auto prune = [&](const PruneRules& rules) {
    Pruned sum;
    for (int calls = 0; calls < 100; ++calls) {
      const auto piece = store().prune(rules, kNow);
      EXPECT_TRUE(piece.has_value()) << status_of(piece).to_string();
      if (!piece) return sum;
      sum.log_bytes += piece->log_bytes;
      sum.points += piece->points;
      sum.events += piece->events;
      if (!piece->more) return sum;
    }
    ADD_FAILURE() << "endless";
    return sum;
  };
  const auto log_size = [&](std::uint64_t id) {
    return store().log({TrialId{id}, 1}, 0, 5000)->size();
  };
  EXPECT_EQ(prune({}).log_bytes, 0u);
  EXPECT_FALSE(store().pruned(TrialId{4})->has_value());

  EXPECT_EQ(prune({.logs_ms = 15 * kDay, .points_ms = 25 * kDay}).log_bytes, 2000u);
  reopen();
  EXPECT_THAT((std::vector{log_size(1), log_size(2), log_size(3), log_size(4)}),
              ElementsAre(1000u, 1000u, 0u, 0u));
  EXPECT_EQ(store().series(TrialId{3}, "loss")->steps.size(), 5u);
  EXPECT_THAT(store().series(TrialId{4}, "loss")->steps, IsEmpty());
  EXPECT_EQ(*store().pruned(TrialId{4}), (PrunedTrial{kNow, kNow}));
  EXPECT_EQ(*store().pruned(TrialId{3}), (PrunedTrial{kNow, 0}));
  EXPECT_EQ(*store().trials_without_points(SweepId{1}, TrialId{3}), 1u);
  EXPECT_EQ(*store().trials_without_points(SweepId{1}, TrialId{4}), 0u);
  EXPECT_EQ(*store().trials_without_points(SweepId{2}, TrialId{}), 0u);

  EXPECT_EQ(prune({.logs_bytes_max = 1500}).log_bytes, 1000u);
  EXPECT_THAT((std::vector{log_size(1), log_size(2)}), ElementsAre(1000u, 0u));
  EXPECT_EQ(prune({.logs_bytes_max = 1}).log_bytes, 0u) << "what runs is kept";

  EXPECT_EQ(prune({.events_ms = 30 * kDay}).events, 5u);
  std::string left;
  const std::vector<EventRow> events = store().events(0, 100).value();
  for (const EventRow& row : events) left += row.message + " ";
  EXPECT_EQ(left, "k open young newest ");
  EXPECT_THAT(*store().events(0, 100, SweepId{2}), IsEmpty());
  const std::uint64_t newest = store().events(0, 100)->back().id;
  commit({EventRow{0, 1, EventKind::kTrialQueued, {}, {}, 0, {}, "next"}});
  EXPECT_EQ(store().events(newest, 100)->size(), 1u) << "ids go on";
}

TEST_P(StoreConformance, PruningFindsOldEventsBehindThoseOfAClockThatWasAhead) {
  constexpr std::int64_t kDay = 86'400'000;
  constexpr WallMs kNow = 1'000 * kDay;
  const auto event = [](WallMs wall_ms, std::string message) {
    return EventRow{0, wall_ms, EventKind::kTrialQueued, {}, {}, 0, {}, std::move(message)};
  };
  const auto pruned = [&] {
    while (store().maintain().value_or(false)) {
    }
    std::uint64_t events = 0;
    for (bool more = true; more;) {
      const Pruned piece = store().prune({.events_ms = 30 * kDay}, kNow).value();
      events += piece.events;
      more = piece.more;
    }
    return events;
  };
  commit({event(2 * kNow, "ahead"), event(1, "old"), event(kNow, "newest")});
  EXPECT_EQ(pruned(), 1u);
  // More of them than are looked at at once.
  std::vector<Mutation> batch;
  for (int i = 0; i < 9'000; ++i) batch.emplace_back(event(2 * kNow, "ahead"));
  for (int i = 0; i < 5'000; ++i) batch.emplace_back(event(1, "old"));
  batch.emplace_back(event(kNow, "newest"));
  commit(batch);
  EXPECT_EQ(pruned(), 5'000u);
  EXPECT_EQ(pruned(), 0u);
}

TEST_P(StoreConformance, EventsAreFoundBeforeAndAfterTheyAreIndexed) {
  commit(make_base(3));
  for (std::uint64_t i = 0; i < 40; ++i) {
    std::vector<Mutation> batch;
    for (std::uint64_t j = 0; j < 50; ++j) {
      batch.emplace_back(EventRow{0,
                                  1,
                                  EventKind::kTrialQueued,
                                  SweepId{1 + j % 2},
                                  TrialId{1 + (i + j) % 3},
                                  0,
                                  {},
                                  std::to_string(i * 50 + j)});
    }
    commit(batch);
    if (i == 20) reopen();
  }
  for (int round = 0; round < 2; ++round) {
    std::size_t trials = 0;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      std::uint64_t after = 0;
      for (;;) {
        const auto page = store().events(after, 7, {}, TrialId{id});
        ASSERT_TRUE(page.has_value());
        if (page->empty()) break;
        for (const EventRow& row : *page) {
          ASSERT_GT(row.id, after);
          ASSERT_EQ(row.trial.value, id);
          after = row.id;
          ++trials;
        }
      }
    }
    EXPECT_EQ(trials, 2000u);
    EXPECT_EQ(store().events(0, 5000, SweepId{2})->size(), 1000u);
    EXPECT_EQ(store().events(1990, 5000, SweepId{2})->size(), 5u);
    while (store().maintain().value_or(false)) {
    }
    reopen();
  }
}

TEST_P(StoreConformance, SeriesOfSeveralAttemptsAreOneCurve) {
  std::vector<Mutation> batch = make_base();
  batch.emplace_back(make_attempt(1, 2));
  for (int step = 10; step <= 50; step += 10)
    batch.emplace_back(make_point(1, 1, "loss", step, step));
  batch.emplace_back(make_point(1, 1, "lr", 10, 0.5));
  commit(batch);
  commit({make_point(1, 2, "loss", 40, 400), make_point(1, 2, "loss", 50, std::nan(""))});
  reopen();
  EXPECT_THAT(*store().metric_names(TrialId{1}), ElementsAre("loss", "lr"));
  const auto series = store().series(TrialId{1}, "loss");
  ASSERT_TRUE(series.has_value());
  EXPECT_EQ(series->name, "loss");
  EXPECT_THAT(series->steps, ElementsAre(10, 20, 30, 40, 50));
  EXPECT_THAT(series->tokens, ElementsAre(10 * 1024, 20 * 1024, 30 * 1024, 40 * 1024, 50 * 1024));
  EXPECT_EQ(series->values[2], 30);
  EXPECT_EQ(series->values[3], 400);
  EXPECT_TRUE(std::isnan(series->values[4]));
  EXPECT_EQ(series->wall_ms[0], 1'700'000'000'000 + 1000);
  EXPECT_THAT(store().series(TrialId{1}, "nothing")->steps, IsEmpty());
}

TEST_P(StoreConformance, LongSeriesKeepEveryPointOverManyCommits) {
  constexpr int kTrials = 3;
  constexpr int kPoints = 1500;
  commit(make_base(kTrials));
  for (int begin = 0; begin < kPoints; begin += 50) {
    std::vector<Mutation> batch;
    for (int step = begin; step < begin + 50; ++step) {
      for (int trial = 1; trial <= kTrials; ++trial) {
        batch.emplace_back(make_point(static_cast<std::uint64_t>(trial), 1, "loss", step,
                                      trial + 1.0 / (step + 1)));
      }
    }
    commit(batch);
    if (begin == 700) reopen();
  }
  AttemptRow ended = make_attempt(1, 1);
  ended.state = AttemptState::kEnded;
  commit({ended});
  for (int i = 0; i < 5; ++i) commit({EventRow{0, 1, EventKind::kTrialQueued, {}, {}, 0, {}, ""}});
  for (int round = 0; round < 2; ++round) {
    for (int trial = 1; trial <= kTrials; ++trial) {
      const auto series = store().series(TrialId{static_cast<std::uint64_t>(trial)}, "loss");
      ASSERT_TRUE(series.has_value()) << status_of(series).to_string();
      ASSERT_EQ(series->steps.size(), static_cast<std::size_t>(kPoints));
      for (int step = 0; step < kPoints; ++step) {
        ASSERT_EQ(series->steps[static_cast<std::size_t>(step)], step);
        ASSERT_EQ(series->values[static_cast<std::size_t>(step)], trial + 1.0 / (step + 1));
      }
    }
    reopen();
  }
  const auto thinned = store().series(TrialId{1}, "loss", 100);
  EXPECT_LE(thinned->steps.size(), 100u);
  EXPECT_EQ(thinned->steps.front(), 0);
  EXPECT_EQ(thinned->steps.back(), kPoints - 1);
}

TEST_P(StoreConformance, CheckpointsAreListedByAttemptAndStep) {
  std::vector<Mutation> batch = make_base();
  batch.emplace_back(make_attempt(1, 2));
  const CheckpointRow first{{TrialId{1}, 1}, 100, "/c/100", "aa", 5, 6};
  const CheckpointRow second{{TrialId{1}, 1}, 200, "/c/200", "bb", 7, 8};
  CheckpointRow other{{TrialId{1}, 2}, 150, "/d/150", "cc", 9, 10};
  batch.emplace_back(other);
  batch.emplace_back(second);
  batch.emplace_back(first);
  commit(batch);
  other.sha256 = "dd";
  commit({other});
  reopen();
  EXPECT_THAT(*store().checkpoints(TrialId{1}), ElementsAre(first, second, other));
}

TEST_P(StoreConformance, TheNewestCheckpointIsThatOfTheLastAttemptThatHasOne) {
  std::vector<Mutation> batch = make_base();
  batch.emplace_back(make_attempt(1, 2));
  batch.emplace_back(make_attempt(1, 3));
  const CheckpointRow first{{TrialId{1}, 1}, 1'000, "/c/1000", "aa", 5, 6};
  const CheckpointRow started_over{{TrialId{1}, 2}, 100, "/d/100", "bb", 7, 8};
  const CheckpointRow newest{{TrialId{1}, 2}, 900, "/d/900", "cc", 9, 10};
  batch.emplace_back(newest);
  batch.emplace_back(first);
  batch.emplace_back(started_over);
  commit(batch);
  reopen();
  EXPECT_THAT(store().load_open()->checkpoints, ElementsAre(newest));
}

TEST_P(StoreConformance, TheProfileIsThatOfTheLastAttemptThatMeasured) {
  std::vector<Mutation> batch = make_base();
  batch.emplace_back(make_attempt(1, 2));
  batch.emplace_back(make_attempt(1, 3));
  const ProfileRow old{{TrialId{1}, 1},   900, 0, -1, "raw", "shift", 1.0, 0.1, 256, 8, 2048, 0.76,
                       ~std::uint64_t{0}, 3};
  const ProfileRow early{
      {TrialId{1}, 2},   400, 0, -1, "raw", "shift", 2.0, 0.1, 256, 8, 2048, 0.76,
      ~std::uint64_t{0}, 3};
  const ProfileRow layer0{
      {TrialId{1}, 2},   500, 0, -1, "spherical", "shift", 3.0, 0.1, 256, 8, 2048, 0.76,
      ~std::uint64_t{0}, 3};
  ProfileRow layer1{{TrialId{1}, 2},   500, 1, -1, "raw", "shift", 4.0, 0.2, 256, 8, 2048, 0.76,
                    ~std::uint64_t{0}, 3};
  layer1.standard_error.reset();
  layer1.no_error = "all tokens are of one sequence";
  layer1.subsample_values = {1.0 / 3, -0.0, 0x1p-1074};
  layer1.subsamples_asked = 9;
  layer1.positions = std::int64_t{1} << 40;
  layer1.sequences = 12;
  layer1.sequences_given = true;
  layer1.subsample_tokens = {2048, 2047, 1};
  layer1.energies = {1.0 / 3, 2.0 / 3, 0, 0x1p-1074, 0.125, 8};
  const ProfileRow layer1_sub{
      {TrialId{1}, 2},   500, 1, 0, "raw", "shift", 5.0, 0.2, 256, 8, 2048, 0.76,
      ~std::uint64_t{0}, 3};
  for (const ProfileRow& row : {layer1_sub, layer1, layer0, early, old}) batch.emplace_back(row);
  commit(batch);
  reopen();
  EXPECT_THAT(*store().profile(TrialId{1}), ElementsAre(layer0, layer1, layer1_sub));
}

TEST_P(StoreConformance, AMeasurementIsFoundByItsKeyWithItsProfile) {
  std::vector<Mutation> batch = make_base();
  batch.emplace_back(make_attempt(1, 2));
  const MeasurementRow old{{TrialId{1}, 1}, 16, "key", "data", "", "too few points", 5};
  const MeasurementRow failed{{TrialId{1}, 2}, 16, "key", "data", "all tokens are equal", "", 6};
  const ProfileRow value{{TrialId{1}, 1}, 16,  0, -1,   "raw", "shift", 1.0,
                         std::nullopt,    256, 8, 2048, 0.76,  1,       0};
  batch.emplace_back(old);
  batch.emplace_back(failed);
  batch.emplace_back(value);
  commit(batch);
  reopen();
  EXPECT_EQ(store().measurement(TrialId{1}).value(), failed) << "the newest, failed or not";
  EXPECT_EQ(store().measurement(TrialId{2}).value(), std::nullopt);
  const auto measured = store().measured("key").value();
  ASSERT_TRUE(measured.has_value());
  EXPECT_EQ(measured->row, old) << "one that did not fail";
  ASSERT_EQ(measured->profile.size(), 1u);
  EXPECT_EQ(measured->profile[0].value, 1.0);
  EXPECT_FALSE(measured->profile[0].standard_error.has_value()) << "an error that is not known";
  EXPECT_EQ(store().measured("other").value(), std::nullopt);
  EXPECT_EQ(code_of({MeasurementRow{{TrialId{1}, 9}, 1, "key", "", "", "", 1}}),
            Code::kFailedPrecondition);
  EXPECT_EQ(code_of({MeasurementRow{{TrialId{1}, 1}, 1, "", "", "", "", 1}}),
            Code::kInvalidArgument);
}

TEST_P(StoreConformance, SchedulesAreKeptByCandidateAndComeBackWithWhatIsOpen) {
  commit(make_base(2));
  ScheduleRow row;
  row.sweep = SweepId{1};
  row.reference = TrialId{1};
  row.key = "key";
  row.message = "waits";
  row.request_json = "{}";
  row.wall_ms = 7;
  commit({row});
  EXPECT_THAT(store().schedules(SweepId{1}).value(), ElementsAre(row));
  row.state = ScheduleState::kCut;
  row.measured = {TrialId{2}, 3};
  row.data_hash = "data";
  row.problem_json = "p";
  row.solution_json = "s";
  row.raw_widths_json = "[1.5]";
  row.widths_json = "[[2]]";
  commit({row});
  reopen();
  EXPECT_THAT(store().schedules(SweepId{1}).value(), ElementsAre(row));
  EXPECT_THAT(store().schedules(SweepId{2}).value(), IsEmpty());
  EXPECT_THAT(store().load_open()->schedules, ElementsAre(row));
  EXPECT_THAT(store().load()->schedules, ElementsAre(row));
  row.candidate = 99;
  EXPECT_EQ(code_of({row}), Code::kFailedPrecondition);
}

TEST_P(StoreConformance, EventsAscendAndAreFiltered) {
  std::vector<Mutation> batch = make_base(2);
  const auto event = [](std::string letter, std::uint64_t sweep, std::uint64_t trial) {
    return EventRow{999, 5,           EventKind::kWorkerLost, SweepId{sweep}, TrialId{trial},
                    1,   WorkerId{1}, std::move(letter)};
  };
  batch.emplace_back(event("a", 1, 0));
  batch.emplace_back(event("b", 1, 1));
  commit(batch);
  commit({event("c", 1, 2), event("d", 0, 0), event("e", 2, 1)});
  reopen();
  const auto kinds = [&](std::uint64_t after, std::size_t limit, std::optional<SweepId> sweep = {},
                         std::optional<TrialId> trial = {}) {
    std::string all;
    std::uint64_t last = after;
    const auto events = store().events(after, limit, sweep, trial);
    for (const EventRow& row : events.value_or(std::vector<EventRow>{})) {
      EXPECT_GT(row.id, last);
      last = row.id;
      EXPECT_EQ(row.kind, EventKind::kWorkerLost);
      all += row.message;
    }
    return all;
  };
  EXPECT_EQ(kinds(0, 100), "abcde");
  EXPECT_EQ(kinds(0, 2), "ab");
  const std::uint64_t second = store().events(0, 2)->back().id;
  EXPECT_EQ(kinds(second, 100), "cde");
  EXPECT_EQ(kinds(0, 100, SweepId{1}), "abc");
  EXPECT_EQ(kinds(0, 100, {}, TrialId{1}), "be");
  EXPECT_EQ(kinds(0, 100, SweepId{1}, TrialId{1}), "b");
  EXPECT_EQ(kinds(second, 100, SweepId{1}), "c");
  EXPECT_EQ(kinds(~0ull, 100), "");
  EXPECT_EQ(store().events(0, 1)->front().message, "a");
}

TEST_P(StoreConformance, LogsAreReadAcrossPiecesAndRepeatsAreIgnored) {
  commit(make_base(2));
  const AttemptId id{TrialId{1}, 1};
  commit({LogRow{id, 0, "hello "}, LogRow{{TrialId{2}, 1}, 0, "other"}});
  commit({LogRow{id, 6, "big\n"}, LogRow{id, 0, "HELLO "}});
  commit({LogRow{id, 10, "world"}, LogRow{id, 20, "after a gap"}});
  reopen();
  EXPECT_EQ(*store().log(id, 0, 1000), "hello big\nworld");
  EXPECT_EQ(*store().log(id, 4, 5), "o big");
  EXPECT_EQ(*store().log(id, 6, 1000), "big\nworld");
  EXPECT_EQ(*store().log(id, 15, 1000), "");
  EXPECT_EQ(*store().log(id, 21, 1000), "fter a gap");
  EXPECT_EQ(*store().log(id, 500, 1000), "");
  EXPECT_EQ(*store().log(id, ~0ull, 1000), "");
  EXPECT_EQ(*store().log(id, 0, 0), "");
  EXPECT_EQ(*store().log({TrialId{2}, 1}, 0, 1000), "other");
}

TEST_P(StoreConformance, LogBytesMayBeAnything) {
  commit(make_base());
  const AttemptId id{TrialId{1}, 1};
  std::string bytes;
  for (int i = 0; i < 70'000; ++i) bytes += static_cast<char>(i);
  commit({LogRow{id, 0, bytes}, LogRow{id, bytes.size(), std::string("\0", 1)}});
  reopen();
  EXPECT_EQ(*store().log(id, 0, 1 << 20), bytes + std::string("\0", 1));
}

TEST_P(StoreConformance, AMiddleOfALogThatIsTrimmedIsGoneAndReadingFindsWhereItGoesOn) {
  commit(make_base(2));
  const AttemptId id{TrialId{1}, 1};
  const AttemptId other{TrialId{2}, 1};
  for (std::uint64_t at = 0; at < 50; at += 10) {
    commit({LogRow{id, at, std::string(10, static_cast<char>('a' + at / 10))},
            LogRow{other, at, "0123456789"}});
  }
  commit({LogTrim{id, 10, 39}});  // the piece 30 to 40 is not wholly in it
  reopen();
  EXPECT_EQ(*store().log(id, 0, 1000), "aaaaaaaaaa");
  EXPECT_EQ(*store().log(id, 10, 1000), "");
  EXPECT_EQ(*store().log_from(id, 0), 0u);
  EXPECT_EQ(*store().log_from(id, 9), 9u);
  EXPECT_EQ(*store().log_from(id, 10), 30u);
  EXPECT_EQ(*store().log_from(id, 35), 35u);
  EXPECT_EQ(*store().log_from(id, 50), std::nullopt);
  EXPECT_EQ(*store().log_from({TrialId{9}, 1}, 0), std::nullopt);
  EXPECT_EQ(*store().log_from(id, ~0ull), std::nullopt);
  EXPECT_EQ(*store().log(id, 30, 1000), "ddddddddddeeeeeeeeee");
  EXPECT_EQ(store().log(other, 0, 1000)->size(), 50u);
  EXPECT_EQ(code_of({LogTrim{id, 5, 4}}), Code::kInvalidArgument);
}

TEST_P(StoreConformance, AnEmptyBatchIsACommitOfNothing) {
  commit({});
  EXPECT_THAT(*store().sweeps(), IsEmpty());
}

}  // namespace tailor::storage::testing
