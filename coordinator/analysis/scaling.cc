#include "coordinator/analysis/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "coordinator/analysis/outcomes.h"

namespace tailor::analysis {
namespace {

enum class Measure { kParameters, kCompute };

double measure_of(const ScalingPoint& point, Measure measure) {
  return measure == Measure::kParameters ? static_cast<double>(point.parameters_body) : point.flops;
}

class Builder {
 public:
  Builder(const ScalingDesign& design, const Collection& all, std::size_t baseline)
      : design_(design), all_(all), baseline_(baseline) {}

  ScalingTable build() {
    std::uint64_t losses = 0;
    for (std::size_t f = 0; f < design_.families.size(); ++f) {
      losses += 4 * design_.sizes.size() * all_.seeds.size();
    }
    table_.baseline = design_.families[baseline_];
    table_.seeds = static_cast<std::uint32_t>(all_.seeds.size());
    table_.resamples = affordable_resamples(losses);
    for (std::size_t f = 0; f < design_.families.size(); ++f) {
      table_.families.push_back(family_of(f));
    }
    write_notes();
    return std::move(table_);
  }

 private:
  const Collected& outcome(const ScalingPoint& point) const {
    static const Collected kNothing;
    if (!point.candidate || *point.candidate >= all_.candidates.size()) return kNothing;
    return all_.candidates[*point.candidate];
  }

  /// Seeds that finished at every size of all `families` and were trained on one data set.
  std::vector<std::uint64_t> complete_seeds(const std::vector<std::size_t>& families) const {
    std::vector<std::uint64_t> seeds;
    for (const std::uint64_t seed : all_.seeds) {
      bool complete = true;
      std::string_view data;
      for (const std::size_t f : families) {
        for (std::size_t s = 0; s < design_.sizes.size() && complete; ++s) {
          const auto& by_seed = outcome(design_.at(f, s)).by_seed;
          const auto found = by_seed.find(seed);
          if (found == by_seed.end()) {
            complete = false;
            break;
          }
          const Provenance* source = found->second.source;
          if (source == nullptr || source->data_hash.empty()) continue;
          if (!data.empty() && data != source->data_hash) complete = false;
          data = source->data_hash;
        }
      }
      if (complete) seeds.push_back(seed);
    }
    return seeds;
  }

  Curve curve_of(std::size_t family, const std::vector<std::uint64_t>& seeds,
                 Measure measure) const {
    // By size: the design's order need not be.
    std::vector<std::size_t> order = by_size(family, measure);
    Curve curve;
    for (const std::size_t s : order) {
      const ScalingPoint& point = design_.at(family, s);
      curve.x.push_back(measure_of(point, measure));
      std::vector<double>& losses = curve.losses.emplace_back();
      for (const std::uint64_t seed : seeds) {
        losses.push_back(outcome(point).by_seed.at(seed).value);
      }
    }
    return curve;
  }

  std::vector<std::size_t> by_size(std::size_t family, Measure measure) const {
    std::vector<std::size_t> order(design_.sizes.size());
    for (std::size_t s = 0; s < order.size(); ++s) order[s] = s;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return measure_of(design_.at(family, a), measure) <
             measure_of(design_.at(family, b), measure);
    });
    return order;
  }

  /// Sizes that are different ones, so that there is something to fit.
  std::size_t distinct_sizes(std::size_t family, Measure measure) const {
    std::set<double> sizes;
    for (std::size_t s = 0; s < design_.sizes.size(); ++s) {
      const double x = measure_of(design_.at(family, s), measure);
      if (x > 0 && std::isfinite(x)) sizes.insert(x);
    }
    return sizes.size();
  }

  ScalingFamily family_of(std::size_t f) const {
    ScalingFamily out;
    out.name = design_.families[f];
    for (std::size_t s = 0; s < design_.sizes.size(); ++s) {
      out.sizes.push_back(size_row(f, s));
      out.incomplete = out.incomplete || out.sizes[s].failed > 0 || out.sizes[s].stopped > 0;
    }
    out.seeds = complete_seeds({f});
    out.seeds_left_out = static_cast<std::uint32_t>(all_.seeds.size() - out.seeds.size());
    if (!fittable(f, out)) return out;
    JointLaws laws({curve_of(f, out.seeds, Measure::kParameters)}, table_.resamples, kScalingSeed);
    out.in_parameters = report(laws, 0, curve_of(f, out.seeds, Measure::kParameters).x);
    const std::vector<std::size_t> order = by_size(f, Measure::kParameters);
    for (std::size_t i = 0; i < order.size(); ++i) {
      ScalingSizeRow& row = out.sizes[order[i]];
      row.centre = laws.centres(0)[i];
      row.residual = *row.centre - laws.laws()[0].at(static_cast<double>(row.parameters_body));
    }
    JointLaws compute({curve_of(f, out.seeds, Measure::kCompute)}, table_.resamples, kScalingSeed);
    out.in_compute = report(compute, 0, curve_of(f, out.seeds, Measure::kCompute).x);
    if (f != baseline_) add_gains(f, out);
    return out;
  }

  bool fittable(std::size_t f, ScalingFamily& out) const {
    std::vector<std::string> missing;
    for (std::size_t s = 0; s < design_.sizes.size(); ++s) {
      if (!design_.at(f, s).candidate) missing.push_back(design_.sizes[s]);
    }
    if (!missing.empty()) {
      out.note = fmt::format("no candidate at {}: no law", fmt::join(missing, ", "));
      return false;
    }
    const std::size_t sizes =
        std::min(distinct_sizes(f, Measure::kParameters), distinct_sizes(f, Measure::kCompute));
    if (sizes < design_.sizes.size() || sizes < kScalingSizesMin) {
      out.note = fmt::format("{} different sizes: a law of three numbers needs {} that differ all",
                             sizes, kScalingSizesMin);
      return false;
    }
    if (out.seeds.empty()) {
      out.note = fmt::format("of {} seeds none has finished at every size on one data set: no law",
                             all_.seeds.size());
      return false;
    }
    if (out.seeds_left_out > 0) {
      out.note = fmt::format(
          "{} of {} seeds are left out: not finished at every size, or trained on "
          "different data",
          out.seeds_left_out, all_.seeds.size());
    }
    if (out.incomplete) {
      out.note += fmt::format(
          "{}incomplete: seeds failed or were stopped early, so the law is of "
          "those that survived and there is no verdict",
          out.note.empty() ? "" : "; ");
    }
    return true;
  }

  ScalingSizeRow size_row(std::size_t f, std::size_t s) const {
    const ScalingPoint& point = design_.at(f, s);
    const Collected& of = outcome(point);
    ScalingSizeRow row;
    row.size = design_.sizes[s];
    row.candidate = point.name;
    row.parameters_body = point.parameters_body;
    row.flops = point.flops;
    row.finished = static_cast<std::uint32_t>(of.by_seed.size());
    row.failed = of.failed;
    row.stopped = of.stopped;
    row.lost = of.lost;
    std::vector<double> values;
    for (const auto& [seed, value] : of.by_seed) values.push_back(value.value);
    if (!values.empty()) {
      row.mean = mean_of(values);
      double squares = 0;
      for (const double value : values) squares += (value - *row.mean) * (value - *row.mean);
      const double sd = std::sqrt(squares / (static_cast<double>(values.size()) - 1));
      if (values.size() >= 2 && std::isfinite(sd)) row.sd = sd;
    }
    if (f == baseline_) return row;
    std::vector<double> differences;
    for (const std::uint64_t seed : complete_at(f, s)) {
      const double difference =
          of.by_seed.at(seed).value - outcome(design_.at(baseline_, s)).by_seed.at(seed).value;
      if (std::isfinite(difference)) differences.push_back(difference);
    }
    row.paired = summarize_pairs(differences);
    const Collected& base = outcome(design_.at(baseline_, s));
    if (of.failed + of.stopped + base.failed + base.stopped > 0) drop_tests(row.paired);
    return row;
  }

  /// Seeds with a value at size `s` of family `f` and of the baseline, on one data set.
  std::vector<std::uint64_t> complete_at(std::size_t f, std::size_t s) const {
    std::vector<std::uint64_t> seeds;
    const auto& theirs = outcome(design_.at(baseline_, s)).by_seed;
    for (const auto& [seed, mine] : outcome(design_.at(f, s)).by_seed) {
      const auto other = theirs.find(seed);
      if (other == theirs.end()) continue;
      const Provenance* a = mine.source;
      const Provenance* b = other->second.source;
      const bool known =
          a != nullptr && b != nullptr && !a->data_hash.empty() && !b->data_hash.empty();
      if (known && a->data_hash != b->data_hash) continue;
      seeds.push_back(seed);
    }
    return seeds;
  }

  static ScalingCurve report(const JointLaws& laws, std::size_t curve,
                             const std::vector<double>& x) {
    const PowerLaw& law = laws.laws()[curve];
    ScalingCurve out;
    out.unit = law.unit;
    out.rms_residual = law.rms_residual;
    const auto value = [&](auto field, bool log) {
      const auto spread = laws.spread(
          [&](std::span<const PowerLaw> all) -> std::optional<double> {
            if (!all[curve].decreasing) return std::nullopt;
            return field(all[curve]);
          },
          log);
      return spread.estimate;
    };
    if (!law.decreasing) {
      out.irreducible.value = law.irreducible;
      out.note = "the losses do not fall with size: no exponent";
    } else {
      out.irreducible = *value([](const PowerLaw& l) { return l.irreducible; }, false);
      if (out.irreducible.low) out.irreducible.low = std::max(0.0, *out.irreducible.low);
      out.coefficient = *value([](const PowerLaw& l) { return l.coefficient; }, true);
      out.exponent = *value([](const PowerLaw& l) { return l.exponent; }, true);
      if (law.at_edge) {
        out.note = fmt::format(
            "the exponent stands at an end of the range searched ({} to {}): "
            "these sizes do not determine it",
            kExponentMin, kExponentMax);
      } else if (law.irreducible == 0) {
        out.note = "E stands at its bound 0: these sizes do not determine it, and alpha with it";
      }
    }
    if (x.size() == kScalingSizesMin) {
      out.note += fmt::format("{}three sizes for three numbers: nothing tests the law's form",
                              out.note.empty() ? "" : "; ");
    }
    const double low = std::log(x.front()), high = std::log(x.back());
    for (int i = 0; i < kBandPoints; ++i) {
      BandPoint point;
      point.x = i == 0                 ? x.front()
                : i == kBandPoints - 1 ? x.back()
                                       : std::exp(low + (high - low) * i / (kBandPoints - 1));
      point.loss = *laws.spread(
                            [&](std::span<const PowerLaw> all) -> std::optional<double> {
                              return all[curve].at(point.x);
                            },
                            false)
                        .estimate;
      out.band.push_back(point);
    }
    return out;
  }

  void add_gains(std::size_t f, ScalingFamily& out) const {
    const std::vector<std::uint64_t> seeds = complete_seeds({f, baseline_});
    out.gain_seeds = static_cast<std::uint32_t>(seeds.size());
    const std::size_t base_sizes = std::min(distinct_sizes(baseline_, Measure::kParameters),
                                            distinct_sizes(baseline_, Measure::kCompute));
    if (seeds.empty() || base_sizes < kScalingSizesMin) {
      out.text = fmt::format("no gain: no seed has finished at every size of \"{}\" and \"{}\"",
                             out.name, table_.baseline);
      return;
    }
    const Curve mine = curve_of(f, seeds, Measure::kCompute);
    const Curve theirs = curve_of(baseline_, seeds, Measure::kCompute);
    const double least = theirs.x.front(), most = theirs.x.back();
    const double low = std::max(mine.x.front(), least), high = std::min(mine.x.back(), most);
    const JointLaws laws({mine, theirs}, table_.resamples, kScalingSeed);
    const auto add = [&](std::string at, double flops) {
      ScalingGain gain;
      gain.at = std::move(at);
      gain.flops = flops;
      const auto spread = laws.spread(
          [&](std::span<const PowerLaw> all) -> std::optional<double> {
            const auto needed = all[1].inverse(all[0].at(flops));
            if (!needed) return std::nullopt;
            return *needed / flops;
          },
          true);
      gain.undefined_share = spread.undefined_share;
      if (!spread.estimate) {
        gain.note =
            fmt::format("\"{}\" reaches that loss at no compute by its law", table_.baseline);
      } else {
        const double needed = spread.estimate->value * flops;
        gain.extrapolated = needed < least || needed > most;
        gain.gain = LawEstimate{spread.estimate->value - 1, {}, {}};
        if (spread.estimate->low) {
          gain.gain->low = *spread.estimate->low - 1;
          gain.gain->high = *spread.estimate->high - 1;
        } else if (laws.n() >= 2) {
          gain.note = fmt::format(
              "no interval: in {:.0f} % of the resamples \"{}\" never reaches "
              "that loss",
              100 * spread.undefined_share, table_.baseline);
        }
      }
      out.gains.push_back(std::move(gain));
    };
    if (low < high) {
      add("middle", std::sqrt(low) * std::sqrt(high));
    }
    const std::vector<std::size_t> order = by_size(f, Measure::kCompute);
    for (const std::size_t s : order) add(design_.sizes[s], design_.at(f, s).flops);
    if (!(low < high)) {
      out.text = "no verdict: the families have no range of compute in common";
      return;
    }
    judge_gain(out, laws, outcome_incomplete(baseline_));
  }

  bool outcome_incomplete(std::size_t f) const {
    for (std::size_t s = 0; s < design_.sizes.size(); ++s) {
      const Collected& of = outcome(design_.at(f, s));
      if (of.failed > 0 || of.stopped > 0) return true;
    }
    return false;
  }

  void judge_gain(ScalingFamily& out, const JointLaws& laws, bool baseline_incomplete) const {
    const ScalingGain& middle = out.gains.front();
    const auto percent = [](double gain) { return fmt::format("{:+.1f} %", 100 * gain); };
    const std::string where =
        fmt::format("at {:.2e} FLOPs, the middle of the common range", middle.flops);
    if (!middle.gain) {
      out.text = fmt::format("no gain {}: {}", where, middle.note);
      return;
    }
    std::string text = fmt::format("compute-efficiency gain over \"{}\" {} {} (", table_.baseline,
                                   percent(middle.gain->value), where);
    if (middle.gain->low) {
      text += fmt::format("95 % interval [{}, {}], ", percent(*middle.gain->low),
                          percent(*middle.gain->high));
    }
    text += fmt::format("n = {} seed{}, {} paired bootstrap resamples)", laws.n(),
                        laws.n() == 1 ? "" : "s", laws.resamples());
    if (middle.extrapolated) text += "; read beyond the baseline's sizes";
    if (out.incomplete || baseline_incomplete) {
      out.text = fmt::format("no verdict: {}seeds failed or were stopped early; of those left: {}",
                             out.incomplete ? "" : "the baseline's ", text);
      return;
    }
    if (!middle.gain->low) {
      out.text = fmt::format("no verdict: {}; {}", text,
                             middle.note.empty() ? "one seed has no interval" : middle.note);
      return;
    }
    if (*middle.gain->low > 0) {
      out.verdict = ScalingVerdict::kMoreEfficient;
    } else if (*middle.gain->high < 0) {
      out.verdict = ScalingVerdict::kLessEfficient;
    } else {
      out.verdict = ScalingVerdict::kNotDistinguishable;
    }
    out.text = fmt::format("{}: {}", scaling_verdict_name(out.verdict), text);
  }

  void write_notes() {
    table_.notes.push_back(
        fmt::format("L(x) = E + A (x / unit)^-alpha by least squares through Huber centres over "
                    "seeds; intervals: "
                    "t with n - 1 degrees of freedom times the spread of {} paired bootstrap "
                    "resamples of seeds "
                    "(seed {})",
                    table_.resamples, kScalingSeed));
    if (design_.families.size() > 2) {
      table_.notes.push_back(fmt::format(
          "{} families are compared with \"{}\"; their intervals are not adjusted for that",
          design_.families.size() - 1, table_.baseline));
    }
  }

  const ScalingDesign& design_;
  const Collection& all_;
  const std::size_t baseline_;
  ScalingTable table_;
};

}  // namespace

std::string_view scaling_verdict_name(ScalingVerdict verdict) {
  switch (verdict) {
    case ScalingVerdict::kNone:
      return "";
    case ScalingVerdict::kMoreEfficient:
      return "more efficient";
    case ScalingVerdict::kLessEfficient:
      return "less efficient";
    case ScalingVerdict::kNotDistinguishable:
      return "not distinguishable";
  }
  return "";
}

Result<ScalingTable> compare_scaling(const ScalingDesign& design,
                                     std::span<const storage::TrialRow> trials,
                                     std::span<const Provenance> provenance,
                                     std::string_view baseline, std::string_view objective) {
  if (design.families.empty() || design.sizes.empty()) {
    return error(Code::kFailedPrecondition,
                 "this sweep has no [scaling] with families and sizes (docs/sweep-file.md)");
  }
  TAILOR_CHECK(design.points.size() == design.families.size() * design.sizes.size(), "{} points",
               design.points.size());
  if (objective.empty()) objective = kMainObjective;
  if (baseline.empty()) baseline = design.baseline;
  const auto found = std::find(design.families.begin(), design.families.end(), baseline);
  if (found == design.families.end()) {
    const std::vector<std::string_view> known(design.families.begin(), design.families.end());
    const std::string near = nearest_name(baseline, known);
    return error(
        Code::kInvalidArgument,
        fmt::format("no family is called \"{}\"{}; the families are {}", baseline.substr(0, 200),
                    near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
                    fmt::join(known, ", ")));
  }
  const Collection all = collect(trials, provenance, objective);
  TAILOR_RETURN_IF_ERROR(check_objective(all, trials, objective));
  Builder builder(design, all, static_cast<std::size_t>(found - design.families.begin()));
  ScalingTable table = builder.build();
  table.objective = std::string(objective);
  return table;
}

}  // namespace tailor::analysis
