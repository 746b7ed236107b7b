// Which number the search hears of a candidate.
#include "coordinator/search/judge.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tailor::search {
namespace {

using Seeds = std::vector<SeedOutcome>;

TEST(JudgedObjective, IsTheMeanOverTheSeeds) {
  EXPECT_DOUBLE_EQ(judged_objective(Seeds{{3.0, false}, {4.0, false}, {5.0, false}}).value(), 4.0);
}

TEST(JudgedObjective, OneFailureOfItsOwnFailsTheCandidateHoweverGoodTheOtherSeedsAre) {
  EXPECT_FALSE(judged_objective(Seeds{{1.0, false}, {std::nullopt, true}, {1.0, false}}));
  EXPECT_FALSE(
      judged_objective(Seeds{{1.0, false}, {std::numeric_limits<double>::quiet_NaN(), false}}));
  EXPECT_FALSE(
      judged_objective(Seeds{{1.0, false}, {std::numeric_limits<double>::infinity(), false}}));
}

TEST(JudgedObjective, ALostSeedSaysNothing) {
  EXPECT_DOUBLE_EQ(judged_objective(Seeds{{3.0, false}, {std::nullopt, false}}).value(), 3.0);
  EXPECT_FALSE(judged_objective(Seeds{{std::nullopt, false}}));
  EXPECT_FALSE(judged_objective(Seeds{}));
}

TEST(JudgedObjective, LargeValuesDoNotOverflow) {
  EXPECT_DOUBLE_EQ(judged_objective(Seeds{{1.7e308, false}, {1.7e308, false}}).value(), 1.7e308);
}

}  // namespace
}  // namespace tailor::search
