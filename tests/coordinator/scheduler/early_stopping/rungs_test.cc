// Rungs in tokens.
#include "coordinator/scheduler/early_stopping/rungs.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/coordinator/scheduler/early_stopping/field.h"

namespace tailor::scheduler {
namespace {

using Tokens = std::vector<std::int64_t>;

TEST(Rungs, ArePowersOfTheReductionBelowTheBudget) {
  EXPECT_EQ(rungs_of("asha", 100, 3, 2'700), (Tokens{100, 300, 900}));
  EXPECT_EQ(rungs_of("asha", 100, 3, 2'701), (Tokens{100, 300, 900, 2'700}));
  EXPECT_EQ(rungs_of("hyperband", 1, 4, 64), (Tokens{1, 4, 16}));
  EXPECT_EQ(rungs_of("halving", 100, 3, 100), Tokens{});
}

TEST(Rungs, OfTheMedianRuleAreMultiples) {
  EXPECT_EQ(rungs_of("median", 100, 3, 450), (Tokens{100, 200, 300, 400}));
  EXPECT_EQ(rungs_of("median", 100, 3, 400), (Tokens{100, 200, 300}));
  EXPECT_EQ(rungs_of("median", 1, 2, std::numeric_limits<std::int64_t>::max()).size(), kRungsMax);
}

TEST(Rungs, DoNotOverflow) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const Tokens rungs = rungs_of("asha", kMost / 4, 3, kMost);
  EXPECT_EQ(rungs, (Tokens{kMost / 4, kMost / 4 * 3}));
  EXPECT_EQ(rungs_of("asha", kMost - 1, 2, kMost), (Tokens{kMost - 1}));
}

TEST(Rungs, NoneHasNone) { EXPECT_EQ(rungs_of("none", 100, 3, 1'000), Tokens{}); }

TEST(RungList, CountsWhoMayStillCome) {
  const std::vector<Unit> units = {unit_at({2.0}), unit_at({1.0, 1.0}, Phase::kEnded),
                                   unit_at({}, Phase::kTraining), unit_at({}, Phase::kEnded),
                                   unit_at({}, Phase::kStopped)};
  const std::vector<std::uint32_t> all = {0, 1, 2, 3, 4};
  const RungList low = rung_list({units, 3, std::nullopt}, all, 0, 3);
  EXPECT_EQ(low.order, (std::vector<std::uint32_t>{1, 0}));
  EXPECT_EQ(low.may_come, 1u + 3u);  // one trains, three are to be drawn
  EXPECT_EQ(low.places_max(3), 2u);
  const RungList high = rung_list({units, 0, std::nullopt}, all, 1, 0);
  EXPECT_EQ(high.order, (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(high.may_come, 2u);
  EXPECT_FALSE(high.closed());
}

}  // namespace
}  // namespace tailor::scheduler
