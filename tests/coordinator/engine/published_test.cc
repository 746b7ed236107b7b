// What is published without asking the engine: it is there at once, it is what was committed, and
// whoever was answered finds what he did.
#include "coordinator/engine/published.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "coordinator/engine/engine.h"
#include "coordinator/engine/scribe.h"
#include "coordinator/engine/views.h"
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

constexpr std::int64_t kNeverMs = 3'600'000;

std::unique_ptr<Engine> start(storage::Store& store, const Clock& clock, Options options,
                              Hooks hooks = {}) {
  options.retry_ms = 5;
  auto engine = Engine::start(store, clock, {}, options, std::move(hooks));
  EXPECT_TRUE(engine.has_value()) << (engine.has_value() ? "" : engine.error().message());
  return std::move(*engine);
}

TEST(Published, IsWhatWasLoadedBeforeAnythingHappens) {
  GatedStore store;
  ManualClock clock;
  {
    auto engine = start(store, clock, {});
    Answer answer;
    engine->request(submit_event(sweep_text()), answer.handler());
    ASSERT_TRUE(answer.wait());
  }
  auto engine = start(store, clock, {});
  const auto seen = engine->published();
  ASSERT_EQ(seen->sweeps->size(), 1u);
  EXPECT_EQ(seen->sweeps->front()->row.name, "taper");
  EXPECT_EQ(seen->totals.trials.at(storage::TrialState::kQueued), 4u);
}

TEST(Published, WhoeverIsAnsweredFindsWhatHeDidHoweverSeldomViewsAreRenewed) {
  GatedStore store;
  ManualClock clock;
  Options options;
  options.publish_ms = kNeverMs;
  auto engine = start(store, clock, options);
  for (int i = 0; i < 3; ++i) {
    std::atomic<int> found{-1};
    const std::string name = "sweep-" + std::to_string(i);
    engine->request(submit_event(sweep_text(name)), [&](const Status&,
                                                        const core::ReplyBody& body) {
      const auto* outcome = std::get_if<core::SubmitOutcome>(&body);
      const auto view = outcome == nullptr ? nullptr : engine->published()->sweep(outcome->sweep);
      found = view != nullptr && view->row.name == name ? 1 : 0;
    });
    ASSERT_TRUE(eventually([&] { return found.load() >= 0; }));
    EXPECT_EQ(found.load(), 1) << name;
  }
}

TEST(Published, KeepsItsTotalsAcrossEveryChange) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock, {});
  Answer answer;
  engine->request(submit_event(sweep_text()), answer.handler());
  ASSERT_TRUE(answer.wait());
  auto sink = std::make_shared<RecordingSink>();
  const auto session = engine->open_session(sink, hello("node1", 3));
  ASSERT_TRUE(eventually([&] { return sink->received<protocol::Assign>().size() == 3; }));
  Totals totals = engine->published()->totals;
  EXPECT_EQ(totals.workers_connected, 1u);
  EXPECT_EQ(totals.slots, 3u);
  EXPECT_EQ(totals.busy_slots, 3u);
  EXPECT_EQ(totals.trials[storage::TrialState::kRunning], 3u);
  EXPECT_EQ(totals.trials[storage::TrialState::kQueued], 1u);
  EXPECT_EQ(engine->published()->workers->front()->running.size(), 3u);

  engine->close_session(session);
  ASSERT_TRUE(eventually([&] { return engine->published()->totals.workers_connected == 0; }));
  Answer cancelled;
  engine->request(core::ControlSweep{0, answer.submitted().sweep, core::SweepAction::kCancel, 0},
                  cancelled.handler());
  ASSERT_TRUE(cancelled.wait());
  totals = engine->published()->totals;
  EXPECT_EQ(totals.trials[storage::TrialState::kRunning], 0u);
  EXPECT_EQ(totals.sweeps[storage::SweepState::kRunning], 0u);
  // What has ended leaves memory, but not what is seen.
  const Views views(store, *engine);
  totals = views.totals();
  EXPECT_EQ(totals.slots, 0u);
  EXPECT_EQ(totals.busy_slots, 0u);
  EXPECT_EQ(totals.sweeps[storage::SweepState::kCancelled], 1u);
  EXPECT_EQ(totals.sweeps[storage::SweepState::kRunning], 0u);
  EXPECT_EQ(totals.trials[storage::TrialState::kCancelled], 4u);
  EXPECT_EQ(totals.trials[storage::TrialState::kRunning], 0u);
  ASSERT_EQ(views.sweeps()->size(), 1u);
  EXPECT_EQ(views.sweeps()->front().row.state, storage::SweepState::kCancelled);
  EXPECT_EQ(views.sweeps()->front().counts.at(storage::TrialState::kCancelled), 4u);
}

TEST(Published, WhatDidNotChangeIsNotMadeAgain) {
  GatedStore store;
  ManualClock clock;
  auto engine = start(store, clock, {});
  Answer first;
  engine->request(submit_event(sweep_text("first")), first.handler());
  ASSERT_TRUE(first.wait());
  const auto before = engine->published();
  Answer second;
  engine->request(submit_event(sweep_text("second")), second.handler());
  ASSERT_TRUE(second.wait());
  const auto after = engine->published();
  ASSERT_EQ(after->sweeps->size(), 2u);
  EXPECT_EQ(before->sweeps->size(), 1u) << "what a reader holds does not change";
  EXPECT_EQ(before->sweeps->front(), after->sweeps->front());
  EXPECT_EQ(before->workers, after->workers);
}

TEST(Published, IsThereAndHealthSaysWhyWhileACommitHangs) {
  GatedStore store;
  ManualClock clock;
  Options options;
  options.hung_ms = 5'000;
  std::atomic<int> told_stalled{0};
  std::atomic<int> told_well{0};
  Hooks hooks;
  hooks.on_health = [&](const Health& health) { ++(health.stalled ? told_stalled : told_well); };
  auto engine = start(store, clock, options, std::move(hooks));
  Answer submitted;
  engine->request(submit_event(sweep_text()), submitted.handler());
  ASSERT_TRUE(submitted.wait());

  const int begun = store.begun();
  store.hold(true);
  Answer hangs;
  engine->request(submit_event(sweep_text("hangs")), hangs.handler());
  ASSERT_TRUE(eventually([&] { return store.begun() > begun; }));
  EXPECT_FALSE(engine->health().stalled) << "it may only be slow";
  clock.advance(7'000);
  const Health health = engine->health();
  EXPECT_TRUE(health.running);
  EXPECT_TRUE(health.stalled);
  EXPECT_THAT(health.last_error.message(), ::testing::HasSubstr("not answered for 7 s"));
  EXPECT_EQ(engine->published()->sweeps->size(), 1u);
  EXPECT_TRUE(eventually([&] { return told_stalled.load() == 1; })) << "without being asked";
  Answer refused;
  engine->request(submit_event(sweep_text("refused")), refused.handler());
  EXPECT_EQ(refused.times(), 1) << "nobody waits for a disk that hangs";
  EXPECT_EQ(refused.status().code(), Code::kUnavailable);
  EXPECT_FALSE(engine->ask([](const core::State&, core::Now) { return 1; }).has_value());
  EXPECT_EQ(hangs.times(), 0);

  const int well = told_well.load();
  store.hold(false);
  ASSERT_TRUE(hangs.wait());
  EXPECT_TRUE(hangs.status().is_ok()) << "it was accepted before, and it was stored";
  EXPECT_TRUE(eventually([&] { return !engine->health().stalled; }));
  EXPECT_TRUE(eventually([&] { return told_well.load() > well; }));
}

TEST(Published, SubscribersHearOfEventsWhenWhatTheyChangedCanBeSeen) {
  GatedStore store;
  ManualClock clock;
  Options options;
  options.publish_ms = 20;
  auto engine = start(store, clock, options);
  auto owner = std::make_shared<int>(0);
  std::atomic<bool> connected{false};
  std::atomic<bool> wrong{false};
  engine->subscribe(owner, [&] {
    const auto rows = store.events(0, 1'000, {}, {});
    const bool said = std::any_of(rows->begin(), rows->end(), [](const auto& row) {
      return row.kind == storage::EventKind::kWorkerConnected;
    });
    if (said && engine->published()->workers->empty()) wrong = true;
    if (said) connected = true;
  });
  auto sink = std::make_shared<RecordingSink>();
  engine->open_session(sink, hello("node1"));
  EXPECT_TRUE(eventually([&] { return connected.load(); }));
  EXPECT_FALSE(wrong.load());
  engine->stop();
}

TEST(Scribe, LeavesOutWhatDoesNotFitAndCountsIt) {
  std::mutex gate;  // the log: it takes nothing while this is held
  std::atomic<int> said{0};
  Scribe scribe(3);
  {
    const std::scoped_lock lock(gate);
    std::atomic<bool> stuck{false};
    scribe.say([&] {
      stuck = true;
      const std::scoped_lock wait(gate);
    });
    ASSERT_TRUE(eventually([&] { return stuck.load(); }));
    std::vector<storage::Mutation> rows(5, storage::EventRow{});
    rows.emplace_back(storage::CountersRow{});
    EXPECT_TRUE(scribe.events(rows)) << "and it did not wait for the log";
    EXPECT_EQ(scribe.left_out(), 2u);
    EXPECT_FALSE(scribe.events(std::vector<storage::Mutation>{storage::CountersRow{}}));
    scribe.say([&] { ++said; });
  }
  EXPECT_TRUE(eventually([&] { return said.load() == 1; }))
      << "what must be said is never left out";
}

}  // namespace
}  // namespace tailor::engine
