// Where a trial goes on, and for how long it may run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/explain.h"
#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::CheckpointReport;
using protocol::EndClass;
using protocol::EndReport;
using protocol::Heartbeat;
using protocol::MetricReport;
using protocol::StartedReport;
using protocol::StopReason;
using storage::TrialState;
using testing::ElementsAre;
using testing::HasSubstr;

protocol::Hello in_folder(const std::string& name, const std::string& folder, int slots = 1) {
  protocol::Hello made = hello(name, slots);
  made.folder = folder;
  return made;
}

/// t1 came to a checkpoint of step 50 on w1 and was paused.
struct Paused : Harness {
  explicit Paused(const std::string& folder = "f1") {
    submit({});
    w1 = connect(in_folder("w1", folder));
    ref = live(1);
    report(w1, ref, 1,
           {StartedReport{}, MetricReport{50, 64, {{"train_loss", 1.0}}},
            CheckpointReport{50, "checkpoints/50", "abc", 1}});
    control(SweepAction::kPause);
    report(w1, ref, 4, {EndReport{EndClass::kStopped, "", 50, {}}});
  }
  SessionId w1 = 0;
  protocol::AttemptRef ref;
};

TEST(Resume, GoesToTheWorkerThatHasTheCheckpointThoughOthersHaveMoreFree) {
  Paused h;
  h.connect(in_folder("w2", "f2", 8));
  h.control(SweepAction::kResume);
  EXPECT_EQ(h.workers_of(1), "w1");
}

TEST(Resume, GoesToAnyWorkerOfTheSharedFolder) {
  Paused h("shared");
  h.disconnect(h.w1);
  h.connect(in_folder("w2", "other", 8));
  h.connect(in_folder("w3", "shared"));
  h.control(SweepAction::kResume);
  EXPECT_EQ(h.workers_of(1), "w3");
}

TEST(Resume, WaitsForTheHolderOnlySoLongAndThenSaysThatItStartsOver) {
  Paused h;
  h.disconnect(h.w1);
  const SessionId w2 = h.connect(in_folder("w2", "f2"));
  h.control(SweepAction::kResume);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  const Why waiting = why(h.state, TrialId{1}, h.now);
  EXPECT_EQ(waiting.code, WhyCode::kHolder);
  EXPECT_THAT(waiting.sentence, HasSubstr("its checkpoint of step 50 lies in the trials folder of "
                                          "w1, which is not connected"));
  // Others do not wait for it.
  SweepFile other;
  other.name = "other";
  h.submit(other);
  EXPECT_EQ(h.workers_of(2), "w2");
  h.finish(w2, 2, EndClass::kCompleted);
  h.advance(119'999);
  h.send(w2, Heartbeat{});
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  h.advance(1);
  ASSERT_EQ(h.workers_of(1), "w2");
  h.report(w2, h.live(1), 1, {StartedReport{}});
  EXPECT_THAT(h.said("attempt_behind"),
              ElementsAre("starts over at step 0, although there is a checkpoint of step 50: it "
                          "lies in the trials folder of w1, which this worker cannot read"));
}

TEST(Resume, DoesNotWaitForAHolderThatIsDrainingOrInQuarantine) {
  Paused h;
  h.connect(in_folder("w2", "f2"));
  h.step(QuarantineWorker{1, WorkerId{1}, "broken fan"});
  h.control(SweepAction::kResume);
  EXPECT_EQ(h.workers_of(1), "w2");
}

TEST(Resume, AWaitForTheHolderEndsWhenItComesBackAndSurvivesARestart) {
  Paused h;
  h.disconnect(h.w1);
  h.restart();
  h.connect(in_folder("w2", "f2"));
  h.control(SweepAction::kResume);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  h.connect(in_folder("w1", "f1"));
  EXPECT_EQ(h.workers_of(1), "w1");
}

TEST(Resume, ATimeWithoutEarsIsNoWaitForTheHolder) {
  Paused h;
  h.disconnect(h.w1);
  const SessionId w2 = h.connect(in_folder("w2", "f2"));
  h.control(SweepAction::kResume);
  h.now.mono_ms += 600'000;  // nobody could connect
  h.now.wall_ms += 600'000;
  h.step(Stalled{600'000});
  h.advance(0);
  h.send(w2, Heartbeat{});
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  h.connect(in_folder("w1", "f1"));
  EXPECT_EQ(h.workers_of(1), "w1");
}

/// t1 came to step 1000 on w1, which is lost for good, and started over on w2, where it has come to
/// step 900.
struct StartedOver : Harness {
  explicit StartedOver(const SweepFile& file = {}) {
    submit(file);
    const SessionId w1 = connect(in_folder("w1", "f1"));
    report(w1, live(1), 1,
           {StartedReport{}, MetricReport{1'000, 64, {{"train_loss", 1.0}}},
            CheckpointReport{1'000, "checkpoints/1000", "abc", 1}});
    disconnect(w1);
    advance(30'000);
    w2 = connect(in_folder("w2", "f2"));
    wait(200'000);
    EXPECT_EQ(workers_of(1), "w2");
    report(w2, live(1), 1, {StartedReport{}});
    checkpoint(2, 100);
    checkpoint(3, 900);
  }
  void checkpoint(std::uint64_t sequence, std::int64_t step) {
    report(w2, live(1), sequence, {CheckpointReport{step, "checkpoints", "def", 1}});
  }
  /// Until t1 runs.
  void wait(std::int64_t ms) {
    for (; ms > 0 && workers_of(1).empty(); ms -= 10'000) {
      send(w2, Heartbeat{1, {}});
      advance(10'000);
    }
  }
  SessionId w2 = 0;
};

TEST(Resume, ATrialThatStartedOverGoesOnFromItsNewCheckpoint) {
  for (const bool restarted : {false, true}) {
    StartedOver h;
    if (restarted) {
      const auto ref = h.live(1);
      h.restart();
      h.w2 = h.connect([&] {
        protocol::Hello back = in_folder("w2", "f2");
        back.held = {{ref, {0}, true, 3}};
        return back;
      }());
    }
    EXPECT_EQ(h.state.trials.at(TrialId{1}).checkpoint, (CheckpointNote{900, WorkerId{2}, 2}));
    h.connect(in_folder("w3", "f3", 4));
    h.control(SweepAction::kPause);
    h.report(h.w2, h.live(1), 4, {EndReport{EndClass::kStopped, "", 900, {}}});
    h.control(SweepAction::kResume);
    ASSERT_EQ(h.workers_of(1), "w2") << explain(h.state, TrialId{1}, h.now);
    StartedReport resumed;
    resumed.resumed_step = 900;
    h.report(h.w2, h.live(1), 1, {resumed});
    EXPECT_EQ(h.said("attempt_behind").size(), 1u) << "it goes on where it had come to";
  }
}

TEST(Resume, AfterAStartOverTheStoredCheckpointOfTheNewHistoryWillDo) {
  StartedOver h;
  h.step(ArtifactsChanged{1, TrialId{1}, {{2, 900, "def", 1}}});
  h.connect(in_folder("w3", "f3", 4));
  h.control(SweepAction::kPause);
  const auto ref = h.live(1);
  h.step(DrainWorker{2, WorkerId{2}});
  h.report(h.w2, ref, 4, {EndReport{EndClass::kStopped, "", 900, {}}});
  h.control(SweepAction::kResume);
  EXPECT_EQ(h.workers_of(1), "w3");
}

// What counts is the history that the trial is in now: step 1000 of the lost one is long gone.
TEST(Resume, AfterAStartOverNewCheckpointsForgiveFailuresAgain) {
  SweepFile file;
  file.retry = "oom = 3";
  StartedOver h(file);
  const auto fail = [&](std::uint64_t sequence) {
    h.report(h.w2, h.live(1), sequence, {EndReport{EndClass::kOom, "", 900, {}}});
    h.wait(300'000);
    ASSERT_EQ(h.workers_of(1), "w2");
  };
  fail(4);
  EXPECT_EQ(h.state.trials.at(TrialId{1}).failures.at(EndClass::kOom), 1);
  StartedReport resumed;
  resumed.resumed_step = 900;
  h.report(h.w2, h.live(1), 1, {resumed});
  h.checkpoint(2, 950);
  EXPECT_TRUE(h.state.trials.at(TrialId{1}).failures.empty());
}

TEST(Resume, ATrialThatWaitsForItsCheckpointStartsWhenThatIsStored) {
  Harness h;
  h.submit({});
  const SessionId w1 = h.connect(in_folder("w1", "f1", 1));
  h.report(w1, h.live(1), 1,
           {StartedReport{}, MetricReport{100, 64, {{"train_loss", 1.0}}},
            CheckpointReport{100, "checkpoints/100", "abc", 1}});
  h.disconnect(w1);
  h.connect(in_folder("w2", "f2", 1));
  for (int i = 0; i < 4; ++i) {
    h.advance(10'000);
    h.send(h.state.workers.at(WorkerId{2}).session, protocol::Heartbeat{});
  }
  ASSERT_EQ(h.trial_state(1), TrialState::kQueued) << "its lease ran out";
  ASSERT_TRUE(h.state.deadlines.contains(DeadlineKind::kHolder, 1));
  h.step(ArtifactsChanged{90, TrialId{1}, {{1, 100, "abc", 1}}});
  EXPECT_EQ(h.workers_of(1), "w2") << "and nothing else has to happen";
}

TEST(Resume, ATrialThatWaitsForAnAbsentWorkerStartsWhenThatIsDrainedOrQuarantined) {
  for (const bool drained : {true, false}) {
    Harness h;
    h.submit({});
    const SessionId w1 = h.connect(in_folder("w1", "f1", 1));
    h.report(w1, h.live(1), 1,
             {StartedReport{}, MetricReport{100, 64, {{"train_loss", 1.0}}},
              CheckpointReport{100, "checkpoints/100", "abc", 1}});
    h.disconnect(w1);
    h.connect(in_folder("w2", "f2", 1));
    for (int i = 0; i < 4; ++i) {
      h.advance(10'000);
      h.send(h.state.workers.at(WorkerId{2}).session, protocol::Heartbeat{});
    }
    ASSERT_EQ(h.trial_state(1), TrialState::kQueued);
    if (drained) {
      h.step(DrainWorker{77, WorkerId{1}, 0});
    } else {
      h.step(QuarantineWorker{77, WorkerId{1}, "its disk is broken"});
    }
    EXPECT_EQ(h.workers_of(1), "w2") << "nobody waits for what will not come";
  }
}

TEST(Resume, ATrialThatIsTriedAgainIsOfferedItsStoredCheckpoint) {
  for (const bool alone : {false, true}) {  // its sweep ends with it, or goes on
    Harness h;
    SweepFile file;
    file.seeds = alone ? "count = 1" : "count = 2";
    file.retry = "oom = 0";
    h.submit(file);
    const SessionId w1 = h.connect(in_folder("w1", "f1", 2));
    h.report(w1, h.live(1), 1,
             {StartedReport{}, MetricReport{100, 64, {{"train_loss", 1.0}}},
              CheckpointReport{100, "checkpoints/100", "abc", 1}});
    h.step(ArtifactsChanged{90, TrialId{1}, {{1, 100, "abc", 1}}});
    h.report(w1, h.live(1), 4, {EndReport{EndClass::kOom, "", 100, {}}});
    ASSERT_EQ(h.trial_state(1), TrialState::kFailed);
    ASSERT_FALSE(h.state.trials.contains(TrialId{1}));
    h.disconnect(w1);
    h.connect(in_folder("w2", "f2"));
    h.trials(TrialAction::kRetry, {TrialId{1}});
    const auto assigns = h.sent<protocol::Assign>();
    ASSERT_EQ(assigns.size(), 1u) << explain(h.state, TrialId{1}, h.now);
    EXPECT_EQ(assigns[0].stored, (std::vector<protocol::StoredCheckpoint>{{1, 100, "abc", 1}}));
  }
}

TEST(Resume, NothingIsKeptOfCheckpointsThatTheArtifactStoreHasLetGo) {
  Harness h;
  h.step(ArtifactsChanged{1, TrialId{7}, {{1, 100, "abc", 1}}});  // told at a start, of any trial
  EXPECT_EQ(h.state.stored.size(), 1u);
  h.step(ArtifactsChanged{2, TrialId{7}, {}});
  EXPECT_TRUE(h.state.stored.empty());
}

SweepFile limited(const std::string& limits) {
  SweepFile file;
  file.limits = limits;
  file.retry = "timeout = 5";
  return file;
}

TEST(Limits, AreSentToTheWorkerAndShrinkWithWhatTheTrialHasRun) {
  Harness h;
  h.submit(limited("progress = \"5 min\"\nattempt = \"1 h\"\ntrial = \"90 min\""));
  const SessionId w = h.connect("w1");
  auto assign = h.sent<protocol::Assign>().at(0);
  EXPECT_EQ(assign.progress_limit_ms, 300'000);
  EXPECT_EQ(assign.time_limit_ms, 3'600'000);
  for (int i = 0; i < 180; ++i) {
    h.advance(20'000);
    h.send(w, Heartbeat{1, {h.live(1)}});
    h.report(w, h.live(1), static_cast<std::uint64_t>(i) + 1,
             {MetricReport{i, 64, {{"train_loss", 1.0}}}});
  }
  h.report(w, h.live(1), 181, {EndReport{EndClass::kTimeout, "1 h is over", 9, {}}});
  EXPECT_EQ(h.store.trial(TrialId{1}).value().run_ms, 3'600'000);
  h.advance(2'000);
  assign = h.sent<protocol::Assign>().at(0);
  EXPECT_EQ(assign.time_limit_ms, 1'800'000) << "what is left of 90 min";
  h.restart();
  EXPECT_EQ(h.state.trials.at(TrialId{1}).row.run_ms, 3'600'000);
}

TEST(Limits, ATrialThatUsedUpItsTimeFailsWithTheReason) {
  Harness h;
  h.submit(limited("trial = \"1 min\""));
  const SessionId w = h.connect("w1");
  h.advance(20'000);
  h.send(w, Heartbeat{1, {h.live(1)}});
  h.finish(w, 1, EndClass::kPreempted);
  ASSERT_EQ(h.trial_state(1), TrialState::kRunning);
  h.advance(20'000);
  h.send(w, Heartbeat{1, {h.live(1)}});
  h.advance(20'000);
  h.report(w, h.live(1), 1, {EndReport{EndClass::kTimeout, "out of time", 3, {}}});
  EXPECT_EQ(h.trial_state(1), TrialState::kFailed);
  EXPECT_EQ(h.store.trial(TrialId{1}).value().end_class, protocol::EndClass::kTimeout);
  EXPECT_THAT(h.store.trial(TrialId{1}).value().message,
              HasSubstr("ran for 60 s together, and limits.trial is 60 s"));
}

// The worker enforces limits; should it not, the coordinator does, later.
TEST(Limits, OfAWorkerThatDoesNotEnforceThemAreEnforcedFromHere) {
  Harness h;
  h.submit(limited("progress = \"1 min\""));
  const SessionId w = h.connect("w1");
  h.report(w, h.live(1), 1, {StartedReport{}, MetricReport{1, 64, {{"train_loss", 1.0}}}});
  const auto pass = [&](std::int64_t ms) {
    for (; ms > 0; ms -= 10'000) {
      h.send(w, Heartbeat{1, {h.live(1)}});
      h.advance(10'000);
    }
  };
  pass(120'000);
  h.report(w, h.live(1), 3, {MetricReport{2, 64, {{"train_loss", 1.0}}}});  // it does go on
  pass(170'000);
  EXPECT_EQ(h.state.trials.at(TrialId{1}).live->stop_reason, StopReason::kNone);
  pass(10'000);
  EXPECT_EQ(h.state.trials.at(TrialId{1}).live->stop_reason, StopReason::kTimeout);
  h.report(w, h.live(1), 4, {EndReport{EndClass::kStopped, "", 2, {}}});
  const auto row = h.store.attempts(TrialId{1}).value().at(0);
  EXPECT_EQ(row.end_class, protocol::EndClass::kTimeout);
  EXPECT_THAT(row.message, HasSubstr("180 s since its last step"));
  EXPECT_EQ(h.state.trials.at(TrialId{1}).failures.at(EndClass::kTimeout), 1);
}

TEST(Limits, OfATrialAreNotUsedUpByAWallClockThatIsSet) {
  for (const std::int64_t jump_ms : {std::int64_t{5 * 3'600'000}, std::int64_t{-5 * 3'600'000}}) {
    Harness h;
    h.submit(limited("trial = \"4 h\""));
    SessionId w = h.connect("w1", 1);
    const auto ref = h.live(1);
    h.advance(20'000);
    h.report(w, ref, 1, {StartedReport{}, MetricReport{1, 64, {{"train_loss", 2.0}}}});
    h.disconnect(w);
    h.now.wall_ms += jump_ms;
    h.restart();
    w = h.connect("w1", 1, {{ref, {0}, true, 0}});
    h.advance(5'000);
    h.control(SweepAction::kPause);
    h.report(w, ref, 3, {EndReport{EndClass::kStopped, "", 1, {}}});
    EXPECT_EQ(h.trial_state(1), TrialState::kQueued) << h.store.trial(TrialId{1})->message;
    EXPECT_EQ(h.store.trial(TrialId{1})->run_ms, 25'000) << "20 s before the restart, 5 s after";
  }
}

TEST(Limits, WithoutAnyNothingIsEnded) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  EXPECT_EQ(h.sent<protocol::Assign>().at(0).time_limit_ms, 0);
  for (int i = 0; i < 1'000; ++i) {
    h.advance(20'000);
    h.send(w, Heartbeat{1, {h.live(1)}});
  }
  EXPECT_EQ(h.live(1).attempt.number, 1u);
}

}  // namespace
}  // namespace tailor::core
