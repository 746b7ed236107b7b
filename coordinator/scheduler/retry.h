// Retry policy: what follows when an attempt ended without a result.
//
// Each class of end has its own limit of further attempts (Spec.retry). A class that is the trial's
// own fault ends the trial early when it was seen on several workers: then it is not the node.
// Losing a worker is never held against a trial beyond its own limit.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "protocol/report.h"

namespace tailor::scheduler {

/// True for ends that another worker would most likely see too: user, oom, nan, data, timeout,
/// infrastructure (by exit). False for lost nodes, lost leases, preemption and asked-for stops.
bool is_own_fault(protocol::EndClass end);

/// Further attempts after an end of this class, where a sweep file says nothing.
std::int32_t default_retries(protocol::EndClass end);

struct RetryInput {
  protocol::EndClass end;     ///< how this attempt ended; not kCompleted
  std::int32_t limit = 0;     ///< further attempts for this class
  std::int32_t failures = 1;  ///< ends of this class so far, this one included
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

/// The delay after `failures` failures of one class: backoff x 2^(failures - 1), at most
/// kBackoffMsMax. A lost node or a preemption is followed at once the first time: nothing is wrong
/// with the trial.
std::int64_t backoff_delay(protocol::EndClass end, std::int32_t failures, std::int64_t backoff_ms);

/// The limit of `end` in `limits`, or the default.
std::int32_t retry_limit(const std::map<protocol::EndClass, std::int32_t>& limits,
                         protocol::EndClass end);

}  // namespace tailor::scheduler
