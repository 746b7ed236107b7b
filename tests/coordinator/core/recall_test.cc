// What has ended is rows only: it leaves memory, and requests about it bring it back.
#include "coordinator/engine/recall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;
using storage::SweepState;
using storage::TrialState;
using testing::HasSubstr;

/// A sweep of two trials, one of which fails. It has ended.
void run_to_the_end(Harness& h, const std::string& name = "taper") {
  SweepFile file;
  file.name = name;
  file.seeds = "count = 2";
  file.retry = "oom = 0";
  const std::uint64_t first = h.state.counters.next_trial;
  h.submit(file);
  const SessionId w = h.connect("w-" + name, 2);
  h.finish(w, first, EndClass::kCompleted);
  h.finish(w, first + 1, EndClass::kOom);
  h.disconnect(w);  // the next one has a worker of its own
}

TEST(Recall, AFinalTrialLeavesMemoryAndASweepThatHasEndedTakesAllWithIt) {
  Harness h;
  SweepFile file;
  file.seeds = "count = 3";
  file.retry = "oom = 0";
  h.submit(file);
  const SessionId w = h.connect("w", 2);
  h.finish(w, 1, EndClass::kCompleted, 2.5);
  EXPECT_FALSE(h.state.trials.contains(TrialId{1}));
  const Sweep& sweep = h.state.sweeps.at(SweepId{1});
  EXPECT_EQ(sweep.notes[0].state, TrialState::kCompleted);
  EXPECT_EQ(sweep.notes[0].objective, 2.5);
  EXPECT_NE(sweep.candidates[0], nullptr) << "other seeds of it are to be run";
  EXPECT_LE(sizeof(TrialNote), 24u) << "300,000 trials are a few megabytes";
  h.finish(w, 2, EndClass::kOom);
  h.restart();
  const SessionId back = h.connect("w", 2, {{h.live(3), {0}, true, 0}});
  h.finish(back, 3, EndClass::kCompleted);
  EXPECT_TRUE(h.state.sweeps.empty());
  EXPECT_TRUE(h.state.trials.empty());
  EXPECT_TRUE(h.state.sweep_by_name.empty());
  EXPECT_EQ(h.sweep_state(), SweepState::kCompleted);
  EXPECT_EQ(h.trial_state(2), TrialState::kFailed);
}

TEST(Recall, ACancelledSweepStaysUntilItsLastTrialHasGone) {
  Harness h;
  SweepFile file;
  file.seeds = "count = 2";
  h.submit(file);
  const SessionId w = h.connect("w");
  const auto ref = h.live(1);
  h.control(SweepAction::kCancel);
  EXPECT_TRUE(h.state.sweeps.contains(SweepId{1})) << "its trainer has not gone yet";
  EXPECT_FALSE(h.state.trials.contains(TrialId{2}));
  h.restart();
  EXPECT_TRUE(h.state.sweeps.contains(SweepId{1}));
  const SessionId back = h.connect("w", 1, {{ref, {0}, true, 0}});
  EXPECT_NE(back, w);
  h.report(back, ref, 1,
           {protocol::StartedReport{}, protocol::EndReport{EndClass::kStopped, "", 1, {}}});
  EXPECT_TRUE(h.state.sweeps.empty());
  EXPECT_EQ(h.trial_state(1), TrialState::kCancelled);
}

TEST(Recall, TheNameOfAnEndedSweepIsTakenAndTheSameFileIsTheSameSweep) {
  Harness h;
  run_to_the_end(h);
  ASSERT_TRUE(h.state.sweeps.empty());
  h.restart();
  SweepFile file;
  file.seeds = "count = 2";
  file.retry = "oom = 0";
  const Reply same = h.submit(file);
  ASSERT_TRUE(same.status.is_ok()) << same.status.message();
  const auto outcome = std::get<SubmitOutcome>(same.body);
  EXPECT_FALSE(outcome.created);
  EXPECT_EQ(outcome.sweep, SweepId{1});
  EXPECT_EQ(outcome.candidates, 1u);
  EXPECT_EQ(outcome.trials, 2u);
  file.seeds = "count = 3";
  const Reply other = h.submit(file);
  EXPECT_EQ(other.status.code(), Code::kAlreadyExists);
  EXPECT_THAT(other.status.message(), HasSubstr("(s1)"));
  EXPECT_TRUE(h.state.sweeps.empty());
}

TEST(Recall, AFailedTrialOfAnEndedSweepIsTriedAgain) {
  for (const bool by_sweep : {false, true}) {
    Harness h;
    run_to_the_end(h);
    run_to_the_end(h, "other");
    h.restart();
    ASSERT_TRUE(h.state.sweeps.empty());
    const auto ids = by_sweep ? std::vector<TrialId>{} : std::vector<TrialId>{TrialId{2}};
    const Reply dry = h.trials(TrialAction::kRetry, ids, by_sweep ? SweepId{1} : SweepId{}, true);
    ASSERT_TRUE(dry.status.is_ok()) << dry.status.message();
    EXPECT_EQ(std::get<TrialsOutcome>(dry.body).trials, std::vector<TrialId>{TrialId{2}});
    EXPECT_EQ(std::get<TrialsOutcome>(dry.body).targets.at(SweepId{1}).sweep_name, "taper");
    EXPECT_TRUE(h.state.sweeps.empty()) << "a dry run leaves nothing behind";
    EXPECT_EQ(h.sweep_state(), SweepState::kCompleted);

    const Reply reply = h.trials(TrialAction::kRetry, ids, by_sweep ? SweepId{1} : SweepId{});
    ASSERT_TRUE(reply.status.is_ok()) << reply.status.message();
    EXPECT_EQ(h.sweep_state(), SweepState::kRunning);
    EXPECT_EQ(h.trial_state(2), TrialState::kQueued);
    h.restart();
    const SessionId w = h.connect("w-taper", 2);
    EXPECT_EQ(h.live(2).attempt.number, 2u) << "no number of an attempt comes twice";
    h.finish(w, 2, EndClass::kCompleted);
    EXPECT_EQ(h.sweep_state(), SweepState::kCompleted);
    EXPECT_TRUE(h.state.sweeps.empty());
  }
}

TEST(Recall, AFailedTrialOfARunningSweepIsTriedAgain) {
  Harness h;
  SweepFile file;
  file.candidates = candidate("a", 64) + candidate("b", 96);
  file.retry = "oom = 0";
  h.submit(file);
  const SessionId w = h.connect("w");
  h.finish(w, 1, EndClass::kOom);
  ASSERT_FALSE(h.state.trials.contains(TrialId{1}));
  EXPECT_EQ(h.state.sweeps.at(SweepId{1}).candidates[0], nullptr);
  const int before = h.recalls;
  ASSERT_TRUE(h.trials(TrialAction::kRetry, {TrialId{1}}).status.is_ok());
  EXPECT_EQ(h.recalls, before + 1);
  EXPECT_EQ(h.trial_state(1), TrialState::kQueued);
  h.restart();
  const SessionId back = h.connect("w", 1, {{h.live(2), {0}, true, 0}});
  h.finish(back, 2, EndClass::kCompleted);
  EXPECT_EQ(h.live(1).attempt.number, 2u);
  const auto assigns = h.sent<protocol::Assign>();
  ASSERT_EQ(assigns.size(), 1u);
  EXPECT_EQ(assigns[0].spec.candidate_name, "a");
}

TEST(Recall, WhatIsAskedOfEndedThingsIsAnsweredFromTheirRows) {
  Harness h;
  run_to_the_end(h);
  h.restart();
  EXPECT_EQ(h.control(SweepAction::kPause).status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(h.control(SweepAction::kCancel).status.message(), HasSubstr("completed already"));
  EXPECT_EQ(h.control(SweepAction::kPause, SweepId{9}).status.code(), Code::kNotFound);
  h.step(ControlSweep{9, SweepId{1}, SweepAction::kSetPriority, 7});
  EXPECT_EQ(h.store.sweep(SweepId{1})->priority, 7);
  EXPECT_EQ(h.trials(TrialAction::kCancel, {TrialId{9}}).status.code(), Code::kNotFound);
  EXPECT_EQ(h.trials(TrialAction::kRetry, {TrialId{9}}).status.code(), Code::kNotFound);
  EXPECT_EQ(h.trials(TrialAction::kRetry, {}, SweepId{9}).status.code(), Code::kNotFound);
  const Reply nothing = h.trials(TrialAction::kCancel, {TrialId{1}, TrialId{2}});
  ASSERT_TRUE(nothing.status.is_ok());
  EXPECT_TRUE(std::get<TrialsOutcome>(nothing.body).trials.empty());
  h.restart();
  EXPECT_EQ(h.store.sweep(SweepId{1})->priority, 7);
}

TEST(Recall, RowsThatWereReadBeforeASweepEndedAgainAreNotBelieved) {
  Harness h;
  run_to_the_end(h);
  const auto asked = [&] {
    core::step(h.state, ControlTrials{1, {TrialId{2}}, {}, TrialAction::kRetry, false}, h.now);
    RowsWanted wanted;
    wanted.as_of = h.state.departures.count();
    EXPECT_GT(wanted.as_of, 0u);
    wanted.trials = {TrialId{2}};
    wanted.sweeps_of_trials = true;
    wanted.for_retry = true;
    return std::make_shared<const Recalled>(engine::read_rows(h.store, wanted).value());
  };
  const auto old = asked();
  // Meanwhile somebody else retries it, and it completes.
  h.trials(TrialAction::kRetry, {TrialId{2}});
  h.finish(h.connect("w-taper", 2), 2, EndClass::kCompleted);
  ASSERT_TRUE(h.state.sweeps.empty());
  ControlTrials late{2, {TrialId{2}}, {}, TrialAction::kRetry, false};
  late.recalled = old;
  const Effects effects = core::step(h.state, late, h.now);
  ASSERT_EQ(effects.outward.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<RowsWanted>(std::get<Reply>(effects.outward[0]).body));
  EXPECT_TRUE(effects.writes.empty());
  EXPECT_TRUE(h.state.sweeps.empty());
}

/// Deals with a request as the engine does; `meanwhile` happens each time that rows are read for
/// it. Returns how many times that was.
template <typename Meanwhile>
int deal_with(Harness& h, Event event, Effects* effects, Meanwhile meanwhile) {
  for (int asked = 0;; ++asked) {
    *effects = core::step(h.state, event, h.now);
    EXPECT_TRUE(h.store.commit(effects->writes).is_ok());
    const auto* wanted = std::get_if<RowsWanted>(&std::get<Reply>(effects->outward.front()).body);
    if (wanted == nullptr || asked == 50) return asked;
    auto rows = engine::read_rows(h.store, *wanted);
    meanwhile();
    engine::attach_rows(event, std::move(*rows));
  }
}

// Short sweeps end all the time. What is asked about others is answered all the same.
TEST(Recall, RequestsGoOnHoweverManyOtherSweepsEnd) {
  Harness h;
  run_to_the_end(h);
  int next = 0;
  const auto others_end = [&] { run_to_the_end(h, "short-" + std::to_string(++next)); };
  SweepFile file;
  file.name = "mine";
  const auto spec = sweep::parse(file.text(), "test.toml", "/data");
  ASSERT_TRUE(spec.has_value()) << spec.error().message();
  Effects effects;
  const SubmitSweep submission{500, std::make_shared<const sweep::Spec>(*spec), file.text(),
                               "/data", "h"};
  EXPECT_EQ(deal_with(h, submission, &effects, others_end), 1);
  const auto& submitted = std::get<Reply>(effects.outward.front());
  ASSERT_TRUE(submitted.status.is_ok()) << submitted.status.message();
  EXPECT_TRUE(std::get<SubmitOutcome>(submitted.body).created);

  const ControlSweep priority{501, SweepId{1}, SweepAction::kSetPriority, 7};
  EXPECT_EQ(deal_with(h, priority, &effects, others_end), 1);
  EXPECT_EQ(h.store.sweep(SweepId{1})->priority, 7);
  for (const bool by_sweep : {true, false}) {
    ControlTrials retry{502, {}, SweepId{1}, TrialAction::kRetry, true};
    if (!by_sweep) retry = {503, {TrialId{2}}, {}, TrialAction::kRetry, false};
    EXPECT_EQ(deal_with(h, retry, &effects, others_end), 1);
    const auto& reply = std::get<Reply>(effects.outward.front());
    ASSERT_TRUE(reply.status.is_ok()) << reply.status.message();
    EXPECT_EQ(std::get<TrialsOutcome>(reply.body).trials, std::vector<TrialId>{TrialId{2}});
  }
}

TEST(Recall, TooManyDeparturesMakeRowsOldWhateverLeft) {
  Departures departures;
  departures.add(SweepId{1}, "a");
  const std::uint64_t then = departures.count();
  EXPECT_FALSE(departures.since(then, SweepId{1}));
  EXPECT_TRUE(departures.since(0, SweepId{1}));
  EXPECT_TRUE(departures.since(0, std::string_view("a")));
  departures.add(SweepId{2}, "b");
  EXPECT_FALSE(departures.since(then, SweepId{1}));
  EXPECT_FALSE(departures.since(then, std::string_view("a")));
  EXPECT_TRUE(departures.since(then, std::string_view("b")));
  for (std::uint64_t id = 3; id < 5'000; ++id) departures.add(SweepId{id}, "c");
  EXPECT_TRUE(departures.since(then, SweepId{1})) << "nobody knows any more";
  EXPECT_FALSE(departures.since(departures.count() - 1'000, SweepId{1}));
}

// All that is needed is asked for together: what was read for an earlier try is gone.
TEST(Recall, ARetryOfFailedTrialsGoesOnThoughOthersOfTheSweepFailMeanwhile) {
  for (const bool named : {false, true}) {
    Harness h;
    SweepFile file;
    file.seeds = "count = 300";
    file.retry = "oom = 0";
    h.submit(file);
    const SessionId w = h.connect("w");
    std::uint64_t next = 1;
    const auto one_fails = [&] { h.finish(w, next++, EndClass::kOom); };
    one_fails();
    one_fails();
    ControlTrials retry{500, {}, SweepId{1}, TrialAction::kRetry, false};
    if (named) {
      retry = {500, {TrialId{1}, TrialId{2}}, SweepId{1}, TrialAction::kRetry, false};
    }
    Effects effects;
    EXPECT_EQ(deal_with(h, retry, &effects, one_fails), 1);
    const auto& reply = std::get<Reply>(effects.outward.front());
    ASSERT_TRUE(reply.status.is_ok()) << reply.status.message();
    EXPECT_EQ(std::get<TrialsOutcome>(reply.body).trials,
              (std::vector<TrialId>{TrialId{1}, TrialId{2}}))
        << "those that had failed when it was asked for";
  }
}

// The sweep was in memory, and the trial with it, when rows were asked for: they say nothing of it.
TEST(Recall, ATrialThatLeftMemoryWhileRowsWereReadIsFoundAllTheSame) {
  Harness h;
  run_to_the_end(h);
  SweepFile file;
  file.name = "other";
  file.retry = "oom = 0";
  h.submit(file);
  const SessionId w = h.connect("w");
  bool done = false;
  Effects effects;
  const ControlTrials retry{500, {TrialId{2}, TrialId{3}}, {}, TrialAction::kRetry, false};
  const int asked = deal_with(h, retry, &effects, [&] {
    if (!std::exchange(done, true)) h.finish(w, 3, EndClass::kOom);
  });
  EXPECT_EQ(asked, 2);
  const auto& reply = std::get<Reply>(effects.outward.front());
  ASSERT_TRUE(reply.status.is_ok()) << reply.status.message();
  EXPECT_EQ(std::get<TrialsOutcome>(reply.body).trials,
            (std::vector<TrialId>{TrialId{2}, TrialId{3}}));
}

TEST(Recall, AnEndedSweepThatCannotBeReadIsSaidAndChangesNothing) {
  Harness h;
  run_to_the_end(h);
  storage::SweepRow row = h.store.sweep(SweepId{1}).value();
  row.toml = "name = ";
  ASSERT_TRUE(h.store.commit(std::vector<storage::Mutation>{row}).is_ok());
  h.restart();
  EXPECT_TRUE(h.state.unreadable.empty()) << "what has ended is not looked at on start";
  const Reply reply = h.trials(TrialAction::kRetry, {TrialId{2}});
  EXPECT_EQ(reply.status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(reply.status.message(), HasSubstr("no longer parses"));
  EXPECT_TRUE(h.state.sweeps.empty());
  EXPECT_EQ(h.trial_state(2), TrialState::kFailed);
}

}  // namespace
}  // namespace tailor::core
