// Steps: micro-batches change nothing, tied matrices are updated once, numbers that are not finite
// never reach the weights and are named.
#include "model/train/step.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/model/support.h"

namespace tailor::train {
namespace {

using testing::HasSubstr;

struct Training {
  net::Decoder decoder;
  AdamW optimizer;
  TrainStep step;
  explicit Training(const shape::Architecture& a, std::int64_t micro_rows = 0,
                    protocol::OptimizerSpec adam = {})
      : decoder(a, at::kCPU, false),
        optimizer(decoder.parameters(), adam),
        step(decoder, optimizer, micro_rows) {
    decoder.initialise(1, 0.05);
  }
};

TEST(StepTest, MicroBatchesGiveTheLossAndWeightsOfTheWholeBatch) {
  const at::Tensor tokens = at::randint(64, {7, 12}, at::kLong);
  const at::Tensor targets = at::randint(64, {7, 12}, at::kLong);
  Training whole(test::small_architecture());
  Training parts(test::small_architecture(), 3);  // 3 + 3 + 1: the last one is short
  for (int i = 0; i < 3; ++i) {
    const at::Tensor a = whole.step.run(tokens, targets, 1e-3);
    const at::Tensor b = parts.step.run(tokens, targets, 1e-3);
    EXPECT_LT(test::relative_difference(b, a), 1e-6);
  }
  EXPECT_LT((whole.decoder.parameters().flat() - parts.decoder.parameters().flat())
                .abs()
                .max()
                .item<float>(),
            2e-5);
}

TEST(StepTest, TheReportedLossIsTheMeanOverTheTokensOfTheStepHoweverItIsCut) {
  const at::Tensor tokens = at::randint(64, {7, 12}, at::kLong);
  const at::Tensor targets = at::randint(64, {7, 12}, at::kLong);
  for (const std::int64_t micro : {0, 1, 3}) {
    Training run(test::small_architecture(), micro);
    const at::Tensor logits = run.decoder.logits(tokens).detach().view({84, 64}).to(at::kDouble);
    const double mean =
        at::cross_entropy_loss(logits, targets.view({84}), {}, /*mean=*/1).item<double>();
    EXPECT_NEAR(run.step.run(tokens, targets, 1e-3)[0].item<double>(), mean, 1e-6 * mean) << micro;
  }
}

TEST(StepTest, TheZLossIsPartOfTheLossAndOfTheGradient) {
  const at::Tensor tokens = at::randint(64, {2, 12}, at::kLong);
  Training run(test::small_architecture());
  TrainStep with_z(run.decoder, run.optimizer, 1, 0.01);
  const at::Tensor logits = run.decoder.logits(tokens).detach().view({24, 64}).to(at::kDouble);
  const double plain =
      at::cross_entropy_loss(logits, tokens.view({24}), {}, /*mean=*/1).item<double>();
  const double z = at::logsumexp(logits, {1}).square().mean().item<double>();
  run.decoder.parameters().zero_gradient();
  run.decoder.loss(tokens, tokens, 1.0 / 24).backward();
  const at::Tensor gradient = run.decoder.parameters().gradient().clone();
  EXPECT_NEAR(with_z.run(tokens, tokens, 1e-9)[0].item<double>(), plain + 0.01 * z, 1e-5);
  EXPECT_GT(test::relative_difference(run.decoder.parameters().gradient(), gradient), 1e-3);
}

TEST(StepTest, PartsWithRatesOfTheirOwnFollowTheFormulaAndShareAFewCalls) {
  protocol::OptimizerSpec adam;
  adam.weight_decay = 0.3;
  adam.clip = 0;
  net::Decoder decoder(test::small_architecture(), at::kCPU, false);
  decoder.initialise(1, 0.05);
  net::ParameterSet& parameters = decoder.parameters();
  const auto factor = [](const net::Part& part) {
    if (part.key == "embedding") return 1.0;
    return part.key.ends_with(".down") ? 0.25 : part.cols > 0 ? 0.5 : 2.0;
  };
  EXPECT_EQ(AdamW(parameters, adam).group_count(), 2u);
  AdamW optimizer(parameters, adam, factor);
  EXPECT_EQ(optimizer.group_count(), 4u);
  TrainStep step(decoder, optimizer, 0);
  const at::Tensor before = parameters.flat().to(at::kDouble);
  const at::Tensor tokens = at::randint(64, {2, 12}, at::kLong);
  step.run(tokens, tokens, 1e-2);
  const at::Tensor g = parameters.gradient().to(at::kDouble);
  const at::Tensor after = parameters.flat().to(at::kDouble);
  for (const net::Part* part : parameters.parts()) {
    const auto slice = [&](const at::Tensor& x) { return x.narrow(0, part->offset, part->size()); };
    at::Tensor wanted =
        slice(before) - slice(g) / (slice(g).abs() + adam.eps) * (1e-2 * factor(*part));
    if (part->cols > 0) wanted -= slice(before) * (1e-2 * 0.3);
    EXPECT_LT((slice(after) - wanted).abs().max().item<double>(), 2e-5) << part->name;
  }
}

TEST(StepTest, TheUpdateIsTheFormulaOfAdamWWithDecayOnMatricesOnly) {
  protocol::OptimizerSpec adam;
  adam.weight_decay = 0.3;
  adam.clip = 0.5;
  Training run(test::small_architecture(), 0, adam);
  net::ParameterSet& parameters = run.decoder.parameters();
  const at::Tensor before = parameters.flat().to(at::kDouble);
  const at::Tensor tokens = at::randint(64, {2, 12}, at::kLong);
  const at::Tensor targets = at::randint(64, {2, 12}, at::kLong);
  parameters.zero_gradient();
  run.decoder.loss(tokens, targets, 1.0 / 24).backward();
  const at::Tensor g = parameters.gradient().to(at::kDouble);
  const double norm = g.norm().item<double>();
  const at::Tensor numbers = run.step.run(tokens, targets, 1e-2);
  EXPECT_NEAR(numbers[1].item<double>(), norm, 1e-6 * norm);
  ASSERT_GT(norm, 0.5);  // it clips
  const at::Tensor clipped = g * std::min(1.0, 0.5 / (norm + 1e-6));
  // Step 1: m/(1-b1) = g, v/(1-b2) = g^2.
  at::Tensor wanted = before - (clipped / (clipped.abs() + adam.eps)) * 1e-2;
  const std::int64_t matrices = parameters.matrix_size();
  wanted.narrow(0, 0, matrices).sub_(before.narrow(0, 0, matrices) * (1e-2 * 0.3));
  EXPECT_LT((parameters.flat().to(at::kDouble) - wanted).abs().max().item<double>(), 2e-5);
}

TEST(StepTest, AStepThatIsNotFiniteChangesNoWeightNorDoLaterOnes) {
  Training run(test::small_architecture());
  const at::Tensor tokens = at::randint(64, {2, 12}, at::kLong);
  const at::Tensor targets = at::randint(64, {2, 12}, at::kLong);
  run.step.run(tokens, targets, 1e-3);
  at::Tensor flat = run.decoder.parameters().flat();
  const float kept = flat[3].item<float>();
  flat[3] = std::numeric_limits<float>::infinity();
  const at::Tensor broken = flat.clone();
  // Token 0 has element 3 in its embedding.
  at::Tensor hit = tokens.clone();
  hit.zero_();
  const at::Tensor numbers = run.step.run(hit, targets, 1e-3);
  EXPECT_FALSE(std::isfinite(numbers[0].item<double>()) &&
               std::isfinite(numbers[1].item<double>()));
  EXPECT_TRUE(test::same_bits(flat, broken));
  // Even when the next batch would be fine: the run is over.
  flat[3] = kept;
  const at::Tensor mended = flat.clone();
  const at::Tensor good = run.step.run(tokens, targets, 1e-3);
  EXPECT_TRUE(std::isfinite(good[0].item<double>()));
  EXPECT_TRUE(test::same_bits(flat, mended));
}

TEST(StepTest, WhatIsNotFiniteIsNamed) {
  Training run(test::small_architecture());
  const at::Tensor tokens = at::randint(64, {2, 12}, at::kLong);
  at::Tensor flat = run.decoder.parameters().flat();
  const auto weight = [&](const std::string& name) {
    for (const net::Part* part : run.decoder.parameters().parts()) {
      if (part->name == name) return flat.narrow(0, part->offset, part->size());
    }
    ADD_FAILURE() << "no tensor " << name;
    return flat;
  };
  // Finite weights whose product is not.
  weight("model.layers.1.mlp.up_proj.weight").fill_(1e30);
  weight("model.layers.1.mlp.down_proj.weight").fill_(1e30);
  EXPECT_THAT(find_nonfinite(run.decoder, tokens, tokens), HasSubstr("after the FFN of layer 1"));
  weight("model.layers.1.mlp.down_proj.weight")[0] = std::nan("");
  EXPECT_THAT(find_nonfinite(run.decoder, tokens, tokens),
              HasSubstr("model.layers.1.mlp.down_proj.weight"));
}

}  // namespace
}  // namespace tailor::train
