// The mathematics under the search algorithms, against values from elsewhere.
#include <gtest/gtest.h>

#include <cmath>

#include "coordinator/search/acquisition.h"
#include "coordinator/search/algorithms/sobol.h"
#include "coordinator/search/gaussian_process.h"
#include "coordinator/search/ranking.h"

namespace tailor::search {
namespace {

TEST(LogExpectedImprovement, HasTheRightValuesFarIntoTheTail) {
  EXPECT_NEAR(std::exp(log_h(0)), .398942280401, 1e-12);
  EXPECT_NEAR(log_h(-1), -2.48512102571, 1e-11);
  EXPECT_NEAR(log_h(-5), -16.7443011627, 1e-10);
  EXPECT_NEAR(log_h(-20), -206.917838509, 1e-9);
  // Without a jump or a NaN where the series takes over.
  EXPECT_NEAR(log_h(-999.999) + 0.5 * 999.999 * 999.999,
              log_h(-1000.001) + 0.5 * 1000.001 * 1000.001, 1e-5);
  EXPECT_TRUE(std::isfinite(log_h(-1e8)));
  EXPECT_DOUBLE_EQ(log_expected_improvement(2, 0, 3), 0);
  EXPECT_TRUE(std::isinf(log_expected_improvement(3, 0, 2)));
}

TEST(Hypervolume, OfTwoAndThreeCosts) {
  EXPECT_DOUBLE_EQ(hypervolume({{1, 3}, {2, 2}, {3, 1}}, std::vector<double>{4, 4}), 6);
  EXPECT_DOUBLE_EQ(hypervolume({{1, 1, 1}}, std::vector<double>{2, 2, 2}), 1);
  EXPECT_DOUBLE_EQ(hypervolume({{1, 1, 1}, {0, 1.5, 1.5}}, std::vector<double>{2, 2, 2}), 1.25);
  EXPECT_DOUBLE_EQ(hypervolume({{5, 0}, {std::nan(""), 1}}, std::vector<double>{4, 4}), 0);
}

TEST(Hypervolume, OfFourCostsIsThatOfTheUnionOfBoxes) {
  // Integer corners in a 5^4 lattice: the volume is the number of cells that some point dominates.
  Rng rng(11);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<double>> points;
    for (int i = 0; i < 6; ++i) {
      std::vector<double> point;
      for (int k = 0; k < 4; ++k) point.push_back(static_cast<double>(rng.below(5)));
      points.push_back(point);
    }
    int cells = 0;
    for (int cell = 0; cell < 625; ++cell) {
      const int corner[4] = {cell % 5, cell / 5 % 5, cell / 25 % 5, cell / 125};
      bool in = false;
      for (const auto& p : points) {
        in = in ||
             (p[0] <= corner[0] && p[1] <= corner[1] && p[2] <= corner[2] && p[3] <= corner[3]);
      }
      cells += in;
    }
    EXPECT_DOUBLE_EQ(hypervolume(points, std::vector<double>{5, 5, 5, 5}), cells);
  }
}

TEST(Fronts, NaNIsDominatedByEverything) {
  const auto fronts = sorted_fronts({{1, 2}, {2, 1}, {std::nan(""), 0}, {3, 3}, {1, std::nan("")}});
  ASSERT_GE(fronts.size(), 2u);
  EXPECT_EQ(fronts[0], (std::vector<std::size_t>{0, 1, 2}));  // 0 is the best second cost there is
  EXPECT_EQ(fronts[1], (std::vector<std::size_t>{3, 4}));
}

TEST(Sobol, IsTheSequenceOfJoeAndKuo) {
  // scipy 1.17.1, stats.qmc.Sobol(d=21, scramble=False), which goes in Gray code order.
  const auto at = [](std::uint32_t i, std::size_t axis) {
    return static_cast<double>(sobol_bits(i ^ (i >> 1), axis)) * 0x1.0p-32;  // Gray code order
  };
  EXPECT_DOUBLE_EQ(at(1, 1), 0.5);
  EXPECT_DOUBLE_EQ(at(1, 2), 0.5);
  EXPECT_DOUBLE_EQ(at(1, 4), 0.5);
  EXPECT_DOUBLE_EQ(at(1, 5), 0.5);
  EXPECT_DOUBLE_EQ(at(2, 1), 0.25);
  EXPECT_DOUBLE_EQ(at(2, 2), 0.25);
  EXPECT_DOUBLE_EQ(at(2, 4), 0.75);
  EXPECT_DOUBLE_EQ(at(2, 5), 0.75);
  EXPECT_DOUBLE_EQ(at(3, 1), 0.75);
  EXPECT_DOUBLE_EQ(at(3, 2), 0.75);
  EXPECT_DOUBLE_EQ(at(3, 4), 0.25);
  EXPECT_DOUBLE_EQ(at(3, 5), 0.25);
  EXPECT_DOUBLE_EQ(at(4, 1), 0.375);
  EXPECT_DOUBLE_EQ(at(4, 2), 0.625);
  EXPECT_DOUBLE_EQ(at(4, 4), 0.375);
  EXPECT_DOUBLE_EQ(at(4, 5), 0.125);
  EXPECT_DOUBLE_EQ(at(5, 1), 0.875);
  EXPECT_DOUBLE_EQ(at(5, 2), 0.125);
  EXPECT_DOUBLE_EQ(at(5, 4), 0.875);
  EXPECT_DOUBLE_EQ(at(5, 5), 0.625);
  EXPECT_DOUBLE_EQ(at(6, 1), 0.125);
  EXPECT_DOUBLE_EQ(at(6, 2), 0.875);
  EXPECT_DOUBLE_EQ(at(6, 4), 0.625);
  EXPECT_DOUBLE_EQ(at(6, 5), 0.875);
  EXPECT_DOUBLE_EQ(at(7, 1), 0.625);
  EXPECT_DOUBLE_EQ(at(7, 2), 0.375);
  EXPECT_DOUBLE_EQ(at(7, 4), 0.125);
  EXPECT_DOUBLE_EQ(at(7, 5), 0.375);
  EXPECT_DOUBLE_EQ(at(37, 9), 0.171875);
  EXPECT_DOUBLE_EQ(at(37, 13), 0.859375);
  EXPECT_DOUBLE_EQ(at(37, 17), 0.421875);
  EXPECT_DOUBLE_EQ(at(37, 20), 0.953125);
  EXPECT_DOUBLE_EQ(at(50, 9), 0.890625);
  EXPECT_DOUBLE_EQ(at(50, 13), 0.078125);
  EXPECT_DOUBLE_EQ(at(50, 17), 0.828125);
  EXPECT_DOUBLE_EQ(at(50, 20), 0.671875);
  EXPECT_DOUBLE_EQ(at(63, 9), 0.578125);
  EXPECT_DOUBLE_EQ(at(63, 13), 0.765625);
  EXPECT_DOUBLE_EQ(at(63, 17), 0.390625);
  EXPECT_DOUBLE_EQ(at(63, 20), 0.234375);
}

TEST(Sobol, ScramblingKeepsEveryAxisAndThe01PairEven) {
  for (const std::uint64_t seed : {1ull, 2ull, 3ull}) {
    for (std::size_t axis = 0; axis < 25; ++axis) {
      std::vector<int> cells(64, 0);
      for (std::uint32_t i = 0; i < 64; ++i) {
        ++cells[static_cast<std::size_t>(64 * scrambled_sobol(i, axis, seed))];
      }
      for (const int count : cells) EXPECT_EQ(count, 1) << axis;
    }
    std::vector<int> squares(64, 0);
    for (std::uint32_t i = 0; i < 64; ++i) {
      const auto x = static_cast<std::size_t>(8 * scrambled_sobol(i, 0, seed));
      const auto y = static_cast<std::size_t>(8 * scrambled_sobol(i, 1, seed));
      ++squares[8 * x + y];
    }
    for (const int count : squares) EXPECT_EQ(count, 1);
  }
}

sweep::Axis unit(std::string path) {
  sweep::Axis axis;
  axis.path = std::move(path);
  axis.max = 1;
  return axis;
}

TEST(GaussianProcess, HasTheGradientOfItsMarginalLikelihood) {
  const Space space({unit("x"), unit("y")});
  Rng rng(5);
  std::vector<Coordinates> x;
  std::vector<double> y;
  for (int i = 0; i < 15; ++i) {
    x.push_back({rng.uniform(), rng.uniform()});
    y.push_back(rng.normal());
  }
  GaussianProcess process(space, x, y);
  Hyperparameters h{{-0.7, 0.2}, 0.3, -2.0};
  std::vector<double> gradient;
  process.log_posterior(h, &gradient);
  ASSERT_EQ(gradient.size(), 4u);
  const double step = 1e-5;
  double* parts[4] = {&h.log_lengths[0], &h.log_lengths[1], &h.log_scale, &h.log_noise};
  for (std::size_t i = 0; i < 4; ++i) {
    const double middle = *parts[i];
    *parts[i] = middle + step;
    const double above = process.log_posterior(h);
    *parts[i] = middle - step;
    const double below = process.log_posterior(h);
    *parts[i] = middle;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 1e-5) << i;
  }
}

TEST(GaussianProcess, OfTwoPointsIsTheFormulaByHand) {
  // k(0.25, 0.75) with l = 0.5, s = 1: r = 1, (1 + sqrt5 + 5/3) exp(-sqrt5) = 0.523994.
  const Space space({unit("x")});
  GaussianProcess process(space, {{0.25}, {0.75}}, {1.0, -1.0});
  process.use({{std::log(0.5)}, 0, std::log(0.1)});
  const double c = (1 + std::sqrt(5.0) + 5.0 / 3) * std::exp(-std::sqrt(5.0));
  // (K + 0.1)^-1 (1, -1) = (1, -1) / (1.1 - c); at the first point: mean (1 - c) / (1.1 - c).
  const Prediction at = process.predict(Coordinates{0.25});
  EXPECT_NEAR(at.mean, (1 - c) / (1.1 - c), 1e-6);
  const double determinant = 1.1 * 1.1 - c * c;
  const double variance = 1 - (1.1 - 2 * c * c + 1.1 * c * c) / determinant;
  EXPECT_NEAR(at.sd * at.sd, variance, 1e-6);
}

TEST(GaussianProcess, BelievingAPredictionKeepsTheMeansAndNarrowsTheBand) {
  const Space space({unit("x")});
  GaussianProcess process(space, {{0.1}, {0.5}, {0.9}}, {1.0, -1.0, 0.3});
  process.fit(1);
  const std::vector<Coordinates> at = {{0.2}, {0.3}, {0.7}};
  const auto before = process.predict(at);
  process.believe({0.3});
  const auto after = process.predict(at);
  for (std::size_t i = 0; i < at.size(); ++i) {
    EXPECT_NEAR(after[i].mean, before[i].mean, 1e-9);
    EXPECT_LE(after[i].sd, before[i].sd + 1e-12);
  }
  EXPECT_LT(after[1].sd, 0.5 * before[1].sd + 1e-6);
}

}  // namespace
}  // namespace tailor::search
