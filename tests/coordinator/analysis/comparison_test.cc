// The paired table of a sweep: who is paired with whom, and what counts as failed or missing.
#include "coordinator/analysis/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tailor::analysis {
namespace {

using storage::CandidateRow;
using storage::TrialRow;
using storage::TrialState;

CandidateRow candidate(std::uint32_t index, const std::string& name) {
  CandidateRow row;
  row.sweep = SweepId{1};
  row.index = index;
  row.name = name;
  row.parameters_body = 1000 + index;
  return row;
}

TrialRow completed(std::uint32_t candidate, std::uint64_t seed, double loss) {
  TrialRow row;
  row.candidate = candidate;
  row.seed = seed;
  row.state = TrialState::kCompleted;
  row.objective = loss;
  row.final_values = {{"validation_loss", loss}, {"tokens_per_s", 100.0 + loss}};
  return row;
}

TrialRow in_state(std::uint32_t candidate, std::uint64_t seed, TrialState state) {
  TrialRow row;
  row.candidate = candidate;
  row.seed = seed;
  row.state = state;
  return row;
}

TEST(Comparison, PairsBySeedWhateverTheOrderOfTheTrials) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {completed(1, 7, 2.0), completed(0, 3, 4.0),
                                        completed(1, 3, 3.5), completed(0, 7, 2.25)};
  const auto table = compare(candidates, trials, "a").value();
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].name, "a");
  EXPECT_DOUBLE_EQ(table.rows[0].mean.value(), 3.125);
  EXPECT_FALSE(table.rows[0].paired.p_sign_flip.has_value());
  EXPECT_THAT(table.rows[1].seeds, testing::ElementsAre(3, 7));
  EXPECT_THAT(table.rows[1].differences, testing::ElementsAre(-0.5, -0.25));
  EXPECT_DOUBLE_EQ(table.rows[1].paired.mean, -0.375);
  EXPECT_DOUBLE_EQ(table.rows[1].tokens_per_s.value(), 102.75);
  EXPECT_DOUBLE_EQ(table.smallest_p, 0.5);
}

TEST(Comparison, PutsTheBaselineFirstWhereverItStands) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const auto table = compare(candidates, {}, "b").value();
  EXPECT_EQ(table.rows[0].name, "b");
  EXPECT_EQ(table.rows[1].name, "a");
}

TEST(Comparison, CountsFailedDivergedAndMissingSeedsAndNeverDropsThemSilently) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {completed(0, 1, 3.0),
                                        completed(0, 2, 3.0),
                                        completed(0, 3, 3.0),
                                        completed(0, 4, 3.0),
                                        completed(1, 1, 2.5),
                                        in_state(1, 2, TrialState::kFailed),
                                        completed(1, 3, std::numeric_limits<double>::quiet_NaN()),
                                        in_state(1, 4, TrialState::kRunning)};
  const auto table = compare(candidates, trials, "a").value();
  EXPECT_EQ(table.rows[0].missing, 0u);
  EXPECT_EQ(table.rows[1].paired.n, 1u);
  EXPECT_EQ(table.rows[1].failed, 2u);
  EXPECT_EQ(table.rows[1].missing, 3u);
  EXPECT_EQ(table.seeds, 4u);
}

TEST(Comparison, AnEarlyStoppedTrialIsNoPair) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  TrialRow stopped = completed(1, 1, 9.0);
  stopped.state = TrialState::kStopped;
  const std::vector<TrialRow> trials = {completed(0, 1, 3.0), stopped};
  EXPECT_EQ(compare(candidates, trials, "a")->rows[1].paired.n, 0u);
}

TEST(Comparison, ComparesAnotherFinalValueByName) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {completed(0, 1, 3.0), completed(1, 1, 5.0)};
  const auto table = compare(candidates, trials, "a", "tokens_per_s").value();
  EXPECT_DOUBLE_EQ(table.rows[1].differences.at(0), 2.0);
}

TEST(Comparison, AdjustsOverAllCandidatesThatHaveAPair) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b"),
                                                candidate(2, "c"), candidate(3, "never ran")};
  std::vector<TrialRow> trials;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    trials.push_back(completed(0, seed, 3.0));
    trials.push_back(completed(1, seed, 2.9));
    trials.push_back(completed(2, seed, 2.8));
  }
  const auto table = compare(candidates, trials, "a").value();
  EXPECT_DOUBLE_EQ(table.rows[1].p_holm.value(), 0.125);
  EXPECT_DOUBLE_EQ(table.rows[2].p_holm.value(), 0.125);
  EXPECT_FALSE(table.rows[3].p_holm.has_value());
}

TEST(Comparison, NamesTheNearestCandidateForAWrongBaseline) {
  const std::vector<CandidateRow> candidates = {candidate(0, "conventional")};
  const auto wrong = compare(candidates, {}, "conventionel");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(wrong.error().message(), testing::HasSubstr("did you mean \"conventional\""));
  EXPECT_THAT(compare(candidates, {}, "").error().message(), testing::HasSubstr("baseline"));
}

}  // namespace
}  // namespace tailor::analysis
