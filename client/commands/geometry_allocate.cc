// tailor geometry allocate: widths from measured work under a budget. Reads the problem (JSON,
// described in docs/cli.md), solves it, and prints widths, integer widths and the solver's report.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "client/commands/geometry_input.h"
#include "client/table.h"
#include "geometry/allocation.h"
#include "geometry/profile_shaping.h"

namespace tailor::client::geometry_tools {
namespace {

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

// The file with every key under its full name.
class ProblemFile {
 public:
  explicit ProblemFile(const std::string& path) : path_(path) {
    const std::string text = require_input(read_file(path, 64 << 20));
    // Far above any network's layers; a problem of millions would take minutes to be refused.
    auto parsed = parse_ordered_json(text, {.values = 100'000});
    if (!parsed) {
      throw Failure(Exit::kUsage, fmt::format("{}: not JSON: {}", path, parsed.error().message()));
    }
    Json json = *std::move(parsed);
    if (!json.is_object()) refuse("expected one JSON object, { \"work\": [...], \"budget\": ... }");
    for (auto& [key, value] : json.items()) {
      const std::string name = full_name(key);
      if (values_.count(name) > 0) {
        refuse(fmt::format("\"{}\" is given twice (as \"{}\" too)", name, key));
      }
      values_[name] = value;
    }
  }

  bool has(const std::string& name) const { return values_.count(name) > 0; }

  std::optional<double> number(const std::string& name) const {
    if (!has(name)) return std::nullopt;
    return number_of(values_.at(name), name);
  }

  /// A list, or one number for all layers.
  std::optional<std::vector<double>> numbers(const std::string& name) const {
    if (!has(name)) return std::nullopt;
    const Json& value = values_.at(name);
    std::vector<double> result;
    if (!value.is_array()) return std::vector<double>{number_of(value, name)};
    for (std::size_t l = 0; l < value.size(); ++l) {
      result.push_back(number_of(value[l], fmt::format("{}[{}]", name, l)));
    }
    return result;
  }

  std::optional<std::int64_t> integer(const std::string& name) const {
    const auto value = number(name);
    if (!value) return std::nullopt;
    if (std::trunc(*value) != *value || !(std::abs(*value) <= 9e15)) {
      refuse(fmt::format("\"{}\" must be a whole number, got {}", name, *value));
    }
    return static_cast<std::int64_t>(*value);
  }

  std::optional<std::string> text(const std::string& name) const {
    if (!has(name)) return std::nullopt;
    const Json& value = values_.at(name);
    if (!value.is_string()) refuse(fmt::format("\"{}\" must be a string", name));
    return value.get<std::string>();
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Failure(Exit::kUsage, fmt::format("{}: {}", path_, what));
  }

 private:
  std::string full_name(const std::string& key) const {
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
    refuse(fmt::format("unknown key \"{}\"{}; docs/cli.md lists the keys", short_text(key),
                       near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near)));
  }

  // JSON has no infinity: null and "Infinity" stand for it where a cap is meant.
  double number_of(const Json& value, const std::string& name) const {
    if (value.is_number()) {
      const auto number = value.get<double>();
      // Compared as integers: a whole number beyond 2^53 may have no double.
      const bool rounded =
          value.is_number_unsigned()
              ? !(number < 0x1p64) || static_cast<std::uint64_t>(number) != value
              : value.is_number_integer() &&
                    (!(number >= -0x1p63) || static_cast<std::int64_t>(number) != value);
      if (rounded) {
        refuse(
            fmt::format("\"{}\" is {}, which is beyond 2^53 and would be rounded to {:.0f}; give "
                        "a number that is a double",
                        name, value.dump(), number));
      }
      return number;
    }
    if (value.is_null() && name.rfind("cap", 0) == 0) {
      return std::numeric_limits<double>::infinity();
    }
    if (value == "Infinity") return std::numeric_limits<double>::infinity();
    if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
    refuse(fmt::format("\"{}\" must be a number, got {}", name, value.dump().substr(0, 40)));
  }

  std::string path_;
  std::map<std::string, Json> values_;
};

geometry::WidthUnit parse_unit(const std::string& name) {
  if (name == "absolute") return geometry::WidthUnit::kAbsolute;
  if (name == "relative") return geometry::WidthUnit::kRelative;
  throw Failure(
      Exit::kUsage,
      fmt::format("width_unit \"{}\" is not known; take \"absolute\" or \"relative\"", name));
}

std::string_view state_text(geometry::LayerState state) {
  switch (state) {
    case geometry::LayerState::kFree:
      return "free";
    case geometry::LayerState::kFloor:
      return "floor";
    case geometry::LayerState::kCap:
      return "cap";
  }
  return "";
}

// Exponents given, or from intrinsic dimensions.
std::vector<double> exponents(const ProblemFile& file) {
  const auto given = file.numbers("exponent");
  const auto dimensions = file.numbers("dimension");
  if (given && dimensions) file.refuse("give \"exponent\" or \"dimension\", not both");
  if (!dimensions) {
    for (const char* name : {"exponent_rule", "smoothness", "model_width"}) {
      if (file.has(name)) {
        file.refuse(
            fmt::format("\"{}\" says how exponents follow from \"dimension\", which is not "
                        "given",
                        name));
      }
    }
    return given.value_or(std::vector<double>{1});
  }
  const std::string name = file.text("exponent_rule").value_or("2/d");
  geometry::ExponentRule rule = geometry::ExponentRule::kTwoOverD;
  if (name == "s/d") {
    rule = geometry::ExponentRule::kSmoothnessOverD;
  } else if (name == "2s/d") {
    rule = geometry::ExponentRule::kTwiceSmoothnessOverD;
  } else if (name == "constant") {
    rule = geometry::ExponentRule::kConstant;
  } else if (name != "2/d") {
    file.refuse(
        fmt::format("exponent_rule \"{}\" is not known; take \"2/d\", \"s/d\", \"2s/d\" or "
                    "\"constant\"",
                    name));
  }
  const double smoothness = file.number("smoothness").value_or(1);
  const double width = file.number("model_width").value_or(std::numeric_limits<double>::infinity());
  if (!(smoothness > 0) || !std::isfinite(smoothness)) {
    file.refuse(fmt::format("\"smoothness\" must be positive, got {}", smoothness));
  }
  if (!(width >= 1)) file.refuse(fmt::format("\"model_width\" must be at least 1, got {}", width));
  std::vector<double> result;
  for (std::size_t l = 0; l < dimensions->size(); ++l) {
    const double d = (*dimensions)[l];
    if (!(d > 0) || !std::isfinite(d)) {
      file.refuse(fmt::format("\"dimension\" of layer {} is {}; it must be positive", l, d));
    }
    result.push_back(geometry::exponent_from_dimension(rule, d, width, smoothness));
  }
  return result;
}

// The work as the solver gets it: shaped if the file says so.
std::vector<double> shaped_work(const ProblemFile& file) {
  const auto work = file.numbers("work");
  if (!work) file.refuse("\"work\" (or \"beta\") is missing: a list, one number a layer");
  geometry::ShapingOptions shaping;
  shaping.smoothing =
      require_input(geometry::parse_smoothing(file.text("smoothing").value_or("none")));
  shaping.control = require_input(geometry::parse_control(file.text("control").value_or("none")));
  shaping.sigma = file.number("sigma").value_or(shaping.sigma);
  const std::int64_t window = file.integer("window").value_or(shaping.window);
  if (window < 1 || window > 1'000'000) file.refuse("\"window\" must be from 1 to 1000000");
  shaping.window = static_cast<int>(window);
  const std::int64_t seed = file.integer("seed").value_or(0);
  if (seed < 0) file.refuse("\"seed\" must not be negative");
  shaping.seed = static_cast<std::uint64_t>(seed);
  const bool shapes = shaping.smoothing != geometry::Smoothing::kNone ||
                      shaping.control != geometry::Control::kNone;
  if (!shapes) return *work;
  if (file.has("work_errors")) {
    file.refuse(
        "\"work_errors\" are errors of the work as given; with smoothing or a control there "
        "is no telling those of the widths");
  }
  return require_input(geometry::shape_profile(*work, shaping));
}

// Errors of log work, from standard errors of the work.
std::optional<std::vector<double>> log_errors(const ProblemFile& file,
                                              const std::vector<double>& work) {
  auto errors = file.numbers("work_errors");
  if (!errors) return std::nullopt;
  if (errors->size() != work.size()) {
    file.refuse(
        fmt::format("\"work_errors\" has {} entries for {} layers", errors->size(), work.size()));
  }
  for (std::size_t l = 0; l < work.size(); ++l) {
    double& error = (*errors)[l];
    if (!(error >= 0) || !std::isfinite(error)) {
      file.refuse(
          fmt::format("\"work_errors\" of layer {} is {}; it must be finite and not "
                      "negative",
                      l, error));
    }
    error = work[l] > 0 ? error / work[l] : 0;
  }
  return errors;
}

// Beyond this many a budget in other units is more likely than so many widths.
constexpr double kQuantaMax = 5e7;

Result<geometry::IntegerAllocation> integer_widths(const geometry::AllocationProblem& problem,
                                                   std::int64_t quantum, double tolerance) {
  const double cost = *std::min_element(problem.cost.begin(), problem.cost.end());
  const double quanta = problem.budget / (cost * static_cast<double>(quantum));
  if (quanta > kQuantaMax) {
    return error(Code::kInvalidArgument,
                 fmt::format("the budget holds {:.3g} multiples of {}, more than {:.0e}: take a "
                             "larger multiple, or 0 for none",
                             quanta, quantum, kQuantaMax));
  }
  return geometry::allocate_integer(problem, quantum, tolerance);
}

struct AllocateOptions {
  std::string file;
  std::string width_unit;
  std::int64_t quantum = -1;  // -1: the file's
};

void run_allocate(const Context& context, const AllocateOptions& options) {
  const Printer out = context.printer();
  const ProblemFile file(options.file);
  geometry::AllocationProblem problem;
  problem.work = shaped_work(file);
  problem.exponent = exponents(file);
  if (auto values = file.numbers("sensitivity")) problem.sensitivity = *values;
  if (auto values = file.numbers("cost")) problem.cost = *values;
  if (auto values = file.numbers("floor")) problem.floor = *values;
  if (auto values = file.numbers("cap")) problem.cap = *values;
  const auto budget = file.number("budget");
  if (!budget) file.refuse("\"budget\" is missing: what sum of cost times width must come to");
  problem.budget = *budget;
  const std::string unit = !options.width_unit.empty()
                               ? options.width_unit
                               : file.text("width_unit").value_or("absolute");
  problem.unit = parse_unit(unit);
  problem.reference_width = file.number("reference_width").value_or(0);
  problem.exponent_min = file.number("exponent_min").value_or(problem.exponent_min);
  const bool quantum_given = options.quantum >= 0 || file.has("quantum");
  const std::int64_t quantum =
      options.quantum >= 0 ? options.quantum : file.integer("quantum").value_or(64);
  const double tolerance = file.number("tolerance").value_or(1e-5);
  if (!(tolerance >= 0 && tolerance <= 1)) {
    file.refuse(
        fmt::format("\"tolerance\" is a share of the budget, from 0 to 1, got {}", tolerance));
  }

  const geometry::Allocation solved = require_input(geometry::allocate(problem), options.file);
  const std::size_t layers = solved.widths.size();
  std::optional<std::vector<double>> width_errors;
  if (const auto errors = log_errors(file, problem.work)) {
    width_errors = geometry::width_errors(problem, solved, *errors);
  }
  // A multiple that somebody asked for and cannot be had is a failure; that the default does not
  // fit small numbers is not.
  std::optional<geometry::IntegerAllocation> integers;
  std::string reason = "not asked for";
  if (quantum != 0) {
    auto rounded = integer_widths(problem, quantum, tolerance);
    if (rounded) {
      integers = std::move(*rounded);
    } else if (quantum_given) {
      require_input(rounded.error(), options.file);
    } else {
      reason = rounded.error().message();
      out.note(
          fmt::format("tailor: no integer widths: {} (\"quantum\" sets the multiple, 64 unless "
                      "given)",
                      reason));
    }
  }
  std::vector<double> used_exponents = problem.exponent;
  if (used_exponents.size() == 1) used_exponents.assign(layers, used_exponents[0]);
  for (double& a : used_exponents) a = std::max(a, problem.exponent_min);

  // What nobody may overlook: exponents that were raised, layers that get no width at all, and
  // integer widths that may not be the best.
  std::vector<std::size_t> raised, without_width;
  for (std::size_t l = 0; l < layers; ++l) {
    const std::size_t given = problem.exponent.size() == 1 ? 0 : l;
    if (problem.exponent[given] < problem.exponent_min) raised.push_back(l);
    if (solved.widths[l] == 0 || (integers && integers->widths[l] == 0)) without_width.push_back(l);
  }
  const auto named = [](const std::vector<std::size_t>& some) {
    return fmt::format("{} {}", some.size() == 1 ? "layer" : "layers", fmt::join(some, ", "));
  };
  if (!raised.empty()) {
    out.note(fmt::format("tailor: exponents below {} count as that (\"exponent_min\"): {}",
                         problem.exponent_min, named(raised)));
  }
  if (!without_width.empty()) {
    out.note(fmt::format("tailor: no work and no floor, so width 0: {}; a \"floor\" keeps a layer",
                         named(without_width)));
  }
  if (integers && !integers->optimal) {
    out.note(
        "tailor: the integer widths are good, but not proved to be the best: with these costs "
        "there are too many totals to look through");
  }

  if (out.json()) {
    const auto list = [](const std::vector<double>& values) {
      Json json = Json::array();
      for (const double value : values) json.push_back(json_number(value));
      return json;
    };
    Json json;
    json["widths"] = list(solved.widths);
    json["integer_widths"] = integers ? Json(integers->widths) : Json();
    json["multiplier"] = json_number(solved.multiplier);
    json["objective"] = json_number(solved.objective);
    Json report;
    report["states"] = Json::array();
    for (const auto state : solved.states) report["states"].push_back(state_text(state));
    report["kkt"] = list(solved.kkt);
    report["residual"] = json_number(solved.residual);
    report["no_signal"] = solved.no_signal;
    report["without_width"] = without_width;
    report["iterations"] = solved.iterations;
    report["width_errors"] = width_errors ? list(*width_errors) : Json();
    report["work"] = list(problem.work);
    report["exponents"] = list(used_exponents);
    report["budget"] = problem.budget;
    report["width_unit"] = unit;
    if (integers) {
      report["integer"] = {{"quantum", quantum},
                           {"objective", json_number(integers->objective)},
                           {"error", json_number(integers->error + 0.0)},
                           {"optimal", integers->optimal},
                           {"exact", integers->exact}};
    } else {
      report["integer"] = {{"quantum", quantum}, {"reason", reason}};
    }
    json["report"] = std::move(report);
    return out.document(json);
  }
  std::vector<Column> columns = {{"LAYER", Align::kRight},
                                 {"WORK", Align::kRight},
                                 {"EXPONENT", Align::kRight},
                                 {"WIDTH", Align::kRight}};
  if (width_errors) columns.push_back({"(SE)", Align::kRight});
  if (integers) columns.push_back({"INTEGER", Align::kRight});
  columns.push_back({"STATE"});
  columns.push_back({"KKT", Align::kRight});
  std::vector<std::vector<std::string>> rows;
  for (std::size_t l = 0; l < layers; ++l) {
    std::vector<std::string> row = {std::to_string(l), fmt::format("{:.6g}", problem.work[l]),
                                    fmt::format("{:.4g}", used_exponents[l]),
                                    fmt::format("{:.10g}", solved.widths[l])};
    if (width_errors) row.push_back(fmt::format("{:.3g}", (*width_errors)[l]));
    if (integers) row.push_back(fmt::format("{}", integers->widths[l]));
    row.emplace_back(state_text(solved.states[l]));
    row.push_back(fmt::format("{:.6g}", solved.kkt[l]));
    rows.push_back(std::move(row));
  }
  out.table(columns, rows);
  out.line(fmt::format("multiplier {:.12g}, objective {:.12g}, budget {:.12g} met to {:.1e}",
                       solved.multiplier, solved.objective, problem.budget, solved.residual));
  if (integers) {
    out.line(fmt::format(
        "in multiples of {}: objective {:.12g}, {}, budget {}", quantum, integers->objective,
        integers->optimal ? "the best there is" : "not proved the best",
        integers->error == 0 ? "met exactly" : fmt::format("met to {:.1e}", integers->error)));
  }
  if (solved.no_signal) out.note("no layer has any work: the budget was spread evenly");
}

}  // namespace

void add_allocate(CLI::App& group, Context& context) {
  auto options = std::make_shared<AllocateOptions>();
  CLI::App* command = add_command(
      group, "allocate",
      "Cuts hidden widths from measured work: minimise sum work_l w_l^-exponent_l under sum cost_l "
      "w_l = budget, between floors and caps. Exact, with integer widths and a proof of "
      "optimality. "
      "docs/cli.md describes the file.",
      "  tailor geometry allocate problem.json\n"
      "  tailor geometry allocate problem.json --quantum 8 --json\n"
      "  echo '{\"work\": [2.5, 1.2, 0.7], \"exponent\": 0.2, \"floor\": 512, \"budget\": 9216}' > "
      "problem.json");
  command->add_option("PROBLEM.json", options->file, "the problem")->required();
  command
      ->add_option("--quantum", options->quantum,
                   "integer widths in multiples of this; 0: none (default: the file's, else 64; "
                   "ours)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  command->add_option("--width-unit", options->width_unit,
                      "absolute (neurons) or relative (to the uniform width): different problems "
                      "when exponents differ (default: the file's, else absolute; ours)");
  command->callback([&context, options] { run_allocate(context, *options); });
}

}  // namespace tailor::client::geometry_tools
