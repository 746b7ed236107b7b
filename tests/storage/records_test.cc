// Names of states and what rows must satisfy.
#include "storage/records.h"

#include <gtest/gtest.h>

#include "rows.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT

TEST(Records, NamesOfStatesAreReadBack) {
  for (const auto state : {SweepState::kRunning, SweepState::kPaused, SweepState::kCompleted,
                           SweepState::kCancelled}) {
    EXPECT_EQ(parse_sweep_state(sweep_state_name(state)), state);
  }
  for (const auto state : {TrialState::kQueued, TrialState::kRunning, TrialState::kCompleted,
                           TrialState::kStopped, TrialState::kFailed, TrialState::kCancelled}) {
    EXPECT_EQ(parse_trial_state(trial_state_name(state)), state);
  }
  for (const auto state : {AttemptState::kAssigned, AttemptState::kRunning, AttemptState::kEnded}) {
    EXPECT_EQ(parse_attempt_state(attempt_state_name(state)), state);
  }
  EXPECT_EQ(trial_state_name(TrialState::kQueued), "queued");
}

TEST(Records, AWrongNameIsAnsweredWithTheAllowedOnes) {
  const auto state = parse_sweep_state("runing");
  ASSERT_FALSE(state);
  EXPECT_EQ(state.error().code(), Code::kInvalidArgument);
  EXPECT_NE(state.error().message().find("`runing`"), std::string::npos);
  EXPECT_NE(state.error().message().find("running, paused, completed, cancelled"),
            std::string::npos);
}

TEST(Records, EveryKindOfEventHasANameOfItsOwn) {
  for (int i = 0; i < static_cast<int>(EventKind::kOther); ++i) {
    const auto kind = static_cast<EventKind>(i);
    EXPECT_EQ(parse_event_kind(event_kind_name(kind)), kind) << event_kind_name(kind);
  }
  EXPECT_EQ(parse_event_kind("of a later version"), EventKind::kOther);
  EXPECT_EQ(check_row(EventRow{}).code(), Code::kInvalidArgument);
}

TEST(Records, RowsWithoutKeysAreRefused) {
  EXPECT_TRUE(check_row(make_sweep(1)).is_ok());
  EXPECT_EQ(check_row(make_sweep(0, "x")).code(), Code::kInvalidArgument);
  EXPECT_EQ(check_row(make_trial(1, 0)).code(), Code::kInvalidArgument);
  EXPECT_EQ(check_row(make_attempt(1, 0)).code(), Code::kInvalidArgument);
  EXPECT_EQ(check_row(make_attempt(1, 1, 0)).code(), Code::kInvalidArgument);
  EXPECT_EQ(check_row(make_point(1, 1, "", 0, 0)).code(), Code::kInvalidArgument);
  EXPECT_EQ(check_row(LogRow{{TrialId{1}, 1}, ~0ull, "x"}).code(), Code::kInvalidArgument);
  CountersRow counters;
  counters.next_token = 0;
  EXPECT_EQ(check_row(counters).code(), Code::kInvalidArgument);
  counters.next_token = 1;
  counters.generation = kGenerationMax + 1;
  EXPECT_EQ(check_row(counters).code(), Code::kInvalidArgument);
  EXPECT_EQ(check_row(make_worker(1ull << 63)).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tailor::storage
