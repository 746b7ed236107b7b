#include "worker/trainer/open_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/data/dataset.h"
#include "model/net/form.h"
#include "model/pretrained/config.h"
#include "model/pretrained/gguf_source.h"
#include "model/pretrained/model.h"
#include "model/pretrained/safetensors.h"
#include "model/tokenizers/open_tokenizer.h"
#include "model/train/checkpoint.h"
#include "worker/trainer/trial_dir.h"

namespace tailor::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kConfigBytesMax = 64u << 20;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// max_position_embeddings of a config.json whose mathematics was read already; 0 if it says none.
std::int64_t positions_of(const std::string& config_text) {
  const nlohmann::json config = parse_json(config_text).value_or(nullptr);
  if (!config.is_object()) return 0;
  const auto text = config.find("text_config");
  const nlohmann::json& holder = text != config.end() && text->is_object() ? *text : config;
  const auto positions = holder.find("max_position_embeddings");
  if (positions == holder.end() || !positions->is_number_unsigned()) return 0;
  return positions->get<std::int64_t>();
}

/// The tokenizer whose ids the trial's shards hold, if it is still where the shards are.
void find_shards_tokenizer(const protocol::TrialSpec& spec, OpenModel* model) {
  data::DatasetOptions unchecked;
  unchecked.verify = false;
  const auto dataset = data::Dataset::open_glob(spec.data.train, unchecked);
  if (!dataset) return;  // the data has moved: the caller has to name the tokenizer
  model->tokenizer_sha256 = dataset->tokenizer_sha256();
  if (tokenizers::make_byte_tokenizer()->sha256() == model->tokenizer_sha256) {
    model->tokenizer = "bytes";
    return;
  }
  std::error_code ignored;
  const fs::path folder = fs::path(dataset->shards().front().path()).parent_path();
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored)) {
    const std::string file = entry.path().string();
    const std::string extension = entry.path().extension().string();
    if (extension != ".model" && extension != ".json" && extension != ".gguf") continue;
    const auto tokenizer = tokenizers::open_tokenizer(file);
    if (tokenizer && check_tokenizer(**tokenizer, file, model->tokenizer_sha256)) {
      model->tokenizer = file;
      return;
    }
  }
}

Result<OpenModel> open_checkpoint(const std::string& checkpoint, const protocol::TrialSpec& spec,
                                  at::Device device, bool bf16) {
  OpenModel model;
  model.weights = checkpoint + "/model.safetensors";
  TAILOR_ASSIGN_OR_RETURN(const auto file, pretrained::SafetensorsFile::open(model.weights));
  TAILOR_ASSIGN_OR_RETURN(
      model.decoder, pretrained::load_decoder(net::form_of(spec.architecture), file, device, bf16));
  model.positions = spec.data.sequence_length;
  find_shards_tokenizer(spec, &model);
  return model;
}

/// The newest checkpoint of `folder` that verifies.
Result<std::string> newest_good(const std::string& folder) {
  std::vector<std::string> numbers;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == name.npos) numbers.push_back(entry.path().string());
  }
  std::sort(numbers.rbegin(), numbers.rend());
  Status last(Code::kNotFound, fmt::format("{} holds no checkpoint yet", folder));
  for (const std::string& path : numbers) {
    const auto checked = train::verify_checkpoint(path);
    if (checked) return path;
    last = checked.error();
  }
  return error(last);
}

Result<OpenModel> open_config_folder(const std::string& folder, at::Device device, bool bf16) {
  OpenModel model;
  model.weights = folder;
  TAILOR_ASSIGN_OR_RETURN(model.decoder, pretrained::load_model(folder, device, bf16));
  TAILOR_ASSIGN_OR_RETURN(const std::string config,
                          read_file(folder + "/config.json", kConfigBytesMax));
  model.positions = positions_of(config);
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (model.tokenizer.empty() && is_there(fs::path(folder) / name)) {
      model.tokenizer = fmt::format("{}/{}", folder, name);
    }
  }
  return model;
}

Result<OpenModel> open_gguf(const std::string& path, at::Device device, bool bf16) {
  OpenModel model;
  TAILOR_ASSIGN_OR_RETURN(const auto source, pretrained::open_gguf_source(path));
  TAILOR_ASSIGN_OR_RETURN(net::DecoderForm form,
                          pretrained::parse_config(source->config_json(), path));
  TAILOR_ASSIGN_OR_RETURN(model.decoder,
                          pretrained::load_decoder(std::move(form), *source, device, bf16));
  model.weights = path;
  model.positions = positions_of(source->config_json());
  model.tokenizer = path;
  return model;
}

}  // namespace

Result<OpenModel> open_model(const std::string& path, at::Device device, bool bf16) {
  if (pretrained::is_gguf_path(path)) return open_gguf(path, device, bf16);
  const fs::path folder = fs::path(path).lexically_normal();
  if (is_there(folder / "spec.json")) {
    TAILOR_ASSIGN_OR_RETURN(const protocol::TrialSpec spec, read_spec(folder.string()));
    if (is_there(folder / "artifacts" / "config.json")) {
      TAILOR_ASSIGN_OR_RETURN(OpenModel model,
                              open_config_folder((folder / "artifacts").string(), device, bf16));
      find_shards_tokenizer(spec, &model);
      return model;
    }
    TAILOR_ASSIGN_OR_RETURN(const std::string checkpoint,
                            newest_good((folder / "checkpoints").string()));
    return open_checkpoint(checkpoint, spec, device, bf16);
  }
  if (is_there(folder / "config.json")) {
    TAILOR_ASSIGN_OR_RETURN(OpenModel model, open_config_folder(folder.string(), device, bf16));
    if (is_there(folder / ".." / "spec.json")) {  // the artifacts of a trial
      const auto spec = read_spec((folder / "..").lexically_normal().string());
      if (spec && model.tokenizer.empty()) find_shards_tokenizer(*spec, &model);
    }
    return model;
  }
  if (is_there(folder / "manifest.json")) {
    const std::string trial = (folder / ".." / "..").lexically_normal().string();
    TAILOR_ASSIGN_OR_RETURN(const protocol::TrialSpec spec, read_spec(trial));
    TAILOR_RETURN_IF_ERROR(status_of(train::verify_checkpoint(folder.string())));
    return open_checkpoint(folder.string(), spec, device, bf16);
  }
  return error(Code::kNotFound,
               fmt::format("{}: no model there: give a trial directory (spec.json), a folder with "
                           "config.json and safetensors, or a .gguf file",
                           path));
}

Status check_tokenizer(const tokenizers::Tokenizer& tokenizer, const std::string& path,
                       const std::string& sha256) {
  if (sha256.empty() || tokenizer.sha256() == sha256) return Status::ok();
  // Shards made with a SentencePiece model name the hash of its file.
  for (const std::string& file : {path, path + "/tokenizer.model"}) {
    const auto file_hash = sha256_file(file);
    if (file_hash && *file_hash == sha256) return Status::ok();
  }
  return Status(Code::kInvalidArgument,
                fmt::format("{} is not the tokenizer of the token shards: they name the SHA-256 {}",
                            path, sha256));
}

Result<std::unique_ptr<tokenizers::Tokenizer>> tokenizer_of(const OpenModel& model,
                                                            const std::string& asked) {
  const std::string path = asked.empty() ? model.tokenizer : asked;
  if (path.empty()) {
    return error(
        Code::kInvalidArgument,
        fmt::format("nothing beside {} says which tokenizer its ids come from{}; name it with "
                    "--tokenizer (\"bytes\", tokenizer.json, a .model or .gguf file)",
                    model.weights,
                    model.tokenizer_sha256.empty()
                        ? ""
                        : fmt::format(" (SHA-256 {})", model.tokenizer_sha256)));
  }
  TAILOR_ASSIGN_OR_RETURN(std::unique_ptr<tokenizers::Tokenizer> tokenizer,
                          tokenizers::open_tokenizer(path));
  TAILOR_RETURN_IF_ERROR(check_tokenizer(*tokenizer, path, model.tokenizer_sha256));
  return tokenizer;
}

}  // namespace tailor::trainer
