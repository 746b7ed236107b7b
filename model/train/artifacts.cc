#include "model/train/artifacts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "geometry/npy.h"
#include "model/pretrained/safetensors.h"

namespace tailor::train {
namespace {

// config.json beside exported weights, in the form of Hugging Face's; hourglass stacks add their
// own key.
std::string config_json(const shape::Architecture& a, std::int64_t sequence_length) {
  using nlohmann::ordered_json;
  const bool olmo2 = a.family == shape::Family::kOlmo2;
  ordered_json config = {
      {"architectures", {olmo2 ? "Olmo2ForCausalLM" : "LlamaForCausalLM"}},
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
      {"mlp_bias", false},
      {"max_position_embeddings", sequence_length},
      {"rms_norm_eps", a.norm_eps},
      {"rope_theta", a.rope_theta},
      {"tie_word_embeddings", a.tie_embeddings},
      {"torch_dtype", "float32"},
  };
  const bool uniform = std::all_of(a.widths.begin(), a.widths.end(),
                                   [&](const auto& layer) { return layer == a.widths.front(); });
  const bool conventional_norm =
      a.ffn_norm == (olmo2 ? shape::FfnNorm::kPerSubPost : shape::FfnNorm::kPerSub);
  if (a.ffn_kind != shape::FfnKind::kSwiglu || !uniform || !conventional_norm ||
      a.ffn_outer_residual) {
    // Not a network that other programs know: the whole architecture, for ours.
    config["tailor"] = ordered_json::parse(shape::canonical_json(a));
  }
  return config.dump(2) + "\n";
}

Status make_folder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  return failure ? errno_status(failure.value(), "create", folder) : Status::ok();
}

}  // namespace

Status export_weights(const net::Decoder& decoder, std::int64_t sequence_length,
                      const std::string& folder) {
  TAILOR_RETURN_IF_ERROR(make_folder(folder));
  const at::Tensor weights = decoder.parameters().flat().to(at::kCPU);
  const std::string path = folder + "/model.safetensors";
  const std::string temporary = path + ".partial";
  TAILOR_RETURN_IF_ERROR(status_of(pretrained::write_safetensors(
      temporary, decoder.parameters().describe(weights, ""), {{"format", "pt"}})));
  std::error_code failure;
  std::filesystem::rename(temporary, path, failure);
  if (failure) return errno_status(failure.value(), "rename", temporary);
  return write_file_atomic(folder + "/config.json",
                           config_json(decoder.architecture(), sequence_length));
}

Status write_blocks(const Evaluation& evaluation, const std::string& folder) {
  TAILOR_RETURN_IF_ERROR(make_folder(folder));
  std::vector<double> values;
  for (const eval::BlockLoss& block : evaluation.blocks) {
    values.push_back(block.nats);
    values.push_back(static_cast<double>(block.tokens));
  }
  const std::size_t shape[] = {evaluation.blocks.size(), 2};
  return geometry::write_npy(folder + "/validation_blocks.npy", values, shape);
}

}  // namespace tailor::train
