#include "model/eval/bootstrap.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace tailor::eval {
namespace {

std::vector<BlockLoss> random_blocks(std::size_t count, std::uint64_t tokens) {
  Rng rng(5);
  std::vector<BlockLoss> blocks;
  for (std::size_t i = 0; i < count; ++i)
    blocks.push_back({(3 + 0.2 * rng.normal()) * static_cast<double>(tokens), tokens});
  return blocks;
}

TEST(BootstrapTest, TendsToTheStandardErrorOfTheMeanForEqualBlocks) {
  const std::vector<BlockLoss> blocks = random_blocks(200, 64);
  double sum = 0, squares = 0;
  for (const BlockLoss& block : blocks) sum += block.nats / 64;
  for (const BlockLoss& block : blocks) squares += std::pow(block.nats / 64 - sum / 200, 2);
  const double exact = std::sqrt(squares / 200 / 200);  // sigma / sqrt(n), divisor n
  // The standard deviation of 4000 replicates is itself known to 1 / sqrt(8000) = 1.1 %.
  EXPECT_NEAR(bootstrap_standard_error(blocks, 1, 4000), exact, 0.045 * exact);
}

TEST(BootstrapTest, OfTwoBlocksIsTheSpreadOfTheFourResamples) {
  // Draws: aa, ab, ba, bb with losses 1, 2, 2, 3: variance 1/2.
  const std::vector<BlockLoss> blocks = {{1, 1}, {3, 1}};
  EXPECT_NEAR(bootstrap_standard_error(blocks, 3, 20000), std::sqrt(0.5), 0.01);
}

TEST(BootstrapTest, WeighsBlocksByTheirTokens) {
  // Equal loss a token in every block: no spread, whatever the lengths.
  const std::vector<BlockLoss> blocks = {{2, 1}, {200, 100}, {14, 7}};
  EXPECT_NEAR(bootstrap_standard_error(blocks, 1), 0, 1e-12);
  // Draws of {0, 3} and {4, 1}: 0, 1 (twice) and 4; as means of block means they would be 0, 2, 4.
  const std::vector<BlockLoss> uneven = {{0, 3}, {4, 1}};
  EXPECT_NEAR(bootstrap_standard_error(uneven, 1, 20000), 1.5, 0.03);
}

TEST(BootstrapTest, DependsOnTheSeedAlone) {
  const std::vector<BlockLoss> blocks = random_blocks(30, 8);
  EXPECT_EQ(bootstrap_standard_error(blocks, 7), bootstrap_standard_error(blocks, 7));
  EXPECT_NE(bootstrap_standard_error(blocks, 7), bootstrap_standard_error(blocks, 8));
}

TEST(BootstrapTest, HasNoValueWhereThereIsNoSpreadToMeasure) {
  EXPECT_TRUE(std::isnan(bootstrap_standard_error({}, 1)));
  const std::vector<BlockLoss> one = {{5, 10}, {0, 0}};
  EXPECT_TRUE(std::isnan(bootstrap_standard_error(one, 1)));
  const std::vector<BlockLoss> broken = {{5, 10}, {std::numeric_limits<double>::infinity(), 10}};
  EXPECT_TRUE(std::isnan(bootstrap_standard_error(broken, 1)));
}

TEST(BootstrapTest, PassesOverBlocksWithoutTokens) {
  const std::vector<BlockLoss> blocks = {{0, 0}, {0, 0}, {0, 0}, {6, 3}, {6, 3}};
  EXPECT_NEAR(bootstrap_standard_error(blocks, 1), 0, 1e-12);
}

}  // namespace
}  // namespace tailor::eval
