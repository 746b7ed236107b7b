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
// Coordinates up to which distances are made for many columns at a time.
constexpr std::size_t kAcrossMax = 64;
// From this many points on costs are bounded before they are computed.
constexpr std::size_t kSketchedMin = 48;
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

// One row a column of `m`, its padding included. Tile by tile, so that neither side jumps from row
// to row for every number.
PaddedRows transpose(const PaddedRows& m) {
  constexpr std::size_t kTile = 16;
  PaddedRows result(m.stride, m.count);
  for (std::size_t i0 = 0; i0 < m.count; i0 += kTile) {
    for (std::size_t j0 = 0; j0 < m.stride; j0 += kTile) {
      for (std::size_t i = i0; i < std::min(m.count, i0 + kTile); ++i) {
        for (std::size_t j = j0; j < std::min(m.stride, j0 + kTile); ++j) {
          result.row(j)[i] = m.row(i)[j];
        }
      }
    }
  }
  return result;
}

// (A_i,q(k))_k, row i of A with its columns in the order of q.
void reorder(const double* row, const Permutation& q, double* out) {
  for (std::size_t k = 0; k < q.size(); ++k) out[k] = row[q[k]];
}

bool is_identity(const Permutation& p) {
  for (std::size_t k = 0; k < p.size(); ++k) {
    if (p[k] != k) return false;
  }
  return true;
}

double energy_of(const PaddedRows& a, const PaddedRows& b, const Permutation& p) {
  const std::size_t n = a.count;
  const bool as_it_is = is_identity(p);
  PaddedRows row(1, n);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double* matched = b.row(p[i]);
    if (!as_it_is) {
      reorder(matched, p, row.row(0));
      matched = row.row(0);
    }
    sum += squared_difference(a.row(i), matched, a.stride);
  }
  return n == 0 ? 0 : sum / static_cast<double>(n) / static_cast<double>(n);
}

// Coordinates of rows in which their distances are nearly all there is: the parts along
// kPivots directions, and the length of what is left over. With V the directions,
//   |x - y|^2 >= |V'x - V'y|^2 + (|x - V V'x| - |y - V V'y|)^2.
// Rows of a distance matrix have few directions: the directions are the rows of points far apart.
constexpr std::size_t kPivots = 7;

struct Sketch {
  PaddedRows directions;  // n rows of kPivots numbers
  PaddedRows of_a;        // the sketch of A: n rows of kPivots + 1
};

std::vector<double> square_norms(const PaddedRows& m) {
  const PaddedRows zero(1, m.stride);
  std::vector<double> norms(m.count);
  for (std::size_t i = 0; i < m.count; ++i) {
    norms[i] = squared_difference(m.row(i), zero.row(0), m.stride);
  }
  return norms;
}

// Sketches of the rows of `m`, columns in the order in which `directions` has its rows.
PaddedRows sketch_of(const PaddedRows& m, const PaddedRows& directions,
                     const std::vector<double>& squares) {
  PaddedRows sketch(m.count, kPivots + 1);
  add_product(m, directions, sketch);
  for (std::size_t i = 0; i < m.count; ++i) {
    double* row = sketch.row(i);
    double along = 0;
    for (std::size_t k = 0; k < kPivots; ++k) along += row[k] * row[k];
    row[kPivots] = std::sqrt(std::max(squares[i] - along, 0.0));
  }
  return sketch;
}

Sketch make_sketch(const PaddedRows& a, const std::vector<double>& squares) {
  const std::size_t n = a.count;
  std::vector<std::vector<double>> basis;
  // The first pivot is a point that is far from all, each other one the farthest from those before.
  std::vector<double> apart(n, std::numeric_limits<double>::infinity());
  std::size_t pivot =
      static_cast<std::size_t>(std::max_element(squares.begin(), squares.end()) - squares.begin());
  for (std::size_t k = 0; k < std::min(kPivots, n); ++k) {
    std::vector<double> direction(a.row(pivot), a.row(pivot) + n);
    const double length = std::sqrt(squares[pivot]);
    for (int pass = 0; pass < 2; ++pass) {  // the second makes up for rounding
      for (const std::vector<double>& other : basis) {
        const double along = std::inner_product(other.begin(), other.end(), direction.begin(), 0.0);
        for (std::size_t i = 0; i < n; ++i) direction[i] -= along * other[i];
      }
    }
    const double left =
        std::sqrt(std::inner_product(direction.begin(), direction.end(), direction.begin(), 0.0));
    if (left > 1e-6 * length) {
      for (double& x : direction) x /= left;
      basis.push_back(std::move(direction));
    }
    for (std::size_t i = 0; i < n; ++i) apart[i] = std::min(apart[i], a.row(pivot)[i]);
    pivot = static_cast<std::size_t>(std::max_element(apart.begin(), apart.end()) - apart.begin());
  }
  Sketch sketch{PaddedRows(n, kPivots + 1), {}};
  for (std::size_t k = 0; k < basis.size(); ++k) {
    for (std::size_t i = 0; i < n; ++i) sketch.directions.row(i)[k] = basis[k][i];
  }
  sketch.of_a = sketch_of(a, sketch.directions, squares);
  return sketch;
}

// Everything the starts share.
struct Problem {
  PaddedRows a, b;
  double scale = 0;                          // mean A^2 + mean B^2: what an energy is compared with
  std::vector<double> squares_a, squares_b;  // |A_i|^2, |B_j|^2
  std::optional<Sketch> sketch;              // none: costs are computed all at once
  const Accelerator* accelerator = nullptr;
};

// The entries below the diagonal in ascending order, and every row in ascending order (the
// diagonal's zero first): one walk over the sorted edges gives both. With blocks, means over so
// many runs of ranks in place of a row, each times the root of its length: then squared differences
// of rows are at most those of the whole rows.
struct SortedMatrix {
  PaddedRows entries;  // one row
  PaddedRows rows;
};

SortedMatrix sorted_matrix(const DistanceMatrix& matrix, std::span<const Edge> order, int exponent,
                           std::size_t blocks) {
  const std::size_t n = matrix.count();
  std::vector<Edge> own;
  if (order.empty()) {
    own = sorted_edges(matrix, matrix.diameter());
    order = own;
  }
  TAILOR_CHECK(order.size() == n * (n - 1) / 2, "{} edges of {} points", order.size(), n);
  if (blocks == 0 || blocks > n) blocks = n;
  SortedMatrix sorted{PaddedRows(1, order.size()), PaddedRows(n, blocks)};
  std::vector<std::uint32_t> block_of(n + 1), rank(n, 1);
  std::vector<double> factor(blocks);
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::size_t from = block * n / blocks, to = (block + 1) * n / blocks;
    factor[block] = 1 / std::sqrt(static_cast<double>(to - from));
    for (std::size_t k = from; k < to; ++k) block_of[k] = static_cast<std::uint32_t>(block);
  }
  const Scaling scaled(exponent);
  double* entry = sorted.entries.row(0);
  double* rows = sorted.rows.row(0);
  const std::size_t stride = sorted.rows.stride;
  for (const Edge& edge : order) {
    const double value = scaled(matrix(edge.i, edge.j));
    *entry++ = value;
    rows[edge.i * stride + block_of[rank[edge.i]++]] += value;
    rows[edge.j * stride + block_of[rank[edge.j]++]] += value;
  }
  for (std::size_t i = 0; i < n && blocks < n; ++i) {
    for (std::size_t block = 0; block < blocks; ++block) rows[i * stride + block] *= factor[block];
  }
  return sorted;
}

// The diagonal zeros come first on both sides and cancel; every other entry stands for two.
double second_bound(const SortedMatrix& a, const SortedMatrix& b) {
  const double n = static_cast<double>(a.rows.count);
  return 2 * squared_difference(a.entries.row(0), b.entries.row(0), a.entries.stride) / n / n;
}

struct ProfileBound {
  double bound = 0;
  Permutation permutation = {};
};

ProfileBound third_bound(const PaddedRows& a, const PaddedRows& b) {
  const std::size_t n = a.count;
  PaddedRows cost(n, n);
  if (a.stride <= kAcrossMax) {
    squared_differences_across(a, transpose(b), cost);
  } else {
    constexpr std::size_t kTile = 32;  // rows of either side that stay in cache
    for (std::size_t i = 0; i < n; i += kTile) {
      for (std::size_t j = 0; j < n; j += kTile) {
        squared_differences(a, i, std::min(n, i + kTile), b, j, std::min(n, j + kTile),
                            cost.row(i) + j, cost.stride);
      }
    }
  }
  // For tokens that correspond, half of what the identity costs is near the best duals.
  std::vector<double> dual(n);
  for (std::size_t j = 0; j < n; ++j) dual[j] = cost.row(j)[j] / 2;
  Assignment assignment = solve_assignment(cost.values, n, dual, cost.stride);
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

// What a step asks for: the costs of matching point i of A with point j of B while all others are
// matched by p,
//   H_ij = |A_i - Q_j|^2 / 2,  Q_j = (B_j,p(k))_k;
// the least assignment of H is the largest of A (P B), since |Q_j| = |B_j|. Most entries are only
// bounded from below: what is near enough to matter is known exactly.
class Costs {
 public:
  explicit Costs(const Problem& problem) : problem_(&problem), n_(problem.a.count) {}

  bool empty() const { return of_.empty(); }
  const Permutation& of() const { return of_; }
  std::size_t count() const { return n_; }
  const PaddedRows& bounds() const { return bounds_; }
  /// H is known whole.
  bool whole() const { return exact_.empty(); }
  bool exact(std::size_t i, std::size_t j) const { return whole() || exact_[i * n_ + j] != 0; }
  const std::vector<char>& exact_flags() const { return exact_; }
  void release() { *this = Costs(*problem_); }

  /// Belongs to `p` from now on: anew, or changed by what the points that have moved change.
  void belong_to(const Permutation& p) {
    std::vector<std::size_t> moved;
    for (std::size_t k = 0; k < of_.size(); ++k) {
      if (p[k] != of_[k]) moved.push_back(k);
    }
    const bool anew = empty() || moved.size() > changed_max();
    if (!anew && moved.empty()) return;
    if (anew) {
      set(p);
      problem_->sketch ? bound() : compute();
      return;
    }
    PaddedRows columns(n_, moved.size()), change(moved.size(), n_);
    for (std::size_t m = 0; m < moved.size(); ++m) {
      const double* column = problem_->a.row(moved[m]);  // A is symmetric
      for (std::size_t i = 0; i < n_; ++i) columns.row(i)[m] = column[i];
      const double* now = problem_->b.row(p[moved[m]]);
      const double* before = problem_->b.row(of_[moved[m]]);
      for (std::size_t j = 0; j < n_; ++j) change.row(m)[j] = before[j] - now[j];
    }
    // Exact for every entry, so a bound stays a bound.
    add_product(columns, change, bounds_);
    set(p);
    refine();
  }

  /// Points that may move before costs are cheaper anew: bounds are cheap, products are not.
  std::size_t changed_max() const { return problem_->sketch ? n_ / 10 : n_ / 2; }

  /// Makes sure that the entry is exact; false when it was already.
  bool know(std::size_t i, std::size_t j) {
    if (exact(i, j)) return false;
    bounds_.row(i)[j] = squared_difference(row_in_order(i), problem_->b.row(j), bounds_.stride) / 2;
    exact_[i * n_ + j] = 1;
    ++known_;
    return true;
  }
  /// So many entries were asked for that the whole is cheaper.
  bool worn() const { return !whole() && known_ > n_ * n_ / kWornShare; }
  /// All of H by one product.
  void compute() {
    exact_ = {};
    PaddedRows gathered(n_, n_);
    for (std::size_t k = 0; k < n_; ++k) {
      const double* row = problem_->b.row(of_[k]);
      std::copy(row, row + problem_->b.stride, gathered.row(k));
    }
    const Accelerator* device = problem_->accelerator;
    if (device == nullptr || !device->multiply(problem_->a, gathered, bounds_)) {
      multiply(problem_->a, gathered, bounds_);
    }
    for (std::size_t i = 0; i < n_; ++i) {
      double* row = bounds_.row(i);
      for (std::size_t j = 0; j < n_; ++j) {
        row[j] = (problem_->squares_a[i] + problem_->squares_b[j]) / 2 - row[j];
      }
    }
  }

 private:
  // Beyond a share of 1 / 10 one product is cheaper than entry by entry.
  static constexpr std::size_t kWornShare = 10;
  // Bounds give this share away, and this many roundings of a row's square, which is more than
  // rounding can have added to them: with e the error of a sketch, sqrt(L) - e squared is at least
  // (1 - t) L - e^2 / t for any t.
  static constexpr double kGivenShare = 1e-3, kGivenRounding = 16 * 0x1p-52 / kGivenShare;

  void set(const Permutation& p) {
    of_ = p;
    inverse_.resize(n_);
    for (std::size_t k = 0; k < n_; ++k) inverse_[p[k]] = static_cast<std::uint32_t>(k);
    identity_ = is_identity(p);
    row_held_ = n_;
  }

  // A_i in the order in which H compares it with rows of B.
  const double* row_in_order(std::size_t i) {
    if (identity_) return problem_->a.row(i);
    if (row_held_ != i) {
      if (row_.count == 0) row_ = PaddedRows(1, n_);
      reorder(problem_->a.row(i), inverse_, row_.row(0));
      row_held_ = i;
    }
    return row_.row(0);
  }

  void bound() {
    PaddedRows directions(n_, kPivots + 1);
    for (std::size_t k = 0; k < n_; ++k) {
      const double* from = problem_->sketch->directions.row(k);
      std::copy(from, from + directions.stride, directions.row(of_[k]));
    }
    const PaddedRows of_b = sketch_of(problem_->b, directions, problem_->squares_b);
    if (bounds_.count != n_) bounds_ = PaddedRows(n_, n_);
    exact_.assign(n_ * n_, 0);
    known_ = 0;
    squared_differences_across(problem_->sketch->of_a, transpose(of_b), bounds_);
    for (std::size_t i = 0; i < n_; ++i) {
      double* row = bounds_.row(i);
      const double own = problem_->squares_a[i];
      for (std::size_t j = 0; j < n_; ++j) {
        const double safe =
            (1 - kGivenShare) * row[j] - kGivenRounding * (own + problem_->squares_b[j]);
        row[j] = std::max(safe, 0.0) / 2;
      }
    }
    refine();
  }

  // Of the pairs in hand every cost is known, and of the others those that cost less than the mean
  // of the two pairs that they would part.
  void refine() {
    if (whole()) return;
    std::vector<double> half(n_);  // by point of B
    for (std::size_t i = 0; i < n_; ++i) {
      know(i, of_[i]);
      half[of_[i]] = bounds_.row(i)[of_[i]] / 2;
    }
    for (std::size_t i = 0; i < n_ && !worn(); ++i) {
      const double* row = bounds_.row(i);
      const double own = half[of_[i]];
      for (std::size_t j = 0; j < n_; ++j) {
        if (row[j] < own + half[j]) know(i, j);
      }
    }
    if (worn()) compute();
  }

  const Problem* problem_;  // never null; costs are copied from start to start
  std::size_t n_;
  Permutation of_;  // empty: none yet
  Permutation inverse_;
  PaddedRows bounds_;        // H, or less where it is not exact
  std::vector<char> exact_;  // by entry; empty: all are
  std::size_t known_ = 0;
  bool identity_ = false;
  PaddedRows row_;  // row_in_order of row_held_
  std::size_t row_held_ = 0;
};

class Descent {
 public:
  Descent(const Problem& problem, Permutation start)
      : problem_(problem), n_(problem.a.count), p_(std::move(start)), costs_(problem) {
    energy_ = run_.start_energy = energy_of(problem_.a, problem_.b, p_);
  }

  /// Steps until none helps; with `swaps` also swaps pairs, and steps again while that helps. Stops
  /// early where `known` ended, and begins with its costs if those are near.
  void run(int iterations_max, bool swaps, const Descent* known = nullptr) {
    if (known && costs_.empty() && known->at_vertex_) {
      std::size_t moved = 0;
      for (std::size_t k = 0; k < n_; ++k) moved += p_[k] != known->costs_.of()[k];
      if (moved > 0 && moved <= costs_.changed_max()) costs_ = known->costs_;
    }
    while (run_.iterations < iterations_max && energy_ > 0) {
      if (known && known->at_vertex_ && p_ == known->p_) break;
      if (!at_vertex_) {
        costs_.belong_to(p_);
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
    costs_.release();
    at_vertex_ = false;  // nobody may begin with its costs
  }

  GromovRun& summary() { return run_; }
  double energy() const { return energy_; }
  const Permutation& permutation() const { return p_; }

 private:
  // The least assignment of H. Where one of the bounds alone is used not all of its pairs may be
  // known: their costs are looked up, until those of an assignment are.
  Assignment best_assignment() {
    if (dual_.empty()) {
      dual_.resize(n_);
      for (std::size_t i = 0; i < n_; ++i) dual_[p_[i]] = costs_.bounds().row(i)[p_[i]] / 2;
    }
    while (true) {
      Assignment assignment =
          solve_assignment(costs_.bounds().values, n_, dual_, costs_.bounds().stride);
      dual_ = std::move(assignment.column_dual);
      std::size_t looked_up = 0;
      for (std::size_t i = 0; i < n_; ++i) {
        looked_up += costs_.know(i, assignment.column_of_row[i]) ? 1 : 0;
      }
      if (looked_up == 0) return assignment;
      if (costs_.worn() || ++lookups_ > kLookupsMax) costs_.compute();
    }
  }

  // One conditional-gradient step; false when it does not lead anywhere lower.
  bool step() {
    double current = 0;
    for (std::size_t i = 0; i < n_; ++i) current += costs_.bounds().row(i)[p_[i]];
    Assignment assignment = best_assignment();
    ++run_.iterations;
    const double n = static_cast<double>(n_);
    const double gain = 4 * (current - assignment.cost) / (n * n);
    if (!(gain > 1e-14 * problem_.scale)) return false;
    const double next = energy_of(problem_.a, problem_.b, assignment.column_of_row);
    if (!(next < energy_)) return false;
    p_ = std::move(assignment.column_of_row);
    energy_ = next;
    return true;
  }

  // Looks at every pair once, tile by tile; at most ends this is all that is needed.
  bool any_swap_helps(double least_gain) {
    constexpr std::size_t kTile = 32;
    std::vector<double> diagonal(n_);
    const PaddedRows& costs = costs_.bounds();
    for (std::size_t r = 0; r < n_; ++r) diagonal[r] = costs.row(r)[p_[r]];
    for (std::size_t i0 = 0; i0 < n_; i0 += kTile) {
      for (std::size_t j0 = 0; j0 <= i0; j0 += kTile) {
        for (std::size_t i = i0; i < std::min(n_, i0 + kTile); ++i) {
          const double* forth = costs.row(i);
          const double* row_a = problem_.a.row(i);
          const double* row_b = problem_.b.row(p_[i]);
          const auto gain = [&](std::size_t j) {
            const double linear = diagonal[i] + diagonal[j] - forth[p_[j]] - costs.row(j)[p_[i]];
            return 2 * linear + 4 * row_a[j] * row_b[p_[j]];
          };
          bool found = false;
          for (std::size_t j = j0; j < std::min(i, j0 + kTile); ++j) found |= gain(j) > least_gain;
          if (!found) continue;
          for (std::size_t j = j0; j < std::min(i, j0 + kTile); ++j) {
            if (!(gain(j) > least_gain)) continue;
            costs_.know(i, p_[j]);
            costs_.know(j, p_[i]);
            if (gain(j) > least_gain) return true;
          }
        }
      }
    }
    return false;
  }

  // Swaps the best partner of each point while that lowers E; costs_ must belong to p_.
  bool improve_by_swaps() {
    const PaddedRows& a = problem_.a;
    const double n = static_cast<double>(n_);
    const double least_gain = 1e-13 * problem_.scale * n * n / 2;
    if (!any_swap_helps(least_gain)) return false;
    // slots(r, s) = H_r,p(s), matched(r, s) = B_p(r),p(s).
    PaddedRows slots(n_, n_);
    std::vector<char> known(costs_.whole() ? 0 : n_ * n_);
    std::vector<double> by_slot(n_), factors(n_), diagonal(n_), gains(n_);
    for (std::size_t r = 0; r < n_; ++r) {
      const double* costs = costs_.bounds().row(r);
      for (std::size_t s = 0; s < n_; ++s) slots.row(r)[s] = costs[p_[s]];
      diagonal[r] = slots.row(r)[r];
      if (known.empty()) continue;
      const char* flags = costs_.exact_flags().data() + r * n_;
      for (std::size_t s = 0; s < n_; ++s) known[r * n_ + s] = flags[p_[s]];
    }
    PaddedRows matched(n_, n_), transposed = transpose(slots);
    for (std::size_t r = 0; r < n_; ++r) {
      const double* row_b = problem_.b.row(p_[r]);
      for (std::size_t s = 0; s < n_; ++s) matched.row(r)[s] = row_b[p_[s]];
    }
    const auto know = [&](std::size_t r, std::size_t s) {
      if (known.empty() || known[r * n_ + s] != 0) return false;
      const double exact = squared_difference(a.row(r), matched.row(s), a.stride) / 2;
      slots.row(r)[s] = transposed.row(s)[r] = exact;
      known[r * n_ + s] = 1;
      return true;
    };
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
      double most = 0;  // gains are bounded from above where costs are from below
      for (std::size_t j = 0; j < n_; ++j) {
        const double linear = own + diagonal[j] - forth[j] - back[j];
        gains[j] = 2 * linear + 4 * row_a[j] * row_b[j];
        most = std::max(most, gains[j]);
      }
      for (std::size_t j = 0; most > best && j < n_; ++j) {
        if (!(gains[j] > best)) continue;
        // Not `||`: both are needed.
        if (static_cast<int>(know(i, j)) + static_cast<int>(know(j, i)) > 0) {
          gains[j] = 2 * (own + diagonal[j] - forth[j] - back[j]) + 4 * row_a[j] * row_b[j];
          if (!(gains[j] > best)) continue;
        }
        best = gains[j];
        partner = j;
      }
      if (partner == i) {
        ++since_last;
        continue;
      }
      since_last = 0;
      ++swaps;
      const std::size_t j = partner;
      for (std::size_t s = 0; s < n_; ++s) {
        by_slot[s] = matched.row(i)[s] - matched.row(j)[s];
        factors[s] = a.row(i)[s] - a.row(j)[s];
      }
      for (std::size_t r = 0; r < n_; ++r) {
        double* row = slots.row(r);
        double* column = transposed.row(r);
        const double factor = factors[r], slot = by_slot[r];
        for (std::size_t s = 0; s < n_; ++s) row[s] += factor * by_slot[s];
        for (std::size_t s = 0; s < n_; ++s) column[s] += slot * factors[s];
        std::swap(row[i], row[j]);
        if (!known.empty()) std::swap(known[r * n_ + i], known[r * n_ + j]);
      }
      std::swap_ranges(transposed.row(i), transposed.row(i) + n_, transposed.row(j));
      std::swap_ranges(matched.row(i), matched.row(i) + n_, matched.row(j));
      for (std::size_t r = 0; r < n_; ++r) std::swap(matched.row(r)[i], matched.row(r)[j]);
      std::swap(p_[i], p_[j]);
      know(i, i);
      know(j, j);
      for (std::size_t r = 0; r < n_; ++r) diagonal[r] = slots.row(r)[r];
    }
    if (swaps == 0) return false;
    run_.swaps += swaps;
    const double next = energy_of(problem_.a, problem_.b, p_);
    const bool lower = next < energy_;
    energy_ = next;
    return lower;
  }

  // Rounds of looking up in one descent, after which all costs are computed.
  static constexpr int kLookupsMax = 32;

  const Problem& problem_;
  std::size_t n_;
  Permutation p_;
  Costs costs_;  // of some permutation, or none
  std::vector<double> dual_;
  double energy_ = 0;
  int lookups_ = 0;
  bool at_vertex_ = false;  // no step leads lower, and costs_ belong to p_
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
  const double known = n * n;  // a flag an entry of costs
  // Both matrices, scaled; then, first, both sorted (rows, entries, and while one of them is made
  // two lists of edges) with a cost matrix, later costs and their flags a start and, while a thread
  // multiplies or swaps pairs, up to three more and flags.
  const double sorted = options.identity_only ? 0 : 4.5 * square;
  const double descents =
      starts * (square + known) + std::min<double>(starts, options.threads) * (3 * square + known);
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

  problem.squares_a = square_norms(problem.a);
  problem.squares_b = square_norms(problem.b);
  if (n >= kSketchedMin) problem.sketch = make_sketch(problem.a, problem.squares_a);
  const double norm_difference = std::sqrt(square_a) - std::sqrt(square_b);
  const double bound_norm = norm_difference * norm_difference;
  const bool search = !options.identity_only;
  double bound_second = 0;
  ProfileBound profile;
  if (search) {
    const SortedMatrix sorted_a = sorted_matrix(a, orders.a, exponent, options.profile_blocks);
    const SortedMatrix sorted_b = sorted_matrix(b, orders.b, exponent, options.profile_blocks);
    bound_second = second_bound(sorted_a, sorted_b);
    profile = third_bound(sorted_a.rows, sorted_b.rows);
  }
  const double bound = std::max({bound_norm, bound_second, profile.bound});
  const auto meets_bound = [&problem, bound](double energy) {
    return energy - bound <= 1e-9 * energy + 1e-14 * std::sqrt(energy * problem.scale) ||
           energy <= kEqualEntries * kEqualEntries * problem.scale;
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
      const double first = descents[0]->energy(), second = descents[1]->energy();
      agreed = std::abs(first - second) <=
               1e-9 * std::max(first, second) + kEqualEntries * kEqualEntries * problem.scale;
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
