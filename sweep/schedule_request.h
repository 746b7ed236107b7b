// What `schedule = { kind = "geometry", ... }` asks for: widths that are cut from a measurement of
// another candidate (science.md 3.6 and 4). Where the papers are silent the defaults are ours;
// every one is a key (docs/sweep-file.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "geometry/allocation.h"
#include "geometry/profile_shaping.h"
#include "sweep/spec.h"

namespace tailor::sweep {

/// A candidate's request, complete: references.h has filled in `from`.
struct ScheduleRequest {
  std::string from;                   ///< the candidate that is measured
  std::optional<std::uint64_t> seed;  ///< of its trial; nullopt = the first of the sweep
  std::int32_t iterate = 0;           ///< measurements of models with cut widths before this one
  std::string geometry;               ///< "raw", "spherical", "hyperbolic"
  std::string statistic;              ///< "shift", "gromov", "topology"
  geometry::ShapingOptions shaping;
  geometry::ExponentRule rule = geometry::ExponentRule::kTwoOverD;
  double smoothness = 1;             ///< s; the exponent itself under kConstant
  std::string dimension = "two_nn";  ///< the estimate: "two_nn", "levina_bickel"
  double floor = 0.25;               ///< least width, as a share of the mean
  std::optional<double> cap;         ///< largest width, as a multiple of the mean
  geometry::WidthUnit unit = geometry::WidthUnit::kAbsolute;
  std::int32_t quantum = 0;   ///< of widths; 0 = budget.width_multiple
  bool own_sub_mlps = false;  ///< each sub-MLP of a stack by its own work, not by its layer's
};

/// True when widths are to be cut from a measurement.
bool asks_for_geometry(const Point& keys);
/// The request in `keys` ([architecture] with a candidate's own on top). REQUIRES:
/// asks_for_geometry. Errors: kInvalidArgument naming the key that is missing.
Result<ScheduleRequest> request_of(const Point& keys);
/// Ok, or the key in `keys` that says something about a schedule of another kind.
Status check_schedule_keys(const Point& keys);
/// Takes out of `keys` what is for a schedule of another kind and not said by `own`: it was meant
/// for the schedule underneath.
void drop_foreign_schedule_keys(Point& keys, const Point& own);
/// The seed whose trial of the reference is measured.
std::uint64_t reference_seed(const Spec& spec, const ScheduleRequest& request);
/// "topology, hyperbolic, mirrored": what makes two requests differ, for people.
std::string request_text(const ScheduleRequest& request);

}  // namespace tailor::sweep
