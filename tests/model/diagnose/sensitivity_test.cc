// Slopes, additivity and their errors, on losses whose form is known.
#include "model/diagnose/sensitivity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

namespace tailor::diagnose {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Loss of each sequence under a probe, nats a token, over a clean loss of 3.
using LossChange = std::function<double(const Probe& probe, int sequence)>;

ProbeResults results_of(int layers, const ProbeOptions& options, int sequences,
                        const LossChange& change) {
  ProbeResults results;
  results.scored_tokens = 10;
  results.clean.assign(static_cast<std::size_t>(sequences), 30.0);
  results.probes = plan_probes(layers, options);
  for (const Probe& probe : results.probes) {
    std::vector<double>& losses = results.losses.emplace_back();
    for (int s = 0; s < sequences; ++s) losses.push_back(30.0 + 10 * change(probe, s));
  }
  return results;
}

Sensitivity sensitivity_of(int layers, const ProbeOptions& options, int sequences,
                           const LossChange& change) {
  auto found = Sensitivity::create(results_of(layers, options, sequences, change), layers, options);
  EXPECT_TRUE(found.has_value());
  return std::move(*found);
}

TEST(PlanProbes, HasEveryLayerEpsAndDrawAndDistinctSubsets) {
  ProbeOptions options;
  options.kinds = {Perturbation::kRelative, Perturbation::kAttenuation, Perturbation::kAblation};
  const auto probes = plan_probes(12, options);
  std::size_t single[4] = {};
  std::map<std::size_t, std::set<std::vector<int>>> subsets;
  for (const Probe& probe : probes) {
    EXPECT_TRUE(std::is_sorted(probe.layers.begin(), probe.layers.end()));
    if (probe.layers.size() == 1) {
      ++single[static_cast<int>(probe.kind)];
    } else {
      EXPECT_EQ(probe.kind, Perturbation::kRelative);
      subsets[probe.layers.size()].insert(probe.layers);
    }
  }
  EXPECT_EQ(single[static_cast<int>(Perturbation::kRelative)], 12u * 3 * 4);
  EXPECT_EQ(single[static_cast<int>(Perturbation::kAttenuation)], 12u * 3);
  EXPECT_EQ(single[static_cast<int>(Perturbation::kAblation)], 12u);
  EXPECT_EQ(subsets[2].size(), 20u);
  EXPECT_EQ(subsets[4].size(), 20u);
  EXPECT_EQ(subsets[8].size(), 20u);
  EXPECT_EQ(subsets[12].size(), 1u);  // all layers: one subset, every draw
  EXPECT_TRUE(std::is_sorted(probes.begin(), probes.end(), [](const Probe& a, const Probe& b) {
    return a.layers.front() < b.layers.front();
  }));
  EXPECT_EQ(probes, plan_probes(12, options));
  options.seed = 1;
  EXPECT_NE(probes, plan_probes(12, options));
}

TEST(PlanProbes, OfFewLayersHasNoSubsetTwice) {
  ProbeOptions options;
  std::set<std::vector<int>> pairs;
  for (const Probe& probe : plan_probes(3, options)) {
    if (probe.layers.size() == 2 && probe.eps == 0.05) {
      EXPECT_TRUE(pairs.insert(probe.layers).second);
    }
  }
  EXPECT_EQ(pairs.size(), 3u);  // all there are
  for (const Probe& probe : plan_probes(1, options)) EXPECT_EQ(probe.layers.size(), 1u);
}

TEST(FitSlope, FindsTheQuadraticAndTheLinearPart) {
  const std::vector<double> eps = {0.05, 0.1, 0.2};
  std::vector<double> quadratic, both;
  for (const double e : eps) {
    quadratic.push_back(3 * e * e);
    both.push_back(0.5 * e + 3 * e * e);
  }
  const SlopeFit pure = fit_slope(eps, quadratic);
  EXPECT_NEAR(pure.slope, 3, 1e-12);
  EXPECT_NEAR(pure.r_squared, 1, 1e-12);
  EXPECT_NEAR(pure.linear, 0, 1e-12);
  const SlopeFit mixed = fit_slope(eps, both);
  EXPECT_NEAR(mixed.linear, 0.5, 1e-12);
  EXPECT_GT(mixed.slope, 5);  // the linear part leans on the slope through the origin
  EXPECT_LT(mixed.r_squared, 0.999);
  // By hand: sum eps^2 y / sum eps^4 with y = 1 at eps 1, 2: (1 + 4) / 17.
  const SlopeFit hand = fit_slope({1, 2}, {1, 1});
  EXPECT_NEAR(hand.slope, 5.0 / 17, 1e-14);
  EXPECT_NEAR(hand.r_squared, 1 - (144.0 + 9.0) / 289 / 2, 1e-14);
}

TEST(Sensitivity, OfAQuadraticIsItsSlopeWithoutError) {
  ProbeOptions options;
  const auto found = sensitivity_of(6, options, 5, [](const Probe& probe, int) {
    double sum = 0;
    for (const int layer : probe.layers) sum += (layer + 1) * probe.eps * probe.eps;
    return sum;
  });
  const auto layers = found.layers(Perturbation::kRelative);
  ASSERT_EQ(layers.size(), 6u);
  for (int l = 0; l < 6; ++l) {
    const LayerSensitivity& layer = layers[static_cast<std::size_t>(l)];
    EXPECT_NEAR(*layer.lambda.value, l + 1, 1e-9);
    EXPECT_NEAR(*layer.lambda.standard_error, 0, 1e-9);
    EXPECT_NEAR(*layer.r_squared, 1, 1e-9);
    EXPECT_NEAR(*layer.linear.value, 0, 1e-9);
    EXPECT_NEAR(*layer.loss_changes[1].value, (l + 1) * 0.01, 1e-10);
  }
  // A quadratic without terms between layers is additive exactly.
  for (const AdditivitySummary& summary : found.additivity()) {
    EXPECT_NEAR(*summary.median.value, 1, 1e-9) << summary.eps << " " << summary.size;
    EXPECT_NEAR(*summary.low, 1, 1e-9);
    EXPECT_NEAR(*summary.high, 1, 1e-9);
    if (summary.size == 6) continue;  // one subset: its draws have one place on the line
    EXPECT_NEAR(*summary.r_squared, 1, 1e-9);
  }
  EXPECT_TRUE(*found.locally_additive());
  EXPECT_NEAR(*found.clean_loss().value, 3, 1e-12);
}

TEST(Sensitivity, ErrorsHoldSequencesAndDraws) {
  // Change = (2 + a_sequence + b_draw) eps^2: the slope's error is that of both means.
  ProbeOptions options;
  options.subsets = 0;
  const double a[] = {-0.3, 0.1, 0.2};
  const double b[] = {-0.5, 0.1, 0.2, 0.2};
  const auto found = sensitivity_of(2, options, 3, [&](const Probe& probe, int sequence) {
    return (2 + a[sequence] + b[probe.draw]) * probe.eps * probe.eps;
  });
  double over_sequences = 0, over_draws = 0;
  for (const double value : a) over_sequences += value * value / 2 / 3;
  for (const double value : b) over_draws += value * value / 3 / 4;
  const auto layers = found.layers(Perturbation::kRelative);
  EXPECT_NEAR(*layers[0].lambda.value, 2, 1e-9);
  EXPECT_NEAR(*layers[0].lambda.standard_error, std::sqrt(over_sequences + over_draws), 1e-9);
}

TEST(Sensitivity, OfOneSequenceOrOneDrawHasNoErrorAndSaysWhy) {
  ProbeOptions options;
  options.subsets = 0;
  const auto quadratic = [](const Probe& probe, int) { return probe.eps * probe.eps; };
  const auto one = sensitivity_of(2, options, 1, quadratic).layers(Perturbation::kRelative);
  EXPECT_TRUE(one[0].lambda.value.has_value());
  EXPECT_FALSE(one[0].lambda.standard_error.has_value());
  EXPECT_THAT(one[0].lambda.reason, HasSubstr("one sequence"));
  options.draws = 1;
  const auto drawn = sensitivity_of(2, options, 3, quadratic).layers(Perturbation::kRelative);
  EXPECT_THAT(drawn[0].lambda.reason, HasSubstr("one draw"));
  options.kinds = {Perturbation::kAttenuation};  // has no draws to vary over
  const auto fixed = sensitivity_of(2, options, 3, quadratic).layers(Perturbation::kAttenuation);
  EXPECT_TRUE(fixed[0].lambda.standard_error.has_value());
}

TEST(Sensitivity, OfAblationIsTheLossChange) {
  ProbeOptions options;
  options.kinds = {Perturbation::kRelative, Perturbation::kAblation};
  const auto found = sensitivity_of(4, options, 3, [](const Probe& probe, int) {
    return probe.kind == Perturbation::kAblation ? probe.layers.front() + 0.25 : 0.0;
  });
  const auto layers = found.layers(Perturbation::kAblation);
  EXPECT_NEAR(*layers[2].lambda.value, 2.25, 1e-12);
  EXPECT_FALSE(layers[2].linear.value.has_value());
  EXPECT_THAT(found.lambdas(Perturbation::kAblation).value(), ElementsAre(0.25, 1.25, 2.25, 3.25));
}

TEST(Sensitivity, ALossThatIsNotFiniteIsAbsentWithItsLayer) {
  ProbeOptions options;
  const auto found = sensitivity_of(4, options, 3, [](const Probe& probe, int) {
    const bool broken = probe.layers.front() == 2 && probe.eps == 0.2;
    return broken ? std::numeric_limits<double>::quiet_NaN() : probe.eps;
  });
  const auto layers = found.layers(Perturbation::kRelative);
  EXPECT_TRUE(layers[1].lambda.value.has_value());
  EXPECT_FALSE(layers[2].lambda.value.has_value());
  EXPECT_THAT(layers[2].lambda.reason, HasSubstr("layer 2"));
  EXPECT_FALSE(found.lambdas(Perturbation::kRelative).has_value());
}

TEST(Sensitivity, ACleanLossThatIsNotFiniteIsAnError) {
  ProbeOptions options;
  ProbeResults results = results_of(3, options, 2, [](const Probe&, int) { return 0.0; });
  results.clean[1] = std::numeric_limits<double>::infinity();
  const auto found = Sensitivity::create(results, 3, options);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), Code::kOutOfRange);
}

TEST(Additivity, LayersThatShareTheirDamageAreNotAdditive) {
  // The square of the sum: k equal layers give k^2 instead of k.
  ProbeOptions options;
  const auto found = sensitivity_of(12, options, 3, [](const Probe& probe, int) {
    const double sum = static_cast<double>(probe.layers.size()) * probe.eps;
    return sum * sum;
  });
  for (const AdditivitySummary& summary : found.additivity()) {
    if (summary.size == 0) continue;  // all sizes together
    EXPECT_NEAR(*summary.median.value, summary.size, 1e-9);
  }
  EXPECT_FALSE(*found.locally_additive());
}

TEST(Additivity, IsJudgedAtTheSmallestEpsThatIsSeen) {
  // At .05 nothing but noise, at .1 additive, at .2 not.
  ProbeOptions options;
  const auto found = sensitivity_of(12, options, 4, [](const Probe& probe, int sequence) {
    const auto size = static_cast<double>(probe.layers.size());
    if (probe.eps == 0.05) return size * (sequence % 2 == 0 ? 0.1 : -0.1);
    return probe.eps == 0.1 ? 0.01 * size : 0.04 * size * size;
  });
  EXPECT_TRUE(*found.locally_additive());
}

TEST(Additivity, OfNothingButNoiseCannotBeSaid) {
  ProbeOptions options;
  const auto found = sensitivity_of(8, options, 4, [&](const Probe& probe, int sequence) {
    return static_cast<double>(probe.layers.size()) * (sequence % 2 == 0 ? 0.1 : -0.1);
  });
  const auto verdict = found.locally_additive();
  ASSERT_FALSE(verdict.has_value());
  EXPECT_THAT(verdict.error().message(), HasSubstr("3 standard errors"));
}

TEST(ProbeOptions, WrongOnesAreNamed) {
  const auto message = [](const std::function<void(ProbeOptions&)>& change) {
    ProbeOptions options;
    change(options);
    return options.validate().message();
  };
  EXPECT_EQ(message([](ProbeOptions&) {}), "");
  EXPECT_THAT(message([](ProbeOptions& o) { o.eps = {0.1, 0.05}; }), HasSubstr("ascend"));
  EXPECT_THAT(message([](ProbeOptions& o) { o.draws = 0; }), HasSubstr("0 draws"));
  EXPECT_THAT(message([](ProbeOptions& o) { o.subset_sizes = {1}; }), HasSubstr("1 layers"));
  EXPECT_THAT(message([](ProbeOptions& o) { o.kinds.clear(); }), HasSubstr("no perturbation"));
  EXPECT_THAT(parse_perturbation("loud").error().message(), HasSubstr("attenuation"));
  for (const Perturbation kind : kPerturbations) {
    EXPECT_EQ(*parse_perturbation(perturbation_name(kind)), kind);
  }
}

}  // namespace
}  // namespace tailor::diagnose
