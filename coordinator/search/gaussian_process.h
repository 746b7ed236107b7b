// A Gaussian process over the coordinates of a space, with numbers, choices and axes that are not
// always active.
//
//   k(x, x') = s^2 (1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r),   r^2 = sum_i delta_i^2 / l_i^2
// Matern 5/2 with one length l_i an axis (ARD). delta_i is the difference of the coordinates of a
// numeric axis; 0 or 1 for a choice; 1 where the axis is active in one of the two points only, 0
// where in none. Observations carry independent noise of variance n^2.
//
// The hyperparameters (log l_i, log s^2, log n^2) maximise the marginal likelihood times weak
// priors
//   log l_i ~ N(log 0.5 + log(d)/4, 1)   log s^2 ~ N(0, 1)   log n^2 ~ N(log 1e-4, 2.5)
// for observations of mean 0 and variance 1, by BFGS from `restarts` starting points, with the
// exact
// gradient (Rasmussen and Williams 2006, 5.9). Cholesky is Eigen's.
//
// Cost: fit O(evaluations m^2 (m + d)) over the m <= kFitMax points it looks at, then n^3 / 3;
// predict O(n^2) a point. Pure and deterministic.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "coordinator/search/space.h"

namespace tailor::search {

struct Hyperparameters {
  std::vector<double> log_lengths;  ///< one an axis
  double log_scale = 0;             ///< log s^2
  double log_noise = -9.2;          ///< log n^2
};

struct Prediction {
  double mean = 0;
  double sd = 0;  ///< of the function, without the noise
};

class GaussianProcess {
 public:
  /// Hyperparameters are fitted to so many points at most: the first of those given.
  static constexpr std::size_t kFitMax = 120;

  /// REQUIRES: x.size() == y.size() > 0; y finite, about mean 0 and variance 1; `x` outlives this.
  /// The first kFitMax points should stand for all.
  GaussianProcess(const Space& space, std::vector<Coordinates> x, std::vector<double> y);
  ~GaussianProcess();
  GaussianProcess(GaussianProcess&&) noexcept;
  GaussianProcess& operator=(GaussianProcess&&) noexcept;

  /// Finds hyperparameters; `seed` draws the starting points. Then as `use`.
  void fit(std::uint64_t seed, int restarts = 2);
  /// Takes them as they are.
  void use(const Hyperparameters& hyper);
  const Hyperparameters& hyperparameters() const;

  /// Adds an observation that equals its prediction: means stay, variance near it falls. REQUIRES:
  /// fit or use.
  void believe(const Coordinates& x);

  std::vector<Prediction> predict(const std::vector<Coordinates>& at) const;
  Prediction predict(const Coordinates& at) const;

  /// Log marginal likelihood plus log prior over the first kFitMax points, and its gradient by
  /// (log l_1 .. log l_d, log s^2, log n^2) where `gradient` is given.
  double log_posterior(const Hyperparameters& hyper, std::vector<double>* gradient = nullptr) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tailor::search
