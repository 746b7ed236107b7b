// The suite that every statistic of the table passes, and the closed forms of each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "geometry/statistics/table.h"
#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using ::testing::HasSubstr;
using testing::make_cloud;
using testing::normal_cloud;

double value_of(const Statistic& statistic, const Cloud& before, const Cloud& after,
                Geometry geometry, double rho = kDefaultRho) {
  auto pair = PairWorkspace::create(before.view(), after.view(), {.rho = rho, .seed = 11});
  EXPECT_TRUE(pair.has_value()) << pair.error().message();
  const auto value = statistic.evaluate(*pair, geometry);
  EXPECT_TRUE(value.has_value()) << value.error().message();
  return *value;
}

// A pair in which the layer moves every token somewhat.
std::pair<Cloud, Cloud> moved_pair(std::size_t n, std::size_t d, std::uint64_t seed) {
  Cloud before = normal_cloud(n, d, seed), after = before;
  const Cloud step = normal_cloud(n, d, seed + 1);
  for (std::size_t i = 0; i < after.values.size(); ++i) after.values[i] += 0.4 * step.values[i];
  return {before, after};
}

class EveryStatistic : public ::testing::TestWithParam<Statistic> {};

TEST_P(EveryStatistic, IsZeroForEmptyClouds) {
  const Cloud empty = normal_cloud(0, 4, 1);
  for (const Geometry geometry : kGeometries) {
    EXPECT_EQ(value_of(GetParam(), empty, empty, geometry), 0);
  }
}

TEST_P(EveryStatistic, IsFiniteAndNotNegativeForFewPoints) {
  for (const std::size_t n : {1u, 2u, 3u, 4u}) {
    const auto [before, after] = moved_pair(n, 3, 40 + n);
    for (const Geometry geometry : kGeometries) {
      const double value = value_of(GetParam(), before, after, geometry);
      EXPECT_TRUE(std::isfinite(value));
      EXPECT_GE(value, 0);
    }
  }
}

TEST_P(EveryStatistic, IsZeroWhenNothingMoves) {
  const Cloud cloud = normal_cloud(24, 6, 2);
  for (const Geometry geometry : kGeometries) {
    EXPECT_NEAR(value_of(GetParam(), cloud, cloud, geometry), 0, 1e-12);
  }
}

TEST_P(EveryStatistic, IsDefinedWhenAllPointsAreEqual) {
  Cloud same = make_cloud(2, {1, 2, 1, 2, 1, 2, 1, 2, 1, 2});
  for (const Geometry geometry : kGeometries) {
    EXPECT_EQ(value_of(GetParam(), same, same, geometry), 0);
  }
}

TEST_P(EveryStatistic, DoesNotDependOnTheOrderOfTheTokens) {
  const auto [before, after] = moved_pair(28, 5, 3);
  const auto order = testing::random_order(28, 77);
  for (const Geometry geometry : kGeometries) {
    const double value = value_of(GetParam(), before, after, geometry);
    const double shuffled = value_of(GetParam(), testing::reordered(before, order),
                                     testing::reordered(after, order), geometry);
    EXPECT_NEAR(shuffled, value, 1e-9 * (1 + value)) << geometry_name(geometry);
  }
}

TEST_P(EveryStatistic, ScalesWithTheCloudsInRawGeometryOnly) {
  const auto [before, after] = moved_pair(28, 5, 6);
  for (const double factor : {0.03, 250.0}) {
    for (const Geometry geometry : kGeometries) {
      const double value = value_of(GetParam(), before, after, geometry);
      const double other = value_of(GetParam(), testing::scaled(before, factor),
                                    testing::scaled(after, factor), geometry);
      const double expected = geometry == Geometry::kRaw ? factor * value : value;
      EXPECT_NEAR(other, expected, 1e-9 * expected) << geometry_name(geometry) << " x" << factor;
    }
  }
}

TEST_P(EveryStatistic, DoesNotChangeUnderARotation) {
  const auto [before, after] = moved_pair(28, 5, 8);
  for (const Geometry geometry : kGeometries) {
    const double value = value_of(GetParam(), before, after, geometry);
    const double turned =
        value_of(GetParam(), testing::rotated(before, 5), testing::rotated(after, 5), geometry);
    EXPECT_NEAR(turned, value, 1e-9 * (1 + value)) << geometry_name(geometry);
  }
}

TEST_P(EveryStatistic, IsPositiveForAMovedCloudAndCostsSomething) {
  const auto [before, after] = moved_pair(40, 4, 9);
  for (const Geometry geometry : kGeometries) {
    EXPECT_GT(value_of(GetParam(), before, after, geometry), 0) << geometry_name(geometry);
  }
  EXPECT_GT(GetParam().cost(256, 64), 0);
  EXPECT_GE(GetParam().cost(512, 64), GetParam().cost(256, 64));
  EXPECT_FALSE(GetParam().summary.empty());
}

INSTANTIATE_TEST_SUITE_P(Table, EveryStatistic,
                         ::testing::ValuesIn(statistics().begin(), statistics().end()),
                         [](const auto& entry) { return std::string(entry.param.name); });

TEST(StatisticTable, FindsByNameAndSuggestsTheNearest) {
  EXPECT_EQ((*find_statistic("shift"))->name, "shift");
  const auto missing = find_statistic("shfit");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message(), HasSubstr("did you mean \"shift\""));
}

TEST(Shift, MatchesTheVectorOfARightAngle) {
  // x = (1, 0), FFN(x) = (0, 1), so y = (1, 1).
  const Statistic& shift = **find_statistic("shift");
  const Cloud before = make_cloud(2, {1, 0}), after = make_cloud(2, {1, 1});
  EXPECT_EQ(value_of(shift, before, after, Geometry::kRaw), 1);
  EXPECT_NEAR(value_of(shift, before, after, Geometry::kSpherical), std::numbers::pi / 4, 1e-15);
  EXPECT_NEAR(value_of(shift, before, after, Geometry::kHyperbolic, .5), .9807120561, 1e-10);
  EXPECT_NEAR(value_of(shift, before, after, Geometry::kHyperbolic), 2.2619038164, 1e-10);
  EXPECT_NEAR(value_of(shift, before, after, Geometry::kHyperbolic, .9), 3.9992351901, 1e-10);
}

TEST(Shift, IsTheMeanOverTokens) {
  const Statistic& shift = **find_statistic("shift");
  const Cloud before = make_cloud(1, {1, 2, 3, 4}), after = make_cloud(1, {2, 2, 6, 0.5});
  EXPECT_NEAR(value_of(shift, before, after, Geometry::kRaw), (1 + 0 + 3 + 3.5) / 4, 1e-15);
}

TEST(PairWorkspace, DropsZeroVectorsOfEitherCloud) {
  const Cloud before = make_cloud(2, {1, 0, 0, 0, 0, 1}), after = make_cloud(2, {2, 0, 1, 1, 0, 0});
  const auto pair = PairWorkspace::create(before.view(), after.view(), {});
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->count(), 1u);
  EXPECT_EQ(pair->dropped(), 2u);
}

}  // namespace
}  // namespace tailor::geometry
