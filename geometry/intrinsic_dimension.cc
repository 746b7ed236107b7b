// Drops duplicates, selects neighbours row by row, then evaluates the formulas.
#include "geometry/intrinsic_dimension.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/rng.h"

namespace tailor::geometry {
namespace {

// With one point the shifted fit would be 0.
constexpr std::size_t kFittedMin = 2;
// See DimensionEstimate::crowded.
constexpr double kCrowdedShare = 1e-5;

std::vector<std::uint32_t> distinct_points(const DistanceMatrix& distances) {
  std::vector<std::uint32_t> kept;
  for (std::uint32_t i = 0; i < distances.count(); ++i) {
    const auto row = distances.row(i);
    const bool duplicate =
        std::any_of(kept.begin(), kept.end(), [row](std::uint32_t j) { return row[j] == 0; });
    if (!duplicate) kept.push_back(i);
  }
  return kept;
}

// The k smallest distances from each point to the others of `points`, ascending, row by row.
std::vector<double> nearest(const DistanceMatrix& distances, std::span<const std::uint32_t> points,
                            std::size_t k) {
  std::vector<double> result;
  result.reserve(points.size() * k);
  std::vector<double> row;
  for (const std::uint32_t i : points) {
    row.clear();
    for (const std::uint32_t j : points) {
      if (j != i) row.push_back(distances(i, j));
    }
    std::partial_sort(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(k), row.end());
    result.insert(result.end(), row.begin(), row.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return result;
}

// log(a / b), also where the ratio is no float64. REQUIRES: a >= b > 0.
double log_ratio(double a, double b) {
  const double ratio = a / b;
  return std::isfinite(ratio) ? std::log(ratio) : std::log(a) - std::log(b);
}

// A ratio of second to first neighbour; `told_apart`: it is above 1 by more than rounding.
struct Ratio {
  double log;
  bool told_apart;
};

// Slope through the origin of -log(1 - (i - shift) / n) on the i-th of the sorted log mu, 1-based.
double fitted_slope(std::span<const Ratio> sorted, std::size_t n, double shift) {
  double xy = 0, xx = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const double share = (static_cast<double>(i + 1) - shift) / static_cast<double>(n);
    const double x = sorted[i].log, y = -std::log1p(-share);
    xy += x * y;
    xx += x * x;
  }
  return xy / xx;
}

Status undefined(std::string_view why) {
  return Status(Code::kInvalidArgument,
                fmt::format("intrinsic dimension: {}, which leaves the dimension undefined", why));
}

Status check(const DimensionOptions& options) {
  if (options.neighbours < 3 || !(options.discarded >= 0 && options.discarded < 1)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("intrinsic dimension: neighbours ({}) must be at least 3 and the "
                              "discarded share ({}) from 0 to below 1",
                              options.neighbours, options.discarded));
  }
  return Status::ok();
}

Result<DimensionEstimate> estimate(const DistanceMatrix& distances,
                                   std::span<const std::uint32_t> points,
                                   const DimensionOptions& options) {
  const std::size_t n = points.size(), k = options.neighbours;
  const std::size_t needed = std::max(options.points_min, k + 1);
  if (n < needed) {
    return error(
        Code::kInvalidArgument,
        fmt::format("intrinsic dimension: {} distinct points, at least {} are needed", n, needed));
  }
  const std::vector<double> neighbours = nearest(distances, points, k);

  DimensionEstimate result;
  result.points = n;
  std::vector<Ratio> ratios(n);
  double log_sum = 0, local_sum = 0, inverse_sum = 0;
  std::size_t told_apart = 0;
  std::optional<std::uint32_t> flat;  // a point whose neighbours are all equally far
  for (std::size_t i = 0; i < n; ++i) {
    const double* r = neighbours.data() + i * k;
    const auto apart = [&](double longer, double shorter) {
      return longer - shorter > 2 * distances.rounding(points[i], longer);
    };
    ratios[i] = {log_ratio(r[1], r[0]), apart(r[1], r[0])};
    told_apart += ratios[i].told_apart;
    log_sum += ratios[i].log;
    if (!apart(r[k - 1], r[0])) flat = points[i];
    result.crowded += r[0] < kCrowdedShare * r[k - 1];
    double s = 0;
    for (std::size_t j = 0; j + 1 < k; ++j) s += log_ratio(r[k - 1], r[j]);
    local_sum += s;
    const double local = static_cast<double>(k - 1) / s;
    inverse_sum += local;
    result.local.push_back(local);
  }
  if (told_apart == 0) {
    return error(undefined("the nearest neighbours of every point are equally far"));
  }
  if (flat) {
    return error(
        undefined(fmt::format("the {} nearest neighbours of point {} are equally far (more "
                              "--neighbours may reach others)",
                              k, *flat)));
  }
  const double count = static_cast<double>(n), order = static_cast<double>(k);
  result.two_nn = (count - 1) / log_sum;
  result.two_nn_biased = count / log_sum;
  std::sort(ratios.begin(), ratios.end(),
            [](const Ratio& a, const Ratio& b) { return a.log < b.log; });
  const auto share = static_cast<std::size_t>(std::floor((1 - options.discarded) * count));
  // F = 1 has no logarithm: the last point is left out whatever `discarded` says.
  const auto fitted = std::span<const Ratio>(ratios).first(std::min(share, n - 1));
  if (fitted.size() < kFittedMin) {
    return error(
        Code::kInvalidArgument,
        fmt::format(
            "intrinsic dimension: with a discarded share of {} the TwoNN fit keeps {} of {} "
            "ratios of neighbours and needs {}; discard less",
            options.discarded, fitted.size(), n, kFittedMin));
  }
  if (std::none_of(fitted.begin(), fitted.end(), [](const Ratio& r) { return r.told_apart; })) {
    return error(
        undefined(fmt::format("of the {} points that the TwoNN fit keeps (a share of {} is "
                              "discarded) each has its two nearest "
                              "neighbours equally far, as on a line or grid of equal steps",
                              fitted.size(), options.discarded)));
  }
  result.two_nn_fit = fitted_slope(fitted, n, 0);
  result.two_nn_fit_shifted = fitted_slope(fitted, n, 1);
  result.levina_bickel = count * (order - 1) / local_sum;
  result.levina_bickel_unbiased = count * (order - 2) / local_sum;
  result.levina_bickel_mean = inverse_sum / count;
  result.levina_bickel_mean_unbiased = result.levina_bickel_mean * (order - 2) / (order - 1);
  for (const double estimate :
       {result.two_nn, result.two_nn_biased, result.two_nn_fit, result.two_nn_fit_shifted,
        result.levina_bickel, result.levina_bickel_unbiased, result.levina_bickel_mean,
        result.levina_bickel_mean_unbiased}) {
    if (!(estimate > 0) || !std::isfinite(estimate)) {
      return error(undefined(fmt::format("an estimate came out as {}", estimate)));
    }
  }
  return result;
}

}  // namespace

double dimension_memory_bytes(std::size_t points, const DimensionOptions& options) {
  const double n = static_cast<double>(points);
  return 8 * n * static_cast<double>(std::min(options.neighbours, points)) + 64 * n;
}

Result<DimensionEstimate> intrinsic_dimension(const DistanceMatrix& distances,
                                              const DimensionOptions& options) {
  TAILOR_RETURN_IF_ERROR(check(options));
  const std::vector<std::uint32_t> points = distinct_points(distances);
  TAILOR_ASSIGN_OR_RETURN(DimensionEstimate result, estimate(distances, points, options));
  result.dropped = distances.count() - points.size();
  return result;
}

Result<std::vector<DimensionEstimate>> dimension_by_scale(const DistanceMatrix& distances,
                                                          const DimensionOptions& options) {
  TAILOR_ASSIGN_OR_RETURN(DimensionEstimate whole, intrinsic_dimension(distances, options));
  std::vector<std::uint32_t> points = distinct_points(distances);
  Rng rng = Rng::split(options.seed, "intrinsic dimension subsets");
  for (std::size_t i = points.size(); i > 1; --i) {
    std::swap(points[i - 1], points[static_cast<std::size_t>(rng.below(i))]);
  }
  std::vector<DimensionEstimate> result;
  result.push_back(std::move(whole));
  for (const std::size_t part : {2u, 4u}) {
    const std::size_t size = points.size() / part;
    if (size < std::max(options.points_min, options.neighbours + 1)) break;
    auto estimated = estimate(distances, std::span(points).first(size), options);
    if (!estimated) {
      return error(estimated.error().with_context(fmt::format(
          "at {} of {} points (this scale is left out when at least {} points are asked for)", size,
          points.size(), size + 1)));
    }
    DimensionEstimate smaller = std::move(*estimated);
    smaller.dropped = result[0].dropped;
    result.push_back(std::move(smaller));
  }
  return result;
}

}  // namespace tailor::geometry
