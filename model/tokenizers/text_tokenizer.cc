#include "model/tokenizers/text_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "base/text.h"
#include "model/tokenizers/byte_alphabet.h"
#include "model/tokenizers/expression.h"
#include "model/tokenizers/merges.h"
#include "model/tokenizers/token_matcher.h"

namespace tailor::tokenizers {
namespace {

constexpr std::uint32_t kNoSymbol = std::numeric_limits<std::uint32_t>::max() - 1;
constexpr std::size_t kCachedWordBytesMax = 64;
constexpr std::size_t kCachedWordsMax = 1 << 16;
constexpr char32_t kAscii = 128;

struct TransparentHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
template <typename Value>
using TextMap = std::unordered_map<std::string, Value, TransparentHash, std::equal_to<>>;

// What must be known of the added tokens of one matcher to cut a text beside them.
struct TokenEdges {
  std::set<std::pair<char32_t, char32_t>> inner;  // neighbours within a token
  std::set<char32_t> first, last;                 // of any token
  std::set<char32_t> first_word, last_word;       // of those that stand alone
  std::set<char32_t> first_taking, last_taking;   // of those that take white space there
  bool takes_before = false, takes_after = false;

  void add(const AddedToken& token, std::string_view content) {
    const char32_t begin = code_point_at(content, 0), end = last_code_point(content);
    first.insert(begin);
    last.insert(end);
    if (token.is_single_word) {
      first_word.insert(begin);
      last_word.insert(end);
    }
    if (token.takes_space_before) {
      takes_before = true;
      first_taking.insert(begin);
    }
    if (token.takes_space_after) {
      takes_after = true;
      last_taking.insert(end);
    }
    char32_t before = begin;
    for (std::size_t at = character_bytes(content, 0); at < content.size();
         at += character_bytes(content, at)) {
      const char32_t c = code_point_at(content, at);
      inner.emplace(before, c);
      before = c;
    }
  }

  // True when no token reaches from `a` to `b` behind it, takes white space over the cut or asks
  // what lies there. `knows_ends`: a stretch that begins or ends at a token is treated in a way of
  // its own, so none may begin or end at the cut, which `touches` looks up where it can.
  bool may_cut(char32_t a, char32_t b, bool knows_ends, bool is_looked_up) const {
    if (inner.contains({a, b})) return false;
    if ((last_word.contains(a) && is_word(b)) || (first_word.contains(b) && is_word(a))) {
      return false;
    }
    const bool space_before = is_white_space(a), space_behind = is_white_space(b);
    if (takes_after && space_behind && (space_before || last_taking.contains(a))) return false;
    if (takes_before && space_before && (space_behind || first_taking.contains(b))) return false;
    if (!knows_ends) return true;
    return (is_looked_up || (!last.contains(a) && !first.contains(b))) &&
           !(takes_after && space_before) && !(takes_before && space_behind);
  }
};

// Steps of cutting that go together: a mark, then expressions, then perhaps bytes.
struct StepGroup {
  std::optional<WordStep> mark;
  std::vector<Cut> cuts;
  std::vector<Expression> expressions;
  bool to_bytes = false;
};

// What all clones share; never changes.
struct Shared {
  TokenizerSpec spec;
  TokenMatcher raw, after_normalizing;  // -> index into spec.added
  TokenEdges raw_edges, normalized_edges;
  MergeTable merges;
  std::array<std::uint32_t, 256> byte_symbols;  // what a byte starts as, or falls back to
  TextMap<std::uint32_t> symbols;               // what a character starts as
  TextMap<std::uint32_t> words;                 // whole pieces, where they come first
  // With an alphabet: what characters start as at the places of a word, and single bytes or ASCII.
  std::array<TextMap<std::uint32_t>, 4> characters;
  std::array<std::array<std::uint32_t, 256>, 4> short_characters;
  std::vector<char> stands_for_nothing;  // by id, when decoding
  std::vector<StepGroup> groups;         // one at least
  bool ends_in_alphabet = false;         // words come as characters that stand for bytes
  bool knows_ends = false;               // stretches begin or end in a way of their own
  bool never_unknown = false;            // bytes stand for all characters without a piece
  bool cuts_at_marks = false;            // no merge reaches from a word into the next space mark
  std::vector<std::pair<char32_t, char32_t>> joins;  // sorted; neighbours that merges join
  std::string sha256;
};

// The group of `step`, if it adds a mark, or nullopt.
std::string marked(const WordStep& step, std::string_view text, bool begins, std::size_t* head) {
  std::string out;
  if (step.marks_spaces && text.find(' ') != std::string_view::npos) {
    out.reserve(text.size() * 2);
    const std::size_t head_before = *head;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') {
        out += step.mark;
      } else {
        out += text[i];
      }
      if (i + 1 == head_before) *head = out.size();
    }
  } else {
    out = text;
  }
  const bool wanted = begins && (step.scheme == PrefixScheme::kAlways ||
                                 (step.scheme == PrefixScheme::kFirst && *head > 0));
  if (wanted && !out.starts_with(step.mark)) {
    out.insert(0, step.mark);
    if (*head > 0) *head += step.mark.size();
  }
  return out;
}

class TextTokenizer final : public Tokenizer {
 public:
  TextTokenizer(std::shared_ptr<const Shared> shared, Normalizer normalizer,
                std::vector<TextCutter> cutters)
      : shared_(std::move(shared)),
        normalizer_(std::move(normalizer)),
        cutters_(std::move(cutters)),
        words_(cutters_.size()) {
    ascii_cuts_.fill(-1);
  }

  std::uint32_t vocab_size() const override {
    return static_cast<std::uint32_t>(shared_->spec.pieces.size());
  }
  std::uint32_t eos_id() const override { return shared_->spec.eos_id; }
  std::optional<std::uint32_t> bos_id() const override { return shared_->spec.bos_id; }
  bool adds_bos() const override { return shared_->spec.adds_bos; }
  std::string sha256() const override { return shared_->sha256; }
  std::vector<std::string> notes() const override { return shared_->spec.notes; }
  std::unique_ptr<Tokenizer> clone() const override {
    std::vector<TextCutter> cutters;
    for (const TextCutter& cutter : cutters_) cutters.push_back(cutter.clone());
    return std::make_unique<TextTokenizer>(shared_, normalizer_.clone(), std::move(cutters));
  }

  void encode(std::string_view text, std::vector<std::uint32_t>* ids) override {
    encode(text, {}, false, ids);
  }
  void encode_with_specials(std::string_view text, std::vector<std::uint32_t>* ids) override {
    encode(text, {}, true, ids);
  }
  void encode_part(std::string_view text, Part part, std::vector<std::uint32_t>* ids) override {
    encode(text, part, false, ids);
  }
  std::size_t last_cut(std::string_view text) override;
  Result<std::string> decode(std::span<const std::uint32_t> ids) const override;

 private:
  void encode(std::string_view text, Part part, bool specials, std::vector<std::uint32_t>* ids);
  template <typename F, typename G>
  void each_part(const TokenMatcher& matcher, std::string_view text, bool specials, F plain,
                 G token);
  void encode_stretch(std::size_t group, std::string_view text, bool begins, std::size_t head,
                      std::vector<std::uint32_t>* ids);
  void cut_at_marks(std::string_view text, std::vector<std::string_view>* words);
  void encode_word(std::string_view word, std::vector<std::uint32_t>* ids);
  void encode_new_word(std::string_view word, std::vector<std::uint32_t>* ids);
  void start_symbols(std::string_view word);
  void start_alphabet(std::string_view word);
  void put(std::uint32_t id, std::string_view text, std::vector<std::uint32_t>* ids);
  bool may_cut(char32_t a, char32_t b) const;
  bool cut_by_words(char32_t a, char32_t b) const;
  bool touches_token(std::string_view text, std::size_t cut) const;
  std::uint32_t character_at(std::string_view word, std::size_t at, std::size_t size) const;

  std::shared_ptr<const Shared> shared_;
  Normalizer normalizer_;
  std::vector<TextCutter> cutters_;  // a group
  Merger merger_;
  std::vector<std::vector<std::string_view>> words_;  // a group
  std::vector<MergeSymbol> symbols_;
  bool last_is_unknown_ = false;
  TextMap<std::vector<std::uint32_t>> cache_;
  // What `may_cut` said: 1 yes, 0 no, -1 not asked.
  std::array<std::int8_t, kAscii * kAscii> ascii_cuts_;
  std::unordered_map<std::uint64_t, bool> other_cuts_;
};

// Calls `plain` for each stretch between added tokens and `token` for each of those. What matches
// is found as if all matches counted: those that are passed over still hide what begins within
// them, and white space that a token takes does not hide a token that begins there. Both as in the
// library.
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
    if (added.takes_space_before) {
      begin = std::max(begin - white_space_before(text, begin), done);
    }
    if (added.takes_space_after) end += white_space_after(text, end);
    if (begin > done) plain(done, begin);
    if (begin < end) token(added.id);  // not where others took all of it
    done = end;
  }
  if (done != text.size()) plain(done, text.size());
}

void TextTokenizer::encode(std::string_view text, Part part, bool specials,
                           std::vector<std::uint32_t>* ids) {
  if (!is_valid_utf8(text)) {
    const std::string repaired = repaired_utf8(text);
    return encode(repaired, part, specials, ids);
  }
  if (text.empty()) return;
  const TokenizerSpec& spec = shared_->spec;
  bool is_first = true;
  const auto token = [&](std::uint32_t id) {
    ids->push_back(id);
    is_first = false;
  };
  each_part(
      shared_->raw, text, specials,
      [&](std::size_t from, std::size_t to) {
        std::string_view stretch = text.substr(from, to - from);
        const Normalizer::Part which{part.begins || from > 0, part.ends || to < text.size()};
        std::size_t head = part.begins && from == 0 ? character_bytes(text, 0) : 0;
        std::string owned;
        if (!normalizer_.is_empty()) stretch = owned = normalizer_.apply(stretch, which, &head);
        if (is_first && part.begins && !spec.prefix.empty()) {
          stretch = owned = spec.prefix + std::string(stretch);
        }
        is_first = false;
        each_part(
            shared_->after_normalizing, stretch, specials,
            [&](std::size_t begin, std::size_t end) {
              encode_stretch(0, stretch.substr(begin, end - begin), which.begins || begin > 0,
                             head - std::min(head, begin), ids);
            },
            token);
      },
      token);
}

void TextTokenizer::encode_stretch(std::size_t group, std::string_view text, bool begins,
                                   std::size_t head, std::vector<std::uint32_t>* ids) {
  const StepGroup& steps = shared_->groups[group];
  std::string owned;
  if (steps.mark) text = owned = marked(*steps.mark, text, begins, &head);
  if (text.empty()) return;
  const bool is_last = group + 1 == shared_->groups.size();
  std::vector<std::string_view>& words = words_[group];
  words.clear();
  if (is_last && shared_->cuts_at_marks) {
    cut_at_marks(text, &words);
  } else {
    cutters_[group].cut(text, &words);
  }
  last_is_unknown_ = false;
  for (const std::string_view word : words) {
    if (is_last) {
      encode_word(word, ids);
      continue;
    }
    const auto at = static_cast<std::size_t>(word.data() - text.data());
    std::size_t of_head = std::min(word.size(), head - std::min(head, at));
    if (!steps.to_bytes) {
      encode_stretch(group + 1, word, true, of_head, ids);
    } else {
      if (of_head > 0) of_head = alphabet_of_bytes(word.substr(0, of_head)).size();
      encode_stretch(group + 1, alphabet_of_bytes(word), true, of_head, ids);
    }
  }
}

// Words begin at a space mark that follows something else: no merge crosses there, so the ids are
// those of the whole text.
void TextTokenizer::cut_at_marks(std::string_view text, std::vector<std::string_view>* words) {
  const std::string& mark = shared_->spec.space_mark;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t at = begin;
    while (text.substr(at).starts_with(mark)) at += mark.size();
    const std::size_t end = std::min(text.find(mark, at), text.size());
    words->push_back(text.substr(begin, end - begin));
    begin = end;
  }
}

void TextTokenizer::encode_word(std::string_view word, std::vector<std::uint32_t>* ids) {
  if (word.size() > kCachedWordBytesMax) return encode_new_word(word, ids);
  const auto found = cache_.find(word);
  if (found != cache_.end()) {
    ids->insert(ids->end(), found->second.begin(), found->second.end());
    return;
  }
  const std::size_t before = ids->size();
  const bool unknown_before = std::exchange(last_is_unknown_, false);
  encode_new_word(word, ids);
  // What is unknown may fuse with the word before: not remembered.
  if (unknown_before || last_is_unknown_) return;
  if (cache_.size() >= kCachedWordsMax) cache_.clear();
  cache_.emplace(word, std::vector<std::uint32_t>(
                           ids->begin() + static_cast<std::ptrdiff_t>(before), ids->end()));
}

// SentencePiece's way: symbols without an id merge as well.
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

// What the character at `at` of a word starts as, with an alphabet.
std::uint32_t TextTokenizer::character_at(std::string_view word, std::size_t at,
                                          std::size_t size) const {
  const Shared& shared = *shared_;
  std::size_t place = 0;
  if (shared.spec.alphabet->knows_ends)
    place = (at == 0 ? 1 : 0) | (at + size == word.size() ? 2 : 0);
  if (size == 1) return shared.short_characters[place][static_cast<unsigned char>(word[at])];
  const auto found = shared.characters[place].find(word.substr(at, size));
  return found == shared.characters[place].end() ? kNoSymbol : found->second;
}

// The way of the library tokenizers. An unknown character waits for the next known one, and bytes
// that stand for another one do not end its waiting.
void TextTokenizer::start_alphabet(std::string_view word) {
  const TokenizerSpec& spec = shared_->spec;
  const Alphabet& alphabet = *spec.alphabet;
  symbols_.clear();
  bool waits = false;
  const auto push = [&](std::uint32_t id) { symbols_.push_back({id, 0, 0}); };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t size = spec.starts_from_bytes ? 1 : character_bytes(word, at);
    const std::uint32_t id = character_at(word, at, size);
    const std::string_view character = word.substr(at, size);
    at += size;
    if (id != kNoSymbol) {
      if (waits) push(*spec.unknown_id);
      waits = false;
      push(id);
      continue;
    }
    if (spec.has_byte_fallback && std::all_of(character.begin(), character.end(), [&](char c) {
          return alphabet.bytes[static_cast<unsigned char>(c)].has_value();
        })) {
      for (const char c : character) push(*alphabet.bytes[static_cast<unsigned char>(c)]);
      continue;
    }
    if (!spec.unknown_id) continue;
    if (waits && !spec.fuses_unknown) push(*spec.unknown_id);
    waits = true;
  }
  if (waits) push(*spec.unknown_id);
}

void TextTokenizer::encode_new_word(std::string_view word, std::vector<std::uint32_t>* ids) {
  const Shared& shared = *shared_;
  std::optional<std::string> bytes;
  if (shared.ends_in_alphabet) {
    bytes = bytes_of_alphabet(word);
    if (bytes) word = *bytes;
  }
  if (shared.spec.whole_words_first) {
    if (const auto found = shared.words.find(word); found != shared.words.end()) {
      ids->push_back(found->second);
      return;
    }
  }
  if (shared.spec.alphabet) {
    start_alphabet(word);
    merger_.merge(shared.merges, &symbols_);
    for (const MergeSymbol& symbol : symbols_) ids->push_back(symbol.id);
    return;
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

std::size_t TextTokenizer::last_cut(std::string_view text) {
  if (text.empty() || !is_valid_utf8(text)) return 0;
  std::size_t at = text.size();
  const auto step_back = [&] {
    do {
      --at;
    } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  };
  step_back();
  char32_t b = code_point_at(text, at);
  while (at > 0) {
    const std::size_t cut = at;
    step_back();
    const char32_t a = code_point_at(text, at);
    bool fine = false;
    if (a < kAscii && b < kAscii) {
      std::int8_t& known = ascii_cuts_[a * kAscii + b];
      if (known < 0) known = may_cut(a, b) ? 1 : 0;
      fine = known == 1;
    } else {
      const auto [known, is_new] =
          other_cuts_.try_emplace(static_cast<std::uint64_t>(a) << 32 | b, false);
      if (is_new) known->second = may_cut(a, b);
      fine = known->second;
    }
    if (fine && !touches_token(text, cut)) return cut;
    b = a;
  }
  return 0;
}

// True when an added token may begin or end at `cut`, and that matters.
bool TextTokenizer::touches_token(std::string_view text, std::size_t cut) const {
  if (!shared_->knows_ends) return false;
  const std::string_view before = text.substr(0, cut), behind = text.substr(cut);
  return std::any_of(
      shared_->spec.added.begin(), shared_->spec.added.end(), [&](const AddedToken& token) {
        const std::string_view content = token.content;
        if (token.is_normalized || content.empty()) return false;
        // Where the text is shorter than the token, what it has of it counts.
        return before.ends_with(content.substr(content.size() - std::min(content.size(), cut))) ||
               behind.starts_with(content.substr(0, behind.size()));
      });
}

// A text that holds `a` and behind it `b` is cut between them where every step, one after the
// other, works on both sides as if the other were not there, and no word holds both.
bool TextTokenizer::may_cut(char32_t a, char32_t b) const {
  const Shared& shared = *shared_;
  return shared.raw_edges.may_cut(a, b, shared.knows_ends, true) && normalizer_.may_cut(&a, &b) &&
         shared.normalized_edges.may_cut(a, b, shared.knows_ends, false) && cut_by_words(a, b);
}

// True when the pieces that `cut` makes end between `a` and `b`; REQUIRES: no match holds both.
bool always_cuts(const Cut& cut, const Expression& expression, char32_t a, char32_t b) {
  const bool a_matches = expression.always_matches(a), b_matches = expression.always_matches(b);
  switch (cut.behavior) {
    case CutBehavior::kIsolated:
    case CutBehavior::kRemoved:
      return a_matches || b_matches;
    case CutBehavior::kMergedWithPrevious:
      return !cut.invert && a_matches;
    case CutBehavior::kMergedWithNext:
      return !cut.invert && b_matches;
    case CutBehavior::kContiguous:
      return (a_matches && !expression.touches(b)) || (b_matches && !expression.touches(a));
  }
  return false;
}

bool TextTokenizer::cut_by_words(char32_t a, char32_t b) const {
  const Shared& shared = *shared_;
  const auto ends_of = [](char32_t c, bool alphabet, bool wants_last) {
    std::string text;
    append_utf8(c, &text);
    if (alphabet) text = alphabet_of_bytes(text);
    return wants_last ? last_code_point(text) : code_point_at(text, 0);
  };
  for (std::size_t i = 0; i < shared.groups.size(); ++i) {
    const StepGroup& group = shared.groups[i];
    if (group.mark) {
      // Every piece of the steps before gets a mark of its own, and none ends here.
      if (i > 0 && group.mark->scheme != PrefixScheme::kNever) return false;
      if (group.mark->marks_spaces && a == U' ') a = last_code_point(group.mark->mark);
      if (group.mark->marks_spaces && b == U' ') b = code_point_at(group.mark->mark, 0);
    }
    for (std::size_t j = 0; j < group.cuts.size(); ++j) {
      if (group.expressions[j].joins(a, b)) return false;
      if (always_cuts(group.cuts[j], group.expressions[j], a, b)) return true;
    }
    if (group.to_bytes) {
      a = ends_of(a, true, true);
      b = ends_of(b, true, false);
    }
  }
  // Both lie in one word, if it is cut no merge must be missing.
  const TokenizerSpec& spec = shared.spec;
  if (spec.whole_words_first || (spec.alphabet && spec.alphabet->knows_ends)) return false;
  std::string left, right;
  append_utf8(a, &left);
  append_utf8(b, &right);
  if (shared.ends_in_alphabet) {
    left = bytes_of_alphabet(left).value_or("");
    right = bytes_of_alphabet(right).value_or("");
    if (left.empty() || right.empty()) return false;
  }
  if (spec.starts_from_bytes) {
    left = left.substr(left.size() - 1);
    right = right.substr(0, 1);
    a = static_cast<unsigned char>(left[0]);
    b = static_cast<unsigned char>(right[0]);
  }
  // What is unknown may fuse with what is unknown beside it.
  for (const std::string& side : {left, right}) {
    if (shared.never_unknown) break;
    std::uint32_t id = kNoSymbol;
    if (spec.alphabet) {
      id = character_at(side, 0, side.size());
    } else if (spec.starts_from_bytes) {
      id = shared.byte_symbols[static_cast<unsigned char>(side[0])];
    } else if (const auto found = shared.symbols.find(side); found != shared.symbols.end()) {
      id = found->second;
    }
    if (id >= spec.pieces.size()) return false;
  }
  return !std::binary_search(shared.joins.begin(), shared.joins.end(), std::pair(a, b));
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
  if (spec.space_mark.empty()) return text;
  std::string decoded;
  decoded.reserve(text.size());
  std::size_t at = 0;
  for (std::size_t mark; (mark = text.find(spec.space_mark, at)) != std::string::npos;
       at = mark + spec.space_mark.size()) {
    decoded.append(text, at, mark - at).append(1, ' ');
  }
  decoded.append(text, at);
  const bool made_one =
      !spec.prefix.empty() ||
      std::any_of(
          spec.normalizer.begin(), spec.normalizer.end(),
          [](const NormalizerStep& step) { return step.kind == NormalizerStep::Kind::kPrepend; }) ||
      std::any_of(spec.word_steps.begin(), spec.word_steps.end(), [](const WordStep& step) {
        return step.kind == WordStep::Kind::kMark && step.scheme != PrefixScheme::kNever;
      });
  if (made_one && decoded.starts_with(' ')) decoded.erase(0, 1);
  return decoded;
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
    add(fmt::format("{} {} {}{}", static_cast<int>(step.kind), static_cast<int>(step.form),
                    step.left, step.right));
    add(step.from);
    add(step.to);
  }
  for (const WordStep& step : spec.word_steps) {
    add(fmt::format("{} {} {} {} {}", static_cast<int>(step.kind),
                    static_cast<int>(step.cut.behavior), step.cut.invert, step.marks_spaces,
                    static_cast<int>(step.scheme)));
    add(step.cut.regex);
    add(step.mark);
  }
  if (spec.alphabet) {
    const auto add_map = [&](const std::unordered_map<std::string, std::uint32_t>& map) {
      std::vector<std::pair<std::string, std::uint32_t>> sorted(map.begin(), map.end());
      std::sort(sorted.begin(), sorted.end());
      add(fmt::format("{}", sorted.size()));
      for (const auto& [text, id] : sorted) {
        add(text);
        add(fmt::format("{}", id));
      }
    };
    for (const auto& characters : spec.alphabet->characters) add_map(characters);
    for (const auto& byte : spec.alphabet->bytes) add(fmt::format("{}", byte.value_or(kNoSymbol)));
    if (spec.whole_words_first) add_map(spec.alphabet->words);
    add(fmt::format("{}", spec.alphabet->knows_ends));
  }
  add(fmt::format("{}{}{}{} {} {} {} {}", spec.starts_from_bytes, spec.whole_words_first,
                  spec.has_byte_fallback, spec.fuses_unknown, spec.unknown_id.value_or(kNoSymbol),
                  spec.prefix, spec.eos_id, spec.alphabet.has_value()));
  return hash.hex();
}

// The steps of cutting, in groups.
Status group_steps(Shared* shared) {
  shared->groups.emplace_back();
  bool is_empty = true;
  for (const WordStep& step : shared->spec.word_steps) {
    if (step.kind == WordStep::Kind::kMark && !is_empty) {
      shared->groups.emplace_back();
    } else if (shared->groups.back().to_bytes) {
      shared->groups.emplace_back();
    }
    StepGroup& group = shared->groups.back();
    is_empty = false;
    switch (step.kind) {
      case WordStep::Kind::kMark:
        group.mark = step;
        break;
      case WordStep::Kind::kCut: {
        TAILOR_ASSIGN_OR_RETURN(Expression expression, Expression::parse(step.cut.regex));
        group.cuts.push_back({expression.icu(), step.cut.behavior, step.cut.invert});
        group.expressions.push_back(std::move(expression));
        break;
      }
      case WordStep::Kind::kBytes:
        group.to_bytes = true;
        break;
    }
  }
  // Words are looked up by their bytes: only steps in between need the characters for them.
  if (shared->groups.back().to_bytes) shared->groups.back().to_bytes = false;
  for (const StepGroup& group : shared->groups) {
    if (group.to_bytes) shared->ends_in_alphabet = true;
  }
  const std::optional<WordStep>& mark = shared->groups.front().mark;
  shared->knows_ends = mark && mark->scheme != PrefixScheme::kNever;
  return Status::ok();
}

// What the added tokens are looked for as.
Status prepare_added(Shared* shared, const Normalizer& normalizer, const std::string& path) {
  const TokenizerSpec& spec = shared->spec;
  std::unordered_map<std::string, std::string> seen[2];
  for (std::size_t i = 0; i < spec.added.size(); ++i) {
    const AddedToken& token = spec.added[i];
    if (token.id >= spec.pieces.size()) {
      return Status(Code::kDataLoss,
                    fmt::format("{}: {} has id {}, outside the vocabulary of {}", path,
                                escape_controls(token.content), token.id, spec.pieces.size()));
    }
    const std::string content =
        token.is_normalized ? normalizer.apply(token.content) : token.content;
    if (!is_valid_utf8(content)) continue;  // never found in a text
    if (content.empty()) {
      if (!spec.alphabet) continue;
      return Status(
          Code::kUnimplemented,
          fmt::format("{}: the added token {} is nothing once it is normalised: on such tokens the "
                      "library that the file is from fails",
                      path, escape_controls(token.content)));
    }
    const auto [other, is_new] = seen[token.is_normalized].try_emplace(content, token.content);
    if (!is_new && spec.alphabet) {
      return Status(
          Code::kUnimplemented,
          fmt::format("{}: the added tokens {} and {} are the same once they are normalised; which "
                      "of them the library that the file is from finds differs from run to run",
                      path, escape_controls(other->second), escape_controls(token.content)));
    }
    (token.is_normalized ? shared->after_normalizing : shared->raw)
        .add(content, static_cast<std::uint32_t>(i));
    (token.is_normalized ? shared->normalized_edges : shared->raw_edges).add(token, content);
  }
  return Status::ok();
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
    if (spec.alphabet) continue;
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
  if (spec.alphabet) {
    for (std::size_t place = 0; place < shared->characters.size(); ++place) {
      shared->short_characters[place].fill(kNoSymbol);
      for (auto& [text, id] : spec.alphabet->characters[place]) {
        if (text.size() == 1) {
          shared->short_characters[place][static_cast<unsigned char>(text[0])] = id;
        } else {
          shared->characters[place].emplace(text, id);
        }
      }
      spec.alphabet->characters[place] = {};
    }
    shared->words.insert(spec.alphabet->words.begin(), spec.alphabet->words.end());
    spec.alphabet->words = {};
    shared->joins = std::move(spec.alphabet->joins);
  }
  if (spec.has_byte_fallback && !spec.starts_from_bytes) {
    shared->never_unknown =
        spec.alphabet ? !spec.alphabet->merges_bytes &&
                            std::all_of(spec.alphabet->bytes.begin(), spec.alphabet->bytes.end(),
                                        [](const auto& id) { return id.has_value(); })
                      : std::find(shared->byte_symbols.begin(), shared->byte_symbols.end(),
                                  kNoSymbol) == shared->byte_symbols.end();
  }
  shared->merges = MergeTable(spec.merges.size());
  const auto text_of = [&](std::uint32_t symbol) -> const std::string& {
    return symbol < count ? spec.pieces[symbol] : spec.extra_symbols[symbol - count];
  };
  for (const MergeRule& rule : spec.merges) {
    const std::size_t symbols = count + spec.extra_symbols.size();
    if (rule.left >= symbols || rule.right >= symbols || rule.result >= symbols) {
      return outside("a merge", std::max({rule.left, rule.right, rule.result}));
    }
    shared->merges.add(rule.left, rule.right, {rule.rank, rule.result});
    if (spec.alphabet) continue;
    const std::string &left = text_of(rule.left), &right = text_of(rule.right);
    if (left.empty() || right.empty()) continue;
    if (spec.starts_from_bytes) {
      shared->joins.emplace_back(static_cast<unsigned char>(left.back()),
                                 static_cast<unsigned char>(right.front()));
    } else {
      shared->joins.emplace_back(last_code_point(left), code_point_at(right, 0));
    }
  }
  spec.merges = {};
  std::sort(shared->joins.begin(), shared->joins.end());
  shared->joins.erase(std::unique(shared->joins.begin(), shared->joins.end()), shared->joins.end());
  const StepGroup& last = shared->groups.back();
  shared->cuts_at_marks = !spec.space_mark.empty() && last.cuts.empty() && !last.to_bytes &&
                          !spec.starts_from_bytes && !spec.whole_words_first &&
                          !(spec.alphabet && spec.alphabet->knows_ends);
  if (shared->cuts_at_marks) {
    const char32_t mark = code_point_at(spec.space_mark, 0);
    shared->cuts_at_marks =
        std::all_of(shared->joins.begin(), shared->joins.end(),
                    [&](const auto& pair) { return pair.second != mark || pair.first == mark; });
    // A mark without a piece would fuse with what is unknown beside it.
    const auto& known = spec.alphabet ? shared->characters[0] : shared->symbols;
    if (spec.alphabet && !known.contains(spec.space_mark)) shared->cuts_at_marks = false;
  }
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_text_tokenizer(TokenizerSpec spec,
                                                       const std::string& path) {
  auto normalizer = Normalizer::create(spec.normalizer);
  if (!normalizer) return error(normalizer.error().with_context(path));
  auto shared = std::make_shared<Shared>();
  shared->spec = std::move(spec);
  if (const Status grouped = group_steps(shared.get()); !grouped) {
    return error(grouped.with_context(path));
  }
  if (normalizer->knows_ends()) shared->knows_ends = true;
  std::vector<TextCutter> cutters;
  for (const StepGroup& group : shared->groups) {
    auto cutter = TextCutter::create(group.cuts);
    if (!cutter) return error(cutter.error().with_context(path));
    cutters.push_back(std::move(*cutter));
  }
  TAILOR_RETURN_IF_ERROR(prepare(shared.get(), path));
  TAILOR_RETURN_IF_ERROR(prepare_added(shared.get(), *normalizer, path));
  return std::unique_ptr<Tokenizer>(std::make_unique<TextTokenizer>(
      std::move(shared), std::move(*normalizer), std::move(cutters)));
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
