// Comparing two runs on the same items: McNemar's exact test.
//
// Only items that one run answers rightly and the other wrongly tell the two apart. If both are
// equally good, each such item is a fair coin: with b items that only A has right
// and c that only B has,
//
//   p = min(1, 2 sum_{k <= min(b, c)} C(b + c, k) / 2^(b + c))
//
// (two-sided, exact: McNemar, Psychometrika 12, 1947, with the binomial in place
// of its approximation).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/eval/metrics.h"

namespace tailor::eval {

/// The p above; 1 when b + c = 0.
double mcnemar_exact_p(std::size_t b, std::size_t c);

/// One metric of one task.
struct MetricComparison {
  Metric metric = Metric::kAcc;
  std::size_t both_right = 0;
  std::size_t only_a_right = 0;
  std::size_t only_b_right = 0;
  std::size_t both_wrong = 0;
  double a = 0;  ///< accuracies over the paired items
  double b = 0;
  double difference = 0;      ///< b - a
  double standard_error = 0;  ///< of the paired difference, divisor n - 1; NaN for one item
  double p = 1;
};

struct TaskComparison {
  std::string task;
  std::size_t items = 0;      ///< paired
  std::size_t only_in_a = 0;  ///< items that B does not have; left out
  std::size_t only_in_b = 0;
  std::vector<MetricComparison> metrics;  ///< one for each of kMetrics
};

/// Pairs items by task and id; tasks in A's order, those without a common item left out. Errors:
/// kInvalidArgument when no item is in both, or when one item has other text, choices or gold in B
/// (other data, or other rules).
Result<std::vector<TaskComparison>> compare(std::span<const ItemResult> a,
                                            std::span<const ItemResult> b);

}  // namespace tailor::eval
