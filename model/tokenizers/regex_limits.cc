#include "model/tokenizers/regex_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tailor::tokenizers {
namespace {

constexpr std::size_t kUnitsMax = 16'384;
constexpr int kNestedMax = 64;
constexpr std::int32_t kTicks = 100;  // of 10,000 steps back each: some ten milliseconds
constexpr std::size_t kRepeats = 200;

/// Searches all of `text`; false when that takes too long.
bool is_searched(URegularExpression* regex, const std::u16string& text) {
  UErrorCode status = U_ZERO_ERROR;
  uregex_setText(regex, text.data(), static_cast<std::int32_t>(text.size()), &status);
  while (U_SUCCESS(status) && uregex_findNext(regex, &status)) continue;
  return status != U_REGEX_TIME_OUT && status != U_REGEX_STACK_OVERFLOW;
}

/// `unit` again and again, then something that no expression expects.
std::u16string repeated(std::u16string_view unit) {
  std::u16string text;
  for (std::size_t i = 0; i < kRepeats; ++i) text += unit;
  return text + u'\x01';
}

}  // namespace

Status check_regex_text(std::u16string_view pattern) {
  if (pattern.size() > kUnitsMax) {
    return Status(
        Code::kUnimplemented,
        fmt::format("a regular expression of {} characters is unsupported; up to {} are taken",
                    pattern.size(), kUnitsMax));
  }
  int depth = 0, deepest = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == u'\\') {
      ++i;
    } else if (pattern[i] == u'(' || pattern[i] == u'[') {
      deepest = std::max(deepest, ++depth);
    } else if ((pattern[i] == u')' || pattern[i] == u']') && depth > 0) {
      --depth;
    }
  }
  if (deepest <= kNestedMax) return Status::ok();
  return Status(
      Code::kUnimplemented,
      fmt::format("a regular expression that is nested {} deep is unsupported; up to {} is taken",
                  deepest, kNestedMax));
}

Status probe_regex(URegularExpression* regex, std::u16string_view pattern) {
  std::u16string letters;  // that the expression names
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    char16_t c = pattern[i];
    if (c == u'\\') {
      // Literals are written as \x{62}; other escapes stand for classes.
      const bool is_code =
          i + 2 < pattern.size() && pattern[i + 1] == u'x' && pattern[i + 2] == u'{';
      if (!is_code) {
        ++i;
        continue;
      }
      std::uint32_t code = 0;
      for (i += 3; i < pattern.size() && pattern[i] != u'}'; ++i) {
        const char16_t digit = pattern[i];
        const int value = digit <= u'9' ? digit - u'0' : (digit | 0x20) - u'a' + 10;
        code = code * 16 + static_cast<std::uint32_t>(value);
      }
      if (code > 0xFFFF) continue;
      c = static_cast<char16_t>(code);
    }
    const bool is_letter =
        (c >= u'a' && c <= u'z') || (c >= u'A' && c <= u'Z') || (c >= u'0' && c <= u'9');
    const bool meets_itself =
        is_letter || c == u' ' || c == u'\'' || c == u'-' || c == u'_' || c >= 0xA0;
    if (meets_itself && letters.size() < 24 && letters.find(c) == letters.npos) letters += c;
  }
  std::vector<std::u16string> units;
  for (const char16_t c : std::u16string(u"aZ7 \n\t'.,-_\u4e2d\u0301\u00e9") + letters)
    units.emplace_back(1, c);
  for (const char16_t a : letters.substr(0, 8)) {
    for (const char16_t b : letters.substr(0, 8)) {
      if (a != b) units.push_back({a, b});
    }
  }
  UErrorCode status = U_ZERO_ERROR;
  uregex_setTimeLimit(regex, kTicks, &status);
  const bool searched = std::all_of(units.begin(), units.end(), [&](const std::u16string& unit) {
    return is_searched(regex, repeated(unit));
  });
  uregex_setTimeLimit(regex, 0, &status);
  if (searched) return Status::ok();
  return Status(
      Code::kUnimplemented,
      fmt::format("a regular expression that takes more than {} steps for {} characters is "
                  "unsupported: it would never end on a long text",
                  kTicks * 10'000, kRepeats));
}

}  // namespace tailor::tokenizers
