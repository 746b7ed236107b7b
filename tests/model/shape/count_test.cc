#include "model/shape/count.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace tailor::shape {
namespace {

struct Tensor {
  enum class Role { kAttention, kFfn, kNorm, kEmbedding } role;
  std::int64_t rows = 0;
  std::int64_t columns = 1;
};

/// Every tensor that the network of `a` has, one by one: what the closed forms are checked against.
std::vector<Tensor> tensors_of(const Architecture& a) {
  using Role = Tensor::Role;
  std::vector<Tensor> out;
  const std::int64_t d = a.d_model, q = std::int64_t{a.heads} * a.head_dim,
                     kv = std::int64_t{a.kv_heads} * a.head_dim;
  out.push_back({Role::kEmbedding, a.vocab_size, d});
  for (const LayerWidths& stack : a.widths) {
    out.push_back({Role::kNorm, d});
    out.push_back({Role::kAttention, q, d});
    out.push_back({Role::kAttention, kv, d});
    out.push_back({Role::kAttention, kv, d});
    out.push_back({Role::kAttention, d, q});
    if (a.family == Family::kOlmo2) {
      out.push_back({Role::kNorm, q});
      out.push_back({Role::kNorm, kv});
    }
    if (a.ffn_norm == FfnNorm::kFirstOnly) out.push_back({Role::kNorm, d});
    for (const std::int32_t width : stack) {
      if (a.ffn_norm == FfnNorm::kPerSub || a.ffn_norm == FfnNorm::kPerSubPost) {
        out.push_back({Role::kNorm, d});
      }
      out.push_back({Role::kFfn, width, d});  // gate
      out.push_back({Role::kFfn, width, d});  // up
      out.push_back({Role::kFfn, d, width});  // down
    }
  }
  out.push_back({Role::kNorm, d});
  if (!a.tie_embeddings) out.push_back({Role::kEmbedding, a.vocab_size, d});
  return out;
}

std::int64_t sum(const std::vector<Tensor>& tensors, Tensor::Role role) {
  std::int64_t out = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.role == role) out += tensor.rows * tensor.columns;
  }
  return out;
}

Architecture random_shape(Rng& rng) {
  const auto pick = [&](std::uint64_t low, std::uint64_t high) {
    return static_cast<std::int32_t>(low + rng.below(high - low + 1));
  };
  Architecture a;
  a.family = rng.below(2) == 0 ? Family::kLlama : Family::kOlmo2;
  a.d_model = pick(1, 300);
  a.kv_heads = pick(1, 8);
  a.heads = a.kv_heads * pick(1, 6);
  a.head_dim = 2 * pick(1, 64);
  a.vocab_size = pick(1, 70000);
  a.tie_embeddings = rng.below(2) == 0;
  a.ffn_kind = rng.below(4) == 0 ? FfnKind::kSwiglu : FfnKind::kHourglass;
  a.ffn_norm = static_cast<FfnNorm>(rng.below(5));
  const std::int32_t layers = pick(1, 20);
  for (std::int32_t l = 0; l < layers; ++l) {
    LayerWidths& widths = a.widths.emplace_back();
    const std::int32_t k = a.ffn_kind == FfnKind::kSwiglu ? 1 : pick(1, 9);
    for (std::int32_t i = 0; i < k; ++i) widths.push_back(pick(1, 500));
  }
  return a;
}

TEST(Counts, ClosedFormsEqualATensorByTensorEnumerationForManyRandomShapes) {
  Rng rng(20260206);
  for (int i = 0; i < 500; ++i) {
    const Architecture a = random_shape(rng);
    ASSERT_TRUE(validate(a).is_ok()) << canonical_json(a);
    const auto tensors = tensors_of(a);
    const Counts counts = count_parameters(a);
    ASSERT_EQ(counts.attention, sum(tensors, Tensor::Role::kAttention)) << canonical_json(a);
    ASSERT_EQ(counts.ffn, sum(tensors, Tensor::Role::kFfn)) << canonical_json(a);
    ASSERT_EQ(counts.norms, sum(tensors, Tensor::Role::kNorm)) << canonical_json(a);
    ASSERT_EQ(counts.embedding, sum(tensors, Tensor::Role::kEmbedding)) << canonical_json(a);
    ASSERT_EQ(counts.body, counts.attention + counts.ffn);
    ASSERT_EQ(counts.total, counts.body + counts.norms + counts.embedding);
    std::int64_t attention = 0, ffn = 0, norms = a.d_model;
    for (const LayerCounts& layer : counts.layers) {
      attention += layer.attention;
      ffn += layer.ffn;
      norms += layer.norms;
    }
    ASSERT_EQ(counts.layers.size(), a.widths.size());
    ASSERT_EQ(attention, counts.attention);
    ASSERT_EQ(ffn, counts.ffn);
    ASSERT_EQ(norms, counts.norms);
  }
}

TEST(Counts, EachKindOfBudgetLooksAtItsPart) {
  Counts counts;
  counts.body = 100;
  counts.norms = 20;
  counts.embedding = 3;
  counts.total = 123;
  EXPECT_EQ(budgeted(counts, BudgetCounts::kBody), 100);
  EXPECT_EQ(budgeted(counts, BudgetCounts::kBodyNorms), 120);
  EXPECT_EQ(budgeted(counts, BudgetCounts::kTotal), 123);
  for (const auto how : {BudgetCounts::kBody, BudgetCounts::kBodyNorms, BudgetCounts::kTotal}) {
    EXPECT_EQ(parse_budget_counts(budget_counts_name(how)).value(), how);
  }
  EXPECT_FALSE(parse_budget_counts("everything").has_value());
}

TEST(Counts, GainsOfAnEightStackAddTheShareThatTheBriefNames) {
  Architecture a;
  a.d_model = 768;
  a.heads = a.kv_heads = 12;
  a.head_dim = 64;
  a.vocab_size = 50304;
  a.widths = uniform_widths(12, 1, 3072);
  Architecture b = a;
  b.ffn_kind = FfnKind::kHourglass;
  b.widths = uniform_widths(12, 8, 384);
  // science.md 1.2: (K - 1) d L = 64,512 more gains at the same body.
  EXPECT_EQ(count_parameters(b).body, count_parameters(a).body);
  EXPECT_EQ(count_parameters(b).norms - count_parameters(a).norms, 64'512);
}

TEST(Counts, FlopsFollowTheFormula) {
  Architecture a;
  a.d_model = 768;
  a.heads = a.kv_heads = 12;
  a.head_dim = 64;
  a.vocab_size = 50304;
  a.widths = uniform_widths(12, 1, 3072);
  // 2 x 113,246,208 + 2 x 50,304 x 768 + 2 x 12 x 2048 x 768
  EXPECT_EQ(forward_flops_per_token(a, 2048), 226'492'416.0 + 77'266'944.0 + 37'748'736.0);
  EXPECT_EQ(training_flops_per_token(a, 2048), 3 * 341'508'096.0);
}

}  // namespace
}  // namespace tailor::shape
