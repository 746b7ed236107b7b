// The dense loops against sums in the obvious order.
#include "geometry/kernels.h"

#include <gtest/gtest.h>

#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

PaddedRows random_rows(std::size_t count, std::size_t width, std::uint64_t seed) {
  PaddedRows rows(count, width);
  Rng rng(seed);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < width; ++k) rows.row(i)[k] = rng.normal();
  }
  return rows;
}

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

}  // namespace
}  // namespace tailor::geometry
