// The tokenizer in a GGUF file's metadata: tokenizer.ggml.*.
#include "model/pretrained/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/text.h"
#include "model/tokenizers/byte_alphabet.h"
#include "model/tokenizers/tokenizer_files.h"

namespace tailor::tokenizers {
namespace {

using pretrained::GgufFile;
using pretrained::GgufType;
using pretrained::GgufValue;

// tokenizer.ggml.token_type, as SentencePiece numbers the types of pieces.
enum TokenType {
  kNormalToken = 1,
  kUnknownToken,
  kControlToken,
  kUserToken,
  kUnusedToken,
  kByteToken
};

constexpr std::string_view kTiktokenRegex =  // {} is how many digits go together
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{}|)"
    R"( ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekkenRegex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// How a kind of pre-tokenizer cuts, and what it implies.
struct Pre {
  std::vector<Cut> cuts;
  bool whole_words_first = false;
  bool adds_bos = false;
  bool is_nfc = false;
};

// By tokenizer.ggml.pre; the names are those that converters write for the models named.
std::optional<Pre> pre_of(std::string_view name) {
  const std::string gpt2(kGpt2Regex);
  if (name == "gpt-2" || name == "olmo") return Pre{{{gpt2}}};        // GPT-2, OLMo 1
  if (name == "smollm" || name == "starcoder" || name == "refact") {  // SmolLM, StarCoder
    return Pre{{{R"(\p{N})"}, {gpt2}}};
  }
  if (name == "llama-bpe" || name == "llama3" || name == "llama-v3") {  // Llama 3
    return Pre{{{fmt::format(kTiktokenRegex, "{1,3}")}}, true, true};
  }
  if (name == "dbrx") return Pre{{{fmt::format(kTiktokenRegex, "{1,3}")}}};  // OLMo-2, DBRX
  if (name == "qwen2") return Pre{{{fmt::format(kTiktokenRegex, "")}}, false, false, true};
  if (name == "tekken") return Pre{{{std::string(kTekkenRegex)}}, true, true};  // Mistral Nemo
  return {};
}

class GgufReader {
 public:
  explicit GgufReader(const GgufFile& file) : file_(file) {}
  Result<TokenizerSpec> read();

 private:
  static std::string key(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }
  Status refuse(Code code, std::string_view what) const {
    return Status(code, fmt::format("{}: {}", file_.path(), what));
  }
  Result<const GgufValue*> list(std::string_view name, std::uint64_t count) const;
  Status read_tokens(bool is_bpe);
  Status read_bpe();
  Status read_scores();
  Status read_ends(bool adds_bos);

  const GgufFile& file_;
  TokenizerSpec spec_;
  std::vector<std::int64_t> types_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;  // as written in the file
};

// A list with an entry a token (any number when count is 0).
Result<const GgufValue*> GgufReader::list(std::string_view name, std::uint64_t count) const {
  const GgufValue* value = file_.find(key(name));
  if (value == nullptr || !value->is_array || value->count == 0 ||
      (count > 0 && value->count != count)) {
    return error(
        refuse(Code::kInvalidArgument,
               fmt::format("metadata {} is {}", key(name),
                           value == nullptr ? "missing" : "no list with an entry a token")));
  }
  return value;
}

Status GgufReader::read_tokens(bool is_bpe) {
  TAILOR_ASSIGN_OR_RETURN(const GgufValue* tokens, list("tokens", 0));
  if (tokens->type != GgufType::kString) {
    return refuse(Code::kInvalidArgument, "metadata tokenizer.ggml.tokens is no list of strings");
  }
  const std::size_t count = tokens->strings.size();
  types_.assign(count, kNormalToken);
  if (file_.find(key("token_type")) != nullptr) {
    TAILOR_ASSIGN_OR_RETURN(const GgufValue* types, list("token_type", count));
    for (std::size_t i = 0; i < count; ++i) types_[i] = types->integer(i).value_or(0);
  }
  spec_.pieces.resize(count);
  spec_.kinds.resize(count, PieceKind::kNormal);
  for (std::uint32_t id = 0; id < count; ++id) {
    const std::string& token = tokens->strings[id];
    const bool is_new = ids_.emplace(token, id).second;
    if (!is_new && (types_[id] == kNormalToken || types_[id] == kUserToken) && !token.empty()) {
      return refuse(Code::kUnimplemented,
                    fmt::format("tokens {} and {} are both {}: which of them a text gets is not "
                                "known",
                                ids_.at(token), id, escape_controls(token)));
    }
    spec_.pieces[id] = token;
    switch (types_[id]) {
      case kNormalToken:
        if (is_bpe) {
          const std::optional<std::string> bytes = bytes_of_alphabet(token);
          if (bytes) spec_.pieces[id] = *bytes;
          if (!bytes) spec_.kinds[id] = PieceKind::kUnused;  // never made from text
        }
        break;
      case kUnknownToken:
        spec_.kinds[id] = PieceKind::kSpecial;
        break;
      case kControlToken:
        spec_.kinds[id] = PieceKind::kSpecial;
        if (!token.empty()) spec_.added.push_back({token, id, /*is_special=*/true});
        break;
      case kUserToken:
        spec_.kinds[id] = PieceKind::kUser;
        if (!token.empty()) spec_.added.push_back({token, id, false, /*is_normalized=*/true});
        break;
      case kUnusedToken:
        spec_.kinds[id] = PieceKind::kUnused;
        break;
      case kByteToken: {
        const std::optional<std::uint8_t> byte = byte_of_piece(token);
        if (!byte) {
          return refuse(Code::kDataLoss, fmt::format("token {} is marked as a byte but is {}", id,
                                                     escape_controls(token)));
        }
        spec_.kinds[id] = PieceKind::kByte;
        spec_.pieces[id] = std::string(1, static_cast<char>(*byte));
        spec_.has_byte_fallback = true;
        break;
      }
      default:
        return refuse(Code::kDataLoss, fmt::format("token {} has unknown type {}", id, types_[id]));
    }
  }
  return Status::ok();
}

Status GgufReader::read_bpe() {
  TAILOR_ASSIGN_OR_RETURN(const std::string name, file_.text(key("pre")));
  const std::optional<Pre> pre = pre_of(name);
  if (!pre) {
    return refuse(
        Code::kUnimplemented,
        fmt::format("tokenizer.ggml.pre {} is not known, so texts cannot be cut into words "
                    "as its model was trained",
                    escape_controls(name)));
  }
  spec_.starts_from_bytes = true;
  spec_.whole_words_first = pre->whole_words_first;
  if (pre->is_nfc) spec_.normalizer.push_back({});  // NFC
  TAILOR_ASSIGN_OR_RETURN(const bool prefix, file_.integer(key("add_space_prefix"), 0));
  if (prefix) {
    spec_.word_steps.push_back(
        {.kind = WordStep::Kind::kMark, .mark = " ", .scheme = PrefixScheme::kAlways});
  }
  for (const Cut& cut : pre->cuts) spec_.word_steps.push_back({.cut = cut});
  TAILOR_RETURN_IF_ERROR(read_tokens(true));
  TAILOR_ASSIGN_OR_RETURN(const GgufValue* merges, list("merges", 0));
  std::uint32_t rank = 0;
  for (const std::string& merge : merges->strings) {
    // A piece may itself be or begin with the alphabet's characters, but never with a space.
    const std::size_t space = merge.find(' ', 1);
    const auto find = [&](std::string_view piece) { return ids_.find(piece); };
    if (space == std::string::npos) {
      return refuse(Code::kDataLoss, fmt::format("merge {} is no pair", rank));
    }
    const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    const auto a = find(left), b = find(right), result = find(left + right);
    if (a == ids_.end() || b == ids_.end() || result == ids_.end()) {
      return refuse(Code::kDataLoss, fmt::format("merge {} ({}) is not of tokens of the vocabulary",
                                                 rank, escape_controls(merge)));
    }
    spec_.merges.push_back({a->second, b->second, result->second, rank++});
  }
  return read_ends(pre->adds_bos);
}

Status GgufReader::read_scores() {
  TAILOR_RETURN_IF_ERROR(read_tokens(false));
  TAILOR_ASSIGN_OR_RETURN(const GgufValue* values, list("scores", spec_.pieces.size()));
  std::vector<float> scores(spec_.pieces.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<float>(values->number(i).value_or(0));
  }
  TAILOR_ASSIGN_OR_RETURN(const bool prefix, file_.integer(key("add_space_prefix"), 1));
  mark_spaces(prefix, &spec_);
  add_merges_by_score(scores, &spec_);
  return read_ends(/*adds_bos=*/true);
}

Status GgufReader::read_ends(bool adds_bos) {
  const auto id = [&](std::string_view name) -> Result<std::optional<std::uint32_t>> {
    const GgufValue* value = file_.find(key(name));
    if (value == nullptr) return std::optional<std::uint32_t>();
    const std::optional<std::int64_t> number = value->integer();
    if (!number || *number < 0 || *number >= static_cast<std::int64_t>(spec_.pieces.size())) {
      return error(refuse(Code::kInvalidArgument,
                          fmt::format("metadata {} is no token of the vocabulary", key(name))));
    }
    return std::optional(static_cast<std::uint32_t>(*number));
  };
  TAILOR_ASSIGN_OR_RETURN(spec_.bos_id, id("bos_token_id"));
  TAILOR_ASSIGN_OR_RETURN(spec_.unknown_id, id("unknown_token_id"));
  if (spec_.starts_from_bytes) spec_.unknown_id.reset();  // every byte has a token
  TAILOR_ASSIGN_OR_RETURN(const std::optional<std::uint32_t> end, id("eos_token_id"));
  if (!end) {
    return refuse(Code::kInvalidArgument, "metadata tokenizer.ggml.eos_token_id is missing");
  }
  spec_.eos_id = *end;
  TAILOR_ASSIGN_OR_RETURN(const bool wanted, file_.integer(key("add_bos_token"), adds_bos ? 1 : 0));
  spec_.adds_bos = wanted && spec_.bos_id;
  return Status::ok();
}

Result<TokenizerSpec> GgufReader::read() {
  TAILOR_ASSIGN_OR_RETURN(const std::string model, file_.text(key("model")));
  if (model == "gpt2") {
    TAILOR_RETURN_IF_ERROR(read_bpe());
  } else if (model == "llama") {
    TAILOR_RETURN_IF_ERROR(read_scores());
  } else {
    return error(refuse(Code::kUnimplemented,
                        fmt::format("tokenizer.ggml.model {} is not read (gpt2 and llama are)",
                                    escape_controls(model))));
  }
  return std::move(spec_);
}

}  // namespace

Result<TokenizerSpec> read_gguf_tokenizer(const GgufFile& file) { return GgufReader(file).read(); }

}  // namespace tailor::tokenizers
