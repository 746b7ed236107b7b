#include "model/eval/unicode.h"

#include <unicode/locid.h>
#include <unicode/stringoptions.h>
#include <unicode/unistr.h>

#include <cstdint>

#include "base/check.h"
#include "model/tokenizers/unicode_text.h"

namespace tailor::eval {
namespace {

/// White space to Python, but not to Unicode's property.
bool is_separator(char c) { return c >= 0x1C && c <= 0x1F; }

}  // namespace

std::size_t code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) == 0x80 ? 0 : 1;
  return count;
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const std::size_t space =
        is_separator(text.front()) ? 1 : tokenizers::white_space_after(text, 0);
    if (space == 0) break;
    text.remove_prefix(space);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const std::size_t space =
        is_separator(text.back()) ? 1 : tokenizers::white_space_before(text, text.size());
    if (space == 0) break;
    text.remove_suffix(space);
  }
  return text;
}

std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

std::string capitalize(std::string_view text) {
  TAILOR_CHECK(text.size() <= INT32_MAX, "{} bytes", text.size());
  icu::UnicodeString points =
      icu::UnicodeString::fromUTF8({text.data(), static_cast<std::int32_t>(text.size())});
  // The very first character, letter or not, is the one in title case.
  points.toTitle(nullptr, icu::Locale::getRoot(),
                 U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT);
  std::string out;
  points.toUTF8String(out);
  return out;
}

}  // namespace tailor::eval
