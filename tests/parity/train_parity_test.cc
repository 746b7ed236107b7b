// Twenty AdamW steps against PyTorch and transformers (tests/data/model/train_parity): loss,
// gradient norm before clipping, learning rate of each step, and the final weights. Twice: whole
// batch, and one sequence a forward pass.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/net/decoder.h"
#include "model/shape/count.h"
#include "model/train/optimizer.h"
#include "model/train/schedule.h"
#include "model/train/step.h"
#include "tests/model/support.h"
#ifdef TAILOR_PARITY_ON_GPU
#include "tests/model/gpu.h"
#endif

namespace tailor {
namespace {

// The same file makes parity_test and, for a GPU, parity_gpu_test.
#ifdef TAILOR_PARITY_ON_GPU
using Base = test::GpuTest;
const at::Device kDevice(at::kCUDA, 0);
#else
using Base = testing::Test;
const at::Device kDevice(at::kCPU);
#endif

using nlohmann::json;

json read(const std::string& name) {
  std::ifstream file(test::reference("train_parity/" + name));
  return json::parse(file);
}

shape::Architecture architecture_of(const json& config) {
  shape::Architecture a;
  const bool olmo2 = config["model_type"] == "olmo2";
  a.family = olmo2 ? shape::Family::kOlmo2 : shape::Family::kLlama;
  a.d_model = config["hidden_size"];
  a.heads = config["num_attention_heads"];
  a.kv_heads = config["num_key_value_heads"];
  a.head_dim = config["head_dim"];
  a.vocab_size = config["vocab_size"];
  a.tie_embeddings = config["tie_word_embeddings"];
  a.rope_theta = config["rope_theta"];
  a.norm_eps = config["rms_norm_eps"];
  a.ffn_norm = olmo2 ? shape::FfnNorm::kPerSubPost : shape::FfnNorm::kPerSub;
  const std::int32_t layers = config["num_hidden_layers"];
  if (config.contains("hourglass")) {
    a.ffn_kind = shape::FfnKind::kHourglass;
    a.widths = shape::uniform_widths(layers, config["hourglass"]["K"], config["hourglass"]["h"]);
  } else {
    a.widths = shape::uniform_widths(layers, 1, config["intermediate_size"]);
  }
  return a;
}

struct Case {
  std::string name;
  std::int64_t micro_rows;
  bool bf16;
};

class TrainParity : public Base, public testing::WithParamInterface<Case> {};

TEST_P(TrainParity, TwentyStepsFollowPyTorch) {
  const Case& param = GetParam();
  const json all = read("train_parity.json");
  const json& run = all["runs"][param.name];
  const json& hyper = all["hyper"];
  const json& tolerance = all["tolerance"];
  const shape::Architecture a = architecture_of(read(param.name + ".config.json"));
  ASSERT_TRUE(shape::validate(a).is_ok()) << shape::validate(a).message();
  ASSERT_EQ(shape::count_parameters(a).total, run["parameters"].get<std::int64_t>());

  net::Decoder decoder(a, kDevice, param.bf16);
  const auto file = pretrained::SafetensorsFile::open(
      test::reference("train_parity/" + param.name + ".init.safetensors"));
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const Status loaded = decoder.parameters().load(*file, "", decoder.parameters().flat());
  ASSERT_TRUE(loaded.is_ok()) << loaded.message();
  decoder.parameters().refresh();

  protocol::OptimizerSpec adam;
  adam.lr = hyper["peak_lr"];
  adam.beta1 = hyper["betas"][0];
  adam.beta2 = hyper["betas"][1];
  adam.eps = hyper["eps"];
  adam.weight_decay = hyper["weight_decay"];
  adam.clip = hyper["grad_clip"];
  protocol::LrScheduleSpec schedule;
  schedule.warmup_steps = hyper["warmup_steps"];
  schedule.final_fraction = hyper["min_lr"].get<double>() / adam.lr;
  train::AdamW optimizer(decoder.parameters(), adam);
  train::TrainStep step(decoder, optimizer, param.micro_rows);

  const at::Tensor batches = test::npy(test::reference("train_parity/batches.npy"));  // (20, 4, 33)
  const std::int64_t steps = hyper["total_steps"];
  ASSERT_EQ(batches.size(0), steps);
  const json& losses = run[param.bf16 ? "loss_bf16_autocast_fp32_weights" : "loss"];
  const double loss_tolerance = tolerance[param.bf16 ? "bf16_loss_rel" : "loss_rel"];
  double worst = 0;
  for (std::int64_t i = 0; i < steps; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const at::Tensor batch = batches.select(0, i);
    const double lr = train::learning_rate(schedule, adam.lr, i, steps);
    EXPECT_NEAR(lr, run["lr"][at].get<double>(), 1e-15) << "step " << i;
    const at::Tensor tokens = batch.narrow(1, 0, 32).contiguous().to(kDevice);
    const at::Tensor targets = batch.narrow(1, 1, 32).contiguous().to(kDevice);
    at::Tensor numbers;
    if (a.family == shape::Family::kOlmo2) {
      // transformers' Olmo2Config sets pad_token_id to 1 by default, and the embedding row of the
      // padding token gets no gradient there. Ours knows no padding token,
      // so the test leaves that row out.
      decoder.parameters().zero_gradient();
      const at::Tensor loss =
          decoder.loss(tokens, targets, 1.0 / static_cast<double>(tokens.numel()));
      loss.backward();
      const net::Part* embedding = decoder.parameters().parts().front();
      ASSERT_EQ(embedding->name, "model.embed_tokens.weight");
      decoder.parameters()
          .gradient()
          .narrow(0, embedding->offset + embedding->cols, embedding->cols)
          .zero_();
      numbers = optimizer.step(lr, loss);
    } else {
      numbers = step.run(tokens, targets, lr);
    }
    numbers = numbers.to(at::kCPU);
    const double loss = numbers.const_data_ptr<double>()[0];
    const double norm = numbers.const_data_ptr<double>()[1];
    const double wanted = losses[at];
    EXPECT_NEAR(loss, wanted, loss_tolerance * wanted) << "step " << i;
    worst = std::max(worst, std::abs(loss / wanted - 1));
    if (!param.bf16) {
      const double wanted_norm = run["grad_norm_before_clip"][at];
      EXPECT_NEAR(norm, wanted_norm, tolerance["grad_norm_rel"].get<double>() * wanted_norm)
          << "step " << i;
    }
  }
  RecordProperty("worst_relative_loss_difference", std::to_string(worst * 1e9) + "e-9");
  if (param.bf16 || !kDevice.is_cpu()) return;
  // fp32 against fp32: far inside the published tolerance,
  // or something is not the same computation.
  EXPECT_LT(worst, 1e-6);

  const at::Tensor flat = decoder.parameters().flat();
  std::size_t compared = 0;
  for (const net::Part* part : decoder.parameters().parts()) {
    ASSERT_TRUE(run["final_weights"].contains(part->name)) << part->name;
    const json& wanted = run["final_weights"][part->name];
    const at::Tensor weight = flat.narrow(0, part->offset, part->size()).to(at::kDouble);
    const double l2 = weight.square().sum().sqrt().item<double>();
    EXPECT_NEAR(l2, wanted["l2"].get<double>(),
                tolerance["final_l2_rel"].get<double>() * wanted["l2"].get<double>())
        << part->name;
    for (const auto& [index, value] : wanted["entries"].items()) {
      // Adam's first steps turn a gradient near zero into a step of full size, so single entries of
      // another summation order may differ by some 1e-5.
      EXPECT_NEAR(weight[std::stoll(index)].item<double>(), value.get<double>(), 2e-5)
          << part->name << "[" << index << "]";
    }
    ++compared;
  }
  EXPECT_EQ(compared, run["final_weights"].size());
}

INSTANTIATE_TEST_SUITE_P(References, TrainParity,
                         testing::Values(Case{"llama", 0, false}, Case{"llama", 1, false},
                                         Case{"llama_tied", 0, false}, Case{"olmo2", 0, false},
                                         Case{"hourglass", 0, false}, Case{"hourglass", 3, false},
                                         Case{"llama", 0, true}),
                         [](const testing::TestParamInfo<Case>& tested) {
                           return tested.param.name + (tested.param.bf16 ? "_bf16" : "") +
                                  "_micro" + std::to_string(tested.param.micro_rows);
                         });

}  // namespace
}  // namespace tailor
