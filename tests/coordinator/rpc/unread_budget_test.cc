// Streams whose clients do not read: together they hold no more than there may be.
#include "coordinator/rpc/unread_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "storage/sqlite_store.h"
#include "tests/coordinator/rpc/served.h"
#include "tests/support/temporary_folder.h"

namespace tailor::rpc {
namespace {

using ::testing::HasSubstr;
using testing::Served;

constexpr std::size_t kMiB = 1 << 20;

class UnreadBudgetTest : public ::testing::Test {
 protected:
  UnreadBudgetTest() { clock_.advance(1'000); }
  UnreadBudget::Share share(int* ends) {
    return UnreadBudget::Share(budget_, [ends] { ++*ends; });
  }
  ManualClock clock_;
  UnreadBudget budget_{10 * kMiB, 30'000, clock_};
};

TEST_F(UnreadBudgetTest, WhatDoesNotFitIsRefusedAndNobodyIsEndedForIt) {
  int ends = 0;
  UnreadBudget::Share first = share(&ends), second = share(&ends);
  EXPECT_TRUE(first.hold(6 * kMiB, true).is_ok());
  clock_.advance(29'999);
  const Status refused = second.hold(6 * kMiB, false);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("of 10 MiB"));
  EXPECT_EQ(ends, 0);
  EXPECT_TRUE(first.hold(kMiB, false).is_ok());
  EXPECT_TRUE(second.hold(6 * kMiB, false).is_ok()) << "the first one's client has read";
}

TEST_F(UnreadBudgetTest, WhoseClientReadNothingForLongestIsEndedFirstAndOnlyForRoom) {
  int oldest = 0, younger = 0, busy = 0, fresh = 0;
  UnreadBudget::Share a = share(&oldest), b = share(&younger), c = share(&busy);
  ASSERT_TRUE(a.hold(3 * kMiB, true).is_ok());
  clock_.advance(1);
  ASSERT_TRUE(b.hold(3 * kMiB, true).is_ok());
  ASSERT_TRUE(c.hold(2 * kMiB, false).is_ok());  // its next message is being made
  clock_.advance(60'000);
  UnreadBudget::Share d = share(&fresh);
  EXPECT_TRUE(d.hold(kMiB, true).is_ok());
  EXPECT_EQ(oldest, 0) << "there was room";
  EXPECT_TRUE(d.hold(3 * kMiB, true).is_ok());
  EXPECT_EQ(oldest, 1);
  EXPECT_EQ(younger, 0);
  EXPECT_EQ(d.hold(10 * kMiB, true).code(), Code::kResourceExhausted);
  EXPECT_EQ(younger, 1);
  EXPECT_EQ(oldest, 1) << "once";
  EXPECT_EQ(busy, 0);
  EXPECT_EQ(fresh, 0);
}

TEST_F(UnreadBudgetTest, AShareThatGoesGivesItsPartBack) {
  int ends = 0;
  {
    std::optional<UnreadBudget::Share> gone;
    gone.emplace(budget_, [&] { ++ends; });
    ASSERT_TRUE(gone->hold(9 * kMiB, true).is_ok());
    EXPECT_GE(budget_.bytes(), 9 * kMiB);
  }
  EXPECT_EQ(budget_.bytes(), 0u);
  UnreadBudget::Share next = share(&ends);
  EXPECT_TRUE(next.hold(9 * kMiB, true).is_ok());
}

// ---- the same by real calls

struct Reading {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::QueryResponse>> reader;
  /// Reads one message.
  bool begin(Served& served) {
    Served::set_deadline(context);
    v1::QueryRequest request;
    request.set_sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000) "
        "SELECT i, printf('%.*c', 1000, 'x') FROM n");
    reader = served.client().QueryRows(&context, request);
    v1::QueryResponse first;
    return reader->Read(&first);
  }
  /// Reads the rest: rows, or the status that ended it.
  grpc::Status finish() {
    v1::QueryResponse more;
    while (reader->Read(&more)) continue;
    return reader->Finish();
  }
};

class UnreadQueries : public ::testing::Test {
 protected:
  UnreadQueries() : store_(storage::open_sqlite(folder_.file("t.db")).value()) {}
  static Options options(std::int64_t unread_ms_max) {
    Options out;
    out.unread_bytes_max = 40 * kMiB;  // results of 12 MB each
    out.unread_ms_max = unread_ms_max;
    return out;
  }
  test::TemporaryFolder folder_;
  std::unique_ptr<storage::Store> store_;
};

TEST_F(UnreadQueries, ManyResultsThatNobodyReadsAreRefusedBeforeTheyFillTheMemory) {
  Served served(*store_, options(600'000));
  std::vector<std::unique_ptr<Reading>> all;
  grpc::Status refused;
  while (all.size() < 8) {
    all.push_back(std::make_unique<Reading>());
    if (all.back()->begin(served)) continue;
    refused = all.back()->finish();
    break;
  }
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("have not read yet"));
  EXPECT_GE(all.size(), 3u) << "some have room beside each other";
  EXPECT_TRUE(all.front()->finish().ok()) << "who reads on gets all of it";
  EXPECT_TRUE(testing::eventually([&] {  // the server lets go a moment after the client
    Reading again;
    const bool begun = again.begin(served);
    again.context.TryCancel();
    return begun;
  }));
}

TEST_F(UnreadQueries, AResultThatNobodyReadsMakesRoomForOthersAfterAWhile) {
  Served served(*store_, options(0));
  std::vector<std::unique_ptr<Reading>> all;
  for (int i = 0; i < 8; ++i) {
    all.push_back(std::make_unique<Reading>());
    ASSERT_TRUE(all.back()->begin(served)) << i << ": " << all.back()->finish().error_message();
  }
  EXPECT_EQ(all.front()->finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(all.back()->finish().ok());
}

}  // namespace
}  // namespace tailor::rpc
