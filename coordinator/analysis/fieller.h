// The ratio of two mean gains over the same seeds ("6.3 times the taper") with Fieller's interval:
// all rho for which mean(a - rho b) is not significantly different from 0,
//
//   (abar - rho bbar)^2 <= t^2 (s_aa - 2 rho s_ab + rho^2 s_bb) / n,     t = t_{.975, n-1}.
//
// It is an interval only when bbar itself is distinguishable from 0; else the ratio has no bounds
// (its denominator may be 0), and it is refused with the reason.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace tailor::analysis {

struct Ratio {
  std::size_t n = 0;
  std::optional<double> value;  ///< unset with a reason
  std::optional<double> low;    ///< 95 %
  std::optional<double> high;
  std::string refused;  ///< why there is no value, "" = there is one
};

/// REQUIRES: one length, all finite.
Ratio fieller_ratio(std::span<const double> numerator, std::span<const double> denominator);

}  // namespace tailor::analysis
