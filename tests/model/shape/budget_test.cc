#include "model/shape/budget.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "base/rng.h"

namespace tailor::shape {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t k113M = 113'246'208;
const WidthSchedule kCosineTaper{ScheduleKind::kCosine, ScheduleConvention::kEndpoint, 1.5, 0.5};

Architecture frame(std::int32_t d, std::int32_t layers, std::int32_t k) {
  Architecture a;
  a.d_model = d;
  a.head_dim = 64;
  a.heads = a.kv_heads = d / 64;
  a.vocab_size = 50304;
  a.ffn_kind = k == 1 ? FfnKind::kSwiglu : FfnKind::kHourglass;
  a.widths = uniform_widths(layers, k, 1);
  return a;
}

std::map<std::int32_t, int> histogram(const Architecture& a) {
  std::map<std::int32_t, int> out;
  for (const LayerWidths& layer : a.widths) {
    for (const std::int32_t width : layer) ++out[width];
  }
  return out;
}

TEST(Budget, TheAttentionHeavyExampleIsSpreadAsTheBriefSaysForEveryUnit) {
  const std::map<std::int32_t, std::map<std::int32_t, int>> expected = {
      {1, {{732, 6}, {731, 8}}}, {8, {{736, 6}, {728, 8}}}, {64, {{768, 6}, {704, 8}}}};
  for (const auto& [multiple, widths] : expected) {
    const auto solved =
        solve_hidden_width(frame(1536, 7, 2), {}, {k113M, BudgetCounts::kBody, multiple, 0});
    ASSERT_TRUE(solved.has_value()) << solved.error().to_string();
    EXPECT_EQ(histogram(solved->architecture), widths) << multiple;
    EXPECT_EQ(solved->error, 0);
    const Counts counts = count_parameters(solved->architecture);
    EXPECT_EQ(counts.body, k113M);
    EXPECT_EQ(counts.attention, 66'060'288);
    EXPECT_EQ(counts.ffn, 47'185'920);
    // The extra units stand on the earliest sub-MLPs: three layers of two.
    EXPECT_EQ(solved->architecture.widths[2][1], widths.rbegin()->first);
    EXPECT_EQ(solved->architecture.widths[3][0], widths.begin()->first);
  }
}

TEST(Budget, TheExactUniformPointsOfTheBriefComeOut) {
  const std::int32_t points[][4] = {{1152, 8, 4, 640},  {1536, 6, 2, 1024}, {1536, 6, 4, 512},
                                    {1536, 6, 8, 256},  {768, 12, 6, 512},  {768, 12, 8, 384},
                                    {768, 12, 1, 3072}, {768, 12, 12, 256}, {768, 12, 16, 192}};
  for (const auto& [d, layers, k, d_h] : points) {
    const auto solved = solve_hidden_width(frame(d, layers, k), {}, {k113M});
    ASSERT_TRUE(solved.has_value()) << solved.error().to_string();
    EXPECT_EQ(solved->architecture.widths, uniform_widths(layers, k, d_h)) << d << " " << k;
  }
}

TEST(Budget, ATaperMeetsTheSameExactBudget) {
  for (const std::int32_t k : {1, 2, 4, 6, 8}) {
    const auto solved = solve_hidden_width(frame(768, 12, k), kCosineTaper, {k113M});
    ASSERT_TRUE(solved.has_value()) << solved.error().to_string();
    EXPECT_EQ(count_parameters(solved->architecture).body, k113M);
    EXPECT_GT(solved->architecture.widths.front()[0], 2 * solved->architecture.widths.back()[0]);
  }
}

TEST(Budget, EveryRandomShapeEitherMeetsTheBudgetExactlyOrMissesItByWhatItSays) {
  Rng rng(11);
  int met = 0;
  for (int i = 0; i < 300; ++i) {
    Architecture a = frame(static_cast<std::int32_t>(64 * (1 + rng.below(12))),
                           static_cast<std::int32_t>(1 + rng.below(24)),
                           static_cast<std::int32_t>(1 + rng.below(8)));
    a.ffn_norm = static_cast<FfnNorm>(rng.below(5));
    const BudgetTarget target{static_cast<std::int64_t>(1'000'000 + rng.below(40'000'000)),
                              static_cast<BudgetCounts>(rng.below(3)),
                              static_cast<std::int32_t>(1 + rng.below(16)),
                              rng.below(2) == 0 ? 0 : 3 * std::int64_t{a.d_model} * 8};
    const auto solved =
        solve_hidden_width(a, rng.below(2) == 0 ? WidthSchedule{} : kCosineTaper, target);
    if (!solved) {
      EXPECT_EQ(solved.error().code(), Code::kOutOfRange);
      continue;
    }
    ++met;
    ASSERT_TRUE(validate(solved->architecture).is_ok());
    const std::int64_t miss =
        budgeted(count_parameters(solved->architecture), target.counts) - target.parameters;
    EXPECT_EQ(miss, solved->error);
    EXPECT_LE(std::abs(miss), target.tolerance);
    // science.md 1.5: the residual error is 1.5 d q at most.
    EXPECT_LE(2 * std::abs(miss), 3 * std::int64_t{a.d_model} * target.width_multiple);
    for (const auto& [width, count] : histogram(solved->architecture)) {
      EXPECT_EQ(width % target.width_multiple, 0);
    }
  }
  EXPECT_GT(met, 50);
}

TEST(Budget, AMissIsReportedInParameters) {
  // d = 768: one unit costs 2,304; 1,000 parameters more than an exact budget cannot be met.
  const auto solved = solve_hidden_width(frame(768, 12, 1), {}, {k113M + 1000});
  ASSERT_FALSE(solved.has_value());
  EXPECT_EQ(solved.error().code(), Code::kOutOfRange);
  EXPECT_THAT(solved.error().message(), HasSubstr("by 1,000 too few"));
  EXPECT_THAT(solved.error().message(), HasSubstr("= 2,304"));
  const auto tolerated =
      solve_hidden_width(frame(768, 12, 1), {}, {k113M + 1000, BudgetCounts::kBody, 1, 1000});
  ASSERT_TRUE(tolerated.has_value());
  EXPECT_EQ(tolerated->error, -1000);
}

TEST(Budget, AnAttentionLargerThanTheBudgetIsRefused) {
  const auto solved = solve_hidden_width(frame(2048, 12, 2), {}, {k113M});
  ASSERT_FALSE(solved.has_value());
  // 4 x 2048^2 x 12 = 201,326,592 and 24 sub-MLPs of one unit (6,144) on top.
  EXPECT_THAT(solved.error().message(), HasSubstr("by 88,227,840 too many"));
  EXPECT_THAT(solved.error().message(), HasSubstr("201,326,592 already"));
}

TEST(Budget, SolvingForLayersFindsTheDepthNearestToTheWantedWidth) {
  const auto at = [](std::int32_t layers) { return std::optional(frame(768, layers, 1)); };
  const auto solved = solve_size(at, 1, 4096, 1, {.d_h = 3072}, {}, {k113M});
  ASSERT_TRUE(solved.has_value()) << solved.error().to_string();
  EXPECT_EQ(solved->architecture.layers(), 12);
  EXPECT_EQ(solved->architecture.widths, uniform_widths(12, 1, 3072));
  const auto deeper = solve_size(at, 1, 4096, 1, {.ratio = 8.0 / 3.0}, {}, {k113M});
  ASSERT_TRUE(deeper.has_value());
  EXPECT_EQ(deeper->architecture.widths, uniform_widths(16, 1, 2048));
}

TEST(Budget, SolvingForLayersMeetsTheBudgetExactlyWhenNoDepthFitsTheWantedWidth) {
  const auto at = [](std::int32_t layers) { return std::optional(frame(768, layers, 4)); };
  const auto solved = solve_size(at, 1, 4096, 1, {.d_h = 307}, kCosineTaper, {k113M});
  ASSERT_TRUE(solved.has_value()) << solved.error().to_string();
  EXPECT_EQ(count_parameters(solved->architecture).body, k113M);
  std::int64_t hidden = 0, blocks = 0;
  for (const auto& [width, count] : histogram(solved->architecture)) {
    hidden += std::int64_t{width} * count;
    blocks += count;
  }
  EXPECT_NEAR(static_cast<double>(hidden) / static_cast<double>(blocks), 307, 307 * 0.05);
}

TEST(Budget, SolvingForModelWidthFindsTheWantedRatio) {
  const auto at = [](std::int32_t d) { return std::optional(frame(d, 12, 1)); };
  const auto solved = solve_size(at, 64, 1 << 18, 64, {.ratio = 4}, {}, {k113M});
  ASSERT_TRUE(solved.has_value()) << solved.error().to_string();
  EXPECT_EQ(solved->architecture.d_model, 768);
  const auto wide = solve_size([](std::int32_t d) { return std::optional(frame(d, 6, 4)); }, 64,
                               1 << 18, 64, {.d_h = 500}, {}, {k113M});
  ASSERT_TRUE(wide.has_value());
  EXPECT_EQ(wide->architecture.d_model, 1536);
  EXPECT_EQ(count_parameters(wide->architecture).body, k113M);
}

TEST(Budget, ASizeThatCannotBeSolvedNamesTheNearestMiss) {
  const auto at = [](std::int32_t layers) { return std::optional(frame(768, layers, 1)); };
  const auto solved = solve_size(at, 1, 4096, 1, {.d_h = 3072}, {}, {k113M + 1});
  ASSERT_FALSE(solved.has_value());
  EXPECT_EQ(solved.error().code(), Code::kOutOfRange);
  EXPECT_THAT(solved.error().message(), HasSubstr("by 1 too few"));
  EXPECT_FALSE(solve_size([](std::int32_t) { return std::optional<Architecture>(); }, 1, 10, 1,
                          {.d_h = 1}, {}, {k113M})
                   .has_value());
}

}  // namespace
}  // namespace tailor::shape
