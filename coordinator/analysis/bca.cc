#include "coordinator/analysis/bca.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "base/stats.h"
#include "coordinator/analysis/paired.h"

namespace tailor::analysis {
namespace {

/// `count` indices below n, two from each draw; the bias is below n / 2^32.
std::uint64_t scaled_below(std::uint64_t bits, std::uint64_t n) {
  return ((bits & 0xFFFFFFFF) * n) >> 32;
}

std::vector<double> resampled_means(std::span<const double> values) {
  const std::uint64_t n = values.size();
  Rng rng = Rng::split(kBcaSeed, "bca");
  std::vector<double> means(kBcaResamples);
  for (double& mean : means) {
    double sum = 0;
    std::uint64_t bits = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      bits = i % 2 == 0 ? rng.next_u64() : bits >> 32;
      sum += values[scaled_below(bits, n)];
    }
    mean = sum / static_cast<double>(n);
  }
  std::sort(means.begin(), means.end());
  return means;
}

double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * (static_cast<double>(sorted.size()) - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= sorted.size()) return sorted.back();
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[below + 1] - sorted[below]);
}

}  // namespace

std::optional<BcaInterval> bca_interval(std::span<const double> differences) {
  if (differences.size() < kBcaMin) return std::nullopt;
  const double mean = mean_of(differences);
  double largest = 0;
  for (const double d : differences) largest = std::max(largest, std::abs(d - mean));
  if (!(largest > 0) || !std::isfinite(largest)) return std::nullopt;
  // In units of the largest deviation, so that no power overflows. For a mean, u is proportional
  // to the deviation.
  std::vector<double> values;
  double squares = 0, cubes = 0;
  for (const double d : differences) {
    const double u = (d - mean) / largest;
    values.push_back(u);
    squares += u * u;
    cubes += u * u * u;
  }
  const std::vector<double> means = resampled_means(values);
  constexpr double kEqual = 1e-12;  // means that are equal in exact arithmetic
  const auto below = std::lower_bound(means.begin(), means.end(), -kEqual) - means.begin();
  const auto upto = std::upper_bound(means.begin(), means.end(), kEqual) - means.begin();
  BcaInterval out;
  out.bias =
      normal_quantile(static_cast<double>(below + upto) / (2 * static_cast<double>(means.size())));
  out.acceleration = cubes / (6 * std::pow(squares, 1.5));
  const auto end_at = [&](double q) {
    const double z = out.bias + normal_quantile(q);
    const double level = normal_cdf(out.bias + z / (1 - out.acceleration * z));
    return mean + largest * percentile(means, level);
  };
  out.low = end_at(0.025);
  out.high = end_at(0.975);
  if (!std::isfinite(out.low) || !std::isfinite(out.high)) return std::nullopt;
  return out;
}

}  // namespace tailor::analysis
