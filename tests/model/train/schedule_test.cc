// Learning rates against the formula and by hand; the twenty values of PyTorch are in tests/parity.
#include "model/train/schedule.h"

#include <gtest/gtest.h>

namespace tailor::train {
namespace {

TEST(ScheduleTest, WarmUpRisesFromOneShareToThePeakAndTheLastStepIsTheFloor) {
  protocol::LrScheduleSpec schedule;
  schedule.warmup_steps = 4;
  schedule.final_fraction = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 0, 100), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 3, 100), 1.0);
  EXPECT_NEAR(learning_rate(schedule, 1.0, 99, 100), 0.1, 1e-15);
  // Half-way through the decay, the mean of peak and floor.
  EXPECT_NEAR(learning_rate(schedule, 1.0, 51, 100), 0.55, 1e-15);
}

TEST(ScheduleTest, TheFractionIsRoundedUpAndStepsOverrideIt) {
  protocol::LrScheduleSpec schedule;
  schedule.warmup_fraction = 0.01;
  EXPECT_EQ(warmup_steps(schedule, 250), 3);
  EXPECT_EQ(warmup_steps(schedule, 200), 2);
  schedule.warmup_steps = 0;
  EXPECT_EQ(warmup_steps(schedule, 250), 0);
  schedule.warmup_steps = 500;
  EXPECT_EQ(warmup_steps(schedule, 250), 250);
}

TEST(ScheduleTest, ConstantStaysAtThePeakAfterWarmUp) {
  protocol::LrScheduleSpec schedule;
  schedule.kind = protocol::LrScheduleKind::kConstant;
  schedule.warmup_steps = 2;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 3.0, 0, 10), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 3.0, 9, 10), 3.0);
}

TEST(ScheduleTest, WarmUpStableDecayStaysAtThePeakAndComesDownAtTheEnd) {
  protocol::LrScheduleSpec schedule;
  schedule.kind = protocol::LrScheduleKind::kWsd;
  schedule.warmup_steps = 10;
  schedule.decay_fraction = 0.2;
  schedule.final_fraction = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 2.0, 4, 100), 1.0);
  for (const std::int64_t step : {9, 10, 50, 79}) {
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 2.0, step, 100), 2.0) << step;
  }
  // Twenty steps from 2 to 0.2; the sixteenth is at p = 0.8, the fifth at p = 0.25.
  EXPECT_NEAR(learning_rate(schedule, 2.0, 95, 100), 0.2 + 1.8 * 0.2, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 2.0, 99, 100), 0.2, 1e-15);
  schedule.decay_shape = protocol::DecayShape::kOneMinusSqrt;
  EXPECT_NEAR(learning_rate(schedule, 2.0, 84, 100), 0.2 + 1.8 * 0.5, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 2.0, 99, 100), 0.2, 1e-15);
}

TEST(ScheduleTest, ADecayThatReachesIntoTheWarmUpBeginsAfterIt) {
  protocol::LrScheduleSpec schedule;
  schedule.kind = protocol::LrScheduleKind::kWsd;
  schedule.warmup_steps = 4;
  schedule.decay_fraction = 1;
  schedule.final_fraction = 0;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 3, 8), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 4, 8), 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1.0, 7, 8), 0.0);
}

TEST(ScheduleTest, ASingleStepHasARate) {
  protocol::LrScheduleSpec schedule;
  schedule.warmup_fraction = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 3.0, 0, 1), 3.0);
  schedule.warmup_steps = 0;
  EXPECT_NEAR(learning_rate(schedule, 3.0, 0, 1), 0.3, 1e-15);
}

}  // namespace
}  // namespace tailor::train
