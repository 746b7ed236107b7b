// Text for people: nearest names, numbers with separators, sizes and durations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor {

/// Number of single-character edits (insert, delete, replace, swap neighbours) between two words.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known name nearest to `name`, or "" when none is close enough to be meant (more than a third
/// of its letters differ).
std::string nearest_name(std::string_view name, std::span<const std::string_view> known);

/// N of the device name "cuda:N", N >= 0; nullopt for every other text.
std::optional<int> cuda_index(std::string_view device);

/// "113,246,208".
std::string with_thousands(std::int64_t value);

/// Reads a count with an optional unit: "250M", "0.5M", "2.2B", "1_000", "4k" (powers of ten).
/// Errors: kInvalidArgument naming the text.
Result<double> parse_count(std::string_view text);

/// Reads a size in bytes: "20 GiB", "512MiB", "1GB", "4096".
Result<std::uint64_t> parse_bytes(std::string_view text);

/// Reads a duration in milliseconds: "10 min", "30s", "24h", "250 ms".
Result<std::int64_t> parse_duration_ms(std::string_view text);

/// Splits at every `separator`; never empty ("" gives one empty part).
std::vector<std::string_view> split(std::string_view text, char separator);

/// Without leading and trailing white space.
std::string_view trim(std::string_view text);

/// The shell patterns of a list: split at commas and trimmed; a backslash makes the character after
/// it stand for itself ("a\\,b" is one pattern, and its backslash stays, for the shell's rules to
/// read).
std::vector<std::string_view> split_patterns(std::string_view list);

/// `text` as a pattern that matches only itself, also within a list: what is special to
/// `split_patterns` or to glob(3) gets a backslash in front.
std::string escape_pattern(std::string_view text);

/// True when `text` is well-formed UTF-8 (no surrogates, no overlong forms). On failure
/// `*bad_offset`, if given, is the offset of the first wrong byte.
bool is_valid_utf8(std::string_view text, std::size_t* bad_offset = nullptr);

/// `text` with a '?' for every byte that breaks UTF-8. Takes time in proportion to the text,
/// whatever is in it.
std::string with_valid_utf8(std::string text);

/// UTF-8's byte order mark, as some editors put it at the beginning of a file.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// `text` without a byte order mark at its beginning; a second one stays, as with Python's
/// utf-8-sig.
std::string_view without_byte_order_mark(std::string_view text);

/// How the beginning of a text (some thousand bytes are enough) shows that it is no UTF-8: the name
/// that iconv has for its encoding, "UTF-16LE", "UTF-16BE", "UTF-32LE" or "UTF-32BE". Known by the
/// byte order mark, or by zero bytes at every other place, or three of four. "" for all other
/// texts.
std::string_view utf16_or_utf32(std::string_view start);

/// `text` with its control characters spelled out: "\\n", "\\r", "\\t", else "\\u001b" (also those
/// that UTF-8 spells with more bytes: C1 controls, line separators, direction overrides). What
/// others wrote can then neither drive a terminal nor break a line or a column. Bytes that are no
/// UTF-8 pass.
std::string escape_controls(std::string_view text);

/// What others wrote, fit for one line of a message: escape_controls of its first `bytes_max`
/// bytes, and "..." where there are more. Cut between characters.
std::string short_text(std::string_view text, std::size_t bytes_max = 80);

}  // namespace tailor
