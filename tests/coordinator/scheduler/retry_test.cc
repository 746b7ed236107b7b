// Retry policy: limits by class, back-off, and "the same failure on two workers".
#include "coordinator/scheduler/retry.h"

#include <gtest/gtest.h>

#include "sweep/retry_rules.h"

namespace tailor::scheduler {
namespace {

using protocol::EndClass;

RetryInput failed(EndClass end, std::int32_t failures, std::int32_t limit,
                  std::size_t workers = 1) {
  RetryInput input;
  input.end = end;
  input.failures = failures;
  input.limit = limit;
  input.workers = workers;
  return input;
}

TEST(Retry, TriesAgainUpToTheLimitOfTheClass) {
  EXPECT_TRUE(decide(failed(EndClass::kOom, 1, 1)).retry);
  const RetryDecision last = decide(failed(EndClass::kOom, 2, 1));
  EXPECT_FALSE(last.retry);
  EXPECT_EQ(last.reason, "failed 2 times with class oom without progress between (retry.oom = 1)");
}

TEST(Retry, ALimitOfZeroMeansOneAttempt) {
  const RetryDecision decision = decide(failed(EndClass::kNan, 1, 0));
  EXPECT_FALSE(decision.retry);
  EXPECT_EQ(decision.reason, "a failure of class nan is not tried again (retry.nan = 0)");
}

TEST(Retry, TheSameFailureOnTwoWorkersEndsTheTrialWhereItIsItsOwnFault) {
  for (const sweep::RetryRule& rule : sweep::retry_rules()) {
    EXPECT_TRUE(decide(failed(rule.end, 2, 9, 1)).retry) << protocol::end_class_name(rule.end);
    EXPECT_EQ(decide(failed(rule.end, 2, 9, 2)).retry, !rule.own_fault)
        << protocol::end_class_name(rule.end);
  }
}

TEST(Retry, WhatHappenedToTheWorkerIsNotHeldAgainstTheTrial) {
  for (const EndClass end : {EndClass::kNodeLost, EndClass::kLeaseLost, EndClass::kPreempted,
                             EndClass::kInfrastructure}) {
    EXPECT_FALSE(is_own_fault(end));
    EXPECT_TRUE(decide(failed(end, 9, 9, 9)).retry) << protocol::end_class_name(end);
    EXPECT_FALSE(decide(failed(end, 10, 9, 1)).retry) << protocol::end_class_name(end);
    EXPECT_GE(sweep::find_retry_rule(end)->limit, 5);
  }
}

TEST(Retry, WaitsTwiceAsLongAfterEachFailureButNeverOverFiveMinutes) {
  EXPECT_EQ(backoff_delay(EndClass::kOom, 1, 2'000), 2'000);
  EXPECT_EQ(backoff_delay(EndClass::kOom, 2, 2'000), 4'000);
  EXPECT_EQ(backoff_delay(EndClass::kOom, 5, 2'000), 32'000);
  EXPECT_EQ(backoff_delay(EndClass::kOom, 9, 2'000), 300'000);
  EXPECT_EQ(backoff_delay(EndClass::kOom, 1'000'000, 2'000), 300'000);
  EXPECT_EQ(backoff_delay(EndClass::kOom, 3, 0), 0);
}

TEST(Retry, FollowsTheFirstLostNodeAtOnce) {
  EXPECT_EQ(backoff_delay(EndClass::kNodeLost, 1, 2'000), 0);
  EXPECT_EQ(backoff_delay(EndClass::kNodeLost, 2, 2'000), 2'000);
  EXPECT_EQ(backoff_delay(EndClass::kNodeLost, 3, 2'000), 4'000);
}

TEST(Retry, EveryClassOfFailureHasOneRule) {
  for (int i = 0; i <= static_cast<int>(EndClass::kInfrastructure); ++i) {
    const auto end = static_cast<EndClass>(i);
    const bool failure = end != EndClass::kCompleted && end != EndClass::kStopped;
    EXPECT_EQ(sweep::find_retry_rule(end) != nullptr, failure) << protocol::end_class_name(end);
  }
  EXPECT_EQ(sweep::retry_rules().size(), 9u);
}

}  // namespace
}  // namespace tailor::scheduler
