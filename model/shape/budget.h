// Meeting a parameter budget exactly (science.md 1.5).
//
// One hidden unit costs 3 d parameters. What the budget leaves after attention (and norms and
// embedding, when it counts them) is F; U = F / (3 d) hidden units are spread over the K L sub-MLPs
// in units of q: the count is then exact whenever 3 d q divides F, whatever K, L and the width
// schedule are. Solving for layers or d_model searches that size among those that meet the budget,
// takes the one whose mean hidden width is nearest to the wanted one,
// and spreads the units in the same way.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/status.h"
#include "model/shape/architecture.h"
#include "model/shape/count.h"
#include "model/shape/schedule.h"

namespace tailor::shape {

/// What every candidate has to meet.
struct BudgetTarget {
  std::int64_t parameters = 0;  ///< > 0
  BudgetCounts counts = BudgetCounts::kBody;
  std::int32_t width_multiple = 1;  ///< q: every width is a multiple of it
  std::int64_t tolerance = 0;       ///< parameters a solution may be off; 0 = exact
};

/// An architecture that meets the budget.
struct BudgetSolution {
  Architecture architecture;
  std::int64_t error = 0;  ///< budgeted parameters minus the target, |error| <= tolerance
};

/// `frame` with its widths replaced by ones that meet `target`. The widths of `frame` only say L
/// and K (K the same in every layer). REQUIRES: validate(frame) is ok. Errors: kOutOfRange with the
/// reason and by how many parameters the nearest solution misses.
Result<BudgetSolution> solve_hidden_width(const Architecture& frame, const WidthSchedule& schedule,
                                          const BudgetTarget& target);

/// Where the mean hidden width should lie when another size is solved for: d_h, or ratio * d_model.
struct WidthGoal {
  double d_h = 0;    ///< > 0, or
  double ratio = 0;  ///< > 0
};

/// Frame with the free size (layers or d_model) set to the argument; nullopt when there is none
/// (for instance because heads do not divide).
/// As for solve_hidden_width, its widths only say L and K.
using FrameAt = std::function<std::optional<Architecture>(std::int32_t)>;

/// Tries first, first + step, ... <= last and stops where the rest of the network alone is over
/// budget. Of the sizes that meet `target` takes the one whose mean width is nearest (in ratio) to
/// `goal`; of equals the smaller. REQUIRES: the count of frame(n) grows with n; step >= 1. Errors:
/// kOutOfRange with by how many parameters the nearest size misses.
Result<BudgetSolution> solve_size(const FrameAt& frame, std::int32_t first, std::int32_t last,
                                  std::int32_t step, const WidthGoal& goal,
                                  const WidthSchedule& schedule, const BudgetTarget& target);

}  // namespace tailor::shape
