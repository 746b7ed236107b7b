// Restart: the state that comes back from the store is the state that was there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;
using storage::TrialState;
using testing::HasSubstr;

TEST(Load, OfAnEmptyStoreIsAnEmptyState) {
  Harness h;
  h.restart();
  EXPECT_TRUE(h.state.sweeps.empty());
}

TEST(Load, GivesRunningAttemptsOneLeaseToCallIn) {
  Harness h;
  h.submit({});
  h.connect("w1");
  const auto ref = h.live(1);
  h.restart();
  h.advance(29'999);
  EXPECT_EQ(h.live(1), ref);
  h.advance(1);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
}

TEST(Load, KeepsWhatIsLeftOfABackOff) {
  Harness h;
  SweepFile file;
  file.retry = "oom = 5";
  h.submit(file);
  h.finish(h.connect("w1"), 1, EndClass::kOom);
  h.advance(1'500);
  h.restart();
  EXPECT_EQ(h.state.deadlines.at(DeadlineKind::kBackoff, 1), h.now.mono_ms + 500);
  h.now.wall_ms -= 1'000'000;  // the wall clock was set back: no longer than the whole back-off
  h.restart();
  EXPECT_EQ(h.state.deadlines.at(DeadlineKind::kBackoff, 1), h.now.mono_ms + 2'000);
}

TEST(Load, RefusesRowsThatContradictThoseOfOtherSweeps) {
  Harness h;
  h.submit({});
  h.connect("w1");
  const storage::Snapshot good = h.store.load().value();
  ASSERT_TRUE(load(good, h.options, h.now).has_value());
  const auto refused = [&](const storage::Snapshot& bad) {
    const auto loaded = load(bad, h.options, h.now);
    EXPECT_FALSE(loaded.has_value());
    if (loaded) return;
    EXPECT_EQ(loaded.error().code(), Code::kDataLoss) << loaded.error().message();
  };
  storage::Snapshot bad = good;
  bad.sweeps.clear();
  refused(bad);
  bad = good;
  bad.sweeps.push_back(bad.sweeps.front());
  refused(bad);
  bad = good;
  bad.trials.clear();
  refused(bad);
  bad = good;
  bad.workers[0].slots_json = "{}";
  refused(bad);
  bad = good;
  bad.counters.next_trial = 1;
  refused(bad);
}

/// Two sweeps; the first is then damaged by `change`.
class OneSweepUnreadable : public testing::Test {
 protected:
  OneSweepUnreadable() {
    SweepFile file;
    file.seeds = "count = 2";
    h.submit(file);
    h.connect("w1");  // runs trial 1
    file.name = "other";
    h.submit(file);
    good = h.store.load_open().value();
  }
  /// What is said of the first sweep; the other is there as ever.
  std::string reason(const storage::Snapshot& bad) {
    auto loaded = load(bad, h.options, h.now);
    EXPECT_TRUE(loaded.has_value()) << status_of(loaded).message();
    if (!loaded) return "";
    EXPECT_TRUE(loaded->sweeps.contains(SweepId{2}));
    EXPECT_EQ(loaded->trials.size(), 2u) << "nothing of the unreadable one is scheduled";
    EXPECT_FALSE(loaded->sweeps.contains(SweepId{1}));
    EXPECT_TRUE(check_invariants(*loaded).is_ok()) << check_invariants(*loaded).message();
    for (const auto& [id, worker] : loaded->workers) {
      for (const WorkerSlot& slot : worker.slots) EXPECT_FALSE(slot.held_by.has_value());
    }
    const auto aside = loaded->unreadable.find(SweepId{1});
    EXPECT_NE(aside, loaded->unreadable.end());
    return aside == loaded->unreadable.end() ? "" : aside->second.reason;
  }

  Harness h;
  storage::Snapshot good;
};

TEST_F(OneSweepUnreadable, IsSetAsideWithTheReasonAndTheOthersServe) {
  storage::Snapshot bad = good;
  bad.sweeps[0].toml = "name = ";
  EXPECT_THAT(reason(bad), HasSubstr("no longer parses"));
  bad = good;
  bad.candidates[0].hash = "0";
  EXPECT_THAT(reason(bad), HasSubstr("hash differs"));
  bad = good;
  bad.candidates[0].parameters_total += 1;
  EXPECT_THAT(reason(bad), HasSubstr("its row says"));
  bad = good;
  bad.candidates[0].architecture_json = "{}";
  EXPECT_NE(reason(bad), "");
  bad = good;
  bad.candidates[0].point_json = "[]";
  EXPECT_NE(reason(bad), "");
  bad = good;
  bad.candidates[0].index = 3;
  EXPECT_THAT(reason(bad), HasSubstr("out of order"));
  bad = good;
  bad.trials[1].seed += 1;
  EXPECT_THAT(reason(bad), HasSubstr("has not the seed"));
  bad = good;
  bad.trials.erase(bad.trials.begin() + 1);
  EXPECT_THAT(reason(bad), HasSubstr("1 candidates with 2 seeds, but 1 trials"));
  bad = good;
  bad.trials[0].state = TrialState::kQueued;
  EXPECT_NE(reason(bad), "");
  bad = good;
  bad.attempts.clear();
  EXPECT_NE(reason(bad), "");
  bad = good;
  bad.attempts[0].slots = {7};
  EXPECT_THAT(reason(bad), HasSubstr("has no slot"));
  bad = good;
  bad.attempts[0].token = bad.counters.next_token;
  EXPECT_NE(reason(bad), "");
}

TEST_F(OneSweepUnreadable, StaysAsItIsAndCanOnlyBeCancelled) {
  storage::SweepRow row = h.store.sweep(SweepId{1}).value();
  const std::string toml = row.toml;
  row.toml = "name = ";
  ASSERT_TRUE(h.store.commit(std::vector<storage::Mutation>{row}).is_ok());
  h.state = load(h.store.load_open().value(), h.options, h.now).value();
  h.restart();
  EXPECT_EQ(h.sweep_state(1), storage::SweepState::kRunning);
  const SessionId w = h.connect("w1", 4, {}, "another");
  EXPECT_EQ(h.trial_state(1), TrialState::kRunning) << "as it is stored";
  EXPECT_EQ(h.trial_state(2), TrialState::kQueued);
  EXPECT_EQ(h.trial_state(3), TrialState::kRunning) << "the other sweep goes on";
  h.finish(w, 3, EndClass::kCompleted);

  const auto refused = [&](const Reply& reply) {
    EXPECT_EQ(reply.status.code(), Code::kFailedPrecondition) << reply.status.message();
    EXPECT_THAT(reply.status.message(), HasSubstr("no longer parses"));
  };
  refused(h.control(SweepAction::kPause));
  refused(h.control(SweepAction::kResume));
  refused(h.trials(TrialAction::kRetry, {}, SweepId{1}));
  refused(h.trials(TrialAction::kCancel, {TrialId{2}}));
  SweepFile file;
  file.seeds = "count = 2";
  refused(h.submit(file));
  file.seeds = "count = 3";
  EXPECT_EQ(h.submit(file).status.code(), Code::kAlreadyExists);

  // A version that reads it goes on with it.
  row.toml = toml;
  storage::Snapshot again = h.store.load_open().value();
  again.sweeps[0].toml = toml;
  EXPECT_TRUE(load(again, h.options, h.now)->sweeps.contains(SweepId{1}));

  EXPECT_TRUE(h.control(SweepAction::kCancel).status.is_ok());
  EXPECT_EQ(h.sweep_state(1), storage::SweepState::kCancelled);
  EXPECT_EQ(h.trial_state(1), TrialState::kCancelled);
  EXPECT_EQ(h.trial_state(2), TrialState::kCancelled);
  EXPECT_EQ(h.store.attempts(TrialId{1})->at(0).state, storage::AttemptState::kEnded);
  EXPECT_TRUE(h.state.unreadable.empty());
  h.restart();
}

TEST(Load, TakesArchitecturesAsTheyWereStored) {
  Harness h;
  SweepFile file;
  file.space = "[space]\n\"ffn.d_h\" = [96, 128]\n";
  h.submit(file);
  // As a version stored it whose solver gave other widths: this one must not resolve them again.
  storage::CandidateRow row = h.store.candidate(SweepId{1}, 1).value();
  shape::Architecture architecture = shape::architecture_from_json(row.architecture_json).value();
  architecture.widths[0][0] += 8;
  architecture.widths[1][0] -= 8;
  sweep::Candidate changed = *h.sweep().candidates[1];
  changed.architecture = architecture;
  row.architecture_json = shape::canonical_json(architecture);
  row.hash = "";
  storage::Snapshot snapshot = h.store.load_open().value();
  snapshot.candidates[1] = row;
  EXPECT_TRUE(load(snapshot, h.options, h.now)->unreadable.contains(SweepId{1}))
      << "a row that is not what its hash says is no truth";
  const auto restored = [&](const std::string& hash) {
    return sweep::restore(*h.sweep().spec, row.name, changed.point, architecture, hash);
  };
  // The hash of the widths that are stored.
  const std::string message = restored("x").error().message();
  EXPECT_THAT(message, HasSubstr("hash differs"));
  row.hash = sweep::identity_hash(architecture, changed.train);
  snapshot.candidates[1] = row;
  const auto loaded = load(snapshot, h.options, h.now);
  ASSERT_TRUE(loaded.has_value());
  ASSERT_TRUE(loaded->sweeps.contains(SweepId{1}));
  EXPECT_EQ(loaded->sweeps.at(SweepId{1}).candidates[1]->architecture, architecture);
  EXPECT_EQ(loaded->sweeps.at(SweepId{1}).named, 1u);
}

/// A random history: submissions, workers, reports, failures, requests, time. After some steps the
/// coordinator restarts from the store, and Harness::restart compares all that is durable.
class RandomHistory : public Harness {
 public:
  explicit RandomHistory(std::uint64_t seed) : rng_(Rng::split(seed, "history")) {
    options.queue_ahead = 4;
    options.backoff_ms = 500;
    state.options = options;
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      act();
      if (rng_.below(10) == 0) {
        restart();
        sessions_.clear();
      }
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  void act() {
    switch (rng_.below(10)) {
      case 0:
        return submit_some();
      case 1:
        return come();
      case 2:
        return go();
      case 3:
        return request();
      case 4:
        return advance(static_cast<std::int64_t>(rng_.below(20'000)));
      default:
        return say();
    }
  }

  void submit_some() {
    SweepFile file;
    file.name = "sweep-" + std::to_string(rng_.below(3));
    file.seeds = "count = 2";
    file.retry = "oom = 2\ninfrastructure = 3\nnode_lost = 1";
    file.candidates = candidate("a", 64) + candidate("b", 160);
    file.space = R"(
[space]
"ffn.d_h" = [64, 96, 128, 256]
"layers" = [2, 4]
constraints = ["layers <= 3"]
[search]
algorithm = "random"
trials = 6
)";
    submit(file);
  }
  void come() {
    const std::string name = "w" + std::to_string(rng_.below(3));
    std::vector<protocol::HeldAttempt> held;
    for (const auto& [id, trial] : state.trials) {
      if (trial.live && rng_.below(2) == 0)
        held.push_back({{trial.live->row.id, trial.live->row.token}, {0}, true, 0});
    }
    sessions_[name] = connect(name, 2, held, "i" + std::to_string(rng_.below(4)));
  }
  void go() {
    if (sessions_.empty()) return;
    auto it =
        std::next(sessions_.begin(), static_cast<std::ptrdiff_t>(rng_.below(sessions_.size())));
    disconnect(it->second);
    sessions_.erase(it);
  }
  void request() {
    if (state.counters.next_sweep == 1) return;
    const SweepId sweep{1 + rng_.below(state.counters.next_sweep - 1)};
    const TrialId trial{1 + rng_.below(state.counters.next_trial - 1)};
    switch (rng_.below(8)) {
      case 0:
        control(SweepAction::kPause, sweep);
        break;
      case 1:
        if (rng_.below(8) == 0) control(SweepAction::kCancel, sweep);
        break;
      case 2:
        trials(TrialAction::kCancel, {trial});
        break;
      case 3:
        trials(TrialAction::kRetry, {}, sweep);
        break;
      case 4:
        step(ControlSweep{9, sweep, SweepAction::kSetPriority, static_cast<int>(rng_.below(3))});
        break;
      case 5:
        step(DrainWorker{9, WorkerId{1 + rng_.below(3)}});
        break;
      default:
        control(SweepAction::kResume, sweep);
        break;
    }
  }
  /// Some live attempt goes on.
  void say() {
    std::vector<const Trial*> live_trials;
    for (const auto& [id, trial] : state.trials) {
      if (trial.live && state.workers.at(trial.live->row.worker).session != 0)
        live_trials.push_back(&trial);
    }
    if (live_trials.empty()) return come();
    const Trial& trial = *live_trials[rng_.below(live_trials.size())];
    const SessionId session = state.workers.at(trial.live->row.worker).session;
    const protocol::AttemptRef ref{trial.live->row.id, trial.live->row.token};
    const std::uint64_t next = trial.live->row.acked_sequence + 1;
    const std::uint64_t dice = rng_.below(10);
    if (dice < 4) {
      report(session, ref, next,
             {protocol::MetricReport{static_cast<std::int64_t>(next), 0, {{"train_loss", 1.0}}}});
    } else if (dice < 5) {
      report(session, ref, next, {protocol::StartedReport{}});
    } else if (dice < 6) {
      send(session, protocol::LogChunk{ref, trial.live->row.log_bytes, "line\n"});
    } else {
      constexpr EndClass kEnds[] = {EndClass::kCompleted, EndClass::kCompleted,
                                    EndClass::kOom,       EndClass::kInfrastructure,
                                    EndClass::kStopped,   EndClass::kNan};
      protocol::EndReport end;
      end.end = kEnds[rng_.below(6)];
      end.values = {{"validation_loss", rng_.uniform()}};
      report(session, ref, next, {end});
    }
  }

  Rng rng_;
  std::map<std::string, SessionId> sessions_;
};

TEST(Load, AfterAnyHistoryGivesTheStateThatWasThere) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    RandomHistory history(seed);
    history.run(250);
    if (HasFailure()) {
      ADD_FAILURE() << "seed " << seed;
      return;
    }
  }
}

TEST(Load, ASweepOfOlderDaysWhoseNameReadsLikeAnIdIsStillThere) {
  Harness h;
  h.submit({});
  // As an earlier version stored it.
  storage::SweepRow row = h.store.sweep(SweepId{1}).value();
  const std::size_t at = row.toml.find(row.name);
  row.toml.replace(at, row.name.size(), "t1");
  row.name = "t1";
  ASSERT_TRUE(h.store.commit(std::vector<storage::Mutation>{row}).is_ok());
  const auto loaded = load(h.store.load().value(), h.options, h.now);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message();
  EXPECT_EQ(loaded->sweep_by_name.at("t1"), SweepId{1});
}

}  // namespace
}  // namespace tailor::core
