// [calibrate]: the base with one layer wider or narrower.
#include <gmock/gmock.h>

#include "base/file.h"
#include "coordinator/search/plan.h"
#include "sweep/candidate.h"
#include "sweep/compare_keys.h"
#include "tests/sweep/sweep_text.h"

namespace tailor::sweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SweepText calibrating(const std::string& keys) {
  SweepText text;
  text.budget = "";
  text.rest = "[calibrate]\n" + keys;
  return text;
}

const NamedCandidate& named(const Spec& spec, const std::string& name) {
  for (const NamedCandidate& candidate : spec.candidates) {
    if (candidate.name == name) return candidate;
  }
  TAILOR_CHECK(false, "no candidate {}", name);
}

TEST(Calibrate, EveryLayerComesAtEveryFactorAndNothingElseChanges) {
  const Spec spec = parse_or_die(calibrating("factors = [0.5, 2.0]\n"));
  // Two of the file, four layers at two factors each.
  ASSERT_EQ(spec.candidates.size(), 2u + 4 * 2);
  const Candidate base =
      resolve(spec, "conventional", named(spec, "conventional").overrides).value();
  const Candidate narrow =
      resolve(spec, "layer 2 x 0.5", named(spec, "layer 2 x 0.5").overrides).value();
  EXPECT_EQ(narrow.architecture.widths,
            (std::vector<shape::LayerWidths>{{512}, {512}, {256}, {512}}));
  shape::Architecture same = narrow.architecture;
  same.widths = base.architecture.widths;
  EXPECT_EQ(same, base.architecture);
  // 3 x 128 x 256 parameters fewer; the tokens are the base's all the same.
  EXPECT_EQ(base.counts.body - narrow.counts.body, 98'304);
  EXPECT_EQ(narrow.train, base.train);
  EXPECT_EQ(search::make_plan(spec).value().duplicates, 0u);
}

TEST(Calibrate, LayersCanBeNamedAndStacksAreScaledWhole) {
  SweepText text = calibrating("candidate = \"hourglass\"\nlayers = [3]\nfactors = [0.25, 4.0]\n");
  text.candidates =
      "[[candidate]]\nname = \"conventional\"\n[[candidate]]\nname = \"hourglass\"\n"
      "ffn = { kind = \"hourglass\", k = 2, d_h = 96 }\n";
  const Spec spec = parse_or_die(text);
  ASSERT_EQ(spec.candidates.size(), 4u);
  EXPECT_EQ(spec.candidates[2].name, "layer 3 x 0.25");
  const Candidate wide = resolve(spec, "w", spec.candidates[3].overrides).value();
  EXPECT_THAT(wide.architecture.widths[3], ElementsAre(384, 384));
  EXPECT_THAT(wide.architecture.widths[0], ElementsAre(96, 96));
}

TEST(Calibrate, ARateThatFollowsFromTheSizeIsTheBasesForAll) {
  SweepText text = calibrating("factors = [0.25, 4.0]\n");
  text.train =
      "[train]\ntokens = \"2 per parameter\"\nbatch = 1024\noptimizer = { lr_mode = \"step_law\" "
      "}\n";
  const Spec spec = parse_or_die(text);
  const Candidate base =
      resolve(spec, "conventional", named(spec, "conventional").overrides).value();
  const Candidate wide = resolve(spec, "layer 0 x 4", named(spec, "layer 0 x 4").overrides).value();
  EXPECT_EQ(wide.train.optimizer.lr, base.train.optimizer.lr);
  EXPECT_EQ(wide.train.tokens, base.train.tokens);
}

TEST(Calibrate, MistakesAreNamed) {
  const auto message = [](SweepText text) {
    const auto spec = text.parse();
    return spec ? std::string("it was read") : spec.error().message();
  };
  EXPECT_THAT(message(calibrating("")), HasSubstr("`calibrate.factors` is missing"));
  EXPECT_THAT(message(calibrating("factors = [0.5]\n")), HasSubstr("two entries"));
  EXPECT_THAT(message(calibrating("factors = [0.5, 1.0]\n")), HasSubstr("without 1"));
  EXPECT_THAT(message(calibrating("factors = [0.5, 0.5]\n")), HasSubstr("twice"));
  EXPECT_THAT(message(calibrating("factors = [0.5, 2]\nlayers = [4]\n")),
              HasSubstr("layers 0 to 3"));
  EXPECT_THAT(message(calibrating("factors = [0.5, 2]\nlayers = [1, 1]\n")),
              HasSubstr("each once"));
  EXPECT_THAT(message(calibrating("factors = [0.5, 2]\ncandidate = \"other\"\n")),
              HasSubstr("no [[candidate]]"));
  EXPECT_THAT(message(calibrating("factors = [0.5, 2]\nlayer = [1]\n")), HasSubstr("layers"));
  SweepText with_budget = calibrating("factors = [0.5, 2]\n");
  with_budget.budget = "[budget]\nparameters = 1_048_576\n";
  EXPECT_THAT(message(with_budget), HasSubstr("no [budget] allows"));
  SweepText nameless = calibrating("factors = [0.5, 2]\n");
  nameless.top = "name = \"small\"\n";
  EXPECT_THAT(message(nameless), HasSubstr("needs a base"));
}

TEST(Calibrate, AStoredFileSaysWhichCandidateWasVaried) {
  const auto base = [](const std::string& keys) {
    return calibrated_candidate_of_file(calibrating(keys).text(), "s.toml").value();
  };
  EXPECT_EQ(base("candidate = \"hourglass\"\nfactors = [0.5, 2]\n"), "hourglass");
  EXPECT_EQ(base("factors = [0.5, 2]\n"), "") << "the baseline";
  EXPECT_EQ(calibrated_candidate_of_file("name = \"other\"\n", "s.toml").value(), "");
}

TEST(Calibrate, ShippedFilesVaryEveryLayer) {
  const auto candidates = [](const char* file) {
    const auto text = read_file(std::string(TAILOR_SOURCE_DIR "/deploy/sweeps/") + file);
    const search::Plan plan = search::make_plan(parse(*text, file, "/data").value()).value();
    EXPECT_EQ(plan.infeasible + plan.duplicates, 0u);
    return plan.feasible;
  };
  EXPECT_EQ(candidates("calibrate-128m.toml"), 1u + 12 * 4);
  EXPECT_EQ(candidates("calibrate-smoke.toml"), 1u + 5 * 3);
}

}  // namespace
}  // namespace tailor::sweep
