// Layout of a token shard, shared by writer and reader. model/data/README.md describes it in prose.
// All integers are little-endian. Constants only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tailor::data::shard_format {

inline constexpr std::array<char, 8> kMagic = {'T', 'A', 'I', 'L', 'O', 'R', 'T', 'K'};
inline constexpr std::uint32_t kVersion = 1;

inline constexpr std::size_t kMagicOffset = 0;           // 8 bytes
inline constexpr std::size_t kVersionOffset = 8;         // u32
inline constexpr std::size_t kTokenBytesOffset = 12;     // u32: 2 or 4
inline constexpr std::size_t kTokenCountOffset = 16;     // u64
inline constexpr std::size_t kVocabSizeOffset = 24;      // u32
inline constexpr std::size_t kEosIdOffset = 28;          // u32
inline constexpr std::size_t kMaxIdOffset = 32;          // u32: largest id in the shard, 0 if empty
inline constexpr std::size_t kReservedOffset = 36;       // u32: 0
inline constexpr std::size_t kTextBytesOffset = 40;      // u64: bytes of UTF-8 the tokens stand for
inline constexpr std::size_t kDocumentCountOffset = 48;  // u64: documents that end in the shard
inline constexpr std::size_t kTokenizerHashOffset = 56;  // 32 bytes: SHA-256 of the tokenizer
inline constexpr std::size_t kHeaderCheckOffset = 88;    // first 8 bytes of SHA-256 of [0, 88)
inline constexpr std::size_t kHashOffset = 96;    // 32 bytes: SHA-256 of tokens, then [0, 96)
inline constexpr std::size_t kHeaderBytes = 128;  // tokens follow, to the end of the file

/// Ids up to this vocabulary are stored in two bytes, larger ones in four.
inline constexpr std::uint64_t kVocabSizeOfTwoBytes = 65536;

}  // namespace tailor::data::shard_format
