// `tailor why`: the sentence says the true reason.
#include "coordinator/core/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using protocol::EndClass;
using testing::HasSubstr;

std::string why(const Harness& h, std::uint64_t trial) {
  return explain(h.state, TrialId{trial}, h.now);
}

TEST(Explain, SaysThatNoWorkerIsConnected) {
  Harness h;
  h.submit({});
  EXPECT_THAT(why(h, 1), HasSubstr("no worker is connected"));
}

TEST(Explain, SaysWhichSlotIsMissing) {
  Harness h;
  SweepFile file;
  file.resources = "gpus = 1";
  h.submit(file);
  h.connect("w1");
  EXPECT_THAT(why(h, 1), HasSubstr("no connected worker has 1 GPU slot"));
}

TEST(Explain, SaysThatEverySlotIsTaken) {
  Harness h;
  SweepFile file;
  file.seeds = "count = 2";
  h.submit(file);
  h.connect("w1");
  EXPECT_THAT(why(h, 1), HasSubstr("runs as attempt 1 on worker w1"));
  EXPECT_THAT(why(h, 2), HasSubstr("every slot of its kind is taken"));
}

TEST(Explain, SaysThatTheSweepIsPaused) {
  Harness h;
  h.submit({});
  h.control(SweepAction::kPause);
  EXPECT_THAT(why(h, 1), HasSubstr("sweep s1 is paused"));
}

TEST(Explain, SaysHowLongABackOffLastsAndWhy) {
  Harness h;
  SweepFile file;
  file.retry = "oom = 3";
  h.submit(file);
  h.finish(h.connect("w1"), 1, EndClass::kOom);
  EXPECT_THAT(why(h, 1), HasSubstr("waits 2.0 s"));
  EXPECT_THAT(why(h, 1), HasSubstr("it broke"));
}

TEST(Explain, SaysThatTheWorkerIsAwayAndUntilWhen) {
  Harness h;
  h.submit({});
  h.disconnect(h.connect("w1"));
  h.advance(10'000);
  EXPECT_THAT(why(h, 1), HasSubstr("not connected"));
  EXPECT_THAT(why(h, 1), HasSubstr("within 20.0 s"));
}

TEST(Explain, SaysThatParallelIsReached) {
  Harness h;
  SweepFile file;
  file.seeds = "count = 2";
  file.resources = "gpus = 0\nparallel = 1";
  h.submit(file);
  h.connect("w1", 2);
  EXPECT_THAT(why(h, 2), HasSubstr("resources.parallel"));
}

TEST(Explain, SaysHowATrialEnded) {
  Harness h;
  SweepFile file;
  file.seeds = "count = 3";
  file.retry = "nan = 0";
  h.submit(file);
  const SessionId w = h.connect("w1", 3);
  h.finish(w, 1, EndClass::kCompleted, 2.5);
  h.finish(w, 2, EndClass::kNan);
  const auto ended = [&](std::uint64_t id) {
    return text_of(why_ended(h.store.trial(TrialId{id}).value()));
  };
  EXPECT_THAT(ended(1), HasSubstr("completed with validation loss 2.5"));
  EXPECT_THAT(ended(2), HasSubstr("failed (nan): it broke"));
  EXPECT_THAT(why(h, 4), HasSubstr("no trial t4"));
}

TEST(Explain, EveryReasonHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(WhyCode::kCancelled); ++code) {
    EXPECT_TRUE(names.insert(why_code_name(static_cast<WhyCode>(code))).second) << code;
  }
}

TEST(Explain, SaysSinceWhenAndStaysShortWhateverWorkersAndTrainersSay) {
  Harness h;
  SweepFile file;
  file.seeds = "count = 2";
  file.retry = "oom = 5";
  h.submit(file);
  for (int i = 1; i <= 20; ++i) {
    const SessionId w = h.connect("node" + std::to_string(i), 1);
    protocol::Heartbeat unfit{1, {}};
    unfit.unfit = std::string(100'000, 'x');
    h.send(w, unfit);
    if (i == 1) {
      h.report(w, h.live(1), 1,
               {protocol::StartedReport{},
                protocol::EndReport{EndClass::kOom, std::string(100'000, 'y'), 1, {}}});
    }
  }
  h.advance(5'000);
  const auto trial = h.state.trials.at(TrialId{1}).live ? TrialId{2} : TrialId{1};
  const Why answer = core::why(h.state, trial, h.now);
  EXPECT_LE(answer.details.size(), kWhyDetailsMax);
  EXPECT_LE(explain(h.state, trial, h.now).size(), 5'000u);
  EXPECT_GT(answer.since_ms, 0);
  EXPECT_LE(answer.since_ms, h.now.wall_ms);
}

}  // namespace
}  // namespace tailor::core
