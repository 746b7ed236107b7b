// GGUF: what opens has its metadata and every element of its tensors in the file; then as a model
// and as a tokenizer.
#include <sys/mman.h>
#include <unistd.h>

#include "model/pretrained/gguf.h"
#include "model/pretrained/gguf_source.h"
#include "model/tokenizers/tokenizer_files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/model/pretrained/gguf_builder.h"

namespace tailor::fuzz {
namespace {

using pretrained::GgufBuilder;

// One file in memory, written anew for every input.
int gguf_descriptor() {
  static const int descriptor = ::memfd_create("gguf_fuzz", MFD_CLOEXEC);
  expect(descriptor >= 0, "there is memory for one file");
  return descriptor;
}

void check_tokenizer(const pretrained::GgufFile& file) {
  auto spec = tokenizers::read_gguf_tokenizer(file);
  if (!spec) {
    expect(!spec.error().message().empty(), "a refusal says why");
    return;
  }
  const auto tokenizer = tokenizers::make_text_tokenizer(std::move(*spec), file.path());
  if (!tokenizer) return;
  std::vector<std::uint32_t> ids;
  (*tokenizer)->encode_with_specials("ab \xF0\x9F\x98\x80 12\n\xFF", &ids);
  for (const std::uint32_t id : ids) expect(id < (*tokenizer)->vocab_size(), "ids are in range");
  expect((*tokenizer)->decode(ids).has_value(), "what was encoded decodes");
}

void check(const std::string& path, std::size_t bytes) {
  const auto file = pretrained::GgufFile::open(path);
  if (!file) {
    expect(file.error().message().find(path) != std::string::npos, "errors name the file");
    return;
  }
  std::size_t covered = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    expect(tensor.position + static_cast<std::uint64_t>(tensor.bytes) <= bytes,
           "data are in the file");
    covered += static_cast<std::size_t>(tensor.bytes);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements));
    expect(file->read(tensor, 0, values).is_ok(), "what opened can be read");
  }
  expect(covered <= bytes, "tensors do not overlap");
  const auto source = pretrained::open_gguf_source(path);
  if (source) {
    for (const auto& tensor : (*source)->tensors()) {
      std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
      expect((*source)->read(tensor.name, 0, values).is_ok(), "listed tensors can be read");
    }
  }
  check_tokenizer(*file);
}

GgufBuilder model_seed(const std::string& architecture) {
  GgufBuilder b;
  b.str("general.architecture", architecture);
  for (const auto& [name, value] : {std::pair{"embedding_length", 4u},
                                    {"feed_forward_length", 2u},
                                    {"block_count", 2u},
                                    {"attention.head_count", 2u},
                                    {"context_length", 8u}}) {
    b.u32(architecture + "." + name, value);
  }
  if (architecture != "olmo2") b.u32(architecture + ".attention.sliding_window", 2);
  b.f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  b.floats("token_embd.weight", {4, 4}, std::vector<float>(16, 0.5f));
  b.floats("blk.0.attn_q.weight", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  b.tensor(architecture == "llama" ? "blk.1.ffn_norm.weight" : "blk.1.attn_k_norm.weight", {32}, 8,
           std::string(34, '\x3c'));
  return b;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  GgufBuilder bpe = model_seed("gemma3");
  bpe.str("tokenizer.ggml.model", "gpt2")
      .str("tokenizer.ggml.pre", "smollm")
      .strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|e|>"})
      .numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 3})
      .strings("tokenizer.ggml.merges", {"a b"})
      .u32("tokenizer.ggml.eos_token_id", 3);
  GgufBuilder scores;
  scores.str("tokenizer.ggml.model", "llama")
      .strings("tokenizer.ggml.tokens", {"a", "b", "ab", "\xE2\x96\x81", "<0x0A>", "</s>", "\n\n"})
      .numbers<float>("tokenizer.ggml.scores", 6, {-1, -2, 0, -3, 0, 0, 0})
      .numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 1, 6, 3, 4})
      .u32("tokenizer.ggml.eos_token_id", 5)
      .u32("general.alignment", 32);
  GgufBuilder old = model_seed("olmo2");
  old.version = 2;
  GgufBuilder llama = model_seed("llama");
  llama.u32("general.alignment", 32);
  return {bpe.bytes(), scores.bytes(), old.bytes(), llama.bytes()};
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  const int file = fuzz::gguf_descriptor();
  fuzz::expect(
      ::ftruncate(file, 0) == 0 && ::pwrite(file, data, size, 0) == static_cast<ssize_t>(size),
      "the file can be written");
  fuzz::check("/proc/self/fd/" + std::to_string(file), size);
  return 0;
}
