#include "model/data/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "model/data/dataset.h"
#include "model/data/token_shard.h"

namespace tailor::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kManifestVersion = 2;
constexpr std::uint64_t kManifestBytesMax = 4ull << 30;
// More tokens than any disk holds; keeps sums from overflowing.
constexpr std::uint64_t kCountMax = 1ull << 50;

/// Never throws: what is no UTF-8 is replaced.
std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json shard_to_json(const ManifestShard& shard) {
  return {{"file", shard.file},        {"sha256", shard.sha256},
          {"tokens", shard.tokens},    {"documents", shard.documents},
          {"bytes", shard.text_bytes}, {"file_bytes", shard.file_bytes},
          {"max_id", shard.max_id}};
}

Json source_to_json(const ManifestSource& source) {
  Json json = {{"name", source.name},
               {"bytes", source.bytes},
               {"sha256", source.sha256},
               {"documents", source.documents},
               {"text_bytes", source.text_bytes}};
  if (source.empty_documents > 0) json["empty_documents"] = source.empty_documents;
  if (source.skipped_lines > 0) json["skipped_lines"] = source.skipped_lines;
  if (source.skipped) json["skipped"] = true;
  return json;
}

Json tokenizer_to_json(const TokenizerIdentity& tokenizer) {
  Json json = {{"name", tokenizer.name},
               {"sha256", tokenizer.sha256},
               {"vocab_size", tokenizer.vocab_size},
               {"eos_id", tokenizer.eos_id}};
  if (tokenizer.bos_id) json["bos_id"] = *tokenizer.bos_id;
  for (const ManifestTokenizerFile& file : tokenizer.files) {
    json["files"].push_back({{"file", file.file}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return json;
}

/// 1 unless the manifest says what programs that know version 1 cannot read: they ask for an update
/// then, and do not call it altered.
std::uint64_t version_of(const DatasetManifest& manifest) {
  const bool is_first = !manifest.tokenizer.bos_id && manifest.tokenizer.files.empty() &&
                        manifest.passed_over.empty() && manifest.warnings.empty();
  return is_first ? 1 : kManifestVersion;
}

/// Everything but the check.
Json manifest_to_json(const DatasetManifest& manifest) {
  Json json;
  json["format"] = "tailor dataset";
  json["version"] = version_of(manifest);
  json["tokenizer"] = tokenizer_to_json(manifest.tokenizer);
  json["settings"] = Json::object();
  for (const auto& [name, value] : manifest.settings) json["settings"][name] = value;
  for (std::size_t i = 0; i < kSplitNames.size(); ++i) {
    const ManifestSplit& split = manifest.splits[i];
    Json& entry = json[std::string(kSplitNames[i])];
    entry = {{"documents", split.documents()},
             {"tokens", split.tokens()},
             {"bytes", split.text_bytes()},
             {"content_hash", split.content_hash()},
             {"shards", Json::array()}};
    for (const ManifestShard& shard : split.shards) {
      entry["shards"].push_back(shard_to_json(shard));
    }
  }
  json["sources"] = Json::array();
  for (const ManifestSource& source : manifest.sources) {
    json["sources"].push_back(source_to_json(source));
  }
  for (const PassedOver& passed : manifest.passed_over) {
    json["passed_over"].push_back(
        {{"kind", passed.kind}, {"files", passed.files}, {"first", passed.first}});
  }
  if (!manifest.warnings.empty()) json["warnings"] = manifest.warnings;
  return json;
}

/// Takes members out of JSON; the first that is missing or of another kind is remembered.
class Fields {
 public:
  std::string text(const Json& object, const char* name) {
    const Json* value = find(object, name);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    return fail(name), "";
  }
  std::uint64_t count(const Json& object, const char* name, std::uint64_t at_most = kCountMax) {
    const Json* value = find(object, name);
    if (value != nullptr && value->is_number_unsigned() && value->get<std::uint64_t>() <= at_most) {
      return value->get<std::uint64_t>();
    }
    return fail(name), 0;
  }
  std::uint64_t count_or_0(const Json& object, const char* name) {
    return find(object, name) == nullptr ? 0 : count(object, name);
  }
  std::string sha256(const Json& object, const char* name) {
    std::string hex = text(object, name);
    const bool good = hex.size() == 64 && std::all_of(hex.begin(), hex.end(), [](char c) {
                        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                      });
    return good ? hex : (fail(name), "");
  }
  const Json& list(const Json& object, const char* name) {
    const Json* value = find(object, name);
    if (value != nullptr && value->is_array()) return *value;
    static const Json kNothing = Json::array();
    return fail(name), kNothing;
  }
  const Json& list_or_none(const Json& object, const char* name) {
    static const Json kNothing = Json::array();
    return find(object, name) == nullptr ? kNothing : list(object, name);
  }
  const Json& object(const Json& parent, const char* name) {
    const Json* value = find(parent, name);
    if (value != nullptr && value->is_object()) return *value;
    static const Json kNothing = Json::object();
    return fail(name), kNothing;
  }
  void fail(const char* name) {
    if (wrong_.empty()) wrong_ = name;
  }
  /// "" when all was well.
  const std::string& wrong() const { return wrong_; }

 private:
  static const Json* find(const Json& object, const char* name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }

  std::string wrong_;
};

/// A name that can be nothing but a file of the folder.
bool is_shard_name(std::string_view name) {
  return name.ends_with(".tokens") && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

/// A name that open_tokenizer knows, of a file of the folder: nothing else is ever renamed or
/// removed.
bool is_tokenizer_name(std::string_view name) {
  constexpr std::string_view kNames[] = {"tokenizer.json", "tokenizer.model", "tokenizer.gguf",
                                         "tokenizer_config.json"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

TokenizerIdentity read_tokenizer(const Json& json, Fields* fields) {
  constexpr std::uint64_t kIdMax = 0xFFFFFFFF;
  TokenizerIdentity tokenizer = {
      fields->text(json, "name"),
      fields->sha256(json, "sha256"),
      static_cast<std::uint32_t>(fields->count(json, "vocab_size", kIdMax)),
      static_cast<std::uint32_t>(fields->count(json, "eos_id", kIdMax)),
      {},
      {}};
  if (tokenizer.eos_id >= tokenizer.vocab_size) fields->fail("eos_id");
  if (json.is_object() && json.contains("bos_id")) {
    tokenizer.bos_id = static_cast<std::uint32_t>(fields->count(json, "bos_id", kIdMax));
  }
  std::set<std::string> names;
  for (const Json& entry : fields->list_or_none(json, "files")) {
    ManifestTokenizerFile file{fields->text(entry, "file"), fields->count(entry, "bytes"),
                               fields->sha256(entry, "sha256")};
    if (!is_tokenizer_name(file.file) || !names.insert(file.file).second) fields->fail("file");
    tokenizer.files.push_back(std::move(file));
  }
  return tokenizer;
}

DatasetManifest read_fields(const Json& json, Fields* fields) {
  DatasetManifest manifest;
  manifest.tokenizer = read_tokenizer(fields->object(json, "tokenizer"), fields);
  for (const auto& [name, value] : fields->object(json, "settings").items()) {
    if (!value.is_string()) {
      fields->fail("settings");
    } else {
      manifest.settings[name] = value.get<std::string>();
    }
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < kSplitNames.size(); ++i) {
    const Json& split = fields->object(json, kSplitNames[i].data());
    for (const Json& entry : fields->list(split, "shards")) {
      ManifestShard shard;
      shard.file = fields->text(entry, "file");
      shard.sha256 = fields->sha256(entry, "sha256");
      shard.tokens = fields->count(entry, "tokens");
      shard.documents = fields->count(entry, "documents");
      shard.text_bytes = fields->count(entry, "bytes");
      shard.file_bytes = fields->count(entry, "file_bytes");
      shard.max_id = static_cast<std::uint32_t>(
          fields->count(entry, "max_id", std::max(manifest.tokenizer.vocab_size, 1u) - 1));
      if (!is_shard_name(shard.file) || !names.insert(shard.file).second) fields->fail("file");
      manifest.splits[i].shards.push_back(std::move(shard));
    }
    const ManifestSplit& read = manifest.splits[i];
    if (fields->count(split, "tokens") != read.tokens()) fields->fail("tokens");
    if (fields->count(split, "documents") != read.documents()) fields->fail("documents");
    if (fields->count(split, "bytes") != read.text_bytes()) fields->fail("bytes");
    if (fields->text(split, "content_hash") != read.content_hash()) fields->fail("content_hash");
  }
  for (const Json& entry : fields->list(json, "sources")) {
    ManifestSource source;
    source.name = fields->text(entry, "name");
    source.bytes = fields->count(entry, "bytes", ~0ull);
    source.sha256 = fields->sha256(entry, "sha256");
    source.documents = fields->count(entry, "documents");
    source.text_bytes = fields->count(entry, "text_bytes");
    source.empty_documents = fields->count_or_0(entry, "empty_documents");
    source.skipped_lines = fields->count_or_0(entry, "skipped_lines");
    source.skipped = entry.is_object() && entry.contains("skipped");
    manifest.sources.push_back(std::move(source));
  }
  for (const Json& entry : fields->list_or_none(json, "passed_over")) {
    manifest.passed_over.push_back(
        {fields->text(entry, "kind"), fields->count(entry, "files"), fields->text(entry, "first")});
  }
  for (const Json& entry : fields->list_or_none(json, "warnings")) {
    if (!entry.is_string()) fields->fail("warnings");
    manifest.warnings.push_back(entry.is_string() ? entry.get<std::string>() : "");
  }
  return manifest;
}

/// What is wrong with a file of the tokenizer.
Status check_tokenizer_file(const std::string& folder, const ManifestTokenizerFile& expected) {
  const std::string path = (fs::path(folder) / expected.file).string();
  TAILOR_ASSIGN_OR_RETURN(const std::string sha256, sha256_file(path));
  if (sha256 == expected.sha256) return Status::ok();
  return Status(
      Code::kDataLoss,
      fmt::format("{} is not the tokenizer that {} names (SHA-256 {}): put that one back, or "
                  "prepare the data set again",
                  path, kManifestName, expected.sha256));
}

/// What is wrong with one shard, in the words of its manifest.
Status check_shard(const std::string& folder, const ManifestShard& expected,
                   const TokenizerIdentity& tokenizer) {
  const std::string path = (fs::path(folder) / expected.file).string();
  TAILOR_ASSIGN_OR_RETURN(const TokenShardReader shard, TokenShardReader::open(path));
  TAILOR_RETURN_IF_ERROR(shard.verify());
  const TokenShardInfo& info = shard.info();
  const auto differs = [&](std::string_view what) {
    return Status(Code::kDataLoss, fmt::format("{}: its {} is not that of {}: it is another shard; "
                                               "prepare the data set again",
                                               path, what, kManifestName));
  };
  if (info.sha256 != expected.sha256) return differs("SHA-256");
  if (info.tokenizer_sha256 != tokenizer.sha256 || info.vocab_size != tokenizer.vocab_size ||
      info.eos_id != tokenizer.eos_id) {
    return differs("tokenizer");
  }
  if (info.token_count != expected.tokens || info.document_count != expected.documents ||
      info.text_bytes != expected.text_bytes || info.max_id != expected.max_id) {
    return differs("count");
  }
  return Status::ok();
}

}  // namespace

std::string ManifestSplit::content_hash() const {
  if (shards.empty()) return "";
  Sha256 hash;
  for (const ManifestShard& shard : shards) hash.update(shard.sha256);
  return hash.hex();
}

std::string format_manifest(const DatasetManifest& manifest) {
  Json json = manifest_to_json(manifest);
  json["check"] = sha256_hex(dump(json));
  return dump(json, 1) + "\n";
}

Result<DatasetManifest> parse_manifest(std::string_view text, const std::string& name) {
  const auto bad = [&](std::string_view reason) {
    return error(Code::kDataLoss, fmt::format("{} {}: prepare the data set again", name, reason));
  };
  const auto parsed = parse_ordered_json(text);
  if (!parsed) {
    return bad(fmt::format("is not JSON ({}): it was cut or altered", parsed.error().message()));
  }
  const Json& json = *parsed;
  Fields fields;
  if (fields.text(json, "format") != "tailor dataset") return bad("describes no data set");
  const std::uint64_t version = fields.count(json, "version");
  if (version > kManifestVersion) {
    return error(Code::kUnimplemented,
                 fmt::format("{} has version {}; this program reads {}: update Tailor", name,
                             version, kManifestVersion));
  }
  DatasetManifest manifest = read_fields(json, &fields);
  if (version != version_of(manifest)) fields.fail("version");
  const std::string check = fields.sha256(json, "check");
  if (!fields.wrong().empty()) {
    return bad(fmt::format("has a missing or impossible \"{}\"", fields.wrong()));
  }
  if (check != sha256_hex(dump(manifest_to_json(manifest)))) {
    return bad("was altered (its check does not match)");
  }
  return manifest;
}

Result<DatasetManifest> load_manifest(const std::string& folder) {
  const std::string path = (fs::path(folder) / kManifestName).string();
  const Result<std::string> text = read_file(path, kManifestBytesMax);
  if (!text && text.error().code() == Code::kNotFound) {
    std::error_code code;
    if (!fs::is_directory(folder, code)) {
      return error(Code::kNotFound, fmt::format("there is no data set {}", folder));
    }
    return error(Code::kNotFound,
                 fmt::format("{} holds no {}: it is no data set, or `tailor data prepare` has not "
                             "finished; run that again",
                             folder, kManifestName));
  }
  if (!text) return error(text.error());
  return parse_manifest(*text, path);
}

std::string unknown_tokenizer_sha256(std::uint32_t vocab_size, std::uint32_t eos_id) {
  return sha256_hex(fmt::format("tailor imported ids, vocabulary {}, EOS {}", vocab_size, eos_id));
}

std::optional<DatasetManifest> manifest_beside(const Dataset& dataset) {
  const fs::path folder = fs::path(dataset.shards().front().path()).parent_path();
  Result<DatasetManifest> manifest = load_manifest(folder.empty() ? "." : folder.string());
  if (!manifest || manifest->tokenizer.sha256 != dataset.tokenizer_sha256()) return std::nullopt;
  return std::move(*manifest);
}

Result<std::string> kept_tokenizer(const std::string& folder, const DatasetManifest& manifest) {
  for (const ManifestTokenizerFile& file : manifest.tokenizer.files) {
    TAILOR_RETURN_IF_ERROR(check_tokenizer_file(folder, file));
  }
  if (manifest.tokenizer.files.empty()) return std::string();
  return (fs::path(folder) / manifest.tokenizer.files.front().file).string();
}

std::string format_tokenizer(const TokenizerIdentity& tokenizer) {
  return dump(tokenizer_to_json(tokenizer), 1) + "\n";
}

Result<TokenizerIdentity> parse_tokenizer(std::string_view text, const std::string& name) {
  Fields fields;
  const Result<Json> json = parse_ordered_json(text);
  if (!json) return error(Code::kDataLoss, fmt::format("{}: {}", name, json.error().message()));
  TokenizerIdentity tokenizer = read_tokenizer(*json, &fields);
  if (fields.wrong().empty()) return tokenizer;
  return error(Code::kDataLoss, fmt::format("{} has a missing or impossible \"{}\": it was cut or "
                                            "altered; export the network again",
                                            name, fields.wrong()));
}

Result<std::vector<Status>> verify_dataset(const std::string& folder) {
  TAILOR_ASSIGN_OR_RETURN(const DatasetManifest manifest, load_manifest(folder));
  std::vector<Status> problems;
  std::set<std::string> names;
  for (const ManifestSplit& split : manifest.splits) {
    for (const ManifestShard& shard : split.shards) {
      names.insert(shard.file);
      Status checked = check_shard(folder, shard, manifest.tokenizer);
      if (!checked) problems.push_back(std::move(checked));
    }
  }
  for (const ManifestTokenizerFile& file : manifest.tokenizer.files) {
    Status checked = check_tokenizer_file(folder, file);
    if (!checked) problems.push_back(std::move(checked));
  }
  std::error_code code;
  fs::directory_iterator entry(folder, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".tokens") && names.count(name) == 0) {
      problems.push_back(
          Status(Code::kDataLoss, fmt::format("{} is not in {}: move it away, or patterns such as "
                                              "train-*.tokens will pick it up",
                                              entry->path().string(), kManifestName)));
    }
  }
  if (code) return error(errno_status(code.value(), "list", folder));
  return problems;
}

}  // namespace tailor::data
