// Gangs: several workers run one attempt. Placed whole, ended once, each member with its own lease.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/explain.h"
#include "coordinator/engine/published.h"
#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;
using protocol::Heartbeat;
using protocol::StopReason;
using storage::TrialState;
using testing::HasSubstr;

SweepFile gang_file(const std::string& resources = "cpus = 2\nnodes = 2") {
  SweepFile file;
  file.resources = resources;
  return file;
}

/// Two workers of two slots each run t1 as a gang.
struct Gang : Harness {
  Gang() {
    submit(gang_file());
    a = connect(hello("w1", 2));
    b = connect(hello("w2", 2));
    ref = live(1);
  }
  /// Rank 0 speaks.
  void start(std::int64_t step = 1) {
    report(a, ref, 1,
           {protocol::StartedReport{}, protocol::MetricReport{step, 64, {{"train_loss", 1.0}}}});
  }
  std::string attempt_end(std::size_t index = 0) const {
    return std::string(
        protocol::end_class_name(store.attempts(TrialId{1}).value().at(index).end_class));
  }
  /// Stops that went to a session in the last step.
  std::vector<protocol::Stop> stops_to(SessionId session) const {
    std::vector<protocol::Stop> found;
    for (const Outward& out : last.outward) {
      const auto* sent_to = std::get_if<SendTo>(&out);
      if (sent_to == nullptr || sent_to->session != session) continue;
      if (const auto* stop = std::get_if<protocol::Stop>(&sent_to->message)) found.push_back(*stop);
    }
    return found;
  }
  SessionId a = 0;
  SessionId b = 0;
  protocol::AttemptRef ref;
};

TEST(Gang, IsPlacedWholeOrNotAtAll) {
  Harness h;
  h.submit(gang_file());
  h.connect(hello("w1", 3));
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued) << "four slots, but on two workers";
  h.connect(hello("w2", 1));
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_THAT(explain(h.state, TrialId{1}, h.now),
              HasSubstr("needs 2 CPU slots on each of 2 workers, and of the connected workers 1 "
                        "could do that; what is missing: slots"));
  h.connect(hello("w3", 2));
  EXPECT_EQ(h.workers_of(1), "w1 w3");
  const auto assigns = h.sent<protocol::Assign>();
  ASSERT_EQ(assigns.size(), 2u);
  EXPECT_EQ(assigns[0].gang, (protocol::Gang{0, 2, 4}));
  EXPECT_EQ(assigns[1].gang, (protocol::Gang{2, 2, 4}));
  EXPECT_EQ(assigns[0].slots, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(assigns[0].spec.token, assigns[1].spec.token);
}

TEST(Gang, IsSeenInTheViewOfEachOfItsWorkers) {
  Harness h;
  const SessionId first = h.connect(hello("w1", 2));
  const SessionId second = h.connect(hello("w2", 2));
  engine::Publisher publisher(h.state);
  publisher.publish(h.state);
  const auto busy = [&] {
    publisher.note(h.last.writes);
    std::string text;
    const auto published = publisher.publish(h.state);
    for (const auto& view : *published->workers) text += std::to_string(view->busy_slots) + " ";
    return text + std::to_string(published->totals.busy_slots);
  };
  SweepFile file;
  file.resources = "cpus = 2\nnodes = 2";
  h.submit(file);
  ASSERT_EQ(h.workers_of(1), "w1 w2");
  EXPECT_EQ(busy(), "2 2 4");
  const auto ref = h.live(1);
  h.control(SweepAction::kPause);
  h.send(second, protocol::MemberEnded{ref, EndClass::kStopped, ""});
  EXPECT_EQ(busy(), "2 0 2");
  h.report(first, ref, 1,
           {protocol::StartedReport{}, protocol::EndReport{EndClass::kStopped, "", 0, {}}});
  EXPECT_EQ(busy(), "0 0 0");
}

TEST(Gang, OnOneWorkerHasARankInEachOfItsSlots) {
  Harness h;
  h.submit(gang_file("gpus = 4"));
  h.connect(hello("w1", 8, 3));
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  h.connect(hello("w2", 0, 8));
  const auto assigns = h.sent<protocol::Assign>();
  ASSERT_EQ(assigns.size(), 1u);
  EXPECT_EQ(assigns[0].gang, (protocol::Gang{0, 4, 4}));
  EXPECT_EQ(assigns[0].slots.size(), 4u);
}

TEST(Gang, HearsWhereRankZeroListens) {
  Gang h;
  h.send(h.a, protocol::Rendezvous{h.ref, "host-w1:4711"});
  auto forwarded = h.sent<protocol::Rendezvous>();
  ASSERT_EQ(forwarded.size(), 1u);
  EXPECT_EQ(forwarded[0].address, "host-w1:4711");
  // Only rank 0 says where it is.
  h.send(h.b, protocol::Rendezvous{h.ref, "host-w2:1"});
  EXPECT_TRUE(h.sent<protocol::Rendezvous>().empty());
  // A member whose stream broke before hears it with its order.
  h.disconnect(h.b);
  h.connect(hello("w2", 2));
  EXPECT_EQ(h.sent<protocol::Assign>().size(), 1u);
  forwarded = h.sent<protocol::Rendezvous>();
  ASSERT_EQ(forwarded.size(), 1u);
  EXPECT_EQ(forwarded[0].address, "host-w1:4711");
}

TEST(Gang, EndsWhenAllItsMembersHaveEndedByTheWordOfRankZero) {
  Gang h;
  h.start();
  h.report(h.a, h.ref, 3,
           {protocol::EndReport{EndClass::kCompleted, "", 16, {{"validation_loss", 2.5}}}});
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning) << "the slots of w2 are not free yet";
  ASSERT_EQ(h.stops_to(h.b).size(), 1u);
  EXPECT_EQ(h.stops_to(h.b)[0].reason, StopReason::kGang);
  EXPECT_EQ(why(h.state, TrialId{1}, h.now).code, WhyCode::kMembersEnding);
  h.send(h.b, protocol::MemberEnded{h.ref, EndClass::kCompleted, ""});
  EXPECT_EQ(h.trial_state(1), TrialState::kCompleted);
  EXPECT_EQ(h.store.trial(TrialId{1}).value().objective, 2.5);
  EXPECT_EQ(h.said("attempt_ended").size(), 1u);
}

TEST(Gang, WhatRankZeroReportedSurvivesARestartBeforeTheOthersEnded) {
  Gang h;
  h.start();
  h.report(h.a, h.ref, 3,
           {protocol::EndReport{EndClass::kCompleted, "", 16, {{"validation_loss", 2.5}}}});
  EXPECT_EQ(h.sent<protocol::ReportsAck>().at(0).through_sequence, 3u);
  h.disconnect(h.a);
  h.disconnect(h.b);
  h.restart();
  protocol::Hello again = hello("w2", 2);
  again.held = {{h.ref, {0, 1}, true, 0}};
  h.b = h.connect(again);
  EXPECT_EQ(h.stops_to(h.b).at(0).reason, StopReason::kGang) << "told again";
  h.send(h.b, protocol::MemberEnded{h.ref, EndClass::kStopped, ""});
  EXPECT_EQ(h.trial_state(1), TrialState::kCompleted);
  EXPECT_EQ(h.store.trial(TrialId{1}).value().objective, 2.5);
}

TEST(Gang, ALostMemberEndsTheAttemptOnceAndTheOthersSlotsAreFreeWhenTheySaidSo) {
  Gang h;
  h.start();
  SweepFile small;
  small.name = "small";
  h.submit(small);
  for (int i = 0; i < 3; ++i) {
    h.advance(10'000);  // w2 falls silent
    h.send(h.a, Heartbeat{1, {h.ref}});
  }
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning) << "w1 still saves";
  ASSERT_EQ(h.worker("w2").silent, true);
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued) << "no slot is free";
  h.report(h.a, h.ref, 3,
           {protocol::CheckpointReport{8, "checkpoints/8", "abc", 1},
            protocol::EndReport{EndClass::kInfrastructure, "lost rank 2", 8, {}}});
  EXPECT_EQ(h.attempt_end(), "lease_lost") << "what happened, not what it did to rank 0";
  EXPECT_EQ(h.said("attempt_ended").size(), 1u);
  EXPECT_EQ(h.state.trials.at(TrialId{1}).failures.at(EndClass::kLeaseLost), 1);
  EXPECT_EQ(h.workers_of(2), "w1") << "its slots are free now";
  // It goes on elsewhere, from its checkpoint.
  h.connect(hello("w3", 2));
  h.finish(h.a, 2, EndClass::kCompleted);
  EXPECT_EQ(h.workers_of(1), "w1 w3");
}

TEST(Gang, GoesOnWithFewerRanksWhereNoOtherWorkerCouldTakeItAndIsWholeAgainLater) {
  Harness h;
  SweepFile other;
  other.name = "other";
  other.resources = "cpus = 2";
  h.submit(gang_file("cpus = 2\nnodes = 3\nnodes_min = 1"));
  h.submit(other);
  const SessionId a = h.connect(hello("w1", 2));
  EXPECT_EQ(h.workers_of(1), "w1") << "one that could take it is connected";
  EXPECT_EQ(h.sent<protocol::Assign>().at(0).gang, (protocol::Gang{0, 2, 2}));
  const SessionId b = h.connect(hello("w2", 2));
  EXPECT_EQ(h.workers_of(2), "w2");
  h.report(a, h.live(1), 1,
           {protocol::StartedReport{}, protocol::MetricReport{8, 64, {{"train_loss", 1.0}}},
            protocol::CheckpointReport{8, "checkpoints/8", "abc", 1},
            protocol::EndReport{EndClass::kInfrastructure, "no space", 8, {}}});
  h.advance(5'000);  // its back-off
  h.send(a, Heartbeat{});
  h.send(b, Heartbeat{1, {h.live(2)}});
  EXPECT_EQ(h.workers_of(1), "") << "w2 could take a part and is busy: two of three are waited for";
  EXPECT_THAT(explain(h.state, TrialId{1}, h.now), HasSubstr("2 CPU slots on each of 2 workers"));
  h.finish(b, 2, EndClass::kCompleted);
  EXPECT_EQ(h.workers_of(1), "w1 w2");
  const auto gang = h.state.trials.at(TrialId{1}).live->members;
  ASSERT_EQ(gang.size(), 2u);
  EXPECT_EQ(gang[1].row.first_rank, 2u);
  h.restart();
  EXPECT_EQ(h.workers_of(1), "w1 w2") << "a smaller gang is read again from its rows";
}

TEST(Gang, WaitsWhenFewerThanItsLeastNumberCouldTakeIt) {
  Harness h;
  h.submit(gang_file("cpus = 2\nnodes = 3\nnodes_min = 2"));
  h.connect(hello("w1", 2));
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_THAT(explain(h.state, TrialId{1}, h.now),
              HasSubstr("needs 2 CPU slots on each of 2 workers, and of the connected workers 1"));
  h.connect(hello("w2", 2));
  EXPECT_EQ(h.workers_of(1), "w1 w2");
}

TEST(Gang, GoesOnWithFewerAsSoonAsOneThatCouldTakeItIsGone) {
  Harness h;
  SweepFile other;
  other.name = "other";
  other.resources = "cpus = 2";
  const SessionId a = h.connect(hello("w1", 2));
  h.submit(other);
  ASSERT_EQ(h.workers_of(1), "w1");
  h.connect(hello("w2", 2));
  h.submit(gang_file("cpus = 2\nnodes = 2\nnodes_min = 1"));
  EXPECT_EQ(h.workers_of(2), "") << "w1 is busy, and could take its part";
  h.disconnect(a);
  EXPECT_EQ(h.workers_of(2), "w2");
}

TEST(Gang, SlotsThatItDoesWithoutAreNotCountedForItsSweep) {
  Harness h;
  SweepFile gang = gang_file("cpus = 2\nnodes = 3\nnodes_min = 1");
  gang.seeds = "count = 2";
  h.submit(gang);
  const SessionId a = h.connect(hello("w1", 2));
  EXPECT_EQ(h.workers_of(1), "w1");
  EXPECT_EQ(h.state.sweeps.begin()->second.slots_spared, 4u);
  h.report(a, h.live(1), 1,
           {protocol::StartedReport{},
            protocol::EndReport{EndClass::kCompleted, "", 16, {{"validation_loss", 2.5}}}});
  EXPECT_EQ(h.workers_of(2), "w1");
  EXPECT_EQ(h.state.sweeps.begin()->second.slots_spared, 4u) << "of the second trial";
}

TEST(Gang, AllMembersLostIsOneEndToo) {
  Gang h;
  h.start();
  h.disconnect(h.a);
  h.disconnect(h.b);
  h.advance(30'000);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_EQ(h.attempt_end(), "node_lost");
  EXPECT_EQ(h.said("attempt_ended").size(), 1u);
  EXPECT_EQ(h.state.trials.at(TrialId{1}).failures.at(EndClass::kNodeLost), 1);
}

TEST(Gang, AMemberThatComesBackWithoutItEndsTheAttempt) {
  Gang h;
  h.start();
  h.disconnect(h.b);
  h.connect(hello("w2", 2, 0, "i2"));
  ASSERT_EQ(h.stops_to(h.a).size(), 1u);
  EXPECT_EQ(h.stops_to(h.a)[0].reason, StopReason::kGang);
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning);
  h.report(h.a, h.ref, 3, {protocol::EndReport{EndClass::kStopped, "", 1, {}}});
  EXPECT_EQ(h.attempt_end(), "node_lost");
  EXPECT_EQ(h.live(1).attempt.number, 2u) << "and is placed again";
}

TEST(Gang, AnotherRanksOwnFailureIsTheReason) {
  Gang h;
  h.start();
  h.send(h.b, protocol::MemberEnded{h.ref, EndClass::kOom, "rank 3 ran out of memory"});
  EXPECT_EQ(h.stops_to(h.a).at(0).reason, StopReason::kGang);
  h.report(h.a, h.ref, 3, {protocol::EndReport{EndClass::kInfrastructure, "lost rank 3", 1, {}}});
  EXPECT_EQ(h.attempt_end(), "oom");
  EXPECT_THAT(h.store.attempts(TrialId{1}).value().at(0).message, HasSubstr("rank 3 ran out"));
  EXPECT_TRUE(h.state.trials.at(TrialId{1}).failed_on.at(EndClass::kOom).contains(WorkerId{2}));
  h.restart();  // the same worker is remembered
}

TEST(Gang, ARefusalByOneMemberCostsTheTrialNothing) {
  Gang h;
  h.send(h.b, protocol::Refused{h.ref, EndClass::kInfrastructure, "no space left"});
  ASSERT_EQ(h.stops_to(h.a).size(), 1u);
  h.report(h.a, h.ref, 1, {protocol::EndReport{EndClass::kStopped, "", 0, {}}});
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_TRUE(h.state.trials.at(TrialId{1}).failures.empty());
  EXPECT_EQ(h.worker("w2").troubles, 1u);
  EXPECT_EQ(h.worker("w1").troubles, 0u);
}

TEST(Gang, PauseAndCancelReachAllMembersAndNeedNone) {
  Gang h;
  h.start();
  h.disconnect(h.b);
  h.control(SweepAction::kPause);
  EXPECT_EQ(h.stops_to(h.a).at(0).reason, StopReason::kPaused);
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning);
  h.report(h.a, h.ref, 3, {protocol::EndReport{EndClass::kStopped, "", 1, {}}});
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_TRUE(h.state.trials.at(TrialId{1}).failures.empty());

  Gang away;
  away.disconnect(away.a);
  away.disconnect(away.b);
  away.control(SweepAction::kCancel);
  EXPECT_EQ(away.trial_state(1), TrialState::kCancelled);
}

TEST(Gang, OnlyRankZeroReports) {
  Gang h;
  h.report(h.b, h.ref, 1, {protocol::StartedReport{}});
  EXPECT_TRUE(h.last.writes.empty());
  EXPECT_TRUE(h.sent<protocol::ReportsAck>().empty());
}

TEST(Gang, WhoseRanksDoNotFindEachOtherIsEnded) {
  Gang h;
  const std::int64_t limit = h.options.gang_start_ms + h.options.limit_slack_ms;
  for (std::int64_t waited = 0; waited < limit; waited += 10'000) {
    h.send(h.a, Heartbeat{1, {h.ref}});
    h.send(h.b, Heartbeat{1, {h.ref}});
    h.advance(10'000);
  }
  EXPECT_EQ(h.state.trials.at(TrialId{1}).live->stop_reason, StopReason::kTimeout);
  h.send(h.b, protocol::MemberEnded{h.ref, EndClass::kStopped, ""});
  h.report(h.a, h.ref, 1, {protocol::EndReport{EndClass::kStopped, "", 0, {}}});
  EXPECT_EQ(h.attempt_end(), "timeout");
  EXPECT_THAT(h.store.attempts(TrialId{1}).value().at(0).message, HasSubstr("did not start"));
}

TEST(Gang, MemoryAndLabelsAreGivenOutOnce) {
  Harness h;
  SweepFile file = gang_file("cpus = 1\nmemory = \"40 GiB\"\nlabels = [\"big\"]");
  file.seeds = "count = 2";
  h.submit(file);
  protocol::Hello node = hello("w1", 4);
  node.memory_bytes = std::uint64_t{64} << 30;
  h.connect(node);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_THAT(explain(h.state, TrialId{1}, h.now), HasSubstr("what is missing: labels"));
  node.worker_name = "w2";
  node.labels = {"rack=1", "big"};
  const SessionId w2 = h.connect(node);
  EXPECT_EQ(h.workers_of(1), "w2");
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued) << "24 GiB are left";
  EXPECT_THAT(explain(h.state, TrialId{2}, h.now), HasSubstr("every slot of its kind is taken"));
  h.disconnect(w2);
  h.restart();
  node.held = {{h.live(1), {0}, true, 0}};
  const SessionId again = h.connect(node);
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued) << "the memory is remembered";
  h.finish(again, 1, EndClass::kCompleted);
  EXPECT_EQ(h.workers_of(2), "w2");
}

TEST(Gang, ADemandThatNothingCanEverMeetSaysWhatIsMissing) {
  Harness h;
  h.submit(gang_file("gpus = 1\ngpu_memory = \"80 GiB\""));
  h.connect(hello("w1", 2, 2));
  const Why answer = why(h.state, TrialId{1}, h.now);
  EXPECT_EQ(answer.code, WhyCode::kNeverFits);
  EXPECT_THAT(answer.sentence,
              HasSubstr("no connected worker has 1 GPU slot of at least 80.0 GiB"));
  SweepFile memory = gang_file("memory = \"8 GiB\"");
  memory.name = "memory";
  h.submit(memory);
  EXPECT_THAT(explain(h.state, TrialId{2}, h.now), HasSubstr("what is missing: memory"));
}

}  // namespace
}  // namespace tailor::core
