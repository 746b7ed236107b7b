#include "model/diagnose/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/stats.h"
#include "geometry/profile_shaping.h"
#include "geometry/statistics/table.h"
#include "model/diagnose/correlation.h"

namespace tailor::diagnose {
namespace {

using nlohmann::ordered_json;

using Profile = std::vector<double>;
/// A profile without one subsample (-1: with all).
using ProfileOf = std::function<Result<Profile>(int without_subsample)>;

ordered_json number(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json();
}

ordered_json estimate_json(const Estimate& estimate) {
  ordered_json out = {{"value", number(estimate.value)},
                      {"standard_error", number(estimate.standard_error)}};
  if (!estimate.reason.empty()) out["reason"] = estimate.reason;
  return out;
}

ordered_json absent_json(const std::string& reason) {
  return {{"value", nullptr}, {"standard_error", nullptr}, {"reason", reason}};
}

double mean_without(const std::vector<double>& values, int without) {
  double sum = 0;
  int count = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<int>(i) == without) continue;
    sum += values[i];
    ++count;
  }
  return sum / count;
}

/// All that is asked of the clouds.
class Profiles {
 public:
  Profiles(const std::vector<LayerMeasurement>& layers, const Sampling& sampling)
      : layers_(layers), sampling_(sampling) {}

  int subsamples() const { return static_cast<int>(sampling_.subsamples.size()); }

  /// theta without each subsample.
  Estimate estimate(const std::function<Result<double>(int without)>& theta) const {
    Estimate out;
    const Result<double> whole = theta(-1);
    if (!whole) {
      out.reason = whole.error().message();
      return out;
    }
    out.value = *whole;
    const Result<double> error = error_of(theta);
    if (error) {
      out.standard_error = *error;
    } else {
      out.reason = error.error().message();
    }
    return out;
  }
  Result<double> error_of(const std::function<Result<double>(int without)>& theta) const {
    if (subsamples() < 2) return tailor::error(Code::kInvalidArgument, sampling_.reason);
    std::vector<double> without;
    for (int r = 0; r < subsamples(); ++r) {
      TAILOR_ASSIGN_OR_RETURN(const double value, theta(r));
      without.push_back(value);
    }
    return jackknife_error(without);
  }

  ProfileOf work(const WorkKey& key) const {
    return [this, key](int without) -> Result<Profile> {
      Profile out;
      for (const LayerMeasurement& layer : layers_) {
        const auto found = layer.work.find(key);
        if (found == layer.work.end()) {
          return error(Code::kInvalidArgument,
                       fmt::format("layer {} has no work: {}", layer.layer, layer.work_reason));
        }
        out.push_back(mean_without(found->second, without));
      }
      return out;
    };
  }
  ProfileOf norm(std::vector<double> LayerMeasurement::*which) const {
    return [this, which](int without) -> Result<Profile> {
      Profile out;
      for (const LayerMeasurement& layer : layers_) {
        out.push_back(mean_without(layer.*which, without));
      }
      return out;
    };
  }
  ProfileOf dimension(const std::string& name) const {
    return [this, name](int without) -> Result<Profile> {
      Profile out;
      for (const LayerMeasurement& layer : layers_) {
        const auto found = layer.dimension.find(name);
        if (found == layer.dimension.end()) {
          return error(Code::kInvalidArgument, fmt::format("layer {} has no dimension: {}",
                                                           layer.layer, layer.dimension_reason));
        }
        const DimensionValue& value = found->second;
        if (without >= 0 && value.without_subsample.empty()) {
          return error(Code::kInvalidArgument,
                       fmt::format("layer {}: {}", layer.layer, value.reason));
        }
        out.push_back(without < 0 ? value.value
                                  : value.without_subsample[static_cast<std::size_t>(without)]);
      }
      return out;
    };
  }

 private:
  const std::vector<LayerMeasurement>& layers_;
  const Sampling& sampling_;
};

std::vector<WorkKey> work_keys() {
  std::vector<WorkKey> keys;
  for (const geometry::Geometry g : geometry::kGeometries) {
    for (const geometry::Statistic& statistic : geometry::statistics()) {
      keys.emplace_back(geometry_name(g), statistic.name);
    }
  }
  return keys;
}

ordered_json spearman_json(const Profiles& profiles, const ProfileOf& a, const ProfileOf& b) {
  return estimate_json(profiles.estimate([&](int without) -> Result<double> {
    TAILOR_ASSIGN_OR_RETURN(const Profile x, a(without));
    TAILOR_ASSIGN_OR_RETURN(const Profile y, b(without));
    return spearman(x, y);
  }));
}

ordered_json front_load_json(const Profiles& profiles, const ProfileOf& profile) {
  return estimate_json(profiles.estimate([&](int without) -> Result<double> {
    TAILOR_ASSIGN_OR_RETURN(const Profile values, profile(without));
    return geometry::front_load_index(values);
  }));
}

/// p of every layer, and their median and range.
ordered_json scale_json(const std::vector<LayerMeasurement>& layers, const WorkKey& key) {
  const std::vector<double> scales(std::begin(kScales), std::end(kScales));
  std::vector<double> exponents;
  ordered_json by_layer = ordered_json::array();
  for (const LayerMeasurement& layer : layers) {
    const auto found = layer.by_scale.find(key);
    if (found == layer.by_scale.end()) {
      by_layer.push_back({{"value", nullptr}, {"reason", layer.work_reason}});
      continue;
    }
    const auto exponent = geometry::scale_exponent(scales, found->second);
    if (!exponent) {
      by_layer.push_back({{"value", nullptr}, {"reason", exponent.error().message()}});
      continue;
    }
    exponents.push_back(*exponent);
    by_layer.push_back({{"value", *exponent}});
  }
  ordered_json out = {{"expected", key.first == "raw" ? 1 : 0}};
  if (exponents.empty()) {
    out["median"] = nullptr;
    out["reason"] = "no layer has work above 0";
  } else {
    out["median"] = quantile(exponents, 0.5);
    out["least"] = quantile(exponents, 0);
    out["greatest"] = quantile(exponents, 1);
  }
  out["by_layer"] = std::move(by_layer);
  return out;
}

/// The correlation of a profile with the sensitivity, with every error there is.
ordered_json correlation_json(const Profiles& profiles, const ProfileOf& profile,
                              const Sensitivity& sensitivity, Perturbation perturbation,
                              CorrelationKind kind, const AnalysisOptions& options) {
  const auto x = profile(-1);
  if (!x) return absent_json(x.error().message());
  const auto y = sensitivity.lambdas(perturbation);
  if (!y) return absent_json(y.error().message());
  const auto found = correlate(kind, *x, *y, options.seed, options.permutations);
  if (!found) return absent_json(found.error().message());

  // With its error over subsamples, sequences and draws.
  const auto with_error = [&](double value, const auto& compute) {
    Estimate out;
    out.value = value;
    const auto from_clouds = profiles.error_of([&](int without) -> Result<double> {
      TAILOR_ASSIGN_OR_RETURN(const Profile part, profile(without));
      return compute(part, *y);
    });
    const Estimate from_probes = crossed_estimate(
        sensitivity.sequences(), is_random(perturbation) ? sensitivity.draws() : 0,
        [&](int sequence, int draw) -> Result<double> {
          TAILOR_ASSIGN_OR_RETURN(const Profile part,
                                  sensitivity.lambdas(perturbation, sequence, draw));
          return compute(*x, part);
        });
    if (from_clouds && from_probes.standard_error) {
      out.standard_error = std::hypot(*from_clouds, *from_probes.standard_error);
    } else {
      out.reason = from_clouds ? from_probes.reason : from_clouds.error().message();
    }
    return out;
  };
  Profile depth(x->size());
  std::iota(depth.begin(), depth.end(), 0.0);
  ordered_json out = estimate_json(
      with_error(found->value, [&](const Profile& a, const Profile& b) -> Result<double> {
        return correlation(kind, a, b);
      }));
  out["p_naive"] = found->p_naive;
  out["p_shift"] = found->p_shift;
  if (!found->partial) {
    out["partial"] = absent_json(found->partial.error().message());
    return out;
  }
  ordered_json beside = estimate_json(
      with_error(*found->partial, [&](const Profile& a, const Profile& b) -> Result<double> {
        TAILOR_ASSIGN_OR_RETURN(const Profile p, correlated_values(kind, a, "the profile"));
        TAILOR_ASSIGN_OR_RETURN(const Profile q, correlated_values(kind, b, "the sensitivity"));
        return partial(p, q, depth);
      }));
  beside["p_shift"] = found->partial_p_shift;
  out["partial"] = std::move(beside);
  return out;
}

ordered_json work_json(const std::vector<LayerMeasurement>& layers, const Profiles& profiles) {
  ordered_json all = ordered_json::array();
  for (const WorkKey& key : work_keys()) {
    ordered_json values = ordered_json::array();
    for (const LayerMeasurement& layer : layers) {
      const auto found = layer.work.find(key);
      values.push_back(found == layer.work.end()
                           ? absent_json(layer.work_reason)
                           : estimate_json(profiles.estimate([&](int without) -> Result<double> {
                               return mean_without(found->second, without);
                             })));
    }
    const ProfileOf profile = profiles.work(key);
    all.push_back({{"geometry", key.first},
                   {"statistic", key.second},
                   {"values", std::move(values)},
                   {"front_load", front_load_json(profiles, profile)},
                   {"scale_exponent", scale_json(layers, key)},
                   {"spearman_norm_x",
                    spearman_json(profiles, profile, profiles.norm(&LayerMeasurement::norm_x))},
                   {"spearman_norm_f",
                    spearman_json(profiles, profile, profiles.norm(&LayerMeasurement::norm_f))}});
  }
  return all;
}

ordered_json layer_json(const LayerMeasurement& layer, const Profiles& profiles) {
  const auto mean = [&](const std::vector<double>& values) {
    return estimate_json(profiles.estimate(
        [&](int without) -> Result<double> { return mean_without(values, without); }));
  };
  ordered_json dimension = ordered_json::object();
  for (const auto& [name, value] : layer.dimension) {
    Estimate estimate;
    estimate.value = value.value;
    const auto error = jackknife_error(value.without_subsample);
    if (error) {
      estimate.standard_error = *error;
    } else {
      estimate.reason = value.reason.empty() ? error.error().message() : value.reason;
    }
    dimension[name] = estimate_json(estimate);
  }
  if (!layer.dimension_reason.empty()) {
    dimension["two_nn"] = absent_json(layer.dimension_reason);
  }
  dimension["points"] = layer.dimension_points;
  dimension["duplicates"] = layer.dimension_duplicates;
  return {{"layer", layer.layer},
          {"norm_x", mean(layer.norm_x)},
          {"norm_f", mean(layer.norm_f)},
          {"dimension", std::move(dimension)}};
}

ordered_json sensitivity_json(const Sensitivity& sensitivity, Perturbation kind) {
  ordered_json values = ordered_json::array();
  int layer = 0;
  for (const LayerSensitivity& one : sensitivity.layers(kind)) {
    ordered_json changes = ordered_json::array();
    for (std::size_t i = 0; i < one.eps.size(); ++i) {
      ordered_json change = estimate_json(one.loss_changes[i]);
      change["eps"] = one.eps[i];
      changes.push_back(std::move(change));
    }
    values.push_back({{"layer", layer++},
                      {"lambda", estimate_json(one.lambda)},
                      {"r_squared", number(one.r_squared)},
                      {"linear", estimate_json(one.linear)},
                      {"loss_changes", std::move(changes)}});
  }
  return {{"perturbation", perturbation_name(kind)}, {"layers", std::move(values)}};
}

ordered_json additivity_json(const Sensitivity& sensitivity) {
  ordered_json summaries = ordered_json::array();
  for (const AdditivitySummary& summary : sensitivity.additivity()) {
    ordered_json one = {
        {"eps", summary.eps},
        {"size", summary.size == 0 ? ordered_json("all sizes") : ordered_json(summary.size)},
        {"subsets", summary.subsets},
        {"median", estimate_json(summary.median)},
        {"q05", number(summary.low)},
        {"q95", number(summary.high)},
        {"r_squared", number(summary.r_squared)},
        {"mean_change", estimate_json(summary.mean_change)}};
    if (!summary.reason.empty()) one["reason"] = summary.reason;
    summaries.push_back(std::move(one));
  }
  ordered_json points = ordered_json::array();
  for (const SubsetPoint& point : sensitivity.subset_points()) {
    points.push_back({{"eps", point.eps},
                      {"layers", point.layers},
                      {"draw", point.draw},
                      {"change", point.change},
                      {"sum", point.sum}});
  }
  const auto verdict = sensitivity.locally_additive();
  ordered_json out = {{"perturbation", perturbation_name(sensitivity.primary())},
                      {"locally_additive", verdict ? ordered_json(*verdict) : ordered_json()}};
  if (!verdict) out["reason"] = verdict.error().message();
  out["summaries"] = std::move(summaries);
  out["subsets"] = std::move(points);
  return out;
}

/// |r| below this cannot be told from 0 at 5 %, even if layers were independent.
ordered_json naive_limit(std::size_t layers) {
  if (layers < 3) return nullptr;
  const auto df = static_cast<double>(layers - 2);
  const double t = student_t_quantile(0.975, df);
  return t / std::sqrt(df + t * t);
}

constexpr const char* kDimensions[] = {"two_nn", "levina_bickel"};
constexpr std::pair<const char*, CorrelationKind> kCorrelations[] = {
    {"spearman", CorrelationKind::kSpearman}, {"pearson_log", CorrelationKind::kPearsonLog}};

// --- tables ---

storage::Cell cell(const ordered_json& value) {
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return std::int64_t{value.get<bool>()};
  if (value.is_null()) return std::monostate();
  return value.is_string() ? value.get<std::string>() : value.dump();
}

storage::Cell reason_of(const ordered_json& estimate) {
  return estimate.contains("reason") ? cell(estimate["reason"]) : std::monostate();
}

}  // namespace

ordered_json analyse(const std::vector<LayerMeasurement>& layers, const Sampling& sampling,
                     const Sensitivity& sensitivity, const AnalysisOptions& options) {
  const Profiles profiles(layers, sampling);
  ordered_json sample = {{"positions", sampling.positions},
                         {"sequences", sampling.sequences},
                         {"tokens", sampling.tokens},
                         {"subsamples_asked", sampling.subsamples_asked},
                         {"subsamples", sampling.subsamples.size()},
                         {"zero_vectors", sampling.zero_vectors}};
  if (!sampling.reason.empty()) sample["reason"] = sampling.reason;

  ordered_json by_layer = ordered_json::array();
  for (const LayerMeasurement& layer : layers) by_layer.push_back(layer_json(layer, profiles));
  ordered_json sensitivities = ordered_json::array();
  ordered_json correlations = ordered_json::array();
  for (const Perturbation kind : sensitivity.kinds()) {
    sensitivities.push_back(sensitivity_json(sensitivity, kind));
    const auto row = [&](const std::string& profile, const std::string& statistic,
                         const ProfileOf& values) {
      ordered_json out = {{"perturbation", perturbation_name(kind)},
                          {"profile", profile},
                          {"statistic", statistic}};
      for (const auto& [name, correlation_kind] : kCorrelations) {
        out[name] =
            correlation_json(profiles, values, sensitivity, kind, correlation_kind, options);
      }
      correlations.push_back(std::move(out));
    };
    for (const WorkKey& key : work_keys()) row(key.first, key.second, profiles.work(key));
    for (const char* name : kDimensions) row("dimension", name, profiles.dimension(name));
  }
  return {{"format", "tailor-diagnosis"},
          {"version", 1},
          {"sample", std::move(sample)},
          {"clean_loss", estimate_json(sensitivity.clean_loss())},
          {"layers", std::move(by_layer)},
          {"work", work_json(layers, profiles)},
          {"sensitivity", std::move(sensitivities)},
          {"additivity", additivity_json(sensitivity)},
          {"correlations", std::move(correlations)},
          {"naive_limit", naive_limit(layers.size())}};
}

std::vector<storage::Table> tables_of(const ordered_json& d,
                                      const std::vector<LayerMeasurement>& layers,
                                      const ProbeResults& probes) {
  using storage::Table;
  Table info{"info", {"key", "value"}, {}};
  for (const auto& [key, value] : d.items()) {
    if (key == "layers" || key == "work" || key == "sensitivity" || key == "additivity" ||
        key == "correlations") {
      continue;
    }
    info.rows.push_back({key, value.is_string() ? value.get<std::string>() : value.dump()});
  }
  Table layer_table{"layers",
                    {"layer", "norm_x", "norm_x_se", "norm_f", "norm_f_se", "two_nn", "two_nn_se",
                     "levina_bickel", "levina_bickel_se", "dimension_reason"},
                    {}};
  for (const ordered_json& layer : d["layers"]) {
    const ordered_json& dimension = layer["dimension"];
    const auto part = [&](const char* name, const char* key) -> storage::Cell {
      return dimension.contains(name) ? cell(dimension[name][key]) : std::monostate();
    };
    layer_table.rows.push_back(
        {cell(layer["layer"]), cell(layer["norm_x"]["value"]),
         cell(layer["norm_x"]["standard_error"]), cell(layer["norm_f"]["value"]),
         cell(layer["norm_f"]["standard_error"]), part("two_nn", "value"),
         part("two_nn", "standard_error"), part("levina_bickel", "value"),
         part("levina_bickel", "standard_error"),
         dimension.contains("two_nn") ? reason_of(dimension["two_nn"]) : std::monostate()});
  }
  Table work{
      "work",
      {"layer", "geometry", "statistic", "value", "standard_error", "scale_exponent", "reason"},
      {}};
  Table profiles{"profiles",
                 {"geometry", "statistic", "front_load", "front_load_se", "spearman_norm_x",
                  "spearman_norm_x_se", "spearman_norm_f", "spearman_norm_f_se"},
                 {}};
  for (const ordered_json& profile : d["work"]) {
    for (std::size_t l = 0; l < profile["values"].size(); ++l) {
      const ordered_json& value = profile["values"][l];
      work.rows.push_back(
          {static_cast<std::int64_t>(l), cell(profile["geometry"]), cell(profile["statistic"]),
           cell(value["value"]), cell(value["standard_error"]),
           cell(profile["scale_exponent"]["by_layer"][l]["value"]), reason_of(value)});
    }
    std::vector<storage::Cell> row = {cell(profile["geometry"]), cell(profile["statistic"])};
    for (const char* key : {"front_load", "spearman_norm_x", "spearman_norm_f"}) {
      row.push_back(cell(profile[key]["value"]));
      row.push_back(cell(profile[key]["standard_error"]));
    }
    profiles.rows.push_back(std::move(row));
  }
  Table subsamples{"work_subsamples", {"layer", "geometry", "statistic", "subsample", "value"}, {}};
  for (const LayerMeasurement& layer : layers) {
    for (const auto& [key, values] : layer.work) {
      for (std::size_t r = 0; r < values.size(); ++r) {
        subsamples.rows.push_back({std::int64_t{layer.layer}, key.first, key.second,
                                   static_cast<std::int64_t>(r), values[r]});
      }
    }
  }
  Table sensitivity{"sensitivity",
                    {"perturbation", "layer", "lambda", "lambda_se", "r_squared", "linear",
                     "linear_se", "reason"},
                    {}};
  Table changes{
      "loss_changes", {"perturbation", "layer", "eps", "change", "standard_error", "reason"}, {}};
  for (const ordered_json& one : d["sensitivity"]) {
    for (const ordered_json& layer : one["layers"]) {
      sensitivity.rows.push_back(
          {cell(one["perturbation"]), cell(layer["layer"]), cell(layer["lambda"]["value"]),
           cell(layer["lambda"]["standard_error"]), cell(layer["r_squared"]),
           cell(layer["linear"]["value"]), cell(layer["linear"]["standard_error"]),
           reason_of(layer["lambda"])});
      for (const ordered_json& change : layer["loss_changes"]) {
        changes.rows.push_back({cell(one["perturbation"]), cell(layer["layer"]),
                                cell(change["eps"]), cell(change["value"]),
                                cell(change["standard_error"]), reason_of(change)});
      }
    }
  }
  Table additivity{"additivity",
                   {"eps", "size", "subsets", "median", "median_se", "q05", "q95", "r_squared",
                    "mean_change", "mean_change_se"},
                   {}};
  for (const ordered_json& one : d["additivity"]["summaries"]) {
    additivity.rows.push_back({cell(one["eps"]), cell(one["size"]), cell(one["subsets"]),
                               cell(one["median"]["value"]), cell(one["median"]["standard_error"]),
                               cell(one["q05"]), cell(one["q95"]), cell(one["r_squared"]),
                               cell(one["mean_change"]["value"]),
                               cell(one["mean_change"]["standard_error"])});
  }
  Table subsets{"subsets", {"eps", "layers", "draw", "change", "sum"}, {}};
  for (const ordered_json& one : d["additivity"]["subsets"]) {
    subsets.rows.push_back({cell(one["eps"]), one["layers"].dump(), cell(one["draw"]),
                            cell(one["change"]), cell(one["sum"])});
  }
  Table correlations{"correlations",
                     {"perturbation", "profile", "statistic", "kind", "value", "standard_error",
                      "p_naive", "p_shift", "partial", "partial_se", "partial_p_shift", "reason"},
                     {}};
  for (const ordered_json& one : d["correlations"]) {
    for (const auto& [name, kind] : kCorrelations) {
      const ordered_json& c = one[name];
      const auto part = [](const ordered_json& of, const char* key) -> storage::Cell {
        return of.contains(key) ? cell(of[key]) : std::monostate();
      };
      const ordered_json none = ordered_json::object();
      const ordered_json& beside = c.contains("partial") ? c["partial"] : none;
      correlations.rows.push_back(
          {cell(one["perturbation"]), cell(one["profile"]), cell(one["statistic"]),
           std::string(name), cell(c["value"]), cell(c["standard_error"]), part(c, "p_naive"),
           part(c, "p_shift"), part(beside, "value"), part(beside, "standard_error"),
           part(beside, "p_shift"), reason_of(c)});
    }
  }
  Table raw{"probes", {"perturbation", "layers", "eps", "draw", "sequence", "loss"}, {}};
  const auto per_token = [&](double loss) -> storage::Cell {
    const double value = loss / static_cast<double>(probes.scored_tokens);
    if (!std::isfinite(value)) return std::monostate();
    return value;
  };
  for (std::size_t s = 0; s < probes.clean.size(); ++s) {
    raw.rows.push_back({std::string("clean"), std::string("[]"), 0.0, std::int64_t{0},
                        static_cast<std::int64_t>(s), per_token(probes.clean[s])});
  }
  for (std::size_t i = 0; i < probes.probes.size(); ++i) {
    const Probe& probe = probes.probes[i];
    for (std::size_t s = 0; s < probes.losses[i].size(); ++s) {
      raw.rows.push_back({std::string(perturbation_name(probe.kind)),
                          ordered_json(probe.layers).dump(), probe.eps, std::int64_t{probe.draw},
                          static_cast<std::int64_t>(s), per_token(probes.losses[i][s])});
    }
  }
  return {info,    layer_table, work,    profiles,     subsamples, sensitivity,
          changes, additivity,  subsets, correlations, raw};
}

}  // namespace tailor::diagnose
