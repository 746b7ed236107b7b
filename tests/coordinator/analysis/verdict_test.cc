// Verdicts in words, and what a sweep can tell before it starts.
#include "coordinator/analysis/verdict.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

#include "coordinator/analysis/power.h"

namespace tailor::analysis {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

/// n differences with this mean and SD.
std::vector<double> differences_of(std::size_t n, double mean, double sd) {
  std::vector<double> d(n, 0.0);
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) {
    d[i] = static_cast<double>(i) - (static_cast<double>(n) - 1) / 2;
    squares += d[i] * d[i];
  }
  for (double& v : d) v = mean + v * sd / std::sqrt(squares / (static_cast<double>(n) - 1));
  return d;
}

VerdictInput input_of(const PairedSummary& paired) {
  VerdictInput input;
  input.paired = &paired;
  input.seeds = static_cast<std::uint32_t>(paired.n);
  input.p = paired.p_t;
  input.family_tests = 1;
  return input;
}

TEST(Verdict, SaysHowManyMoreSeedsWouldResolveWhatMatters) {
  // SD .02 at n = 3: a difference of .02 needs 10 pairs (power by numerical integration in scipy).
  const PairedSummary paired = summarize_pairs(differences_of(3, -0.004, 0.02));
  PowerTable power;
  const Verdict verdict = judge(input_of(paired), power);
  EXPECT_EQ(verdict.code, VerdictCode::kNotDistinguishable);
  EXPECT_EQ(verdict.seeds_needed, 10u);
  EXPECT_NEAR(verdict.detectable.value(), 3.26404354957 * 0.02, 1e-9);
  EXPECT_THAT(verdict.text,
              AllOf(HasSubstr("not distinguishable at n = 3; about 7 more seeds would resolve 0.02 "
                              "nats"),
                    HasSubstr("t-test p ="), HasSubstr("which cannot go below 0.25")));
}

TEST(Verdict, PutsTheVectorOfTheScientificBriefIntoWords) {
  const PairedSummary paired =
      summarize_pairs(std::vector<double>{-.017, -.021, -.016, -.017, -.024});
  EXPECT_NEAR(paired.p_t.value(), 0.0002335434, 1e-10);
  EXPECT_DOUBLE_EQ(paired.wilcoxon->p, 0.0625);
  EXPECT_DOUBLE_EQ(paired.sign_test->p, 0.0625);
  PowerTable power;
  VerdictInput input = input_of(paired);
  input.primary = true;
  const Verdict verdict = judge(input, power);
  EXPECT_EQ(verdict.code, VerdictCode::kLower);
  EXPECT_THAT(verdict.text,
              HasSubstr("better: mean paired difference -0.019 nats (95 % CI [-0.02321, "
                        "-0.01479], n = 5, 5/5 negative)"));
  EXPECT_THAT(verdict.text, HasSubstr("t-test p = 0.000234, the primary comparison, not adjusted; "
                                      "sign-flip p = 0.0625, which cannot go below 0.0625"));
}

TEST(Verdict, UsesTheAdjustedPOfItsFamily) {
  const PairedSummary paired = summarize_pairs(differences_of(5, 0.01, 0.006));
  ASSERT_LT(paired.p_t.value(), 0.05);
  PowerTable power;
  VerdictInput input = input_of(paired);
  EXPECT_EQ(judge(input, power).code, VerdictCode::kHigher);
  input.family_tests = 12;
  input.p = 0.21;
  const Verdict verdict = judge(input, power);
  EXPECT_EQ(verdict.code, VerdictCode::kNotDistinguishable);
  EXPECT_THAT(verdict.text, HasSubstr("adjusted by Holm over 12 comparisons"));
  EXPECT_THAT(verdict.text, HasSubstr("would have been found with 80 % power or more"));
}

TEST(Verdict, HasNoneWhereSeedsFailedAndSaysSo) {
  PairedSummary paired = summarize_pairs(differences_of(3, -0.05, 0.001));
  drop_tests(paired);
  PowerTable power;
  VerdictInput input = input_of(paired);
  input.incomplete = true;
  input.seeds = 5;
  input.failed = 2;
  const Verdict verdict = judge(input, power);
  EXPECT_EQ(verdict.code, VerdictCode::kIncomplete);
  EXPECT_THAT(verdict.text, HasSubstr("no verdict: of 5 seeds 2 failed; of those left the mean"));
}

TEST(Verdict, FewOrEqualDifferencesAndOtherObjectives) {
  PowerTable power;
  const PairedSummary one = summarize_pairs(std::vector<double>{-0.5});
  EXPECT_EQ(judge(input_of(one), power).code, VerdictCode::kTooFew);
  const PairedSummary none = summarize_pairs({});
  EXPECT_EQ(judge(input_of(none), power).code, VerdictCode::kNone);
  const PairedSummary equal = summarize_pairs(std::vector<double>{.25, .25, .25});
  EXPECT_THAT(judge(input_of(equal), power).text, HasSubstr("all differences are equal"));
  const PairedSummary up = summarize_pairs(differences_of(9, 100, 10));
  VerdictInput input = input_of(up);
  input.is_loss = false;
  const Verdict verdict = judge(input, power);
  EXPECT_EQ(verdict.code, VerdictCode::kHigher);
  EXPECT_THAT(verdict.text, AllOf(HasSubstr("higher: mean"), Not(HasSubstr("nats"))));
}

TEST(Verdict, MoreThanAThousandSeedsIsSaidSo) {
  PowerTable power;
  const PairedSummary wide = summarize_pairs(differences_of(4, 0.1, 1));
  const Verdict verdict = judge(input_of(wide), power);
  EXPECT_TRUE(verdict.seeds_beyond);
  EXPECT_FALSE(verdict.seeds_needed.has_value());
  EXPECT_THAT(verdict.text, HasSubstr("more than 1000 seeds"));
}

TEST(Power, SeedsAreThoseOfAnIndependentIntegration) {
  // The power by numerical integration over the sample SD's chi distribution in scipy.
  PowerTable power;
  EXPECT_EQ(power.seeds_for(0.02 / 0.015), 7u);
  EXPECT_EQ(power.seeds_for(1.0), 10u);
  EXPECT_EQ(power.seeds_for(0.02 / 0.05), 52u);
  EXPECT_EQ(power.seeds_for(0.5), 34u);
  EXPECT_EQ(power.seeds_for(0.1), 787u);
  EXPECT_EQ(power.seeds_for(0.05), std::nullopt);
  EXPECT_NEAR(power.effect_sd(5), 1.681996965955567, 1e-9);
  EXPECT_NEAR(power.effect_sd(10), 0.9960013714555517, 1e-9);
}

TEST(Prospect, SaysBeforeASweepWhatItsSeedsCanTell) {
  const Prospect p = prospect_of(5, 12, "", 0.02, 0.02);
  EXPECT_EQ(p.comparisons, 12u);
  EXPECT_NEAR(p.sd_that_resolves, 0.02 / 1.681996965955567, 1e-9);
  EXPECT_NEAR(p.detectable.value(), 0.02 * 1.681996965955567, 1e-9);
  EXPECT_EQ(p.seeds_needed, 10u);
  EXPECT_DOUBLE_EQ(p.holm_smallest_p, 0.75);
  EXPECT_DOUBLE_EQ(p.westfall_young_smallest_p, 0.0625);
  EXPECT_EQ(p.holm_seeds, 9u) << "12 x 2 / 512 = .047";
  EXPECT_THAT(prospect_text(p),
              Contains(AllOf(HasSubstr("cannot go below 0.75"), HasSubstr("never reach 0.05"),
                             HasSubstr("from 9 seeds on"), HasSubstr("[compare] primary"))));
  const Prospect marked = prospect_of(5, 12, "rule", 0.02, {});
  EXPECT_EQ(marked.comparisons, 11u);
  EXPECT_THAT(prospect_text(marked), Contains(HasSubstr("\"rule\" is the primary comparison")));
  EXPECT_THAT(prospect_text(prospect_of(1, 2, "", 0.02, {})),
              Contains(HasSubstr("no interval and no test")));
}

}  // namespace
}  // namespace tailor::analysis
