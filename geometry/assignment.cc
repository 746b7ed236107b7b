// Jonker-Volgenant, dense and sparse.
#include "geometry/assignment.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

#include "base/check.h"

namespace tailor::geometry {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class DenseSolver {
 public:
  DenseSolver(std::span<const double> cost, std::size_t n)
      : cost_(cost), n_(n), v_(n), column_of_row_(n, kUnmatched), row_of_column_(n, kUnmatched) {}

  Assignment solve(std::span<const double> column_dual_start) {
    if (column_dual_start.empty()) {
      reduce_columns();
    } else {
      v_.assign(column_dual_start.begin(), column_dual_start.end());
    }
    reduce_rows();
    for (std::uint32_t row = 0; row < n_; ++row) {
      if (column_of_row_[row] == kUnmatched) augment(row);
    }
    return finish();
  }

 private:
  const double* row(std::size_t i) const { return cost_.data() + i * n_; }

  void reduce_columns() {
    std::fill(v_.begin(), v_.end(), kInfinity);
    for (std::size_t i = 0; i < n_; ++i) {
      const double* c = row(i);
      for (std::size_t j = 0; j < n_; ++j) v_[j] = std::min(v_[j], c[j]);
    }
  }

  // Each free row takes its best column, pays up to the second best and drives out who was there.
  void reduce_rows() {
    std::vector<std::uint32_t> free_rows(n_), next;
    for (std::uint32_t i = 0; i < n_; ++i) free_rows[i] = i;
    for (int pass = 0; pass < 3 && !free_rows.empty(); ++pass) {
      std::size_t steps_left = 4 * n_ + 16;
      next.clear();
      for (std::uint32_t start : free_rows) {
        std::uint32_t i = start;
        while (true) {
          const double* c = row(i);
          double best = kInfinity, second = kInfinity;
          std::uint32_t best_column = 0, second_column = 0;
          for (std::uint32_t j = 0; j < n_; ++j) {
            const double reduced = c[j] - v_[j];
            if (reduced < second) {
              if (reduced < best) {
                second = best;
                second_column = best_column;
                best = reduced;
                best_column = j;
              } else {
                second = reduced;
                second_column = j;
              }
            }
          }
          std::uint32_t column = best_column;
          std::uint32_t owner = row_of_column_[column];
          const double lowered = n_ > 1 ? v_[column] - (second - best) : v_[column];
          const bool lowers = lowered < v_[column];
          if (lowers) {
            v_[column] = lowered;
          } else if (owner != kUnmatched && n_ > 1) {
            column = second_column;
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

  // Shortest path in reduced costs from a free row to a free column (Dijkstra over all columns).
  void augment(std::uint32_t start) {
    distance_.resize(n_);
    previous_.assign(n_, start);
    columns_.resize(n_);
    const double* c = row(start);
    for (std::uint32_t j = 0; j < n_; ++j) {
      distance_[j] = c[j] - v_[j];
      columns_[j] = j;
    }
    // columns_: [0, done) settled, [done, level) at the current least distance, the rest beyond.
    std::size_t done = 0, level = 0, settled = 0;
    double least = 0;
    std::uint32_t end = kUnmatched;
    while (end == kUnmatched) {
      if (done == level) {
        settled = done;
        TAILOR_CHECK(done < n_, "assignment: no way out; is an entry not finite?");
        least = distance_[columns_[done]];
        level = done + 1;
        for (std::size_t k = done + 1; k < n_; ++k) {
          const std::uint32_t j = columns_[k];
          if (distance_[j] <= least) {
            if (distance_[j] < least) {
              least = distance_[j];
              level = done;
            }
            columns_[k] = columns_[level];
            columns_[level++] = j;
          }
        }
        for (std::size_t k = done; k < level; ++k) {
          if (row_of_column_[columns_[k]] == kUnmatched) {
            end = columns_[k];
            break;
          }
        }
        if (end != kUnmatched) break;
      }
      const std::uint32_t column = columns_[done++];
      const std::uint32_t i = row_of_column_[column];
      const double* ci = row(i);
      const double offset = (ci[column] - v_[column]) - least;
      for (std::size_t k = level; k < n_; ++k) {
        const std::uint32_t j = columns_[k];
        const double through = (ci[j] - v_[j]) - offset;
        if (through < distance_[j]) {
          distance_[j] = through;
          previous_[j] = i;
          if (through <= least) {  // equal but for rounding
            distance_[j] = least;
            if (row_of_column_[j] == kUnmatched) {
              end = j;
              break;
            }
            columns_[k] = columns_[level];
            columns_[level++] = j;
          }
        }
      }
    }
    for (std::size_t k = 0; k < settled; ++k) {
      const std::uint32_t j = columns_[k];
      v_[j] += distance_[j] - least;
    }
    while (true) {
      const std::uint32_t i = previous_[end];
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
      double least = kInfinity;
      for (std::size_t j = 0; j < n_; ++j) least = std::min(least, c[j] - v_[j]);
      result.lower_bound += least + v_[i];
    }
    result.column_dual = std::move(v_);
    return result;
  }

  std::span<const double> cost_;
  std::size_t n_;
  std::vector<double> v_;
  std::vector<std::uint32_t> column_of_row_, row_of_column_;
  std::vector<double> distance_;
  std::vector<std::uint32_t> previous_, columns_;
};

// Costs are c = -gain; a row's own slack costs 0 and is written as column kUnmatched.
class SparseSolver {
 public:
  explicit SparseSolver(const SparseGains& gains)
      : g_(gains),
        v_(gains.column_count, 0.0),
        column_of_row_(gains.row_count(), kUnmatched),
        row_of_column_(gains.column_count, kUnmatched),
        placed_(gains.row_count(), 0),
        distance_(gains.column_count, kInfinity),
        previous_(gains.column_count, kUnmatched),
        settled_(gains.column_count, 0) {}

  Matching solve() {
    reduce_rows();
    for (std::uint32_t i = 0; i < placed_.size(); ++i) {
      if (!placed_[i]) augment(i);
    }
    return finish();
  }

 private:
  double reduced(std::size_t entry) const { return -g_.gains[entry] - v_[g_.columns[entry]]; }

  void reduce_rows() {
    const std::size_t rows = placed_.size();
    std::vector<std::uint32_t> free_rows(rows), next;
    for (std::uint32_t i = 0; i < rows; ++i) free_rows[i] = i;
    for (int pass = 0; pass < 4 && !free_rows.empty(); ++pass) {
      std::size_t steps_left = 8 * rows + 16;
      next.clear();
      for (const std::uint32_t start : free_rows) {
        std::uint32_t i = start;
        while (true) {
          double best = 0, second = kInfinity;  // the slack, at 0
          std::uint32_t best_column = kUnmatched, second_column = kUnmatched;
          for (std::size_t e = g_.starts[i]; e < g_.starts[i + 1]; ++e) {
            const double value = reduced(e);
            if (value < best) {
              second = best;
              second_column = best_column;
              best = value;
              best_column = g_.columns[e];
            } else if (value < second) {
              second = value;
              second_column = g_.columns[e];
            }
          }
          std::uint32_t column = best_column;
          placed_[i] = 1;
          if (column == kUnmatched) {
            column_of_row_[i] = kUnmatched;
            break;
          }
          std::uint32_t owner = row_of_column_[column];
          const double lowered = v_[column] - (second - best);
          const bool lowers = lowered < v_[column];
          if (lowers) {
            v_[column] = lowered;
          } else if (owner != kUnmatched) {
            column = second_column;
            if (column == kUnmatched) {
              column_of_row_[i] = kUnmatched;
              break;
            }
            owner = row_of_column_[column];
          }
          row_of_column_[column] = i;
          column_of_row_[i] = column;
          if (owner == kUnmatched) break;
          column_of_row_[owner] = kUnmatched;
          placed_[owner] = 0;
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

  // Shortest path from a row that has no place to a free column or to the slack of a row on the
  // way.
  void augment(std::uint32_t start) {
    heap_ = {};
    touched_.clear();
    double least = kInfinity;              // length of the best way to a slack so far
    std::uint32_t slack_row = kUnmatched;  // whose
    std::uint32_t end = kUnmatched;
    const auto scan = [&](std::uint32_t i, double offset) {
      // Reaching row i cost `offset` in terms of its reduced costs: entry e is then at reduced(e) -
      // offset.
      if (0 - offset < least) {
        least = 0 - offset;
        slack_row = i;
      }
      for (std::size_t e = g_.starts[i]; e < g_.starts[i + 1]; ++e) {
        const std::uint32_t j = g_.columns[e];
        if (settled_[j]) continue;
        const double through = reduced(e) - offset;
        if (through < distance_[j] && through < least) {
          if (distance_[j] == kInfinity) touched_.push_back(j);
          distance_[j] = through;
          previous_[j] = i;
          heap_.emplace(through, j);
        }
      }
    };
    scan(start, 0);
    std::vector<std::uint32_t>& order = order_;
    order.clear();
    double length = least;
    while (true) {
      while (!heap_.empty() &&
             (settled_[heap_.top().second] || heap_.top().first > distance_[heap_.top().second])) {
        heap_.pop();
      }
      if (heap_.empty() || heap_.top().first >= least) {
        length = least;
        break;
      }
      const auto [at, j] = heap_.top();
      heap_.pop();
      if (row_of_column_[j] == kUnmatched) {
        end = j;
        length = at;
        break;
      }
      settled_[j] = 1;
      order.push_back(j);
      const std::uint32_t i = row_of_column_[j];
      scan(i, match_reduced(i, j) - at);
    }
    for (const std::uint32_t j : order) v_[j] += std::min(distance_[j] - length, 0.0);
    // Turn the path around.
    if (end == kUnmatched) {
      end = column_of_row_[slack_row];
      const bool is_start = slack_row == start;
      column_of_row_[slack_row] = kUnmatched;
      placed_[slack_row] = 1;
      if (is_start) end = kUnmatched;
    }
    while (end != kUnmatched) {
      const std::uint32_t i = previous_[end];
      row_of_column_[end] = i;
      const std::uint32_t given_up = i == start ? kUnmatched : column_of_row_[i];
      column_of_row_[i] = end;
      end = given_up;
    }
    placed_[start] = 1;
    for (const std::uint32_t j : touched_) {
      distance_[j] = kInfinity;
      settled_[j] = 0;
    }
  }

  double match_reduced(std::uint32_t i, std::uint32_t column) const {
    for (std::size_t e = g_.starts[i]; e < g_.starts[i + 1]; ++e) {
      if (g_.columns[e] == column) return reduced(e);
    }
    return 0;
  }

  Matching finish() {
    Matching result;
    double dual = 0;
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      double least = 0;
      for (std::size_t e = g_.starts[i]; e < g_.starts[i + 1]; ++e) {
        least = std::min(least, reduced(e));
        if (g_.columns[e] == column_of_row_[i]) result.gain += g_.gains[e];
      }
      dual += least;
    }
    for (const double v : v_) dual += v;
    result.upper_bound = -dual;
    result.column_of_row = std::move(column_of_row_);
    result.row_of_column = std::move(row_of_column_);
    return result;
  }

  using HeapEntry = std::pair<double, std::uint32_t>;

  const SparseGains& g_;
  std::vector<double> v_;
  std::vector<std::uint32_t> column_of_row_, row_of_column_;
  std::vector<char> placed_;  // the row has a column or its slack
  std::vector<double> distance_;
  std::vector<std::uint32_t> previous_;
  std::vector<char> settled_;
  std::vector<std::uint32_t> touched_, order_;
  std::priority_queue<HeapEntry, std::vector<HeapEntry>, std::greater<>> heap_;
};

}  // namespace

Assignment solve_assignment(std::span<const double> cost, std::size_t n,
                            std::span<const double> column_dual_start) {
  TAILOR_CHECK(cost.size() == n * n &&
               (column_dual_start.empty() || column_dual_start.size() == n));
  return DenseSolver(cost, n).solve(column_dual_start);
}

Matching solve_matching(const SparseGains& gains) { return SparseSolver(gains).solve(); }

}  // namespace tailor::geometry
