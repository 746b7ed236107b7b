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
#include "geometry/jackknife.h"
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
    {"work_subsamples", ""},
    {"subsample_weights", ""},
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
  /// Lists of one length, of numbers that are finite and not negative; empty when it is not there.
  Result<std::vector<std::vector<double>>> rows(const std::string& name) const {
    std::vector<std::vector<double>> result;
    if (!has(name)) return result;
    const ordered_json& value = values_.at(name);
    const bool lists =
        value.is_array() && std::all_of(value.begin(), value.end(),
                                        [](const ordered_json& row) { return row.is_array(); });
    if (!lists || value.empty()) {
      return error(bad(fmt::format(
          "\"{}\" must be a list with one list a subsample, of one number a layer", name)));
    }
    for (std::size_t r = 0; r < value.size(); ++r) {
      std::vector<double>& row = result.emplace_back();
      for (std::size_t l = 0; l < value[r].size(); ++l) {
        const std::string place = fmt::format("{}[{}][{}]", name, r, l);
        TAILOR_ASSIGN_OR_RETURN(const double one, number_of(value[r][l], place));
        if (!(one >= 0) || !std::isfinite(one)) {
          return error(
              bad(fmt::format("\"{}\" is {}; it must be finite and not negative", place, one)));
        }
        row.push_back(one);
      }
      if (row.size() != result[0].size()) {
        return error(bad(fmt::format("\"{}[{}]\" has {} entries, \"{}[0]\" has {}", name, r,
                                     row.size(), name, result[0].size())));
      }
    }
    return result;
  }
  /// `numbers` into `out`, which keeps its value when the key is not there.
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

// How the file wants the work shaped.
Result<ShapingOptions> shaping_of(const ProblemFile& file) {
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
  return shaping;
}

Result<std::vector<double>> shaped(std::vector<double> work, const ShapingOptions& shaping) {
  if (shaping.smoothing == Smoothing::kNone && shaping.control == Control::kNone) return work;
  return shape_profile(work, shaping);
}

// The work of every subsample, and how much each counts.
struct Subsamples {
  std::vector<std::vector<double>> work;
  std::vector<double> weights;  // empty: equal ones
};

Result<Subsamples> subsamples_of(const ProblemFile& file) {
  Subsamples out;
  TAILOR_ASSIGN_OR_RETURN(out.work, file.rows("work_subsamples"));
  TAILOR_ASSIGN_OR_RETURN(out.weights, file.numbers("subsample_weights"));
  if (!file.has("subsample_weights")) return out;
  if (out.weights.size() != out.work.size()) {
    return error(bad(fmt::format("\"subsample_weights\" has {} entries for {} subsamples",
                                 out.weights.size(), out.work.size())));
  }
  for (const double weight : out.weights) {
    if (!(weight > 0) || !std::isfinite(weight)) {
      return error(bad(fmt::format("\"subsample_weights\" must be positive, got {}", weight)));
    }
  }
  return out;
}

std::vector<double> mean_of(const Subsamples& subsamples) {
  std::vector<double> mean(subsamples.work[0].size(), 0.0);
  double total = 0;
  for (std::size_t r = 0; r < subsamples.work.size(); ++r) {
    const double weight = subsamples.weights.empty() ? 1 : subsamples.weights[r];
    total += weight;
    for (std::size_t l = 0; l < mean.size(); ++l) {
      mean[l] += (subsamples.work[r][l] - mean[l]) * (weight / total);
    }
  }
  return mean;
}

// The work as given, or the mean of its subsamples; never two that contradict each other.
Result<std::vector<double>> work_of(const ProblemFile& file, const Subsamples& subsamples) {
  if (!file.has("work")) {
    if (!subsamples.work.empty()) return mean_of(subsamples);
    return error(bad("\"work\" (or \"beta\") is missing: a list, one number a layer"));
  }
  TAILOR_ASSIGN_OR_RETURN(auto work, file.numbers("work"));
  if (subsamples.work.empty()) return work;
  const std::vector<double> mean = mean_of(subsamples);
  if (mean.size() != work.size()) {
    return error(bad(fmt::format("\"work_subsamples\" are of {} layers, \"work\" is of {}",
                                 mean.size(), work.size())));
  }
  for (std::size_t l = 0; l < work.size(); ++l) {
    if (!(std::abs(work[l] - mean[l]) <= 1e-6 * std::abs(mean[l]))) {
      return error(bad(fmt::format(
          "\"work\" of layer {} is {}, but the mean of \"work_subsamples\" is {}; leave \"work\" "
          "out, or give the \"subsample_weights\" (subsample_tokens of the profile)",
          l, work[l], mean[l])));
    }
  }
  return work;
}

// The replicates, shaped as the work is.
void shape_without(const std::vector<std::vector<double>>& without, const ShapingOptions& shaping,
                   WidthProblem& out) {
  for (std::size_t r = 0; r < without.size(); ++r) {
    auto one = shaped(without[r], shaping);
    if (!one) {
      out.without.clear();
      out.no_errors = fmt::format("without subsample {}: {}", r, one.error().message());
      return;
    }
    out.without.push_back(*std::move(one));
  }
}

// Work and its replicates, from the file or from a profile.
Status read_work(const ProblemFile& file, const std::optional<WorkSeries>& given,
                 WidthProblem& out) {
  TAILOR_ASSIGN_OR_RETURN(const ShapingOptions shaping, shaping_of(file));
  if (given) {
    for (const char* key : {"work", "work_errors", "work_subsamples", "subsample_weights"}) {
      if (file.has(key)) {
        return bad(fmt::format("\"{}\" is given, and a profile to take the work from", key));
      }
    }
    TAILOR_ASSIGN_OR_RETURN(out.allocation.work, shaped(given->values, shaping));
    out.errors_given = true;
    out.no_errors = given->no_error;
    shape_without(given->without, shaping, out);
    return Status::ok();
  }
  TAILOR_ASSIGN_OR_RETURN(const Subsamples subsamples, subsamples_of(file));
  TAILOR_ASSIGN_OR_RETURN(auto work, work_of(file, subsamples));
  TAILOR_ASSIGN_OR_RETURN(out.allocation.work, shaped(std::move(work), shaping));
  out.errors_given = file.has("work_errors") || file.has("work_subsamples");
  if (subsamples.work.empty()) {
    out.no_errors =
        file.has("work_errors")
            ? "errors of layers are correlated: \"work_errors\" do not give those of widths, "
              "\"work_subsamples\" do"
            : "\"work_subsamples\" are not given";
    return Status::ok();
  }
  if (subsamples.work.size() < 2) {
    out.no_errors = "there is one subsample; an error takes two";
    return Status::ok();
  }
  shape_without(leave_one_out(subsamples.work, subsamples.weights), shaping, out);
  return Status::ok();
}

// Looked at, though nothing follows from them (`no_errors` says so).
Status check_work_errors(const ProblemFile& file, std::size_t layers) {
  if (!file.has("work_errors")) return Status::ok();
  TAILOR_ASSIGN_OR_RETURN(const auto errors, file.numbers("work_errors"));
  if (errors.size() != layers) {
    return bad(fmt::format("\"work_errors\" has {} entries for {} layers", errors.size(), layers));
  }
  for (std::size_t l = 0; l < layers; ++l) {
    if (!(errors[l] >= 0) || !std::isfinite(errors[l])) {
      return bad(fmt::format(
          "\"work_errors\" of layer {} is {}; it must be finite and not negative", l, errors[l]));
    }
  }
  return Status::ok();
}

Result<IntegerAllocation> integer_widths(const WidthProblem& problem, const AllocationProblem& of) {
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

// The whole way again without each of the subsamples.
void find_errors(const WidthProblem& problem, WidthSolution& out) {
  const auto front = front_load_index(problem.allocation.work);
  if (front) out.front_load = *front;
  out.no_errors = out.no_integer_errors = problem.no_errors;
  if (!out.integers) out.no_integer_errors = "there are no integer widths";
  if (problem.without.size() < 2) return;
  std::vector<std::vector<double>> widths, integers, fronts;
  for (std::size_t r = 0; r < problem.without.size(); ++r) {
    AllocationProblem without = problem.allocation;
    without.work = problem.without[r];
    const auto failed = [r](const Status& why) {
      return fmt::format("without subsample {}: {}", r, why.message());
    };
    auto solved = allocate(without);
    if (!solved) {
      out.no_errors = out.no_integer_errors = failed(solved.error());
      return;
    }
    widths.push_back(std::move(solved->widths));
    if (const auto one = front_load_index(without.work)) fronts.push_back({*one});
    if (!out.integers || integers.size() < r) continue;
    const auto rounded = integer_widths(problem, without);
    if (rounded) {
      integers.emplace_back(rounded->widths.begin(), rounded->widths.end());
    } else {
      out.no_integer_errors = failed(rounded.error());
    }
  }
  out.work_errors = jackknife_errors(problem.without);
  out.width_errors = jackknife_errors(widths);
  if (integers.size() == widths.size()) out.integer_errors = jackknife_errors(integers);
  if (out.front_load && fronts.size() == widths.size()) {
    out.front_load_error = jackknife_errors(fronts)[0];
  }
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
  TAILOR_RETURN_IF_ERROR(read_work(file, overrides.work, out));
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
  TAILOR_RETURN_IF_ERROR(check_work_errors(file, problem.work.size()));
  return out;
}

Result<WidthSolution> solve_width_problem(const WidthProblem& problem) {
  WidthSolution out;
  TAILOR_ASSIGN_OR_RETURN(out.allocation, allocate(problem.allocation));
  const std::size_t layers = out.allocation.widths.size();
  // A multiple that somebody asked for and cannot be had is a failure; that the default does not
  // fit small numbers is not.
  out.no_integers = "not asked for";
  if (problem.quantum != 0) {
    auto rounded = integer_widths(problem, problem.allocation);
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
  find_errors(problem, out);
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
  const auto errors = [](const std::vector<double>& of) {
    return of.empty() ? ordered_json() : shown(of);
  };
  report["subsamples"] = problem.without.size();
  report["width_errors"] = errors(solution.width_errors);
  report["integer_errors"] = errors(solution.integer_errors);
  report["work"] = shown(problem.allocation.work);
  report["work_errors"] = errors(solution.work_errors);
  report["no_errors"] = solution.no_errors;
  report["no_integer_errors"] = solution.no_integer_errors;
  const auto number = [](const std::optional<double>& of) {
    return of ? shown(*of) : ordered_json();
  };
  report["front_load"] = {{"value", number(solution.front_load)},
                          {"standard_error", number(solution.front_load_error)}};
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
