// Whole trials on a GPU, as real processes: the losses of the CPU, the bits of a trial that was not
// stopped, and two ranks over NCCL where there are two GPUs.
// Skipped, with the reason, where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/model/gpu.h"
#include "tests/worker/trainer/trainer_process.h"

namespace tailor {
namespace {

using testing::HasSubstr;
using testing::Not;

class GpuTrialTest : public trainer::TrainerTest {
 protected:
  void SetUp() override {
    if (test::gpus().count == 0) GTEST_SKIP() << test::gpus().reason;
  }

  protocol::TrialSpec gpu_spec(std::int64_t steps, protocol::Precision precision) const {
    protocol::TrialSpec spec = small_spec();
    spec.device = "cuda:0";
    spec.train.precision = precision;
    spec.train.tokens = spec.train.batch_tokens * steps;
    spec.train.log_every_steps = 1;
    return spec;
  }

  static void expect_near(const std::map<std::int64_t, double>& curve,
                          const std::map<std::int64_t, double>& wanted, double tolerance) {
    ASSERT_EQ(curve.size(), wanted.size());
    for (const auto& [step, loss] : wanted) {
      EXPECT_NEAR(curve.at(step), loss, tolerance * loss) << "step " << step;
    }
  }
};

TEST_F(GpuTrialTest, ATrialHasTheLossesOfTheCpuAndReplaysItsSteps) {
  protocol::TrialSpec spec = gpu_spec(20, protocol::Precision::kF32);
  const std::string gpu = prepare("gpu", spec);
  ASSERT_EQ(run(gpu), 0) << *read_file(gpu + "/log");
  EXPECT_THAT(*read_file(gpu + "/log"), Not(HasSubstr("cannot be recorded")));
  spec.device = "cpu";
  const std::string cpu = prepare("cpu", spec);
  ASSERT_EQ(run(cpu), 0) << *read_file(cpu + "/log");
  expect_near(losses(gpu), losses(cpu), 1e-3);
  EXPECT_NEAR(end(gpu).values.at("validation_loss"), end(cpu).values.at("validation_loss"), 5e-3);
}

TEST_F(GpuTrialTest, AStoppedTrialEndsWithTheWeightsOfOneThatWasNot) {
  protocol::TrialSpec spec = gpu_spec(400, protocol::Precision::kBf16);
  const std::string whole = prepare("whole", spec);
  ASSERT_EQ(run(whole), 0) << *read_file(whole + "/log");
  const std::string first = prepare("first", spec);
  start(first);
  wait_for_step(first, 10);
  ::kill(pid_, SIGTERM);
  const int code = wait();
  ASSERT_TRUE(code == 6 || code == 0) << *read_file(first + "/log");  // 0: it was faster
  spec.attempt = 2;
  spec.resume_from = {first + "/checkpoints"};
  const std::string second = prepare("second", spec);
  ASSERT_EQ(run(second), 0) << *read_file(second + "/log");
  EXPECT_FALSE(weights(whole).empty());
  EXPECT_EQ(weights(second), weights(whole));
}

TEST_F(GpuTrialTest, TwoRanksHaveTheLossesOfOne) {
  if (test::gpus().count < 2) GTEST_SKIP() << "two ranks over NCCL need two GPUs; one is visible";
  const protocol::TrialSpec spec = gpu_spec(20, protocol::Precision::kF32);
  const std::string one = prepare("one", spec);
  ASSERT_EQ(run(one), 0) << *read_file(one + "/log");
  const std::string two = prepare("two", spec);
  ASSERT_EQ(run(two, {"--ranks", "2"}), 0) << *read_file(two + "/log");
  expect_near(losses(two), losses(one), 1e-5);
}

}  // namespace
}  // namespace tailor
