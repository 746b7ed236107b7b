// The tensor types of GGUF files and how their blocks become float32.
//
// A block holds a fixed number of consecutive elements of a row: small integers q and one or two
// half-precision scales. With d, m the block's scales (binary16, widened exactly) and every product
// and sum rounded to float32 in this order:
//   Q8_0  32: d * q, q in [-128, 127]              Q4_0  32: d * (q - 8)    Q5_0  32: d * (q - 16)
//   Q4_1  32: d * q + m                            Q5_1  32: d * q + m
//   Q4_K, Q5_K  256 in 8 groups of 32: (d * s) * q - (m * t), s and t 6-bit numbers of the group
//   Q6_K  256 in 16 groups of 16: (d * s) * (q - 32), s a signed byte of the group
// Source: the GGUF specification and the block layouts of ggml, checked against the numpy
// dequantiser of the PyPI package gguf. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tailor::pretrained {

/// A tensor type that is read; the numbers are the format's.
enum class GgmlType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBf16 = 30,
};

struct GgmlTypeInfo {
  GgmlType type;
  std::string_view name;        ///< "Q4_K"
  std::int64_t block_elements;  ///< 1, 32 or 256; a row is a whole number of blocks
  std::int64_t block_bytes;
};

/// nullptr for a type that is not read.
const GgmlTypeInfo* ggml_type(std::uint32_t number);

/// The name that ggml gives a type, read or not ("IQ4_XS"; those that it took back too); "" for a
/// number that this version does not know.
std::string_view ggml_type_name(std::uint32_t number);

/// The names of the types that are read, with commas.
std::string ggml_types_read();

/// Writes `blocks` blocks of `type` at `data` as float32: blocks * block_elements values.
void dequantize(GgmlType type, const std::byte* data, std::int64_t blocks, float* values);

}  // namespace tailor::pretrained
