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

// Widths in quanta while they are being given out.
class QuantaAllocator {
 public:
  QuantaAllocator(const Layers& layers, double quantum) : layers_(layers), quantum_(quantum) {
    for (std::size_t l = 0; l < layers.count; ++l) {
      units_.push_back(static_cast<std::int64_t>(std::ceil(layers.m[l] / quantum - 1e-9)));
      least_.push_back(units_[l]);
      most_.push_back(layers.M[l] < kInfinity
                          ? static_cast<std::int64_t>(std::floor(layers.M[l] / quantum + 1e-9))
                          : std::numeric_limits<std::int64_t>::max());
    }
  }

  double remaining() const {
    double used = 0;
    for (std::size_t l = 0; l < units_.size(); ++l) {
      used += layers_.c[l] * quantum_ * static_cast<double>(units_[l]);
    }
    return layers_.budget - used;
  }

  /// Begins just below the real optimum instead of at the floors: the integer optimum of a
  /// separable convex problem is within n - 1 quanta of it (Moriguchi, Shioura, Tsuchimura, SIAM J.
  /// Optim. 21, 2011), and giving one by one from the floors could take for ever.
  void begin_below(const Allocation& real) {
    const auto margin = static_cast<std::int64_t>(units_.size()) + 1;
    for (std::size_t l = 0; l < units_.size(); ++l) {
      const auto whole = static_cast<std::int64_t>(std::floor(real.widths[l] / quantum_));
      units_[l] = std::clamp(whole - margin, least_[l], most_[l]);
    }
  }

  /// Gives quanta, best gain per cost first, while they fit;
  /// ties go to the narrower, then the lower layer.
  void give() {
    using Offer = std::tuple<double, std::int64_t, std::int64_t>;  // gain, -units, -layer
    std::priority_queue<Offer> offers;
    const auto offer = [&](std::size_t l) {
      if (units_[l] < most_[l]) {
        const double gain = gain_of(l, units_[l]) / layers_.c[l];
        // Without signal there is nothing to rank by but the width itself.
        const std::int64_t narrow = gain > 0 ? 0 : -units_[l];
        offers.emplace(gain, narrow, -static_cast<std::int64_t>(l));
      }
    };
    for (std::size_t l = 0; l < units_.size(); ++l) offer(l);
    double left = remaining();
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
    for (std::size_t round = 0; round < 16 * units_.size(); ++round) {
      const double left = remaining();
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

  IntegerAllocation result() const {
    IntegerAllocation allocation;
    for (std::size_t l = 0; l < units_.size(); ++l) {
      allocation.widths.push_back(units_[l] * static_cast<std::int64_t>(quantum_));
      allocation.objective += layers_.term(l, quantum_ * static_cast<double>(units_[l]));
    }
    const double left = remaining();
    allocation.exact = left == 0;
    allocation.error = -left / layers_.budget;
    return allocation;
  }

 private:
  // What the objective falls by when layer l goes from `units` to `units` + 1 quanta.
  double gain_of(std::size_t l, std::int64_t units) const {
    if (!layers_.has_signal(l)) return 0;
    if (units == 0) return kInfinity;
    const double k = static_cast<double>(units);
    return layers_.term(l, k * quantum_) * -std::expm1(-layers_.a[l] * std::log1p(1 / k));
  }

  const Layers& layers_;
  double quantum_;
  std::vector<std::int64_t> units_, least_, most_;
};

}  // namespace

Result<Allocation> allocate(const AllocationProblem& problem) {
  TAILOR_ASSIGN_OR_RETURN(const Layers layers, prepare(problem));
  TAILOR_RETURN_IF_ERROR(check_budget(layers));
  return solve(layers);
}

Result<IntegerAllocation> allocate_integer(const AllocationProblem& problem, std::int64_t quantum,
                                           double tolerance) {
  if (quantum < 1) {
    return error(
        Code::kInvalidArgument,
        fmt::format("allocation: widths come in multiples of at least 1, got {}", quantum));
  }
  TAILOR_ASSIGN_OR_RETURN(const Layers layers, prepare(problem));
  TAILOR_RETURN_IF_ERROR(check_budget(layers));
  const double least_cost = *std::min_element(layers.c.begin(), layers.c.end());
  if (layers.budget / static_cast<double>(quantum) > 1e15 * least_cost) {
    return error(Code::kInvalidArgument, "allocation: widths beyond 1e15 quanta are not rounded");
  }
  QuantaAllocator allocator(layers, static_cast<double>(quantum));
  if (allocator.remaining() < -kBudgetSlack * layers.budget) {
    return error(
        Code::kOutOfRange,
        fmt::format("allocation: infeasible in multiples of {}, the floors rounded up exceed "
                    "the budget of {} by {}",
                    quantum, layers.budget, -allocator.remaining()));
  }
  const bool equal_costs =
      std::all_of(layers.c.begin(), layers.c.end(), [&](double c) { return c == layers.c[0]; });
  // With unequal costs giving is a heuristic, so it begins near the optimum only where it must.
  if (equal_costs || allocator.remaining() / least_cost / static_cast<double>(quantum) > 1e6) {
    allocator.begin_below(solve(layers));
  }
  allocator.give();
  if (!equal_costs) allocator.repair();
  const IntegerAllocation result = allocator.result();
  if (!(std::abs(result.error) <= tolerance)) {
    return error(
        Code::kOutOfRange,
        fmt::format("allocation: in multiples of {} the budget of {} is met to {:.3g} only, "
                    "the tolerance is {:.3g}; take a smaller multiple or widen it",
                    quantum, layers.budget, result.error, tolerance));
  }
  return result;
}

std::vector<double> width_errors(const AllocationProblem& problem, const Allocation& allocation,
                                 std::span<const double> log_work_errors) {
  const auto layers = prepare(problem);
  TAILOR_CHECK(layers.has_value() && allocation.widths.size() == layers->count &&
               log_work_errors.size() == layers->count);
  const auto is_free = [&](std::size_t l) {
    return allocation.states[l] == LayerState::kFree && layers->has_signal(l);
  };
  std::vector<double> omega(layers->count, 0.0);
  double total = 0;
  for (std::size_t l = 0; l < layers->count; ++l) {
    if (is_free(l)) omega[l] = layers->c[l] * allocation.widths[l] / (layers->a[l] + 1);
    total += omega[l];
  }
  std::vector<double> result(layers->count, 0.0);
  for (std::size_t l = 0; l < layers->count; ++l) {
    if (!is_free(l)) continue;
    double variance = 0;
    for (std::size_t k = 0; k < layers->count; ++k) {
      if (!is_free(k)) continue;
      const double derivative = (k == l ? 1 : 0) - omega[k] / total;
      variance += derivative * derivative * log_work_errors[k] * log_work_errors[k];
    }
    result[l] = allocation.widths[l] * std::sqrt(variance) / (layers->a[l] + 1);
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
