// [compare], [scaling] and budgets of candidates: what is read, expanded and refused.
#include "sweep/compare_keys.h"

#include <gmock/gmock.h>

#include "sweep/candidate.h"
#include "tests/sweep/sweep_text.h"

namespace tailor::sweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string refusal(const SweepText& text) {
  const auto spec = text.parse();
  return spec ? "accepted" : spec.error().message();
}

TEST(CompareKeys, HaveDefaultsAndAreKeptInTheSpec) {
  const Spec plain = parse_or_die({});
  EXPECT_EQ(plain.compare, (CompareSpec{"", 0.02, std::nullopt}));
  SweepText text;
  text.rest = "[compare]\nprimary = \"hourglass\"\nsmallest_effect = 0.005\nexpected_sd = 0.01\n";
  EXPECT_EQ(parse_or_die(text).compare, (CompareSpec{"hourglass", 0.005, 0.01}));
  EXPECT_EQ(compare_of_file(text.text(), "s").value(), (CompareSpec{"hourglass", 0.005, 0.01}));
  EXPECT_EQ(compare_of_file("name = 3\nunknown = true\n", "s").value(), CompareSpec{})
      << "whatever else stands in the file";
}

TEST(CompareKeys, WrongOnesAreRefusedWithWhatIsAllowed) {
  const auto with = [](const std::string& lines) {
    SweepText text;
    text.rest = "[compare]\n" + lines + "\n";
    return refusal(text);
  };
  EXPECT_THAT(with("primary = \"hourglas\""), HasSubstr("did you mean \"hourglass\"?"));
  EXPECT_THAT(with("primary = \"conventional\""), HasSubstr("which is the `baseline`"));
  EXPECT_THAT(with("smallest_effect = 0"), HasSubstr("smallest_effect"));
  EXPECT_THAT(with("expected_sd = -1"), HasSubstr("expected_sd"));
  EXPECT_THAT(with("primry = \"hourglass\""), HasSubstr("primary"));
  SweepText text;
  text.top = "name = \"small\"\n";
  text.rest = "[compare]\nprimary = \"hourglass\"\n";
  EXPECT_THAT(refusal(text), HasSubstr("needs a `baseline`"));
}

SweepText scaling_text() {
  SweepText text;
  text.top = "name = \"small\"\n";
  text.architecture =
      "[architecture]\nhead_dim = 32\nvocab_size = 512\nd_h_ratio = 4\nffn.kind = \"swiglu\"\n";
  text.budget = "[budget]\nparameters = \"of each size\"\n";
  text.candidates =
      "[scaling]\nbaseline = \"conventional\"\n"
      "[[scaling.family]]\nname = \"hourglass\"\nffn = { kind = \"hourglass\", k = 2 }\n"
      "[[scaling.family]]\nname = \"conventional\"\n"
      "[[scaling.size]]\nname = \"S\"\nd_model = 64\nlayers = 2\n"
      "[[scaling.size]]\nname = \"M\"\nd_model = 128\nlayers = 4\n"
      "[[scaling.size]]\nname = \"L\"\nd_model = 128\nlayers = 8\nbudget.parameters = 2_097_152\n";
  return text;
}

TEST(Scaling, FamiliesTimesSizesAreCandidatesOfEqualBudgetAtEachSize) {
  const Spec spec = parse_or_die(scaling_text());
  EXPECT_THAT(spec.scaling.families, ElementsAre("hourglass", "conventional"));
  EXPECT_THAT(spec.scaling.sizes, ElementsAre("S", "M", "L"));
  EXPECT_EQ(spec.scaling.baseline, "conventional");
  ASSERT_EQ(spec.candidates.size(), 6u);
  EXPECT_EQ(spec.candidates[0].name, "hourglass @ S");
  EXPECT_EQ(spec.candidates[5].name, "conventional @ L");
  const auto candidates = resolve_named(spec).value();
  // 16 d^2 L: attention 4 d^2, FFN 3 d x 4 d, each layer.
  const std::int64_t body[] = {131'072, 131'072, 1'048'576, 1'048'576, 2'097'152, 2'097'152};
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    EXPECT_EQ(candidates[i].counts.body, body[i]) << candidates[i].name;
    EXPECT_EQ(candidates[i].budget_error, 0);
    EXPECT_EQ(candidates[i].train.tokens, 2 * body[i]) << "2 per parameter";
  }
  EXPECT_EQ(candidates[0].architecture.widths[0].size(), 2u);
}

TEST(Scaling, ACandidateOfItRestoresFromItsRow) {
  const Spec spec = parse_or_die(scaling_text());
  const std::vector<Candidate> named = resolve_named(spec).value();
  for (const Candidate& candidate : named) {
    EXPECT_TRUE(
        restore(spec, candidate.name, candidate.point, candidate.architecture, candidate.hash)
            .has_value())
        << candidate.name;
    EXPECT_TRUE(is_from_file(spec, candidate.name, candidate.point));
  }
}

TEST(Scaling, MistakesAreNamed) {
  const auto changed = [](const std::string& from, const std::string& to) {
    SweepText text = scaling_text();
    for (std::string* part : {&text.candidates, &text.budget}) {
      if (const auto at = part->find(from); at != std::string::npos) {
        part->replace(at, from.size(), to);
        return refusal(text);
      }
    }
    return std::string("not found: ") + from;
  };
  EXPECT_THAT(changed("baseline = \"conventional\"", "baseline = \"conventionel\""),
              HasSubstr("did you mean \"conventional\"?"));
  EXPECT_THAT(changed("name = \"M\"", "name = \"S\""), HasSubstr("two entries"));
  EXPECT_THAT(changed("k = 2 }", "k = 2 }\nd_model = 64"),
              HasSubstr("is set by family \"hourglass\" and by size \"S\""));
  EXPECT_THAT(changed("d_model = 64\n", ""), HasSubstr("d_model"));
  EXPECT_THAT(changed("name = \"L\"\n", ""), HasSubstr("`name` of this [[scaling.size]]"));
  EXPECT_THAT(changed("parameters = \"of each size\"", "parameters = 1000\nattention = \"fixed\""),
              HasSubstr("[scaling] has several sizes"));
  SweepText none = scaling_text();
  none.candidates = "[scaling]\n";
  EXPECT_THAT(refusal(none), HasSubstr("0 [[scaling.family]]"));
}

TEST(Scaling, OfEachSizeNeedsASize) {
  SweepText text;
  text.budget = "[budget]\nparameters = \"of each size\"\n";
  EXPECT_THAT(refusal(text), HasSubstr("is of no [[scaling.size]]"));
}

TEST(BudgetOfACandidate, StandsInPlaceOfTheSweeps) {
  SweepText text;
  text.candidates +=
      "[[candidate]]\nname = \"larger\"\nlayers = 8\nbudget.parameters = 2_097_152\n";
  const auto candidates = resolve_named(parse_or_die(text)).value();
  EXPECT_EQ(candidates[0].counts.body, 1'048'576);
  EXPECT_EQ(candidates[2].counts.body, 2'097'152);
  text.space = "[space]\n\"budget.parameters\" = [1_048_576, 1_343_488]\n";
  const Spec spec = parse_or_die(text);
  EXPECT_EQ(resolve(spec, "", grid_point(spec, 1)).value().counts.body, 1'343'488);
  text.budget = "";
  EXPECT_THAT(refusal(text), HasSubstr("this file has no [budget]"));
}

}  // namespace
}  // namespace tailor::sweep
