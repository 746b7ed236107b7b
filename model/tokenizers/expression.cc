#include "model/tokenizers/expression.h"

#include <fmt/format.h>
#include <unicode/uset.h>
#include <unicode/ustring.h>
#include <unicode/utf16.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "model/tokenizers/unicode_text.h"

namespace tailor::tokenizers {
namespace {

constexpr int kGroupDepthMax = 100;           // groups within groups
constexpr std::size_t kPatternMax = 1 << 14;  // bytes; published ones have a few hundred
constexpr std::size_t kPositionsMax = 2000;
constexpr unsigned kRepeatMax = 1000;

// General categories, and scripts that published models cut by. Other properties have other members
// in Oniguruma than in ICU (Punct), or other names.
constexpr std::string_view kProperties[] = {
    "L",      "Lu",     "Ll",     "Lt",    "Lm",        "Lo",       "M",        "Mn",
    "Mc",     "Me",     "N",      "Nd",    "Nl",        "No",       "P",        "Pc",
    "Pd",     "Ps",     "Pe",     "Pi",    "Pf",        "Po",       "S",        "Sm",
    "Sc",     "Sk",     "So",     "Z",     "Zs",        "Zl",       "Zp",       "Cc",
    "Cf",     "Co",     "Han",    "Latin", "Greek",     "Cyrillic", "Hiragana", "Katakana",
    "Hangul", "Arabic", "Hebrew", "Thai",  "Devanagari"};

// As sets of ICU: Oniguruma's \w lacks the joiners that ICU's has.
constexpr std::string_view kSpaceSet = "\\p{White_Space}";
constexpr std::string_view kDigitSet = "\\p{Nd}";
// Of Latin-1 it has all digits of other kinds too, but not within a class.
constexpr std::string_view kWordSet =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}\\x{BD}\\x{BE}";
constexpr std::string_view kClassWordSet = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

// What pre-tokenizers without an expression of their own cut by; no name that a file could have.
// \w of Rust's expressions, and punctuation: of ASCII with the symbols, else as in Unicode 8.
constexpr std::string_view kOwnWordSet = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";

const std::string& own_punctuation_set() {
  static const std::string set = [] {
    // An intersection is written otherwise in sets than in expressions: its ranges are the same.
    const std::u16string pattern = u"[[[:P:]&[:Age=8.0:]]$+<=>\\^`|~\\u166D\\U000111C9]";
    UErrorCode status = U_ZERO_ERROR;
    const std::unique_ptr<USet, decltype(&uset_close)> whole(
        uset_openPattern(pattern.data(), static_cast<std::int32_t>(pattern.size()), &status),
        &uset_close);
    TAILOR_CHECK(U_SUCCESS(status), "ICU's sets: {}", u_errorName(status));
    std::string ranges;
    for (std::int32_t i = 0; i < uset_getItemCount(whole.get()); ++i) {
      UChar32 first = 0, last = 0;
      uset_getItem(whole.get(), i, &first, &last, nullptr, 0, &status);
      ranges += fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(first));
      if (last > first) ranges += fmt::format("-\\x{{{:X}}}", static_cast<std::uint32_t>(last));
    }
    return ranges;
  }();
  return set;
}

// One character of a match, or a look at what lies around.
struct Position {
  std::string set;  // for ICU; empty: a look
  bool folds_case = false;
};

struct Node {
  enum class Kind { kEmpty, kPosition, kSequence, kEither, kRepeat };
  Kind kind = Kind::kEmpty;
  std::size_t position = 0;
  std::vector<Node> parts;
  unsigned min = 0;
  bool again = false;  // more than `min` times
};

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  Status parse() {
    if (pattern_.empty() || pattern_.size() > kPatternMax || !is_valid_utf8(pattern_)) {
      return refuse("its length");
    }
    const bool folds = take("(?i)");
    if (folds) icu_ += "(?i)";
    TAILOR_ASSIGN_OR_RETURN(root, either(0, folds));
    if (at_ < pattern_.size()) return refuse(")");
    if (can_be_empty(root)) return refuse("that it matches nothing");
    return Status::ok();
  }

  Node root;
  std::vector<Position> positions;
  bool looks_behind = false;
  std::string& icu() { return icu_; }

 private:
  Status refuse(std::string_view what) const {
    std::string shown = escape_controls(pattern_);
    if (shown.size() > 300) shown = shown.substr(0, 300) + "...";
    return Status(Code::kUnimplemented,
                  fmt::format("the expression {} is not known to cut as in the library that the "
                              "file is from: {} is not read",
                              shown, what));
  }
  bool at_end() const { return at_ >= pattern_.size(); }
  char peek() const { return at_end() ? '\0' : pattern_[at_]; }
  bool take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  // The character at hand, as ICU's sets and expressions take it.
  std::string literal() {
    const std::size_t bytes = character_bytes(pattern_, at_);
    const std::string text(pattern_.substr(at_, bytes));
    at_ += bytes;
    return escaped(text);
  }
  static std::string escaped(std::string_view character) {
    return fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(code_point_at(character, 0)));
  }

  Result<Node> either(int depth, bool folds) {
    if (depth > kGroupDepthMax) return error(refuse("groups so deep"));
    Node node;
    node.kind = Node::Kind::kEither;
    for (;;) {
      TAILOR_ASSIGN_OR_RETURN(Node part, sequence(depth, folds));
      node.parts.push_back(std::move(part));
      if (!take("|")) return node;
      icu_ += '|';
    }
  }

  Result<Node> sequence(int depth, bool folds) {
    Node node;
    node.kind = Node::Kind::kSequence;
    while (!at_end() && peek() != '|' && peek() != ')') {
      bool is_look = false;
      TAILOR_ASSIGN_OR_RETURN(Node part, atom(depth, folds, &is_look));
      TAILOR_ASSIGN_OR_RETURN(part, repeated(std::move(part), is_look));
      node.parts.push_back(std::move(part));
    }
    return node;
  }

  Result<Node> position(std::string set, bool folds) {
    if (positions.size() >= kPositionsMax) return error(refuse("so long an expression"));
    Node node;
    node.kind = Node::Kind::kPosition;
    node.position = positions.size();
    positions.push_back({std::move(set), folds});
    return node;
  }

  Result<Node> atom(int depth, bool folds, bool* is_look) {
    const char c = peek();
    if (c == '(') return group(depth, folds, is_look);
    if (c == '[') {
      if (folds) return error(refuse("a class without regard to case"));
      TAILOR_ASSIGN_OR_RETURN(std::string set, bracket(0));
      icu_ += set;
      return position(std::move(set), false);
    }
    if (c == '.') {
      ++at_;
      icu_ += "[^\\x{A}]";  // ICU's stops at other ends of lines too
      return position("[^\\x{A}]", false);
    }
    if (c == '\\') {
      TAILOR_ASSIGN_OR_RETURN(const std::string set, escape());
      if (folds && !set.starts_with("\\x")) {
        return error(refuse("a class without regard to case"));
      }
      const std::string whole = "[" + set + "]";
      icu_ += folds ? set : whole;
      return position(whole, folds);
    }
    if (std::string_view("^$*+?{").find(c) != std::string_view::npos) {
      return error(refuse(std::string(1, c)));
    }
    const std::string character = literal();
    icu_ += character;
    return position("[" + character + "]", folds);
  }

  Result<Node> group(int depth, bool folds, bool* is_look) {
    struct Kind {
      std::string_view open;
      int look;  // 1 ahead, -1 behind
      bool folds;
    };
    static constexpr Kind kKinds[] = {{"(?:", 0, false},  {"(?i:", 0, true}, {"(?>", 0, false},
                                      {"(?=", 1, false},  {"(?!", 1, false}, {"(?<=", -1, false},
                                      {"(?<!", -1, false}};
    const Kind* kind = nullptr;
    for (const Kind& known : kKinds) {
      if (take(known.open)) {
        kind = &known;
        break;
      }
    }
    if (kind == nullptr) {
      if (pattern_.substr(at_).starts_with("(?") || pattern_.substr(at_).starts_with("(*")) {
        return error(refuse(pattern_.substr(at_, 4)));
      }
      ++at_;
      icu_ += '(';
    } else {
      icu_ += kind->open;
    }
    const std::size_t first = positions.size();
    TAILOR_ASSIGN_OR_RETURN(Node inner, either(depth + 1, folds || (kind && kind->folds)));
    if (!take(")")) return error(refuse("a group without end"));
    icu_ += ')';
    if (kind == nullptr || kind->look == 0) return inner;
    *is_look = true;
    if (kind->look < 0) looks_behind = true;
    // What follows is not part of the match. One character is what published expressions look at.
    if (kind->look > 0 && !(positions.size() == first + 1 && longest(inner) <= 1)) {
      looks_behind = true;  // promises nothing, as for looking behind
    }
    positions.resize(first);
    return position("", false);
  }

  // Characters of the longest match, 2 for "more than one".
  static int longest(const Node& node) {
    int length = 0;
    switch (node.kind) {
      case Node::Kind::kEmpty:
        return 0;
      case Node::Kind::kPosition:
        return 1;
      case Node::Kind::kSequence:
        for (const Node& part : node.parts) length += longest(part);
        return std::min(length, 2);
      case Node::Kind::kEither:
        for (const Node& part : node.parts) length = std::max(length, longest(part));
        return length;
      case Node::Kind::kRepeat:
        return longest(node.parts[0]) == 0 ? 0 : node.again || node.min > 1 ? 2 : 1;
    }
    return 2;
  }

  bool can_be_empty(const Node& node) const {
    switch (node.kind) {
      case Node::Kind::kEmpty:
        return true;
      case Node::Kind::kPosition:
        return positions[node.position].set.empty();
      case Node::Kind::kSequence:
        return std::all_of(node.parts.begin(), node.parts.end(),
                           [&](const Node& part) { return can_be_empty(part); });
      case Node::Kind::kEither:
        return std::any_of(node.parts.begin(), node.parts.end(),
                           [&](const Node& part) { return can_be_empty(part); });
      case Node::Kind::kRepeat:
        return node.min == 0 || can_be_empty(node.parts[0]);
    }
    return true;
  }

  Result<Node> repeated(Node part, bool is_look) {
    for (int count = 0;; ++count) {
      unsigned min = 0, max = 0;  // 0: no end
      const std::size_t begin = at_;
      if (take("*")) {
      } else if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (peek() == '{') {
        ++at_;
        const std::optional<unsigned> low = number();
        if (!low) return error(refuse("{"));
        min = max = *low;
        bool has_end = true;
        if (take(",")) {
          const std::optional<unsigned> high = number();
          has_end = high.has_value();
          max = high.value_or(0);
        }
        if (!take("}") || (has_end && (max < min || max == 0)) || min > kRepeatMax ||
            max > kRepeatMax) {
          return error(refuse("{"));
        }
        // Oniguruma reads {n}? and {n}+ in its own way.
        if (peek() == '?' || peek() == '+') return error(refuse("{...} with ? or + behind it"));
      } else {
        return part;
      }
      // Of (a*)* and a** the two engines make different things.
      if (count > 0 || is_look || can_be_empty(part)) return error(refuse("such a repetition"));
      if (pattern_[at_ - 1] != '}') {
        if (!take("?")) take("+");
      }
      icu_ += pattern_.substr(begin, at_ - begin);
      Node node;
      node.kind = Node::Kind::kRepeat;
      node.min = min;
      node.again = max == 0 || max > std::max(min, 1u);
      node.parts.push_back(std::move(part));
      part = std::move(node);
    }
  }

  std::optional<unsigned> number() {
    unsigned value = 0;
    const std::size_t begin = at_;
    while (peek() >= '0' && peek() <= '9' && at_ - begin < 5) {
      value = value * 10 + static_cast<unsigned>(pattern_[at_++] - '0');
    }
    return at_ == begin ? std::nullopt : std::optional(value);
  }

  // A class in brackets, as one of ICU.
  Result<std::string> bracket(int depth) {
    if (depth > kGroupDepthMax) return error(refuse("classes so deep"));
    ++at_;
    std::string set = "[";
    if (take("^")) set += '^';
    bool is_first = true;
    std::string before;  // the character that a range may begin with
    for (;; is_first = false) {
      if (at_end()) return error(refuse("a class without end"));
      const char c = peek();
      if (c == ']' && !is_first) {
        ++at_;
        return set + "]";
      }
      if (c == ']' || pattern_.substr(at_).starts_with("[:") ||
          pattern_.substr(at_).starts_with("&&")) {
        return error(refuse("[] [: or && in a class"));
      }
      if (c == '[') {
        TAILOR_ASSIGN_OR_RETURN(const std::string inner, bracket(depth + 1));
        set += inner;
        before.clear();
        continue;
      }
      std::string one;
      if (c == '-' && !before.empty() && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
        ++at_;
        if (peek() == '[') return error(refuse("such a range"));
        if (peek() == '\\') {
          TAILOR_ASSIGN_OR_RETURN(one, escape(/*in_class=*/true));
        } else {
          one = literal();
        }
        if (!one.starts_with("\\x")) return error(refuse("such a range"));
        set += "-" + one;
        before.clear();
        continue;
      }
      if (c == '-' && !is_first && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
        return error(refuse("a - within a class"));  // after a range or a class: read differently
      }
      if (c == '\\') {
        TAILOR_ASSIGN_OR_RETURN(one, escape(/*in_class=*/true));
      } else {
        one = literal();
      }
      set += one;
      before = one.starts_with("\\x") ? one : "";
    }
  }

  // What a backslash begins, as the inner of a class of ICU: one \x{...}, or a set.
  Result<std::string> escape(bool in_class = false) {
    ++at_;
    if (at_end()) return error(refuse("a \\ at the end"));
    const char c = pattern_[at_];
    const auto known = [&](std::string_view set, bool opposite) {
      ++at_;
      return opposite ? fmt::format("[^{}]", set) : std::string(set);
    };
    switch (c) {
      case 's':
      case 'S':
        return known(kSpaceSet, c == 'S');
      case 'd':
      case 'D':
        return known(kDigitSet, c == 'D');
      case 'w':
      case 'W':
        return known(in_class ? kClassWordSet : kWordSet, c == 'W');
      case 'n':
        return known("\\x{A}", false);
      case 'r':
        return known("\\x{D}", false);
      case 't':
        return known("\\x{9}", false);
      case 'f':
        return known("\\x{C}", false);
      case 'p':
      case 'P':
        return property(c == 'P');
      case 'x':
      case 'u':
        return numbered(c);
      default:
        break;
    }
    const bool is_name = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_name || static_cast<signed char>(c) < 0) {
      return error(refuse(fmt::format("\\{}", c)));
    }
    return literal();
  }

  Result<std::string> property(bool opposite) {
    ++at_;
    if (!take("{")) return error(refuse("\\p without braces"));
    if (take("^")) opposite = !opposite;
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return error(refuse("\\p without end"));
    const std::string_view name = pattern_.substr(at_, end - at_);
    if (name == "own:word" || name == "own:punctuation") {
      at_ = end + 1;
      return fmt::format(
          "[{}{}]", opposite ? "^" : "",
          name == "own:word" ? kOwnWordSet : std::string_view(own_punctuation_set()));
    }
    if (std::find(std::begin(kProperties), std::end(kProperties), name) == std::end(kProperties)) {
      return error(refuse(fmt::format("\\p{{{}}}", escape_controls(name))));
    }
    at_ = end + 1;
    return fmt::format("\\{}{{{}}}", opposite ? 'P' : 'p', name);
  }

  // \xHH, \x{H...} and \uHHHH.
  Result<std::string> numbered(char kind) {
    ++at_;
    const bool braced = kind == 'x' && take("{");
    const std::size_t wanted = kind == 'u' ? 4 : 2;
    std::uint32_t code = 0;
    std::size_t digits = 0;
    for (; digits < (braced ? 6 : wanted); ++digits, ++at_) {
      const char c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      code = code * 16 + static_cast<std::uint32_t>(digit);
    }
    const bool fine = digits > 0 && (braced ? take("}") : digits == wanted);
    // \xHH above 7F is a byte to Oniguruma.
    if (!fine || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ||
        (kind == 'x' && !braced && code > 0x7f)) {
      return error(refuse("such a number of a character"));
    }
    return fmt::format("\\x{{{:X}}}", code);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::string icu_;
};

// False for characters that are several once their case is folded.
bool folds_to_itself_alone(char32_t c) {
  if (c < 0x80) return true;
  UChar text[2], folded[8];
  std::int32_t length = 0;
  UErrorCode status = U_ZERO_ERROR;
  U16_APPEND_UNSAFE(text, length, c);
  const std::int32_t size = u_strFoldCase(folded, 8, text, length, U_FOLD_CASE_DEFAULT, &status);
  return U_SUCCESS(status) && u_countChar32(folded, size) == 1;
}

using SetPointer = std::unique_ptr<USet, decltype(&uset_close)>;

}  // namespace

// Which characters may follow which, by the construction of Glushkov: every character of the
// expression is a position; `first` are those that a match may begin with, `last` those that it may
// end with, `follow` the pairs that may be neighbours.
struct Expression::Impl {
  struct Ends {
    bool nullable = true;
    std::vector<std::size_t> first, last;
  };

  std::string icu;
  bool promises_nothing = false;
  std::vector<SetPointer> sets;  // by position; nullptr: a look
  std::vector<bool> is_first, is_last;
  std::vector<std::vector<std::size_t>> follow;

  void join(const std::vector<std::size_t>& left, const std::vector<std::size_t>& right) {
    for (const std::size_t i : left) {
      for (const std::size_t j : right) {
        if (std::find(follow[i].begin(), follow[i].end(), j) == follow[i].end()) {
          follow[i].push_back(j);
        }
      }
    }
  }
  static void append(std::vector<std::size_t>* to, const std::vector<std::size_t>& more) {
    for (const std::size_t i : more) {
      if (std::find(to->begin(), to->end(), i) == to->end()) to->push_back(i);
    }
  }
  Ends concatenated(const Ends& a, const Ends& b) {
    join(a.last, b.first);
    Ends both{a.nullable && b.nullable, a.first, b.last};
    if (a.nullable) append(&both.first, b.first);
    if (b.nullable) append(&both.last, a.last);
    return both;
  }
  Ends walk(const Node& node) {
    switch (node.kind) {
      case Node::Kind::kEmpty:
        return {};
      case Node::Kind::kPosition:
        return {false, {node.position}, {node.position}};
      case Node::Kind::kSequence: {
        Ends all;
        for (const Node& part : node.parts) all = concatenated(all, walk(part));
        return all;
      }
      case Node::Kind::kEither: {
        Ends all{false, {}, {}};
        for (const Node& part : node.parts) {
          const Ends one = walk(part);
          all.nullable = all.nullable || one.nullable;
          append(&all.first, one.first);
          append(&all.last, one.last);
        }
        return all;
      }
      case Node::Kind::kRepeat: {
        Ends one = walk(node.parts[0]);
        if (node.again || node.min > 1) join(one.last, one.first);
        if (node.min == 0) one.nullable = true;
        // A match of at least two: what it begins with is no end of it.
        if (node.min > 1 && !one.nullable) repeats_twice = true;
        return one;
      }
    }
    return {};
  }
  bool repeats_twice = false;

  // "ss" without regard to case is also one other character.
  bool may_be_several(char32_t c) const { return folds_case && !folds_to_itself_alone(c); }
  bool folds_case = false;

  bool holds(std::size_t position, char32_t c) const {
    return sets[position] && uset_contains(sets[position].get(), static_cast<UChar32>(c));
  }
};

Expression::Expression(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<Expression> Expression::parse(std::string_view pattern) {
  Parser parser(pattern);
  TAILOR_RETURN_IF_ERROR(parser.parse());
  auto impl = std::make_shared<Impl>();
  impl->icu = std::move(parser.icu());
  impl->promises_nothing = parser.looks_behind;
  for (const Position& position : parser.positions) {
    SetPointer set(nullptr, &uset_close);
    if (!position.set.empty()) {
      std::u16string wide(position.set.begin(), position.set.end());  // ASCII
      UErrorCode status = U_ZERO_ERROR;
      set.reset(uset_openPattern(wide.data(), static_cast<std::int32_t>(wide.size()), &status));
      if (U_FAILURE(status)) {
        return error(Code::kUnimplemented,
                     fmt::format("the class {} is not read: {}", position.set.substr(0, 200),
                                 u_errorName(status)));
      }
      if (position.folds_case) impl->folds_case = true;
      if (position.folds_case) uset_closeOver(set.get(), USET_CASE_INSENSITIVE);
    }
    impl->sets.push_back(std::move(set));
  }
  impl->follow.resize(impl->sets.size());
  const Impl::Ends ends = impl->walk(parser.root);
  impl->is_first.resize(impl->sets.size());
  impl->is_last.resize(impl->sets.size());
  for (const std::size_t i : ends.first) impl->is_first[i] = true;
  for (const std::size_t i : ends.last) impl->is_last[i] = true;
  return Expression(std::move(impl));
}

const std::string& Expression::icu() const { return impl_->icu; }

bool Expression::joins(char32_t a, char32_t b) const {
  if (impl_->promises_nothing || impl_->may_be_several(a) || impl_->may_be_several(b)) return true;
  for (std::size_t i = 0; i < impl_->sets.size(); ++i) {
    if (!impl_->holds(i, a)) continue;
    for (const std::size_t j : impl_->follow[i]) {
      if (!impl_->sets[j] || impl_->holds(j, b)) return true;
    }
  }
  return false;
}

bool Expression::always_matches(char32_t c) const {
  if (impl_->promises_nothing || impl_->repeats_twice) return false;
  for (std::size_t i = 0; i < impl_->sets.size(); ++i) {
    if (impl_->is_first[i] && impl_->is_last[i] && impl_->holds(i, c)) return true;
  }
  return false;
}

bool Expression::touches(char32_t c) const {
  if (impl_->promises_nothing || impl_->may_be_several(c)) return true;
  for (std::size_t i = 0; i < impl_->sets.size(); ++i) {
    if (impl_->holds(i, c)) return true;
  }
  return false;
}

std::string literal_expression(std::string_view text) {
  std::string expression;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) {
    expression += fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(code_point_at(text, at)));
  }
  return expression;
}

}  // namespace tailor::tokenizers
