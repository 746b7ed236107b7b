// Paired statistics against science.md 6 and closed forms.
#include "coordinator/analysis/paired.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/rng.h"
#include "base/stats.h"

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
  EXPECT_DOUBLE_EQ(s.sign_flip->p, 0.0625);
  EXPECT_EQ(s.sign_flip->draws, 0u);
  EXPECT_EQ(s.negative, 5u);
  EXPECT_EQ(s.positive, 0u);
}

TEST(Paired, TheIntervalCoversTheTrueMean) {
  // 4,000 samples of five normal differences: the standard error of .95 is .0035.
  Rng rng(5);
  int covered = 0;
  for (int sample = 0; sample < 4'000; ++sample) {
    std::vector<double> d;
    for (int i = 0; i < 5; ++i) d.push_back(-0.02 + 0.01 * rng.normal());
    const PairedSummary s = summarize_pairs(d, critical_t(5));
    covered += *s.ci_low <= -0.02 && -0.02 <= *s.ci_high ? 1 : 0;
  }
  EXPECT_NEAR(covered / 4'000.0, 0.95, 4 * 0.0035);
}

TEST(Paired, OneDifferenceHasNoSpreadAndNoEvidence) {
  const PairedSummary s = summarize_pairs(std::vector<double>{-0.5});
  EXPECT_DOUBLE_EQ(s.mean, -0.5);
  EXPECT_FALSE(s.sd.has_value());
  EXPECT_FALSE(s.ci_low.has_value());
  EXPECT_DOUBLE_EQ(s.sign_flip->p, 1.0);
}

TEST(Paired, NoDifferencesSayNothing) {
  const PairedSummary s = summarize_pairs({});
  EXPECT_EQ(s.n, 0u);
  EXPECT_FALSE(s.sign_flip.has_value());
}

TEST(Paired, EqualDifferencesHaveAnIntervalOfWidthZeroAndNoTStatistic) {
  const PairedSummary s = summarize_pairs(std::vector<double>{0.25, 0.25, 0.25});
  EXPECT_DOUBLE_EQ(s.sd.value(), 0.0);
  EXPECT_FALSE(s.t.has_value());
  EXPECT_DOUBLE_EQ(s.ci_low.value(), 0.25);
  EXPECT_DOUBLE_EQ(s.ci_high.value(), 0.25);
  EXPECT_DOUBLE_EQ(s.sign_flip->p, 0.25);
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

TEST(Paired, DifferencesNearTheLimitOfADoubleGiveAnAnswer) {
  const PairedSummary one_sided = summarize_pairs(std::vector<double>{1.5e308, 1.6e308, 1.7e308});
  EXPECT_NEAR(one_sided.mean / 1.6e308, 1, 1e-12);
  EXPECT_DOUBLE_EQ(one_sided.sign_flip->p, 0.25);
  EXPECT_NEAR(one_sided.sd.value() / 1e307, 1, 1e-9);
  // +-1.7e308: the spread is finite, the ends of the interval are not.
  const PairedSummary both = summarize_pairs(std::vector<double>{1.7e308, -1.7e308});
  EXPECT_DOUBLE_EQ(both.mean, 0);
  EXPECT_FALSE(both.ci_low.has_value());
  EXPECT_FALSE(both.ci_high.has_value());
  EXPECT_DOUBLE_EQ(both.sign_flip->p, 1.0);
}

TEST(Resolution, IsTheOneOfTheScientificBrief) {
  EXPECT_DOUBLE_EQ(resolution_of(3).smallest_p, 0.25);
  EXPECT_DOUBLE_EQ(resolution_of(5).smallest_p, 0.0625);
  EXPECT_DOUBLE_EQ(resolution_of(6).smallest_p, 0.03125);
  // science.md 6: with n = 5 a mean of .019 needs SD(d) <= .0153.
  EXPECT_NEAR(resolution_of(5).half_width_sd, 2.7764451052 / std::sqrt(5.0), 1e-9);
  EXPECT_NEAR(0.019 / resolution_of(5).half_width_sd, 0.0153, 5e-5);
}

TEST(Resolution, OneSeedResolvesNothing) {
  const Resolution one = resolution_of(1);
  EXPECT_EQ(one.smallest_p, 1);
  EXPECT_TRUE(std::isinf(one.half_width_sd));
  EXPECT_TRUE(std::isinf(one.effect_sd));
}

TEST(Resolution, TheEffectIsFoundWithItsPowerAndNeedsMoreThanTheHalfWidth) {
  double last = 1e300;
  for (const std::size_t n : {2, 3, 5, 10, 34, 1000}) {
    const Resolution r = resolution_of(n);
    const auto seeds = static_cast<double>(n);
    EXPECT_NEAR(noncentral_t_two_sided_p(critical_t(n), seeds - 1, r.effect_sd * std::sqrt(seeds)),
                kPower, 1e-9);
    EXPECT_GT(r.effect_sd, r.half_width_sd) << n
                                            << ": a difference of the half-width itself is "
                                               "found about every other time only";
    EXPECT_LT(r.effect_sd, last);
    last = r.effect_sd;
  }
  // The textbook's 34 pairs for d = 0.5 (power .8078).
  EXPECT_LT(resolution_of(34).effect_sd, 0.5);
  EXPECT_GT(resolution_of(33).effect_sd, 0.5);
}

}  // namespace
}  // namespace tailor::analysis
