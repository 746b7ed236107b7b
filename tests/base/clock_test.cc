#include "base/clock.h"

#include <gtest/gtest.h>

namespace tailor {
namespace {

TEST(Clock, ManualTimeMovesOnlyWhenTold) {
  ManualClock clock(5, 1000);
  EXPECT_EQ(clock.now_ms(), 5);
  clock.advance(10);
  EXPECT_EQ(clock.now_ms(), 15);
  EXPECT_EQ(clock.wall_ms(), 1010);
  clock.jump_wall(-500);
  EXPECT_EQ(clock.now_ms(), 15);
  EXPECT_EQ(clock.wall_ms(), 510);
}

TEST(Clock, WallTimeIsWrittenInUtc) {
  EXPECT_EQ(format_wall(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(format_wall(1700000000123), "2023-11-14T22:13:20.123Z");
}

TEST(Clock, SystemTimeDoesNotGoBack) {
  SystemClock clock;
  const auto a = clock.now_ms();
  EXPECT_GE(clock.now_ms(), a);
  EXPECT_GT(clock.wall_ms(), 1'700'000'000'000);
}

}  // namespace
}  // namespace tailor
