// The BCa bootstrap interval of a mean paired difference (Efron 1987): percentiles of the resampled
// means, moved for their bias and for the acceleration of the mean's spread.
//
//   z0 = quantile(share of the resampled means below the mean, those equal counted half)
//   a  = sum u^3 / (6 (sum u^2)^1.5),  u = mean without difference i taken from their mean
//   end at level q: percentile  Phi(z0 + (z0 + z_q) / (1 - a (z0 + z_q)))
//
// Resamples are drawn from a fixed seed, so the same differences give the same interval, and ends
// lie between order statistics linearly. Below kBcaMin differences it is too narrow by far (at
// n = 5 nominal 95 % hold about 85 %), so there is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tailor::analysis {

inline constexpr std::size_t kBcaMin = 6;
inline constexpr std::size_t kBcaResamples = 10'000;
/// Of the resamples. Any fixed value would do.
inline constexpr std::uint64_t kBcaSeed = 0x626361;

struct BcaInterval {
  double low = 0;
  double high = 0;
  double bias = 0;  ///< z0
  double acceleration = 0;
};

/// 95 %. nullopt below kBcaMin differences, for equal ones, and where an end is beyond a double's
/// range. Cost: kBcaResamples x n draws. REQUIRES: every difference is finite.
std::optional<BcaInterval> bca_interval(std::span<const double> differences);

}  // namespace tailor::analysis
