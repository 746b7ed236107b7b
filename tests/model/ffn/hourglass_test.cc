// The FFN variants: against PyTorch's values (tests/data/model/hourglass), against a plain
// restatement of the equations in double with LibTorch's own derivatives, and K = 1 against the
// conventional FFN.
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/ffn/ffn.h"
#include "tests/model/support.h"

namespace tailor::ffn {
namespace {

using nlohmann::json;
using test::relative_difference;

FfnShape shape_of(std::int64_t d, shape::LayerWidths widths, shape::FfnNorm norm) {
  FfnShape shape;
  shape.d_model = d;
  shape.widths = std::move(widths);
  shape.norm = norm;
  return shape;
}

class HourglassReference : public testing::TestWithParam<std::string> {};

TEST_P(HourglassReference, OutputAndGradientsAreThoseOfPyTorch) {
  const std::string name = GetParam();
  std::ifstream stream(test::reference("hourglass/hourglass.json"));
  const json all = json::parse(stream);
  const json& wanted = all["cases"][name];
  const double tolerance = 1e-5;  // of the largest entry, as the file says
  const std::int64_t d = wanted["d"];
  const std::int32_t k = wanted["K"];
  const bool norm = wanted["inner_norm"];

  net::ParameterSet parameters;
  FfnShape shape =
      shape_of(d, shape::LayerWidths(static_cast<std::size_t>(k), wanted["h"].get<std::int32_t>()),
               norm ? shape::FfnNorm::kPerSub : shape::FfnNorm::kNone);
  shape.eps = wanted["eps"];
  const auto ffn = make_hourglass(shape, parameters);
  parameters.allocate(at::kCPU, false);
  EXPECT_EQ(parameters.size(), wanted["parameters"].get<std::int64_t>());
  // The reference has no prefix; ours exports "mlp.blocks.0...".
  const auto file =
      pretrained::SafetensorsFile::open(test::reference("hourglass/" + name + ".safetensors"));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  for (const net::Part* part : parameters.parts()) {
    const pretrained::SourceTensor* tensor = file->find(part->name.substr(4));
    ASSERT_NE(tensor, nullptr) << part->name;
    ASSERT_EQ(tensor->shape, part->shape());
    float* to = parameters.flat().mutable_data_ptr<float>() + part->offset;
    ASSERT_TRUE(file->read(tensor->name, 0, {to, static_cast<std::size_t>(part->size())}).is_ok());
  }

  const at::Tensor x_in = test::npy(test::reference("hourglass/x.npy"));
  at::Tensor x = x_in.reshape({-1, d}).clone().set_requires_grad(true);
  const at::Tensor grad_out = test::npy(test::reference("hourglass/grad_out.npy")).reshape({-1, d});
  const at::Tensor y = ffn->forward(x);
  y.backward(grad_out);
  EXPECT_LT(relative_difference(
                y, test::npy(test::reference("hourglass/" + name + "_y.npy")).reshape({-1, d})),
            tolerance);
  EXPECT_LT(relative_difference(
                x.grad(),
                test::npy(test::reference("hourglass/" + name + "_grad_x.npy")).reshape({-1, d})),
            tolerance);
  for (const net::Part* part : parameters.parts()) {
    const at::Tensor gradient =
        parameters.gradient().narrow(0, part->offset, part->size()).to(at::kDouble);
    const std::string key = part->name.substr(4);
    const double norm_wanted = wanted["grad_norms"][key];
    EXPECT_NEAR(gradient.square().sum().sqrt().item<double>(), norm_wanted, tolerance * norm_wanted)
        << key;
    const double largest = gradient.abs().max().item<double>();
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(gradient[static_cast<std::int64_t>(i)].item<double>(),
                  wanted["grad_first_entries"][key][i].get<double>(), tolerance * largest)
          << key << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, HourglassReference,
                         testing::Values("k1_nonorm", "k1_norm", "k4_nonorm", "k4_norm"),
                         [](const testing::TestParamInfo<std::string>& tested) {
                           return tested.param;
                         });

// The equations of science.md 1.2, in double, with nothing of ours.
at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& gain, double eps) {
  const at::Tensor y = x * at::rsqrt(x.square().mean(-1, true) + eps);
  return gain.defined() ? y * gain : y;
}

struct PlainBlock {
  at::Tensor gate, up, down, gain;
};

at::Tensor plain_mlp(const PlainBlock& block, const at::Tensor& z) {
  return at::mm(at::silu(at::mm(z, block.gate.t())) * at::mm(z, block.up.t()), block.down.t());
}

at::Tensor plain_stack(const std::vector<PlainBlock>& blocks, const at::Tensor& first_gain,
                       shape::FfnNorm norm, bool outer, double eps, const at::Tensor& x) {
  at::Tensor h = norm == shape::FfnNorm::kFirstOnly ? plain_norm(x, first_gain, eps) : x;
  const at::Tensor start = h;
  for (const PlainBlock& block : blocks) {
    switch (norm) {
      case shape::FfnNorm::kPerSub:
      case shape::FfnNorm::kPerSubGainless:
        h = h + plain_mlp(block, plain_norm(h, block.gain, eps));
        break;
      case shape::FfnNorm::kPerSubPost:
        h = h + plain_norm(plain_mlp(block, h), block.gain, eps);
        break;
      case shape::FfnNorm::kFirstOnly:
      case shape::FfnNorm::kNone:
        h = h + plain_mlp(block, h);
        break;
    }
  }
  if (norm == shape::FfnNorm::kFirstOnly) h = x + (h - start);
  return outer ? x + h : h;
}

struct VariantCase {
  shape::FfnKind kind;
  shape::FfnNorm norm;
  bool outer;
};

class EveryVariant : public testing::TestWithParam<VariantCase> {};

TEST_P(EveryVariant, ValueCountAndGradientsAreThoseOfTheEquations) {
  const VariantCase param = GetParam();
  const std::int64_t d = 16;
  FfnShape shape = shape_of(
      d,
      param.kind == shape::FfnKind::kSwiglu ? shape::LayerWidths{20} : shape::LayerWidths{12, 5, 9},
      param.norm);
  shape.outer_residual = param.outer;
  shape.attention_norm_behind = param.norm == shape::FfnNorm::kPerSubPost;
  net::ParameterSet parameters;
  const auto ffn = variant(param.kind).make(shape, parameters);
  parameters.allocate(at::kCPU, false);
  // Large enough that every term matters; gains that are not one.
  parameters.flat().copy_(at::randn({parameters.size()}) * 0.3 + 0.1);

  std::map<std::string, at::Tensor> wide;
  std::int64_t projections = 0;
  for (const net::Part* part : parameters.parts()) {
    wide[part->name] = parameters.flat()
                           .narrow(0, part->offset, part->size())
                           .view(part->shape())
                           .to(at::kDouble)
                           .set_requires_grad(true);
    if (part->cols > 0) projections += part->size();
  }
  EXPECT_EQ(ffn->count(), projections);
  std::int64_t hidden = 0;
  for (const std::int32_t width : shape.widths) hidden += width;
  EXPECT_EQ(ffn->count(), 3 * d * hidden);

  std::vector<PlainBlock> blocks;
  at::Tensor first_gain;
  const auto find = [&](const std::string& name) {
    const auto found = wide.find(name);
    return found == wide.end() ? at::Tensor() : found->second;
  };
  for (std::size_t i = 0; i < shape.widths.size(); ++i) {
    const bool stack = param.kind == shape::FfnKind::kHourglass;
    const std::string prefix = stack ? "mlp.blocks." + std::to_string(i) + "." : "mlp.";
    PlainBlock block{find(prefix + "gate_proj.weight"), find(prefix + "up_proj.weight"),
                     find(prefix + "down_proj.weight"), find(prefix + "norm.weight")};
    if (!stack) {
      block.gain = find("post_attention_layernorm.weight");
      if (!block.gain.defined()) block.gain = find("post_feedforward_layernorm.weight");
    }
    blocks.push_back(block);
  }
  if (param.norm == shape::FfnNorm::kFirstOnly) {
    first_gain =
        param.kind == shape::FfnKind::kSwiglu ? blocks.front().gain : find("mlp.norm.weight");
  }

  const at::Tensor start = at::randn({7, d});
  const at::Tensor grad_out = at::randn({7, d});
  at::Tensor x = start.clone().set_requires_grad(true);
  at::Tensor x_wide = start.to(at::kDouble).set_requires_grad(true);
  const at::Tensor y = ffn->forward(x);
  const at::Tensor y_wide =
      plain_stack(blocks, first_gain, param.norm, param.outer, shape.eps, x_wide);
  y.backward(grad_out);
  y_wide.backward(grad_out.to(at::kDouble));
  EXPECT_LT(relative_difference(y, y_wide), 1e-5);
  EXPECT_LT(relative_difference(x.grad(), x_wide.grad()), 1e-5);
  for (const net::Part* part : parameters.parts()) {
    const at::Tensor gradient =
        parameters.gradient().narrow(0, part->offset, part->size()).view(part->shape());
    ASSERT_TRUE(wide[part->name].grad().defined()) << part->name << " is not used";
    EXPECT_LT(relative_difference(gradient, wide[part->name].grad()), 2e-5) << part->name;
  }
}

std::vector<VariantCase> all_cases() {
  std::vector<VariantCase> cases;
  for (const FfnVariant& line : variants()) {
    for (const auto norm :
         {shape::FfnNorm::kPerSub, shape::FfnNorm::kPerSubGainless, shape::FfnNorm::kFirstOnly,
          shape::FfnNorm::kPerSubPost, shape::FfnNorm::kNone}) {
      cases.push_back({line.kind, norm, false});
    }
    cases.push_back({line.kind, shape::FfnNorm::kPerSub, true});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Table, EveryVariant, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<VariantCase>& tested) {
                           return std::string(shape::ffn_kind_name(tested.param.kind)) + "_" +
                                  std::string(shape::ffn_norm_name(tested.param.norm)) +
                                  (tested.param.outer ? "_outer" : "");
                         });

TEST(HourglassTest, OneSubMlpOfTheSameWidthIsTheConventionalFfnBitForBit) {
  for (const auto norm : {shape::FfnNorm::kPerSub, shape::FfnNorm::kPerSubGainless,
                          shape::FfnNorm::kPerSubPost, shape::FfnNorm::kNone}) {
    for (const bool bf16 : {false, true}) {
      const FfnShape shape = shape_of(24, {40}, norm);
      net::ParameterSet conventional_set;
      net::ParameterSet hourglass_set;
      const auto conventional = make_swiglu(shape, conventional_set);
      const auto hourglass = make_hourglass(shape, hourglass_set);
      conventional_set.allocate(at::kCPU, bf16);
      hourglass_set.allocate(at::kCPU, bf16);
      conventional_set.initialise(7, 0.3, 0.5);
      hourglass_set.initialise(7, 0.3, 0.5);
      // The same seed already gives the same values:
      // initial values are keyed by place, not by name.
      ASSERT_TRUE(test::same_bits(conventional_set.flat(), hourglass_set.flat()));
      const at::Tensor start = at::randn({11, 24});
      const at::Tensor grad_out = at::randn({11, 24});
      at::Tensor x1 = start.clone().set_requires_grad(true);
      at::Tensor x2 = start.clone().set_requires_grad(true);
      const at::Tensor y1 = conventional->forward(x1);
      const at::Tensor y2 = hourglass->forward(x2);
      y1.backward(grad_out);
      y2.backward(grad_out);
      EXPECT_TRUE(test::same_bits(y1, y2));
      EXPECT_TRUE(test::same_bits(x1.grad(), x2.grad()));
      EXPECT_TRUE(test::same_bits(conventional_set.gradient(), hourglass_set.gradient()));
    }
  }
}

TEST(HourglassTest, Bf16FollowsTheFp32ValueToItsPrecision) {
  const FfnShape shape = shape_of(32, {24, 24}, shape::FfnNorm::kPerSub);
  net::ParameterSet exact;
  net::ParameterSet low;
  const auto a = make_hourglass(shape, exact);
  const auto b = make_hourglass(shape, low);
  exact.allocate(at::kCPU, false);
  low.allocate(at::kCPU, true);
  exact.initialise(3, 0.2, 1.0);
  low.initialise(3, 0.2, 1.0);
  const at::Tensor x = at::randn({16, 32});
  EXPECT_LT(relative_difference(b->forward(x), a->forward(x)), 0.02);
}

}  // namespace
}  // namespace tailor::ffn
