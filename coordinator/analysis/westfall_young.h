// Westfall and Young's step-down adjustment (1993, algorithm 4.1) of many paired comparisons with
// one baseline, by sign flips. Candidates share the baseline's seeds, so their differences move
// together; a flip turns all differences of a seed round at once and keeps that.
//
//   u_i = |sum_s d_is| / sqrt(sum_s d_is^2)      (of mean square 1 under flips, whatever n is)
//   p_(i) = share of the patterns whose largest u over the candidates from the i-th on reaches
//   u_(i)
//           (candidates by u, largest first), then made monotone
//
// Where Holm multiplies the smallest p by the number of tests, this takes the tests' dependence as
// it is: its smallest p is that of one sign-flip test, 2 / 2^n. It needs the vector of a seed's
// differences to be symmetric around 0 where the null hypotheses hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tailor::analysis {

/// Up to so many seeds all 2^(seeds - 1) patterns are counted (a pattern and its mirror image give
/// the same u).
inline constexpr std::size_t kExactJointSeeds = 13;
/// Patterns drawn beyond that, at most and at least; fewer for more differences (kJointWork).
inline constexpr std::uint64_t kJointDrawsMax = 10'000;
inline constexpr std::uint64_t kJointDrawsMin = 1'000;
inline constexpr std::uint64_t kJointWork = 1'500'000'000;  ///< additions
/// Of the drawn patterns. Any fixed value would do.
inline constexpr std::uint64_t kJointSeed = 0x7779;

/// The differences of one candidate; both spans have one length. REQUIRES: finite differences.
struct SeededDifferences {
  std::span<const std::uint64_t> seeds;
  std::span<const double> differences;
};

struct WestfallYoung {
  std::vector<std::optional<double>> p;  ///< a test each; unset for one without differences
  std::uint64_t draws = 0;               ///< patterns drawn; 0 = all were counted, p is exact
  std::size_t tests = 0;
  std::size_t seeds = 0;  ///< distinct, of all tests
  double smallest_p = 1;  ///< that an adjusted p could have been
};
/// Cost: patterns x tests x seeds additions, kJointWork at most (or kJointDrawsMin patterns).
WestfallYoung westfall_young(std::span<const SeededDifferences> tests);

}  // namespace tailor::analysis
