#include "model/diagnose/correlation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/rng.h"
#include "geometry/jackknife.h"

namespace tailor::diagnose {
namespace {

// Numbers that differ by rounding alone count as equal when p-values are counted.
constexpr double kSame = 1e-12;

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Values less their mean, of length 1; nothing for values that are all equal.
std::vector<double> standardised(std::span<const double> values) {
  const double mean = mean_of(values);
  std::vector<double> out;
  double squares = 0;
  double largest = 0;
  for (const double value : values) {
    out.push_back(value - mean);
    squares += out.back() * out.back();
    largest = std::max(largest, std::abs(value));
  }
  const double length = std::sqrt(squares);
  if (!(length > 1e-14 * largest * std::sqrt(static_cast<double>(values.size())))) return {};
  for (double& value : out) value /= length;
  return out;
}

// sum_l x_l y_{l - shift}
double shifted_product(std::span<const double> x, std::span<const double> y, std::size_t shift) {
  const std::size_t count = x.size();
  double sum = 0;
  for (std::size_t l = 0; l < count; ++l) sum += x[l] * y[(l + count - shift) % count];
  return sum;
}

double shift_p(std::span<const double> x, std::span<const double> y) {
  const double seen = std::abs(shifted_product(x, y, 0));
  std::size_t as_large = 0;
  for (std::size_t k = 0; k < x.size(); ++k) {
    if (std::abs(shifted_product(x, y, k)) >= seen - kSame) ++as_large;
  }
  return static_cast<double>(as_large) / static_cast<double>(x.size());
}

double permutation_p(std::span<const double> x, std::vector<double> y, std::uint64_t seed,
                     std::size_t permutations) {
  const double seen = std::abs(shifted_product(x, y, 0));
  Rng rng = Rng::split(seed, "permutations of layers");
  std::size_t as_large = 1;
  for (std::size_t n = 0; n < permutations; ++n) {
    for (std::size_t i = y.size() - 1; i > 0; --i) std::swap(y[i], y[rng.below(i + 1)]);
    if (std::abs(shifted_product(x, y, 0)) >= seen - kSame) ++as_large;
  }
  return static_cast<double>(as_large) / static_cast<double>(permutations + 1);
}

// What is left of standardised values when the line of standardised z is taken off, standardised.
std::vector<double> residuals(std::span<const double> values, std::span<const double> z) {
  const double slope = shifted_product(values, z, 0);
  std::vector<double> out;
  double squares = 0;
  for (std::size_t l = 0; l < values.size(); ++l) {
    out.push_back(values[l] - slope * z[l]);
    squares += out.back() * out.back();
  }
  if (!(squares > 1e-24)) return {};
  for (double& value : out) value /= std::sqrt(squares);
  return out;
}

Status check_pair(std::span<const double> x, std::span<const double> y) {
  if (x.size() != y.size()) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{} values beside {}: a correlation needs pairs", x.size(), y.size()));
  }
  if (x.size() < 3) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} layers: a correlation needs at least 3", x.size()));
  }
  for (std::size_t l = 0; l < x.size(); ++l) {
    if (!std::isfinite(x[l]) || !std::isfinite(y[l])) {
      return Status(Code::kInvalidArgument, fmt::format("no finite number at layer {}", l));
    }
  }
  return Status::ok();
}

// Both standardised.
struct Pair {
  std::vector<double> x, y;
};
Result<Pair> standardised_pair(std::span<const double> x, std::span<const double> y) {
  TAILOR_RETURN_IF_ERROR(check_pair(x, y));
  Pair pair{standardised(x), standardised(y)};
  if (pair.x.empty() || pair.y.empty()) {
    return error(Code::kInvalidArgument,
                 "all layers have the same value: no correlation is defined");
  }
  return pair;
}

double clamped(double r) { return std::clamp(r, -1.0, 1.0); }

}  // namespace

std::vector<double> ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && values[order[last + 1]] == values[order[first]]) ++last;
    const double rank = static_cast<double>(first + last) / 2 + 1;
    for (std::size_t i = first; i <= last; ++i) out[order[i]] = rank;
    first = last + 1;
  }
  return out;
}

Result<double> pearson(std::span<const double> x, std::span<const double> y) {
  TAILOR_ASSIGN_OR_RETURN(const Pair pair, standardised_pair(x, y));
  return clamped(shifted_product(pair.x, pair.y, 0));
}

Result<double> spearman(std::span<const double> x, std::span<const double> y) {
  TAILOR_RETURN_IF_ERROR(check_pair(x, y));
  return pearson(ranks(x), ranks(y));
}

Result<double> partial(std::span<const double> x, std::span<const double> y,
                       std::span<const double> z) {
  TAILOR_ASSIGN_OR_RETURN(const Pair pair, standardised_pair(x, y));
  TAILOR_ASSIGN_OR_RETURN(const Pair beside, standardised_pair(x, z));
  const std::vector<double> rest_x = residuals(pair.x, beside.y);
  const std::vector<double> rest_y = residuals(pair.y, beside.y);
  if (rest_x.empty() || rest_y.empty()) {
    return error(Code::kInvalidArgument,
                 "one of the two follows depth exactly: nothing is left beside depth");
  }
  return clamped(shifted_product(rest_x, rest_y, 0));
}

Result<std::vector<double>> correlated_values(CorrelationKind kind, std::span<const double> values,
                                              const char* what) {
  if (kind == CorrelationKind::kSpearman) return ranks(values);
  std::vector<double> out;
  for (std::size_t l = 0; l < values.size(); ++l) {
    if (!(values[l] > 0)) {
      return error(
          Code::kInvalidArgument,
          fmt::format("{} of layer {} is {:.3g}: it has no logarithm", what, l, values[l]));
    }
    out.push_back(std::log(values[l]));
  }
  return out;
}

Result<double> correlation(CorrelationKind kind, std::span<const double> x,
                           std::span<const double> y) {
  TAILOR_RETURN_IF_ERROR(check_pair(x, y));
  TAILOR_ASSIGN_OR_RETURN(const std::vector<double> a, correlated_values(kind, x, "the profile"));
  TAILOR_ASSIGN_OR_RETURN(const std::vector<double> b,
                          correlated_values(kind, y, "the sensitivity"));
  return pearson(a, b);
}

Result<Correlation> correlate(CorrelationKind kind, std::span<const double> x,
                              std::span<const double> y, std::uint64_t seed,
                              std::size_t permutations) {
  TAILOR_RETURN_IF_ERROR(check_pair(x, y));
  TAILOR_ASSIGN_OR_RETURN(const std::vector<double> a, correlated_values(kind, x, "the profile"));
  TAILOR_ASSIGN_OR_RETURN(const std::vector<double> b,
                          correlated_values(kind, y, "the sensitivity"));
  TAILOR_ASSIGN_OR_RETURN(const Pair pair, standardised_pair(a, b));
  Correlation out;
  out.value = clamped(shifted_product(pair.x, pair.y, 0));
  out.p_shift = shift_p(pair.x, pair.y);
  out.p_naive = permutation_p(pair.x, pair.y, seed, permutations);

  std::vector<double> depth(x.size());
  std::iota(depth.begin(), depth.end(), 0.0);
  out.partial = partial(a, b, depth);
  if (out.partial) {
    const std::vector<double> z = standardised(depth);
    out.partial_p_shift = shift_p(residuals(pair.x, z), residuals(pair.y, z));
  }
  return out;
}

Result<double> jackknife_error(std::span<const double> without_group) {
  if (without_group.size() < 2) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} independent group: no standard error", without_group.size()));
  }
  for (const double value : without_group) {
    if (!std::isfinite(value)) {
      return error(Code::kInvalidArgument, "not defined without one of the groups");
    }
  }
  std::vector<std::vector<double>> replicates;
  for (const double value : without_group) replicates.push_back({value});
  return geometry::jackknife_errors(replicates).front();
}

double quantile(std::vector<double> values, double q) {
  TAILOR_CHECK(!values.empty() && q >= 0 && q <= 1);
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace tailor::diagnose
