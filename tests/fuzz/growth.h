// Inputs that are deep or long: what overruns stacks, memory and patience, which edits of a few
// bytes never reach. Known to every target, whatever its language: a bracket of one is noise to
// another.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/rng.h"

namespace tailor::fuzz {

/// `text` with a part nested or repeated, 4 to a million times, up to `bytes_max`.
inline std::string grown(std::string text, Rng& rng, std::size_t bytes_max) {
  using namespace std::string_view_literals;
  // What opens one level, and what closes it ("" for what only grows long).
  static constexpr std::pair<std::string_view, std::string_view> kParts[] = {
      {"[", "]"},
      {"{", "}"},
      {"(", ")"},
      {"[[", "]]"},
      {"{\"a\":", "}"},
      {"[{\"a\":", "}]"},
      {"{\"a\":[", "]}"},
      {"{a=", "}"},
      {"[{a.b=", "}]"},
      {"a.", ""},
      {".a", ""},
      {". \"a\"", ""},
      {"\n[a]\n", ""},
      {"\n[[a.b]]\n", ""},
      {"\na=1\n", ""},
      {"not ", ""},
      {"not (", ")"},
      {"-", ""},
      {"-(", ")"},
      {"1+", ""},
      {"1<", ""},
      {"a and ", ""},
      {"a or (", ")"},
      {"SELECT * FROM (", ")"},
      {"SELECT (", ")"},
      {"CASE WHEN 1 THEN ", " END"},
      {"x UNION ", ""},
      {"**/", ""},
      {"*?[a]", ""},
      {"{a,b}", ""},
      {"(?:", ")*"},
      {"(a|", ")+"},
      {"(?=", ")"},
      {"a*", ""},
      {"a{9}", ""},
      {"&a=b", ""},
      {"%25", ""},
      {"/..", ""},
      {"1,", ""},
      {"[],", ""},
      {"{},", ""},
      {"\"\",", ""},
      {"\"", ""},
      {"'", ""},
      {"\"\"\"", ""},
      {"\\", ""},
      {"#", ""},
      {" ", ""},
      {"\n", ""},
      {"\r\n", ""},
      {"0", ""},
      {"9", ""},
      {"9e9", ""},
      {"a", ""},
      {"\0"sv, ""},
      {"\xEF\xBB\xBF", ""},
      {"\xE2\x96\x81", ""},
      {"\xCC\x81", ""},
      {"\xFF", ""},
      {"\x09\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"sv,
       ""},              // GGUF: a list that holds one list
      {"\x0a\x7f", ""},  // protobuf: a message in a message
      {"\x0b", "\x0c"},  // protobuf: a group in a group
  };
  const auto repeated = [&](std::string_view part, std::uint64_t times) {
    std::string out;
    const std::size_t room = bytes_max > text.size() ? bytes_max - text.size() : 0;
    times = part.empty() ? 0 : std::min<std::uint64_t>(times, room / part.size());
    out.reserve(part.size() * times);
    while (times-- > 0) out += part;
    return out;
  };
  for (std::uint64_t rounds = 1 + rng.below(2); rounds > 0; --rounds) {
    const std::uint64_t times = (std::uint64_t{4} << rng.below(18)) + rng.below(8);
    std::size_t at = rng.below(text.size() + 1);
    if (rng.below(4) == 0) at = rng.below(2) == 0 ? 0 : text.size();
    if (rng.below(4) == 0 && at < text.size()) {  // a part of the input itself
      const std::size_t size = 1 + rng.below(std::min<std::size_t>(text.size() - at, 200));
      text.insert(at, repeated(std::string(text, at, size), times));
      continue;
    }
    const auto& [open, close] = kParts[rng.below(std::size(kParts))];
    const std::size_t end = at + rng.below(std::min<std::size_t>(text.size() - at, 40) + 1);
    const std::string closes = rng.below(4) == 0 ? "" : repeated(close, times);
    text.insert(end, closes);
    text.insert(at, repeated(open, times));
  }
  if (text.size() > bytes_max) text.resize(bytes_max);
  return text;
}

}  // namespace tailor::fuzz
