// Bounds first, then every start descends on its own, then the best is taken.
#include "geometry/gromov_wasserstein.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "geometry/accelerator.h"
#include "geometry/assignment.h"
#include "geometry/kernels.h"
#include "geometry/matrix_isomorphism.h"
#include "geometry/parallel.h"
#include "geometry/sorted_edges.h"

namespace tailor::geometry {
namespace {

using Permutation = std::vector<std::uint32_t>;

// Starts that get pair swaps: all up to this many points,
// beyond it those within this factor of the best.
constexpr std::size_t kAlwaysSwapped = 64;
constexpr double kWorthSwapping = 1.5;
// Restarts run in batches of this many: what they begin with must not depend on the threads.
constexpr int kRestartBatch = 8;
// Entries this close, relative to the largest, are equal when a relabelling is looked for.
constexpr double kEqualEntries = 1e-11;

// x / 2^exponent, in two steps since one power of two alone may be out of range.
class Scaling {
 public:
  explicit Scaling(int exponent)
      : first_(std::ldexp(1.0, -exponent / 2)),
        second_(std::ldexp(1.0, -exponent - -exponent / 2)) {}
  double operator()(double x) const { return x * first_ * second_; }

 private:
  double first_, second_;
};

PaddedRows padded(const DistanceMatrix& matrix, int exponent) {
  PaddedRows rows(matrix.count(), matrix.count());
  const Scaling scaled(exponent);
  for (std::size_t i = 0; i < matrix.count(); ++i) {
    const auto source = matrix.row(i);
    double* target = rows.row(i);
    for (std::size_t j = 0; j < source.size(); ++j) target[j] = scaled(source[j]);
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
  // Column duals to begin with. With Q_j = (B_j,p(k))_k,
  //   M_ij = (|A_i|^2 + |Q_j|^2 - |A_i - Q_j|^2) / 2,
  // and |Q_j| = |B_j| whatever p: with these duals the assignment is one of nearest profiles.
  std::vector<double> dual;
  const Accelerator* accelerator = nullptr;
};

// The entries below the diagonal in ascending order, and every row in ascending order (the
// diagonal's zero first): one sort gives both.
struct SortedMatrix {
  std::vector<double> entries;
  PaddedRows rows;
};

SortedMatrix sorted_matrix(const DistanceMatrix& matrix, std::span<const Edge> order,
                           int exponent) {
  const std::size_t n = matrix.count();
  SortedMatrix sorted{{}, PaddedRows(n, n)};
  sorted.entries.reserve(n * (n - 1) / 2);
  std::vector<double*> next(n);
  for (std::size_t i = 0; i < n; ++i) next[i] = sorted.rows.row(i) + 1;
  std::vector<Edge> own;
  if (order.empty()) {
    own = sorted_edges(matrix, matrix.diameter());
    order = own;
  }
  TAILOR_CHECK(order.size() == n * (n - 1) / 2, "{} edges of {} points", order.size(), n);
  const Scaling scaled(exponent);
  for (const Edge& edge : order) {
    const double value = scaled(matrix(edge.i, edge.j));
    sorted.entries.push_back(value);
    *next[edge.i]++ = value;
    *next[edge.j]++ = value;
  }
  return sorted;
}

// Means over `blocks` runs of ranks, each times the root of its length: then squared differences of
// rows are at most those of the whole rows.
PaddedRows block_means(const PaddedRows& rows, std::size_t blocks) {
  const std::size_t n = rows.count;
  PaddedRows means(n, blocks);
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t from = block * n / blocks, to = (block + 1) * n / blocks;
    const double factor = 1 / std::sqrt(static_cast<double>(to - from));
    for (std::size_t i = 0; i < n; ++i) {
      means.row(i)[block] = factor * std::accumulate(rows.row(i) + from, rows.row(i) + to, 0.0);
    }
  }
  return means;
}

// The diagonal zeros come first on both sides and cancel; every other entry stands for two.
double second_bound(const SortedMatrix& a, const SortedMatrix& b) {
  double sum = 0;
  for (std::size_t k = 0; k < a.entries.size(); ++k) {
    sum += (a.entries[k] - b.entries[k]) * (a.entries[k] - b.entries[k]);
  }
  const double n = static_cast<double>(a.rows.count);
  return 2 * sum / n / n;
}

struct ProfileBound {
  double bound = 0;
  Permutation permutation = {};
};

ProfileBound third_bound(const PaddedRows& a, const PaddedRows& b) {
  const std::size_t n = a.count;
  std::vector<double> cost(n * n);
  constexpr std::size_t kTile = 32;  // rows of either side that stay in cache
  for (std::size_t i = 0; i < n; i += kTile) {
    for (std::size_t j = 0; j < n; j += kTile) {
      squared_differences(a, i, std::min(n, i + kTile), b, j, std::min(n, j + kTile),
                          cost.data() + i * n + j, n);
    }
  }
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

// Tile by tile, so that neither side jumps from row to row for every number.
PaddedRows transpose(const PaddedRows& m) {
  constexpr std::size_t kTile = 16;
  const std::size_t n = m.count;
  PaddedRows result(n, n);
  for (std::size_t i0 = 0; i0 < n; i0 += kTile) {
    for (std::size_t j0 = 0; j0 < n; j0 += kTile) {
      for (std::size_t i = i0; i < std::min(n, i0 + kTile); ++i) {
        for (std::size_t j = j0; j < std::min(n, j0 + kTile); ++j) {
          result.row(j)[i] = m.row(i)[j];
        }
      }
    }
  }
  return result;
}

class Descent {
 public:
  Descent(const Problem& problem, Permutation start)
      : problem_(problem),
        n_(problem.a.count),
        p_(std::move(start)),
        cost_(n_ * n_),
        dual_(problem.dual) {
    energy_ = run_.start_energy = energy_of(problem_.a, problem_.b, p_);
  }

  /// Steps until none helps; with `swaps` also swaps pairs, and steps again while that helps. Stops
  /// early where `known` ended, and begins with its product if that is near.
  void run(int iterations_max, bool swaps, const Descent* known = nullptr) {
    if (known && product_of_.empty() && known->at_vertex_) {
      std::size_t moved = 0;
      for (std::size_t k = 0; k < n_; ++k) moved += p_[k] != known->product_of_[k];
      if (moved <= n_ / 2) {
        product_ = known->product_;
        product_of_ = known->product_of_;
      }
    }
    while (run_.iterations < iterations_max && energy_ > 0) {
      if (known && known->at_vertex_ && p_ == known->p_) break;
      if (!at_vertex_) {
        update_product();
        at_vertex_ = !step();
      } else if (swaps && improve_by_swaps()) {
        at_vertex_ = false;
      } else {
        break;
      }
    }
    run_.energy = energy_;
  }

  /// Gives the matrices back; the permutation and the summary stay. It must not run again.
  void finish() {
    product_ = PaddedRows();
    cost_ = {};
    at_vertex_ = false;  // nobody may begin with its product
  }

  GromovRun& summary() { return run_; }
  double energy() const { return energy_; }
  const Permutation& permutation() const { return p_; }

 private:
  // product_ = A (P B), anew or by what the points that have moved change.
  void update_product() {
    std::vector<std::size_t> moved;
    for (std::size_t k = 0; k < product_of_.size(); ++k) {
      if (p_[k] != product_of_[k]) moved.push_back(k);
    }
    if (product_of_.empty() || moved.size() > n_ / 2) {
      PaddedRows gathered(n_, n_);
      for (std::size_t k = 0; k < n_; ++k) {
        const double* row = problem_.b.row(p_[k]);
        std::copy(row, row + problem_.b.stride, gathered.row(k));
      }
      const Accelerator* device = problem_.accelerator;
      if (device == nullptr || !device->multiply(problem_.a, gathered, product_)) {
        multiply(problem_.a, gathered, product_);
      }
    } else if (!moved.empty()) {
      PaddedRows columns(n_, moved.size()), change(moved.size(), n_);
      for (std::size_t m = 0; m < moved.size(); ++m) {
        const double* column = problem_.a.row(moved[m]);  // A is symmetric
        for (std::size_t i = 0; i < n_; ++i) columns.row(i)[m] = column[i];
        const double* now = problem_.b.row(p_[moved[m]]);
        const double* before = problem_.b.row(product_of_[moved[m]]);
        for (std::size_t j = 0; j < n_; ++j) change.row(m)[j] = now[j] - before[j];
      }
      add_product(columns, change, product_);
    }
    product_of_ = p_;
  }

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

  // Looks at every pair once, tile by tile; at most ends this is all that is needed.
  bool any_swap_helps(double least_gain) const {
    constexpr std::size_t kTile = 32;
    std::vector<double> diagonal(n_);
    for (std::size_t r = 0; r < n_; ++r) diagonal[r] = product_.row(r)[p_[r]];
    for (std::size_t i0 = 0; i0 < n_; i0 += kTile) {
      for (std::size_t j0 = 0; j0 <= i0; j0 += kTile) {
        for (std::size_t i = i0; i < std::min(n_, i0 + kTile); ++i) {
          const double* forth = product_.row(i);
          const double* back = product_.row(j0) + p_[i];
          const double* row_a = problem_.a.row(i);
          const double* row_b = problem_.b.row(p_[i]);
          bool found = false;
          for (std::size_t j = j0; j < std::min(i, j0 + kTile); ++j, back += product_.stride) {
            const double linear = forth[p_[j]] + *back - diagonal[i] - diagonal[j];
            found |= 2 * linear + 4 * row_a[j] * row_b[p_[j]] > least_gain;
          }
          if (found) return true;
        }
      }
    }
    return false;
  }

  // Swaps the best partner of each point while that lowers E; product_ must belong to p_.
  bool improve_by_swaps() {
    const PaddedRows& a = problem_.a;
    const double n = static_cast<double>(n_);
    const double least_gain = 1e-13 * problem_.scale * n * n / 2;
    if (!any_swap_helps(least_gain)) return false;
    // slots(r, s) = M_r,p(s), matched(r, s) = B_p(r),p(s).
    PaddedRows slots(n_, n_);
    std::vector<double> by_slot(n_), factors(n_), diagonal(n_), gains(n_);
    for (std::size_t r = 0; r < n_; ++r) {
      const double* product = product_.row(r);
      for (std::size_t s = 0; s < n_; ++s) slots.row(r)[s] = product[p_[s]];
      diagonal[r] = slots.row(r)[r];
    }
    PaddedRows matched(n_, n_), transposed = transpose(slots);
    for (std::size_t r = 0; r < n_; ++r) {
      const double* row_b = problem_.b.row(p_[r]);
      for (std::size_t s = 0; s < n_; ++s) matched.row(r)[s] = row_b[p_[s]];
    }
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
      const double own = diagonal[i];
      for (std::size_t j = 0; j < n_; ++j) {
        const double linear = forth[j] + back[j] - own - diagonal[j];
        gains[j] = 2 * linear + 4 * row_a[j] * row_b[j];
      }
      for (std::size_t j = 0; j < n_; ++j) {
        if (gains[j] > best) {
          best = gains[j];
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
  PaddedRows product_;
  Permutation product_of_;  // which permutation product_ belongs to; empty: none
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

// `p` with a quarter of its points, at least three, shuffled among themselves.
Permutation kicked(const Permutation& p, Rng rng) {
  const std::size_t n = p.size(), moved = std::min(n, std::max<std::size_t>(3, n / 4));
  Permutation places = identity(n), result = p;
  for (std::size_t k = 0; k < moved; ++k) {
    std::swap(places[k], places[k + static_cast<std::size_t>(rng.below(n - k))]);
  }
  for (std::size_t k = moved; k > 1; --k) {
    std::swap(result[places[k - 1]], result[places[static_cast<std::size_t>(rng.below(k))]]);
  }
  return result;
}

}  // namespace

double gromov_memory_bytes(std::size_t points, const GromovOptions& options) {
  const double n = static_cast<double>(points);
  const double square = 8 * n * static_cast<double>(PaddedRows::padded_width(points));
  // The identity, the profile, the product and the refinement; restarts take the place of others.
  const double starts = options.identity_only ? 1 : 4 + options.random_starts;
  // Both matrices, scaled; then, first, both sorted (rows, entries, and while one of them is made
  // two lists of edges) with a cost matrix, later a cost matrix and a product a start and, while a
  // thread swaps pairs, three more.
  const double sorted = options.identity_only ? 0 : 4.5 * square;
  const double descents =
      2 * starts * square + 3 * std::min<double>(starts, options.threads) * square;
  return 2 * square + std::max(sorted, descents) + 100 * n * starts;
}

double gromov_energy(const DistanceMatrix& a, const DistanceMatrix& b,
                     const Permutation& permutation) {
  return energy_of(padded(a, 0), padded(b, 0), permutation);
}

Result<GromovResult> gromov_wasserstein(const DistanceMatrix& a, const DistanceMatrix& b,
                                        const GromovOptions& options, const GromovOrders& orders) {
  if (options.random_starts < 0 || options.restarts < 0 || options.iterations_max < 1 ||
      options.threads < 1) {
    return error(
        Code::kInvalidArgument,
        fmt::format("Gromov-Wasserstein: random starts ({}) and restarts ({}) must be at least 0, "
                    "iterations ({}) and threads ({}) at least 1",
                    options.random_starts, options.restarts, options.iterations_max,
                    options.threads));
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
  if (n > kEdgePointsMax) {
    return error(Code::kInvalidArgument,
                 fmt::format("Gromov-Wasserstein: {} points are more than {}; take a subsample", n,
                             kEdgePointsMax));
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
  problem.accelerator = options.accelerator;
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

  problem.dual.resize(n);
  for (std::size_t j = 0; j < n; ++j) {
    const double* row = problem.b.row(j);
    problem.dual[j] = -std::inner_product(row, row + n, row, 0.0) / 2;
  }
  const double norm_difference = std::sqrt(square_a) - std::sqrt(square_b);
  const double bound_norm = norm_difference * norm_difference;
  const bool search = !options.identity_only;
  double bound_second = 0;
  ProfileBound profile;
  if (search) {
    const SortedMatrix sorted_a = sorted_matrix(a, orders.a, exponent);
    const SortedMatrix sorted_b = sorted_matrix(b, orders.b, exponent);
    bound_second = second_bound(sorted_a, sorted_b);
    const std::size_t blocks = options.profile_blocks;
    profile = blocks == 0 || blocks >= n ? third_bound(sorted_a.rows, sorted_b.rows)
                                         : third_bound(block_means(sorted_a.rows, blocks),
                                                       block_means(sorted_b.rows, blocks));
  }
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
  if (search) starts.push_back({"profile", std::move(profile.permutation)});

  std::vector<std::optional<Descent>> descents;
  double lowest = std::numeric_limits<double>::infinity();
  const auto descend = [&](std::size_t from, std::size_t to) {
    descents.resize(to);
    parallel_for(options.threads, to - from, [&](std::size_t item) {
      const std::size_t s = from + item;
      descents[s].emplace(problem, std::move(starts[s].permutation));
      descents[s]->summary().start = starts[s].name;
      // Many starts come to where the identity comes to.
      descents[s]->run(options.iterations_max, false, s > 0 ? &*descents[0] : nullptr);
    });
    for (std::size_t s = from; s < to; ++s) lowest = std::min(lowest, descents[s]->energy());
  };
  // Swaps are dear: only what has a chance of winning is worth them, or what is small. What ended
  // at the same permutation would only be swapped in the same way.
  const auto polish = [&](std::size_t from, std::size_t to) {
    std::vector<char> worth(to, 0);
    for (std::size_t s = from; s < to; ++s) {
      worth[s] = n <= kAlwaysSwapped || descents[s]->energy() <= kWorthSwapping * lowest;
      for (std::size_t earlier = 0; earlier < s && worth[s]; ++earlier) {
        worth[s] = descents[s]->permutation() != descents[earlier]->permutation();
      }
    }
    parallel_for(options.threads, to - from, [&](std::size_t item) {
      if (worth[from + item]) descents[from + item]->run(options.iterations_max, true);
    });
    for (std::size_t s = from; s < to; ++s) lowest = std::min(lowest, descents[s]->energy());
  };
  const auto lowest_start = [&descents] {
    std::size_t best = 0;
    for (std::size_t s = 1; s < descents.size(); ++s) {
      if (descents[s]->energy() < descents[best]->energy()) best = s;
    }
    return best;
  };
  const auto open = [&] { return search && !meets_bound(lowest); };
  const bool may_be_copy = bound <= 1e-13 * problem.scale;
  descend(0, 1);
  if (open()) descend(1, 2);
  if (open() && may_be_copy) {
    // No bound tells the two sides apart: they may be one, relabelled.
    const double size = static_cast<double>(n);
    Isomorphism copy = find_isomorphism(a, b, kEqualEntries * largest,
                                        1e8 + 64 * size * size * std::log2(size + 1));
    result.no_copy = copy.complete;
    if (copy.found) {
      starts.push_back({"refinement", std::move(copy.permutation)});
      descend(2, 3);
    }
  }
  if (open()) {
    bool agreed = false;
    std::size_t polished = 0;
    if (options.until_agreed) {
      polish(0, starts.size());
      polished = starts.size();
      agreed = std::abs(descents[0]->energy() - descents[1]->energy()) <= 1e-13 * problem.scale;
    }
    if (!agreed && open()) {
      const std::size_t from = starts.size();
      starts.push_back({"product", product_start(problem)});
      for (int k = 0; k < options.random_starts; ++k) {
        const std::string name = fmt::format("random {}", k);
        starts.push_back({name, random_permutation(n, Rng::split(options.seed, "gromov " + name))});
      }
      descend(from, starts.size());
      if (open()) polish(polished, starts.size());
      const int restarts = n <= kRestartedMax || may_be_copy ? options.restarts : 0;
      // No more at a time than there were starts, whose matrices are not needed any more.
      const int batch = std::min(kRestartBatch, options.random_starts + 2);
      for (std::size_t s = 1; s < starts.size(); ++s) descents[s]->finish();
      for (int done = 0; done < restarts && open();) {
        const std::size_t first = starts.size();
        const Permutation& best_so_far = descents[lowest_start()]->permutation();
        for (int k = 0; k < batch && done < restarts; ++k, ++done) {
          const std::string name = fmt::format("restart {}", done);
          starts.push_back({name, kicked(best_so_far, Rng::split(options.seed, "gromov " + name))});
        }
        descend(first, starts.size());
        if (open()) polish(first, starts.size());
        for (std::size_t s = first; s < starts.size(); ++s) descents[s]->finish();
      }
    }
  }
  const std::size_t best = lowest_start();
  for (std::optional<Descent>& descent : descents) {
    GromovRun run = descent->summary();
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
