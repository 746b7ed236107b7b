#include "model/pretrained/gguf_types.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "model/pretrained/float_types.h"

namespace tailor::pretrained {
namespace {

constexpr std::array<GgmlTypeInfo, 11> kGgmlTypes{{{GgmlType::kF32, "F32", 1, 4},
                                                   {GgmlType::kF16, "F16", 1, 2},
                                                   {GgmlType::kBf16, "BF16", 1, 2},
                                                   {GgmlType::kQ4_0, "Q4_0", 32, 18},
                                                   {GgmlType::kQ4_1, "Q4_1", 32, 20},
                                                   {GgmlType::kQ5_0, "Q5_0", 32, 22},
                                                   {GgmlType::kQ5_1, "Q5_1", 32, 24},
                                                   {GgmlType::kQ8_0, "Q8_0", 32, 34},
                                                   {GgmlType::kQ4_K, "Q4_K", 256, 144},
                                                   {GgmlType::kQ5_K, "Q5_K", 256, 176},
                                                   {GgmlType::kQ6_K, "Q6_K", 256, 210}}};

// Every type of ggml.h by its number. 4, 5, 31 to 33 and 36 to 38 were in use once.
constexpr std::array<std::string_view, 42> kGgmlNames = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0"};

std::uint16_t u16_at(const std::uint8_t* at) {
  std::uint16_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

float half_at(const std::uint8_t* at) { return float_of_f16(u16_at(at)); }

// 32 elements of 4 bits: byte i has element i in its lower half and element i + 16 in its upper
// half. `high` holds the fifth bit of element i at position i (0 where there is none).
template <typename F>
void each_of_32(const std::uint8_t* nibbles, std::uint32_t high, F put) {
  for (int i = 0; i < 16; ++i) {
    put(i, (nibbles[i] & 15) | static_cast<int>(((high >> i) & 1) << 4));
    put(i + 16, (nibbles[i] >> 4) | static_cast<int>(((high >> (i + 16)) & 1) << 4));
  }
}

std::uint32_t u32_at(const std::uint8_t* at) {
  std::uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Q4_0, Q5_0: scale, [fifth bits], nibbles.
void signed_block(const std::uint8_t* block, bool five, float* out) {
  const float d = half_at(block);
  const std::uint32_t high = five ? u32_at(block + 2) : 0;
  const int middle = five ? 16 : 8;
  each_of_32(block + (five ? 6 : 2), high,
             [&](int i, int q) { out[i] = d * static_cast<float>(q - middle); });
}

// Q4_1, Q5_1: scale, minimum, [fifth bits], nibbles.
void offset_block(const std::uint8_t* block, bool five, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const std::uint32_t high = five ? u32_at(block + 4) : 0;
  each_of_32(block + (five ? 8 : 4), high, [&](int i, int q) {
    const float scaled = d * static_cast<float>(q);
    out[i] = scaled + m;
  });
}

void q8_0_block(const std::uint8_t* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + i]));
  }
}

// The 6-bit scale s and minimum t of group j, packed in 12 bytes: groups 0 to 3 in the low six bits
// of bytes 0-3 and 4-7; groups 4 to 7 have their low four bits in bytes 8-11 and their high two on
// top of bytes 0-3 and 4-7.
void group_scales(const std::uint8_t* packed, int j, int* s, int* t) {
  if (j < 4) {
    *s = packed[j] & 63;
    *t = packed[j + 4] & 63;
  } else {
    *s = (packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4);
    *t = (packed[j + 4] >> 4) | ((packed[j] >> 6) << 4);
  }
}

// Q4_K, Q5_K: scale, scale of the minima, 12 bytes of group scales, [32 bytes of fifth bits], 128
// bytes of nibbles. Byte 32 p + i has element i of group 2p below and of group 2p + 1 above; bit j
// of byte i of the fifth bits belongs to element i of group j.
void k45_block(const std::uint8_t* block, bool five, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const std::uint8_t* packed = block + 4;
  const std::uint8_t* high = block + 16;
  const std::uint8_t* nibbles = block + (five ? 48 : 16);
  for (int j = 0; j < 8; ++j) {
    int s = 0, t = 0;
    group_scales(packed, j, &s, &t);
    const float scale = d * static_cast<float>(s);
    const float minimum = m * static_cast<float>(t);
    for (int i = 0; i < 32; ++i) {
      int q = (nibbles[(j / 2) * 32 + i] >> (4 * (j % 2))) & 15;
      if (five) q |= ((high[i] >> j) & 1) << 4;
      const float scaled = scale * static_cast<float>(q);
      out[j * 32 + i] = scaled - minimum;
    }
  }
}

// Q6_K: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, the scale. Each
// half of 128 elements uses 64 low and 32 high bytes: runs 0 and 1 of 32 elements take the low
// nibbles, runs 2 and 3 the high ones; bits 2r, 2r + 1 of high byte i belong to element i of run r.
void q6_k_block(const std::uint8_t* block, float* out) {
  const float d = half_at(block + 208);
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* low = block + half * 64;
    const std::uint8_t* high = block + 128 + half * 32;
    const std::uint8_t* scales = block + 192 + half * 8;
    for (int run = 0; run < 4; ++run) {
      for (int i = 0; i < 32; ++i) {
        const int nibble = (low[(run % 2) * 32 + i] >> (4 * (run / 2))) & 15;
        const int q = (nibble | (((high[i] >> (2 * run)) & 3) << 4)) - 32;
        const float scale =
            d * static_cast<float>(static_cast<std::int8_t>(scales[run * 2 + i / 16]));
        out[half * 128 + run * 32 + i] = scale * static_cast<float>(q);
      }
    }
  }
}

}  // namespace

const GgmlTypeInfo* ggml_type(std::uint32_t number) {
  const auto found = std::find_if(
      kGgmlTypes.begin(), kGgmlTypes.end(),
      [&](const GgmlTypeInfo& info) { return static_cast<std::uint32_t>(info.type) == number; });
  return found == kGgmlTypes.end() ? nullptr : &*found;
}

std::string_view ggml_type_name(std::uint32_t number) {
  return number < kGgmlNames.size() ? kGgmlNames[number] : std::string_view();
}

std::string ggml_types_read() {
  std::string names;
  for (const GgmlTypeInfo& info : kGgmlTypes) {
    names += (names.empty() ? "" : ", ") + std::string(info.name);
  }
  return names;
}

void dequantize(GgmlType type, const std::byte* data, std::int64_t blocks, float* values) {
  const auto* at = reinterpret_cast<const std::uint8_t*>(data);
  if (type == GgmlType::kF32) {
    std::memcpy(values, at, static_cast<std::size_t>(blocks) * sizeof(float));
    return;
  }
  const GgmlTypeInfo& info = *ggml_type(static_cast<std::uint32_t>(type));
  for (std::int64_t b = 0; b < blocks; ++b, at += info.block_bytes, values += info.block_elements) {
    switch (type) {
      case GgmlType::kF32:
        break;
      case GgmlType::kF16:
        *values = half_at(at);
        break;
      case GgmlType::kBf16:
        *values = float_of_bf16(u16_at(at));
        break;
      case GgmlType::kQ4_0:
        signed_block(at, false, values);
        break;
      case GgmlType::kQ5_0:
        signed_block(at, true, values);
        break;
      case GgmlType::kQ4_1:
        offset_block(at, false, values);
        break;
      case GgmlType::kQ5_1:
        offset_block(at, true, values);
        break;
      case GgmlType::kQ8_0:
        q8_0_block(at, values);
        break;
      case GgmlType::kQ4_K:
        k45_block(at, false, values);
        break;
      case GgmlType::kQ5_K:
        k45_block(at, true, values);
        break;
      case GgmlType::kQ6_K:
        q6_k_block(at, values);
        break;
    }
  }
}

}  // namespace tailor::pretrained
