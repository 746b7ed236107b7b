#include "base/stats.h"

#include <math.h>  // lgamma_r

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/check.h"

namespace tailor {
namespace {

/// The continued fraction of I_x(a, b); converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  constexpr double kPrecision = 1e-16;
  constexpr int kTermsMax = 100'000;  // about sqrt(max(a, b)) terms are needed
  const auto away_from_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1;
  double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
  double value = d;
  for (int m = 1; m <= kTermsMax; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    value *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    const double step = d * c;
    value *= step;
    if (std::abs(step - 1) < kPrecision) break;
  }
  return value;
}

/// log Gamma(x) for x > 0; std::lgamma would write the sign into a global.
double log_gamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

/// I_x(a, b) with y = 1 - x given apart, so that neither end loses digits.
double incomplete_beta_xy(double a, double b, double x, double y) {
  if (x <= 0) return 0;
  if (y <= 0) return 1;
  const double front =
      std::exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * std::log(x) + b * std::log(y));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, y) / b;
}

}  // namespace

double normal_cdf(double z) { return std::erfc(-z / std::sqrt(2.0)) / 2; }

double normal_quantile(double p) {
  TAILOR_CHECK(p >= 0 && p <= 1, "p={}", p);
  if (p == 0.5) return 0;
  // Solved for the smaller tail, where the probability keeps its relative precision.
  const double tail = p < 0.5 ? p : 1 - p;
  const double sign = p < 0.5 ? -1 : 1;
  if (tail == 0) return sign * std::numeric_limits<double>::infinity();
  double low = 0, high = 40;
  for (int i = 0; i < 100; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (normal_cdf(-middle) > tail ? low : high) = middle;
  }
  return sign * (low + (high - low) / 2);
}

double incomplete_beta(double a, double b, double x) {
  TAILOR_CHECK(a > 0 && b > 0 && x >= 0 && x <= 1, "a={} b={} x={}", a, b, x);
  return incomplete_beta_xy(a, b, x, 1 - x);
}

double student_t_two_sided_p(double t, double df) {
  TAILOR_CHECK(df > 0, "df={}", df);
  if (std::isnan(t)) return t;
  if (std::isinf(t)) return 0;
  // P(|T| >= t) = I_{df / (df + t^2)}(df / 2, 1 / 2).
  const double square = t * t;
  return incomplete_beta_xy(df / 2, 0.5, df / (df + square), square / (df + square));
}

double noncentral_t_two_sided_p(double t, double df, double shift) {
  TAILOR_CHECK(t >= 0 && df > 0 && std::abs(shift) <= 1e4, "t={} df={} shift={}", t, df, shift);
  const double square = t * t;
  const double y = df / (df + square);
  const double x = square / (df + square);
  const double rate = shift * shift / 2;
  // Outwards from the mode of the Poisson weights: none underflows that matters.
  const auto mode = static_cast<std::int64_t>(rate);
  const auto term = [&](std::int64_t j) {
    const auto count = static_cast<double>(j);
    const double log_weight = (j == 0 ? 0 : count * std::log(rate)) - rate - log_gamma(count + 1);
    return std::exp(log_weight) * incomplete_beta_xy(df / 2, count + 0.5, y, x);
  };
  constexpr double kNegligible = 1e-18;
  double sum = 0;
  for (std::int64_t j = mode; j >= 0; --j) {
    const double added = term(j);
    sum += added;
    if (added < kNegligible) break;
  }
  for (std::int64_t j = mode + 1;; ++j) {
    // The tail grows with j, so what decides is the weight; past the mode it only falls.
    const double added = term(j);
    sum += added;
    if (added < kNegligible && j > mode + 10) break;
  }
  return std::min(sum, 1.0);
}

double student_t_cdf(double t, double df) {
  const double tail = student_t_two_sided_p(t, df) / 2;
  return t > 0 ? 1 - tail : tail;
}

double student_t_quantile(double p, double df) {
  TAILOR_CHECK(p >= 0 && p <= 1 && df > 0, "p={} df={}", p, df);
  if (p == 0.5) return 0;
  // Solved for the smaller tail, where the probability keeps its relative precision.
  const double tail = p < 0.5 ? p : 1 - p;
  const double sign = p < 0.5 ? -1 : 1;
  if (tail == 0) return sign * std::numeric_limits<double>::infinity();
  double low = 0, high = 1;
  while (student_t_two_sided_p(high, df) / 2 > tail && high < 1e300) {
    low = high;
    high *= 2;
  }
  for (int i = 0; i < 200; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle <= low || middle >= high) break;
    (student_t_two_sided_p(middle, df) / 2 > tail ? low : high) = middle;
  }
  return sign * (low + (high - low) / 2);
}

}  // namespace tailor
