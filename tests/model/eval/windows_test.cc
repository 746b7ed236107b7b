#include "model/eval/windows.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace tailor::eval {
namespace {

TEST(EvalWindowsTest, ScoresEveryTokenButTheFirstOnceWithAllTheContextThatTheStrideLeaves) {
  Rng rng(2);
  for (int i = 0; i < 400; ++i) {
    const std::uint64_t ids = 2 + rng.below(60);
    const auto length = static_cast<std::int64_t>(1 + rng.below(20));
    const auto stride =
        static_cast<std::int64_t>(1 + rng.below(static_cast<std::uint64_t>(length)));
    const Windows windows(ids, length, stride);
    std::uint64_t next = 1;  // the first token that is not yet scored
    for (std::uint64_t k = 0; k < windows.count(); ++k) {
      const Window window = windows[k];
      EXPECT_LE(window.length, length);
      EXPECT_EQ(window.begin + 1 + static_cast<std::uint64_t>(window.skipped), next);
      EXPECT_GE(window.scored(), 1);
      next += static_cast<std::uint64_t>(window.scored());
      if (k > 0) {
        EXPECT_LE(window.scored(), stride);
        EXPECT_EQ(window.skipped, length - stride);
      }
    }
    EXPECT_EQ(next, ids) << ids << " " << length << " " << stride;
  }
}

TEST(EvalWindowsTest, AreBlocksSideBySideWhenTheStrideIsTheLength) {
  const Windows windows(11, 4, 4);
  ASSERT_EQ(windows.count(), 3u);
  EXPECT_EQ(windows[1].begin, 4u);
  EXPECT_EQ(windows[1].length, 4);
  EXPECT_EQ(windows[2].begin, 8u);
  EXPECT_EQ(windows[2].length, 2);
  EXPECT_EQ(windows[2].skipped, 0);
  EXPECT_EQ(Windows(9, 4, 4).count(), 2u);
  EXPECT_EQ(Windows(2, 4, 4).count(), 1u);
}

TEST(EvalWindowsTest, JoinsSmallWindowsIntoBlocks) {
  const std::vector<BlockLoss> windows = {{1, 4}, {2, 2}, {4, 2}, {8, 2}, {16, 1}};
  const auto blocks = joined_blocks(windows, 4);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0].nats, 1);
  EXPECT_EQ(blocks[1].nats, 6);
  EXPECT_EQ(blocks[1].tokens, 4u);
  EXPECT_EQ(blocks[2].nats, 24);
  EXPECT_EQ(blocks[2].tokens, 3u);
  EXPECT_TRUE(joined_blocks({}, 4).empty());
}

}  // namespace
}  // namespace tailor::eval
