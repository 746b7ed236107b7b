// Jonker-Volgenant, dense and sparse.
#include "geometry/assignment.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/check.h"
#include "geometry/kernels.h"

namespace tailor::geometry {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class DenseSolver {
 public:
  DenseSolver(std::span<const double> cost, std::size_t n)
      : cost_(cost), n_(n), column_of_row_(n, kUnmatched), row_of_column_(n, kUnmatched) {
    const std::size_t padded = (n + kLanes - 1) / kLanes * kLanes;
    v_.assign(padded, 0.0);
    distance_.resize(padded);
    previous_.resize(padded);
    settled_.assign(padded, kInfinity);
    taken_.assign(padded, 0.0);
  }

  Assignment solve(std::span<const double> column_dual_start) {
    if (column_dual_start.empty()) {
      reduce_columns();
    } else {
      std::copy(column_dual_start.begin(), column_dual_start.end(), v_.begin());
    }
    reduce_rows();
    for (std::size_t j = 0; j < n_; ++j)
      taken_[j] = row_of_column_[j] == kUnmatched ? 0 : kInfinity;
    for (std::uint32_t row = 0; row < n_; ++row) {
      if (column_of_row_[row] == kUnmatched) augment(row);
    }
    return finish();
  }

 private:
  const double* row(std::size_t i) const { return cost_.data() + i * n_; }

  void reduce_columns() {
    std::fill(v_.begin(), v_.begin() + static_cast<std::ptrdiff_t>(n_), kInfinity);
    for (std::size_t i = 0; i < n_; ++i) {
      const double* c = row(i);
      for (std::size_t j = 0; j < n_; ++j) v_[j] = std::min(v_[j], c[j]);
    }
  }

  // Each free row takes its best column, pays up to the second best and drives out who was there.
  void reduce_rows() {
    std::vector<std::uint32_t> free_rows(n_), next;
    for (std::uint32_t i = 0; i < n_; ++i) free_rows[i] = i;
    for (int pass = 0; pass < 2 && !free_rows.empty(); ++pass) {
      std::size_t steps_left = 2 * n_ + 16;
      next.clear();
      for (std::uint32_t start : free_rows) {
        std::uint32_t i = start;
        while (true) {
          const double* c = row(i);
          const LeastTwo two = least_two(c, v_.data(), n_);
          std::uint32_t column = two.at;
          std::uint32_t owner = row_of_column_[column];
          const double lowered = n_ > 1 ? v_[column] - (two.second - two.least) : v_[column];
          const bool lowers = lowered < v_[column];
          if (lowers) {
            v_[column] = lowered;
          } else if (owner != kUnmatched && n_ > 1) {
            column = second_column(c, two);
            owner = row_of_column_[column];
          }
          row_of_column_[column] = i;
          column_of_row_[i] = column;
          if (owner == kUnmatched) break;
          column_of_row_[owner] = kUnmatched;
          if (!lowers || steps_left == 0) {
            next.push_back(owner);
            break;
          }
          --steps_left;
          i = owner;
        }
      }
      free_rows.swap(next);
    }
  }

  // Where the second least reduced cost is; needed on ties only.
  std::uint32_t second_column(const double* c, const LeastTwo& two) const {
    for (std::uint32_t j = 0; j < n_; ++j) {
      if (j != two.at && c[j] - v_[j] == two.second) return j;
    }
    return two.at;
  }

  // Shortest path in reduced costs from a free row to a free column (Dijkstra over all columns).
  void augment(std::uint32_t start) {
    std::fill(distance_.begin(), distance_.end(), kInfinity);
    std::fill(settled_.begin(), settled_.begin() + static_cast<std::ptrdiff_t>(n_), 0.0);
    order_.clear();
    const PathColumns columns{distance_.data(), previous_.data(), settled_.data(), taken_.data()};
    std::uint32_t i = start, end = kUnmatched;
    double offset = 0, least = -kInfinity;
    while (end == kUnmatched) {
      const NearestColumns nearest =
          relax_columns(row(i), v_.data(), n_, offset, least, i, columns);
      TAILOR_CHECK(nearest.least < kInfinity, "assignment: no way out; is an entry not finite?");
      least = nearest.least;
      if (nearest.least_free <= least) {
        end = nearest.at_free;
        break;
      }
      const std::uint32_t column = nearest.at;
      settled_[column] = kInfinity;
      order_.push_back(column);
      i = row_of_column_[column];
      offset = (row(i)[column] - v_[column]) - least;
    }
    for (const std::uint32_t j : order_) v_[j] += distance_[j] - least;
    taken_[end] = kInfinity;
    while (true) {
      i = static_cast<std::uint32_t>(previous_[end]);
      row_of_column_[end] = i;
      std::swap(column_of_row_[i], end);
      if (i == start) break;
    }
  }

  Assignment finish() {
    Assignment result;
    result.column_of_row = std::move(column_of_row_);
    for (std::size_t i = 0; i < n_; ++i) {
      const double* c = row(i);
      result.cost += c[result.column_of_row[i]];
      result.lower_bound += least_two(c, v_.data(), n_).least + v_[i];
    }
    v_.resize(n_);
    result.column_dual = std::move(v_);
    return result;
  }

  std::span<const double> cost_;
  std::size_t n_;
  std::vector<double> v_;
  std::vector<std::uint32_t> column_of_row_, row_of_column_;
  // By column, with padding.
  std::vector<double> distance_, settled_, taken_;
  std::vector<std::int64_t> previous_;
  std::vector<std::uint32_t> order_;  // settled columns
};

// One side of a matching problem: its duals, its partners and its view of the pairs.
struct Side {
  std::vector<double> dual;
  std::vector<std::uint32_t> partner;
  std::vector<std::size_t> starts;     // pairs of node i are [starts[i], starts[i + 1])
  std::vector<std::uint32_t> targets;  // node of the other side
  std::vector<double> costs;           // -gain

  std::size_t count() const { return dual.size(); }
};

class SparseSolver {
 public:
  SparseSolver(const SparseGains& gains, const MatchingDuals* start,
               std::span<const std::uint32_t> partners) {
    const std::size_t rows = gains.row_count(), columns = gains.column_count;
    TAILOR_CHECK(start == nullptr ||
                 (start->rows.size() == rows && start->columns.size() == columns));
    rows_.starts = gains.starts;
    rows_.targets = gains.columns;
    for (const double gain : gains.gains) rows_.costs.push_back(-gain);
    rows_.partner.assign(rows, kUnmatched);
    columns_.partner.assign(columns, kUnmatched);
    columns_.dual = start ? start->columns : std::vector<double>(columns, 0.0);
    rows_.dual = start ? start->rows : std::vector<double>(rows, 0.0);
    transpose();
    for (double& v : columns_.dual) v = std::min(v, 0.0);
    for (std::size_t i = 0; i < rows; ++i) {
      double least = std::min(rows_.dual[i], 0.0);
      for (std::size_t e = rows_.starts[i]; e < rows_.starts[i + 1]; ++e) {
        least = std::min(least, rows_.costs[e] - columns_.dual[rows_.targets[e]]);
      }
      rows_.dual[i] = least;
    }
    for (std::size_t i = 0; i < partners.size(); ++i) keep_if_tight(i, partners[i]);
  }

  Matching solve() {
    bid(rows_, columns_);
    satisfy(rows_, columns_);
    bid(columns_, rows_);
    satisfy(columns_, rows_);
    return finish();
  }

 private:
  void keep_if_tight(std::size_t i, std::uint32_t j) {
    if (j == kUnmatched || columns_.partner[j] != kUnmatched) return;
    for (std::size_t e = rows_.starts[i]; e < rows_.starts[i + 1]; ++e) {
      if (rows_.targets[e] != j) continue;
      const double v = columns_.dual[j];
      const double rounding =
          4 * std::numeric_limits<double>::epsilon() * (std::abs(rows_.costs[e]) + std::abs(v));
      if (rows_.costs[e] - v - rows_.dual[i] <= rounding) {
        rows_.partner[i] = j;
        columns_.partner[j] = static_cast<std::uint32_t>(i);
      }
    }
  }

  void transpose() {
    const std::size_t columns = columns_.dual.size();
    columns_.starts.assign(columns + 1, 0);
    for (const std::uint32_t j : rows_.targets) ++columns_.starts[j + 1];
    for (std::size_t j = 0; j < columns; ++j) columns_.starts[j + 1] += columns_.starts[j];
    columns_.targets.resize(rows_.targets.size());
    columns_.costs.resize(rows_.costs.size());
    std::vector<std::size_t> next(columns_.starts.begin(), columns_.starts.end() - 1);
    for (std::uint32_t i = 0; i < rows_.count(); ++i) {
      for (std::size_t e = rows_.starts[i]; e < rows_.starts[i + 1]; ++e) {
        const std::size_t at = next[rows_.targets[e]]++;
        columns_.targets[at] = i;
        columns_.costs[at] = rows_.costs[e];
      }
    }
  }

  static bool is_unhappy(const Side& side, std::size_t s) {
    return side.partner[s] == kUnmatched && side.dual[s] < 0;
  }

  // Row reduction: each unhappy node takes its best partner, raises its dual to what the second
  // best (or staying alone) would give, lets the partner pay the difference, and drives out who was
  // there. Ties with a taken partner and what is left when the steps run out are for the paths.
  static void bid(Side& seekers, Side& others) {
    std::size_t steps_left = 16 * seekers.count();
    for (std::uint32_t start = 0; start < seekers.count(); ++start) {
      std::uint32_t s = start;
      while (steps_left > 0 && is_unhappy(seekers, s)) {
        --steps_left;
        double best = 0, second = 0;
        std::uint32_t partner = kUnmatched;
        for (std::size_t e = seekers.starts[s]; e < seekers.starts[s + 1]; ++e) {
          const std::uint32_t t = seekers.targets[e];
          const double limit = seekers.costs[e] - others.dual[t];
          if (limit < best) {
            second = best;
            best = limit;
            partner = t;
          } else if (limit < second) {
            second = limit;
          }
        }
        if (partner == kUnmatched) {
          seekers.dual[s] = 0;
          break;
        }
        const double paid = others.dual[partner] - (second - best);
        const std::uint32_t owner = others.partner[partner];
        if (owner != kUnmatched && !(paid < others.dual[partner])) {
          seekers.dual[s] = std::max(seekers.dual[s], best);
          break;
        }
        seekers.dual[s] = second;
        others.dual[partner] = paid;
        others.partner[partner] = s;
        seekers.partner[s] = partner;
        if (owner == kUnmatched) break;
        seekers.partner[owner] = kUnmatched;
        s = owner;
      }
    }
  }

  void satisfy(Side& seekers, Side& others) {
    distance_.assign(others.count(), kInfinity);
    previous_.assign(others.count(), kUnmatched);
    settled_.assign(others.count(), 0);
    for (std::uint32_t s = 0; s < seekers.count(); ++s) {
      if (is_unhappy(seekers, s)) augment(seekers, others, s);
    }
  }

  // Raises the dual of `start` along a shortest path in reduced costs until a free node of the
  // other side is reached, or a seeker on the way (maybe `start`) has dual 0 and can stay alone.
  void augment(Side& seekers, Side& others, std::uint32_t start) {
    heap_.clear();
    touched_.clear();
    order_.clear();
    double least = kInfinity;          // length of the best way to leave a seeker alone
    std::uint32_t alone = kUnmatched;  // which seeker
    const auto scan = [&](std::uint32_t s, double at) {
      const double dual = seekers.dual[s];
      if (at - dual < least) {
        least = at - dual;
        alone = s;
      }
      for (std::size_t e = seekers.starts[s]; e < seekers.starts[s + 1]; ++e) {
        const std::uint32_t t = seekers.targets[e];
        const double reduced = seekers.costs[e] - dual - others.dual[t];
        const double through = at + std::max(reduced, 0.0);
        if (through < distance_[t] && through < least) {
          if (distance_[t] == kInfinity) touched_.push_back(t);
          distance_[t] = through;
          previous_[t] = s;
          heap_.emplace_back(through, t);
          std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
        }
      }
    };
    scan(start, 0);
    std::uint32_t end = kUnmatched;
    double length = 0;
    while (true) {
      while (!heap_.empty() && (settled_[heap_.front().second] ||
                                heap_.front().first > distance_[heap_.front().second])) {
        pop();
      }
      if (heap_.empty() || heap_.front().first >= least) {
        length = least;
        break;
      }
      const auto [at, t] = heap_.front();
      pop();
      if (others.partner[t] == kUnmatched) {
        end = t;
        length = at;
        break;
      }
      settled_[t] = 1;
      order_.push_back(t);
      scan(others.partner[t], at);
    }
    seekers.dual[start] = std::min(seekers.dual[start] + length, 0.0);
    for (const std::uint32_t t : order_) {
      const double raise = std::max(length - distance_[t], 0.0);
      others.dual[t] -= raise;
      double& dual = seekers.dual[others.partner[t]];
      dual = std::min(dual + raise, 0.0);
    }
    if (end == kUnmatched) {
      seekers.dual[alone] = 0;
      end = seekers.partner[alone];
      seekers.partner[alone] = kUnmatched;
      if (alone == start) end = kUnmatched;
    }
    while (end != kUnmatched) {  // turn the path around
      const std::uint32_t s = previous_[end];
      others.partner[end] = s;
      const std::uint32_t given_up = s == start ? kUnmatched : seekers.partner[s];
      seekers.partner[s] = end;
      end = given_up;
    }
    for (const std::uint32_t t : touched_) {
      distance_[t] = kInfinity;
      settled_[t] = 0;
    }
  }

  void pop() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
  }

  Matching finish() {
    Matching result;
    double dual = 0;
    for (std::size_t i = 0; i < rows_.count(); ++i) {
      double least = 0;
      for (std::size_t e = rows_.starts[i]; e < rows_.starts[i + 1]; ++e) {
        least = std::min(least, rows_.costs[e] - columns_.dual[rows_.targets[e]]);
        if (rows_.targets[e] == rows_.partner[i]) result.gain -= rows_.costs[e];
      }
      rows_.dual[i] = least;
      dual += least;
    }
    for (const double v : columns_.dual) dual += v;
    result.upper_bound = -dual;
    result.column_of_row = std::move(rows_.partner);
    result.row_of_column = std::move(columns_.partner);
    result.duals = {std::move(rows_.dual), std::move(columns_.dual)};
    return result;
  }

  Side rows_, columns_;
  std::vector<double> distance_;
  std::vector<std::uint32_t> previous_;
  std::vector<char> settled_;
  std::vector<std::uint32_t> touched_, order_;
  std::vector<std::pair<double, std::uint32_t>> heap_;
};

}  // namespace

Assignment solve_assignment(std::span<const double> cost, std::size_t n,
                            std::span<const double> column_dual_start) {
  TAILOR_CHECK(cost.size() == n * n &&
               (column_dual_start.empty() || column_dual_start.size() == n));
  return DenseSolver(cost, n).solve(column_dual_start);
}

Matching solve_matching(const SparseGains& gains, const MatchingDuals* start,
                        std::span<const std::uint32_t> partners) {
  TAILOR_CHECK(partners.empty() || partners.size() == gains.row_count());
  return SparseSolver(gains, start, partners).solve();
}

}  // namespace tailor::geometry
