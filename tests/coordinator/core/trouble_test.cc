// Workers in trouble: refusals, starts that fail, quarantine, and the ways back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "coordinator/core/explain.h"
#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;
using protocol::Heartbeat;
using protocol::Refused;
using storage::TrialState;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

SweepFile trials(int count, const std::string& more = "") {
  SweepFile file;
  file.seeds = "count = " + std::to_string(count);
  file.resources = "gpus = 0" + more;
  return file;
}

/// Refuses whatever the worker was given.
void refuse_all(Harness& h, SessionId session, const std::string& name) {
  const auto refs = [&] {
    std::vector<protocol::AttemptRef> found;
    for (const auto& [id, trial] : h.state.trials) {
      if (trial.live && h.workers_of(id.value) == name) {
        found.push_back({trial.live->row.id, trial.live->row.token});
      }
    }
    return found;
  };
  for (const auto& ref : refs()) {
    h.send(session, Refused{ref, EndClass::kInfrastructure, "no space left on device"});
  }
}

// One worker with a full disk beside a healthy one: it costs the worker, not the trials.
TEST(Trouble, ARefusedTrialGoesToAnotherWorkerAtOnceAndCountsNothing) {
  Harness h;
  h.submit(trials(8));
  const SessionId full = h.connect("full", 4);
  const SessionId healthy = h.connect("healthy", 4);
  refuse_all(h, full, "full");
  for (int i = 1; i <= 8; ++i) {
    for (std::uint64_t t = 1; t <= 8; ++t) {
      if (h.workers_of(t) == "healthy") {
        h.finish(healthy, t, EndClass::kCompleted);
        break;
      }
    }
  }
  for (std::uint64_t t = 1; t <= 8; ++t) EXPECT_EQ(h.trial_state(t), TrialState::kCompleted) << t;
  EXPECT_THAT(h.said("trial_failed"), IsEmpty());
  EXPECT_THAT(h.worker("full").row.quarantine, HasSubstr("no space left on device"));
}

TEST(Trouble, AWorkerThatRefusesAgainAndAgainIsQuarantinedAndTriedWithOneTrial) {
  Harness h;
  h.submit(trials(3));
  const SessionId w = h.connect("w1", 2);
  const auto beat = [&] { h.send(w, Heartbeat{1, {}}); };
  refuse_all(h, w, "w1");
  EXPECT_EQ(h.worker("w1").troubles, 2u);
  EXPECT_EQ(h.worker("w1").row.quarantine, "");
  EXPECT_EQ(why(h.state, TrialId{1}, h.now).code, WhyCode::kWorkersOut);
  EXPECT_THAT(explain(h.state, TrialId{1}, h.now), HasSubstr("waits 20.0 s"));
  h.advance(20'000);
  refuse_all(h, w, "w1");
  EXPECT_THAT(h.said("worker_quarantined"), ElementsAre(HasSubstr("no space left")));
  EXPECT_THAT(explain(h.state, TrialId{1}, h.now), HasSubstr("in quarantine"));
  EXPECT_EQ(h.store.workers().value().at(0).quarantine, h.worker("w1").row.quarantine);

  h.advance(299'999);
  EXPECT_EQ(h.workers_of(1) + h.workers_of(2) + h.workers_of(3), "");
  h.advance(1);
  EXPECT_EQ(h.workers_of(1) + h.workers_of(2) + h.workers_of(3), "w1") << "one tries it";
  refuse_all(h, w, "w1");
  h.advance(300'000);
  beat();
  EXPECT_EQ(h.workers_of(1) + h.workers_of(2) + h.workers_of(3), "") << "twice as long";
  h.advance(300'000);
  ASSERT_EQ(h.workers_of(1), "w1");
  h.report(w, h.live(1), 1,
           {protocol::StartedReport{}, protocol::MetricReport{1, 64, {{"train_loss", 1.0}}}});
  EXPECT_EQ(h.worker("w1").row.quarantine, "");
  EXPECT_THAT(h.said("worker_released"), ElementsAre(HasSubstr("came to a step")));
  EXPECT_EQ(h.workers_of(2), "w1") << "the other slot is used again";
  EXPECT_THAT(h.said("trial_failed"), IsEmpty());
}

TEST(Trouble, AQuarantineSurvivesARestartAndEndsByRequest) {
  Harness h;
  h.submit(trials(2));
  SessionId w = h.connect("w1", 1);
  h.step(QuarantineWorker{7, WorkerId{1}, "smells of smoke"});
  EXPECT_TRUE(std::get<Reply>(h.last.outward.at(0)).status.is_ok());
  h.finish(w, 1, EndClass::kCompleted);
  EXPECT_EQ(h.trial_state(1), TrialState::kCompleted) << "what runs goes on";
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued);
  h.disconnect(w);
  h.restart();
  w = h.connect("w1", 1, {}, "i2");
  h.advance(100'000'000);
  h.send(w, Heartbeat{1, {}});
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued)
      << "no trial tries a worker that a person took out";
  EXPECT_THAT(explain(h.state, TrialId{2}, h.now), HasSubstr("by request: smells of smoke"));
  h.step(ReleaseWorker{8, WorkerId{1}});
  EXPECT_EQ(h.workers_of(2), "w1");
  h.step(ReleaseWorker{9, WorkerId{9}});
  EXPECT_EQ(std::get<Reply>(h.last.outward.at(0)).status.code(), Code::kNotFound);
}

TEST(Trouble, AQuarantineForTroublesIsTriedAfterARestartToo) {
  Harness h;
  h.submit(trials(1));
  SessionId w = h.connect("w1", 1);
  for (int i = 0; i < 3; ++i) {
    refuse_all(h, w, "w1");
    h.advance(100'000);
    h.send(w, Heartbeat{1, {}});
  }
  ASSERT_NE(h.worker("w1").row.quarantine, "");
  h.restart();
  w = h.connect("w1", 1);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  h.advance(300'000);
  h.send(w, Heartbeat{1, {}});
  EXPECT_EQ(h.workers_of(1), "w1");
}

// The one trial that tries a quarantined worker teaches nothing: another one tries it.
TEST(Trouble, AQuarantineEndsByItselfWhenTheProbeWasRefusedByAnUnfitWorker) {
  Harness h;
  h.submit(trials(1));
  const SessionId w = h.connect("w1", 1);
  const auto beat = [&] {
    Heartbeat heartbeat{1, {}};
    if (!h.workers_of(1).empty()) heartbeat.running.push_back(h.live(1));
    h.send(w, heartbeat);
  };
  for (int i = 0; i < 3; ++i) {
    refuse_all(h, w, "w1");
    h.advance(100'000);
    beat();
  }
  ASSERT_NE(h.worker("w1").row.quarantine, "");
  for (int i = 0; i < 40 && h.workers_of(1).empty(); ++i) {
    h.advance(10'000);
    beat();
  }
  ASSERT_EQ(h.workers_of(1), "w1") << "one tries it";
  Heartbeat unfit{1, {h.live(1)}};
  unfit.unfit = "0.5 GiB of disk left, 2 GiB are wanted";
  h.send(w, unfit);
  refuse_all(h, w, "w1");
  EXPECT_EQ(h.workers_of(1), "");
  beat();  // there is space again
  EXPECT_EQ(h.workers_of(1), "w1") << explain(h.state, TrialId{1}, h.now);
}

TEST(Trouble, AQuarantineEndsByItselfWhenTheTrialThatTriedItStartsNowhere) {
  Harness h;
  h.options.start_failures = 2;
  h.state.options = h.options;
  SweepFile file = trials(2);
  file.retry = "infrastructure = 5";
  h.submit(file);
  const SessionId w = h.connect("w1", 2);
  const auto wait = [&] {
    for (int i = 0; i < 100 && h.workers_of(1).empty() && h.workers_of(2).empty(); ++i) {
      h.advance(60'000);
      h.send(w, Heartbeat{1, {}});
    }
  };
  const auto fail = [&](std::uint64_t id) {
    h.report(w, h.live(id), 1, {protocol::EndReport{EndClass::kInfrastructure, "no GPU", 0, {}}});
  };
  for (int i = 0; i < 2; ++i) {
    wait();
    ASSERT_EQ(h.workers_of(1) + h.workers_of(2), "w1w1") << i;
    fail(1);
    fail(2);
  }
  ASSERT_NE(h.worker("w1").row.quarantine, "");
  for (int i = 0; i < 3; ++i) {
    wait();
    ASSERT_EQ(h.workers_of(1) + h.workers_of(2), "w1")
        << i << ": one tries it; " << explain(h.state, TrialId{1}, h.now);
    fail(h.workers_of(1).empty() ? 2 : 1);
    EXPECT_NE(h.worker("w1").row.quarantine, "");
  }
}

TEST(Trouble, AQuarantineEndsByItselfWhenAnotherMemberOfTheProbingGangWasAtFault) {
  Harness h;
  h.submit(trials(1, "\ncpus = 1\nnodes = 2"));
  std::map<std::string, SessionId> at;
  at["w1"] = h.connect("w1", 1);
  at["w2"] = h.connect("w2", 1);
  const auto end_gang = [&](const std::string& bad) {
    const auto ref = h.live(1);
    const bool first = h.state.trials.at(TrialId{1}).live->row.worker == h.worker(bad).row.id;
    const std::string good = bad == "w1" ? "w2" : "w1";
    h.send(at[bad], Refused{ref, EndClass::kInfrastructure, "no space left on device"});
    if (first) {
      h.send(at[good], protocol::MemberEnded{ref, EndClass::kStopped, ""});
    } else {
      h.report(at[good], ref, 1, {protocol::EndReport{EndClass::kStopped, "", 0, {}}});
    }
  };
  const auto wait = [&](int times, std::int64_t ms) {
    for (int i = 0; i < times && h.workers_of(1).empty(); ++i) {
      h.advance(ms);
      for (const auto& [name, session] : at) h.send(session, Heartbeat{1, {}});
    }
    return !h.workers_of(1).empty();
  };
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(wait(60, 10'000));
    end_gang("w1");
  }
  ASSERT_NE(h.worker("w1").row.quarantine, "");
  ASSERT_TRUE(wait(60, 10'000)) << "the gang tries w1";
  end_gang("w2");
  EXPECT_TRUE(wait(60, 10'000)) << explain(h.state, TrialId{1}, h.now);
}

TEST(Trouble, StartsThatFailCostTheWorkerUntilTheTrialIsToBlame) {
  Harness h;
  h.options.start_failure_workers = 2;
  h.state.options = h.options;
  SweepFile file = trials(1);
  file.retry = "infrastructure = 0";
  h.submit(file);
  const auto fail_start = [&](SessionId session) {
    h.report(session, h.live(1), 1,
             {protocol::EndReport{EndClass::kInfrastructure, "exit code 1", 0, {}}});
  };
  const SessionId w1 = h.connect("w1", 1);
  fail_start(w1);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_TRUE(h.state.trials.at(TrialId{1}).failures.empty());
  EXPECT_EQ(h.worker("w1").troubles, 1u);
  const SessionId w2 = h.connect("w2", 1);
  h.advance(2'000);
  ASSERT_EQ(h.workers_of(1), "w2");
  fail_start(w2);
  EXPECT_EQ(h.trial_state(1), TrialState::kFailed) << "it starts nowhere: it is the trial";
}

TEST(Trouble, OneTrialThatGoesWrongAgainAndAgainDoesNotCondemnTheNode) {
  Harness h;
  SweepFile file = trials(1);
  file.retry = "infrastructure = 9";
  h.submit(file);
  const SessionId w = h.connect("w1", 1);
  for (int i = 0; i < 6; ++i) {
    h.finish(w, 1, EndClass::kInfrastructure);
    h.advance(300'000);
    h.send(w, Heartbeat{});
  }
  EXPECT_EQ(h.worker("w1").row.quarantine, "");
  // Another trial that ends so, too, shows that it is the node.
  SweepFile other = trials(1);
  other.name = "other";
  h.submit(other);
  h.finish(w, 1, EndClass::kInfrastructure);
  ASSERT_EQ(h.workers_of(2), "w1");
  h.finish(w, 2, EndClass::kInfrastructure);
  EXPECT_THAT(h.worker("w1").row.quarantine, HasSubstr("in a row"));
}

TEST(Trouble, AnEndThatIsNotTheNodesForgetsEarlierTroubles) {
  Harness h;
  h.submit(trials(4));
  const SessionId w = h.connect("w1", 4);
  h.finish(w, 1, EndClass::kInfrastructure);
  h.finish(w, 2, EndClass::kInfrastructure);
  h.finish(w, 3, EndClass::kNan);
  EXPECT_EQ(h.worker("w1").troubles, 0u);
  h.finish(w, 4, EndClass::kInfrastructure);
  EXPECT_EQ(h.worker("w1").row.quarantine, "");
}

TEST(Trouble, ALineOfTheLogQuarantinesTheWorkerWithTheLineAsReason) {
  Harness h;
  h.options.quarantine_patterns = {"uncorrectable ECC error", "fallen off the bus"};
  h.state.options = h.options;
  h.submit(trials(2));
  const SessionId w = h.connect("w1", 1);
  const auto ref = h.live(1);
  h.send(w, protocol::LogChunk{ref, 0, "step 1\nCUDA error: uncorrect"});
  EXPECT_EQ(h.worker("w1").row.quarantine, "");
  h.send(w, protocol::LogChunk{ref, 28, "able ECC error encountered\nstep 2\n"});
  EXPECT_THAT(h.worker("w1").row.quarantine,
              HasSubstr("CUDA error: uncorrectable ECC error encountered (log of t1.1)"));
  h.finish(w, 1, EndClass::kInfrastructure);
  h.advance(1'000'000);
  h.send(w, Heartbeat{});
  EXPECT_EQ(h.workers_of(1) + h.workers_of(2), "") << "a person must look at it";
  h.step(ReleaseWorker{1, WorkerId{1}});
  EXPECT_EQ(h.workers_of(1) + h.workers_of(2), "w1");
}

TEST(Trouble, AnEndlessLineOfALogIsNotKeptAndStillSearched) {
  Harness h;
  h.options.quarantine_patterns = {"ECC"};
  h.state.options = h.options;
  h.submit(trials(1));
  const SessionId w = h.connect("w1", 1);
  const auto ref = h.live(1);
  std::uint64_t at = 0;
  const auto write = [&](const std::string& bytes) {
    h.send(w, protocol::LogChunk{ref, at, bytes});
    at += bytes.size();
  };
  for (int i = 0; i < 20; ++i) write(std::string(64 << 10, 'x'));
  EXPECT_LE(h.state.trials.at(TrialId{1}).live->log_tail.size(), 4096u);
  write("EC");
  write("C" + std::string(100'000, 'y'));
  EXPECT_THAT(h.worker("w1").row.quarantine, HasSubstr("ECC"));
  EXPECT_LE(h.worker("w1").row.quarantine.size(), 400u);
}

TEST(Trouble, AnUnfitWorkerGetsNothingUntilItIsFitAndThatIsSaidOnce) {
  Harness h;
  const SessionId w = h.connect("w1", 1);
  Heartbeat unfit{1, {}};
  unfit.unfit = "0.5 GiB of disk left, 2 GiB are wanted";
  h.send(w, unfit);
  h.submit(trials(1));
  unfit.unfit = "0.4 GiB of disk left, 2 GiB are wanted";
  h.send(w, unfit);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_THAT(explain(h.state, TrialId{1}, h.now), HasSubstr("0.4 GiB of disk left"));
  EXPECT_EQ(h.said("worker_unfit").size(), 1u);
  h.send(w, Heartbeat{2, {}});
  EXPECT_EQ(h.workers_of(1), "w1");
  EXPECT_EQ(h.said("worker_fit").size(), 1u);
}

TEST(Trouble, ARefusalThatCrossedTheNewsOfADrainIsNoTrouble) {
  Harness h;
  h.submit(trials(1));
  const SessionId w = h.connect("w1", 1);
  const auto ref = h.live(1);
  h.send(w, protocol::Draining{"SIGTERM"});
  h.send(w, Refused{ref, EndClass::kInfrastructure, "this worker drains"});
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_EQ(h.worker("w1").troubles, 0u);
}

TEST(Trouble, ADrainCanBePlannedForATime) {
  Harness h;
  h.submit(trials(2));
  const SessionId w = h.connect("w1", 1);
  h.step(DrainWorker{1, WorkerId{1}, 25'000});
  EXPECT_TRUE(h.sent<protocol::Drain>().empty());
  EXPECT_EQ(h.worker("w1").row.draining, false);
  h.advance(24'999);
  EXPECT_EQ(h.worker("w1").row.draining, false);
  h.advance(1);
  EXPECT_EQ(h.worker("w1").row.draining, true);
  EXPECT_EQ(h.sent<protocol::Drain>().size(), 1u);
  h.finish(w, 1, EndClass::kCompleted);
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued);
  EXPECT_THAT(h.event_kinds(), Contains("worker_drain_planned"));
  h.step(ReleaseWorker{2, WorkerId{1}});
  EXPECT_EQ(std::get<Reply>(h.last.outward.at(0)).status.code(), Code::kFailedPrecondition);
}

TEST(Trouble, ADrainThatCannotBePlannedIsRefused) {
  Harness h;
  h.connect("w1", 1);
  for (const std::int64_t in_ms : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::min(),
                                   kDrainInMsMax + 1, std::numeric_limits<std::int64_t>::max()}) {
    h.step(DrainWorker{1, WorkerId{1}, in_ms});
    EXPECT_EQ(std::get<Reply>(h.last.outward.at(0)).status.code(), Code::kInvalidArgument) << in_ms;
  }
  EXPECT_EQ(h.worker("w1").row.drain_at_ms, 0);
  EXPECT_FALSE(h.worker("w1").row.draining);
}

TEST(Trouble, APlannedDrainIsNotForgottenByARestart) {
  Harness h;
  h.submit(trials(1));
  h.connect("w1", 1);
  h.connect("w2", 1);
  h.step(DrainWorker{1, WorkerId{1}, 25'000});
  h.step(DrainWorker{2, WorkerId{2}, 60'000});
  h.advance(5'000);
  h.restart();
  EXPECT_EQ(h.worker("w1").row.drain_at_ms, h.now.wall_ms + 20'000);
  h.advance(19'999);
  EXPECT_FALSE(h.worker("w1").row.draining);
  h.advance(1);
  EXPECT_TRUE(h.worker("w1").row.draining);
  EXPECT_EQ(h.worker("w1").row.drain_at_ms, 0);
  EXPECT_FALSE(h.worker("w2").row.draining);
}

// 68 trials in back-off must not keep the search from drawing others.
TEST(Trouble, ASearchGoesOnWhileItsTrialsBackOff) {
  Harness h;
  h.options.queue_ahead = 4;
  h.state.options = h.options;
  SweepFile file;
  file.candidates.clear();
  file.space = "[space]\n\"ffn.d_h\" = { min = 16, max = 160, step = 1 }\n";
  file.retry = "oom = 9";
  h.submit(file);
  const SessionId w = h.connect("w1", 2);
  for (std::uint64_t t = 1; t <= 20; ++t) h.finish(w, t, EndClass::kOom);
  EXPECT_EQ(h.workers_of(21), "w1");
  EXPECT_EQ(h.workers_of(22), "w1");
}

}  // namespace
}  // namespace tailor::core
