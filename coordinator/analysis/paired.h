// Paired statistics over seeds (science.md 6): how one candidate differs from a baseline that was
// trained with the same seeds. Pure arithmetic on plain numbers.
//
//   d_s = value of the candidate with seed s  -  value of the baseline with seed s
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tailor::analysis {

/// What n paired differences say.
struct PairedSummary {
  std::size_t n = 0;
  double mean = 0;               ///< of the differences; 0 for n = 0
  std::optional<double> sd;      ///< sample SD (n - 1); unset for n < 2
  std::optional<double> t;       ///< mean / (sd / sqrt n); unset for n < 2 and for sd = 0
  std::optional<double> ci_low;  ///< 95 % t-interval with n - 1 degrees of freedom; unset for n < 2
  std::optional<double> ci_high;
  std::optional<double> p_sign_flip;  ///< two-sided; unset for n = 0
  bool p_exact = true;  ///< all 2^n sign patterns were counted; else sampled with a fixed seed
  std::uint32_t negative = 0;  ///< differences below 0
  std::uint32_t positive = 0;
};

/// Up to so many differences the sign-flip test counts every pattern.
inline constexpr std::size_t kExactSignFlipMax = 20;

/// REQUIRES: every difference is finite. Cost: 2^n additions up to n = 20, else 100,000 n.
PairedSummary summarize_pairs(std::span<const double> differences);

/// Two-sided sign-flip permutation test of "the differences are symmetric around 0": the share of
/// the 2^n sign patterns whose |sum| is at least the observed one. Above kExactSignFlipMax
/// (1 + hits) / (1 + 100,000) over patterns drawn from a fixed seed. REQUIRES: not empty, every
/// difference finite.
double sign_flip_p(std::span<const double> differences);

/// Holm's step-down adjustment: entry i is the adjusted p of entry i, in [p_i, 1]; unset stays
/// unset and is not counted as a test.
std::vector<std::optional<double>> holm_adjust(std::span<const std::optional<double>> p);

/// The smallest two-sided p that a sign-flip test over n seeds can give: 2 / 2^n, 1 for n <= 1.
double smallest_sign_flip_p(std::size_t n);

}  // namespace tailor::analysis
