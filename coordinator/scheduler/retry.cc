#include "coordinator/scheduler/retry.h"

#include <fmt/format.h>

#include <algorithm>

namespace tailor::scheduler {

using protocol::EndClass;

bool is_own_fault(EndClass end) {
  switch (end) {
    case EndClass::kUser:
    case EndClass::kOom:
    case EndClass::kNan:
    case EndClass::kData:
    case EndClass::kTimeout:
    case EndClass::kInfrastructure:
      return true;
    case EndClass::kCompleted:
    case EndClass::kStopped:
    case EndClass::kPreempted:
    case EndClass::kNodeLost:
    case EndClass::kLeaseLost:
      return false;
  }
  return false;
}

std::int32_t default_retries(EndClass end) {
  switch (end) {
    case EndClass::kCompleted:
    case EndClass::kUser:
    case EndClass::kNan:
    case EndClass::kData:
      return 0;
    case EndClass::kOom:
    case EndClass::kTimeout:
      return 1;
    case EndClass::kInfrastructure:
      return 5;
    case EndClass::kNodeLost:
    case EndClass::kLeaseLost:
      return 20;
    case EndClass::kStopped:
    case EndClass::kPreempted:
      return 100;
  }
  return 0;
}

std::int32_t retry_limit(const std::map<EndClass, std::int32_t>& limits, EndClass end) {
  const auto found = limits.find(end);
  return found == limits.end() ? default_retries(end) : found->second;
}

std::int64_t backoff_delay(EndClass end, std::int32_t failures, std::int64_t backoff_ms) {
  const std::int32_t doublings = is_own_fault(end) ? failures - 1 : failures - 2;
  if (doublings < 0 || backoff_ms <= 0) return 0;
  std::int64_t delay = std::min(backoff_ms, kBackoffMsMax);
  for (std::int32_t i = 0; i < doublings && delay < kBackoffMsMax; ++i) delay *= 2;
  return std::min(delay, kBackoffMsMax);
}

RetryDecision decide(const RetryInput& input) {
  const std::string_view name = protocol::end_class_name(input.end);
  if (input.failures > input.limit) {
    return {false, 0,
            input.limit == 0
                ? fmt::format("a failure of class {} is not tried again (retry.{} = 0)", name, name)
                : fmt::format("failed {} times with class {} (retry.{} = {})", input.failures, name,
                              name, input.limit)};
  }
  if (is_own_fault(input.end) && input.workers >= input.same_failure_workers) {
    return {false, 0,
            fmt::format("the same failure ({}) on {} workers: it is not the node", name,
                        input.workers)};
  }
  return {true, backoff_delay(input.end, input.failures, input.backoff_ms), ""};
}

}  // namespace tailor::scheduler
