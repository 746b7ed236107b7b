// Merging against the definition: again and again the best pair of the whole word.
#include "model/tokenizers/merges.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace tailor::tokenizers {
namespace {

std::vector<std::uint32_t> slowly_merged(const MergeTable& table, std::vector<std::uint32_t> ids) {
  for (;;) {
    std::size_t best = ids.size();
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const MergeTable::Merge* merge = table.find(ids[i], ids[i + 1]);
      if (merge != nullptr && (best == ids.size() || merge->rank < rank)) {
        best = i;
        rank = merge->rank;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = table.find(ids[best], ids[best + 1])->result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Merger, AgreesWithTheDefinitionOnRandomTablesAndWords) {
  Rng rng(7);
  Merger merger;
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t letters = 2 + static_cast<std::uint32_t>(rng.below(4));
    MergeTable table(40);
    for (std::uint32_t i = 0; i < 40; ++i) {
      // A result may arise from several pairs, and ranks may be equal.
      const auto symbols = letters + i / 2 + 1;
      table.add(static_cast<std::uint32_t>(rng.below(symbols)),
                static_cast<std::uint32_t>(rng.below(symbols)),
                {static_cast<std::uint32_t>(rng.below(20)), letters + i / 2});
    }
    std::vector<std::uint32_t> ids(rng.below(60));
    std::vector<MergeSymbol> symbols;
    for (std::uint32_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::uint32_t>(rng.below(letters));
      symbols.push_back({ids[i], i, i + 1});
    }
    merger.merge(table, &symbols);
    std::vector<std::uint32_t> merged;
    std::uint32_t covered = 0;
    for (const MergeSymbol& symbol : symbols) {
      merged.push_back(symbol.id);
      EXPECT_EQ(symbol.begin, covered) << "symbols cover the word without gaps";
      covered = symbol.end;
    }
    EXPECT_EQ(covered, ids.size());
    ASSERT_EQ(merged, slowly_merged(table, ids)) << "round " << round;
  }
}

TEST(Merger, EqualRanksGoFromLeftToRight) {
  MergeTable table(1);
  table.add(0, 0, {0, 1});
  std::vector<MergeSymbol> symbols = {{0, 0, 1}, {0, 1, 2}, {0, 2, 3}};
  Merger().merge(table, &symbols);
  ASSERT_EQ(symbols.size(), 2u);
  EXPECT_EQ(symbols[0].id, 1u);
  EXPECT_EQ(symbols[1].id, 0u);
}

TEST(MergeTable, TheLastMergeOfAPairCounts) {
  MergeTable table(2);
  table.add(3, 4, {1, 5});
  table.add(3, 4, {0, 6});
  EXPECT_EQ(table.find(3, 4)->result, 6u);
  EXPECT_EQ(table.find(4, 3), nullptr);
}

}  // namespace
}  // namespace tailor::tokenizers
