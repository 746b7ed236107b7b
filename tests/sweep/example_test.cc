// The sweep files that are shipped: they parse, and they keep their promises.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "coordinator/search/plan.h"
#include "sweep/candidate.h"

namespace tailor::sweep {
namespace {

TEST(ShippedSweeps, EveryFileParsesAndAllItsCandidatesMeetTheBudgetExactly) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(TAILOR_SOURCE_DIR "/deploy/sweeps")) {
    if (entry.path().extension() != ".toml") continue;
    ++files;
    const auto text = read_file(entry.path().string());
    ASSERT_TRUE(text.has_value());
    const auto spec = parse(*text, entry.path().filename().string(), "/data");
    ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
    const search::Plan plan = search::make_plan(*spec).value();
    EXPECT_GT(plan.feasible, 0u);
    for (const search::PlanRow& row : plan.rows) {
      if (row.feasible) {
        EXPECT_EQ(row.candidate.budget_error, 0) << row.name;
      }
    }
  }
  EXPECT_GT(files, 0);
}

TEST(ShippedSweeps, TheHourglassStudyHasSixCandidatesOfTheSameBody) {
  const auto text = read_file(TAILOR_SOURCE_DIR "/deploy/sweeps/hourglass-113m.toml");
  ASSERT_TRUE(text.has_value());
  const auto spec = parse(*text, "hourglass-113m.toml", "/data");
  ASSERT_TRUE(spec.has_value()) << spec.error().to_string();
  const auto candidates = resolve_named(*spec);
  ASSERT_TRUE(candidates.has_value()) << candidates.error().to_string();
  ASSERT_EQ(candidates->size(), 6u);
  for (const Candidate& candidate : *candidates) {
    EXPECT_EQ(candidate.counts.body, 113'246'208) << candidate.name;
    EXPECT_EQ(candidate.counts.attention, 28'311'552) << candidate.name;
    EXPECT_EQ(candidate.train.tokens, 20 * 113'246'208ll) << candidate.name;
    // 0.5M tokens are 244.14 sequences; the batch is whole sequences,
    // the micro batch a divisor of it.
    EXPECT_EQ(candidate.train.batch_tokens, 244 * 2048);
    EXPECT_EQ(candidate.train.micro_batch_tokens, 4 * 2048);
  }
  EXPECT_EQ((*candidates)[0].name, "conventional");
  EXPECT_EQ((*candidates)[0].architecture.widths, shape::uniform_widths(12, 1, 3072));
  EXPECT_EQ((*candidates)[3].architecture.widths, shape::uniform_widths(12, 6, 512));
  EXPECT_EQ((*candidates)[4].architecture.widths, shape::uniform_widths(12, 8, 384));
  EXPECT_EQ((*candidates)[5].architecture.widths.front(), shape::LayerWidths{4608});
  EXPECT_EQ((*candidates)[5].architecture.widths.back(), shape::LayerWidths{1536});
  EXPECT_EQ(spec->data.train, "/data/openwebtext/train-*.tokens");
  EXPECT_EQ(spec->seeds, (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
}

}  // namespace
}  // namespace tailor::sweep
