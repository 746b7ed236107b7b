// Hugging Face configs: both forms of each family give the same network, defaults are those of the
// published classes, and whatever would change the network unseen is an error that names it.
#include "model/pretrained/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "model/pretrained/export.h"

namespace tailor::pretrained {
namespace {

using net::DecoderForm;
using nlohmann::json;
using testing::HasSubstr;

std::string data(const std::string& name) {
  return std::string(TAILOR_TEST_DATA) + "/model/" + name;
}

json read(const std::string& name) {
  std::ifstream file(data(name));
  return json::parse(file);
}

DecoderForm parsed(const json& config) {
  const auto form = parse_config(config.dump(), "x/config.json");
  EXPECT_TRUE(form.has_value()) << form.error().message();
  return form.value_or(DecoderForm());
}

void refused(const json& config, Code code, const std::string& says) {
  const auto form = parse_config(config.dump(), "x/config.json");
  ASSERT_FALSE(form.has_value()) << config.dump();
  EXPECT_EQ(form.error().code(), code) << form.error().message();
  EXPECT_THAT(form.error().message(), HasSubstr("x/config.json"));
  EXPECT_THAT(form.error().message(), HasSubstr(says));
}

TEST(Config, OldAndNewFormGiveTheSameNetwork) {
  for (const std::string name :
       {"llama_untied", "llama_tied", "olmo2", "mistral", "gemma2", "gemma3"}) {
    EXPECT_EQ(parsed(read(name + "/config.json")), parsed(read(name + "/config.v5.json"))) << name;
  }
  EXPECT_EQ(parsed(read("gemma3_multimodal_prefix/config.json")),
            parsed(read("gemma3/config.json")));
}

TEST(Config, FamiliesDifferWhereTheyShould) {
  const DecoderForm llama = parsed(read("llama_untied/config.json"));
  EXPECT_TRUE(llama.attention_norm_before);
  EXPECT_FALSE(llama.attention_norm_behind);
  EXPECT_FALSE(llama.tied_head);
  EXPECT_EQ(llama.kv_heads, 2);
  const DecoderForm olmo2 = parsed(read("olmo2/config.json"));
  EXPECT_FALSE(olmo2.attention_norm_before);
  EXPECT_EQ(olmo2.qk_norm, net::QkNorm::kWhole);
  EXPECT_EQ(olmo2.ffn_norm, shape::FfnNorm::kPerSubPost);
  const DecoderForm mistral = parsed(read("mistral/config.json"));
  EXPECT_EQ(mistral.head_dim, 16);
  for (const net::LayerForm& layer : mistral.layers) EXPECT_EQ(layer.window, 16);
  const DecoderForm gemma2 = parsed(read("gemma2/config.json"));
  EXPECT_TRUE(gemma2.gain_plus_one && gemma2.tied_head && gemma2.ffn_norm_behind);
  EXPECT_EQ(gemma2.score_cap, 5);
  EXPECT_EQ(gemma2.logit_cap, 6);
  EXPECT_EQ(gemma2.embedding_scale, 8);
  EXPECT_DOUBLE_EQ(gemma2.attention_scale, 1 / std::sqrt(24.0));
  EXPECT_EQ(gemma2.layers[0].window, 12);
  EXPECT_EQ(gemma2.layers[1].window, 0);
  const DecoderForm gemma3 = parsed(read("gemma3/config.json"));
  EXPECT_EQ(gemma3.qk_norm, net::QkNorm::kPerHead);
  EXPECT_EQ(gemma3.score_cap, 0);
  ASSERT_EQ(gemma3.ropes.size(), 2u);
  EXPECT_EQ(gemma3.layers[2].rope, 0u);
  EXPECT_EQ(gemma3.layers[2].window, 0);
  EXPECT_EQ(gemma3.layers[3].rope, 1u);
  EXPECT_EQ(gemma3.layers[3].window, 12);
}

TEST(Config, PublishedFilesThatLeaveDefaultsOutAreRead) {
  // The text part of Gemma 3 4B names only what differs from its class.
  const DecoderForm gemma3 = parsed(json::parse(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
      "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
      "sliding_window": 1024},
    "vision_config": {"hidden_size": 1152}, "boi_token_index": 255999, "eoi_token_index": 256000,
    "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02,
    "mm_tokens_per_image": 256, "torch_dtype": "bfloat16", )"
                                                R"("transformers_version": "4.50.0.dev0"})"));
  EXPECT_EQ(gemma3.heads, 8);
  EXPECT_EQ(gemma3.kv_heads, 4);
  EXPECT_EQ(gemma3.head_dim, 256);
  EXPECT_EQ(gemma3.vocab_size, 262208);
  EXPECT_EQ(gemma3.norm_eps, 1e-6);
  EXPECT_DOUBLE_EQ(gemma3.attention_scale, 1.0 / 16);
  EXPECT_EQ(gemma3.layers[4].window, 1024);
  EXPECT_EQ(gemma3.layers[5].window, 0);  // every sixth
  EXPECT_DOUBLE_EQ(gemma3.ropes[0][1], std::pow(1e6, -2.0 / 256) / 8);
  EXPECT_DOUBLE_EQ(gemma3.ropes[1][1], std::pow(1e4, -2.0 / 256));

  json underscored = read("gemma3/config.json");
  underscored["_sliding_window_pattern"] = underscored["sliding_window_pattern"];
  underscored.erase("sliding_window_pattern");
  EXPECT_EQ(parsed(underscored), parsed(read("gemma3/config.json")));

  json mistral = read("mistral/config.json");
  mistral["sliding_window"] = nullptr;  // as version 0.3 has it
  EXPECT_EQ(parsed(mistral).layers[0].window, 0);
  mistral.erase("sliding_window");
  EXPECT_EQ(parsed(mistral).layers[0].window, 4096);
  json llama = read("llama_untied/config.json");
  llama.erase("rope_theta");
  llama.erase("rope_scaling");
  llama.erase("num_key_value_heads");
  EXPECT_EQ(parsed(llama).kv_heads, 4);
  EXPECT_EQ(parsed(llama).ropes[0], net::rope_frequencies(16, 10000));
}

TEST(Config, RopeTablesAreThoseOfThePublishedModels) {
  const json tables = read("rope_tables.json");
  for (const auto& [name, table] : tables["cases"].items()) {
    json config = read("llama_untied/config.json");
    config["head_dim"] = table["head_dim"];
    config["rope_theta"] = table["rope_theta"];
    config["rope_scaling"] = table["rope_scaling"];
    const DecoderForm form = parsed(config);
    ASSERT_EQ(form.ropes[0].size(), table["inv_freq"].size()) << name;
    for (std::size_t i = 0; i < form.ropes[0].size(); ++i) {
      const double wanted = table["inv_freq"][i];
      EXPECT_NEAR(form.ropes[0][i], wanted, 1e-6 * wanted) << name << " " << i;
    }
  }
}

TEST(Config, EveryFormOfRopeScalingIsRead) {
  const json good = read("llama_untied/config.json");
  json old_name = good;
  old_name["rope_scaling"]["type"] = "llama3";
  old_name["rope_scaling"].erase("rope_type");
  EXPECT_EQ(parsed(old_name), parsed(good));
  json both = good;
  both["rope_scaling"]["type"] = "llama3";
  EXPECT_EQ(parsed(both), parsed(good));
  both["rope_scaling"]["type"] = "linear";
  refused(both, Code::kInvalidArgument, "rope_scaling.type");
  json none = good;
  none["rope_scaling"] = nullptr;
  EXPECT_EQ(parsed(none).ropes[0], net::rope_frequencies(16, 10000));
  json yarn = good;
  yarn["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}};
  refused(yarn, Code::kUnimplemented, "`rope_scaling.rope_type` is \"yarn\"");
  json extra = good;
  extra["rope_scaling"]["mscale"] = 2;
  refused(extra, Code::kUnimplemented, "`rope_scaling.mscale`");
  json lacking = good;
  lacking["rope_scaling"].erase("factor");
  refused(lacking, Code::kInvalidArgument, "`rope_scaling.factor` is missing");
  json nested = read("llama_untied/config.v5.json");
  nested["rope_parameters"] = {{"full_attention", {{"rope_theta", 1e4}}}};
  refused(nested, Code::kUnimplemented, "rope_parameters");
}

// Fields of config.json files on the Hub: of the classes of transformers through its versions, of
// the models' own code, and of those who converted or tuned them.
TEST(Config, FieldsOfPublishedFilesThatChangeNothingAreReadPast) {
  const json fields = json::parse(R"({
    "_name_or_path": "meta-llama/Llama-3.2-1B", "_attn_implementation": "sdpa",
    "_attn_implementation_autoset": true, "_attn_implementation_internal": null,
    "_commit_hash": "ab12",
    "_flash_attn_2_enabled": true, "attn_implementation": "flash_attention_2",
    "_from_model_config": true,
    "architectures": ["LlamaForCausalLM"],
    "auto_map": {"AutoConfig": "configuration_llama.LlamaConfig"}, "attention_dropout": 0.1,
    "hidden_dropout": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "dropout": 0.1,
    "bad_words_ids": [[1]], "bos_token_id": 128000, "eos_token_id": [128001, 128008],
    "pad_token_id": 0,
    "unk_token_id": 0, "decoder_start_token_id": 1, "dtype": "bfloat16", "torch_dtype": "float16",
    "gradient_checkpointing": true, "initializer_range": 0.02, "initializer_factor": 1.0,
    "is_decoder": true, "is_encoder_decoder": false, "add_cross_attention": false,
    "cross_attention_hidden_size": null, "keys_to_ignore_at_inference": ["past_key_values"],
    "max_position_embeddings": 131072, "max_sequence_length": 2048, "model_max_length": 4096,
    "max_new_tokens": 20, "min_p": 0.1, "num_labels": 2, "id2label": {"0": "a"},
    "label2id": {"a": 0},
    "num_logits_to_keep": 0, "output_router_logits": false, "pretraining_tp": 1, "pruned_heads": {},
    "shared_input_output_embedding": false, "tf_legacy_loss": false, "tie_encoder_decoder": false,
    "tokenizer_class": "LlamaTokenizer", "transformers.js_config": {"dtype": "q4"},
    "transformers_version": "4.46.1", "unsloth_fixed": true, "unsloth_version": "2025.1",
    "use_cache": true,
    "use_bfloat16": true, "use_flash_attention": true, "use_flash_attention_2": true,
    "use_flash_attn": true,
    "use_sliding_window": false, "attention_bias": false, "mlp_bias": false,
    "rope_interleaved": false,
    "quantization_config": null, "clip_qkv": null, "temperature": 0.6, "top_p": 0.9
  })");
  for (const std::string name : {"llama_untied", "olmo2", "mistral", "gemma2", "gemma3"}) {
    const json plain = read(name + "/config.json");
    json config = plain;
    for (const auto& [key, value] : fields.items()) {
      if (!config.contains(key)) config[key] = value;
    }
    EXPECT_EQ(parsed(config), parsed(plain)) << name;
  }
  json multimodal = read("gemma3_multimodal_prefix/config.json");
  for (const auto& [key, value] : fields.items()) {
    if (!multimodal.contains(key) && key != "max_position_embeddings") multimodal[key] = value;
  }
  EXPECT_EQ(parsed(multimodal), parsed(read("gemma3/config.json")));
}

TEST(Config, AFieldThatChangesNothingIsStillRefusedAtAValueThatDoes) {
  const auto with = [](const std::string& key, const json& value) {
    json config = read("llama_untied/config.json");
    config[key] = value;
    return config;
  };
  refused(with("pretraining_tp", 2), Code::kUnimplemented, "`pretraining_tp`");
  refused(with("pruned_heads", {{"0", {1}}}), Code::kUnimplemented, "`pruned_heads`");
  refused(with("use_sliding_window", true), Code::kUnimplemented, "`use_sliding_window`");
  refused(with("shared_input_output_embedding", true), Code::kUnimplemented,
          "`shared_input_output_embedding`");
  refused(with("add_cross_attention", true), Code::kUnimplemented, "`add_cross_attention`");
  refused(with("clip_qkv", 8.0), Code::kUnimplemented, "`clip_qkv`");
  json own_code = with("auto_map", {{"AutoConfig", "configuration_x.XConfig"}});
  own_code["model_type"] = "x";
  refused(own_code, Code::kUnimplemented, "`model_type`");
  refused(with("quantization_config", {{"quant_method", "fp8"}}), Code::kUnimplemented,
          "quantised (fp8): unsupported");
  json multimodal = read("gemma3_multimodal_prefix/config.json");
  multimodal["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  refused(multimodal, Code::kUnimplemented, "quantised (gptq): unsupported");
}

TEST(Config, TextThatIsNoJsonObjectIsDamaged) {
  using namespace std::string_literals;
  const std::string good = read("llama_untied/config.json").dump();
  for (const std::string& text :
       {good + "\0"s, good + "\0 {}"s, good + "{}", good.substr(0, good.size() - 1), "[]"s,
        good.substr(0, good.size() - 1) + ",\"vocab_size\":3}", std::string(200'000, '['),
        good.substr(0, good.size() - 1) + ",\"x\":" + std::string(200'000, '[') +
            std::string(200'000, ']') + "}"}) {
    const auto form = parse_config(text, "x/config.json");
    ASSERT_FALSE(form.has_value());
    EXPECT_EQ(form.error().code(), Code::kDataLoss);
    EXPECT_LT(form.error().message().size(), 400u);
  }
}

TEST(Config, WhatWouldChangeTheNetworkIsRefusedByName) {
  const auto changed = [](const std::string& model, const std::string& key, const json& value) {
    json config = read(model + "/config.json");
    config[key] = value;
    return config;
  };
  refused(changed("llama_untied", "attention_bias", true), Code::kUnimplemented,
          "`attention_bias`");
  refused(changed("llama_untied", "rope_interleaved", true), Code::kUnimplemented,
          "`rope_interleaved`");
  refused(changed("llama_untied", "mlp_bias", true), Code::kUnimplemented, "`mlp_bias`");
  refused(changed("llama_untied", "hidden_act", "relu"), Code::kUnimplemented, "\"relu\"");
  refused(changed("gemma2", "hidden_activation", "relu"), Code::kUnimplemented, "\"relu\"");
  refused(changed("llama_untied", "quantization_config", {{"bits", 4}}), Code::kUnimplemented,
          "`quantization_config`");
  refused(changed("llama_untied", "residual_multiplier", 0.5), Code::kUnimplemented,
          "`residual_multiplier`");
  refused(changed("llama_untied", "sliding_window", 16), Code::kUnimplemented, "`sliding_window`");
  refused(changed("gemma3", "use_bidirectional_attention", true), Code::kUnimplemented,
          "`use_bidirectional_attention`");
  refused(changed("gemma2", "sliding_window_size", 13), Code::kInvalidArgument,
          "`sliding_window_size`");
  refused(changed("llama_untied", "partial_rotary_factor", 0.5), Code::kUnimplemented,
          "`partial_rotary_factor`");
  refused(changed("llama_untied", "layer_types", json::array({"full_attention"})),
          Code::kInvalidArgument, "`layer_types`");
  refused(changed("mistral", "layer_types", json(4, "chunked_attention")), Code::kUnimplemented,
          "`layer_types`");
  refused(changed("llama_untied", "model_type", "qwen2"), Code::kUnimplemented, "\"qwen2\"");
  refused(changed("gemma3_multimodal_prefix", "text_tower_scale", 2), Code::kUnimplemented,
          "`text_tower_scale`");
  // A null says nothing.
  EXPECT_EQ(parsed(changed("llama_untied", "residual_multiplier", nullptr)),
            parsed(read("llama_untied/config.json")));
}

TEST(Config, WrongValuesAreRefusedByName) {
  const auto changed = [](const std::string& key, const json& value) {
    json config = read("llama_untied/config.json");
    config[key] = value;
    return config;
  };
  refused(changed("hidden_size", "64"), Code::kInvalidArgument, "`hidden_size` is \"64\"");
  refused(changed("hidden_size", 0), Code::kInvalidArgument, "`hidden_size` is 0");
  refused(changed("num_hidden_layers", 1u << 31), Code::kInvalidArgument, "`num_hidden_layers`");
  refused(changed("vocab_size", 18446744073709551615u), Code::kInvalidArgument, "`vocab_size`");
  refused(changed("num_key_value_heads", 3), Code::kInvalidArgument, "`num_key_value_heads` is 3");
  refused(changed("head_dim", 15), Code::kInvalidArgument, "`head_dim` is odd");
  refused(changed("rms_norm_eps", -1), Code::kInvalidArgument, "`rms_norm_eps`");
  refused(changed("tie_word_embeddings", "yes"), Code::kInvalidArgument, "`tie_word_embeddings`");
  refused(changed("rope_scaling", "linear"), Code::kInvalidArgument, "`rope_scaling`");
  json missing = read("llama_untied/config.json");
  missing.erase("intermediate_size");
  refused(missing, Code::kInvalidArgument, "`intermediate_size` is missing");
  missing = read("mistral/config.json");
  missing["num_attention_heads"] = 6;
  refused(missing, Code::kInvalidArgument, "`head_dim`");
  for (const char* text : {"", "{", "[]", "7", "{\"model_type\": 3}"}) {
    EXPECT_FALSE(parse_config(text, "x").has_value()) << text;
  }
  const std::string deep = "{\"hidden_size\": " + std::string(1'000'000, '[');
  EXPECT_FALSE(parse_config(deep + std::string(1'000'000, ']') + "}", "x").has_value());
  const auto none = read_config("/nonexistent");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), Code::kNotFound);
}

shape::Architecture architecture() {
  shape::Architecture a;
  a.d_model = 64;
  a.heads = 4;
  a.kv_heads = 2;
  a.head_dim = 24;
  a.vocab_size = 100;
  a.widths = shape::uniform_widths(3, 1, 80);
  a.rope_theta = 12345.5;
  a.norm_eps = 3e-6;
  return a;
}

TEST(Export, WhatIsExportedReadsBackAsTheSameNetwork) {
  std::vector<shape::Architecture> all(7, architecture());
  all[1].family = shape::Family::kOlmo2;
  all[1].ffn_norm = shape::FfnNorm::kPerSubPost;
  all[1].tie_embeddings = false;
  all[2].ffn_kind = shape::FfnKind::kHourglass;
  all[2].widths = {{8, 9}, {10}, {11, 12, 13}};
  all[3].norm_scaling = true;
  all[4].widths = {{80}, {72}, {64}};
  all[5].ffn_norm = shape::FfnNorm::kPerSubGainless;
  all[6].residual_scaling = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string text =
        export_config(all[i], 128, {50256, i == 0 ? std::optional(7u) : std::nullopt});
    const auto form = parse_config(text, "exported");
    ASSERT_TRUE(form.has_value()) << form.error().message();
    EXPECT_EQ(*form, net::form_of(all[i])) << text;
    EXPECT_EQ(has_published_class(all[i]), i < 2) << i;
    EXPECT_EQ(json::parse(text)["eos_token_id"], 50256);
    EXPECT_EQ(json::parse(text)["bos_token_id"], i == 0 ? json(7) : json());
    EXPECT_EQ(json::parse(text)["model_type"],
              i == 0 ? "llama" : (i == 1 ? "olmo2" : "tailor_hourglass"));
  }
}

TEST(Export, AnArchitectureThatIsBrokenIsRefused) {
  json config = json::parse(export_config(
      [] {
        shape::Architecture a = architecture();
        a.norm_scaling = true;
        return a;
      }(),
      128, {}));
  config["architecture"]["heads"] = 0;
  refused(config, Code::kInvalidArgument, "`heads`");
  config.erase("architecture");
  refused(config, Code::kInvalidArgument, "`architecture` is missing");
}

}  // namespace
}  // namespace tailor::pretrained
