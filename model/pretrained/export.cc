#include "model/pretrained/export.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace tailor::pretrained {
namespace {

using nlohmann::ordered_json;

ordered_json id_or_null(const std::optional<std::uint32_t>& id) {
  return id ? ordered_json(*id) : ordered_json();
}

}  // namespace

bool has_published_class(const shape::Architecture& a) {
  const bool olmo2 = a.family == shape::Family::kOlmo2;
  const bool uniform = std::all_of(a.widths.begin(), a.widths.end(),
                                   [&](const auto& layer) { return layer == a.widths.front(); });
  // With one sub-MLP first_only is per_sub.
  const bool usual_norm =
      olmo2 ? a.ffn_norm == shape::FfnNorm::kPerSubPost
            : a.ffn_norm == shape::FfnNorm::kPerSub || a.ffn_norm == shape::FfnNorm::kFirstOnly;
  return a.ffn_kind == shape::FfnKind::kSwiglu && uniform && usual_norm && !a.ffn_outer_residual &&
         !a.norm_scaling && !a.residual_scaling && a.d_model % a.heads == 0;
}

std::string export_config(const shape::Architecture& a, std::int64_t positions,
                          const SpecialIds& ids) {
  if (!has_published_class(a)) {
    const ordered_json own = {
        {"architectures", {"TailorHourglassForCausalLM"}},
        {"model_type", "tailor_hourglass"},
        {"architecture", parse_ordered_json(shape::canonical_json(a)).value()},
        {"max_position_embeddings", positions},
        {"bos_token_id", id_or_null(ids.bos)},
        {"eos_token_id", ids.eos},
        {"torch_dtype", "float32"}};
    return own.dump(2) + "\n";
  }
  const bool olmo2 = a.family == shape::Family::kOlmo2;
  ordered_json config = {{"architectures", {olmo2 ? "Olmo2ForCausalLM" : "LlamaForCausalLM"}},
                         {"model_type", olmo2 ? "olmo2" : "llama"},
                         {"hidden_size", a.d_model},
                         {"intermediate_size", a.widths.front().front()},
                         {"num_hidden_layers", a.layers()},
                         {"num_attention_heads", a.heads},
                         {"num_key_value_heads", a.kv_heads},
                         {"head_dim", a.head_dim},
                         {"vocab_size", a.vocab_size},
                         {"hidden_act", "silu"},
                         {"attention_bias", false},
                         {"max_position_embeddings", positions},
                         {"rms_norm_eps", a.norm_eps},
                         {"rope_theta", a.rope_theta},
                         {"tie_word_embeddings", a.tie_embeddings},
                         // The classes' defaults are tokens of the published vocabularies.
                         {"bos_token_id", id_or_null(ids.bos)},
                         {"eos_token_id", ids.eos},
                         {"pad_token_id", nullptr},
                         {"torch_dtype", "float32"}};
  if (!olmo2) config["mlp_bias"] = false;
  return config.dump(2) + "\n";
}

std::string export_generation_config(const SpecialIds& ids) {
  const ordered_json config = {{"_from_model_config", true},
                               {"bos_token_id", id_or_null(ids.bos)},
                               {"eos_token_id", ids.eos},
                               {"pad_token_id", nullptr}};
  return config.dump(2) + "\n";
}

}  // namespace tailor::pretrained
