// Bounds first, then every start descends on its own, then the best is taken.
#include "geometry/gromov_wasserstein.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/rng.h"
#include "geometry/assignment.h"
#include "geometry/kernels.h"
#include "geometry/parallel.h"

namespace tailor::geometry {
namespace {

using Permutation = std::vector<std::uint32_t>;

// Starts that get pair swaps: all up to this many points, beyond it those within this factor of the
// best.
constexpr std::size_t kAlwaysSwapped = 64;
constexpr double kWorthSwapping = 1.5;

PaddedRows padded(const DistanceMatrix& matrix, int exponent) {
  PaddedRows rows(matrix.count(), matrix.count());
  for (std::size_t i = 0; i < matrix.count(); ++i) {
    const auto source = matrix.row(i);
    double* target = rows.row(i);
    for (std::size_t j = 0; j < source.size(); ++j) target[j] = std::ldexp(source[j], -exponent);
  }
  return rows;
}

double mean_square(const PaddedRows& m) {
  double sum = 0;
  for (std::size_t i = 0; i < m.count; ++i) {
    double row = 0;
    for (std::size_t j = 0; j < m.count; ++j) row += m.row(i)[j] * m.row(i)[j];
    sum += row;
  }
  const double n = static_cast<double>(m.count);
  return m.count == 0 ? 0 : sum / n / n;
}

double energy_of(const PaddedRows& a, const PaddedRows& b, const Permutation& p) {
  const std::size_t n = a.count;
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double* row_a = a.row(i);
    const double* row_b = b.row(p[i]);
    double row = 0;
    for (std::size_t k = 0; k < i; ++k) {
      const double difference = row_a[k] - row_b[p[k]];
      row += difference * difference;
    }
    sum += row;
  }
  return n == 0 ? 0 : 2 * sum / static_cast<double>(n) / static_cast<double>(n);
}

// Everything the starts share.
struct Problem {
  PaddedRows a, b;
  double scale = 0;  // mean A^2 + mean B^2: what an energy is compared with
};

std::vector<double> sorted_entries(const PaddedRows& m) {
  std::vector<double> entries;
  entries.reserve(m.count * (m.count - 1) / 2);
  for (std::size_t i = 1; i < m.count; ++i) {
    entries.insert(entries.end(), m.row(i), m.row(i) + i);
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// The diagonal zeros come first on both sides and cancel; every other entry stands for two.
double second_bound(const Problem& problem) {
  const std::vector<double> x = sorted_entries(problem.a), y = sorted_entries(problem.b);
  double sum = 0;
  for (std::size_t k = 0; k < x.size(); ++k) sum += (x[k] - y[k]) * (x[k] - y[k]);
  const double n = static_cast<double>(problem.a.count);
  return 2 * sum / n / n;
}

PaddedRows sorted_rows(PaddedRows rows) {
  for (std::size_t i = 0; i < rows.count; ++i) std::sort(rows.row(i), rows.row(i) + rows.count);
  return rows;
}

struct ProfileBound {
  double bound;
  Permutation permutation;
};

ProfileBound third_bound(const Problem& problem) {
  const std::size_t n = problem.a.count;
  std::vector<double> cost(n * n);
  squared_differences(sorted_rows(problem.a), 0, n, sorted_rows(problem.b), 0, n, cost.data(), n);
  Assignment assignment = solve_assignment(cost, n);
  const double scale = static_cast<double>(n);
  return {std::max(assignment.lower_bound, 0.0) / scale / scale,
          std::move(assignment.column_of_row)};
}

// The first step from the product coupling: the points in the order of their mean distance.
Permutation product_start(const Problem& problem) {
  const std::size_t n = problem.a.count;
  const auto order = [n](const PaddedRows& m) {
    std::vector<double> mean(n);
    for (std::size_t i = 0; i < n; ++i) mean[i] = std::accumulate(m.row(i), m.row(i) + n, 0.0);
    Permutation indices(n);
    std::iota(indices.begin(), indices.end(), 0u);
    std::stable_sort(indices.begin(), indices.end(),
                     [&mean](std::uint32_t x, std::uint32_t y) { return mean[x] < mean[y]; });
    return indices;
  };
  const Permutation by_a = order(problem.a), by_b = order(problem.b);
  Permutation p(n);
  for (std::size_t k = 0; k < n; ++k) p[by_a[k]] = by_b[k];
  return p;
}

class Descent {
 public:
  Descent(const Problem& problem, Permutation start)
      : problem_(problem),
        n_(problem.a.count),
        p_(std::move(start)),
        gathered_(n_, n_),
        cost_(n_ * n_) {
    energy_ = run_.start_energy = energy_of(problem_.a, problem_.b, p_);
  }

  /// Steps until none helps; with `swaps` also swaps pairs, and steps again while that helps.
  void run(int iterations_max, bool swaps) {
    while (run_.iterations < iterations_max && energy_ > 0) {
      if (!at_vertex_) {
        for (std::size_t k = 0; k < n_; ++k) {
          const double* row = problem_.b.row(p_[k]);
          std::copy(row, row + problem_.b.stride, gathered_.row(k));
        }
        multiply(problem_.a, gathered_, product_);
        at_vertex_ = !step();
      } else if (swaps && improve_by_swaps()) {
        at_vertex_ = false;
      } else {
        break;
      }
    }
    run_.energy = energy_;
  }

  GromovRun& summary() { return run_; }
  double energy() const { return energy_; }
  const Permutation& permutation() const { return p_; }

 private:
  // One conditional-gradient step; false when it does not lead anywhere lower.
  bool step() {
    double current = 0;
    for (std::size_t i = 0; i < n_; ++i) {
      const double* row = product_.row(i);
      for (std::size_t j = 0; j < n_; ++j) cost_[i * n_ + j] = -row[j];
      current += row[p_[i]];
    }
    Assignment assignment = solve_assignment(cost_, n_, dual_);
    dual_ = std::move(assignment.column_dual);
    ++run_.iterations;
    const double n = static_cast<double>(n_);
    const double gain = 4 * (-assignment.cost - current) / (n * n);
    if (!(gain > 1e-14 * problem_.scale)) return false;
    const double next = energy_of(problem_.a, problem_.b, assignment.column_of_row);
    if (!(next < energy_)) return false;
    p_ = std::move(assignment.column_of_row);
    energy_ = next;
    return true;
  }

  // Swaps the best partner of each point while that lowers E; product_ must belong to p_.
  bool improve_by_swaps() {
    // slots(r, s) = M_r,p(s), also transposed so that both are read along rows; matched =
    // B_p(r),p(s).
    PaddedRows slots(n_, n_), transposed(n_, n_), matched(n_, n_);
    for (std::size_t r = 0; r < n_; ++r) {
      for (std::size_t s = 0; s < n_; ++s) {
        slots.row(r)[s] = product_.row(r)[p_[s]];
        transposed.row(s)[r] = product_.row(r)[p_[s]];
        matched.row(r)[s] = problem_.b.row(p_[r])[p_[s]];
      }
    }
    const PaddedRows& a = problem_.a;
    const double n = static_cast<double>(n_);
    const double least_gain = 1e-13 * problem_.scale * n * n / 2;
    std::vector<double> by_slot(n_), factors(n_), diagonal(n_);
    for (std::size_t r = 0; r < n_; ++r) diagonal[r] = slots.row(r)[r];
    int swaps = 0;
    std::size_t since_last = 0;  // points looked at without finding anything
    for (std::size_t i = 0; since_last < n_ && swaps < 50 * static_cast<int>(n_);
         i = (i + 1) % n_) {
      double best = least_gain;
      std::size_t partner = i;
      const double* forth = slots.row(i);
      const double* back = transposed.row(i);
      const double* row_a = a.row(i);
      const double* row_b = matched.row(i);
      for (std::size_t j = 0; j < n_; ++j) {
        const double linear = forth[j] + back[j] - diagonal[i] - diagonal[j];
        const double gain = 2 * linear + 4 * row_a[j] * row_b[j];
        if (gain > best) {
          best = gain;
          partner = j;
        }
      }
      if (partner == i) {
        ++since_last;
        continue;
      }
      since_last = 0;
      ++swaps;
      const std::size_t j = partner;
      for (std::size_t s = 0; s < n_; ++s) {
        by_slot[s] = matched.row(j)[s] - matched.row(i)[s];
        factors[s] = a.row(i)[s] - a.row(j)[s];
      }
      for (std::size_t r = 0; r < n_; ++r) {
        double* row = slots.row(r);
        double* column = transposed.row(r);
        const double factor = factors[r], slot = by_slot[r];
        for (std::size_t s = 0; s < n_; ++s) row[s] += factor * by_slot[s];
        for (std::size_t s = 0; s < n_; ++s) column[s] += slot * factors[s];
        std::swap(row[i], row[j]);
      }
      std::swap_ranges(transposed.row(i), transposed.row(i) + n_, transposed.row(j));
      for (std::size_t r = 0; r < n_; ++r) diagonal[r] = slots.row(r)[r];
      std::swap_ranges(matched.row(i), matched.row(i) + n_, matched.row(j));
      for (std::size_t r = 0; r < n_; ++r) std::swap(matched.row(r)[i], matched.row(r)[j]);
      std::swap(p_[i], p_[j]);
    }
    if (swaps == 0) return false;
    run_.swaps += swaps;
    const double next = energy_of(problem_.a, problem_.b, p_);
    const bool lower = next < energy_;
    energy_ = next;
    return lower;
  }

  const Problem& problem_;
  std::size_t n_;
  Permutation p_;
  PaddedRows gathered_, product_;
  std::vector<double> cost_, dual_;
  double energy_ = 0;
  bool at_vertex_ = false;  // no step leads lower, and product_ belongs to p_
  GromovRun run_;
};

Permutation identity(std::size_t n) {
  Permutation p(n);
  std::iota(p.begin(), p.end(), 0u);
  return p;
}

Permutation random_permutation(std::size_t n, Rng rng) {
  Permutation p = identity(n);
  for (std::size_t i = n; i > 1; --i) {
    std::swap(p[i - 1], p[static_cast<std::size_t>(rng.below(i))]);
  }
  return p;
}

}  // namespace

double gromov_energy(const DistanceMatrix& a, const DistanceMatrix& b,
                     const Permutation& permutation) {
  return energy_of(padded(a, 0), padded(b, 0), permutation);
}

Result<GromovResult> gromov_wasserstein(const DistanceMatrix& a, const DistanceMatrix& b,
                                        const GromovOptions& options) {
  if (options.random_starts < 0 || options.iterations_max < 1 || options.threads < 1) {
    return error(
        Code::kInvalidArgument,
        fmt::format("Gromov-Wasserstein: random starts ({}) must be at least 0, iterations "
                    "({}) and threads ({}) at least 1",
                    options.random_starts, options.iterations_max, options.threads));
  }
  const std::size_t n = a.count();
  const bool one_point = (n == 1 || b.count() == 1) && n > 0 && b.count() > 0;
  if (n != b.count() && !one_point) {
    return error(
        Code::kInvalidArgument,
        fmt::format("Gromov-Wasserstein: both sides need the same number of points, got {} "
                    "and {}; subsample the larger one",
                    n, b.count()));
  }
  GromovResult result;
  const double largest = std::max(a.diameter(), b.diameter());
  result.permutation = identity(n);
  result.start = "identity";
  if (n == 0 || largest == 0) {
    result.certified = true;
    return result;
  }
  const int exponent = std::ilogb(largest) + 1;
  Problem problem;
  problem.a = padded(a, exponent);
  problem.b = padded(b, exponent);
  const double square_a = mean_square(problem.a), square_b = mean_square(problem.b);
  problem.scale = square_a + square_b;
  const auto unscaled = [exponent](double energy) { return std::ldexp(energy, 2 * exponent); };
  if (one_point) {
    result.energy = result.identity_energy = result.lower_bound = unscaled(problem.scale);
    result.norm_lower_bound = result.second_lower_bound = result.third_lower_bound = result.energy;
    result.value = std::ldexp(std::sqrt(problem.scale), exponent);
    result.certified = true;
    return result;
  }

  const double norm_difference = std::sqrt(square_a) - std::sqrt(square_b);
  const double bound_norm = norm_difference * norm_difference;
  const double bound_second = second_bound(problem);
  ProfileBound profile = third_bound(problem);
  const double bound = std::max({bound_norm, bound_second, profile.bound});
  const auto meets_bound = [&problem, bound](double energy) {
    return energy - bound <= 1e-13 * problem.scale;
  };

  struct Start {
    std::string name;
    Permutation permutation;
  };
  std::vector<Start> starts;
  starts.push_back({"identity", identity(n)});
  starts.push_back({"profile", std::move(profile.permutation)});
  starts.push_back({"product", product_start(problem)});
  for (int k = 0; k < options.random_starts; ++k) {
    const std::string name = fmt::format("random {}", k);
    starts.push_back({name, random_permutation(n, Rng::split(options.seed, "gromov " + name))});
  }

  std::vector<std::optional<Descent>> descents(starts.size());
  const auto descend = [&](std::size_t s) {
    descents[s].emplace(problem, std::move(starts[s].permutation));
    descents[s]->summary().start = starts[s].name;
    descents[s]->run(options.iterations_max, false);
  };
  descend(0);
  const bool proven = meets_bound(descents[0]->summary().energy);
  if (!proven) {
    parallel_for(options.threads, starts.size() - 1, [&](std::size_t s) { descend(s + 1); });
  }
  // Swaps are dear: only what has a chance of winning is worth them, or what is small.
  double lowest = descents[0]->summary().energy;
  for (const auto& descent : descents) {
    if (descent) lowest = std::min(lowest, descent->energy());
  }
  if (!meets_bound(lowest)) {
    parallel_for(options.threads, descents.size(), [&](std::size_t s) {
      if (n <= kAlwaysSwapped || descents[s]->summary().energy <= kWorthSwapping * lowest) {
        descents[s]->run(options.iterations_max, true);
      }
    });
  }
  std::size_t best = 0;
  for (std::size_t s = 0; s < descents.size(); ++s) {
    if (!descents[s]) continue;
    if (descents[s]->summary().energy < descents[best]->summary().energy) best = s;
    GromovRun run = descents[s]->summary();
    run.start_energy = unscaled(run.start_energy);
    run.energy = unscaled(run.energy);
    result.runs.push_back(std::move(run));
  }
  const double energy = descents[best]->summary().energy;
  result.energy = unscaled(energy);
  result.value = std::ldexp(std::sqrt(energy), exponent);
  result.identity_energy = result.runs[0].start_energy;
  result.norm_lower_bound = unscaled(std::min(bound_norm, energy));
  result.second_lower_bound = unscaled(std::min(bound_second, energy));
  result.third_lower_bound = unscaled(std::min(profile.bound, energy));
  result.lower_bound = unscaled(std::min(bound, energy));
  result.certified = meets_bound(energy);
  result.start = starts[best].name;
  result.permutation = descents[best]->permutation();
  return result;
}

}  // namespace tailor::geometry
