// Assignment: all permutations for n <= 7, duals as certificate for larger ones,
// hard cases with ties.
#include "geometry/assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

double brute_force(const std::vector<double>& cost, std::size_t n) {
  std::vector<std::size_t> p(n);
  std::iota(p.begin(), p.end(), std::size_t{0});
  double best = std::numeric_limits<double>::infinity();
  do {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += cost[i * n + p[i]];
    best = std::min(best, sum);
  } while (std::next_permutation(p.begin(), p.end()));
  return best;
}

void expect_permutation(const Assignment& assignment, std::size_t n) {
  std::vector<char> seen(n, 0);
  ASSERT_EQ(assignment.column_of_row.size(), n);
  for (const auto j : assignment.column_of_row) {
    ASSERT_LT(j, n);
    EXPECT_FALSE(seen[j]++);
  }
}

TEST(Assignment, MatchesAllPermutationsForFewRows) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const std::size_t n = 1 + rng.below(7);
    std::vector<double> cost(n * n);
    for (double& c : cost) {
      c = seed % 2 == 0 ? rng.normal() : static_cast<double>(rng.below(3));
    }
    std::vector<double> start;
    if (seed % 5 == 0) {
      for (std::size_t j = 0; j < n; ++j) start.push_back(rng.normal());
    }
    const Assignment assignment = solve_assignment(cost, n, start);
    expect_permutation(assignment, n);
    const double best = brute_force(cost, n);
    EXPECT_NEAR(assignment.cost, best, 1e-12) << seed;
    EXPECT_NEAR(assignment.lower_bound, best, 1e-12) << seed;
  }
}

TEST(Assignment, DualsProveLargeAssignmentsOptimal) {
  for (const std::size_t n : {50u, 120u}) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      Rng rng(seed);
      std::vector<double> cost(n * n);
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          const double u = rng.uniform();
          // Uniform; the hard product costs of Machol and Wien; few values; equal rows.
          cost[i * n + j] = seed == 0   ? u
                            : seed == 1 ? static_cast<double>((i + 1) * (j + 1))
                            : seed == 2 ? std::floor(u * 3)
                            : seed == 3 ? static_cast<double>(j)
                            : seed == 4 ? 1e12 * u
                                        : 1e-12 * u;
        }
      }
      const Assignment assignment = solve_assignment(cost, n);
      expect_permutation(assignment, n);
      EXPECT_NEAR(assignment.cost, assignment.lower_bound,
                  1e-11 * (std::abs(assignment.cost) + *std::max_element(cost.begin(), cost.end())))
          << n << " " << seed;
    }
  }
}

TEST(Assignment, AWarmStartFromItsOwnDualsGivesTheSameCost) {
  const std::size_t n = 60;
  Rng rng(4);
  std::vector<double> cost(n * n);
  for (double& c : cost) c = rng.uniform();
  const Assignment cold = solve_assignment(cost, n);
  const Assignment warm = solve_assignment(cost, n, cold.column_dual);
  EXPECT_NEAR(cold.cost, warm.cost, 1e-12);
  EXPECT_EQ(solve_assignment({}, 0).cost, 0);
}

double brute_force_gain(const std::vector<double>& gain, std::size_t rows, std::size_t columns,
                        std::size_t row, unsigned used) {
  if (row == rows) return 0;
  double best = brute_force_gain(gain, rows, columns, row + 1, used);
  for (std::size_t j = 0; j < columns; ++j) {
    if ((used >> j & 1) || gain[row * columns + j] <= 0) continue;
    best = std::max(best, gain[row * columns + j] +
                              brute_force_gain(gain, rows, columns, row + 1, used | 1u << j));
  }
  return best;
}

SparseGains sparse(const std::vector<double>& gain, std::size_t rows, std::size_t columns) {
  SparseGains result;
  result.column_count = columns;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      if (gain[i * columns + j] > 0) {
        result.columns.push_back(static_cast<std::uint32_t>(j));
        result.gains.push_back(gain[i * columns + j]);
      }
    }
    result.starts.push_back(result.columns.size());
  }
  return result;
}

void expect_consistent(const Matching& matching, const SparseGains& gains) {
  double sum = 0;
  std::vector<std::uint32_t> rows(gains.row_units), columns(gains.column_units);
  rows.resize(gains.row_count(), 1);
  columns.resize(gains.column_count, 1);
  for (const Match& match : matching.matches) {
    EXPECT_GT(match.units, 0u);
    rows[match.row] -= match.units;  // a unit too many would show as a huge number
    columns[match.column] -= match.units;
    bool known = false;
    for (std::size_t e = gains.starts[match.row]; e < gains.starts[match.row + 1]; ++e) {
      if (gains.columns[e] != match.column) continue;
      known = true;
      sum += match.units * gains.gains[e];
    }
    EXPECT_TRUE(known);
  }
  EXPECT_EQ(rows, matching.rows_alone);
  EXPECT_EQ(columns, matching.columns_alone);
  EXPECT_NEAR(matching.gain, sum, 1e-12 * (1 + sum));
}

TEST(Matching, MatchesAllPartialMatchingsForFewRows) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    const std::size_t rows = rng.below(7), columns = rng.below(7);
    std::vector<double> gain(rows * columns);
    for (double& g : gain) {
      g = seed % 2 == 0 ? rng.normal() : static_cast<double>(rng.below(4)) - 1;
    }
    const SparseGains gains = sparse(gain, rows, columns);
    const Matching matching = solve_matching(gains);
    expect_consistent(matching, gains);
    const double best = brute_force_gain(gain, rows, columns, 0, 0);
    EXPECT_NEAR(matching.gain, best, 1e-12) << seed;
    EXPECT_NEAR(matching.upper_bound, best, 1e-12) << seed;
  }
}

// Every unit as a row or a column of its own.
SparseGains with_units_apart(const SparseGains& gains) {
  SparseGains apart;
  std::vector<std::uint32_t> first = {0};  // copy of each column
  for (const std::uint32_t units : gains.column_units) first.push_back(first.back() + units);
  apart.column_count = first.back();
  for (std::size_t i = 0; i < gains.row_count(); ++i) {
    for (std::uint32_t copy = 0; copy < gains.row_units[i]; ++copy) {
      for (std::size_t e = gains.starts[i]; e < gains.starts[i + 1]; ++e) {
        for (std::uint32_t j = first[gains.columns[e]]; j < first[gains.columns[e] + 1]; ++j) {
          apart.columns.push_back(j);
          apart.gains.push_back(gains.gains[e]);
        }
      }
      apart.starts.push_back(apart.columns.size());
    }
  }
  return apart;
}

TEST(Matching, UnitsAreMatchedAsIfEachStoodAlone) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    const std::size_t rows = rng.below(7), columns = rng.below(7);
    std::vector<double> gain(rows * columns);
    for (double& g : gain) {
      g = seed % 2 == 0 ? rng.normal() : static_cast<double>(rng.below(4)) - 1;
    }
    SparseGains gains = sparse(gain, rows, columns);
    for (std::size_t i = 0; i < rows; ++i) {
      gains.row_units.push_back(1 + static_cast<std::uint32_t>(rng.below(seed % 3 == 0 ? 2 : 9)));
    }
    for (std::size_t j = 0; j < columns; ++j) {
      gains.column_units.push_back(1 + static_cast<std::uint32_t>(rng.below(9)));
    }
    const Matching matching = solve_matching(gains);
    expect_consistent(matching, gains);
    const double expected = solve_matching(with_units_apart(gains)).gain;
    EXPECT_NEAR(matching.gain, expected, 1e-12 * (1 + expected)) << seed;
    EXPECT_NEAR(matching.upper_bound, expected, 1e-12 * (1 + expected)) << seed;
    // Again from where it ended, and from duals of another problem.
    const Matching again = solve_matching(gains, &matching.duals, matching.matches);
    expect_consistent(again, gains);
    EXPECT_NEAR(again.gain, expected, 1e-12 * (1 + expected)) << seed;
    MatchingDuals other = matching.duals;
    for (double& u : other.rows) u -= rng.uniform();
    for (double& v : other.columns) v -= rng.uniform();
    const Matching moved = solve_matching(gains, &other, matching.matches);
    expect_consistent(moved, gains);
    EXPECT_NEAR(moved.gain, expected, 1e-12 * (1 + expected)) << seed;
  }
}

TEST(Matching, DualsProveLargeMatchingsOptimal) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Rng rng(seed);
    const std::size_t rows = 150, columns = 100 + 20 * seed;
    std::vector<double> gain(rows * columns);
    for (double& g : gain) {
      g = rng.uniform() < 0.1
              ? (seed % 2 == 0 ? rng.uniform() : 1.0 + static_cast<double>(rng.below(2)))
              : 0;
    }
    const SparseGains gains = sparse(gain, rows, columns);
    const Matching matching = solve_matching(gains);
    expect_consistent(matching, gains);
    EXPECT_NEAR(matching.gain, matching.upper_bound, 1e-11 * matching.gain) << seed;
  }
}

}  // namespace
}  // namespace tailor::geometry
