#include "coordinator/analysis/paired.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"
#include "base/stats.h"

namespace tailor::analysis {
namespace {

constexpr std::size_t kSampledPatterns = 100'000;
// Any fixed value: the same data give the same p.
constexpr std::uint64_t kSampleSeed = 0x7461696C6F72;

/// Every signed sum of `values`: 2^n entries. Each is a fresh sum, so no rounding builds up from
/// one pattern to the next.
std::vector<double> signed_sums(std::span<const double> values) {
  std::vector<double> sums{0.0};
  for (const double value : values) {
    const std::size_t count = sums.size();
    sums.resize(2 * count);
    for (std::size_t i = 0; i < count; ++i) {
      sums[count + i] = sums[i] - value;
      sums[i] += value;
    }
  }
  return sums;
}

}  // namespace

double sign_flip_p(std::span<const double> differences) {
  TAILOR_CHECK(!differences.empty(), "a sign-flip test needs a difference");
  double sum = 0;
  double scale = 0;
  for (const double d : differences) {
    TAILOR_CHECK(std::isfinite(d), "a paired difference is not finite");
    sum += d;
    scale += std::abs(d);
  }
  // Patterns that tie with the observed sum in exact arithmetic must count, whatever the rounding.
  const double at_least = std::abs(sum) - 1e-12 * scale;
  const std::size_t n = differences.size();
  if (n <= kExactSignFlipMax) {
    const std::vector<double> left = signed_sums(differences.first(n / 2));
    const std::vector<double> right = signed_sums(differences.subspan(n / 2));
    std::size_t hits = 0;
    for (const double a : left) {
      for (const double b : right) hits += std::abs(a + b) >= at_least ? 1 : 0;
    }
    return static_cast<double>(hits) / static_cast<double>(left.size() * right.size());
  }
  Rng rng = Rng::split(kSampleSeed, "sign_flip");
  std::size_t hits = 0;
  for (std::size_t pattern = 0; pattern < kSampledPatterns; ++pattern) {
    double flipped = 0;
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (i % 64 == 0) bits = rng.next_u64();
      flipped += (bits & 1) != 0 ? differences[i] : -differences[i];
      bits >>= 1;
    }
    hits += std::abs(flipped) >= at_least ? 1 : 0;
  }
  return static_cast<double>(1 + hits) / static_cast<double>(1 + kSampledPatterns);
}

PairedSummary summarize_pairs(std::span<const double> differences) {
  PairedSummary summary;
  summary.n = differences.size();
  if (summary.n == 0) return summary;
  const auto n = static_cast<double>(summary.n);
  summary.mean = std::accumulate(differences.begin(), differences.end(), 0.0) / n;
  for (const double d : differences) {
    summary.negative += d < 0 ? 1 : 0;
    summary.positive += d > 0 ? 1 : 0;
  }
  summary.p_sign_flip = sign_flip_p(differences);
  summary.p_exact = summary.n <= kExactSignFlipMax;
  if (summary.n < 2) return summary;
  double squares = 0;
  for (const double d : differences) squares += (d - summary.mean) * (d - summary.mean);
  summary.sd = std::sqrt(squares / (n - 1));
  const double standard_error = *summary.sd / std::sqrt(n);
  if (standard_error > 0) summary.t = summary.mean / standard_error;
  const double half = student_t_quantile(0.975, n - 1) * standard_error;
  summary.ci_low = summary.mean - half;
  summary.ci_high = summary.mean + half;
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

double smallest_sign_flip_p(std::size_t n) {
  return n <= 1 ? 1.0 : std::ldexp(2.0, -static_cast<int>(std::min<std::size_t>(n, 1000)));
}

}  // namespace tailor::analysis
