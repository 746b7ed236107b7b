// Critical values for t statistics that are looked at again and again as seeds come in.
//
// Differences d_1, d_2, ... (independent, normal, unknown mean and SD) are looked at after
// n_1 < ... < n_k of them. With t_n = mean / (s / sqrt n) the vector (t_n1, ..., t_nk) under mean 0
// is pivotal, so critical values c with
//   P( |t_n| >= c_n at some look ) = level
// depend on the looks alone, and mean +- c_n s / sqrt n covers the true mean at all looks together
// with probability 1 - level (repeated confidence intervals, Jennison and Turnbull 1989), whatever
// rule ends the looking.
//
// Exactly, for one candidate. Let u = d / |d| over the first n, and x_n = sum u in
// [-sqrt n, sqrt n]; t_n = x_n sqrt(n - 1) / sqrt(n - x_n^2). Directions of normal vectors are
// uniform on the sphere and independent of their lengths, so x_n is a Markov chain of one
// dimension, and backwards it is simple: given x_(n+1) = x the last coordinate is
//   u = x / (n + 1) + sqrt(1 - x^2 / (n + 1)) sqrt(n / (n + 1)) sin(theta),
//   theta with density ~ cos^(n - 2)(theta),     x_n = (x - u) / sqrt(1 - u^2),
// and x_n = sqrt n sin(phi) has phi with density ~ cos^(n - 2)(phi). Survival given x_n is carried
// from look to look on a grid in phi by Gauss-Legendre quadrature; no number is drawn.
//
// For a family of m candidates with one baseline (their differences share its noise: correlation
// 1/2 when all have one SD) the largest |t_n| over the candidates is simulated from standard normal
// numbers with a stored seed. A candidate with a much larger SD than the baseline correlates less,
// which costs up to what Bonferroni would have cost.
//
// Spending (Lan and DeMets 1983): by look n of N the level spent is
//   O'Brien-Fleming  2 - 2 Phi(z_(1 - level/2) / sqrt(n / N))     nearly all for the last look
//   Pocock           level ln(1 + (e - 1) n / N)
// Constant is the same nominal p at every look instead.
//
// Anytime needs no planned looks (t-test e-process with a normal prior of variance g on mean / SD;
// arXiv 2310.03722): E_n = (1 + n g)^(-1/2) ((1 + y) / (1 + y / (1 + n g)))^(n/2) with
// y = t^2 / (n - 1), and P(E_n >= 1/level for some n) <= level. Wider.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tailor::analysis {

enum class Spending { kObrienFleming, kPocock, kConstant, kAnytime };
/// "obrien_fleming", "pocock", "constant", "anytime".
std::string_view spending_name(Spending spending);
/// Errors: kInvalidArgument for another name.
Result<Spending> parse_spending(std::string_view name);

/// Of the joint simulation. Any fixed value would do.
inline constexpr std::uint64_t kPeekingSeed = 0x7065656B;
/// Normal numbers drawn for a family, about; and paths at least and at most.
inline constexpr std::uint64_t kPeekingDraws = 20'000'000;
inline constexpr std::uint64_t kPeekingPathsMin = 10'000;
inline constexpr std::uint64_t kPeekingPathsMax = 200'000;
/// Variance of the prior of mean / SD of kAnytime.
inline constexpr double kAnytimePrior = 1;

/// The looks of one race and what may be concluded at them. Immutable; thread-safe.
class PeekingPlan {
 public:
  /// REQUIRES: looks ascending, at least one, the first at least 2; family >= 1.
  /// Cost: for a family of more than one candidate, kPeekingDraws normal numbers (under a second).
  PeekingPlan(std::vector<std::size_t> looks, Spending spending, std::size_t family = 1);

  const std::vector<std::size_t>& looks() const { return looks_; }
  Spending spending() const { return spending_; }
  std::size_t family() const { return family_; }
  std::uint64_t paths() const { return paths_; }  ///< simulated; 0 = exact

  /// c_n of every look; infinite where nothing can be concluded yet. REQUIRES: 0 < level < 1.
  /// Cost: exact, about a millisecond a seed of the last look (kConstant: ten times that).
  std::vector<double> critical(double level) const;

  /// The smallest level at which one of these |t| (those of the first looks; NaN = none) is
  /// critical: a p-value that is valid however often it was looked at. Infinite t give 0.
  /// Cost: about ten `critical`.
  double repeated_p(std::span<const double> t) const;

 private:
  std::vector<double> exact(double level) const;
  std::vector<double> exact_constant(double level) const;
  std::vector<double> joint(double level) const;
  double spent(double level, std::size_t look) const;

  std::vector<std::size_t> looks_;
  Spending spending_;
  std::size_t family_;
  std::uint64_t paths_ = 0;
  std::vector<std::vector<float>> largest_;  // [look][path]: max |t| over the family
};

/// P(|t_n| >= c_n at some look) under mean 0. REQUIRES: one critical value a look.
double crossing_probability(std::span<const std::size_t> looks, std::span<const double> critical);

/// c of kAnytime for n >= 2 differences; infinite while no t can be enough.
double anytime_critical(std::size_t n, double level, double prior = kAnytimePrior);
/// log E_n. REQUIRES: n >= 2.
double anytime_log_e(std::size_t n, double t, double prior = kAnytimePrior);

}  // namespace tailor::analysis
