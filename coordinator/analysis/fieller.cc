#include "coordinator/analysis/fieller.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "coordinator/analysis/paired.h"

namespace tailor::analysis {

Ratio fieller_ratio(std::span<const double> numerator, std::span<const double> denominator) {
  TAILOR_CHECK(numerator.size() == denominator.size(), "{} and {} values", numerator.size(),
               denominator.size());
  Ratio out;
  out.n = numerator.size();
  if (out.n < 2) {
    out.refused = fmt::format("{} common seeds: a ratio needs two", out.n);
    return out;
  }
  double largest = 0;  // both in units of it: a ratio does not change
  for (const double v : numerator) largest = std::max(largest, std::abs(v));
  for (const double v : denominator) largest = std::max(largest, std::abs(v));
  if (!(largest > 0)) {
    out.refused = "both gains are 0";
    return out;
  }
  const auto n = static_cast<double>(out.n);
  double a = 0, b = 0;
  for (std::size_t i = 0; i < out.n; ++i) {
    a += numerator[i] / largest / n;
    b += denominator[i] / largest / n;
  }
  double aa = 0, ab = 0, bb = 0;
  for (std::size_t i = 0; i < out.n; ++i) {
    const double u = numerator[i] / largest - a, v = denominator[i] / largest - b;
    aa += u * u / (n - 1);
    ab += u * v / (n - 1);
    bb += v * v / (n - 1);
  }
  const double critical = critical_t(out.n);
  const double factor = critical * critical / n;
  const double square = b * b - factor * bb;
  if (!(square > 0)) {
    out.refused = fmt::format(
        "undefined: the gain that is divided by cannot be told from 0 (n = {}, 95 % t-interval)",
        out.n);
    return out;
  }
  const double middle = a * b - factor * ab;
  const double last = a * a - factor * aa;
  const double root = std::sqrt(std::max(0.0, middle * middle - square * last));
  out.value = a / b;
  out.low = (middle - root) / square;
  out.high = (middle + root) / square;
  return out;
}

}  // namespace tailor::analysis
