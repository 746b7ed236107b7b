#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tailor {
namespace {

TEST(Rng, IsSplitMix64) {
  // First outputs of SplitMix64 from state 0 (Steele, Lea, Flood 2014), as published test values.
  Rng rng(0);
  EXPECT_EQ(rng.next_u64(), 0xE220A8397B1DCDAFull);
  EXPECT_EQ(rng.next_u64(), 0x6E789E6AA1B965F4ull);
  EXPECT_EQ(rng.next_u64(), 0x06C45D188009454Full);
}

TEST(Rng, ContinuesFromASavedState) {
  Rng a(42);
  for (int i = 0; i < 10; ++i) a.next_u64();
  Rng b(a.state());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(a.next_u64(), b.next_u64());
}

TEST(Rng, StreamsOfDifferentNamesDiffer) {
  EXPECT_NE(Rng::split(1, "a").next_u64(), Rng::split(1, "b").next_u64());
  EXPECT_NE(Rng::split(1, "a").next_u64(), Rng::split(2, "a").next_u64());
}

TEST(Rng, BelowIsUniform) {
  Rng rng(7);
  int counts[6] = {};
  for (int i = 0; i < 60000; ++i) ++counts[rng.below(6)];
  for (const int c : counts) EXPECT_NEAR(c, 10000, 500);  // 5.5 standard deviations
}

TEST(Rng, NormalHasMeanZeroAndVarianceOne) {
  Rng rng(3);
  double sum = 0, squares = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = rng.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.03);
}

TEST(Rng, KeyedDrawsDependOnPositionOnly) {
  const double x = keyed_normal(5, 100, 200);
  for (std::uint64_t i = 0; i < 50; ++i) keyed_normal(5, i, i);
  EXPECT_EQ(keyed_normal(5, 100, 200), x);
  EXPECT_NE(keyed_normal(5, 200, 100), x);
  double sum = 0, squares = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    for (std::uint64_t j = 0; j < 300; ++j) {
      const double v = keyed_normal(9, i, j);
      sum += v;
      squares += v * v;
    }
  }
  EXPECT_NEAR(sum / 90000, 0, 0.02);
  EXPECT_NEAR(squares / 90000, 1, 0.03);
}

}  // namespace
}  // namespace tailor
