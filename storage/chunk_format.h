// The format of metric_chunk.data, version 1. Constants only, shared by encoder and decoder
// (chunk.cc); storage/README.md explains it.
//
//   offset  size  content
//   0       1     kChunkVersion
//   1       1     value encoding: kChunkF64 or kChunkF32
//   2       -     varint: number of points n, 1..kChunkPointsMax
//   -       -     n varints: steps; then n: tokens; then n: wall_ms. Each column holds
//                 zigzag(second differences): with x[-1] = x[-2] = 0, d[i] = x[i] - x[i-1], the
//                 i-th number is d[i] - d[i-1], all modulo 2^64
//   -       8n/4n values, IEEE-754 little-endian, in the order of the points
//   -       4     FNV-1a (32 bits) of everything before, little-endian
//
// And of metric_tail.data, version 1: the points of a batch as they came.
//
//   0       1     kChunkVersion
//   1       1     value encoding: kChunkF64 or kChunkF32
//   2       -     varint: number of points n, 1..kTailPointsMax
//   -       -     n times, each the zigzag difference to the point before (the first to zeros):
//                 attempt, metric, step, tokens, wall_ms
//   -       8n/4n values
//   -       4     FNV-1a (32 bits) of everything before
//
// varint: seven bits a byte, least significant first, high bit = more follow; at most 10 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tailor::storage {

inline constexpr std::uint8_t kChunkVersion = 1;
inline constexpr std::uint8_t kChunkF64 = 0;
/// Only when every value survives the way there and back.
inline constexpr std::uint8_t kChunkF32 = 1;
inline constexpr std::size_t kChunkPointsMax = 256;
inline constexpr std::size_t kTailPointsMax = 8'192;
inline constexpr std::size_t kChunkHeaderBytes = 2;
inline constexpr std::size_t kChunkChecksumBytes = 4;

}  // namespace tailor::storage
