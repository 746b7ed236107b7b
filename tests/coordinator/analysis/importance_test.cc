// Importance of axes against variance shares in closed form.
#include "coordinator/analysis/importance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/rng.h"

namespace tailor::analysis {
namespace {

ImportanceInput drawn(std::size_t axes, std::size_t trials,
                      const std::function<double(const std::vector<double>&)>& f) {
  ImportanceInput input;
  for (std::size_t a = 0; a < axes; ++a) input.axes.push_back({"axis " + std::to_string(a)});
  Rng rng(3);
  for (std::size_t i = 0; i < trials; ++i) {
    std::vector<double> x;
    for (std::size_t a = 0; a < axes; ++a) x.push_back(rng.uniform());
    input.y.push_back(f(x));
    input.x.push_back(std::move(x));
  }
  return input;
}

TEST(Importance, OfASumIsTheShareOfEachTerm) {
  // Var(3 x) : Var(x) = 9 : 1, and the third axis does nothing.
  const auto answer =
      importance_of(drawn(3, 1'500, [](const std::vector<double>& x) { return 3 * x[0] + x[1]; }));
  ASSERT_TRUE(answer.has_value());
  EXPECT_NEAR(answer->axes[0].alone.value, 0.9, 0.03);
  EXPECT_NEAR(answer->axes[1].alone.value, 0.1, 0.03);
  EXPECT_NEAR(answer->axes[2].alone.value, 0.0, 0.01);
  EXPECT_NEAR(answer->pairs.front().share.value, 0.0, 0.03);
  EXPECT_GT(answer->explained.value(), 0.95);
  // Shuffling x makes the squared error 2 Var(3 x), of Var y = 10 / 9 Var(3 x).
  EXPECT_NEAR(answer->axes[0].permutation.value, 1.8, 0.2);
  EXPECT_NEAR(answer->axes[1].permutation.value, 0.2, 0.05);
  EXPECT_NEAR(answer->axes[2].permutation.value, 0.0, 0.02);
  EXPECT_TRUE(answer->notes.empty());
}

TEST(Importance, OfAProductBelongsToThePair) {
  const auto answer = importance_of(
      drawn(3, 3'000, [](const std::vector<double>& x) { return (x[0] - 0.5) * (x[2] - 0.5); }));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->pairs.front().a, 0u);
  EXPECT_EQ(answer->pairs.front().b, 2u);
  EXPECT_GT(answer->pairs.front().share.value, 0.8);
  for (const AxisImportance& axis : answer->axes) EXPECT_LT(axis.alone.value, 0.1) << axis.name;
  EXPECT_LT(answer->axes[1].permutation.value, 0.1);
  EXPECT_GT(answer->axes[0].permutation.value, 0.8);
}

TEST(Importance, OfAChoiceDoesNotDependOnTheOrderOfItsValues) {
  // Values 1, 0, 1, 0 of four equal cells: all the variance; the second axis has none.
  auto input = drawn(2, 400, [](const std::vector<double>& x) {
    return static_cast<int>(x[0] * 4) % 2 == 0 ? 1.0 : 0.0;
  });
  input.axes[0] = {"kind", true, 4};
  const auto answer = importance_of(input);
  ASSERT_TRUE(answer.has_value());
  EXPECT_GT(answer->axes[0].alone.value, 0.99);
  EXPECT_LT(answer->axes[1].alone.value, 0.005);
}

TEST(Importance, AnAxisThatIsNotAlwaysActiveHasACellForIt) {
  // Not active half of the time, which is all that matters.
  auto input = drawn(2, 600, [](const std::vector<double>& x) { return x[0] < 0.5 ? 1.0 : 0.0; });
  for (std::size_t i = 0; i < input.x.size(); ++i) {
    input.x[i][0] = input.x[i][0] < 0.5 ? std::nan("") : 2 * input.x[i][0] - 1;
  }
  const auto answer = importance_of(input);
  ASSERT_TRUE(answer.has_value());
  EXPECT_GT(answer->axes[0].alone.value, 0.99);
}

TEST(Importance, OfNoiseSaysThatItMeansLittle) {
  Rng rng(8);
  const auto answer =
      importance_of(drawn(3, 200, [&](const std::vector<double>&) { return rng.normal(); }));
  ASSERT_TRUE(answer.has_value());
  EXPECT_LT(answer->explained.value(), 0.1);
  ASSERT_EQ(answer->notes.size(), 1u);
  EXPECT_NE(answer->notes[0].find("mean little"), std::string::npos);
  for (const AxisImportance& axis : answer->axes) {
    EXPECT_NEAR(axis.permutation.value, 0, 3 * axis.permutation.spread) << axis.name;
  }
}

TEST(Importance, TheSpreadShrinksWithMoreTrials) {
  const auto f = [](const std::vector<double>& x) { return 3 * x[0] + x[1]; };
  const auto few = importance_of(drawn(2, 40, f)), many = importance_of(drawn(2, 1'000, f));
  EXPECT_GT(few->axes[0].alone.spread, 2 * many->axes[0].alone.spread);
  EXPECT_NEAR(few->axes[0].alone.value, 0.9, 3 * few->axes[0].alone.spread);
}

TEST(Importance, TrialsThatAreNotFiniteAreLeftOutAndCounted) {
  auto input = drawn(2, 100, [](const std::vector<double>& x) { return x[0]; });
  input.y[3] = std::nan("");
  input.y[7] = std::numeric_limits<double>::infinity();
  const auto answer = importance_of(input);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->trials, 98u);
  EXPECT_EQ(answer->left_out, 2u);
  EXPECT_EQ(answer->notes.size(), 1u);
}

TEST(Importance, WhatSaysNothingIsAnError) {
  const auto few = importance_of(drawn(2, 5, [](const std::vector<double>& x) { return x[0]; }));
  EXPECT_EQ(few.error().code(), Code::kFailedPrecondition);
  const auto flat = importance_of(drawn(2, 50, [](const std::vector<double>&) { return 1.0; }));
  EXPECT_EQ(flat.error().code(), Code::kFailedPrecondition);
  auto outside = drawn(2, 50, [](const std::vector<double>& x) { return x[0]; });
  outside.x[4][1] = 1.5;
  EXPECT_EQ(importance_of(outside).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(importance_of({}).error().code(), Code::kInvalidArgument);
}

TEST(Importance, IsTheSameEachTime) {
  const auto input = drawn(3, 60, [](const std::vector<double>& x) { return x[0] * x[1]; });
  const auto first = importance_of(input), second = importance_of(input);
  for (std::size_t a = 0; a < 3; ++a) {
    EXPECT_EQ(first->axes[a].alone.value, second->axes[a].alone.value);
    EXPECT_EQ(first->axes[a].permutation.value, second->axes[a].permutation.value);
  }
}

}  // namespace
}  // namespace tailor::analysis
