// Laws over sizes: the fit against scipy, exact laws, outliers, coverage of the bands; the scaling
// comparison of a sweep's rows.
#include "coordinator/analysis/scaling.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "base/clock.h"
#include "base/rng.h"

namespace tailor::analysis {
namespace {

using storage::TrialRow;
using storage::TrialState;
using testing::AllOf;
using testing::HasSubstr;

TEST(PowerLaw, IsTheLeastSquaresFitOfAnIndependentSolver) {
  // scipy.optimize.least_squares from six starts: E 2.85532579, A .71040234 at the geometric mean
  // of the sizes, alpha .3295556, RMS .0014249587.
  const PowerLaw law = fit_power_law(std::vector<double>{1e6, 3e6, 1e7, 3e7},
                                     std::vector<double>{4.10, 3.72, 3.44, 3.26});
  EXPECT_NEAR(law.irreducible, 2.85532579, 1e-6);
  EXPECT_NEAR(law.coefficient, 0.71040234, 1e-6);
  EXPECT_NEAR(law.exponent, 0.3295556, 1e-6);
  EXPECT_NEAR(law.rms_residual, 0.0014249587, 1e-9);
  EXPECT_NEAR(law.unit, std::sqrt(3e6 * 1e7) * 1.0, 1e-3);
}

TEST(PowerLaw, FindsAnExactLawAndItsInverse) {
  Rng rng(6);
  for (int round = 0; round < 50; ++round) {
    const double e = 1 + 2 * rng.uniform(), a = 0.2 + rng.uniform(), alpha = 0.05 + rng.uniform();
    std::vector<double> x, loss;
    for (const double size : {1e6, 4e6, 1.5e7}) {
      x.push_back(size);
      loss.push_back(e + a * std::pow(size / 4e6, -alpha));
    }
    const PowerLaw law = fit_power_law(x, loss);
    EXPECT_NEAR(law.exponent, alpha, 1e-4);
    EXPECT_NEAR(law.at(2e6), e + a * std::pow(0.5, -alpha), 1e-6);
    EXPECT_NEAR(law.inverse(law.at(7e6)).value() / 7e6, 1, 1e-9);
    EXPECT_FALSE(law.inverse(law.irreducible - 0.1).has_value());
  }
}

TEST(PowerLaw, LossesThatDoNotFallHaveNoExponent) {
  const PowerLaw law =
      fit_power_law(std::vector<double>{1, 2, 4}, std::vector<double>{3.0, 3.1, 3.2});
  EXPECT_FALSE(law.decreasing);
  EXPECT_NEAR(law.at(3), 3.1, 1e-9);
  EXPECT_FALSE(law.inverse(3.05).has_value());
}

TEST(HuberCentre, IsTheMeanOfWhatIsNearAndHardlyMovedByOneThatIsFar) {
  EXPECT_NEAR(huber_centre(std::vector<double>{1, 2, 3, 4}, 10), 2.5, 1e-12);
  EXPECT_NEAR(huber_centre(std::vector<double>{1, 2, 6}, 0), 3, 1e-12);
  // 3.40 and 9.0 are beyond 1.345 x .01 of the centre c and weigh -.01345 and +.01345, so
  // (3.41 - c) + (3.42 - c) + (3.43 - c) = 0.
  EXPECT_NEAR(huber_centre(std::vector<double>{3.40, 3.41, 3.42, 3.43, 9.0}, 0.01), 3.42, 1e-9);
}

/// Losses of a baseline and of a family that needs `gain` less compute, with a part of the noise
/// shared by all sizes and families of a seed.
std::vector<Curve> simulated(Rng& rng, std::size_t sizes, std::size_t seeds, double sd,
                             double advantage) {
  std::vector<Curve> curves(2);
  std::vector<double> shared;
  for (std::size_t i = 0; i < seeds; ++i) shared.push_back(sd * rng.normal());
  for (std::size_t s = 0; s < sizes; ++s) {
    const double x =
        1e14 * std::pow(100.0, static_cast<double>(s) / (static_cast<double>(sizes) - 1));
    for (std::size_t c = 0; c < 2; ++c) {
      const double reached = c == 0 ? x * advantage : x;
      curves[c].x.push_back(x);
      curves[c].losses.emplace_back();
      for (std::size_t i = 0; i < seeds; ++i) {
        curves[c].losses.back().push_back(2 + 1.5 * std::pow(reached / 1e15, -0.15) + shared[i] +
                                          0.7 * sd * rng.normal());
      }
    }
  }
  return curves;
}

TEST(JointLaws, BandsCoverTheLawTheExponentAndTheGain) {
  // 120 sweeps of 4 sizes x 5 seeds; the standard error of a coverage of .95 is .02. (200 sweeps
  // each of 3 and 4 sizes with 3, 5 and 10 seeds gave .905 to .99.)
  Rng rng(41);
  constexpr int kSweeps = 120;
  int loss = 0, end = 0, exponent = 0, gain = 0;
  const auto covers = [](const JointLaws::Spread& spread, double truth) {
    return spread.estimate && spread.estimate->low && *spread.estimate->low <= truth &&
                   truth <= *spread.estimate->high
               ? 1
               : 0;
  };
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    const JointLaws laws(simulated(rng, 4, 5, 0.01, 1.25), 150, 5);
    const auto at = [&](double x) {
      return laws.spread([x](auto all) { return std::optional(all[1].at(x)); }, false);
    };
    loss += covers(at(1e15), 3.5);
    end += covers(at(1e16), 2 + 1.5 * std::pow(10.0, -0.15));
    exponent +=
        covers(laws.spread([](auto all) { return std::optional(all[1].exponent); }, true), 0.15);
    gain += covers(laws.spread(
                       [](auto all) -> std::optional<double> {
                         const auto needed = all[1].inverse(all[0].at(1e15));
                         if (!needed) return std::nullopt;
                         return *needed / 1e15;
                       },
                       true),
                   1.25);
  }
  for (const int covered : {loss, end, exponent, gain}) {
    EXPECT_GE(covered / static_cast<double>(kSweeps), 0.95 - 4 * 0.02);
  }
}

TEST(JointLaws, SameLossesSameAnswerAndOneSeedHasNoBand) {
  Rng rng(2);
  const auto curves = simulated(rng, 3, 4, 0.01, 1);
  const auto spread = [&](const JointLaws& laws) {
    return laws.spread([](auto all) { return std::optional(all[0].at(1e15)); }, false);
  };
  const JointLaws first(curves, 100, 5), second(curves, 100, 5);
  EXPECT_EQ(*spread(first).estimate->low, *spread(second).estimate->low);
  const JointLaws one(simulated(rng, 3, 1, 0.01, 1), 100, 5);
  EXPECT_EQ(one.resamples(), 0u);
  EXPECT_FALSE(spread(one).estimate->low.has_value());
}

TEST(JointLaws, WhatIsOftenUndefinedHasNoInterval) {
  Rng rng(2);
  const JointLaws laws(simulated(rng, 3, 4, 0.01, 1), 100, 5);
  int calls = 0;
  const auto spread = laws.spread(
      [&](auto all) -> std::optional<double> {
        if (++calls % 5 == 2) return std::nullopt;
        return all[0].exponent;
      },
      true);
  EXPECT_NEAR(spread.undefined_share, 0.2, 1e-12);
  EXPECT_FALSE(spread.estimate->low.has_value());
}

/// Two families at `sizes` sizes; candidate = family x sizes + size.
ScalingDesign design_of(std::size_t sizes, std::size_t families = 2) {
  ScalingDesign design;
  for (std::size_t f = 0; f < families; ++f) design.families.push_back("f" + std::to_string(f));
  design.baseline = "f0";
  for (std::size_t s = 0; s < sizes; ++s) design.sizes.push_back("s" + std::to_string(s));
  for (std::size_t f = 0; f < families; ++f) {
    for (std::size_t s = 0; s < sizes; ++s) {
      ScalingPoint point;
      point.name = design.families[f] + " @ " + design.sizes[s];
      point.candidate = static_cast<std::uint32_t>(f * sizes + s);
      point.parameters_body = static_cast<std::int64_t>(1'000'000 * std::pow(4.0, s));
      point.flops = 1e14 * std::pow(16.0, s);
      design.points.push_back(point);
    }
  }
  return design;
}

std::vector<TrialRow> trials_of(const ScalingDesign& design, std::uint64_t seeds, double sd,
                                double advantage) {
  Rng rng(77);
  std::vector<TrialRow> trials;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const double shared = sd * rng.normal();
    for (const ScalingPoint& point : design.points) {
      const bool base = point.name.starts_with("f0");
      TrialRow row;
      row.id = TrialId{trials.size() + 1};
      row.candidate = *point.candidate;
      row.seed = seed;
      row.state = TrialState::kCompleted;
      const double reached = base ? point.flops : point.flops * advantage;
      row.objective =
          2 + 1.5 * std::pow(reached / 1.6e15, -0.15) + shared + 0.3 * sd * rng.normal();
      trials.push_back(row);
    }
  }
  return trials;
}

TEST(Scaling, AFamilyThatNeedsLessComputeIsFoundWithItsInterval) {
  const ScalingDesign design = design_of(4);
  const auto table = compare_scaling(design, trials_of(design, 5, 0.004, 1.5), {}).value();
  ASSERT_EQ(table.families.size(), 2u);
  const ScalingFamily& base = table.families[0];
  const ScalingFamily& other = table.families[1];
  EXPECT_TRUE(base.gains.empty());
  EXPECT_EQ(base.seeds.size(), 5u);
  ASSERT_TRUE(other.in_parameters.has_value());
  EXPECT_NEAR(other.in_parameters->exponent.value, 0.3, 0.1);  // flops ~ parameters^2 here
  EXPECT_NEAR(other.in_compute->exponent.value, 0.15, 0.06);
  EXPECT_EQ(other.in_compute->band.size(), static_cast<std::size_t>(kBandPoints));
  ASSERT_EQ(other.gains.size(), 5u);
  EXPECT_EQ(other.gains[0].at, "middle");
  EXPECT_NEAR(other.gains[0].flops / std::sqrt(1e14 * 1e14 * 4096), 1, 1e-9);
  EXPECT_NEAR(other.gains[0].gain->value, 0.5, 0.15);
  EXPECT_LT(*other.gains[0].gain->low, 0.5);
  EXPECT_GT(*other.gains[0].gain->high, 0.5);
  EXPECT_TRUE(other.gains.back().extrapolated) << "the largest size reaches beyond the baseline's";
  EXPECT_EQ(other.verdict, ScalingVerdict::kMoreEfficient);
  EXPECT_THAT(other.text, AllOf(HasSubstr("more efficient: compute-efficiency gain over \"f0\" +"),
                                HasSubstr("n = 5 seeds, 2000 paired bootstrap resamples")));
  EXPECT_EQ(other.sizes[1].paired.n, 5u);
  EXPECT_LT(other.sizes[1].paired.mean, 0);
  // Turned round, the same says the opposite.
  const auto turned = compare_scaling(design, trials_of(design, 5, 0.004, 1.5), {}, "f1").value();
  EXPECT_EQ(turned.families[0].verdict, ScalingVerdict::kLessEfficient);
}

TEST(Scaling, EqualFamiliesAreNotDistinguishable) {
  const ScalingDesign design = design_of(3);
  const auto table = compare_scaling(design, trials_of(design, 3, 0.02, 1.02), {}).value();
  EXPECT_EQ(table.families[1].verdict, ScalingVerdict::kNotDistinguishable);
  EXPECT_THAT(table.families[1].text, HasSubstr("not distinguishable: compute-efficiency gain"));
  EXPECT_THAT(table.families[1].in_compute->note, HasSubstr("nothing tests the law's form"));
}

TEST(Scaling, FailedSeedsAreCountedAndTakeTheVerdict) {
  const ScalingDesign design = design_of(3);
  std::vector<TrialRow> trials = trials_of(design, 4, 0.004, 1.5);
  trials[4].state = TrialState::kFailed;  // f1 @ s1, seed 1
  trials[4].end_class = protocol::EndClass::kNan;
  trials[4].objective.reset();
  const auto table = compare_scaling(design, trials, {}).value();
  const ScalingFamily& other = table.families[1];
  EXPECT_TRUE(other.incomplete);
  EXPECT_EQ(other.seeds, (std::vector<std::uint64_t>{2, 3, 4}));
  EXPECT_EQ(other.seeds_left_out, 1u);
  EXPECT_EQ(other.sizes[1].failed, 1u);
  EXPECT_FALSE(other.sizes[1].paired.sign_flip.has_value());
  EXPECT_EQ(other.verdict, ScalingVerdict::kNone);
  EXPECT_THAT(other.text, HasSubstr("no verdict: seeds failed or were stopped early"));
  EXPECT_EQ(table.families[0].seeds.size(), 4u);
  // A baseline that lost seeds of its own takes everybody's verdict.
  const auto turned = compare_scaling(design, trials, {}, "f1").value();
  EXPECT_EQ(turned.families[0].verdict, ScalingVerdict::kNone);
  EXPECT_THAT(turned.families[0].text, HasSubstr("the baseline's seeds failed"));
}

TEST(Scaling, SeedsTrainedOnDifferentDataAreLeftOut) {
  const ScalingDesign design = design_of(3);
  const std::vector<TrialRow> trials = trials_of(design, 4, 0.004, 1.5);
  std::vector<Provenance> provenance;
  for (const TrialRow& trial : trials) {
    provenance.push_back({trial.id, trial.seed == 2 && trial.candidate == 0 ? "b" : "a", "1"});
  }
  const auto table = compare_scaling(design, trials, provenance).value();
  EXPECT_EQ(table.families[0].seeds, (std::vector<std::uint64_t>{1, 3, 4}));
  EXPECT_EQ(table.families[1].seeds.size(), 4u);
  EXPECT_EQ(table.families[1].gain_seeds, 3u);
  EXPECT_EQ(table.families[1].sizes[0].paired.n, 3u);
}

TEST(Scaling, WithoutLossesSizesOrFamiliesThereAreWordsAndNoLaw) {
  ScalingDesign design = design_of(3);
  const auto empty = compare_scaling(design, {}, {}).value();
  EXPECT_THAT(empty.families[0].note, HasSubstr("none has finished at every size"));
  EXPECT_FALSE(empty.families[1].in_compute.has_value());
  design.points[4].candidate.reset();
  const auto missing = compare_scaling(design, trials_of(design_of(3), 3, 0.01, 1), {}).value();
  EXPECT_THAT(missing.families[1].note, HasSubstr("no candidate at s1"));
  const auto two = compare_scaling(design_of(2), trials_of(design_of(2), 3, 0.01, 1), {}).value();
  EXPECT_THAT(two.families[0].note, HasSubstr("2 different sizes"));
  EXPECT_EQ(compare_scaling({}, {}, {}).error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(compare_scaling(design, {}, {}, "f").error().message(), HasSubstr("f0, f1"));
}

TEST(Scaling, OneSeedGivesALawWithoutBandAndNoVerdict) {
  const ScalingDesign design = design_of(3);
  const auto table = compare_scaling(design, trials_of(design, 1, 0.01, 1.5), {}).value();
  EXPECT_FALSE(table.families[1].in_compute->exponent.low.has_value());
  EXPECT_THAT(table.families[1].text, HasSubstr("one seed has no interval"));
}

TEST(Scaling, TheLargestSweepTakesNoMinutes) {
  // 16 families x 16 sizes x 1,000 seeds: 256,000 trials. A few seconds when optimised and alone.
  const ScalingDesign design = design_of(16, 16);
  const auto trials = trials_of(design, 1'000, 0.01, 1.1);
  const SystemClock clock;
  const MonotonicMs begin = clock.now_ms();
  const auto table = compare_scaling(design, trials, {}).value();
  EXPECT_LT(clock.now_ms() - begin, 120'000);
  EXPECT_EQ(table.resamples, kScalingResamplesMin);
  EXPECT_EQ(table.families[15].gains.size(), 17u);
}

}  // namespace
}  // namespace tailor::analysis
