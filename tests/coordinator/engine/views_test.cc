// What clients read: names, counts, logs, the paired table.
#include "coordinator/engine/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

class ViewsTest : public ::testing::Test {
 protected:
  ViewsTest() { start(); }

  void start() {
    views_.reset();
    engine_.reset();
    Options options;
    options.retry_ms = 5;
    engine_ = std::move(*Engine::start(store_, clock_, {}, options));
    views_ = std::make_unique<Views>(store_, *engine_);
  }

  SweepId submit(const std::string& name) {
    Answer answer;
    engine_->request(submit_event(sweep_text(name)), answer.handler());
    EXPECT_TRUE(answer.wait());
    EXPECT_TRUE(answer.status().is_ok()) << answer.status().message();
    return answer.submitted().sweep;
  }

  /// A worker that ends each trial it is given with `loss(trial spec)`, until all are done.
  void run_all(const std::function<double(const protocol::TrialSpec&)>& loss) {
    auto sink = std::make_shared<RecordingSink>();
    const auto session = engine_->open_session(sink, hello("node1"));
    std::size_t done = 0;
    ASSERT_TRUE(eventually([&] {
      const auto assigned = sink->received<protocol::Assign>();
      for (; done < assigned.size(); ++done) finish(session, assigned[done].spec, loss);
      const auto sweeps = views_->sweeps();
      return sweeps.has_value() && !sweeps->empty() &&
             sweeps->back().row.state == storage::SweepState::kCompleted;
    }));
  }

  void finish(core::SessionId session, const protocol::TrialSpec& spec,
              const std::function<double(const protocol::TrialSpec&)>& loss) {
    const protocol::AttemptRef ref = {{spec.trial, spec.attempt}, spec.token};
    engine_->session_message(session, protocol::LogChunk{ref, 0, "hello from the trainer\n"});
    protocol::Reports reports;
    reports.ref = ref;
    protocol::StartedReport started;
    started.resumed_step = 40;
    started.data_hash = "0f1e";
    reports.reports.push_back({1, 1, started});
    reports.reports.push_back({2, 2, protocol::MetricReport{50, 3200, {{"train_loss", 3.5}}}});
    protocol::EndReport end;
    end.step = 56;
    end.values = {{"validation_loss", loss(spec)}, {"tokens_per_s", 1000.0}};
    reports.reports.push_back({3, 3, end});
    engine_->session_message(session, reports);
  }

  GatedStore store_;
  ManualClock clock_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Views> views_;
};

TEST_F(ViewsTest, ALogGoesOnBehindWhatWasNotKeptAndSaysHowItsAttemptEnded) {
  submit("one");
  auto sink = std::make_shared<RecordingSink>();
  const auto session = engine_->open_session(sink, hello("node1"));
  ASSERT_TRUE(eventually([&] { return !sink->received<protocol::Assign>().empty(); }));
  const protocol::TrialSpec spec = sink->received<protocol::Assign>()[0].spec;
  const protocol::AttemptRef ref = {{spec.trial, spec.attempt}, spec.token};
  engine_->session_message(session, protocol::LogChunk{ref, 0, "head\n"});
  engine_->session_message(session, protocol::LogChunk{ref, 1000, "tail\n", 995});
  ASSERT_TRUE(eventually([&] {
    const auto acks = sink->received<protocol::LogAck>();
    return !acks.empty() && acks.back().through_offset == 1005;
  }));
  LogPiece piece = views_->log(spec.trial, 0, 0, 100).value();
  EXPECT_EQ(piece.bytes, "head\n");
  EXPECT_EQ(piece.offset, 0u);
  EXPECT_EQ(piece.worker_name, "node1");
  EXPECT_EQ(piece.end_class, "");
  EXPECT_FALSE(piece.trial_ended);
  EXPECT_EQ(piece.attempts, 1u);
  piece = views_->log(spec.trial, 1, piece.next_offset, 100).value();
  EXPECT_EQ(piece.bytes, "tail\n");
  EXPECT_EQ(piece.offset, 1000u);
  EXPECT_EQ(piece.next_offset, 1005u);
  EXPECT_FALSE(piece.ended);
}

TEST_F(ViewsTest, FindsASweepByNameIdAndLast) {
  const SweepId first = submit("first");
  const SweepId second = submit("second");
  EXPECT_EQ(views_->find_sweep("first").value(), first);
  EXPECT_EQ(views_->find_sweep(first.to_string()).value(), first);
  EXPECT_EQ(views_->find_sweep(std::to_string(second.value)).value(), second);
  EXPECT_EQ(views_->find_sweep("last").value(), second);
  const auto missing = views_->find_sweep("secnod");
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), ::testing::HasSubstr("did you mean \"second\""));
  EXPECT_EQ(views_->find_sweep("99").error().code(), Code::kNotFound);
  EXPECT_EQ(views_->find_sweep("").error().code(), Code::kInvalidArgument);
}

TEST_F(ViewsTest, ThereIsNoLastSweepBeforeTheFirst) {
  EXPECT_EQ(views_->find_sweep("last").error().code(), Code::kNotFound);
}

TEST_F(ViewsTest, ShowsCountsCandidatesAndTheBaselineOfASweep) {
  submit("taper");
  const auto sweep = views_->sweep(SweepId{1}).value();
  EXPECT_EQ(sweep.counts.at(storage::TrialState::kQueued), 4u);
  EXPECT_EQ(sweep.candidates, 2u);
  EXPECT_EQ(sweep.seeds, 2u);
  EXPECT_EQ(sweep.baseline, "plain");
  EXPECT_EQ(sweep.description, "plain < wide?");
}

TEST_F(ViewsTest, ListsSweepsAlsoWhileTheDiskIsFull) {
  submit("taper");
  const auto before = views_->sweeps().value();
  store_.inner.set_fault(Status(Code::kResourceExhausted, "the disk is full"));
  Answer pending;
  engine_->request(submit_event(sweep_text("not-stored")), pending.handler());
  ASSERT_TRUE(eventually([&] { return engine_->health().stalled; }));
  const auto during = views_->sweeps();
  ASSERT_TRUE(during.has_value());
  ASSERT_EQ(during->size(), 1u);
  EXPECT_EQ(during->front().counts.at(storage::TrialState::kQueued),
            before.front().counts.at(storage::TrialState::kQueued));
  EXPECT_EQ(during->front().baseline, "plain");
  EXPECT_EQ(during->front().candidates, 2u);
  store_.inner.set_fault(Status::ok());
  ASSERT_TRUE(pending.wait());
}

TEST_F(ViewsTest, WhatHasEndedIsShownFromItsRowsAlsoAfterARestart) {
  const SweepId id = submit("taper");
  run_all([](const protocol::TrialSpec&) { return 3.0; });
  submit("open");
  for (int life = 0; life < 2; ++life) {
    EXPECT_EQ(engine_->ask([](const core::State& s, core::Now) { return s.sweeps.size(); }).value(),
              1u)
        << "only the open one is kept in memory";
    const auto listed = views_->sweeps().value();
    ASSERT_EQ(listed.size(), 2u);
    const SweepView& ended = listed.front();
    EXPECT_EQ(ended.row.id, id);
    EXPECT_EQ(ended.row.state, storage::SweepState::kCompleted);
    EXPECT_EQ(ended.counts.at(storage::TrialState::kCompleted), 4u);
    EXPECT_EQ(ended.candidates, 2u);
    EXPECT_EQ(ended.seeds, 2u);
    EXPECT_EQ(ended.baseline, "plain");
    EXPECT_EQ(ended.trials_at_most, 4u);
    EXPECT_EQ(ended.unreadable, "");
    EXPECT_EQ(views_->sweep(id)->counts, ended.counts);
    const SweepViewPage page = views_->sweep_page(1, 1).value();
    EXPECT_EQ(page.total, 2u);
    ASSERT_EQ(page.sweeps.size(), 1u);
    EXPECT_EQ(page.sweeps.front().row.name, "taper") << "the newest come first";
    EXPECT_THAT(views_->why(TrialId{1})->sentence, ::testing::HasSubstr("t1 completed with"));
    const Totals totals = views_->totals();
    EXPECT_EQ(totals.sweeps.at(storage::SweepState::kCompleted), 1u);
    EXPECT_EQ(totals.sweeps.at(storage::SweepState::kRunning), 1u);
    EXPECT_EQ(totals.trials.at(storage::TrialState::kCompleted), 4u);
    Answer again;
    engine_->request(submit_event(sweep_text("taper")), again.handler());
    ASSERT_TRUE(again.wait());
    EXPECT_EQ(again.submitted().sweep, id);
    EXPECT_FALSE(again.submitted().created);
    start();
  }
}

TEST_F(ViewsTest, ASweepThatCannotBeReadIsShownWithTheReasonAndHindersNobody) {
  const SweepId broken = submit("broken");
  const SweepId sound = submit("sound");
  storage::SweepRow row = store_.sweep(broken).value();
  row.toml = "name = ";
  ASSERT_TRUE(store_.commit(std::vector<storage::Mutation>{row}).is_ok());
  start();
  const auto listed = views_->sweeps().value();
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_THAT(listed[0].unreadable, ::testing::HasSubstr("no longer parses"));
  EXPECT_THAT(listed[0].message, ::testing::HasSubstr("cannot be read"));
  EXPECT_EQ(listed[0].row.state, storage::SweepState::kRunning);
  EXPECT_EQ(listed[0].counts.at(storage::TrialState::kQueued), 4u);
  EXPECT_EQ(listed[1].unreadable, "");
  EXPECT_EQ(views_->sweep(broken)->unreadable, listed[0].unreadable);
  EXPECT_TRUE(views_->why(TrialId{1}).has_value());
  Answer cancelled;
  engine_->request(core::ControlSweep{0, broken, core::SweepAction::kCancel, 0},
                   cancelled.handler());
  ASSERT_TRUE(cancelled.wait());
  EXPECT_TRUE(cancelled.status().is_ok()) << cancelled.status().message();
  EXPECT_EQ(views_->sweep(broken)->row.state, storage::SweepState::kCancelled);
  EXPECT_THAT(views_->sweep(broken)->unreadable, ::testing::HasSubstr("no longer parses"));
  EXPECT_EQ(views_->totals().sweeps.at(storage::SweepState::kCancelled), 1u);
  run_all([](const protocol::TrialSpec&) { return 3.0; });
  EXPECT_EQ(views_->sweep(sound)->row.state, storage::SweepState::kCompleted);
}

TEST_F(ViewsTest, AFinishedSweepHasItsPairedTable) {
  const SweepId id = submit("taper");
  run_all([](const protocol::TrialSpec& spec) {
    return (spec.candidate_name == "wide" ? 2.5 : 3.0) + 0.25 * static_cast<double>(spec.seed);
  });
  const auto answer = views_->compare(id, "", "").value();
  const analysis::ComparisonTable& table = *answer;
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.baseline, "plain");
  EXPECT_EQ(table.rows[1].name, "wide");
  EXPECT_EQ(table.rows[1].paired.n, 2u);
  EXPECT_DOUBLE_EQ(table.rows[1].paired.mean, -0.5);
  EXPECT_DOUBLE_EQ(table.rows[1].paired.sign_flip->p, 0.5);
  EXPECT_DOUBLE_EQ(table.rows[1].tokens_per_s.value(), 1000.0);
  EXPECT_EQ(table.rows[1].unverified, 0u) << "what trainers said at their start was read";
  EXPECT_EQ(views_->compare(id, "nobody", "").error().code(), Code::kInvalidArgument);
}

TEST_F(ViewsTest, ATrialShowsItsAttemptItsWorkerAndItsLog) {
  submit("taper");
  run_all([](const protocol::TrialSpec&) { return 3.0; });
  const auto detail = views_->trial(TrialId{1}).value();
  ASSERT_EQ(detail.attempts.size(), 1u);
  EXPECT_EQ(detail.attempts[0].worker_name, "node1");
  EXPECT_EQ(detail.attempts[0].resumed_step, 40);
  EXPECT_EQ(detail.trial.candidate_name, detail.candidate.name);
  EXPECT_GT(detail.candidate.parameters_body, 0);
  EXPECT_THAT(detail.metrics, ::testing::Contains("train_loss"));
  EXPECT_EQ(views_->series(TrialId{1}, "train_loss", 0)->values, std::vector<double>{3.5});

  const auto log = views_->log(TrialId{1}, 0, 6, 4).value();
  EXPECT_EQ(log.bytes, "from");
  EXPECT_EQ(log.next_offset, 10u);
  EXPECT_EQ(log.attempt, 1u);
  EXPECT_FALSE(log.ended);
  const auto rest = views_->log(TrialId{1}, 1, 10, 1'000).value();
  EXPECT_TRUE(rest.ended);
  EXPECT_EQ(views_->log_tail(TrialId{1}, 8)->bytes, "trainer\n");
  EXPECT_EQ(views_->log(TrialId{1}, 7, 0, 10).error().code(), Code::kNotFound);
  EXPECT_EQ(views_->trial(TrialId{77}).error().code(), Code::kNotFound);
  EXPECT_EQ(views_->series(TrialId{77}, "train_loss", 0).error().code(), Code::kNotFound);
}

TEST_F(ViewsTest, ATrialThatHasNotStartedHasAnEmptyLogThatMayGrow) {
  submit("taper");
  const auto log = views_->log(TrialId{1}, 0, 0, 10).value();
  EXPECT_EQ(log.bytes, "");
  EXPECT_FALSE(log.ended);
}

TEST_F(ViewsTest, ShowsWorkersWithTheirSlots) {
  submit("taper");
  auto sink = std::make_shared<RecordingSink>();
  engine_->open_session(sink, hello("node1", 3));
  ASSERT_TRUE(eventually([&] { return sink->received<protocol::Assign>().size() == 3; }));
  const auto workers = views_->workers();
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_TRUE(workers[0].connected);
  EXPECT_EQ(workers[0].slots, 3u);
  EXPECT_EQ(workers[0].busy_slots, 3u);
  EXPECT_EQ(workers[0].devices, "3 x cpu");
  EXPECT_EQ(workers[0].running.size(), 3u);
  EXPECT_EQ(views_->find_worker("node1").value(), workers[0].row.id);
  EXPECT_EQ(views_->find_worker("w1").value(), workers[0].row.id);
  EXPECT_EQ(views_->find_worker("node2").error().code(), Code::kNotFound);
  const auto totals = views_->totals();
  EXPECT_EQ(totals.workers_connected, 1u);
  EXPECT_EQ(totals.busy_slots, 3u);
  EXPECT_EQ(totals.trials.at(storage::TrialState::kRunning), 3u);
}

TEST_F(ViewsTest, ExplainsWhyATrialWaits) {
  submit("taper");
  const auto why = views_->why(TrialId{1});
  ASSERT_TRUE(why.has_value());
  EXPECT_THAT(why->sentence, ::testing::HasSubstr("worker"));
  EXPECT_EQ(why->code, core::WhyCode::kNoWorker);
  EXPECT_EQ(views_->why(TrialId{77}).error().code(), Code::kNotFound);
}

TEST_F(ViewsTest, PagesTrialsWithTheNamesOfTheirCandidates) {
  submit("taper");
  storage::TrialQuery query;
  query.sweep = SweepId{1};
  query.offset = 1;
  query.limit = 2;
  const auto page = views_->trials(query).value();
  EXPECT_EQ(page.total, 4u);
  ASSERT_EQ(page.trials.size(), 2u);
  for (const auto& trial : page.trials) {
    EXPECT_EQ(trial.candidate_name, trial.row.candidate == 0 ? "plain" : "wide");
    EXPECT_GT(trial.parameters_body, 0);
  }
}

TEST_F(ViewsTest, AWorkerWhoseNameIsTheIdOfAnotherIsNeverGuessed) {
  auto first = std::make_shared<tailor::testing::RecordingSink>();
  auto second = std::make_shared<tailor::testing::RecordingSink>();
  engine_->open_session(first, tailor::testing::hello("w2"));
  engine_->open_session(second, tailor::testing::hello("node"));
  ASSERT_TRUE(eventually([&] { return store_.workers().value().size() == 2; }));
  const auto guessed = views_->find_worker("w2");
  ASSERT_FALSE(guessed.has_value());
  EXPECT_EQ(guessed.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(guessed.error().message(), ::testing::HasSubstr("\"w1\" or \"node\""));
  EXPECT_EQ(views_->find_worker("w1").value(), WorkerId{1});
  EXPECT_EQ(views_->find_worker("node").value(), WorkerId{2});
}

}  // namespace
}  // namespace tailor::engine
