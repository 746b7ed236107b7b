// The paired table of a sweep: who is paired with whom, and what counts as failed or missing.
#include "coordinator/analysis/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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

TrialRow failed_with(std::uint32_t candidate, std::uint64_t seed, const std::string& end_class) {
  TrialRow row = in_state(candidate, seed, TrialState::kFailed);
  row.end_class = protocol::parse_end_class(end_class).value();
  return row;
}

TEST(Comparison, PairsBySeedWhateverTheOrderOfTheTrials) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {completed(1, 7, 2.0), completed(0, 3, 4.0),
                                        completed(1, 3, 3.5), completed(0, 7, 2.25)};
  const auto table = compare(candidates, trials, {}, "a").value();
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0].name, "a");
  EXPECT_DOUBLE_EQ(table.rows[0].mean.value(), 3.125);
  EXPECT_FALSE(table.rows[0].paired.sign_flip.has_value());
  EXPECT_THAT(table.rows[1].seeds, testing::ElementsAre(3, 7));
  EXPECT_THAT(table.rows[1].differences, testing::ElementsAre(-0.5, -0.25));
  EXPECT_DOUBLE_EQ(table.rows[1].paired.mean, -0.375);
  EXPECT_DOUBLE_EQ(table.rows[1].tokens_per_s.value(), 102.75);
  EXPECT_DOUBLE_EQ(table.smallest_p, 0.5);
}

TEST(Comparison, PutsTheBaselineFirstWhereverItStands) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const auto table = compare(candidates, {}, {}, "b").value();
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
  const auto table = compare(candidates, trials, {}, "a").value();
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
  EXPECT_EQ(compare(candidates, trials, {}, "a")->rows[1].paired.n, 0u);
}

TEST(Comparison, ComparesAnotherFinalValueByName) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {completed(0, 1, 3.0), completed(1, 1, 5.0)};
  const auto table = compare(candidates, trials, {}, "a", "tokens_per_s").value();
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
  const auto table = compare(candidates, trials, {}, "a").value();
  EXPECT_DOUBLE_EQ(table.rows[1].p_holm.value(), 0.125);
  EXPECT_DOUBLE_EQ(table.rows[2].p_holm.value(), 0.125);
  EXPECT_FALSE(table.rows[3].p_holm.has_value());
}

TEST(Comparison, AFailedSeedMakesACandidateIncompleteWithoutPAndNeverTheBest) {
  // "b" is lucky where it survives: judged by its finished seeds alone it would win.
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b"),
                                                candidate(2, "c")};
  std::vector<TrialRow> trials;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    trials.push_back(completed(0, seed, 3.0));
    trials.push_back(seed == 4 ? failed_with(1, seed, "nan") : completed(1, seed, 2.0));
    trials.push_back(completed(2, seed, 2.9));
  }
  const auto table = compare(candidates, trials, {}, "a").value();
  const ComparisonRow& lucky = table.rows[1];
  EXPECT_EQ(lucky.status, RowStatus::kIncomplete);
  EXPECT_EQ(lucky.paired.n, 4u);
  EXPECT_DOUBLE_EQ(lucky.paired.mean, -1.0);
  EXPECT_FALSE(lucky.paired.sign_flip.has_value());
  EXPECT_FALSE(lucky.p_holm.has_value());
  EXPECT_THAT(lucky.note, testing::HasSubstr("1 of 5 seeds failed"));
  EXPECT_THAT(lucky.note, testing::HasSubstr("never the best"));
  EXPECT_EQ(table.rows[2].status, RowStatus::kComplete);
  EXPECT_DOUBLE_EQ(table.rows[2].p_holm.value(), 0.0625) << "one test is left";
  EXPECT_EQ(table.best, 2u);
  EXPECT_THAT(table.notes, testing::Contains(testing::HasSubstr("1 candidates are incomplete")));
}

TEST(Comparison, ALostOrCancelledSeedIsNotHeldAgainstACandidate) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {
      completed(0, 1, 3.0), completed(0, 2, 3.0),           completed(0, 3, 3.0),
      completed(1, 1, 2.5), failed_with(1, 2, "node_lost"), in_state(1, 3, TrialState::kCancelled)};
  const auto table = compare(candidates, trials, {}, "a").value();
  EXPECT_EQ(table.rows[1].status, RowStatus::kUnfinished);
  EXPECT_EQ(table.rows[1].lost, 2u);
  EXPECT_EQ(table.rows[1].failed, 0u);
  EXPECT_TRUE(table.rows[1].paired.sign_flip.has_value());
  EXPECT_EQ(table.best, 0u) << "the baseline is the only one whose seeds are all there";
}

TEST(Comparison, AnEarlyStoppedSeedMakesACandidateIncomplete) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {completed(0, 1, 3.0), completed(0, 2, 3.0),
                                        completed(1, 1, 2.0), in_state(1, 2, TrialState::kStopped)};
  const auto table = compare(candidates, trials, {}, "a").value();
  EXPECT_EQ(table.rows[1].status, RowStatus::kIncomplete);
  EXPECT_EQ(table.rows[1].stopped, 1u);
}

TEST(Comparison, PairsTrainedOnOtherDataAreRefusedAndSaid) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  std::vector<TrialRow> trials;
  std::vector<Provenance> provenance;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    for (std::uint32_t c = 0; c < 2; ++c) {
      trials.push_back(completed(c, seed, 3.0 - c));
      trials.back().id = TrialId{10 * seed + c};
      // The shards were replaced after the third trial of the sweep.
      const bool old = seed == 1 || (seed == 2 && c == 0);
      provenance.push_back({trials.back().id, old ? "old" : "new", "0.1.0"});
    }
  }
  const auto table = compare(candidates, trials, provenance, "a").value();
  EXPECT_THAT(table.rows[1].seeds, testing::ElementsAre(1, 3, 4)) << "seed 2: old against new";
  EXPECT_EQ(table.rows[1].other_data, 1u);
  EXPECT_EQ(table.rows[1].missing, 1u);
  EXPECT_THAT(table.rows[1].note, testing::HasSubstr("other data"));
  EXPECT_THAT(table.notes, testing::Contains(testing::HasSubstr("1 pairs are refused")));
  EXPECT_EQ(table.best, 0u) << "what was paired on less is not the best";
}

TEST(Comparison, PairsOfOtherVersionsCountAndAreSaid) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  std::vector<TrialRow> trials = {completed(0, 1, 3.0), completed(1, 1, 2.0)};
  trials[0].id = TrialId{1};
  trials[1].id = TrialId{2};
  const std::vector<Provenance> provenance = {{TrialId{1}, "d", "0.1.0"},
                                              {TrialId{2}, "d", "0.2.0"}};
  const auto table = compare(candidates, trials, provenance, "a").value();
  EXPECT_EQ(table.rows[1].paired.n, 1u);
  EXPECT_EQ(table.rows[1].other_version, 1u);
  EXPECT_THAT(table.notes, testing::Contains(testing::HasSubstr("different versions")));
}

TEST(Comparison, UnknownDataOfSomePairsIsSaid) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  std::vector<TrialRow> trials;
  std::vector<Provenance> provenance;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    for (std::uint32_t c = 0; c < 2; ++c) {
      trials.push_back(completed(c, seed, 3.0 - c));
      trials.back().id = TrialId{10 * seed + c};
      if (seed == 1) provenance.push_back({trials.back().id, "d", "0.1.0"});
    }
  }
  const auto table = compare(candidates, trials, provenance, "a").value();
  EXPECT_EQ(table.rows[1].paired.n, 2u);
  EXPECT_EQ(table.rows[1].unverified, 1u);
  EXPECT_THAT(table.notes, testing::Contains(testing::HasSubstr("of 1 of 2 pairs")));
}

TEST(Comparison, ADifferenceThatOverflowsIsAnAnswerWithWords) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {completed(0, 1, -1.7e308), completed(1, 1, 1.7e308),
                                        completed(0, 2, -1.7e308), completed(1, 2, 5e306)};
  const auto table = compare(candidates, trials, {}, "a").value();
  EXPECT_EQ(table.rows[1].overflowed, 1u);
  EXPECT_EQ(table.rows[1].status, RowStatus::kIncomplete);
  EXPECT_THAT(table.rows[1].note, testing::HasSubstr("too far from the baseline"));
  EXPECT_TRUE(std::isfinite(table.rows[0].mean.value())) << "two values of -1.7e308";
}

TEST(Comparison, AColumnOfNaNIsAnAnswerWithWords) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {completed(0, 1, nan), completed(0, 2, nan),
                                        completed(1, 1, nan), completed(1, 2, nan)};
  const auto table = compare(candidates, trials, {}, "a").value();
  EXPECT_EQ(table.rows[1].failed, 2u);
  EXPECT_FALSE(table.rows[1].mean.has_value());
  EXPECT_FALSE(table.best.has_value());
  EXPECT_THAT(table.notes, testing::Contains(testing::HasSubstr("no seed has a finite")));
  EXPECT_DOUBLE_EQ(table.smallest_p, 0.5) << "with no pair: what all seeds could give";
}

TEST(Comparison, OneSeedHasADifferenceAndSaysThatThereIsNoTest) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {completed(0, 1, 3.0), completed(1, 1, 2.5)};
  const auto table = compare(candidates, trials, {}, "a").value();
  EXPECT_DOUBLE_EQ(table.rows[1].paired.mean, -0.5);
  EXPECT_DOUBLE_EQ(table.rows[1].paired.sign_flip->p, 1.0);
  EXPECT_THAT(table.rows[1].note, testing::HasSubstr("one pair"));
}

TEST(Comparison, TheSmallestPIsThatOfTheTestsThatRun) {
  // Five seeds, but the baseline lost two and one difference is 0: two differences can be flipped.
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  std::vector<TrialRow> trials;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    trials.push_back(seed <= 2 ? failed_with(0, seed, "node_lost") : completed(0, seed, 3.0));
    trials.push_back(completed(1, seed, seed == 5 ? 3.0 : 2.0));
  }
  const auto table = compare(candidates, trials, {}, "a").value();
  EXPECT_EQ(table.rows[1].paired.n, 3u);
  EXPECT_DOUBLE_EQ(table.rows[1].paired.sign_flip->p, 0.5);
  EXPECT_DOUBLE_EQ(table.smallest_p, 0.5);
}

TEST(Comparison, AnObjectiveThatNobodyReportedIsAMistakeWithTheNearestName) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  const std::vector<TrialRow> trials = {completed(0, 1, 3.0), completed(1, 1, 5.0)};
  const auto wrong = compare(candidates, trials, {}, "a", "tokens_per_sec");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(wrong.error().message(), testing::HasSubstr("did you mean \"tokens_per_s\"?"));
  EXPECT_TRUE(compare(candidates, {}, {}, "a", "tokens_per_sec").has_value())
      << "nothing has completed yet";
}

TEST(Comparison, SampledTestsAreSaid) {
  const std::vector<CandidateRow> candidates = {candidate(0, "a"), candidate(1, "b")};
  std::vector<TrialRow> trials;
  for (std::uint64_t seed = 1; seed <= kExactSignFlipMax + 2; ++seed) {
    trials.push_back(completed(0, seed, 3.0));
    trials.push_back(completed(1, seed, 2.9));
  }
  const auto table = compare(candidates, trials, {}, "a").value();
  EXPECT_GT(table.rows[1].paired.sign_flip->draws, 0u);
  EXPECT_THAT(table.notes, testing::Contains(testing::HasSubstr("1 p are sampled")));
}

TEST(Comparison, NamesTheNearestCandidateForAWrongBaseline) {
  const std::vector<CandidateRow> candidates = {candidate(0, "conventional")};
  const auto wrong = compare(candidates, {}, {}, "conventionel");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(wrong.error().message(), testing::HasSubstr("did you mean \"conventional\""));
  EXPECT_THAT(compare(candidates, {}, {}, "").error().message(), testing::HasSubstr("baseline"));
}

}  // namespace
}  // namespace tailor::analysis
