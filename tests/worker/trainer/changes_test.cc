// What changed in spec.json, and the line that says how far a trial is.
#include "worker/trainer/changes.h"

#include <gmock/gmock.h>

#include <cmath>

#include "worker/trainer/progress.h"

namespace tailor::trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Changes, AreNamedWithBothValuesAndWhatTheyDecide) {
  protocol::TrialSpec was;
  was.architecture.widths = {{24}};
  protocol::TrialSpec is = was;
  EXPECT_EQ(to_text(changes_between(was, is)), "");
  is.device = "cuda:0";
  is.threads = 4;
  is.resume_from = {"/x"};
  is.train.keep_last = 5;
  for (const SpecChange& change : changes_between(was, is)) {
    EXPECT_EQ(change.decides, Decides::kNothing) << change.field;
  }
  EXPECT_EQ(changes_between(was, is).size(), 4u);
  is = was;
  is.geometry.enabled = true;
  is.train.validation_tokens = 9;
  for (const SpecChange& change : changes_between(was, is)) {
    EXPECT_EQ(change.decides, Decides::kMeasures) << change.field;
  }
  is = was;
  is.train.tokens = 10240;
  is.train.optimizer.lr = 0.5;
  is.architecture.widths = {{25}};
  is.seed = 9;
  for (const SpecChange& change : changes_between(was, is)) {
    EXPECT_EQ(change.decides, Decides::kResult) << change.field;
  }
  EXPECT_THAT(to_text(changes_between(was, is)), HasSubstr("train.tokens was 0, is 10240"));
  EXPECT_THAT(to_text(changes_between(was, is)), HasSubstr("train.optimizer.lr was 0.003, is 0.5"));
  EXPECT_THAT(to_text(changes_between(was, is)), HasSubstr("architecture.widths was "));
  // One way of warming up for the other.
  is = was;
  is.train.schedule.warmup_steps = 5;
  EXPECT_THAT(to_text(changes_between(was, is)), HasSubstr("warmup_fraction was 0.01, is not set"));
}

TEST(ProgressLine, SaysStepLossSpeedAndTimeLeftOnceASecond) {
  ManualClock clock(0);
  Progress progress(clock, 128);
  EXPECT_EQ(progress.line(), std::nullopt) << "nothing has started";
  protocol::StartedReport started;
  started.steps_total = 200;
  progress.started(started);
  EXPECT_EQ(progress.line(), "step 0/200 (0 %)  loss -");
  for (int second = 1; second <= 10; ++second) {
    clock.advance(1000);
    progress.step(5 * second);
    EXPECT_TRUE(progress.line().has_value());
    EXPECT_EQ(progress.line(), std::nullopt) << "said just now";
  }
  protocol::MetricReport metric;
  metric.step = 60;
  metric.values = {{"train_loss", 3.25}};
  progress.metric(metric);
  clock.advance(2000);
  // 60 steps of 128 tokens in 12 s; 140 steps are left.
  EXPECT_EQ(progress.line(), "step 60/200 (30 %)  loss 3.2500  640 tokens/s  ETA 28 s");
  metric.values = {{"validation_loss", 3.5}};
  progress.metric(metric);
  metric.values = {{"train_loss", std::nan("")}};
  progress.metric(metric);
  clock.advance(1000);
  EXPECT_THAT(*progress.line(), HasSubstr("loss nan  validation 3.5000"));
  progress.step(200);
  clock.advance(1000);
  const std::string last = progress.line().value_or("");
  EXPECT_THAT(last, HasSubstr("(100 %)"));
  EXPECT_THAT(last, Not(HasSubstr("ETA")));
}

TEST(ProgressLine, AResumedTrialCountsOnlyItsOwnSteps) {
  ManualClock clock(0);
  Progress progress(clock, 10);
  protocol::StartedReport started;
  started.steps_total = 1000;
  started.resumed_step = 900;
  progress.started(started);
  clock.advance(10'000);
  progress.step(910);
  EXPECT_EQ(progress.line(), "step 910/1000 (91 %)  loss -  10 tokens/s  ETA 1 min 30 s");
}

}  // namespace
}  // namespace tailor::trainer
