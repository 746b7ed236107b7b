// Batches through staging on the CPU; the copies to a GPU are tested where one is.
#include "model/train/staging.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "tests/model/support.h"

namespace tailor::train {
namespace {

TEST(StagingTest, ABatchKeepsItsTokensWhileTheNextIsFilled) {
  Staging staging(at::kCPU, 2, 3);
  const auto send = [&](std::int64_t value) {
    staging.host().tokens.fill_(value);
    staging.host().targets.fill_(value + 1);
    staging.send();
  };
  send(10);
  for (std::int64_t i = 1; i < 5; ++i) {
    EXPECT_TRUE(staging.sent());
    const Batch& batch = staging.take();
    EXPECT_FALSE(staging.sent());
    const std::int64_t value = 10 * i;
    send(value + 10);
    EXPECT_TRUE(batch.tokens.eq(value).all().item<bool>()) << i;
    EXPECT_TRUE(batch.targets.eq(value + 1).all().item<bool>()) << i;
  }
}

TEST(StagingTest, NumbersOfStepsAreReadOnceAndInOrder) {
  StepNumbers numbers(at::kCPU);
  at::Tensor pair = at::zeros({2}, at::kDouble);
  for (int i = 0; i < 3; ++i) {
    pair[0] = i;
    pair[1] = 10 * i;
    numbers.push(pair);
  }
  EXPECT_EQ(numbers.unread(), 3);
  const auto read = numbers.read();
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[2], (std::array<double, 2>{2, 20}));
  EXPECT_EQ(numbers.unread(), 0);
  EXPECT_TRUE(numbers.read().empty());
}

}  // namespace
}  // namespace tailor::train
