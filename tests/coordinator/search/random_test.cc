// Random search: distinct draws addressed by position.
#include <gtest/gtest.h>

#include <set>

#include "tests/coordinator/search/spaces.h"

namespace tailor::search {
namespace {

TEST(Random, ReachesEveryPointOfASmallSpaceAndThenEnds) {
  sweep::Spec spec = finite_space();
  spec.search.trials = 1000;
  const auto random = make_algorithm("random", spec);
  ASSERT_TRUE(random.has_value());
  EXPECT_EQ((*random)->remaining(), 24u);
  const auto points = take(**random, 1000);
  EXPECT_EQ(points.size(), 24u);
  EXPECT_EQ(std::set<std::string>(points.begin(), points.end()).size(), 24u);
  EXPECT_EQ((*random)->remaining(), 0u);
}

TEST(Random, DrawsFromAContinuousSpace) {
  const auto random = make_algorithm("random", continuous_space());
  ASSERT_TRUE(random.has_value());
  const auto points = (*random)->suggest(1000);
  ASSERT_EQ(points.size(), 50u);
  int below_geometric_mean = 0;
  for (const sweep::Point& point : points) {
    const double lr = std::get<double>(point.at("train.optimizer.lr"));
    EXPECT_GE(lr, 1e-4);
    EXPECT_LE(lr, 1e-1);
    below_geometric_mean += lr < 3.16e-3;
  }
  // Logarithmic axis: about half below the geometric mean;
  // 50 fair draws leave [10, 40] once in 10^5.
  EXPECT_GE(below_geometric_mean, 10);
  EXPECT_LE(below_geometric_mean, 40);
}

TEST(Random, GivesOtherPointsForAnotherSeed) {
  sweep::Spec other = continuous_space();
  other.search.seed = 8;
  const auto a = make_algorithm("random", continuous_space());
  const auto b = make_algorithm("random", other);
  EXPECT_NE(take(**a, 10), take(**b, 10));
}

TEST(Random, NeedsANumberOfTrials) {
  sweep::Spec spec = continuous_space();
  spec.search.trials = 0;
  const auto random = make_algorithm("random", spec);
  ASSERT_FALSE(random.has_value());
  EXPECT_NE(random.error().message().find("search.trials"), std::string::npos);
}

}  // namespace
}  // namespace tailor::search
