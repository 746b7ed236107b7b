// The median rule, by hand.
#include <gtest/gtest.h>

#include <limits>

#include "tests/coordinator/scheduler/early_stopping/field.h"

namespace tailor::scheduler {
namespace {

std::vector<Unit> others(const std::vector<double>& values) {
  std::vector<Unit> units;
  for (const double value : values) units.push_back(unit_at({value}, Phase::kEnded));
  return units;
}

StopWhy judged(std::vector<Unit> units, Unit unit, std::uint32_t startup = 5) {
  const auto at = static_cast<std::uint32_t>(units.size());
  units.push_back(std::move(unit));
  const auto decisions = rule_of("median", 9, 3, startup)->decide({units, 0, at});
  return decisions.empty() ? StopWhy::kNone : decisions.front().stop;
}

TEST(MedianRule, StopsWhatIsWorseThanTheMedianOfTheOthers) {
  const auto five = others({1, 2, 3, 4, 5});
  EXPECT_EQ(judged(five, unit_at({3.0}, Phase::kTraining)), StopWhy::kNone);  // equal is not worse
  EXPECT_EQ(judged(five, unit_at({3.01}, Phase::kTraining)), StopWhy::kMedian);
  const auto six = others({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(judged(six, unit_at({3.5}, Phase::kTraining)), StopWhy::kNone);
  EXPECT_EQ(judged(six, unit_at({3.6}, Phase::kTraining)), StopWhy::kMedian);
}

TEST(MedianRule, WaitsForEnoughOthers) {
  EXPECT_EQ(judged(others({1, 1, 1, 1}), unit_at({9.0}, Phase::kTraining)), StopWhy::kNone);
  EXPECT_EQ(judged(others({1, 1, 1, 1}), unit_at({9.0}, Phase::kTraining), 4), StopWhy::kMedian);
}

TEST(MedianRule, TakesTheBestValueSoFar) {
  std::vector<Unit> units;
  for (const double value : {1.0, 2.0, 3.0, 4.0, 5.0}) {
    units.push_back(unit_at({9.0, value}, Phase::kEnded));
  }
  EXPECT_EQ(judged(units, unit_at({2.5, 8.0}, Phase::kTraining)), StopWhy::kNone);
  EXPECT_EQ(judged(units, unit_at({3.5, 8.0}, Phase::kTraining)), StopWhy::kMedian);
}

TEST(MedianRule, ValuesThatAreNotFiniteCountAsTheWorst) {
  constexpr double kBad = std::numeric_limits<double>::quiet_NaN();
  const auto mostly_nan = others({1, 2, kBad, kBad, kBad});
  EXPECT_EQ(judged(mostly_nan, unit_at({50.0}, Phase::kTraining)), StopWhy::kNone);
  EXPECT_EQ(judged(others({1, 2, 3, kBad, kBad}), unit_at({3.5}, Phase::kTraining)),
            StopWhy::kMedian);
}

}  // namespace
}  // namespace tailor::scheduler
