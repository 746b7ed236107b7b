// From a measured work profile to widths: work and dimensions by layer, smoothing, the control, the
// exponents, the solver, whole widths. The one path for a sweep, for `tailor schedule` and for the
// tests of the published vectors (science.md 3.6, 4).
//
//   g_l      the entry of the profile (geometry, statistic) of layer l, smoothed over depth
//   control  mirrored, inverse: of g. reversed, permuted: of layers, so that g and the exponent of
//   a
//            layer stay together and the widths are the same in another order
//   a_l      from the intrinsic dimension of X_l, or a constant
//   widths   minimise sum g_l w_l^-a_l at the hidden units of the uniform candidate, exactly
//
// A stack of K sub-MLPs: by default those of a layer share its width (the solver sees the layer's
// total W = K w with weight K^a_l, which is the same problem); with own_sub_mlps each is a layer of
// its own, by its own work.
//
// Pure. Cost: n log n.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "protocol/report.h"
#include "sweep/schedule_request.h"

namespace tailor::sweep {

struct Cut {
  std::vector<shape::LayerWidths> widths;  ///< their sum is that of the uniform ones
  /// As solved, before rounding: of one sub-MLP, by layer (or by sub-MLP where each is its own).
  std::vector<double> raw_widths;
  /// What the solver was given, as `tailor geometry allocate` reads it.
  std::string problem_json;
  /// What it answered, as `tailor geometry allocate` prints it.
  std::string solution_json;
};

/// Names of the dimension entries of a profile: statistic, with geometry "raw".
inline constexpr std::string_view kDimensionStatistics[] = {"two_nn", "levina_bickel"};

/// `uniform`: the candidate with uniform widths, which says L, K and how many hidden units there
/// are. `width_multiple`: of the budget. Errors: kFailedPrecondition when the profile lacks an
/// entry or holds one that is no measurement (named), or when there is no work at all; kOutOfRange
/// when no widths meet floor, cap and quantum exactly.
Result<Cut> cut_widths(const ScheduleRequest& request, std::span<const protocol::WorkEntry> profile,
                       const shape::Architecture& uniform, std::int32_t width_multiple);

}  // namespace tailor::sweep
