// What the trials of a sweep came to, by candidate and seed: one reading for the paired table and
// the scaling comparison, so that both count the same seeds as failed. Pure. Internal to analysis/.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/analysis/comparison.h"
#include "storage/records.h"

namespace tailor::analysis {

inline constexpr std::string_view kMainObjective = "validation_loss";
/// Final value: the block-bootstrap standard error of the validation loss over sequences.
inline constexpr std::string_view kEvaluationSe = "validation_loss_se";

struct SeedValue {
  double value = 0;
  const Provenance* source = nullptr;  ///< null = not known
};

/// What is known of one candidate before it is compared.
struct Collected {
  std::map<std::uint64_t, SeedValue> by_seed;
  std::uint32_t failed = 0;
  std::uint32_t stopped = 0;
  std::uint32_t lost = 0;
  double evaluation_variance_sum = 0;
  std::uint32_t evaluation_se_count = 0;
  double tokens_per_s_sum = 0;
  std::uint32_t tokens_per_s_count = 0;
};

/// Of all trials of a sweep.
struct Collection {
  std::vector<Collected> candidates;  // by index
  std::set<std::uint64_t> seeds;
  std::uint64_t completed = 0;
  std::uint64_t reported = 0;  // completed trials that have the objective, finite or not
};

/// Cost: one pass over the trials. `provenance` must outlive the answer.
Collection collect(std::span<const storage::TrialRow> trials,
                   std::span<const Provenance> provenance, std::string_view objective);

/// A name that no completed trial reported is a mistake; values that are not finite are an answer.
/// Errors: kInvalidArgument with the nearest name.
Status check_objective(const Collection& all, std::span<const storage::TrialRow> trials,
                       std::string_view objective);

}  // namespace tailor::analysis
