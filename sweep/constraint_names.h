// What a constraint may talk about. Internal to sweep/.
#pragma once

#include <span>
#include <string_view>

#include "sweep/candidate.h"

namespace tailor::sweep {

/// d_model, layers, heads, kv_heads, head_dim, vocab_size, k, d_h (mean), d_h_ratio (mean
/// d_h / d_model), attention, ffn, norms, embedding, body, total (parameters), tokens, lr.
std::span<const std::string_view> constraint_names();

/// The value of one of them. Uses architecture, counts and train of `candidate`;
/// NaN for another name.
double constraint_value(const Candidate& candidate, std::string_view name);

}  // namespace tailor::sweep
