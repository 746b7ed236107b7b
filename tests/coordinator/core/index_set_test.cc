#include "coordinator/core/index_set.h"

#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace tailor::core {
namespace {

using Ranges = std::map<std::uint32_t, std::uint32_t>;

TEST(IndexSet, JoinsNeighboursIntoRanges) {
  IndexSet set;
  EXPECT_TRUE(set.insert(1));
  EXPECT_TRUE(set.insert(3));
  EXPECT_EQ(set.ranges(), (Ranges{{1, 1}, {3, 3}}));
  EXPECT_TRUE(set.insert(2));
  EXPECT_EQ(set.ranges(), (Ranges{{1, 3}}));
  EXPECT_FALSE(set.insert(2));
  EXPECT_TRUE(set.insert(0));
  EXPECT_TRUE(set.insert(5));
  EXPECT_EQ(set.ranges(), (Ranges{{0, 3}, {5, 5}}));
}

TEST(IndexSet, AgreesWithAPlainSet) {
  Rng rng(5);
  for (int round = 0; round < 50; ++round) {
    IndexSet set;
    std::set<std::uint32_t> plain;
    for (int i = 0; i < 200; ++i) {
      const auto index = static_cast<std::uint32_t>(rng.below(120));
      ASSERT_EQ(set.insert(index), plain.insert(index).second);
    }
    for (std::uint32_t i = 0; i < 130; ++i) ASSERT_EQ(set.contains(i), plain.contains(i)) << i;
    std::uint32_t total = 0;
    for (const auto& [first, last] : set.ranges()) total += last - first + 1;
    EXPECT_EQ(total, plain.size());
  }
}

}  // namespace
}  // namespace tailor::core
