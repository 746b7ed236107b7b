// Stages: reference -> profile -> schedule -> trials, through the step, with restarts in between.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "coordinator/core/explain.h"
#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;
using storage::ScheduleState;
using storage::TrialState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string staged(const std::string& name, const std::string& more = "") {
  return "[[candidate]]\nname = \"" + name +
         "\"\nschedule = { kind = \"geometry\", geometry = \"hyperbolic\", statistic = "
         "\"topology\", smoothing = \"none\"" +
         more + " }\n";
}

/// A profile of two layers; the work of the first is `first` times that of the second.
protocol::ProfileReport profile(double first, double dimension = 4) {
  protocol::ProfileReport out;
  out.step = 16;
  out.tokens = 8;
  out.subsamples = 2;
  out.rho = 0.7;
  for (std::int32_t l = 0; l < 2; ++l) {
    out.entries.push_back({l, -1, "hyperbolic", "topology", l == 0 ? first : 1.0, 0.1});
    out.entries.push_back({l, -1, "raw", "topology", l == 0 ? 1.0 : first, 0.1});
    out.entries.push_back({l, -1, "raw", "two_nn", dimension, 0.1});
  }
  return out;
}

class Stages : public ::testing::Test {
 protected:
  SweepFile file() const {
    SweepFile out;
    out.candidates = "[[candidate]]\nname = \"plain\"\n" + staged("shaped") +
                     staged("anti", ", control = \"mirrored\"");
    out.seeds = "count = 2";
    return out;
  }

  /// The trainer of t measures and completes; it must be running.
  void measure(std::uint64_t trial, protocol::ProfileReport report) {
    const auto ref = h.live(trial);
    h.report(session, ref, 1, {protocol::StartedReport{}, std::move(report)});
    if (restarts) restart(ref);
    protocol::EndReport end;
    end.step = 16;
    end.values = {{"validation_loss", 3.0}};
    h.report(session, ref, 3, {end});
    if (restarts) restart({});
  }
  void finish(std::uint64_t trial) {
    h.finish(session, trial, EndClass::kCompleted);
    if (restarts) restart({});
  }
  /// The coordinator dies and comes back; the worker still holds what runs.
  void restart(const protocol::AttemptRef&) {
    h.restart();
    std::vector<protocol::HeldAttempt> held;
    for (const auto& [id, trial] : h.state.trials) {
      if (!trial.live) continue;
      protocol::HeldAttempt one;
      one.ref = {trial.live->row.id, trial.live->row.token};
      one.slots = trial.live->row.slots;
      one.running = true;
      one.acked_sequence = trial.live->row.acked_sequence;
      held.push_back(one);
    }
    session = h.connect("w", slots, held);
  }

  storage::ScheduleRow schedule(std::uint32_t candidate, std::uint64_t sweep = 1) {
    const auto rows = h.store.schedules(SweepId{sweep}).value();
    for (const auto& row : rows) {
      if (row.candidate == candidate) return row;
    }
    ADD_FAILURE() << "no schedule of candidate " << candidate;
    return {};
  }
  std::vector<std::int32_t> widths(std::uint32_t candidate, std::uint64_t sweep = 1) {
    const auto row = h.store.candidate(SweepId{sweep}, candidate).value();
    std::vector<std::int32_t> out;
    const auto architecture = shape::architecture_from_json(row.architecture_json).value();
    for (const auto& layer : architecture.widths) {
      out.insert(out.end(), layer.begin(), layer.end());
    }
    return out;
  }
  std::string why_text(std::uint64_t trial) { return explain(h.state, TrialId{trial}, h.now); }

  Harness h;
  SessionId session = 0;
  std::uint32_t slots = 1;  // of the worker after a restart
  bool restarts = false;
};

TEST_F(Stages, CandidatesWaitForTheMeasurementOfTheirReferenceAndSayso) {
  const Reply reply = h.submit(file());
  ASSERT_TRUE(reply.status.is_ok()) << reply.status.message();
  EXPECT_EQ(std::get<SubmitOutcome>(reply.body).trials, 6u);
  session = h.connect("w", 6);
  const auto assigned = h.sent<protocol::Assign>();
  ASSERT_EQ(assigned.size(), 2u) << "only the reference's trials have widths";
  EXPECT_TRUE(assigned[0].spec.geometry.enabled) << "seed 1 is measured";
  EXPECT_TRUE(assigned[0].spec.geometry.dimension);
  EXPECT_FALSE(assigned[1].spec.geometry.enabled) << "seed 2 is not";
  const Why answer = why(h.state, TrialId{3}, h.now);
  EXPECT_EQ(answer.code, WhyCode::kSchedule);
  EXPECT_EQ(why_code_name(answer.code), "schedule");
  EXPECT_THAT(
      answer.sentence,
      HasSubstr("cut from the work profile (topology, hyperbolic) of t1 ('plain', seed 1)"));
  EXPECT_EQ(schedule(1).state, ScheduleState::kWaiting);

  measure(1, profile(3));
  EXPECT_EQ(schedule(1).state, ScheduleState::kCut);
  EXPECT_EQ(schedule(1).measured, (AttemptId{TrialId{1}, 1}));
  EXPECT_THAT(widths(1), ElementsAre(86, 42));
  EXPECT_THAT(widths(2), ElementsAre(42, 86)) << "max + min - g";
  EXPECT_EQ(schedule(1).widths_json, "[[86],[42]]");
  const auto raw = nlohmann::json::parse(schedule(1).raw_widths_json);
  EXPECT_NEAR(raw[0].get<double>() + raw[1].get<double>(), 128, 1e-9);
  EXPECT_NE(schedule(1).problem_json, "");
  EXPECT_EQ(nlohmann::json::parse(schedule(1).solution_json)["report"]["integer"]["exact"], true);
  ASSERT_EQ(h.said("schedule_cut").size(), 2u);
  ASSERT_EQ(h.said("measured").size(), 1u);
  EXPECT_EQ(h.store.candidate(SweepId{1}, 1)->parameters_body,
            h.store.candidate(SweepId{1}, 0)->parameters_body);
  for (const std::uint64_t trial : {2, 3, 4, 5, 6}) finish(trial);
  EXPECT_EQ(h.sweep_state(), storage::SweepState::kCompleted);
}

TEST_F(Stages, RestartsBetweenAllStagesMeasureNothingTwice) {
  restarts = true;
  SweepFile staged_file = file();
  staged_file.candidates += staged("again", ", iterate = 1");
  staged_file.seeds = "count = 1";
  ASSERT_TRUE(h.submit(staged_file).status.is_ok());
  h.restart();
  session = h.connect("w", 1);
  h.restart();
  restart({});
  // In the order of their ids: plain, "again, iteration 1", shaped, anti, again.
  measure(1, profile(3));
  // "shaped" has the widths that the iteration has: trained once, and measured for "again".
  EXPECT_EQ(schedule(1).state, ScheduleState::kSame);
  EXPECT_EQ(schedule(2).state, ScheduleState::kCut);
  EXPECT_EQ(schedule(3).state, ScheduleState::kCut);
  EXPECT_EQ(schedule(4).state, ScheduleState::kWaiting);
  EXPECT_THAT(why_text(5), HasSubstr("of t3 ('shaped', seed 1)"));
  measure(3, profile(2));
  EXPECT_EQ(schedule(4).state, ScheduleState::kCut);
  EXPECT_NE(widths(4), widths(2));
  finish(4);
  finish(5);
  EXPECT_EQ(h.sweep_state(), storage::SweepState::kCompleted);
  EXPECT_EQ(h.said("measured").size(), 2u);
  EXPECT_EQ(h.said("attempt_assigned").size(), 4u) << "and nothing is trained twice";
  EXPECT_EQ(h.trial_state(2), TrialState::kCancelled);
}

TEST_F(Stages, AnInsertedCandidateWithTheSameWidthsDoesNotTakeTheSeedsOfOneThatIsCompared) {
  SweepFile staged_file;
  staged_file.candidates = "[[candidate]]\nname = \"plain\"\n" + staged("fixed", ", iterate = 1");
  staged_file.seeds = "count = 3";
  ASSERT_TRUE(h.submit(staged_file).status.is_ok());
  session = h.connect("w", 8);
  measure(1, profile(3));
  measure(4, profile(3));  // the iteration, with seed 1 alone: a fixed point
  EXPECT_EQ(schedule(1).state, ScheduleState::kCut);
  EXPECT_EQ(schedule(2).state, ScheduleState::kCut);
  EXPECT_EQ(widths(1), widths(2));
  slots = 8;
  restart({});
  for (const std::uint64_t trial : {5, 6, 7}) finish(trial);
  EXPECT_EQ(h.trial_state(7), TrialState::kCompleted);
}

TEST_F(Stages, AFixedPointIsSeenAndNotTrainedAgain) {
  SweepFile staged_file;
  staged_file.candidates = "[[candidate]]\nname = \"plain\"\n" + staged("fixed", ", iterate = 2");
  ASSERT_TRUE(h.submit(staged_file).status.is_ok());
  session = h.connect("w", 4);
  measure(1, profile(3));  // plain
  measure(2, profile(3));  // iteration 1 has the same work: the widths stay
  EXPECT_EQ(schedule(1).state, ScheduleState::kCut);
  EXPECT_EQ(schedule(2).state, ScheduleState::kSame);
  EXPECT_EQ(schedule(3).state, ScheduleState::kSame);
  EXPECT_THAT(schedule(3).message, HasSubstr("those of 'fixed, iteration 1'"));
  EXPECT_EQ(h.sweep_state(), storage::SweepState::kCompleted);
}

TEST_F(Stages, AMeasurementThatFailsFailsWhoNeedsItAndNeitherTheReferenceNorTheSweep) {
  ASSERT_TRUE(h.submit(file()).status.is_ok());
  session = h.connect("w", 8);
  protocol::ProfileReport report;
  report.step = 16;
  report.failure = "all tokens are equal in layer 0";
  measure(1, report);
  EXPECT_EQ(h.trial_state(1), TrialState::kCompleted) << "the reference is trained";
  for (const std::uint64_t trial : {3, 4, 5, 6}) {
    EXPECT_EQ(h.trial_state(trial), TrialState::kFailed);
    EXPECT_THAT(h.store.trial(TrialId{trial})->message,
                HasSubstr("t1 could not be measured: all tokens are equal"));
  }
  EXPECT_EQ(schedule(1).state, ScheduleState::kFailed);
  EXPECT_EQ(h.said("measure_failed").size(), 1u);
  finish(2);
  EXPECT_EQ(h.sweep_state(), storage::SweepState::kCompleted);
}

TEST_F(Stages, WithoutDimensionsOnlyThoseFailThatNeedThem) {
  SweepFile staged_file = file();
  staged_file.candidates += staged("constant", ", exponent = \"constant\"");
  ASSERT_TRUE(h.submit(staged_file).status.is_ok());
  session = h.connect("w", 8);
  protocol::ProfileReport report = profile(3);
  std::erase_if(report.entries, [](const auto& e) { return e.statistic == "two_nn"; });
  report.dimension_failure = "too few distinct points: 12";
  measure(1, report);
  EXPECT_THAT(h.store.trial(TrialId{3})->message, HasSubstr("too few distinct points: 12"));
  EXPECT_EQ(schedule(3).state, ScheduleState::kCut) << "it needs no dimension";
  for (const std::uint64_t trial : {2, 7, 8}) finish(trial);
  EXPECT_EQ(h.sweep_state(), storage::SweepState::kCompleted);
}

TEST_F(Stages, NumbersThatAreNoMeasurementFailWhoNeedsThem) {
  ASSERT_TRUE(h.submit(file()).status.is_ok());
  session = h.connect("w", 8);
  protocol::ProfileReport report = profile(3);
  report.entries[0].value = std::nan("");
  measure(1, report);
  EXPECT_THAT(h.store.trial(TrialId{3})->message,
              HasSubstr("topology in geometry hyperbolic of layer 0 is nan"));
  h.restart();
}

TEST_F(Stages, AReferenceThatEndsUnmeasuredFailsWhoWaitsAndARetryOfAllGoesOn) {
  SweepFile staged_file = file();
  staged_file.seeds = "count = 1";
  ASSERT_TRUE(h.submit(staged_file).status.is_ok());
  session = h.connect("w", 4);
  h.finish(session, 1, EndClass::kNan);
  EXPECT_EQ(h.sweep_state(), storage::SweepState::kCompleted);
  EXPECT_THAT(h.store.trial(TrialId{2})->message,
              HasSubstr("its reference t1 (seed 1) failed: it broke"));
  // Alone it would wait for ever.
  ASSERT_TRUE(h.trials(TrialAction::kRetry, {TrialId{2}}).status.is_ok());
  EXPECT_EQ(h.trial_state(2), TrialState::kFailed);
  EXPECT_THAT(h.store.trial(TrialId{2})->message, HasSubstr("retry that too"));
  ASSERT_TRUE(h.trials(TrialAction::kRetry, {}, SweepId{1}).status.is_ok());
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued);
  h.restart();
  session = h.connect("w", 4);
  measure(1, profile(3));
  finish(2);
  finish(3);
  EXPECT_EQ(h.sweep_state(), storage::SweepState::kCompleted);
  EXPECT_EQ(h.trial_state(3), TrialState::kCompleted);
}

TEST_F(Stages, CancellingTheReferenceOrTheSweepLeavesNobodyWaiting) {
  ASSERT_TRUE(h.submit(file()).status.is_ok());
  ASSERT_TRUE(h.trials(TrialAction::kCancel, {TrialId{1}}).status.is_ok());
  EXPECT_EQ(h.trial_state(3), TrialState::kFailed);
  ASSERT_TRUE(h.control(SweepAction::kCancel).status.is_ok());
  SweepFile other = file();
  other.name = "other";
  ASSERT_TRUE(h.submit(other).status.is_ok());
  ASSERT_TRUE(h.control(SweepAction::kCancel, SweepId{2}).status.is_ok());
  for (const std::uint64_t trial : {7, 8, 9, 10, 11, 12}) {
    EXPECT_EQ(h.trial_state(trial), TrialState::kCancelled) << trial;
  }
}

TEST_F(Stages, WhatWasMeasuredForAnotherSweepIsUsedAgain) {
  ASSERT_TRUE(h.submit(file()).status.is_ok());
  session = h.connect("w", 2);
  measure(1, profile(3));
  // Another sweep, while the first runs and its measurement is in the store: the reference is not
  // in its file, and need not be trained.
  SweepFile other;
  other.name = "other";
  other.candidates = "[[candidate]]\nname = \"wide\"\n\"ffn.d_h\" = 160\n" + staged("shaped too");
  const Reply reply = h.submit(other);
  ASSERT_TRUE(reply.status.is_ok()) << reply.status.message();
  EXPECT_EQ(h.store.candidates(SweepId{2})->size(), 2u) << "no reference is made";
  EXPECT_EQ(schedule(1, 2).state, ScheduleState::kCut);
  EXPECT_EQ(schedule(1, 2).measured, (AttemptId{TrialId{1}, 1}));
  EXPECT_EQ(widths(1, 2), widths(1, 1));
  ASSERT_EQ(h.said("measurement_reused").size(), 1u);
  EXPECT_THAT(h.said("measurement_reused")[0],
              HasSubstr("the measurement of t1.1, of the same network, seed and data"));
  h.restart();
}

TEST_F(Stages, AMeasurementThatArrivesServesEverySweepAndSparesTheReferencesThatOnlyWait) {
  ASSERT_TRUE(h.submit(file()).status.is_ok());
  SweepFile other;
  other.name = "other";
  other.candidates = "[[candidate]]\nname = \"wide\"\n\"ffn.d_h\" = 160\n" + staged("shaped too");
  ASSERT_TRUE(h.submit(other).status.is_ok());
  session = h.connect("w", 1);
  ASSERT_EQ(h.workers_of(1), "w");
  measure(1, profile(3));
  EXPECT_EQ(schedule(2, 2).state, ScheduleState::kCut);
  const auto reference = h.store.trial(schedule(2, 2).reference).value();
  EXPECT_EQ(reference.state, TrialState::kCancelled);
  EXPECT_THAT(reference.message, HasSubstr("the measurement of t1 is used"));
}

TEST_F(Stages, ThePublishedPipelineVectorComesOutOfTheRows) {
  SweepFile p1;
  p1.candidates = "[[candidate]]\nname = \"plain\"\n" +
                  staged("p1",
                         ", floor = 0.3333333333333333, quantum = 64 }\nlayers = 12\nffn.d_h = "
                         "3072\n#");
  ASSERT_TRUE(h.submit(p1).status.is_ok());
  session = h.connect("w", 4);
  const double work[] = {.90, .62, .48, .40, .34, .30, .27, .25, .24, .24, .26, .33};
  const double dimension[] = {8, 9, 10, 12, 13, 14, 14, 13, 12, 11, 10, 9};
  protocol::ProfileReport report;
  report.step = 16;
  for (std::int32_t l = 0; l < 12; ++l) {
    report.entries.push_back({l, -1, "hyperbolic", "topology", work[l], 0.01});
    report.entries.push_back({l, -1, "raw", "two_nn", dimension[l], 0.1});
  }
  const auto reference = h.store.schedules(SweepId{1})->front().reference;
  measure(reference.value, report);
  EXPECT_THAT(widths(2),
              ElementsAre(5312, 4352, 3712, 3456, 3072, 2816, 2560, 2368, 2240, 2176, 2240, 2560));
  const auto raw = nlohmann::json::parse(schedule(2).raw_widths_json);
  EXPECT_NEAR(raw[0].get<double>(), 5323.1538774, 1e-7);
  EXPECT_NEAR(raw[11].get<double>(), 2585.21949972, 1e-7);
  const auto solution = nlohmann::json::parse(schedule(2).solution_json);
  EXPECT_NEAR(solution["multiplier"].get<double>(), 4.94847342594e-6, 1e-16);
}

TEST_F(Stages, TrainingOnOtherDataThanWasMeasuredIsSaid) {
  ASSERT_TRUE(h.submit(file()).status.is_ok());
  session = h.connect("w", 2);
  const auto ref = h.live(1);
  protocol::StartedReport started;
  started.data_hash = "aaaa";
  h.report(session, ref, 1, {started, profile(3)});
  SweepFile other;
  other.name = "other";
  other.candidates = staged("alone", ", control = \"inverse\"");
  ASSERT_TRUE(h.submit(other).status.is_ok());
  h.restart();
  const TrialId alone = h.state.sweeps.at(SweepId{2}).first_trial.at(0);
  session = h.connect("v", 8);
  started.data_hash = "bbbb";
  h.report(session, h.live(alone.value), 1, {started});
  ASSERT_EQ(h.said("measurement_reused").size(), 2u);
  EXPECT_THAT(h.said("measurement_reused")[1], HasSubstr("on other data (aaaa)"));
}

}  // namespace
}  // namespace tailor::core
