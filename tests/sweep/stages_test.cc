// Stages in the file: whose measurement a schedule is cut from, and the cut itself.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "geometry/width_problem.h"
#include "sweep/cut.h"
#include "sweep/references.h"
#include "tests/sweep/sweep_text.h"

namespace tailor::sweep {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::string staged(const std::string& name, const std::string& more) {
  return "[[candidate]]\nname = \"" + name +
         "\"\nschedule = { kind = \"geometry\", geometry = \"hyperbolic\", statistic = "
         "\"topology\"" +
         more + " }\n";
}

std::vector<std::string> names_in_order(const Spec& spec) {
  std::vector<std::string> names;
  for (const NamedCandidate* named : named_in_order(spec)) names.push_back(named->name);
  return names;
}

const NamedCandidate& named(const Spec& spec, const std::string& name) {
  for (const NamedCandidate& candidate : spec.candidates) {
    if (candidate.name == name) return candidate;
  }
  ADD_FAILURE() << "no candidate " << name;
  return spec.candidates.front();
}

std::string from_of(const Spec& spec, const std::string& name) {
  return to_text(named(spec, name).overrides.at("schedule.from"));
}

TEST(Stages, AScheduleWithoutFromIsCutFromTheUniformCandidateOfTheFile) {
  SweepText text;
  text.candidates += staged("shaped", "");
  const Spec spec = parse_or_die(text);
  ASSERT_EQ(spec.candidates.size(), 3u) << "nothing is inserted";
  EXPECT_EQ(from_of(spec, "shaped"), "conventional");
  const auto resolved = resolve_named(spec).value();
  EXPECT_TRUE(resolved[2].waiting);
  EXPECT_EQ(resolved[2].budget_error, 0);
  EXPECT_EQ(resolved[2].counts.body, 1'048'576);
  EXPECT_NE(resolved[2].hash, resolved[0].hash) << "nobody's twin while it waits";
}

TEST(Stages, AReferenceThatTheFileLacksIsInsertedOnceAndTrainedWithTheMeasuredSeeds) {
  SweepText text;
  text.candidates += staged("deep", "}\nlayers = 3\n#");  // another frame than the baseline
  text.candidates += staged("deep too", ", seed = 3 }\nlayers = 3\n#");
  text.rest = "[seeds]\ncount = 4\n";
  text.budget = "";
  const Spec spec = parse_or_die(text);
  ASSERT_EQ(spec.candidates.size(), 5u);
  EXPECT_EQ(from_of(spec, "deep"), "reference of deep");
  EXPECT_EQ(from_of(spec, "deep too"), "reference of deep");
  EXPECT_THAT(seeds_of(spec, "reference of deep"), ElementsAre(1, 3));
  EXPECT_EQ(seeds_of(spec, "deep").size(), 4u);
  EXPECT_TRUE(named(spec, "reference of deep").inserted);
  EXPECT_THAT(names_in_order(spec),
              ElementsAre("conventional", "reference of deep", "hourglass", "deep", "deep too"));
  EXPECT_FALSE(resolve(spec, "reference of deep", named(spec, "reference of deep").overrides)
                   .value()
                   .waiting);
}

TEST(Stages, IterationsAreWrittenOutAsAChain) {
  SweepText text;
  text.candidates += staged("fixed point", ", iterate = 2");
  const Spec spec = parse_or_die(text);
  EXPECT_EQ(from_of(spec, "fixed point, iteration 1"), "conventional");
  EXPECT_EQ(from_of(spec, "fixed point, iteration 2"), "fixed point, iteration 1");
  EXPECT_EQ(from_of(spec, "fixed point"), "fixed point, iteration 2");
}

TEST(Stages, WhatCannotBeCutIsRefusedByName) {
  const std::pair<std::string, std::string> cases[] = {
      {staged("a", ", from = \"conventionel\""), "did you mean \"conventional\"?"},
      {staged("a", ", from = \"a\""), "is the candidate itself"},
      {staged("a", ", from = \"b\"") + staged("b", ", from = \"a\""), "leads back to"},
      {staged("a", ", seed = 9"), "`schedule.seed` is 9; allowed: a seed of this sweep (1)"},
      {staged("a", ", window = 4"), "`schedule.window` is 4; allowed: odd"},
      {staged("a", ", waist = 0.2"), "`schedule.waist` is for schedule.kind = \"bowtie\""},
      {"[[candidate]]\nname = \"w\"\nwidths = [[8]]\nlayers = 1\n", "`widths` is complete and"},
      {"[[candidate]]\nname = \"w\"\nwidths = [8, 8, 8, 0]\n", "allowed: 1 to 1048576"},
      {"[[candidate]]\nname = \"w\"\nwidths = [8, 8, 8, 8]\n", "misses the budget"},
      {"[[candidate]]\nname = \"w\"\nschedule = { kind = \"cosine\", floor = 0.1 }\n",
       "`schedule.floor` is for schedule.kind = \"geometry\""},
  };
  for (const auto& [candidates, message] : cases) {
    SweepText text;
    text.candidates += candidates;
    const auto spec = text.parse();
    ASSERT_FALSE(spec.has_value()) << candidates;
    EXPECT_THAT(spec.error().message(), HasSubstr(message)) << candidates;
  }
  SweepText space;
  space.space = "[space]\n\"schedule.kind\" = [\"uniform\", \"geometry\"]\n";
  EXPECT_THAT(space.parse().error().message(), HasSubstr("cannot be an axis"));
}

TEST(Stages, WidthsThatTheFileGivesAreTakenAsTheyStand) {
  SweepText text;
  text.candidates +=
      "[[candidate]]\nname = \"given\"\nwidths = [600, 520, 480, 448]\n"
      "[[candidate]]\nname = \"stack\"\nffn.kind = \"hourglass\"\nwidths = [[300, 300], [260, "
      "260], [240, 240], [248, 200]]\n";
  const Spec spec = parse_or_die(text);
  const auto resolved = resolve_named(spec).value();
  EXPECT_EQ(resolved[2].architecture.widths,
            (std::vector<shape::LayerWidths>{{600}, {520}, {480}, {448}}));
  EXPECT_EQ(resolved[2].counts.body, 1'048'576);
  EXPECT_EQ(resolved[3].architecture.widths[3], (shape::LayerWidths{248, 200}));
  const auto again =
      restore(spec, "given", resolved[2].point, resolved[2].architecture, resolved[2].hash);
  EXPECT_TRUE(again.has_value()) << again.error().message();
}

TEST(Stages, ABowtieHasThePublishedWidths) {
  SweepText text;
  text.architecture =
      "[architecture]\nd_model = 128\nlayers = 12\nhead_dim = 32\nvocab_size = 512\nffn.d_h = "
      "1000\n";
  text.budget = "";
  text.candidates =
      "[[candidate]]\nname = \"conventional\"\n[[candidate]]\nname = \"bowtie\"\nschedule.kind = "
      "\"bowtie\"\n";
  const auto resolved = resolve_named(parse_or_die(text)).value();
  std::vector<std::int32_t> widths;
  for (const auto& layer : resolved[1].architecture.widths) widths.push_back(layer[0]);
  EXPECT_THAT(widths, ElementsAre(2005, 1581, 1247, 983, 776, 612, 482, 380, 300, 565, 1064, 2005));
}

// ---- the cut

constexpr double kWork[] = {.90, .62, .48, .40, .34, .30, .27, .25, .24, .24, .26, .33};
constexpr double kDimension[] = {8, 9, 10, 12, 13, 14, 14, 13, 12, 11, 10, 9};

/// The profile of science.md's P1.
std::vector<protocol::WorkEntry> profile_p1() {
  std::vector<protocol::WorkEntry> out;
  for (std::int32_t l = 0; l < 12; ++l) {
    out.push_back({l, -1, "hyperbolic", "topology", kWork[l], 0.01});
    out.push_back({l, -1, "raw", "two_nn", kDimension[l], 0.1});
  }
  return out;
}

/// L = 12, w_ref = 3072: 36,864 hidden units.
shape::Architecture uniform_p1(std::int32_t k = 1) {
  shape::Architecture a;
  a.d_model = 768;
  a.heads = a.kv_heads = 12;
  a.head_dim = 64;
  a.vocab_size = 512;
  a.ffn_kind = k == 1 ? shape::FfnKind::kSwiglu : shape::FfnKind::kHourglass;
  a.widths = shape::uniform_widths(12, k, 3072 / k);
  return a;
}

/// As a file asks for it.
ScheduleRequest request_p1(const std::string& more) {
  SweepText text;
  text.architecture =
      "[architecture]\nd_model = 768\nlayers = 12\nvocab_size = 512\nffn.d_h = 3072\n";
  text.budget = "";
  text.candidates =
      "[[candidate]]\nname = \"conventional\"\n" +
      staged("p1", ", smoothing = \"none\", quantum = 64, floor = 0.3333333333333333" + more);
  const Spec spec = parse_or_die(text);
  return schedule_of(spec, named(spec, "p1").overrides).value();
}

std::vector<std::int32_t> flat(const Cut& cut) {
  std::vector<std::int32_t> out;
  for (const auto& layer : cut.widths) out.insert(out.end(), layer.begin(), layer.end());
  return out;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t l = 0; l < got.size(); ++l) EXPECT_NEAR(got[l], wanted[l], 1e-7) << l;
}

TEST(Cut, ThePipelineVectorComesOutToItsDigits) {
  const Cut cut = cut_widths(request_p1(""), profile_p1(), uniform_p1(), 1).value();
  expect_near(cut.raw_widths, {5323.1538774, 4330.91059211, 3742.54179361, 3463.521245,
                               3072.8998692, 2788.41863064, 2542.84665778, 2354.04460859,
                               2235.43365376, 2179.69729505, 2245.31227715, 2585.21949972});
  EXPECT_THAT(flat(cut),
              ElementsAre(5312, 4352, 3712, 3456, 3072, 2816, 2560, 2368, 2240, 2176, 2240, 2560));
  const auto solution = nlohmann::json::parse(cut.solution_json);
  EXPECT_NEAR(solution["multiplier"].get<double>(), 4.94847342594e-6, 1e-16);
  EXPECT_NEAR(solution["objective"].get<double>(), .995289092334, 1e-11);
  EXPECT_EQ(solution["report"]["integer"]["exact"], true);
}

TEST(Cut, RelativeUnitsAndConstantExponentsHaveTheirVectors) {
  const Cut relative =
      cut_widths(request_p1(", width_unit = \"relative\""), profile_p1(), uniform_p1(), 1).value();
  EXPECT_THAT(flat(relative),
              ElementsAre(7616, 5248, 3904, 2880, 2304, 1984, 1792, 1792, 1856, 1984, 2368, 3136));
  const Cut constant = cut_widths(request_p1(", exponent = \"constant\", smoothness = "
                                             "0.16666666666666666"),
                                  profile_p1(), uniform_p1(), 1)
                           .value();
  expect_near(constant.raw_widths, {6427.54029397, 4669.98551666, 3750.107502, 3207.55474978,
                                    2790.46136816, 2506.59248005, 2290.14524132, 2143.94723641,
                                    2070.22718405, 2070.22718405, 2217.24711288, 2719.96413066});
}

TEST(Cut, ReversedAndPermutedControlsHaveTheSameWidthsInAnotherOrder) {
  const Cut plain = cut_widths(request_p1(""), profile_p1(), uniform_p1(), 1).value();
  std::vector<std::int32_t> reversed = flat(plain);
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_THAT(flat(cut_widths(request_p1(", control = \"reversed\""), profile_p1(), uniform_p1(), 1)
                       .value()),
              ElementsAreArray(reversed));
  const auto permuted = flat(cut_widths(request_p1(", control = \"permuted\", control_seed = 5"),
                                        profile_p1(), uniform_p1(), 1)
                                 .value());
  EXPECT_NE(permuted, flat(plain));
  EXPECT_THAT(permuted, ::testing::UnorderedElementsAreArray(flat(plain)));
  const auto mirrored = flat(
      cut_widths(request_p1(", control = \"mirrored\""), profile_p1(), uniform_p1(), 1).value());
  EXPECT_LT(mirrored.front(), mirrored[8]) << "most work gets least width";
}

TEST(Cut, AStackSharesItsLayersWidthOrHasOneForEachSubMlpAndKeepsEveryUnit) {
  const shape::Architecture stack = uniform_p1(2);
  const Cut shared = cut_widths(request_p1(""), profile_p1(), stack, 1).value();
  // Nearly the problem without the stack: w^-a is of the width of one sub-MLP.
  const Cut plain = cut_widths(request_p1(""), profile_p1(), uniform_p1(), 1).value();
  for (std::size_t l = 0; l < 12; ++l) {
    EXPECT_NEAR(2 * shared.raw_widths[l], plain.raw_widths[l], 400) << l;
    EXPECT_LE(shared.widths[l][0] - shared.widths[l][1], 64);
  }
  const auto widths = flat(shared);
  EXPECT_EQ(std::accumulate(widths.begin(), widths.end(), 0), 36'864);

  std::vector<protocol::WorkEntry> profile;
  for (std::int32_t l = 0; l < 12; ++l) {
    for (std::int32_t k = 0; k < 2; ++k) {
      profile.push_back({l, k, "hyperbolic", "topology", kWork[l] / (1 + k), 0.01});
      profile.push_back({l, k, "raw", "two_nn", kDimension[l], 0.1});
    }
  }
  const Cut own = cut_widths(request_p1(", sub_mlps = \"own\""), profile, stack, 1).value();
  const auto owned = flat(own);
  EXPECT_EQ(std::accumulate(owned.begin(), owned.end(), 0), 36'864);
  for (const auto& layer : own.widths) EXPECT_GE(layer[0], layer[1]) << "the first works more";
  EXPECT_THAT(
      cut_widths(request_p1(", sub_mlps = \"own\""), profile_p1(), stack, 1).error().message(),
      HasSubstr("no topology in geometry hyperbolic of sub-MLP 0 of layer 0"));
}

TEST(Cut, WhatIsNoMeasurementIsRefusedWithItsReason) {
  const auto refused = [](std::vector<protocol::WorkEntry> profile, const std::string& more = "") {
    const auto cut = cut_widths(request_p1(more), profile, uniform_p1(), 1);
    return cut ? std::string("it was cut") : cut.error().message();
  };
  auto profile = profile_p1();
  profile[4].value = std::nan("");
  EXPECT_THAT(refused(profile), HasSubstr("of layer 2 is nan, which is no measurement"));
  profile = profile_p1();
  for (auto& entry : profile) {
    if (entry.statistic == "topology") entry.value = 0;
  }
  EXPECT_THAT(refused(profile), HasSubstr("0 in every layer"));
  profile = profile_p1();
  profile.pop_back();
  EXPECT_THAT(refused(profile), HasSubstr("no two_nn in geometry raw of layer 11"));
  EXPECT_THAT(refused(profile_p1(), ", dimension = \"levina_bickel\""), HasSubstr("levina_bickel"));
  profile.erase(profile.begin());
  EXPECT_THAT(refused(profile), HasSubstr("no topology in geometry hyperbolic of layer 0"));
  shape::Architecture odd = uniform_p1();
  ++odd.widths[0][0];
  EXPECT_THAT(cut_widths(request_p1(""), profile_p1(), odd, 1).error().message(),
              HasSubstr("36,865 hidden units are no multiple of 64"));
}

TEST(Cut, TheProblemThatIsKeptGivesTheSameWidthsToTheAllocator) {
  const Cut cut = cut_widths(request_p1(""), profile_p1(), uniform_p1(), 1).value();
  const auto problem = geometry::parse_width_problem(cut.problem_json).value();
  const auto solution = geometry::solve_width_problem(problem).value();
  std::vector<std::int64_t> widths;
  for (const std::int32_t width : flat(cut)) widths.push_back(width);
  EXPECT_EQ(solution.integers->widths, widths);
}

}  // namespace
}  // namespace tailor::sweep
