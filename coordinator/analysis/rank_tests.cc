#include "coordinator/analysis/rank_tests.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/stats.h"

namespace tailor::analysis {
namespace {

/// Sizes that are equal in exact arithmetic tie whatever their rounding.
constexpr double kRankTieTolerance = 1e-12;

struct Ranked {
  double size = 0;
  bool positive = false;
  std::uint32_t doubled_rank = 0;  // mean ranks are halves at most
};

/// By size, with doubled mean ranks. `ties` becomes the sum over groups of t^3 - t.
std::vector<Ranked> ranked(std::span<const double> differences, double& ties) {
  std::vector<Ranked> out;
  for (const double d : differences) {
    TAILOR_CHECK(std::isfinite(d), "a paired difference is not finite");
    if (d != 0) out.push_back({std::abs(d), d > 0, 0});
  }
  std::sort(out.begin(), out.end(),
            [](const Ranked& a, const Ranked& b) { return a.size < b.size; });
  ties = 0;
  for (std::size_t begin = 0; begin < out.size();) {
    std::size_t end = begin + 1;
    while (end < out.size() &&
           out[end].size - out[end - 1].size <= kRankTieTolerance * out[end].size) {
      ++end;
    }
    // Ranks begin + 1 .. end: twice their mean is begin + 1 + end.
    for (std::size_t i = begin; i < end; ++i) {
      out[i].doubled_rank = static_cast<std::uint32_t>(begin + 1 + end);
    }
    const auto count = static_cast<double>(end - begin);
    ties += count * count * count - count;
    begin = end;
  }
  return out;
}

/// P(doubled W+ <= at_most) over all patterns of signs.
double lower_share(const std::vector<Ranked>& values, std::uint64_t at_most) {
  std::vector<double> share(values.size() * (values.size() + 1) + 1, 0.0);
  share[0] = 1;
  std::size_t reached = 0;
  for (const Ranked& value : values) {
    const std::size_t step = value.doubled_rank;
    for (std::size_t w = reached + step + 1; w-- > 0;) {
      share[w] = (share[w] + (w >= step ? share[w - step] : 0)) / 2;
    }
    reached += step;
  }
  double sum = 0;
  for (std::uint64_t w = 0; w <= at_most; ++w) sum += share[w];
  return sum;
}

}  // namespace

SignTest sign_test(std::uint32_t negative, std::uint32_t positive) {
  SignTest test;
  test.n = negative + positive;
  if (test.n == 0) return test;
  const std::uint32_t fewer = std::min(negative, positive);
  // P(X <= k) of n fair coins = I_{1/2}(n - k, k + 1).
  if (2 * fewer < test.n)
    test.p = std::min(1.0, 2 * incomplete_beta(test.n - fewer, fewer + 1, 0.5));
  return test;
}

Wilcoxon wilcoxon_test(std::span<const double> differences) {
  double ties = 0;
  const std::vector<Ranked> values = ranked(differences, ties);
  Wilcoxon test;
  test.n = static_cast<std::uint32_t>(values.size());
  std::uint64_t positive = 0;
  for (const Ranked& value : values) positive += value.positive ? value.doubled_rank : 0;
  test.positive_sum = static_cast<double>(positive) / 2;
  if (test.n == 0) return test;
  const std::uint64_t total = std::uint64_t{test.n} * (test.n + 1);  // doubled
  const std::uint64_t smaller = std::min(positive, total - positive);
  if (values.size() <= kExactWilcoxonMax) {
    test.p = std::min(1.0, 2 * lower_share(values, smaller));
    return test;
  }
  test.exact = false;
  const double n = test.n;
  const double mean = n * (n + 1) / 4;
  const double variance = n * (n + 1) * (2 * n + 1) / 24 - ties / 48;
  const double distance = mean - static_cast<double>(smaller) / 2 - 0.5;
  if (distance > 0 && variance > 0) {
    test.p = std::min(1.0, 2 * normal_cdf(-distance / std::sqrt(variance)));
  }
  return test;
}

}  // namespace tailor::analysis
