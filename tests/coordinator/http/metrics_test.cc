// Counting attempts by how they ended: once each, though their row is written more often.
#include "coordinator/http/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/engine/support.h"

namespace tailor::http {
namespace {

TEST(Metrics, CountsAnEndedAttemptOnceWhateverIsWrittenOfItLater) {
  Metrics metrics("v", "", 0);
  storage::AttemptRow attempt;
  attempt.id = {TrialId{3}, 1};
  attempt.state = storage::AttemptState::kEnded;
  attempt.end_class = protocol::EndClass::kOom;
  storage::EventRow event;
  event.kind = storage::EventKind::kAttemptEnded;
  event.trial = TrialId{3};
  event.attempt = 1;
  metrics.on_commit(std::vector<storage::Mutation>{attempt, event}, 0.003);
  metrics.on_commit(std::vector<storage::Mutation>{attempt}, 0.003);
  metrics.on_rpc("GetTrial", Code::kNotFound);
  testing::GatedStore store;
  ManualClock clock;
  auto engine = std::move(*engine::Engine::start(store, clock, {}, {}));
  const engine::Views views(store, *engine);
  const std::string text = metrics.text(views);
  EXPECT_THAT(text, ::testing::HasSubstr("tailor_attempts_ended_total{class=\"oom\"} 1\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("tailor_events_total 1\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("tailor_commit_seconds_count 2\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("tailor_commit_seconds_bucket{le=\"0.005\"} 2\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("method=\"GetTrial\""));
}

}  // namespace
}  // namespace tailor::http
