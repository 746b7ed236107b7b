// The solver of budget.h: integer arithmetic only, so equal inputs give equal widths everywhere.
#include "model/shape/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "base/text.h"

namespace tailor::shape {
namespace {

/// What the hidden units of a frame have to add up to.
struct Need {
  std::int64_t fixed = 0;      ///< budgeted parameters that are not FFN
  std::int64_t grain = 0;      ///< 3 d q: parameters of one unit of width
  std::int64_t units = 0;      ///< nearest number of units of q
  std::int64_t units_min = 0;  ///< one for every sub-MLP
  std::int64_t error = 0;      ///< of the nearest number
};

Need need_of(const Architecture& frame, const BudgetTarget& target) {
  const Counts counts = count_parameters(frame);
  Need need;
  need.fixed = budgeted(counts, target.counts) - counts.ffn;
  need.grain = 3 * std::int64_t{frame.d_model} * target.width_multiple;
  for (const LayerWidths& widths : frame.widths) {
    need.units_min += static_cast<std::int64_t>(widths.size());
  }
  const std::int64_t rest = target.parameters - need.fixed;
  // Ties of rounding go down: never above the budget when below is as near.
  need.units = rest <= 0 ? 0 : (rest + (need.grain - 1) / 2) / need.grain;
  need.units = std::max(need.units, need.units_min);
  need.error = need.fixed + need.units * need.grain - target.parameters;
  return need;
}

std::string describe_miss(const Architecture& frame, const BudgetTarget& target, const Need& need) {
  if (need.units == need.units_min && need.error > 0) {
    return fmt::format(
        "misses the budget of {} parameters ({}) by {} too many: without the FFN there are {} "
        "already, and "
        "{} sub-MLPs need at least {} each",
        with_thousands(target.parameters), budget_counts_name(target.counts),
        with_thousands(need.error), with_thousands(need.fixed), need.units_min,
        with_thousands(need.grain));
  }
  return fmt::format(
      "misses the budget of {} parameters ({}) by {} {}: one unit of hidden width costs 3 x "
      "d_model {} x "
      "width_multiple {} = {}, which does not divide the {} that are left for the FFN",
      with_thousands(target.parameters), budget_counts_name(target.counts),
      with_thousands(std::abs(need.error)), need.error > 0 ? "too many" : "too few", frame.d_model,
      target.width_multiple, with_thousands(need.grain),
      with_thousands(target.parameters - need.fixed));
}

}  // namespace

Result<BudgetSolution> solve_hidden_width(const Architecture& frame, const WidthSchedule& schedule,
                                          const BudgetTarget& target) {
  TAILOR_CHECK(!frame.widths.empty() && !frame.widths.front().empty());
  const Need need = need_of(frame, target);
  if (std::abs(need.error) > target.tolerance) {
    return error(Code::kOutOfRange, describe_miss(frame, target, need));
  }
  BudgetSolution out{frame, need.error};
  TAILOR_ASSIGN_OR_RETURN(
      out.architecture.widths,
      scheduled_widths(schedule, frame.layers(),
                       static_cast<std::int32_t>(frame.widths.front().size()),
                       need.units * target.width_multiple, target.width_multiple));
  return out;
}

Result<BudgetSolution> solve_size(const FrameAt& frame_at, std::int32_t first, std::int32_t last,
                                  std::int32_t step, const WidthGoal& goal,
                                  const WidthSchedule& schedule, const BudgetTarget& target) {
  TAILOR_CHECK(step >= 1 && (goal.d_h > 0 || goal.ratio > 0));
  std::optional<Architecture> best;
  double best_distance = 0;
  std::string nearest_miss;
  std::int64_t nearest_error = 0;
  for (std::int64_t size = first; size <= last; size += step) {
    const auto frame = frame_at(static_cast<std::int32_t>(size));
    if (!frame) continue;
    const Need need = need_of(*frame, target);
    if (std::abs(need.error) > target.tolerance) {
      if (nearest_miss.empty() || std::abs(need.error) < std::abs(nearest_error)) {
        nearest_error = need.error;
        nearest_miss =
            fmt::format("the nearest, {}, {}", size, describe_miss(*frame, target, need));
      }
      if (need.fixed > target.parameters) break;
      continue;
    }
    const double mean = static_cast<double>(need.units) * target.width_multiple /
                        static_cast<double>(need.units_min);
    const double wanted = goal.d_h > 0 ? goal.d_h : goal.ratio * frame->d_model;
    const double distance = std::abs(std::log(mean / wanted));
    if (!best || distance < best_distance) {
      best = frame;
      best_distance = distance;
    }
  }
  if (!best) {
    return error(Code::kOutOfRange,
                 fmt::format("no size from {} to {} (step {}) meets the budget: {}", first, last,
                             step, nearest_miss.empty() ? "none is possible" : nearest_miss));
  }
  return solve_hidden_width(*best, schedule, target);
}

}  // namespace tailor::shape
