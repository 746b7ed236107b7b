// The first steps of deploy/sweeps/smoke: every candidate of every file through tailor-trainer, the
// references measured and the widths of those that wait cut from what was measured, as a sweep
// does. Only the data and sizes that cost time are changed: sequences, steps and clouds are small.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/file.h"
#include "coordinator/search/plan.h"
#include "sweep/cut.h"
#include "sweep/references.h"
#include "tests/worker/trainer/trainer_process.h"

namespace tailor::trainer {
namespace {

namespace fs = std::filesystem;
using protocol::EndClass;
using protocol::MetricReport;
using protocol::ProfileReport;
using protocol::StartedReport;

constexpr int kSteps = 2;
/// A trial takes a second or two; many of them in a row must also end on a machine that is busy.
constexpr int kLoadedDeadlineMs = 200'000;
constexpr std::int32_t kVocabulary = 2048;

class SmokeRecipes : public TrainerTest, public testing::WithParamInterface<const char*> {
 protected:
  SmokeRecipes() {
    write_shard("first.tokens", 2'000, 1, kVocabulary);
    write_shard("held-out.tokens", 2'000, 2, kVocabulary);
  }

  static sweep::Spec read() {
    for (const auto& entry : fs::directory_iterator(TAILOR_SOURCE_DIR "/deploy/sweeps/smoke")) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(GetParam())) continue;
      return sweep::parse(read_file(entry.path().string()).value(), name, "/data").value();
    }
    ADD_FAILURE() << "no file for claim " << GetParam();
    return {};
  }

  /// Runs the first steps of `candidate` and looks at what it reports. Its directory.
  std::string run_first_steps(const sweep::Spec& spec, const sweep::Candidate& candidate,
                              bool measured) {
    protocol::TrialSpec trial =
        sweep::make_trial_spec(spec, candidate, spec.seeds.front(), measured);
    trial.trial = TrialId{++trials_};
    trial.attempt = 1;
    trial.data.train = folder_ + "/first.tokens";
    trial.data.validation = folder_ + "/held-out.tokens";
    trial.data.sequence_length = 32;
    trial.train.batch_tokens = 2 * trial.data.sequence_length;
    trial.train.micro_batch_tokens = trial.data.sequence_length;
    trial.train.tokens = kSteps * trial.train.batch_tokens;
    // Clouds are of validation text, at most 4 tokens of a sequence: four of 32 tokens need 36.
    trial.geometry.tokens = 32;
    trial.train.validation_tokens = (trial.geometry.enabled ? 40 : 2) * trial.data.sequence_length;
    trial.train.log_every_steps = 1;
    const std::string directory = prepare("t" + std::to_string(trials_), trial);
    pid_ = launch(directory, {});
    EXPECT_GT(pid_, 0);
    EXPECT_EQ(wait_for(std::exchange(pid_, -1), kLoadedDeadlineMs), 0)
        << candidate.name << "\n"
        << read_file(directory + "/log").value_or("");
    const auto started = bodies<StartedReport>(directory);
    EXPECT_EQ(started.size(), 1u) << candidate.name;
    if (!started.empty()) {
      EXPECT_EQ(started[0].parameters_body, candidate.counts.body) << candidate.name;
    }
    const auto curve = losses(directory);
    EXPECT_EQ(curve.size(), static_cast<std::size_t>(kSteps)) << candidate.name;
    for (const auto& [step, loss] : curve) {
      // An untrained model guesses evenly among the words: ln 2048 = 7.62.
      EXPECT_NEAR(loss, std::log(kVocabulary), 0.5) << candidate.name << " step " << step;
    }
    EXPECT_EQ(end(directory).end, EndClass::kCompleted) << candidate.name;
    return directory;
  }

  std::uint64_t trials_ = 0;
};

TEST_P(SmokeRecipes, EveryCandidateTrainsItsFirstSteps) {
  const sweep::Spec spec = read();
  const search::Plan plan = search::make_plan(spec).value();
  std::set<std::string> references;
  for (const search::PlanRow& row : plan.rows) {
    if (!row.waits_for.empty()) references.insert(row.waits_for);
  }
  std::map<std::string, std::vector<protocol::WorkEntry>> profiles;
  std::map<std::string, shape::Architecture> architectures;
  for (const search::PlanRow& row : plan.rows) {
    SCOPED_TRACE(row.name);
    ASSERT_TRUE(row.feasible) << row.reason;
    sweep::Candidate candidate = row.candidate;
    if (candidate.waiting) {
      ASSERT_TRUE(profiles.contains(row.waits_for)) << "it comes after its reference";
      const auto request = sweep::schedule_of(plan.spec, candidate.point);
      ASSERT_TRUE(request.has_value());
      const auto cut =
          sweep::cut_widths(*request, profiles.at(row.waits_for), architectures.at(row.waits_for),
                            plan.spec.budget->width_multiple);
      ASSERT_TRUE(cut.has_value()) << cut.error().to_string();
      const auto ready = sweep::with_widths(candidate, cut->widths);
      ASSERT_TRUE(ready.has_value()) << ready.error().to_string();
      EXPECT_EQ(ready->counts.body, candidate.counts.body) << "the budget is kept";
      candidate = *ready;
    }
    const bool measured = references.contains(row.name);
    const std::string directory = run_first_steps(plan.spec, candidate, measured);
    if (measured || (plan.spec.geometry.enabled && !candidate.waiting)) {
      const auto reported = bodies<ProfileReport>(directory);
      ASSERT_EQ(reported.size(), 1u);
      EXPECT_EQ(reported[0].failure, "");
      EXPECT_EQ(reported[0].subsamples, 4);
      profiles[row.name] = reported[0].entries;
      architectures[row.name] = candidate.architecture;
    }
    fs::remove_all(directory);
  }
}

INSTANTIATE_TEST_SUITE_P(Claims, SmokeRecipes,
                         testing::Values("01", "02", "03", "04", "05", "06", "07", "08", "09", "10",
                                         "11", "12", "13", "14", "15", "16"));

}  // namespace
}  // namespace tailor::trainer
