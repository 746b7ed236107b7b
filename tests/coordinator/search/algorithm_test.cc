// What every search algorithm of table.cc must do: the suite runs over all of them.
#include "coordinator/search/algorithm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/coordinator/search/spaces.h"

namespace tailor::search {
namespace {

class EveryAlgorithm : public testing::TestWithParam<std::string_view> {
 protected:
  std::unique_ptr<Algorithm> make(const sweep::Spec& spec) const {
    auto made = make_algorithm(GetParam(), spec);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return std::move(*made);
  }
  /// The outcome of a point, so that learning algorithms have something to learn.
  static Observation outcome(const sweep::Point& point) {
    const auto k = std::get<std::int64_t>(point.at("ffn.k"));
    if (k == 4) return {point, std::nullopt};
    return {point, static_cast<double>(k)};
  }
  /// Draws `count` points one by one and tells each outcome at once.
  static std::vector<std::string> run(Algorithm& algorithm, std::size_t count) {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < count; ++i) {
      for (const sweep::Point& point : algorithm.suggest(1)) {
        texts.push_back(text_of(point));
        const Observation told = outcome(point);
        algorithm.update({&told, 1});
      }
    }
    return texts;
  }
};

TEST_P(EveryAlgorithm, GivesTheSamePointsForTheSameSeed) {
  const auto a = make(finite_space());
  const auto b = make(finite_space());
  const auto points = run(*a, 20);
  EXPECT_EQ(points.size(), 20u);
  EXPECT_EQ(points, run(*b, 20));
}

TEST_P(EveryAlgorithm, ContinuesAfterARestartAsIfThereHadBeenNone) {
  const auto whole = make(finite_space());
  const auto expected = run(*whole, 20);
  for (std::size_t cut = 0; cut <= 20; ++cut) {
    const auto before = make(finite_space());
    auto points = run(*before, cut);
    const auto after = make(finite_space());
    const Status loaded = after->load(before->save());
    ASSERT_TRUE(loaded.is_ok()) << loaded.message();
    EXPECT_EQ(after->save(), before->save());
    EXPECT_EQ(after->remaining(), before->remaining());
    const auto rest = run(*after, 20 - cut);
    points.insert(points.end(), rest.begin(), rest.end());
    EXPECT_EQ(points, expected) << "cut after " << cut;
  }
}

TEST_P(EveryAlgorithm, NeverRepeatsAPoint) {
  const auto algorithm = make(finite_space());
  const auto points = run(*algorithm, 100);
  EXPECT_EQ(std::set<std::string>(points.begin(), points.end()).size(), points.size());
}

TEST_P(EveryAlgorithm, GivesAsManyPointsAsAskedForAndNoMoreThanTheBudget) {
  const auto algorithm = make(finite_space());
  EXPECT_EQ(algorithm->suggest(13).size(), 13u);
  EXPECT_EQ(algorithm->suggest(13).size(), 7u);
  EXPECT_TRUE(algorithm->suggest(1).empty());
}

TEST_P(EveryAlgorithm, KnowsHowManyPointsRemainOrSaysThatItDoesNot) {
  const auto algorithm = make(finite_space());
  if (!algorithm->remaining()) GTEST_SKIP() << "not known to this algorithm";
  EXPECT_EQ(algorithm->remaining(), 20u);
  algorithm->suggest(5);
  EXPECT_EQ(algorithm->remaining(), 15u);
}

TEST_P(EveryAlgorithm, RefusesAStateThatSaveCannotHaveGiven) {
  const auto algorithm = make(finite_space());
  algorithm->suggest(3);
  const std::string state = algorithm->save();
  for (const std::string& bad :
       {std::string(), std::string("x"), std::string("-1"), std::string("99999999999999999999999"),
        std::string("1000 999"), std::string("25"), std::string("3 20"), state + "x",
        " " + state}) {
    const auto fresh = make(finite_space());
    EXPECT_EQ(fresh->load(bad).code(), Code::kDataLoss) << "'" << bad << "'";
    EXPECT_EQ(fresh->save(), make(finite_space())->save()) << "a refused state must change nothing";
  }
}

std::vector<std::string_view> names() { return algorithm_names(); }

INSTANTIATE_TEST_SUITE_P(Table, EveryAlgorithm, testing::ValuesIn(names()),
                         [](const auto& entry) { return std::string(entry.param); });

TEST(SearchTable, AnswersAnUnknownNameWithTheNearestOne) {
  const auto made = make_algorithm("gird", finite_space());
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  EXPECT_NE(made.error().message().find("'grid'"), std::string::npos) << made.error().message();
}

}  // namespace
}  // namespace tailor::search
