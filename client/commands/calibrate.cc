// tailor calibrate: what width does for the loss of each layer, from the trials of a width sweep,
// beside what was measured of its base. Read through the same calls as everything else; the fit
// itself is coordinator/analysis/calibration.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "client/format.h"
#include "client/table.h"
#include "coordinator/analysis/calibration.h"
#include "sweep/compare_keys.h"

namespace tailor::client {
namespace {

constexpr std::uint64_t kCandidatesPage = 1'000;

struct CalibrateOptions {
  std::string sweep, base, geometry = "hyperbolic", statistic = "topology";
};

/// The candidates of a width sweep, by index: those that are the base or a change of one layer.
struct WidthDesign {
  std::string sweep_name;
  std::string base_name;
  std::uint32_t base = 0;
  shape::Architecture architecture;
  std::map<std::uint32_t, analysis::LayerWidth> changes;
  std::uint64_t others = 0;  ///< candidates that differ in more
};

std::vector<v1::Candidate> candidates_of(Context& context, const v1::SweepRef& sweep,
                                         v1::GetSweepResponse* first) {
  std::vector<v1::Candidate> out;
  v1::GetSweepRequest request;
  *request.mutable_sweep() = sweep;
  request.set_limit(kCandidatesPage);
  for (;;) {
    request.set_offset(out.size());
    auto answer = context.call<v1::GetSweepRequest, v1::GetSweepResponse>(
        &v1::CoordinatorService::Stub::GetSweep, request);
    out.insert(out.end(), answer.candidates().begin(), answer.candidates().end());
    const bool more = answer.more() && answer.candidates_size() > 0;
    if (request.offset() == 0) *first = std::move(answer);
    if (!more) return out;
  }
}

WidthDesign design_of(Context& context, const CalibrateOptions& options) {
  v1::GetSweepResponse sweep;
  const auto candidates = candidates_of(context, sweep_ref(options.sweep), &sweep);
  WidthDesign out;
  out.sweep_name = sweep.sweep().name();
  out.base_name = options.base;
  if (out.base_name.empty()) {
    out.base_name = require(sweep::calibrated_candidate_of_file(sweep.toml(), out.sweep_name));
  }
  if (out.base_name.empty()) out.base_name = sweep.sweep().baseline();
  bool found = false;
  for (const v1::Candidate& candidate : candidates) {
    if (candidate.name() != out.base_name) continue;
    found = true;
    out.base = candidate.index();
    out.architecture = require(shape::architecture_from_json(candidate.architecture_json()));
  }
  if (!found) {
    throw Failure(Exit::kNotFound,
                  fmt::format("sweep \"{}\" has no candidate \"{}\" to be the base; name one with "
                              "--base",
                              out.sweep_name, out.base_name));
  }
  for (const v1::Candidate& candidate : candidates) {
    if (candidate.index() == out.base) continue;
    const auto other = require(shape::architecture_from_json(candidate.architecture_json()));
    if (const auto change = analysis::differing_layer(out.architecture, other)) {
      out.changes[candidate.index()] = *change;
    } else {
      ++out.others;
    }
  }
  return out;
}

/// Of a trial that ended so, what is left are the seeds that went well.
bool went_badly(const v1::Trial& trial) {
  static const std::set<std::string> kOwnFault = {"oom", "nan", "timeout", "data", "user"};
  return trial.state() == v1::TRIAL_STATE_STOPPED ||
         (trial.state() == v1::TRIAL_STATE_FAILED && kOwnFault.contains(trial.end_class())) ||
         (trial.has_objective() && !std::isfinite(trial.objective()));
}

/// The work profile of one trial of the base, by layer.
void add_profile_of(Context& context, const v1::Trial& trial, std::size_t layers,
                    analysis::WidthSweep& out) {
  v1::GetTrialRequest request;
  request.set_trial(trial.id());
  const auto answer = context.call<v1::GetTrialRequest, v1::GetTrialResponse>(
      &v1::CoordinatorService::Stub::GetTrial, request);
  std::map<std::pair<std::string, std::string>, std::map<int, double>> found;
  for (const auto& entry : answer.work_profile().entries()) {
    if (entry.sub_block() >= 0) continue;
    found[{entry.geometry(), entry.statistic()}][entry.layer()] = entry.value();
  }
  for (const auto& [key, by_layer] : found) {
    if (by_layer.size() != layers) continue;
    const bool dimension = key.second == "two_nn" || key.second == "levina_bickel";
    auto& series = dimension ? out.dimensions : out.work;
    auto at = std::find_if(series.begin(), series.end(), [&](const auto& one) {
      return one.geometry == key.first && one.statistic == key.second;
    });
    if (at == series.end()) {
      series.push_back({key.first, key.second, {}});
      at = std::prev(series.end());
    }
    for (const auto& [layer, value] : by_layer) at->by_seed[trial.seed()].push_back(value);
  }
}

analysis::WidthSweep runs_of(Context& context, const CalibrateOptions& options,
                             const WidthDesign& design) {
  analysis::WidthSweep out;
  for (const shape::LayerWidths& layer : design.architecture.widths) {
    std::int64_t width = 0;
    for (const std::int32_t w : layer) width += w;
    out.base.push_back(width);
  }
  std::vector<v1::Trial> measured;
  for_each_trial(context, sweep_ref(options.sweep), [&](const v1::Trial& trial) {
    analysis::WidthRun run;
    const auto change = design.changes.find(trial.candidate());
    if (trial.candidate() != design.base && change == design.changes.end()) return;
    if (change != design.changes.end()) run.change = change->second;
    run.seed = trial.seed();
    run.failed = went_badly(trial);
    const bool ended = trial.state() == v1::TRIAL_STATE_COMPLETED && trial.has_objective();
    if (ended && !run.failed) run.loss = trial.objective();
    out.runs.push_back(run);
    if (ended && !run.change) measured.push_back(trial);
  });
  for (const v1::Trial& trial : measured) {
    add_profile_of(context, trial, design.architecture.widths.size(), out);
  }
  return out;
}

std::string with_interval(const analysis::Calibrated& number, int digits) {
  if (!number.value) return "-";
  if (!number.low) return fixed(*number.value, digits);
  return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", *number.value, digits, *number.low, digits,
                     *number.high, digits);
}

Json optional_json(const std::optional<double>& value) {
  return value ? json_number(*value) : Json(nullptr);
}

Json number_json(const analysis::Calibrated& number) {
  return {{"value", optional_json(number.value)},
          {"no_value", number.no_value},
          {"standard_error", optional_json(number.standard_error)},
          {"low", optional_json(number.low)},
          {"high", optional_json(number.high)},
          {"no_error", number.no_error}};
}

/// Mean of a series over the seeds that measured it, at a layer; nullopt where none did.
std::optional<double> mean_at(const std::vector<analysis::MeasuredSeries>& all,
                              std::string_view geometry, std::string_view statistic,
                              std::int32_t layer) {
  for (const analysis::MeasuredSeries& series : all) {
    if (series.geometry != geometry || series.statistic != statistic) continue;
    double sum = 0;
    for (const auto& [seed, values] : series.by_seed) {
      sum += values[static_cast<std::size_t>(layer)];
    }
    return sum / static_cast<double>(series.by_seed.size());
  }
  return std::nullopt;
}

Json measured_json(const std::vector<analysis::MeasuredSeries>& all, std::int32_t layer) {
  Json out = Json::array();
  for (const analysis::MeasuredSeries& series : all) {
    out.push_back({{"geometry", series.geometry},
                   {"statistic", series.statistic},
                   {"value", optional_json(mean_at(all, series.geometry, series.statistic, layer))},
                   {"seeds", series.by_seed.size()}});
  }
  return out;
}

Json layer_json(const analysis::LayerCalibration& layer, const analysis::WidthSweep& sweep) {
  Json points = Json::array();
  for (const analysis::WidthPoint& point : layer.points) {
    points.push_back({{"width", point.width},
                      {"difference", json_number(point.difference)},
                      {"fitted", json_number(point.fitted)}});
  }
  return {{"layer", layer.layer},
          {"base_width", layer.base_width},
          {"points", points},
          {"seeds", layer.seeds},
          {"seeds_left_out", layer.seeds_left_out},
          {"failed", layer.failed},
          {"demand", number_json(layer.demand)},
          {"exponent", number_json(layer.exponent)},
          {"difficulty", number_json(layer.difficulty)},
          {"rms_residual", json_number(layer.rms_residual)},
          {"work", measured_json(sweep.work, layer.layer)},
          {"dimensions", measured_json(sweep.dimensions, layer.layer)},
          {"note", layer.note}};
}

Json calibration_json(const WidthDesign& design, const analysis::WidthSweep& sweep,
                      const analysis::Calibration& found) {
  Json json;
  json["sweep"] = design.sweep_name;
  json["base"] = design.base_name;
  json["seeds"] = found.seeds;
  json["other_candidates"] = design.others;
  json["layers"] = Json::array();
  for (const auto& layer : found.layers) json["layers"].push_back(layer_json(layer, sweep));
  json["correlations"] = Json::array();
  for (const analysis::CalibrationCorrelation& one : found.correlations) {
    const bool known = one.rho.value.has_value();
    json["correlations"].push_back({{"fitted", one.fitted},
                                    {"geometry", one.geometry},
                                    {"statistic", one.statistic},
                                    {"spearman", number_json(one.rho)},
                                    {"p_shift", known ? json_number(one.p_shift) : Json(nullptr)},
                                    {"partial", optional_json(one.partial)}});
  }
  json["notes"] = found.notes;
  return json;
}

void print_layers(const Printer& out, const CalibrateOptions& options,
                  const analysis::WidthSweep& sweep, const analysis::Calibration& found) {
  std::vector<std::vector<std::string>> rows;
  for (const analysis::LayerCalibration& layer : found.layers) {
    const auto work = mean_at(sweep.work, options.geometry, options.statistic, layer.layer);
    const auto dimension = mean_at(sweep.dimensions, "raw", "two_nn", layer.layer);
    rows.push_back({std::to_string(layer.layer), std::to_string(layer.base_width),
                    std::to_string(layer.points.size() + 1),
                    fmt::format("{}/{}", layer.seeds.size(), found.seeds),
                    with_interval(layer.demand, 4), with_interval(layer.exponent, 2),
                    with_interval(layer.difficulty, 4), work ? fmt::format("{:.4g}", *work) : "-",
                    dimension ? fmt::format("{:.2f}", 2 / *dimension) : "-"});
  }
  out.table({{"LAYER", Align::kRight},
             {"WIDTH", Align::kRight},
             {"WIDTHS", Align::kRight},
             {"SEEDS", Align::kRight},
             {"DEMAND (95 %)", Align::kRight},
             {"EXPONENT (95 %)", Align::kRight},
             {"DIFFICULTY (95 %)", Align::kRight},
             {options.geometry + " " + options.statistic, Align::kRight},
             {"2 / DIMENSION", Align::kRight}},
            rows);
}

void print_notes(const Printer& out, const WidthDesign& design,
                 const analysis::Calibration& found) {
  for (const analysis::LayerCalibration& layer : found.layers) {
    std::set<std::string> said;
    for (const analysis::Calibrated* number : {&layer.demand, &layer.exponent, &layer.difficulty}) {
      const std::string& text = number->value ? number->no_error : number->no_value;
      if (!text.empty() && said.insert(text).second) {
        out.note(fmt::format("layer {}: {}", layer.layer, text));
      }
    }
    if (layer.seeds_left_out > 0) {
      out.note(fmt::format("layer {}: {} seeds have not finished at every width", layer.layer,
                           layer.seeds_left_out));
    }
  }
  for (const analysis::CalibrationCorrelation& one : found.correlations) {
    out.note(one.rho.value
                 ? fmt::format("{} with {} {}: Spearman {}, circular shifts p = {:.2g}{}",
                               one.fitted, one.geometry, one.statistic, with_interval(one.rho, 2),
                               one.p_shift,
                               one.partial ? fmt::format(", given depth {:.2f}", *one.partial) : "")
                 : fmt::format("{} with {} {}: {}", one.fitted, one.geometry, one.statistic,
                               one.rho.no_value));
  }
  if (found.correlations.empty()) {
    out.note("the base was not measured ([evaluate] geometry): there is no work to compare with");
  }
  for (const std::string& note : found.notes) out.note(note);
  if (design.others > 0) {
    out.note(
        fmt::format("{} candidates differ from \"{}\" in more than one layer's width and are "
                    "left out",
                    design.others, design.base_name));
  }
  out.note(
      "demand: nats for a factor e of the layer's width, at the base; difficulty: demand / "
      "exponent, "
      "nats that the layer's finite width costs at the base (docs/calibration.md)");
}

}  // namespace

void add_calibrate(CLI::App& app, Context& context) {
  auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = add_command(
      app, "calibrate",
      "What width does for the loss of each layer of a sweep with [calibrate], beside its work.",
      "  tailor calibrate last\n  tailor calibrate calibrate-128m --statistic gromov --json");
  command->add_option("SWEEP", options->sweep, "id, name or \"last\"")->required();
  command->add_option("--base", options->base,
                      "candidate whose layers were varied (default: the sweep file's)");
  command->add_option("--geometry", options->geometry, "of the work in the table (JSON has all)")
      ->check(CLI::IsMember({"raw", "spherical", "hyperbolic"}));
  command->add_option("--statistic", options->statistic, "of the work in the table (JSON has all)")
      ->check(CLI::IsMember({"shift", "gromov", "topology"}));
  command->callback([&context, options] {
    const WidthDesign design = design_of(context, *options);
    const analysis::WidthSweep sweep = runs_of(context, *options, design);
    const analysis::Calibration found = require(analysis::calibrate(sweep));
    const Printer out = context.printer();
    if (out.json()) return out.document(calibration_json(design, sweep, found));
    print_layers(out, *options, sweep, found);
    print_notes(out, design, found);
  });
}

}  // namespace tailor::client
