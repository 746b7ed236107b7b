// The answer of a sweep: every candidate against the baseline, paired by seed.
// Built from rows, pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/analysis/paired.h"
#include "storage/records.h"

namespace tailor::analysis {

/// One candidate. For the baseline itself `paired` is empty (n = 0).
struct ComparisonRow {
  std::uint32_t candidate = 0;
  std::string name;
  std::int64_t parameters_body = 0;
  std::optional<double> mean;  ///< of its own finished seeds, paired or not
  std::uint32_t finished = 0;  ///< seeds with a finite value
  std::uint32_t failed = 0;   ///< failed trials, and completed ones with a value that is not finite
  std::uint32_t missing = 0;  ///< seeds of the sweep without a finished pair
  std::vector<std::uint64_t> seeds;  ///< ascending, of the pairs
  std::vector<double> differences;   ///< candidate - baseline, one a seed
  PairedSummary paired;
  std::optional<double> p_holm;        ///< sign-flip p adjusted over all candidates with a pair
  std::optional<double> tokens_per_s;  ///< mean of the final values
};

struct ComparisonTable {
  std::string baseline;
  std::string objective;
  std::vector<ComparisonRow> rows;  ///< baseline first, then by index
  std::uint32_t seeds = 0;          ///< distinct seeds of the sweep
  double smallest_p = 1;            ///< that so many seeds can reach
};

/// `objective` "" means "validation_loss" (TrialRow::objective); another name is looked up in the
/// final values. Only completed trials count: an early stopped one has not had its budget. Errors:
/// kInvalidArgument when `baseline` is empty or names no candidate (the nearest one is named).
Result<ComparisonTable> compare(std::span<const storage::CandidateRow> candidates,
                                std::span<const storage::TrialRow> trials,
                                std::string_view baseline, std::string_view objective = {});

}  // namespace tailor::analysis
