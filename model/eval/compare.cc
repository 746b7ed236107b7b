#include "model/eval/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/stats.h"

namespace tailor::eval {
namespace {

using ItemKey = std::pair<std::string, std::string>;
using ItemPair = std::pair<const ItemResult*, const ItemResult*>;

MetricComparison compare_metric(std::span<const ItemPair> pairs, Metric metric) {
  MetricComparison out;
  out.metric = metric;
  for (const auto& [a, b] : pairs) {
    const bool a_right = is_right(*a, metric);
    const bool b_right = is_right(*b, metric);
    ++(a_right   ? b_right ? out.both_right : out.only_a_right
       : b_right ? out.only_b_right
                 : out.both_wrong);
  }
  const auto n = static_cast<double>(pairs.size());
  const auto gained = static_cast<double>(out.only_b_right);
  const auto lost = static_cast<double>(out.only_a_right);
  out.a = static_cast<double>(out.both_right + out.only_a_right) / n;
  out.b = static_cast<double>(out.both_right + out.only_b_right) / n;
  out.difference = (gained - lost) / n;
  // Differences are -1, 0 or 1: their squares sum to gained + lost.
  const double squares = gained + lost - n * out.difference * out.difference;
  out.standard_error = pairs.size() < 2 ? std::numeric_limits<double>::quiet_NaN()
                                        : std::sqrt(std::max(0.0, squares) / (n - 1) / n);
  out.p = mcnemar_exact_p(out.only_a_right, out.only_b_right);
  return out;
}

}  // namespace

double mcnemar_exact_p(std::size_t b, std::size_t c) {
  if (b == c) return 1;  // the sum is more than a half
  // P(X <= k) of n fair coins is I_{1/2}(n - k, k + 1) (DLMF 8.17.5).
  const auto k = static_cast<double>(std::min(b, c));
  const auto n = static_cast<double>(b + c);
  return std::min(1.0, 2 * incomplete_beta(n - k, k + 1, 0.5));
}

Result<std::vector<TaskComparison>> compare(std::span<const ItemResult> a,
                                            std::span<const ItemResult> b) {
  std::map<ItemKey, const ItemResult*> in_b;
  for (const ItemResult& item : b) in_b.emplace(ItemKey(item.task, item.id), &item);
  std::vector<TaskComparison> tasks;
  std::vector<std::vector<ItemPair>> pairs;  // of each task
  const auto place_of = [&](const std::string& task) {
    const auto found = std::find_if(tasks.begin(), tasks.end(),
                                    [&](const TaskComparison& t) { return t.task == task; });
    if (found != tasks.end()) return static_cast<std::size_t>(found - tasks.begin());
    tasks.emplace_back().task = task;
    pairs.emplace_back();
    return tasks.size() - 1;
  };
  for (const ItemResult& item : a) {
    const std::size_t place = place_of(item.task);
    const auto found = in_b.find(ItemKey(item.task, item.id));
    if (found == in_b.end()) {
      ++tasks[place].only_in_a;
      continue;
    }
    if (found->second->digest != item.digest ||
        found->second->choices.size() != item.choices.size() || found->second->gold != item.gold) {
      return error(Code::kInvalidArgument,
                   fmt::format("item \"{}\" of {} is not the same in both files: they come from "
                               "other data or other rules and cannot be paired",
                               item.id, item.task));
    }
    pairs[place].emplace_back(&item, found->second);
  }
  for (const ItemResult& item : b) ++tasks[place_of(item.task)].only_in_b;
  std::vector<TaskComparison> compared;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (pairs[i].empty()) continue;
    tasks[i].items = pairs[i].size();
    tasks[i].only_in_b -= pairs[i].size();
    for (const Metric metric : kMetrics) {
      tasks[i].metrics.push_back(compare_metric(pairs[i], metric));
    }
    compared.push_back(std::move(tasks[i]));
  }
  if (compared.empty()) {
    return error(Code::kInvalidArgument, "the two files have no item of a common task in common");
  }
  return compared;
}

}  // namespace tailor::eval
