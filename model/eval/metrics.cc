#include "model/eval/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace tailor::eval {
namespace {

double normalised(const ScoredChoice& choice, Metric metric) {
  if (metric == Metric::kAcc) return choice.loglikelihood;
  const std::size_t length = metric == Metric::kAccNorm ? choice.characters : choice.bytes;
  if (length == 0) return -std::numeric_limits<double>::infinity();
  return choice.loglikelihood / static_cast<double>(length);
}

}  // namespace

std::string_view metric_name(Metric metric) {
  switch (metric) {
    case Metric::kAcc:
      return "acc";
    case Metric::kAccNorm:
      return "acc_norm";
    case Metric::kAccBytes:
      return "acc_bytes";
  }
  return "";
}

std::size_t answer(std::span<const ScoredChoice> choices, Metric metric) {
  TAILOR_CHECK(!choices.empty());
  std::size_t best = 0;
  for (std::size_t i = 1; i < choices.size(); ++i) {
    if (normalised(choices[i], metric) > normalised(choices[best], metric)) best = i;
  }
  return best;
}

Accuracy accuracy(std::span<const ItemResult> items, Metric metric) {
  TAILOR_CHECK(!items.empty());
  const auto right = std::count_if(items.begin(), items.end(), [metric](const ItemResult& item) {
    return is_right(item, metric);
  });
  const auto n = static_cast<double>(items.size());
  const double p = static_cast<double>(right) / n;
  const double error = items.size() < 2 ? std::numeric_limits<double>::quiet_NaN()
                                        : std::sqrt(p * (1 - p) / (n - 1));
  return {p, error};
}

}  // namespace tailor::eval
