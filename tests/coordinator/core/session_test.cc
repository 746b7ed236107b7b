// Workers that come, go, come back, and fall silent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;
using protocol::Heartbeat;
using storage::EventKind;
using storage::TrialState;
using testing::Contains;
using testing::HasSubstr;

protocol::HeldAttempt held(const protocol::AttemptRef& ref, std::uint64_t acked = 0) {
  return {ref, {0}, true, acked};
}

TEST(Session, AWorkerIsWelcomedAndGetsWorkForEveryFreeSlot) {
  Harness h;
  SweepFile file;
  file.seeds = "count = 3";
  h.submit(file);
  h.connect("w1", 2);
  const auto welcomes = h.sent<protocol::Welcome>();
  ASSERT_EQ(welcomes.size(), 1u);
  EXPECT_EQ(welcomes[0].worker, WorkerId{1});
  EXPECT_EQ(welcomes[0].lease_ms, h.options.lease_ms);
  EXPECT_EQ(h.sent<protocol::Assign>().size(), 2u);
  EXPECT_EQ(h.trial_state(3), TrialState::kQueued);
}

TEST(Session, HeartbeatsRenewLeasesAndWriteNothing) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  for (int i = 0; i < 10; ++i) {
    h.advance(20'000);
    h.send(w, Heartbeat{7, {h.live(1)}});
    EXPECT_TRUE(h.last.writes.empty());
    EXPECT_EQ(h.sent<protocol::HeartbeatAck>().at(0).serial, 7u);
  }
  EXPECT_EQ(h.live(1).attempt.number, 1u);
}

TEST(Session, AClockThatIsFarOffIsMeasuredAndSaidOnce) {
  Harness h;
  const SessionId w = h.connect("w1");
  const auto skew = [&] { return h.state.workers.at(WorkerId{1}).clock_skew_ms; };
  const auto said = [&] {
    int events = 0;
    const auto rows = h.store.events(0, 1'000).value();
    for (const auto& row : rows) events += row.kind == EventKind::kWorkerClock ? 1 : 0;
    return events;
  };
  EXPECT_EQ(skew(), std::nullopt) << "an earlier version does not say";
  Heartbeat beat;
  beat.wall_ms = h.now.wall_ms + 59'000;
  h.send(w, beat);
  EXPECT_EQ(skew(), 59'000);
  EXPECT_EQ(said(), 0);
  for (int i = 0; i < 3; ++i) {
    beat.wall_ms = h.now.wall_ms - 7'200'000;  // two hours behind
    h.send(w, beat);
  }
  EXPECT_EQ(skew(), -7'200'000);
  EXPECT_EQ(said(), 1);
  EXPECT_THAT(h.store.events(0, 1'000)->back().message, HasSubstr("-7200.0 s"));
  beat.wall_ms = h.now.wall_ms;
  h.send(w, beat);
  EXPECT_EQ(said(), 2) << "and that it agrees again";
}

TEST(Session, ASilentWorkerLosesItsLeaseAndTheTrialGoesElsewhere) {
  Harness h;
  h.submit({});
  h.connect("w1");
  const auto first = h.live(1);
  const SessionId other = h.connect("w2");
  EXPECT_EQ(h.state.deadlines.earliest(), h.now.mono_ms + 30'000);
  h.send(other, Heartbeat{});
  h.advance(30'000);
  EXPECT_EQ(h.store.attempts(TrialId{1}).value().at(0).end_class, protocol::EndClass::kLeaseLost);
  EXPECT_TRUE(h.sent<protocol::Stop>().at(0).discard);
  EXPECT_EQ(h.live(1).attempt.number, 2u);
  EXPECT_GT(h.live(1).token, first.token);
}

TEST(Session, AnAbsentWorkerIsANodeLostAfterOneLease) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  h.disconnect(w);
  h.advance(29'999);
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning);
  h.advance(1);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_EQ(h.store.trial(TrialId{1}).value().end_class, protocol::EndClass::kNodeLost);
  EXPECT_THAT(h.event_kinds(), Contains("worker_lost"));
}

TEST(Session, AReturningWorkerKeepsTheAttemptThatIsStillItsOwn) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  const auto ref = h.live(1);
  h.report(w, ref, 1,
           {protocol::StartedReport{}, protocol::MetricReport{1, 64, {{"train_loss", 1.0}}}});
  h.send(w, protocol::LogChunk{ref, 0, "abc"});
  h.disconnect(w);
  h.advance(20'000);
  h.connect("w1", 1, {held(ref)});
  const auto verdict = h.sent<protocol::Welcome>().at(0).held.at(0);
  EXPECT_TRUE(verdict.keep);
  EXPECT_EQ(verdict.acked_sequence, 2u);
  EXPECT_EQ(verdict.log_offset, 3u);
  EXPECT_TRUE(h.sent<protocol::Assign>().empty());
  EXPECT_EQ(h.live(1), ref);
  h.advance(29'999);  // a whole new lease
  EXPECT_EQ(h.live(1), ref);
}

TEST(Session, AReturningWorkerDropsTheAttemptThatWentElsewhere) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  const auto old = h.live(1);
  h.disconnect(w);
  h.advance(30'000);
  h.connect("w2");
  EXPECT_EQ(h.live(1).attempt.number, 2u);
  const auto current = h.live(1);
  h.connect("w1", 1, {held(old)});
  EXPECT_FALSE(h.sent<protocol::Welcome>().at(0).held.at(0).keep);
  EXPECT_EQ(h.live(1), current);
}

TEST(Session, AWorkerThatComesBackWithoutAnAttemptThatRanEndsItAtOnce) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  h.report(w, h.live(1), 1, {protocol::StartedReport{}});
  h.disconnect(w);
  h.connect("w1", 1, {}, "i2");
  EXPECT_EQ(h.store.attempts(TrialId{1}).value().at(0).end_class, protocol::EndClass::kNodeLost);
  EXPECT_EQ(h.live(1).attempt.number, 2u)
      << "queued and placed again without waiting for the lease";
}

TEST(Session, AStoredLogConfirmsAnOrderToo) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  h.send(w, protocol::LogChunk{h.live(1), 0, "up"});
  h.disconnect(w);
  h.connect("w1", 1, {}, "i2");  // on a new disk
  EXPECT_EQ(h.live(1).attempt.number, 2u) << "attempt 1 must not write its log a second time";
}

TEST(Session, AnOrderThatWasNeverConfirmedIsSentAgain) {
  Harness h;
  h.submit({});
  const SessionId w = h.connect("w1");
  const auto ref = h.live(1);
  h.disconnect(w);
  h.connect("w1");
  const auto assigns = h.sent<protocol::Assign>();
  ASSERT_EQ(assigns.size(), 1u);
  EXPECT_EQ(assigns[0].spec.token, ref.token);
  EXPECT_EQ(h.live(1), ref);
}

TEST(Session, ASecondWorkerOfTheSameNameIsRefusedWhileTheFirstIsAlive) {
  Harness h;
  h.submit({});
  const SessionId first = h.connect("w1", 1, {}, "i1");
  const auto ref = h.live(1);
  const SessionId second = h.connect("w1", 1, {}, "i2");
  auto closed = h.closed();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].session, second);
  EXPECT_EQ(closed[0].status.code(), Code::kAlreadyExists);
  EXPECT_THAT(closed[0].status.message(), HasSubstr("names must be unique"));
  EXPECT_EQ(h.live(1), ref) << "the healthy one's trial is left alone";
  EXPECT_EQ(h.worker("w1").session, first);
  EXPECT_THAT(h.event_kinds(), Contains("worker_refused"));

  // The stream of a machine without power looks alive; its worker is heard of no more.
  h.now.mono_ms += 29'999;
  h.connect("w1", 1, {}, "i2");
  EXPECT_EQ(h.worker("w1").session, first);
  h.now.mono_ms += 1;
  const SessionId third = h.connect("w1", 1, {}, "i2");
  closed = h.closed();
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].session, first);
  EXPECT_EQ(h.worker("w1").session, third);
  h.disconnect(first);  // late news of the old stream
  EXPECT_EQ(h.worker("w1").session, third);
  EXPECT_EQ(h.state.workers.size(), 1u);
}

TEST(Session, MessagesOfAReplacedStreamAreIgnored) {
  Harness h;
  h.submit({});
  const SessionId first = h.connect("w1");
  const auto ref = h.live(1);
  h.connect("w1", 1, {held(ref)});
  h.report(first, ref, 1, {protocol::StartedReport{}});
  EXPECT_TRUE(h.last.writes.empty());
  EXPECT_TRUE(h.last.outward.empty());
}

TEST(Session, AWorkerThatComesBackWithFewerSlotsLosesWhatRanInThem) {
  Harness h;
  SweepFile file;
  file.seeds = "count = 2";
  h.submit(file);
  const SessionId w = h.connect("w1", 2);
  const auto a = h.live(1);
  const auto b = h.live(2);
  h.disconnect(w);
  h.connect("w1", 1, {held(a), {b, {1}, true, 0}});
  const auto verdicts = h.sent<protocol::Welcome>().at(0).held;
  EXPECT_TRUE(verdicts.at(0).keep);
  EXPECT_FALSE(verdicts.at(1).keep);
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued);
}

TEST(Session, BadGreetingsAreRefused) {
  Harness h;
  h.step(SessionOpened{90, {}});
  EXPECT_EQ(h.closed().at(0).status.code(), Code::kInvalidArgument);
  protocol::Hello twice;
  twice.worker_name = "w";
  twice.slots.resize(2);
  h.step(SessionOpened{91, twice});
  EXPECT_EQ(h.closed().at(0).status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(h.state.workers.empty());
  const SessionId w = h.connect("w");
  h.send(w, protocol::Hello{});
  EXPECT_EQ(h.closed().at(0).session, w);
  EXPECT_EQ(h.state.workers.at(WorkerId{1}).session, 0u);
}

TEST(Session, ADrainingWorkerTakesNothingNewUntilItsDaemonIsStartedAnew) {
  Harness h;
  const SessionId w = h.connect("w1");
  h.step(DrainWorker{1, WorkerId{1}});
  EXPECT_EQ(h.sent<protocol::Drain>().size(), 1u);
  h.submit({});
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  h.disconnect(w);
  const SessionId again = h.connect("w1", 1, {}, "i1");
  EXPECT_EQ(h.sent<protocol::Drain>().size(), 1u) << "told again";
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  h.disconnect(again);
  h.connect("w1", 1, {}, "i2");
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning);
}

TEST(Session, AStallOfTheCoordinatorIsNotHeldAgainstAnybody) {
  Harness h;
  h.submit({});
  h.connect("w1");
  const auto ref = h.live(1);
  h.now.mono_ms += 100'000;
  h.step(Stalled{100'000});
  h.advance(0);
  EXPECT_EQ(h.live(1), ref);
  h.advance(29'999);
  EXPECT_EQ(h.live(1), ref);
  h.advance(1);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
}

TEST(Session, AWorkerThatLostALeaseWaitsAndOthersGoFirst) {
  Harness h;
  h.submit({});
  const SessionId frozen = h.connect("w1");
  h.advance(30'000);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued) << "not to the one that is frozen";
  h.advance(100'000);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued) << "it was not heard of since";
  h.send(frozen, Heartbeat{1, {}});
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  EXPECT_THAT(explain(h.state, TrialId{1}, h.now), HasSubstr("waits 10.0 s"));
  h.advance(9'999);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  h.advance(1);
  EXPECT_EQ(h.workers_of(1), "w1") << "there is no other";
  h.advance(30'000);
  h.send(frozen, Heartbeat{2, {}});
  h.advance(19'999);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued) << "twice as long";
  h.connect("w2");
  EXPECT_EQ(h.workers_of(1), "w2");
}

TEST(Session, AHeartbeatThatNamesAStaleAttemptIsAnsweredWithStop) {
  Harness h;
  const SessionId w = h.connect("w1");
  h.send(w, Heartbeat{1, {{{TrialId{5}, 1}, 9}}});
  EXPECT_TRUE(h.sent<protocol::Stop>().at(0).discard);
  EXPECT_EQ(h.sent<protocol::HeartbeatAck>().size(), 1u);
}

}  // namespace
}  // namespace tailor::core
