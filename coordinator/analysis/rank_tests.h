// Two tests of paired differences by signs and ranks alone, beside the sign-flip test: they ask for
// less than a t-test and see less of the data. Both are over the m differences other than 0.
//
//   sign test   p = P(as lopsided a split of m fair coins or more)
//   Wilcoxon    W+ = sum of the ranks of |d| where d > 0; under "symmetric around 0" every pattern
//               of signs is as likely, p = min(1, 2 P(W+ at most the smaller of W+ and W-))
//
// Equal |d| share their mean rank, and the distribution of W+ is that of the ranks as they are: it
// is counted over doubled ranks (integers), m + 1 numbers of terms a step, so ties stay exact. Cost
// m^3 / 2 additions; beyond kExactWilcoxonMax the normal approximation with the correction for ties
// and for continuity, and the answer says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tailor::analysis {

inline constexpr std::size_t kExactWilcoxonMax = 64;

struct SignTest {
  std::uint32_t n = 0;  ///< differences other than 0
  double p = 1;         ///< two-sided, exact
};
SignTest sign_test(std::uint32_t negative, std::uint32_t positive);

struct Wilcoxon {
  std::uint32_t n = 0;      ///< differences other than 0
  double positive_sum = 0;  ///< W+
  double p = 1;             ///< two-sided
  bool exact = true;        ///< false = normal approximation
};
/// REQUIRES: every difference is finite.
Wilcoxon wilcoxon_test(std::span<const double> differences);

}  // namespace tailor::analysis
