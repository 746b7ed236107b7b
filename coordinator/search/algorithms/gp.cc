// Bayesian optimisation: a Gaussian process (gaussian_process.h) over what is known, and the point
// where the logarithm of the expected improvement is largest.
//
// Costs are standardised; where they are skewed to the bad side (diverged runs) their logarithm
// above
// the best is, log(1 + (y - best) / (median - best)), which is linear near the best. Several
// objectives: ParEGO (Knowles 2006), each proposal by its own drawn weights w,
// max_i(w_i z_i) + 0.05 sum_i w_i z_i of the costs z scaled to [0, 1].
//
// Stopped outcomes count with their last value, but no better than the median. What runs is
// believed
// to come out as predicted: it narrows the band there and nothing else. Failures: a second process
// over 1 = went well, 0 = failed, gives log Phi((p - 1/2) / sd), which is added; each limit has a
// process of its own, and the probability of keeping it is added. The best that improvement is
// measured by is the lowest predicted mean over the points that went well, so noise is not chased.
//
// The acquisition is asked at feasible draws and at changes of the best points, and the best of
// these climb by steps that shrink. Above kObservationsMax outcomes the process sees the best half
// of
// them and the latest. The first max(10, 2 d) proposals are Sobol points.
//
// Cost: at n outcomes O(n^3 / 3) and some hundred predictions of O(n^2).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "coordinator/search/acquisition.h"
#include "coordinator/search/gaussian_process.h"
#include "coordinator/search/neighbours.h"
#include "coordinator/search/proposer.h"
#include "coordinator/search/ranking.h"

namespace tailor::search {
namespace {

constexpr std::size_t kGpStartup = 10;
constexpr std::size_t kObservationsMax = 600;
/// Feasible draws, and looks that they may take.
constexpr std::size_t kPool = 300, kPoolLooks = 1'000;
/// A space up to so many points is asked whole.
constexpr std::uint64_t kPoolWhole = 1'000;
constexpr std::size_t kIncumbents = 5;
constexpr std::uint32_t kGpAttempts = 3;
constexpr double kParegoSum = 0.05;

/// Values made fit for a process: mean 0, variance 1, and the map that did it.
class Standardised {
 public:
  explicit Standardised(std::span<const double> values) {
    std::vector<double> sorted(values.begin(), values.end());
    std::sort(sorted.begin(), sorted.end());
    lowest_ = sorted.front();
    span_ = sorted[sorted.size() / 2] - lowest_;
    moments(values);
    double skew = 0;
    for (const double value : values) skew += std::pow((value - mean_) / sd_, 3);
    skew /= static_cast<double>(values.size());
    if (skew > 1 && span_ > 0) {
      log_ = true;
      moments(values);
    }
  }
  double operator()(double value) const { return (shaped(value) - mean_) / sd_; }

 private:
  double shaped(double value) const {
    return log_ ? std::log1p(std::max(0.0, value - lowest_) / span_) : value;
  }
  void moments(std::span<const double> values) {
    double sum = 0, square = 0;
    for (const double value : values) sum += shaped(value);
    mean_ = sum / static_cast<double>(values.size());
    for (const double value : values) square += std::pow(shaped(value) - mean_, 2);
    sd_ = std::sqrt(square / static_cast<double>(values.size()));
    if (!(sd_ > 1e-300)) sd_ = 1;
  }
  double lowest_ = 0, span_ = 0, mean_ = 0, sd_ = 1;
  bool log_ = false;
};

/// What a limit's process says: P(measure <= bound), or >=.
struct LimitModel {
  GaussianProcess process;
  double bound = 0;  // standardised
  bool at_least = false;
};

class GpProposer final : public Proposer {
 public:
  explicit GpProposer(const Context& context)
      : context_(context), startup_(make_sobol_proposer(context)) {
    const std::size_t wanted = context_.settings.startup > 0
                                   ? context_.settings.startup
                                   : std::max(kGpStartup, 2 * context_.space.size());
    order_ = ranked(context_.history, context_.settings);
    models_ = order_.size() >= wanted;
    if (order_.size() > kObservationsMax) thin_out();
  }

  std::vector<sweep::Point> propose(std::uint64_t ordinal, std::uint32_t attempt) override {
    if (!models_) return startup_->propose(ordinal, attempt);
    if (attempt >= kGpAttempts) return {};
    build(ordinal);
    Rng rng = stream(context_, "gp", ordinal, attempt);
    std::vector<sweep::Point> out;
    for (const Scored& scored : climb(pool(rng), rng)) {
      out.push_back(context_.space.decode(scored.x));
    }
    return out;
  }

  void accept(const sweep::Point& point) override {
    if (auto x = context_.space.encode(point)) {
      accepted_.push_back(*x);
      if (objective_) objective_->believe(*x);
    }
  }

 private:
  struct Scored {
    double value = 0;
    Coordinates x;
  };

  /// The best half, and the latest of the rest.
  void thin_out() {
    const std::size_t half = kObservationsMax / 2;
    std::vector<std::size_t> rest;
    for (std::size_t i = half; i < order_.size(); ++i) rest.push_back(order_[i].index);
    std::nth_element(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(half - 1), rest.end(),
                     std::greater<>());
    const std::size_t oldest = rest[half - 1];
    std::size_t kept = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (i < half || order_[i].index >= oldest) order_[kept++] = order_[i];
    }
    order_.resize(kept);
  }

  bool several() const { return context_.settings.objectives.size() > 1; }

  /// One cost for each record that has values; by drawn weights where there are several.
  double scalar(const std::vector<double>& costs) const {
    if (!several()) return costs[0];
    double most = 0, sum = 0;
    for (std::size_t i = 0; i < costs.size(); ++i) {
      const double z = (costs[i] - low_[i]) / std::max(high_[i] - low_[i], 1e-300);
      most = std::max(most, weights_[i] * z);
      sum += weights_[i] * z;
    }
    return most + kParegoSum * sum;
  }

  void draw_weights(std::uint64_t ordinal) {
    const std::size_t m = context_.settings.objectives.size();
    Rng rng = stream(context_, "parego", ordinal, 0);
    weights_.assign(m, 0.0);
    double total = 0;
    for (double& weight : weights_) total += weight = -std::log(1 - rng.uniform());
    for (double& weight : weights_) weight /= total;
    low_.assign(m, std::numeric_limits<double>::infinity());
    high_.assign(m, -std::numeric_limits<double>::infinity());
    for (const RankedRecord& record : order_) {
      if (record.standing != Standing::kGood && record.standing != Standing::kOver) continue;
      const std::vector<double> costs =
          costs_of(context_.history.judged(record.index), context_.settings);
      for (std::size_t i = 0; i < m; ++i) {
        if (!std::isfinite(costs[i])) continue;
        low_[i] = std::min(low_[i], costs[i]);
        high_[i] = std::max(high_[i], costs[i]);
      }
    }
  }

  /// Fits all that this proposal needs; with one objective once for a whole answer.
  void build(std::uint64_t ordinal) {
    if (built_ && !several()) return;
    built_ = true;
    objective_.reset();
    if (several()) draw_weights(ordinal);
    struct Observation {
      double value = 0;
      Coordinates x;
      Standing standing = Standing::kGood;
    };
    std::vector<Observation> seen;
    std::vector<double> completed;
    for (const RankedRecord& record : order_) {
      if (record.standing == Standing::kFailed) continue;
      if (record.standing == Standing::kStopped && several()) continue;
      const Judged& judged = context_.history.judged(record.index);
      const double value = record.standing == Standing::kStopped
                               ? cost(judged, context_.settings, 0)
                               : scalar(costs_of(judged, context_.settings));
      if (!std::isfinite(value)) continue;
      if (record.standing != Standing::kStopped) completed.push_back(value);
      seen.push_back({value, context_.history.coordinates(record.index), record.standing});
    }
    if (!completed.empty()) {
      std::nth_element(completed.begin(),
                       completed.begin() + static_cast<std::ptrdiff_t>(completed.size() / 2),
                       completed.end());
      const double median = completed[completed.size() / 2];
      for (Observation& one : seen) {
        if (one.standing == Standing::kStopped) one.value = std::max(one.value, median);
      }
    }
    const std::uint64_t fit_seed = keyed_u64(context_.seed, context_.history.size(), 1);
    if (seen.size() >= 2) {
      std::stable_sort(seen.begin(), seen.end(),
                       [](const auto& a, const auto& b) { return a.value < b.value; });
      std::vector<double> values;
      for (const Observation& one : seen) values.push_back(one.value);
      const Standardised scale(values);
      std::vector<Coordinates> x, good;
      std::vector<double> y;
      for (const std::size_t i : spread_order(seen.size())) {
        x.push_back(seen[i].x);
        y.push_back(scale(seen[i].value));
      }
      for (const Observation& one : seen) {
        if (one.standing == Standing::kGood) good.push_back(one.x);
      }
      objective_.emplace(context_.space, std::move(x), std::move(y));
      objective_->fit(fit_seed);
      best_ = std::numeric_limits<double>::infinity();
      const std::size_t few = std::min<std::size_t>(good.size(), 60);
      std::vector<Coordinates> front(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(few));
      for (const Prediction& p : objective_->predict(front)) best_ = std::min(best_, p.mean);
      incumbents_.assign(front.begin(),
                         front.begin() + static_cast<std::ptrdiff_t>(std::min(few, kIncumbents)));
    }
    build_success(fit_seed);
    build_limits(fit_seed);
    for (const std::size_t i : running(context_.history)) {
      if (objective_) objective_->believe(context_.history.coordinates(i));
    }
    if (objective_) {
      for (const Coordinates& x : accepted_) objective_->believe(x);
    }
  }

  /// 0 .. n-1 (the best first) so that the first kFitMax stand for all: the best third of them, and
  /// evenly spaced ones of the rest.
  static std::vector<std::size_t> spread_order(std::size_t n) {
    std::vector<std::size_t> out;
    constexpr std::size_t kMax = GaussianProcess::kFitMax;
    if (n > kMax) {
      const std::size_t best = kMax / 3;
      std::vector<char> taken(n, 0);
      for (std::size_t i = 0; i < best; ++i) taken[i] = 1;
      for (std::size_t i = 0; i < kMax - best; ++i) {
        taken[best + i * (n - best) / (kMax - best)] = 1;
      }
      for (std::size_t i = 0; i < n; ++i) {
        if (taken[i]) out.push_back(i);
      }
      for (std::size_t i = 0; i < n; ++i) {
        if (!taken[i]) out.push_back(i);
      }
      return out;
    }
    out.resize(n);
    std::iota(out.begin(), out.end(), std::size_t{0});
    return out;
  }

  void build_success(std::uint64_t fit_seed) {
    success_.reset();
    std::vector<Coordinates> x;
    std::vector<double> y;
    std::size_t failed = 0;
    for (const RankedRecord& record : order_) {
      x.push_back(context_.history.coordinates(record.index));
      y.push_back(record.standing == Standing::kFailed ? -1.0 : 1.0);
      failed += record.standing == Standing::kFailed;
    }
    if (failed == 0) return;
    // The failed stand last in the order: mixed, so that a fit sees both.
    const std::size_t step = x.size() > GaussianProcess::kFitMax ? 7 : 1;
    std::vector<Coordinates> mixed_x;
    std::vector<double> mixed_y;
    for (std::size_t first = 0; first < step; ++first) {
      for (std::size_t i = first; i < x.size(); i += step) {
        mixed_x.push_back(std::move(x[i]));
        mixed_y.push_back(y[i]);
      }
    }
    success_.emplace(context_.space, std::move(mixed_x), std::move(mixed_y));
    success_->fit(fit_seed, 1);
  }

  void build_limits(std::uint64_t fit_seed) {
    limits_.clear();
    const Settings& settings = context_.settings;
    for (std::size_t k = 0; k < settings.limits.size(); ++k) {
      std::vector<Coordinates> x;
      std::vector<double> values;
      for (const RankedRecord& record : order_) {
        const std::vector<double>& all = context_.history.judged(record.index).values;
        const std::size_t at = settings.objectives.size() + k;
        if (at >= all.size() || !std::isfinite(all[at])) continue;
        x.push_back(context_.history.coordinates(record.index));
        values.push_back(all[at]);
      }
      if (x.size() < 2) continue;
      double mean = 0, square = 0;
      for (const double value : values) mean += value / static_cast<double>(values.size());
      for (const double value : values) square += (value - mean) * (value - mean);
      const double sd = std::max(std::sqrt(square / static_cast<double>(values.size())), 1e-300);
      for (double& value : values) value = (value - mean) / sd;
      GaussianProcess process(context_.space, std::move(x), std::move(values));
      process.fit(fit_seed, 1);
      limits_.push_back({std::move(process), (settings.limits[k].bound - mean) / sd,
                         settings.limits[k].at_least});
    }
  }

  std::vector<Scored> score(std::vector<Coordinates> points) const {
    std::vector<double> values(points.size(), 0.0);
    if (objective_ && std::isfinite(best_)) {
      const std::vector<Prediction> at = objective_->predict(points);
      for (std::size_t i = 0; i < points.size(); ++i) {
        values[i] = log_expected_improvement(at[i].mean, at[i].sd, best_);
      }
    }
    if (success_) {
      const std::vector<Prediction> at = success_->predict(points);
      for (std::size_t i = 0; i < points.size(); ++i) {
        values[i] += log_normal_cdf(at[i].mean / std::max(at[i].sd, 0.1));
      }
    }
    for (const LimitModel& limit : limits_) {
      const std::vector<Prediction> at = limit.process.predict(points);
      for (std::size_t i = 0; i < points.size(); ++i) {
        const double z = (limit.bound - at[i].mean) / std::max(at[i].sd, 1e-9);
        values[i] += log_normal_cdf(limit.at_least ? -z : z);
      }
    }
    std::vector<Scored> out;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double value =
          std::isnan(values[i]) ? -std::numeric_limits<double>::infinity() : values[i];
      out.push_back({value, std::move(points[i])});
    }
    return out;
  }

  bool feasible(const Coordinates& x) const {
    return context_.space.look(context_.space.decode(x)).feasible;
  }

  /// True when it is no candidate: infeasible, or one that was given.
  bool refused(const Coordinates& x) const {
    const Look look = context_.space.look(context_.space.decode(x));
    return !look.feasible || (context_.settings.duplicates != Duplicates::kReplicate &&
                              context_.history.find(look.hash).has_value());
  }

  std::vector<Scored> pool(Rng& rng) const {
    const Space& space = context_.space;
    std::vector<Coordinates> points;
    if (space.points() > 0 && space.points() <= kPoolWhole) {
      for (std::uint64_t i = 0; i < space.points(); ++i) {
        const auto point = space.grid_point(i);
        if (!point) continue;
        auto x = space.encode(*point);
        if (x && feasible(*x)) points.push_back(*std::move(x));
      }
      return score(std::move(points));
    }
    for (std::size_t looks = 0; looks < kPoolLooks && points.size() < kPool; ++looks) {
      Coordinates x = space.draw(rng);
      if (feasible(x)) points.push_back(std::move(x));
    }
    for (int i = 0; points.size() < 8 && i < 8; ++i) {
      auto x = space.draw_feasible(rng);
      if (!x) break;
      points.push_back(*std::move(x));
    }
    std::vector<Scored> out = score(std::move(points));
    // Around the best, where most are feasible: scored first, looked at only when they win.
    std::vector<Coordinates> near;
    for (const Coordinates& x : incumbents_) {
      for (const double scale : {0.2, 0.05, 0.01}) {
        for (int i = 0; i < 4; ++i) near.push_back(jitter(space, x, scale, rng));
      }
      for (int i = 0; i < 8; ++i) near.push_back(mutate_one(space, x, 0.1, rng));
      for (int i = 0; i < 4; ++i) near.push_back(trade(space, x, 0.1, rng));
    }
    std::vector<Scored> close = score(std::move(near));
    std::stable_sort(close.begin(), close.end(),
                     [](const Scored& a, const Scored& b) { return a.value > b.value; });
    std::size_t found = 0;
    for (std::size_t i = 0; i < close.size() && found < 12; ++i) {
      if (!feasible(close[i].x)) continue;
      out.push_back(std::move(close[i]));
      ++found;
    }
    return out;
  }

  /// The best of the pool, each climbed; the best first. Those behind them follow unclimbed.
  std::vector<Scored> climb(std::vector<Scored> points, Rng& rng) const {
    std::stable_sort(points.begin(), points.end(),
                     [](const Scored& a, const Scored& b) { return a.value > b.value; });
    // What was given cannot be proposed again, however good it looks.
    std::vector<Scored> open;
    for (Scored& point : points) {
      if (open.size() >= 24) break;
      if (!refused(point.x)) open.push_back(std::move(point));
    }
    const bool large = order_.size() > 200;
    const std::size_t climbers = std::min<std::size_t>(open.size(), large ? 3 : 5);
    const int rounds = large ? 8 : 14, steps = large ? 10 : 16;
    for (std::size_t i = 0; i < climbers; ++i) {
      double scale = 0.1;
      for (int round = 0; round < rounds; ++round) {
        std::vector<Coordinates> around;
        for (int k = 0; k < steps; ++k) {
          const bool one = k % 2 == 0;
          around.push_back(one ? mutate_one(context_.space, open[i].x, scale, rng)
                               : jitter(context_.space, open[i].x, scale, rng));
        }
        std::vector<Scored> scored = score(std::move(around));
        std::stable_sort(scored.begin(), scored.end(),
                         [](const Scored& a, const Scored& b) { return a.value > b.value; });
        bool better = false;
        for (Scored& next : scored) {
          if (!(next.value > open[i].value)) break;
          if (refused(next.x)) continue;
          open[i] = std::move(next);
          better = true;
          break;
        }
        if (!better) scale *= 0.5;
      }
    }
    std::stable_sort(open.begin(), open.end(),
                     [](const Scored& a, const Scored& b) { return a.value > b.value; });
    return open;
  }

  const Context context_;
  const std::unique_ptr<Proposer> startup_;
  std::vector<RankedRecord> order_;
  std::vector<Coordinates> accepted_, incumbents_;
  std::vector<double> weights_, low_, high_;  // of ParEGO
  bool models_ = false, built_ = false;
  double best_ = std::numeric_limits<double>::infinity();
  std::optional<GaussianProcess> objective_, success_;
  std::vector<LimitModel> limits_;
};

}  // namespace

std::unique_ptr<Proposer> make_gp_proposer(const Context& context) {
  return std::make_unique<GpProposer>(context);
}

}  // namespace tailor::search
