// Paired statistics against science.md 6 and closed forms.
#include "coordinator/analysis/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tailor::analysis {
namespace {

const std::vector<double> kUniform = {3.441, 3.470, 3.425, 3.463, 3.446};
const std::vector<double> kRule = {3.424, 3.449, 3.409, 3.446, 3.422};

std::vector<double> published_differences() {
  std::vector<double> d;
  for (std::size_t i = 0; i < kRule.size(); ++i) d.push_back(kRule[i] - kUniform[i]);
  return d;
}

TEST(Paired, GivesTheVectorOfTheScientificBrief) {
  const PairedSummary s = summarize_pairs(published_differences());
  EXPECT_EQ(s.n, 5u);
  EXPECT_NEAR(s.mean, -0.019, 1e-12);
  EXPECT_NEAR(s.sd.value(), 0.0033911650, 1e-10);
  EXPECT_NEAR(s.t.value(), -12.5282289945, 1e-8);
  EXPECT_NEAR(s.ci_low.value(), -0.0232106875, 1e-9);
  EXPECT_NEAR(s.ci_high.value(), -0.0147893125, 1e-9);
  EXPECT_DOUBLE_EQ(s.p_sign_flip.value(), 0.0625);
  EXPECT_TRUE(s.p_exact);
  EXPECT_EQ(s.negative, 5u);
  EXPECT_EQ(s.positive, 0u);
}

TEST(Paired, OneDifferenceHasNoSpreadAndNoEvidence) {
  const PairedSummary s = summarize_pairs(std::vector<double>{-0.5});
  EXPECT_DOUBLE_EQ(s.mean, -0.5);
  EXPECT_FALSE(s.sd.has_value());
  EXPECT_FALSE(s.ci_low.has_value());
  EXPECT_DOUBLE_EQ(s.p_sign_flip.value(), 1.0);
}

TEST(Paired, NoDifferencesSayNothing) {
  const PairedSummary s = summarize_pairs({});
  EXPECT_EQ(s.n, 0u);
  EXPECT_FALSE(s.p_sign_flip.has_value());
}

TEST(Paired, EqualDifferencesHaveAnIntervalOfWidthZeroAndNoTStatistic) {
  const PairedSummary s = summarize_pairs(std::vector<double>{0.25, 0.25, 0.25});
  EXPECT_DOUBLE_EQ(s.sd.value(), 0.0);
  EXPECT_FALSE(s.t.has_value());
  EXPECT_DOUBLE_EQ(s.ci_low.value(), 0.25);
  EXPECT_DOUBLE_EQ(s.ci_high.value(), 0.25);
  EXPECT_DOUBLE_EQ(s.p_sign_flip.value(), 0.25);
}

TEST(SignFlip, ZeroDifferencesGiveOne) {
  EXPECT_DOUBLE_EQ(sign_flip_p(std::vector<double>{0, 0, 0, 0}), 1.0);
}

TEST(SignFlip, CountsPatternsAsDoneByHand) {
  // 1, 2, -4: |sum| = 1. Signed sums: +-7, +-5, +-3, +-1, so all 8 are at least 1.
  EXPECT_DOUBLE_EQ(sign_flip_p(std::vector<double>{1, 2, -4}), 1.0);
  // 1, 2, 4: |sum| = 7 is reached by 2 of 8.
  EXPECT_DOUBLE_EQ(sign_flip_p(std::vector<double>{1, 2, 4}), 0.25);
  // -1, 2, 4: |sum| = 5 is reached by +-7 and +-5: 4 of 8.
  EXPECT_DOUBLE_EQ(sign_flip_p(std::vector<double>{-1, 2, 4}), 0.5);
}

TEST(SignFlip, TiesCountDespiteRounding) {
  // 0.1 + 0.2 - 0.3 is not 0 in binary, but the observed pattern
  // and its mirror tie with many others.
  EXPECT_DOUBLE_EQ(sign_flip_p(std::vector<double>{0.1, 0.2, 0.3}), 0.25);
  EXPECT_DOUBLE_EQ(sign_flip_p(std::vector<double>{0.1, 0.2, -0.3}), 1.0);
}

TEST(SignFlip, OneSignedDataReachTheSmallestPAtEveryExactSize) {
  for (std::size_t n = 2; n <= kExactSignFlipMax; n += 3) {
    std::vector<double> d;
    for (std::size_t i = 0; i < n; ++i) d.push_back(-0.01 * static_cast<double>(i + 1));
    EXPECT_DOUBLE_EQ(sign_flip_p(d), smallest_sign_flip_p(n)) << n;
  }
}

TEST(SignFlip, SamplesLargeSetsAndSaysSo) {
  std::vector<double> d(21, 1.0);
  const PairedSummary s = summarize_pairs(d);
  EXPECT_FALSE(s.p_exact);
  // 2 / 2^21 is far below one of 100,000 samples: at most a few hits.
  EXPECT_LT(s.p_sign_flip.value(), 1e-4);
  EXPECT_GT(s.p_sign_flip.value(), 0.0);
  EXPECT_EQ(sign_flip_p(d), sign_flip_p(d)) << "the sample is seeded";
}

TEST(SignFlip, TheSampledValueAgreesWithTheBinomial) {
  // 24 differences of size 1, 17 positive: |sum| = 10, so p = P(|2B - 24| >= 10), B ~ Bin(24, 1/2).
  std::vector<double> d(17, 1.0);
  d.resize(24, -1.0);
  double tail = 0;
  for (int k = 0; k <= 24; ++k) {
    if (std::abs(2 * k - 24) < 10) continue;
    tail += std::exp(std::lgamma(25.0) - std::lgamma(k + 1.0) - std::lgamma(25.0 - k) -
                     24 * std::log(2.0));
  }
  EXPECT_NEAR(sign_flip_p(d), tail, 5 * std::sqrt(tail / 100'000));
}

TEST(Holm, AdjustsAsInTheTextbookExample) {
  // Holm (1979): p = .01, .04, .03, .005 give .03, .06, .06, .02.
  const std::vector<std::optional<double>> p = {0.01, 0.04, 0.03, 0.005};
  const auto adjusted = holm_adjust(p);
  EXPECT_NEAR(adjusted[0].value(), 0.03, 1e-15);
  EXPECT_NEAR(adjusted[1].value(), 0.06, 1e-15);
  EXPECT_NEAR(adjusted[2].value(), 0.06, 1e-15);
  EXPECT_NEAR(adjusted[3].value(), 0.02, 1e-15);
}

TEST(Holm, LeavesMissingTestsOutAndNeverExceedsOne) {
  const std::vector<std::optional<double>> p = {std::nullopt, 0.7, 0.9};
  const auto adjusted = holm_adjust(p);
  EXPECT_FALSE(adjusted[0].has_value());
  EXPECT_DOUBLE_EQ(adjusted[1].value(), 1.0);
  EXPECT_DOUBLE_EQ(adjusted[2].value(), 1.0);
}

TEST(SmallestP, IsTheOneOfTheScientificBrief) {
  EXPECT_DOUBLE_EQ(smallest_sign_flip_p(3), 0.25);
  EXPECT_DOUBLE_EQ(smallest_sign_flip_p(5), 0.0625);
  EXPECT_DOUBLE_EQ(smallest_sign_flip_p(6), 0.03125);
  EXPECT_DOUBLE_EQ(smallest_sign_flip_p(1), 1.0);
}

}  // namespace
}  // namespace tailor::analysis
