// Tree-structured Parzen estimator, multivariate (Bergstra et al. 2011; Falkner et al. 2018), with
// a
// constant liar.
//
// The ranked outcomes are cut in two: the best g = min(ceil(0.1 n), 25) are good, the rest and all
// that run are bad. Each set is a density over the space, a mixture of one kernel an outcome and a
// uniform one:
//   p(x) = w_0 + sum_j w_j prod_i k_i(x_i; x_ji)
//   numbers   normal around x_ji, cut to [0, 1], with the width max(1.06 s_i m^(-1/(d+4)), floor)
//   of
//             its set: s_i the spread of axis i in it, at most 0.2 (a set may lie around several
//             optima), m its size, d the number of axes
//   choices   1 + c at the value, c elsewhere, normalised; c = 1/m
//   an axis that only one of the two has counts 1
// Good outcomes weigh log(g + 1) - log(rank), the best most. kCandidates points are drawn from the
// good density, and the largest good/bad is proposed. Infeasible points are passed over by
// suggest(),
// which takes the best feasible of them.
//
// The first ones (10, or Settings::startup) are Sobol points. Cost: O(kCandidates d n).
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "coordinator/search/algorithms/sobol.h"
#include "coordinator/search/proposer.h"
#include "coordinator/search/ranking.h"

namespace tailor::search {
namespace {

constexpr std::size_t kTpeStartup = 10;
constexpr std::size_t kGoodMax = 25;
constexpr std::size_t kTpeCandidates = 48;
/// Times that candidates are drawn for one proposal before it is left to chance.
constexpr std::uint32_t kTpeAttempts = 8;
/// Share of an axis below which no kernel is narrower, of a set of m: 1 / min(100, m + 2).
double width_floor(std::size_t m) {
  return 1.0 / static_cast<double>(std::min<std::size_t>(100, m + 2));
}

double mass_inside(double mean, double width) {
  return 0.5 * (std::erf((1 - mean) / (width * std::numbers::sqrt2)) +
                std::erf(mean / (width * std::numbers::sqrt2)));
}

/// A mixture over the space. Kernels lie axis by axis, so that the loop over them is a plain one.
class ParzenDensity {
 public:
  ParzenDensity(const Space& space, std::vector<const Coordinates*> points,
                std::vector<double> weights)
      : space_(space), points_(std::move(points)), weights_(std::move(weights)) {
    const std::size_t d = space_.size();
    const std::size_t m = points_.size();
    const double rate = std::pow(static_cast<double>(std::max<std::size_t>(1, m)),
                                 -1.0 / (static_cast<double>(d) + 4));
    for (std::size_t axis = 0; axis < d; ++axis) {
      std::vector<double> column(m);
      double mean = 0, square = 0;
      std::size_t active = 0;
      for (std::size_t j = 0; j < m; ++j) {
        column[j] = (*points_[j])[axis];
        if (std::isnan(column[j])) continue;
        ++active;
        mean += column[j];
        square += column[j] * column[j];
      }
      mean /= static_cast<double>(std::max<std::size_t>(1, active));
      square = square / static_cast<double>(std::max<std::size_t>(1, active)) - mean * mean;
      const double spread = active < 2 ? 0.2 : std::min(0.2, std::sqrt(std::max(0.0, square)));
      widths_.push_back(std::clamp(1.06 * spread * rate, width_floor(m), 0.5));
      columns_.push_back(std::move(column));
    }
    // log of the weight and of what does not depend on where the density is asked.
    base_.assign(m, 0.0);
    double total = 1;  // the uniform kernel
    for (const double weight : weights_) total += weight;
    for (std::size_t j = 0; j < m; ++j) base_[j] = std::log(weights_[j] / total);
    log_uniform_ = std::log(1 / total);
    uniform_share_ = 1 / total;
    log_peaks_.resize(d);
    for (std::size_t axis = 0; axis < d; ++axis) {
      if (space_.kind(axis) == AxisKind::kChoice) continue;
      log_peaks_[axis].resize(m);
      const double w = widths_[axis];
      const double norm = std::log(w) + 0.5 * std::log(2 * std::numbers::pi);
      for (std::size_t j = 0; j < m; ++j) {
        const double at = columns_[axis][j];
        log_peaks_[axis][j] = std::isnan(at) ? 0.0 : -norm - std::log(mass_inside(at, w));
      }
    }
  }

  /// log p(x).
  double log_density(const Coordinates& x) {
    const std::size_t m = points_.size();
    terms_.assign(base_.begin(), base_.end());
    for (std::size_t axis = 0; axis < x.size(); ++axis) {
      if (std::isnan(x[axis])) continue;
      const double* column = columns_[axis].data();
      if (space_.kind(axis) == AxisKind::kChoice) {
        const auto n = static_cast<double>(space_.cells(axis));
        const double c = 1.0 / static_cast<double>(std::max<std::size_t>(1, m));
        const double same = std::log(n * (1 + c) / (1 + n * c)),
                     other = std::log(n * c / (1 + n * c));
        for (std::size_t j = 0; j < m; ++j) {
          if (std::isnan(column[j])) continue;
          terms_[j] += std::abs(column[j] - x[axis]) * n < 0.5 ? same : other;
        }
        continue;
      }
      const double* peak = log_peaks_[axis].data();
      const double scale = 0.5 / (widths_[axis] * widths_[axis]);
      const double at = x[axis];
      for (std::size_t j = 0; j < m; ++j) {
        const double off = at - column[j];
        const double term = peak[j] - scale * off * off;
        terms_[j] += off == off ? term : 0.0;
      }
    }
    double most = log_uniform_;
    for (std::size_t j = 0; j < m; ++j) most = std::max(most, terms_[j]);
    double sum = std::exp(log_uniform_ - most);
    for (std::size_t j = 0; j < m; ++j) {
      if (terms_[j] > most - 36) sum += std::exp(terms_[j] - most);
    }
    return most + std::log(sum);
  }

  Coordinates draw(Rng& rng) const {
    double left = rng.uniform() - uniform_share_;
    const std::size_t m = points_.size();
    std::size_t chosen = m;
    double total = 1;
    for (const double weight : weights_) total += weight;
    for (std::size_t j = 0; j < m && left >= 0; ++j) {
      chosen = j;
      left -= weights_[j] / total;
    }
    Coordinates x(space_.size());
    for (std::size_t axis = 0; axis < x.size(); ++axis) {
      const double at = chosen < m ? columns_[axis][chosen] : std::nan("");
      x[axis] = draw_axis(axis, at, rng);
    }
    return space_.snap(x);
  }

 private:
  double draw_axis(std::size_t axis, double at, Rng& rng) const {
    if (std::isnan(at)) return rng.uniform();
    if (space_.kind(axis) == AxisKind::kChoice) {
      const auto n = static_cast<double>(space_.cells(axis));
      const double c = 1.0 / static_cast<double>(points_.size());
      return rng.uniform() * (1 + n * c) < 1 ? at : rng.uniform();
    }
    for (int i = 0; i < 16; ++i) {
      const double value = at + widths_[axis] * rng.normal();
      if (value >= 0 && value <= 1) return value;
    }
    return at;
  }

  const Space& space_;
  std::vector<const Coordinates*> points_;
  std::vector<double> weights_;
  std::vector<std::vector<double>> columns_, log_peaks_;
  std::vector<double> widths_, base_, terms_;
  double log_uniform_ = 0, uniform_share_ = 1;
};

class TpeProposer final : public Proposer {
 public:
  explicit TpeProposer(const Context& context)
      : context_(context), startup_(make_sobol_proposer(context)) {
    const History& history = context_.history;
    const std::vector<RankedRecord> order = ranked(history, context_.settings);
    const std::size_t wanted =
        context_.settings.startup > 0 ? context_.settings.startup : kTpeStartup;
    models_ = order.size() >= wanted && order.front().standing != Standing::kFailed;
    if (!models_) return;
    const auto tenth = static_cast<std::size_t>(std::ceil(0.1 * static_cast<double>(order.size())));
    const std::size_t g = std::min(tenth, kGoodMax);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Coordinates* x = &history.coordinates(order[i].index);
      const bool is_good = i < g && order[i].standing != Standing::kFailed;
      (is_good ? good_ : bad_).push_back(x);
    }
    for (const std::size_t i : running(history)) bad_.push_back(&history.coordinates(i));
  }

  std::vector<sweep::Point> propose(std::uint64_t ordinal, std::uint32_t attempt) override {
    if (!models_) return startup_->propose(ordinal, attempt);
    if (attempt >= kTpeAttempts) return {};
    if (!good_density_) {
      std::vector<double> weights;
      for (std::size_t i = 0; i < good_.size(); ++i) {
        weights.push_back(std::log(static_cast<double>(good_.size()) + 1) -
                          std::log(static_cast<double>(i) + 1));
      }
      const double scale =
          static_cast<double>(good_.size()) / std::accumulate(weights.begin(), weights.end(), 0.0);
      for (double& weight : weights) weight *= scale;
      good_density_.emplace(context_.space, good_, std::move(weights));
    }
    if (!bad_density_) {
      std::vector<const Coordinates*> all = bad_;
      for (const Coordinates& x : accepted_) all.push_back(&x);
      bad_density_.emplace(context_.space, all, std::vector<double>(all.size(), 1.0));
    }
    Rng rng = stream(context_, "tpe", ordinal, attempt);
    std::vector<std::pair<double, Coordinates>> drawn;
    for (std::size_t i = 0; i < kTpeCandidates; ++i) {
      Coordinates x = good_density_->draw(rng);
      const double score = good_density_->log_density(x) - bad_density_->log_density(x);
      drawn.emplace_back(score, std::move(x));
    }
    std::stable_sort(drawn.begin(), drawn.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<sweep::Point> out;
    for (const auto& [score, x] : drawn) out.push_back(context_.space.decode(x));
    return out;
  }

  void accept(const sweep::Point& point) override {
    if (auto x = context_.space.encode(point)) accepted_.push_back(*std::move(x));
    bad_density_.reset();
  }

 private:
  const Context context_;
  const std::unique_ptr<Proposer> startup_;
  bool models_ = false;
  std::vector<const Coordinates*> good_, bad_;
  std::vector<Coordinates> accepted_;
  std::optional<ParzenDensity> good_density_, bad_density_;
};

}  // namespace

std::unique_ptr<Proposer> make_tpe_proposer(const Context& context) {
  return std::make_unique<TpeProposer>(context);
}

}  // namespace tailor::search
