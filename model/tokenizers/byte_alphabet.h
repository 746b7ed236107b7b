// The alphabet of byte-level BPE: every byte as a printable character, as GPT-2 introduced it.
// Printable Latin-1 bytes (33-126, 161-172, 174-255) stand for themselves; the other 68, in order,
// are U+0100 onwards.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tailor::tokenizers {

/// The bytes that `piece`, a text in that alphabet, stands for; nullopt when some character is not
/// of the alphabet.
std::optional<std::string> bytes_of_alphabet(std::string_view piece);

/// `bytes` in that alphabet.
std::string alphabet_of_bytes(std::string_view bytes);

}  // namespace tailor::tokenizers
