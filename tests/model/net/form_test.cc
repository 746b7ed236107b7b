// What DecoderForm adds to the plain network: scaled norms and residual writes against networks
// whose weights say the same, windows and soft caps against attention written out in double, and
// gradients of all of it.
#include "model/net/form.h"

#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model/net/decoder.h"
#include "tests/model/support.h"

namespace tailor::net {
namespace {

using shape::Architecture;
using test::relative_difference;

Architecture stack(shape::FfnNorm norm) {
  Architecture a = test::small_architecture();
  a.ffn_kind = shape::FfnKind::kHourglass;
  a.widths = {{20, 12, 8}, {16}, {10, 24}};
  a.ffn_norm = norm;
  if (norm == shape::FfnNorm::kPerSubPost) a.family = shape::Family::kOlmo2;
  return a;
}

// The logits of `scaled` and of the same network without the options, whose tensors `change` has
// multiplied: (tensor name) -> factor.
void expect_same(const Architecture& scaled, const Architecture& plain,
                 const std::function<double(const std::string&)>& factor) {
  const c10::NoGradGuard no_grad;
  Decoder a(scaled, at::kCPU, false);
  Decoder b(plain, at::kCPU, false);
  a.initialise(3, 0.2);
  b.initialise(3, 0.2);
  at::Tensor flat = b.parameters().flat();
  for (const Part* part : b.parameters().parts()) {
    flat.narrow(0, part->offset, part->size()).mul_(factor(part->name));
  }
  const at::Tensor tokens = at::randint(64, {2, 11}, at::kLong);
  EXPECT_LT(relative_difference(a.logits(tokens), b.logits(tokens)), 2e-6);
}

std::int64_t layer_of(const std::string& name) {
  const std::string prefix = "model.layers.";
  return name.starts_with(prefix) ? std::stoll(name.substr(prefix.size())) : -1;
}

TEST(FormTest, ScaledNormsAreThoseOfGainsScaledByTheLayer) {
  for (const auto norm :
       {shape::FfnNorm::kPerSub, shape::FfnNorm::kFirstOnly, shape::FfnNorm::kPerSubPost}) {
    Architecture scaled = stack(norm);
    scaled.norm_scaling = true;
    expect_same(scaled, stack(norm), [](const std::string& name) {
      const bool gain = name.find("norm") != std::string::npos && layer_of(name) >= 0 &&
                        name.find("q_norm") == std::string::npos &&
                        name.find("k_norm") == std::string::npos;
      return gain ? 1 / std::sqrt(static_cast<double>(layer_of(name) + 1)) : 1.0;
    });
  }
}

TEST(FormTest, ScaledNormsWithoutGainEqualUnitGainsScaledByTheLayer) {
  Architecture gainless = stack(shape::FfnNorm::kPerSubGainless);
  gainless.norm_scaling = true;
  Architecture gained = stack(shape::FfnNorm::kPerSub);
  gained.norm_scaling = true;
  expect_same(gainless, gained, [](const std::string&) { return 1.0; });
}

TEST(FormTest, ScaledWritesAreThoseOfProjectionsScaledByTheirIndex) {
  // Writes of layers with 3, 1 and 2 sub-MLPs: attention 1, 5, 7; sub-MLPs 2 3 4, 6, 8 9.
  const double attention[] = {1, 5, 7};
  const double first_mlp[] = {2, 6, 8};
  for (const auto norm :
       {shape::FfnNorm::kPerSub, shape::FfnNorm::kNone, shape::FfnNorm::kFirstOnly}) {
    Architecture scaled = stack(norm);
    scaled.residual_scaling = true;
    expect_same(scaled, stack(norm), [&](const std::string& name) {
      const std::int64_t layer = layer_of(name);
      if (name.find("o_proj") != std::string::npos) return 1 / std::sqrt(attention[layer]);
      const std::size_t block = name.find("blocks.");
      if (name.find("down_proj") == std::string::npos || block == std::string::npos) return 1.0;
      return 1 / std::sqrt(first_mlp[layer] + std::stod(name.substr(block + 7)));
    });
  }
  Architecture post = stack(shape::FfnNorm::kPerSubPost);
  post.residual_scaling = true;
  expect_same(post, stack(shape::FfnNorm::kPerSubPost), [&](const std::string& name) {
    const std::int64_t layer = layer_of(name);
    if (name.find("post_attention_layernorm") != std::string::npos)
      return 1 / std::sqrt(attention[layer]);
    const std::size_t block = name.find("blocks.");
    if (name.find("norm") == std::string::npos || block == std::string::npos) return 1.0;
    return 1 / std::sqrt(first_mlp[layer] + std::stod(name.substr(block + 7)));
  });
}

// Attention in double with every score held, heads repeated.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           double scale, std::int64_t window, double cap) {
  const std::int64_t group = q.size(1) / k.size(1);
  const at::Tensor keys = k.to(at::kDouble).repeat_interleave(group, 1);
  const at::Tensor values = v.to(at::kDouble).repeat_interleave(group, 1);
  at::Tensor scores = at::matmul(q.to(at::kDouble), keys.transpose(2, 3)) * scale;
  if (cap > 0) scores = (scores / cap).tanh() * cap;
  const std::int64_t time = q.size(2);
  at::Tensor hidden = at::zeros({time, time}, at::kBool);
  for (std::int64_t i = 0; i < time; ++i) {
    for (std::int64_t j = 0; j < time; ++j) hidden[i][j] = j > i || (window > 0 && i - j >= window);
  }
  return at::matmul(at::softmax(scores.masked_fill(hidden, -INFINITY), -1), values);
}

TEST(WindowedAttentionTest, EqualsAttentionWrittenOutAcrossBlocksOfQueries) {
  at::manual_seed(1);
  // 300 queries: two blocks of the implementation.
  const at::Tensor q = at::randn({2, 4, 300, 8});
  const at::Tensor k = at::randn({2, 2, 300, 8});
  const at::Tensor v = at::randn({2, 2, 300, 8});
  const struct {
    std::int64_t window;
    double cap;
  } cases[] = {{0, 0}, {1, 0}, {7, 0}, {256, 0}, {299, 2}, {0, 1.5}, {40, 3}};
  for (const auto& [window, cap] : cases) {
    EXPECT_LT(relative_difference(windowed_attention(q, k, v, 0.4, window, cap),
                                  plain_attention(q, k, v, 0.4, window, cap)),
              2e-6)
        << window << " " << cap;
  }
  // A window of one key sees itself alone.
  EXPECT_TRUE(test::same_bits(windowed_attention(q, k, v, 0.4, 1, 0),
                              v.repeat_interleave(2, 1).contiguous()));
}

DecoderForm gemma_like() {
  DecoderForm form = form_of(test::small_architecture());
  form.embedding_scale = std::sqrt(32.0);
  form.logit_cap = 4;
  form.score_cap = 3;
  form.gain_plus_one = true;
  form.attention_norm_behind = true;
  form.ffn_norm_behind = true;
  form.qk_norm = QkNorm::kPerHead;
  form.attention_scale = 0.3;
  form.activation = Activation::kGeluTanh;
  form.ropes.push_back(rope_frequencies(8, 1e6));
  form.layers[0].window = 5;
  form.layers[1].rope = 1;
  return form;
}

TEST(FormTest, EveryOptionHasItsGradient) {
  // The central difference of the loss along the gradient, as for the plain networks.
  at::manual_seed(4);
  Decoder decoder(gemma_like(), at::kCPU, false);
  decoder.initialise(8, 0.2);
  // Gains of 1 + 1 at the start: to zero, their natural start.
  const auto& parameters = decoder.parameters();
  at::Tensor flat = parameters.flat();
  flat.narrow(0, parameters.matrix_size(), parameters.size() - parameters.matrix_size()).zero_();
  const at::Tensor tokens = at::randint(64, {2, 10}, at::kLong);
  const at::Tensor targets = at::randint(64, {2, 10}, at::kLong);
  decoder.loss(tokens, targets, 1.0 / 20).backward();
  const c10::NoGradGuard no_grad;
  for (const Part* part : parameters.parts()) {
    EXPECT_GT(parameters.gradient().narrow(0, part->offset, part->size()).abs().max().item<float>(),
              0)
        << part->name;
  }
  const at::Tensor direction = parameters.gradient() / parameters.gradient().norm();
  const double slope = parameters.gradient().norm().item<double>();
  const double h = 2e-3;
  flat.add_(direction, h);
  const double up = decoder.loss(tokens, targets, 1.0 / 20).item<double>();
  flat.add_(direction, -2 * h);
  const double down = decoder.loss(tokens, targets, 1.0 / 20).item<double>();
  EXPECT_NEAR((up - down) / (2 * h), slope, 2e-3 * slope);
}

TEST(FormTest, ASkippedTargetOfCappedScoresCountsNothing) {
  const c10::NoGradGuard no_grad;
  Decoder decoder(gemma_like(), at::kCPU, false, Use::kInference);
  const at::Tensor tokens = at::randint(64, {1, 6}, at::kLong);
  at::Tensor targets = at::randint(64, {1, 6}, at::kLong);
  const double whole = decoder.loss(tokens, targets, 1).item<double>();
  // Weights are zero: every target costs log 64.
  EXPECT_NEAR(whole, 6 * std::log(64.0), 1e-9);
  targets[0][2] = -1;
  EXPECT_NEAR(decoder.loss(tokens, targets, 1).item<double>(), 5 * std::log(64.0), 1e-9);
}

TEST(FormTest, TheEmbeddingScaleIsRoundedToTheTypeOfTheProducts) {
  // sqrt(1152) = 33.94... is 34 in bf16.
  DecoderForm form = form_of(test::small_architecture());
  form.embedding_scale = std::sqrt(1152.0);
  for (const bool bf16 : {false, true}) {
    const c10::NoGradGuard no_grad;
    Decoder decoder(form, at::kCPU, bf16, Use::kTraining);
    at::Tensor flat = decoder.parameters().flat();
    flat.fill_(1);
    decoder.parameters().refresh();
    double seen = 0;
    const Tap tap = [&](Place place, std::int64_t, const at::Tensor& x) {
      if (place == Place::kEmbedding) seen = x[0][0].item<double>();
    };
    decoder.hidden(at::zeros({1, 1}, at::kLong), &tap);
    EXPECT_EQ(seen, bf16 ? 34.0 : static_cast<double>(std::sqrt(1152.0f)));
  }
}

}  // namespace
}  // namespace tailor::net
