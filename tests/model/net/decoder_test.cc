// The decoder: parameter counts, initial values, causality, packing,
// and gradients of a whole network.
#include "model/net/decoder.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/rng.h"
#include "model/shape/count.h"
#include "tests/model/support.h"

namespace tailor::net {
namespace {

using test::relative_difference;
using test::same_bits;
using test::small_architecture;

at::Tensor part_of(const Decoder& decoder, const std::string& name) {
  for (const Part* part : decoder.parameters().parts()) {
    if (part->name == name) {
      return decoder.parameters().flat().narrow(0, part->offset, part->size()).view(part->shape());
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

TEST(DecoderTest, RealTensorsHaveExactlyTheCountedParametersForRandomShapes) {
  Rng rng(11);
  for (int i = 0; i < 3000; ++i) {
    shape::Architecture a;
    a.family = rng.below(2) == 0 ? shape::Family::kLlama : shape::Family::kOlmo2;
    a.d_model = static_cast<std::int32_t>(1 + rng.below(40));
    a.kv_heads = static_cast<std::int32_t>(1 + rng.below(3));
    a.heads = a.kv_heads * static_cast<std::int32_t>(1 + rng.below(3));
    a.head_dim = 2 * static_cast<std::int32_t>(1 + rng.below(6));
    a.vocab_size = static_cast<std::int32_t>(1 + rng.below(90));
    a.tie_embeddings = rng.below(2) == 0;
    a.ffn_kind = rng.below(2) == 0 ? shape::FfnKind::kSwiglu : shape::FfnKind::kHourglass;
    a.ffn_norm = static_cast<shape::FfnNorm>(rng.below(5));
    a.norm_scaling = rng.below(2) == 0;
    a.residual_scaling = rng.below(2) == 0;
    const std::uint64_t layers = 1 + rng.below(4);
    for (std::uint64_t l = 0; l < layers; ++l) {
      shape::LayerWidths widths;
      const std::uint64_t k = a.ffn_kind == shape::FfnKind::kSwiglu ? 1 : 1 + rng.below(4);
      for (std::uint64_t j = 0; j < k; ++j)
        widths.push_back(static_cast<std::int32_t>(1 + rng.below(50)));
      a.widths.push_back(widths);
    }
    if (!shape::validate(a)) continue;  // a combination that no sweep may ask for
    const shape::Counts counts = shape::count_parameters(a);
    const Decoder decoder(a, at::kCPU, false);
    std::int64_t norms = 0;
    std::int64_t attention = 0;
    std::int64_t ffn = 0;
    std::int64_t embedding = 0;
    std::set<std::string> names;
    std::set<std::string> keys;
    for (const Part* part : decoder.parameters().parts()) {
      EXPECT_TRUE(names.insert(part->name).second) << part->name << " twice";
      EXPECT_TRUE(keys.insert(part->key).second) << part->key << " twice";
      if (part->cols == 0) {
        norms += part->size();
      } else if (part->name.find("self_attn") != std::string::npos) {
        attention += part->size();
      } else if (part->name.find("mlp") != std::string::npos) {
        ffn += part->size();
      } else {
        embedding += part->size();
      }
    }
    const std::string text = shape::canonical_json(a);
    EXPECT_EQ(attention, counts.attention) << text;
    EXPECT_EQ(ffn, counts.ffn) << text;
    EXPECT_EQ(norms, counts.norms) << text;
    EXPECT_EQ(embedding, counts.embedding) << text;
    EXPECT_EQ(decoder.parameters().size(), counts.total) << text;
  }
}

TEST(DecoderTest, AWiderNetworkContainsTheInitialValuesOfTheNarrowerOne) {
  shape::Architecture narrow = small_architecture();
  shape::Architecture wide = narrow;
  wide.d_model = 48;
  wide.widths = shape::uniform_widths(2, 1, 80);
  Decoder a(narrow, at::kCPU, false);
  Decoder b(wide, at::kCPU, false);
  a.initialise(5, 0.02);
  b.initialise(5, 0.02);
  for (const Part* part : a.parameters().parts()) {
    const at::Tensor small = part_of(a, part->name);
    const at::Tensor large = part_of(b, part->name);
    const at::Tensor corner = part->cols == 0
                                  ? large.narrow(0, 0, part->rows)
                                  : large.narrow(0, 0, part->rows).narrow(1, 0, part->cols);
    EXPECT_TRUE(same_bits(small, corner)) << part->name;
  }
}

TEST(DecoderTest, InitialValuesHaveTheAskedSpreadAndResidualWritesAreScaledDown) {
  shape::Architecture a = small_architecture();
  a.ffn_kind = shape::FfnKind::kHourglass;
  a.widths = shape::uniform_widths(2, 3, 300);
  a.vocab_size = 2000;
  Decoder decoder(a, at::kCPU, false);
  decoder.initialise(1, 0.02);
  const auto spread = [&](const std::string& name) {
    return part_of(decoder, name).to(at::kDouble).square().mean().sqrt().item<double>();
  };
  const double residual = 0.02 / std::sqrt(2 * (1 + 3));  // 1/sqrt(L(1+K))
  EXPECT_NEAR(spread("model.embed_tokens.weight"), 0.02, 0.0004);
  EXPECT_NEAR(spread("model.layers.1.mlp.blocks.2.up_proj.weight"), 0.02, 0.0006);
  EXPECT_NEAR(spread("model.layers.0.mlp.blocks.1.down_proj.weight"), residual, 0.03 * residual);
  EXPECT_NEAR(spread("model.layers.0.self_attn.o_proj.weight"), residual, 0.08 * residual);
  EXPECT_EQ(spread("model.norm.weight"), 1.0);
  // Another seed, other values.
  const at::Tensor before = decoder.parameters().flat().clone();
  decoder.initialise(2, 0.02);
  EXPECT_FALSE(same_bits(before, decoder.parameters().flat()));
}

TEST(DecoderTest, ATokenSeesOnlyItselfAndWhatCameBefore) {
  for (const auto family : {shape::Family::kLlama, shape::Family::kOlmo2}) {
    shape::Architecture a = small_architecture();
    a.family = family;
    Decoder decoder(a, at::kCPU, false);
    decoder.initialise(3, 0.2);
    const c10::NoGradGuard no_grad;
    at::Tensor tokens = at::randint(64, {1, 12}, at::kLong);
    const at::Tensor before = decoder.logits(tokens);
    at::Tensor changed = tokens.clone();
    changed[0][7] = (tokens[0][7].item<std::int64_t>() + 1) % 64;
    const at::Tensor after = decoder.logits(changed);
    EXPECT_TRUE(same_bits(before.narrow(1, 0, 7), after.narrow(1, 0, 7)));
    for (std::int64_t t = 7; t < 12; ++t) {
      EXPECT_GT((before.select(1, t) - after.select(1, t)).abs().max().item<float>(), 0) << t;
    }
  }
}

TEST(DecoderTest, GroupedKeysAndValuesEqualRepeatedOnes) {
  // MHA whose k and v rows repeat those of a GQA network gives the same scores.
  shape::Architecture grouped = small_architecture();
  shape::Architecture full = grouped;
  full.kv_heads = full.heads;
  Decoder a(grouped, at::kCPU, false);
  Decoder b(full, at::kCPU, false);
  a.initialise(9, 0.3);
  for (const Part* part : b.parameters().parts()) {
    at::Tensor to = part_of(b, part->name);
    const at::Tensor from = part_of(a, part->name);
    if (from.sizes() == to.sizes()) {
      to.copy_(from);
      continue;
    }
    for (std::int64_t h = 0; h < full.heads; ++h) {
      to.narrow(0, h * 8, 8).copy_(from.narrow(0, h / 2 * 8, 8));
    }
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor tokens = at::randint(64, {2, 9}, at::kLong);
  EXPECT_LT(relative_difference(b.logits(tokens), a.logits(tokens)), 1e-6);
}

TEST(DecoderTest, HourglassWithOneSubMlpIsTheConventionalNetworkBitForBit) {
  shape::Architecture conventional = small_architecture();
  shape::Architecture hourglass = conventional;
  hourglass.ffn_kind = shape::FfnKind::kHourglass;
  Decoder a(conventional, at::kCPU, false);
  Decoder b(hourglass, at::kCPU, false);
  a.initialise(4, 0.1);
  b.initialise(4, 0.1);
  const at::Tensor tokens = at::randint(64, {2, 16}, at::kLong);
  const at::Tensor targets = at::randint(64, {2, 16}, at::kLong);
  const at::Tensor loss_a = a.loss(tokens, targets, 1.0 / 32);
  const at::Tensor loss_b = b.loss(tokens, targets, 1.0 / 32);
  loss_a.backward();
  loss_b.backward();
  EXPECT_TRUE(same_bits(loss_a.detach(), loss_b.detach()));
  // The same tensors in the same order, norms at other places of the buffer.
  EXPECT_EQ(a.parameters().size(), b.parameters().size());
  EXPECT_TRUE(same_bits(a.parameters().gradient(), b.parameters().gradient()));
}

TEST(DecoderTest, TheGradientPredictsTheChangeOfTheLoss) {
  // A central difference along the gradient, in every family and with an untied head. The step is
  // where the cubic term (0.7 % at 1e-2) and the rounding of fp32 losses are both below 1e-3.
  at::manual_seed(20);
  for (const auto family : {shape::Family::kLlama, shape::Family::kOlmo2}) {
    shape::Architecture a = small_architecture();
    a.family = family;
    a.ffn_norm =
        family == shape::Family::kOlmo2 ? shape::FfnNorm::kPerSubPost : shape::FfnNorm::kPerSub;
    a.tie_embeddings = family == shape::Family::kLlama;
    Decoder decoder(a, at::kCPU, false);
    decoder.initialise(8, 0.2);
    const at::Tensor tokens = at::randint(64, {2, 10}, at::kLong);
    const at::Tensor targets = at::randint(64, {2, 10}, at::kLong);
    decoder.loss(tokens, targets, 1.0 / 20).backward();
    const c10::NoGradGuard no_grad;
    const at::Tensor direction =
        decoder.parameters().gradient() / decoder.parameters().gradient().norm();
    const double slope = decoder.parameters().gradient().norm().item<double>();
    const double h = 2e-3;
    at::Tensor flat = decoder.parameters().flat();
    flat.add_(direction, h);
    const double up = decoder.loss(tokens, targets, 1.0 / 20).item<double>();
    flat.add_(direction, -2 * h);
    const double down = decoder.loss(tokens, targets, 1.0 / 20).item<double>();
    EXPECT_NEAR((up - down) / (2 * h), slope, 2e-3 * slope);
  }
}

TEST(DecoderTest, LossesOfSequencesAndScoresOfRowsAreThoseOfTheLogits) {
  at::manual_seed(21);
  const c10::NoGradGuard no_grad;
  const at::Tensor tokens = at::randint(64, {3, 7}, at::kLong);
  at::Tensor targets = at::randint(64, {3, 7}, at::kLong);
  targets[1].fill_(-100);
  targets[2][4] = -1;
  for (const bool bf16 : {false, true}) {
    Decoder decoder(small_architecture(), at::kCPU, bf16);
    decoder.initialise(3, 0.3);
    const at::Tensor logits = decoder.logits(tokens).to(at::kDouble);
    const double tolerance = bf16 ? 2e-2 : 1e-5;
    const at::Tensor scores = decoder.scores(decoder.hidden(tokens));
    EXPECT_EQ(scores.scalar_type(), at::kFloat);
    EXPECT_LT(relative_difference(scores.view({3, 7, 64}), logits), tolerance);
    const at::Tensor log_p = logits.log_softmax(2).gather(2, targets.clamp_min(0).unsqueeze(2));
    const at::Tensor expected = -(log_p.squeeze(2) * targets.ge(0)).sum(1);
    const at::Tensor losses = decoder.sequence_losses(tokens, targets);
    EXPECT_EQ(losses[1].item<double>(), 0);
    EXPECT_LT(relative_difference(losses, expected), tolerance);
    EXPECT_LT(relative_difference(losses.sum(), decoder.loss(tokens, targets, 1.0)), 1e-6);
  }
}

}  // namespace
}  // namespace tailor::net
