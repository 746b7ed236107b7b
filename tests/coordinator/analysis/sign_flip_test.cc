// The sign-flip test against counting by hand, brute force and the binomial distribution.
#include "coordinator/analysis/sign_flip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"

namespace tailor::analysis {
namespace {

double p_of(const std::vector<double>& differences) { return sign_flip_test(differences).p; }

/// All 2^n patterns, one after the other.
double p_by_enumeration(const std::vector<double>& d) {
  double observed = 0, scale = 0;
  for (const double v : d) {
    observed += v;
    scale += std::abs(v);
  }
  std::uint64_t hits = 0;
  const std::uint64_t patterns = std::uint64_t{1} << d.size();
  for (std::uint64_t pattern = 0; pattern < patterns; ++pattern) {
    double sum = 0;
    for (std::size_t i = 0; i < d.size(); ++i) sum += ((pattern >> i) & 1) != 0 ? d[i] : -d[i];
    hits += std::abs(sum) >= std::abs(observed) - 1e-12 * scale ? 1 : 0;
  }
  return static_cast<double>(hits) / static_cast<double>(patterns);
}

/// P(|2B - n| >= |sum|) for n differences of size 1, `positive` of them above 0.
double p_of_binomial(int n, int positive) {
  double tail = 0;
  for (int k = 0; k <= n; ++k) {
    if (std::abs(2 * k - n) < std::abs(2 * positive - n)) continue;
    tail += std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0) -
                     n * std::log(2.0));
  }
  return tail;
}

std::vector<double> ones(int n, int positive) {
  std::vector<double> d(static_cast<std::size_t>(positive), 1.0);
  d.resize(static_cast<std::size_t>(n), -1.0);
  return d;
}

TEST(SignFlip, ZeroDifferencesGiveOneAndCannotGiveLess) {
  const SignFlip test = sign_flip_test(std::vector<double>{0, 0, 0, 0});
  EXPECT_DOUBLE_EQ(test.p, 1.0);
  EXPECT_DOUBLE_EQ(test.smallest_p, 1.0);
}

TEST(SignFlip, CountsPatternsAsDoneByHand) {
  // 1, 2, -4: |sum| = 1. Signed sums: +-7, +-5, +-3, +-1, so all 8 are at least 1.
  EXPECT_DOUBLE_EQ(p_of({1, 2, -4}), 1.0);
  // 1, 2, 4: |sum| = 7 is reached by 2 of 8.
  EXPECT_DOUBLE_EQ(p_of({1, 2, 4}), 0.25);
  // -1, 2, 4: |sum| = 5 is reached by +-7 and +-5: 4 of 8.
  EXPECT_DOUBLE_EQ(p_of({-1, 2, 4}), 0.5);
}

TEST(SignFlip, TiesCountDespiteRounding) {
  // 0.1 + 0.2 - 0.3 is not 0 in binary, but the observed pattern
  // and its mirror tie with many others.
  EXPECT_DOUBLE_EQ(p_of({0.1, 0.2, 0.3}), 0.25);
  EXPECT_DOUBLE_EQ(p_of({0.1, 0.2, -0.3}), 1.0);
}

TEST(SignFlip, EqualsTheEnumerationOfAllPatterns) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> d;
    const std::size_t n = 1 + rng.below(13);
    for (std::size_t i = 0; i < n; ++i) {
      // Continuous, tied, and with zeros.
      d.push_back(round % 3 == 0
                      ? rng.normal() + 0.4
                      : 0.1 * static_cast<double>(rng.below(round % 3 == 1 ? 5 : 40)) - 0.2);
    }
    EXPECT_DOUBLE_EQ(p_of(d), p_by_enumeration(d)) << "round " << round;
  }
}

TEST(SignFlip, IsExactForEveryNumberOfDifferencesThatItCallsExact) {
  for (int n = 2; n <= static_cast<int>(kExactSignFlipMax); n += 2) {
    for (const int positive : {n, n - 1, n / 2}) {
      const SignFlip test = sign_flip_test(ones(n, positive));
      EXPECT_NEAR(test.p, p_of_binomial(n, positive), 1e-9 * p_of_binomial(n, positive)) << n;
      EXPECT_EQ(test.draws, 0u);
      EXPECT_EQ(test.standard_error, 0);
    }
  }
}

TEST(SignFlip, OneSignedDataReachTheSmallestPAtEveryExactSize) {
  for (std::size_t n = 2; n <= kExactSignFlipMax; n += 3) {
    std::vector<double> d;
    for (std::size_t i = 0; i < n; ++i) d.push_back(-0.01 * static_cast<double>(i + 1));
    EXPECT_DOUBLE_EQ(p_of(d), smallest_sign_flip_p(n)) << n;
  }
}

TEST(SignFlip, ZerosRaiseTheSmallestPThatCanBeReached) {
  const SignFlip test = sign_flip_test(std::vector<double>{1, 2, 4, 0, 0});
  EXPECT_DOUBLE_EQ(test.smallest_p, 0.25);
  EXPECT_DOUBLE_EQ(test.p, 0.25);
}

TEST(SignFlip, NeitherTheUnitNorTheLimitsOfADoubleMatter) {
  for (const double unit : {1e-320, 1e-300, 1.0, 2e307}) {
    const std::vector<double> d = {1 * unit, 2 * unit, -4 * unit, 8 * unit};
    EXPECT_DOUBLE_EQ(p_of(d), p_of({1, 2, -4, 8})) << unit;
  }
}

TEST(SignFlip, SamplesLargeSetsAndSaysHow) {
  const std::vector<double> d(kExactSignFlipMax + 1, 1.0);
  const SignFlip test = sign_flip_test(d);
  EXPECT_EQ(test.draws, kSampledPatterns);
  // 2 / 2^29 is far below one of 100,000 samples.
  EXPECT_DOUBLE_EQ(test.p, 1.0 / (kSampledPatterns + 1));
  EXPECT_DOUBLE_EQ(test.smallest_p, test.p);
  EXPECT_GT(test.standard_error, 0);
  EXPECT_EQ(sign_flip_test(d).p, test.p) << "the sample is seeded";
}

TEST(SignFlip, TheSampledValueAgreesWithTheBinomialWithinItsStandardError) {
  for (const auto& [n, positive] : {std::pair{40, 27}, {40, 21}, {100, 62}, {1000, 540}}) {
    const SignFlip test = sign_flip_test(ones(n, positive));
    ASSERT_GT(test.draws, 0u);
    EXPECT_NEAR(test.p, p_of_binomial(n, positive), 5 * test.standard_error) << n;
  }
}

TEST(SignFlip, ALargePIsFoundWithFewDraws) {
  const SignFlip test = sign_flip_test(ones(60, 31));
  EXPECT_LT(test.draws, 10'000u);
  EXPECT_LT(test.standard_error, 0.02);
}

TEST(SignFlip, TwentyFiveSeedsCostLittle) {
  // 400 candidates took 4.9 s once; a machine under load gets 20 times what is needed.
  Rng rng(3);
  const SystemClock clock;
  const auto begin = clock.now_ms();
  double sum = 0;
  for (int candidate = 0; candidate < 400; ++candidate) {
    std::vector<double> d;
    for (int i = 0; i < 25; ++i) d.push_back(rng.normal() - 0.1);
    sum += p_of(d);
  }
  EXPECT_GT(sum, 0);
  EXPECT_LT(clock.now_ms() - begin, 10'000);
}

}  // namespace
}  // namespace tailor::analysis
