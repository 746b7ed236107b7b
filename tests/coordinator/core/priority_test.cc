// Who goes first: priorities, fair share, room that is kept or made, and what a placement costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "coordinator/core/explain.h"
#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;
using protocol::Heartbeat;
using protocol::StopReason;
using storage::TrialState;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

SweepFile named(const std::string& name, int trials, const std::string& resources = "gpus = 0") {
  SweepFile file;
  file.name = name;
  file.seeds = "count = " + std::to_string(trials);
  file.resources = resources;
  return file;
}

void set_priority(Harness& h, std::vector<TrialId> trials, std::int32_t priority) {
  h.step(ControlTrials{99, std::move(trials), {}, TrialAction::kSetPriority, false, priority});
}

std::vector<std::uint64_t> running(const Harness& h) {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, trial] : h.state.trials) {
    if (trial.live) ids.push_back(id.value);
  }
  return ids;
}

TEST(Priority, OfATrialIsAddedToItsSweepsAndMayChangeWhileItWaits) {
  Harness h;
  h.submit(named("a", 3));
  h.submit(named("b", 1));
  set_priority(h, {TrialId{3}}, 5);
  EXPECT_EQ(h.store.trial(TrialId{3}).value().priority, 5);
  EXPECT_THAT(h.said("trial_priority"), ElementsAre("5"));
  h.restart();
  const SessionId w = h.connect("w1");
  EXPECT_THAT(running(h), ElementsAre(3));
  h.step(ControlSweep{50, SweepId{2}, SweepAction::kSetPriority, 3});
  h.step(ControlSweep{51, SweepId{1}, SweepAction::kSetPriority, -1});
  h.finish(w, 3, EndClass::kCompleted);
  EXPECT_THAT(running(h), ElementsAre(4));
  set_priority(h, {TrialId{9}}, 5);
  EXPECT_EQ(std::get<Reply>(h.last.outward.at(0)).status.code(), Code::kNotFound);
}

TEST(FairShare, IsBetweenUsersFirstAndThenBetweenTheirSweeps) {
  Harness h;
  h.submit(named("ann-1", 4));
  h.submit(named("ann-2", 4));
  h.submit(named("bob-1", 4));
  for (std::uint64_t id : {1, 2, 3}) {
    h.state.sweeps.at(SweepId{id}).row.user = id == 3 ? "bob" : "ann";
  }
  h.connect("w1", 4);
  std::map<std::uint64_t, int> by_sweep;
  for (const std::uint64_t id : running(h)) ++by_sweep[(id + 3) / 4];
  EXPECT_EQ(by_sweep, (std::map<std::uint64_t, int>{{1, 1}, {2, 1}, {3, 2}}));
}

TEST(FairShare, CountsSlotsAndNotTrials) {
  Harness h;
  h.submit(named("wide", 4, "cpus = 3"));
  h.submit(named("narrow", 9, "cpus = 1"));
  h.connect("w1", 7);
  EXPECT_THAT(running(h), ElementsAre(1, 5, 6, 7, 8)) << "3 slots each, and one more";
}

TEST(FairShare, ASweepRemembersItsUser) {
  Harness h;
  const std::string text = named("mine", 1).text();
  const auto spec = sweep::parse(text, "f.toml", "/data");
  h.step(SubmitSweep{1, std::make_shared<const sweep::Spec>(*spec), text, "/data",
                     sweep::spec_hash(text, "/data"), "ann"});
  EXPECT_EQ(h.store.sweep(SweepId{1}).value().user, "ann");
  h.restart();
  EXPECT_EQ(h.sweep().row.user, "ann");
}

TEST(Preemption, StopsTheNewestOfTheLowestPriorityAndCostsItNoRetry) {
  Harness h;
  SweepFile low = named("low", 2);
  low.retry = "preempted = 0";
  h.submit(low);
  const SessionId w = h.connect("w1", 2);
  EXPECT_THAT(running(h), ElementsAre(1, 2));
  h.submit(named("high", 1, "priority = 5"));
  const auto stops = h.sent<protocol::Stop>();
  ASSERT_EQ(stops.size(), 1u);
  EXPECT_EQ(stops[0].reason, StopReason::kPreempted);
  EXPECT_EQ(stops[0].ref.attempt.trial, TrialId{2});
  EXPECT_FALSE(stops[0].discard) << "it saves a checkpoint";
  EXPECT_EQ(why(h.state, TrialId{3}, h.now).code, WhyCode::kMakingRoom);
  h.send(w, Heartbeat{1, {h.live(1), h.live(2)}});
  EXPECT_TRUE(h.sent<protocol::Stop>().empty()) << "one is enough";
  h.finish(w, 2, EndClass::kStopped);
  EXPECT_THAT(running(h), ElementsAre(1, 3));
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued);
  EXPECT_TRUE(h.state.trials.at(TrialId{2}).failures.empty());
  h.finish(w, 3, EndClass::kCompleted);
  EXPECT_THAT(running(h), ElementsAre(1, 2)) << "it goes on";
}

TEST(Preemption, HappensWhenAPriorityIsRaisedAndNeverAmongEquals) {
  Harness h;
  h.submit(named("a", 1));
  h.submit(named("b", 2));
  const SessionId w = h.connect("w1", 1);
  EXPECT_THAT(running(h), ElementsAre(1));
  EXPECT_THAT(h.said("attempt_preempted"), IsEmpty());
  set_priority(h, {TrialId{3}}, 1);
  EXPECT_EQ(h.said("attempt_preempted").size(), 1u);
  h.finish(w, 1, EndClass::kStopped);
  EXPECT_THAT(running(h), ElementsAre(3));
}

TEST(Preemption, LeavesAloneWhoMustNotBePreemptedAndRespectsTheSwitch) {
  Harness h;
  h.submit(named("rock", 1, "preemptible = false"));
  h.connect("w1", 1);
  h.submit(named("high", 1, "priority = 5"));
  EXPECT_TRUE(h.sent<protocol::Stop>().empty());

  Harness off;
  off.options.preemption = false;
  off.state.options = off.options;
  off.submit(named("low", 1));
  off.connect("w1", 1);
  off.submit(named("high", 1, "priority = 5"));
  EXPECT_TRUE(off.sent<protocol::Stop>().empty());
}

TEST(Preemption, DoesNotStopMoreThanParallelLetsRun) {
  Harness h;
  h.submit(named("low", 4));
  h.connect("w1", 4);
  h.submit(named("high", 4, "priority = 5\nparallel = 2"));
  EXPECT_EQ(h.sent<protocol::Stop>().size(), 2u);
}

TEST(Preemption, MakesRoomForAWholeGangAndKeepsItTogether) {
  Harness h;
  h.submit(named("low", 6));
  const SessionId a = h.connect(hello("w1", 2));
  const SessionId b = h.connect(hello("w2", 2));
  h.connect(hello("w3", 1));
  EXPECT_THAT(running(h), ElementsAre(1, 2, 3, 4, 5));
  h.submit(named("gang", 1, "cpus = 2\nnodes = 2\npriority = 5"));
  EXPECT_EQ(h.sent<protocol::Stop>().size(), 4u);
  const auto finish_on = [&](SessionId session, const std::string& name) {
    for (std::uint64_t id = 1; id <= 5; ++id) {
      if (h.workers_of(id) == name) return h.finish(session, id, EndClass::kStopped);
    }
  };
  finish_on(a, "w1");
  EXPECT_EQ(h.trial_state(7), TrialState::kQueued);
  EXPECT_EQ(h.state.offers.free_slots(protocol::DeviceKind::kCpu), 0u)
      << "the slot is kept, whoever waits";
  EXPECT_EQ(why(h.state, TrialId{7}, h.now).code, WhyCode::kKeeping);
  finish_on(b, "w2");
  finish_on(a, "w1");
  finish_on(b, "w2");
  EXPECT_EQ(h.workers_of(7), "w1 w2");
  EXPECT_TRUE(h.state.reservations.empty());
}

TEST(Preemption, ARestartBetweenStopAndEndLosesNothing) {
  Harness h;
  h.submit(named("low", 1));
  SessionId w = h.connect("w1", 1);
  h.submit(named("high", 1, "priority = 5"));
  const auto ref = h.live(1);
  h.disconnect(w);
  h.restart();
  w = h.connect("w1", 1, {{ref, {0}, true, 0}});
  EXPECT_EQ(h.sent<protocol::Stop>().at(0).reason, StopReason::kPreempted);
  h.finish(w, 1, EndClass::kStopped);
  EXPECT_TRUE(h.state.trials.at(TrialId{1}).failures.empty());
  EXPECT_THAT(running(h), ElementsAre(2));
}

TEST(Reservation, ALargeTrialThatWaitedLongHasSlotsKeptAsTheyBecomeFree) {
  Harness h;
  h.submit(named("small", 40));
  const SessionId w = h.connect("w1", 4);
  h.submit(named("large", 1, "cpus = 3"));
  const auto finish_one = [&] {
    for (const std::uint64_t id : running(h)) {
      if (id <= 40) return h.finish(w, id, EndClass::kCompleted);
    }
  };
  const auto beat = [&] {
    Heartbeat heartbeat{1, {}};
    for (const std::uint64_t id : running(h)) heartbeat.running.push_back(h.live(id));
    h.send(w, heartbeat);
  };
  for (int i = 0; i < 5; ++i) {
    finish_one();
    EXPECT_EQ(running(h).size(), 4u) << "small ones fill every gap";
    h.advance(10'000);
    beat();
  }
  h.advance(10'000);
  beat();
  ASSERT_EQ(h.said("slots_reserved").size(), 1u);
  EXPECT_THAT(explain(h.state, TrialId{41}, h.now),
              HasSubstr("needs 3 CPU slots on one worker; slots of w1 are kept for it"));
  finish_one();
  EXPECT_EQ(running(h).size(), 3u) << "kept";
  finish_one();
  finish_one();
  EXPECT_EQ(h.workers_of(41), "w1");
  EXPECT_EQ(running(h).size(), 2u);
  EXPECT_TRUE(h.state.reservations.empty());
  finish_one();
  EXPECT_EQ(running(h).size(), 2u) << "and the small ones go on beside it";
}

TEST(Reservation, LeavesWhatTheLargeTrialDoesNotNeedAndEndsWhenItDoesNotWait) {
  Harness h;
  h.submit(named("small", 40));
  const SessionId w = h.connect("w1", 8);
  h.submit(named("large", 1, "cpus = 3"));
  for (int i = 0; i < 7; ++i) {
    Heartbeat heartbeat{1, {}};
    for (const std::uint64_t id : running(h)) heartbeat.running.push_back(h.live(id));
    h.send(w, heartbeat);
    h.advance(10'000);
  }
  ASSERT_FALSE(h.state.reservations.empty());
  h.finish(w, running(h).front(), EndClass::kCompleted);
  EXPECT_EQ(running(h).size(), 7u);
  h.control(SweepAction::kPause, SweepId{2});
  EXPECT_TRUE(h.state.reservations.empty());
  EXPECT_EQ(running(h).size(), 8u) << "what was kept is given out again at once";
}

TEST(Reservation, YieldsToATrialOfHigherPriority) {
  Harness h;
  h.submit(named("small", 40, "preemptible = false"));
  const SessionId w = h.connect("w1", 2);
  h.submit(named("large", 1, "cpus = 2"));
  for (int i = 0; i < 7; ++i) {
    h.send(w, Heartbeat{1, {h.live(1), h.live(2)}});
    h.advance(10'000);
  }
  ASSERT_EQ(h.state.reservations.size(), 1u);
  h.submit(named("urgent", 1, "priority = 9"));
  h.finish(w, 1, EndClass::kCompleted);
  EXPECT_EQ(h.workers_of(42), "w1");
}

TEST(Reservation, MovesWhenItsWorkerGoes) {
  Harness h;
  h.submit(named("small", 40));
  SessionId a = h.connect(hello("w1", 2));
  const SessionId b = h.connect(hello("w2", 2));
  h.submit(named("large", 1, "cpus = 2"));
  const auto pass = [&](int times) {
    for (int i = 0; i < times; ++i) {
      for (const auto& [session, name] : std::map<SessionId, std::string>{{a, "w1"}, {b, "w2"}}) {
        Heartbeat heartbeat{1, {}};
        for (const std::uint64_t id : running(h)) {
          if (h.workers_of(id) == name) heartbeat.running.push_back(h.live(id));
        }
        h.send(session, heartbeat);
      }
      h.advance(10'000);
    }
  };
  pass(7);
  ASSERT_EQ(h.state.reservations.size(), 1u);
  EXPECT_EQ(h.state.reservations.at(TrialId{41}).workers, std::vector<WorkerId>{WorkerId{1}});
  h.step(DrainWorker{1, WorkerId{1}});
  pass(7);
  ASSERT_EQ(h.state.reservations.size(), 1u);
  EXPECT_EQ(h.state.reservations.at(TrialId{41}).workers, std::vector<WorkerId>{WorkerId{2}});
}

// What the end of a trial costs does not depend on how many workers are connected.
/// A heartbeat of every worker that is named, for all that runs on it.
void beat_all(Harness& h, const std::map<std::string, SessionId>& sessions) {
  for (const auto& [name, session] : sessions) {
    Heartbeat heartbeat{1, {}};
    for (const std::uint64_t id : running(h)) {
      const LiveAttempt& live = *h.state.trials.at(TrialId{id}).live;
      for (const Member& member : live.members) {
        const bool there = h.state.workers.at(member.row.worker).row.name == name;
        if (there && !member.row.ended) heartbeat.running.push_back(h.live(id));
      }
    }
    h.send(session, heartbeat);
  }
}

/// A small trial of `worker` ends every ten seconds, until `large` runs or two hours are over.
void end_small_ones(Harness& h, const std::map<std::string, SessionId>& at,
                    const std::string& worker, std::uint64_t large) {
  for (int i = 0; i < 720 && h.workers_of(large).empty(); ++i) {
    beat_all(h, at);
    for (const std::uint64_t id : running(h)) {
      if (h.workers_of(id) != worker) continue;
      h.finish(at.at(worker), id, EndClass::kCompleted);
      break;
    }
    h.advance(10'000);
  }
}

TEST(Reservation, MovesWhenItsWorkerComesBackTooSmall) {
  Harness h;
  h.submit(named("small", 900));
  std::map<std::string, SessionId> at;
  at["w1"] = h.connect(hello("w1", 2));
  at["w2"] = h.connect(hello("w2", 2));
  h.submit(named("large", 1, "cpus = 2"));
  for (int i = 0; i < 7; ++i) {
    beat_all(h, at);
    h.advance(10'000);
  }
  ASSERT_EQ(h.state.reservations.at(TrialId{901}).workers, std::vector<WorkerId>{WorkerId{1}});
  h.disconnect(at["w1"]);
  at["w1"] = h.connect(hello("w1", 1, 0, "i2"));
  end_small_ones(h, at, "w2", 901);
  EXPECT_EQ(h.workers_of(901), "w2") << explain(h.state, TrialId{901}, h.now);
}

TEST(Reservation, IsNotMadeForATrialThatParallelKeepsBack) {
  Harness h;
  h.submit(named("wide", 2, "cpus = 2\nparallel = 1"));
  std::map<std::string, SessionId> at;
  at["w1"] = h.connect(hello("w1", 2));
  at["w2"] = h.connect(hello("w2", 2));
  for (int i = 0; i < 13; ++i) {
    beat_all(h, at);
    h.advance(10'000);
  }
  EXPECT_THAT(h.state.reservations, IsEmpty());
  h.submit(named("small", 4));
  EXPECT_EQ(h.workers_of(3) + " " + h.workers_of(4), "w2 w2")
      << explain(h.state, TrialId{3}, h.now);
  // Now it may start; that it was kept back before is no wait.
  h.submit(named("narrow", 4, "cpus = 1\npriority = 1"));
  h.finish(at["w1"], 1, EndClass::kCompleted);
  EXPECT_THAT(h.state.reservations, IsEmpty());
  for (int i = 0; i < 6; ++i) {
    beat_all(h, at);
    EXPECT_THAT(h.state.reservations, IsEmpty());
    h.advance(10'000);
  }
  EXPECT_TRUE(h.state.reservations.contains(TrialId{2}));
}

TEST(Reservation, DoesNotYieldToAGangThatCouldNotBePlacedThen) {
  Harness h;
  h.submit(named("small", 900));
  const std::map<std::string, SessionId> at{{"w1", h.connect(hello("w1", 4))}};
  h.submit(named("large", 1, "cpus = 3"));
  h.submit(named("nowhere", 1, "cpus = 1\nnodes = 2\npriority = 1"));
  end_small_ones(h, at, "w1", 901);
  EXPECT_EQ(h.workers_of(901), "w1") << h.said("slots_reserved").size() << " times kept; "
                                     << explain(h.state, TrialId{901}, h.now);
  EXPECT_EQ(h.said("slots_reserved").size(), 1u);
}

TEST(Reservation, IsMadeForATrialOfOneSlotThatWantsMuchMemory) {
  Harness h;
  h.submit(named("small", 900, "cpus = 1\nmemory = \"64 GiB\""));
  protocol::Hello node = hello("w1", 8);
  node.memory_bytes = std::uint64_t{256} << 30;
  const std::map<std::string, SessionId> at{{"w1", h.connect(node)}};
  ASSERT_EQ(running(h).size(), 4u);
  ASSERT_TRUE(h.submit(named("large", 1, "cpus = 1\nmemory = \"200 GiB\"")).status.is_ok());
  end_small_ones(h, at, "w1", 901);
  EXPECT_EQ(h.workers_of(901), "w1") << explain(h.state, TrialId{901}, h.now);
}

// Where one end is enough, fair shares decide and nothing is kept.
TEST(Reservation, IsNotMadeForATrialOfOneSlotThatFitsWhenAnyOtherEnds) {
  Harness h;
  h.submit(named("a", 8, "cpus = 1\nmemory = \"64 GiB\""));
  protocol::Hello node = hello("w1", 8);
  node.memory_bytes = std::uint64_t{256} << 30;
  const std::map<std::string, SessionId> at{{"w1", h.connect(node)}};
  for (int i = 0; i < 20; ++i) {
    beat_all(h, at);
    h.advance(10'000);
  }
  ASSERT_EQ(running(h).size(), 4u);
  EXPECT_THAT(h.state.reservations, IsEmpty());
}

std::vector<std::uint64_t> stopped_by_last_step(const Harness& h) {
  std::vector<std::uint64_t> ids;
  for (const auto& stop : h.sent<protocol::Stop>()) ids.push_back(stop.ref.attempt.trial.value);
  return ids;
}

TEST(Preemption, FindsItsVictimBehindManyThatHoldNothingOfUse) {
  Harness h;
  h.submit(named("gpu-low", 1, "gpus = 1"));
  h.connect(hello("g1", 0, 1));
  ASSERT_EQ(h.workers_of(1), "g1");
  h.submit(named("cpu-low", 520));
  h.connect(hello("c1", 520));
  ASSERT_EQ(running(h).size(), 521u);
  h.submit(named("gpu-high", 1, "gpus = 1\npriority = 9"));
  EXPECT_THAT(stopped_by_last_step(h), ElementsAre(1));
}

// The GPUs of hundreds of newer trials are too small for it.
TEST(Preemption, FindsItsVictimBehindManyOfTheSameKind) {
  Harness h;
  h.submit(named("large", 1, "gpus = 1\ngpu_memory = \"80 GiB\""));
  protocol::Hello big = hello("big", 0, 1);
  big.slots[0].memory_bytes = std::uint64_t{80} << 30;
  const std::map<std::string, SessionId> at{{"big", h.connect(big)}};
  ASSERT_EQ(h.workers_of(1), "big");
  h.submit(named("low", 520, "gpus = 1"));
  h.connect(hello("many", 0, 520));
  ASSERT_EQ(running(h).size(), 521u);
  h.submit(named("high", 1, "gpus = 1\npriority = 9\ngpu_memory = \"80 GiB\""));
  EXPECT_THAT(stopped_by_last_step(h), ElementsAre(1));
}

// A long search that found nothing is made again once a second, not with every event.
TEST(Preemption, LooksAgainForRoomAfterALongSearch) {
  Harness h;
  h.submit(named("low", 520, "gpus = 1"));
  std::map<std::string, SessionId> at{{"many", h.connect(hello("many", 0, 520))}};
  h.submit(named("high", 1, "gpus = 1\npriority = 9\ngpu_memory = \"80 GiB\""));
  EXPECT_THAT(stopped_by_last_step(h), IsEmpty());
  protocol::Hello big = hello("big", 0, 1);
  big.slots[0].memory_bytes = std::uint64_t{80} << 30;
  big.labels = {"kept"};
  h.submit(named("first", 1, "gpus = 1\nlabels = [\"kept\"]\npriority = 1"));
  h.control(SweepAction::kPause, SweepId{2});
  at["big"] = h.connect(big);
  ASSERT_EQ(h.workers_of(522), "big");
  h.control(SweepAction::kResume, SweepId{2});
  EXPECT_THAT(stopped_by_last_step(h), IsEmpty()) << "it looked just now";
  h.advance(1'000);
  EXPECT_THAT(stopped_by_last_step(h), ElementsAre(522));
}

TEST(Preemption, StopsOnlyTrialsThatHoldWhatIsWanted) {
  Harness h;
  h.connect(hello("m", 8, 1));
  h.submit(named("gpu-low", 1, "gpus = 1"));
  h.submit(named("cpu-low", 8));
  ASSERT_EQ(running(h).size(), 9u);
  h.submit(named("gpu-high", 1, "gpus = 1\npriority = 9"));
  EXPECT_THAT(stopped_by_last_step(h), ElementsAre(1));
}

TEST(Preemption, SparesThoseWithoutWhomThereIsRoomTooWhenALargerOneStops) {
  Harness h;
  h.connect(hello("m", 4));
  h.submit(named("wide", 1, "cpus = 3"));
  h.submit(named("narrow", 1, "cpus = 1"));  // began last: it is looked at first
  ASSERT_THAT(running(h), ElementsAre(1, 2));
  h.submit(named("high", 1, "cpus = 3\npriority = 9"));
  EXPECT_THAT(stopped_by_last_step(h), ElementsAre(1));
}

TEST(Placement, LooksAtAsManyOffersWithThousandsOfWorkersAsWithTen) {
  const auto looks_per_end = [](int workers) {
    Harness h;
    SweepFile file = named("big", 500);
    h.submit(file);
    std::map<std::string, SessionId> sessions;
    for (int i = 0; i < workers; ++i) {
      const std::string name = "w" + std::to_string(i);
      protocol::Hello made = hello(name, 2);
      made.folder = "folder";
      made.labels = {"rack=" + std::to_string(i % 40)};
      SessionOpened opened{static_cast<SessionId>(i + 1'000), made};
      sessions[name] = opened.session;
      core::step(h.state, opened, h.now);  // unchecked: the checks look at all workers
    }
    const std::uint64_t before = h.state.offers.looked_at();
    constexpr std::uint64_t kEnds = 20;
    for (std::uint64_t id = 1; id <= kEnds; ++id) {
      const protocol::AttemptRef ref = h.live(id);
      protocol::Reports message{ref, {}};
      message.reports.push_back({1, 0, protocol::StartedReport{}});
      message.reports.push_back(
          {2, 0, protocol::EndReport{EndClass::kCompleted, "", 1, {{"validation_loss", 1.0}}}});
      core::step(h.state, SessionMessage{sessions.at(h.workers_of(id)), message}, h.now);
    }
    EXPECT_TRUE(check_invariants(h.state).is_ok());
    return static_cast<double>(h.state.offers.looked_at() - before) / kEnds;
  };
  EXPECT_LE(looks_per_end(2'000), 1.5 * looks_per_end(10) + 0.5);
}

/// t1 runs on one of two slots of w1; a gang has slots of w1 and w2 kept; t3 waits for a slot.
struct KeptForAGang : Harness {
  KeptForAGang() {
    a = connect(hello("w1", 2));
    b = connect(hello("w2", 2));
    submit(named("small", 1, "cpus = 1"));
    ref = live(1);
    report(a, ref, 1, {protocol::StartedReport{}});
    submit(named("gang", 1, "cpus = 2\nnodes = 2"));
    for (int i = 0; i < 14; ++i) beat();
    submit(named("more", 1, "cpus = 1"));
  }
  void beat() {
    advance(10'000);
    send(a, protocol::Heartbeat{1, {ref}});
    if (state.worker_by_session.contains(b)) send(b, protocol::Heartbeat{});
  }
  SessionId a = 0, b = 0;
  protocol::AttemptRef ref;
};

TEST(Reservation, IsGivenUpWhenAWorkerOfItLeavesOrMayNotBeGivenWork) {
  const std::vector<std::function<void(KeptForAGang&)>> ways = {
      [](KeptForAGang& h) { h.disconnect(h.b); },
      [](KeptForAGang& h) {
        h.step(DrainWorker{77, h.worker("w2").row.id, 0});
      },
      [](KeptForAGang& h) {
        h.step(QuarantineWorker{77, h.worker("w2").row.id, "x"});
      },
  };
  for (const auto& way : ways) {
    KeptForAGang h;
    ASSERT_EQ(h.said("slots_reserved").size(), 1u);
    ASSERT_EQ(h.workers_of(3), "") << "what is free is kept";
    way(h);
    h.beat();
    EXPECT_EQ(h.workers_of(3), "w1") << explain(h.state, TrialId{3}, h.now);
  }
}

/// Heartbeats that name what runs, as workers send them.
struct Beats : Harness {
  SessionId w = 0;
  std::vector<std::uint64_t> running;
  void beat(int times) {
    for (int i = 0; i < times; ++i) {
      advance(10'000);
      Heartbeat heartbeat;
      for (const std::uint64_t trial : running) heartbeat.running.push_back(live(trial));
      send(w, heartbeat);
    }
  }
};

TEST(Preemption, IsDoneForATrialWithKeptSlotsWhosePriorityWasRaised) {
  Beats h;
  h.w = h.connect(hello("w1", 2));
  h.submit(named("low", 1, "cpus = 2"));
  h.running = {1};
  h.report(h.w, h.live(1), 1, {protocol::StartedReport{}});
  h.submit(named("high", 1, "cpus = 2"));
  h.beat(14);
  ASSERT_EQ(h.said("slots_reserved").size(), 1u);
  ControlSweep raise;
  raise.request = 99;
  raise.sweep = SweepId{2};
  raise.action = SweepAction::kSetPriority;
  raise.priority = 10;
  h.step(raise);
  h.beat(1);
  EXPECT_EQ(h.said("attempt_preempted").size(), 1u) << explain(h.state, TrialId{2}, h.now);
  h.report(h.w, h.live(1), 2, {protocol::EndReport{EndClass::kStopped, "", 8, {}}});
  EXPECT_EQ(h.workers_of(2), "w1");
}

TEST(Preemption, IsNotHeldUpBySlotsThatAreKeptForATrialOfLowerPriority) {
  Beats h;
  h.w = h.connect(hello("w1", 4));
  h.submit(named("low", 2, "cpus = 1"));
  h.running = {1, 2};
  for (const std::uint64_t t : h.running) {
    h.report(h.w, h.live(t), 1, {protocol::StartedReport{}});
  }
  h.submit(named("large", 1, "cpus = 4"));  // t3
  h.beat(14);
  ASSERT_EQ(h.said("slots_reserved").size(), 1u);
  h.submit(named("high", 1, "cpus = 3\npriority = 5"));  // t4
  h.beat(1);
  ASSERT_EQ(h.said("attempt_preempted").size(), 1u) << explain(h.state, TrialId{4}, h.now);
  EXPECT_THAT(h.state.reservations, testing::SizeIs(1));
  EXPECT_TRUE(h.state.reservations.contains(TrialId{4}));
  const std::uint64_t victim = h.state.making_room.begin()->first.value;
  h.report(h.w, h.live(victim), 2, {protocol::EndReport{EndClass::kStopped, "", 8, {}}});
  EXPECT_EQ(h.workers_of(4), "w1") << "and not the stopped one, nor the large one";
}

protocol::CheckpointReport saved(std::int64_t step) {
  return {step, "checkpoints/" + std::to_string(step), "abc", 1};
}

TEST(Reservation, OfATrialThatWaitsForItsCheckpointsWorkerIsUsedOnlyAfterThatWait) {
  Beats h;
  const SessionId away = h.connect(hello("w1", 2));
  h.submit(named("one", 1, "cpus = 2"));
  h.report(away, h.live(1), 1,
           {protocol::StartedReport{}, protocol::MetricReport{1, 64, {{"train_loss", 1.0}}},
            saved(1'000)});
  h.w = h.connect(hello("w2", 2));
  h.submit(named("two", 1, "cpus = 2"));
  h.report(h.w, h.live(2), 1, {protocol::StartedReport{}});
  h.running = {2};
  h.disconnect(away);  // w1 reboots; nothing else has the checkpoint
  h.beat(11);
  ASSERT_EQ(h.said("slots_reserved").size(), 1u);
  h.report(h.w, h.live(2), 2,
           {protocol::EndReport{EndClass::kCompleted, "", 16, {{"validation_loss", 3.0}}}});
  h.running.clear();
  EXPECT_EQ(h.workers_of(1), "") << "it would start over at step 0";
  h.beat(11);
  EXPECT_EQ(h.workers_of(1), "") << "its wait began when it could start over";
  h.beat(3);
  EXPECT_EQ(h.workers_of(1), "w2") << "and has an end";
}

TEST(Reservation, AGangGoesBackToWhereItsCheckpointIsAlsoAfterAFailureThere) {
  Harness h;
  SweepFile file = named("gang", 1, "cpus = 1\nnodes = 2");
  file.retry = "user = 3";
  h.submit(file);
  const SessionId a = h.connect(hello("w1", 1));
  const SessionId b = h.connect(hello("w2", 1));
  const auto ref = h.live(1);
  h.report(a, ref, 1,
           {protocol::StartedReport{}, protocol::MetricReport{1, 64, {{"train_loss", 1.0}}},
            saved(100)});
  h.send(b, protocol::MemberEnded{ref, EndClass::kStopped, ""});
  h.report(a, ref, 4, {protocol::EndReport{EndClass::kUser, "x", 100, {}}});
  h.advance(5'000);  // its back-off
  h.send(a, Heartbeat{});
  h.send(b, Heartbeat{});
  EXPECT_EQ(h.workers_of(1), "w1 w2") << "rank 0 goes on at step 100";
}

}  // namespace
}  // namespace tailor::core
