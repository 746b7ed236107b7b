// Token ids as files hold them: 16 or 32 bits, and the readers' 32 bits in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace tailor::data {

/// Where 16-bit ids are read to before `widen_ids`: the upper half of `out`.
inline unsigned char* narrow_half(std::span<std::uint32_t> out) {
  return reinterpret_cast<unsigned char*>(out.data()) + out.size() * 2;
}

/// Widens the out.size() 16-bit ids in the upper half of `out`, from the front and in place: the
/// write at element i never passes the ids at i and later.
inline void widen_ids(std::span<std::uint32_t> out) {
  const unsigned char* narrow = narrow_half(out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t id;
    std::memcpy(&id, narrow + 2 * i, sizeof id);
    out[i] = id;
  }
}

}  // namespace tailor::data
