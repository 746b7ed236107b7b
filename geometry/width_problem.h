// The file of an allocation problem: JSON with what allocation.h needs, how exponents follow from
// intrinsic dimensions, and how the measured work is shaped before widths are cut from it.
// docs/cli.md lists the keys. With the work of every subsample of a profile ("work_subsamples") all
// that is derived gets its error by the jackknife (jackknife.h), through shaping, solver and
// rounding; errors of single layers do not give those of widths, since they are correlated. Every
// key and value that is not understood is an error that names it.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "geometry/allocation.h"
#include "geometry/jackknife.h"

namespace tailor::geometry {

/// What a caller may set in place of the file.
struct WidthProblemOverrides {
  std::optional<std::int64_t> quantum = {};    ///< >= 0
  std::optional<std::string> width_unit = {};  ///< "absolute" or "relative"
  std::optional<WorkSeries> work = {};         ///< of a profile; the file has none then
};

/// A file as it was understood.
struct WidthProblem {
  AllocationProblem allocation;  ///< the work is shaped already
  std::int64_t quantum = 64;     ///< integer widths are multiples of it; 0 = none are wanted
  bool quantum_given = false;    ///< by the file or the caller: not to be had is then an error
  double tolerance = 1e-5;       ///< of integer widths: a share of the budget
  /// The shaped work without each of the subsamples, [r][layer]; empty: there are no errors, and
  /// why.
  std::vector<std::vector<double>> without;
  std::string no_errors;
  bool errors_given = false;  ///< the file has some, whether they can be used or not
};

/// Reads a file of at most 100,000 values. Errors: kInvalidArgument with the key and what is wrong.
Result<WidthProblem> parse_width_problem(std::string_view json,
                                         const WidthProblemOverrides& overrides = {});

/// All that follows from a problem.
struct WidthSolution {
  Allocation allocation;
  std::optional<IntegerAllocation> integers;
  std::string no_integers;             ///< why there are none
  std::vector<double> work_errors;     ///< of the shaped work; empty = there are none
  std::vector<double> width_errors;    ///< the same of the widths
  std::vector<double> integer_errors;  ///< the same of the integer widths
  std::string no_errors;               ///< why there are none
  std::string no_integer_errors;       ///< the same of the integer widths
  std::optional<double> front_load;    ///< front_load_index of the work, if there is any
  std::optional<double> front_load_error;
  std::vector<double> exponents;           ///< as used, a layer
  std::vector<std::size_t> raised;         ///< layers whose exponent was below exponent_min
  std::vector<std::size_t> without_width;  ///< layers that get width 0
};

/// Solves. Integer widths that the file did not ask for and cannot be had are no error
/// (`no_integers`). Errors: those of allocate and allocate_integer.
Result<WidthSolution> solve_width_problem(const WidthProblem& problem);

/// {"widths", "integer_widths", "multiplier", "objective", "report"}, as docs/cli.md has it; what
/// JSON cannot say of a number is a text.
nlohmann::ordered_json width_solution_json(const WidthProblem& problem,
                                           const WidthSolution& solution);

std::string_view width_unit_name(WidthUnit unit);     ///< "absolute", "relative"
std::string_view layer_state_name(LayerState state);  ///< "free", "floor", "cap"

}  // namespace tailor::geometry
