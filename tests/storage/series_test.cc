// Joining attempts and thinning.
#include "storage/series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tailor::storage {
namespace {

using ::testing::ElementsAre;

Point at(std::int64_t step, double value) { return {step, step * 2, step * 3, value}; }

Series ramp(std::size_t count) {
  Series series;
  for (std::size_t i = 0; i < count; ++i) {
    series.steps.push_back(static_cast<std::int64_t>(i));
    series.tokens.push_back(static_cast<std::int64_t>(i) * 2);
    series.wall_ms.push_back(static_cast<std::int64_t>(i) * 3);
    series.values.push_back(static_cast<double>(i % 7));
  }
  return series;
}

bool contains(const Series& series, std::int64_t step, double value) {
  for (std::size_t i = 0; i < series.steps.size(); ++i) {
    if (series.steps[i] == step && series.values[i] == value) return true;
  }
  return false;
}

TEST(Series, ALaterAttemptReplacesWhatItTrainedAgain) {
  const Series joined = join_attempts(
      "loss", {{2, {at(30, 2.3), at(40, 2.4)}}, {1, {at(10, 1.1), at(20, 1.2), at(30, 1.3)}}});
  EXPECT_THAT(joined.steps, ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(joined.values, ElementsAre(1.1, 1.2, 2.3, 2.4));
  EXPECT_THAT(joined.tokens, ElementsAre(20, 40, 60, 80));
  EXPECT_THAT(joined.wall_ms, ElementsAre(30, 60, 90, 120));
}

TEST(Series, PointsPastTheResumedStepBelongToAnAbandonedHistory) {
  const Series joined =
      join_attempts("loss", {{1, {at(10, 1), at(20, 1), at(30, 1), at(40, 1)}}, {2, {at(20, 2)}}});
  EXPECT_THAT(joined.steps, ElementsAre(10, 20));
}

TEST(Series, AnAttemptFromScratchReplacesAll) {
  const Series joined =
      join_attempts("loss", {{1, {at(10, 1), at(20, 1)}}, {2, {}}, {3, {at(5, 3)}}});
  EXPECT_THAT(joined.steps, ElementsAre(5));
}

TEST(Series, ARepeatedStepKeepsTheValueStoredLast) {
  const Series joined = join_attempts("loss", {{1, {at(20, 1), at(10, 2), at(20, 3)}}});
  EXPECT_THAT(joined.steps, ElementsAre(10, 20));
  EXPECT_THAT(joined.values, ElementsAre(2, 3));
}

TEST(Series, ThinningKeepsEndsAndExtremes) {
  Series series = ramp(10'000);
  series.values[4321] = 1e6;
  series.values[7777] = -1e6;
  const Series thinned = thin(series, 100);
  EXPECT_LE(thinned.steps.size(), 100u);
  EXPECT_GE(thinned.steps.size(), 50u);
  EXPECT_EQ(thinned.steps.front(), 0);
  EXPECT_EQ(thinned.steps.back(), 9999);
  EXPECT_TRUE(contains(thinned, 4321, 1e6));
  EXPECT_TRUE(contains(thinned, 7777, -1e6));
  EXPECT_TRUE(std::is_sorted(thinned.steps.begin(), thinned.steps.end()));
  for (std::size_t i = 0; i < thinned.steps.size(); ++i) {
    const auto source = static_cast<std::size_t>(thinned.steps[i]);
    EXPECT_EQ(thinned.values[i], series.values[source]);
    EXPECT_EQ(thinned.tokens[i], series.tokens[source]);
    EXPECT_EQ(thinned.wall_ms[i], series.wall_ms[source]);
  }
}

TEST(Series, ThinningShowsANaN) {
  Series series = ramp(1000);
  series.values[500] = std::numeric_limits<double>::quiet_NaN();
  const Series thinned = thin(series, 40);
  EXPECT_TRUE(std::any_of(thinned.values.begin(), thinned.values.end(),
                          [](double v) { return std::isnan(v); }));
}

TEST(Series, ThinningLeavesShortSeriesAlone) {
  EXPECT_EQ(thin(ramp(10), 0).steps.size(), 10u);
  EXPECT_EQ(thin(ramp(10), 10).steps.size(), 10u);
  EXPECT_EQ(thin(Series{}, 5).steps.size(), 0u);
  const Series one_bin = thin(ramp(10), 1);
  EXPECT_EQ(one_bin.steps.front(), 0);
  EXPECT_EQ(one_bin.steps.back(), 9);
}

}  // namespace
}  // namespace tailor::storage
