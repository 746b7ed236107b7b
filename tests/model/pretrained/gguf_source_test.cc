// GGUF models under Hugging Face's names: every element lands where the model's class expects it,
// and the configuration says what the metadata says.
#include "model/pretrained/gguf_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>
#include <numeric>

#include "tests/model/pretrained/gguf_builder.h"
#include "tests/support/temporary_folder.h"

namespace tailor::pretrained {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int kHidden = 8, kHeads = 4, kKeyHeads = 2, kHead = 6, kInner = 10, kVocab = 5,
              kLayers = 2;

class GgufSourceTest : public testing::Test {
 protected:
  Result<std::unique_ptr<GgufSource>> open(const GgufBuilder& builder) const {
    std::ofstream(path_, std::ios::binary) << builder.bytes();
    return open_gguf_source(path_);
  }
  std::unique_ptr<GgufSource> opened(const GgufBuilder& builder) const {
    auto source = open(builder);
    EXPECT_TRUE(source.has_value()) << source.error().message();
    return source ? std::move(*source) : nullptr;
  }
  void refused(const GgufBuilder& builder, Code code, const std::string& what) const {
    const auto source = open(builder);
    ASSERT_FALSE(source.has_value()) << what;
    EXPECT_EQ(source.error().code(), code) << source.error().message();
    EXPECT_THAT(source.error().message(), testing::AllOf(HasSubstr(path_), HasSubstr(what)));
  }
  static std::vector<float> values_of(const GgufSource& source, const std::string& name) {
    const SourceTensor* tensor = source.find(name);
    EXPECT_NE(tensor, nullptr) << name;
    if (tensor == nullptr) return {};
    std::vector<float> values(static_cast<std::size_t>(tensor->elements()));
    const Status status = source.read(name, 0, values);
    EXPECT_TRUE(status.is_ok()) << status.message();
    return values;
  }
  static std::vector<float> ramp(std::size_t count, float first = 0) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), first);
    return values;
  }

  static GgufBuilder model(const std::string& architecture) {
    GgufBuilder b;
    b.str("general.architecture", architecture);
    for (const auto& [name, value] : {std::pair{"embedding_length", kHidden},
                                      {"feed_forward_length", kInner},
                                      {"block_count", kLayers},
                                      {"attention.head_count", kHeads},
                                      {"attention.head_count_kv", kKeyHeads},
                                      {"attention.key_length", kHead},
                                      {"attention.value_length", kHead},
                                      {"context_length", 64}}) {
      b.u32(architecture + "." + name, static_cast<std::uint32_t>(value));
    }
    b.f32(architecture + ".attention.layer_norm_rms_epsilon", 0.5f);
    b.floats("token_embd.weight", {kVocab, kHidden}, ramp(kVocab * kHidden));
    return b;
  }

  const test::TemporaryFolder temporary_;
  const std::string path_ = temporary_.file("m.gguf");
};

TEST_F(GgufSourceTest, RowsOfLlamasQueriesAndKeysGoBackToTwoHalvesAHead) {
  // What a converter does: rows of a head, seen as (2, half), are transposed to (half, 2). The
  // original's row is its number here.
  const auto converted = [](int heads) {
    std::vector<float> rows;
    for (int h = 0; h < heads; ++h) {
      for (int j = 0; j < kHead / 2; ++j) {
        for (int s = 0; s < 2; ++s)
          rows.push_back(static_cast<float>(h * kHead + s * kHead / 2 + j));
      }
    }
    return rows;
  };
  const auto matrix = [](const std::vector<float>& rows) {
    std::vector<float> all;
    for (const float row : rows) {
      for (int c = 0; c < kHidden; ++c) all.push_back(row * 100 + static_cast<float>(c));
    }
    return all;
  };
  GgufBuilder b = model("llama");
  b.floats("blk.1.attn_q.weight", {kHeads * kHead, kHidden}, matrix(converted(kHeads)))
      .floats("blk.1.attn_k.weight", {kKeyHeads * kHead, kHidden}, matrix(converted(kKeyHeads)))
      .floats("blk.1.attn_q.bias", {kHeads * kHead}, converted(kHeads))
      .floats("blk.1.attn_v.weight", {kKeyHeads * kHead, kHidden}, matrix(converted(kKeyHeads)));
  const auto source = opened(b);
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(values_of(*source, "model.layers.1.self_attn.q_proj.weight"),
            matrix(ramp(kHeads * kHead)));
  EXPECT_EQ(values_of(*source, "model.layers.1.self_attn.k_proj.weight"),
            matrix(ramp(kKeyHeads * kHead)));
  EXPECT_EQ(values_of(*source, "model.layers.1.self_attn.q_proj.bias"), ramp(kHeads * kHead));
  EXPECT_EQ(values_of(*source, "model.layers.1.self_attn.v_proj.weight"),
            matrix(converted(kKeyHeads)));
  // Some rows alone.
  std::vector<float> rows(2 * kHidden);
  ASSERT_TRUE(source->read("model.layers.1.self_attn.q_proj.weight", 7 * kHidden, rows).is_ok());
  EXPECT_EQ(rows, matrix({7, 8}));
}

TEST_F(GgufSourceTest, OtherArchitecturesKeepTheirRows) {
  GgufBuilder b = model("olmo2");
  b.floats("blk.0.attn_q.weight", {kHeads * kHead, kHidden}, ramp(kHeads * kHead * kHidden));
  const auto source = opened(b);
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(values_of(*source, "model.layers.0.self_attn.q_proj.weight"),
            ramp(kHeads * kHead * kHidden));
}

TEST_F(GgufSourceTest, GemmaNormsLoseTheOneThatGgufAdds) {
  for (const char* architecture : {"gemma2", "gemma3"}) {
    GgufBuilder b = model(architecture);
    b.u32(std::string(architecture) + ".attention.sliding_window", 16);
    const std::vector<float> stored = {1, 1.5f, 0, -1, 2, 3, 4, 5};
    b.floats("output_norm.weight", {kHidden}, stored)
        .floats("blk.0.attn_norm.weight", {kHidden}, stored)
        .floats("blk.0.ffn_up.weight", {kInner, kHidden}, ramp(kInner * kHidden));
    const auto source = opened(b);
    ASSERT_NE(source, nullptr);
    const std::vector<float> wanted = {0, 0.5f, -1, -2, 1, 2, 3, 4};
    EXPECT_EQ(values_of(*source, "model.norm.weight"), wanted);
    EXPECT_EQ(values_of(*source, "model.layers.0.input_layernorm.weight"), wanted);
    EXPECT_EQ(values_of(*source, "model.layers.0.mlp.up_proj.weight"), ramp(kInner * kHidden));
  }
}

TEST_F(GgufSourceTest, NamesAreThoseOfTheFamilysClass) {
  const struct {
    std::string architecture, gguf, wanted;
  } cases[] = {
      {"llama", "attn_output", "self_attn.o_proj"},
      {"llama", "ffn_gate", "mlp.gate_proj"},
      {"llama", "ffn_down", "mlp.down_proj"},
      {"llama", "attn_norm", "input_layernorm"},
      {"llama", "ffn_norm", "post_attention_layernorm"},
      {"gemma3", "ffn_norm", "pre_feedforward_layernorm"},
      {"gemma3", "post_attention_norm", "post_attention_layernorm"},
      {"gemma3", "post_ffw_norm", "post_feedforward_layernorm"},
      {"gemma3", "attn_q_norm", "self_attn.q_norm"},
      {"gemma2", "post_ffw_norm", "post_feedforward_layernorm"},
      {"olmo2", "post_attention_norm", "post_attention_layernorm"},
      {"olmo2", "post_ffw_norm", "post_feedforward_layernorm"},
      {"olmo2", "attn_k_norm", "self_attn.k_norm"},
      // Not of that family: a model with it is another model.
      {"llama", "attn_q_norm", ""},
      {"llama", "post_ffw_norm", ""},
      {"olmo2", "attn_norm", ""},
      {"gemma2", "attn_q_norm", ""},
      {"llama", "ffn_gate_inp", ""},
  };
  for (const auto& c : cases) {
    GgufBuilder b = model(c.architecture);
    if (c.architecture[0] == 'g') b.u32(c.architecture + ".attention.sliding_window", 16);
    b.floats("blk.1." + c.gguf + ".weight", {2}, {1, 2});
    if (c.wanted.empty()) {
      refused(b, Code::kUnimplemented, "blk.1." + c.gguf + ".weight");
      continue;
    }
    const auto source = opened(b);
    ASSERT_NE(source, nullptr);
    EXPECT_NE(source->find("model.layers.1." + c.wanted + ".weight"), nullptr) << c.wanted;
  }
  for (const char* name : {"blk.2.attn_norm.weight", "blk.01.attn_norm.weight",
                           "blk.x.attn_norm.weight", "blk.0.attn_norm.scale", "other.weight"}) {
    refused(model("llama").floats(name, {2}, {1, 2}), Code::kUnimplemented, name);
  }
}

TEST_F(GgufSourceTest, TheConfigurationSaysWhatTheMetadataSays) {
  const auto source = opened(model("llama").f32("llama.rope.freq_base", 500000));
  ASSERT_NE(source, nullptr);
  json config = json::parse(source->config_json());
  const json wanted = {{"model_type", "llama"},
                       {"architectures", {"LlamaForCausalLM"}},
                       {"vocab_size", kVocab},
                       {"hidden_size", kHidden},
                       {"intermediate_size", kInner},
                       {"num_hidden_layers", kLayers},
                       {"num_attention_heads", kHeads},
                       {"num_key_value_heads", kKeyHeads},
                       {"head_dim", kHead},
                       {"rms_norm_eps", 0.5},
                       {"rope_theta", 500000},
                       {"tie_word_embeddings", true},
                       {"attention_bias", false},
                       {"mlp_bias", false},
                       {"max_position_embeddings", 64},
                       {"hidden_act", "silu"}};
  EXPECT_EQ(config, wanted) << json::diff(config, wanted);
  const auto untied =
      opened(model("llama").floats("output.weight", {kVocab, kHidden}, ramp(kVocab * kHidden)));
  EXPECT_FALSE(json::parse(untied->config_json())["tie_word_embeddings"].get<bool>());
  EXPECT_NE(untied->find("lm_head.weight"), nullptr);

  const auto mistral = opened(model("llama").u32("llama.attention.sliding_window", 32));
  config = json::parse(mistral->config_json());
  EXPECT_EQ(config["model_type"], "mistral");
  EXPECT_EQ(config["sliding_window"], 32);

  const auto gemma2 = opened(model("gemma2")
                                 .u32("gemma2.attention.sliding_window", 16)
                                 .f32("gemma2.attn_logit_softcapping", 50)
                                 .f32("gemma2.final_logit_softcapping", 30));
  config = json::parse(gemma2->config_json());
  EXPECT_EQ(config["attn_logit_softcapping"], 50);
  EXPECT_EQ(config["final_logit_softcapping"], 30);
  EXPECT_EQ(config["query_pre_attn_scalar"], kHead);
  EXPECT_EQ(config["layer_types"], (json{"sliding_attention", "full_attention"}));
  EXPECT_EQ(config["hidden_activation"], "gelu_pytorch_tanh");

  const auto gemma3 = opened(model("gemma3")
                                 .u32("gemma3.attention.sliding_window", 16)
                                 .f32("gemma3.rope.freq_base", 1e6f)
                                 .str("gemma3.rope.scaling.type", "linear")
                                 .f32("gemma3.rope.scaling.factor", 8));
  config = json::parse(gemma3->config_json());
  EXPECT_EQ(config["model_type"], "gemma3_text");
  EXPECT_EQ(config["rope_local_base_freq"], 10000);
  EXPECT_EQ(config["rope_scaling"], (json{{"rope_type", "linear"}, {"factor", 8}}));
  EXPECT_EQ(config["layer_types"], (json{"sliding_attention", "sliding_attention"}));
}

TEST_F(GgufSourceTest, WindowPatternsAreReadAsNumberAndAsList) {
  GgufBuilder every = model("gemma3"), list = model("gemma3"), cut = model("gemma3");
  for (GgufBuilder* b : {&every, &list, &cut}) b->u32("gemma3.attention.sliding_window", 16);
  every.u32("gemma3.attention.sliding_window_pattern", 2);
  list.numbers<std::uint8_t>("gemma3.attention.sliding_window_pattern", 7, {0, 1});
  cut.numbers<std::uint8_t>("gemma3.attention.sliding_window_pattern", 7, {0});
  EXPECT_EQ(json::parse(opened(every)->config_json())["layer_types"],
            (json{"sliding_attention", "full_attention"}));
  EXPECT_EQ(json::parse(opened(list)->config_json())["layer_types"],
            (json{"full_attention", "sliding_attention"}));
  refused(cut, Code::kInvalidArgument, "sliding_window_pattern");
}

// Factors as published with Llama 3.1: see rope_type llama3 of Hugging Face's configurations.
std::vector<float> llama3_factors(double base, double factor, int head, double context = 8192) {
  std::vector<float> factors;
  for (int i = 0; i < head / 2; ++i) {
    const double wave = 2 * std::numbers::pi * std::pow(base, 2.0 * i / head);
    if (wave < context / 4) {
      factors.push_back(1);
    } else if (wave > context) {
      factors.push_back(static_cast<float>(factor));
    } else {
      const double smooth = (context / wave - 1) / 3;
      factors.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
    }
  }
  return factors;
}

TEST_F(GgufSourceTest, LlamaThreesFrequencyFactorsBecomeItsRopeScaling) {
  constexpr int kWide = 128;
  const auto wide = [&](const std::vector<float>& factors) {
    GgufBuilder b;
    b.str("general.architecture", "llama")
        .u32("llama.embedding_length", 2 * kWide)
        .u32("llama.feed_forward_length", 8)
        .u32("llama.block_count", 1)
        .u32("llama.attention.head_count", 2)
        .f32("llama.rope.freq_base", 500000)
        .f32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
        .floats("token_embd.weight", {1, 2}, {1, 2})
        .floats("rope_freqs.weight", {factors.size()}, factors);
    return b;
  };
  for (const double factor : {8.0, 32.0}) {
    const auto source = opened(wide(llama3_factors(500000, factor, kWide)));
    ASSERT_NE(source, nullptr);
    const json config = json::parse(source->config_json());
    EXPECT_EQ(config["head_dim"], kWide);
    EXPECT_EQ(config["rope_scaling"], (json{{"rope_type", "llama3"},
                                            {"factor", factor},
                                            {"low_freq_factor", 1},
                                            {"high_freq_factor", 4},
                                            {"original_max_position_embeddings", 8192}}));
    EXPECT_EQ(source->tensors().size(), 1u) << "the factors are no weights";
  }
  const std::vector<float> ones(kWide / 2, 1.0f);
  EXPECT_FALSE(json::parse(opened(wide(ones))->config_json()).contains("rope_scaling"));
  refused(wide(llama3_factors(500000, 8, kWide, 4096)), Code::kUnimplemented, "rope_freqs.weight");
  refused(wide({1, 2, 3}), Code::kUnimplemented, "rope_freqs.weight");
  refused(wide(std::vector<float>(kWide / 2, NAN)), Code::kUnimplemented, "rope_freqs.weight");
}

TEST_F(GgufSourceTest, WhatMayChangeTheMathematicsIsRefusedByName) {
  refused(model("qwen2"), Code::kUnimplemented, "architecture qwen2");
  refused(model("llama").str("llama.rope.scaling.type", "yarn"), Code::kUnimplemented, "yarn");
  refused(model("llama").f32("llama.attention.scale", 2), Code::kUnimplemented,
          "llama.attention.scale");
  refused(model("llama").u32("llama.expert_count", 8), Code::kUnimplemented, "llama.expert_count");
  EXPECT_NE(opened(model("llama").u32("llama.expert_count", 0)), nullptr);
  refused(model("llama").f32("llama.final_logit_softcapping", 30), Code::kUnimplemented,
          "soft caps");
  refused(model("olmo2").u32("olmo2.attention.sliding_window", 8), Code::kUnimplemented,
          "olmo2.attention.sliding_window");
  refused(model("llama").u32("llama.rope.dimension_count", 4), Code::kUnimplemented, "rope");
  refused(model("gemma3"), Code::kInvalidArgument, "gemma3.attention.sliding_window is missing");
  refused(model("llama").f32("llama.rope.freq_base", -1), Code::kInvalidArgument, "freq_base");
  GgufBuilder empty;
  empty.str("general.architecture", "llama");
  refused(empty, Code::kInvalidArgument, "llama.embedding_length is missing");
  refused(model("llama").floats("blk.0.attn_q.weight", {3, kHidden}, ramp(3 * kHidden)),
          Code::kDataLoss, "blk.0.attn_q.weight");
}

TEST_F(GgufSourceTest, ALargeNumberOfLayersIsRefusedBeforeItCostsMemory) {
  GgufBuilder b;
  b.str("general.architecture", "llama")
      .u32("llama.embedding_length", kHidden)
      .u32("llama.feed_forward_length", kInner)
      .u32("llama.block_count", 1'000'000'000);
  refused(b, Code::kInvalidArgument, "llama.block_count is 1000000000; at most 4096");
}

TEST_F(GgufSourceTest, ReadingOutsideATensorIsRefused) {
  const auto source = opened(model("llama"));
  ASSERT_NE(source, nullptr);
  std::vector<float> values(kHidden);
  const std::string name = "model.embed_tokens.weight";
  EXPECT_EQ(source->read("none", 0, values).code(), Code::kNotFound);
  EXPECT_EQ(source->read(name, 1, values).code(), Code::kOutOfRange);
  EXPECT_EQ(source->read(name, -kHidden, values).code(), Code::kOutOfRange);
  EXPECT_EQ(source->read(name, kVocab * kHidden, values).code(), Code::kOutOfRange);
  EXPECT_TRUE(source->read(name, (kVocab - 1) * kHidden, values).is_ok());
  EXPECT_EQ(values, ramp(kHidden, (kVocab - 1) * kHidden));
}

}  // namespace
}  // namespace tailor::pretrained
