// Retry rules: what each class of end means for the trial, in one table. The parser of [retry], the
// plan, the documentation's test and the scheduler read it; nothing else says it again.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "protocol/report.h"

namespace tailor::sweep {

struct RetryRule {
  protocol::EndClass end = protocol::EndClass::kUser;
  /// True for ends that another worker would most likely see too. Seen on several workers, such a
  /// class ends the trial: then it is not the node. Others count by their limit alone.
  bool own_fault = false;
  /// Further attempts since the last progress, where a sweep file says nothing.
  std::int32_t limit = 0;
  /// The first further attempt waits for the back-off too; false: it follows at once, because
  /// nothing is wrong with the trial.
  bool delayed = true;
};

/// The classes of which an attempt may be tried again, in the order in which they are shown.
std::span<const RetryRule> retry_rules();
/// nullptr for kCompleted and kStopped: they are no failures.
const RetryRule* find_retry_rule(protocol::EndClass end);
/// "infrastructure 5, node_lost 5, ...", in the order of the table.
std::string retry_text(const std::map<protocol::EndClass, std::int32_t>& limits);

}  // namespace tailor::sweep
