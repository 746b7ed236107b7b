// Hyperband's brackets against the paper's formula worked by hand.
#include "coordinator/scheduler/early_stopping/hyperband.h"

#include <gtest/gtest.h>

#include "tests/coordinator/scheduler/early_stopping/field.h"

namespace tailor::scheduler {
namespace {

TEST(Hyperband, HasTheBracketsOfThePaper) {
  // R = 81, eta = 3: s_max = 4, n = ceil(5 / (s + 1) x 3^s) = 81, 33.75, 15, 7.5, 5.
  EXPECT_EQ(hyperband_brackets(4, 3),
            (std::vector<Bracket>{{0, 81}, {1, 34}, {2, 15}, {3, 8}, {4, 5}}));
  // R = 16, eta = 4: 3 x 16 / 3, 3 x 4 / 2, 3.
  EXPECT_EQ(hyperband_brackets(2, 4), (std::vector<Bracket>{{0, 16}, {1, 6}, {2, 3}}));
  EXPECT_EQ(hyperband_brackets(0, 3), (std::vector<Bracket>{{0, 1}}));
}

TEST(Hyperband, OfManyRungsDoesNotOverflow) {
  EXPECT_EQ(hyperband_brackets(60, 4).front().size, std::uint64_t{1} << 40);
}

TEST(Hyperband, HalvesEachBracketByItself) {
  // K = 2, eta = 3: 9 units from rung 0, ceil(3 / 2 x 3) = 5 from rung 1, 3 straight to the end.
  // Values fall with the unit's number, so each bracket keeps its last ones.
  const auto rule = rule_of("hyperband", 2);
  const auto value = [](std::uint32_t unit, std::uint32_t) { return 100.0 - unit; };
  const Played played = play(*rule, 18, 2, 4, 1, value);
  std::vector<std::uint32_t> completed;
  for (std::uint32_t i = 1; i < 18; ++i) {
    if (played.completed[i]) completed.push_back(i);
  }
  // Units 1..9: 3 of 9, then 1 of 3; units 10..14: 1 of 5; units 15..17: all.
  EXPECT_EQ(completed, (std::vector<std::uint32_t>{9, 14, 15, 16, 17}));
  EXPECT_EQ(played.units[7].values.size(), 2u);
  EXPECT_EQ(played.units[1].values.size(), 1u);
  EXPECT_EQ(played.units[10].values.size(), 2u);  // rung 0 is passed without being judged
}

TEST(Hyperband, TheSecondRoundBeginsAgainWithTheFirstBracket) {
  const auto rule = rule_of("hyperband", 1, 2);  // {0, 2}, {1, 2}
  std::vector<Unit> units(5);
  const Field field{units, 0, std::nullopt};
  EXPECT_TRUE(rule->judges(field, 0, 0));
  EXPECT_TRUE(rule->judges(field, 1, 0));
  EXPECT_FALSE(rule->judges(field, 2, 0));
  EXPECT_FALSE(rule->judges(field, 3, 0));
  EXPECT_TRUE(rule->judges(field, 4, 0));
}

}  // namespace
}  // namespace tailor::scheduler
