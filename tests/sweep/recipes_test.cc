// deploy/sweeps/papers and deploy/sweeps/smoke: a sweep file for each claim of science.md 9, and
// its CPU version. Planned as `tailor plan` does; the numbers come from science.md (sections in the
// tests), not from the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <vector>

#include "base/file.h"
#include "coordinator/search/plan.h"
#include "sweep/cut.h"

namespace tailor::sweep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path kSweeps = TAILOR_SOURCE_DIR "/deploy/sweeps";

/// Files of a folder by the two digits that they begin with.
std::map<std::string, fs::path> files_of(const std::string& folder) {
  std::map<std::string, fs::path> out;
  for (const auto& entry : fs::directory_iterator(kSweeps / folder)) {
    const std::string name = entry.path().filename().string();
    EXPECT_TRUE(out.emplace(name.substr(0, 2), entry.path()).second) << name;
  }
  return out;
}

search::Plan plan_of(const fs::path& file) {
  const auto text = read_file(file.string());
  EXPECT_TRUE(text.has_value()) << file;
  const auto spec = parse(text.value_or(""), file.filename().string(), "/data");
  EXPECT_TRUE(spec.has_value()) << spec.error().to_string();
  return spec ? search::make_plan(*spec).value() : search::Plan{};
}

search::Plan paper(const std::string& number) { return plan_of(files_of("papers").at(number)); }

const Candidate& named(const search::Plan& plan, const std::string& name) {
  for (const search::PlanRow& row : plan.rows) {
    if (row.name == name) return row.candidate;
  }
  ADD_FAILURE() << "no candidate " << name;
  static const Candidate kNone;
  return kNone;
}

std::vector<std::int32_t> flat(const std::vector<shape::LayerWidths>& widths) {
  std::vector<std::int32_t> out;
  for (const auto& layer : widths) out.insert(out.end(), layer.begin(), layer.end());
  return out;
}

double ratio(const Candidate& c) {
  const auto widths = flat(c.architecture.widths);
  std::int64_t sum = 0;
  for (const std::int32_t w : widths) sum += w;
  return static_cast<double>(sum) / static_cast<double>(widths.size()) / c.architecture.d_model;
}

double width_over_depth(const Candidate& c) {
  return static_cast<double>(c.architecture.d_model) / c.architecture.layers();
}

TEST(Recipes, EachOfTheSixteenClaimsHasAPaperFileAndASmokeFileOfTheSameName) {
  const auto papers = files_of("papers");
  const auto smoke = files_of("smoke");
  ASSERT_EQ(papers.size(), 16u);
  ASSERT_EQ(smoke.size(), 16u);
  for (const auto& [number, file] : papers) {
    ASSERT_TRUE(smoke.contains(number)) << number;
    EXPECT_EQ(file.filename(), smoke.at(number).filename());
    const int n = std::atoi(number.c_str());
    EXPECT_TRUE(1 <= n && n <= 16) << number;
    // What is published and what is ours is said where it is used.
    EXPECT_THAT(*read_file(file.string()), HasSubstr("# PUBLISHED: "));
    EXPECT_THAT(*read_file(file.string()), HasSubstr("# OUR CHOICE: "));
    EXPECT_THAT(*read_file(file.string()), HasSubstr("# EXPECTED: "));
    EXPECT_THAT(*read_file(smoke.at(number).string()), HasSubstr("# OUR CHOICE: everything"));
  }
}

TEST(Recipes, EveryCandidateIsFeasibleDistinctAndMeetsItsBudgetExactly) {
  std::set<std::string> names;
  for (const std::string folder : {"papers", "smoke"}) {
    for (const auto& [number, file] : files_of(folder)) {
      const search::Plan plan = plan_of(file);
      EXPECT_TRUE(names.insert(plan.spec.name).second) << plan.spec.name << " twice";
      EXPECT_GE(plan.feasible, 3u) << file;
      EXPECT_EQ(plan.infeasible, 0u) << file;
      EXPECT_EQ(plan.duplicates, 0u) << file;
      EXPECT_TRUE(plan.exhaustive);
      // 0.001 % of 113,246,208 is what the paper allows itself; only one file makes use of it.
      const std::int64_t allowed = folder == "papers" && number == "04" ? 1'132 : 0;
      for (const search::PlanRow& row : plan.rows) {
        ASSERT_TRUE(row.feasible) << file << ": " << row.name << ": " << row.reason;
        EXPECT_LE(std::abs(row.candidate.budget_error), allowed) << file << ": " << row.name;
      }
    }
  }
}

TEST(Recipes, SmokeVersionsHaveTwoToTenMillionParametersAndRunOnCpus) {
  for (const auto& [number, file] : files_of("smoke")) {
    const search::Plan plan = plan_of(file);
    EXPECT_EQ(plan.spec.resources.gpus, 0) << file;
    EXPECT_EQ(plan.spec.name.substr(0, 8), "claim-" + number);
    for (const search::PlanRow& row : plan.rows) {
      EXPECT_GE(row.candidate.counts.body, 2'000'000) << file << ": " << row.name;
      EXPECT_LE(row.candidate.counts.body, 10'000'000) << file << ": " << row.name;
      EXPECT_GE(row.candidate.train.tokens, 20'000'000) << file;
      EXPECT_LE(row.candidate.train.tokens, 50'000'000) << file;
    }
  }
}

TEST(Recipes, PaperVersionsUseGpusAndTwentyTokensAParameter) {
  for (const auto& [number, file] : files_of("papers")) {
    const search::Plan plan = plan_of(file);
    EXPECT_GT(plan.spec.resources.gpus, 0) << file;
    EXPECT_GE(plan.spec.seeds.size(), number == "16" ? 1u : 3u) << file;
    for (const search::PlanRow& row : plan.rows) {
      EXPECT_NEAR(static_cast<double>(row.candidate.train.tokens),
                  20.0 * static_cast<double>(row.candidate.counts.body),
                  static_cast<double>(row.candidate.train.batch_tokens))
          << file << ": " << row.name;
    }
  }
}

// science.md 1.4.
TEST(Recipes, ScalesHaveTheCountsOfTheTable) {
  struct Scale {
    const char* file;
    const char* candidate;
    std::int64_t attention, ffn, body;
  };
  const Scale scales[] = {
      {"01", "conventional", 28'311'552, 84'934'656, 113'246'208},
      {"06", "conventional @ 113M", 28'311'552, 84'934'656, 113'246'208},
      {"06", "hourglass K=8 @ 403M", 100'663'296, 301'989'888, 402'653'184},
      {"06", "hourglass K=4 @ 906M", 226'492'416, 679'477'248, 905'969'664},
      {"07", "conventional", 268'435'456, 805'306'368, 1'073'741'824},
      {"07", "hourglass K=8", 268'435'456, 805'306'368, 1'073'741'824},
      {"07", "OLMo 2", 268'435'456, 805'306'368, 1'073'741'824},
      {"08", "hourglass K=8 @ 1.07B", 268'435'456, 805'306'368, 1'073'741'824},
      {"16", "bowtie", 28'311'552, 84'934'656, 113'246'208},
  };
  for (const Scale& scale : scales) {
    const search::Plan plan = paper(scale.file);
    const shape::Counts& counts = named(plan, scale.candidate).counts;
    EXPECT_EQ(counts.attention, scale.attention) << scale.file << ": " << scale.candidate;
    EXPECT_EQ(counts.ffn, scale.ffn) << scale.file << ": " << scale.candidate;
    EXPECT_EQ(counts.body, scale.body) << scale.file << ": " << scale.candidate;
  }
}

// science.md 1.4: K d_h = 3072.
TEST(Recipes, TheFixedAttentionFamilyHasTheWidthsOfTheTable) {
  const search::Plan plan = paper("01");
  const std::map<std::int32_t, std::int32_t> widths = {{6, 512}, {8, 384}, {12, 256}, {16, 192}};
  for (const auto& [k, d_h] : widths) {
    EXPECT_EQ(named(plan, "hourglass K=" + std::to_string(k)).architecture.widths,
              shape::uniform_widths(12, k, d_h));
  }
  const search::Plan gain = paper("02");
  EXPECT_EQ(gain.feasible, 8u);
  for (const search::PlanRow& row : gain.rows) {
    const auto all = flat(row.candidate.architecture.widths);
    std::int64_t sum = 0;
    for (const std::int32_t w : all) sum += w;
    EXPECT_EQ(sum, 36'864) << row.name;  // 12 x 3072
    EXPECT_EQ(row.candidate.counts.attention, 28'311'552) << row.name;
  }
}

TEST(Recipes, RatiosAreThoseThatTheyAreNamedAfter) {
  const search::Plan plan = paper("03");
  EXPECT_EQ(plan.feasible, 6u);
  for (const search::PlanRow& row : plan.rows) {
    EXPECT_NEAR(ratio(row.candidate), std::atof(row.name.substr(6).c_str()), 0.0101) << row.name;
    EXPECT_EQ(row.candidate.architecture.widths[0].size(), 4u);
  }
}

TEST(Recipes, WidthOverDepthRunsFromTwentyFiveToFiveHundredAcrossThePublishedOptimum) {
  const search::Plan plan = paper("04");
  int below = 0, inside = 0, above = 0;
  for (const search::PlanRow& row : plan.rows) {
    const double d_over_l = width_over_depth(row.candidate);
    EXPECT_GE(d_over_l, 25) << row.name;
    EXPECT_LE(d_over_l, 500) << row.name;
    below += d_over_l < 100;
    inside += d_over_l >= 100 && d_over_l <= 250;
    above += d_over_l > 250;
    EXPECT_NEAR(ratio(row.candidate), 0.4, row.name == "307 = 1536 / 5" ? 0.07 : 0.03);
  }
  EXPECT_GE(below, 3);
  EXPECT_GE(inside, 3);
  EXPECT_GE(above, 2);
}

// science.md 1.4 and 1.5: 66M / 47M, 6 x 732 + 8 x 731.
TEST(Recipes, TheAttentionHeavyShapeIsTheExactOneOfTheBrief) {
  const search::Plan plan = paper("05");
  const Candidate& best = named(plan, "58 % attention");
  EXPECT_EQ(best.counts.attention, 66'060'288);
  EXPECT_EQ(best.counts.ffn, 47'185'920);
  EXPECT_THAT(flat(best.architecture.widths),
              ElementsAre(732, 732, 732, 732, 732, 732, 731, 731, 731, 731, 731, 731, 731, 731));
  for (const search::PlanRow& row : plan.rows) {
    if (row.name == "conventional") continue;
    const double share = 100.0 * static_cast<double>(row.candidate.counts.attention) /
                         static_cast<double>(row.candidate.counts.body);
    EXPECT_NEAR(share, std::atof(row.name.c_str()), 0.5) << row.name;
    EXPECT_NEAR(ratio(row.candidate), 0.5, 0.07) << row.name;
  }
}

TEST(Recipes, ScalesOfTheScheduleStudyHaveThePresetsCounts) {
  // 4 d^2 L and 3 d d_ff L by hand.
  EXPECT_EQ(named(paper("14"), "uniform").counts.attention, 28'311'552);
  EXPECT_EQ(named(paper("14"), "uniform").counts.ffn, 60'162'048);
  EXPECT_EQ(named(paper("12"), "uniform @ 128M").counts.body, 28'311'552 + 60'162'048);
  EXPECT_EQ(named(paper("12"), "uniform @ 256M").counts.body, 67'108'864 + 138'412'032);
  EXPECT_EQ(named(paper("13"), "uniform").counts.body, 127'401'984 + 254'803'968);
  EXPECT_EQ(named(paper("15"), "reversed taper").counts.body, 127'401'984 + 254'803'968);
  EXPECT_EQ(paper("13").spec.seeds.size(), 5u) << "as published";
  EXPECT_EQ(paper("12").spec.seeds.size(), 3u) << "as published";
}

// science.md 2.1 and 2.2.
TEST(Recipes, TapersHaveTheVectorsOfTheBrief) {
  const search::Plan plan = paper("16");
  EXPECT_THAT(flat(named(plan, "cosine taper").architecture.widths),
              ElementsAre(4608, 4544, 4352, 4096, 3712, 3264, 2880, 2432, 2048, 1792, 1600, 1536));
  const double bowtie[] = {2.004739, 1.581032, 1.246877, .983347, .775514,  .611607,
                           .482342,  .380398,  .3,       .565067, 1.064337, 2.004739};
  const auto widths = flat(named(plan, "bowtie").architecture.widths);
  ASSERT_EQ(widths.size(), 12u);
  for (std::size_t l = 0; l < 12; ++l) {
    EXPECT_EQ(widths[l] % 64, 0);
    EXPECT_NEAR(widths[l], bowtie[l] * 3072, 64) << l;
  }
  const search::Plan tapers = paper("15");
  auto taper = flat(named(tapers, "cosine taper").architecture.widths);
  EXPECT_EQ(taper.front(), 4608);  // 1.5 x 3072
  EXPECT_EQ(taper.back(), 1536);
  std::reverse(taper.begin(), taper.end());
  const auto reverse = flat(named(tapers, "reversed taper").architecture.widths);
  for (std::size_t l = 0; l < 24; ++l) EXPECT_NEAR(reverse[l], taper[l], 64) << l;
}

// science.md 4.6, P1: the profile as a sweep would have measured it, through the file's own keys.
TEST(Recipes, SchedulesCutFromThePipelineVectorHaveItsWidths) {
  const double work[] = {.90, .62, .48, .40, .34, .30, .27, .25, .24, .24, .26, .33};
  const double dimension[] = {8, 9, 10, 12, 13, 14, 14, 13, 12, 11, 10, 9};
  std::vector<protocol::WorkEntry> profile;
  for (std::int32_t l = 0; l < 12; ++l) {
    profile.push_back({l, -1, "hyperbolic", "topology", work[l], 0.01});
    profile.push_back({l, -1, "raw", "two_nn", dimension[l], 0.1});
  }
  const search::Plan plan = paper("16");
  const auto cut = [&](const std::string& name) {
    const auto request = schedule_of(plan.spec, named(plan, name).point);
    EXPECT_TRUE(request.has_value()) << name;
    return cut_widths(request.value(), profile, named(plan, "uniform").architecture,
                      plan.spec.budget->width_multiple)
        .value();
  };
  EXPECT_THAT(flat(cut("work, neurons").widths),
              ElementsAre(5312, 4352, 3712, 3456, 3072, 2816, 2560, 2368, 2240, 2176, 2240, 2560));
  EXPECT_THAT(flat(cut("work, relative").widths),
              ElementsAre(7616, 5248, 3904, 2880, 2304, 1984, 1792, 1792, 1856, 1984, 2368, 3136));
  const std::vector<double> one = {6427.54029397, 4669.98551666, 3750.107502,   3207.55474978,
                                   2790.46136816, 2506.59248005, 2290.14524132, 2143.94723641,
                                   2070.22718405, 2070.22718405, 2217.24711288, 2719.96413066};
  const auto raw = cut("work, one exponent").raw_widths;
  ASSERT_EQ(raw.size(), one.size());
  for (std::size_t l = 0; l < one.size(); ++l) EXPECT_NEAR(raw[l], one[l], 1e-7) << l;
}

TEST(Recipes, ControlsAreOfTheProfileThatTheyControl) {
  const search::Plan plan = paper("14");
  EXPECT_EQ(plan.references, 1u) << "all are cut from one measurement";
  for (const char* name : {"topology, hyperbolic", "reversed", "permuted", "mirrored", "inverse"}) {
    const auto request = schedule_of(plan.spec, named(plan, name).point);
    ASSERT_TRUE(request.has_value()) << name;
    EXPECT_EQ(request->geometry, "hyperbolic") << name;
    EXPECT_EQ(request->statistic, "topology") << name;
  }
  const auto anti = schedule_of(plan.spec, named(plan, "anti-topology, raw").point);
  ASSERT_TRUE(anti.has_value());
  EXPECT_EQ(anti->geometry, "raw");
}

}  // namespace
}  // namespace tailor::sweep
