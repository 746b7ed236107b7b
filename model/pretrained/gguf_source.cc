#include "model/pretrained/gguf_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "model/pretrained/gguf_config.h"

namespace tailor::pretrained {
namespace {

// What must be undone in a tensor.
enum class Undo { kNothing, kQueryRows, kKeyRows, kOnePlus };

struct Mapping {
  std::string name;  // Hugging Face's
  Undo undo = Undo::kNothing;
};

// The Hugging Face module of a block's GGUF module; "" when the family has none of that name.
std::string_view block_module(GgufFamily family, std::string_view module) {
  const bool is_gemma = family == GgufFamily::kGemma2 || family == GgufFamily::kGemma3;
  const bool is_llama = family == GgufFamily::kLlama;
  const bool is_olmo = family == GgufFamily::kOlmo2;
  if (module == "attn_q") return "self_attn.q_proj";
  if (module == "attn_k") return "self_attn.k_proj";
  if (module == "attn_v") return "self_attn.v_proj";
  if (module == "attn_output") return "self_attn.o_proj";
  if (module == "ffn_gate") return "mlp.gate_proj";
  if (module == "ffn_up") return "mlp.up_proj";
  if (module == "ffn_down") return "mlp.down_proj";
  if (module == "attn_norm" && !is_olmo) return "input_layernorm";
  if (module == "ffn_norm" && is_llama) return "post_attention_layernorm";
  if (module == "ffn_norm" && is_gemma) return "pre_feedforward_layernorm";
  if (module == "post_attention_norm" && !is_llama) return "post_attention_layernorm";
  if (module == "post_ffw_norm" && !is_llama) return "post_feedforward_layernorm";
  const bool has_head_norms = is_olmo || family == GgufFamily::kGemma3;
  if (module == "attn_q_norm" && has_head_norms) return "self_attn.q_norm";
  if (module == "attn_k_norm" && has_head_norms) return "self_attn.k_norm";
  return "";
}

std::optional<Mapping> mapping_of(const GgufConfig& config, std::string_view name) {
  const bool is_gemma =
      config.family == GgufFamily::kGemma2 || config.family == GgufFamily::kGemma3;
  const Undo norm = is_gemma ? Undo::kOnePlus : Undo::kNothing;
  if (name == "token_embd.weight") return Mapping{"model.embed_tokens.weight"};
  if (name == "output_norm.weight") return Mapping{"model.norm.weight", norm};
  if (name == "output.weight") return Mapping{"lm_head.weight"};
  if (!name.starts_with("blk.")) return {};
  const std::vector<std::string_view> words = split(name.substr(4), '.');
  if (words.size() != 3 || (words[2] != "weight" && words[2] != "bias")) return {};
  std::int64_t layer = -1;
  const char* end = words[0].data() + words[0].size();
  if (std::from_chars(words[0].data(), end, layer).ptr != end || layer < 0 ||
      layer >= config.layers || fmt::format("{}", layer) != words[0]) {
    return {};
  }
  const std::string_view module = block_module(config.family, words[1]);
  if (module.empty()) return {};
  Mapping mapping{fmt::format("model.layers.{}.{}.{}", layer, module, words[2])};
  if (words[1].ends_with("_norm")) mapping.undo = norm;
  if (config.family == GgufFamily::kLlama && words[1] == "attn_q") mapping.undo = Undo::kQueryRows;
  if (config.family == GgufFamily::kLlama && words[1] == "attn_k") mapping.undo = Undo::kKeyRows;
  return mapping;
}

class MappedSource final : public GgufSource {
 public:
  MappedSource(GgufFile file, GgufConfig config)
      : file_(std::move(file)), config_(std::move(config)) {}

  Status map_tensors();

  const std::string& path() const override { return file_.path(); }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  const std::string& config_json() const override { return config_.json; }
  const GgufFile& file() const override { return file_; }
  Status read(std::string_view name, std::int64_t first, std::span<float> values) const override;

 private:
  struct Entry {
    const GgufTensor* tensor;
    Undo undo;
  };
  // The GGUF row of row `row` of a q or k matrix: GGUF has the two halves of a head interleaved.
  std::int64_t stored_row(std::int64_t row) const {
    const std::int64_t half = config_.head_dim / 2;
    const std::int64_t within = row % config_.head_dim;
    return row - within + 2 * (within % half) + within / half;
  }
  Status read_permuted(const GgufTensor& tensor, std::int64_t first, std::span<float> values) const;

  GgufFile file_;
  GgufConfig config_;
  std::vector<SourceTensor> tensors_;
  std::map<std::string, Entry, std::less<>> entries_;
};

Status MappedSource::map_tensors() {
  for (const auto& [name, tensor] : file_.tensors()) {
    if (name == "rope_freqs.weight") continue;  // part of the configuration
    std::optional<Mapping> mapping = mapping_of(config_, name);
    if (!mapping) {
      return Status(
          Code::kUnimplemented,
          fmt::format("{}: tensor {} is not known for this architecture and may change the "
                      "mathematics",
                      path(), escape_controls(name)));
    }
    const std::int64_t heads = mapping->undo == Undo::kQueryRows ? config_.heads
                               : mapping->undo == Undo::kKeyRows ? config_.key_value_heads
                                                                 : 0;
    if (heads > 0 && tensor.shape[0] != heads * config_.head_dim) {
      return Status(
          Code::kDataLoss,
          fmt::format("{}: tensor {} has {} rows where {} heads of {} need {}", path(), name,
                      tensor.shape[0], heads, config_.head_dim, heads * config_.head_dim));
    }
    tensors_.push_back({mapping->name, tensor.shape, std::string(tensor.type->name)});
    entries_.emplace(std::move(mapping->name), Entry{&tensor, mapping->undo});
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const SourceTensor& a, const SourceTensor& b) { return a.name < b.name; });
  return Status::ok();
}

Status MappedSource::read_permuted(const GgufTensor& tensor, std::int64_t first,
                                   std::span<float> values) const {
  if (tensor.shape.size() == 1) {  // a bias: one element a row, read whole
    std::vector<float> stored(values.size());
    TAILOR_RETURN_IF_ERROR(file_.read(tensor, 0, stored));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = stored[static_cast<std::size_t>(stored_row(static_cast<std::int64_t>(i)))];
    }
    return Status::ok();
  }
  const std::int64_t columns = tensor.shape.back();
  for (std::size_t at = 0; at < values.size(); at += static_cast<std::size_t>(columns)) {
    const std::int64_t row = (first + static_cast<std::int64_t>(at)) / columns;
    TAILOR_RETURN_IF_ERROR(file_.read(tensor, stored_row(row) * columns,
                                      values.subspan(at, static_cast<std::size_t>(columns))));
  }
  return Status::ok();
}

Status MappedSource::read(std::string_view name, std::int64_t first,
                          std::span<float> values) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return Status(Code::kNotFound, fmt::format("{}: has no tensor {}", path(), name));
  }
  const GgufTensor& tensor = *found->second.tensor;
  const std::int64_t columns = tensor.shape.back();
  const auto count = static_cast<std::int64_t>(values.size());
  if (first < 0 || first % columns != 0 || count % columns != 0 || first > tensor.elements ||
      count > tensor.elements - first) {
    return Status(Code::kOutOfRange,
                  fmt::format("{}: tensor {}: elements {} to {} are no whole rows of it", path(),
                              name, first, first + count));
  }
  const Undo undo = found->second.undo;
  if (undo == Undo::kQueryRows || undo == Undo::kKeyRows) {
    return read_permuted(tensor, first, values).with_context(name);
  }
  TAILOR_RETURN_IF_ERROR(file_.read(tensor, first, values).with_context(name));
  if (undo == Undo::kOnePlus) {
    for (float& value : values) value -= 1;
  }
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<GgufSource>> open_gguf_source(const std::string& path) {
  TAILOR_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  TAILOR_ASSIGN_OR_RETURN(GgufConfig config, read_gguf_config(file));
  auto source = std::make_unique<MappedSource>(std::move(file), std::move(config));
  TAILOR_RETURN_IF_ERROR(source->map_tensors());
  return std::unique_ptr<GgufSource>(std::move(source));
}

}  // namespace tailor::pretrained
