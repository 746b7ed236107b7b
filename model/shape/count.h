// Exact parameter counts and FLOPs of an Architecture, in closed form (science.md 1.3).
//
//   attention = L * (d H e + 2 d H_kv e + H e d)
//   ffn       = 3 d * sum of all hidden widths
//   body      = attention + ffn                          <- what a budget counts by default
//   norms     = as the family and ffn_norm say (+ d for the final norm)
//   embedding = V d tied, 2 V d untied
//   total     = body + norms + embedding
//   forward FLOPs/token  = 2 body + 2 V d + 2 L T H e    (causal, average context T/2)
//   training FLOPs/token = 3 x forward
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/shape/architecture.h"

namespace tailor::shape {

/// Parameters of one layer.
struct LayerCounts {
  std::int64_t attention = 0;
  std::int64_t ffn = 0;
  std::int64_t norms = 0;  ///< attention norm, norms of the stack, q/k norms of OLMo-2
};

/// Parameters of a whole network. All exact integers.
struct Counts {
  std::int64_t attention = 0;
  std::int64_t ffn = 0;
  std::int64_t norms = 0;      ///< includes the final norm
  std::int64_t embedding = 0;  ///< V d, or 2 V d when untied
  std::int64_t body = 0;       ///< attention + ffn
  std::int64_t total = 0;      ///< body + norms + embedding
  std::vector<LayerCounts> layers;
};

/// How a budget counts.
enum class BudgetCounts { kBody, kBodyNorms, kTotal };
std::string_view budget_counts_name(BudgetCounts counts);  ///< "body", "body+norms", "total"
Result<BudgetCounts> parse_budget_counts(std::string_view name);

/// REQUIRES: validate(architecture) is ok.
Counts count_parameters(const Architecture& architecture);
/// The part of `counts` that a budget of kind `how` looks at.
std::int64_t budgeted(const Counts& counts, BudgetCounts how);

/// Forward FLOPs per token at sequence length T = `sequence_length`.
double forward_flops_per_token(const Architecture& architecture, std::int64_t sequence_length);
/// Three times the forward.
double training_flops_per_token(const Architecture& architecture, std::int64_t sequence_length);

}  // namespace tailor::shape
