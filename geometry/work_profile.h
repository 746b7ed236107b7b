// The work profile: what every layer does to its token cloud, in three geometries and by every
// statistic of the table, each with a standard error.
//
// Disjoint subsamples of n token positions, made of whole sequences, are drawn from the N positions
// of the clouds (sampling.h): R' of them, as many as were asked for where N and the sequences
// allow. The same positions serve every layer, both sides and every geometry, so that layers can be
// compared. A position where any layer has a zero vector (norm < 1e-12, before or after) is left
// out everywhere and counted, so the positions stay the same at every layer.
//
//   value = mean of the values of the subsamples,  standard_error = sd / sqrt(R')
//
// Statistics that are linear in n use up to `linear_tokens` positions of a subsample, which begin
// with the n. Those that are a mean over tokens (shift) are taken over all of these positions at
// once, with the cluster-robust error over sequences. The values of the subsamples are kept:
// errors of what follows from a profile come from them (jackknife.h), since errors of the layers
// are correlated. Where an error cannot be known there is none, and the reason.
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
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "geometry/distance.h"
#include "geometry/work_energies.h"

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
  /// R. With a single subsample there is no standard error but of means over tokens.
  std::size_t subsamples = 8;
  /// The sequence of every position, any numbers: tokens of one sequence are not independent. A
  /// view. Empty: nobody knows, and one token counts as one sequence.
  std::span<const std::int64_t> sequences = {};
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
  std::optional<double> standard_error = {};  ///< none where it cannot be known
  std::string no_error = {};                  ///< why there is none
  /// One a subsample; empty in profiles of earlier versions.
  std::vector<double> subsample_values = {};
  /// Of "gromov": means over the subsamples. None of other statistics, in profiles of earlier
  /// versions, and where squares leave the range of float64.
  std::optional<WorkEnergies> energies = {};
};

struct WorkProfile {
  std::size_t tokens = 0;            ///< n that was used
  std::size_t linear_tokens = 0;     ///< the same for linear statistics
  std::size_t subsamples = 0;        ///< R' that were used
  std::size_t subsamples_asked = 0;  ///< R
  /// N, positions without a zero vector. 0: a profile of an earlier version, whose subsamples could
  /// overlap or share sequences; it has no errors then.
  std::size_t usable = 0;
  std::size_t sequences = 0;     ///< G that these are of
  bool sequences_given = false;  ///< else it was assumed that each token is a sequence of its own
  std::string no_error;          ///< why there are no values of several subsamples; "" = there are
  /// Positions of every subsample that statistics linear in n use.
  std::vector<std::size_t> subsample_tokens;
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
/// coordinate), sequences that are not one a position, or no position left after the zero vectors;
/// kResourceExhausted, with the number, beyond memory_bytes_max.
Result<WorkProfile> measure_work(std::span<const LayerClouds> layers, const WorkOptions& options);

/// Bytes that measure_work holds at once beside the clouds, at most. 0 for options that it refuses.
double work_memory_bytes(std::size_t layers, std::size_t positions, std::size_t dimension,
                         const WorkOptions& options);

/// What an error of an earlier version is shown as.
inline constexpr std::string_view kEarlierErrors =
    "measured by an earlier version, whose subsamples could overlap or share sequences";

/// Rough floating-point operations of measure_work for `layers` layers of `positions` x
/// `dimension`.
double work_cost(std::size_t layers, std::size_t positions, std::size_t dimension,
                 const WorkOptions& options);

}  // namespace tailor::geometry
