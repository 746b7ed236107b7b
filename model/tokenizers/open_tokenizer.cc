#include "model/tokenizers/open_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/pretrained/gguf.h"
#include "model/tokenizers/tokenizer_files.h"

namespace tailor::tokenizers {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kTokenizerBytesMax = 512u << 20;

// A token of tokenizer_config.json: its text, or an object that describes it.
std::optional<std::string> token_of(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && (*found)["content"].is_string()) {
    return (*found)["content"].get<std::string>();
  }
  return {};
}

Result<TokenizerHints> read_hints(const fs::path& folder) {
  TokenizerHints hints;
  const std::string path = (folder / "tokenizer_config.json").string();
  const auto text = read_file(path, kTokenizerBytesMax);
  if (!text && text.error().code() == Code::kNotFound) return hints;
  if (!text) return error(text.error());
  auto parsed = parse_json(*text);
  if (!parsed) {
    return error(Code::kDataLoss,
                 fmt::format("{}: not JSON ({}): cut or altered", path, parsed.error().message()));
  }
  const nlohmann::json config = *std::move(parsed);
  if (!config.is_object()) {
    return error(Code::kDataLoss, fmt::format("{}: no JSON object: cut or altered", path));
  }
  hints.bos_token = token_of(config, "bos_token");
  hints.eos_token = token_of(config, "eos_token");
  if (config.contains("add_bos_token") && config["add_bos_token"].is_boolean()) {
    hints.adds_bos = config["add_bos_token"].get<bool>();
  }
  return hints;
}

// The file of a folder that holds its tokenizer.
Result<std::string> find_in_folder(const std::string& folder) {
  std::error_code failure;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const fs::path path = fs::path(folder) / name;
    if (fs::exists(path, failure)) return path.string();
  }
  std::vector<std::string> models;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    if (entry.path().extension() == ".gguf") models.push_back(entry.path().string());
  }
  if (models.size() == 1) return models[0];
  return error(Code::kNotFound,
               fmt::format("{}: holds no tokenizer.json, tokenizer.model or single .gguf", folder));
}

}  // namespace

Result<std::string> tokenizer_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? find_in_folder(path) : path;
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& path) {
  if (path == "bytes") return make_byte_tokenizer();
  if (std::error_code ignored; fs::is_directory(path, ignored)) {
    TAILOR_ASSIGN_OR_RETURN(const std::string file, find_in_folder(path));
    return open_tokenizer(file);
  }
  if (pretrained::is_gguf_path(path)) {
    TAILOR_ASSIGN_OR_RETURN(const pretrained::GgufFile file, pretrained::GgufFile::open(path));
    TAILOR_ASSIGN_OR_RETURN(TokenizerSpec spec, read_gguf_tokenizer(file));
    return make_text_tokenizer(std::move(spec), path);
  }
  TAILOR_ASSIGN_OR_RETURN(const std::string bytes, read_file(path, kTokenizerBytesMax));
  TAILOR_ASSIGN_OR_RETURN(const TokenizerHints hints, read_hints(fs::path(path).parent_path()));
  if (path.ends_with(".model")) {
    TAILOR_ASSIGN_OR_RETURN(TokenizerSpec spec, read_sentencepiece_model(bytes, path));
    spec.adds_bos = spec.bos_id && hints.adds_bos.value_or(false);
    spec.sha256 = sha256_hex(bytes);
    return make_text_tokenizer(std::move(spec), path);
  }
  TAILOR_ASSIGN_OR_RETURN(TokenizerSpec spec, read_tokenizer_json(bytes, hints, path));
  return make_text_tokenizer(std::move(spec), path);
}

}  // namespace tailor::tokenizers
