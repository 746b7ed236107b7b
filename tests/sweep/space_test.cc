#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <set>

#include "sweep/spec.h"
#include "tests/sweep/sweep_text.h"

namespace tailor::sweep {
namespace {

using ::testing::ElementsAre;

Axis list(std::string path, std::vector<AxisValue> values) {
  Axis axis;
  axis.path = std::move(path);
  axis.values = std::move(values);
  return axis;
}

Axis range(std::string path, bool is_integer, double min, double max, double step,
           bool log = false) {
  Axis axis;
  axis.path = std::move(path);
  axis.is_integer = is_integer;
  axis.min = min;
  axis.max = max;
  axis.step = step;
  axis.log = log;
  return axis;
}

TEST(Axis, TextFormsAreThoseOfNames) {
  EXPECT_EQ(to_text(AxisValue(std::string("hourglass"))), "hourglass");
  EXPECT_EQ(to_text(AxisValue(std::int64_t{4})), "4");
  EXPECT_EQ(to_text(AxisValue(0.4)), "0.4");
  EXPECT_EQ(to_text(AxisValue(true)), "true");
  EXPECT_EQ(point_name({{"ffn.k", std::int64_t{4}}, {"d_model", std::int64_t{768}}}),
            "d_model=768 ffn.k=4");
}

TEST(Axis, ARangeIncludesItsLastValueDespiteRounding) {
  const Axis axis = range("d_h_ratio", false, 0.1, 0.7, 0.1);
  ASSERT_EQ(axis.grid_size(), 7u);
  EXPECT_EQ(to_text(axis.at(2)), "0.3");
  EXPECT_EQ(std::get<double>(axis.at(6)), 0.7);
  EXPECT_LE(std::get<double>(axis.at(6)), 0.7);
  EXPECT_EQ(range("d_model", true, 640, 1536, 128).grid_size(), 8u);
  EXPECT_EQ(std::get<std::int64_t>(range("d_model", true, 640, 1536, 128).at(7)), 1536);
  EXPECT_EQ(range("layers", true, 4, 4, 1).grid_size(), 1u);
  EXPECT_EQ(range("lr", false, 0.1, 1, 0).grid_size(), 0u);
}

TEST(Grid, TheLastAxisVariesFastestAndEveryPointComesOnce) {
  Spec spec;
  spec.space = {list("a", {std::int64_t{1}, std::int64_t{2}}), range("b", true, 5, 7, 1)};
  ASSERT_EQ(grid_size(spec), 6u);
  EXPECT_EQ(grid_point(spec, 0), (Point{{"a", std::int64_t{1}}, {"b", std::int64_t{5}}}));
  EXPECT_EQ(grid_point(spec, 1), (Point{{"a", std::int64_t{1}}, {"b", std::int64_t{6}}}));
  EXPECT_EQ(grid_point(spec, 3), (Point{{"a", std::int64_t{2}}, {"b", std::int64_t{5}}}));
  std::set<Point> all;
  for (std::uint64_t i = 0; i < 6; ++i) all.insert(grid_point(spec, i));
  EXPECT_EQ(all.size(), 6u);
}

TEST(Grid, HasNoSizeWithoutAxesOrWithAContinuousOne) {
  Spec spec;
  EXPECT_EQ(grid_size(spec), 0u);
  spec.space = {list("a", {true}), range("lr", false, 0.1, 1, 0)};
  EXPECT_EQ(grid_size(spec), 0u);
}

TEST(Grid, AHugeGridIsAnIndexAndSaturates) {
  Spec spec;
  for (const char* path : {"a", "b", "c", "d"})
    spec.space.push_back(range(path, true, 0, 999'999, 1));
  EXPECT_EQ(grid_size(spec), 1ull << 63);
  spec.space.resize(3);
  ASSERT_EQ(grid_size(spec), 1'000'000'000'000'000'000u);
  EXPECT_EQ(grid_point(spec, 999'999'999'999'999'999u)["c"], AxisValue(std::int64_t{999'999}));
  EXPECT_EQ(grid_point(spec, 123'456'000'007u)["b"], AxisValue(std::int64_t{123'456}));
}

TEST(Random, DrawsDependOnSeedAxisAndIndexOnly) {
  Spec spec;
  spec.space = {range("a", true, 1, 1'000'000, 1), range("b", false, 0, 1, 0)};
  const Point third = random_point(spec, 1, 3);
  EXPECT_EQ(random_point(spec, 1, 3), third);
  EXPECT_NE(random_point(spec, 2, 3), third);
  EXPECT_NE(random_point(spec, 1, 4), third);
  // A further axis does not move the others.
  spec.space.push_back(list("c", {true, false}));
  const Point wider = random_point(spec, 1, 3);
  EXPECT_EQ(wider.at("a"), third.at("a"));
  EXPECT_EQ(wider.at("b"), third.at("b"));
}

TEST(Random, EveryValueOfAListAndARangeIsDrawnEquallyOften) {
  Spec spec;
  spec.space = {list("a", {std::int64_t{2}, std::int64_t{3}, std::int64_t{4}}),
                range("b", true, 8, 32, 8)};
  std::map<AxisValue, int> a, b;
  for (std::uint64_t i = 0; i < 12'000; ++i) {
    const Point point = random_point(spec, 7, i);
    ++a[point.at("a")];
    ++b[point.at("b")];
  }
  // Within 5 standard deviations of a fair share.
  ASSERT_EQ(a.size(), 3u);
  for (const auto& [value, count] : a) EXPECT_NEAR(count, 4000, 5 * std::sqrt(12'000 * (2.0 / 9)));
  ASSERT_EQ(b.size(), 4u);
  for (const auto& [value, count] : b) EXPECT_NEAR(count, 3000, 5 * std::sqrt(12'000 * (3.0 / 16)));
}

TEST(Random, ALogRangeIsUniformInTheLogarithm) {
  const Axis axis = range("lr", false, 1e-4, 1, 0, true);
  EXPECT_NEAR(std::get<double>(axis.draw(0)), 1e-4, 1e-15);
  EXPECT_NEAR(std::get<double>(axis.draw(0.5)), 1e-2, 1e-12);
  EXPECT_LE(std::get<double>(axis.draw(std::nextafter(1.0, 0.0))), 1.0);
  const Axis integers = range("layers", true, 1, 64, 1, true);
  EXPECT_EQ(std::get<std::int64_t>(integers.draw(0)), 1);
  EXPECT_EQ(std::get<std::int64_t>(integers.draw(std::nextafter(1.0, 0.0))), 64);
  EXPECT_EQ(std::get<std::int64_t>(integers.draw(0.5)), 8);  // 65^(1/2) = 8.06
}

TEST(SpecHash, ChangesWithTextAndFolderAndWithNothingElse) {
  EXPECT_EQ(spec_hash("a", "/x"), spec_hash("a", "/x"));
  EXPECT_NE(spec_hash("a", "/x"), spec_hash("b", "/x"));
  EXPECT_NE(spec_hash("a", "/x"), spec_hash("a", "/y"));
  EXPECT_NE(spec_hash("\na", "/x"), spec_hash("a", "/x\n"));
  EXPECT_EQ(spec_hash("a", "/x").size(), 64u);
}

TEST(Space, TheSizeOfTheSearchIsTheGridOrWhatIsAskedOfIt) {
  const auto size = [](const std::string& space) {
    SweepText text;
    text.space = space;
    return search_size(parse_or_die(text));
  };
  EXPECT_EQ(size(""), 0u);
  EXPECT_EQ(size("[space]\nlayers = [2, 4]\nhead_dim = [16, 32, 64]\n"), 6u);
  EXPECT_EQ(size("[space]\nlayers = [2, 4]\n[search]\ntrials = 1\n"), 1u);
  EXPECT_EQ(size("[space]\nlayers = [2, 4]\n[search]\nalgorithm = \"random\"\ntrials = 50\n"), 2u);
  EXPECT_EQ(
      size("[space]\n\"train.optimizer.lr\" = { min = 1e-4, max = 1e-2 }\n[search]\nalgorithm = "
           "\"random\"\ntrials = 50\n"),
      50u);
}

}  // namespace
}  // namespace tailor::sweep
