// Reports: stored exactly once, acknowledged after they are stored, fenced by tokens; and how
// attempts end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;
using protocol::MetricReport;
using storage::SweepState;
using storage::TrialState;
using testing::HasSubstr;

struct OneRunning : Harness {
  explicit OneRunning(const std::string& retry = "", int workers_slots = 1) {
    SweepFile file;
    file.retry = retry;
    submit(file);
    session = connect("w1", workers_slots);
  }
  SessionId session = 0;
};

MetricReport metric(std::int64_t step) {
  return {step, step * 64, {{"train_loss", 1.0 / static_cast<double>(step)}}};
}

TEST(Reports, AreStoredAndAcknowledgedInOrder) {
  OneRunning h;
  h.report(h.session, h.live(1), 1, {protocol::StartedReport{}, metric(1), metric(2)});
  const auto acks = h.sent<protocol::ReportsAck>();
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].through_sequence, 3u);
  const auto series = h.store.series(TrialId{1}, "train_loss").value();
  EXPECT_EQ(series.steps, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(series.values, (std::vector<double>{1.0, 0.5}));
}

TEST(Reports, ThatComeAgainAreStoredOnceAndAcknowledgedAgain) {
  OneRunning h;
  h.report(h.session, h.live(1), 1, {metric(1), metric(2)});
  h.report(h.session, h.live(1), 1, {metric(1), metric(2)});
  EXPECT_TRUE(h.last.writes.empty());
  EXPECT_EQ(h.sent<protocol::ReportsAck>().at(0).through_sequence, 2u);
  h.report(h.session, h.live(1), 2, {metric(2), metric(3)});
  EXPECT_EQ(h.store.series(TrialId{1}, "train_loss").value().steps,
            (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(Reports, AfterAGapAreNotTakenAndTheLastGoodOneIsAcknowledged) {
  OneRunning h;
  h.report(h.session, h.live(1), 1, {metric(1)});
  h.report(h.session, h.live(1), 3, {metric(3)});
  EXPECT_TRUE(h.last.writes.empty());
  EXPECT_EQ(h.sent<protocol::ReportsAck>().at(0).through_sequence, 1u);
}

TEST(Reports, WithAStaleTokenChangeNothingAndStopTheTrainer) {
  OneRunning h;
  protocol::AttemptRef stale = h.live(1);
  stale.token += 1;
  h.report(h.session, stale, 1, {metric(1)});
  EXPECT_TRUE(h.last.writes.empty());
  const auto stops = h.sent<protocol::Stop>();
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].ref, stale);
  EXPECT_TRUE(stops[0].discard);
}

TEST(Reports, OfAnAttemptOnAnotherWorkerAreStale) {
  OneRunning h;
  const SessionId other = h.connect("w2");
  h.report(other, h.live(1), 1, {metric(1)});
  EXPECT_TRUE(h.last.writes.empty());
  EXPECT_TRUE(h.sent<protocol::Stop>().at(0).discard);
}

TEST(Reports, OfUnknownTrialsAreStale) {
  OneRunning h;
  h.report(h.session, {{TrialId{77}, 1}, 1}, 1, {metric(1)});
  EXPECT_TRUE(h.sent<protocol::Stop>().at(0).discard);
}

TEST(Reports, KeepNanAndInfinityAsTheyAre) {
  OneRunning h;
  h.report(h.session, h.live(1), 1,
           {MetricReport{1, 64, {{"train_loss", std::numeric_limits<double>::quiet_NaN()}}},
            MetricReport{2, 128, {{"train_loss", std::numeric_limits<double>::infinity()}}}});
  const auto series = h.store.series(TrialId{1}, "train_loss").value();
  EXPECT_TRUE(std::isnan(series.values.at(0)));
  EXPECT_TRUE(std::isinf(series.values.at(1)));
}

TEST(Reports, StoreCheckpointsAndProfiles) {
  OneRunning h;
  protocol::ProfileReport profile;
  profile.step = 16;
  profile.tokens = 256;
  profile.subsamples = 8;
  profile.linear_tokens = 2048;
  profile.rho = 0.75;
  profile.seed = ~std::uint64_t{0};
  profile.dropped = 3;
  profile.subsamples_asked = 9;
  profile.positions = 5000;
  profile.sequences = 70;
  profile.sequences_given = true;
  profile.subsample_tokens = {600, 640};
  profile.entries = {{0, -1, "raw", "shift", 1.5, 0.25, "", {1, 2}},
                     {1,
                      -1,
                      "spherical",
                      "shift",
                      2.5,
                      {},
                      "why none",
                      {2.5},
                      protocol::MatchEnergies{1, 2, 0.25, 0.5, 0.75, 3}}};
  h.report(h.session, h.live(1), 1,
           {protocol::CheckpointReport{8, "checkpoints/8", "abc", 1000}, profile});
  EXPECT_EQ(h.store.checkpoints(TrialId{1}).value().at(0).sha256, "abc");
  const auto rows = h.store.profile(TrialId{1}).value();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].value, 2.5);
  EXPECT_EQ(rows[1].subsamples, 8);
  EXPECT_EQ(rows[1].linear_tokens, 2048);
  EXPECT_EQ(rows[1].rho, 0.75);
  EXPECT_EQ(rows[1].seed, ~std::uint64_t{0});
  EXPECT_EQ(rows[1].dropped, 3);
  EXPECT_EQ(rows[0].standard_error, 0.25);
  EXPECT_EQ(rows[0].subsample_values, (std::vector<double>{1, 2}));
  EXPECT_FALSE(rows[1].standard_error);
  EXPECT_FALSE(rows[0].energies);
  EXPECT_EQ(rows[1].energies, (protocol::MatchEnergies{1, 2, 0.25, 0.5, 0.75, 3}));
  EXPECT_EQ(rows[1].no_error, "why none");
  EXPECT_EQ(rows[1].subsamples_asked, 9);
  EXPECT_EQ(rows[1].positions, 5000);
  EXPECT_EQ(rows[1].sequences, 70);
  EXPECT_TRUE(rows[1].sequences_given);
  EXPECT_EQ(rows[1].subsample_tokens, (std::vector<std::int64_t>{600, 640}));
}

TEST(Log, IsStoredOnceByOffset) {
  OneRunning h;
  const auto ref = h.live(1);
  h.send(h.session, protocol::LogChunk{ref, 0, "hello "});
  EXPECT_EQ(h.sent<protocol::LogAck>().at(0).through_offset, 6u);
  h.send(h.session, protocol::LogChunk{ref, 0, "hello world"});  // overlaps
  EXPECT_EQ(h.sent<protocol::LogAck>().at(0).through_offset, 11u);
  h.send(h.session, protocol::LogChunk{ref, 3, "lo"});  // old
  EXPECT_TRUE(h.last.writes.empty());
  h.send(h.session, protocol::LogChunk{ref, 20, "gap"});
  EXPECT_TRUE(h.last.writes.empty());
  EXPECT_EQ(h.sent<protocol::LogAck>().at(0).through_offset, 11u);
  EXPECT_EQ(h.store.log(ref.attempt, 0, 100).value(), "hello world");
}

TEST(Log, WhatAWorkerLeavesOutIsNoGapUnlessMoreIsMissing) {
  OneRunning h;
  const auto ref = h.live(1);
  h.send(h.session, protocol::LogChunk{ref, 0, "head"});
  h.send(h.session, protocol::LogChunk{ref, 100, "tail", 90});  // 4 to 10 never came
  EXPECT_TRUE(h.last.writes.empty());
  EXPECT_EQ(h.sent<protocol::LogAck>().at(0).through_offset, 4u);
  h.send(h.session, protocol::LogChunk{ref, 100, "tail", 96});
  EXPECT_EQ(h.sent<protocol::LogAck>().at(0).through_offset, 104u);
  EXPECT_EQ(h.store.log(ref.attempt, 0, 100).value(), "head");
  EXPECT_EQ(h.store.log(ref.attempt, 100, 100).value(), "tail");
  EXPECT_EQ(h.store.log_from(ref.attempt, 4).value(), 100u);
}

TEST(Log, OfALongOneTheBeginningAndTheEndAreKept) {
  OneRunning h;
  const auto ref = h.live(1);
  constexpr std::uint64_t kPiece = 64 << 10;
  constexpr std::uint64_t kBytes = 20 << 20;
  for (std::uint64_t at = 0; at < kBytes; at += kPiece) {
    h.send(h.session, protocol::LogChunk{ref, at, std::string(kPiece, 'x')});
  }
  EXPECT_EQ(h.sent<protocol::LogAck>().at(0).through_offset, kBytes);
  std::uint64_t kept = 0;
  std::uint64_t gaps = 0;
  for (std::uint64_t at = 0; at < kBytes;) {
    const auto next = h.store.log_from(ref.attempt, at).value();
    ASSERT_TRUE(next.has_value());
    gaps += *next > at ? 1 : 0;
    const std::string bytes = h.store.log(ref.attempt, *next, kBytes).value();
    kept += bytes.size();
    at = *next + bytes.size();
  }
  EXPECT_EQ(gaps, 1u);
  EXPECT_GE(kept, 4u << 20);
  EXPECT_LE(kept, (4u << 20) + (512u << 10));
  EXPECT_EQ(h.store.log(ref.attempt, 0, kBytes).value().size(), 1u << 20);
}

TEST(Ends, ACompletedTrialHasItsObjectiveAndFreesItsSlot) {
  OneRunning h;
  h.finish(h.session, 1, EndClass::kCompleted, 2.75);
  EXPECT_EQ(h.trial_state(1), TrialState::kCompleted);
  const auto row = h.store.trial(TrialId{1}).value();
  EXPECT_EQ(row.objective, 2.75);
  EXPECT_EQ(row.final_values.at("validation_loss"), 2.75);
  EXPECT_EQ(row.end_class, protocol::EndClass::kCompleted);
  EXPECT_FALSE(h.state.workers.at(WorkerId{1}).slots[0].held_by);
  EXPECT_EQ(h.sweep_state(), SweepState::kCompleted);
  EXPECT_EQ(h.sent<protocol::ReportsAck>().at(0).through_sequence, 3u);
}

TEST(Ends, CompletedWithoutAnObjectiveIsAFailure) {
  OneRunning h("infrastructure = 0");
  h.report(h.session, h.live(1), 1, {protocol::EndReport{EndClass::kCompleted, "", 16, {}}});
  EXPECT_EQ(h.trial_state(1), TrialState::kFailed);
  EXPECT_THAT(h.store.trial(TrialId{1}).value().message, HasSubstr("no_objective"));
}

TEST(Ends, CompletedWithANanObjectiveIsAFailureOfClassNan) {
  OneRunning h("nan = 0");
  h.report(
      h.session, h.live(1), 1,
      {protocol::EndReport{EndClass::kCompleted, "", 16, {{"validation_loss", std::nan("")}}}});
  EXPECT_EQ(h.trial_state(1), TrialState::kFailed);
  EXPECT_EQ(h.store.trial(TrialId{1}).value().end_class, protocol::EndClass::kNan);
}

TEST(Ends, AFailureIsTriedAgainAfterABackOffAndThenGivenUp) {
  OneRunning h("oom = 1");
  h.finish(h.session, 1, EndClass::kOom);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_EQ(h.state.deadlines.earliest(), h.now.mono_ms + 2'000);
  h.advance(1'999);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  h.advance(1);
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning);
  EXPECT_EQ(h.live(1).attempt.number, 2u);
  EXPECT_EQ(h.live(1).token, 2u);
  h.finish(h.session, 1, EndClass::kOom);
  EXPECT_EQ(h.trial_state(1), TrialState::kFailed);
  EXPECT_THAT(h.store.trial(TrialId{1}).value().message,
              HasSubstr("failed 2 times with class oom"));
  EXPECT_EQ(h.sweep_state(), SweepState::kCompleted);
}

TEST(Ends, TheSameFailureOnTwoWorkersEndsTheTrial) {
  OneRunning h("oom = 9");
  h.finish(h.session, 1, EndClass::kOom);
  const SessionId second = h.connect("w2");
  h.advance(10'000);
  ASSERT_EQ(h.workers_of(1), "w2") << "prefers the other worker";
  h.finish(second, 1, EndClass::kOom);
  EXPECT_EQ(h.trial_state(1), TrialState::kFailed);
  EXPECT_THAT(h.store.trial(TrialId{1}).value().message, HasSubstr("on 2 workers"));
}

// A trainer that is killed on each of two workers: the trial's limit counts, nothing else.
TEST(Ends, WhatKillsTheTrainerOnTwoWorkersIsNotTheTrialsFault) {
  OneRunning h("infrastructure = 5");
  h.finish(h.session, 1, EndClass::kInfrastructure);
  const SessionId second = h.connect("w2", 1);
  h.advance(300'000);
  for (int kills = 2; kills <= 5; ++kills) {
    const std::string where = h.workers_of(1);
    ASSERT_NE(where, "");
    h.finish(where == "w1" ? h.session : second, 1, EndClass::kInfrastructure);
    h.send(h.session, protocol::Heartbeat{});
    h.send(second, protocol::Heartbeat{});
    h.advance(300'000);
    EXPECT_EQ(h.trial_state(1), TrialState::kRunning) << kills << " kills";
  }
}

TEST(Ends, AnAttemptThatCameToANewCheckpointForgivesEarlierFailures) {
  OneRunning h("infrastructure = 1");
  const auto failures = [&] { return h.state.trials.at(TrialId{1}).failures; };
  h.finish(h.session, 1, EndClass::kInfrastructure);
  EXPECT_EQ(failures().at(EndClass::kInfrastructure), 1);
  for (int month = 1; month <= 4; ++month) {
    h.advance(300'000);
    h.report(h.session, h.live(1), 1,
             {protocol::StartedReport{}, metric(month),
              protocol::CheckpointReport{month * 10, "checkpoints/x", "abc", 1}});
    EXPECT_TRUE(failures().empty());
    EXPECT_EQ(h.store.trial(TrialId{1}).value().failures_json, "{}");
    h.report(h.session, h.live(1), 4,
             {protocol::EndReport{EndClass::kInfrastructure, "killed", month * 10, {}}});
    EXPECT_EQ(failures().at(EndClass::kInfrastructure), 1);
    EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
    h.restart();
    h.session = h.connect("w1");
  }
  // Without progress the limit stands: a checkpoint of where it began is none.
  h.advance(300'000);
  h.report(h.session, h.live(1), 1,
           {protocol::StartedReport{}, protocol::CheckpointReport{40, "checkpoints/x", "abc", 1},
            protocol::EndReport{EndClass::kInfrastructure, "killed", 40, {}}});
  EXPECT_EQ(h.trial_state(1), TrialState::kFailed);
}

struct BadReport {
  std::string name;
  decltype(protocol::Report::body) body;
  std::string says;
};

TEST(Reports, ThatCannotBeStoredEndTheirAttemptWithTheReasonAndNothingElse) {
  const std::string long_name(300, 'x');
  const std::vector<BadReport> cases = {
      {"a metric without a name", MetricReport{2, 64, {{"", 1.0}}}, "a metric's name is empty"},
      {"a long name", MetricReport{2, 64, {{long_name, 1.0}}}, "has 300 bytes"},
      {"a negative step", MetricReport{-2, 64, {{"train_loss", 1.0}}}, "step -2"},
      {"an end without names", protocol::EndReport{EndClass::kCompleted, "", 3, {{"", 2.0}}},
       "a final metric's name is empty"},
      {"a checkpoint without a path", protocol::CheckpointReport{1, "", "s", 1}, "path is empty"},
      {"a negative checkpoint", protocol::CheckpointReport{-1, "c", "s", 1}, "step -1"}};
  for (const BadReport& bad : cases) {
    OneRunning h;
    const auto ref = h.live(1);
    h.report(h.session, ref, 1, {protocol::StartedReport{}, metric(1), bad.body, metric(3)});
    EXPECT_EQ(h.trial_state(1), TrialState::kFailed) << bad.name;
    const auto row = h.store.attempts(TrialId{1}).value().at(0);
    EXPECT_EQ(row.end_class, protocol::EndClass::kUser) << bad.name;
    EXPECT_EQ(row.acked_sequence, 2u) << bad.name;
    EXPECT_THAT(row.message, HasSubstr("report 3")) << bad.name;
    EXPECT_THAT(row.message, HasSubstr(bad.says)) << bad.name;
    EXPECT_TRUE(h.sent<protocol::Stop>().at(0).discard) << bad.name;
    EXPECT_EQ(h.store.series(TrialId{1}, "train_loss").value().steps.size(), 1u) << bad.name;
    // The worker says it again after a restart: stale, and nobody dies of it.
    h.restart();
    h.session = h.connect("w1", 1, {{ref, {0}, true, 2}});
    h.report(h.session, ref, 3, {bad.body});
    EXPECT_TRUE(h.sent<protocol::Stop>().at(0).discard) << bad.name;
  }
}

protocol::StartedReport resumed(std::int64_t step) {
  protocol::StartedReport started;
  started.resumed_step = step;
  return started;
}

TEST(Reports, AFirstStepBeforeTheResumedOneEndsTheAttempt) {
  OneRunning h("infrastructure = 0");
  h.report(h.session, h.live(1), 1,
           {resumed(0), metric(100), protocol::CheckpointReport{100, "c", "s", 1},
            protocol::EndReport{EndClass::kPreempted, "", 100, {}}});
  ASSERT_EQ(h.live(1).attempt.number, 2u);
  h.report(h.session, h.live(1), 1, {resumed(80), metric(1)});
  EXPECT_EQ(h.trial_state(1), TrialState::kFailed);
  EXPECT_THAT(h.store.trial(TrialId{1}).value().message, HasSubstr("RESUME_MISMATCH"));
  EXPECT_EQ(h.store.series(TrialId{1}, "train_loss").value().steps,
            (std::vector<std::int64_t>{100}));
}

TEST(Reports, AFirstStepBeforeTheResumedOneEndsTheAttemptAlsoAfterARestart) {
  Harness h;
  h.submit({});
  SessionId w = h.connect("w1");
  h.report(w, h.live(1), 1,
           {protocol::StartedReport{}, protocol::CheckpointReport{80, "checkpoints/80", "abc", 1},
            protocol::EndReport{EndClass::kPreempted, "", 80, {}}});
  const auto ref = h.live(1);
  ASSERT_EQ(ref.attempt.number, 2u);
  protocol::StartedReport started;
  started.resumed_step = 80;
  h.report(w, ref, 1, {started});
  h.disconnect(w);
  h.restart();
  w = h.connect("w1", 1, {{ref, {0}, true, 0}});
  h.report(w, ref, 2, {protocol::MetricReport{1, 64, {{"train_loss", 5.0}}}});
  EXPECT_THAT(h.said("attempt_ended").back(), HasSubstr("RESUME_MISMATCH"));
}

TEST(Reports, StepsThatFollowTheResumedOneAreFineAlsoAfterARestart) {
  OneRunning h;
  h.report(h.session, h.live(1), 1, {resumed(80), metric(80), metric(81)});
  const auto ref = h.live(1);
  h.disconnect(h.session);
  h.restart();
  h.session = h.connect("w1", 1, {{ref, {0}, true, 3}});
  h.report(h.session, ref, 4, {metric(82)});
  EXPECT_EQ(h.live(1), ref);
}

TEST(Reports, ThatAnEarlierAttemptWroteMayComeBeforeTheStart) {
  OneRunning h;
  h.report(h.session, h.live(1), 1,
           {metric(60), metric(70), protocol::CheckpointReport{80, "c", "s", 1}, resumed(80),
            metric(81)});
  EXPECT_EQ(h.store.series(TrialId{1}, "train_loss").value().steps,
            (std::vector<std::int64_t>{60, 70, 81}));
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning);
}

TEST(Reports, StartingOverAlthoughThereIsACheckpointIsSaid) {
  OneRunning h;
  h.report(h.session, h.live(1), 1,
           {resumed(0), metric(100), protocol::CheckpointReport{120, "c", "s", 1},
            protocol::EndReport{EndClass::kPreempted, "", 120, {}}});
  h.report(h.session, h.live(1), 1, {resumed(0)});
  ASSERT_EQ(h.said("attempt_behind").size(), 1u);
  EXPECT_EQ(h.said("attempt_behind")[0],
            "starts over at step 0, although there is a checkpoint of step 120");
}

TEST(Ends, AStopThatNobodyAskedForIsAPreemption) {
  OneRunning h;
  h.finish(h.session, 1, EndClass::kStopped);
  EXPECT_EQ(h.store.attempts(TrialId{1}).value().at(0).end_class, protocol::EndClass::kPreempted);
  EXPECT_EQ(h.state.trials.at(TrialId{1}).failures.at(EndClass::kPreempted), 1);
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning) << "and the trial goes on at once";
  EXPECT_EQ(h.live(1).attempt.number, 2u);
}

TEST(Ends, AStopOnADrainingWorkerConsumesNoRetry) {
  OneRunning h;
  h.send(h.session, protocol::Draining{"SIGTERM"});
  h.finish(h.session, 1, EndClass::kStopped);
  EXPECT_TRUE(h.state.trials.at(TrialId{1}).failures.empty());
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued) << "the draining worker takes nothing new";
}

TEST(Ends, WhatComesAfterTheEndIsNotStored) {
  OneRunning h("oom = 0");
  const auto ref = h.live(1);
  h.report(h.session, ref, 1, {protocol::EndReport{EndClass::kOom, "", 0, {}}, metric(1)});
  EXPECT_EQ(h.sent<protocol::ReportsAck>().at(0).through_sequence, 1u);
  h.report(h.session, ref, 2, {metric(1)});
  EXPECT_TRUE(h.last.writes.empty());
  EXPECT_TRUE(h.sent<protocol::Stop>().at(0).discard);
}

}  // namespace
}  // namespace tailor::core
