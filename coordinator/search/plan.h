// `tailor plan`: what a sweep will run, before anything runs. The points of the space are those
// that the sweep's own search algorithm draws, in its order, before it has heard of any result.
// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sweep/candidate.h"

namespace tailor::search {

struct PlanRow {
  std::string name;
  sweep::Point point;
  bool feasible = false;
  std::string reason;  ///< why not feasible, or "same architecture as NAME" for a duplicate
  std::string duplicate_of;
  sweep::Candidate candidate;  ///< valid when feasible
  double training_flops = 0;   ///< of one trial
  /// Estimate: weights, gradients, moments (16 bytes a parameter) and activations.
  std::uint64_t memory_bytes = 0;
  std::uint64_t trials = 0;  ///< 0 for what is not trained
  std::string waits_for;     ///< the candidate whose measurement its widths are cut from; "" = none
  std::string schedule;      ///< how: "topology, hyperbolic"
  bool inserted = false;     ///< it is not in the file: it is trained to be measured
};

struct Plan {
  sweep::Spec spec;
  std::vector<PlanRow> rows;   ///< at most `rows_max`; the rest is counted
  std::uint64_t points = 0;    ///< named candidates + points of the space that will be tried
  std::uint64_t feasible = 0;  ///< of those looked at
  std::uint64_t infeasible = 0;
  std::map<std::string, std::uint64_t> infeasible_reasons;  ///< of those, by `reason_kind`
  std::uint64_t duplicates = 0;
  std::uint64_t trials = 0;      ///< of feasible distinct candidates; of those looked at
  std::uint64_t waiting = 0;     ///< candidates whose widths are cut from a measurement
  std::uint64_t references = 0;  ///< trials that are measured for them
  std::uint64_t inserted = 0;    ///< trials that run for nothing else
  bool exhaustive = true;        ///< false when there are more points than `rows_max`
};

/// Cost: one `resolve` a row. Errors: kInvalidArgument, of `make_algorithm`: the coordinator would
/// refuse the sweep with the same words.
Result<Plan> make_plan(const sweep::Spec& spec, std::size_t rows_max = 10'000);

}  // namespace tailor::search
