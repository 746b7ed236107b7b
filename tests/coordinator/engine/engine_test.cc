// The engine: what is said is committed, what cannot be committed is not said,
// and a restart goes on.
#include "coordinator/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/coordinator/engine/support.h"

namespace tailor::engine {
namespace {

using testing::Answer;
using testing::eventually;
using testing::GatedStore;
using testing::hello;
using testing::RecordingSink;
using testing::submit_event;
using testing::sweep_text;

core::Options core_options() {
  core::Options options;
  options.heartbeat_ms = 1'000;
  options.lease_ms = 10'000;
  return options;
}

Options quick() {
  Options options;
  options.retry_ms = 5;
  return options;
}

std::unique_ptr<Engine> start(storage::Store& store, const Clock& clock, Hooks hooks = {}) {
  auto engine = Engine::start(store, clock, core_options(), quick(), std::move(hooks));
  EXPECT_TRUE(engine.has_value()) << (engine.has_value() ? "" : engine.error().message());
  return std::move(*engine);
}

/// Trials that have a live attempt, and attempts that have ended, by the committed state.
struct Attempts {
  std::size_t live = 0;
  std::size_t ended = 0;
};
Attempts attempts(Engine& engine) {
  return engine
      .ask([](const core::State& state, core::Now) {
        Attempts attempts;
        for (const auto& [id, trial] : state.trials) {
          attempts.live += trial.live.has_value() ? 1 : 0;
          attempts.ended += trial.row.attempts - (trial.live.has_value() ? 1 : 0);
        }
        return attempts;
      })
      .value_or(Attempts{999, 999});
}

protocol::Reports metric_reports(const protocol::TrialSpec& spec, std::uint64_t first,
                                 std::uint64_t count) {
  protocol::Reports reports;
  reports.ref = {{spec.trial, spec.attempt}, spec.token};
  for (std::uint64_t i = 0; i < count; ++i) {
    protocol::Report report;
    report.sequence = first + i;
    report.body = protocol::MetricReport{static_cast<std::int64_t>(first + i),
                                         64,
                                         {{"train_loss", 1.0 / static_cast<double>(first + i)}}};
    reports.reports.push_back(std::move(report));
  }
  return reports;
}

TEST(Engine, AnswersARequestOnlyAfterItsRowsAreCommitted) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  store.hold(true);
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  ASSERT_TRUE(eventually([&] { return store.begun() > 0; }));
  EXPECT_EQ(answer.times(), 0);
  EXPECT_FALSE(store.sweep_by_name("taper").has_value());
  store.hold(false);
  ASSERT_TRUE(answer.wait());
  EXPECT_TRUE(answer.status().is_ok()) << answer.status().message();
  EXPECT_TRUE(answer.submitted().created);
  EXPECT_EQ(answer.submitted().trials, 4u);
  EXPECT_EQ(store.sweep_by_name("taper")->id, answer.submitted().sweep);
}

TEST(Engine, AQuerySeesOnlyCommittedState) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  store.hold(true);
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  ASSERT_TRUE(eventually([&] { return store.begun() > 0; }));
  std::atomic<int> sweeps{-1};
  engine->query([&](const core::State* state, core::Now, const Status&) {
    sweeps = state == nullptr ? -2 : static_cast<int>(state->sweeps.size());
  });
  EXPECT_EQ(sweeps.load(), -1);
  store.hold(false);
  ASSERT_TRUE(eventually([&] { return sweeps.load() != -1; }));
  EXPECT_EQ(sweeps.load(), 1);
}

TEST(Engine, WritesWhatArrivesDuringACommitInOneTransactionAfterIt) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  store.hold(true);
  auto first = std::make_shared<RecordingSink>();
  engine->open_session(first, hello("first"));
  ASSERT_TRUE(eventually([&] { return store.begun() == 1; }));
  std::vector<std::shared_ptr<RecordingSink>> later;
  for (int i = 0; i < 20; ++i) {
    later.push_back(std::make_shared<RecordingSink>());
    engine->open_session(later.back(), hello("later-" + std::to_string(i)));
  }
  store.hold(false);
  for (const auto& sink : later) {
    ASSERT_TRUE(eventually([&] { return sink->received<protocol::Welcome>().size() == 1; }));
  }
  EXPECT_EQ(store.begun(), 2);
}

TEST(Engine, AHeartbeatWritesNothing) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  auto sink = std::make_shared<RecordingSink>();
  const auto session = engine->open_session(sink, hello("node1"));
  ASSERT_TRUE(eventually([&] { return !sink->received<protocol::Welcome>().empty(); }));
  const int before = store.begun();
  for (std::uint64_t serial = 1; serial <= 50; ++serial) {
    engine->session_message(session, protocol::Heartbeat{serial, {}});
  }
  ASSERT_TRUE(eventually([&] {
    const auto acks = sink->received<protocol::HeartbeatAck>();
    return !acks.empty() && acks.back().serial == 50;
  }));
  EXPECT_EQ(store.begun(), before);
}

TEST(Engine, AcknowledgesReportsAfterTheyAreStoredAndInOrder) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  auto sink = std::make_shared<RecordingSink>();
  const auto session = engine->open_session(sink, hello("node1"));
  ASSERT_TRUE(eventually([&] { return !sink->received<protocol::Assign>().empty(); }));
  const auto spec = sink->received<protocol::Assign>().front().spec;
  store.hold(true);
  for (std::uint64_t first = 1; first <= 21; first += 5) {
    engine->session_message(session, metric_reports(spec, first, 5));
  }
  ASSERT_TRUE(eventually([&] { return store.sizes().back() >= 5; }));
  EXPECT_TRUE(sink->received<protocol::ReportsAck>().empty());
  store.hold(false);
  ASSERT_TRUE(eventually([&] {
    const auto acks = sink->received<protocol::ReportsAck>();
    return !acks.empty() && acks.back().through_sequence == 25;
  }));
  std::uint64_t through = 0;
  for (const auto& ack : sink->received<protocol::ReportsAck>()) {
    EXPECT_GT(ack.through_sequence, through);
    through = ack.through_sequence;
  }
  EXPECT_EQ(store.series(spec.trial, "train_loss", 0)->values.size(), 25u);
}

TEST(Engine, AFullDiskKeepsTheBatchRefusesRequestsAndRecoversAlone) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  store.inner.set_fault(Status(Code::kResourceExhausted, "the disk is full"));
  Answer kept;
  engine->request(submit_event(sweep_text("kept")), kept.handler());
  ASSERT_TRUE(eventually([&] { return engine->health().stalled; }));
  EXPECT_TRUE(engine->health().running);
  EXPECT_EQ(engine->health().last_error.code(), Code::kResourceExhausted);

  Answer refused;
  engine->request(submit_event(sweep_text("refused")), refused.handler());
  ASSERT_TRUE(refused.wait());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("disk is full"));
  EXPECT_EQ(
      engine->ask([](const core::State& s, core::Now) { return s.sweeps.size(); }).error().code(),
      Code::kResourceExhausted);
  EXPECT_EQ(kept.times(), 0);

  ASSERT_TRUE(eventually([&] { return store.begun() >= 4; })) << "it goes on trying";
  const auto sizes = store.sizes();
  EXPECT_THAT(sizes, ::testing::Each(sizes.front())) << "with the same mutations";
  store.inner.set_fault(Status::ok());
  ASSERT_TRUE(kept.wait());
  EXPECT_TRUE(kept.status().is_ok());
  EXPECT_FALSE(engine->health().stalled);
  EXPECT_TRUE(store.sweep_by_name("kept").has_value());
  EXPECT_FALSE(store.sweep_by_name("refused").has_value());
}

TEST(Engine, TellsTheHookWhenStoringFailsAndWhenItWorksAgain) {
  GatedStore store;
  ManualClock clock;
  std::mutex mutex;  // guards: told
  std::vector<std::pair<bool, bool>> told;
  Hooks hooks;
  hooks.on_health = [&](const Health& health) {
    const std::scoped_lock lock(mutex);
    told.emplace_back(health.running, health.stalled);
  };
  auto engine = start(store, clock, std::move(hooks));
  store.inner.set_fault(Status(Code::kResourceExhausted, "the disk is full"));
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  ASSERT_TRUE(eventually([&] { return store.begun() >= 3; }));
  store.inner.set_fault(Status::ok());
  ASSERT_TRUE(answer.wait());
  engine->stop();
  const std::vector<std::pair<bool, bool>> expected = {
      {true, false}, {true, true}, {true, false}, {false, false}};
  EXPECT_EQ(told, expected) << "once a change, not once a try";
}

TEST(Engine, NoLeaseRunsOutBecauseTheDiskWasFull) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  auto sink = std::make_shared<RecordingSink>();
  engine->open_session(sink, hello("node1"));
  ASSERT_TRUE(eventually([&] { return attempts(*engine).live == 1; }));

  store.inner.set_fault(Status(Code::kResourceExhausted, "the disk is full"));
  Answer other;
  engine->request(submit_event(sweep_text("other")), other.handler());
  ASSERT_TRUE(eventually([&] { return engine->health().stalled; }));
  clock.advance(9 * core_options().lease_ms);
  store.inner.set_fault(Status::ok());
  ASSERT_TRUE(other.wait());
  EXPECT_EQ(attempts(*engine).live, 1u);
  EXPECT_EQ(attempts(*engine).ended, 0u);
  // The same silence of the worker alone does end the lease.
  clock.advance(9 * core_options().lease_ms);
  engine->poke();
  EXPECT_TRUE(eventually([&] { return attempts(*engine).ended == 1; }));
}

TEST(Engine, WorkerMessagesWaitOutAFullDiskAndAreThenDealtWith) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  store.inner.set_fault(Status(Code::kResourceExhausted, "the disk is full"));
  auto sink = std::make_shared<RecordingSink>();
  const auto session = engine->open_session(sink, hello("node1"));
  ASSERT_TRUE(eventually([&] { return engine->health().stalled; }));
  std::atomic<int> dealt_with{0};
  engine->session_message(session, protocol::Heartbeat{7, {}}, [&] { ++dealt_with; });
  ASSERT_TRUE(eventually([&] { return store.begun() >= 3; }));
  EXPECT_EQ(sink->count(), 0u);
  EXPECT_EQ(dealt_with.load(), 0);
  store.inner.set_fault(Status::ok());
  ASSERT_TRUE(eventually([&] { return dealt_with.load() == 1; }));
  EXPECT_EQ(sink->received<protocol::Welcome>().size(), 1u);
  ASSERT_EQ(sink->received<protocol::HeartbeatAck>().size(), 1u);
  EXPECT_EQ(sink->received<protocol::HeartbeatAck>().front().serial, 7u);
}

TEST(Engine, ACorruptDatabaseEndsItWithTheReasonAndWithoutAnAcknowledgement) {
  GatedStore store;
  ManualClock clock;
  std::atomic<bool> fatal{false};
  Hooks hooks;
  hooks.on_fatal = [&](const Status& why) { fatal = why.code() == Code::kDataLoss; };
  auto engine = start(store, clock, std::move(hooks));
  auto sink = std::make_shared<RecordingSink>();
  engine->open_session(sink, hello("node1"));
  ASSERT_TRUE(eventually([&] { return sink->count() > 0; }));
  store.inner.set_fault(Status(Code::kDataLoss, "page 7 is malformed"));
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  ASSERT_TRUE(answer.wait());
  EXPECT_EQ(answer.status().code(), Code::kUnavailable);
  EXPECT_THAT(answer.status().message(), ::testing::HasSubstr("page 7"));
  EXPECT_TRUE(eventually([&] { return fatal.load(); }));
  EXPECT_TRUE(eventually([&] { return sink->closed().size() == 1; }));
  EXPECT_TRUE(eventually([&] { return !engine->health().running; }));
  Answer late;
  engine->request(submit_event(sweep_text()), late.handler());
  EXPECT_EQ(late.status().code(), Code::kUnavailable);
  EXPECT_FALSE(engine->ask([](const core::State&, core::Now) { return 1; }).has_value());
}

TEST(Engine, AHeartbeatThatArrivesDuringASlowCommitRenewsAsOfItsArrival) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  auto sink = std::make_shared<RecordingSink>();
  const auto session = engine->open_session(sink, hello("node1"));
  ASSERT_TRUE(eventually([&] { return !sink->received<protocol::Assign>().empty(); }));
  const auto spec = sink->received<protocol::Assign>().front().spec;
  const protocol::AttemptRef ref = {{spec.trial, spec.attempt}, spec.token};

  store.hold(true);
  const int before = store.begun();
  Answer other;
  engine->request(submit_event(sweep_text("other")), other.handler());
  ASSERT_TRUE(eventually([&] { return store.begun() > before; }));
  clock.advance(core_options().lease_ms - 1);
  engine->session_message(session, protocol::Heartbeat{1, {ref}});
  clock.advance(core_options().lease_ms - 1);  // and the commit takes that much longer
  store.hold(false);
  ASSERT_TRUE(other.wait());
  ASSERT_TRUE(eventually([&] { return !sink->received<protocol::HeartbeatAck>().empty(); }));
  EXPECT_EQ(attempts(*engine).live, 1u);
  EXPECT_EQ(attempts(*engine).ended, 0u);
  // It counts from when it came, not from when it was dealt with.
  clock.advance(2);
  engine->poke();
  EXPECT_TRUE(eventually([&] { return attempts(*engine).ended == 1; }));
}

TEST(Engine, TimeAloneEndsTheLeaseOfASilentWorker) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  auto sink = std::make_shared<RecordingSink>();
  engine->open_session(sink, hello("node1"));
  ASSERT_TRUE(eventually([&] { return attempts(*engine).live == 1; }));
  clock.advance(core_options().lease_ms + 1);
  engine->poke();
  EXPECT_TRUE(eventually([&] { return attempts(*engine).ended == 1; }));
}

TEST(Engine, ARestartContinuesFromWhatWasCommitted) {
  GatedStore store;
  ManualClock clock;
  SweepId id;
  {
    auto engine = start(store, clock);
    Answer answer;
    engine->request(submit_event(sweep_text()), answer.handler());
    ASSERT_TRUE(answer.wait());
    id = answer.submitted().sweep;
  }
  auto engine = start(store, clock);
  Answer again;
  engine->request(submit_event(sweep_text()), again.handler());
  ASSERT_TRUE(again.wait());
  EXPECT_EQ(again.submitted().sweep, id);
  EXPECT_FALSE(again.submitted().created);
  auto sink = std::make_shared<RecordingSink>();
  engine->open_session(sink, hello("node1", 4));
  EXPECT_TRUE(eventually([&] { return sink->received<protocol::Assign>().size() == 4; }));
}

TEST(Engine, StoppingCommitsWhatWasPostedAndEndsEverySession) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  auto sink = std::make_shared<RecordingSink>();
  engine->open_session(sink, hello("node1"));
  store.hold(true);
  Answer first;
  Answer second;
  engine->request(submit_event(sweep_text("first")), first.handler());
  engine->request(submit_event(sweep_text("second")), second.handler());
  std::jthread stopper([&] { engine->stop(); });
  store.hold(false);
  stopper.join();
  EXPECT_TRUE(first.status().is_ok());
  EXPECT_TRUE(second.status().is_ok());
  EXPECT_TRUE(store.sweep_by_name("second").has_value());
  EXPECT_EQ(sink->closed().size(), 1u);
  Answer late;
  engine->request(submit_event(sweep_text("late")), late.handler());
  EXPECT_EQ(late.status().code(), Code::kUnavailable);
}

TEST(Engine, StoppingWithAFullDiskAnswersThatNothingWasDone) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  store.inner.set_fault(Status(Code::kResourceExhausted, "the disk is full"));
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  ASSERT_TRUE(eventually([&] { return engine->health().stalled; }));
  engine->stop();
  EXPECT_EQ(answer.times(), 1);
  EXPECT_EQ(answer.status().code(), Code::kUnavailable);
  store.inner.set_fault(Status::ok());
  EXPECT_FALSE(store.sweep_by_name("taper").has_value());
}

TEST(Engine, RefusesRequestsBeyondItsLimit) {
  GatedStore store;
  ManualClock clock;
  Options options = quick();
  options.requests_max = 3;
  auto engine = std::move(*Engine::start(store, clock, core_options(), options));
  store.hold(true);
  Answer running;
  engine->request(submit_event(sweep_text("running")), running.handler());
  ASSERT_TRUE(eventually([&] { return store.begun() == 1; }));
  std::vector<std::unique_ptr<Answer>> answers;
  for (int i = 0; i < 4; ++i) {
    answers.push_back(std::make_unique<Answer>());
    engine->request(submit_event(sweep_text("n" + std::to_string(i))), answers.back()->handler());
  }
  EXPECT_EQ(answers[3]->status().code(), Code::kResourceExhausted);
  store.hold(false);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(answers[i]->wait());
    EXPECT_TRUE(answers[i]->status().is_ok());
  }
}

TEST(Engine, SubscribersHearOfEventsOnceTheyAreStored) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock);
  auto owner = std::make_shared<int>(0);
  std::atomic<std::uint64_t> seen{0};
  engine->subscribe(owner, [&] {
    const auto rows = store.events(0, 1'000, {}, {});
    if (rows.has_value() && !rows->empty()) seen = rows->back().id;
  });
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  ASSERT_TRUE(eventually([&] { return seen.load() > 0; }));
  EXPECT_EQ(seen.load(), store.events(0, 1'000, {}, {})->back().id);
  owner.reset();
  attempts(*engine);  // a query: the callback that may have been running has returned
  const std::uint64_t before = seen.load();
  Answer other;
  engine->request(submit_event(sweep_text("other")), other.handler());
  ASSERT_TRUE(other.wait());
  engine->stop();
  EXPECT_EQ(seen.load(), before);
}

TEST(Engine, TellsTheHookWhatWasCommitted) {
  GatedStore store;
  ManualClock clock;
  std::atomic<std::size_t> rows{0};
  Hooks hooks;
  hooks.on_commit = [&](std::span<const storage::Mutation> batch, double seconds) {
    rows += batch.size();
    EXPECT_GE(seconds, 0.0);
  };
  auto engine = start(store, clock, std::move(hooks));
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  ASSERT_TRUE(answer.wait());
  engine->stop();
  std::size_t begun = 0;
  for (const std::size_t size : store.sizes()) begun += size;
  EXPECT_EQ(rows.load(), begun);
}

}  // namespace
}  // namespace tailor::engine
