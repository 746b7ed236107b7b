// The nine reference checkpoints of tests/data/model as folders that a program can open. Two of
// them are other layouts of the tensors of a third and are written when they are asked for.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/pretrained/folder.h"
#include "model/pretrained/safetensors.h"
#include "tests/model/support.h"

namespace tailor::test {

inline const std::vector<std::string>& reference_models() {
  static const std::vector<std::string> names = {"llama_untied",
                                                 "llama_tied",
                                                 "olmo2",
                                                 "mistral",
                                                 "gemma2",
                                                 "gemma3",
                                                 "llama_tied_sharded",
                                                 "llama_untied_bf16",
                                                 "gemma3_multimodal_prefix"};
  return names;
}

/// Where the expected states of a model are.
inline std::string states_of(const std::string& name) {
  if (name == "llama_tied_sharded") return "llama_tied";
  if (name == "gemma3_multimodal_prefix") return "gemma3";
  return name;
}
inline std::string input_of(const std::string& name) {
  return name == "llama_untied_bf16" ? "llama_untied" : states_of(name);
}

inline nlohmann::json reference_index() {
  std::ifstream file(reference("pretrained.json"));
  return nlohmann::json::parse(file);
}

/// Writes some tensors of a source, under names of one's own.
inline void write_tensors(const pretrained::TensorSource& source,
                          const std::map<std::string, std::string>& stored_as,
                          const std::string& path) {
  std::vector<std::vector<float>> kept;
  std::vector<pretrained::TensorData> data;
  kept.reserve(stored_as.size());
  for (const auto& [name, stored] : stored_as) {
    const pretrained::SourceTensor* tensor = source.find(name);
    ASSERT_NE(tensor, nullptr) << name;
    std::vector<float>& values = kept.emplace_back(static_cast<std::size_t>(tensor->elements()));
    ASSERT_TRUE(source.read(name, 0, values).is_ok());
    data.push_back({stored, pretrained::DType::kF32, tensor->shape, values.data()});
  }
  // A tensor of the vision tower, as multimodal checkpoints have.
  const float pixel[] = {1, 2};
  if (path.find("multimodal") != std::string::npos) {
    data.push_back({"vision_tower.vision_model.embeddings.patch_embedding.weight",
                    pretrained::DType::kF32,
                    {2},
                    pixel});
  }
  ASSERT_TRUE(pretrained::write_safetensors(path, data).has_value());
}

/// Copies (or writes) model `name` into `folder`/name with `config` (a file name) as config.json.
inline std::string checkpoint_folder(const std::string& name, const std::string& config,
                                     const std::string& folder) {
  namespace fs = std::filesystem;
  const std::string to = folder + "/" + name + "." + config;
  fs::create_directories(to);
  const std::string from = reference(name);
  fs::copy_file(from + "/" + config, to + "/config.json", fs::copy_options::overwrite_existing);
  if (fs::exists(from + "/model.safetensors")) {
    fs::copy_file(from + "/model.safetensors", to + "/model.safetensors",
                  fs::copy_options::overwrite_existing);
    return to;
  }
  const auto source = pretrained::open_pretrained(reference(states_of(name)));
  EXPECT_TRUE(source.has_value());
  if (!source) return to;
  if (name == "llama_tied_sharded") {
    const std::string index = "/model.safetensors.index.json";
    fs::copy_file(from + index, to + index, fs::copy_options::overwrite_existing);
    std::ifstream file(to + index);
    std::map<std::string, std::map<std::string, std::string>> shards;
    const nlohmann::json json = nlohmann::json::parse(file);
    for (const auto& [tensor, shard] : json["weight_map"].items()) shards[shard][tensor] = tensor;
    for (const auto& [shard, tensors] : shards) write_tensors(**source, tensors, to + "/" + shard);
    return to;
  }
  std::map<std::string, std::string> renamed;
  for (const pretrained::SourceTensor& tensor : (*source)->tensors()) {
    renamed[tensor.name] = "language_model." + tensor.name;
  }
  write_tensors(**source, renamed, to + "/model.safetensors");
  return to;
}

}  // namespace tailor::test
