// Checks the input, solves in logarithms, then fills what zero layers share.
#include "geometry/allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <string_view>
#include <tuple>

#include "base/check.h"

namespace tailor::geometry {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Budgets closer than this (relative) to a limit are taken as being at it.
constexpr double kBudgetSlack = 1e-12;

// A problem with every list written out and the unit folded into log beta.
struct Layers {
  std::size_t count = 0;
  std::vector<double> log_beta;  // -infinity where beta is 0
  std::vector<double> a, c, m, M;
  double budget = 0;

  bool has_signal(std::size_t l) const { return log_beta[l] > -kInfinity; }
  /// beta w^(-a).
  double term(std::size_t l, double w) const {
    return has_signal(l) ? std::exp(log_beta[l] - a[l] * std::log(w)) : 0;
  }
};

Result<std::vector<double>> expand(const std::vector<double>& values, std::size_t count,
                                   std::string_view name) {
  if (values.size() == count) return values;
  if (values.size() == 1) return std::vector<double>(count, values[0]);
  return error(Code::kInvalidArgument,
               fmt::format("allocation: {} has {} entries for {} layers; give one for all or one a "
                           "layer",
                           name, values.size(), count));
}

Status refuse(std::string_view name, std::size_t layer, double value, std::string_view rule) {
  return Status(
      Code::kInvalidArgument,
      fmt::format("allocation: {} of layer {} is {}; it must be {}", name, layer, value, rule));
}

Result<Layers> prepare(const AllocationProblem& problem) {
  Layers layers;
  layers.count = problem.work.size();
  layers.budget = problem.budget;
  if (layers.count == 0) {
    return error(Code::kInvalidArgument, "allocation: there is no layer");
  }
  if (!(problem.budget > 0) || !std::isfinite(problem.budget)) {
    return error(
        Code::kInvalidArgument,
        fmt::format("allocation: the budget must be positive and finite, got {}", problem.budget));
  }
  if (!(problem.exponent_min > 0)) {
    return error(Code::kInvalidArgument,
                 fmt::format("allocation: the least exponent must be positive, got {}",
                             problem.exponent_min));
  }
  TAILOR_ASSIGN_OR_RETURN(const auto sensitivity,
                          expand(problem.sensitivity, layers.count, "sensitivity"));
  TAILOR_ASSIGN_OR_RETURN(layers.a, expand(problem.exponent, layers.count, "exponent"));
  TAILOR_ASSIGN_OR_RETURN(layers.c, expand(problem.cost, layers.count, "cost"));
  TAILOR_ASSIGN_OR_RETURN(layers.m, expand(problem.floor, layers.count, "floor"));
  TAILOR_ASSIGN_OR_RETURN(layers.M, expand(problem.cap, layers.count, "cap"));
  for (std::size_t l = 0; l < layers.count; ++l) {
    const double work = problem.work[l];
    if (!(work >= 0) || !std::isfinite(work)) {
      return error(refuse("work", l, work, "finite and not negative"));
    }
    if (!(sensitivity[l] >= 0) || !std::isfinite(sensitivity[l])) {
      return error(refuse("sensitivity", l, sensitivity[l], "finite and not negative"));
    }
    if (!(layers.a[l] > 0) || !std::isfinite(layers.a[l])) {
      return error(refuse("exponent", l, layers.a[l], "finite and positive"));
    }
    if (!(layers.c[l] > 0) || !std::isfinite(layers.c[l])) {
      return error(refuse("cost", l, layers.c[l], "finite and positive"));
    }
    if (!(layers.m[l] >= 0) || !std::isfinite(layers.m[l])) {
      return error(refuse("floor", l, layers.m[l], "finite and not negative"));
    }
    if (!(layers.M[l] >= layers.m[l])) {
      return error(refuse("cap", l, layers.M[l], "at least the floor"));
    }
    layers.a[l] = std::max(layers.a[l], problem.exponent_min);
  }
  double reference = problem.reference_width;
  if (reference == 0) {
    reference = problem.budget / std::accumulate(layers.c.begin(), layers.c.end(), 0.0);
  }
  if (!(reference > 0) || !std::isfinite(reference)) {
    return error(
        Code::kInvalidArgument,
        fmt::format("allocation: the reference width must be positive, got {}", reference));
  }
  for (std::size_t l = 0; l < layers.count; ++l) {
    double log_beta = std::log(problem.work[l]) + std::log(sensitivity[l]);
    if (problem.unit == WidthUnit::kRelative) log_beta += layers.a[l] * std::log(reference);
    layers.log_beta.push_back(log_beta);
  }
  return layers;
}

// One common width, clipped to each layer's limits, that uses up `budget` on `members`.
void fill_evenly(const Layers& layers, std::span<const std::size_t> members, double budget,
                 std::vector<double>& widths) {
  // The budget used is piecewise linear in the level; walk its corners.
  std::vector<double> corners;
  for (const std::size_t l : members) {
    corners.push_back(layers.m[l]);
    if (layers.M[l] < kInfinity) corners.push_back(layers.M[l]);
  }
  std::sort(corners.begin(), corners.end());
  const auto used = [&](double level) {
    double sum = 0;
    for (const std::size_t l : members) {
      sum += layers.c[l] * std::clamp(level, layers.m[l], layers.M[l]);
    }
    return sum;
  };
  double low = 0;
  for (const double corner : corners) {
    if (used(corner) > budget) break;
    low = corner;
  }
  double slope = 0;
  for (const std::size_t l : members) {
    if (layers.m[l] <= low && low < layers.M[l]) slope += layers.c[l];
  }
  const double level = slope > 0 ? low + std::max(0.0, budget - used(low)) / slope : low;
  for (const std::size_t l : members) {
    widths[l] = std::clamp(level, layers.m[l], layers.M[l]);
  }
}

// The layers with signal, in logarithms.
class Solver {
 public:
  Solver(const Layers& layers, std::vector<std::size_t> members)
      : layers_(layers), members_(std::move(members)) {
    for (const std::size_t l : members_) {
      const double k = layers.log_beta[l] + std::log(layers.a[l]) - std::log(layers.c[l]);
      k_.push_back(k);
      at_floor_.push_back(layers.m[l] > 0 ? k - (layers.a[l] + 1) * std::log(layers.m[l])
                                          : kInfinity);
      at_cap_.push_back(layers.M[l] < kInfinity ? k - (layers.a[l] + 1) * std::log(layers.M[l])
                                                : -kInfinity);
    }
  }

  /// t = log mu with S(t) = budget. REQUIRES: sum c m < budget < sum c M over the members.
  double solve(double budget, int& iterations) {
    std::vector<double> breakpoints;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      for (const double t : {at_floor_[i], at_cap_[i]}) {
        if (std::isfinite(t)) breakpoints.push_back(t);
      }
    }
    std::sort(breakpoints.begin(), breakpoints.end());
    // Last breakpoint that still uses the whole budget.
    const auto beyond = std::partition_point(breakpoints.begin(), breakpoints.end(),
                                             [&](double t) { return total(t) >= budget; });
    const double left = beyond == breakpoints.begin() ? -kInfinity : *(beyond - 1);
    const double right = beyond == breakpoints.end() ? kInfinity : *beyond;

    std::vector<std::size_t> free;
    double rest = budget;  // what the free layers have to use
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const std::size_t l = members_[i];
      if (at_floor_[i] <= left) {
        rest -= layers_.c[l] * layers_.m[l];
      } else if (at_cap_[i] >= right) {
        rest -= layers_.c[l] * layers_.M[l];
      } else {
        free.push_back(i);
      }
    }
    if (free.empty()) return left;
    // At this t one layer alone uses the rest, so all together use at least that.
    double t = left;
    for (const std::size_t i : free) {
      const double a = layers_.a[members_[i]];
      t = std::max(t, k_[i] - (a + 1) * (std::log(rest) - std::log(layers_.c[members_[i]])));
    }
    for (; iterations < 200; ++iterations) {
      double used = 0, slope = 0;
      for (const std::size_t i : free) {
        const double a = layers_.a[members_[i]];
        const double part = layers_.c[members_[i]] * std::exp((k_[i] - t) / (a + 1));
        used += part;
        slope += part / (a + 1);
      }
      // On log S the iteration is Newton's too, and takes few steps from far away; it stays on the
      // left because log S is convex as well (a sum of exponentials).
      const double step = used * std::log(used / rest) / slope;
      const double next = t + step;
      if (!(std::abs(used - rest) > 1e-15 * rest) || next == t) break;
      t = std::min(next, right);
    }
    return t;
  }

  double width(std::size_t i, double t) const {
    const std::size_t l = members_[i];
    if (t >= at_floor_[i]) return layers_.m[l];
    if (t <= at_cap_[i]) return layers_.M[l];
    return std::exp((k_[i] - t) / (layers_.a[l] + 1));
  }

 private:
  double total(double t) const {
    double sum = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) sum += layers_.c[members_[i]] * width(i, t);
    return sum;
  }

  const Layers& layers_;
  std::vector<std::size_t> members_;
  std::vector<double> k_, at_floor_, at_cap_;
};

double weighted(const Layers& layers, std::span<const std::size_t> members,
                const std::vector<double>& widths) {
  double sum = 0;
  for (const std::size_t l : members) sum += layers.c[l] * widths[l];
  return sum;
}

Allocation solve(const Layers& layers) {
  Allocation result;
  result.widths.assign(layers.count, 0);
  result.states.assign(layers.count, LayerState::kFree);
  result.kkt.assign(layers.count, 0);
  std::vector<std::size_t> active, silent, all(layers.count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (const std::size_t l : all) (layers.has_signal(l) ? active : silent).push_back(l);
  result.no_signal = active.empty();

  const double slack = kBudgetSlack * layers.budget;
  const double floors_silent = weighted(layers, silent, layers.m);
  const double floors_active = weighted(layers, active, layers.m);
  const double caps_active = weighted(layers, active, layers.M);
  const double for_active = layers.budget - floors_silent;
  double t = -kInfinity;
  if (active.empty() || for_active >= caps_active - slack) {
    for (const std::size_t l : active) result.widths[l] = layers.M[l];
    fill_evenly(layers, silent, layers.budget - (active.empty() ? 0 : caps_active), result.widths);
  } else {
    for (const std::size_t l : silent) result.widths[l] = layers.m[l];
    Solver solver(layers, active);
    if (for_active <= floors_active + slack) {
      for (const std::size_t l : active) result.widths[l] = layers.m[l];
    } else {
      t = solver.solve(for_active, result.iterations);
      for (std::size_t i = 0; i < active.size(); ++i) {
        result.widths[active[i]] = solver.width(i, t);
      }
    }
  }
  result.multiplier = std::exp(t);
  for (const std::size_t l : all) {
    const double w = result.widths[l];
    if (w <= layers.m[l]) {
      result.states[l] = LayerState::kFloor;
    } else if (w >= layers.M[l]) {
      result.states[l] = LayerState::kCap;
    }
    result.objective += layers.term(l, w);
    if (layers.has_signal(l) && t > -kInfinity) {
      result.kkt[l] = std::exp(layers.log_beta[l] + std::log(layers.a[l]) - std::log(layers.c[l]) -
                               (layers.a[l] + 1) * std::log(w) - t);
    }
  }
  result.residual = (weighted(layers, all, result.widths) - layers.budget) / layers.budget;
  return result;
}

Status check_budget(const Layers& layers) {
  double floors = 0, caps = 0;
  for (std::size_t l = 0; l < layers.count; ++l) {
    floors += layers.c[l] * layers.m[l];
    caps += layers.c[l] * layers.M[l];
  }
  if (layers.budget < floors - kBudgetSlack * layers.budget) {
    return Status(
        Code::kOutOfRange,
        fmt::format("allocation: infeasible, the floors need {} of a budget of {} (short by "
                    "{}); lower the floors",
                    floors, layers.budget, floors - layers.budget));
  }
  if (layers.budget > caps + kBudgetSlack * layers.budget) {
    return Status(
        Code::kOutOfRange,
        fmt::format("allocation: over capacity, the caps take {} of a budget of {} ({} too "
                    "much); raise the caps",
                    caps, layers.budget, layers.budget - caps));
  }
  return Status::ok();
}

// A layer with work and no width, or a sum beyond the largest number, is no answer.
Status check_objective(const Layers& layers, const Allocation& solved) {
  for (std::size_t l = 0; l < layers.count; ++l) {
    if (layers.has_signal(l) && !(solved.widths[l] > 0)) {
      return Status(
          Code::kOutOfRange,
          fmt::format("allocation: infeasible, layer {} has work and would get width 0: {}", l,
                      layers.M[l] > 0 ? "the floors leave nothing for it; raise the budget"
                                      : "its cap is 0; raise it, or leave its work out"));
    }
  }
  if (!std::isfinite(solved.objective)) {
    return Status(Code::kOutOfRange,
                  "allocation: the objective is beyond the largest number; scale the work down "
                  "(all by one factor: the widths stay the same)");
  }
  return Status::ok();
}

// How many quanta a layer may have.
struct QuantaLimits {
  std::vector<std::int64_t> least, most;
};

// The totals (sum c w) that a search may end at.
struct Totals {
  double least, most;
};

Result<QuantaLimits> quanta_limits(const Layers& layers, double quantum, double most_total) {
  QuantaLimits limits;
  for (std::size_t l = 0; l < layers.count; ++l) {
    // Compared as numbers, without slack: a floor is never undercut, not even by rounding.
    double least = std::ceil(layers.m[l] / quantum);
    while (least * quantum < layers.m[l]) ++least;
    while (least > 0 && (least - 1) * quantum >= layers.m[l]) --least;
    double most = std::floor(layers.M[l] / quantum);
    if (most < 0x1p52) {
      while (most * quantum > layers.M[l]) --most;
      while ((most + 1) * quantum <= layers.M[l]) ++most;
    }
    // At width 0 a layer with work would cost infinitely much, and a cap above 0 asks for a width.
    const bool positive = layers.has_signal(l) || (layers.M[l] > 0 && most < 1);
    if (positive) least = std::max(least, 1.0);
    if (least > most) {
      return error(
          Code::kInvalidArgument,
          fmt::format("allocation: layer {} can have no width: no multiple of {}{} lies between "
                      "its floor {} and its cap {}; move one of them or take another multiple",
                      l, quantum, layers.m[l] > 0 ? "" : " above 0", layers.m[l], layers.M[l]));
    }
    // No layer can have more than all of the budget buys; this keeps the numbers small.
    most = std::min(most, std::max(least, std::floor(most_total / (layers.c[l] * quantum)) + 1));
    limits.least.push_back(static_cast<std::int64_t>(least));
    limits.most.push_back(static_cast<std::int64_t>(most));
  }
  return limits;
}

// Widths in quanta while they are being given out.
class QuantaAllocator {
 public:
  QuantaAllocator(const Layers& layers, double quantum, const QuantaLimits& limits)
      : layers_(layers),
        quantum_(quantum),
        least_(limits.least),
        most_(limits.most),
        units_(limits.least) {}

  const std::vector<std::int64_t>& units() const { return units_; }

  double total() const {
    double used = 0;
    for (std::size_t l = 0; l < units_.size(); ++l) {
      used += layers_.c[l] * quantum_ * static_cast<double>(units_[l]);
    }
    return used;
  }

  /// Begins just below the real optimum instead of at the floors: the integer optimum of a
  /// separable convex problem is within n - 1 quanta of it (Moriguchi, Shioura, Tsuchimura, SIAM J.
  /// Optim. 21, 2011), and giving one by one from the floors could take for ever. REQUIRES: `real`
  /// solves the problem with these limits and this budget, rounding aside.
  void begin_below(const Allocation& real) {
    for (std::size_t l = 0; l < units_.size(); ++l) {
      const double whole = std::floor(real.widths[l] / quantum_);
      const double margin = static_cast<double>(units_.size()) + 1 + 1e-12 * whole;
      const double below = std::max(whole - margin, 0.0);
      units_[l] = std::clamp(static_cast<std::int64_t>(below), least_[l], most_[l]);
    }
  }

  /// Gives quanta, best gain per cost first, while they fit into `budget`; ties go to the narrower,
  /// then the lower layer.
  void give(double budget) {
    using Offer = std::tuple<double, std::int64_t, std::int64_t>;  // gain, -units, -layer
    std::priority_queue<Offer> offers;
    const auto offer = [&](std::size_t l) {
      if (units_[l] < most_[l]) {
        // In logarithms no gain vanishes; cut at 2^-40, so that rounding does not part equal gains.
        const double gain =
            std::nearbyint(0x1p40 * (log_gain_of(l, units_[l]) - std::log(layers_.c[l])));
        // Without signal there is nothing to rank by but the width itself.
        const std::int64_t narrow = layers_.has_signal(l) ? 0 : -units_[l];
        offers.emplace(gain, narrow, -static_cast<std::int64_t>(l));
      }
    };
    for (std::size_t l = 0; l < units_.size(); ++l) offer(l);
    double left = budget - total();
    while (!offers.empty()) {
      const auto l = static_cast<std::size_t>(-std::get<2>(offers.top()));
      offers.pop();
      const double price = layers_.c[l] * quantum_;
      // Rounding may hide a quantum that fits, but must not invent one.
      if (price > left + std::min(kBudgetSlack * layers_.budget, price / 2)) continue;
      left -= price;
      ++units_[l];
      offer(l);
    }
  }

  /// Moves single quanta, in, out or between layers, while the total comes nearer to the budget.
  void repair() {
    const std::size_t none = units_.size();
    double looks_left = 1e8;  // pairs of layers; a heuristic may give up
    for (std::size_t round = 0; round < 16 * units_.size() && looks_left > 0; ++round) {
      looks_left -= static_cast<double>((none + 1) * (none + 1));
      const double left = layers_.budget - total();
      double best_error = std::abs(left) - kBudgetSlack * layers_.budget, best_loss = kInfinity;
      std::size_t best_up = none, best_down = none;
      for (std::size_t up = 0; up <= none; ++up) {
        if (up < none && units_[up] >= most_[up]) continue;
        for (std::size_t down = 0; down <= none; ++down) {
          if (up == down || (down < none && units_[down] <= least_[down])) continue;
          double after = left, loss = 0;
          if (up < none) {
            after -= layers_.c[up] * quantum_;
            loss -= gain_of(up, units_[up]);
          }
          if (down < none) {
            after += layers_.c[down] * quantum_;
            loss += gain_of(down, units_[down] - 1);
          }
          if (std::abs(after) < best_error ||
              (std::abs(after) == best_error && best_up != best_down && loss < best_loss)) {
            best_error = std::abs(after);
            best_loss = loss;
            best_up = up;
            best_down = down;
          }
        }
      }
      if (best_up == best_down) return;
      if (best_up < none) ++units_[best_up];
      if (best_down < none) --units_[best_down];
    }
  }

 private:
  // What the objective falls by when layer l goes from `units` to `units` + 1 quanta.
  double gain_of(std::size_t l, std::int64_t units) const {
    return std::exp(log_gain_of(l, units));
  }
  double log_gain_of(std::size_t l, std::int64_t units) const {
    if (!layers_.has_signal(l)) return -kInfinity;
    const double k = static_cast<double>(units);
    return layers_.log_beta[l] - layers_.a[l] * std::log(k * quantum_) +
           std::log(-std::expm1(-layers_.a[l] * std::log1p(1 / k)));
  }

  const Layers& layers_;
  double quantum_;
  const std::vector<std::int64_t>&least_, &most_;
  std::vector<std::int64_t> units_;
};

// The best widths for unequal costs among those whose total lies between two limits, by dynamic
// programming over the totals that can be reached.
//
// With a multiplier mu a layer at k quanta has the reduced cost
//   r_l(k) = f_l(k) + mu c_l q k - min_k (...) >= 0,
// and sum f = bound + sum r + mu (most total - total): widths that are better than `bound + gap`
// have sum r <= gap. So only few k of each layer can be of use, those with r_l(k) <= gap, and of
// all ways to one total only the one of least sum r is kept. The gap is widened until the best
// that was found lies within it, which proves it; or until nothing is left out, which proves that
// there is nothing.
class QuantaSearch {
 public:
  enum class Outcome { kFound, kNone, kTooLarge };

  QuantaSearch(const Layers& layers, double quantum, const QuantaLimits& limits, Totals totals)
      : layers_(layers), quantum_(quantum), limits_(limits), totals_(totals) {
    // Objectives are compared in units of about the best one: no gap can overflow or vanish.
    for (std::size_t l = 0; l < layers.count; ++l) {
      order_.push_back(l);
      if (layers.has_signal(l)) {
        shift_ = std::max(shift_, layers.log_beta[l] -
                                      layers.a[l] * std::log(quantum * to_double(limits.most[l])));
      }
    }
    if (shift_ == -kInfinity) shift_ = 0;
    // Layers of one cost side by side: their totals coincide.
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t x, std::size_t y) { return layers.c[x] < layers.c[y]; });
    choose_multiplier();
    // Better multipliers narrow the gap, but any is right.
    for (std::size_t l = 0; l < layers.count; ++l) {
      centre_.push_back(best_units(l, multiplier_));
      least_sum_.push_back(priced(l, centre_[l]));
      bound_ += least_sum_[l];
    }
    bound_ -= multiplier_ * totals.most;
  }

  /// `known`: widths within the totals, or null.
  Outcome run(const std::vector<std::int64_t>* known) {
    double known_gap = kInfinity;
    if (known != nullptr) {
      best_ = *known;
      known_gap = best_gap_ = objective(*known) - bound_;
      if (best_gap_ <= kRounding * (1 + std::abs(bound_))) return Outcome::kFound;
    }
    const double least_gap = 1e-9 * (1 + std::abs(bound_));
    for (double gap = std::min(known_gap, least_gap);; gap = std::min(known_gap, 8 * gap)) {
      bool all = true;
      if (!pass(gap + kRounding * (1 + std::abs(bound_)), all)) return Outcome::kTooLarge;
      if (best_gap_ <= gap) return Outcome::kFound;
      known_gap = std::min(known_gap, best_gap_);
      if (all) return best_gap_ < kInfinity ? Outcome::kFound : Outcome::kNone;
    }
  }

  const std::vector<std::int64_t>& best() const { return best_; }

 private:
  static constexpr double kRounding = 1e-14;
  static constexpr std::size_t kLabelsMax = 1'000'000;  // kept, over all layers: 40 MB
  static constexpr double kStepsMax = 3e7;

  struct Label {
    double total, reduced;
    std::uint32_t parent;
    std::int64_t units;
  };

  static double to_double(std::int64_t k) { return static_cast<double>(k); }
  double price(std::size_t l) const { return layers_.c[l] * quantum_; }
  double term(std::size_t l, std::int64_t k) const {
    if (!layers_.has_signal(l)) return 0;
    return std::exp(layers_.log_beta[l] - layers_.a[l] * std::log(quantum_ * to_double(k)) -
                    shift_);
  }
  double priced(std::size_t l, std::int64_t k) const {
    return term(l, k) + multiplier_ * price(l) * to_double(k);
  }
  double reduced(std::size_t l, std::int64_t k) const {
    return std::max(priced(l, k) - least_sum_[l], 0.0);
  }
  double objective(const std::vector<std::int64_t>& units) const {
    double sum = 0;
    for (std::size_t l = 0; l < layers_.count; ++l) sum += term(l, units[l]);
    return sum;
  }

  // The k of least f(k) + mu c q k.
  std::int64_t best_units(std::size_t l, double multiplier) const {
    if (!layers_.has_signal(l)) return limits_.least[l];
    if (!(multiplier > 0)) return limits_.most[l];
    const double log_width = (layers_.log_beta[l] - shift_ + std::log(layers_.a[l]) -
                              std::log(multiplier * layers_.c[l])) /
                             (layers_.a[l] + 1);
    const double real = std::clamp(std::exp(log_width) / quantum_, to_double(limits_.least[l]),
                                   to_double(limits_.most[l]));
    const auto below = static_cast<std::int64_t>(real);
    const std::int64_t above = std::min(below + 1, limits_.most[l]);
    const auto value = [&](std::int64_t k) {
      return term(l, k) + multiplier * price(l) * to_double(k);
    };
    return value(above) < value(below) ? above : below;
  }

  // The smallest multiplier at which the best widths are within the totals.
  void choose_multiplier() {
    const auto total = [&](double multiplier) {
      double sum = 0;
      for (std::size_t l = 0; l < layers_.count; ++l) {
        sum += price(l) * to_double(best_units(l, multiplier));
      }
      return sum;
    };
    if (total(0) <= totals_.most) return;
    double low = -1500, high = 1500;  // of log mu
    for (int step = 0; step < 200; ++step) {
      const double middle = low / 2 + high / 2;
      (total(std::exp(middle)) <= totals_.most ? high : low) = middle;
    }
    multiplier_ = std::exp(high);
    if (!std::isfinite(multiplier_)) multiplier_ = 0;
  }

  // Of the k from `from` (where r is within `gap`) towards `to`, the farthest within `gap`.
  std::int64_t farthest(std::size_t l, std::int64_t from, std::int64_t to, double gap) const {
    if (reduced(l, to) <= gap) return to;
    while (std::abs(to - from) > 1) {  // r is convex
      const std::int64_t middle = from + (to - from) / 2;
      (reduced(l, middle) <= gap ? from : to) = middle;
    }
    return from;
  }

  // All widths with sum r <= gap; false when they are too many. `all`: nothing was left out.
  bool pass(double gap, bool& all) {
    const std::size_t n = layers_.count;
    std::vector<std::int64_t> low(n), high(n);
    std::vector<double> reach_low(n + 1, 0.0), reach_high(n + 1, 0.0);  // of the layers to come
    for (std::size_t i = n; i-- > 0;) {
      const std::size_t l = order_[i];
      low[i] = farthest(l, centre_[l], limits_.least[l], gap);
      high[i] = farthest(l, centre_[l], limits_.most[l], gap);
      all = all && low[i] == limits_.least[l] && high[i] == limits_.most[l];
      reach_low[i] = reach_low[i + 1] + price(l) * to_double(low[i]);
      reach_high[i] = reach_high[i + 1] + price(l) * to_double(high[i]);
    }
    const double same = 1e-13 * totals_.most;
    std::vector<std::vector<Label>> labels = {{{0, 0, 0, 0}}};
    std::size_t kept = 0;
    double steps = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t l = order_[i];
      const double count = to_double(high[i] - low[i]) + 1;
      steps += count * static_cast<double>(labels[i].size());
      if (steps > kStepsMax) return false;
      std::vector<double> costs;
      for (std::int64_t k = low[i]; k <= high[i]; ++k) costs.push_back(reduced(l, k));
      std::vector<Label> next;
      for (std::size_t parent = 0; parent < labels[i].size(); ++parent) {
        const Label& label = labels[i][parent];
        for (std::int64_t k = low[i]; k <= high[i]; ++k) {
          const double sum = label.reduced + costs[static_cast<std::size_t>(k - low[i])];
          if (sum > gap) {
            all = false;
            continue;
          }
          const double total = label.total + price(l) * to_double(k);
          if (total + reach_low[i + 1] > totals_.most + same ||
              total + reach_high[i + 1] < totals_.least - same) {
            continue;
          }
          next.push_back({total, sum, static_cast<std::uint32_t>(parent), k});
        }
        if (next.size() > 4 * kLabelsMax) return false;
      }
      std::sort(next.begin(), next.end(), [](const Label& x, const Label& y) {
        return std::tie(x.total, x.reduced) < std::tie(y.total, y.reduced);
      });
      std::vector<Label> merged;
      for (const Label& label : next) {
        if (merged.empty() || label.total - merged.back().total > same) {
          merged.push_back(label);
        } else if (label.reduced < merged.back().reduced) {
          merged.back() = label;
        }
      }
      kept += merged.size();
      if (kept > kLabelsMax) return false;
      labels.push_back(std::move(merged));
    }
    for (std::size_t at = 0; at < labels[n].size(); ++at) {
      std::vector<std::int64_t> units(n);
      std::size_t label = at;
      for (std::size_t i = n; i-- > 0;) {
        units[order_[i]] = labels[i + 1][label].units;
        label = labels[i + 1][label].parent;
      }
      const double gap_here = objective(units) - bound_;
      if (gap_here < best_gap_) {
        best_gap_ = gap_here;
        best_ = std::move(units);
      }
    }
    return true;
  }

  const Layers& layers_;
  double quantum_;
  const QuantaLimits& limits_;
  Totals totals_;
  double shift_ = -kInfinity;       // objectives here are e^shift times smaller
  std::vector<std::size_t> order_;  // of the layers in the search
  double multiplier_ = 0;
  std::vector<std::int64_t> centre_;  // where r is 0
  std::vector<double> least_sum_;     // f + mu c q k there
  double bound_ = 0;
  std::vector<std::int64_t> best_;
  double best_gap_ = kInfinity;
};

// Sum of c w.
double total_of(const Layers& layers, const std::vector<std::int64_t>& units, double quantum) {
  double sum = 0;
  for (std::size_t l = 0; l < layers.count; ++l) {
    sum += layers.c[l] * quantum * static_cast<double>(units[l]);
  }
  return sum;
}

// The number of quanta to give out where all cost the same: as many as the budget holds, one more
// only where that many miss the tolerance and one more does not.
double quanta_in(const Layers& layers, double quantum, double tolerance) {
  const double price = layers.c[0] * quantum;
  double count = std::floor(layers.budget / price);
  const double slack = std::min(kBudgetSlack * layers.budget, price / 2);
  if ((count + 1) * price - layers.budget <= slack) ++count;
  const bool misses = layers.budget - count * price > tolerance * layers.budget;
  if (misses && (count + 1) * price - layers.budget <= tolerance * layers.budget) ++count;
  return count;
}

// The real problem within these limits, for the integer one to begin at.
Allocation relaxed(const Layers& layers, double quantum, const QuantaLimits& limits,
                   double budget) {
  Layers inner = layers;
  for (std::size_t l = 0; l < layers.count; ++l) {
    inner.m[l] = quantum * static_cast<double>(limits.least[l]);
    inner.M[l] = quantum * static_cast<double>(limits.most[l]);
  }
  inner.budget = budget;
  return solve(inner);
}

}  // namespace

Result<Allocation> allocate(const AllocationProblem& problem) {
  TAILOR_ASSIGN_OR_RETURN(const Layers layers, prepare(problem));
  TAILOR_RETURN_IF_ERROR(check_budget(layers));
  Allocation result = solve(layers);
  TAILOR_RETURN_IF_ERROR(check_objective(layers, result));
  return result;
}

Result<IntegerAllocation> allocate_integer(const AllocationProblem& problem, std::int64_t quantum,
                                           double tolerance) {
  if (quantum < 1) {
    return error(
        Code::kInvalidArgument,
        fmt::format("allocation: widths come in multiples of at least 1, got {}", quantum));
  }
  if (!(tolerance >= 0 && tolerance <= 1)) {
    return error(
        Code::kInvalidArgument,
        fmt::format("allocation: the tolerance is a share of the budget, from 0 to 1, got {}",
                    tolerance));
  }
  TAILOR_ASSIGN_OR_RETURN(const Layers layers, prepare(problem));
  TAILOR_RETURN_IF_ERROR(check_budget(layers));
  const double least_cost = *std::min_element(layers.c.begin(), layers.c.end());
  const auto q = static_cast<double>(quantum);
  if (layers.budget / q > 1e15 * least_cost) {
    return error(Code::kInvalidArgument, "allocation: widths beyond 1e15 quanta are not rounded");
  }
  const double slack = kBudgetSlack * layers.budget, off = tolerance * layers.budget;
  TAILOR_ASSIGN_OR_RETURN(const QuantaLimits limits,
                          quanta_limits(layers, q, layers.budget + off + slack));
  const double floors = total_of(layers, limits.least, q), caps = total_of(layers, limits.most, q);
  if (floors > layers.budget + off + slack) {
    return error(
        Code::kOutOfRange,
        fmt::format(
            "allocation: infeasible in multiples of {}, the floors rounded up (at least one "
            "multiple where there is work) exceed the budget of {} by {}",
            quantum, layers.budget, floors - layers.budget));
  }
  if (caps < layers.budget - off - slack) {
    return error(Code::kOutOfRange,
                 fmt::format("allocation: over capacity in multiples of {}, the caps rounded down "
                             "leave {} of the budget of {}; raise the caps",
                             quantum, layers.budget - caps, layers.budget));
  }

  IntegerAllocation result;
  std::vector<std::int64_t> units;
  QuantaAllocator allocator(layers, q, limits);
  const bool equal_costs =
      std::all_of(layers.c.begin(), layers.c.end(), [&](double c) { return c == layers.c[0]; });
  if (equal_costs) {
    const double wanted =
        std::clamp(quanta_in(layers, q, tolerance) * layers.c[0] * q, floors, caps);
    allocator.begin_below(relaxed(layers, q, limits, wanted));
    allocator.give(wanted);
    units = allocator.units();
    result.optimal = true;
  } else {
    const double wanted = std::clamp(layers.budget, floors, caps);
    // Giving is a heuristic here, so it begins near the optimum only where it must.
    if ((wanted - floors) / least_cost / q > 1e6) {
      allocator.begin_below(relaxed(layers, q, limits, wanted));
    }
    allocator.give(wanted);
    allocator.repair();
    units = allocator.units();
    const double total = allocator.total();
    for (const Totals& totals : {Totals{layers.budget - off - slack, layers.budget + slack},
                                 Totals{layers.budget + slack, layers.budget + off + slack}}) {
      if (!(totals.most > totals.least)) continue;
      QuantaSearch search(layers, q, limits, totals);
      const bool known = totals.least <= total && total <= totals.most;
      const auto outcome = search.run(known ? &units : nullptr);
      if (outcome == QuantaSearch::Outcome::kFound) {
        units = search.best();
        result.optimal = true;
      }
      if (outcome != QuantaSearch::Outcome::kNone) break;
    }
  }
  for (std::size_t l = 0; l < layers.count; ++l) {
    const auto k = static_cast<double>(units[l]);
    result.widths.push_back(units[l] * quantum);
    result.objective += layers.term(l, q * k);
  }
  const double left = layers.budget - total_of(layers, units, q);
  result.exact = result.optimal && left == 0;
  result.error = -left / layers.budget;
  if (!(std::abs(left) <= off + slack)) {
    return error(
        Code::kOutOfRange,
        fmt::format("allocation: in multiples of {} the budget of {} is met to {:.3g} only, "
                    "the tolerance is {:.3g}; take a smaller multiple or widen it",
                    quantum, layers.budget, result.error, tolerance));
  }
  return result;
}

double exponent_from_dimension(ExponentRule rule, double dimension, double model_width,
                               double smoothness) {
  TAILOR_CHECK(std::isfinite(dimension) && model_width >= 1 && smoothness > 0);
  const double d = std::clamp(dimension, 1.0, model_width);
  switch (rule) {
    case ExponentRule::kTwoOverD:
      return 2 / d;
    case ExponentRule::kSmoothnessOverD:
      return smoothness / d;
    case ExponentRule::kTwiceSmoothnessOverD:
      return 2 * smoothness / d;
    case ExponentRule::kConstant:
      return smoothness;
  }
  return 1;
}

}  // namespace tailor::geometry
