// Sign and signed-rank tests against scipy 1.17 and all patterns of signs.
#include "coordinator/analysis/rank_tests.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace tailor::analysis {
namespace {

TEST(SignTest, IsTheBinomialOfFairCoins) {
  EXPECT_DOUBLE_EQ(sign_test(0, 5).p, 0.0625);       // science.md 6
  EXPECT_NEAR(sign_test(6, 2).p, 0.2890625, 1e-14);  // scipy.stats.binomtest(2, 8)
  EXPECT_DOUBLE_EQ(sign_test(4, 4).p, 1);
  EXPECT_DOUBLE_EQ(sign_test(0, 0).p, 1);
  EXPECT_NEAR(sign_test(1000, 0).p / std::ldexp(1.0, -999), 1, 1e-9);
}

TEST(SignTest, CountsWhatBruteForceCounts) {
  for (std::uint32_t n = 1; n <= 12; ++n) {
    for (std::uint32_t k = 0; k <= n; ++k) {
      std::uint32_t as_lopsided = 0;
      for (std::uint32_t pattern = 0; pattern < (1u << n); ++pattern) {
        const auto ones = static_cast<std::uint32_t>(__builtin_popcount(pattern));
        as_lopsided += std::min(ones, n - ones) <= std::min(k, n - k) ? 1 : 0;
      }
      EXPECT_NEAR(sign_test(k, n - k).p, as_lopsided / std::ldexp(1.0, static_cast<int>(n)), 1e-12);
    }
  }
}

TEST(Wilcoxon, GivesTheVectorOfTheScientificBrief) {
  const Wilcoxon test = wilcoxon_test(std::vector<double>{-.017, -.021, -.016, -.017, -.024});
  EXPECT_DOUBLE_EQ(test.p, 0.0625);
  EXPECT_TRUE(test.exact);
  EXPECT_DOUBLE_EQ(test.positive_sum, 0);
}

TEST(Wilcoxon, GivesScipysExactValue) {
  // scipy.stats.wilcoxon(x, method="exact"): statistic 4, p .0546875.
  const Wilcoxon test =
      wilcoxon_test(std::vector<double>{-.031, .012, -.044, -.007, -.025, -.018, .003, -.052});
  EXPECT_DOUBLE_EQ(test.positive_sum, 4);
  EXPECT_DOUBLE_EQ(test.p, 0.0546875);
}

TEST(Wilcoxon, TiesAndZerosStayExact) {
  // All 2^8 patterns of the mid-ranks, counted in Python: W+ = 6.5, p = .1328125.
  const Wilcoxon test = wilcoxon_test(std::vector<double>{-1, -1, 2, -2, -3, 0, 1, -4, -4});
  EXPECT_EQ(test.n, 8u);
  EXPECT_DOUBLE_EQ(test.positive_sum, 6.5);
  EXPECT_DOUBLE_EQ(test.p, 0.1328125);
}

TEST(Wilcoxon, IsExactUpToSixtyFourDifferencesAndSaysWhenItIsNot) {
  std::vector<double> sixty, eighty;
  for (int i = 0; i < 61; ++i) {
    if (const int v = (i * 29) % 61 - 22; v != 0) sixty.push_back(v / 10.0);
  }
  for (int i = 0; i < 83; ++i) {
    if (const int v = (i * 37) % 83 - 45; v != 0) eighty.push_back(v / 10.0);
  }
  // Counted in Python with integers of any length over doubled mid-ranks (60 values with ties).
  const Wilcoxon exact = wilcoxon_test(sixty);
  EXPECT_TRUE(exact.exact);
  EXPECT_DOUBLE_EQ(exact.positive_sum, 1335);
  EXPECT_NEAR(exact.p, 0.0016577726437198223, 1e-15);
  // scipy.stats.wilcoxon(method="approx", correction=True), 82 values with ties.
  const Wilcoxon normal = wilcoxon_test(eighty);
  EXPECT_FALSE(normal.exact);
  EXPECT_NEAR(normal.p, 0.14723668676444096, 1e-12);
}

TEST(Wilcoxon, CountsWhatBruteForceCounts) {
  Rng rng(3);
  for (int round = 0; round < 60; ++round) {
    const std::size_t n = 1 + rng.below(11);
    std::vector<double> d;
    for (std::size_t i = 0; i < n; ++i) {
      // Small integers, so that ties and zeros are common.
      d.push_back((static_cast<double>(rng.below(9)) - 4) * 0.1);
    }
    std::vector<double> doubled_ranks;
    double positive = 0, total = 0;
    for (const double v : d) {
      if (v == 0) continue;
      double rank = 1;  // twice the mean rank: 2 x below + equal + 1
      for (const double other : d) {
        if (other == 0) continue;
        const double gap = std::abs(other) - std::abs(v);
        rank += gap < -1e-9 ? 2 : gap < 1e-9 ? 1 : 0;
      }
      doubled_ranks.push_back(rank);
      total += rank;
      positive += v > 0 ? rank : 0;
    }
    const std::size_t m = doubled_ranks.size();
    const double smaller = std::min(positive, total - positive);
    std::uint64_t hits = 0;
    for (std::uint64_t pattern = 0; pattern < (1u << m); ++pattern) {
      double sum = 0;
      for (std::size_t i = 0; i < m; ++i) sum += ((pattern >> i) & 1) != 0 ? doubled_ranks[i] : 0;
      hits += sum <= smaller ? 1 : 0;
    }
    const double p =
        std::min(1.0, 2 * static_cast<double>(hits) / std::ldexp(1.0, static_cast<int>(m)));
    EXPECT_NEAR(wilcoxon_test(d).p, p, 1e-12) << round;
  }
}

}  // namespace
}  // namespace tailor::analysis
