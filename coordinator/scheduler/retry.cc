#include "coordinator/scheduler/retry.h"

#include <fmt/format.h>

#include <algorithm>

#include "sweep/retry_rules.h"

namespace tailor::scheduler {

using protocol::EndClass;

bool is_own_fault(EndClass end) {
  const sweep::RetryRule* rule = sweep::find_retry_rule(end);
  return rule != nullptr && rule->own_fault;
}

std::int64_t doubled(std::int64_t backoff_ms, std::int32_t times) {
  if (times < 1 || backoff_ms <= 0) return 0;
  std::int64_t delay = std::min(backoff_ms, kBackoffMsMax);
  for (std::int32_t i = 1; i < times && delay < kBackoffMsMax; ++i) delay *= 2;
  return std::min(delay, kBackoffMsMax);
}

std::int64_t backoff_delay(EndClass end, std::int32_t failures, std::int64_t backoff_ms) {
  const sweep::RetryRule* rule = sweep::find_retry_rule(end);
  const bool delayed = rule != nullptr && rule->delayed;
  return doubled(backoff_ms, delayed ? failures : failures - 1);
}

RetryDecision decide(const RetryInput& input) {
  const std::string_view name = protocol::end_class_name(input.end);
  if (input.failures > input.limit) {
    return {
        false, 0,
        input.limit == 0
            ? fmt::format("a failure of class {} is not tried again (retry.{} = 0)", name, name)
            : fmt::format("failed {} times with class {} without progress between (retry.{} = {})",
                          input.failures, name, name, input.limit)};
  }
  if (is_own_fault(input.end) && input.workers >= input.same_failure_workers) {
    return {false, 0,
            fmt::format("the same failure ({}) on {} workers: it is not the node", name,
                        input.workers)};
  }
  return {true, backoff_delay(input.end, input.failures, input.backoff_ms), ""};
}

}  // namespace tailor::scheduler
