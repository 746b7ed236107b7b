#include "model/tokenizers/text_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "model/tokenizers/merges.h"
#include "model/tokenizers/token_matcher.h"

namespace tailor::tokenizers {
namespace {

constexpr std::uint32_t kNoSymbol = std::numeric_limits<std::uint32_t>::max() - 1;
constexpr std::size_t kCachedWordBytesMax = 64;
constexpr std::size_t kCachedWordsMax = 1 << 16;

struct TransparentHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
template <typename Value>
using TextMap = std::unordered_map<std::string, Value, TransparentHash, std::equal_to<>>;

// What all clones share; never changes.
struct Shared {
  TokenizerSpec spec;
  TokenMatcher raw, after_normalizing;  // -> index into spec.added
  MergeTable merges;
  std::array<std::uint32_t, 256> byte_symbols;  // what a byte starts as, or falls back to
  TextMap<std::uint32_t> symbols;               // what a character starts as
  TextMap<std::uint32_t> words;                 // whole pieces, where they come first
  std::vector<char> stands_for_nothing;         // by id, when decoding
  bool cuts_at_marks = false;  // no merge reaches from a word into the next space mark
  std::string sha256;
};

std::string normalize(const std::vector<NormalizerStep>& steps, std::string_view text) {
  std::string out(text);
  for (const NormalizerStep& step : steps) {
    if (step.form) {
      out = normalized(*step.form, out);
    } else if (step.from.empty()) {
      if (!out.empty()) out.insert(0, step.to);
    } else if (out.find(step.from) != std::string::npos) {
      std::string replaced;
      replaced.reserve(out.size() * 2);
      std::size_t at = 0;
      for (std::size_t found; (found = out.find(step.from, at)) != std::string::npos;
           at = found + step.from.size()) {
        replaced.append(out, at, found - at).append(step.to);
      }
      out = replaced.append(out, at);
    }
  }
  return out;
}

// True when a space mark follows something else within `piece`.
bool has_inner_mark(std::string_view piece) {
  while (piece.starts_with(kSpaceMark)) piece.remove_prefix(kSpaceMark.size());
  return piece.find(kSpaceMark) != std::string_view::npos;
}

class TextTokenizer final : public Tokenizer {
 public:
  TextTokenizer(std::shared_ptr<const Shared> shared, TextCutter cutter)
      : shared_(std::move(shared)), cutter_(std::move(cutter)) {}

  std::uint32_t vocab_size() const override {
    return static_cast<std::uint32_t>(shared_->spec.pieces.size());
  }
  std::uint32_t eos_id() const override { return shared_->spec.eos_id; }
  std::optional<std::uint32_t> bos_id() const override { return shared_->spec.bos_id; }
  bool adds_bos() const override { return shared_->spec.adds_bos; }
  std::string sha256() const override { return shared_->sha256; }
  std::unique_ptr<Tokenizer> clone() const override {
    return std::make_unique<TextTokenizer>(shared_, cutter_.clone());
  }

  void encode(std::string_view text, std::vector<std::uint32_t>* ids) override {
    encode(text, false, ids);
  }
  void encode_with_specials(std::string_view text, std::vector<std::uint32_t>* ids) override {
    encode(text, true, ids);
  }
  Result<std::string> decode(std::span<const std::uint32_t> ids) const override;

 private:
  void encode(std::string_view text, bool specials, std::vector<std::uint32_t>* ids);
  template <typename F, typename G>
  void each_part(const TokenMatcher& matcher, std::string_view text, bool specials, F plain,
                 G token);
  void encode_plain(std::string_view text, std::vector<std::uint32_t>* ids);
  void cut_at_marks(std::string_view text);
  void encode_word(std::string_view word, std::vector<std::uint32_t>* ids);
  void merge_word(std::string_view word, std::vector<std::uint32_t>* ids);
  void start_symbols(std::string_view word);
  void put(std::uint32_t id, std::string_view text, std::vector<std::uint32_t>* ids);

  std::shared_ptr<const Shared> shared_;
  TextCutter cutter_;
  Merger merger_;
  std::vector<std::string_view> words_;
  std::vector<MergeSymbol> symbols_;
  bool last_is_unknown_ = false;
  TextMap<std::vector<std::uint32_t>> cache_;
};

// Calls `plain` for each stretch between added tokens and `token` for each of those.
template <typename F, typename G>
void TextTokenizer::each_part(const TokenMatcher& matcher, std::string_view text, bool specials,
                              F plain, G token) {
  std::size_t done = 0;
  for (std::size_t at = 0; !matcher.is_empty() && at < text.size();) {
    const TokenMatcher::Match match = matcher.longest(text, at);
    if (match.bytes == 0) {
      ++at;
      continue;
    }
    const AddedToken& added = shared_->spec.added[match.value];
    std::size_t begin = at, end = at + match.bytes;
    at = end;
    if (added.is_special && !specials) continue;
    if (added.is_single_word && (is_word_before(text, begin) || is_word_after(text, end))) continue;
    if (added.takes_space_before) begin -= std::min(white_space_before(text, begin), begin - done);
    if (added.takes_space_after) end += white_space_after(text, end);
    if (begin > done) plain(text.substr(done, begin - done));
    token(added.id);
    done = at = end;
  }
  if (done < text.size()) plain(text.substr(done));
}

void TextTokenizer::encode(std::string_view text, bool specials, std::vector<std::uint32_t>* ids) {
  if (!is_valid_utf8(text)) {
    const std::string repaired = repaired_utf8(text);
    return encode(repaired, specials, ids);
  }
  const TokenizerSpec& spec = shared_->spec;
  bool is_first = true;
  const auto token = [&](std::uint32_t id) {
    ids->push_back(id);
    is_first = false;
  };
  const auto plain = [&](std::string_view part) {
    const bool wanted = spec.prefix_rule == PrefixRule::kEvery ||
                        (spec.prefix_rule == PrefixRule::kFirst && is_first);
    is_first = false;
    if (wanted && !part.starts_with(spec.prefix)) {
      encode_plain(spec.prefix + std::string(part), ids);
    } else {
      encode_plain(part, ids);
    }
  };
  each_part(
      shared_->raw, text, specials,
      [&](std::string_view part) {
        std::string owned;
        if (!spec.normalizer.empty()) part = owned = normalize(spec.normalizer, part);
        if (is_first && spec.prefix_rule == PrefixRule::kAlways) {
          part = owned = spec.prefix + std::string(part);
        }
        each_part(shared_->after_normalizing, part, specials, plain, token);
      },
      token);
}

void TextTokenizer::encode_plain(std::string_view text, std::vector<std::uint32_t>* ids) {
  words_.clear();
  if (shared_->cuts_at_marks) {
    cut_at_marks(text);
  } else {
    cutter_.cut(text, &words_);
  }
  last_is_unknown_ = false;
  for (const std::string_view word : words_) encode_word(word, ids);
}

// Words begin at a space mark that follows something else: no merge crosses there, so the ids are
// those of the whole text.
void TextTokenizer::cut_at_marks(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t at = begin;
    while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
    const std::size_t end = std::min(text.find(kSpaceMark, at), text.size());
    words_.push_back(text.substr(begin, end - begin));
    begin = end;
  }
}

void TextTokenizer::encode_word(std::string_view word, std::vector<std::uint32_t>* ids) {
  if (word.size() > kCachedWordBytesMax) return merge_word(word, ids);
  const auto found = cache_.find(word);
  if (found != cache_.end()) {
    ids->insert(ids->end(), found->second.begin(), found->second.end());
    return;
  }
  const std::size_t before = ids->size();
  const bool unknown_before = std::exchange(last_is_unknown_, false);
  merge_word(word, ids);
  // What is unknown may fuse with the word before: not remembered.
  if (unknown_before || last_is_unknown_) return;
  if (cache_.size() >= kCachedWordsMax) cache_.clear();
  cache_.emplace(word, std::vector<std::uint32_t>(
                           ids->begin() + static_cast<std::ptrdiff_t>(before), ids->end()));
}

void TextTokenizer::start_symbols(std::string_view word) {
  const Shared& shared = *shared_;
  // Where neither bytes nor an unknown token stand for them, characters without a symbol vanish
  // before merging, so that their neighbours meet (SmolLM2 has no pieces for some control codes).
  const bool keeps_unknown = shared.spec.has_byte_fallback || shared.spec.unknown_id;
  symbols_.clear();
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t size = shared.spec.starts_from_bytes ? 1 : character_bytes(word, at);
    std::uint32_t id = kNoSymbol;
    if (shared.spec.starts_from_bytes) {
      id = shared.byte_symbols[static_cast<unsigned char>(word[at])];
    } else if (const auto found = shared.symbols.find(word.substr(at, size));
               found != shared.symbols.end()) {
      id = found->second;
    }
    const auto begin = static_cast<std::uint32_t>(at);
    at += size;
    if (id == kNoSymbol && !keeps_unknown) continue;
    symbols_.push_back({id, begin, static_cast<std::uint32_t>(at)});
  }
}

void TextTokenizer::merge_word(std::string_view word, std::vector<std::uint32_t>* ids) {
  const Shared& shared = *shared_;
  if (shared.spec.whole_words_first) {
    if (const auto found = shared.words.find(word); found != shared.words.end()) {
      ids->push_back(found->second);
      return;
    }
  }
  start_symbols(word);
  merger_.merge(shared.merges, &symbols_);
  for (const MergeSymbol& symbol : symbols_) {
    put(symbol.id, word.substr(symbol.begin, symbol.end - symbol.begin), ids);
  }
}

void TextTokenizer::put(std::uint32_t id, std::string_view text, std::vector<std::uint32_t>* ids) {
  const TokenizerSpec& spec = shared_->spec;
  if (id < spec.pieces.size()) {
    ids->push_back(id);
    last_is_unknown_ = false;
    return;
  }
  if (spec.has_byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) {
        return shared_->byte_symbols[static_cast<unsigned char>(c)] != kNoSymbol;
      })) {
    for (const char c : text) ids->push_back(shared_->byte_symbols[static_cast<unsigned char>(c)]);
    last_is_unknown_ = false;
    return;
  }
  if (!spec.unknown_id) return;
  if (!(spec.fuses_unknown && last_is_unknown_)) ids->push_back(*spec.unknown_id);
  last_is_unknown_ = true;
}

Result<std::string> TextTokenizer::decode(std::span<const std::uint32_t> ids) const {
  const TokenizerSpec& spec = shared_->spec;
  std::string text;
  for (const std::uint32_t id : ids) {
    if (id >= spec.pieces.size()) {
      return error(Code::kInvalidArgument,
                   fmt::format("token id {} is outside the vocabulary of {}", id, vocab_size()));
    }
    if (!shared_->stands_for_nothing[id]) text += spec.pieces[id];
  }
  if (!spec.marks_spaces) return text;
  text = normalize({{std::nullopt, std::string(kSpaceMark), " "}}, text);
  const bool made_one =
      !spec.prefix.empty() ||
      std::any_of(spec.normalizer.begin(), spec.normalizer.end(),
                  [](const NormalizerStep& step) { return !step.form && step.from.empty(); });
  if (made_one && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

// A hash of every member that decides about ids.
std::string fingerprint(const TokenizerSpec& spec) {
  Sha256 hash;
  const auto add = [&](std::string_view text) {
    hash.update(fmt::format("{}:", text.size()));
    hash.update(text);
  };
  for (std::size_t i = 0; i < spec.pieces.size(); ++i) {
    add(spec.pieces[i]);
    add(fmt::format("{}", static_cast<int>(spec.kinds[i])));
  }
  for (const std::string& symbol : spec.extra_symbols) add(symbol);
  hash.update(spec.merges.data(), spec.merges.size() * sizeof(MergeRule));
  for (const AddedToken& token : spec.added) {
    add(token.content);
    add(fmt::format("{} {}{}{}{}{}", token.id, token.is_special, token.is_normalized,
                    token.takes_space_before, token.takes_space_after, token.is_single_word));
  }
  for (const NormalizerStep& step : spec.normalizer) {
    add(fmt::format("{} {} > {}", step.form ? static_cast<int>(*step.form) : -1, step.from,
                    step.to));
  }
  for (const Cut& cut : spec.cuts) {
    add(fmt::format("{} {} {}", cut.regex, static_cast<int>(cut.behavior), cut.invert));
  }
  add(fmt::format("{}{}{}{} {} {}{} {}", spec.starts_from_bytes, spec.whole_words_first,
                  spec.has_byte_fallback, spec.fuses_unknown, spec.unknown_id.value_or(kNoSymbol),
                  spec.prefix, static_cast<int>(spec.prefix_rule), spec.eos_id));
  return hash.hex();
}

// Fills what is derived from `shared->spec`.
Status prepare(Shared* shared, const std::string& path) {
  TokenizerSpec& spec = shared->spec;
  const std::size_t count = spec.pieces.size();
  const auto outside = [&](std::string_view what, std::uint64_t id) {
    return Status(Code::kDataLoss, fmt::format("{}: {} has id {}, outside the vocabulary of {}",
                                               path, what, id, count));
  };
  if (spec.eos_id >= count) return outside("the end of text", spec.eos_id);
  if (spec.bos_id && *spec.bos_id >= count) return outside("the begin of text", *spec.bos_id);
  if (spec.unknown_id && *spec.unknown_id >= count) return outside("unknown", *spec.unknown_id);
  shared->stands_for_nothing.resize(count);
  shared->byte_symbols.fill(kNoSymbol);
  for (std::uint32_t id = 0; id < count; ++id) {
    const std::string& piece = spec.pieces[id];
    const PieceKind kind = spec.kinds[id];
    shared->stands_for_nothing[id] = kind == PieceKind::kSpecial || kind == PieceKind::kUnused ||
                                     id == spec.eos_id || spec.unknown_id == id;
    const PieceKind of_bytes = spec.starts_from_bytes ? PieceKind::kNormal : PieceKind::kByte;
    if (piece.size() == 1 && kind == of_bytes) {
      shared->byte_symbols[static_cast<unsigned char>(piece[0])] = id;
    }
    if (piece.empty() || kind != PieceKind::kNormal) continue;
    if (spec.whole_words_first) shared->words.emplace(piece, id);
    if (!spec.starts_from_bytes && is_valid_utf8(piece) &&
        character_bytes(piece, 0) == piece.size()) {
      shared->symbols.emplace(piece, id);
    }
  }
  for (std::size_t i = 0; i < spec.extra_symbols.size(); ++i) {
    shared->symbols.emplace(spec.extra_symbols[i], static_cast<std::uint32_t>(count + i));
  }
  shared->sha256 = spec.sha256.empty() ? fingerprint(spec) : spec.sha256;
  shared->merges = MergeTable(spec.merges.size());
  shared->cuts_at_marks = spec.marks_spaces && spec.cuts.empty();
  for (const MergeRule& rule : spec.merges) {
    const std::size_t symbols = count + spec.extra_symbols.size();
    if (rule.left >= symbols || rule.right >= symbols || rule.result >= symbols) {
      return outside("a merge", std::max({rule.left, rule.right, rule.result}));
    }
    shared->merges.add(rule.left, rule.right, {rule.rank, rule.result});
    if (rule.result < count && has_inner_mark(spec.pieces[rule.result])) {
      shared->cuts_at_marks = false;
    }
  }
  spec.merges = {};
  for (std::size_t i = 0; i < spec.added.size(); ++i) {
    const AddedToken& token = spec.added[i];
    if (token.id >= count) return outside(escape_controls(token.content), token.id);
    const std::string content =
        token.is_normalized ? normalize(spec.normalizer, token.content) : token.content;
    if (content.empty()) continue;
    (token.is_normalized ? shared->after_normalizing : shared->raw)
        .add(content, static_cast<std::uint32_t>(i));
  }
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_text_tokenizer(TokenizerSpec spec,
                                                       const std::string& path) {
  auto cutter = TextCutter::create(spec.cuts);
  if (!cutter) return error(cutter.error().with_context(path));
  auto shared = std::make_shared<Shared>();
  shared->spec = std::move(spec);
  TAILOR_RETURN_IF_ERROR(prepare(shared.get(), path));
  return std::unique_ptr<Tokenizer>(
      std::make_unique<TextTokenizer>(std::move(shared), std::move(*cutter)));
}

std::optional<std::uint8_t> byte_of_piece(std::string_view piece) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return {};
  const int high = digit(piece[3]), low = digit(piece[4]);
  if (high < 0 || low < 0) return {};
  return static_cast<std::uint8_t>(high * 16 + low);
}

}  // namespace tailor::tokenizers
