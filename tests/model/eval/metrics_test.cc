#include "model/eval/metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/eval/unicode.h"
#include "tests/model/eval/reference_items.h"

namespace tailor::eval {
namespace {

// Tables of log-likelihoods for which characters, bytes and characters with the joining space give
// different answers.
TEST(EvalMetricsTest, AnswersTheReferenceTablesAsTheHarnessDoes) {
  for (const auto& [task, table] : reference_scoring()["tables"].items()) {
    SCOPED_TRACE(task);
    const std::vector<Item> items = reference_items(task);
    std::vector<ItemResult> results;
    ASSERT_EQ(items.size(), table["per_item"].size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto& expected = table["per_item"][i];
      ItemResult& result = results.emplace_back();
      result.gold = items[i].gold;
      for (std::size_t c = 0; c < items[i].choices.size(); ++c) {
        const std::string& text = items[i].choices[c];
        result.choices.push_back(
            {expected["loglikelihoods"][c], false, 1, code_points(text), text.size()});
      }
      EXPECT_EQ(answer(result.choices, Metric::kAcc), expected["argmax"]);
      EXPECT_EQ(answer(result.choices, Metric::kAccNorm), expected["argmax_norm"]);
      EXPECT_EQ(answer(result.choices, Metric::kAccBytes), expected["argmax_if_bytes"]);
      EXPECT_EQ(is_right(result, Metric::kAcc), expected["acc"] == 1.0);
      EXPECT_EQ(is_right(result, Metric::kAccNorm), expected["acc_norm"] == 1.0);
    }
    EXPECT_EQ(accuracy(results, Metric::kAcc).value, table["acc"]);
    EXPECT_EQ(accuracy(results, Metric::kAccNorm).value, table["acc_norm"]);
  }
}

TEST(EvalMetricsTest, TheFirstOfEqualsWins) {
  const std::vector<ScoredChoice> tie = {
      {-9, false, 1, 3, 3}, {-3, false, 1, 1, 1}, {-3, false, 1, 1, 1}};
  EXPECT_EQ(answer(tie, Metric::kAcc), 1u);
  EXPECT_EQ(answer(tie, Metric::kAccNorm), 0u);
}

TEST(EvalMetricsTest, AChoiceWithoutCharactersDoesNotWinByLength) {
  const std::vector<ScoredChoice> choices = {{-1, false, 1, 0, 0}, {-50, false, 1, 2, 2}};
  EXPECT_EQ(answer(choices, Metric::kAcc), 0u);
  EXPECT_EQ(answer(choices, Metric::kAccNorm), 1u);
  EXPECT_EQ(answer(choices, Metric::kAccBytes), 1u);
}

TEST(EvalMetricsTest, StandardErrorsAreThoseOfASampleOfZerosAndOnes) {
  std::vector<ItemResult> items(5);
  for (ItemResult& item : items) item.choices = {{-1, false, 1, 1, 1}, {-2, false, 1, 1, 1}};
  items[0].gold = items[1].gold = 1;  // wrong
  // The sample standard deviation of 0 0 1 1 1 is sqrt(1.2 / 4); over sqrt(5) items.
  const Accuracy found = accuracy(items, Metric::kAcc);
  EXPECT_DOUBLE_EQ(found.value, 0.6);
  EXPECT_NEAR(found.standard_error, std::sqrt(1.2 / 4 / 5), 1e-15);
  EXPECT_TRUE(std::isnan(accuracy({items.data(), 1}, Metric::kAcc).standard_error));
}

}  // namespace
}  // namespace tailor::eval
