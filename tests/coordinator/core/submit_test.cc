// Submission and the lazy search: what becomes trials, what is refused, what is trained once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/core/harness.h"

namespace tailor::core {
namespace {

using storage::SweepState;
using storage::TrialState;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kGridOfThree = R"(
[space]
"ffn.d_h" = [64, 96, 128]
[search]
algorithm = "grid"
)";

TEST(Submit, MakesATrialForEveryCandidateAndSeed) {
  Harness h;
  SweepFile file;
  file.candidates = candidate("a", 64) + candidate("b", 96);
  file.seeds = "count = 3";
  const Reply reply = h.submit(file);
  ASSERT_TRUE(reply.status.is_ok()) << reply.status.message();
  const auto outcome = std::get<SubmitOutcome>(reply.body);
  EXPECT_TRUE(outcome.created);
  EXPECT_EQ(outcome.sweep, SweepId{1});
  EXPECT_EQ(outcome.candidates, 2u);
  EXPECT_EQ(outcome.trials, 6u);
  EXPECT_EQ(h.state.trials.size(), 6u);
  EXPECT_EQ(h.store.trials({}).value().total, 6u);
  EXPECT_THAT(h.event_kinds(), Contains("sweep_submitted"));
}

TEST(Submit, OfTheSameFileAgainGivesTheSameSweep) {
  Harness h;
  h.submit({});
  const Reply again = h.submit({});
  ASSERT_TRUE(again.status.is_ok());
  const auto outcome = std::get<SubmitOutcome>(again.body);
  EXPECT_FALSE(outcome.created);
  EXPECT_EQ(outcome.sweep, SweepId{1});
  EXPECT_EQ(outcome.trials, 1u);
  EXPECT_TRUE(h.last.writes.empty());
}

TEST(Submit, OfAnotherFileUnderTheSameNameIsAConflict) {
  Harness h;
  h.submit({});
  SweepFile other;
  other.seeds = "count = 2";
  const Reply reply = h.submit(other);
  EXPECT_EQ(reply.status.code(), Code::kAlreadyExists);
  EXPECT_THAT(reply.status.message(), HasSubstr("s1"));
  EXPECT_TRUE(h.last.writes.empty());
}

TEST(Submit, WritesNothingWhenANamedCandidateIsInfeasible) {
  // The parser refuses such a file; the core must not rely on it.
  Harness h;
  const std::string text = SweepFile{}.text();
  sweep::Spec spec = sweep::parse(text, "test.toml", "/data").value();
  spec.budget = sweep::Budget{};
  spec.budget->parameters = 100;  // attention alone is larger
  h.step(SubmitSweep{7, std::make_shared<const sweep::Spec>(spec), text, "/data", "hash"});
  const auto& reply = std::get<Reply>(h.last.outward.at(0));
  EXPECT_EQ(reply.request, 7u);
  EXPECT_FALSE(reply.status.is_ok());
  EXPECT_THAT(reply.status.message(), HasSubstr("plain"));
  EXPECT_TRUE(h.last.writes.empty());
  EXPECT_TRUE(h.state.sweeps.empty());
}

TEST(Submit, TrainsIdenticalCandidatesOnce) {
  Harness h;
  SweepFile file;
  file.candidates = candidate("a", 96) + candidate("the same", 96);
  const Reply reply = h.submit(file);
  EXPECT_EQ(std::get<SubmitOutcome>(reply.body).candidates, 1u);
  EXPECT_EQ(h.state.trials.size(), 1u);
  EXPECT_THAT(h.event_kinds(), Contains("candidate_duplicate"));
}

TEST(Submit, DrawsTheSpaceLazilyAndCountsAllOfIt) {
  Harness h;
  h.options.queue_ahead = 2;
  h.state.options = h.options;
  SweepFile file;
  file.candidates = "";
  file.space = kGridOfThree;
  const Reply reply = h.submit(file);
  ASSERT_TRUE(reply.status.is_ok()) << reply.status.message();
  EXPECT_EQ(std::get<SubmitOutcome>(reply.body).candidates, 2u);
  EXPECT_EQ(std::get<SubmitOutcome>(reply.body).trials, 3u);
  EXPECT_FALSE(h.sweep().search_done);
  h.connect("w");  // one trial starts, so one more is drawn
  EXPECT_EQ(h.state.trials.size(), 3u);
  EXPECT_TRUE(h.sweep().search_done);
}

TEST(Submit, SkipsInfeasiblePointsAndCountsThem) {
  Harness h;
  SweepFile file;
  file.candidates = "";
  file.space = R"(
[space]
"ffn.d_h" = [64, 96]
"layers" = [2, 3]
constraints = ["layers <= 2"]
)";
  h.submit(file);
  EXPECT_EQ(h.state.trials.size(), 2u);
  EXPECT_EQ(h.sweep().row.infeasible, 2u);
  EXPECT_EQ(h.store.sweep(SweepId{1}).value().infeasible, 2u);
  EXPECT_THAT(h.event_kinds(), Contains("candidate_infeasible"));
}

TEST(Submit, ASearchThatDrawsGivesUpOnASpaceThatIsInfeasibleWithoutEnd) {
  Harness h;
  h.options.infeasible_max = 500;
  h.options.draws_per_step = 100;
  h.state.options = h.options;
  SweepFile file;
  file.candidates = "";
  file.space = R"(
[space]
"layers" = { min = 3, max = 4096, step = 1 }
constraints = ["layers <= 2"]
[search]
algorithm = "random"
trials = 64
)";
  h.submit(file);
  EXPECT_EQ(h.sweep().row.infeasible, 100u) << "one step is short";
  EXPECT_EQ(h.state.deadlines.earliest(), h.now.mono_ms) << "and the next follows at once";
  for (int i = 0; i < 4; ++i) h.advance(0);
  EXPECT_EQ(h.sweep().row.infeasible, 500u);
  EXPECT_EQ(h.sweep_state(), SweepState::kFailed) << "nothing was trained";
  EXPECT_THAT(
      outcome_text(h.sweep()),
      HasSubstr("none of the 500 points that were tried is feasible; up to 64 candidates more"));
  EXPECT_THAT(h.event_kinds(), Contains("search_stopped"));
}

TEST(Submit, ASearchThatDrawsGivesUpWhereAllThatIsLeftComesOutAsWhatIsThere) {
  // Of 10,001 points in each of which one width differs by less than its rounding.
  Harness h;
  h.options.infeasible_max = 300;
  h.options.draws_per_step = 100;
  h.state.options = h.options;
  SweepFile file;
  file.budget = "[budget]\nparameters = 200_000\ncounts = \"body\"\nsolve_for = \"d_h\"\n";
  file.space = R"(
[space]
"schedule.high" = { min = 1.5, max = 1.5001 }
[search]
algorithm = "random"
trials = 10
)";
  ASSERT_TRUE(h.submit(file).status.is_ok());
  for (int i = 0; i < 40 && !h.sweep().search_done; ++i) {
    h.advance(0);
    if (i == 1) h.restart();  // what was counted is stored
  }
  EXPECT_TRUE(h.sweep().search_done);
  const std::size_t candidates = h.sweep().candidates.size();
  EXPECT_EQ(h.sweep().row.infeasible + duplicates_of(h.sweep()), 300u);
  EXPECT_LT(candidates, 12u);
  EXPECT_EQ(h.said("search_stopped").size(), 1u);
  EXPECT_LE(h.said("candidate_duplicate").size(), 5u) << "one a transaction";
  EXPECT_THAT(outcome_text(h.sweep()),
              HasSubstr("the search gave up after 300 points that are infeasible or another's"));
}

TEST(Submit, AGridGoesOnToItsEndHoweverManyPointsAreInfeasible) {
  Harness h;
  h.options.infeasible_max = 500;
  h.options.draws_per_step = 100;
  h.state.options = h.options;
  SweepFile file;
  file.candidates = "";
  file.space = R"(
[space]
"ffn.d_h" = { min = 64, max = 1264, step = 1 }
constraints = ["d_h > 1200"]
)";
  h.submit(file);
  for (int i = 0; i < 11; ++i) {
    EXPECT_EQ(h.sweep().candidates.size(), 0u) << "step " << i;
    EXPECT_EQ(h.state.deadlines.earliest(), h.now.mono_ms) << "the next follows at once";
    h.advance(0);
  }
  EXPECT_EQ(h.sweep().row.infeasible, 1'137u);
  EXPECT_EQ(h.sweep().candidates.size(), 63u);
  h.advance(0);
  EXPECT_EQ(h.sweep().candidates.size(), 64u) << "all that are feasible";
  EXPECT_THAT(h.event_kinds(), Not(Contains("search_stopped")));
}

TEST(Submit, ASearchFindsAsManyFeasibleCandidatesAsWereAskedFor) {
  for (const std::string algorithm : {"random", "grid"}) {
    Harness h;
    h.connect("w", 100);
    SweepFile file;
    file.candidates = candidate("named", 64 + 16 * 5);
    file.space = R"(
[space]
"ffn.d_h" = { min = 64, max = 1663, step = 1 }
constraints = ["d_h % 16 == 0"]
[search]
trials = 64
algorithm = ")" + algorithm +
                 "\"\n";
    h.submit(file);
    for (int i = 0; i < 20 && !h.sweep().search_done; ++i) {
      h.advance(0);
      if (i % 3 == 0) h.restart();
    }
    EXPECT_TRUE(h.sweep().search_done) << algorithm;
    EXPECT_EQ(h.sweep().candidates.size(), 65u)
        << algorithm << ": about 6 % of the points are feasible, and one of them is named already";
    EXPECT_GT(h.sweep().row.infeasible, 500u) << algorithm;
  }
}

TEST(Submit, InfeasiblePointsAreCountedInOneEventATransaction) {
  Harness h;
  SweepFile file;
  file.space = R"(
[space]
"ffn.d_h" = { min = 64, max = 163 }
constraints = ["d_h <= 0"]
)";
  h.submit(file);
  const auto events = h.store.events(0, 1'000).value();
  std::vector<std::string> said;
  for (const storage::EventRow& event : events) {
    if (event.kind == storage::EventKind::kCandidateInfeasible) said.push_back(event.message);
  }
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("100 points; 100: does not satisfy \"d_h <= 0\"; the first: "));
}

TEST(Submit, AnAlmostEndlessGridOfInfeasiblePointsIsToldOfLessAndLess) {
  Harness h;
  h.options.draws_per_step = 8;
  h.options.infeasible_max = 64;
  h.state.options = h.options;
  SweepFile file;
  file.candidates = "";
  file.space =
      "[space]\n\"ffn.d_h\" = { min = 1, max = 4096 }\nconstraints = [\"d_h <= 0\"]\n"
      "[search]\nalgorithm = \"grid\"\n";
  ASSERT_TRUE(h.submit(file).status.is_ok());
  for (int i = 0; i < 600; ++i) h.step(Tick{});
  EXPECT_EQ(h.sweep_state(), SweepState::kFailed);
  const auto said = h.said("candidate_infeasible");
  EXPECT_LE(said.size(), 16u) << "8 up to 64 points, and one for each doubling";
  EXPECT_THAT(said.back(), HasSubstr("4096 points in all; 4096: does not satisfy"));
}

TEST(Submit, ASearchWithoutFeasiblePointsLeavesDrawsToOthers) {
  Harness h;
  h.options.draws_per_step = 8;
  h.options.queue_ahead = 2;
  h.state.options = h.options;
  SweepFile barren;
  barren.name = "barren";
  barren.candidates = "";
  barren.space =
      "[space]\n\"ffn.d_h\" = { min = 1, max = 16384 }\nconstraints = [\"d_h <= 0\"]\n"
      "[search]\nalgorithm = \"grid\"\n";
  ASSERT_TRUE(h.submit(barren).status.is_ok());
  SweepFile fertile = barren;
  fertile.name = "fertile";
  fertile.space =
      "[space]\n\"ffn.d_h\" = { min = 16, max = 160 }\n[search]\nalgorithm = \"grid\"\n";
  ASSERT_TRUE(h.submit(fertile).status.is_ok());
  const SessionId w = h.connect("w1", 1);
  int done = 0;
  for (int i = 0; i < 100; ++i) {
    h.step(Tick{});
    std::vector<std::uint64_t> live;
    for (const auto& [id, trial] : h.state.trials) {
      if (trial.live) live.push_back(id.value);
    }
    for (const std::uint64_t id : live) {
      h.finish(w, id, protocol::EndClass::kCompleted);
      ++done;
    }
  }
  EXPECT_GE(done, 90) << "trials of the second sweep in 100 rounds";
}

TEST(Submit, TellsTheSearchOfEachCandidateOfTheSpaceOnce) {
  Harness h;
  SweepFile file;
  file.candidates = candidate("named", 160);
  file.space = kGridOfThree;
  h.submit(file);
  const SessionId w = h.connect("w");
  for (std::uint64_t trial = 1; trial <= 4; ++trial) {
    h.finish(w, trial, protocol::EndClass::kCompleted);
  }
  EXPECT_EQ(h.sweep().told.ranges(), (std::map<std::uint32_t, std::uint32_t>{{1, 3}}))
      << "not of the named one: it is not of the space";
  EXPECT_EQ(h.sweep_state(), SweepState::kCompleted);
}

TEST(Submit, GivesTheTrialItsSpecWithIdsTokenAndThreads) {
  Harness h;
  h.submit({});
  h.connect("w");
  const auto assigns = h.sent<protocol::Assign>();
  ASSERT_EQ(assigns.size(), 1u);
  const protocol::TrialSpec& spec = assigns[0].spec;
  EXPECT_EQ(spec.trial, TrialId{1});
  EXPECT_EQ(spec.attempt, 1u);
  EXPECT_EQ(spec.token, 1u);
  EXPECT_EQ(spec.threads, 2);
  EXPECT_EQ(spec.sweep_name, "taper");
  EXPECT_EQ(spec.candidate_name, "plain");
  EXPECT_EQ(spec.architecture.d_model, 32);
  EXPECT_EQ(assigns[0].slots, std::vector<std::uint32_t>{0});
}

TEST(Submit, ASpaceWithoutAFeasiblePointFailsWithTheReasonsCounted) {
  Harness h;
  h.connect("w", 1);
  SweepFile file;
  file.candidates = "";
  file.space = R"(
[space]
"ffn.d_h" = { min = 64, max = 163 }
constraints = ["d_h <= 0", "layers > 0"]
)";
  const Reply reply = h.submit(file);
  ASSERT_TRUE(reply.status.is_ok()) << reply.status.message();
  const auto outcome = std::get<SubmitOutcome>(reply.body);
  EXPECT_EQ(outcome.candidates, 0u);
  EXPECT_EQ(outcome.trials, 0u);
  EXPECT_TRUE(outcome.exact);
  EXPECT_EQ(h.sweep_state(), SweepState::kFailed);
  EXPECT_THAT(h.event_kinds(), Contains("sweep_failed"));
  EXPECT_THAT(h.event_kinds(), Not(Contains("sweep_completed")));
  const Sweep& sweep = h.sweep();
  EXPECT_EQ(sweep.row.infeasible, 100u);
  EXPECT_THAT(sweep.infeasible_reasons,
              testing::ElementsAre(testing::Pair("does not satisfy \"d_h <= 0\"", 100u)));
  EXPECT_THAT(outcome_text(sweep), HasSubstr("100: does not satisfy \"d_h <= 0\""));
  h.restart();
  EXPECT_EQ(h.sweep_state(), SweepState::kFailed);
  EXPECT_THAT(outcome_text(h.sweep()), HasSubstr("100: does not satisfy"));
  // It has ended: nothing brings it back, and nothing to retry is no failure.
  EXPECT_EQ(h.control(SweepAction::kResume).status.code(), Code::kFailedPrecondition);
  EXPECT_TRUE(h.trials(TrialAction::kRetry, {}, SweepId{1}).status.is_ok());
}

TEST(Submit, AnnouncesABoundWhilePointsAreStillToBeDrawn) {
  Harness h;
  SweepFile file;
  file.candidates = "";
  file.seeds = "count = 2";
  file.space = R"(
[space]
"ffn.d_h" = { min = 64, max = 1063 }
constraints = ["d_h <= 163"]
)";
  const auto outcome = std::get<SubmitOutcome>(h.submit(file).body);
  EXPECT_FALSE(outcome.exact) << "900 of the 1,000 points will fall away";
  EXPECT_EQ(outcome.candidates, 32u) << "64 trials are kept queued";
  EXPECT_EQ(outcome.trials, 2'000u) << "at most: 1,000 points x 2 seeds";
  EXPECT_EQ(points_left(h.sweep()), 968u);
  h.control(SweepAction::kCancel);
  EXPECT_EQ(points_left(h.sweep()), 0u);
  EXPECT_EQ(trials_at_most(h.sweep()), 64u);
}

}  // namespace
}  // namespace tailor::core
