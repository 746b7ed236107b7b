// Batches through staging on the CPU; the copies to a GPU are tested where one is.
#include "model/train/staging.h"

#include <ATen/TensorOperators.h>
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
    const StagedBatch& batch = staging.take();
    EXPECT_FALSE(staging.sent());
    const std::int64_t value = 10 * i;
    send(value + 10);
    EXPECT_TRUE(batch.tokens.eq(value).all().item<bool>()) << i;
    EXPECT_TRUE(batch.targets.eq(value + 1).all().item<bool>()) << i;
  }
}

}  // namespace
}  // namespace tailor::train
