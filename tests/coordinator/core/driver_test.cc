// The driver: arrival decides leases, a round is one transaction, deadlines are not forgotten.
#include "coordinator/core/driver.h"

#include <gmock/gmock.h>

#include <set>

#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using ::testing::ElementsAre;

constexpr std::int64_t kLeaseMs = 30'000;

/// A driver with an inbox in front of it and a store behind it, as a shell has them.
class Shell {
 public:
  explicit Shell(Options options = {}) : Shell(empty(options)) {}
  /// After a restart on another machine's clock.
  Shell(const Options& options, storage::MemoryStore& disk)
      : Shell(load(disk.load().value(), options, Now{5'000'000, 1'700'000'100'000}).value()) {
    now = {5'000'000, 1'700'000'100'000};
    keeps_ = false;  // the disk is another's
  }
  explicit Shell(State loaded) : driver_(std::move(loaded)) {
    driver_.set_witness([](State& state, const Event&, std::span<const Outward>) {
      const Status sound = check_invariants(state);
      EXPECT_TRUE(sound.is_ok()) << sound.message();
    });
  }

  Now now{1'000'000, 1'700'000'000'000};
  storage::MemoryStore store;
  Transaction last;

  const State& state() const { return driver_.state(); }
  void post(Event event) { inbox_.post(std::move(event), now, Nothing{}); }
  void pass(std::int64_t ms) {
    now.mono_ms += ms;
    now.wall_ms += ms;
  }
  /// One round of at most so many events.
  Transaction& run(std::size_t events_max = 1'000, std::int64_t deaf_ms = 0) {
    Round round;
    for (auto& entry : inbox_.take(events_max, 100'000, now, &round.heard)) {
      round.arrivals.push_back(std::move(entry.arrival));
    }
    round.deaf_ms = deaf_ms;
    last = driver_.run(std::move(round));
    if (!keeps_) return last;
    const Status committed = store.commit(last.writes);
    EXPECT_TRUE(committed.is_ok()) << committed.message();
    return last;
  }

  void submit(const SweepFile& file) {
    const std::string text = file.text();
    const auto spec = sweep::parse(text, "test.toml", "/data");
    ASSERT_TRUE(spec.has_value()) << spec.error().message();
    post(SubmitSweep{1, std::make_shared<const sweep::Spec>(*spec), text, "/data",
                     sweep::spec_hash(text, "/data"), "", std::make_shared<const Recalled>()});
  }
  void connect(SessionId session, const std::string& name,
               std::vector<protocol::HeldAttempt> held = {}) {
    protocol::Hello hello;
    hello.held = std::move(held);
    hello.worker_name = name;
    hello.instance = "i1";
    hello.slots = {{0, protocol::DeviceKind::kCpu, "cpu", 1u << 30, 1}};
    post(SessionOpened{session, std::move(hello)});
  }
  protocol::AttemptRef live(std::uint64_t trial) const {
    const Trial& t = state().trials.at(TrialId{trial});
    EXPECT_TRUE(t.live.has_value());
    return t.live ? protocol::AttemptRef{t.live->row.id, t.live->row.token}
                  : protocol::AttemptRef{};
  }
  void heartbeat(SessionId session, const protocol::AttemptRef& ref, std::uint64_t serial = 1) {
    post(SessionMessage{session, protocol::Heartbeat{serial, {ref}}});
  }
  void metrics(SessionId session, const protocol::AttemptRef& ref, std::uint64_t sequence) {
    protocol::Reports reports{ref, {}};
    reports.reports.push_back(
        {sequence, now.wall_ms,
         protocol::MetricReport{static_cast<std::int64_t>(sequence), 64, {{"train_loss", 2.0}}}});
    post(SessionMessage{session, std::move(reports)});
  }
  bool runs_first_attempt(std::uint64_t trial) const {
    const Trial& t = state().trials.at(TrialId{trial});
    return t.live.has_value() && t.row.attempts == 1;
  }

  template <typename M>
  std::vector<M> sent() const {
    std::vector<M> found;
    for (const Outward& out : last.release) {
      const auto* to = std::get_if<SendTo>(&out);
      if (to == nullptr) continue;
      if (const auto* message = std::get_if<M>(&to->message)) found.push_back(*message);
    }
    return found;
  }

 private:
  struct Nothing {};
  static State empty(const Options& options) {
    State state;
    state.options = options;
    return state;
  }
  Driver driver_;
  Inbox<Nothing> inbox_;
  bool keeps_ = true;
};

/// One trial that runs on worker "a", session 1.
void start_one(Shell& shell) {
  shell.submit({});
  shell.connect(1, "a");
  shell.run();
  ASSERT_TRUE(shell.runs_first_attempt(1));
}

TEST(Driver, AHeartbeatThatArrivedInTimeRenewsHoweverLateItIsDealtWith) {
  Shell shell;
  start_one(shell);
  shell.pass(kLeaseMs - 1);
  shell.heartbeat(1, shell.live(1));
  shell.pass(kLeaseMs - 10);  // a slow commit: the lease would be over but for the heartbeat
  shell.run();
  EXPECT_TRUE(shell.runs_first_attempt(1));
  // It counts from its arrival, not from when it was dealt with.
  EXPECT_EQ(shell.last.call_again_ms, shell.now.mono_ms + 10);
  shell.pass(10);
  shell.run();
  EXPECT_EQ(shell.state().trials.at(TrialId{1}).row.end_class, protocol::EndClass::kLeaseLost);
}

TEST(Driver, NoLeaseEndsWhileMessagesThatArrivedBeforeItsEndStillWait) {
  Shell shell;
  start_one(shell);
  shell.connect(2, "b");
  shell.run();
  const auto ref = shell.live(1);
  // A backlog in front of the heartbeat, of which each round takes one event.
  for (std::uint64_t i = 0; i < 5; ++i) shell.heartbeat(2, {}, i);
  shell.pass(kLeaseMs - 5);
  shell.heartbeat(1, ref);
  shell.pass(2 * kLeaseMs - 10);
  for (int i = 0; i < 5; ++i) {
    shell.run(1);
    EXPECT_TRUE(shell.runs_first_attempt(1)) << "the heartbeat is in the queue";
  }
  shell.pass(0);
  shell.run(1);
  EXPECT_FALSE(shell.runs_first_attempt(1)) << "and then it was silent for longer than a lease";
}

TEST(Driver, AMessageInTheSameRoundIsHeardBeforeTimeIsLookedAt) {
  Shell shell;
  start_one(shell);
  shell.pass(kLeaseMs);
  shell.heartbeat(1, shell.live(1));  // late by nothing
  shell.run();
  EXPECT_TRUE(shell.runs_first_attempt(1));
}

TEST(Driver, ATimeWithoutEarsExtendsEveryLease) {
  Shell shell;
  start_one(shell);
  shell.pass(5 * kLeaseMs);
  shell.run(1'000, 5 * kLeaseMs);
  EXPECT_TRUE(shell.runs_first_attempt(1));
  shell.pass(kLeaseMs - 1);
  shell.run();
  EXPECT_TRUE(shell.runs_first_attempt(1));
  shell.pass(1);
  shell.run();
  EXPECT_FALSE(shell.runs_first_attempt(1));
}

// What the trainer reported meanwhile waits unread: a limit of progress knows nothing of it yet.
TEST(Driver, ATimeWithoutEarsExtendsLimitsOfTimeToo) {
  Shell shell;
  SweepFile file;
  file.limits = "progress = \"10 min\"";
  shell.submit(file);
  shell.connect(1, "w1");
  shell.run();
  const auto ref = shell.live(1);
  protocol::Reports reports{ref, {}};
  reports.reports.push_back({1, 0, protocol::StartedReport{}});
  reports.reports.push_back({2, 0, protocol::MetricReport{1, 64, {{"train_loss", 2.0}}}});
  shell.post(SessionMessage{1, reports});
  shell.run();
  constexpr std::int64_t kDeafMs = 900'000;
  shell.pass(kDeafMs);
  shell.run(1'000, kDeafMs);
  EXPECT_TRUE(shell.sent<protocol::Stop>().empty());
  EXPECT_TRUE(shell.runs_first_attempt(1));
  // A whole limit and its slack from here on.
  for (int i = 0; i < 71; ++i) {
    shell.pass(10'000);
    shell.heartbeat(1, ref);
    shell.run();
    EXPECT_TRUE(shell.sent<protocol::Stop>().empty()) << i;
  }
  shell.pass(10'000);
  shell.heartbeat(1, ref);
  shell.run();
  EXPECT_EQ(shell.sent<protocol::Stop>().size(), 1u);
}

TEST(Driver, AnOldHeartbeatDoesNotShortenALeaseThatWasExtended) {
  Shell shell;
  start_one(shell);
  shell.run(1'000, 5 * kLeaseMs);
  shell.pass(1);
  shell.heartbeat(1, shell.live(1));
  shell.pass(4 * kLeaseMs);
  shell.run();
  EXPECT_TRUE(shell.runs_first_attempt(1));
}

TEST(Driver, AfterARestartNobodyLosesALeaseForStandingInTheQueueToGetIn) {
  Shell before;
  start_one(before);
  const auto ref = before.live(1);
  // Workers call in all the time; the one that matters comes last.
  Shell busy({}, before.store);
  SessionId session = 10;
  for (std::int64_t passed = 0; passed < kLeaseMs + 10'000; passed += 1'000) {
    busy.pass(1'000);
    ++session;
    busy.connect(session, "w" + std::to_string(session));
    busy.run();
    ASSERT_TRUE(busy.runs_first_attempt(1)) << "after " << passed << " ms";
  }
  busy.connect(1, "a", {{ref, {0}, true, 0}});
  busy.run();
  EXPECT_TRUE(busy.runs_first_attempt(1));
  // When nobody calls in, one lease is all.
  Shell quiet({}, before.store);
  quiet.pass(kLeaseMs - 1);
  quiet.run();
  EXPECT_TRUE(quiet.runs_first_attempt(1));
  quiet.pass(1);
  quiet.run();
  EXPECT_FALSE(quiet.runs_first_attempt(1));
  // And a worker that is gone is not waited for without end, however many come.
  Shell gone({}, before.store);
  for (std::int64_t passed = 0; passed < 5 * kLeaseMs; passed += 1'000) {
    gone.pass(1'000);
    ++session;
    gone.connect(session, "w" + std::to_string(session));
    gone.run();
  }
  EXPECT_FALSE(gone.runs_first_attempt(1));
}

TEST(Driver, ARoundIsOneTransactionWithEachRowOnce) {
  Shell shell;
  start_one(shell);
  const auto ref = shell.live(1);
  for (std::uint64_t sequence = 1; sequence <= 50; ++sequence) shell.metrics(1, ref, sequence);
  shell.connect(2, "b");
  shell.connect(3, "b");
  shell.run();
  std::set<std::pair<std::size_t, std::string>> keys;
  std::size_t points = 0;
  for (const storage::Mutation& row : shell.last.writes) {
    std::string key;
    if (const auto* attempt = std::get_if<storage::AttemptRow>(&row)) {
      key = attempt->id.to_string();
      EXPECT_EQ(attempt->acked_sequence, 50u) << "the last state wins";
    } else if (const auto* trial = std::get_if<storage::TrialRow>(&row)) {
      key = trial->id.to_string();
    } else if (const auto* worker = std::get_if<storage::WorkerRow>(&row)) {
      key = worker->id.to_string();
    } else if (const auto* sweep = std::get_if<storage::SweepRow>(&row)) {
      key = sweep->id.to_string();
    } else if (!std::holds_alternative<storage::CountersRow>(row)) {
      points += std::holds_alternative<storage::MetricPoint>(row);
      continue;
    }
    EXPECT_TRUE(keys.emplace(row.index(), key).second) << row.index() << " " << key;
  }
  EXPECT_EQ(points, 50u);
}

TEST(Driver, AcknowledgementsOfOneAttemptBecomeTheNewestOne) {
  Shell shell;
  start_one(shell);
  const auto ref = shell.live(1);
  for (std::uint64_t i = 1; i <= 20; ++i) {
    shell.metrics(1, ref, i);
    shell.heartbeat(1, ref, i);
    shell.post(SessionMessage{1, protocol::LogChunk{ref, (i - 1) * 4, "abcd", 0}});
  }
  shell.run();
  ASSERT_EQ(shell.sent<protocol::ReportsAck>().size(), 1u);
  EXPECT_EQ(shell.sent<protocol::ReportsAck>().front().through_sequence, 20u);
  ASSERT_EQ(shell.sent<protocol::LogAck>().size(), 1u);
  EXPECT_EQ(shell.sent<protocol::LogAck>().front().through_offset, 80u);
  ASSERT_EQ(shell.sent<protocol::HeartbeatAck>().size(), 1u);
  EXPECT_EQ(shell.sent<protocol::HeartbeatAck>().front().serial, 20u);
}

TEST(Driver, AcknowledgementsOfOthersAndAllOtherMessagesKeepTheirOrder) {
  const protocol::AttemptRef one{{TrialId{1}, 1}, 1};
  const protocol::AttemptRef two{{TrialId{2}, 1}, 2};
  std::vector<Outward> outward = {
      SendTo{1, protocol::ReportsAck{one, 1}},
      SendTo{1, protocol::ReportsAck{two, 5}},
      SendTo{1, protocol::Stop{one, protocol::StopReason::kPaused, false}},
      SendTo{2, protocol::ReportsAck{one, 9}},
      SendTo{1, protocol::Stop{one, protocol::StopReason::kPaused, false}},
      SendTo{1, protocol::ReportsAck{one, 2}},
  };
  coalesce_acks(outward);
  std::vector<std::pair<SessionId, std::size_t>> left;
  for (const Outward& out : outward) {
    const auto& to = std::get<SendTo>(out);
    left.emplace_back(to.session, to.message.index());
  }
  const std::size_t ack = protocol::CoordinatorMessage(protocol::ReportsAck{}).index();
  const std::size_t stop = protocol::CoordinatorMessage(protocol::Stop{}).index();
  EXPECT_THAT(left, ElementsAre(std::pair(1u, ack), std::pair(1u, stop), std::pair(2u, ack),
                                std::pair(1u, stop), std::pair(1u, ack)));
  EXPECT_EQ(
      std::get<protocol::ReportsAck>(std::get<SendTo>(outward.back()).message).through_sequence,
      2u);
}

/// A space whose first points are all infeasible: a step runs out of draws without a trial.
SweepFile sparse() {
  SweepFile file;
  file.candidates = "";
  file.space = R"(
[space]
"layers" = { min = 1, max = 64, step = 1 }
constraints = ["layers >= 60"]
[search]
algorithm = "grid"
)";
  return file;
}

TEST(Driver, ASearchThatRanOutOfDrawsGoesOnWhateverFollows) {
  Options options;
  options.draws_per_step = 8;
  Shell shell(options);
  shell.connect(1, "a");
  shell.submit(sparse());
  shell.run();
  ASSERT_TRUE(shell.state().trials.empty());
  EXPECT_EQ(shell.last.call_again_ms, shell.now.mono_ms) << "at once";
  // What used to make it forgotten: an event that has no draws to make.
  for (int i = 0; i < 20 && shell.state().trials.empty(); ++i) {
    shell.heartbeat(1, {});
    shell.run();
    ASSERT_TRUE(shell.last.call_again_ms.has_value());
  }
  EXPECT_TRUE(shell.runs_first_attempt(1));
}

TEST(Driver, OneTransactionDrawsNoMoreThanItMayHoweverManyEventsItHas) {
  Options options;
  options.draws_per_step = 8;
  Shell shell(options);
  shell.submit(sparse());
  for (SessionId session = 1; session <= 5; ++session) shell.connect(session, "w");
  shell.run();
  EXPECT_EQ(shell.state().sweeps.at(SweepId{1}).row.infeasible, 8u);
}

TEST(Driver, AnInterruptedSearchGoesOnAfterARestart) {
  Options options;
  options.draws_per_step = 8;
  Shell shell(options);
  shell.submit(sparse());
  shell.run();
  const auto loaded = load(shell.store.load().value(), options, shell.now);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
  EXPECT_EQ(loaded->deadlines.earliest(), shell.now.mono_ms);
}

TEST(Driver, RoomInTheQueueIsFilledAlsoWhenItCameFromACancellation) {
  Options options;
  options.queue_ahead = 2;
  Shell shell(options);
  SweepFile file;
  file.candidates = "";
  file.space = "[space]\n\"layers\" = [1, 2, 3, 4]\n[search]\nalgorithm = \"grid\"\n";
  shell.submit(file);
  shell.run();
  ASSERT_EQ(shell.state().trials.size(), 2u);
  shell.post(ControlTrials{2, {TrialId{1}, TrialId{2}}, {}, TrialAction::kCancel, false});
  shell.run();
  EXPECT_EQ(shell.state().trials.size(), 2u) << "the cancelled ones are not kept in memory";
  EXPECT_TRUE(shell.state().trials.contains(TrialId{4}));
}

TEST(Inbox, TakesByNumberAndByWeightButAlwaysSomething) {
  struct Nothing {};
  Inbox<Nothing> inbox;
  protocol::Reports heavy;
  for (std::uint64_t i = 1; i <= 40; ++i) {
    heavy.reports.push_back({i, 0, protocol::MetricReport{1, 1, {{"a", 1}, {"b", 2}}}});
  }
  for (int i = 0; i < 3; ++i) inbox.post(SessionMessage{1, heavy}, {100 + i, 0}, Nothing{});
  for (int i = 0; i < 7; ++i) inbox.post(Tick{}, {200 + i, 0}, Nothing{});
  Now heard;
  EXPECT_EQ(inbox.take(10, 1, {900, 0}, &heard).size(), 1u) << "one is taken whatever it weighs";
  EXPECT_EQ(heard.mono_ms, 101);
  EXPECT_EQ(inbox.take(10, 250, {900, 0}, &heard).size(), 9u);
  EXPECT_EQ(heard.mono_ms, 900) << "nothing is left out";
  EXPECT_TRUE(inbox.empty());
}

TEST(Deadlines, KeepsOneOfEachKindAndId) {
  Deadlines deadlines;
  EXPECT_EQ(deadlines.earliest(), std::nullopt);
  deadlines.set(DeadlineKind::kLease, 1, 50);
  deadlines.set(DeadlineKind::kLease, 2, 40);
  deadlines.set(DeadlineKind::kBackoff, 1, 45);
  deadlines.set(DeadlineKind::kLease, 2, 60);  // moved
  EXPECT_EQ(deadlines.earliest(), 45);
  EXPECT_EQ(deadlines.at(DeadlineKind::kLease, 2), 60);
  EXPECT_EQ(deadlines.all(DeadlineKind::kLease).size(), 2u);
  EXPECT_EQ(deadlines.take_due(DeadlineKind::kLease, 49), std::nullopt);
  EXPECT_EQ(deadlines.take_due(DeadlineKind::kLease, 50), 1u);
  EXPECT_FALSE(deadlines.contains(DeadlineKind::kLease, 1));
  EXPECT_TRUE(deadlines.contains(DeadlineKind::kBackoff, 1));
  deadlines.shift(DeadlineKind::kLease, 5);
  EXPECT_EQ(deadlines.at(DeadlineKind::kLease, 2), 65);
  EXPECT_EQ(deadlines.take_due(DeadlineKind::kLease, 64), std::nullopt);
  deadlines.clear(DeadlineKind::kBackoff, 1);
  deadlines.clear(DeadlineKind::kBackoff, 7);
  EXPECT_EQ(deadlines.take_due(DeadlineKind::kLease, 65), 2u);
  EXPECT_EQ(deadlines.earliest(), std::nullopt);
}

}  // namespace
}  // namespace tailor::core
