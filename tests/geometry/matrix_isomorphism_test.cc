// Relabellings of matrices: found, verified entry by entry; proved absent; cut short.
#include "geometry/matrix_isomorphism.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

DistanceMatrix square_of(const std::vector<double>& lower, std::size_t n) {
  return *DistanceMatrix::from_lower_triangle(lower, n);
}

// Entries from a few values, so that many points look alike.
DistanceMatrix random_matrix(std::size_t n, std::size_t values, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<double> lower;
  for (std::size_t k = 0; k < n * (n - 1) / 2; ++k) {
    lower.push_back(static_cast<double>(rng.below(values)));
  }
  return square_of(lower, n);
}

DistanceMatrix relabelled_matrix(const DistanceMatrix& matrix, std::uint64_t seed, double noise) {
  const auto order = testing::random_order(matrix.count(), seed);
  Rng rng(seed);
  std::vector<double> lower;
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      lower.push_back(matrix(order[i], order[j]) + noise * rng.uniform());
    }
  }
  return square_of(lower, matrix.count());
}

double largest_difference(const DistanceMatrix& a, const DistanceMatrix& b,
                          const std::vector<std::uint32_t>& p) {
  double largest = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    for (std::size_t k = 0; k < p.size(); ++k) {
      largest = std::max(largest, std::abs(a(i, k) - b(p[i], p[k])));
    }
  }
  return largest;
}

TEST(MatrixIsomorphism, FindsRelabellingsExactlyAndWithinTheTolerance) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const std::size_t n = 1 + seed % 30;
    const DistanceMatrix a = random_matrix(n, 1 + seed % 4, seed);
    for (const double noise : {0.0, 1e-12}) {
      const DistanceMatrix b = relabelled_matrix(a, seed + 1, noise);
      const Isomorphism found = find_isomorphism(a, b, 1e-11, 1e9);
      ASSERT_TRUE(found.found) << seed;
      EXPECT_LE(largest_difference(a, b, found.permutation), 1.01 * noise);  // and rounding
    }
  }
}

TEST(MatrixIsomorphism, AgreesWithAllPermutationsOfFewPoints) {
  int equal = 0, different = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::size_t n = 4 + seed % 3;
    const DistanceMatrix a = random_matrix(n, 2, seed), b = random_matrix(n, 2, seed + 1000);
    std::vector<std::uint32_t> p(n);
    for (std::size_t i = 0; i < n; ++i) p[i] = static_cast<std::uint32_t>(i);
    bool any = false;
    do {
      any = any || largest_difference(a, b, p) == 0;
    } while (std::next_permutation(p.begin(), p.end()));
    const Isomorphism found = find_isomorphism(a, b, 1e-11, 1e9);
    EXPECT_EQ(found.found, any) << seed;
    EXPECT_EQ(found.complete, !any) << seed;
    (any ? equal : different) += 1;
  }
  EXPECT_GT(equal, 3);
  EXPECT_GT(different, 3);
}

TEST(MatrixIsomorphism, ASearchThatIsCutShortProvesNothing) {
  const DistanceMatrix a = random_matrix(20, 2, 1);
  const Isomorphism cut = find_isomorphism(a, relabelled_matrix(a, 2, 0), 1e-11, 10);
  EXPECT_FALSE(cut.found);
  EXPECT_FALSE(cut.complete);
  EXPECT_TRUE(find_isomorphism(DistanceMatrix(0), DistanceMatrix(0), 0, 0).found);
}

}  // namespace
}  // namespace tailor::geometry
