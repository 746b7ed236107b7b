// Narrow floating-point types as checkpoints store them, widened to float32. Plain loops that
// compilers turn into vector code; right for subnormal numbers whatever the processor's flush mode.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tailor::pretrained {

/// IEEE binary16 (1 sign, 5 exponent, 10 fraction bits). Exact.
inline float float_of_f16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t rest = half & 0x7fffu;
  // Normal numbers, infinity and NaN: move the fraction, rebias the exponent.
  const std::uint32_t rebias = rest >= 0x7c00u ? 0x70000000u : 0x38000000u;
  const std::uint32_t normal = (rest << 13) + rebias;
  // Subnormal: 2^-24 times an integer, made as (1/2 + that) - 1/2.
  const float tiny = std::bit_cast<float>(0x3f000000u + rest);  // 1/2 + rest * 2^-24
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(tiny - 0.5f);
  return std::bit_cast<float>(sign | (rest < 0x400u ? subnormal : normal));
}

/// bfloat16: the upper half of a float32. Exact.
inline float float_of_bf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

}  // namespace tailor::pretrained
