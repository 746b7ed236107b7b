// Width sweeps: simulated layers whose demand, exponent and difficulty are known.
#include "coordinator/analysis/calibration.h"

#include <gmock/gmock.h>

#include <cmath>

#include "base/rng.h"

namespace tailor::analysis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct TrueLayer {
  double difficulty, exponent;
};

constexpr std::int64_t kBase = 1024;

/// L = 3 + sum_l difficulty_l (w_l / 1024)^-exponent_l + noise of the seed (shared by its runs, and
/// large) + noise of the run.
WidthSweep simulated(const std::vector<TrueLayer>& layers, const std::vector<std::int64_t>& widths,
                     std::uint64_t seeds, double noise, Rng& rng) {
  WidthSweep out;
  out.base.assign(layers.size(), kBase);
  double base = 3;
  for (const TrueLayer& layer : layers) base += layer.difficulty;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const double of_seed = 0.1 * rng.normal();
    out.runs.push_back({std::nullopt, seed, base + of_seed + noise * rng.normal()});
    for (std::size_t l = 0; l < layers.size(); ++l) {
      for (const std::int64_t width : widths) {
        const double change =
            layers[l].difficulty *
            (std::pow(static_cast<double>(width) / kBase, -layers[l].exponent) - 1);
        out.runs.push_back({LayerWidth{static_cast<std::int32_t>(l), width}, seed,
                            base + change + of_seed + noise * rng.normal()});
      }
    }
  }
  return out;
}

TEST(Calibration, WithoutNoiseExponentDemandAndDifficultyAreRecovered) {
  Rng rng(1);
  const std::vector<TrueLayer> truth = {{0.2, 0.25}, {0.05, 1}, {0.01, 2.5}};
  const WidthSweep sweep = simulated(truth, {256, 512, 2048, 4096}, 3, 0, rng);
  const Calibration out = calibrate(sweep).value();
  ASSERT_THAT(out.layers, SizeIs(3));
  for (std::size_t l = 0; l < truth.size(); ++l) {
    const LayerCalibration& layer = out.layers[l];
    EXPECT_NEAR(*layer.exponent.value, truth[l].exponent, 1e-5);
    EXPECT_NEAR(*layer.demand.value, truth[l].exponent * truth[l].difficulty, 1e-6);
    EXPECT_NEAR(*layer.difficulty.value, truth[l].difficulty, 1e-5);
    EXPECT_NEAR(layer.rms_residual, 0, 1e-8);
    EXPECT_THAT(layer.seeds, ElementsAre(1, 2, 3));
    ASSERT_THAT(layer.points, SizeIs(4));
  }
  // By hand: halving the width of the second layer costs 0.05 (2^1 - 1) nats.
  EXPECT_NEAR(out.layers[1].points[1].difference, 0.05, 1e-9);
}

TEST(Calibration, AnInverseSquareIsFittedThroughHandMadeLosses) {
  // D(w) = 0.3 ((w / 100)^-2 - 1): at 50 0.9, at 200 -0.225. Demand 0.6.
  WidthSweep sweep;
  sweep.base = {100};
  for (const std::uint64_t seed : {1u, 2u}) {
    const double of_seed = seed == 1 ? 0 : 0.5;
    sweep.runs.push_back({std::nullopt, seed, 4 + of_seed});
    sweep.runs.push_back({LayerWidth{0, 50}, seed, 4.9 + of_seed});
    sweep.runs.push_back({LayerWidth{0, 200}, seed, 3.775 + of_seed});
  }
  const Calibration out = calibrate(sweep).value();
  EXPECT_NEAR(*out.layers[0].exponent.value, 2, 1e-5);
  EXPECT_NEAR(*out.layers[0].demand.value, 0.6, 1e-5);
  EXPECT_NEAR(*out.layers[0].difficulty.value, 0.3, 1e-5);
  EXPECT_THAT(out.layers[0].note, HasSubstr("nothing tests the form"));
}

TEST(Calibration, NinetyFivePerCentIntervalsCoverTheTruthInSimulation) {
  // Noise far below the seeds' own spread of 0.1, as pairing makes it; three layers at once.
  const std::vector<TrueLayer> truth = {{0.05, 0.5}, {0.1, 0.3}, {0.05, 1}};
  for (const std::uint64_t seeds : {3u, 5u, 10u}) {
    Rng rng(77 + seeds);
    int demand = 0, exponent = 0, difficulty = 0, known_exponent = 0, known_difficulty = 0, all = 0;
    for (int draw = 0; draw < 500; ++draw) {
      const auto out =
          calibrate(simulated(truth, {256, 512, 2048, 4096}, seeds, 0.0015, rng)).value();
      for (std::size_t l = 0; l < truth.size(); ++l) {
        const LayerCalibration& layer = out.layers[l];
        const auto holds = [](const Calibrated& number, double value) {
          return *number.low <= value && value <= *number.high;
        };
        ++all;
        demand += holds(layer.demand, truth[l].exponent * truth[l].difficulty);
        if (layer.exponent.value) {
          ++known_exponent;
          exponent += holds(layer.exponent, truth[l].exponent);
        }
        if (layer.difficulty.low) {
          ++known_difficulty;
          difficulty += holds(layer.difficulty, truth[l].difficulty);
        }
      }
    }
    // 1,500 draws: the share's own standard error is 0.006.
    const auto share = [](int part, int of) { return static_cast<double>(part) / of; };
    EXPECT_GE(share(demand, all), 0.93) << seeds;
    EXPECT_LE(share(demand, all), 0.97) << seeds;
    EXPECT_GE(share(exponent, known_exponent), 0.93) << seeds;
    EXPECT_LE(share(exponent, known_exponent), 0.97) << seeds;
    EXPECT_GE(share(known_exponent, all), 0.95) << seeds;
    EXPECT_GE(share(difficulty, known_difficulty), 0.93) << seeds;
    EXPECT_LE(share(difficulty, known_difficulty), 0.97) << seeds;
  }
}

TEST(Calibration, ALayerWhoseWidthDoesNothingHasADemandButNoExponent) {
  int refused = 0;
  for (std::uint64_t draw = 0; draw < 100; ++draw) {
    Rng rng(draw);
    const auto out = calibrate(simulated({{0, 1}}, {256, 512, 2048}, 5, 0.002, rng)).value();
    EXPECT_TRUE(out.layers[0].demand.low.has_value());
    if (out.layers[0].exponent.value) continue;
    ++refused;
    EXPECT_FALSE(out.layers[0].difficulty.value.has_value());
    EXPECT_FALSE(out.layers[0].exponent.no_value.empty());
    EXPECT_THAT(out.layers[0].difficulty.no_value, HasSubstr("no exponent"));
  }
  EXPECT_GE(refused, 90) << "5 % of the intervals may leave out 0";
}

TEST(Calibration, AnExponentNearZeroRefusesTheDifficultyAlone) {
  // D = -0.02 ln(w / 1024): the power law's limit, whose difficulty has no bound.
  Rng rng(5);
  WidthSweep sweep;
  sweep.base = {kBase};
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    sweep.runs.push_back({std::nullopt, seed, 3 + 0.001 * rng.normal()});
    for (const std::int64_t width : {256, 512, 2048, 4096}) {
      sweep.runs.push_back(
          {LayerWidth{0, width}, seed,
           3 - 0.02 * std::log(static_cast<double>(width) / kBase) + 0.001 * rng.normal()});
    }
  }
  const LayerCalibration layer = calibrate(sweep).value().layers[0];
  EXPECT_NEAR(*layer.demand.value, 0.02, 0.002);
  ASSERT_TRUE(layer.exponent.value.has_value());
  EXPECT_LT(*layer.exponent.low, 0);
  EXPECT_GT(*layer.exponent.high, 0);
  EXPECT_FALSE(layer.difficulty.value.has_value());
  EXPECT_THAT(layer.difficulty.no_value, HasSubstr("no bound"));
}

TEST(Calibration, OneSeedGivesNumbersWithoutErrors) {
  Rng rng(2);
  const auto out = calibrate(simulated({{0.1, 1}}, {512, 2048}, 1, 0, rng)).value();
  EXPECT_NEAR(*out.layers[0].exponent.value, 1, 1e-5);
  EXPECT_FALSE(out.layers[0].exponent.low.has_value());
  EXPECT_EQ(out.layers[0].exponent.no_error, "one seed");
}

TEST(Calibration, SeedsThatMissARunAreLeftOutAndFailedOnesTakeTheErrors) {
  Rng rng(3);
  WidthSweep sweep = simulated({{0.1, 1}, {0.1, 1}}, {512, 2048}, 4, 0.001, rng);
  for (WidthRun& run : sweep.runs) {
    if (run.seed == 2 && run.change && run.change->layer == 1 && run.change->width == 512) {
      run.loss.reset();
      run.failed = true;
    }
  }
  const auto out = calibrate(sweep).value();
  EXPECT_TRUE(out.layers[0].demand.low.has_value()) << "the other layer is not touched";
  EXPECT_THAT(out.layers[1].seeds, ElementsAre(1, 3, 4));
  EXPECT_EQ(out.layers[1].seeds_left_out, 1u);
  EXPECT_FALSE(out.layers[1].demand.low.has_value());
  EXPECT_THAT(out.layers[1].demand.no_error, HasSubstr("1 runs failed"));
}

TEST(Calibration, OneWidthBesideTheBaseIsTooLittle) {
  Rng rng(4);
  const auto out = calibrate(simulated({{0.1, 1}}, {512}, 4, 0.001, rng)).value();
  EXPECT_FALSE(out.layers[0].demand.value.has_value());
  EXPECT_THAT(out.layers[0].exponent.no_value, HasSubstr("two are the least"));
}

TEST(Calibration, FittedAndMeasuredAreCorrelatedOverLayersWithAnErrorOverSeeds) {
  Rng rng(6);
  std::vector<TrueLayer> truth;
  MeasuredSeries work{"hyperbolic", "topology", {}}, dimension{"raw", "two_nn", {}};
  const double difficulties[] = {0.4, 0.3, 0.22, 0.15, 0.1, 0.07};
  const double exponents[] = {0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
  for (int l = 0; l < 6; ++l) {
    truth.push_back({difficulties[l], exponents[l]});
    work.by_seed[1].push_back(10 * difficulties[l]);
    dimension.by_seed[1].push_back(2 / exponents[l]);
  }
  WidthSweep sweep = simulated(truth, {256, 512, 2048, 4096}, 5, 0.0002, rng);
  sweep.work = {work};
  sweep.dimensions = {dimension};
  const auto out = calibrate(sweep).value();
  ASSERT_THAT(out.correlations, SizeIs(3));
  for (const CalibrationCorrelation& one : out.correlations) {
    ASSERT_TRUE(one.rho.value.has_value()) << one.fitted << ": " << one.rho.no_value;
    EXPECT_NEAR(*one.rho.value, 1, 1e-12) << one.fitted << ": both are in the same order";
    EXPECT_TRUE(one.rho.standard_error.has_value());
    // Of six shifts only the one by nothing reaches it.
    EXPECT_NEAR(one.p_shift, 1.0 / 6, 1e-12);
  }
  // A layer without an exponent leaves no correlation of exponents.
  sweep.runs.clear();
  truth[3].difficulty = 0;
  Rng other(8);
  sweep.runs = simulated(truth, {256, 512, 2048, 4096}, 5, 0.0002, other).runs;
  const auto refused = calibrate(sweep).value();
  if (!refused.layers[3].exponent.value) {
    EXPECT_FALSE(refused.correlations[2].rho.value.has_value());
    EXPECT_THAT(refused.correlations[2].rho.no_value, HasSubstr("layer 3 has no exponent"));
  }
  EXPECT_TRUE(refused.correlations[0].rho.value.has_value()) << "demand is known everywhere";
}

TEST(Calibration, WhatIsNoWidthSweepIsRefused) {
  WidthSweep sweep;
  sweep.base = {8, 8};
  sweep.runs = {{std::nullopt, 1, 2.0}};
  EXPECT_THAT(calibrate(sweep).error().message(), HasSubstr("no candidate differs"));
  sweep.runs = {{LayerWidth{0, 4}, 1, 2.0}};
  EXPECT_THAT(calibrate(sweep).error().message(), HasSubstr("the base has no loss"));
  sweep.runs = {{std::nullopt, 1, 2.0}, {LayerWidth{2, 4}, 1, 2.0}};
  EXPECT_EQ(calibrate(sweep).error().code(), Code::kInvalidArgument);
  sweep.runs = {{std::nullopt, 1, 2.0}, {std::nullopt, 1, 2.5}};
  EXPECT_THAT(calibrate(sweep).error().message(), HasSubstr("two trials of seed 1"));
  sweep.runs = {{std::nullopt, 1, std::nan("")}};
  EXPECT_THAT(calibrate(sweep).error().message(), HasSubstr("not a finite number"));
}

TEST(Calibration, OnlyTheWidthsOfOneLayerMayDifferFromTheBase) {
  shape::Architecture base;
  base.d_model = 64;
  base.heads = base.kv_heads = 2;
  base.head_dim = 32;
  base.vocab_size = 256;
  base.ffn_kind = shape::FfnKind::kHourglass;
  base.widths = shape::uniform_widths(3, 2, 24);
  shape::Architecture other = base;
  EXPECT_FALSE(differing_layer(base, other).has_value()) << "nothing differs";
  other.widths[1] = {12, 12};
  ASSERT_TRUE(differing_layer(base, other).has_value());
  EXPECT_EQ(differing_layer(base, other)->layer, 1);
  EXPECT_EQ(differing_layer(base, other)->width, 24) << "both sub-MLPs together";
  other.d_model = 128;
  EXPECT_FALSE(differing_layer(base, other).has_value());
  other = base;
  other.widths[0] = {12, 12};
  other.widths[2] = {48, 48};
  EXPECT_FALSE(differing_layer(base, other).has_value());
}

}  // namespace
}  // namespace tailor::analysis
