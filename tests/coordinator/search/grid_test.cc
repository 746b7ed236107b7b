// Grid search: an index, every point once.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/coordinator/search/spaces.h"

namespace tailor::search {
namespace {

TEST(Grid, CoversEveryPointExactlyOnceWithTheLastAxisFastest) {
  sweep::Spec spec = finite_space();
  spec.search.trials = 0;
  const auto grid = make_algorithm("grid", spec);
  ASSERT_TRUE(grid.has_value());
  const auto points = take(**grid, 100);
  ASSERT_EQ(points.size(), 24u);
  EXPECT_EQ(std::set<std::string>(points.begin(), points.end()).size(), 24u);
  EXPECT_EQ(points[0], "d_model=64 ffn.k=1 ffn.norm=per_sub ");
  EXPECT_EQ(points[1], "d_model=128 ffn.k=1 ffn.norm=per_sub ");
  EXPECT_EQ(points[4], "d_model=64 ffn.k=1 ffn.norm=none ");
  EXPECT_EQ(points[23], "d_model=256 ffn.k=4 ffn.norm=none ");
}

TEST(Grid, OfAMillionMillionPointsIsAnIndexAndNotAList) {
  sweep::Spec spec;
  for (int i = 0; i < 40; ++i) {
    sweep::Axis axis;
    axis.path = "a" + std::to_string(10 + i);
    axis.values = {std::int64_t{0}, std::int64_t{1}};
    spec.space.push_back(axis);
  }
  const auto grid = make_algorithm("grid", spec);
  ASSERT_TRUE(grid.has_value());
  EXPECT_EQ((*grid)->remaining(), 1ull << 40);
  ASSERT_TRUE((*grid)->load("1099511627775").is_ok());  // 2^40 - 1: the last point
  const auto last = (*grid)->suggest(2);
  ASSERT_EQ(last.size(), 1u);
  for (const auto& [path, value] : last[0]) EXPECT_EQ(std::get<std::int64_t>(value), 1) << path;
}

TEST(Grid, RefusesAContinuousAxisAndNamesIt) {
  const auto grid = make_algorithm("grid", continuous_space());
  ASSERT_FALSE(grid.has_value());
  EXPECT_EQ(grid.error().code(), Code::kInvalidArgument);
  EXPECT_NE(grid.error().message().find("train.optimizer.lr"), std::string::npos);
}

TEST(Grid, RefusesAnEmptySpace) {
  EXPECT_EQ(make_algorithm("grid", sweep::Spec{}).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tailor::search
