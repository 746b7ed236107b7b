// The Sobol sequence, scrambled: points that fill the unit cube more evenly than draws do.
//
// Direction numbers of Joe and Kuo (new-joe-kuo-6, SIAM J. Sci. Comput. 30, 2008) for the first 21
// axes; axes beyond repeat them under other scrambles, which keeps each axis even by itself but not
// every pair. Scrambling: nested uniform (Owen) by hashing, Laine and Karras 2011 with the
// constants
// of Vegdahl, in 32 bits. Point i is computed from i alone. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tailor::search {

inline constexpr std::size_t kSobolAxes = 21;

/// Bits of coordinate `axis` of point `index`, not scrambled: coordinate = bits / 2^32. REQUIRES:
/// axis < kSobolAxes.
std::uint32_t sobol_bits(std::uint32_t index, std::size_t axis);

/// Coordinate in [0, 1), scrambled by `seed`.
double scrambled_sobol(std::uint32_t index, std::size_t axis, std::uint64_t seed);

}  // namespace tailor::search
