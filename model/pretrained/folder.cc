#include "model/pretrained/folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "model/pretrained/safetensors.h"

namespace tailor::pretrained {
namespace {

constexpr std::uint64_t kIndexBytesMax = 100'000'000;
constexpr std::size_t kShardsMax = 10'000;

// One checkpoint in several files. Each tensor is where the index says.
class Shards final : public TensorSource {
 public:
  static Result<std::unique_ptr<TensorSource>> open(const std::string& folder,
                                                    const std::string& index_path);

  const std::string& path() const override { return folder_; }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  Status read(std::string_view name, std::int64_t first, std::span<float> values) const override {
    const SourceTensor* tensor = find(name);
    if (tensor == nullptr) {
      return Status(Code::kNotFound, fmt::format("{}: tensor {} is not there", folder_, name));
    }
    return shards_[shard_of_[static_cast<std::size_t>(tensor - tensors_.data())]].read(name, first,
                                                                                       values);
  }

 private:
  std::string folder_;
  std::vector<SafetensorsFile> shards_;
  std::vector<SourceTensor> tensors_;
  std::vector<std::size_t> shard_of_;  // beside tensors_
};

Result<std::unique_ptr<TensorSource>> Shards::open(const std::string& folder,
                                                   const std::string& index_path) {
  const auto altered = [&](std::string_view what) {
    return error(Code::kDataLoss, fmt::format("{}: {}", index_path, what));
  };
  TAILOR_ASSIGN_OR_RETURN(const std::string text, read_file(index_path, kIndexBytesMax));
  auto parsed = parse_json(text);
  if (!parsed)
    return altered(fmt::format("not JSON ({}): cut or altered", parsed.error().message()));
  const nlohmann::json index = *std::move(parsed);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return altered("not an index of safetensors files (no `weight_map`): cut or altered");
  }
  auto out = std::make_unique<Shards>();
  out->folder_ = folder;
  std::map<std::string, std::size_t> number_of;                   // file name -> index in shards_
  for (const auto& [name, file] : index["weight_map"].items()) {  // sorted by name
    if (!file.is_string()) return altered(fmt::format("the file of tensor {} is no text", name));
    const auto& file_name = file.get_ref<const std::string&>();
    if (file_name.empty() || file_name.front() == '.' ||
        file_name.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      return altered(fmt::format("the file of tensor {} is \"{}\"; it must lie in the same folder",
                                 name, file_name));
    }
    const auto [known, added] = number_of.emplace(file_name, out->shards_.size());
    if (added) {
      if (number_of.size() > kShardsMax) return altered("it names more than 10,000 files");
      TAILOR_ASSIGN_OR_RETURN(SafetensorsFile shard,
                              SafetensorsFile::open(folder + "/" + file_name));
      out->shards_.push_back(std::move(shard));
    }
    const SafetensorsFile& shard = out->shards_[known->second];
    const SourceTensor* tensor = shard.find(name);
    if (tensor == nullptr) {
      return altered(
          fmt::format("it says that {} holds tensor {}, which is not there", file_name, name));
    }
    out->tensors_.push_back(*tensor);
    out->shard_of_.push_back(known->second);
  }
  for (const SafetensorsFile& shard : out->shards_) {
    for (const SourceTensor& tensor : shard.tensors()) {
      if (out->find(tensor.name) == nullptr) {
        return altered(fmt::format("it does not name tensor {} of {}", tensor.name, shard.path()));
      }
    }
  }
  return std::unique_ptr<TensorSource>(std::move(out));
}

}  // namespace

Result<std::unique_ptr<TensorSource>> open_pretrained(const std::string& folder) {
  std::error_code failure;
  if (!std::filesystem::is_directory(folder, failure)) {
    return error(
        Code::kNotFound,
        fmt::format("{} is no folder; give one with config.json and safetensors files", folder));
  }
  const std::string single = folder + "/model.safetensors";
  const std::string index = single + ".index.json";
  if (!std::filesystem::exists(single, failure) && std::filesystem::exists(index, failure)) {
    return Shards::open(folder, index);
  }
  if (!std::filesystem::exists(single, failure)) {
    for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json",
                              "consolidated.00.pth", "consolidated.safetensors", "tf_model.h5",
                              "flax_model.msgpack", "adapter_model.safetensors"}) {
      if (!std::filesystem::exists(folder + "/" + other, failure)) continue;
      return error(Code::kUnimplemented,
                   fmt::format("{}/{}: weights of this kind are unsupported; model.safetensors (or "
                               "model.safetensors.index.json with its files) and .gguf are read",
                               folder, other));
    }
  }
  TAILOR_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(single));
  return std::unique_ptr<TensorSource>(std::make_unique<SafetensorsFile>(std::move(file)));
}

}  // namespace tailor::pretrained
