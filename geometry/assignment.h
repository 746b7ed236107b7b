// Linear assignment, dense and sparse, by shortest augmenting paths with a dual certificate.
//
// Dense. Given an n x n matrix c, find the permutation p that minimises sum_i c(i, p(i)). The dual
// is max sum u_i + sum v_j with u_i + v_j <= c_ij; a pair that is tight on the assignment proves it
// optimal. Steps (Jonker and Volgenant, Computing 38, 1987): column minima (or the caller's duals
// of a similar problem), augmenting row reduction, then for each row left one shortest path in
// reduced costs. Rows are scanned eight columns at a time (kernels.h). Cost O(n^3) at worst, near
// n^2 when the start is good.
//
// Sparse, with free slack on both sides. Rows i and columns j, gains w_ij > 0 on some pairs; match
// pairs so that the sum of gains is largest, everybody may stay alone at gain 0.
// With c = -w the dual is
//   max sum u_i + sum v_j,  u_i + v_j <= c_ij,  u_i <= 0,  v_j <= 0,
// and a matching of tight pairs is optimal when every row alone has u = 0 and every column alone
// v = 0. Any feasible duals do for a start, and good ones leave little to do; those of an earlier
// problem with fewer pairs are used again. Each row alone with u < 0 raises its u along a shortest
// path (Dijkstra, a binary heap) until it is matched or someone on the way may stay alone; then
// columns do the same.
//
// A row or column may stand for many equal ones (its units). Paths then carry as many units as
// their narrowest place lets through, so that the work goes with the number of different nodes and
// not of units; each unit's dual is that of its node.
//
// Both end for any finite input, ties and repeated values included: every path extends the matching
// by one row, and the row reduction is bounded.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tailor::geometry {

inline constexpr std::uint32_t kUnmatched = 0xffffffffu;

struct Assignment {
  std::vector<std::uint32_t> column_of_row;  ///< a permutation
  std::vector<double> column_dual;           ///< v
  double cost = 0;                           ///< sum of the assigned entries
  /// sum_i min_j (c_ij - v_j) + sum_j v_j, summed anew:
  /// never above the least cost but for rounding.
  double lower_bound = 0;
};

/// REQUIRES: n rows of n finite entries, `stride` numbers from row to row (0: n);
/// `column_dual_start` empty or n finite numbers (any are right, good ones are fast).
Assignment solve_assignment(std::span<const double> cost, std::size_t n,
                            std::span<const double> column_dual_start = {}, std::size_t stride = 0);

/// Gains of pairs, by rows: those of row i are entries [starts[i], starts[i + 1]).
struct SparseGains {
  std::vector<std::size_t> starts = {0};  ///< rows + 1 entries
  std::vector<std::uint32_t> columns;     ///< no pair twice
  std::vector<double> gains;              ///< finite and positive
  std::size_t column_count = 0;
  /// Equal rows or columns that an index stands for, each at least 1; empty: 1 for all.
  std::vector<std::uint32_t> row_units, column_units;

  std::size_t row_count() const { return starts.size() - 1; }
};

/// Duals of a matching: numbers <= 0, one a row and one a column.
struct MatchingDuals {
  std::vector<double> rows;     ///< u
  std::vector<double> columns;  ///< v
};

/// `units` units of a row matched with as many of a column.
struct Match {
  std::uint32_t row = 0;
  std::uint32_t column = 0;
  std::uint32_t units = 0;
};

struct Matching {
  std::vector<Match> matches;                ///< by rows; no pair twice, no units 0
  std::vector<std::uint32_t> rows_alone;     ///< units of each row that stay alone
  std::vector<std::uint32_t> columns_alone;  ///< the same of each column
  MatchingDuals duals;
  double gain = 0;  ///< sum over matched units
  /// The dual objective, summed anew: never below the best but for rounding.
  double upper_bound = 0;
};

/// The matching of largest total gain. `start`, where given, may hold any numbers <= 0 (rows are
/// lowered until they are feasible), and `earlier` the matches of an earlier matching (those of
/// pairs that are still tight are kept). REQUIRES: in `start` one entry a row and one a column.
Matching solve_matching(const SparseGains& gains, const MatchingDuals* start = nullptr,
                        std::span<const Match> earlier = {});

}  // namespace tailor::geometry
