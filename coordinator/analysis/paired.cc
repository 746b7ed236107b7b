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

/// The noncentrality at which a two-sided t-test with `df` degrees of freedom has power `kPower`.
double shift_with_power(double critical, double df) {
  double low = 0;
  double high = critical;
  while (noncentral_t_two_sided_p(critical, df, high) < kPower) {
    low = high;
    high *= 2;
  }
  for (int i = 0; i < 60; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (noncentral_t_two_sided_p(critical, df, middle) < kPower ? low : high) = middle;
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
  const double half = critical * standard_error;
  if (std::isfinite(summary.mean - half) && std::isfinite(summary.mean + half)) {
    summary.ci_low = summary.mean - half;
    summary.ci_high = summary.mean + half;
  }
  return summary;
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

}  // namespace tailor::analysis
