// What the search hears of a candidate whose seeds are all final: judged by a rule, not by its
// lucky seeds. `analysis/comparison.h` marks candidates for people by the same rule.
#pragma once

#include <optional>
#include <span>

namespace tailor::search {

/// The end of one seed of a candidate.
struct SeedOutcome {
  std::optional<double> objective;  ///< of a completed trial
  /// Without an objective: true when the candidate is to blame (its trial failed for a reason of
  /// its own, or was stopped early for doing badly); false when the trial was lost or cancelled.
  bool own_fault = false;
};

/// The mean objective over the seeds that have one; seeds that were lost or cancelled say nothing.
/// nullopt, "failed without one", as soon as one seed is the candidate's own failure or not finite,
/// and when no seed is left.
std::optional<double> judged_objective(std::span<const SeedOutcome> seeds);

}  // namespace tailor::search
