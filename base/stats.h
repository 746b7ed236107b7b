// The normal and Student's t distribution: quantiles for intervals, tail probabilities for tests.
//
// Through the regularised incomplete beta function I_x(a, b), evaluated by its continued fraction
// with the modified Lentz method (DLMF 8.17.22); relative error below 1e-12 for df from 1 to 1e6.
#pragma once

namespace tailor {

/// P(Z <= z) of a standard normal Z.
double normal_cdf(double z);

/// The z with P(Z <= z) = p; -infinity at 0 and infinity at 1. REQUIRES: 0 <= p <= 1.
double normal_quantile(double p);

/// I_x(a, b). REQUIRES: a > 0, b > 0, 0 <= x <= 1.
double incomplete_beta(double a, double b, double x);

/// P(T <= t) for `df` degrees of freedom. REQUIRES: df > 0.
double student_t_cdf(double t, double df);

/// The t with P(T <= t) = p; -infinity at 0 and infinity at 1. REQUIRES: 0 <= p <= 1, df > 0.
double student_t_quantile(double p, double df);

/// P(|T| >= |t|); NaN for a NaN `t`. REQUIRES: df > 0.
double student_t_two_sided_p(double t, double df);

/// P(|T'| >= t) where T' = (Z + shift) / sqrt(V / df) is noncentral t: the power of a two-sided
/// t-test with the critical value `t` when the true effect is `shift` standard errors. T'^2 is
/// noncentral F, so this is the sum over j of Poisson(j; shift^2 / 2) times the tail of a central
/// beta; terms below 1e-18 are left out, the error is below 1e-15 shift^2.
/// Cost: about 20 |shift| + 100 beta functions. REQUIRES: t >= 0, df > 0, |shift| <= 1e4.
double noncentral_t_two_sided_p(double t, double df, double shift);

}  // namespace tailor
