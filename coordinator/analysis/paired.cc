#include "coordinator/analysis/paired.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/stats.h"

namespace tailor::analysis {
namespace {

std::optional<double> if_finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// The noncentrality at which a two-sided t-test with `df` degrees of freedom has power `kPower`:
/// regula falsi (Illinois), as the power grows with it.
double shift_with_power(double critical, double df) {
  const auto lacking = [&](double shift) {
    return kPower - noncentral_t_two_sided_p(critical, df, shift);
  };
  double low = 0, high = critical + 1;
  double at_low = lacking(low), at_high = lacking(high);
  while (at_high > 0) {
    low = high;
    at_low = at_high;
    high *= 2;
    at_high = lacking(high);
  }
  int side = 0;
  for (int i = 0; i < 100 && high - low > 1e-13 * high; ++i) {
    const double middle = (low * at_high - high * at_low) / (at_high - at_low);
    if (!(middle > low && middle < high)) break;
    const double value = lacking(middle);
    if (std::abs(value) < 1e-13) return middle;
    if (value > 0) {
      low = middle;
      at_low = value;
      if (side == -1) at_high /= 2;
      side = -1;
    } else {
      high = middle;
      at_high = value;
      if (side == 1) at_low /= 2;
      side = 1;
    }
  }
  return high;
}

}  // namespace

double mean_of(std::span<const double> values) {
  TAILOR_CHECK(!values.empty(), "the mean of nothing");
  const auto n = static_cast<double>(values.size());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (std::isfinite(sum)) return sum / n;
  double mean = 0;
  for (const double value : values) mean += value / n;
  return mean;
}

double critical_t(std::size_t n) {
  TAILOR_CHECK(n >= 2, "n={}", n);
  return student_t_quantile(0.975, static_cast<double>(n) - 1);
}

PairedSummary summarize_pairs(std::span<const double> differences) {
  return summarize_pairs(differences, differences.size() < 2 ? 0 : critical_t(differences.size()));
}

PairedSummary summarize_pairs(std::span<const double> differences, double critical) {
  PairedSummary summary;
  summary.n = differences.size();
  if (summary.n == 0) return summary;
  const auto n = static_cast<double>(summary.n);
  summary.mean = mean_of(differences);
  double largest = 0;  // of the deviations; they are squared in units of it
  for (const double d : differences) {
    summary.negative += d < 0 ? 1 : 0;
    summary.positive += d > 0 ? 1 : 0;
    largest = std::max(largest, std::abs(d - summary.mean));
  }
  summary.sign_flip = sign_flip_test(differences);
  summary.sign_test = sign_test(summary.negative, summary.positive);
  summary.wilcoxon = wilcoxon_test(differences);
  if (summary.n < 2) return summary;
  double squares = 0;
  for (const double d : differences) {
    const double deviation = largest > 0 ? (d - summary.mean) / largest : 0;
    squares += deviation * deviation;
  }
  summary.sd = if_finite(largest > 0 ? largest * std::sqrt(squares / (n - 1)) : 0);
  if (!summary.sd) return summary;
  const double standard_error = *summary.sd / std::sqrt(n);
  if (standard_error > 0) summary.t = if_finite(summary.mean / standard_error);
  if (summary.t) summary.p_t = student_t_two_sided_p(*summary.t, n - 1);
  const double half = critical * standard_error;
  if (std::isfinite(summary.mean - half) && std::isfinite(summary.mean + half)) {
    summary.ci_low = summary.mean - half;
    summary.ci_high = summary.mean + half;
  }
  return summary;
}

void drop_tests(PairedSummary& summary) {
  summary.t.reset();
  summary.p_t.reset();
  summary.sign_flip.reset();
  summary.sign_test.reset();
  summary.wilcoxon.reset();
}

std::vector<std::optional<double>> holm_adjust(std::span<const std::optional<double>> p) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i].has_value()) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return *p[a] < *p[b]; });
  std::vector<std::optional<double>> adjusted(p.size());
  double running = 0;
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    const auto tests_left = static_cast<double>(order.size() - rank);
    running = std::max(running, std::min(1.0, tests_left * *p[order[rank]]));
    adjusted[order[rank]] = running;
  }
  return adjusted;
}

Resolution resolution_of(std::size_t n) {
  Resolution resolution;
  resolution.smallest_p = smallest_sign_flip_p(n);
  resolution.p_exact = n <= kExactSignFlipMax;
  if (n < 2) {
    resolution.half_width_sd = std::numeric_limits<double>::infinity();
    resolution.effect_sd = std::numeric_limits<double>::infinity();
    return resolution;
  }
  const auto seeds = static_cast<double>(n);
  const double critical = critical_t(n);
  resolution.half_width_sd = critical / std::sqrt(seeds);
  resolution.effect_sd = shift_with_power(critical, seeds - 1) / std::sqrt(seeds);
  return resolution;
}

double PowerTable::effect_sd(std::size_t n) {
  const auto [found, is_new] = known_.emplace(n, 0.0);
  if (is_new) found->second = resolution_of(n).effect_sd;
  return found->second;
}

std::optional<std::size_t> PowerTable::seeds_for(double wanted) {
  TAILOR_CHECK(wanted > 0, "effect_sd={}", wanted);
  if (this->effect_sd(kSeedsLookedAt) > wanted) return std::nullopt;
  std::size_t low = 1, high = kSeedsLookedAt;  // `high` is enough, `low` is not
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (this->effect_sd(middle) <= wanted ? high : low) = middle;
  }
  return high;
}

}  // namespace tailor::analysis
