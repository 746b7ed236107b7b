#include "model/pretrained/model.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "model/pretrained/config.h"
#include "model/pretrained/folder.h"
#include "model/pretrained/gguf_source.h"

namespace tailor::pretrained {
namespace {

constexpr std::string_view kBody = "model.";
constexpr std::string_view kHead = "lm_head.weight";

// Where the decoder's tensors stand in a checkpoint: alone, or beside a vision tower, as published
// and as newer versions of transformers write it.
struct Prefixes {
  std::string_view body;
  std::string_view head;
};
constexpr Prefixes kPrefixes[] = {
    {"model.", ""}, {"language_model.model.", "language_model."}, {"model.language_model.", ""}};
constexpr std::string_view kSkipped[] = {"vision_tower.", "multi_modal_projector.",
                                         "model.vision_tower.", "model.multi_modal_projector."};

const Prefixes& prefixes_of(const TensorSource& source) {
  for (const Prefixes& prefixes : kPrefixes) {
    if (source.find(std::string(prefixes.body) + "embed_tokens.weight") != nullptr) return prefixes;
  }
  return kPrefixes[0];
}

// A head that is stored although it is tied says nothing new,
// or the checkpoint is not what its config says.
Status check_tied_head(const TensorSource& source, const std::string& head,
                       const std::string& embedding) {
  const SourceTensor* a = source.find(head);
  const SourceTensor* b = source.find(embedding);
  const auto differs = [&] {
    return Status(Code::kDataLoss,
                  fmt::format("{}: tensor {} differs from {}, though the config ties them",
                              source.path(), head, embedding));
  };
  if (b == nullptr || a->shape != b->shape) return differs();
  const std::int64_t columns = std::max<std::int64_t>(1, a->columns());
  const std::int64_t rows = std::max<std::int64_t>(1, (1 << 20) / columns);
  std::vector<float> x(static_cast<std::size_t>(rows * columns));
  std::vector<float> y(x.size());
  for (std::int64_t first = 0; first < a->elements(); first += rows * columns) {
    const auto count = static_cast<std::size_t>(std::min(rows * columns, a->elements() - first));
    TAILOR_RETURN_IF_ERROR(source.read(head, first, std::span(x).first(count)));
    TAILOR_RETURN_IF_ERROR(source.read(embedding, first, std::span(y).first(count)));
    if (!std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(count), y.begin()))
      return differs();
  }
  return Status::ok();
}

}  // namespace

std::string stored_name(const TensorSource& source, std::string_view name) {
  const Prefixes& prefixes = prefixes_of(source);
  return name.starts_with(kBody)
             ? std::string(prefixes.body) + std::string(name.substr(kBody.size()))
             : std::string(prefixes.head) + std::string(name);
}

Status check_tensors(const TensorSource& source, std::span<const std::string> names,
                     bool tied_head) {
  std::set<std::string, std::less<>> known;
  for (const std::string& name : names) known.insert(stored_name(source, name));
  const std::string head = stored_name(source, kHead);
  for (const SourceTensor& tensor : source.tensors()) {
    const bool vision =
        std::any_of(std::begin(kSkipped), std::end(kSkipped),
                    [&](std::string_view prefix) { return tensor.name.starts_with(prefix); });
    // Old Llama files keep the rotary frequencies, which follow from the config.
    if (vision || known.contains(tensor.name) ||
        tensor.name.ends_with(".self_attn.rotary_emb.inv_freq")) {
      continue;
    }
    if (tied_head && tensor.name == head) {
      TAILOR_RETURN_IF_ERROR(
          check_tied_head(source, head, stored_name(source, "model.embed_tokens.weight")));
      continue;
    }
    return Status(Code::kDataLoss,
                  fmt::format("{}: tensor {} has no place in the network that the config describes",
                              source.path(), tensor.name));
  }
  return Status::ok();
}

Result<std::unique_ptr<net::Decoder>> load_decoder(net::DecoderForm form,
                                                   const TensorSource& source, at::Device device,
                                                   bool bf16) {
  const bool tied = form.tied_head;
  std::unique_ptr<net::Decoder> decoder;
  try {
    decoder = std::make_unique<net::Decoder>(std::move(form), device, bf16, net::Use::kInference);
  } catch (const c10::Error& failure) {
    return error(Code::kResourceExhausted,
                 fmt::format("no memory for the weights of {}: {}", source.path(),
                             failure.what_without_backtrace()));
  }
  TAILOR_RETURN_IF_ERROR(decoder->parameters().load_weights(
      source, [&](const net::Part& part) { return stored_name(source, part.name); }));
  std::vector<std::string> names;
  for (const net::Part* part : decoder->parameters().parts()) names.push_back(part->name);
  TAILOR_RETURN_IF_ERROR(check_tensors(source, names, tied));
  return decoder;
}

Result<std::unique_ptr<net::Decoder>> load_model(const std::string& path, at::Device device,
                                                 bool bf16) {
  if (is_gguf_path(path)) {
    TAILOR_ASSIGN_OR_RETURN(const std::unique_ptr<GgufSource> source, open_gguf_source(path));
    TAILOR_ASSIGN_OR_RETURN(net::DecoderForm form, parse_config(source->config_json(), path));
    return load_decoder(std::move(form), *source, device, bf16);
  }
  TAILOR_ASSIGN_OR_RETURN(net::DecoderForm form, read_config(path));
  TAILOR_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> source, open_pretrained(path));
  return load_decoder(std::move(form), *source, device, bf16);
}

}  // namespace tailor::pretrained
