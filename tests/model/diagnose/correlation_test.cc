// Correlations of profiles: values of scipy 1.17, exact small cases, and how often the p-values are
// small where there is nothing.
#include "model/diagnose/correlation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace tailor::diagnose {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<double> kX = {0.9,  0.62, 0.48, 0.40, 0.34, 0.30,
                                0.27, 0.25, 0.24, 0.24, 0.26, 0.33};
const std::vector<double> kY = {1.2, 2.0, 0.8, 0.9, 0.7, 0.5, 0.65, 0.4, 0.3, 0.45, 0.35, 0.6};

TEST(Correlation, EqualValuesShareTheMeanOfTheirRanks) {
  EXPECT_THAT(ranks(kX), ElementsAre(12, 11, 10, 9, 8, 6, 5, 3, 1.5, 1.5, 4, 7));
  EXPECT_THAT(ranks(std::vector<double>{2, 2, 2}), ElementsAre(2, 2, 2));
  EXPECT_TRUE(ranks(std::vector<double>{}).empty());
}

TEST(Correlation, IsThatOfScipy) {
  EXPECT_NEAR(*spearman(kX, kY), 0.9281975705483088, 1e-13);
  EXPECT_NEAR(*pearson(kX, kY), 0.7591538469572362, 1e-13);
  EXPECT_NEAR(*correlation(CorrelationKind::kPearsonLog, kX, kY), 0.8670040804018014, 1e-13);
  EXPECT_NEAR(*correlation(CorrelationKind::kSpearman, kX, kY), 0.9281975705483088, 1e-13);
}

TEST(Correlation, GivenDepthIsTheTextbooksPartialCorrelation) {
  const auto rank = correlate(CorrelationKind::kSpearman, kX, kY, 1, 100);
  ASSERT_TRUE(rank.has_value());
  EXPECT_NEAR(*rank->partial, 0.7821608416839, 1e-12);
  const auto logs = correlate(CorrelationKind::kPearsonLog, kX, kY, 1, 100);
  EXPECT_NEAR(*logs->partial, 0.6128227839533197, 1e-12);
}

TEST(Correlation, CircularShiftsCountTheUnshiftedOne) {
  // The eleven other shifts give .68, .25, ... .83: none reaches .93.
  const auto found = correlate(CorrelationKind::kSpearman, kX, kY, 1, 100);
  EXPECT_DOUBLE_EQ(found->p_shift, 1.0 / 12);
  // y = 1 0 1 0 correlates as strongly after every shift.
  const std::vector<double> wave = {2, 1, 2, 1};
  EXPECT_DOUBLE_EQ(correlate(CorrelationKind::kPearsonLog, wave, wave, 1, 100)->p_shift, 1.0);
}

TEST(Correlation, OfEqualOrderIsOneWhateverTheScale) {
  std::vector<double> cubed;
  for (const double x : kX) cubed.push_back(7 * x * x * x);
  EXPECT_NEAR(*spearman(kX, cubed), 1, 1e-14);
  EXPECT_NEAR(*correlation(CorrelationKind::kPearsonLog, kX, cubed), 1, 1e-13);
  EXPECT_LT(*pearson(kX, cubed), 0.99);
}

TEST(Correlation, TheNaivePIsTheShareOfPermutations) {
  // Of 3! = 6 orders of three layers two are as strong: in order, and reversed.
  const std::vector<double> three = {1, 2, 3};
  const auto found = correlate(CorrelationKind::kSpearman, three, three, 5, 20'000);
  EXPECT_NEAR(found->p_naive, 2.0 / 6, 0.01);
}

TEST(Correlation, WhereThereIsNothingShiftsAreRightAndPermutationsAreNot) {
  // Two smooth profiles that have nothing to do with each other: both periodic, so that shifts
  // change nothing of how they are made. Layers resemble their neighbours.
  constexpr int kLayers = 24;
  constexpr int kTrials = 400;
  Rng rng(7);
  const auto smooth = [&] {
    std::vector<double> noise(kLayers), out(kLayers, 0.0);
    for (double& value : noise) value = rng.normal();
    for (int l = 0; l < kLayers; ++l) {
      for (int k = 0; k < 6; ++k) out[static_cast<std::size_t>(l)] += noise[(l + k) % kLayers];
    }
    return out;
  };
  int naive = 0, shift = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const auto x = smooth(), y = smooth();
    const auto found = correlate(CorrelationKind::kSpearman, x, y, 1, 400);
    ASSERT_TRUE(found.has_value());
    naive += found->p_naive <= 0.05 ? 1 : 0;
    shift += found->p_shift <= 0.05 ? 1 : 0;
  }
  EXPECT_GT(naive, kTrials * 0.2);              // five times too often and more
  EXPECT_NEAR(shift, kTrials / 24.0, 3 * 4.1);  // 1 of 24 shifts; 3 standard deviations
}

TEST(Correlation, SaysWhyThereIsNone) {
  const std::vector<double> flat(12, 3.0);
  EXPECT_THAT(spearman(kX, flat).error().message(), HasSubstr("same value"));
  EXPECT_THAT(pearson(kX, std::vector<double>{1, 2}).error().message(), HasSubstr("12 values"));
  EXPECT_THAT(spearman(std::vector<double>{1, 2}, std::vector<double>{1, 2}).error().message(),
              HasSubstr("at least 3"));
  std::vector<double> negative = kY;
  negative[4] = -0.01;
  EXPECT_THAT(correlation(CorrelationKind::kPearsonLog, kX, negative).error().message(),
              HasSubstr("the sensitivity of layer 4"));
  EXPECT_TRUE(correlation(CorrelationKind::kSpearman, kX, negative).has_value());
  std::vector<double> broken = kY;
  broken[2] = std::nan("");
  EXPECT_THAT(spearman(kX, broken).error().message(), HasSubstr("layer 2"));
}

TEST(Correlation, OfWhatFollowsDepthExactlyHasNoPartOfItsOwn) {
  std::vector<double> depth(12);
  std::iota(depth.begin(), depth.end(), 1.0);
  const auto found = correlate(CorrelationKind::kSpearman, depth, kY, 1, 100);
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->partial.error().message(), HasSubstr("follows depth"));
}

TEST(Jackknife, OfAMeanIsItsStandardError) {
  const std::vector<double> values = {1, 2, 4, 8, 16};
  std::vector<double> without;
  const double sum = 31;
  for (const double value : values) without.push_back((sum - value) / 4);
  double squares = 0;
  for (const double value : values) squares += (value - 6.2) * (value - 6.2);
  EXPECT_NEAR(*jackknife_error(without), std::sqrt(squares / 4 / 5), 1e-14);
}

TEST(Jackknife, OfOneGroupIsAbsent) {
  EXPECT_THAT(jackknife_error(std::vector<double>{1}).error().message(),
              HasSubstr("1 independent group"));
  EXPECT_FALSE(jackknife_error(std::vector<double>{1, std::nan("")}).has_value());
}

TEST(Quantile, IsNumpys) {
  const std::vector<double> values = {3, 1, 4, 1, 5, 9, 2, 6};
  EXPECT_DOUBLE_EQ(quantile(values, 0.05), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 3.5);
  EXPECT_NEAR(quantile(values, 0.95), 7.95, 1e-12);
  EXPECT_DOUBLE_EQ(quantile({2.5}, 0.3), 2.5);
}

}  // namespace
}  // namespace tailor::diagnose
