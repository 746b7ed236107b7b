// Intrinsic dimension of a cloud from nearest-neighbour distances: TwoNN and Levina-Bickel.
//
// r_k(i): distance from point i to its k-th nearest other point.
//
// TwoNN (Facco, d'Errico, Rodriguez, Laio, Sci. Rep. 7, 2017). mu_i = r_2(i) / r_1(i) has the law
// F(mu) = 1 - mu^-d if the density is even over the first two neighbours.
//   two_nn         (N - 1) / sum_i log mu_i   unbiased maximum likelihood
//   two_nn_biased  N / sum_i log mu_i
//   two_nn_fit     slope through 0 of -log(1 - F_i) on log mu_(i), mu sorted, F_i = i / N, the
//                  largest tenth left out (the first floor(0.9 N) kept); as scikit-dimension and
//                  dadapy do. two_nn_fit_shifted takes F_i = (i - 1) / N; it differs by
//                  about 3 / N.
//
// Levina-Bickel (NIPS 2004), k neighbours:
//   s_i = sum_{j<k} log(r_k(i) / r_j(i)),  m_i = (k - 1) / s_i
//
//   levina_bickel                N (k - 1) / sum_i s_i   inverse mean (MacKay, Ghahramani 2005)
//   levina_bickel_unbiased       N (k - 2) / sum_i s_i
//   levina_bickel_mean           mean of m_i, the paper's own
//   levina_bickel_mean_unbiased  mean of m_i with k - 2
//
// Points at distance 0 of an earlier one are duplicates (repeated tokens at layer 0; distance.h
// says when two points are one): they are dropped and counted before anything else. Fewer than
// `points_min` points are refused: the estimate would be noise.
// Estimates that are not defined are refused with their reason, never given as NaN or infinity,
// and so is what only rounding would define (distances that differ by less than
// DistanceMatrix::rounding): every mu equal to 1 (a grid, a simplex), every mu that the fit keeps
// (a line of equal steps, but for its ends), a point with all k neighbours equally far, a fit that
// keeps fewer than two points. Known bias: too low for d above about 8.
//
// Cost: n^2 on a distance matrix that is there already, plus selection of k neighbours a row.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "geometry/distance.h"

namespace tailor::geometry {

struct DimensionOptions {
  std::size_t neighbours = 20;  ///< k of Levina-Bickel, at least 3
  double discarded = 0.1;       ///< share of the largest mu that the fit leaves out, in [0, 1)
  std::size_t points_min = 50;  ///< refuse fewer points than this
  std::uint64_t seed = 0;       ///< of the subsets in dimension_by_scale
};

struct DimensionEstimate {
  std::size_t points = 0;   ///< N, after duplicates
  std::size_t dropped = 0;  ///< duplicates
  double two_nn = 0;
  double two_nn_biased = 0;
  double two_nn_fit = 0;
  double two_nn_fit_shifted = 0;
  double levina_bickel = 0;
  double levina_bickel_unbiased = 0;
  double levina_bickel_mean = 0;
  double levina_bickel_mean_unbiased = 0;
  /// Points whose nearest other point is 1e5 times nearer than the k-th. In a cloud of one
  /// dimension or more there are next to none; many are repeats that were rounded more coarsely
  /// than the type of the numbers says (a matrix by arccos, float32 kept as float64), and then the
  /// estimates are of that rounding.
  std::size_t crowded = 0;
  std::vector<double> local;  ///< m_i of the points that were kept, in their order
};

/// Bytes held at once beside the matrix.
double dimension_memory_bytes(std::size_t points, const DimensionOptions& options);

/// Errors: kInvalidArgument on a bad option, too few distinct points (fewer than points_min or than
/// neighbours + 1), or distances that leave an estimate undefined. Every number of a result is
/// finite and positive.
Result<DimensionEstimate> intrinsic_dimension(const DistanceMatrix& distances,
                                              const DimensionOptions& options = {});

/// Estimates at N, N/2 and N/4 points (seeded nested subsets of the distinct points), for as long
/// as enough are left: an estimate that moves with N depends on the scale and is to be read with
/// care. Errors: as above, at any of them.
Result<std::vector<DimensionEstimate>> dimension_by_scale(const DistanceMatrix& distances,
                                                          const DimensionOptions& options = {});

}  // namespace tailor::geometry
