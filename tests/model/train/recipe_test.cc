// Initial scales and rates of tensors; muP: the scale of activations does not grow with the width.
#include "model/train/recipe.h"

#include <ATen/ops/randint.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "model/train/step.h"
#include "tests/model/support.h"

namespace tailor::train {
namespace {

shape::Architecture of_width(std::int32_t d, bool tied) {
  shape::Architecture a = test::small_architecture();
  a.d_model = d;
  a.head_dim = 16;
  a.heads = d / 16;
  a.kv_heads = d / 16;
  a.tie_embeddings = tied;
  a.widths = shape::uniform_widths(2, 1, 2 * d);
  return a;
}

protocol::TrainSpec recipe(protocol::LrMode mode) {
  protocol::TrainSpec train;
  train.optimizer.lr_mode = mode;
  train.optimizer.mup_base_width = 64;
  train.init_std = 0.05;
  return train;
}

std::map<std::string, const net::Part*> by_key(const net::Decoder& decoder) {
  std::map<std::string, const net::Part*> parts;
  for (const net::Part* part : decoder.parameters().parts()) parts[part->key] = part;
  return parts;
}

TEST(RecipeTest, FixedTreatsAllAlike) {
  const shape::Architecture a = of_width(128, false);
  const net::Decoder decoder(a, at::kCPU, false);
  const protocol::TrainSpec train = recipe(protocol::LrMode::kFixed);
  for (const net::Part* part : decoder.parameters().parts()) {
    EXPECT_EQ(lr_factor(*part, train.optimizer, a), 1) << part->name;
    EXPECT_EQ(initial_scale(*part, train, a), part->init == net::Init::kOnes ? 1 : 0.05)
        << part->name;
  }
}

TEST(RecipeTest, MupDividesRateAndVarianceOfHiddenMatricesByTheirFanIn) {
  const shape::Architecture a = of_width(128, false);
  const net::Decoder decoder(a, at::kCPU, false);
  const auto parts = by_key(decoder);
  const protocol::TrainSpec train = recipe(protocol::LrMode::kMup);
  const auto rate = [&](const char* key) { return lr_factor(*parts.at(key), train.optimizer, a); };
  const auto scale = [&](const char* key) { return initial_scale(*parts.at(key), train, a); };
  for (const char* key : {"layers.1.attention.q", "layers.1.attention.o", "layers.0.ffn.0.gate"}) {
    EXPECT_DOUBLE_EQ(rate(key), 0.5) << key;  // 64 / 128
    EXPECT_DOUBLE_EQ(scale(key), 0.05 * std::sqrt(0.5)) << key;
  }
  EXPECT_DOUBLE_EQ(rate("layers.0.ffn.0.down"), 0.25);  // 64 / 256
  EXPECT_DOUBLE_EQ(scale("layers.0.ffn.0.down"), 0.05 * 0.5);
  for (const char* key : {"embedding", "head"}) {
    EXPECT_DOUBLE_EQ(rate(key), 1) << key;
    EXPECT_DOUBLE_EQ(scale(key), 0.05) << key;
  }
  EXPECT_DOUBLE_EQ(rate("layers.0.attention.norm"), 1);
  EXPECT_DOUBLE_EQ(scale("layers.0.attention.norm"), 1);
  EXPECT_DOUBLE_EQ(rate("norm"), 0.5);
  EXPECT_DOUBLE_EQ(scale("norm"), 0.5);
}

TEST(RecipeTest, DownProjectionsStartByTheirFanInWhenAsked) {
  shape::Architecture a = test::small_architecture();
  a.ffn_kind = shape::FfnKind::kHourglass;
  a.widths = {{16, 64}, {100, 4}};
  net::Decoder decoder(a, at::kCPU, false);
  protocol::TrainSpec train;
  train.init_std = 0.05;
  train.down_init = protocol::DownInit::kFanIn;
  const auto parts = by_key(decoder);
  EXPECT_DOUBLE_EQ(initial_scale(*parts.at("layers.0.ffn.0.down"), train, a), 0.25);
  EXPECT_DOUBLE_EQ(initial_scale(*parts.at("layers.0.ffn.1.down"), train, a), 0.125);
  EXPECT_DOUBLE_EQ(initial_scale(*parts.at("layers.1.ffn.0.down"), train, a), 0.1);
  EXPECT_DOUBLE_EQ(initial_scale(*parts.at("layers.1.ffn.0.gate"), train, a), 0.05);
  // In the tensors: times 1/sqrt(residual writes), here 2 (1 + 2) = 6.
  decoder.initialise(3, [&](const net::Part& part) { return initial_scale(part, train, a); });
  for (const auto& [key, std] : std::map<std::string, double>{{"layers.0.ffn.1.down", 0.125},
                                                              {"layers.1.ffn.0.down", 0.1},
                                                              {"layers.1.ffn.0.gate", 0.05}}) {
    const net::Part* part = parts.at(key);
    const double found = decoder.parameters()
                             .flat()
                             .narrow(0, part->offset, part->size())
                             .square()
                             .mean()
                             .sqrt()
                             .item<double>();
    const double wanted = key.ends_with("down") ? std / std::sqrt(6.0) : std;
    EXPECT_NEAR(found, wanted, 0.06 * wanted) << key;
  }
}

// Root mean squares after some steps at one rate, for widths 64 to 512.
struct Scales {
  double hidden;  // residual stream that leaves the last layer
  double scores;
};
Scales after_training(std::int32_t width, protocol::LrMode mode, bool tied) {
  const shape::Architecture a = of_width(width, tied);
  protocol::TrainSpec train = recipe(mode);
  train.optimizer.lr = 0.02;
  net::Decoder decoder(a, at::kCPU, false);
  AdamW optimizer(decoder.parameters(), train.optimizer,
                  [&](const net::Part& part) { return lr_factor(part, train.optimizer, a); });
  TrainStep step(decoder, optimizer, 0);
  decoder.initialise(1, [&](const net::Part& part) { return initial_scale(part, train, a); });
  at::Tensor tokens = at::zeros({4, 17}, at::kLong);
  for (std::int64_t i = 0; i < tokens.numel(); ++i) {
    tokens.mutable_data_ptr<std::int64_t>()[i] = (i * i * 7 + i / 5) % 64;
  }
  const at::Tensor inputs = tokens.narrow(1, 0, 16).contiguous();
  for (int i = 0; i < 4; ++i) {
    step.run(inputs, tokens.narrow(1, 1, 16).contiguous(), train.optimizer.lr);
  }
  Scales scales{};
  const c10::NoGradGuard no_grad;
  const auto rms = [](const at::Tensor& x) {
    return x.to(at::kDouble).square().mean().sqrt().item<double>();
  };
  const net::Tap tap = [&](net::Place place, std::int64_t layer, const at::Tensor& x) {
    if (place == net::Place::kAfterFfn && layer == 1) scales.hidden = rms(x);
  };
  decoder.hidden(inputs, &tap);
  scales.scores = rms(decoder.logits(inputs));
  return scales;
}

// The coordinate check of the muP paper: eightfold width, same rate. With muP neither the stream
// nor the scores grow; with one rate for all they do, so the check can tell them apart.
TEST(RecipeTest, WithMupActivationsKeepTheirScaleWhenTheWidthGrows) {
  for (const bool tied : {false, true}) {
    const Scales narrow = after_training(64, protocol::LrMode::kMup, tied);
    const Scales middle = after_training(128, protocol::LrMode::kMup, tied);
    const Scales wide = after_training(512, protocol::LrMode::kMup, tied);
    for (const Scales& other : {middle, wide}) {
      EXPECT_LT(other.hidden / narrow.hidden, 1.3) << tied;
      EXPECT_GT(other.hidden / narrow.hidden, 0.45) << tied;
      EXPECT_LT(other.scores / narrow.scores, 1.5) << tied;
      EXPECT_GT(other.scores / narrow.scores, 0.4) << tied;
    }
    const Scales plain_narrow = after_training(64, protocol::LrMode::kFixed, tied);
    const Scales plain_wide = after_training(512, protocol::LrMode::kFixed, tied);
    EXPECT_GT(plain_wide.scores / plain_narrow.scores, 2) << tied;
    EXPECT_GT(plain_wide.hidden / plain_narrow.hidden, 1.5) << tied;
    RecordProperty(tied ? "tied" : "untied",
                   std::to_string(wide.hidden / narrow.hidden) + " " +
                       std::to_string(wide.scores / narrow.scores) + " against " +
                       std::to_string(plain_wide.hidden / plain_narrow.hidden) + " " +
                       std::to_string(plain_wide.scores / plain_narrow.scores));
  }
}

}  // namespace
}  // namespace tailor::train
