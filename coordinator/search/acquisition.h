// Expected improvement in logarithms, safe far out in the tails (Ament et al., "Unexpected
// Improvements to Expected Improvement", arXiv 2310.20708). Pure.
#pragma once

namespace tailor::search {

/// exp(x^2) erfc(x). Relative error below 1e-13.
double scaled_erfc(double x);

/// log Phi(z) of a standard normal, also where Phi underflows.
double log_normal_cdf(double z);

/// log h(z), h(z) = phi(z) + z Phi(z):
///   z >= -1                     directly
///   -1000 < z < -1              -z^2/2 - log(2 pi)/2 + log1mexp(log(erfcx(-z/sqrt 2) |z|) +
///   log(pi/2)/2)
///   below                       -z^2/2 - log(2 pi)/2 - 2 log|z| + log(1 - 3/z^2)
/// The last is the asymptotic series: its next term is 15/z^4, where the difference from 1 in the
/// one above is lost to rounding far earlier than at 1/sqrt(eps).
double log_h(double z);

/// log E[max(0, best - Y)], Y normal: log sigma + log h((best - mean)/sigma), for minimising.
/// -infinity for sigma = 0 and no improvement.
double log_expected_improvement(double mean, double sigma, double best);

}  // namespace tailor::search
