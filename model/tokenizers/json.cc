// tokenizer.json as Hugging Face's tokenizers writes it, for models of type BPE.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/text.h"
#include "model/tokenizers/byte_alphabet.h"
#include "model/tokenizers/tokenizer_files.h"

namespace tailor::tokenizers {

// GPT-2's: contractions, words, numbers and other characters with the space before them, white
// space but its last character when something follows.
const std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using nlohmann::json;

constexpr std::uint32_t kIdMax = 10'000'000;  // no vocabulary is larger
// Names that models give to the ends of texts, where no file beside tells.
constexpr std::string_view kUsualEnds[] = {"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"};
constexpr std::string_view kUsualBegins[] = {"<|begin_of_text|>", "<s>", "<bos>"};

class JsonReader {
 public:
  JsonReader(const TokenizerHints& hints, const std::string& path) : hints_(hints), path_(path) {}
  Result<TokenizerSpec> read(std::string_view text);

 private:
  Status damaged(std::string_view what) const {
    return Status(Code::kDataLoss, fmt::format("{}: {}", path_, what));
  }
  // `step` is shown by its type, or as it is when it is a single value.
  Status unknown(std::string_view what, const json& step) const {
    std::string shown;
    if (step.is_object()) {
      const auto type = step.find("type");
      if (type != step.end() && type->is_string()) shown = type->get<std::string>();
    } else if (step.is_primitive()) {
      shown = step.dump(-1, ' ', false, json::error_handler_t::replace);
    }
    if (shown.size() > 200) shown = shown.substr(0, 200) + "...";
    return Status(
        Code::kUnimplemented,
        fmt::format("{}: {} {} is not known, or not with its options, and would change ids", path_,
                    what, escape_controls(shown)));
  }
  Status read_model(const json& model);
  Status read_merges(const json& merges);
  Status read_added(const json& tokens);
  Status read_normalizer(const json& step);
  Status read_pre_tokenizer(const json& step);
  Status read_split(const json& step);
  Status read_metaspace(const json& step);
  void read_post_processor(const json& step);
  Status find_ends();
  std::optional<std::uint32_t> id_of(std::string_view piece) const {
    const auto found = ids_.find(std::string(piece));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  const TokenizerHints& hints_;
  const std::string& path_;
  TokenizerSpec spec_;
  std::unordered_map<std::string, std::uint32_t> ids_;  // pieces as they are written in the file
  std::optional<std::string> template_begin_;
  bool has_template_ = false;
};

std::string text_or(const json& object, const char* key, std::string fallback) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : fallback;
}
bool flag_or(const json& object, const char* key, bool fallback) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : fallback;
}
// Absent and null are the same in these files.
bool is_set(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

Result<TokenizerSpec> JsonReader::read(std::string_view text) {
  auto parsed = parse_json(text);
  if (!parsed) {
    return error(damaged(fmt::format("not JSON ({}): cut, altered or another kind of file",
                                     parsed.error().message())));
  }
  const json file = *std::move(parsed);
  if (!file.is_object() || !file.contains("model") || !file["model"].is_object()) {
    return error(damaged("no tokenizer.json: cut, altered or another kind of file"));
  }
  // The last pre-tokenizer decides whether pieces are bytes, so it is read before the model.
  if (is_set(file, "normalizer")) TAILOR_RETURN_IF_ERROR(read_normalizer(file["normalizer"]));
  if (is_set(file, "pre_tokenizer")) {
    TAILOR_RETURN_IF_ERROR(read_pre_tokenizer(file["pre_tokenizer"]));
  }
  for (const NormalizerStep& step : spec_.normalizer) {
    if (step.to.find(kSpaceMark) != std::string::npos) spec_.marks_spaces = true;
  }
  TAILOR_RETURN_IF_ERROR(read_model(file["model"]));
  if (is_set(file, "added_tokens")) TAILOR_RETURN_IF_ERROR(read_added(file["added_tokens"]));
  if (is_set(file, "post_processor")) read_post_processor(file["post_processor"]);
  TAILOR_RETURN_IF_ERROR(find_ends());
  return std::move(spec_);
}

Status JsonReader::read_model(const json& model) {
  if (const std::string type = text_or(model, "type", "BPE"); type != "BPE") {
    return unknown("model type", model.value("type", json()));
  }
  if (is_set(model, "dropout") && model["dropout"] != 0)
    return unknown("dropout", model["dropout"]);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_or(model, affix, "").empty()) return unknown(affix, model[affix]);
  }
  if (!model.contains("vocab") || !model["vocab"].is_object() || !model.contains("merges") ||
      !model["merges"].is_array()) {
    return damaged("its model lacks vocab or merges");
  }
  spec_.whole_words_first = flag_or(model, "ignore_merges", false);
  spec_.has_byte_fallback = flag_or(model, "byte_fallback", false);
  spec_.fuses_unknown = flag_or(model, "fuse_unk", false);
  std::uint32_t largest = 0;
  for (const auto& [piece, id] : model["vocab"].items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > kIdMax) {
      return damaged(fmt::format("the id of {} is no id", escape_controls(piece)));
    }
    largest = std::max(largest, id.get<std::uint32_t>());
    ids_.emplace(piece, id.get<std::uint32_t>());
  }
  if (ids_.empty() || largest >= 2 * ids_.size() + 4096) {
    return damaged("its vocabulary is empty or has far more holes than pieces");
  }
  spec_.pieces.resize(largest + 1);
  spec_.kinds.resize(largest + 1, PieceKind::kUnused);
  for (const auto& [piece, id] : ids_) {
    if (!spec_.pieces[id].empty()) return damaged(fmt::format("two pieces have id {}", id));
    spec_.kinds[id] = PieceKind::kNormal;
    const std::optional<std::uint8_t> byte =
        spec_.has_byte_fallback ? byte_of_piece(piece) : std::nullopt;
    if (byte) {
      spec_.kinds[id] = PieceKind::kByte;
      spec_.pieces[id] = std::string(1, static_cast<char>(*byte));
    } else if (spec_.starts_from_bytes) {
      // A piece outside the alphabet is never made from text.
      const std::optional<std::string> bytes = bytes_of_alphabet(piece);
      spec_.pieces[id] = bytes.value_or(piece);
      if (!bytes) spec_.kinds[id] = PieceKind::kUnused;
    } else {
      spec_.pieces[id] = piece;
    }
  }
  if (is_set(model, "unk_token")) {
    spec_.unknown_id = id_of(text_or(model, "unk_token", ""));
    if (!spec_.unknown_id) return damaged("its unk_token is not in its vocabulary");
  }
  return read_merges(model["merges"]);
}

// Each merge is "left right", or since 2024 ["left", "right"].
Status JsonReader::read_merges(const json& merges) {
  std::uint32_t rank = 0;
  for (const json& merge : merges) {
    std::string left, right;
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const std::size_t space = text.find(' ');
      if (space == std::string::npos) return damaged(fmt::format("merge {} is no pair", rank));
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      return damaged(fmt::format("merge {} is no pair", rank));
    }
    const auto a = id_of(left), b = id_of(right), result = id_of(left + right);
    if (!a || !b || !result) {
      return damaged(fmt::format("merge {} ({} {}) is not of pieces of the vocabulary", rank,
                                 escape_controls(left), escape_controls(right)));
    }
    spec_.merges.push_back({*a, *b, *result, rank++});
  }
  return Status::ok();
}

Status JsonReader::read_added(const json& tokens) {
  if (!tokens.is_array()) return damaged("its added_tokens are no list");
  for (const json& entry : tokens) {
    if (!entry.is_object() || !entry.contains("id") || !entry["id"].is_number_unsigned() ||
        entry["id"].get<std::uint64_t>() >
            std::min<std::uint64_t>(kIdMax, spec_.pieces.size() + 65536) ||
        !entry.contains("content") || !entry["content"].is_string()) {
      return damaged("an added token lacks id or content");
    }
    AddedToken token;
    token.id = entry["id"].get<std::uint32_t>();
    token.content = entry["content"].get<std::string>();
    token.is_special = flag_or(entry, "special", false);
    token.is_normalized = flag_or(entry, "normalized", !token.is_special);
    token.takes_space_before = flag_or(entry, "lstrip", false);
    token.takes_space_after = flag_or(entry, "rstrip", false);
    token.is_single_word = flag_or(entry, "single_word", false);
    if (token.id >= spec_.pieces.size()) {
      spec_.pieces.resize(token.id + 1);
      spec_.kinds.resize(token.id + 1, PieceKind::kUnused);
    }
    spec_.pieces[token.id] = token.content;
    if (token.is_special) {
      spec_.kinds[token.id] = PieceKind::kSpecial;
    } else if (spec_.kinds[token.id] == PieceKind::kUnused) {
      // Its text is that of the token, but no word may become it by merging.
      spec_.kinds[token.id] = PieceKind::kUser;
    }
    ids_[token.content] = token.id;
    spec_.added.push_back(std::move(token));
  }
  return Status::ok();
}

Status JsonReader::read_normalizer(const json& step) {
  const std::string type = step.is_object() ? text_or(step, "type", "") : "";
  if (type == "Sequence" && step.contains("normalizers") && step["normalizers"].is_array()) {
    for (const json& part : step["normalizers"]) TAILOR_RETURN_IF_ERROR(read_normalizer(part));
    return Status::ok();
  }
  for (const auto& [name, form] : {std::pair{"NFC", NormalForm::kNfc},
                                   {"NFD", NormalForm::kNfd},
                                   {"NFKC", NormalForm::kNfkc},
                                   {"NFKD", NormalForm::kNfkd}}) {
    if (type != name) continue;
    spec_.normalizer.push_back({form, "", ""});
    return Status::ok();
  }
  if (type == "Prepend") {
    spec_.normalizer.push_back({std::nullopt, "", text_or(step, "prepend", "")});
    return Status::ok();
  }
  if (type == "Replace" && is_set(step, "pattern") && step["pattern"].is_object()) {
    const std::string from = text_or(step["pattern"], "String", "");
    if (!from.empty()) {
      spec_.normalizer.push_back({std::nullopt, from, text_or(step, "content", "")});
      return Status::ok();
    }
  }
  return unknown("normalizer", step);
}

Status JsonReader::read_pre_tokenizer(const json& step) {
  const std::string type = step.is_object() ? text_or(step, "type", "") : "";
  if (spec_.starts_from_bytes) return unknown("pre-tokenizer after ByteLevel", step);
  if (type == "Sequence" && step.contains("pretokenizers") && step["pretokenizers"].is_array()) {
    for (const json& part : step["pretokenizers"]) TAILOR_RETURN_IF_ERROR(read_pre_tokenizer(part));
    return Status::ok();
  }
  if (type == "Split") return read_split(step);
  if (type == "Digits") {
    spec_.cuts.push_back({flag_or(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"});
    return Status::ok();
  }
  if (type == "Metaspace") return read_metaspace(step);
  if (type == "ByteLevel") {
    spec_.starts_from_bytes = true;
    if (flag_or(step, "add_prefix_space", true)) {
      if (!spec_.cuts.empty()) return unknown("prefix space after another pre-tokenizer", step);
      spec_.prefix.assign(1, ' ');
      spec_.prefix_rule = PrefixRule::kEvery;
    }
    if (flag_or(step, "use_regex", true)) spec_.cuts.push_back({std::string(kGpt2Regex)});
    return Status::ok();
  }
  return unknown("pre-tokenizer", step);
}

Status JsonReader::read_split(const json& step) {
  Cut cut;
  const json pattern = step.value("pattern", json());
  if (pattern.is_object()) cut.regex = text_or(pattern, "Regex", "");
  if (pattern.is_object() && cut.regex.empty()) {
    // A literal text; \Q...\E cannot hold an \E.
    const std::string literal = text_or(pattern, "String", "");
    if (literal.empty() || literal.find("\\E") != std::string::npos) return unknown("split", step);
    // In normalised text there is no such space any more: the published Gemma files cut so.
    for (const NormalizerStep& normalizer : spec_.normalizer) {
      if (!normalizer.form && normalizer.from == literal &&
          normalizer.to.find(literal) == std::string::npos) {
        return Status::ok();
      }
    }
    cut.regex = "\\Q" + literal + "\\E";
  }
  if (cut.regex.empty()) return unknown("split", step);
  const std::string behavior = text_or(step, "behavior", "");
  if (behavior == "Isolated") {
    cut.behavior = CutBehavior::kIsolated;
  } else if (behavior == "Removed") {
    cut.behavior = CutBehavior::kRemoved;
  } else if (behavior == "MergedWithPrevious") {
    cut.behavior = CutBehavior::kMergedWithPrevious;
  } else if (behavior == "MergedWithNext") {
    cut.behavior = CutBehavior::kMergedWithNext;
  } else {
    return unknown("split", step);
  }
  cut.invert = flag_or(step, "invert", false);
  spec_.cuts.push_back(std::move(cut));
  return Status::ok();
}

Status JsonReader::read_metaspace(const json& step) {
  if (!spec_.cuts.empty() || text_or(step, "replacement", "") != kSpaceMark) {
    return unknown("pre-tokenizer", step);
  }
  // Where tokens are looked for after normalisation, replacing spaces here would come too early.
  spec_.normalizer.push_back({std::nullopt, " ", std::string(kSpaceMark)});
  const std::string scheme =
      text_or(step, "prepend_scheme", flag_or(step, "add_prefix_space", true) ? "always" : "never");
  if (scheme != "never") {
    if (scheme != "first" && scheme != "always") return unknown("pre-tokenizer", step);
    spec_.prefix = kSpaceMark;
    spec_.prefix_rule = scheme == "first" ? PrefixRule::kFirst : PrefixRule::kEvery;
  }
  if (flag_or(step, "split", true)) {
    spec_.cuts.push_back({std::string(kSpaceMark), CutBehavior::kMergedWithNext, false});
  }
  return Status::ok();
}

// TemplateProcessing says which special token goes before a single text.
void JsonReader::read_post_processor(const json& step) {
  if (!step.is_object()) return;
  if (step.contains("processors") && step["processors"].is_array()) {
    for (const json& part : step["processors"]) read_post_processor(part);
  }
  if (text_or(step, "type", "") != "TemplateProcessing" || !step.contains("single") ||
      !step["single"].is_array() || step["single"].empty()) {
    return;
  }
  has_template_ = true;
  const json& first = step["single"][0];
  if (first.is_object() && is_set(first, "SpecialToken") && first["SpecialToken"].is_object()) {
    template_begin_ = text_or(first["SpecialToken"], "id", "");
  }
}

Status JsonReader::find_ends() {
  const auto first_of = [&](const auto& names) -> std::optional<std::uint32_t> {
    for (const std::string_view name : names) {
      if (const auto id = id_of(name)) return id;
    }
    return {};
  };
  std::optional<std::uint32_t> end;
  if (hints_.eos_token) {
    end = id_of(*hints_.eos_token);
    if (!end) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("{}: eos_token {} of tokenizer_config.json is not in the vocabulary", path_,
                      escape_controls(*hints_.eos_token)));
    }
  } else {
    end = first_of(kUsualEnds);
  }
  if (!end) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{}: no token ends a text: put a tokenizer_config.json with eos_token "
                    "beside it",
                    path_));
  }
  spec_.eos_id = *end;
  if (template_begin_) {
    spec_.bos_id = id_of(*template_begin_);
  } else if (hints_.bos_token) {
    spec_.bos_id = id_of(*hints_.bos_token);
  } else {
    spec_.bos_id = first_of(kUsualBegins);
  }
  spec_.adds_bos = spec_.bos_id &&
                   (has_template_ ? template_begin_.has_value() : hints_.adds_bos.value_or(false));
  return Status::ok();
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_json(std::string_view text, const TokenizerHints& hints,
                                          const std::string& path) {
  return JsonReader(hints, path).read(text);
}

}  // namespace tailor::tokenizers
