// Correlations over the layers of one model, and how sure they are.
//
//   ranks      1 for the least; equals share the mean of their places
//   pearson    r = sum (x - mx)(y - my) / sqrt(sum (x - mx)^2 sum (y - my)^2)
//   spearman   pearson of the ranks
//   partial    r_xy.z = (r_xy - r_xz r_yz) / sqrt((1 - r_xz^2)(1 - r_yz^2)),  z = depth
//
// Neighbouring layers resemble each other, so layers are no independent sample and the usual p is
// too small. Circular shifts keep the neighbourhoods: y is moved by k places and wraps around,
//
//   p_shift = #{k in 0..L-1 : |r(x, y moved by k)| >= |r(x, y)|} / L,       never below 1/L
//
// (k = 0 counts). Of the partial correlation the residuals of y on depth are moved. p_naive is by
// random permutations of the layers, (1 + #) / (1 + n), and is given to be compared with.
//
// Jackknife over G groups: SE^2 = (G - 1) / G sum_g (theta_(g) - mean theta)^2, theta_(g) being the
// whole computation without group g. With fewer than two groups there is none.
//
// What is not defined is an error that says why (kInvalidArgument), never NaN. Torch-free.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace tailor::diagnose {

std::vector<double> ranks(std::span<const double> values);

/// Errors: different lengths, fewer than 3, a number that is not finite, values all equal.
Result<double> pearson(std::span<const double> x, std::span<const double> y);
Result<double> spearman(std::span<const double> x, std::span<const double> y);
/// Pearson's partial correlation of x and y given z. Errors: as pearson, and x or y being an exact
/// line of z.
Result<double> partial(std::span<const double> x, std::span<const double> y,
                       std::span<const double> z);

/// How x and y are compared.
enum class CorrelationKind {
  kSpearman,    ///< of the values
  kPearsonLog,  ///< of their logarithms: all must be above 0
};

struct Correlation {
  double value = 0;
  double p_naive = 1;  ///< permutations of the layers
  double p_shift = 1;  ///< circular shifts
  /// Given the layer's number (its rank, for Spearman); an error says why there is none.
  Result<double> partial = 0.0;
  double partial_p_shift = 1;  ///< of `partial`, when there is one
};

/// The numbers that are correlated: ranks or logarithms. Errors: of kPearsonLog a value that is not
/// above 0, named by layer and `what`.
Result<std::vector<double>> correlated_values(CorrelationKind kind, std::span<const double> values,
                                              const char* what);

/// The correlation alone. Errors: as pearson and correlated_values.
Result<double> correlation(CorrelationKind kind, std::span<const double> x,
                           std::span<const double> y);

/// With its p-values. x is the profile, y the sensitivity, both by layer. Errors: as above.
Result<Correlation> correlate(CorrelationKind kind, std::span<const double> x,
                              std::span<const double> y, std::uint64_t seed,
                              std::size_t permutations);

/// Of the values without each group. Errors: fewer than two groups, a number that is not finite.
Result<double> jackknife_error(std::span<const double> without_group);

/// The q-quantile, linear between order statistics (numpy's default). REQUIRES: values not empty,
/// finite; 0 <= q <= 1.
double quantile(std::vector<double> values, double q);

}  // namespace tailor::diagnose
