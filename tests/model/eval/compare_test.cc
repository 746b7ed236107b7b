#include "model/eval/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tailor::eval {
namespace {

using ::testing::HasSubstr;

/// An item with gold 0 that is answered rightly or not, by every metric.
ItemResult result(const std::string& task, int id, bool right) {
  ItemResult item;
  item.task = task;
  item.id = std::to_string(id);
  item.digest = "d" + item.id;
  item.choices = {{right ? -1.0 : -3.0, false, 1, 1, 1}, {-2, false, 1, 1, 1}};
  return item;
}

std::vector<ItemResult> results(const std::string& task, const std::string& right) {
  std::vector<ItemResult> items;
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (right[i] != ' ') items.push_back(result(task, static_cast<int>(i), right[i] == '1'));
  }
  return items;
}

TEST(EvalCompareTest, McNemarIsTheBinomialSumForAllSmallCounts) {
  for (std::size_t n = 0; n <= 40; ++n) {
    double sum = 0;
    double term = std::pow(0.5, static_cast<double>(n));  // C(n, 0) / 2^n
    for (std::size_t k = 0; k <= n / 2; ++k) {
      sum += term;
      term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
      EXPECT_NEAR(mcnemar_exact_p(k, n - k), std::min(1.0, 2 * sum), 1e-12);
      EXPECT_EQ(mcnemar_exact_p(n - k, k), mcnemar_exact_p(k, n - k));
    }
  }
}

TEST(EvalCompareTest, McNemarKnowsTheTextbookCase) {
  // b = 0: 2 / 2^n.
  EXPECT_NEAR(mcnemar_exact_p(0, 10), 2.0 / 1024, 1e-15);
  EXPECT_EQ(mcnemar_exact_p(0, 0), 1);
  EXPECT_LT(mcnemar_exact_p(100, 300), 1e-20);
  EXPECT_GT(mcnemar_exact_p(100, 300), 0);
}

TEST(EvalCompareTest, CountsWhatOneRunHasAndTheOtherHasNot) {
  const auto compared = compare(results("t", "1110001"), results("t", "1010111"));
  ASSERT_TRUE(compared.has_value()) << compared.error().to_string();
  ASSERT_EQ(compared->size(), 1u);
  ASSERT_EQ((*compared)[0].metrics.size(), 3u);
  const MetricComparison& acc = (*compared)[0].metrics[0];
  EXPECT_EQ((*compared)[0].items, 7u);
  EXPECT_EQ(acc.both_right, 3u);
  EXPECT_EQ(acc.only_a_right, 1u);
  EXPECT_EQ(acc.only_b_right, 2u);
  EXPECT_EQ(acc.both_wrong, 1u);
  EXPECT_DOUBLE_EQ(acc.a, 4.0 / 7);
  EXPECT_DOUBLE_EQ(acc.b, 5.0 / 7);
  EXPECT_DOUBLE_EQ(acc.difference, 1.0 / 7);
  EXPECT_DOUBLE_EQ(acc.p, 1);
  // Differences 0 -1 0 0 1 1 0: sample variance (3 - 7 / 49) / 6, over 7 items.
  EXPECT_NEAR(acc.standard_error, std::sqrt((3 - 1.0 / 7) / 6 / 7), 1e-15);
}

TEST(EvalCompareTest, PairsByTaskAndIdAndCountsTheRest) {
  std::vector<ItemResult> a = results("t", "11  1");
  std::vector<ItemResult> b = results("t", "0 01 ");
  for (const ItemResult& item : results("u", "1")) a.push_back(item);
  for (const ItemResult& item : results("v", "1")) b.push_back(item);
  const auto compared = compare(a, b);
  ASSERT_TRUE(compared.has_value());
  ASSERT_EQ(compared->size(), 1u);
  EXPECT_EQ((*compared)[0].items, 1u);
  EXPECT_EQ((*compared)[0].only_in_a, 2u);
  EXPECT_EQ((*compared)[0].only_in_b, 2u);
  EXPECT_TRUE(std::isnan((*compared)[0].metrics[0].standard_error));
}

TEST(EvalCompareTest, RefusesRunsThatCannotBePaired) {
  EXPECT_THAT(compare(results("t", "1"), results("u", "1")).error().message(),
              HasSubstr("no item of a common task"));
  EXPECT_THAT(compare(results("t", "1 "), results("t", " 1")).error().message(),
              HasSubstr("no item of a common task"));
  std::vector<ItemResult> other = results("t", "1");
  other[0].digest = "changed";
  EXPECT_THAT(compare(results("t", "1"), other).error().message(),
              HasSubstr("item \"0\" of t is not the same"));
}

}  // namespace
}  // namespace tailor::eval
