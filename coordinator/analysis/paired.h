// Paired statistics over seeds (science.md 6): how one candidate differs from a baseline that was
// trained with the same seeds. Pure arithmetic on plain numbers.
//
//   d_s = value of the candidate with seed s  -  value of the baseline with seed s
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "coordinator/analysis/rank_tests.h"
#include "coordinator/analysis/sign_flip.h"

namespace tailor::analysis {

/// What n paired differences say.
struct PairedSummary {
  std::size_t n = 0;
  double mean = 0;               ///< of the differences; 0 for n = 0
  std::optional<double> sd;      ///< sample SD (n - 1); unset for n < 2 and beyond a double's range
  std::optional<double> t;       ///< mean / (sd / sqrt n); unset where sd is, and for sd = 0
  std::optional<double> ci_low;  ///< 95 % t-interval with n - 1 degrees of freedom; unset for n < 2
  std::optional<double> ci_high;      ///< and where an end is beyond a double's range
  std::optional<double> p_t;          ///< two-sided t-test; unset where `t` is
  std::optional<SignFlip> sign_flip;  ///< unset for n = 0, as the next two
  std::optional<SignTest> sign_test;
  std::optional<Wilcoxon> wilcoxon;
  std::uint32_t negative = 0;  ///< differences below 0
  std::uint32_t positive = 0;
};

/// Half the width of the interval of n >= 2 differences in standard errors: t_{.975, n-1}.
double critical_t(std::size_t n);

/// REQUIRES: every difference is finite. Cost: of `sign_flip_test`. `critical` is `critical_t` of
/// their number, for callers with many sets of one size (it costs more than all the rest).
PairedSummary summarize_pairs(std::span<const double> differences, double critical);
PairedSummary summarize_pairs(std::span<const double> differences);
/// Takes every p away, and the t that says the same: for a set that must not be tested.
void drop_tests(PairedSummary& summary);

/// The mean without overflow. REQUIRES: not empty, all finite.
double mean_of(std::span<const double> values);

/// Holm's step-down adjustment: entry i is the adjusted p of entry i, in [p_i, 1]; unset stays
/// unset and is not counted as a test.
std::vector<std::optional<double>> holm_adjust(std::span<const std::optional<double>> p);

/// What n paired seeds can tell, in units of the (unknown) SD of the differences.
struct Resolution {
  double smallest_p = 1;  ///< of the sign-flip test that will run (`smallest_sign_flip_p`)
  bool p_exact = true;    ///< whether that test counts all patterns
  /// Half the width of the 95 % t-interval, t_{.975, n-1} / sqrt n: a mean difference that comes
  /// out larger than this excludes 0. Infinite for n = 1.
  double half_width_sd = 0;
  /// The true mean difference for which that happens with probability `kPower` (noncentral t,
  /// exact): what n seeds find. Infinite for n = 1.
  double effect_sd = 0;
};
inline constexpr double kPower = 0.8;
Resolution resolution_of(std::size_t n);

/// As many seeds as a sweep may have; what needs more is answered "more than".
inline constexpr std::size_t kSeedsLookedAt = 1'000;

/// `Resolution::effect_sd` by n, each computed once. Not thread-safe.
class PowerTable {
 public:
  /// REQUIRES: n >= 2.
  double effect_sd(std::size_t n);
  /// The least n whose `effect_sd` is at most `effect_sd`; nullopt = more than kSeedsLookedAt.
  /// REQUIRES: effect_sd > 0 (infinity asks for the least of all: 2).
  std::optional<std::size_t> seeds_for(double effect_sd);

 private:
  std::map<std::size_t, double> known_;
};

}  // namespace tailor::analysis
