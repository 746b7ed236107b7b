// The dense loops against sums in the obvious order.
#include "geometry/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using testing::random_rows;

TEST(Kernels, SquaredDifferencesMatchThePlainSum) {
  for (const std::size_t width : {1u, 7u, 8u, 9u, 64u, 131u}) {
    const PaddedRows a = random_rows(5, width, 1), b = random_rows(7, width, 2);
    std::vector<double> out(5 * 7);
    squared_differences(a, 0, 5, b, 0, 7, out.data(), 7);
    for (std::size_t i = 0; i < 5; ++i) {
      for (std::size_t j = 0; j < 7; ++j) {
        double minus = 0, plus = 0;
        for (std::size_t k = 0; k < width; ++k) {
          minus += (a.row(i)[k] - b.row(j)[k]) * (a.row(i)[k] - b.row(j)[k]);
          plus += (a.row(i)[k] + b.row(j)[k]) * (a.row(i)[k] + b.row(j)[k]);
        }
        EXPECT_NEAR(out[i * 7 + j], minus, 1e-13 * (1 + minus));
        // The one-pair forms give the very same bits.
        EXPECT_EQ(out[i * 7 + j], squared_difference(a.row(i), b.row(j), a.stride));
        EXPECT_NEAR(squared_sum(a.row(i), b.row(j), a.stride), plus, 1e-13 * (1 + plus));
      }
    }
  }
}

TEST(Kernels, DifferencesAcrossColumnsMatchThePlainSum) {
  for (const std::size_t width : {1u, 7u, 8u, 33u}) {
    for (const std::size_t count : {1u, 6u, 8u, 21u}) {
      const PaddedRows a = random_rows(5, width, 1), columns = random_rows(width, count, 2);
      PaddedRows out(5, count);
      squared_differences_across(a, columns, out);
      for (std::size_t i = 0; i < 5; ++i) {
        for (std::size_t j = 0; j < count; ++j) {
          double sum = 0;
          for (std::size_t k = 0; k < width; ++k) {
            sum += (a.row(i)[k] - columns.row(k)[j]) * (a.row(i)[k] - columns.row(k)[j]);
          }
          EXPECT_NEAR(out.row(i)[j], sum, 1e-13 * (1 + sum));
        }
      }
    }
  }
}

TEST(Kernels, ProductMatchesThePlainSumAtEverySize) {
  for (const std::size_t n : {0u, 1u, 2u, 3u, 4u, 5u, 8u, 15u, 16u, 17u, 24u, 130u, 260u}) {
    const PaddedRows a = random_rows(n, n, 3), b = random_rows(n, n, 4);
    PaddedRows out;
    multiply(a, b, out);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; j += 1 + n / 20) {
        double sum = 0;
        for (std::size_t k = 0; k < n; ++k) sum += a.row(i)[k] * b.row(k)[j];
        ASSERT_NEAR(out.row(i)[j], sum, 1e-11) << n << " " << i << " " << j;
      }
    }
  }
}

TEST(Kernels, AddedProductsOfAnyInnerSizeMatchThePlainSum) {
  for (const std::size_t inner : {0u, 1u, 3u, 127u, 129u, 300u}) {
    const PaddedRows a = random_rows(21, inner, 5), b = random_rows(inner, 21, 6);
    PaddedRows out = random_rows(21, 21, 7);
    const PaddedRows before = out;
    add_product(a, b, out);
    for (std::size_t i = 0; i < 21; ++i) {
      for (std::size_t j = 0; j < 21; ++j) {
        double sum = before.row(i)[j];
        for (std::size_t k = 0; k < inner; ++k) sum += a.row(i)[k] * b.row(k)[j];
        ASSERT_NEAR(out.row(i)[j], sum, 1e-11) << inner << " " << i << " " << j;
      }
    }
  }
}

TEST(Kernels, TheLeastTwoOfARowAreFoundWithTheFirstPlaceOnTies) {
  Rng rng(8);
  for (std::size_t n = 1; n < 40; ++n) {
    for (int round = 0; round < 20; ++round) {
      std::vector<double> c(n), v(n);
      for (double& x : c) x = static_cast<double>(rng.below(round % 2 ? 4 : 1000));
      for (double& x : v) x = static_cast<double>(rng.below(3));
      std::size_t at = 0;
      for (std::size_t j = 1; j < n; ++j) {
        if (c[j] - v[j] < c[at] - v[at]) at = j;
      }
      double second = std::numeric_limits<double>::infinity();
      for (std::size_t j = 0; j < n; ++j) {
        if (j != at) second = std::min(second, c[j] - v[j]);
      }
      const LeastTwo two = least_two(c.data(), v.data(), n);
      EXPECT_EQ(two.at, at);
      EXPECT_EQ(two.least, c[at] - v[at]);
      EXPECT_EQ(two.second, second);
    }
  }
}

TEST(Kernels, RelaxingColumnsTakesShorterWaysAndFindsTheNearest) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  Rng rng(9);
  for (std::size_t n = 1; n < 40; ++n) {
    const std::size_t padded = (n + kLanes - 1) / kLanes * kLanes;
    std::vector<double> c(n), v(padded, 0.0), distance(padded), settled(padded, kFar),
        taken(padded);
    std::vector<std::int64_t> previous(padded, -1);
    for (std::size_t j = 0; j < n; ++j) {
      c[j] = rng.normal();
      v[j] = rng.normal();
      distance[j] = rng.below(4) == 0 ? kFar : 2 + rng.normal();
      settled[j] = rng.below(4) == 0 ? kFar : 0;
      taken[j] = rng.below(2) == 0 ? kFar : 0;
    }
    const std::vector<double> before = distance;
    const NearestColumns nearest =
        relax_columns(c.data(), v.data(), n, -2, 0.5, 17,
                      {distance.data(), previous.data(), settled.data(), taken.data()});
    double least = kFar, least_free = kFar;
    for (std::size_t j = 0; j < n; ++j) {
      const double through = std::max(c[j] - v[j] + 2, 0.5);
      const bool shorter = settled[j] == 0 && through < before[j];
      EXPECT_EQ(distance[j], shorter ? through : before[j]);
      EXPECT_EQ(previous[j], shorter ? 17 : -1);
      if (settled[j] != 0) continue;
      least = std::min(least, distance[j]);
      if (taken[j] == 0) least_free = std::min(least_free, distance[j]);
    }
    EXPECT_EQ(nearest.least, least);
    EXPECT_EQ(nearest.least_free, least_free);
    if (least < kFar) {
      EXPECT_EQ(distance[nearest.at], least);
      EXPECT_EQ(settled[nearest.at], 0);
    }
    if (least_free < kFar) {
      EXPECT_EQ(distance[nearest.at_free], least_free);
      EXPECT_EQ(taken[nearest.at_free], 0);
    }
  }
}

// Against the library's functions in long double, over the whole range and both sides of every
// change of formula, whatever the place within a register.
TEST(Kernels, AnglesOfChordsAreExactToTwoRoundings) {
  std::vector<double> squared = {0,
                                 0x1p-1074,
                                 1e-300,
                                 1e-30,
                                 1e-8,
                                 1,
                                 std::nextafter(1.0, 2),
                                 2,
                                 std::nextafter(2.0, 3),
                                 3,
                                 std::nextafter(3.0, 2)};
  for (int k = 0; k <= 3000; ++k) squared.push_back(k / 1000.0);
  for (int k = 1; k < 300; ++k) squared.push_back(std::ldexp(3.0, -3 * k));
  std::vector<double> angles(squared.size());
  angles_of_chords(squared.data(), squared.size(), angles.data());
  for (std::size_t k = 0; k < squared.size(); ++k) {
    const long double exact = 2 * std::asin(std::sqrt(static_cast<long double>(squared[k])) / 2);
    const double off = static_cast<double>(std::abs(angles[k] - exact));
    EXPECT_LE(off, 2 * 0x1p-52 * static_cast<double>(exact)) << squared[k];
    double alone;
    angles_of_chords(&squared[k], 1, &alone);
    EXPECT_EQ(alone, angles[k]) << squared[k];
  }
}

TEST(Kernels, BallDistancesAreExactToFourRoundings) {
  std::vector<double> angles = {0, 0x1p-1000, 1e-100, 1e-8, 0.1, 3.141592653589793};
  for (int k = 0; k <= 3141; ++k) angles.push_back(k / 1000.0);
  for (int k = 1; k < 200; ++k) angles.push_back(std::ldexp(3.0, -5 * k));
  for (const double kappa : {1e-12, 0.01, 0.5, 1.0, 3.626860407847019, 99.5, 1e8, 1e16}) {
    std::vector<double> mapped(angles.size());
    ball_distances(angles.data(), angles.size(), kappa, mapped.data());
    for (std::size_t k = 0; k < angles.size(); ++k) {
      const long double exact = 2 * std::asinh(static_cast<long double>(kappa) *
                                               std::sin(static_cast<long double>(angles[k]) / 2));
      const double off = static_cast<double>(std::abs(mapped[k] - exact));
      // Below the normal range numbers have fewer digits.
      EXPECT_LE(off, 4 * 0x1p-52 * static_cast<double>(exact) + 2 * 0x1p-1074)
          << kappa << " " << angles[k];
      double alone;
      ball_distances(&angles[k], 1, kappa, &alone);
      EXPECT_EQ(alone, mapped[k]) << kappa << " " << angles[k];
      if (k > 6 && k < 3000) {
        EXPECT_GE(mapped[k], mapped[k - 1]) << kappa << " " << angles[k];
      }
    }
  }
}

}  // namespace
}  // namespace tailor::geometry
