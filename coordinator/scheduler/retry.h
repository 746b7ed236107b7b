// Retry policy: what follows when an attempt ended without a result. The table of classes is
// sweep/retry_rules.h.
//
// Each class of end has its own limit of further attempts since the last progress (Spec.retry). A
// class that is the trial's own fault ends the trial early when it was seen on several workers:
// then it is not the node. Losing a worker is never held against a trial beyond its own limit.
#pragma once

#include <cstdint>
#include <string>

#include "protocol/report.h"

namespace tailor::scheduler {

/// True for ends that another worker would most likely see too; false for all that are no failures
/// of the trial: lost nodes, preemption, asked-for stops, infrastructure.
bool is_own_fault(protocol::EndClass end);

struct RetryInput {
  protocol::EndClass end;     ///< how this attempt ended; not kCompleted
  std::int32_t limit = 0;     ///< further attempts for this class
  std::int32_t failures = 1;  ///< ends of this class since the last progress, this one included
  std::size_t workers = 1;    ///< different workers that saw this class
  std::size_t same_failure_workers = 2;
  std::int64_t backoff_ms = 2'000;  ///< first delay
};

struct RetryDecision {
  bool retry = false;
  std::int64_t delay_ms = 0;  ///< before the next attempt may start
  std::string reason;         ///< why there is no further attempt, for a person
};

inline constexpr std::int64_t kBackoffMsMax = 300'000;

RetryDecision decide(const RetryInput& input);

/// backoff_ms x 2^(times - 1), at most kBackoffMsMax; 0 for `times` below 1.
std::int64_t doubled(std::int64_t backoff_ms, std::int32_t times);

/// The delay after `failures` failures of one class: `doubled`, one less for the classes that are
/// followed at once the first time (RetryRule.delayed).
std::int64_t backoff_delay(protocol::EndClass end, std::int32_t failures, std::int64_t backoff_ms);

}  // namespace tailor::scheduler
