// BCa intervals against all resamples, scipy 1.17, and their coverage.
#include "coordinator/analysis/bca.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"

namespace tailor::analysis {
namespace {

TEST(Bca, AgreesWithAllResamplesOfSixDifferences) {
  // All 6^6 resamples in numpy: z0 .0303597, a .0259304, ends -.0313333 and -.0025; the resampled
  // means have the SD .0072855. 10,000 draws find an end to about 3 % of it.
  const std::vector<double> d = {-.031, .012, -.044, -.007, -.025, -.018};
  const BcaInterval interval = bca_interval(d).value();
  constexpr double kSd = 0.0072855;
  EXPECT_NEAR(interval.bias, 0.0303597, 0.05);
  EXPECT_NEAR(interval.acceleration, 0.025930410183560525, 1e-12);
  EXPECT_NEAR(interval.low, -0.0313333, 0.12 * kSd);
  EXPECT_NEAR(interval.high, -0.0025, 0.12 * kSd);
}

TEST(Bca, AgreesWithScipyOnSkewedDifferences) {
  // scipy.stats.bootstrap(n_resamples=999999, method="BCa"): [-.23233, 3.01574], SD .75633.
  std::vector<double> d;
  for (const double v : {.1, .9, -1.2, .4, 1.7, -.3, .8, 2.1, -.6, .2})
    d.push_back(std::exp(v) - 1.5);
  const BcaInterval interval = bca_interval(d).value();
  EXPECT_NEAR(interval.low, -0.23233, 0.1 * 0.756);
  EXPECT_NEAR(interval.high, 3.01574, 0.2 * 0.756);
  const BcaInterval again = bca_interval(d).value();
  EXPECT_EQ(interval.low, again.low) << "the seed is fixed";
  EXPECT_EQ(interval.high, again.high);
}

TEST(Bca, ThereIsNoneForFewOrEqualDifferencesOrBeyondADouble) {
  EXPECT_FALSE(bca_interval(std::vector<double>{1, 2, 3, 4, 5}).has_value());
  EXPECT_FALSE(bca_interval(std::vector<double>(9, 0.25)).has_value());
  EXPECT_FALSE(
      bca_interval(std::vector<double>{1.7e308, -1.7e308, 1e308, -1e308, 0, 1.6e308}).has_value());
}

TEST(Bca, CoversAboutWhatItSaysAndLessForFewDifferences) {
  // For normal differences the interval is nearly mean +- 1.96 s sqrt((n - 1) / n) / sqrt n, which
  // covers P(|t_{n-1}| < 1.96 sqrt((n - 1) / n)): .866 at n = 6, .929 at n = 20. Of 300 samples the
  // standard errors are .020 and .015; the bounds are about four of them away.
  Rng rng(23);
  const auto coverage = [&](std::size_t n) {
    int covered = 0;
    for (int sample = 0; sample < 300; ++sample) {
      std::vector<double> d;
      for (std::size_t i = 0; i < n; ++i) d.push_back(0.3 + rng.normal());
      const BcaInterval interval = bca_interval(d).value();
      covered += interval.low <= 0.3 && 0.3 <= interval.high ? 1 : 0;
    }
    return covered / 300.0;
  };
  const double six = coverage(6), twenty = coverage(20);
  EXPECT_GT(six, 0.79);
  EXPECT_LT(six, 0.94);
  EXPECT_GT(twenty, 0.87);
  EXPECT_LT(twenty, 0.985);
}

}  // namespace
}  // namespace tailor::analysis
