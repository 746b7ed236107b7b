#include "model/diagnose/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/rng.h"
#include "model/diagnose/correlation.h"

namespace tailor::diagnose {
namespace {

constexpr double kWithin = 0.1;      // of 1: "locally additive"
constexpr double kErrorsBeyond = 3;  // dL above so many standard errors counts as seen
constexpr int kTriesPerSubset = 50;  // random subsets that were drawn before are drawn again

std::vector<int> random_subset(int layers, int size, Rng& rng) {
  std::vector<int> all(static_cast<std::size_t>(layers));
  std::iota(all.begin(), all.end(), 0);
  for (int i = 0; i < size; ++i) {
    const auto left = static_cast<std::uint64_t>(layers - i);
    std::swap(all[static_cast<std::size_t>(i)],
              all[static_cast<std::size_t>(i) + static_cast<std::size_t>(rng.below(left))]);
  }
  all.resize(static_cast<std::size_t>(size));
  std::sort(all.begin(), all.end());
  return all;
}

// The sizes that there are, ascending, each once; 0 stands for all layers.
std::vector<int> sizes_of(int layers, const ProbeOptions& options) {
  std::set<int> sizes;
  for (const int size : options.subset_sizes) {
    if (size == 0 || size >= layers) {
      if (layers >= 2 && (size == 0 || size == layers)) sizes.insert(layers);
    } else if (size >= 2) {
      sizes.insert(size);
    }
  }
  return {sizes.begin(), sizes.end()};
}

Estimate absent(std::string reason) { return {{}, {}, std::move(reason)}; }

}  // namespace

std::string_view perturbation_name(Perturbation kind) {
  switch (kind) {
    case Perturbation::kRelative:
      return "relative";
    case Perturbation::kAbsolute:
      return "absolute";
    case Perturbation::kAttenuation:
      return "attenuation";
    case Perturbation::kAblation:
      return "ablation";
  }
  return "";
}

Result<Perturbation> parse_perturbation(std::string_view name) {
  for (const Perturbation kind : kPerturbations) {
    if (perturbation_name(kind) == name) return kind;
  }
  return error(
      Code::kInvalidArgument,
      fmt::format("perturbation \"{}\"; known: relative, absolute, attenuation, ablation", name));
}

bool is_random(Perturbation kind) {
  return kind == Perturbation::kRelative || kind == Perturbation::kAbsolute;
}

Status ProbeOptions::validate() const {
  const auto wrong = [](std::string message) {
    return Status(Code::kInvalidArgument, std::move(message));
  };
  if (kinds.empty()) return wrong("no perturbation is named");
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (std::count(kinds.begin(), kinds.end(), kinds[i]) > 1) {
      return wrong(fmt::format("perturbation {} is named twice", perturbation_name(kinds[i])));
    }
  }
  if (eps.empty()) return wrong("no eps is named");
  for (std::size_t i = 0; i < eps.size(); ++i) {
    if (!(eps[i] > 0) || !std::isfinite(eps[i]) || (i > 0 && eps[i] <= eps[i - 1])) {
      return wrong("the eps must be above 0 and ascend");
    }
  }
  if (draws < 1 || draws > 1000) return wrong(fmt::format("{} draws; allowed: 1 to 1000", draws));
  if (subsets < 0 || subsets > 10'000) {
    return wrong(fmt::format("{} subsets; allowed: 0 to 10000", subsets));
  }
  for (const int size : subset_sizes) {
    if (size < 0 || size == 1) {
      return wrong(fmt::format("subsets of {} layers; allowed: 2 and more, 0 for all", size));
    }
  }
  return Status::ok();
}

std::vector<Probe> plan_probes(int layers, const ProbeOptions& options) {
  TAILOR_CHECK(options.validate().is_ok());
  std::vector<Probe> probes;
  for (const Perturbation kind : options.kinds) {
    const int draws = is_random(kind) ? options.draws : 1;
    const std::vector<double> eps =
        kind == Perturbation::kAblation ? std::vector<double>{1.0} : options.eps;
    for (int layer = 0; layer < layers; ++layer) {
      for (const double e : eps) {
        for (int draw = 0; draw < draws; ++draw) probes.push_back({kind, {layer}, e, draw});
      }
    }
  }
  const Perturbation primary = options.kinds.front();
  const int draws = is_random(primary) ? options.draws : 1;
  const std::vector<double> eps =
      primary == Perturbation::kAblation ? std::vector<double>{1.0} : options.eps;
  for (const int size : sizes_of(layers, options)) {
    if (options.subsets == 0) break;
    std::vector<std::pair<std::vector<int>, int>> chosen;  // with their draw
    if (size == layers) {
      std::vector<int> all(static_cast<std::size_t>(layers));
      std::iota(all.begin(), all.end(), 0);
      for (int draw = 0; draw < draws; ++draw) chosen.push_back({all, draw});
    } else {
      Rng rng = Rng::split(options.seed, fmt::format("subsets of {} layers", size));
      std::set<std::vector<int>> seen;
      for (int tries = 0; tries < options.subsets * kTriesPerSubset; ++tries) {
        if (static_cast<int>(seen.size()) == options.subsets) break;
        std::vector<int> subset = random_subset(layers, size, rng);
        if (!seen.insert(subset).second) continue;
        chosen.push_back({std::move(subset), static_cast<int>(chosen.size()) % draws});
      }
    }
    for (const auto& [subset, draw] : chosen) {
      for (const double e : eps) probes.push_back({primary, subset, e, draw});
    }
  }
  std::stable_sort(probes.begin(), probes.end(), [](const Probe& a, const Probe& b) {
    return a.layers.front() < b.layers.front();
  });
  return probes;
}

Estimate crossed_estimate(int sequences, int draws, const Leaving& theta) {
  Estimate out;
  const Result<double> whole = theta(-1, -1);
  if (!whole) return absent(whole.error().message());
  if (!std::isfinite(*whole)) return absent("not a finite number");
  out.value = *whole;
  const auto error_over = [&](int count, bool by_sequence) -> Result<double> {
    std::vector<double> without;
    for (int i = 0; count > 1 && i < count; ++i) {
      const Result<double> value = by_sequence ? theta(i, -1) : theta(-1, i);
      if (!value) return error(value.error());
      without.push_back(*value);
    }
    if (count < 2) {
      return error(Code::kInvalidArgument, fmt::format("one {} only: no standard error",
                                                       by_sequence ? "sequence" : "draw"));
    }
    return jackknife_error(without);
  };
  const Result<double> by_sequence = error_over(sequences, true);
  const Result<double> by_draw = draws == 0 ? Result<double>(0.0) : error_over(draws, false);
  if (by_sequence && by_draw) {
    out.standard_error = std::hypot(*by_sequence, *by_draw);
  } else {
    out.reason = by_sequence ? by_draw.error().message() : by_sequence.error().message();
  }
  return out;
}

SlopeFit fit_slope(const std::vector<double>& eps, const std::vector<double>& losses) {
  TAILOR_CHECK(!eps.empty() && eps.size() == losses.size());
  double s2 = 0, s3 = 0, s4 = 0, y1 = 0, y2 = 0, yy = 0;
  for (std::size_t i = 0; i < eps.size(); ++i) {
    const double e = eps[i], y = losses[i];
    s2 += e * e;
    s3 += e * e * e;
    s4 += e * e * e * e;
    y1 += e * y;
    y2 += e * e * y;
    yy += y * y;
  }
  SlopeFit fit;
  fit.slope = y2 / s4;
  double rest = 0;
  for (std::size_t i = 0; i < eps.size(); ++i) {
    const double miss = losses[i] - fit.slope * eps[i] * eps[i];
    rest += miss * miss;
  }
  fit.r_squared = yy > 0 ? 1 - rest / yy : 1;
  const double determinant = s2 * s4 - s3 * s3;
  if (eps.size() > 1 && determinant > 0) fit.linear = (y1 * s4 - y2 * s3) / determinant;
  return fit;
}

Result<Sensitivity> Sensitivity::create(ProbeResults results, int layers,
                                        const ProbeOptions& options) {
  TAILOR_RETURN_IF_ERROR(options.validate());
  if (results.losses.size() != results.probes.size() || results.clean.empty() ||
      results.scored_tokens < 1) {
    return error(Code::kInvalidArgument, "losses do not fit the probes");
  }
  for (const double loss : results.clean) {
    if (!std::isfinite(loss)) {
      return error(Code::kOutOfRange, "the clean loss is not finite: the weights are broken");
    }
  }
  Sensitivity out;
  for (std::size_t i = 0; i < results.probes.size(); ++i) {
    const Probe& probe = results.probes[i];
    if (results.losses[i].size() != results.clean.size() || probe.layers.empty()) {
      return error(Code::kInvalidArgument, fmt::format("losses of probe {} do not fit", i));
    }
    out.places_[{probe.kind, probe.layers, probe.eps}].push_back({probe.draw, i});
  }
  out.results_ = std::move(results);
  out.options_ = options;
  out.layers_ = layers;
  return out;
}

Result<double> Sensitivity::change(Perturbation kind, const std::vector<int>& layers, double eps,
                                   int only_draw, int without_sequence, int without_draw) const {
  const auto found = places_.find({kind, layers, eps});
  if (found == places_.end()) return error(Code::kInvalidArgument, "was not probed");
  double sum = 0;
  int draws = 0;
  for (const auto& [draw, index] : found->second) {
    if ((only_draw >= 0 && draw != only_draw) || draw == without_draw) continue;
    double difference = 0;
    int sequences = 0;
    for (std::size_t s = 0; s < results_.clean.size(); ++s) {
      if (static_cast<int>(s) == without_sequence) continue;
      difference += results_.losses[index][s] - results_.clean[s];
      ++sequences;
    }
    if (sequences == 0) return error(Code::kInvalidArgument, "one sequence only");
    sum +=
        difference / (static_cast<double>(sequences) * static_cast<double>(results_.scored_tokens));
    ++draws;
  }
  if (draws == 0) return error(Code::kInvalidArgument, "one draw only: no standard error");
  if (!std::isfinite(sum)) {
    return error(Code::kOutOfRange,
                 fmt::format("the loss is not finite with layer {} perturbed at eps {}",
                             layers.front(), eps));
  }
  return sum / draws;
}

Estimate Sensitivity::clean_loss() const {
  return crossed_estimate(sequences(), 0, [&](int without, int) -> Result<double> {
    double sum = 0;
    int count = 0;
    for (int s = 0; s < sequences(); ++s) {
      if (s == without) continue;
      sum += results_.clean[static_cast<std::size_t>(s)];
      ++count;
    }
    return sum / (count * static_cast<double>(results_.scored_tokens));
  });
}

Result<std::vector<double>> Sensitivity::lambdas(Perturbation kind, int sequence, int draw) const {
  std::vector<double> out;
  for (int layer = 0; layer < layers_; ++layer) {
    if (kind == Perturbation::kAblation) {
      TAILOR_ASSIGN_OR_RETURN(const double value, change(kind, {layer}, 1.0, -1, sequence, draw));
      out.push_back(value);
      continue;
    }
    std::vector<double> changes;
    for (const double e : options_.eps) {
      TAILOR_ASSIGN_OR_RETURN(const double value, change(kind, {layer}, e, -1, sequence, draw));
      changes.push_back(value);
    }
    out.push_back(fit_slope(options_.eps, changes).slope);
  }
  return out;
}

std::vector<LayerSensitivity> Sensitivity::layers(Perturbation kind) const {
  std::vector<LayerSensitivity> all;
  const int draws = is_random(kind) ? options_.draws : 0;
  const std::vector<double> eps =
      kind == Perturbation::kAblation ? std::vector<double>{1.0} : options_.eps;
  for (int layer = 0; layer < layers_; ++layer) {
    LayerSensitivity out;
    out.eps = eps;
    for (const double e : eps) {
      out.loss_changes.push_back(crossed_estimate(
          sequences(), draws, [&](int s, int r) { return change(kind, {layer}, e, -1, s, r); }));
    }
    const auto fitted = [&](int s, int r) -> Result<SlopeFit> {
      std::vector<double> changes;
      for (const double e : eps) {
        TAILOR_ASSIGN_OR_RETURN(const double value, change(kind, {layer}, e, -1, s, r));
        changes.push_back(value);
      }
      return fit_slope(eps, changes);
    };
    if (kind == Perturbation::kAblation) {
      out.lambda = out.loss_changes.front();
      out.linear = absent("ablation has one eps");
    } else {
      out.lambda = crossed_estimate(sequences(), draws, [&](int s, int r) -> Result<double> {
        TAILOR_ASSIGN_OR_RETURN(const SlopeFit fit, fitted(s, r));
        return fit.slope;
      });
      out.linear = eps.size() < 2
                       ? absent("one eps only: no linear part")
                       : crossed_estimate(sequences(), draws, [&](int s, int r) -> Result<double> {
                           TAILOR_ASSIGN_OR_RETURN(const SlopeFit fit, fitted(s, r));
                           return fit.linear;
                         });
      if (const auto fit = fitted(-1, -1)) out.r_squared = fit->r_squared;
    }
    all.push_back(std::move(out));
  }
  return all;
}

Result<SubsetPoint> Sensitivity::subset_point(const Probe& probe, int without_sequence) const {
  SubsetPoint point{probe.eps, probe.layers, probe.draw, 0, 0};
  TAILOR_ASSIGN_OR_RETURN(
      point.change, change(probe.kind, probe.layers, probe.eps, probe.draw, without_sequence, -1));
  for (const int layer : probe.layers) {
    TAILOR_ASSIGN_OR_RETURN(const double alone, change(probe.kind, {layer}, probe.eps, probe.draw,
                                                       without_sequence, -1));
    point.sum += alone;
  }
  return point;
}

std::vector<const Probe*> Sensitivity::subset_probes(double eps, int size) const {
  std::vector<const Probe*> found;
  for (const Probe& probe : results_.probes) {
    const auto layers = static_cast<int>(probe.layers.size());
    if (layers > 1 && probe.kind == primary() && probe.eps == eps &&
        (size == 0 || layers == size)) {
      found.push_back(&probe);
    }
  }
  return found;
}

std::vector<SubsetPoint> Sensitivity::subset_points() const {
  std::vector<SubsetPoint> points;
  for (const Probe& probe : results_.probes) {
    if (probe.layers.size() < 2 || probe.kind != primary()) continue;
    if (auto point = subset_point(probe, -1)) points.push_back(std::move(*point));
  }
  return points;
}

AdditivitySummary Sensitivity::summary(double eps, int size) const {
  AdditivitySummary out;
  out.eps = eps;
  out.size = size;
  const std::vector<const Probe*> probes = subset_probes(eps, size);
  out.subsets = probes.size();
  const auto points = [&](int without) -> Result<std::vector<SubsetPoint>> {
    std::vector<SubsetPoint> all;
    for (const Probe* probe : probes) {
      TAILOR_ASSIGN_OR_RETURN(SubsetPoint point, subset_point(*probe, without));
      all.push_back(std::move(point));
    }
    return all;
  };
  const auto ratios = [&](int without) -> Result<std::vector<double>> {
    TAILOR_ASSIGN_OR_RETURN(const std::vector<SubsetPoint> all, points(without));
    std::vector<double> out_ratios;
    for (const SubsetPoint& point : all) {
      if (point.sum == 0) {
        return error(Code::kInvalidArgument, "a sum of loss changes is 0: the ratio is undefined");
      }
      out_ratios.push_back(point.change / point.sum);
    }
    return out_ratios;
  };
  if (probes.empty()) {
    out.median = out.mean_change = absent("no subset was probed");
    out.reason = out.median.reason;
    return out;
  }
  out.median = crossed_estimate(sequences(), 0, [&](int without, int) -> Result<double> {
    TAILOR_ASSIGN_OR_RETURN(std::vector<double> all, ratios(without));
    return quantile(std::move(all), 0.5);
  });
  out.mean_change = crossed_estimate(sequences(), 0, [&](int without, int) -> Result<double> {
    TAILOR_ASSIGN_OR_RETURN(const std::vector<SubsetPoint> all, points(without));
    double sum = 0;
    for (const SubsetPoint& point : all) sum += point.change;
    return sum / static_cast<double>(all.size());
  });
  if (const auto all = ratios(-1)) {
    out.low = quantile(*all, 0.05);
    out.high = quantile(*all, 0.95);
  }
  if (const auto all = points(-1)) {
    std::vector<double> x, y;
    for (const SubsetPoint& point : *all) {
      x.push_back(point.sum);
      y.push_back(point.change);
    }
    const auto r = pearson(x, y);
    if (r) {
      out.r_squared = *r * *r;
    } else {
      out.reason = r.error().message();
    }
  } else {
    out.reason = all.error().message();
  }
  return out;
}

std::vector<AdditivitySummary> Sensitivity::additivity() const {
  std::vector<AdditivitySummary> all;
  const std::vector<double> eps =
      primary() == Perturbation::kAblation ? std::vector<double>{1.0} : options_.eps;
  for (const double e : eps) {
    std::set<int> sizes;
    for (const Probe* probe : subset_probes(e, 0)) {
      sizes.insert(static_cast<int>(probe->layers.size()));
    }
    for (const int size : sizes) all.push_back(summary(e, size));
    all.push_back(summary(e, 0));
  }
  return all;
}

Result<bool> Sensitivity::locally_additive() const {
  for (const AdditivitySummary& summary : additivity()) {
    if (summary.size != 0) continue;
    const Estimate& change = summary.mean_change;
    if (!change.value || !change.standard_error) {
      return error(Code::kFailedPrecondition, change.reason);
    }
    if (!(std::abs(*change.value) > kErrorsBeyond * *change.standard_error)) continue;
    if (!summary.median.value) return error(Code::kFailedPrecondition, summary.median.reason);
    return std::abs(*summary.median.value - 1) <= kWithin;
  }
  return error(Code::kFailedPrecondition,
               "no eps has a loss change above 3 standard errors: take more sequences");
}

}  // namespace tailor::diagnose
