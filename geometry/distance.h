// Distances between token representations in three geometries.
//
//   raw         D_E(u, v) = |u - v|
//   spherical   theta(u, v) = angle between u and v, in [0, pi]
//                           = 2 atan2(|u^ - v^|, |u^ + v^|),  u^ = u / |u|
//   hyperbolic  d_H(u, v) = distance in the Poincare ball, curvature -1, between rho u^ and rho v^
//                           = 2 arsinh(kappa |u^ - v^| / 2),  kappa = 2 rho / (1 - rho^2)
//                           = f(theta), f(t) = 2 arsinh(kappa sin(t / 2)); 0 < rho < 1
//
// arccos of the dot product is avoided: it loses half the digits for small angles, and deep layers
// move tokens by small angles. f is increasing and concave, so the hyperbolic Vietoris-Rips
// filtration is the spherical one with its values mapped by f. rho = tanh 1 is the exponential map
// of a unit vector at the origin: kappa = sinh 2, largest distance 4.
//
// Cost: n^2 d / 2 differences, squares and sums in float64, 8 lanes wide, in tiles that stay in
// cache, tiles spread over threads. Every entry is summed in an order that depends on d only: the
// same bits whatever the threads or the instruction set. Memory: n^2 doubles plus one padded copy
// of the cloud (distance_memory_bytes). Up to 90 degrees theta is 2 arcsin(|u^ - v^| / 2), which is
// as exact and cheaper; beyond, it is pi less that of |u^ + v^|, which comes from
// |u^ - v^|^2 + |u^ + v^|^2 = 4 unless that cancels (beyond 120 degrees: the arctangent above).
//
// One point. Numbers in a file are rounded: two points that are meant to be one (a repeated token,
// the same direction at another length) come out a little apart, and whatever compares distances by
// their ratio would measure that rounding. Let s be the spacing of the numbers (2^-52 for float64,
// 2^-23 for float32) and u = 2^-53 the rounding of the arithmetic here. A coordinate that was
// rounded k times is off by k s / 2 of itself, so a point by at most k s / 2 of its norm; with four
// roundings on either side,
//   raw           |u - v| <= 4 s max(|u|, |v|)                     are one point, and
//   directions    |u^ - v^| <= 4 s + (d / 8 + 8) u                 are one direction:
// |u| is summed in 8 lanes of d / 8 squares, which leaves it off by at most (d / 16 + 2) u of
// itself and the coordinates divided by it by one u more, on both sides. The hyperbolic geometry
// has the rule of the directions. A matrix from outside says nothing of norms: the upper quartile
// of a row stands for them (a far outlier does not move it), entries up to 4 s of it are 0, and
// only where both rows agree as well as a metric makes them.
// The same bounds say what two distances from a point must differ by to be told apart: rounding().
// In a matrix a point that is one with an earlier point has its row, so distances of one point are
// 0 bit for bit, in every geometry, and every statistic sees a true duplicate.
//
// Source of the definitions: arXiv 2608.02064 as read in ARCHITECTURE.md; Ratcliffe, Foundations of
// Hyperbolic Manifolds, 4.5.
//
// Threads: pure functions; `threads` is an argument.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "geometry/cloud.h"

namespace tailor::geometry {

class Accelerator;

enum class Geometry { kRaw, kSpherical, kHyperbolic };

/// In the order in which profiles list them.
inline constexpr Geometry kGeometries[] = {Geometry::kRaw, Geometry::kSpherical,
                                           Geometry::kHyperbolic};

/// "raw", "spherical", "hyperbolic".
std::string_view geometry_name(Geometry geometry);
/// Errors: kInvalidArgument with the nearest name.
Result<Geometry> parse_geometry(std::string_view name);

/// tanh 1.
inline constexpr double kDefaultRho = 0.76159415595576488812;

/// Distance between neighbouring numbers near 1.
inline constexpr double kFloat64Spacing = 0x1p-52;
inline constexpr double kFloat32Spacing = 0x1p-23;

struct DistanceOptions {
  Geometry geometry = Geometry::kRaw;
  double rho = kDefaultRho;  ///< radius of the ball's sphere, in (0, 1); used by kHyperbolic only
  int threads = 1;           ///< at least 1
  /// A device for the squared differences, or null; the bits are the same. The caller owns it.
  const Accelerator* accelerator = nullptr;
  /// Spacing of the numbers that the coordinates were kept in (see "One point" above).
  double spacing = kFloat64Spacing;

  Status validate() const;
};

/// f(theta) above. REQUIRES: 0 < rho < 1, theta in [0, pi].
double hyperbolic_from_angle(double theta, double rho);

/// A symmetric n x n matrix with zero diagonal, stored whole (rows are contiguous).
class DistanceMatrix {
 public:
  DistanceMatrix() = default;
  /// All zero.
  explicit DistanceMatrix(std::size_t count);

  /// Takes a matrix from outside, whose entries were kept in numbers of that `spacing`; they stay
  /// as they are but for points that are one. Errors: kInvalidArgument naming the entry when it is
  /// not square, not finite, negative, not symmetric or not zero on the diagonal; of the last two
  /// the worst entry, how far it is off, and how rounding is repaired.
  static Result<DistanceMatrix> from_square(std::vector<double> values, std::size_t count,
                                            double spacing = kFloat64Spacing);
  static Result<DistanceMatrix> from_square(std::span<const double> values, std::size_t count) {
    return from_square(std::vector<double>(values.begin(), values.end()), count);
  }
  /// Takes the strict lower triangle by rows: (1,0), (2,0), (2,1), ... Errors as above, and a
  /// length that is not count * (count - 1) / 2.
  static Result<DistanceMatrix> from_lower_triangle(std::span<const double> values,
                                                    std::size_t count,
                                                    double spacing = kFloat64Spacing);

  std::size_t count() const { return count_; }
  double operator()(std::size_t i, std::size_t j) const { return values_[i * count_ + j]; }
  std::span<const double> row(std::size_t i) const {
    return std::span<const double>(values_).subspan(i * count_, count_);
  }
  std::span<const double> values() const { return values_; }
  std::span<double> mutable_values() { return values_; }

  /// min_i max_j D_ij: beyond it the Vietoris-Rips complex is a cone. 0 for fewer than two points.
  double enclosing_radius() const { return enclosing_radius_; }
  /// Largest entry.
  double diameter() const { return diameter_; }
  /// How far a distance of about `distance` from point i may be off by rounding; 0 where nothing is
  /// known of it. REQUIRES: i < count().
  double rounding(std::size_t i, double distance) const {
    return resolutions_.empty() ? 0 : resolutions_[i] + relative_ * distance;
  }
  /// Points that are one with an earlier point ("One point" above), when the matrix was made.
  std::size_t duplicates() const { return duplicates_; }
  /// Recomputes radius and diameter after a change through mutable_values().
  void refresh_extent();

 private:
  friend Result<DistanceMatrix> pairwise_distances(CloudView, const DistanceOptions&);
  friend Result<DistanceMatrix> spherical_from_raw(CloudView, const DistanceMatrix&,
                                                   const DistanceOptions&);
  friend DistanceMatrix hyperbolic_from_spherical(const DistanceMatrix&, double);
  void unite(std::vector<double> resolutions, double spacing, bool outside, int threads);

  std::vector<double> values_;
  std::vector<double> resolutions_;  // by point: up to here a distance is rounding; or empty
  double relative_ = 0;              // the neighbour's share of it, by its distance
  std::size_t count_ = 0;
  std::size_t duplicates_ = 0;
  double enclosing_radius_ = 0;
  double diameter_ = 0;
};

/// How many points have `length` distances, n (n - 1) / 2; nothing when no number of points has.
/// One point has none.
std::optional<std::size_t> condensed_points(std::size_t length);

/// Bytes that pairwise_distances holds at once beside the cloud it is given, its result included.
double distance_memory_bytes(std::size_t count, std::size_t dimension);

/// All distances within a cloud. Zero vectors are the caller's to drop (clean_cloud, clean_pair).
/// Errors: kInvalidArgument on a bad option, NaN or infinity, a result that overflows, or, for the
/// spherical and hyperbolic geometries, a vector of norm < kZeroNorm (named).
Result<DistanceMatrix> pairwise_distances(CloudView cloud, const DistanceOptions& options);

/// The spherical matrix of a cloud whose raw one is at hand, by the law of cosines,
///   |u^ - v^|^2 = (|u - v|^2 - (|u| - |v|)^2) / (|u| |v|),
/// for n^2 operations instead of n^2 d; where the difference would cancel (be below half of
/// |u - v|^2) it is computed from the directions after all. Equal to pairwise_distances but for
/// rounding. REQUIRES: `raw` is the raw matrix of `cloud`. Errors: as pairwise_distances.
Result<DistanceMatrix> spherical_from_raw(CloudView cloud, const DistanceMatrix& raw,
                                          const DistanceOptions& options);

/// The hyperbolic matrix of the cloud whose angles are given. REQUIRES: 0 < rho < 1.
DistanceMatrix hyperbolic_from_spherical(const DistanceMatrix& angles, double rho);

/// d(before_i, after_i) for every token. An angle that is rounding ("One point" above) is 0; a raw
/// displacement is the difference of two stored numbers, which is exact, and stays. Errors as
/// pairwise_distances, and different shapes.
Result<std::vector<double>> displacements(CloudView before, CloudView after,
                                          const DistanceOptions& options);

}  // namespace tailor::geometry
