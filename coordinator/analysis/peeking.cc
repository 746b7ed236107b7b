#include "coordinator/analysis/peeking.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"
#include "base/rng.h"
#include "base/stats.h"

namespace tailor::analysis {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHalfPi = std::numbers::pi / 2;
constexpr std::size_t kGrid = 256;       // cells of r
constexpr std::size_t kQuadrature = 32;  // nodes
/// Less than this is no level: its critical value is taken as infinite.
constexpr double kSpentMin = 1e-12;

struct Quadrature {
  std::array<double, kQuadrature> node{};  // in (-1, 1)
  std::array<double, kQuadrature> weight{};
};

/// Gauss-Legendre, by Newton's method on the Legendre polynomial.
Quadrature make_quadrature() {
  Quadrature q;
  constexpr auto n = static_cast<double>(kQuadrature);
  for (std::size_t i = 0; i < kQuadrature; ++i) {
    double x = std::cos(std::numbers::pi * (static_cast<double>(i) + 0.75) / (n + 0.5));
    double slope = 1;
    for (int step = 0; step < 100; ++step) {
      double p = 1, before = 0;
      for (std::size_t k = 1; k <= kQuadrature; ++k) {
        const auto order = static_cast<double>(k);
        const double next = ((2 * order - 1) * x * p - (order - 1) * before) / order;
        before = p;
        p = next;
      }
      slope = n * (x * p - before) / (x * x - 1);
      const double move = p / slope;
      x -= move;
      if (std::abs(move) < 1e-15) break;
    }
    q.node[i] = x;
    q.weight[i] = 2 / ((1 - x * x) * slope * slope);
  }
  return q;
}

const Quadrature& quadrature() {
  static const Quadrature q = make_quadrature();
  return q;
}

template <typename F>
double integral(double from, double to, const F& f) {
  if (!(to > from)) return 0;
  const Quadrature& q = quadrature();
  const double middle = (from + to) / 2, half = (to - from) / 2;
  double sum = 0;
  for (std::size_t i = 0; i < kQuadrature; ++i) sum += q.weight[i] * f(middle + half * q.node[i]);
  return half * sum;
}

/// Beyond this angle cos^(n - 2) has less than 1e-17 of its mass.
double angle_max(std::size_t n) {
  return n <= 2 ? kHalfPi : std::min(kHalfPi, 9 / std::sqrt(static_cast<double>(n - 2)));
}

double power_of_cosine(double angle, std::size_t n) {
  return std::pow(std::cos(angle), static_cast<double>(n - 2));
}

/// 1 / the integral of cos^(n - 2) over all angles.
double density_scale(std::size_t n) {
  const double top = angle_max(n);
  return 1 / (2 * integral(0, top, [n](double a) { return power_of_cosine(a, n); }));
}

double x_of_t(double t, std::size_t n) {
  const auto count = static_cast<double>(n);
  if (std::isinf(t)) return std::sqrt(count);
  return t * std::sqrt(count / (count - 1 + t * t));
}

double angle_of_t(double t, std::size_t n) {
  return std::asin(std::min(1.0, x_of_t(t, n) / std::sqrt(static_cast<double>(n))));
}

/// t_n = sqrt(n - 1) tan(phi).
double t_of_angle(double angle, std::size_t n) {
  return std::sqrt(static_cast<double>(n) - 1) * std::tan(angle);
}

/// P(no look before n was crossed | x_n = sqrt n sin(phi)), even in phi. It ends like a square root
/// at an edge beyond which an earlier look was surely crossed, so it is kept on a grid of r with
/// phi = edge r (2 - r), in which it ends like a line.
class Survival {
 public:
  explicit Survival(std::size_t n)
      : n_(n), scale_(density_scale(n)), edge_(angle_max(n)), values_(kGrid + 1, 1.0) {}

  std::size_t n() const { return n_; }

  double at(double angle) const {
    const double share = std::abs(angle) / edge_;
    if (share >= 1) return values_.back();
    const double place = (1 - std::sqrt(1 - share)) * kGrid;
    const auto cell = std::min(static_cast<std::size_t>(place), kGrid - 1);
    const double f = place - static_cast<double>(cell);
    return values_[cell] + f * (values_[cell + 1] - values_[cell]);
  }

  /// P(|t_n| >= t, and no look before n was crossed).
  double crossed(double t) const {
    const double share = angle_of_t(t, n_) / edge_;
    if (share >= 1) return 0;
    return 2 * scale_ * integral(1 - std::sqrt(1 - share), 1, [this](double r) {
             const double angle = edge_ * r * (2 - r);
             return at(angle) * power_of_cosine(angle, n_) * 2 * edge_ * (1 - r);
           });
  }

  /// The t with crossed(t) = `probability`; infinite for less than kSpentMin, 0 where all is less.
  double critical(double probability) const {
    if (probability < kSpentMin) return kInfinity;
    double low = 0, high = edge_;  // crossed falls with the angle
    if (crossed(0) <= probability) return 0;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (crossed(t_of_angle(middle, n_)) > probability ? low : high) = middle;
    }
    return t_of_angle((low + high) / 2, n_);
  }

  /// The same for n + 1, when this look's critical value was `t` (infinite: no look).
  Survival after(double t) const {
    Survival next(n_ + 1);
    const auto count = static_cast<double>(n_);
    const double root = std::sqrt(count), bound = x_of_t(t, n_), b2 = bound * bound;
    const bool looked = bound < root;
    if (looked) next.edge_ = std::min(next.edge_, std::asin(std::sqrt((1 + b2) / (count + 1))));
    for (std::size_t i = 0; i <= kGrid; ++i) {
      const double r = static_cast<double>(i) / kGrid;
      const double phi = next.edge_ * r * (2 - r);
      const double x = std::sqrt(count + 1) * std::sin(phi);
      const double centre = x / (count + 1);
      const double reach = std::max(std::cos(phi) * std::sqrt(count / (count + 1)), 1e-12);
      double from = -angle_max(n_), to = angle_max(n_);
      if (looked) {
        // |x - u| < bound sqrt(1 - u^2): u between the roots of a quadratic.
        const double inside = std::max(0.0, 1 + b2 - x * x);
        const double half = bound * std::sqrt(inside) / (1 + b2), middle = x / (1 + b2);
        const auto angle = [&](double u) {
          return std::asin(std::clamp((u - centre) / reach, -1.0, 1.0));
        };
        from = std::max(from, angle(middle - half));
        to = std::min(to, angle(middle + half));
      }
      const double survived =
          scale_ * integral(from, to, [&](double theta) {
            const double u = centre + reach * std::sin(theta);
            const double before = (x - u) / std::sqrt(std::max(1e-300, 1 - u * u));
            return at(std::asin(std::clamp(before / root, -1.0, 1.0))) * power_of_cosine(theta, n_);
          });
      next.values_[i] = std::min(1.0, survived);
    }
    return next;
  }

 private:
  std::size_t n_;
  double scale_;
  double edge_;
  std::vector<double> values_;  // by r, 0 to 1
};

/// |t| of the running sums of n differences.
double running_t(double sum, double squares, double n) {
  const double spread = squares - sum * sum / n;
  return std::abs(sum) / std::sqrt(n * std::max(spread, 1e-300) / (n - 1));
}

}  // namespace

std::string_view spending_name(Spending spending) {
  constexpr std::array<std::string_view, 4> kNames = {"obrien_fleming", "pocock", "constant",
                                                      "anytime"};
  return kNames[static_cast<std::size_t>(spending)];
}

Result<Spending> parse_spending(std::string_view name) {
  for (const Spending s :
       {Spending::kObrienFleming, Spending::kPocock, Spending::kConstant, Spending::kAnytime}) {
    if (spending_name(s) == name) return s;
  }
  return error(Code::kInvalidArgument,
               fmt::format("no way to spend the level is called '{}'; there are: obrien_fleming, "
                           "pocock, constant, anytime",
                           name.substr(0, 40)));
}

double crossing_probability(std::span<const std::size_t> looks, std::span<const double> critical) {
  TAILOR_CHECK(looks.size() == critical.size() && !looks.empty());
  Survival survival(looks.front());
  double crossed = 0;
  for (std::size_t look = 0; look < looks.size(); ++look) {
    while (survival.n() < looks[look]) survival = survival.after(kInfinity);
    crossed += survival.crossed(critical[look]);
    if (look + 1 < looks.size()) survival = survival.after(critical[look]);
  }
  return crossed;
}

double anytime_log_e(std::size_t n, double t, double prior) {
  const auto count = static_cast<double>(n);
  const double grown = 1 + count * prior;
  if (std::isinf(t)) return -0.5 * std::log(grown) + count / 2 * std::log(grown);
  const double y = t * t / (count - 1);
  return -0.5 * std::log(grown) + count / 2 * (std::log1p(y) - std::log1p(y / grown));
}

double anytime_critical(std::size_t n, double level, double prior) {
  const auto count = static_cast<double>(n);
  const double grown = 1 + count * prior;
  // (1 + y) / (1 + y / grown) = a at the critical y; the left side never reaches `grown`.
  const double a = std::exp(2 / count * (0.5 * std::log(grown) - std::log(level)));
  if (!(a < grown)) return kInfinity;
  return std::sqrt((count - 1) * (a - 1) / (1 - a / grown));
}

PeekingPlan::PeekingPlan(std::vector<std::size_t> looks, Spending spending, std::size_t family)
    : looks_(std::move(looks)), spending_(spending), family_(family) {
  TAILOR_CHECK(!looks_.empty() && looks_.front() >= 2 && family_ >= 1, "family={}", family_);
  TAILOR_CHECK(
      std::adjacent_find(looks_.begin(), looks_.end(), std::greater_equal<>()) == looks_.end(),
      "looks do not ascend");
  if (family_ == 1 || spending_ == Spending::kAnytime) return;
  const std::size_t n = looks_.back();
  paths_ = std::clamp(kPeekingDraws / ((family_ + 1) * n), kPeekingPathsMin, kPeekingPathsMax);
  largest_.assign(looks_.size(), std::vector<float>(paths_));
  Rng rng(kPeekingSeed);
  double spare = 0;
  bool has_spare = false;
  // Both normal numbers of a pair: `Rng::normal` throws one away.
  const auto normal = [&] {
    if (has_spare) {
      has_spare = false;
      return spare;
    }
    const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
    const double angle = 2 * std::numbers::pi * rng.uniform();
    spare = radius * std::sin(angle);
    has_spare = true;
    return radius * std::cos(angle);
  };
  std::vector<double> sums(family_), squares(family_);
  for (std::uint64_t path = 0; path < paths_; ++path) {
    std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(squares.begin(), squares.end(), 0.0);
    std::size_t look = 0;
    for (std::size_t i = 1; i <= n; ++i) {
      const double baseline = normal();
      for (std::size_t c = 0; c < family_; ++c) {
        const double d = normal() - baseline;
        sums[c] += d;
        squares[c] += d * d;
      }
      if (i != looks_[look]) continue;
      double largest = 0;
      for (std::size_t c = 0; c < family_; ++c) {
        largest = std::max(largest, running_t(sums[c], squares[c], static_cast<double>(i)));
      }
      largest_[look++][path] = static_cast<float>(largest);
    }
  }
}

double PeekingPlan::spent(double level, std::size_t look) const {
  if (look + 1 == looks_.size()) return level;
  const double share = static_cast<double>(looks_[look]) / static_cast<double>(looks_.back());
  if (spending_ == Spending::kPocock) return level * std::log1p((std::numbers::e - 1) * share);
  return 2 * normal_cdf(normal_quantile(level / 2) / std::sqrt(share));
}

std::vector<double> PeekingPlan::exact(double level) const {
  std::vector<double> critical;
  Survival survival(looks_.front());
  double used = 0;
  for (std::size_t look = 0; look < looks_.size(); ++look) {
    while (survival.n() < looks_[look]) survival = survival.after(kInfinity);
    const double now = spent(level, look);
    critical.push_back(survival.critical(now - used));
    used = now;
    if (look + 1 < looks_.size()) survival = survival.after(critical.back());
  }
  return critical;
}

namespace {

/// c_n of one nominal two-sided p at all looks.
std::vector<double> of_nominal(const std::vector<std::size_t>& looks, double p) {
  std::vector<double> critical;
  for (const std::size_t n : looks) {
    critical.push_back(student_t_quantile(1 - p / 2, static_cast<double>(n) - 1));
  }
  return critical;
}

/// The argument between `low` and `high` at which the rising `f` is `wanted` (Illinois).
template <typename F>
double rising_root(double low, double high, const F& f, double wanted, double tolerance) {
  double at_low = f(low) - wanted, at_high = f(high) - wanted;
  int side = 0;
  for (int i = 0; i < 60 && high - low > tolerance * high; ++i) {
    double middle = (low * at_high - high * at_low) / (at_high - at_low);
    if (!(middle > low && middle < high)) middle = (low + high) / 2;
    const double value = f(middle) - wanted;
    if (std::abs(value) <= tolerance * wanted) return middle;
    if (value < 0) {
      low = middle;
      at_low = value;
      if (side == -1) at_high /= 2;
      side = -1;
    } else {
      high = middle;
      at_high = value;
      if (side == 1) at_low /= 2;
      side = 1;
    }
  }
  return (low + high) / 2;
}

}  // namespace

std::vector<double> PeekingPlan::exact_constant(double level) const {
  // All looks of p cross with at least p and at most looks x p.
  const double p = rising_root(
      level / static_cast<double>(looks_.size()), level,
      [&](double nominal) { return crossing_probability(looks_, of_nominal(looks_, nominal)); },
      level, 1e-7);
  return of_nominal(looks_, p);
}

std::vector<double> PeekingPlan::joint(double level) const {
  const auto paths = static_cast<double>(paths_);
  std::vector<char> out(paths_, 0);
  const auto cross = [&](std::size_t look, double c) {
    for (std::uint64_t path = 0; path < paths_; ++path) {
      if (static_cast<double>(largest_[look][path]) >= c) out[path] = 1;
    }
  };
  if (spending_ == Spending::kConstant) {
    const double p = rising_root(
        level / static_cast<double>(looks_.size() * family_) / 2, level,
        [&](double nominal) {
          std::fill(out.begin(), out.end(), 0);
          const std::vector<double> critical = of_nominal(looks_, nominal);
          for (std::size_t look = 0; look < looks_.size(); ++look) cross(look, critical[look]);
          return static_cast<double>(std::count(out.begin(), out.end(), 1)) / paths;
        },
        level, 1e-4);
    return of_nominal(looks_, p);
  }
  std::vector<double> critical;
  std::uint64_t used = 0;  // paths that have crossed
  std::vector<float> left;
  for (std::size_t look = 0; look < looks_.size(); ++look) {
    const auto wanted = static_cast<std::uint64_t>(std::floor(spent(level, look) * paths));
    double c = kInfinity;
    if (wanted > used) {
      left.clear();
      for (std::uint64_t path = 0; path < paths_; ++path) {
        if (out[path] == 0) left.push_back(largest_[look][path]);
      }
      const std::uint64_t take = std::min<std::uint64_t>(wanted - used, left.size());
      const auto place = left.begin() + static_cast<std::ptrdiff_t>(take - 1);
      std::nth_element(left.begin(), place, left.end(), std::greater<>());
      c = static_cast<double>(*place);
      cross(look, c);
      used = static_cast<std::uint64_t>(std::count(out.begin(), out.end(), 1));
    }
    critical.push_back(c);
  }
  return critical;
}

std::vector<double> PeekingPlan::critical(double level) const {
  TAILOR_CHECK(level > 0 && level < 1, "level={}", level);
  if (spending_ == Spending::kAnytime) {
    std::vector<double> critical;
    for (const std::size_t n : looks_) {
      critical.push_back(anytime_critical(n, level / static_cast<double>(family_)));
    }
    return critical;
  }
  if (family_ > 1) return joint(level);
  return spending_ == Spending::kConstant ? exact_constant(level) : exact(level);
}

double PeekingPlan::repeated_p(std::span<const double> t) const {
  TAILOR_CHECK(t.size() <= looks_.size(), "{} looks", t.size());
  const auto crossed = [&](std::span<const double> critical) {
    for (std::size_t look = 0; look < t.size(); ++look) {
      if (std::abs(t[look]) >= critical[look]) return true;
    }
    return false;
  };
  if (spending_ == Spending::kAnytime) {
    double most = 0;
    for (std::size_t look = 0; look < t.size(); ++look) {
      if (!std::isnan(t[look])) most = std::max(most, anytime_log_e(looks_[look], t[look]));
    }
    return std::min(1.0, static_cast<double>(family_) * std::exp(-most));
  }
  double low = std::log(1e-10), high = std::log(1 - 1e-6);
  if (!crossed(critical(std::exp(high)))) return 1;
  if (crossed(critical(std::exp(low)))) return std::exp(low);
  const double width = family_ > 1 ? 1e-3 : 1e-4;
  while (high - low > width) {
    const double middle = (low + high) / 2;
    (crossed(critical(std::exp(middle))) ? high : low) = middle;
  }
  return std::exp(high);
}

}  // namespace tailor::analysis
