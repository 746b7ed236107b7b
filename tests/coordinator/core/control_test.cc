// Pause, resume, cancel, retry: with and without a worker there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;
using storage::SweepState;
using storage::TrialState;

SweepFile two_trials() {
  SweepFile file;
  file.seeds = "count = 2";
  file.retry = "oom = 0";
  return file;
}

TEST(Control, PauseStopsWhatRunsAndResumeGoesOnWithoutConsumingRetries) {
  Harness h;
  h.submit(two_trials());
  const SessionId w = h.connect("w1");
  EXPECT_TRUE(h.control(SweepAction::kPause).status.is_ok());
  const auto stops = h.sent<protocol::Stop>();
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].reason, protocol::StopReason::kPaused);
  EXPECT_FALSE(stops[0].discard);
  h.finish(w, 1, EndClass::kStopped);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_TRUE(h.state.trials.at(TrialId{1}).failures.empty());
  EXPECT_TRUE(h.sent<protocol::Assign>().empty());
  EXPECT_TRUE(h.control(SweepAction::kPause).status.is_ok()) << "twice is once";
  EXPECT_TRUE(h.control(SweepAction::kResume).status.is_ok());
  EXPECT_EQ(h.live(1).attempt.number, 2u);
}

TEST(Control, ATrialThatCompletesWhilePausedCounts) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  h.control(SweepAction::kPause);
  h.finish(w, 1, EndClass::kCompleted);
  EXPECT_EQ(h.trial_state(1), TrialState::kCompleted);
  EXPECT_EQ(h.sweep_state(), SweepState::kCompleted);
}

TEST(Control, APauseSurvivesARestartAndAResumeBeforeTheTrainerStopped) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  const auto ref = h.live(1);
  h.control(SweepAction::kPause);
  h.disconnect(w);
  h.restart();
  EXPECT_EQ(h.state.trials.at(TrialId{1}).live->stop_reason, protocol::StopReason::kPaused);
  h.control(SweepAction::kResume);
  const SessionId again = h.connect("w1", 1, {{ref, {0}, true, 0}});
  EXPECT_EQ(h.sent<protocol::Stop>().size(), 1u) << "told again";
  h.finish(again, 1, EndClass::kStopped);
  EXPECT_TRUE(h.state.trials.at(TrialId{1}).failures.empty());
  EXPECT_EQ(h.live(1).attempt.number, 2u);
}

TEST(Control, CancelEndsQueuedTrialsAtOnceAndRunningOnesWhenTheyStopped) {
  Harness h;
  h.submit(two_trials());
  const SessionId w = h.connect("w1");
  EXPECT_TRUE(h.control(SweepAction::kCancel).status.is_ok());
  EXPECT_EQ(h.sweep_state(), SweepState::kCancelled);
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning);
  EXPECT_EQ(h.trial_state(2), TrialState::kCancelled);
  h.finish(w, 1, EndClass::kStopped);
  EXPECT_EQ(h.trial_state(1), TrialState::kCancelled);
  EXPECT_TRUE(h.control(SweepAction::kCancel).status.is_ok()) << "twice is once";
  EXPECT_EQ(h.control(SweepAction::kResume).status.code(), Code::kFailedPrecondition);
}

TEST(Control, OfTrialsChosenByTheirStateOnlyThoseAreMeantThatAreStillInIt) {
  Harness h;
  h.submit(two_trials());
  h.connect("w1");
  ControlTrials cancel{7, {TrialId{1}, TrialId{2}}, {}, TrialAction::kCancel, false};
  cancel.states = {TrialState::kQueued};  // t1 began since the rows were read
  h.step(cancel);
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning);
  EXPECT_TRUE(h.sent<protocol::Stop>().empty());
  EXPECT_EQ(h.trial_state(2), TrialState::kCancelled);
}

TEST(Control, CancelNeedsNoWorker) {
  Harness h;
  h.submit(two_trials());
  const SessionId w = h.connect("w1");
  const auto ref = h.live(1);
  h.disconnect(w);
  const Reply reply = h.trials(TrialAction::kCancel, {TrialId{1}, TrialId{2}});
  EXPECT_EQ(std::get<TrialsOutcome>(reply.body).trials.size(), 2u);
  EXPECT_EQ(h.trial_state(1), TrialState::kCancelled);
  EXPECT_EQ(h.trial_state(2), TrialState::kCancelled);
  EXPECT_EQ(h.sweep_state(), SweepState::kCompleted);
  h.connect("w1", 1, {{ref, {0}, true, 0}});
  EXPECT_FALSE(h.sent<protocol::Welcome>().at(0).held.at(0).keep)
      << "the node stops it on its return";
}

TEST(Control, ACancelledTrialWhoseWorkerGoesAwayIsNotWaitedFor) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  h.trials(TrialAction::kCancel, {TrialId{1}});
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning);
  h.disconnect(w);
  EXPECT_EQ(h.trial_state(1), TrialState::kCancelled);
}

TEST(Control, ACancelledTrialWhoseLeaseRunsOutIsCancelled) {
  Harness h;
  h.submit({});
  h.connect("w1");
  h.trials(TrialAction::kCancel, {TrialId{1}});
  h.advance(30'000);
  EXPECT_EQ(h.trial_state(1), TrialState::kCancelled);
}

TEST(Control, RetryRunsExactlyTheFailedTrialsAgainAndForgetsTheirFailures) {
  Harness h;
  h.submit(two_trials());
  const SessionId w = h.connect("w1", 2);
  h.finish(w, 1, EndClass::kOom);
  h.finish(w, 2, EndClass::kCompleted);
  EXPECT_EQ(h.trial_state(1), TrialState::kFailed);
  EXPECT_EQ(h.sweep_state(), SweepState::kCompleted);

  const Reply dry = h.trials(TrialAction::kRetry, {}, SweepId{1}, true);
  EXPECT_EQ(std::get<TrialsOutcome>(dry.body).trials, std::vector<TrialId>{TrialId{1}});
  EXPECT_EQ(h.trial_state(1), TrialState::kFailed) << "a dry run does nothing";

  const Reply reply = h.trials(TrialAction::kRetry, {}, SweepId{1});
  EXPECT_EQ(std::get<TrialsOutcome>(reply.body).trials, std::vector<TrialId>{TrialId{1}});
  EXPECT_EQ(h.sweep_state(), SweepState::kRunning);
  EXPECT_EQ(h.live(1).attempt.number, 2u);
  const Reply twice = h.trials(TrialAction::kRetry, {}, SweepId{1});
  EXPECT_TRUE(std::get<TrialsOutcome>(twice.body).trials.empty());
  h.finish(w, 1, EndClass::kCompleted);
  EXPECT_EQ(h.trial_state(1), TrialState::kCompleted);
  EXPECT_EQ(h.sweep_state(), SweepState::kCompleted);
}

TEST(Control, UnknownIdsAreNamedAndNothingIsDone) {
  Harness h;
  h.submit(two_trials());
  EXPECT_EQ(h.control(SweepAction::kPause, SweepId{9}).status.code(), Code::kNotFound);
  const Reply reply = h.trials(TrialAction::kCancel, {TrialId{1}, TrialId{99}});
  EXPECT_EQ(reply.status.code(), Code::kNotFound);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_TRUE(h.last.writes.empty());
  h.step(DrainWorker{1, WorkerId{9}});
  EXPECT_EQ(std::get<Reply>(h.last.outward.at(0)).status.code(), Code::kNotFound);
}

TEST(Control, PriorityDecidesWhoIsNext) {
  Harness h;
  h.submit(two_trials());
  SweepFile urgent = two_trials();
  urgent.name = "urgent";
  h.submit(urgent);
  h.step(ControlSweep{50, SweepId{2}, SweepAction::kSetPriority, 5});
  h.connect("w1");
  EXPECT_EQ(h.trial_state(3), TrialState::kRunning);
  EXPECT_EQ(h.store.sweep(SweepId{2}).value().priority, 5);
}

TEST(Control, ParallelLimitsHowManyRunAtOnce) {
  Harness h;
  SweepFile file = two_trials();
  file.resources = "gpus = 0\nparallel = 1";
  h.submit(file);
  const SessionId w = h.connect("w1", 2);
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning);
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued);
  h.finish(w, 1, EndClass::kCompleted);
  EXPECT_EQ(h.trial_state(2), TrialState::kRunning);
}

TEST(Control, SaysWhichSweepsAndHowManyRunningTrialsAreHit) {
  Harness h;
  SweepFile file;
  file.candidates = candidate("a", 64) + candidate("b", 96);
  h.submit(file);
  SweepFile other;
  other.name = "other";
  h.submit(other);
  h.connect("w", 1);
  const auto dry = std::get<TrialsOutcome>(
      h.trials(TrialAction::kCancel, {TrialId{1}, TrialId{2}, TrialId{3}}, {}, true).body);
  ASSERT_EQ(dry.targets.size(), 2u);
  EXPECT_EQ(dry.targets.at(SweepId{1}).sweep_name, file.name);
  EXPECT_EQ(dry.targets.at(SweepId{1}).trials, 2u);
  EXPECT_EQ(dry.targets.at(SweepId{1}).running, 1u);
  EXPECT_EQ(dry.targets.at(SweepId{2}).running, 0u);
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued) << "nothing was done";
  const auto done = std::get<TrialsOutcome>(
      h.trials(TrialAction::kCancel, {TrialId{1}, TrialId{2}, TrialId{3}}).body);
  EXPECT_EQ(done.targets.at(SweepId{1}).running, 1u) << "as it was before the change";
}

}  // namespace
}  // namespace tailor::core
