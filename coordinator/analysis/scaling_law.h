// L(x) = E + A x^-alpha through the losses of a few sizes, and what seeds leave of it.
//
// Fit. Each size has one loss per seed. Their centre is Huber's M-estimate (tuning 1.345, scale
// from the median absolute deviations within sizes, pooled), so one seed that went astray moves it
// little. The law is fitted to the centres by least squares with E >= 0 and A >= 0: for a given
// alpha E and A are a line, and alpha is searched on 64 values from kExponentMin to kExponentMax
// (log-spaced) and then by golden section around the best. No random start, no iteration that
// could stop elsewhere: the same losses give the same law.
//
// Bands. Seeds are resampled with replacement, the same seeds for every size and every curve that
// is fitted together (paired bootstrap), and all is fitted again. A quantity's interval is
//   estimate +- t_{.975, n-1} sqrt(n / (n - 1)) x (SD over the resamples),
// alpha and ratios of compute on the log scale. For a mean of n values this is the t-interval
// exactly; plain percentiles of so few seeds would be too narrow by far.
//
// What the bands say is how far other seeds would move the curve. That the law may be another one
// they do not say: with three sizes it passes through the centres and nothing tests its form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace tailor::analysis {

inline constexpr std::size_t kScalingSizesMin = 3;
inline constexpr double kExponentMin = 0.005;
inline constexpr double kExponentMax = 5;

struct PowerLaw {
  double irreducible = 0;  ///< E
  double coefficient = 0;  ///< A in units of `unit`: L = E + A (x / unit)^-alpha
  double exponent = 0;     ///< alpha
  double unit = 1;         ///< geometric mean of the x
  double rms_residual = 0;
  bool decreasing = false;  ///< false: the losses do not fall, A = 0 and alpha means nothing
  bool at_edge = false;     ///< alpha stands at an end of the range searched

  double at(double x) const;
  /// The x with at(x) = loss; nullopt where the law never gets there.
  std::optional<double> inverse(double loss) const;
};

/// REQUIRES: one length >= 1, every x > 0, all finite.
PowerLaw fit_power_law(std::span<const double> x, std::span<const double> loss);

/// Losses of one curve: [size][seed], one row a size, all of one length.
using SeedLosses = std::vector<std::vector<double>>;

/// Pooled scale of the losses within sizes, 1.4826 MAD with the correction n / (n - 0.8); 0 where
/// it cannot be told (n < 2, or half of the losses of every size are equal).
double pooled_scale(const SeedLosses& losses);
/// Huber's centre; the mean for scale 0. REQUIRES: not empty.
double huber_centre(std::span<const double> values, double scale);

/// One curve of a joint bootstrap.
struct Curve {
  std::vector<double> x;
  SeedLosses losses;
};
struct LawEstimate {
  double value = 0;
  std::optional<double> low;  ///< 95 %; unset for one seed
  std::optional<double> high;
};

/// The curves' laws, and those of the resamples.
class JointLaws {
 public:
  /// REQUIRES: curves not empty, all with `n` seeds a size, at least kScalingSizesMin sizes each.
  /// Cost: resamples x (losses + 100 fits' terms).
  JointLaws(std::vector<Curve> curves, std::uint64_t resamples, std::uint64_t seed);

  const std::vector<PowerLaw>& laws() const { return laws_; }
  const std::vector<double>& centres(std::size_t curve) const { return centres_[curve]; }
  std::size_t n() const { return n_; }
  std::uint64_t resamples() const { return samples_.size(); }

  using Quantity = std::function<std::optional<double>(std::span<const PowerLaw>)>;
  struct Spread {
    std::optional<LawEstimate> estimate;  ///< unset when not defined for the laws themselves
    double undefined_share = 0;           ///< of the resamples; above kUndefinedMax: no interval
  };
  /// With `log` the interval is made on the log scale. REQUIRES then: `of` gives positive numbers.
  Spread spread(const Quantity& of, bool log) const;

 private:
  std::size_t n_ = 0;
  std::vector<PowerLaw> laws_;
  std::vector<std::vector<double>> centres_;
  std::vector<std::vector<PowerLaw>> samples_;
};
/// More undefined resamples than this, and a quantity has no interval.
inline constexpr double kUndefinedMax = 0.05;

/// How many resamples are affordable for so many losses of all curves together.
std::uint64_t affordable_resamples(std::uint64_t losses);
inline constexpr std::uint64_t kScalingResamples = 2'000;
inline constexpr std::uint64_t kScalingResamplesMin = 200;

}  // namespace tailor::analysis
