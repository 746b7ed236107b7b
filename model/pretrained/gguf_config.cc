#include "model/pretrained/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace tailor::pretrained {
namespace {

constexpr std::int64_t kLayersMax = 4096;  // as in config.cc

struct FamilyNames {
  GgufFamily family;
  std::string_view gguf;
  std::string_view model_type;
  std::string_view class_name;
};
constexpr std::array<FamilyNames, 4> kGgufFamilies{{
    {GgufFamily::kLlama, "llama", "llama", "LlamaForCausalLM"},
    {GgufFamily::kGemma2, "gemma2", "gemma2", "Gemma2ForCausalLM"},
    {GgufFamily::kGemma3, "gemma3", "gemma3_text", "Gemma3ForCausalLM"},
    {GgufFamily::kOlmo2, "olmo2", "olmo2", "Olmo2ForCausalLM"},
}};

// Entries under the architecture's name that are read, or say nothing about the mathematics.
constexpr std::string_view kKnownMetadata[] = {"context_length",
                                               "embedding_length",
                                               "block_count",
                                               "feed_forward_length",
                                               "vocab_size",
                                               "attention.head_count",
                                               "attention.head_count_kv",
                                               "attention.layer_norm_rms_epsilon",
                                               "attention.key_length",
                                               "attention.value_length",
                                               "attention.sliding_window",
                                               "attention.sliding_window_pattern",
                                               "attn_logit_softcapping",
                                               "final_logit_softcapping",
                                               "rope.dimension_count",
                                               "rope.freq_base",
                                               "rope.freq_base_swa",
                                               "rope.scaling.type",
                                               "rope.scaling.factor",
                                               "rope.scaling.original_context_length",
                                               "rope.scaling.finetuned",
                                               "expert_count",
                                               "expert_used_count"};

// Numbers that converters leave out because every model of the family has them.
constexpr double kDefaultRopeBase = 10000;
constexpr double kGemma3LocalRopeBase = 10000;
constexpr std::int64_t kGemma3Pattern = 6;  // every sixth layer sees everything
constexpr std::int64_t kGemma2Layers27B = 46, kGemma3Layers27B = 62;
// Llama 3's rope scaling: the published values of every model that has it.
constexpr double kLowFactor = 1, kHighFactor = 4;
constexpr int kOriginalContext = 8192;

class MetadataReader {
 public:
  MetadataReader(const GgufFile& file, const FamilyNames& names) : file_(file), names_(names) {}

  Result<GgufConfig> read();

 private:
  std::string key(std::string_view name) const { return fmt::format("{}.{}", names_.gguf, name); }
  bool has(std::string_view name) const { return file_.find(key(name)) != nullptr; }
  Result<std::int64_t> count(std::string_view name,
                             std::optional<std::int64_t> fallback = {}) const;
  Result<double> real(std::string_view name, std::optional<double> fallback = {}) const {
    return file_.number(key(name), fallback);
  }
  tl::unexpected<Status> refuse(Code code, std::string_view what) const {
    return error(code, fmt::format("{}: {}", file_.path(), what));
  }
  Status check_known() const;
  Status add_rope();
  Status add_llama3_factors(const GgufTensor& tensor, double base);
  Status add_windows();

  const GgufFile& file_;
  const FamilyNames& names_;
  GgufConfig config_;
  nlohmann::ordered_json json_;
};

// A positive integer; a list with one entry a layer counts when all are equal.
Result<std::int64_t> MetadataReader::count(std::string_view name,
                                           std::optional<std::int64_t> fallback) const {
  const GgufValue* value = file_.find(key(name));
  std::int64_t number = 0;
  if (value != nullptr && value->is_array && value->count > 0) {
    for (std::uint64_t i = 0; i < value->count; ++i) {
      const std::optional<std::int64_t> entry = value->integer(i);
      if (!entry || (i > 0 && *entry != number)) {
        return refuse(Code::kUnimplemented,
                      fmt::format("metadata {} differs from layer to layer", key(name)));
      }
      number = *entry;
    }
  } else {
    TAILOR_ASSIGN_OR_RETURN(number, file_.integer(key(name), fallback));
  }
  if (number < 1 || number > 1'000'000'000) {
    return refuse(Code::kInvalidArgument, fmt::format("metadata {} is {}", key(name), number));
  }
  return number;
}

Status MetadataReader::check_known() const {
  const std::string prefix = key("");
  for (const auto& [name, value] : file_.metadata()) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = std::string_view(name).substr(prefix.size());
    if (std::find(std::begin(kKnownMetadata), std::end(kKnownMetadata), rest) ==
        std::end(kKnownMetadata)) {
      return Status(Code::kUnimplemented,
                    fmt::format("{}: metadata {} is not known and may change the mathematics",
                                file_.path(), escape_controls(name)));
    }
    if (rest.starts_with("expert_") && value.integer() != 0) {
      return Status(
          Code::kUnimplemented,
          fmt::format("{}: metadata {}: mixtures of experts are not read", file_.path(), name));
    }
  }
  return Status::ok();
}

Status MetadataReader::add_rope() {
  TAILOR_ASSIGN_OR_RETURN(const double base, real("rope.freq_base", kDefaultRopeBase));
  if (!(base > 0) || !std::isfinite(base)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: metadata {} is {}", file_.path(), key("rope.freq_base"), base));
  }
  json_["rope_theta"] = base;
  TAILOR_ASSIGN_OR_RETURN(
      const std::string type,
      file_.text(key("rope.scaling.type"),
                 has("rope.scaling.factor") ? std::string("linear") : std::string("none")));
  if (type == "linear") {
    TAILOR_ASSIGN_OR_RETURN(const double factor, real("rope.scaling.factor", 1.0));
    if (factor != 1) json_["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
  } else if (type != "none") {
    return Status(
        Code::kUnimplemented,
        fmt::format("{}: rope scaling {} is not known (none, linear and Llama 3's factors "
                    "are)",
                    file_.path(), escape_controls(type)));
  }
  const auto factors = file_.tensors().find("rope_freqs.weight");
  if (factors == file_.tensors().end()) return Status::ok();
  if (json_.contains("rope_scaling")) {
    return Status(
        Code::kUnimplemented,
        fmt::format("{}: both {} rope scaling and rope_freqs.weight", file_.path(), type));
  }
  return add_llama3_factors(factors->second, base);
}

// The tensor holds, for each frequency, what it is divided by: 1 for wave lengths below
// context/high, the factor above context/low, and 1 / ((1 - s) / factor + s) between, with
// s = (context / wave length - low) / (high - low). The factor is the largest entry; that the rest
// follows from it is checked.
Status MetadataReader::add_llama3_factors(const GgufTensor& tensor, double base) {
  const auto refused = [&](std::string_view what) {
    return Status(Code::kUnimplemented,
                  fmt::format("{}: tensor rope_freqs.weight {}", file_.path(), what));
  };
  if (tensor.elements * 2 != config_.head_dim) return refused("does not fit the head");
  std::vector<float> stored(static_cast<std::size_t>(tensor.elements));
  TAILOR_RETURN_IF_ERROR(file_.read(tensor, 0, stored));
  const double factor = *std::max_element(stored.begin(), stored.end());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const double wave =
        2 * std::numbers::pi *
        std::pow(base, 2.0 * static_cast<double>(i) / static_cast<double>(config_.head_dim));
    const double smooth = (kOriginalContext / wave - kLowFactor) / (kHighFactor - kLowFactor);
    const double wanted =
        1 / ((1 - std::clamp(smooth, 0.0, 1.0)) / factor + std::clamp(smooth, 0.0, 1.0));
    if (!(std::abs(stored[i] - wanted) <= 1e-4 * wanted)) {
      return refused("holds factors that are not Llama 3's");
    }
  }
  if (factor != 1) {
    json_["rope_scaling"] = {{"rope_type", "llama3"},
                             {"factor", factor},
                             {"low_freq_factor", kLowFactor},
                             {"high_freq_factor", kHighFactor},
                             {"original_max_position_embeddings", kOriginalContext}};
  }
  return Status::ok();
}

// Sliding windows: Mistral's in every layer, Gemma 2's in every other one,
// Gemma 3's in all but every sixth.
Status MetadataReader::add_windows() {
  const GgufFamily family = config_.family;
  const bool is_gemma = family == GgufFamily::kGemma2 || family == GgufFamily::kGemma3;
  if (!has("attention.sliding_window")) {
    if (!is_gemma) return Status::ok();
    return Status(Code::kInvalidArgument, fmt::format("{}: metadata {} is missing", file_.path(),
                                                      key("attention.sliding_window")));
  }
  if (family == GgufFamily::kOlmo2) {
    return Status(Code::kUnimplemented, fmt::format("{}: metadata {}: OLMo-2 has no window (OLMo-3 "
                                                    "is not read)",
                                                    file_.path(), key("attention.sliding_window")));
  }
  TAILOR_ASSIGN_OR_RETURN(const std::int64_t window, count("attention.sliding_window"));
  json_["sliding_window"] = window;
  if (family == GgufFamily::kLlama) {
    json_["model_type"] = "mistral";
    json_["architectures"] = {"MistralForCausalLM"};
  }
  const GgufValue* pattern = file_.find(key("attention.sliding_window_pattern"));
  const std::int64_t period = family == GgufFamily::kGemma3 ? kGemma3Pattern : 2;
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    bool slides = family == GgufFamily::kLlama || (layer + 1) % period != 0;
    if (pattern != nullptr && pattern->is_array) {  // one truth value a layer
      const auto entry = pattern->integer(static_cast<std::uint64_t>(layer));
      if (!entry) {
        return Status(Code::kInvalidArgument,
                      fmt::format("{}: metadata {} does not cover layer {}", file_.path(),
                                  key("attention.sliding_window_pattern"), layer));
      }
      slides = *entry != 0;
    } else if (pattern != nullptr) {  // every so many layers, one sees everything
      const std::int64_t every = pattern->integer().value_or(0);
      if (every < 1) {
        return Status(Code::kInvalidArgument,
                      fmt::format("{}: metadata {} is impossible", file_.path(),
                                  key("attention.sliding_window_pattern")));
      }
      slides = (layer + 1) % every != 0;
    }
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
  if (is_gemma) json_["layer_types"] = types;
  return Status::ok();
}

Result<GgufConfig> MetadataReader::read() {
  TAILOR_RETURN_IF_ERROR(check_known());
  config_.family = names_.family;
  TAILOR_ASSIGN_OR_RETURN(const std::int64_t hidden, count("embedding_length"));
  TAILOR_ASSIGN_OR_RETURN(const std::int64_t inner, count("feed_forward_length"));
  TAILOR_ASSIGN_OR_RETURN(config_.layers, count("block_count"));
  // Lists of that length are made below: a claim must not cost memory.
  if (config_.layers > kLayersMax) {
    return refuse(Code::kInvalidArgument,
                  fmt::format("metadata {} is {}; at most {} are read", key("block_count"),
                              config_.layers, kLayersMax));
  }
  TAILOR_ASSIGN_OR_RETURN(config_.heads, count("attention.head_count"));
  TAILOR_ASSIGN_OR_RETURN(config_.key_value_heads, count("attention.head_count_kv", config_.heads));
  TAILOR_ASSIGN_OR_RETURN(
      const std::int64_t turned,
      count("rope.dimension_count", std::max<std::int64_t>(1, hidden / config_.heads)));
  TAILOR_ASSIGN_OR_RETURN(config_.head_dim, count("attention.key_length", turned));
  TAILOR_ASSIGN_OR_RETURN(const std::int64_t value_dim,
                          count("attention.value_length", config_.head_dim));
  if (value_dim != config_.head_dim ||
      (has("rope.dimension_count") && turned != config_.head_dim)) {
    return refuse(Code::kUnimplemented,
                  fmt::format("heads of {} keys, {} values and {} turned by rope: only equal sizes "
                              "are read",
                              config_.head_dim, value_dim, turned));
  }
  if (config_.head_dim % 2 != 0 || config_.heads % config_.key_value_heads != 0) {
    return refuse(Code::kInvalidArgument,
                  fmt::format("impossible heads: {} of {} elements, {} of keys and values",
                              config_.heads, config_.head_dim, config_.key_value_heads));
  }
  TAILOR_ASSIGN_OR_RETURN(const double epsilon, real("attention.layer_norm_rms_epsilon"));
  const auto& tensors = file_.tensors();
  const auto embedding = tensors.find("token_embd.weight");
  if (embedding == tensors.end() || embedding->second.shape.size() != 2) {
    return refuse(Code::kDataLoss, "tensor token_embd.weight is missing or is no matrix");
  }

  const bool is_gemma =
      config_.family == GgufFamily::kGemma2 || config_.family == GgufFamily::kGemma3;
  json_["architectures"] = {names_.class_name};
  json_["model_type"] = names_.model_type;
  json_["vocab_size"] = embedding->second.shape[0];
  json_["hidden_size"] = hidden;
  json_["intermediate_size"] = inner;
  json_["num_hidden_layers"] = config_.layers;
  json_["num_attention_heads"] = config_.heads;
  json_["num_key_value_heads"] = config_.key_value_heads;
  json_["head_dim"] = config_.head_dim;
  json_["rms_norm_eps"] = epsilon;
  json_["tie_word_embeddings"] = !tensors.contains("output.weight");
  json_["attention_bias"] = tensors.contains("blk.0.attn_q.bias");
  if (has("context_length")) {
    TAILOR_ASSIGN_OR_RETURN(json_["max_position_embeddings"], count("context_length"));
  }
  TAILOR_RETURN_IF_ERROR(add_rope());
  TAILOR_RETURN_IF_ERROR(add_windows());
  if (is_gemma) {
    json_["hidden_activation"] = "gelu_pytorch_tanh";
    const bool is_27b =
        config_.layers ==
        (config_.family == GgufFamily::kGemma2 ? kGemma2Layers27B : kGemma3Layers27B);
    json_["query_pre_attn_scalar"] = is_27b ? hidden / config_.heads : config_.head_dim;
    for (const auto& [ours, theirs] :
         {std::pair{"attn_logit_softcapping", "attn_logit_softcapping"},
          std::pair{"final_logit_softcapping", "final_logit_softcapping"}}) {
      json_[theirs] = nullptr;
      if (has(ours)) {
        TAILOR_ASSIGN_OR_RETURN(json_[theirs], real(ours));
      }
    }
  } else {
    json_["hidden_act"] = "silu";
    if (has("attn_logit_softcapping") || has("final_logit_softcapping")) {
      return refuse(Code::kUnimplemented, "soft caps are Gemma's; this architecture has none");
    }
  }
  if (config_.family == GgufFamily::kLlama) {
    json_["mlp_bias"] = tensors.contains("blk.0.ffn_gate.bias");
  }
  if (config_.family == GgufFamily::kGemma3) {
    TAILOR_ASSIGN_OR_RETURN(json_["rope_local_base_freq"],
                            real("rope.freq_base_swa", kGemma3LocalRopeBase));
  }
  for (const auto& [ours, theirs] : {std::pair{"bos", "bos_token_id"}, {"eos", "eos_token_id"}}) {
    const GgufValue* id = file_.find(fmt::format("tokenizer.ggml.{}_token_id", ours));
    if (id != nullptr && id->integer()) json_[theirs] = *id->integer();
  }
  config_.json = json_.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  return std::move(config_);
}

}  // namespace

Result<GgufConfig> read_gguf_config(const GgufFile& file) {
  TAILOR_ASSIGN_OR_RETURN(const std::string architecture, file.text("general.architecture"));
  for (const FamilyNames& names : kGgufFamilies) {
    if (names.gguf == architecture) return MetadataReader(file, names).read();
  }
  return error(Code::kUnimplemented,
               fmt::format("{}: architecture {} is not known (llama, gemma2, gemma3 and olmo2 are)",
                           file.path(), escape_controls(architecture)));
}

}  // namespace tailor::pretrained
