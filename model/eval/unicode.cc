#include "model/eval/unicode.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace tailor::eval {
namespace {

constexpr bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Bytes of the character that begins with `first`.
std::size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

char32_t code_point_at(std::string_view text, std::size_t at) {
  const std::size_t bytes = std::min(character_bytes(text[at]), text.size() - at);
  const auto first = static_cast<unsigned char>(text[at]);
  char32_t value = bytes == 1 ? first : first & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    value = value << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3Fu);
  }
  return value;
}

void append_utf8(char32_t c, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

/// Title-case mappings to more than one character (Unicode 14, SpecialCasing.txt, unconditional).
struct Expansion {
  char32_t from;
  std::array<char32_t, 3> to;  // zeros behind the end
};
constexpr Expansion kTitleExpansions[] = {
    {0x00DF, {'S', 's'}},
    {0x0149, {0x2BC, 'N'}},
    {0x01F0, {'J', 0x30C}},
    {0x0390, {0x399, 0x308, 0x301}},
    {0x03B0, {0x3A5, 0x308, 0x301}},
    {0x0587, {0x535, 0x582}},
    {0x1E96, {'H', 0x331}},
    {0x1E97, {'T', 0x308}},
    {0x1E98, {'W', 0x30A}},
    {0x1E99, {'Y', 0x30A}},
    {0x1E9A, {'A', 0x2BE}},
    {0x1F50, {0x3A5, 0x313}},
    {0x1F52, {0x3A5, 0x313, 0x300}},
    {0x1F54, {0x3A5, 0x313, 0x301}},
    {0x1F56, {0x3A5, 0x313, 0x342}},
    {0x1FB2, {0x1FBA, 0x345}},
    {0x1FB4, {0x386, 0x345}},
    {0x1FB6, {0x391, 0x342}},
    {0x1FB7, {0x391, 0x342, 0x345}},
    {0x1FC2, {0x1FCA, 0x345}},
    {0x1FC4, {0x389, 0x345}},
    {0x1FC6, {0x397, 0x342}},
    {0x1FC7, {0x397, 0x342, 0x345}},
    {0x1FD2, {0x399, 0x308, 0x300}},
    {0x1FD3, {0x399, 0x308, 0x301}},
    {0x1FD6, {0x399, 0x342}},
    {0x1FD7, {0x399, 0x308, 0x342}},
    {0x1FE2, {0x3A5, 0x308, 0x300}},
    {0x1FE3, {0x3A5, 0x308, 0x301}},
    {0x1FE4, {0x3A1, 0x313}},
    {0x1FE6, {0x3A5, 0x342}},
    {0x1FE7, {0x3A5, 0x308, 0x342}},
    {0x1FF2, {0x1FFA, 0x345}},
    {0x1FF4, {0x38F, 0x345}},
    {0x1FF6, {0x3A9, 0x342}},
    {0x1FF7, {0x3A9, 0x342, 0x345}},
    {0xFB00, {'F', 'f'}},
    {0xFB01, {'F', 'i'}},
    {0xFB02, {'F', 'l'}},
    {0xFB03, {'F', 'f', 'i'}},
    {0xFB04, {'F', 'f', 'l'}},
    {0xFB05, {'S', 't'}},
    {0xFB06, {'S', 't'}},
    {0xFB13, {0x544, 0x576}},
    {0xFB14, {0x544, 0x565}},
    {0xFB15, {0x544, 0x56B}},
    {0xFB16, {0x54E, 0x576}},
    {0xFB17, {0x544, 0x56D}},
};

/// Case by the C library's tables, whatever locale the program runs in. Made once, never freed.
struct CaseTables {
  locale_t locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  wctrans_t title = locale == nullptr ? wctrans_t{} : ::wctrans_l("totitle", locale);
  bool usable() const { return locale != nullptr && title != wctrans_t{}; }
  char32_t lower(char32_t c) const {
    return static_cast<char32_t>(::towlower_l(static_cast<wint_t>(c), locale));
  }
  char32_t to_title(char32_t c) const {
    return static_cast<char32_t>(::towctrans_l(static_cast<wint_t>(c), title, locale));
  }
  bool is_cased(char32_t c) const { return lower(c) != c || to_title(c) != c; }
};

/// Characters that the rule of the final sigma passes over: the common part of Unicode's class
/// Case_Ignorable.
bool is_case_ignorable(char32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xAD || c == 0xB7 ||
         (c >= 0x300 && c <= 0x36F) || c == 0x2018 || c == 0x2019 || (c >= 0x200B && c <= 0x200F);
}

/// Whether the sigma at `at` ends its word: a cased letter before it, none behind it.
bool is_final_sigma(const std::vector<char32_t>& text, std::size_t at, const CaseTables& tables) {
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !tables.is_cased(text[before - 1])) return false;
  std::size_t behind = at + 1;
  while (behind < text.size() && is_case_ignorable(text[behind])) ++behind;
  return behind == text.size() || !tables.is_cased(text[behind]);
}

}  // namespace

std::size_t code_points(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty() && is_space(code_point_at(text, 0))) {
    text.remove_prefix(character_bytes(text[0]));
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && is_continuation(text[last])) --last;
    if (!is_space(code_point_at(text, last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

Result<std::string> capitalize(std::string_view text) {
  static const CaseTables tables;
  std::vector<char32_t> points;
  for (std::size_t at = 0; at < text.size(); at += character_bytes(text[at])) {
    points.push_back(code_point_at(text, at));
  }
  const bool ascii = std::all_of(points.begin(), points.end(), [](char32_t c) { return c < 0x80; });
  std::string out;
  if (ascii) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      const bool change = i == 0 ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z';
      out.push_back(change ? static_cast<char>(c ^ 0x20) : c);
    }
    return out;
  }
  if (!tables.usable()) {
    return error(Code::kFailedPrecondition,
                 "letters beyond ASCII cannot be capitalised: this system has no locale C.UTF-8; "
                 "install it (Debian: package libc-bin)");
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    const char32_t c = points[i];
    if (i == 0) {
      const auto* expansion = std::find_if(std::begin(kTitleExpansions), std::end(kTitleExpansions),
                                           [c](const Expansion& e) { return e.from == c; });
      if (expansion == std::end(kTitleExpansions)) {
        append_utf8(tables.to_title(c), &out);
      } else {
        for (const char32_t part : expansion->to) {
          if (part != 0) append_utf8(part, &out);
        }
      }
    } else if (c == 0x130) {  // capital I with a dot
      append_utf8('i', &out);
      append_utf8(0x307, &out);
    } else if (c == 0x3A3) {  // capital sigma
      append_utf8(is_final_sigma(points, i, tables) ? 0x3C2 : 0x3C3, &out);
    } else {
      append_utf8(tables.lower(c), &out);
    }
  }
  return out;
}

}  // namespace tailor::eval
