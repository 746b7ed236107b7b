// The closed forms of count.h.
#include "model/shape/count.h"

#include <fmt/format.h>

#include <array>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tailor::shape {
namespace {

constexpr std::array<std::pair<BudgetCounts, std::string_view>, 3> kNames = {
    {{BudgetCounts::kBody, "body"},
     {BudgetCounts::kBodyNorms, "body+norms"},
     {BudgetCounts::kTotal, "total"}}};

/// Gains inside and around the stack of one layer, in units of d.
std::int64_t ffn_norms(FfnNorm norm, std::int64_t k) {
  switch (norm) {
    case FfnNorm::kPerSub:
    case FfnNorm::kPerSubPost:
      return k;
    case FfnNorm::kFirstOnly:
      return 1;
    case FfnNorm::kPerSubGainless:
    case FfnNorm::kNone:
      return 0;
  }
  TAILOR_CHECK(false, "ffn_norm={}", static_cast<int>(norm));
  return 0;
}

}  // namespace

std::string_view budget_counts_name(BudgetCounts counts) {
  for (const auto& [item, name] : kNames) {
    if (item == counts) return name;
  }
  TAILOR_CHECK(false, "counts={}", static_cast<int>(counts));
  return {};
}

Result<BudgetCounts> parse_budget_counts(std::string_view name) {
  for (const auto& [item, known] : kNames) {
    if (known == name) return item;
  }
  return error(Code::kInvalidArgument,
               fmt::format("a budget counts \"{}\"; allowed: body, body+norms, total", name));
}

Counts count_parameters(const Architecture& a) {
  const std::int64_t d = a.d_model;
  const std::int64_t q_width = std::int64_t{a.heads} * a.head_dim;
  const std::int64_t kv_width = std::int64_t{a.kv_heads} * a.head_dim;
  Counts out;
  out.layers.reserve(a.widths.size());
  for (const LayerWidths& widths : a.widths) {
    const std::int64_t hidden = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
    LayerCounts layer;
    layer.attention = 2 * d * q_width + 2 * d * kv_width;
    layer.ffn = 3 * d * hidden;
    layer.norms = d + d * ffn_norms(a.ffn_norm, static_cast<std::int64_t>(widths.size()));
    if (a.family == Family::kOlmo2) layer.norms += q_width + kv_width;
    out.attention += layer.attention;
    out.ffn += layer.ffn;
    out.norms += layer.norms;
    out.layers.push_back(layer);
  }
  out.norms += d;
  out.embedding = (a.tie_embeddings ? 1 : 2) * std::int64_t{a.vocab_size} * d;
  out.body = out.attention + out.ffn;
  out.total = out.body + out.norms + out.embedding;
  return out;
}

std::int64_t budgeted(const Counts& counts, BudgetCounts how) {
  switch (how) {
    case BudgetCounts::kBody:
      return counts.body;
    case BudgetCounts::kBodyNorms:
      return counts.body + counts.norms;
    case BudgetCounts::kTotal:
      return counts.total;
  }
  TAILOR_CHECK(false, "how={}", static_cast<int>(how));
  return 0;
}

double forward_flops_per_token(const Architecture& a, std::int64_t sequence_length) {
  const Counts counts = count_parameters(a);
  const double head = 2.0 * a.vocab_size * a.d_model;
  const double scores = 2.0 * a.layers() * static_cast<double>(sequence_length) *
                        (static_cast<double>(a.heads) * a.head_dim);
  return 2.0 * static_cast<double>(counts.body) + head + scores;
}

double training_flops_per_token(const Architecture& a, std::int64_t sequence_length) {
  return 3.0 * forward_flops_per_token(a, sequence_length);
}

}  // namespace tailor::shape
