#include "model/tokenizers/byte_alphabet.h"

#include <array>

namespace tailor::tokenizers {
namespace {

constexpr int kCharacters = 256 + 68;

// By code point: the byte, or -1.
std::array<int, kCharacters> make_table() {
  std::array<int, kCharacters> table{};
  table.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    table[static_cast<std::size_t>(printable ? byte : next++)] = byte;
  }
  return table;
}

}  // namespace

std::string alphabet_of_bytes(std::string_view bytes) {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> made;
    const std::array<int, kCharacters> bytes_by_code = make_table();
    for (unsigned code = 0; code < kCharacters; ++code) {
      if (bytes_by_code[code] < 0) continue;
      std::string& character = made[static_cast<std::size_t>(bytes_by_code[code])];
      if (code < 0x80) {
        character = static_cast<char>(code);
      } else {
        character = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
      }
    }
    return made;
  }();
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) text += characters[static_cast<unsigned char>(byte)];
  return text;
}

std::optional<std::string> bytes_of_alphabet(std::string_view piece) {
  static const std::array<int, kCharacters> table = make_table();
  std::string bytes;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    auto code = static_cast<unsigned>(static_cast<unsigned char>(piece[i]));
    if (code >= 0x80) {  // the alphabet needs no more than two bytes a character
      if ((code & 0xe0) != 0xc0 || i + 1 >= piece.size()) return {};
      code = (code & 0x1f) << 6 | (static_cast<unsigned char>(piece[++i]) & 0x3f);
    }
    if (code >= kCharacters || table[code] < 0) return {};
    bytes += static_cast<char>(table[code]);
  }
  return bytes;
}

}  // namespace tailor::tokenizers
