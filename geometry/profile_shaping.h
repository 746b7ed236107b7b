// From a measured work profile to the numbers that widths are cut from: smoothing over depth,
// controls, and what a profile looks like in a few numbers.
//
// Smoothing. Layers are noisy and neighbours alike. Gaussian: weights exp(-(l - k)^2 / 2 sigma^2)
// on log(g + 1e-12), the profile reflected at both ends; on logarithms, so that a factor at one
// layer counts the same wherever it is. Median: middle value of a window of odd length,
// reflected likewise.
//
// Controls answer "would any other profile have done as well?":
//   mirrored   max + min - g     the anti profile of arXiv 2608.02064 as far as it can be read
//   inverse    1 / g             the other reading
//   reversed   g of layer L - 1 - l
//   permuted   a seeded random order
//
// Front-load index: share of the total work in the first third of the layers (the layer on the
// border counts by the part of it that lies in front). 1/3 for an even profile.
//
// Scale exponent: p in g(s X, s Y) ~ s^p, the least-squares slope of log g on log s. In theory 1
// for the raw geometry and 0 for the others.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::geometry {

enum class Smoothing { kNone, kGaussian, kMedian };
enum class Control { kNone, kMirrored, kInverse, kReversed, kPermuted };

std::string_view smoothing_name(Smoothing smoothing);  ///< "none", "gaussian", "median"
/// "none", "mirrored", "inverse", "reversed", "permuted"
std::string_view control_name(Control control);
Result<Smoothing> parse_smoothing(std::string_view name);
Result<Control> parse_control(std::string_view name);

struct ShapingOptions {
  Smoothing smoothing = Smoothing::kGaussian;
  double sigma = 1;  ///< layers; of kGaussian; > 0
  int window = 3;    ///< layers; of kMedian; odd and positive
  Control control = Control::kNone;
  std::uint64_t seed = 0;  ///< of kPermuted
};

/// Smooths, then applies the control. Errors: kInvalidArgument on a bad option, a value that is
/// negative, NaN or infinite (named by layer), or a zero under kInverse.
Result<std::vector<double>> shape_profile(std::span<const double> work,
                                          const ShapingOptions& options);

/// Share of the total in the first third. Errors: as shape_profile, no layer, or no work at all.
Result<double> front_load_index(std::span<const double> work);

/// Slope of log `values` on log `scales`. Errors: kInvalidArgument on different lengths, fewer than
/// two different scales, or a number that is not positive and finite.
Result<double> scale_exponent(std::span<const double> scales, std::span<const double> values);

}  // namespace tailor::geometry
