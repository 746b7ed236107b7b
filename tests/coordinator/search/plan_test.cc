#include "coordinator/search/plan.h"

#include <gmock/gmock.h>

#include <set>

#include "coordinator/search/algorithm.h"
#include "tests/sweep/sweep_text.h"

namespace tailor::search {
namespace {

using sweep::parse_or_die;
using sweep::SweepText;
using ::testing::HasSubstr;

TEST(Plan, CountsPointsFeasibleInfeasibleDuplicatesAndTrials) {
  SweepText text;
  text.space = "[space]\n\"ffn.kind\" = [\"swiglu\", \"hourglass\"]\n\"ffn.k\" = [1, 2, 3]\n";
  text.rest = "[seeds]\ncount = 5\n";
  const Plan plan = make_plan(parse_or_die(text)).value();
  // 2 named + 6 points: swiglu with K = 2 or 3 is impossible; swiglu K = 1 and hourglass K = 2 are
  // named already.
  EXPECT_EQ(plan.points, 8u);
  EXPECT_EQ(plan.feasible, 6u);
  EXPECT_EQ(plan.infeasible, 2u);
  EXPECT_EQ(plan.duplicates, 2u);
  EXPECT_EQ(plan.trials, 4u * 5u);
  EXPECT_TRUE(plan.exhaustive);
  ASSERT_EQ(plan.rows.size(), 8u);
  EXPECT_EQ(plan.rows[0].name, "conventional");
  EXPECT_EQ(plan.rows[2].name, "ffn.k=1 ffn.kind=swiglu");
  EXPECT_EQ(plan.rows[2].duplicate_of, "conventional");
  EXPECT_EQ(plan.rows[2].reason, "same architecture as conventional");
  EXPECT_FALSE(plan.rows[3].feasible);
  EXPECT_THAT(plan.rows[3].reason, HasSubstr("`ffn.k` is 2; allowed: 1"));
  EXPECT_EQ(plan.rows[6].duplicate_of, "hourglass");
}

TEST(Plan, FlopsAreThoseOfTheFormulaTimesTheTokens) {
  const Plan plan = make_plan(parse_or_die({})).value();
  // 3 (2 body + 2 V d + 2 L T H e) per token; 2 tokens per parameter.
  const double per_token = 3 * (2 * 1'048'576.0 + 2.0 * 512 * 128 + 2.0 * 4 * 128 * 128);
  EXPECT_DOUBLE_EQ(plan.rows[0].training_flops, per_token * 2 * 1'048'576.0);
  // Weights, gradients and moments alone are 16 bytes a parameter.
  EXPECT_GT(plan.rows[0].memory_bytes,
            16u * static_cast<std::uint64_t>(plan.rows[0].candidate.counts.total));
}

TEST(Plan, ALargeGridIsLookedAtInPartOnly) {
  SweepText text;
  text.space = "[space]\n\"train.optimizer.lr\" = { min = 0.001, max = 1.0, step = 0.000001 }\n";
  const Plan plan = make_plan(parse_or_die(text), 10).value();
  EXPECT_EQ(plan.rows.size(), 10u);
  EXPECT_FALSE(plan.exhaustive);
  EXPECT_EQ(plan.points, 2u + 999'001u);
  EXPECT_EQ(plan.feasible + plan.infeasible, 10u);
}

TEST(Plan, ARandomSearchShowsAsManyDistinctPointsAsItWillDraw) {
  SweepText text;
  text.space = "[space]\n\"ffn.kind\" = [\"hourglass\"]\n\"ffn.k\" = { min = 1, max = 40 }\n";
  text.rest = "[search]\nalgorithm = \"random\"\ntrials = 15\nseed = 3\n";
  const Plan plan = make_plan(parse_or_die(text)).value();
  // A point that is a candidate of the file is no new one: another is drawn in its place.
  EXPECT_EQ(plan.feasible - plan.duplicates, 2u + 15u);
  std::set<std::string> names;
  for (const PlanRow& row : plan.rows) names.insert(row.name);
  EXPECT_EQ(names.size(), plan.rows.size());
  text.rest = "[search]\nalgorithm = \"random\"\ntrials = 500\n";
  EXPECT_EQ(make_plan(parse_or_die(text)).value().points, 2u + 40u);
}

TEST(Plan, AGridMayBeCutByTrials) {
  SweepText text;
  text.space = "[space]\n\"ffn.kind\" = [\"hourglass\"]\n\"ffn.k\" = { min = 1, max = 40 }\n";
  text.rest = "[search]\nalgorithm = \"grid\"\ntrials = 3\n";
  const Plan plan = make_plan(parse_or_die(text)).value();
  EXPECT_EQ(plan.feasible - plan.duplicates, 2u + 3u);
}

TEST(Plan, ShowsThePointsThatTheSearchDraws) {
  SweepText text;
  text.candidates = "[[candidate]]\nname = \"conventional\"\n";
  text.space = "[space]\n\"ffn.kind\" = [\"hourglass\"]\n\"ffn.k\" = { min = 1, max = 40 }\n";
  for (const std::string_view name : algorithm_names()) {
    text.rest = "[search]\nalgorithm = \"" + std::string(name) + "\"\ntrials = 12\nseed = 5\n";
    const sweep::Spec spec = parse_or_die(text);
    const Plan plan = make_plan(spec).value();
    const auto algorithm = std::move(*make_algorithm(name, spec));
    const std::vector<sweep::Point> drawn = algorithm->suggest(12);
    ASSERT_EQ(plan.rows.size(), 1 + drawn.size()) << name;
    for (std::size_t i = 0; i < drawn.size(); ++i) EXPECT_EQ(plan.rows[i + 1].point, drawn[i]);
  }
}

TEST(Plan, ASweepThatTheCoordinatorWouldRefuseIsRefusedWithTheSameWords) {
  sweep::Spec spec = parse_or_die({});
  spec.space.resize(1);
  spec.space[0].path = "ffn.k";
  spec.space[0].values = {std::int64_t{1}};
  spec.search.algorithm = "gird";
  const auto plan = make_plan(spec);
  ASSERT_FALSE(plan.has_value());
  EXPECT_THAT(plan.error().message(), HasSubstr("did you mean 'grid'"));
}

}  // namespace
}  // namespace tailor::search
