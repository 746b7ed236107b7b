#include "coordinator/analysis/scaling_law.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "coordinator/analysis/paired.h"

namespace tailor::analysis {
namespace {

constexpr int kExponents = 64;
constexpr int kGoldenSteps = 40;
constexpr double kHuberTuning = 1.345;

double median(std::vector<double>& values) {
  const std::size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle),
                   values.end());
  const double upper = values[middle];
  if (values.size() % 2 == 1) return upper;
  return (*std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle)) +
          upper) /
         2;
}

/// The least-squares line loss = E + A z for z = (x / unit)^-alpha, with E >= 0 and A >= 0.
class LineFit {
 public:
  LineFit(std::span<const double> x, std::span<const double> loss, double unit)
      : loss_(loss), z_(x.size()) {
    for (const double value : x) log_x_.push_back(std::log(value / unit));
    for (const double value : loss) mean_ += value / static_cast<double>(loss.size());
  }

  /// Sum of squared residuals at `alpha`; sets E and A.
  double fit(double alpha, double& e, double& a) {
    const auto k = static_cast<double>(z_.size());
    double z_mean = 0;
    for (std::size_t i = 0; i < z_.size(); ++i) {
      z_[i] = std::exp(-alpha * log_x_[i]);
      z_mean += z_[i] / k;
    }
    double zz = 0, zy = 0, zz_raw = 0, zy_raw = 0;
    for (std::size_t i = 0; i < z_.size(); ++i) {
      zz += (z_[i] - z_mean) * (z_[i] - z_mean);
      zy += (z_[i] - z_mean) * (loss_[i] - mean_);
      zz_raw += z_[i] * z_[i];
      zy_raw += z_[i] * loss_[i];
    }
    a = zz > 0 ? std::max(0.0, zy / zz) : 0;
    e = mean_ - a * z_mean;
    if (e < 0) {
      e = 0;
      a = std::max(0.0, zy_raw / zz_raw);
    }
    double squares = 0;
    for (std::size_t i = 0; i < z_.size(); ++i) {
      const double residual = loss_[i] - e - a * z_[i];
      squares += residual * residual;
    }
    return squares;
  }

 private:
  std::span<const double> loss_;
  std::vector<double> log_x_;
  std::vector<double> z_;
  double mean_ = 0;
};

double exponent_at(int i) {
  const double share = static_cast<double>(i) / (kExponents - 1);
  return kExponentMin * std::pow(kExponentMax / kExponentMin, share);
}

}  // namespace

double PowerLaw::at(double x) const {
  return irreducible + coefficient * std::pow(x / unit, -exponent);
}

std::optional<double> PowerLaw::inverse(double loss) const {
  if (!decreasing || !(loss > irreducible) || !(coefficient > 0)) return std::nullopt;
  const double x = unit * std::pow((loss - irreducible) / coefficient, -1 / exponent);
  if (!std::isfinite(x) || !(x > 0)) return std::nullopt;
  return x;
}

PowerLaw fit_power_law(std::span<const double> x, std::span<const double> loss) {
  TAILOR_CHECK(!x.empty() && x.size() == loss.size(), "{} and {} values", x.size(), loss.size());
  PowerLaw law;
  double log_unit = 0;
  for (const double value : x) {
    TAILOR_CHECK(value > 0 && std::isfinite(value), "x={}", value);
    log_unit += std::log(value) / static_cast<double>(x.size());
  }
  law.unit = std::exp(log_unit);
  LineFit line(x, loss, law.unit);
  double e = 0, a = 0;
  int best = 0;
  double least = line.fit(exponent_at(0), e, a);
  for (int i = 1; i < kExponents; ++i) {
    const double squares = line.fit(exponent_at(i), e, a);
    if (squares < least) {
      least = squares;
      best = i;
    }
  }
  const double ratio = (std::sqrt(5.0) - 1) / 2;
  double low = std::log(exponent_at(std::max(0, best - 1)));
  double high = std::log(exponent_at(std::min(kExponents - 1, best + 1)));
  double left = high - ratio * (high - low), right = low + ratio * (high - low);
  double at_left = line.fit(std::exp(left), e, a), at_right = line.fit(std::exp(right), e, a);
  for (int i = 0; i < kGoldenSteps; ++i) {
    if (at_left <= at_right) {
      high = std::exchange(right, left);
      at_right = at_left;
      left = high - ratio * (high - low);
      at_left = line.fit(std::exp(left), e, a);
    } else {
      low = std::exchange(left, right);
      at_left = at_right;
      right = low + ratio * (high - low);
      at_right = line.fit(std::exp(right), e, a);
    }
  }
  law.exponent = std::exp((low + high) / 2);
  const double squares = line.fit(law.exponent, law.irreducible, law.coefficient);
  law.rms_residual = std::sqrt(squares / static_cast<double>(x.size()));
  law.decreasing = law.coefficient > 0;
  constexpr double kNearEdge = 1.001;
  law.at_edge = law.decreasing && (law.exponent < kExponentMin * kNearEdge ||
                                   law.exponent > kExponentMax / kNearEdge);
  return law;
}

double pooled_scale(const SeedLosses& losses) {
  double sum = 0;
  std::size_t sizes = 0;
  for (const std::vector<double>& of_size : losses) {
    if (of_size.size() < 2) continue;
    std::vector<double> values = of_size;
    const double centre = median(values);
    for (double& value : values) value = std::abs(value - centre);
    const auto n = static_cast<double>(values.size());
    sum += 1.4826 * median(values) * n / (n - 0.8);
    ++sizes;
  }
  return sizes > 0 ? sum / static_cast<double>(sizes) : 0;
}

double huber_centre(std::span<const double> values, double scale) {
  TAILOR_CHECK(!values.empty(), "the centre of nothing");
  if (!(scale > 0)) return mean_of(values);
  std::vector<double> copy(values.begin(), values.end());
  double centre = median(copy);
  const double limit = kHuberTuning * scale;
  for (int i = 0; i < 50; ++i) {
    double weights = 0, sum = 0;
    for (const double value : values) {
      const double distance = std::abs(value - centre);
      const double weight = distance <= limit ? 1 : limit / distance;
      weights += weight;
      sum += weight * (value - centre);
    }
    const double step = sum / weights;
    centre += step;
    if (std::abs(step) <= 1e-12 * scale) break;
  }
  return centre;
}

JointLaws::JointLaws(std::vector<Curve> curves, std::uint64_t resamples, std::uint64_t seed) {
  TAILOR_CHECK(!curves.empty() && !curves.front().losses.empty(), "no curve");
  n_ = curves.front().losses.front().size();
  TAILOR_CHECK(n_ >= 1, "no seed");
  std::vector<double> scales;
  for (const Curve& curve : curves) {
    TAILOR_CHECK(curve.x.size() == curve.losses.size() && curve.x.size() >= kScalingSizesMin,
                 "{} sizes", curve.x.size());
    for (const auto& of_size : curve.losses) {
      TAILOR_CHECK(of_size.size() == n_, "{} seeds instead of {}", of_size.size(), n_);
    }
    scales.push_back(pooled_scale(curve.losses));
  }
  std::vector<double> drawn(n_);
  const auto fit = [&](std::size_t c, std::span<const std::size_t> seeds,
                       std::vector<double>& centres) {
    const Curve& curve = curves[c];
    centres.clear();
    for (const auto& of_size : curve.losses) {
      for (std::size_t i = 0; i < n_; ++i) drawn[i] = of_size[seeds[i]];
      centres.push_back(huber_centre(drawn, scales[c]));
    }
    return fit_power_law(curve.x, centres);
  };
  std::vector<std::size_t> seeds(n_);
  for (std::size_t i = 0; i < n_; ++i) seeds[i] = i;
  centres_.resize(curves.size());
  for (std::size_t c = 0; c < curves.size(); ++c) laws_.push_back(fit(c, seeds, centres_[c]));
  if (n_ < 2) return;
  Rng rng = Rng::split(seed, "scaling");
  std::vector<double> scratch;
  samples_.reserve(resamples);
  for (std::uint64_t b = 0; b < resamples; ++b) {
    for (std::size_t& index : seeds) index = rng.below(n_);
    std::vector<PowerLaw>& sample = samples_.emplace_back();
    for (std::size_t c = 0; c < curves.size(); ++c) sample.push_back(fit(c, seeds, scratch));
  }
}

JointLaws::Spread JointLaws::spread(const Quantity& of, bool log) const {
  Spread out;
  const auto value = of(laws_);
  if (!value) return out;
  out.estimate = LawEstimate{*value, {}, {}};
  if (samples_.empty()) return out;
  // Welford, so that a spread far smaller than the values keeps its digits.
  double mean = 0, squares = 0, count = 0;
  for (const auto& sample : samples_) {
    const auto drawn = of(sample);
    if (!drawn || !std::isfinite(*drawn)) continue;
    const double v = log ? std::log(*drawn) : *drawn;
    ++count;
    const double step = v - mean;
    mean += step / count;
    squares += step * (v - mean);
  }
  const auto all = static_cast<double>(samples_.size());
  out.undefined_share = 1 - count / all;
  if (out.undefined_share > kUndefinedMax || count < 2) return out;
  const auto n = static_cast<double>(n_);
  const double half = critical_t(n_) * std::sqrt(n / (n - 1)) * std::sqrt(squares / (count - 1));
  const double centre = log ? std::log(*value) : *value;
  out.estimate->low = log ? std::exp(centre - half) : centre - half;
  out.estimate->high = log ? std::exp(centre + half) : centre + half;
  return out;
}

std::uint64_t affordable_resamples(std::uint64_t losses) {
  constexpr std::uint64_t kWork = 40'000'000;
  return std::clamp(kWork / std::max<std::uint64_t>(losses, 1), kScalingResamplesMin,
                    kScalingResamples);
}

}  // namespace tailor::analysis
