// The ranks of a trial: meeting over a TCPStore, sharing rows, agreeing,
// and being told why it ended.
#include "model/train/ranks/group.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/support.h"
#include "tests/model/train/ranks/group_support.h"

namespace tailor::train::ranks {
namespace {

using protocol::EndClass;
using test::with_groups;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(GroupTest, RowsAreSharedEvenlyAndWholly) {
  with_groups(3, [](Group& group) {
    for (const std::int64_t rows : {3, 4, 8, 100}) {
      const Share share = group.share(rows);
      std::vector<double> counts(3);
      std::vector<double> begins(3);
      counts[static_cast<std::size_t>(group.rank())] = static_cast<double>(share.count);
      begins[static_cast<std::size_t>(group.rank())] = static_cast<double>(share.begin);
      group.sum(counts);
      group.sum(begins);
      double next = 0;
      for (std::size_t r = 0; r < 3; ++r) {
        EXPECT_EQ(begins[r], next);
        next += counts[r];
      }
      EXPECT_EQ(next, static_cast<double>(rows));
      EXPECT_LE(*std::max_element(counts.begin(), counts.end()) -
                    *std::min_element(counts.begin(), counts.end()),
                1);
    }
  });
}

TEST(GroupTest, TensorsAreSummedAndCopiedFromTheFirst) {
  with_groups(2, [](Group& group) {
    const at::Tensor x = at::full({3, 2}, group.rank() + 1, at::kFloat);
    group.sum(x);
    EXPECT_TRUE(test::same_bits(x, at::full({3, 2}, 3, at::kFloat)));
    const at::Tensor y = at::full({5}, group.rank() + 7, at::kDouble);
    group.copy_from_first(y);
    EXPECT_TRUE(test::same_bits(y, at::full({5}, 7, at::kDouble)));
  });
}

TEST(GroupTest, OneRankThatAsksToStopStopsAllAndIsNamed) {
  with_groups(3, [](Group& group) {
    EXPECT_EQ(group.agree(std::nullopt), std::nullopt);
    EXPECT_EQ(group.agree(group.rank() == 2 ? std::optional<std::string>("SIGTERM") : std::nullopt),
              "rank 2: SIGTERM");
    EXPECT_EQ(group.agree("the lease ran out"), "the lease ran out");
    EXPECT_THAT(group.gather("r" + std::to_string(group.rank())), ElementsAre("r0", "r1", "r2"));
    EXPECT_EQ(group.gather(std::string(3000, 'x'))[0].size(), 1000u);
  });
}

TEST(GroupTest, WhatWaitsForARankThatFailedThrowsItsReason) {
  with_groups(2, [](Group& group) {
    if (group.rank() == 1) {
      group.end(EndClass::kData, "shard 3 is cut");
      return;
    }
    try {
      group.sum(at::full({100'000}, 1, at::kFloat));
      ADD_FAILURE() << "no exception";
    } catch (const GroupLost& lost) {
      EXPECT_EQ(lost.end().rank, 1);
      EXPECT_EQ(lost.end().end, EndClass::kData);
      EXPECT_THAT(lost.what(), HasSubstr("shard 3 is cut"));
    }
    EXPECT_THROW(group.agree(std::nullopt), GroupLost);
  });
}

TEST(GroupTest, AGroupOfOneNeedsNobody) {
  Group group;
  EXPECT_EQ(group.share(10).begin, 0);
  EXPECT_EQ(group.share(10).count, 10);
  EXPECT_EQ(group.agree("now"), "now");
  EXPECT_THAT(group.gather("me"), ElementsAre("me"));
  EXPECT_FALSE(group.ended().has_value());
}

TEST(GroupTest, ARankThatFindsNoRankZeroSaysWhere) {
  const SystemClock clock;
  const Endpoint nobody = *local_endpoint(*listen_on({"127.0.0.1", 0}));  // closed again at once
  GroupOptions options;
  options.rank = 1;
  options.size = 2;
  options.rendezvous = nobody;
  options.meet_ms = 200;
  const auto group = Group::join(std::move(options), clock);
  ASSERT_FALSE(group.has_value());
  EXPECT_EQ(group.error().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(group.error().message(), HasSubstr(to_string(nobody)));
}

}  // namespace
}  // namespace tailor::train::ranks
