#include "model/tokenizers/tokenizer_parts.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file.h"
#include "model/pretrained/gguf.h"
#include "model/tokenizers/open_tokenizer.h"
#include "model/tokenizers/tokenizer_files.h"

namespace tailor::tokenizers {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using pretrained::GgufType;
using pretrained::GgufValue;

constexpr std::uint64_t kPartBytesMax = 512u << 20;
constexpr const char* kConfigFile = "tokenizer_config.json";

std::string dump_json(const ordered_json& json) {
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// tokenizer_config.json for a tokenizer that has none. The token texts may be absent.
std::string config_of(const Tokenizer& tokenizer, const std::optional<std::string>& eos,
                      const std::optional<std::string>& bos, const char* tokenizer_class) {
  ordered_json config = {{"tokenizer_class", tokenizer_class},
                         {"clean_up_tokenization_spaces", false}};
  if (eos) config["eos_token"] = *eos;
  if (bos) {
    config["bos_token"] = *bos;
    config["add_bos_token"] = tokenizer.adds_bos();
  }
  return dump_json(config);
}

void put(std::string& out, const void* bytes, std::size_t size) {
  out.append(static_cast<const char*>(bytes), size);
}
template <typename Number>
void put_number(std::string& out, Number number) {
  put(out, &number, sizeof number);  // the program runs on little-endian machines only
}
void put_string(std::string& out, std::string_view text) {
  put_number(out, std::uint64_t{text.size()});
  out += text;
}

/// A GGUF file of `file`'s tokenizer alone.
std::string gguf_of_tokenizer(const pretrained::GgufFile& file) {
  std::string entries;
  std::uint64_t count = 0;
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with("tokenizer.") && key != "general.architecture") continue;
    ++count;
    put_string(entries, key);
    if (value.is_array) {
      put_number(entries, static_cast<std::uint32_t>(GgufType::kArray));
      put_number(entries, static_cast<std::uint32_t>(value.type));
      put_number(entries, value.count);
    } else {
      put_number(entries, static_cast<std::uint32_t>(value.type));
    }
    if (value.type != GgufType::kString) {
      entries += value.bytes;
    } else if (value.is_array) {
      for (const std::string& text : value.strings) put_string(entries, text);
    } else {
      put_string(entries, value.bytes);
    }
  }
  std::string out = "GGUF";
  put_number(out, std::uint32_t{3});
  put_number(out, std::uint64_t{0});
  put_number(out, count);
  return out + entries;
}

}  // namespace

Result<std::vector<TokenizerPart>> read_tokenizer_parts(const std::string& path,
                                                        const Tokenizer& tokenizer) {
  if (path == "bytes") return std::vector<TokenizerPart>{};
  TAILOR_ASSIGN_OR_RETURN(const std::string file, tokenizer_file(path));
  if (pretrained::is_gguf_path(file)) {
    TAILOR_ASSIGN_OR_RETURN(const pretrained::GgufFile model, pretrained::GgufFile::open(file));
    return std::vector<TokenizerPart>{{"tokenizer.gguf", gguf_of_tokenizer(model)}};
  }
  std::vector<TokenizerPart> parts(1);
  TAILOR_ASSIGN_OR_RETURN(parts[0].content, read_file(file, kPartBytesMax));
  const bool is_json = file.ends_with(".json");
  parts[0].file = is_json ? "tokenizer.json" : "tokenizer.model";
  const std::string beside = (fs::path(file).parent_path() / kConfigFile).string();
  auto config = read_file(beside, kPartBytesMax);
  if (config) {
    parts.push_back({kConfigFile, std::move(*config)});
    return parts;
  }
  if (config.error().code() != Code::kNotFound) return error(config.error());
  if (is_json) {
    // The reader knows which id a token has: not always the file's.
    TAILOR_ASSIGN_OR_RETURN(const TokenizerSpec spec,
                            read_tokenizer_json(parts[0].content, {}, parts[0].file));
    const auto text_of = [&spec](std::optional<std::uint32_t> id) {
      return id && *id < spec.pieces.size() ? std::optional(spec.pieces[*id]) : std::nullopt;
    };
    parts.push_back(
        {kConfigFile, config_of(tokenizer, text_of(tokenizer.eos_id()), text_of(tokenizer.bos_id()),
                                "PreTrainedTokenizerFast")});
  }
  return parts;
}

}  // namespace tailor::tokenizers
