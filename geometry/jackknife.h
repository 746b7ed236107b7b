// Jackknife over subsamples: standard errors of anything that is computed from a profile.
//
//   theta     what follows from the work of all R' subsamples
//   theta_(r) the same without subsample r, through the whole way: smoothing, solver, rounding
//   SE^2 = (R' - 1) / R' sum_r (theta_(r) - mean of theta_(r))^2
//
// All layers are measured on the same tokens and go through the same way together, so that the
// correlation between their errors is in the result; errors of single layers say nothing about it.
// Where the way has steps (integer widths), an error is that of the steps: it is right where the
// unrounded error is some steps wide, and on the high side, or 0, where it is below one.
//
// Threads: pure functions.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "geometry/work_profile.h"

namespace tailor::geometry {

/// One statistic in one geometry over the layers of a profile, with what it would have been without
/// each of the subsamples.
struct WorkSeries {
  std::vector<int> layers;
  std::vector<int> sub_blocks;
  std::vector<double> values;                ///< one a layer (or sub-MLP)
  std::vector<std::vector<double>> without;  ///< [r][layer]; empty: there is no error, and why:
  std::string no_error;
};

/// The series over whole layers, or with `sub_blocks` over every sub-MLP that was measured.
/// Errors: kNotFound when the profile has no such entry.
Result<WorkSeries> work_series(const WorkProfile& profile, Geometry geometry,
                               std::string_view statistic, bool sub_blocks = false);

/// Means without each of the subsamples in turn: [r][layer]. `values[r][layer]`, `weights` one a
/// subsample or empty for equal ones. Nothing for fewer than two subsamples.
std::vector<std::vector<double>> leave_one_out(std::span<const std::vector<double>> values,
                                               std::span<const double> weights = {});

/// SE of every component. REQUIRES: at least two replicates, all of one length.
std::vector<double> jackknife_errors(std::span<const std::vector<double>> replicates);

/// What a way makes of a profile, with errors.
struct Derived {
  std::vector<double> values;
  std::vector<double> errors;  ///< one a value; empty: they cannot be known, and why:
  std::string no_error;
};
/// The way from work to what is derived from it.
using Pipeline = std::function<Result<std::vector<double>>(std::span<const double> work)>;
/// Takes the series and its replicates the whole way. A way that fails without one of the
/// subsamples leaves no errors, with the reason. Errors: those of the way for the whole series.
Result<Derived> derive(const WorkSeries& series, const Pipeline& pipeline);

/// Share of the work in the first third of the layers (front_load_index), of every statistic in
/// every geometry of a profile, with jackknife errors.
struct FrontLoad {
  Geometry geometry = Geometry::kRaw;
  std::string statistic;
  double value = 0;
  std::optional<double> standard_error = {};
  std::string no_error = {};
};
/// None of a profile of fewer than three layers, or where there is no work.
std::vector<FrontLoad> front_loads(const WorkProfile& profile);

}  // namespace tailor::geometry
