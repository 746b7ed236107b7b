#include "model/tokenizers/unicode_text.h"

#include <fmt/format.h>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/uregex.h>
#include <unicode/ustring.h>
#include <unicode/utf16.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "model/tokenizers/regex_limits.h"

namespace tailor::tokenizers {
namespace {

constexpr int kFormTables = 9;  // the version of Unicode that normal forms are of

const UNormalizer2* normalizer_of(NormalForm form) {
  UErrorCode status = U_ZERO_ERROR;
  const UNormalizer2* found = nullptr;
  switch (form) {
    case NormalForm::kNfc:
      found = unorm2_getNFCInstance(&status);
      break;
    case NormalForm::kNfd:
      found = unorm2_getNFDInstance(&status);
      break;
    case NormalForm::kNfkc:
      found = unorm2_getNFKCInstance(&status);
      break;
    case NormalForm::kNfkd:
      found = unorm2_getNFKDInstance(&status);
      break;
  }
  TAILOR_CHECK(U_SUCCESS(status), "ICU has no data for its normal forms");
  return found;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<signed char>(c) >= 0; });
}

// The character at `*begin`, which moves behind it; U+FFFD for what is no UTF-8, of which it moves
// over a maximal part.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"  // in ICU's macro
UChar32 character_after(std::string_view text, std::size_t* begin) {
  UChar32 c = 0;
  U8_NEXT_OR_FFFD(text.data(), *begin, text.size(), c);
  return c;
}
#pragma GCC diagnostic pop

// UTF-16 of valid UTF-8.
void widen(std::string_view text, std::u16string* wide) {
  wide->clear();
  wide->reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const UChar32 c = character_after(text, &i);
    if (c <= 0xffff) {
      wide->push_back(static_cast<char16_t>(c));
    } else {
      wide->push_back(static_cast<char16_t>(U16_LEAD(c)));
      wide->push_back(static_cast<char16_t>(U16_TRAIL(c)));
    }
  }
}

std::string narrowed(std::u16string_view wide) {
  std::string text;
  text.reserve(wide.size());
  const std::size_t size = wide.size();
  for (std::size_t i = 0; i < size;) {
    UChar32 c = 0;
    U16_NEXT_OR_FFFD(wide.data(), i, size, c);
    char bytes[U8_MAX_LENGTH];
    std::size_t length = 0;
    U8_APPEND_UNSAFE(bytes, length, c);
    text.append(bytes, length);
  }
  return text;
}

UChar32 character_before(std::string_view text, std::size_t* end) {
  while (*end > 1 && U8_IS_TRAIL(text[*end - 1])) --*end;
  std::size_t at = --*end;
  return character_after(text, &at);
}

// A form by ICU's own tables.
std::string form_of(NormalForm form, std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  const UNormalizer2* normalizer = normalizer_of(form);
  std::u16string wide, out;
  widen(text, &wide);
  const auto length = static_cast<std::int32_t>(wide.size());
  UErrorCode status = U_ZERO_ERROR;
  if (unorm2_isNormalized(normalizer, wide.data(), length, &status)) return std::string(text);
  out.resize(wide.size() + wide.size() / 2 + 64);
  for (;;) {
    status = U_ZERO_ERROR;
    const std::int32_t needed = unorm2_normalize(normalizer, wide.data(), length, out.data(),
                                                 static_cast<std::int32_t>(out.size()), &status);
    const bool fits = status != U_BUFFER_OVERFLOW_ERROR;
    TAILOR_CHECK(U_SUCCESS(status) || !fits, "normalising: {}", u_errorName(status));
    out.resize(static_cast<std::size_t>(needed));
    if (fits) return narrowed(out);
  }
}

// \w of Unicode Technical Standard 18, annex C.
bool is_word_character(UChar32 c) {
  const auto category = U_GET_GC_MASK(c);
  return u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
         (category & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

}  // namespace

std::string repaired_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size() + 16);
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t bad = 0;
    if (is_valid_utf8(text.substr(at), &bad)) bad = text.size() - at;
    repaired.append(text.substr(at, bad));
    at += bad;
    if (at >= text.size()) break;
    character_after(text, &at);  // moves over a maximal part
    repaired += "\xEF\xBF\xBD";
  }
  return repaired;
}

bool is_known_to_unicode(int version, char32_t c) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] > 0 && age[0] <= version;
}

std::string normalized(NormalForm form, std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  // Newer characters neither change nor mix with others: what lies between them is apart.
  std::string apart;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const UChar32 c = character_after(text, &at);
    if (c < 0x80 || is_known_to_unicode(kFormTables, static_cast<char32_t>(c))) continue;
    apart += form_of(form, text.substr(done, begin - done));
    apart += text.substr(begin, at - begin);
    done = at;
  }
  return apart + form_of(form, text.substr(done));
}

std::size_t character_bytes(std::string_view text, std::size_t at) {
  std::size_t end = at;
  character_after(text, &end);
  return end - at;
}

char32_t code_point_at(std::string_view text, std::size_t at) {
  return static_cast<char32_t>(character_after(text, &at));
}

char32_t last_code_point(std::string_view text) {
  std::size_t end = text.size();
  return static_cast<char32_t>(character_before(text, &end));
}

void append_utf8(char32_t c, std::string* text) {
  char bytes[U8_MAX_LENGTH];
  std::size_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, static_cast<UChar32>(c));
  text->append(bytes, length);
}

bool is_white_space(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)); }

bool is_word(char32_t c) { return is_word_character(static_cast<UChar32>(c)); }

bool begins_apart(NormalForm form, char32_t c) {
  return !is_known_to_unicode(kFormTables, c) ||
         unorm2_hasBoundaryBefore(normalizer_of(form), static_cast<UChar32>(c));
}

bool ends_apart(NormalForm form, char32_t c) {
  return !is_known_to_unicode(kFormTables, c) ||
         unorm2_hasBoundaryAfter(normalizer_of(form), static_cast<UChar32>(c));
}

std::size_t white_space_before(std::string_view text, std::size_t end) {
  std::size_t begin = end;
  while (begin > 0) {
    std::size_t at = begin;
    if (!u_isUWhiteSpace(character_before(text, &at))) break;
    begin = at;
  }
  return end - begin;
}

std::size_t white_space_after(std::string_view text, std::size_t begin) {
  std::size_t end = begin;
  while (end < text.size()) {
    std::size_t at = end;
    if (!u_isUWhiteSpace(character_after(text, &at))) break;
    end = at;
  }
  return end - begin;
}

bool is_word_before(std::string_view text, std::size_t end) {
  return end > 0 && is_word_character(character_before(text, &end));
}

bool is_word_after(std::string_view text, std::size_t begin) {
  return begin < text.size() && is_word_character(character_after(text, &begin));
}

namespace {

using RegexPointer = std::unique_ptr<URegularExpression, decltype(&uregex_close)>;

Result<RegexPointer> open_regex(const std::string& regex) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError where{};
  std::u16string pattern;
  widen(repaired_utf8(regex), &pattern);
  const auto refused = [&](const Status& why) {
    return error(why.with_context("the tokenizer's expression " + short_text(regex)));
  };
  if (const Status taken = check_regex_text(pattern); !taken) return refused(taken);
  RegexPointer opened(
      uregex_open(pattern.data(), static_cast<std::int32_t>(pattern.size()), 0, &where, &status),
      &uregex_close);
  if (U_FAILURE(status)) {
    return error(Code::kInvalidArgument,
                 fmt::format("the tokenizer's expression {} is not understood: {} at character {}",
                             short_text(regex), u_errorName(status), where.offset));
  }
  uregex_setStackLimit(opened.get(), 0, &status);  // memory is the limit, not a constant
  if (const Status ends = probe_regex(opened.get(), pattern); !ends) return refused(ends);
  return opened;
}

// Finds the byte that a place in the text as UTF-16 lies at; asked for ascending places.
class ByteWalk {
 public:
  ByteWalk(const std::u16string& wide, std::string_view text)
      : wide_(wide), one_each_(wide.size() == text.size()) {}
  std::size_t byte_of(std::int32_t wanted) {
    if (one_each_) return static_cast<std::size_t>(wanted);
    while (unit_ < wanted) {
      const char16_t c = wide_[static_cast<std::size_t>(unit_)];
      const bool pair = U16_IS_LEAD(c);
      byte_ += c < 0x80 ? 1 : c < 0x800 ? 2 : pair ? 4 : 3;
      unit_ += pair ? 2 : 1;
    }
    return byte_;
  }

 private:
  const std::u16string& wide_;
  const bool one_each_;
  std::int32_t unit_ = 0;
  std::size_t byte_ = 0;
};

}  // namespace

struct TextFinder::Impl {
  RegexPointer regex;
  std::u16string wide;
};

Result<TextFinder> TextFinder::create(const std::string& regex) {
  TAILOR_ASSIGN_OR_RETURN(RegexPointer opened, open_regex(regex));
  return TextFinder(std::make_unique<Impl>(Impl{std::move(opened), {}}));
}

TextFinder::TextFinder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextFinder::TextFinder(TextFinder&&) noexcept = default;
TextFinder& TextFinder::operator=(TextFinder&&) noexcept = default;
TextFinder::~TextFinder() = default;

std::vector<std::pair<std::size_t, std::size_t>> TextFinder::find(std::string_view text) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  URegularExpression* regex = impl_->regex.get();
  widen(text, &impl_->wide);
  ByteWalk walk(impl_->wide, text);
  UErrorCode status = U_ZERO_ERROR;
  uregex_setText(regex, impl_->wide.data(), static_cast<std::int32_t>(impl_->wide.size()), &status);
  while (U_SUCCESS(status) && uregex_findNext(regex, &status)) {
    const std::int32_t begin = uregex_start(regex, 0, &status);
    const std::int32_t end = uregex_end(regex, 0, &status);
    if (U_FAILURE(status)) break;
    if (end == begin) continue;
    const std::size_t first = walk.byte_of(begin);
    found.emplace_back(first, walk.byte_of(end));
  }
  return found;
}

struct TextCutter::Impl {
  struct Range {
    std::int32_t begin, end;
  };
  struct Step {
    Cut cut;
    RegexPointer regex;
  };
  std::vector<Step> steps;
  std::u16string wide;
  std::vector<Range> pieces, next;

  void apply(Step& step);
};

Result<TextCutter> TextCutter::create(const std::vector<Cut>& cuts) {
  auto impl = std::make_unique<Impl>();
  for (const Cut& cut : cuts) {
    TAILOR_ASSIGN_OR_RETURN(RegexPointer regex, open_regex(cut.regex));
    impl->steps.push_back({cut, std::move(regex)});
  }
  return TextCutter(std::move(impl));
}

TextCutter::TextCutter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TextCutter::TextCutter(TextCutter&&) noexcept = default;
TextCutter& TextCutter::operator=(TextCutter&&) noexcept = default;
TextCutter::~TextCutter() = default;

TextCutter TextCutter::clone() const {
  std::vector<Cut> cuts;
  for (const Impl::Step& step : impl_->steps) cuts.push_back(step.cut);
  return std::move(*create(cuts));
}

void TextCutter::Impl::apply(Step& step) {
  next.clear();
  UErrorCode status = U_ZERO_ERROR;
  URegularExpression* regex = step.regex.get();
  uregex_setText(regex, wide.data(), static_cast<std::int32_t>(wide.size()), &status);
  std::vector<std::pair<Range, bool>> parts;  // in order, with whether it plays the match
  for (const Range& piece : pieces) {
    parts.clear();
    status = U_ZERO_ERROR;
    uregex_setRegion(regex, piece.begin, piece.end, &status);
    std::int32_t at = piece.begin;
    while (U_SUCCESS(status) && uregex_findNext(regex, &status)) {
      const std::int32_t begin = uregex_start(regex, 0, &status);
      const std::int32_t end = uregex_end(regex, 0, &status);
      if (U_FAILURE(status)) break;
      if (end == begin) continue;
      if (begin > at) parts.push_back({{at, begin}, step.cut.invert});
      parts.push_back({{begin, end}, !step.cut.invert});
      at = end;
    }
    if (at < piece.end) parts.push_back({{at, piece.end}, step.cut.invert});

    bool open_before = false;  // the last word takes a match that follows
    bool is_open = false;      // there is a last word
    bool open_after = false;   // the last word is matches that the next part belongs to
    for (const auto& [range, is_match] : parts) {
      switch (step.cut.behavior) {
        case CutBehavior::kIsolated:
          next.push_back(range);
          break;
        case CutBehavior::kRemoved:
          if (!is_match) next.push_back(range);
          break;
        case CutBehavior::kMergedWithPrevious:
          if (is_match && open_before) {
            next.back().end = range.end;
          } else {
            next.push_back(range);
          }
          open_before = !is_match;
          break;
        case CutBehavior::kMergedWithNext:
          if (!is_match && open_after) {
            next.back().end = range.end;
          } else {
            next.push_back(range);
          }
          open_after = is_match;
          break;
        case CutBehavior::kContiguous:
          if (is_open && is_match == open_after) {
            next.back().end = range.end;
          } else {
            next.push_back(range);
          }
          open_after = is_match;
          is_open = true;
          break;
      }
    }
  }
  std::swap(pieces, next);
}

void TextCutter::cut(std::string_view text, std::vector<std::string_view>* words) {
  if (text.empty()) return;
  Impl& impl = *impl_;
  if (impl.steps.empty()) {
    words->push_back(text);
    return;
  }
  widen(text, &impl.wide);
  impl.pieces.assign(1, {0, static_cast<std::int32_t>(impl.wide.size())});
  for (Impl::Step& step : impl.steps) impl.apply(step);
  // Back to bytes: the pieces are in order, so one walk over the text finds all their ends.
  ByteWalk walk(impl.wide, text);
  for (const Impl::Range& piece : impl.pieces) {
    const std::size_t begin = walk.byte_of(piece.begin);
    words->push_back(text.substr(begin, walk.byte_of(piece.end) - begin));
  }
}

}  // namespace tailor::tokenizers
