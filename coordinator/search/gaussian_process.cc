#include "coordinator/search/gaussian_process.h"

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/check.h"
#include "base/rng.h"

namespace tailor::search {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

const double kRootFive = std::sqrt(5.0);
constexpr double kLengthSd = 1.0, kScaleSd = 1.0, kNoiseSd = 2.5;
const double kNoiseMean = std::log(1e-4);
constexpr double kLogLengthLow = -5.3, kLogLengthHigh = 5.3;  // 0.005 to 200
constexpr double kLogScaleLow = -4.6, kLogScaleHigh = 6.9;
constexpr double kLogNoiseLow = -16.0, kLogNoiseHigh = 1.0;
constexpr int kIterationsMax = 30;
/// Added to the diagonal whatever the noise, so that twins do not make it singular.
constexpr double kJitter = 1e-8;

}  // namespace

struct GaussianProcess::State {
  const Space& space;
  std::size_t d = 0;
  std::vector<Coordinates> x;
  VectorXd y;
  Hyperparameters hyper;
  MatrixXd lower;  // Cholesky factor of K + n^2 I over all points
  VectorXd alpha;  // (K + n^2 I)^-1 y
  std::vector<char> is_choice;
  std::vector<double> delta_squared;  // of the first m points, pair by pair, axis by axis
  std::size_t m = 0;

  explicit State(const Space& s) : space(s), d(s.size()) {
    for (std::size_t axis = 0; axis < d; ++axis) {
      is_choice.push_back(space.kind(axis) == AxisKind::kChoice);
    }
  }

  double difference_squared(std::size_t axis, double a, double b) const {
    const bool no_a = std::isnan(a), no_b = std::isnan(b);
    if (no_a || no_b) return no_a == no_b ? 0.0 : 1.0;
    if (is_choice[axis]) return a == b ? 0.0 : 1.0;
    return (a - b) * (a - b);
  }

  double kernel(const Coordinates& a, const Coordinates& b, const std::vector<double>& weights,
                double scale) const {
    double square = 0;
    for (std::size_t i = 0; i < d; ++i) square += weights[i] * difference_squared(i, a[i], b[i]);
    const double r = kRootFive * std::sqrt(square);
    return scale * (1 + r + r * r / 3) * std::exp(-r);
  }

  /// 1 / l_i^2.
  static std::vector<double> weights_of(const Hyperparameters& h) {
    std::vector<double> out;
    for (const double length : h.log_lengths) out.push_back(std::exp(-2 * length));
    return out;
  }

  void prepare_pairs() {
    m = std::min(x.size(), kFitMax);
    delta_squared.clear();
    delta_squared.reserve(m * (m - 1) / 2 * d);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        for (std::size_t k = 0; k < d; ++k) {
          delta_squared.push_back(difference_squared(k, x[i][k], x[j][k]));
        }
      }
    }
  }

  double log_prior(const Hyperparameters& h, std::vector<double>* gradient) const {
    const double length_mean = std::log(0.5) + 0.25 * std::log(static_cast<double>(d));
    double out = 0;
    const auto add = [&](std::size_t at, double value, double mean, double sd) {
      const double z = (value - mean) / sd;
      out -= 0.5 * z * z;
      if (gradient != nullptr) (*gradient)[at] -= z / sd;
    };
    for (std::size_t i = 0; i < d; ++i) add(i, h.log_lengths[i], length_mean, kLengthSd);
    add(d, h.log_scale, 0, kScaleSd);
    add(d + 1, h.log_noise, kNoiseMean, kNoiseSd);
    return out;
  }

  double log_posterior(const Hyperparameters& h, std::vector<double>* gradient) const {
    const auto size = static_cast<Eigen::Index>(m);
    const std::vector<double> weights = weights_of(h);
    const double scale = std::exp(h.log_scale), noise = std::exp(h.log_noise);
    MatrixXd k(size, size), slope(size, size);
    std::size_t at = 0;
    for (Eigen::Index i = 0; i < size; ++i) {
      k(i, i) = scale + noise + kJitter;
      slope(i, i) = 0;
      for (Eigen::Index j = 0; j < i; ++j) {
        double square = 0;
        for (std::size_t axis = 0; axis < d; ++axis) square += weights[axis] * delta_squared[at++];
        const double r = kRootFive * std::sqrt(square);
        const double e = scale * std::exp(-r);
        k(i, j) = (1 + r + r * r / 3) * e;
        slope(i, j) = 5.0 / 3 * (1 + r) * e;  // times delta^2 / l^2: the derivative by log l
      }
    }
    const Eigen::LLT<MatrixXd, Eigen::Lower> factor(k);
    if (factor.info() != Eigen::Success) return -std::numeric_limits<double>::infinity();
    const VectorXd values = y.head(size);
    const VectorXd solved = factor.solve(values);
    double log_determinant = 0;
    for (Eigen::Index i = 0; i < size; ++i) log_determinant += std::log(factor.matrixLLT()(i, i));
    if (gradient != nullptr) gradient->assign(d + 2, 0.0);
    const double prior = log_prior(h, gradient);
    const double out = -0.5 * values.dot(solved) - log_determinant -
                       0.5 * static_cast<double>(m) * std::log(2 * std::numbers::pi) + prior;
    if (gradient == nullptr) return out;
    // d/dtheta = tr((alpha alpha^T - K^-1) dK/dtheta) / 2, over pairs i > j twice.
    const MatrixXd inverse = factor.solve(MatrixXd::Identity(size, size));
    at = 0;
    double by_scale = 0, by_noise = 0;
    std::vector<double> by_length(d, 0.0);
    for (Eigen::Index i = 0; i < size; ++i) {
      const double own = solved(i) * solved(i) - inverse(i, i);
      by_scale += 0.5 * own * scale;
      by_noise += 0.5 * own * noise;
      for (Eigen::Index j = 0; j < i; ++j) {
        const double w = solved(i) * solved(j) - inverse(i, j);
        by_scale += w * k(i, j);
        const double by_square = w * slope(i, j);
        for (std::size_t axis = 0; axis < d; ++axis) {
          by_length[axis] += by_square * weights[axis] * delta_squared[at++];
        }
      }
    }
    for (std::size_t axis = 0; axis < d; ++axis) (*gradient)[axis] += by_length[axis];
    (*gradient)[d] += by_scale;
    (*gradient)[d + 1] += by_noise;
    return out;
  }

  VectorXd pack(const Hyperparameters& h) const {
    VectorXd out(static_cast<Eigen::Index>(d + 2));
    for (std::size_t i = 0; i < d; ++i) out(static_cast<Eigen::Index>(i)) = h.log_lengths[i];
    out(static_cast<Eigen::Index>(d)) = h.log_scale;
    out(static_cast<Eigen::Index>(d + 1)) = h.log_noise;
    return out;
  }

  Hyperparameters unpack(const VectorXd& v) const {
    Hyperparameters h;
    for (std::size_t i = 0; i < d; ++i) {
      h.log_lengths.push_back(
          std::clamp(v(static_cast<Eigen::Index>(i)), kLogLengthLow, kLogLengthHigh));
    }
    h.log_scale = std::clamp(v(static_cast<Eigen::Index>(d)), kLogScaleLow, kLogScaleHigh);
    h.log_noise = std::clamp(v(static_cast<Eigen::Index>(d + 1)), kLogNoiseLow, kLogNoiseHigh);
    return h;
  }

  /// BFGS on minus the log posterior, with halving of the step.
  std::pair<double, Hyperparameters> climb(const Hyperparameters& start) const {
    const auto size = static_cast<Eigen::Index>(d + 2);
    VectorXd at = pack(start);
    std::vector<double> raw;
    double value = log_posterior(unpack(at), &raw);
    if (!std::isfinite(value)) return {value, start};
    VectorXd gradient = Eigen::Map<VectorXd>(raw.data(), size);
    MatrixXd inverse = MatrixXd::Identity(size, size) * 0.1;
    for (int i = 0; i < kIterationsMax; ++i) {
      VectorXd step = inverse * gradient;
      if (step.dot(gradient) <= 0) {
        inverse = MatrixXd::Identity(size, size) * 0.1;
        step = inverse * gradient;
      }
      const double longest = step.cwiseAbs().maxCoeff();
      if (longest > 2) step *= 2 / longest;
      double length = 1, next_value = 0;
      VectorXd next;
      std::vector<double> next_raw;
      bool better = false;
      for (int halving = 0; halving < 8 && !better; ++halving, length *= 0.4) {
        next = pack(unpack(at + length * step));
        next_value = log_posterior(unpack(next), &next_raw);
        better = next_value > value + 1e-4 * gradient.dot(next - at);
      }
      if (!better) break;
      const VectorXd next_gradient = Eigen::Map<VectorXd>(next_raw.data(), size);
      const VectorXd moved = next - at;
      const VectorXd change = gradient - next_gradient;
      const double curvature = moved.dot(change);
      if (curvature > 1e-10) {
        const MatrixXd left =
            MatrixXd::Identity(size, size) - moved * change.transpose() / curvature;
        inverse = left * inverse * left.transpose() + moved * moved.transpose() / curvature;
      }
      const double gain = next_value - value;
      at = next;
      value = next_value;
      gradient = next_gradient;
      if (gain < 1e-3) break;
    }
    return {value, unpack(at)};
  }

  void factorise() {
    const auto size = static_cast<Eigen::Index>(x.size());
    const std::vector<double> weights = weights_of(hyper);
    const double scale = std::exp(hyper.log_scale);
    double noise = std::exp(hyper.log_noise) + kJitter;
    MatrixXd k(size, size);
    for (Eigen::Index i = 0; i < size; ++i) {
      for (Eigen::Index j = 0; j <= i; ++j) {
        k(i, j) =
            kernel(x[static_cast<std::size_t>(i)], x[static_cast<std::size_t>(j)], weights, scale);
      }
    }
    for (int i = 0; i < 10; ++i, noise *= 10) {
      MatrixXd noisy = k;
      noisy.diagonal().array() += noise;
      const Eigen::LLT<MatrixXd, Eigen::Lower> factor(noisy);
      if (factor.info() != Eigen::Success) continue;
      lower = factor.matrixL();
      alpha = factor.solve(y);
      return;
    }
    TAILOR_CHECK(false, "a kernel matrix of {} points has no Cholesky factor", x.size());
  }
};

GaussianProcess::GaussianProcess(const Space& space, std::vector<Coordinates> x,
                                 std::vector<double> y)
    : state_(std::make_unique<State>(space)) {
  TAILOR_CHECK(!x.empty() && x.size() == y.size(), "{} points, {} values", x.size(), y.size());
  state_->x = std::move(x);
  state_->y = Eigen::Map<const VectorXd>(y.data(), static_cast<Eigen::Index>(y.size()));
  state_->hyper.log_lengths.assign(
      state_->d,
      std::log(0.5) + 0.25 * std::log(static_cast<double>(std::max<std::size_t>(1, state_->d))));
  state_->prepare_pairs();
}

GaussianProcess::~GaussianProcess() = default;
GaussianProcess::GaussianProcess(GaussianProcess&&) noexcept = default;
GaussianProcess& GaussianProcess::operator=(GaussianProcess&&) noexcept = default;

const Hyperparameters& GaussianProcess::hyperparameters() const { return state_->hyper; }

void GaussianProcess::fit(std::uint64_t seed, int restarts) {
  Rng rng(stable_hash("gp fit", seed));
  const Hyperparameters middle = state_->hyper;
  double best = -std::numeric_limits<double>::infinity();
  Hyperparameters found = middle;
  for (int i = 0; i < std::max(1, restarts); ++i) {
    Hyperparameters start = middle;
    if (i > 0) {
      for (double& length : start.log_lengths) length += rng.normal();
      start.log_noise += 2 * rng.normal();
    }
    const auto [value, hyper] = state_->climb(start);
    if (value > best) {
      best = value;
      found = hyper;
    }
  }
  use(found);
}

void GaussianProcess::use(const Hyperparameters& hyper) {
  state_->hyper = hyper;
  state_->factorise();
}

void GaussianProcess::believe(const Coordinates& x) {
  State& s = *state_;
  const double mean = predict(x).mean;
  const auto n = static_cast<Eigen::Index>(s.x.size());
  const std::vector<double> weights = State::weights_of(s.hyper);
  const double scale = std::exp(s.hyper.log_scale);
  VectorXd column(n);
  for (Eigen::Index i = 0; i < n; ++i) {
    column(i) = s.kernel(s.x[static_cast<std::size_t>(i)], x, weights, scale);
  }
  // One more row of the Cholesky factor; alpha of an observation at its own mean is 0.
  const VectorXd row = s.lower.triangularView<Eigen::Lower>().solve(column);
  const double rest = scale + std::exp(s.hyper.log_noise) + kJitter - row.squaredNorm();
  MatrixXd grown = MatrixXd::Zero(n + 1, n + 1);
  grown.topLeftCorner(n, n) = s.lower;
  grown.row(n).head(n) = row.transpose();
  grown(n, n) = std::sqrt(std::max(rest, kJitter));
  s.lower = std::move(grown);
  s.alpha.conservativeResize(n + 1);
  s.alpha(n) = 0;
  s.y.conservativeResize(n + 1);
  s.y(n) = mean;
  s.x.push_back(x);
}

std::vector<Prediction> GaussianProcess::predict(const std::vector<Coordinates>& at) const {
  const State& s = *state_;
  const auto n = static_cast<Eigen::Index>(s.x.size());
  const auto count = static_cast<Eigen::Index>(at.size());
  std::vector<Prediction> out(at.size());
  if (at.empty()) return out;
  const std::vector<double> weights = State::weights_of(s.hyper);
  const double scale = std::exp(s.hyper.log_scale);
  MatrixXd cross(n, count);
  for (Eigen::Index j = 0; j < count; ++j) {
    for (Eigen::Index i = 0; i < n; ++i) {
      cross(i, j) = s.kernel(s.x[static_cast<std::size_t>(i)], at[static_cast<std::size_t>(j)],
                             weights, scale);
    }
  }
  const VectorXd means = cross.transpose() * s.alpha;
  s.lower.triangularView<Eigen::Lower>().solveInPlace(cross);
  for (Eigen::Index j = 0; j < count; ++j) {
    const double variance = scale - cross.col(j).squaredNorm();
    out[static_cast<std::size_t>(j)] = {means(j), std::sqrt(std::max(variance, 1e-14 * scale))};
  }
  return out;
}

Prediction GaussianProcess::predict(const Coordinates& at) const {
  return predict(std::vector<Coordinates>{at}).front();
}

double GaussianProcess::log_posterior(const Hyperparameters& hyper,
                                      std::vector<double>* gradient) const {
  return state_->log_posterior(hyper, gradient);
}

}  // namespace tailor::search
