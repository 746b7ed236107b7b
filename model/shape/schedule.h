// Width schedules: how hidden width varies over depth, and its rounding to whole units.
//
// A profile gives the relative width r_l of layer l = 0..L-1 (science.md 2.1), h = high, o = low:
//   uniform            r_l = 1
//   cosine, endpoint   r_l = (h+o)/2 + (h-o)/2 cos(pi l/(L-1))        hits h and o exactly
//   cosine, midpoint   r_l = (h+o)/2 + (h-o)/2 cos(pi (l+1/2)/L)
//   linear, endpoint   r_l = h + (o-h) l/(L-1)      (midpoint: (l+1/2)/L)
//   sigmoid            r_l = o + (h-o) / (1 + exp(s (2t - 1))), t = l/(L-1) (midpoint: (l+1/2)/L)
//   bowtie             r_l ~ exp(-s t_l), t_l = (l-1)/(k-1) up to the turning layer k (l from 1),
//                      then (L-l)/(L-k); s > 0 so that mean 1 has the minimum rho = `waist`
//                      (the "><" of arXiv 2606.18246, for FFN widths alone)
//   L = 1              r_0 = 1
// Only ratios matter: widths are apportioned so that their sum is the wanted total exactly, which
// keeps the mean width (and so parameters and FLOPs) whatever h and o are.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/shape/architecture.h"

namespace tailor::shape {

enum class ScheduleKind { kUniform, kCosine, kLinear, kSigmoid, kBowtie };
/// Where the layers stand on the curve; the papers do not say, the default is ours.
enum class ScheduleConvention { kEndpoint, kMidpoint };

/// A rule for the widths of the layers; all sub-MLPs of one layer share its weight.
struct WidthSchedule {
  ScheduleKind kind = ScheduleKind::kUniform;
  ScheduleConvention convention = ScheduleConvention::kEndpoint;
  double high = 1.5;     ///< ratio at the first layer, > 0; smaller than `low` for a reversed taper
  double low = 0.5;      ///< ratio at the last layer, > 0
  double steepness = 6;  ///< s of kSigmoid, > 0
  double turn = 0.75;    ///< k / L of kBowtie, in (0, 1): the narrowest layer, to the nearest
  double waist = 0.3;    ///< rho of kBowtie, in (0, 1)
  friend bool operator==(const WidthSchedule&, const WidthSchedule&) = default;
};

// Names used in sweep files: "uniform", "cosine", "linear", "sigmoid", "bowtie"; "endpoint",
// "midpoint".
std::string_view schedule_kind_name(ScheduleKind kind);
std::string_view schedule_convention_name(ScheduleConvention convention);
Result<ScheduleKind> parse_schedule_kind(std::string_view name);
Result<ScheduleConvention> parse_schedule_convention(std::string_view name);

/// Relative widths, one a layer. REQUIRES: layers >= 1.
std::vector<double> schedule_profile(const WidthSchedule& schedule, std::int32_t layers);

/// Splits `total` into one multiple of `multiple` per weight, proportional to the weights, by
/// largest remainder; of equal remainders the earlier gets the unit. The sum is exactly `total`.
/// Remainders are compared at 2^-20 of a unit, so that the last bits of a libm never change a
/// result. Errors: kOutOfRange when `multiple` does not divide `total` (by how much it misses),
/// when a share would be zero (which one), or when there are no weights or one
/// is not positive and finite.
Result<std::vector<std::int64_t>> apportion(std::span<const double> weights, std::int64_t total,
                                            std::int64_t multiple);

/// `hidden_total` hidden units over L = `layers` layers of `k` sub-MLPs in units of `multiple`,
/// following `schedule`; with a uniform one the widths differ by at most one unit, the extra units
/// standing on the earliest sub-MLPs. Errors: as `apportion`;
/// kOutOfRange when a width does not fit.
Result<std::vector<LayerWidths>> scheduled_widths(const WidthSchedule& schedule,
                                                  std::int32_t layers, std::int32_t k,
                                                  std::int64_t hidden_total, std::int64_t multiple);

}  // namespace tailor::shape
