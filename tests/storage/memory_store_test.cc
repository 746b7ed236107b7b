// What only the memory store can do: fail on demand.
#include "storage/memory_store.h"

#include <gtest/gtest.h>

#include "rows.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT

TEST(MemoryStore, FailsTheNextCommitsAsToldAndKeepsNothingOfThem) {
  MemoryStore store;
  store.fail_next_commits(Status(Code::kResourceExhausted, "disk full"), 2);
  EXPECT_EQ(store.commit(make_base()).code(), Code::kResourceExhausted);
  EXPECT_EQ(store.commit(make_base()).code(), Code::kResourceExhausted);
  EXPECT_TRUE(store.sweeps()->empty());
  EXPECT_TRUE(store.commit(make_base()).is_ok());
  EXPECT_EQ(store.commits(), 1u);
}

TEST(MemoryStore, AFaultLastsUntilItIsLifted) {
  MemoryStore store;
  store.set_fault(Status(Code::kResourceExhausted, "disk full"));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(store.commit(make_base()).is_ok());
  store.set_fault({});
  EXPECT_TRUE(store.commit(make_base()).is_ok());
}

TEST(MemoryStore, TakesNothingMoreOnceItsFileIsLost) {
  MemoryStore store;
  EXPECT_TRUE(store.commit(make_base()).is_ok());
  EXPECT_TRUE(store.still_there().is_ok());
  store.lose_file();
  EXPECT_EQ(store.still_there().code(), Code::kDataLoss);
  EXPECT_EQ(store.commit(std::vector<Mutation>{make_sweep(2)}).code(), Code::kDataLoss);
}

TEST(MemoryStore, SaysThatItHasNoSqlAndNoFile) {
  MemoryStore store;
  EXPECT_EQ(store.query("SELECT 1", {}).error().code(), Code::kUnimplemented);
  EXPECT_EQ(store.backup("x").code(), Code::kUnimplemented);
}

}  // namespace
}  // namespace tailor::storage
