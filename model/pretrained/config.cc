#include "model/pretrained/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "model/pretrained/json_fields.h"
#include "model/shape/architecture.h"

namespace tailor::pretrained {
namespace {

using net::Activation;
using net::DecoderForm;
using net::QkNorm;
using nlohmann::json;

constexpr std::uint64_t kConfigBytesMax = 16 << 20;

// JsonFields that do not change the forward pass of a decoder over a whole sequence: names,
// training (dropout too) and generation settings, which kernel computes attention, sizes of caches
// and what transformers and others write about themselves. `auto_map` names code for classes that
// transformers lacks; the families here it has.
constexpr std::string_view kHarmless[] = {"_attn_implementation",
                                          "_attn_implementation_autoset",
                                          "_attn_implementation_internal",
                                          "_commit_hash",
                                          "_experts_implementation",
                                          "_flash_attn_2_enabled",
                                          "_from_model_config",
                                          "_name_or_path",
                                          "_sdpa_enabled",
                                          "architectures",
                                          "assistant_early_exit",
                                          "attention_dropout",
                                          "attention_dropout_prob",
                                          "attention_probs_dropout_prob",
                                          "attn_impl",
                                          "attn_implementation",
                                          "attn_pdrop",
                                          "auto_map",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "bos_token",
                                          "bos_token_id",
                                          "cache_implementation",
                                          "chunk_size_feed_forward",
                                          "classifier_bias",
                                          "classifier_dropout",
                                          "decoder_start_token_id",
                                          "diversity_penalty",
                                          "do_sample",
                                          "dropout",
                                          "dtype",
                                          "early_stopping",
                                          "embd_pdrop",
                                          "embedding_dropout",
                                          "encoder_no_repeat_ngram_size",
                                          "end_token_id",
                                          "eos_token",
                                          "eos_token_id",
                                          "epsilon_cutoff",
                                          "eta_cutoff",
                                          "exponential_decay_length_penalty",
                                          "finetuning_task",
                                          "force_words_ids",
                                          "forced_bos_token_id",
                                          "forced_decoder_ids",
                                          "forced_eos_token_id",
                                          "generation_config",
                                          "gradient_checkpointing",
                                          "guidance_scale",
                                          "hidden_dropout",
                                          "hidden_dropout_prob",
                                          "id2label",
                                          "ignore_index",
                                          "initializer_factor",
                                          "initializer_range",
                                          "is_decoder",
                                          "is_llama_config",
                                          "keys_to_ignore_at_inference",
                                          "label2id",
                                          "length_penalty",
                                          "license",
                                          "logits_to_keep",
                                          "low_memory",
                                          "mask_token_id",
                                          "max_length",
                                          "max_new_tokens",
                                          "max_position_embeddings",
                                          "max_seq_len",
                                          "max_seq_length",
                                          "max_sequence_length",
                                          "max_time",
                                          "min_length",
                                          "min_new_tokens",
                                          "min_p",
                                          "model_max_length",
                                          "model_name",
                                          "n_positions",
                                          "neuron",
                                          "no_repeat_ngram_size",
                                          "num_assistant_tokens",
                                          "num_beam_groups",
                                          "num_beams",
                                          "num_labels",
                                          "num_logits_to_keep",
                                          "num_return_sequences",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_past",
                                          "output_router_logits",
                                          "output_scores",
                                          "pad_token",
                                          "pad_token_id",
                                          "peft_version",
                                          "penalty_alpha",
                                          "prefix",
                                          "problem_type",
                                          "remove_invalid_values",
                                          "renormalize_logits",
                                          "repetition_penalty",
                                          "resid_pdrop",
                                          "residual_dropout",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "sep_token_id",
                                          "seq_length",
                                          "sequence_bias",
                                          "stop_strings",
                                          "suppress_tokens",
                                          "task_specific_params",
                                          "temperature",
                                          "tf_legacy_loss",
                                          "tokenizer_class",
                                          "tokenizer_name",
                                          "top_k",
                                          "top_p",
                                          "torch_dtype",
                                          "torchscript",
                                          "transformers.js_config",
                                          "transformers_version",
                                          "trl_version",
                                          "trust_remote_code",
                                          "typical_p",
                                          "unk_token",
                                          "unk_token_id",
                                          "unsloth_fixed",
                                          "unsloth_force_compile",
                                          "unsloth_optimized",
                                          "unsloth_version",
                                          "use_bfloat16",
                                          "use_cache",
                                          "use_flash_attention",
                                          "use_flash_attention_2",
                                          "use_flash_attn",
                                          "use_memory_efficient_attention",
                                          "use_return_dict",
                                          "use_sdpa"};

// Besides, of a multimodal checkpoint whose text part alone is used.
constexpr std::string_view kHarmlessMultimodal[] = {"boi_token_index",     "eoi_token_index",
                                                    "image_token_id",      "image_token_index",
                                                    "mm_tokens_per_image", "vision_config"};

// JsonFields that must have one value, since another is not implemented.
constexpr std::pair<std::string_view, bool> kFixed[] = {
    {"add_cross_attention", false}, {"attention_bias", false},
    {"is_encoder_decoder", false},  {"mlp_bias", false},
    {"rope_interleaved", false},    {"shared_input_output_embedding", false},
    {"tie_encoder_decoder", false}, {"use_bidirectional_attention", false},
    {"use_sliding_window", false}};

// Lists and objects that change nothing while they are empty, and numbers while they are 1.
constexpr std::string_view kEmpty[] = {"pruned_heads"};
constexpr std::string_view kOne[] = {"pretraining_tp"};

struct Family {
  std::string_view model_type;
  bool tied = false;                             // default of tie_word_embeddings
  std::int64_t kv_heads = 0;                     // default; 0 = as many as heads
  std::int64_t head_dim = 0;                     // default; 0 = hidden_size / heads
  double theta = 10000;                          // default
  std::optional<std::int64_t> sliding_window{};  // default, of families that have one
  bool gemma = false;
};
constexpr Family kFamilies[] = {
    {"llama"},
    {"olmo2"},
    {.model_type = "mistral", .kv_heads = 8, .sliding_window = 4096},
    {.model_type = "gemma2",
     .tied = true,
     .kv_heads = 4,
     .head_dim = 256,
     .sliding_window = 4096,
     .gemma = true},
    {.model_type = "gemma3_text",
     .tied = true,
     .kv_heads = 4,
     .head_dim = 256,
     .theta = 1e6,
     .sliding_window = 4096,
     .gemma = true},
};

// The inverse frequencies that a rope object (rope_scaling, or a part of rope_parameters)
// describes. `theta` is the base where the object has none.
std::vector<double> rope_of(JsonFields* fields, std::int64_t head_dim, double theta,
                            std::int64_t positions) {
  if (fields == nullptr) return net::rope_frequencies(head_dim, theta);
  const bool old_name = !fields->has("rope_type") && fields->has("type");
  const std::string type = fields->text(old_name ? "type" : "rope_type", "default");
  if (!old_name && fields->has("type") && fields->text("type", type) != type) {
    fields->fail(Code::kInvalidArgument, "type", "contradicts `rope_type`");
  }
  theta = fields->number("rope_theta", 1, 1e12, theta);
  if (fields->number("partial_rotary_factor", 0, 1, 1) != 1) {
    fields->fail(Code::kUnimplemented, "partial_rotary_factor", "other than 1 is not implemented");
  }
  std::vector<double> frequencies = net::rope_frequencies(head_dim, theta);
  if (type == "linear") {
    const double factor = fields->number("factor", 1e-6, 1e6);
    for (double& f : frequencies) f /= factor;
  } else if (type == "llama3") {
    net::Llama3Scaling scaling;
    scaling.factor = fields->number("factor", 1e-6, 1e6);
    scaling.low_freq_factor = fields->number("low_freq_factor", 1e-6, 1e6);
    scaling.high_freq_factor = fields->number("high_freq_factor", 1e-6, 1e6);
    scaling.original_positions = static_cast<double>(
        fields->integer("original_max_position_embeddings", 1, 1'000'000'000, positions));
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      fields->fail(Code::kInvalidArgument, "high_freq_factor", "is not above `low_freq_factor`");
    } else {
      net::scale_llama3(scaling, frequencies);
    }
  } else if (type != "default") {
    fields->fail(Code::kUnimplemented, old_name ? "type" : "rope_type",
                 fmt::format("is \"{}\"; known: default, linear, llama3", type));
  }
  // The context that it was trained for decides nothing but in Llama 3's rule.
  constexpr std::string_view kUnused[] = {"original_max_position_embeddings"};
  fields->adopt(fields->finish(kUnused));
  return frequencies;
}

// Sets form.ropes: one for every layer, or {full, sliding} for Gemma 3.
void read_ropes(JsonFields& fields, const Family& family, DecoderForm& form) {
  const bool two = family.model_type == "gemma3_text";
  const std::int64_t positions = fields.integer("max_position_embeddings", 1, 1'000'000'000, 8192);
  const double theta = fields.number("rope_theta", 1, 1e12, family.theta);
  const double local_theta = two ? fields.number("rope_local_base_freq", 1, 1e12, 10000) : theta;
  const auto read = [&](JsonFields* of, double base) {
    form.ropes.push_back(rope_of(of, form.head_dim, base, positions));
    if (of != nullptr) fields.adopt(of->status());
  };
  std::optional<JsonFields> now = fields.object("rope_parameters");
  std::optional<JsonFields> before = fields.object("rope_scaling");
  if (now && before) {
    fields.fail(Code::kInvalidArgument, "rope_scaling", "is given beside `rope_parameters`");
  }
  const bool nested = now && (now->has("full_attention") || now->has("sliding_attention"));
  if (!nested) {
    // In the old form of Gemma 3 the scaling is that of the layers with full attention.
    read(now ? &*now : before ? &*before : nullptr, theta);
    if (two) read(nullptr, local_theta);
    return;
  }
  if (!two) {
    fields.fail(Code::kUnimplemented, "rope_parameters",
                fmt::format("differs between layers, which {} models do not", family.model_type));
  }
  std::optional<JsonFields> full = now->object("full_attention");
  std::optional<JsonFields> sliding = now->object("sliding_attention");
  read(full ? &*full : nullptr, theta);
  read(sliding ? &*sliding : nullptr, local_theta);
  fields.adopt(now->finish({}));
}

// Sets the windows and the ropes of the layers.
void read_layer_kinds(JsonFields& fields, const Family& family, DecoderForm& form) {
  const std::size_t depth = form.layers.size();
  std::int64_t window = 0;
  if (family.sliding_window) {
    // null says none; an absent field stands for the published class's default.
    window = fields.is_null("sliding_window")
                 ? 0
                 : fields.integer("sliding_window", 0, 1'000'000'000, *family.sliding_window);
    const std::int64_t twice = fields.integer("sliding_window_size", 0, 1'000'000'000, window);
    if (twice != window) {
      fields.fail(Code::kInvalidArgument, "sliding_window_size", "contradicts `sliding_window`");
    }
  }
  const bool gemma3 = family.model_type == "gemma3_text";
  // Gemma 3's field has two names.
  const bool plain_name =
      fields.has("sliding_window_pattern") || !fields.has("_sliding_window_pattern");
  const std::int64_t pattern =
      gemma3 ? fields.integer(plain_name ? "sliding_window_pattern" : "_sliding_window_pattern", 1,
                              1'000'000, 6)
             : 2;
  const json* types = fields.take("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() != depth)) {
    fields.fail(Code::kInvalidArgument, "layer_types", "is not a list of one text a layer");
    return;
  }
  for (std::size_t l = 0; l < depth; ++l) {
    // Mistral: every layer. Gemma: all but every second, every sixth (or as the pattern says).
    bool sliding = family.sliding_window &&
                   (!family.gemma || (l + 1) % static_cast<std::size_t>(pattern) != 0);
    if (types != nullptr) {
      const json& type = (*types)[l];
      sliding = type == "sliding_attention";
      if (!sliding && type != "full_attention") {
        fields.fail(Code::kUnimplemented, "layer_types",
                    "names a kind of layer besides full_attention and sliding_attention");
      }
      if (sliding && !family.sliding_window) {
        fields.fail(
            Code::kUnimplemented, "layer_types",
            fmt::format("has sliding_attention, which {} models do not", family.model_type));
      }
    }
    if (sliding) form.layers[l].window = window;
    if (sliding && gemma3) form.layers[l].rope = 1;
  }
}

Activation read_activation(JsonFields& fields, const Family& family) {
  // The Gemma classes look at hidden_activation alone.
  std::string name = fields.text("hidden_act", "silu");
  std::string_view field = "hidden_act";
  if (family.gemma) {
    field = "hidden_activation";
    name = fields.text(field, "gelu_pytorch_tanh");
  }
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast")
    return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGelu;
  fields.fail(Code::kUnimplemented, field,
              fmt::format("is \"{}\"; known: silu, gelu, gelu_pytorch_tanh", name));
  return Activation::kSilu;
}

// Weights that another library packed are other tensors under the same names.
void refuse_quantized(JsonFields& fields) {
  for (const std::string_view name :
       {"quantization_config", "quantization", "compression_config"}) {
    const json* value = fields.take(name);
    if (value == nullptr) continue;
    std::string method;
    for (const char* key : {"quant_method", "mode", "format"}) {
      const auto found = value->is_object() ? value->find(key) : value->end();
      if (method.empty() && found != value->end() && found->is_string()) {
        method = " (" + short_text(found->get<std::string>(), 40) + ")";
      }
    }
    fields.fail(
        Code::kUnimplemented, name,
        fmt::format("says that the weights are quantised{}: unsupported; take the model in bf16 "
                    "or fp32, or as GGUF",
                    method));
  }
}

void check_fixed(JsonFields& fields) {
  for (const auto& [name, wanted] : kFixed) {
    if (fields.boolean(name, wanted) != wanted) {
      fields.fail(Code::kUnimplemented, name,
                  fmt::format("is {}; only {} is implemented", !wanted, wanted));
    }
  }
  for (const std::string_view name : kEmpty) {
    if (const json* value = fields.take(name); value != nullptr && !value->empty()) {
      fields.fail(Code::kUnimplemented, name, "is not empty, which is not implemented");
    }
  }
  for (const std::string_view name : kOne) {
    if (fields.number(name, 0, 1e9, 1) != 1) {
      fields.fail(Code::kUnimplemented, name, "other than 1 is not implemented");
    }
  }
  refuse_quantized(fields);
}

// `fields` without those that only tell the kind of the file. `tied` is what an outer object says.
Result<DecoderForm> read_text_config(JsonFields& fields, const Family& family,
                                     std::optional<bool> tied) {
  const bool gemma3 = family.model_type == "gemma3_text";
  using Default = std::optional<std::int64_t>;
  DecoderForm form;
  // Published Gemma 3 files leave out what the class has as its default.
  form.d_model = fields.integer("hidden_size", 1, 1 << 18, gemma3 ? Default(2304) : Default());
  const std::int64_t hidden =
      fields.integer("intermediate_size", 1, 1 << 20, gemma3 ? Default(9216) : Default());
  const std::int64_t depth =
      fields.integer("num_hidden_layers", 1, 4096, gemma3 ? Default(26) : Default());
  form.heads = fields.integer("num_attention_heads", 1, 1 << 14, gemma3 ? Default(8) : Default());
  form.vocab_size = fields.integer("vocab_size", 1, 1 << 26, gemma3 ? Default(262208) : Default());
  form.kv_heads = fields.integer("num_key_value_heads", 1, 1 << 14,
                                 family.kv_heads > 0 ? family.kv_heads : form.heads);
  form.head_dim = fields.integer("head_dim", 2, 1 << 14,
                                 family.head_dim > 0 ? family.head_dim : form.d_model / form.heads);
  form.tied_head = fields.boolean("tie_word_embeddings", tied.value_or(family.tied));
  form.norm_eps =
      fields.number("rms_norm_eps", 1e-30, 1, gemma3 ? std::optional(1e-6) : std::nullopt);
  check_fixed(fields);
  TAILOR_RETURN_IF_ERROR(fields.status());
  if (form.heads % form.kv_heads != 0) {
    fields.fail(
        Code::kInvalidArgument, "num_key_value_heads",
        fmt::format("is {}, no divisor of num_attention_heads = {}", form.kv_heads, form.heads));
  }
  if (form.head_dim % 2 != 0) fields.fail(Code::kInvalidArgument, "head_dim", "is odd");
  if (!fields.has("head_dim") && family.head_dim == 0 && form.d_model % form.heads != 0) {
    fields.fail(Code::kInvalidArgument, "head_dim",
                "is missing, and hidden_size is no multiple of num_attention_heads");
  }
  TAILOR_RETURN_IF_ERROR(fields.status());

  form.layers.assign(static_cast<std::size_t>(depth),
                     net::LayerForm{{static_cast<std::int32_t>(hidden)}});
  form.activation = read_activation(fields, family);
  if (family.model_type == "olmo2") {
    form.attention_norm_before = false;
    form.attention_norm_behind = true;
    form.qk_norm = QkNorm::kWhole;
    form.ffn_norm = shape::FfnNorm::kPerSubPost;
  }
  if (family.gemma) {
    form.gain_plus_one = true;
    form.attention_norm_behind = true;
    form.ffn_norm_behind = true;
    form.embedding_scale = std::sqrt(static_cast<double>(form.d_model));
    form.attention_scale = 1.0 / std::sqrt(fields.number("query_pre_attn_scalar", 1e-6, 1e6, 256));
    form.qk_norm = gemma3 ? QkNorm::kPerHead : QkNorm::kNone;
    // null says none; absent, Gemma 2's defaults.
    const auto cap = [&](std::string_view name, double usual) {
      if (gemma3 || fields.is_null(name)) usual = 0;
      return fields.number(name, 0, 1e6, usual);
    };
    form.score_cap = cap("attn_logit_softcapping", 50);
    form.logit_cap = cap("final_logit_softcapping", 30);
  }
  read_ropes(fields, family, form);
  read_layer_kinds(fields, family, form);
  TAILOR_RETURN_IF_ERROR(fields.finish(kHarmless));
  return form;
}

const Family* family_of(std::string_view model_type) {
  const auto* found =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const Family& family) { return family.model_type == model_type; });
  return found == std::end(kFamilies) ? nullptr : found;
}

// Gemma 3 with a vision tower: the text part is an object of its own.
Result<DecoderForm> read_multimodal(JsonFields& fields) {
  std::optional<bool> tied;
  if (fields.has("tie_word_embeddings")) tied = fields.boolean("tie_word_embeddings", true);
  std::optional<JsonFields> text = fields.object("text_config");
  TAILOR_RETURN_IF_ERROR(fields.status());
  if (!text) {
    fields.fail(Code::kInvalidArgument, "text_config", "is missing");
    return error(fields.status());
  }
  if (text->text("model_type", "gemma3_text") != "gemma3_text") {
    text->fail(Code::kUnimplemented, "model_type", "is not gemma3_text");
  }
  TAILOR_ASSIGN_OR_RETURN(DecoderForm form,
                          read_text_config(*text, *family_of("gemma3_text"), tied));
  check_fixed(fields);
  std::vector<std::string_view> harmless(std::begin(kHarmless), std::end(kHarmless));
  harmless.insert(harmless.end(), std::begin(kHarmlessMultimodal), std::end(kHarmlessMultimodal));
  TAILOR_RETURN_IF_ERROR(fields.finish(harmless));
  return form;
}

Result<DecoderForm> read_own(JsonFields& fields, std::string_view file) {
  const json* value = fields.take("architecture");
  if (value == nullptr) {
    fields.fail(Code::kInvalidArgument, "architecture", "is missing");
    return error(fields.status());
  }
  auto architecture =
      shape::architecture_from_json(value->dump(-1, ' ', false, json::error_handler_t::replace));
  if (!architecture) return error(architecture.error().with_context(file));
  check_fixed(fields);
  TAILOR_RETURN_IF_ERROR(fields.finish(kHarmless));
  return net::form_of(*architecture);
}

}  // namespace

Result<DecoderForm> parse_config(std::string_view text, std::string_view file) {
  auto parsed = parse_json(text);
  if (!parsed) {
    return error(Code::kDataLoss, fmt::format("{}: not JSON ({}): cut, altered or something else",
                                              file, parsed.error().message()));
  }
  const json root = *std::move(parsed);
  if (!root.is_object()) {
    return error(Code::kDataLoss,
                 fmt::format("{}: not a JSON object: cut, altered or something else", file));
  }
  JsonFields fields(root, std::string(file), "");
  const std::string type = fields.text("model_type", "");
  TAILOR_RETURN_IF_ERROR(fields.status());
  if (type == "tailor_hourglass") return read_own(fields, file);
  if (type == "gemma3") return read_multimodal(fields);
  if (const Family* family = family_of(type)) return read_text_config(fields, *family, {});
  fields.fail(Code::kUnimplemented, "model_type",
              fmt::format("is \"{}\"; known: llama, olmo2, mistral, gemma2, gemma3, gemma3_text, "
                          "tailor_hourglass",
                          type));
  return error(fields.status());
}

Result<DecoderForm> read_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
  return parse_config(text, path);
}

}  // namespace tailor::pretrained
