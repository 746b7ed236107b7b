// tokenizer.json as Hugging Face's tokenizers writes it, for models of type BPE.
#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "model/tokenizers/byte_alphabet.h"
#include "model/tokenizers/expression.h"
#include "model/tokenizers/tokenizer_files.h"

namespace tailor::tokenizers {

// GPT-2's: contractions, words, numbers and other characters with the space before them, white
// space but its last character when something follows.
const std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using nlohmann::json;

constexpr std::uint32_t kIdMax = 10'000'000;  // no vocabulary is larger
constexpr int kDepthMax = 100;                // sequences within sequences
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
  Status read_lengths(const json& file);
  void read_piece(const std::string& piece, std::uint32_t id);
  Status read_alphabet();
  Status read_normalizer(const json& step, int depth);
  Status read_pre_tokenizer(const json& step, int depth);
  static std::optional<CutBehavior> behavior_of(std::string_view name);
  Status read_split(const json& step);
  Status read_metaspace(const json& step);
  Status read_post_processor(const json& step, int depth);
  Status check_template_id(const std::string& token, const json& ids);
  Status find_ends();
  std::optional<std::uint32_t> id_of(std::string_view piece) const {
    const auto found = ids_.find(std::string(piece));
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  const TokenizerHints& hints_;
  const std::string& path_;
  TokenizerSpec spec_;
  std::unordered_map<std::string, std::uint32_t> ids_;  // pieces as they are written in the file
  std::string word_prefix_, word_suffix_;               // of pieces within a word, and that end one
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
bool has_text(const json& object, const char* key) {
  return object.contains(key) && object[key].is_string();
}
bool has_flag(const json& object, const char* key) {
  return object.contains(key) && object[key].is_boolean();
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
  if (is_set(file, "version") && file["version"] != "1.0") {
    return error(unknown("version", file["version"]));
  }
  TAILOR_RETURN_IF_ERROR(read_lengths(file));
  // The pre-tokenizer decides whether pieces are bytes, so it is read before the model.
  if (is_set(file, "normalizer")) TAILOR_RETURN_IF_ERROR(read_normalizer(file["normalizer"], 0));
  if (is_set(file, "pre_tokenizer")) {
    TAILOR_RETURN_IF_ERROR(read_pre_tokenizer(file["pre_tokenizer"], 0));
  }
  for (const NormalizerStep& step : spec_.normalizer) {
    if (step.to.find(kSpaceMark) != std::string::npos) spec_.space_mark = kSpaceMark;
  }
  TAILOR_RETURN_IF_ERROR(read_model(file["model"]));
  if (is_set(file, "added_tokens")) TAILOR_RETURN_IF_ERROR(read_added(file["added_tokens"]));
  if (is_set(file, "post_processor")) {
    TAILOR_RETURN_IF_ERROR(read_post_processor(file["post_processor"], 0));
  }
  TAILOR_RETURN_IF_ERROR(find_ends());
  return std::move(spec_);
}

// The library gives other ids for long or short texts where the file says so.
Status JsonReader::read_lengths(const json& file) {
  if (is_set(file, "truncation")) {
    return Status(Code::kUnimplemented,
                  fmt::format("{}: \"truncation\" is set, with which the library that the file is "
                              "from gives only the first ids of a text: set it to null in a copy "
                              "of the file to get all of them",
                              path_));
  }
  if (!is_set(file, "padding")) return Status::ok();
  const json& padding = file["padding"];
  // To the longest of one text is no padding.
  if (padding.is_object() && padding.value("strategy", json()) == "BatchLongest" &&
      !is_set(padding, "pad_to_multiple_of")) {
    return Status::ok();
  }
  return Status(Code::kUnimplemented,
                fmt::format("{}: \"padding\" is set, with which the library that the file is from "
                            "puts ids behind a text: set it to null in a copy of the file",
                            path_));
}

Status JsonReader::read_model(const json& model) {
  if (const std::string type = text_or(model, "type", "BPE"); type != "BPE") {
    return unknown("model type", model.value("type", json()));
  }
  if (is_set(model, "dropout") && model["dropout"] != 0)
    return unknown("dropout", model["dropout"]);
  word_prefix_ = text_or(model, "continuing_subword_prefix", "");
  word_suffix_ = text_or(model, "end_of_word_suffix", "");
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
  std::vector<char> is_taken(largest + 1);
  for (const auto& [piece, id] : ids_) {
    if (is_taken[id]) return damaged(fmt::format("two pieces have id {}", id));
    is_taken[id] = true;
    read_piece(piece, id);
  }
  TAILOR_RETURN_IF_ERROR(read_alphabet());
  if (is_set(model, "unk_token")) {
    spec_.unknown_id = id_of(text_or(model, "unk_token", ""));
    if (!spec_.unknown_id) return damaged("its unk_token is not in its vocabulary");
  }
  return read_merges(model["merges"]);
}

// What a piece decodes to.
void JsonReader::read_piece(const std::string& piece, std::uint32_t id) {
  spec_.kinds[id] = PieceKind::kNormal;
  std::string_view text = piece;
  const bool ends_word = !word_suffix_.empty() && text.ends_with(word_suffix_);
  if (ends_word) text.remove_suffix(word_suffix_.size());
  if (!word_prefix_.empty() && text.starts_with(word_prefix_)) {
    text.remove_prefix(word_prefix_.size());
  }
  std::string& decoded = spec_.pieces[id];
  const std::optional<std::uint8_t> byte =
      spec_.has_byte_fallback ? byte_of_piece(piece) : std::nullopt;
  if (byte) {
    spec_.kinds[id] = PieceKind::kByte;
    decoded = std::string(1, static_cast<char>(*byte));
  } else if (spec_.starts_from_bytes) {
    // A piece outside the alphabet is never made from text.
    const std::optional<std::string> bytes = bytes_of_alphabet(text);
    decoded = bytes.value_or(std::string(text));
    if (!bytes) spec_.kinds[id] = PieceKind::kUnused;
  } else {
    decoded = text;
  }
  if (ends_word) decoded += ' ';
}

// What the characters of a word start as, wherever in it they lie.
Status JsonReader::read_alphabet() {
  Alphabet& alphabet = spec_.alphabet.emplace();
  alphabet.knows_ends = !word_prefix_.empty() || !word_suffix_.empty();
  const auto text_of = [&](std::string_view piece) -> std::optional<std::string> {
    if (spec_.starts_from_bytes) return bytes_of_alphabet(piece);
    return std::string(piece);
  };
  for (const auto& [piece, id] : ids_) {
    for (std::size_t place = 0; place < (alphabet.knows_ends ? 4 : 1); ++place) {
      std::string_view rest = piece;
      if ((place & 1) == 0) {
        if (!rest.starts_with(word_prefix_)) continue;
        rest.remove_prefix(word_prefix_.size());
      }
      if ((place & 2) != 0) {
        if (!rest.ends_with(word_suffix_)) continue;
        rest.remove_suffix(word_suffix_.size());
      }
      if (rest.empty() || character_bytes(rest, 0) != rest.size()) continue;
      if (const auto text = text_of(rest)) alphabet.characters[place].emplace(*text, id);
    }
    if (spec_.whole_words_first && !piece.empty()) {
      if (const auto text = text_of(piece)) alphabet.words.emplace(*text, id);
    }
  }
  if (!spec_.has_byte_fallback) return Status::ok();
  bool has_bytes = false;
  for (unsigned byte = 0; byte < alphabet.bytes.size(); ++byte) {
    alphabet.bytes[byte] = id_of(fmt::format("<0x{:02X}>", byte));
    has_bytes = has_bytes || alphabet.bytes[byte];
  }
  // There the library looks for the bytes of what a character is written as.
  const bool is_complete = spec_.starts_from_bytes && alphabet.characters[0].size() == 256;
  if (has_bytes && (alphabet.knows_ends || (spec_.starts_from_bytes && !is_complete))) {
    return unknown(
        "byte_fallback beside ByteLevel, continuing_subword_prefix or end_of_word_suffix", true);
  }
  return Status::ok();
}

// Each merge is "left right", or since 2024 ["left", "right"].
Status JsonReader::read_merges(const json& merges) {
  std::uint32_t rank = 0;
  for (const json& merge : merges) {
    std::string left, right;
    if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      if (text.starts_with("#version")) continue;
      const std::size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
        return damaged(fmt::format("merge {} is no pair", rank));
      }
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      return damaged(fmt::format("merge {} is no pair", rank));
    }
    const bool is_long = right.size() >= word_prefix_.size();
    const std::string behind = is_long ? right.substr(word_prefix_.size()) : "";
    const auto a = id_of(left), b = id_of(right), result = id_of(left + behind);
    if (!a || !b || !result || !is_long) {
      return damaged(fmt::format("merge {} ({} {}) is not of pieces of the vocabulary", rank,
                                 escape_controls(left), escape_controls(right)));
    }
    spec_.merges.push_back({*a, *b, *result, rank++});
    if (spec_.has_byte_fallback && (byte_of_piece(left) || byte_of_piece(right))) {
      spec_.alphabet->merges_bytes = true;
    }
    if (left.empty() || behind.empty()) continue;
    std::pair<char32_t, char32_t> join(last_code_point(left), code_point_at(behind, 0));
    if (spec_.starts_from_bytes) {
      std::string ends;
      append_utf8(join.first, &ends);
      append_utf8(join.second, &ends);
      const std::optional<std::string> bytes = bytes_of_alphabet(ends);
      if (!bytes) continue;  // such a piece is never made from text
      join = {static_cast<unsigned char>((*bytes)[0]), static_cast<unsigned char>((*bytes)[1])};
    }
    spec_.alphabet->joins.push_back(join);
  }
  auto& joins = spec_.alphabet->joins;
  std::sort(joins.begin(), joins.end());
  joins.erase(std::unique(joins.begin(), joins.end()), joins.end());
  return Status::ok();
}

// The library gives the ids itself: a token that is a piece keeps the piece's id, the others are
// numbered from the number of pieces on, in their order in the file, whatever ids the file has. Of
// a token that comes twice the last properties count, but once special it stays so.
Status JsonReader::read_added(const json& tokens) {
  if (!tokens.is_array()) return damaged("its added_tokens are no list");
  auto next_id = static_cast<std::uint32_t>(ids_.size());
  std::unordered_map<std::string, std::uint32_t> added_ids;
  std::unordered_set<std::string> special;
  std::map<std::uint32_t, AddedToken> by_id;
  std::size_t moved = 0;
  std::string shown;
  for (const json& entry : tokens) {
    if (!entry.is_object() || !entry.contains("id") || !entry["id"].is_number_unsigned() ||
        !entry.contains("content") || !entry["content"].is_string()) {
      return damaged("an added token lacks id or content");
    }
    AddedToken token;
    token.content = entry["content"].get<std::string>();
    if (token.content.empty()) continue;
    token.is_special = flag_or(entry, "special", false);
    token.is_normalized = flag_or(entry, "normalized", !token.is_special);
    token.takes_space_before = flag_or(entry, "lstrip", false);
    token.takes_space_after = flag_or(entry, "rstrip", false);
    token.is_single_word = flag_or(entry, "single_word", false);
    if (const auto earlier = added_ids.find(token.content); earlier != added_ids.end()) {
      token.id = earlier->second;
    } else if (const auto piece = id_of(token.content)) {
      token.id = *piece;
    } else {
      token.id = next_id++;
    }
    if (entry["id"].get<std::uint64_t>() != token.id && ++moved <= 5) {
      shown +=
          fmt::format("{}{} {} (in the file {})", moved > 1 ? ", " : "",
                      escape_controls(token.content), token.id, entry["id"].get<std::uint64_t>());
    }
    if (token.is_special) special.insert(token.content);
    added_ids[token.content] = token.id;
    by_id.insert_or_assign(token.id, std::move(token));
  }
  if (moved > 0) {
    spec_.notes.push_back(fmt::format(
        "{}: added tokens have the ids that the library which the file is from gives them, not "
        "those of the file: {}{}",
        path_, shown, moved > 5 ? fmt::format(" and {} more", moved - 5) : ""));
  }
  for (const auto& [content, id] : added_ids) ids_[content] = id;
  for (auto& [id, token] : by_id) {
    token.is_special = special.contains(token.content);
    if (id >= spec_.pieces.size()) {
      spec_.pieces.resize(id + 1);
      spec_.kinds.resize(id + 1, PieceKind::kUnused);
    }
    spec_.pieces[id] = token.content;
    if (token.is_special) {
      spec_.kinds[id] = PieceKind::kSpecial;
    } else if (spec_.kinds[id] == PieceKind::kUnused) {
      // Its text is that of the token, but no word may become it by merging.
      spec_.kinds[id] = PieceKind::kUser;
    }
    spec_.added.push_back(std::move(token));
  }
  return Status::ok();
}

Status JsonReader::read_normalizer(const json& step, int depth) {
  using Kind = NormalizerStep::Kind;
  const std::string type = step.is_object() ? text_or(step, "type", "") : "";
  if (depth > kDepthMax) return unknown("normalizer", step);
  if (type == "Sequence" && step.contains("normalizers") && step["normalizers"].is_array()) {
    for (const json& part : step["normalizers"]) {
      TAILOR_RETURN_IF_ERROR(read_normalizer(part, depth + 1));
    }
    return Status::ok();
  }
  const auto put = [&](Kind kind) -> NormalizerStep& {
    return spec_.normalizer.emplace_back(NormalizerStep{.kind = kind});
  };
  for (const auto& [name, form] : {std::pair{"NFC", NormalForm::kNfc},
                                   {"NFD", NormalForm::kNfd},
                                   {"NFKC", NormalForm::kNfkc},
                                   {"NFKD", NormalForm::kNfkd}}) {
    if (type != name) continue;
    put(Kind::kForm).form = form;
    return Status::ok();
  }
  if (type == "Prepend" && has_text(step, "prepend")) {
    const std::string text = text_or(step, "prepend", "");
    if (!text.empty()) put(Kind::kPrepend).to = text;
    return Status::ok();
  }
  if (type == "Replace" && is_set(step, "pattern") && step["pattern"].is_object() &&
      has_text(step, "content")) {
    for (const char* key : {"String", "Regex"}) {
      const std::string from = text_or(step["pattern"], key, "");
      if (from.empty()) continue;
      NormalizerStep& made = put(*key == 'S' ? Kind::kReplace : Kind::kReplaceMatches);
      made.from = from;
      made.to = text_or(step, "content", "");
      return Status::ok();
    }
  }
  if (type == "Lowercase" || type == "StripAccents" || type == "Nmt") {
    put(type == "Nmt" ? Kind::kNmt : type == "Lowercase" ? Kind::kLowercase : Kind::kStripAccents);
    return Status::ok();
  }
  if (type == "Strip" && has_flag(step, "strip_left") && has_flag(step, "strip_right")) {
    NormalizerStep& made = put(Kind::kStrip);
    made.left = flag_or(step, "strip_left", false);
    made.right = flag_or(step, "strip_right", false);
    return Status::ok();
  }
  if (type == "BertNormalizer" && has_flag(step, "clean_text") &&
      has_flag(step, "handle_chinese_chars") && has_flag(step, "lowercase")) {
    const bool lowercase = flag_or(step, "lowercase", true);
    if (flag_or(step, "clean_text", true)) put(Kind::kCleanText);
    if (flag_or(step, "handle_chinese_chars", true)) put(Kind::kPadHan);
    if (flag_or(step, "strip_accents", lowercase)) {
      put(Kind::kForm).form = NormalForm::kNfd;
      put(Kind::kStripNonspacing);
    }
    if (lowercase) put(Kind::kLowercase);
    return Status::ok();
  }
  return unknown("normalizer", step);
}

Status JsonReader::read_pre_tokenizer(const json& step, int depth) {
  const std::string type = step.is_object() ? text_or(step, "type", "") : "";
  if (depth > kDepthMax) return unknown("pre-tokenizer", step);
  if (type == "Sequence" && step.contains("pretokenizers") && step["pretokenizers"].is_array()) {
    for (const json& part : step["pretokenizers"]) {
      TAILOR_RETURN_IF_ERROR(read_pre_tokenizer(part, depth + 1));
    }
    return Status::ok();
  }
  const auto cut = [&](std::string_view regex, CutBehavior behavior, bool invert = false) {
    spec_.word_steps.push_back({.cut = {std::string(regex), behavior, invert}});
  };
  constexpr std::string_view kPunctuation = R"(\p{own:punctuation})";
  if (type == "Split") return read_split(step);
  if (type == "Digits" && has_flag(step, "individual_digits")) {
    cut(flag_or(step, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)",
        CutBehavior::kIsolated);
    return Status::ok();
  }
  if (type == "Punctuation") {
    const std::optional<CutBehavior> behavior =
        behavior_of(text_or(step, "behavior", step.contains("behavior") ? "" : "Isolated"));
    if (!behavior) return unknown("pre-tokenizer", step);
    cut(kPunctuation, *behavior);
    return Status::ok();
  }
  if (type == "Whitespace") {
    cut(R"(\p{own:word}+|[^\p{own:word}\s]+)", CutBehavior::kRemoved, true);
    return Status::ok();
  }
  if (type == "WhitespaceSplit" || type == "BertPreTokenizer") {
    cut(R"(\s)", CutBehavior::kRemoved);
    if (type == "BertPreTokenizer") cut(kPunctuation, CutBehavior::kIsolated);
    return Status::ok();
  }
  if (type == "CharDelimiterSplit") {
    const std::string delimiter = text_or(step, "delimiter", "");
    if (!delimiter.empty() && character_bytes(delimiter, 0) == delimiter.size()) {
      cut(literal_expression(delimiter), CutBehavior::kRemoved);
      return Status::ok();
    }
  }
  if (type == "Metaspace") return read_metaspace(step);
  if (type == "ByteLevel" && !spec_.starts_from_bytes && has_flag(step, "add_prefix_space")) {
    spec_.starts_from_bytes = true;
    if (flag_or(step, "add_prefix_space", true)) {
      spec_.word_steps.push_back(
          {.kind = WordStep::Kind::kMark, .mark = " ", .scheme = PrefixScheme::kAlways});
    }
    if (flag_or(step, "use_regex", true)) cut(kGpt2Regex, CutBehavior::kIsolated);
    spec_.word_steps.push_back({.kind = WordStep::Kind::kBytes});
    return Status::ok();
  }
  return unknown("pre-tokenizer", step);
}

std::optional<CutBehavior> JsonReader::behavior_of(std::string_view name) {
  for (const auto& [known, behavior] : {std::pair{"Isolated", CutBehavior::kIsolated},
                                        {"Removed", CutBehavior::kRemoved},
                                        {"MergedWithPrevious", CutBehavior::kMergedWithPrevious},
                                        {"MergedWithNext", CutBehavior::kMergedWithNext},
                                        {"Contiguous", CutBehavior::kContiguous}}) {
    if (name == known) return behavior;
  }
  return {};
}

Status JsonReader::read_split(const json& step) {
  const std::optional<CutBehavior> behavior = behavior_of(text_or(step, "behavior", ""));
  if (!behavior || !has_flag(step, "invert")) return unknown("split", step);
  Cut cut;
  cut.behavior = *behavior;
  cut.invert = flag_or(step, "invert", false);
  const json pattern = step.value("pattern", json());
  if (pattern.is_object()) cut.regex = text_or(pattern, "Regex", "");
  if (pattern.is_object() && cut.regex.empty()) {
    const std::string literal = text_or(pattern, "String", "");
    if (literal.empty()) return unknown("split", step);
    // In normalised text there is no such space any more: the published Gemma files cut so. (All
    // but what matches would be removed.)
    const bool removes_all = cut.invert && cut.behavior == CutBehavior::kRemoved;
    if (spec_.word_steps.empty() && !spec_.normalizer.empty() && !removes_all) {
      const NormalizerStep& last = spec_.normalizer.back();
      if (last.kind == NormalizerStep::Kind::kReplace && last.from == literal && literal == " " &&
          last.to.find(literal) == std::string::npos) {
        return Status::ok();
      }
    }
    cut.regex = literal_expression(literal);
  }
  if (cut.regex.empty()) return unknown("split", step);
  spec_.word_steps.push_back({.cut = std::move(cut)});
  return Status::ok();
}

Status JsonReader::read_metaspace(const json& step) {
  const std::string mark = text_or(step, "replacement", "");
  if (spec_.starts_from_bytes || mark.empty() || character_bytes(mark, 0) != mark.size()) {
    return unknown("pre-tokenizer", step);
  }
  // "add_prefix_space" is how files said it before there were schemes; false beside another scheme
  // is an error to the library too.
  std::string scheme = text_or(step, "prepend_scheme", "always");
  if (!flag_or(step, "add_prefix_space", true) && scheme != "never") {
    return unknown("pre-tokenizer", step);
  }
  WordStep made{.kind = WordStep::Kind::kMark, .mark = mark, .marks_spaces = true};
  if (scheme == "first" || scheme == "always") {
    made.scheme = scheme == "first" ? PrefixScheme::kFirst : PrefixScheme::kAlways;
  } else if (scheme != "never") {
    return unknown("pre-tokenizer", step);
  }
  spec_.space_mark = mark;
  spec_.word_steps.push_back(std::move(made));
  if (flag_or(step, "split", true)) {
    spec_.word_steps.push_back(
        {.cut = {literal_expression(mark), CutBehavior::kMergedWithNext, false}});
  }
  return Status::ok();
}

// Which special token goes before a single text. `encode` adds none, so what else a post-processor
// does changes no ids.
Status JsonReader::read_post_processor(const json& step, int depth) {
  const std::string type = step.is_object() ? text_or(step, "type", "") : "";
  if (depth > kDepthMax) return unknown("post-processor", step);
  if (type == "Sequence" && step.contains("processors") && step["processors"].is_array()) {
    for (const json& part : step["processors"]) {
      TAILOR_RETURN_IF_ERROR(read_post_processor(part, depth + 1));
    }
    return Status::ok();
  }
  if (type == "ByteLevel") return Status::ok();
  if ((type == "BertProcessing" || type == "RobertaProcessing") && step.contains("cls") &&
      step["cls"].is_array() && step["cls"].size() == 2 && step["cls"][0].is_string()) {
    has_template_ = true;
    template_begin_ = step["cls"][0].get<std::string>();
    return check_template_id(*template_begin_, json::array({step["cls"][1]}));
  }
  if (type != "TemplateProcessing" || !step.contains("single") || !step["single"].is_array()) {
    return unknown("post-processor", step);
  }
  if (step["single"].empty()) return Status::ok();
  has_template_ = true;
  const json& first = step["single"][0];
  if (!first.is_object() || !is_set(first, "SpecialToken") || !first["SpecialToken"].is_object()) {
    return Status::ok();
  }
  template_begin_ = text_or(first["SpecialToken"], "id", "");
  const json tokens = step.value("special_tokens", json());
  if (!tokens.is_object() || !tokens.contains(*template_begin_)) return Status::ok();
  const json& token = tokens[*template_begin_];
  if (!token.is_object() || !token.contains("ids")) return Status::ok();
  return check_template_id(*template_begin_, token["ids"]);
}

// The library takes the ids of a template as they are in the file.
Status JsonReader::check_template_id(const std::string& token, const json& ids) {
  const auto id = id_of(token);
  if (id && ids == json::array({*id})) return Status::ok();
  return Status(Code::kUnimplemented,
                fmt::format("{}: the post-processor puts {} before a text with the ids {}, but its "
                            "id is {}",
                            path_, escape_controls(token),
                            ids.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 100),
                            id ? fmt::format("{}", *id) : "none"));
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
