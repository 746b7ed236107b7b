// Readers of checkpoints: a Hugging Face config, an index of safetensors files, a safetensors file.
// What is accepted has the sizes that it says; what is refused is refused with the file's name.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "model/pretrained/config.h"
#include "model/pretrained/folder.h"
#include "model/pretrained/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

// A folder of this process with one good shard, into which an input is written as an index or as
// the weights themselves.
const std::string& folder() {
  static const std::string path = [] {
    std::string made =
        (std::filesystem::temp_directory_path() / ("tailor-fuzz-" + std::to_string(::getpid())))
            .string();
    std::filesystem::create_directories(made + "/index");
    std::filesystem::create_directories(made + "/weights");
    const float values[] = {1, 2, 3, 4};
    const std::vector<pretrained::TensorData> tensors = {
        {"a", pretrained::DType::kF32, {2, 2}, values},
        {"b", pretrained::DType::kBf16, {4}, values}};
    expect(pretrained::write_safetensors(made + "/index/one.safetensors", tensors).has_value(),
           "the shard is written");
    return made;
  }();
  static const struct Cleaner {
    ~Cleaner() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    std::string path;
  } cleaner{path};
  return path;
}

std::string header(const std::string& json, std::size_t data) {
  std::string out(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return out + json + std::string(data, '\x3f');
}

void read_all(const std::string& path) {
  const auto source = pretrained::open_pretrained(path);
  if (!source) {
    expect(source.error().message().find(path) != std::string::npos, "errors name the file");
    return;
  }
  for (const pretrained::SourceTensor& tensor : (*source)->tensors()) {
    expect(tensor.elements() >= 0 && tensor.elements() <= 1 << 20, "sizes fit the file");
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    const Status status = (*source)->read(tensor.name, 0, values);
    expect(status.is_ok() || status.code() == Code::kInvalidArgument,
           "every tensor of numbers can be read");
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"model_type":"llama","hidden_size":64,"intermediate_size":176,"num_hidden_layers":4,)"
      R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":256,"hidden_act":"silu",)"
      R"("rms_norm_eps":1e-05,"rope_theta":10000.0,"tie_word_embeddings":false,"head_dim":16,)"
      R"("rope_scaling":{"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":64,"rope_type":"llama3"}})",
      R"({"model_type":"gemma3_text","num_hidden_layers":4,"sliding_window":12,)"
      R"("layer_types":["sliding_attention","full_attention","sliding_attention",)"
      R"("full_attention"],)"
      R"("rope_parameters":{"full_attention":{"factor":8.0,"rope_theta":1000000,)"
      R"("rope_type":"linear"},)"
      R"("sliding_attention":{"rope_theta":10000,"rope_type":"default"}}})",
      R"({"model_type":"gemma3","text_config":{"hidden_size":64,"num_hidden_layers":2}})",
      R"({"model_type":"gemma2","hidden_size":64,"intermediate_size":8,"num_hidden_layers":2,)"
      R"("num_attention_heads":4,"vocab_size":9,"rms_norm_eps":1e-6,)"
      R"("attn_logit_softcapping":null})",
      R"({"model_type":"tailor_hourglass","architecture":{"family":"llama","d_model":64,"heads":4,)"
      R"("kv_heads":2,"head_dim":16,"vocab_size":256,"tie_embeddings":true,"ffn_kind":"hourglass",)"
      R"("ffn_norm":"per_sub","ffn_outer_residual":false,"widths":[[24,16],[16,8]],)"
      R"("rope_theta":10000,"norm_eps":1e-05}})",
      R"({"metadata":{"total_size":24},"weight_map":{"a":"one.safetensors",)"
      R"("b":"one.safetensors"}})",
      R"({"weight_map":{"a":"../index/one.safetensors"}})",
      header(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
             R"("b":{"dtype":"F16","shape":[3],"data_offsets":[16,22]},"__metadata__":{"k":"v"}})",
             22),
      header(R"({"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})", 8),
  };
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  using fuzz::expect;
  const std::string_view text = fuzz::as_text(data, size);
  const auto form = pretrained::parse_config(text, "fuzz.json");
  if (form) {
    expect(form->heads % form->kv_heads == 0 && form->head_dim % 2 == 0 && form->depth() > 0,
           "an accepted form can be built");
    for (const net::LayerForm& layer : form->layers) {
      expect(layer.rope < form->ropes.size() && layer.window >= 0,
             "layers name ropes that are there");
    }
    for (const auto& rope : form->ropes) {
      expect(static_cast<std::int64_t>(rope.size()) == form->head_dim / 2, "a rope has its pairs");
    }
  } else {
    expect(form.error().message().find("fuzz.json") != std::string::npos, "errors name the file");
  }
  const bool json = size > 0 && data[0] == '{';
  const std::string folder = fuzz::folder() + (json ? "/index" : "/weights");
  std::ofstream(folder + (json ? "/model.safetensors.index.json" : "/model.safetensors"),
                std::ios::binary)
      << text;
  fuzz::read_all(folder);
  return 0;
}
