#include "coordinator/search/acquisition.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace tailor::search {
namespace {

const double kHalfLogTwoPi = 0.5 * std::log(2 * std::numbers::pi);

/// log(1 - exp(x)) for x < 0.
double log1mexp(double x) {
  return x > -std::numbers::ln2 ? std::log(-std::expm1(x)) : std::log1p(-std::exp(x));
}

double density(double z) { return std::exp(-0.5 * z * z - kHalfLogTwoPi); }

}  // namespace

double scaled_erfc(double x) {
  if (x < 5) return std::exp(x * x) * std::erfc(x);
  // The continued fraction of Laplace: 1/sqrt(pi) / (x + (1/2) / (x + 1 / (x + (3/2) / ...))).
  double tail = 0;
  for (int k = 60; k >= 1; --k) tail = 0.5 * k / (x + tail);
  return std::numbers::inv_sqrtpi / (x + tail);
}

double log_normal_cdf(double z) {
  if (z > -5) return std::log(0.5 * std::erfc(-z / std::numbers::sqrt2));
  return -0.5 * z * z + std::log(0.5 * scaled_erfc(-z / std::numbers::sqrt2));
}

double log_h(double z) {
  if (z >= -1) return std::log(density(z) + z * 0.5 * std::erfc(-z / std::numbers::sqrt2));
  const double away = std::abs(z);
  if (away >= 1000) {
    return -0.5 * z * z - kHalfLogTwoPi - 2 * std::log(away) + std::log1p(-3 / (z * z));
  }
  const double inner = std::log(scaled_erfc(away / std::numbers::sqrt2) * away) +
                       0.5 * std::log(std::numbers::pi / 2);
  return -0.5 * z * z - kHalfLogTwoPi + log1mexp(inner);
}

double log_expected_improvement(double mean, double sigma, double best) {
  if (!(sigma > 0)) {
    return mean < best ? std::log(best - mean) : -std::numeric_limits<double>::infinity();
  }
  return std::log(sigma) + log_h((best - mean) / sigma);
}

}  // namespace tailor::search
