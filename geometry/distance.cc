// Distance matrices: rows are copied once into a padded, scaled (and for angles normalised) buffer,
// then tiles of squared differences (kernels.h) are turned into distances.
#include "geometry/distance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/text.h"
#include "geometry/accelerator.h"
#include "geometry/kernels.h"
#include "geometry/parallel.h"

namespace tailor::geometry {
namespace {

// Rows a side of a tile: 16 rows of 256 doubles stay in the nearest cache.
constexpr std::size_t kTile = 16;

// Rows ready for the kernel; values were multiplied by 2^-exponent.
struct PreparedRows : PaddedRows {
  using PaddedRows::PaddedRows;
  int exponent = 0;
};

// Roundings of half a spacing that a stored point may have gone through, on both sides together
// over two: see "One point" in the header.
constexpr double kRoundings = 4;

// Asymmetry up to this share of an entry is taken for rounding, of float32 arithmetic at worst.
constexpr double kRoundingShare = 1e-5;

// Squares of numbers beyond these leave the range of float64; then the cloud is scaled by a power
// of two, which is exact.
constexpr double kSafeLargest = 1e140;
constexpr double kSafeSmallest = 1e-140;

int common_exponent(CloudView a, CloudView b) {
  double largest = 0;
  for (const double x : a.values()) largest = std::max(largest, std::abs(x));
  for (const double x : b.values()) largest = std::max(largest, std::abs(x));
  if (largest == 0 || (largest < kSafeLargest && largest > kSafeSmallest)) return 0;
  int exponent = 0;
  std::frexp(largest, &exponent);
  return exponent;
}

// out = row / 2^exponent.
void scale_down(std::span<const double> row, int exponent, double* out) {
  if (exponent == 0) {
    std::copy(row.begin(), row.end(), out);
  } else {
    for (std::size_t k = 0; k < row.size(); ++k) out[k] = std::ldexp(row[k], -exponent);
  }
}

PreparedRows prepare_raw(CloudView cloud, int exponent) {
  PreparedRows rows(cloud.count(), cloud.dimension());
  rows.exponent = exponent;
  for (std::size_t i = 0; i < rows.count; ++i) {
    scale_down(cloud.row(i), exponent, rows.row(i));
  }
  return rows;
}

// out = row / |row|; false when the row has no direction.
bool normalise(std::span<const double> row, double* out) {
  const double length = norm(row);
  if (length < kZeroNorm) return false;
  // Two steps keep vectors whose norm is near the end of the range exact.
  int exponent = 0;
  std::frexp(length, &exponent);
  const double mantissa = std::ldexp(length, -exponent);
  if (std::abs(exponent) < 1000) {  // 2^-exponent is a number, and multiplying is much faster
    const double scale = std::ldexp(1.0, -exponent);
    for (std::size_t k = 0; k < row.size(); ++k) out[k] = row[k] * scale / mantissa;
  } else {
    for (std::size_t k = 0; k < row.size(); ++k) out[k] = std::ldexp(row[k], -exponent) / mantissa;
  }
  return true;
}

Status no_direction(CloudView cloud, std::size_t i) {
  return Status(Code::kInvalidArgument,
                fmt::format("point {} is a zero vector (norm {:.3g} < {:.0e}) and has no "
                            "direction; drop it first",
                            i, norm(cloud.row(i)), kZeroNorm));
}

Result<PreparedRows> prepare_directions(CloudView cloud) {
  PreparedRows rows;
  static_cast<PaddedRows&>(rows) = PaddedRows(cloud.count(), cloud.dimension());
  for (std::size_t i = 0; i < rows.count; ++i) {
    if (!normalise(cloud.row(i), rows.row(i))) return error(no_direction(cloud, i));
  }
  return rows;
}

// arsinh x, x >= 0. From 1 to 1e8 the logarithm loses nothing and is several times faster than the
// library's general function.
double inverse_sinh(double x) {
  return x >= 1 && x < 1e8 ? std::log(x + std::sqrt(x * x + 1)) : std::asinh(x);
}

// Below this a sum of squares may have lost what matters to underflow.
constexpr double kTinySquare = 1e-280;

// |a - b| of rows that are (nearly) equal, without underflow.
double tiny_distance(const double* a, const double* b, std::size_t stride) {
  double largest = 0;
  for (std::size_t k = 0; k < stride; ++k) largest = std::max(largest, std::abs(a[k] - b[k]));
  if (largest == 0) return 0;
  int exponent = 0;
  std::frexp(largest, &exponent);
  double sum = 0;
  for (std::size_t k = 0; k < stride; ++k) {
    const double scaled = std::ldexp(a[k] - b[k], -exponent);
    sum += scaled * scaled;
  }
  return std::ldexp(std::sqrt(sum), exponent);
}

// Turns |a - b|^2 of two prepared rows into the distance of one geometry.
class Measure {
 public:
  explicit Measure(const DistanceOptions& options)
      : geometry_(options.geometry), half_kappa_(options.rho / (1 - options.rho * options.rho)) {}

  double operator()(double squared, const double* a, const double* b, std::size_t stride,
                    int exponent) const {
    switch (geometry_) {
      case Geometry::kRaw: {
        const double distance =
            squared < kTinySquare ? tiny_distance(a, b, stride) : std::sqrt(squared);
        return exponent == 0 ? distance : std::ldexp(distance, exponent);
      }
      case Geometry::kSpherical: {
        // Up to 90 degrees the half chord has a well-conditioned arcsine, at half the cost.
        if (squared <= 3) {
          double angle;
          angles_of_chords(&squared, 1, &angle);
          return angle;
        }
        return 2 * std::atan2(std::sqrt(squared), std::sqrt(squared_sum(a, b, stride)));
      }
      case Geometry::kHyperbolic:
        return 2 * inverse_sinh(half_kappa_ * std::sqrt(squared));
    }
    return 0;
  }

  /// Up to here an angle between directions of that dimension is rounding; see the header.
  double angle_resolution(std::size_t dimension, double spacing) const {
    const double chord =
        kRoundings * spacing + (static_cast<double>(dimension) / 8 + 8) * kFloat64Spacing / 2;
    return (*this)(chord * chord, nullptr, nullptr, 0, 0);
  }

 private:
  Geometry geometry_;
  double half_kappa_;  // kappa / 2
};

std::vector<double> raw_resolutions(CloudView cloud, double spacing) {
  std::vector<double> result(cloud.count());
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double length = std::min(norm(cloud.row(i)), std::numeric_limits<double>::max());
    result[i] = kRoundings * spacing * length;
  }
  return result;
}

// Of a matrix from outside: the upper quartile of a row stands for the norm.
std::vector<double> outside_resolutions(std::span<const double> values, std::size_t count,
                                        double spacing) {
  std::vector<double> result(count), row;
  for (std::size_t i = 0; i < count; ++i) {
    const auto entries = values.subspan(i * count, count);
    row.assign(entries.begin(), entries.end());
    const auto quartile = row.begin() + static_cast<std::ptrdiff_t>(3 * (count - 1) / 4);
    std::nth_element(row.begin(), quartile, row.end());
    result[i] = kRoundings * spacing * *quartile;
  }
  return result;
}

Status check_entry(double value, std::size_t i, std::size_t j) {
  if (!std::isfinite(value) || value < 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("distance matrix: entry ({}, {}) is {}; distances are finite and not "
                              "negative{}",
                              i, j, value,
                              value < 0 && value > -kRoundingShare
                                  ? ". If that is rounding, repair it with numpy.maximum(D, 0)"
                                  : ""));
  }
  return Status::ok();
}

}  // namespace

std::string_view geometry_name(Geometry geometry) {
  switch (geometry) {
    case Geometry::kRaw:
      return "raw";
    case Geometry::kSpherical:
      return "spherical";
    case Geometry::kHyperbolic:
      return "hyperbolic";
  }
  return "?";
}

Result<Geometry> parse_geometry(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Geometry geometry : kGeometries) {
    if (geometry_name(geometry) == name) return geometry;
    names.push_back(geometry_name(geometry));
  }
  const std::string near = nearest_name(name, names);
  return error(Code::kInvalidArgument,
               fmt::format("unknown geometry \"{}\"{}; known: raw, spherical, hyperbolic", name,
                           near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near)));
}

Status DistanceOptions::validate() const {
  if (!(rho > 0 && rho < 1)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("rho must lie strictly between 0 and 1, got {}", rho));
  }
  if (threads < 1) {
    return Status(Code::kInvalidArgument,
                  fmt::format("threads must be at least 1, got {}", threads));
  }
  return Status::ok();
}

double hyperbolic_from_angle(double theta, double rho) {
  // The loop of whole matrices: an entry and what is mapped on its own are the same bits.
  double mapped;
  ball_distances(&theta, 1, 2 * rho / (1 - rho * rho), &mapped);
  return mapped;
}

DistanceMatrix::DistanceMatrix(std::size_t count) : values_(count * count, 0.0), count_(count) {}

Result<DistanceMatrix> DistanceMatrix::from_square(std::vector<double> values, std::size_t count,
                                                   double spacing) {
  if (count != 0 && (values.size() / count != count || values.size() % count != 0)) {
    return error(Code::kInvalidArgument, fmt::format("distance matrix: {} values are not {} x {}",
                                                     values.size(), count, count));
  }
  if (count == 0 && !values.empty()) {
    return error(Code::kInvalidArgument, "distance matrix: values given for no points");
  }
  std::size_t worst_i = 0, worst_j = 0, worst_point = 0;
  double worst = 0, worst_diagonal = 0;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      const double lower = values[i * count + j];
      const double upper = values[j * count + i];
      TAILOR_RETURN_IF_ERROR(check_entry(i == j ? std::abs(lower) : lower, i, j));
      TAILOR_RETURN_IF_ERROR(check_entry(i == j ? std::abs(upper) : upper, j, i));
      if (std::abs(lower - upper) > worst) {
        worst = std::abs(lower - upper);
        worst_i = i;
        worst_j = j;
      }
    }
    if (std::abs(values[i * count + i]) > std::abs(worst_diagonal)) {
      worst_diagonal = values[i * count + i];
      worst_point = i;
    }
  }
  if (worst > 0) {
    const double lower = values[worst_i * count + worst_j],
                 upper = values[worst_j * count + worst_i];
    return error(
        Code::kInvalidArgument,
        fmt::format(
            "distance matrix: not symmetric, entry ({}, {}) is {} but ({}, {}) is {}; no pair "
            "differs by more than these {:.3g}{}",
            worst_i, worst_j, lower, worst_j, worst_i, upper, worst,
            worst > kRoundingShare * std::max(lower, upper)
                ? ", which is more than rounding: are these distances?"
                : ". That is rounding: repair it with D = (D + D.T) / 2 in NumPy"));
  }
  if (worst_diagonal != 0) {
    const double largest = *std::max_element(values.begin(), values.end());
    return error(
        Code::kInvalidArgument,
        fmt::format(
            "distance matrix: entry ({}, {}) on the diagonal is {}, not 0; it is the largest "
            "there{}",
            worst_point, worst_point, worst_diagonal,
            std::abs(worst_diagonal) > kRoundingShare * largest
                ? ", and more than rounding: are these distances, not similarities?"
                : ". That is rounding: repair it with numpy.fill_diagonal(D, 0)"));
  }
  DistanceMatrix matrix;
  matrix.values_ = std::move(values);
  matrix.count_ = count;
  matrix.unite(outside_resolutions(matrix.values_, count, spacing), spacing, true, 1);
  return matrix;
}

Result<DistanceMatrix> DistanceMatrix::from_lower_triangle(std::span<const double> values,
                                                           std::size_t count, double spacing) {
  const std::size_t expected = count < 2 ? 0 : count * (count - 1) / 2;
  if (values.size() != expected) {
    return error(
        Code::kInvalidArgument,
        fmt::format("distance matrix: {} values for the lower triangle of {} points, which "
                    "has {}",
                    values.size(), count, expected));
  }
  DistanceMatrix matrix(count);
  std::size_t at = 0;
  for (std::size_t i = 1; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j, ++at) {
      TAILOR_RETURN_IF_ERROR(check_entry(values[at], i, j));
      matrix.values_[i * count + j] = values[at];
      matrix.values_[j * count + i] = values[at];
    }
  }
  matrix.unite(outside_resolutions(matrix.values_, count, spacing), spacing, true, 1);
  return matrix;
}

// Finds the points that are one with an earlier one and gives them its row; sets the extent.
// In a matrix from `outside` points are one only if their rows say so, too: it may be no metric.
void DistanceMatrix::unite(std::vector<double> resolutions, double spacing, bool outside,
                           int threads) {
  resolutions_ = std::move(resolutions);
  relative_ = kRoundings * spacing;
  duplicates_ = 0;
  const std::size_t n = count_;
  std::vector<double> maxima(n, 0.0);
  std::vector<char> near(n, 0);  // to some earlier point
  parallel_for(threads, (n + kTile - 1) / kTile, [&](std::size_t tile) {
    for (std::size_t i = tile * kTile; i < std::min(n, (tile + 1) * kTile); ++i) {
      const auto entries = row(i);
      const double own = resolutions_[i];
      bool found = false;
      for (std::size_t j = 0; j < i; ++j) {
        found |= entries[j] <= std::max(own, resolutions_[j]);
      }
      near[i] = found;
      maxima[i] = *std::max_element(entries.begin(), entries.end());
    }
  });
  const auto one_point = [&](std::size_t i, std::size_t j) {
    const double apart = values_[i * n + j];
    const double limit = std::max(resolutions_[i], resolutions_[j]);
    if (apart > limit) return false;
    if (!outside || apart == 0) return true;
    const auto a = row(i), b = row(j);
    for (std::size_t k = 0; k < n; ++k) {
      const double off = 2 * limit + relative_ * std::max(a[k], b[k]);
      if (k != i && k != j && std::abs(a[k] - b[k]) > off) return false;
    }
    return true;
  };
  std::vector<std::size_t> leader(n);
  bool moved = false;  // some entry is not what a duplicate's would be
  for (std::size_t i = 0; i < n; ++i) {
    leader[i] = i;
    for (std::size_t j = 0; near[i] && j < i; ++j) {
      if (leader[j] != j || !one_point(i, j)) continue;
      ++duplicates_;
      // A matrix from outside that says 0 itself is used as it is.
      if (outside && values_[i * n + j] == 0) break;
      leader[i] = j;
      moved = true;
      break;
    }
  }
  if (moved) {
    for (std::size_t i = 0; i < n; ++i) {
      if (leader[i] == i) continue;
      for (std::size_t k = 0; k < n; ++k) {
        const double entry = values_[leader[i] * n + leader[k]];
        values_[i * n + k] = values_[k * n + i] = entry;
      }
    }
    refresh_extent();
  } else {
    enclosing_radius_ = n == 0 ? 0 : *std::min_element(maxima.begin(), maxima.end());
    diameter_ = n == 0 ? 0 : *std::max_element(maxima.begin(), maxima.end());
  }
}

void DistanceMatrix::refresh_extent() {
  enclosing_radius_ = 0;
  diameter_ = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const auto entries = row(i);
    const double farthest = *std::max_element(entries.begin(), entries.end());
    enclosing_radius_ = i == 0 ? farthest : std::min(enclosing_radius_, farthest);
    diameter_ = std::max(diameter_, farthest);
  }
}

std::optional<std::size_t> condensed_points(std::size_t length) {
  // n (n - 1) / 2 = length; the root is right to a unit or so.
  const double root = (1 + std::sqrt(1 + 8 * static_cast<double>(length))) / 2;
  for (std::size_t n = std::max<std::size_t>(2, static_cast<std::size_t>(root)) - 1;
       n <= static_cast<std::size_t>(root) + 1; ++n) {
    if ((n % 2 == 0 ? n / 2 * (n - 1) : (n - 1) / 2 * n) == length) return n;
  }
  return std::nullopt;
}

double distance_memory_bytes(std::size_t count, std::size_t dimension) {
  const double n = static_cast<double>(count);
  const double padded = static_cast<double>(PaddedRows::padded_width(dimension));
  return 8 * n * n + 8 * n * padded + 32 * n;
}

Result<DistanceMatrix> pairwise_distances(CloudView cloud, const DistanceOptions& options) {
  TAILOR_RETURN_IF_ERROR(options.validate());
  TAILOR_RETURN_IF_ERROR(check_finite(cloud, "cloud"));
  PreparedRows rows;
  if (options.geometry == Geometry::kRaw) {
    rows = prepare_raw(cloud, common_exponent(cloud, {}));
  } else {
    TAILOR_ASSIGN_OR_RETURN(rows, prepare_directions(cloud));
  }
  const std::size_t n = rows.count;
  DistanceMatrix matrix(n);
  const std::size_t side = (n + kTile - 1) / kTile;
  const Measure measure(options);
  double* out = matrix.values_.data();
  // A device leaves the squared differences where the distances will be.
  const bool squared_there =
      options.accelerator != nullptr && options.accelerator->squared_differences(rows, out);

  parallel_for(options.threads, side * (side + 1) / 2, [&](std::size_t item) {
    std::size_t ti = 0;
    while ((ti + 1) * (ti + 2) / 2 <= item) ++ti;
    const std::size_t tj = item - ti * (ti + 1) / 2;
    const std::size_t i0 = ti * kTile, i1 = std::min(n, i0 + kTile);
    const std::size_t j0 = tj * kTile, j1 = std::min(n, j0 + kTile);
    double squared[kTile * kTile];
    if (!squared_there) squared_differences(rows, i0, i1, rows, j0, j1, squared, kTile);
    for (std::size_t i = i0; i < i1; ++i) {
      for (std::size_t j = j0; j < std::min(j1, i); ++j) {
        const double apart = squared_there ? out[i * n + j] : squared[(i - i0) * kTile + (j - j0)];
        const double value = measure(apart, rows.row(i), rows.row(j), rows.stride, rows.exponent);
        out[i * n + j] = value;
        out[j * n + i] = value;
      }
    }
  });

  matrix.unite(
      options.geometry == Geometry::kRaw
          ? raw_resolutions(cloud, options.spacing)
          : std::vector<double>(n, measure.angle_resolution(cloud.dimension(), options.spacing)),
      options.spacing, false, options.threads);
  if (!std::isfinite(matrix.diameter())) {
    return error(
        Code::kInvalidArgument,
        "cloud: the distance between two points is larger than float64 can hold; scale the "
        "cloud down");
  }
  return matrix;
}

Result<DistanceMatrix> spherical_from_raw(CloudView cloud, const DistanceMatrix& raw,
                                          const DistanceOptions& options) {
  TAILOR_CHECK(raw.count() == cloud.count(), "{} distances of {} points", raw.count(),
               cloud.count());
  DistanceOptions spherical = options;
  spherical.geometry = Geometry::kSpherical;
  TAILOR_RETURN_IF_ERROR(spherical.validate());
  TAILOR_ASSIGN_OR_RETURN(const PreparedRows rows, prepare_directions(cloud));
  const std::size_t n = rows.count;
  std::vector<double> norms(n);
  for (std::size_t i = 0; i < n; ++i) norms[i] = norm(cloud.row(i));
  // Squares and products of lengths must be in range.
  const auto [shortest, longest] = std::minmax_element(norms.begin(), norms.end());
  if (n == 0 || *shortest < kSafeSmallest || *longest > kSafeLargest ||
      raw.diameter() > kSafeLargest) {
    return pairwise_distances(cloud, spherical);
  }

  DistanceMatrix matrix(n);
  const std::size_t side = (n + kTile - 1) / kTile;
  const Measure measure(spherical);
  const auto out = matrix.mutable_values();
  parallel_for(options.threads, side * side, [&](std::size_t item) {
    const std::size_t i0 = item / side * kTile, i1 = std::min(n, i0 + kTile);
    const std::size_t j0 = item % side * kTile, j1 = std::min(n, j0 + kTile);
    if (j0 > i0) return;
    double squared[kTile * kTile];
    std::size_t cancelled = 0;
    for (std::size_t i = i0; i < i1; ++i) {
      const auto lengths = raw.row(i);
      for (std::size_t j = j0; j < std::min(j1, i); ++j) {
        const double apart = norms[i] - norms[j];
        const double length = lengths[j] * lengths[j], radial = apart * apart;
        const bool exact = 2 * radial <= length && length >= 1e-280;
        squared[(i - i0) * kTile + (j - j0)] =
            exact ? (length - radial) / (norms[i] * norms[j]) : -1;
        cancelled += !exact;
      }
    }
    double direct[kTile * kTile], angles[kTile];
    const bool whole_tile = cancelled > kTile * kTile / 4;
    if (whole_tile) squared_differences(rows, i0, i1, rows, j0, j1, direct, kTile);
    for (std::size_t i = i0; i < i1; ++i) {
      for (std::size_t j = j0; j < std::min(j1, i); ++j) {
        const std::size_t at = (i - i0) * kTile + (j - j0);
        if (squared[at] < 0) {
          squared[at] =
              whole_tile ? direct[at] : squared_difference(rows.row(i), rows.row(j), rows.stride);
        }
      }
      const double* chords = squared + (i - i0) * kTile;
      const std::size_t end = std::min(j1, i);
      angles_of_chords(chords, end > j0 ? end - j0 : 0, angles);
      for (std::size_t j = j0; j < end; ++j) {
        const double value = chords[j - j0] <= 3
                                 ? angles[j - j0]
                                 : measure(std::min(chords[j - j0], 4.0), rows.row(i), rows.row(j),
                                           rows.stride, rows.exponent);
        out[i * n + j] = value;
        out[j * n + i] = value;
      }
    }
  });
  matrix.unite(
      std::vector<double>(n, measure.angle_resolution(cloud.dimension(), spherical.spacing)),
      spherical.spacing, false, options.threads);
  return matrix;
}

DistanceMatrix hyperbolic_from_spherical(const DistanceMatrix& angles, double rho) {
  TAILOR_CHECK(rho > 0 && rho < 1, "rho = {}", rho);
  const std::size_t n = angles.count();
  DistanceMatrix matrix(n);
  const auto out = matrix.mutable_values();
  for (std::size_t i0 = 0; i0 < n; i0 += kTile) {
    const std::size_t i1 = std::min(n, i0 + kTile);
    for (std::size_t i = i0; i < i1; ++i) {
      ball_distances(angles.row(i).data(), i, 2 * rho / (1 - rho * rho), out.data() + i * n);
    }
    for (std::size_t j = 0; j < i1; ++j) {
      for (std::size_t i = std::max(i0, j + 1); i < i1; ++i) out[j * n + i] = out[i * n + j];
    }
  }
  // One point stays one point, and its row its row.
  matrix.duplicates_ = angles.duplicates();
  matrix.relative_ = angles.relative_;
  for (const double angle : angles.resolutions_) {
    matrix.resolutions_.push_back(hyperbolic_from_angle(angle, rho));
  }
  matrix.refresh_extent();
  return matrix;
}

Result<std::vector<double>> displacements(CloudView before, CloudView after,
                                          const DistanceOptions& options) {
  TAILOR_RETURN_IF_ERROR(options.validate());
  if (before.count() != after.count() || before.dimension() != after.dimension()) {
    return error(Code::kInvalidArgument,
                 fmt::format("displacements need two clouds of one shape; got {} x {} and {} x {}",
                             before.count(), before.dimension(), after.count(), after.dimension()));
  }
  TAILOR_RETURN_IF_ERROR(check_finite(before, "cloud before"));
  TAILOR_RETURN_IF_ERROR(check_finite(after, "cloud after"));
  const bool raw = options.geometry == Geometry::kRaw;
  const int exponent = raw ? common_exponent(before, after) : 0;
  const std::size_t dimension = before.dimension();
  const std::size_t stride = PaddedRows(1, dimension).stride;
  const Measure measure(options);
  const double rounding = raw ? 0 : measure.angle_resolution(dimension, options.spacing);
  constexpr double kNoDirectionBefore = -1, kNoDirectionAfter = -2;  // no distance is negative
  std::vector<double> result(before.count());
  constexpr std::size_t kBlock = 64;  // points that share a pair of buffers
  parallel_for(options.threads, (result.size() + kBlock - 1) / kBlock, [&](std::size_t block) {
    std::vector<double> a(stride, 0.0), b(stride, 0.0);
    for (std::size_t i = block * kBlock; i < std::min(result.size(), (block + 1) * kBlock); ++i) {
      const auto x = before.row(i), y = after.row(i);
      if (raw) {
        scale_down(x, exponent, a.data());
        scale_down(y, exponent, b.data());
      } else if (!normalise(x, a.data())) {
        result[i] = kNoDirectionBefore;
        continue;
      } else if (!normalise(y, b.data())) {
        result[i] = kNoDirectionAfter;
        continue;
      }
      const double squared = squared_difference(a.data(), b.data(), stride);
      const double moved = measure(squared, a.data(), b.data(), stride, exponent);
      result[i] = moved <= rounding ? 0 : moved;
    }
  });
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i] == kNoDirectionBefore) {
      return error(no_direction(before, i).with_context("cloud before"));
    }
    if (result[i] == kNoDirectionAfter) {
      return error(no_direction(after, i).with_context("cloud after"));
    }
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (!std::isfinite(result[i])) {
      return error(
          Code::kInvalidArgument,
          fmt::format("displacement of point {} is larger than float64 can hold; scale the "
                      "clouds down",
                      i));
    }
  }
  return result;
}

}  // namespace tailor::geometry
