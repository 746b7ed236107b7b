#include "sweep/candidate.h"

#include <gmock/gmock.h>

#include "tests/sweep/sweep_text.h"

namespace tailor::sweep {
namespace {

using ::testing::HasSubstr;

// The small sweep: attention 4 x 4 x 128^2 = 262,144,
// so the FFN gets 786,432 = 2,048 hidden units of 384.
constexpr std::int64_t kBody = 1'048'576;

Candidate resolved(const Spec& spec, const Point& point) {
  auto candidate = resolve(spec, "", point);
  EXPECT_TRUE(candidate.has_value()) << candidate.error().to_string();
  return candidate.value_or(Candidate());
}

std::string refusal(const Spec& spec, const Point& point) {
  const auto candidate = resolve(spec, "", point);
  EXPECT_FALSE(candidate.has_value());
  return candidate ? "" : candidate.error().message();
}

TEST(Candidate, EveryStackAndTaperMeetsTheBudgetExactly) {
  const Spec spec = parse_or_die({});
  for (const char* kind : {"uniform", "cosine", "linear"}) {
    for (const std::int64_t k : {1, 2, 3, 4, 5, 6, 7, 8}) {
      const Candidate c = resolved(spec, {{"ffn.kind", std::string("hourglass")},
                                          {"ffn.k", k},
                                          {"schedule.kind", std::string(kind)}});
      EXPECT_EQ(c.counts.body, kBody) << kind << k;
      EXPECT_EQ(c.budget_error, 0);
      EXPECT_EQ(c.architecture.widths[0].size(), static_cast<std::size_t>(k));
    }
  }
}

TEST(Candidate, TokensPerParameterFollowTheBody) {
  const Spec spec = parse_or_die({});
  EXPECT_EQ(resolved(spec, {}).train.tokens, 2 * kBody);
  EXPECT_EQ(resolved(spec, {{"train.tokens", std::int64_t{5000}}}).train.tokens, 5000);
  EXPECT_EQ(resolved(spec, {{"train.tokens", std::string("3 per parameter")}}).train.tokens,
            3 * kBody);
}

// The table of the prior's own values (N, D = 20 N and 50 N), to its three digits.
TEST(Candidate, TheStepLawSetsTheRateFromBodyParametersAndTokens) {
  struct Row {
    double parameters, at_20, at_50;
  };
  for (const Row& row : {Row{113e6, 2.41e-3, 3.20e-3}, Row{403e6, 1.44e-3, 1.91e-3},
                         Row{906e6, 1.04e-3, 1.37e-3}, Row{1.07e9, 9.69e-4, 1.28e-3}}) {
    EXPECT_NEAR(step_law_lr(row.parameters, 20 * row.parameters), row.at_20, 0.005 * row.at_20);
    EXPECT_NEAR(step_law_lr(row.parameters, 50 * row.parameters), row.at_50, 0.005 * row.at_50);
  }
  SweepText text;
  text.train += "optimizer.lr_mode = \"step_law\"\n";
  const Spec spec = parse_or_die(text);
  const Candidate c = resolved(spec, {});
  EXPECT_DOUBLE_EQ(c.train.optimizer.lr, step_law_lr(kBody, 2 * kBody));
  EXPECT_EQ(make_trial_spec(spec, c, 1).train.optimizer.lr, c.train.optimizer.lr);
  EXPECT_LT(resolved(spec, {{"train.tokens", std::int64_t{1'000'000}}}).train.optimizer.lr,
            c.train.optimizer.lr);
  EXPECT_THAT(refusal(spec, {{"train.optimizer.lr", 0.5}}), HasSubstr("step_law"));
  // A rate for each shape by hand: an axis like any other; and both modes side by side.
  EXPECT_EQ(resolved(spec, {{"train.optimizer.lr", 0.5},
                            {"train.optimizer.lr_mode", std::string("fixed")}})
                .train.optimizer.lr,
            0.5);
}

TEST(Candidate, RecipesThatTrainDifferentlyHaveDifferentHashesAndOthersTheSame) {
  const Spec spec = parse_or_die({});
  const std::string base = resolved(spec, {}).hash;
  const Point different[] = {
      {{"train.optimizer.lr_mode", std::string("mup")}},
      {{"train.optimizer.lr_mode", std::string("step_law")}},
      {{"train.schedule.kind", std::string("wsd")}},
      {{"train.dn_init", std::string("fan_in")}},
      {{"train.z_loss", 1e-5}},
      {{"train.nan_skip_limit", std::int64_t{1}}},
  };
  for (const Point& point : different)
    EXPECT_NE(resolved(spec, point).hash, base) << point_name(point);
  const Point same[] = {{{"train.recompute", true}},
                        {{"train.keep_last", std::int64_t{5}}},
                        {{"train.keep_best", true}},
                        {{"train.schedule.decay", 0.5}}};
  for (const Point& point : same) EXPECT_EQ(resolved(spec, point).hash, base) << point_name(point);
}

TEST(Candidate, RecipeOverridesChangeTheRecipeOnly) {
  const Spec spec = parse_or_die({});
  const Candidate base = resolved(spec, {});
  const Candidate other =
      resolved(spec, {{"train.optimizer.lr", 0.5}, {"train.batch", std::int64_t{256}}});
  EXPECT_EQ(other.train.optimizer.lr, 0.5);
  EXPECT_EQ(other.train.batch_tokens, 256);
  EXPECT_EQ(other.architecture, base.architecture);
  EXPECT_NE(other.hash, base.hash);
}

TEST(Candidate, EqualArchitecturesHaveEqualHashesWhateverTheirNamesAndPoints) {
  const Spec spec = parse_or_die({});
  EXPECT_EQ(
      resolve(spec, "a", {}).value().hash,
      resolve(spec, "b", {{"schedule.kind", std::string("uniform")}, {"layers", std::int64_t{4}}})
          .value()
          .hash);
  EXPECT_NE(
      resolved(spec, {}).hash,
      resolved(spec, {{"ffn.kind", std::string("hourglass")}, {"ffn.k", std::int64_t{2}}}).hash);
}

TEST(Candidate, WithoutABudgetWidthsAreAsGiven) {
  SweepText text;
  text.budget.clear();
  const Spec spec = parse_or_die(text);
  EXPECT_EQ(resolved(spec, {}).architecture.widths, shape::uniform_widths(4, 1, 512));
  EXPECT_EQ(resolved(spec, {{"d_h_ratio", 0.5}}).architecture.widths,
            shape::uniform_widths(4, 1, 64));
  EXPECT_EQ(resolved(spec, {{"d_model", std::int64_t{160}}}).architecture.heads, 5);
}

TEST(Candidate, TheBudgetMayBeThatOfTheBaseline) {
  SweepText text;
  text.budget = "[budget]\nparameters = \"same as baseline\"\n";
  text.candidates =
      "[[candidate]]\nname = \"conventional\"\nffn.d_h = 300\n[[candidate]]\nname = \"h\"\nffn = { "
      "kind = "
      "\"hourglass\", k = 7 }\n";
  const Spec spec = parse_or_die(text);
  const auto candidates = resolve_named(spec).value();
  EXPECT_EQ(candidates[0].architecture.widths, shape::uniform_widths(4, 1, 300));
  EXPECT_EQ(candidates[0].counts.body, 262'144 + 4 * 3 * 128 * 300);
  EXPECT_EQ(candidates[1].counts.body, candidates[0].counts.body);
}

TEST(Candidate, TheBaselineComesFirstWhereverItStands) {
  SweepText text;
  text.top = "name = \"small\"\nbaseline = \"hourglass\"\n";
  const auto candidates = resolve_named(parse_or_die(text)).value();
  EXPECT_EQ(candidates[0].name, "hourglass");
  EXPECT_EQ(candidates[1].name, "conventional");
}

TEST(Candidate, BudgetsThatCountNormsAndEmbeddingsAreMetToo) {
  for (const char* counts : {"body+norms", "total"}) {
    SweepText text;
    text.candidates = "[[candidate]]\nname = \"conventional\"\n";
    // The conventional network itself: body + 9 gains of 128 (+ 512 x 128 embedding).
    const std::int64_t parameters =
        kBody + 9 * 128 + (std::string(counts) == "total" ? 512 * 128 : 0);
    text.budget =
        "[budget]\nparameters = " + std::to_string(parameters) + "\ncounts = \"" + counts + "\"\n";
    const Spec spec = parse_or_die(text);
    EXPECT_EQ(resolved(spec, {}).architecture.widths, shape::uniform_widths(4, 1, 512));
    // 12 more gains of 128 are no whole number of units of 384 x 1; 4 more of K = 4 are.
    const Candidate k4 =
        resolved(spec, {{"ffn.kind", std::string("hourglass")}, {"ffn.k", std::int64_t{4}}});
    EXPECT_EQ(shape::budgeted(k4.counts, shape::parse_budget_counts(counts).value()), parameters);
    EXPECT_THAT(refusal(spec, {{"ffn.kind", std::string("hourglass")}, {"ffn.k", std::int64_t{2}}}),
                HasSubstr("misses the budget"));
  }
}

TEST(Candidate, SolvingForLayersOrModelWidthMeetsTheBudgetExactly) {
  SweepText text;
  text.budget = "[budget]\nparameters = 1_048_576\nsolve_for = \"layers\"\n";
  Spec spec = parse_or_die(text);
  EXPECT_EQ(resolved(spec, {}).architecture.widths, shape::uniform_widths(4, 1, 512));
  const Candidate narrow = resolved(spec, {{"ffn.d_h", std::int64_t{128}}});
  EXPECT_EQ(narrow.counts.body, kBody);
  EXPECT_GT(narrow.architecture.layers(), 4);
  const Candidate pinned = resolved(spec, {{"layers", std::int64_t{4}}});
  EXPECT_EQ(pinned.architecture.layers(), 4);
  EXPECT_THAT(refusal(spec, {{"layers", std::int64_t{5}}}), HasSubstr("by 262,144 too many"));

  text.budget = "[budget]\nparameters = 1_048_576\nsolve_for = \"d_model\"\n";
  text.architecture =
      "[architecture]\nlayers = 4\nhead_dim = 32\nvocab_size = 512\nd_h_ratio = 4\n";
  spec = parse_or_die(text);
  EXPECT_EQ(resolved(spec, {}).architecture.d_model, 128);
  EXPECT_EQ(resolved(spec, {}).architecture.heads, 4);
}

TEST(Candidate, AWidthThatIsSetIsCheckedNotSolved) {
  const Spec spec = parse_or_die({});
  EXPECT_EQ(resolved(spec, {{"ffn.d_h", std::int64_t{512}}}).budget_error, 0);
  EXPECT_THAT(refusal(spec, {{"ffn.d_h", std::int64_t{511}}}),
              HasSubstr("misses the budget of 1,048,576 parameters (body) by 1,536 too few"));
}

TEST(Candidate, InfeasiblePointsSayWhy) {
  SweepText text;
  text.budget = "[budget]\nparameters = 1_048_576\nattention = \"fixed\"\n";
  text.space =
      "[space]\nlayers = [2, 4]\nd_h_ratio = { min = 0.1, max = 4.0 }\nconstraints = [\"d_model / "
      "layers <= "
      "64\"]\n";
  const Spec spec = parse_or_die(text);
  EXPECT_EQ(refusal(spec, {{"d_model", std::int64_t{100}}})
                .find("`d_model` is 100; allowed: multiples of"),
            0u);
  EXPECT_THAT(
      refusal(spec, {{"kv_heads", std::int64_t{2}}}),
      HasSubstr(
          "has 196,608 attention parameters where `budget.attention` = \"fixed\" allows 262,144"));
  EXPECT_THAT(refusal(spec, {{"kv_heads", std::int64_t{3}}}), HasSubstr("divisors of `heads` = 4"));
  EXPECT_THAT(refusal(spec, {{"ffn.kind", std::string("hourglass")}}),
              HasSubstr("`ffn.k` is missing"));
  EXPECT_THAT(refusal(spec, {{"nonsense", std::int64_t{3}}}),
              HasSubstr("there is no key `nonsense`"));
  EXPECT_THAT(refusal(spec, {{"ffn.k", std::string("three")}}),
              HasSubstr("`ffn.k` must be an integer"));
  EXPECT_THAT(refusal(spec, {{"train.batch", std::int64_t{100}}}),
              HasSubstr("multiples of sequence_length = 128"));
  SweepText bounded;
  bounded.space =
      "[space]\n\"ffn.k\" = [1]\nd_h_ratio = { min = 0.1, max = 4.0 }\nconstraints = [\"d_model / "
      "layers <= 64\"]\n";
  const Spec bounded_spec = parse_or_die(bounded);
  EXPECT_THAT(refusal(bounded_spec, {{"layers", std::int64_t{1}}}),
              HasSubstr("does not satisfy \"0.1 <= d_h_ratio <= 4\" (d_h_ratio = 20)"));
  EXPECT_THAT(refusal(bounded_spec, {{"layers", std::int64_t{1}},
                                     {"ffn.kind", std::string("hourglass")},
                                     {"ffn.k", std::int64_t{16}}}),
              HasSubstr("does not satisfy \"d_model / layers <= 64\" (d_model = 128, layers = 1)"));
}

TEST(Candidate, AbsurdSizesAreRefusedInBoundedTime) {
  const Spec spec = parse_or_die({});
  EXPECT_THAT(refusal(spec, {{"layers", std::int64_t{4096}},
                             {"ffn.kind", std::string("hourglass")},
                             {"ffn.k", std::int64_t{1024}}}),
              HasSubstr("allowed: up to 65536 sub-MLPs"));
  SweepText text;
  text.budget = "[budget]\nparameters = 999_999_999_999\nsolve_for = \"d_model\"\n";
  text.architecture = "[architecture]\nlayers = 4096\nhead_dim = 2\nffn = { d_h = 100 }\n";
  text.candidates.clear();
  text.top = "name = \"x\"\n";
  text.space = "[space]\nvocab_size = [512]\n";
  text.train = "[train]\ntokens = 1000\nbatch = 1024\n";
  EXPECT_THAT(refusal(parse_or_die(text), {}),
              HasSubstr("no size from 2 to 262144 (step 2) meets the budget"));
}

TEST(Candidate, ConstraintsOfTheSpaceDoNotBindNamedCandidates) {
  SweepText text;
  text.space = "[space]\nlayers = [4]\nconstraints = [\"d_h_ratio < 4\"]\n";
  const Spec spec = parse_or_die(text);
  EXPECT_TRUE(resolve(spec, "conventional", {}).has_value());
  EXPECT_FALSE(resolve(spec, "layers=4", {{"layers", std::int64_t{4}}}).has_value());
}

TEST(Candidate, ATrialSpecCarriesTheCandidateAndTheSeed) {
  SweepText text;
  text.rest =
      "[evaluate]\ngeometry = { layers = [0, 3], tokens = 64, subsamples = 2, rho = 0.5 }\n";
  const Spec spec = parse_or_die(text);
  const Candidate candidate = resolve(spec, "hourglass", spec.candidates[1].overrides).value();
  const auto trial = make_trial_spec(spec, candidate, 17);
  EXPECT_EQ(trial.sweep_name, "small");
  EXPECT_EQ(trial.candidate_name, "hourglass");
  EXPECT_EQ(trial.seed, 17u);
  EXPECT_EQ(trial.architecture, candidate.architecture);
  EXPECT_EQ(trial.train, candidate.train);
  EXPECT_EQ(trial.data, spec.data);
  EXPECT_EQ(trial.geometry, (protocol::GeometrySpec{true, {0, 3}, 64, 2, 0.5, false}));
}

TEST(Candidate, ReasonsOfOneKindHaveOneText) {
  EXPECT_EQ(reason_kind(R"(does not satisfy "layers >= 86" (layers = 3, d_model = 64))"),
            R"(does not satisfy "layers >= 86")");
  EXPECT_EQ(reason_kind("misses the budget of 1,048,576 parameters (body) by 1,152: too many"),
            "misses the budget of N parameters (body) by N: too many");
  EXPECT_EQ(reason_kind("0.25, 3. and 4"), "N, N. and N");
  EXPECT_EQ(reason_kind(""), "");
}

}  // namespace
}  // namespace tailor::sweep
