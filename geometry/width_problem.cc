#include "geometry/width_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"
#include "geometry/intrinsic_dimension.h"
#include "geometry/profile_shaping.h"

namespace tailor::geometry {
namespace {

using nlohmann::ordered_json;

// A key and the short name that formulas give it.
struct ProblemKey {
  std::string_view name;
  std::string_view symbol;
};

constexpr ProblemKey kProblemKeys[] = {
    {"work", "beta"},
    {"work_errors", ""},
    {"sensitivity", "lambda"},
    {"exponent", "a"},
    {"dimension", "d_int"},
    {"exponent_rule", ""},
    {"smoothness", "s"},
    {"model_width", "d_model"},
    {"cost", "c"},
    {"floor", "m"},
    {"cap", "M"},
    {"budget", "B"},
    {"width_unit", ""},
    {"reference_width", "w_ref"},
    {"exponent_min", "a_min"},
    {"quantum", "q"},
    {"tolerance", ""},
    {"smoothing", ""},
    {"sigma", ""},
    {"window", ""},
    {"control", ""},
    {"seed", ""},
    {"comment", ""},
};
// Also accepted: the words for several of a thing.
constexpr ProblemKey kPlurals[] = {{"floor", "floors"},
                                   {"cap", "caps"},
                                   {"cost", "costs"},
                                   {"exponent", "exponents"},
                                   {"dimension", "dimensions"},
                                   {"work", "g"},
                                   {"sensitivity", "sensitivities"}};

// Far above any network's layers; a problem of millions would take minutes to be refused.
constexpr std::size_t kValuesMax = 100'000;
// Beyond this many a budget in other units is more likely than so many widths.
constexpr double kQuantaMax = 5e7;

Status bad(std::string what) { return {Code::kInvalidArgument, std::move(what)}; }

Result<std::string> full_name(const std::string& key) {
  std::vector<std::string_view> known;
  for (const ProblemKey& entry : kProblemKeys) {
    if (key == entry.name || (!entry.symbol.empty() && key == entry.symbol)) {
      return std::string(entry.name);
    }
    known.push_back(entry.name);
  }
  for (const ProblemKey& entry : kPlurals) {
    if (key == entry.symbol) return std::string(entry.name);
  }
  const std::string near = nearest_name(key, known);
  return error(bad(fmt::format("unknown key \"{}\"{}; docs/cli.md lists the keys", short_text(key),
                               near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near))));
}

// JSON has no infinity: null and "Infinity" stand for it where a cap is meant.
Result<double> number_of(const ordered_json& value, const std::string& name) {
  if (value.is_number()) {
    const auto number = value.get<double>();
    // Compared as integers: a whole number beyond 2^53 may have no double.
    const bool rounded =
        value.is_number_unsigned()
            ? !(number < 0x1p64) || static_cast<std::uint64_t>(number) != value
            : value.is_number_integer() &&
                  (!(number >= -0x1p63) || static_cast<std::int64_t>(number) != value);
    if (!rounded) return number;
    return error(
        bad(fmt::format("\"{}\" is {}, which is beyond 2^53 and would be rounded to "
                        "{:.0f}; give a number that is a double",
                        name, value.dump(), number)));
  }
  if (value.is_null() && name.rfind("cap", 0) == 0) return std::numeric_limits<double>::infinity();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return error(
      bad(fmt::format("\"{}\" must be a number, got {}", name, value.dump().substr(0, 40))));
}

// The file with every key under its full name.
class ProblemFile {
 public:
  static Result<ProblemFile> parse(std::string_view text) {
    auto parsed = parse_ordered_json(text, {.values = kValuesMax});
    if (!parsed) return error(parsed.error().with_context("not JSON"));
    if (!parsed->is_object()) {
      return error(bad("expected one JSON object, { \"work\": [...], \"budget\": ... }"));
    }
    ProblemFile file;
    for (auto& [key, value] : parsed->items()) {
      TAILOR_ASSIGN_OR_RETURN(const std::string name, full_name(key));
      if (!file.values_.emplace(name, value).second) {
        return error(bad(fmt::format("\"{}\" is given twice (as \"{}\" too)", name, key)));
      }
    }
    return file;
  }

  bool has(const std::string& name) const { return values_.count(name) > 0; }

  Result<std::optional<double>> number(const std::string& name) const {
    if (!has(name)) return std::optional<double>();
    TAILOR_ASSIGN_OR_RETURN(const double value, number_of(values_.at(name), name));
    return std::optional<double>(value);
  }
  Result<double> number(const std::string& name, double fallback) const {
    TAILOR_ASSIGN_OR_RETURN(const std::optional<double> value, number(name));
    return value.value_or(fallback);
  }

  /// A list, or one number for all layers; empty when it is not there.
  Result<std::vector<double>> numbers(const std::string& name) const {
    std::vector<double> result;
    if (!has(name)) return result;
    const ordered_json& value = values_.at(name);
    if (!value.is_array()) {
      TAILOR_ASSIGN_OR_RETURN(const double one, number_of(value, name));
      return std::vector<double>{one};
    }
    for (std::size_t l = 0; l < value.size(); ++l) {
      TAILOR_ASSIGN_OR_RETURN(const double one,
                              number_of(value[l], fmt::format("{}[{}]", name, l)));
      result.push_back(one);
    }
    return result;
  }
  /// The same into `out`, which keeps its value when the key is not there.
  Status numbers_into(const std::string& name, std::vector<double>& out) const {
    if (!has(name)) return Status::ok();
    TAILOR_ASSIGN_OR_RETURN(out, numbers(name));
    return Status::ok();
  }

  Result<std::int64_t> integer(const std::string& name, std::int64_t fallback) const {
    TAILOR_ASSIGN_OR_RETURN(const auto value, number(name));
    if (!value) return fallback;
    if (std::trunc(*value) != *value || !(std::abs(*value) <= 9e15)) {
      return error(bad(fmt::format("\"{}\" must be a whole number, got {}", name, *value)));
    }
    return static_cast<std::int64_t>(*value);
  }

  Result<std::string> text(const std::string& name, std::string_view fallback) const {
    if (!has(name)) return std::string(fallback);
    const ordered_json& value = values_.at(name);
    if (!value.is_string()) return error(bad(fmt::format("\"{}\" must be a string", name)));
    return value.get<std::string>();
  }

 private:
  std::map<std::string, ordered_json> values_;
};

Result<WidthUnit> parse_unit(std::string_view name) {
  for (const WidthUnit unit : {WidthUnit::kAbsolute, WidthUnit::kRelative}) {
    if (name == width_unit_name(unit)) return unit;
  }
  return error(bad(fmt::format("width_unit \"{}\" is not known; take \"absolute\" or \"relative\"",
                               short_text(name))));
}

Result<ExponentRule> parse_rule(std::string_view name) {
  constexpr std::pair<std::string_view, ExponentRule> kRules[] = {
      {"2/d", ExponentRule::kTwoOverD},
      {"s/d", ExponentRule::kSmoothnessOverD},
      {"2s/d", ExponentRule::kTwiceSmoothnessOverD},
      {"constant", ExponentRule::kConstant},
  };
  for (const auto& [known, rule] : kRules) {
    if (name == known) return rule;
  }
  return error(bad(fmt::format(
      "exponent_rule \"{}\" is not known; take \"2/d\", \"s/d\", \"2s/d\" or \"constant\"",
      short_text(name))));
}

// Exponents given, or from intrinsic dimensions.
Result<std::vector<double>> exponents_of(const ProblemFile& file) {
  TAILOR_ASSIGN_OR_RETURN(const auto given, file.numbers("exponent"));
  TAILOR_ASSIGN_OR_RETURN(const auto dimensions, file.numbers("dimension"));
  if (file.has("exponent") && file.has("dimension")) {
    return error(bad("give \"exponent\" or \"dimension\", not both"));
  }
  if (!file.has("dimension")) {
    for (const char* name : {"exponent_rule", "smoothness", "model_width"}) {
      if (file.has(name)) {
        return error(bad(fmt::format(
            "\"{}\" says how exponents follow from \"dimension\", which is not given", name)));
      }
    }
    return file.has("exponent") ? given : std::vector<double>{1};
  }
  TAILOR_ASSIGN_OR_RETURN(const std::string name, file.text("exponent_rule", "2/d"));
  TAILOR_ASSIGN_OR_RETURN(const ExponentRule rule, parse_rule(name));
  TAILOR_ASSIGN_OR_RETURN(const double smoothness, file.number("smoothness", 1));
  TAILOR_ASSIGN_OR_RETURN(const double width,
                          file.number("model_width", std::numeric_limits<double>::infinity()));
  if (!(smoothness > 0) || !std::isfinite(smoothness)) {
    return error(bad(fmt::format("\"smoothness\" must be positive, got {}", smoothness)));
  }
  if (!(width >= 1)) {
    return error(bad(fmt::format("\"model_width\" must be at least 1, got {}", width)));
  }
  std::vector<double> result;
  for (std::size_t l = 0; l < dimensions.size(); ++l) {
    const double d = dimensions[l];
    if (!(d > 0) || !std::isfinite(d)) {
      return error(bad(fmt::format("\"dimension\" of layer {} is {}; it must be positive", l, d)));
    }
    result.push_back(exponent_from_dimension(rule, d, width, smoothness));
  }
  return result;
}

// The work as the solver gets it: shaped if the file says so.
Result<std::vector<double>> shaped_work(const ProblemFile& file) {
  if (!file.has("work")) {
    return error(bad("\"work\" (or \"beta\") is missing: a list, one number a layer"));
  }
  TAILOR_ASSIGN_OR_RETURN(auto work, file.numbers("work"));
  ShapingOptions shaping;
  TAILOR_ASSIGN_OR_RETURN(const std::string smoothing, file.text("smoothing", "none"));
  TAILOR_ASSIGN_OR_RETURN(shaping.smoothing, parse_smoothing(smoothing));
  TAILOR_ASSIGN_OR_RETURN(const std::string control, file.text("control", "none"));
  TAILOR_ASSIGN_OR_RETURN(shaping.control, parse_control(control));
  TAILOR_ASSIGN_OR_RETURN(shaping.sigma, file.number("sigma", shaping.sigma));
  TAILOR_ASSIGN_OR_RETURN(const std::int64_t window, file.integer("window", shaping.window));
  if (window < 1 || window > 1'000'000) {
    return error(bad("\"window\" must be from 1 to 1000000"));
  }
  shaping.window = static_cast<int>(window);
  TAILOR_ASSIGN_OR_RETURN(const std::int64_t seed, file.integer("seed", 0));
  if (seed < 0) return error(bad("\"seed\" must not be negative"));
  shaping.seed = static_cast<std::uint64_t>(seed);
  if (shaping.smoothing == Smoothing::kNone && shaping.control == Control::kNone) return work;
  if (file.has("work_errors")) {
    return error(
        bad("\"work_errors\" are errors of the work as given; with smoothing or a control there "
            "is no telling those of the widths"));
  }
  return shape_profile(work, shaping);
}

// Errors of log work, from standard errors of the work.
Result<std::vector<double>> log_errors(const ProblemFile& file, const std::vector<double>& work) {
  TAILOR_ASSIGN_OR_RETURN(auto errors, file.numbers("work_errors"));
  if (!file.has("work_errors")) return errors;
  if (errors.size() != work.size()) {
    return error(bad(
        fmt::format("\"work_errors\" has {} entries for {} layers", errors.size(), work.size())));
  }
  for (std::size_t l = 0; l < work.size(); ++l) {
    double& one = errors[l];
    if (!(one >= 0) || !std::isfinite(one)) {
      return error(bad(fmt::format(
          "\"work_errors\" of layer {} is {}; it must be finite and not negative", l, one)));
    }
    one = work[l] > 0 ? one / work[l] : 0;
  }
  return errors;
}

Result<IntegerAllocation> integer_widths(const WidthProblem& problem) {
  const AllocationProblem& of = problem.allocation;
  const double cost = *std::min_element(of.cost.begin(), of.cost.end());
  const double quanta = of.budget / (cost * static_cast<double>(problem.quantum));
  if (quanta > kQuantaMax) {
    return error(Code::kInvalidArgument,
                 fmt::format("the budget holds {:.3g} multiples of {}, more than {:.0e}: take a "
                             "larger multiple, or 0 for none",
                             quanta, problem.quantum, kQuantaMax));
  }
  return allocate_integer(of, problem.quantum, problem.tolerance);
}

// A number that JSON may not be able to hold.
ordered_json shown(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

ordered_json shown(const std::vector<double>& values) {
  ordered_json json = ordered_json::array();
  for (const double value : values) json.push_back(shown(value));
  return json;
}

}  // namespace

std::string_view width_unit_name(WidthUnit unit) {
  return unit == WidthUnit::kAbsolute ? "absolute" : "relative";
}

std::string_view layer_state_name(LayerState state) {
  switch (state) {
    case LayerState::kFree:
      return "free";
    case LayerState::kFloor:
      return "floor";
    case LayerState::kCap:
      return "cap";
  }
  return "";
}

Result<WidthProblem> parse_width_problem(std::string_view json,
                                         const WidthProblemOverrides& overrides) {
  TAILOR_ASSIGN_OR_RETURN(const ProblemFile file, ProblemFile::parse(json));
  WidthProblem out;
  AllocationProblem& problem = out.allocation;
  TAILOR_ASSIGN_OR_RETURN(problem.work, shaped_work(file));
  TAILOR_ASSIGN_OR_RETURN(problem.exponent, exponents_of(file));
  TAILOR_RETURN_IF_ERROR(file.numbers_into("sensitivity", problem.sensitivity));
  TAILOR_RETURN_IF_ERROR(file.numbers_into("cost", problem.cost));
  TAILOR_RETURN_IF_ERROR(file.numbers_into("floor", problem.floor));
  TAILOR_RETURN_IF_ERROR(file.numbers_into("cap", problem.cap));
  TAILOR_ASSIGN_OR_RETURN(const auto budget, file.number("budget"));
  if (!budget) {
    return error(bad("\"budget\" is missing: what sum of cost times width must come to"));
  }
  problem.budget = *budget;
  TAILOR_ASSIGN_OR_RETURN(const std::string unit, file.text("width_unit", "absolute"));
  TAILOR_ASSIGN_OR_RETURN(problem.unit, parse_unit(overrides.width_unit.value_or(unit)));
  TAILOR_ASSIGN_OR_RETURN(problem.reference_width, file.number("reference_width", 0));
  TAILOR_ASSIGN_OR_RETURN(problem.exponent_min, file.number("exponent_min", problem.exponent_min));
  TAILOR_ASSIGN_OR_RETURN(out.quantum, file.integer("quantum", out.quantum));
  out.quantum = overrides.quantum.value_or(out.quantum);
  out.quantum_given = overrides.quantum.has_value() || file.has("quantum");
  TAILOR_ASSIGN_OR_RETURN(out.tolerance, file.number("tolerance", out.tolerance));
  if (!(out.tolerance >= 0 && out.tolerance <= 1)) {
    return error(bad(
        fmt::format("\"tolerance\" is a share of the budget, from 0 to 1, got {}", out.tolerance)));
  }
  TAILOR_ASSIGN_OR_RETURN(out.work_errors, log_errors(file, problem.work));
  return out;
}

Result<WidthSolution> solve_width_problem(const WidthProblem& problem) {
  WidthSolution out;
  TAILOR_ASSIGN_OR_RETURN(out.allocation, allocate(problem.allocation));
  const std::size_t layers = out.allocation.widths.size();
  if (!problem.work_errors.empty()) {
    out.width_errors = width_errors(problem.allocation, out.allocation, problem.work_errors);
  }
  // A multiple that somebody asked for and cannot be had is a failure; that the default does not
  // fit small numbers is not.
  out.no_integers = "not asked for";
  if (problem.quantum != 0) {
    auto rounded = integer_widths(problem);
    if (rounded) {
      out.integers = std::move(*rounded);
    } else if (problem.quantum_given) {
      return error(rounded.error());
    } else {
      out.no_integers = rounded.error().message();
    }
  }
  const std::vector<double>& given = problem.allocation.exponent;
  for (std::size_t l = 0; l < layers; ++l) {
    const double exponent = given[given.size() == 1 ? 0 : l];
    if (exponent < problem.allocation.exponent_min) out.raised.push_back(l);
    out.exponents.push_back(std::max(exponent, problem.allocation.exponent_min));
    if (out.allocation.widths[l] == 0 || (out.integers && out.integers->widths[l] == 0)) {
      out.without_width.push_back(l);
    }
  }
  return out;
}

ordered_json width_solution_json(const WidthProblem& problem, const WidthSolution& solution) {
  const Allocation& solved = solution.allocation;
  ordered_json json;
  json["widths"] = shown(solved.widths);
  json["integer_widths"] =
      solution.integers ? ordered_json(solution.integers->widths) : ordered_json();
  json["multiplier"] = shown(solved.multiplier);
  json["objective"] = shown(solved.objective);
  ordered_json report;
  report["states"] = ordered_json::array();
  for (const auto state : solved.states) report["states"].push_back(layer_state_name(state));
  report["kkt"] = shown(solved.kkt);
  report["residual"] = shown(solved.residual);
  report["no_signal"] = solved.no_signal;
  report["without_width"] = solution.without_width;
  report["iterations"] = solved.iterations;
  report["width_errors"] =
      problem.work_errors.empty() ? ordered_json() : shown(solution.width_errors);
  report["work"] = shown(problem.allocation.work);
  report["exponents"] = shown(solution.exponents);
  report["budget"] = problem.allocation.budget;
  report["width_unit"] = width_unit_name(problem.allocation.unit);
  if (solution.integers) {
    report["integer"] = {{"quantum", problem.quantum},
                         {"objective", shown(solution.integers->objective)},
                         {"error", shown(solution.integers->error + 0.0)},
                         {"optimal", solution.integers->optimal},
                         {"exact", solution.integers->exact}};
  } else {
    report["integer"] = {{"quantum", problem.quantum}, {"reason", solution.no_integers}};
  }
  json["report"] = std::move(report);
  return json;
}

}  // namespace tailor::geometry
