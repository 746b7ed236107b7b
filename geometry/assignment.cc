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
  DenseSolver(std::span<const double> cost, std::size_t n, std::size_t stride)
      : cost_(cost),
        n_(n),
        stride_(stride),
        column_of_row_(n, kUnmatched),
        row_of_column_(n, kUnmatched) {
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
  const double* row(std::size_t i) const { return cost_.data() + i * stride_; }

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
  std::size_t n_, stride_;
  std::vector<double> v_;
  std::vector<std::uint32_t> column_of_row_, row_of_column_;
  // By column, with padding.
  std::vector<double> distance_, settled_, taken_;
  std::vector<std::int64_t> previous_;
  std::vector<std::uint32_t> order_;  // settled columns
};

// One side of a matching problem: its duals, its units and its view of the pairs.
struct Side {
  std::vector<double> dual;
  std::vector<std::uint32_t> units;    // copies of a node
  std::vector<std::uint32_t> spare;    // of them, those that are alone
  std::vector<std::size_t> starts;     // pairs of node i are [starts[i], starts[i + 1])
  std::vector<std::uint32_t> targets;  // node of the other side
  std::vector<double> costs;           // -gain
  std::vector<std::size_t> pair;       // number of the pair, the same on both sides
  std::vector<std::size_t> taken;      // of a node of one unit: its place in `pair`; else kNowhere

  std::size_t count() const { return dual.size(); }
};

constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

class SparseSolver {
 public:
  SparseSolver(const SparseGains& gains, const MatchingDuals* start,
               std::span<const Match> earlier) {
    const std::size_t rows = gains.row_count(), columns = gains.column_count;
    TAILOR_CHECK(start == nullptr ||
                 (start->rows.size() == rows && start->columns.size() == columns));
    rows_.starts = gains.starts;
    rows_.targets = gains.columns;
    for (const double gain : gains.gains) rows_.costs.push_back(-gain);
    rows_.units = gains.row_units;
    columns_.units = gains.column_units;
    rows_.units.resize(rows, 1);
    columns_.units.resize(columns, 1);
    columns_.dual = start ? start->columns : std::vector<double>(columns, 0.0);
    rows_.dual = start ? start->rows : std::vector<double>(rows, 0.0);
    transpose();
    flow_.assign(rows_.targets.size(), 0);
    for (Side* side : {&rows_, &columns_}) {
      side->spare = side->units;
      side->taken.assign(side->count(), kNowhere);
    }
    for (double& v : columns_.dual) v = std::min(v, 0.0);
    for (std::size_t i = 0; i < rows; ++i) {
      double least = std::min(rows_.dual[i], 0.0);
      for (std::size_t e = rows_.starts[i]; e < rows_.starts[i + 1]; ++e) {
        least = std::min(least, rows_.costs[e] - columns_.dual[rows_.targets[e]]);
      }
      rows_.dual[i] = least;
    }
    for (const Match& match : earlier) keep_if_tight(match);
  }

  Matching solve() {
    bid(rows_, columns_);
    satisfy(rows_, columns_);
    bid(columns_, rows_);
    satisfy(columns_, rows_);
    return finish();
  }

 private:
  void keep_if_tight(const Match& match) {
    const std::uint32_t i = match.row, j = match.column;
    const std::uint32_t amount = std::min({match.units, rows_.spare[i], columns_.spare[j]});
    if (amount == 0) return;
    for (std::size_t e = rows_.starts[i]; e < rows_.starts[i + 1]; ++e) {
      if (rows_.targets[e] != j) continue;
      const double v = columns_.dual[j];
      const double rounding =
          4 * std::numeric_limits<double>::epsilon() * (std::abs(rows_.costs[e]) + std::abs(v));
      if (rows_.costs[e] - v - rows_.dual[i] <= rounding) move(rows_, columns_, i, e, amount);
    }
  }

  void transpose() {
    const std::size_t columns = columns_.dual.size();
    columns_.starts.assign(columns + 1, 0);
    for (const std::uint32_t j : rows_.targets) ++columns_.starts[j + 1];
    for (std::size_t j = 0; j < columns; ++j) columns_.starts[j + 1] += columns_.starts[j];
    columns_.targets.resize(rows_.targets.size());
    columns_.costs.resize(rows_.costs.size());
    columns_.pair.resize(rows_.targets.size());
    rows_.pair.resize(rows_.targets.size());
    opposite_.resize(rows_.targets.size());
    std::vector<std::size_t> next(columns_.starts.begin(), columns_.starts.end() - 1);
    for (std::uint32_t i = 0; i < rows_.count(); ++i) {
      for (std::size_t e = rows_.starts[i]; e < rows_.starts[i + 1]; ++e) {
        const std::size_t at = next[rows_.targets[e]]++;
        columns_.targets[at] = i;
        columns_.costs[at] = rows_.costs[e];
        columns_.pair[at] = rows_.pair[e] = e;
        opposite_[e] = at;
      }
    }
  }

  // Matches `amount` more units of seeker s over its pair at place e.
  void move(Side& seekers, Side& others, std::uint32_t s, std::size_t e, std::uint32_t amount) {
    const std::size_t pair = seekers.pair[e];
    const std::uint32_t t = seekers.targets[e];
    flow_[pair] += amount;
    seekers.spare[s] -= amount;
    others.spare[t] -= amount;
    if (seekers.units[s] == 1) seekers.taken[s] = e;
    if (others.units[t] == 1) others.taken[t] = &others == &columns_ ? opposite_[pair] : pair;
  }

  // Parts `amount` units again; a node of one unit is alone then.
  void part(Side& seekers, Side& others, std::uint32_t s, std::size_t e, std::uint32_t amount) {
    const std::uint32_t t = seekers.targets[e];
    flow_[seekers.pair[e]] -= amount;
    seekers.spare[s] += amount;
    others.spare[t] += amount;
    if (seekers.units[s] == 1) seekers.taken[s] = kNowhere;
    if (others.units[t] == 1) others.taken[t] = kNowhere;
  }

  // visit(place of the pair in `side`) for every pair over which node t is matched.
  template <typename Visit>
  void matched_pairs(const Side& side, std::uint32_t t, const Visit& visit) const {
    if (side.units[t] == 1) {
      if (side.taken[t] != kNowhere) visit(side.taken[t]);
      return;
    }
    if (side.spare[t] == side.units[t]) return;
    for (std::size_t e = side.starts[t]; e < side.starts[t + 1]; ++e) {
      if (flow_[side.pair[e]] > 0) visit(e);
    }
  }

  static bool is_unhappy(const Side& side, std::size_t s) {
    return side.spare[s] > 0 && side.dual[s] < 0;
  }

  // Row reduction: each unhappy node that is not matched at all takes its best partner, raises its
  // dual to what the second best (or staying alone) would give, lets the partner pay the
  // difference, and drives out who was there. Ties with a taken partner, units that are left over
  // and what is left when the steps run out are for the paths.
  void bid(Side& seekers, Side& others) {
    std::size_t steps_left = 16 * seekers.count();
    std::vector<std::uint32_t> waiting;
    for (std::uint32_t start = 0; start < seekers.count(); ++start) {
      waiting.push_back(start);
      while (!waiting.empty()) {
        const std::uint32_t s = waiting.back();
        waiting.pop_back();
        if (steps_left == 0 || !is_unhappy(seekers, s) || seekers.spare[s] < seekers.units[s]) {
          continue;
        }
        --steps_left;
        double best = 0, second = 0;
        std::size_t place = kNowhere;
        for (std::size_t e = seekers.starts[s]; e < seekers.starts[s + 1]; ++e) {
          const double limit = seekers.costs[e] - others.dual[seekers.targets[e]];
          if (limit < best) {
            second = best;
            best = limit;
            place = e;
          } else if (limit < second) {
            second = limit;
          }
        }
        if (place == kNowhere) {
          seekers.dual[s] = 0;
          continue;
        }
        const std::uint32_t partner = seekers.targets[place];
        const double paid = others.dual[partner] - (second - best);
        const bool taken = others.spare[partner] < others.units[partner];
        // Who pays must not keep units to spare: alone, they are to have dual 0.
        const bool fills = seekers.units[s] >= others.units[partner];
        if (!fills || (taken && !(paid < others.dual[partner]))) {
          seekers.dual[s] = std::max(seekers.dual[s], best);
          const std::uint32_t amount = std::min(seekers.spare[s], others.spare[partner]);
          if (amount > 0) move(seekers, others, s, place, amount);
          continue;
        }
        seekers.dual[s] = second;
        others.dual[partner] = paid;
        driven_out_.clear();
        matched_pairs(others, partner, [&](std::size_t e) { driven_out_.push_back(e); });
        for (const std::size_t e : driven_out_) {
          const std::uint32_t owner = others.targets[e];
          part(others, seekers, partner, e, flow_[others.pair[e]]);
          waiting.push_back(owner);
        }
        move(seekers, others, s, place, std::min(seekers.spare[s], others.spare[partner]));
      }
    }
  }

  void satisfy(Side& seekers, Side& others) {
    distance_.assign(others.count(), kInfinity);
    previous_.assign(others.count(), {kUnmatched, kNowhere});
    settled_.assign(others.count(), 0);
    way_.assign(seekers.count(), {kUnmatched, kNowhere});
    for (std::uint32_t s = 0; s < seekers.count(); ++s) {
      while (is_unhappy(seekers, s)) augment(seekers, others, s);
    }
  }

  // Raises the dual of `start` along a shortest path in reduced costs until a node of the other
  // side with units to spare is reached, or a seeker on the way (maybe `start`) has dual 0 and can
  // stay alone. As many units go along as the narrowest place of the path lets through.
  void augment(Side& seekers, Side& others, std::uint32_t start) {
    heap_.clear();
    touched_.clear();
    order_.clear();
    visited_.clear();
    double least = kInfinity;          // length of the best way to leave a seeker alone
    std::uint32_t alone = kUnmatched;  // which seeker
    std::uint32_t end = kUnmatched;    // a node to spare that is as near as can be
    const auto scan = [&](std::uint32_t s, double at) {
      visited_.emplace_back(at, s);
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
          previous_[t] = {s, e};
          if (through <= at && others.spare[t] > 0) {
            end = t;  // nothing can be nearer
            return;
          }
          heap_.emplace_back(through, t);
          std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
        }
      }
    };
    scan(start, 0);
    double length = end == kUnmatched ? 0 : distance_[end];
    while (end == kUnmatched) {
      while (!heap_.empty() && (settled_[heap_.front().second] ||
                                heap_.front().first > distance_[heap_.front().second])) {
        pop();
      }
      if (heap_.empty() || heap_.front().first >= least) {
        length = least;
        break;
      }
      const double at = heap_.front().first;
      const std::uint32_t t = heap_.front().second;
      pop();
      length = at;
      if (others.spare[t] > 0) {
        end = t;
        break;
      }
      settled_[t] = 1;
      order_.push_back(t);
      matched_pairs(others, t, [&](std::size_t e) {
        const std::uint32_t s = others.targets[e];
        if (end != kUnmatched || s == start || way_[s].place != kNowhere) return;
        way_[s] = {t, e};
        scan(s, at);
      });
    }
    for (const std::uint32_t t : order_) {
      others.dual[t] -= std::max(length - distance_[t], 0.0);
    }
    for (const auto& [at, s] : visited_) {
      seekers.dual[s] = std::min(seekers.dual[s] + std::max(length - at, 0.0), 0.0);
    }
    if (end == kUnmatched) seekers.dual[alone] = 0;
    if (end != kUnmatched || alone != start) push(seekers, others, start, end, alone);
    for (const std::uint32_t t : touched_) {
      distance_[t] = kInfinity;
      settled_[t] = 0;
    }
    for (const auto& [at, s] : visited_) way_[s].place = kNowhere;
  }

  // Turns the path around that ends at `end`, or at the seeker `alone`: pairs to match (previous_
  // of a node) and pairs to part (way_ of a seeker) by turns.
  void push(Side& seekers, Side& others, std::uint32_t start, std::uint32_t end,
            std::uint32_t alone) {
    std::uint32_t amount = seekers.spare[start];
    matched_.clear();
    parted_.clear();
    std::uint32_t s = alone;
    if (end != kUnmatched) {
      amount = std::min(amount, others.spare[end]);
      matched_.push_back(previous_[end]);
      s = previous_[end].node;
    }
    while (s != start) {
      const Step way = way_[s];
      amount = std::min(amount, flow_[others.pair[way.place]]);
      parted_.push_back(way);
      matched_.push_back(previous_[way.node]);
      s = previous_[way.node].node;
    }
    // All parting first: then everybody on the way has the units to spare.
    for (const Step& step : parted_) part(others, seekers, step.node, step.place, amount);
    for (const Step& step : matched_) move(seekers, others, step.node, step.place, amount);
  }

  void pop() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
  }

  Matching finish() {
    Matching result;
    double dual = 0;
    for (std::uint32_t i = 0; i < rows_.count(); ++i) {
      double least = 0;
      for (std::size_t e = rows_.starts[i]; e < rows_.starts[i + 1]; ++e) {
        least = std::min(least, rows_.costs[e] - columns_.dual[rows_.targets[e]]);
        if (flow_[e] > 0) {
          result.gain -= static_cast<double>(flow_[e]) * rows_.costs[e];
          result.matches.push_back({i, rows_.targets[e], flow_[e]});
        }
      }
      rows_.dual[i] = least;
      dual += static_cast<double>(rows_.units[i]) * least;
    }
    for (std::size_t j = 0; j < columns_.count(); ++j) {
      dual += static_cast<double>(columns_.units[j]) * columns_.dual[j];
    }
    result.upper_bound = -dual;
    result.rows_alone = std::move(rows_.spare);
    result.columns_alone = std::move(columns_.spare);
    result.duals = {std::move(rows_.dual), std::move(columns_.dual)};
    return result;
  }

  Side rows_, columns_;
  std::vector<std::uint32_t> flow_;    // units matched, by pair
  std::vector<std::size_t> opposite_;  // place of a pair in columns_
  // A pair at a place of its node.
  struct Step {
    std::uint32_t node;
    std::size_t place;
  };
  // Of a path: node t of `others` is reached from the seeker of previous_[t], and leads on to
  // seeker s from the node of way_[s].
  std::vector<double> distance_;
  std::vector<Step> previous_, way_;
  std::vector<char> settled_;
  std::vector<std::uint32_t> touched_, order_;
  std::vector<std::pair<double, std::uint32_t>> visited_;  // seekers, with their distance
  std::vector<std::pair<double, std::uint32_t>> heap_;
  std::vector<Step> matched_, parted_;
  std::vector<std::size_t> driven_out_;
};

}  // namespace

Assignment solve_assignment(std::span<const double> cost, std::size_t n,
                            std::span<const double> column_dual_start, std::size_t stride) {
  if (stride == 0) stride = n;
  TAILOR_CHECK(stride >= n && cost.size() == n * stride &&
               (column_dual_start.empty() || column_dual_start.size() == n));
  return DenseSolver(cost, n, stride).solve(column_dual_start);
}

Matching solve_matching(const SparseGains& gains, const MatchingDuals* start,
                        std::span<const Match> earlier) {
  TAILOR_CHECK((gains.row_units.empty() || gains.row_units.size() == gains.row_count()) &&
               (gains.column_units.empty() || gains.column_units.size() == gains.column_count));
  return SparseSolver(gains, start, earlier).solve();
}

}  // namespace tailor::geometry
