#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace tailor {
namespace {

/// Splits "20 GiB" into a number and a unit.
Result<std::pair<double, std::string>> number_and_unit(std::string_view text) {
  const std::string_view trimmed = trim(text);
  std::string digits;
  std::size_t i = 0;
  for (; i < trimmed.size(); ++i) {
    const char c = trimmed[i];
    if (c == '_' || c == ',') continue;
    const bool exponent = (c == 'e' || c == 'E') && i > 0 && i + 1 < trimmed.size() &&
                          (std::isdigit(static_cast<unsigned char>(trimmed[i + 1])) != 0 ||
                           trimmed[i + 1] == '-' || trimmed[i + 1] == '+');
    const bool sign_of_exponent =
        (c == '-' || c == '+') && i > 0 && (trimmed[i - 1] == 'e' || trimmed[i - 1] == 'E');
    if (std::isdigit(static_cast<unsigned char>(c)) == 0 && c != '.' && !exponent &&
        !sign_of_exponent) {
      break;
    }
    digits += c;
  }
  double value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || failure != std::errc() || end != digits.data() + digits.size() ||
      !std::isfinite(value)) {
    return error(Code::kInvalidArgument, fmt::format("\"{}\" does not start with a number", text));
  }
  return std::pair(value, std::string(trim(trimmed.substr(i))));
}

/// Looks `unit` up in (name, factor) pairs.
Result<double> scaled(std::string_view text, std::string_view kind,
                      std::span<const std::pair<std::string_view, double>> units) {
  auto parsed = number_and_unit(text);
  if (!parsed) return error(parsed.error());
  for (const auto& [name, factor] : units) {
    if (name == parsed->second) return parsed->first * factor;
  }
  std::string allowed;
  for (const auto& [name, factor] : units) {
    if (name.empty()) continue;
    allowed += (allowed.empty() ? "" : ", ") + std::string(name);
  }
  return error(Code::kInvalidArgument,
               fmt::format("\"{}\" has an unknown unit \"{}\" for a {}; allowed: {}", text,
                           parsed->second, kind, allowed));
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Optimal string alignment: three rolling rows.
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest_name(std::string_view name, std::span<const std::string_view> known) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (const std::string_view candidate : known) {
    // Each byte more is an edit: what others wrote at any length costs nothing here.
    const std::size_t longer = std::max(name.size(), candidate.size());
    if (longer - std::min(name.size(), candidate.size()) >= best_distance) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::optional<int> cuda_index(std::string_view device) {
  constexpr std::string_view kCuda = "cuda:";
  if (!device.starts_with(kCuda)) return std::nullopt;
  const std::string_view digits = device.substr(kCuda.size());
  int index = -1;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (failure != std::errc() || end != digits.data() + digits.size() || index < 0) {
    return std::nullopt;
  }
  return index;
}

std::string with_thousands(std::int64_t value) {
  const bool negative = value < 0;
  std::string digits = std::to_string(value);
  if (negative) digits.erase(0, 1);
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return negative ? "-" + digits : digits;
}

Result<double> parse_count(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"G", 1e9}, {"T", 1e12}};
  return scaled(text, "count", kUnits);
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},
                                                                   {"B", 1},
                                                                   {"kB", 1e3},
                                                                   {"MB", 1e6},
                                                                   {"GB", 1e9},
                                                                   {"TB", 1e12},
                                                                   {"KiB", 1024.},
                                                                   {"MiB", 1048576.},
                                                                   {"GiB", 1073741824.},
                                                                   {"TiB", 1099511627776.}};
  auto value = scaled(text, "size", kUnits);
  if (!value) return error(value.error());
  if (*value < 0 || *value > 9e18) {
    return error(Code::kInvalidArgument, fmt::format("\"{}\" is not a size in bytes", text));
  }
  return static_cast<std::uint64_t>(std::llround(*value));
}

Result<std::int64_t> parse_duration_ms(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ms", 1}, {"s", 1e3}, {"min", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};
  auto value = scaled(text, "duration", kUnits);
  if (!value) return error(value.error());
  if (*value > 9e15) {
    return error(Code::kInvalidArgument, fmt::format("\"{}\" is too long a duration", text));
  }
  return static_cast<std::int64_t>(std::llround(*value));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  for (;;) {
    const std::size_t at = text.find(separator, start);
    if (at == std::string_view::npos) {
      parts.push_back(text.substr(start));
      return parts;
    }
    parts.push_back(text.substr(start, at - start));
    start = at + 1;
  }
}

std::vector<std::string_view> split_patterns(std::string_view list) {
  // Without its margins, but for a space at the end that a backslash holds.
  const auto without_margins = [](std::string_view pattern) {
    const std::string_view bare = trim(pattern);
    if (bare.empty()) return bare;
    pattern.remove_prefix(static_cast<std::size_t>(bare.data() - pattern.data()));
    const std::size_t last = bare.find_last_not_of('\\');
    const std::size_t slashes =
        last == std::string_view::npos ? bare.size() : bare.size() - 1 - last;
    const bool held = slashes % 2 == 1 && bare.size() < pattern.size();
    return pattern.substr(0, bare.size() + (held ? 1 : 0));
  };
  std::vector<std::string_view> patterns;
  std::size_t start = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '\\') {
      ++i;
    } else if (list[i] == ',') {
      patterns.push_back(without_margins(list.substr(start, i - start)));
      start = i + 1;
    }
  }
  patterns.push_back(without_margins(list.substr(start)));
  return patterns;
}

std::string escape_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\*?[],").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string_view trim(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

bool is_valid_utf8(std::string_view text, std::size_t* bad_offset) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  std::size_t i = 0;
  while (i < text.size()) {
    const unsigned char lead = byte(i);
    std::size_t extra = 0;
    unsigned char low = 0x80, high = 0xBF;  // allowed range of the second byte
    if (lead < 0x80) {
      ++i;
      continue;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
      extra = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      extra = 2;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;  // no surrogates
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      extra = 3;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      if (bad_offset != nullptr) *bad_offset = i;
      return false;
    }
    for (std::size_t k = 1; k <= extra; ++k) {
      if (i + k >= text.size() || byte(i + k) < (k == 1 ? low : 0x80) ||
          byte(i + k) > (k == 1 ? high : 0xBF)) {
        if (bad_offset != nullptr) *bad_offset = i;
        return false;
      }
    }
    i += extra + 1;
  }
  return true;
}

std::string with_valid_utf8(std::string text) {
  // What is before a wrong byte is whole characters: it need not be looked at again.
  std::size_t from = 0;
  std::size_t bad = 0;
  while (!is_valid_utf8(std::string_view(text).substr(from), &bad)) {
    text[from + bad] = '?';
    from += bad + 1;
  }
  return text;
}

std::string_view without_byte_order_mark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

std::string_view utf16_or_utf32(std::string_view start) {
  using namespace std::string_view_literals;
  if (start.starts_with("\xFF\xFE\0\0"sv)) return "UTF-32LE";
  if (start.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32BE";
  if (start.starts_with("\xFF\xFE"sv)) return "UTF-16LE";
  if (start.starts_with("\xFE\xFF"sv)) return "UTF-16BE";
  // Without a mark: where the zero bytes are. Spaces alone make some of every text's.
  constexpr std::size_t kZerosMin = 4;
  constexpr std::size_t kCharactersAZero = 20;  // at most so many for each zero byte
  std::size_t zeros[4] = {};
  const std::size_t size = start.size() / 4 * 4;
  for (std::size_t i = 0; i < size; ++i) zeros[i % 4] += start[i] == '\0' ? 1 : 0;
  const std::size_t groups = size / 4;
  if (groups >= 2 && zeros[2] == groups && zeros[3] == groups && zeros[0] == 0) return "UTF-32LE";
  if (groups >= 2 && zeros[0] == groups && zeros[1] == groups && zeros[3] == 0) return "UTF-32BE";
  const std::size_t even = zeros[0] + zeros[2];
  const std::size_t odd = zeros[1] + zeros[3];
  const std::size_t enough = std::max(kZerosMin, size / 2 / kCharactersAZero);
  if (even == 0 && odd >= enough) return "UTF-16LE";
  if (odd == 0 && even >= enough) return "UTF-16BE";
  return "";
}

std::string escape_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = [&](std::size_t at) -> unsigned {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    unsigned code = byte(i);
    std::size_t extra = 0;
    if (code == 0xC2 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xA0) {
      code = byte(i + 1);  // C1
      extra = 1;
    } else if (code == 0xE2 && (byte(i + 1) == 0x80 || byte(i + 1) == 0x81)) {
      code = 0x2000u + ((byte(i + 1) & 0x3Fu) << 6) + (byte(i + 2) & 0x3Fu);
      extra = 2;
      const bool steers = (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
      if (byte(i + 2) == 0 || !steers) {
        out += text[i];
        continue;
      }
    } else if (code >= 0x20 && code != 0x7F) {
      out += text[i];
      continue;
    }
    i += extra;
    if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else {
      out += fmt::format("\\u{:04x}", code);
    }
  }
  return out;
}

std::string short_text(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return escape_controls(text);
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return escape_controls(text.substr(0, end)) + "...";
}

}  // namespace tailor
