// `tailor plan`: what a sweep will run, before anything runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sweep/candidate.h"

namespace tailor::sweep {

struct PlanRow {
  std::string name;
  Point point;
  bool feasible = false;
  std::string reason;  ///< why not feasible, or "same architecture as NAME" for a duplicate
  std::string duplicate_of;
  Candidate candidate;        ///< valid when feasible
  double training_flops = 0;  ///< of one trial
  /// Estimate: weights, gradients, moments (16 bytes a parameter) and activations.
  std::uint64_t memory_bytes = 0;
};

struct Plan {
  Spec spec;
  std::vector<PlanRow> rows;   ///< at most `rows_max`; the rest is counted
  std::uint64_t points = 0;    ///< named candidates + points of the space that will be tried
  std::uint64_t feasible = 0;  ///< of those looked at
  std::uint64_t infeasible = 0;
  std::map<std::string, std::uint64_t> infeasible_reasons;  ///< of those, by `reason_kind`
  std::uint64_t duplicates = 0;
  std::uint64_t trials = 0;  ///< feasible distinct candidates x seeds; of those looked at
  bool exhaustive = true;  ///< false when the space was larger than `rows_max` and was only sampled
  /// Two-sided level that a sign-flip test over these seeds can reach at best: 2 / 2^n.
  double smallest_p = 1;
  /// Smallest mean paired difference whose 95 % t-interval excludes 0, in units of the SD of the
  /// differences: t_{0.975, n-1} / sqrt(n); infinite for n = 1.
  double resolvable_effect_sd = 0;
};

/// Cost: one `resolve` a row.
Plan make_plan(const Spec& spec, std::size_t rows_max = 10'000);

}  // namespace tailor::sweep
