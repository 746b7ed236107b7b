// The work profile: what every layer does to its token cloud, in three geometries and by every
// statistic of the table, each with a standard error.
//
// R subsamples of n token positions are drawn from the N positions of the clouds, without
// replacement, from a seed. The same positions serve every layer, both sides and every geometry, so
// that layers can be compared. Where N allows (N >= R n) the subsamples are disjoint, hence
// independent; otherwise each is drawn afresh and they overlap, and the standard error is on the
// low side. Statistics that are linear in n use a larger sample of up to `linear_tokens` positions
// that begins with the small one; where it holds every position it is measured once, and its
// standard error is 0. A position where any layer has a zero vector (norm < 1e-12, before or after)
// is left out everywhere and counted, so the positions stay the same at every layer.
//
//   value = mean over subsamples,  standard_error = sqrt(sample variance / R)
//
// Activations come in as float32; all arithmetic is in float64. Tokens closer than float32 can tell
// are one point ("One point" in distance.h).
// Cost: R x layers x the cost of the statistics; threads over (layer, subsample). Memory: see
// work_memory_bytes; it is checked before anything is measured.
//
// Threads: pure function; `threads` is an option. The result does not depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "geometry/distance.h"

namespace tailor::geometry {

/// The clouds around one layer (or one sub-MLP). Views: the caller keeps the numbers alive.
struct LayerClouds {
  int layer = 0;                  ///< 0-based
  int sub_block = -1;             ///< -1: the whole FFN sub-block; else the 0-based sub-MLP
  std::span<const float> before;  ///< [positions, dimension], row-major
  std::span<const float> after;   ///< the same shape, the same positions
  std::size_t dimension = 0;
};

struct WorkOptions {
  /// Cloud size n of the pairwise statistics; all positions when there are fewer.
  std::size_t tokens = 256;
  /// Cloud size of statistics linear in n (shift); at least `tokens`, fewer when there are fewer.
  std::size_t linear_tokens = 2048;
  /// R. With a single subsample there is no standard error (it is given as 0).
  std::size_t subsamples = 8;
  /// Radius of the hyperbolic geometry, in (0, 1).
  double rho = kDefaultRho;
  /// Positions follow from it.
  std::uint64_t seed = 0;
  int threads = 1;
  /// Names of the statistics to evaluate, in table order; empty: all of the table.
  std::vector<std::string> statistics = {};
  /// A device for the dense loops, or null (accelerator.h); the profile is the same.
  /// The caller owns it.
  const Accelerator* accelerator = nullptr;
  /// Refuse instead of needing more memory than this (see work_memory_bytes).
  double memory_bytes_max = std::numeric_limits<double>::infinity();

  Status validate() const;
};

/// One statistic of one layer in one geometry.
struct WorkEntry {
  int layer = 0;
  int sub_block = -1;
  Geometry geometry = Geometry::kRaw;
  std::string statistic;
  double value = 0;
  double standard_error = 0;  ///< 0 when the profile has one subsample
};

struct WorkProfile {
  std::size_t tokens = 0;         ///< n that was used
  std::size_t linear_tokens = 0;  ///< the same for linear statistics
  std::size_t subsamples = 0;     ///< R that was used; 1 when n is all there is
  double rho = kDefaultRho;
  std::uint64_t seed = 0;
  std::size_t dropped = 0;  ///< positions left out because of a zero vector
  /// Points that are one with another of their cloud, the most of any cloud and geometry whose
  /// distances were measured; a repeated token at layer 0, say. Statistics without distances see
  /// none.
  std::size_t duplicates = 0;
  /// Positions (rows of the clouds) of every subsample, the first `tokens` of each being the small
  /// one.
  std::vector<std::vector<std::uint32_t>> positions;
  /// Ordered by layer as given, then geometry, then statistic as in the table.
  std::vector<WorkEntry> entries;
};

/// Measures. Errors: kInvalidArgument on a bad option, clouds of different numbers of positions, a
/// span that is not positions x dimension, NaN or infinity (named with layer, position and
/// coordinate), or no position left after the zero vectors; kResourceExhausted, with the number,
/// beyond memory_bytes_max.
Result<WorkProfile> measure_work(std::span<const LayerClouds> layers, const WorkOptions& options);

/// Bytes that measure_work holds at once beside the clouds, at most. 0 for options that it refuses.
double work_memory_bytes(std::size_t layers, std::size_t positions, std::size_t dimension,
                         const WorkOptions& options);

/// Rough floating-point operations of measure_work for `layers` layers of `positions` x
/// `dimension`.
double work_cost(std::size_t layers, std::size_t positions, std::size_t dimension,
                 const WorkOptions& options);

}  // namespace tailor::geometry
