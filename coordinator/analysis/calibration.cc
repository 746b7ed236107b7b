#include "coordinator/analysis/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "coordinator/analysis/paired.h"
#include "geometry/jackknife.h"
#include "model/diagnose/correlation.h"

namespace tailor::analysis {
namespace {

constexpr int kExponentSteps = 180;
constexpr double kAtEdge = 1e-3;  // of the range of exponents

double phi(double exponent, double x) {
  return std::abs(exponent) < 1e-9 ? x : -std::expm1(-exponent * x) / exponent;
}

struct WidthLaw {
  double demand = 0;
  double exponent = 0;
  double squares = 0;  ///< of the residuals
  bool at_edge = false;
};

WidthLaw law_at(double exponent, std::span<const double> x, std::span<const double> differences) {
  double across = 0, along = 0;
  for (std::size_t j = 0; j < x.size(); ++j) {
    const double p = phi(exponent, x[j]);
    across += p * differences[j];
    along += p * p;
  }
  WidthLaw law{-across / along, exponent};
  for (std::size_t j = 0; j < x.size(); ++j) {
    const double residual = differences[j] + law.demand * phi(exponent, x[j]);
    law.squares += residual * residual;
  }
  return law;
}

/// Least squares. REQUIRES: two or more x, none 0, all different.
WidthLaw fit_width_law(std::span<const double> x, std::span<const double> differences) {
  constexpr double kRange = kWidthExponentMax - kWidthExponentMin;
  const auto exponent = [](int i) { return kWidthExponentMin + kRange * i / kExponentSteps; };
  WidthLaw best = law_at(exponent(0), x, differences);
  int place = 0;
  for (int i = 1; i <= kExponentSteps; ++i) {
    const WidthLaw law = law_at(exponent(i), x, differences);
    if (law.squares < best.squares) best = law, place = i;
  }
  double low = exponent(std::max(place - 1, 0));
  double high = exponent(std::min(place + 1, kExponentSteps));
  const double golden = (std::sqrt(5.0) - 1) / 2;
  WidthLaw a = law_at(high - golden * (high - low), x, differences);
  WidthLaw b = law_at(low + golden * (high - low), x, differences);
  for (int i = 0; i < 40; ++i) {
    if (a.squares < b.squares) {
      high = b.exponent;
      b = a;
      a = law_at(high - golden * (high - low), x, differences);
    } else {
      low = a.exponent;
      a = b;
      b = law_at(low + golden * (high - low), x, differences);
    }
  }
  const WidthLaw inner = a.squares < b.squares ? a : b;
  if (inner.squares <= best.squares) best = inner;
  best.at_edge = best.exponent < kWidthExponentMin + kAtEdge * kRange ||
                 best.exponent > kWidthExponentMax - kAtEdge * kRange;
  return best;
}

bool excludes_zero(const Calibrated& number) {
  return number.low && (*number.low > 0 || *number.high < 0);
}

/// SE from the values without each seed; none where one of them is not finite.
std::optional<double> error_of(const std::vector<double>& without) {
  std::vector<std::vector<double>> replicates;
  for (const double value : without) {
    if (!std::isfinite(value)) return std::nullopt;
    replicates.push_back({value});
  }
  return geometry::jackknife_errors(replicates)[0];
}

void add_interval(Calibrated& number, double standard_error, std::size_t seeds) {
  const double half = critical_t(seeds) * standard_error;
  number.standard_error = standard_error;
  number.low = *number.value - half;
  number.high = *number.value + half;
}

std::string unexplained(std::string text) { return "not known: " + std::move(text); }

/// What a layer's runs came to: [width][seed].
using ByWidth = std::map<std::int64_t, std::map<std::uint64_t, double>>;

class Calibrator {
 public:
  explicit Calibrator(const WidthSweep& sweep) : sweep_(sweep) {}

  Result<Calibration> run() {
    TAILOR_RETURN_IF_ERROR(sort());
    for (const auto& [layer, widths] : losses_) out_.layers.push_back(layer_of(layer, widths));
    correlate_all();
    notes();
    return std::move(out_);
  }

 private:
  Status sort() {
    for (const WidthRun& run : sweep_.runs) {
      if (run.loss && !std::isfinite(*run.loss)) {
        return Status(Code::kInvalidArgument,
                      fmt::format("the loss of seed {} is not a finite number", run.seed));
      }
      if (!run.change) {
        if (run.failed) failed_base_.insert(run.seed);
        if (run.loss && !base_.emplace(run.seed, *run.loss).second) return twice("the base", run);
        continue;
      }
      const auto [layer, width] = *run.change;
      if (layer < 0 || layer >= static_cast<std::int64_t>(sweep_.base.size()) || width <= 0 ||
          width == sweep_.base[layer]) {
        return Status(Code::kInvalidArgument,
                      fmt::format("layer {} with width {} is no change of a base of {} layers",
                                  layer, width, sweep_.base.size()));
      }
      auto& at = losses_[layer][width];  // an entry also for what has no loss yet
      if (run.failed) ++failed_[layer];
      if (run.loss && !at.emplace(run.seed, *run.loss).second) {
        return twice(fmt::format("width {} of layer {}", width, layer), run);
      }
    }
    if (losses_.empty()) {
      return Status(Code::kFailedPrecondition,
                    "no candidate differs from the base in the width of one layer alone");
    }
    if (base_.empty()) return Status(Code::kFailedPrecondition, "the base has no loss yet");
    out_.seeds = static_cast<std::uint32_t>(base_.size());
    return Status::ok();
  }

  static Status twice(const std::string& what, const WidthRun& run) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} has two trials of seed {}", what, run.seed));
  }

  LayerCalibration layer_of(std::int32_t layer, const ByWidth& widths) {
    LayerCalibration out;
    out.layer = layer;
    out.base_width = sweep_.base[layer];
    out.failed = failed_[layer] + static_cast<std::uint32_t>(failed_base_.size());
    std::vector<double> x;
    for (const auto& [width, by_seed] : widths) {
      out.points.push_back({width, 0, 0});
      x.push_back(std::log(static_cast<double>(width) / static_cast<double>(out.base_width)));
    }
    std::vector<std::vector<double>> differences;  // [seed][width]
    for (const auto& [seed, loss] : base_) {
      std::vector<double> of_seed;
      for (const auto& [width, by_seed] : widths) {
        const auto found = by_seed.find(seed);
        if (found != by_seed.end()) of_seed.push_back(found->second - loss);
      }
      if (of_seed.size() < x.size()) continue;
      out.seeds.push_back(seed);
      differences.push_back(std::move(of_seed));
    }
    out.seeds_left_out = out_.seeds - static_cast<std::uint32_t>(out.seeds.size());
    if (out.seeds.empty()) {
      return refuse(out, "no seed has finished at the base and at every width of this layer");
    }
    if (x.size() < 2) {
      return refuse(out, "one width beside the base's: two are the least for an exponent");
    }
    fit(out, x, differences);
    return out;
  }

  static LayerCalibration refuse(LayerCalibration& out, const std::string& why) {
    for (Calibrated* number : {&out.demand, &out.exponent, &out.difficulty}) {
      number->no_value = unexplained(why);
    }
    return std::move(out);
  }

  void fit(LayerCalibration& out, const std::vector<double>& x,
           const std::vector<std::vector<double>>& differences) {
    const std::size_t n = differences.size();
    const auto mean_without = [&](std::size_t left_out) {
      std::vector<double> mean(x.size());
      const double count = static_cast<double>(left_out < n ? n - 1 : n);
      for (std::size_t s = 0; s < n; ++s) {
        if (s == left_out) continue;
        for (std::size_t j = 0; j < x.size(); ++j) mean[j] += differences[s][j] / count;
      }
      return mean;
    };
    const std::vector<double> mean = mean_without(n);
    const WidthLaw law = fit_width_law(x, mean);
    for (std::size_t j = 0; j < x.size(); ++j) {
      out.points[j].difference = mean[j];
      out.points[j].fitted = -law.demand * phi(law.exponent, x[j]);
    }
    out.rms_residual = std::sqrt(law.squares / static_cast<double>(x.size()));
    out.demand.value = law.demand;
    std::vector<double> demands, exponents, log_difficulties;
    bool edge = law.at_edge;
    for (std::size_t s = 0; s < n && n >= 2; ++s) {
      const WidthLaw without = fit_width_law(x, mean_without(s));
      edge = edge || without.at_edge;
      demands.push_back(without.demand);
      exponents.push_back(without.exponent);
      log_difficulties.push_back(std::log(without.demand / without.exponent));
      laws_[out.layer][out.seeds[s]] = {without.demand, without.exponent};
    }
    whole_[out.layer] = {law.demand, law.exponent};
    const std::string no_error =
        n < 2 ? "one seed"
        : out.failed > 0
            ? fmt::format(
                  "{} runs failed or were stopped, so the seeds that are left are those "
                  "that went well",
                  out.failed)
            : "";
    if (no_error.empty()) {
      add_interval(out.demand, *error_of(demands), n);
    } else {
      out.demand.no_error = no_error;
    }
    // The exponent: only of a layer whose width is seen to matter.
    if (no_error.empty() && !excludes_zero(out.demand)) {
      out.exponent.no_value = unexplained(
          fmt::format("{} seeds cannot tell from 0 what this layer's width does for the loss", n));
    } else if (edge) {
      out.exponent.no_value = unexplained(fmt::format(
          "the fit, or that without one of the seeds, runs to an end of the range searched, {:g} "
          "to {:g}",
          kWidthExponentMin, kWidthExponentMax));
    } else {
      out.exponent.value = law.exponent;
      out.exponent.no_error = no_error;
      if (no_error.empty()) add_interval(out.exponent, *error_of(exponents), n);
    }
    // The difficulty: only where a power law with an end is what was seen.
    if (!out.exponent.value) {
      out.difficulty.no_value = unexplained("there is no exponent");
    } else if (no_error.empty() && !excludes_zero(out.exponent)) {
      out.difficulty.no_value =
          unexplained("the exponent cannot be told from 0, where demand / exponent has no bound");
    } else if (!(law.demand / law.exponent > 0)) {
      out.difficulty.no_value = unexplained("demand and exponent have different signs");
    } else {
      out.difficulty.value = law.demand / law.exponent;
      out.difficulty.no_error = no_error;
      if (no_error.empty()) log_interval(out.difficulty, log_difficulties, n);
    }
    if (x.size() == 2) out.note = "two widths beside the base's: nothing tests the form of the law";
  }

  static void log_interval(Calibrated& number, const std::vector<double>& logs, std::size_t n) {
    const auto standard_error = error_of(logs);
    if (!standard_error) {
      number.no_error = "without one of the seeds demand and exponent have different signs";
      return;
    }
    number.standard_error = *standard_error;
    const double factor = std::exp(critical_t(n) * *standard_error);
    number.low = *number.value / factor;
    number.high = *number.value * factor;
  }

  struct Pair {
    double demand = 0, exponent = 0;
    double of(const std::string& fitted) const {
      return fitted == "demand" ? demand : fitted == "exponent" ? exponent : demand / exponent;
    }
  };

  void correlate_all() {
    for (const MeasuredSeries& series : sweep_.work) {
      out_.correlations.push_back(correlation_with(series, "demand"));
      out_.correlations.push_back(correlation_with(series, "difficulty"));
    }
    for (const MeasuredSeries& series : sweep_.dimensions) {
      out_.correlations.push_back(correlation_with(series, "exponent"));
    }
  }

  /// Mean over the seeds that measured it, but for `left_out`; nothing where none did.
  std::vector<double> measured(const MeasuredSeries& series,
                               std::optional<std::uint64_t> left_out) const {
    std::vector<double> out;
    double count = 0;
    for (const auto& [seed, values] : series.by_seed) {
      if (seed == left_out && series.by_seed.size() > 1) continue;
      if (values.size() != sweep_.base.size()) continue;
      out.resize(values.size());
      for (std::size_t l = 0; l < values.size(); ++l) out[l] += values[l];
      ++count;
    }
    for (double& value : out) value /= count;
    return out;
  }

  CalibrationCorrelation correlation_with(const MeasuredSeries& series, const std::string& fitted) {
    CalibrationCorrelation out;
    out.fitted = fitted;
    out.geometry = series.geometry;
    out.statistic = series.statistic;
    std::set<std::uint64_t> seeds;  // used by all layers
    std::vector<std::int32_t> layers;
    for (const LayerCalibration& layer : out_.layers) {
      const Calibrated& number = fitted == "demand"     ? layer.demand
                                 : fitted == "exponent" ? layer.exponent
                                                        : layer.difficulty;
      if (!number.value) {
        out.rho.no_value = unexplained(fmt::format("layer {} has no {}", layer.layer, fitted));
        return out;
      }
      const std::set<std::uint64_t> own(layer.seeds.begin(), layer.seeds.end());
      if (layers.empty()) {
        seeds = own;
      } else {
        std::erase_if(seeds, [&](std::uint64_t seed) { return !own.contains(seed); });
      }
      layers.push_back(layer.layer);
    }
    const auto of = [&](std::optional<std::uint64_t> left_out,
                        bool depth) -> Result<diagnose::Correlation> {
      std::vector<double> x, y;
      const std::vector<double> work = measured(series, left_out);
      if (work.empty()) return error(Code::kNotFound, "the base was not measured");
      for (const std::int32_t layer : layers) {
        x.push_back(fitted == "exponent" ? 2 / work[layer] : work[layer]);
        const auto& laws = laws_[layer];
        const auto without = left_out ? laws.find(*left_out) : laws.end();
        y.push_back((without != laws.end() ? without->second : whole_[layer]).of(fitted));
      }
      if (depth) {
        constexpr std::size_t kPermutations = 1;  // the naive p is not shown
        return diagnose::correlate(diagnose::CorrelationKind::kSpearman, x, y, 1, kPermutations);
      }
      TAILOR_ASSIGN_OR_RETURN(const double rho,
                              diagnose::correlation(diagnose::CorrelationKind::kSpearman, x, y));
      diagnose::Correlation value;
      value.value = rho;
      return value;
    };
    const auto whole = of(std::nullopt, true);
    if (!whole) {
      out.rho.no_value = unexplained(whole.error().message());
      return out;
    }
    out.rho.value = whole->value;
    out.p_shift = whole->p_shift;
    if (whole->partial) out.partial = *whole->partial;
    if (seeds.size() < 2) {
      out.rho.no_error = "fewer than two seeds finished in all layers";
      return out;
    }
    std::vector<double> without;
    for (const std::uint64_t seed : seeds) {
      const auto value = of(seed, false);
      if (value) without.push_back(value->value);
    }
    if (without.size() < seeds.size()) {
      out.rho.no_error = "it is not defined without one of the seeds";
      return out;
    }
    add_interval(out.rho, *error_of(without), seeds.size());
    out.rho.low = std::max(-1.0, *out.rho.low);
    out.rho.high = std::min(1.0, *out.rho.high);
    return out;
  }

  void notes() {
    std::size_t unknown = 0;
    for (const LayerCalibration& layer : out_.layers) unknown += !layer.exponent.value;
    if (unknown > 0) {
      out_.notes.push_back(fmt::format("{} of {} layers have no exponent: the reasons stand there",
                                       unknown, out_.layers.size()));
    }
    if (out_.layers.size() < sweep_.base.size()) {
      out_.notes.push_back(
          fmt::format("{} of {} layers were varied", out_.layers.size(), sweep_.base.size()));
    }
    if (!failed_base_.empty()) {
      out_.notes.push_back(
          fmt::format("the base failed or was stopped with {} seeds", failed_base_.size()));
    }
  }

  const WidthSweep& sweep_;
  Calibration out_;
  std::map<std::uint64_t, double> base_;
  std::set<std::uint64_t> failed_base_;
  std::map<std::int32_t, ByWidth> losses_;
  std::map<std::int32_t, std::uint32_t> failed_;
  std::map<std::int32_t, Pair> whole_;
  std::map<std::int32_t, std::map<std::uint64_t, Pair>> laws_;  // without that seed
};

}  // namespace

std::optional<LayerWidth> differing_layer(const shape::Architecture& base,
                                          const shape::Architecture& other) {
  if (base.widths.size() != other.widths.size()) return std::nullopt;
  shape::Architecture same = other;
  same.widths = base.widths;
  if (!(same == base)) return std::nullopt;
  std::optional<LayerWidth> out;
  for (std::size_t l = 0; l < base.widths.size(); ++l) {
    if (base.widths[l] == other.widths[l]) continue;
    const std::int64_t width =
        std::accumulate(other.widths[l].begin(), other.widths[l].end(), std::int64_t{0});
    if (out) return std::nullopt;
    out = LayerWidth{static_cast<std::int32_t>(l), width};
  }
  return out;
}

Result<Calibration> calibrate(const WidthSweep& sweep) { return Calibrator(sweep).run(); }

}  // namespace tailor::analysis
