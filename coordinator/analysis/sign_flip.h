// The sign-flip permutation test of paired differences (science.md 6): under "the differences are
// symmetric around 0" every one of the 2^n patterns of signs is as likely as the one that was seen.
//
//   p = share of the patterns whose |sum| is at least the observed |sum|   (two-sided)
//
// Differences of 0 change no sum, so the test is over the m others. With m <= kExactSignFlipMax it
// is exact: the signed sums of either half of the differences are made in ascending order (each
// further difference merges two sorted lists), and one walk over both lists counts the pairs that
// reach the observed sum. Cost 2^(m/2 + 2) additions instead of 2^m.
// Beyond that patterns are drawn from a fixed seed (the same differences give the same p): until
// kSampleHits of them reach the observed sum, p = hits / draws (Besag and Clifford 1991), or until
// the limit of draws, p = (hits + 1) / (draws + 1). Both are valid p-values, and how many draws
// were made, and the standard error that comes of it, are part of the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tailor::analysis {

/// Up to so many differences other than 0 the test is exact.
inline constexpr std::size_t kExactSignFlipMax = 28;
/// Draws of a sampled test at most (fewer where there are over 320 differences), and the hits that
/// end it earlier.
inline constexpr std::uint64_t kSampledPatterns = 100'000;
inline constexpr std::uint64_t kSampleHits = 2'000;
/// Of the drawn patterns. Any fixed value would do.
inline constexpr std::uint64_t kSampleSeed = 0x7461696C6F72;

struct SignFlip {
  double p = 1;
  std::uint64_t draws = 0;    ///< patterns drawn; 0 = all were counted, p is exact
  double standard_error = 0;  ///< of p over draws; 0 when exact
  /// The smallest p that the test could have given: as if all differences had one sign.
  double smallest_p = 1;
};

/// REQUIRES: not empty, every difference finite (any size: sums do not overflow).
SignFlip sign_flip_test(std::span<const double> differences);

/// The smallest p that `n` differences other than 0 can give: 2 / 2^n where the test is exact,
/// 1 / (draws + 1) where it is sampled, 1 for n <= 1.
double smallest_sign_flip_p(std::size_t n);

}  // namespace tailor::analysis
