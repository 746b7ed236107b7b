#include "worker/trainer/open_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/data/dataset.h"
#include "model/data/exported_tokenizer.h"
#include "model/data/manifest.h"
#include "model/net/form.h"
#include "model/pretrained/config.h"
#include "model/pretrained/folder.h"
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

/// Whether the file `path` is the tokenizer that shards name with `sha256`.
bool is_tokenizer(const std::string& path, const std::string& sha256) {
  const auto tokenizer = tokenizers::open_tokenizer(path);
  return tokenizer && (*tokenizer)->sha256() == sha256;
}

/// The tokenizer whose ids the trial's shards hold, if it is still where they are or say.
void find_shards_tokenizer(const protocol::TrialSpec& spec, ModelFiles* model) {
  data::DatasetOptions unchecked;
  unchecked.verify = false;
  const auto dataset = data::Dataset::open_glob(spec.data.train, unchecked);
  if (!dataset)
    return;  // the data has moved: what was exported, or the caller, names the tokenizer
  model->tokenizer_sha256 = dataset->tokenizer_sha256();
  model->tokenizer_is_unknown =
      model->tokenizer_sha256 ==
      data::unknown_tokenizer_sha256(dataset->vocab_size(), dataset->eos_id());
  const auto found = [model](std::string tokenizer, std::string why) {
    model->tokenizer = std::move(tokenizer);
    model->tokenizer_found = std::move(why);
  };
  if (tokenizers::make_byte_tokenizer()->sha256() == model->tokenizer_sha256) {
    return found("bytes", "named by the data set");
  }
  const fs::path parent = fs::path(dataset->shards().front().path()).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const auto manifest = data::manifest_beside(*dataset);
  if (manifest && !manifest->tokenizer.files.empty()) {
    const auto kept = data::kept_tokenizer(folder, *manifest);
    if (kept) {
      model->tokenizer_file_sha256 = manifest->tokenizer.files.front().sha256;
      return found(*kept, "kept with the data set");
    }
    fmt::print(stderr, "warning: {}\n", kept.error().message());
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string file = entry.path().string();
    const std::string extension = entry.path().extension().string();
    if (extension != ".model" && extension != ".json" && extension != ".gguf") continue;
    if (is_tokenizer(file, model->tokenizer_sha256)) return found(file, "beside the token shards");
  }
  if (manifest && is_there(manifest->tokenizer.name) &&
      is_tokenizer(manifest->tokenizer.name, model->tokenizer_sha256)) {
    found(manifest->tokenizer.name, "named by the data set");
  }
}

/// What an export says of the tokenizer beside it.
Status read_exported_tokenizer(const std::string& folder, ModelFiles* model) {
  const auto exported = data::read_exported_tokenizer(folder);
  if (!exported) {
    return exported.error().code() == Code::kNotFound ? Status::ok() : exported.error();
  }
  model->tokenizer_sha256 = exported->sha256;
  model->tokenizer_is_unknown =
      exported->sha256 == data::unknown_tokenizer_sha256(exported->vocab_size, exported->eos_id);
  if (exported->sha256 == tokenizers::make_byte_tokenizer()->sha256()) {
    model->tokenizer = "bytes";
    model->tokenizer_found = "named by the export";
    return Status::ok();
  }
  if (exported->files.empty()) return Status::ok();
  model->tokenizer_file_sha256 = exported->files.front().sha256;
  model->tokenizer = (fs::path(folder) / exported->files.front().file).string();
  model->tokenizer_found = "exported with the weights";
  return Status::ok();
}

Result<ModelFiles> open_checkpoint(const std::string& checkpoint, const protocol::TrialSpec& spec) {
  ModelFiles model;
  model.weights = checkpoint + "/model.safetensors";
  TAILOR_ASSIGN_OR_RETURN(auto file, pretrained::SafetensorsFile::open(model.weights));
  model.source = std::make_unique<pretrained::SafetensorsFile>(std::move(file));
  model.form = net::form_of(spec.architecture);
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

Result<ModelFiles> open_config_folder(const std::string& folder) {
  ModelFiles model;
  model.weights = folder;
  TAILOR_ASSIGN_OR_RETURN(model.form, pretrained::read_config(folder));
  TAILOR_ASSIGN_OR_RETURN(model.source, pretrained::open_pretrained(folder));
  TAILOR_ASSIGN_OR_RETURN(const std::string config,
                          read_file(folder + "/config.json", kConfigBytesMax));
  model.positions = positions_of(config);
  TAILOR_RETURN_IF_ERROR(read_exported_tokenizer(folder, &model));
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (model.tokenizer.empty() && is_there(fs::path(folder) / name)) {
      model.tokenizer = fmt::format("{}/{}", folder, name);
      model.tokenizer_found = "beside the weights";
    }
  }
  return model;
}

Result<ModelFiles> open_gguf(const std::string& path) {
  ModelFiles model;
  TAILOR_ASSIGN_OR_RETURN(auto source, pretrained::open_gguf_source(path));
  TAILOR_ASSIGN_OR_RETURN(model.form, pretrained::parse_config(source->config_json(), path));
  model.weights = path;
  model.positions = positions_of(source->config_json());
  model.tokenizer = path;
  model.tokenizer_found = "in the model's file";
  model.source = std::move(source);
  return model;
}

Result<ModelFiles> open_trial(const fs::path& folder) {
  TAILOR_ASSIGN_OR_RETURN(const protocol::TrialSpec spec, read_spec(folder.string()));
  ModelFiles model;
  if (is_there(folder / "artifacts" / "config.json")) {
    TAILOR_ASSIGN_OR_RETURN(model, open_config_folder((folder / "artifacts").string()));
    if (model.tokenizer.empty()) find_shards_tokenizer(spec, &model);
  } else {
    TAILOR_ASSIGN_OR_RETURN(const std::string checkpoint,
                            newest_good((folder / "checkpoints").string()));
    TAILOR_ASSIGN_OR_RETURN(model, open_checkpoint(checkpoint, spec));
  }
  model.validation_shards = spec.data.validation;
  return model;
}

}  // namespace

Result<ModelFiles> open_model_files(const std::string& path) {
  if (pretrained::is_gguf_path(path)) return open_gguf(path);
  const fs::path folder = fs::path(path).lexically_normal();
  if (is_there(folder / "spec.json")) return open_trial(folder);
  if (is_there(folder / "config.json")) {
    TAILOR_ASSIGN_OR_RETURN(ModelFiles model, open_config_folder(folder.string()));
    if (is_there(folder / ".." / "spec.json")) {  // the artifacts of a trial
      const auto spec = read_spec((folder / "..").lexically_normal().string());
      if (spec && model.tokenizer.empty()) find_shards_tokenizer(*spec, &model);
      if (spec) model.validation_shards = spec->data.validation;
    }
    return model;
  }
  if (is_there(folder / "manifest.json")) {
    const std::string trial = (folder / ".." / "..").lexically_normal().string();
    TAILOR_ASSIGN_OR_RETURN(const protocol::TrialSpec spec, read_spec(trial));
    TAILOR_RETURN_IF_ERROR(status_of(train::verify_checkpoint(folder.string())));
    TAILOR_ASSIGN_OR_RETURN(ModelFiles model, open_checkpoint(folder.string(), spec));
    model.validation_shards = spec.data.validation;
    return model;
  }
  return error(Code::kNotFound,
               fmt::format("{}: no model there: give a trial directory (spec.json), a folder with "
                           "config.json and safetensors, or a .gguf file",
                           path));
}

Result<OpenModel> open_model(const std::string& path, at::Device device, bool bf16) {
  TAILOR_ASSIGN_OR_RETURN(ModelFiles files, open_model_files(path));
  OpenModel model;
  static_cast<ModelFiles&>(model) = std::move(files);
  TAILOR_ASSIGN_OR_RETURN(model.decoder,
                          pretrained::load_decoder(model.form, *model.source, device, bf16));
  model.source.reset();
  return model;
}

Result<ModelTokenizer> tokenizer_of(const ModelFiles& model, const std::string& asked) {
  const std::string path = asked.empty() ? model.tokenizer : asked;
  if (path.empty()) {
    return error(
        Code::kInvalidArgument,
        fmt::format("nothing beside {} says which tokenizer its ids come from{}; name it with "
                    "--tokenizer (\"bytes\", tokenizer.json, a .model or .gguf file)",
                    model.weights,
                    model.tokenizer_is_unknown ? " (they were imported without one)"
                    : model.tokenizer_sha256.empty()
                        ? ""
                        : fmt::format(" (SHA-256 {})", model.tokenizer_sha256)));
  }
  ModelTokenizer found;
  found.path = path;
  found.found = asked.empty() ? model.tokenizer_found : "given";
  TAILOR_ASSIGN_OR_RETURN(found.tokenizer, tokenizers::open_tokenizer(path));
  found.sha256 = found.tokenizer->sha256();
  if (model.tokenizer_sha256.empty() || model.tokenizer_is_unknown) return found;
  // Who kept the file knew which tokenizer it is, whatever this version makes of it.
  const auto file = tokenizers::tokenizer_file(path);
  const auto file_sha256 = file ? sha256_file(*file) : Result<std::string>(error(file.error()));
  found.checked = found.sha256 == model.tokenizer_sha256 ||
                  (file_sha256 && !model.tokenizer_file_sha256.empty() &&
                   *file_sha256 == model.tokenizer_file_sha256);
  if (!found.checked) {
    return error(
        Code::kInvalidArgument,
        fmt::format("{} is not the tokenizer of the token shards that {} was trained on: they "
                    "name the SHA-256 {}, this one has {}",
                    path, model.weights, model.tokenizer_sha256, found.sha256));
  }
  found.sha256 = model.tokenizer_sha256;
  return found;
}

}  // namespace tailor::trainer
