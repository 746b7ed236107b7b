// The GPU's kernels against the plainest loops, bit for bit.
// Skipped, with the reason, where there is no GPU.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "geometry/accelerator.h"
#include "geometry/rips.h"
#include "tests/geometry/plain_accelerator.h"
#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using testing::distances_of;
using testing::normal_cloud;
using testing::PlainAccelerator;
using testing::random_rows;

class GeometryOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("TAILOR_BIN");  // tests/gpu.sh, where it was not built
    auto opened = open_accelerator("cuda:0", given != nullptr ? given : TAILOR_BIN_DIR);
    if (!opened) GTEST_SKIP() << "no GPU: " << opened.error().message();
    gpu_ = std::move(*opened);
    std::printf("on %s\n", gpu_->name().c_str());
  }

  std::unique_ptr<Accelerator> gpu_;
  PlainAccelerator plain_;
};

TEST_F(GeometryOnGpu, SquaredDifferencesHaveTheSameBits) {
  for (const std::size_t n : {2u, 15u, 16u, 17u, 130u}) {
    for (const std::size_t d : {1u, 8u, 31u, 33u, 300u}) {
      const PaddedRows rows = random_rows(n, d, n * d);
      std::vector<double> expected(n * n, -1), found(n * n, -1);
      plain_.squared_differences(rows, expected.data());
      ASSERT_TRUE(gpu_->squared_differences(rows, found.data())) << gpu_->status().message();
      EXPECT_EQ(found, expected) << n << " x " << d;
    }
  }
}

TEST_F(GeometryOnGpu, ProductsHaveTheSameBits) {
  for (const std::size_t n : {1u, 7u, 16u, 63u, 64u, 65u, 200u}) {
    const PaddedRows a = random_rows(n, n, n), b = random_rows(n, n, n + 1);
    PaddedRows expected, found;
    plain_.multiply(a, b, expected);
    ASSERT_TRUE(gpu_->multiply(a, b, found)) << gpu_->status().message();
    EXPECT_EQ(found.values, expected.values) << n;
  }
}

TEST_F(GeometryOnGpu, LunesAndTheirComponentsAreTheSame) {
  for (const std::size_t n : {3u, 31u, 32u, 33u, 100u, 200u}) {
    for (const std::size_t d : {1u, 2u, 20u}) {
      const DistanceMatrix distances = distances_of(normal_cloud(n, d, n + d));
      const std::vector<Edge> edges = sorted_edges(distances, distances.enclosing_radius());
      EdgeLunes expected, found;
      plain_.lunes(edges, n, expected);
      ASSERT_TRUE(gpu_->lunes(edges, n, found)) << gpu_->status().message();
      EXPECT_EQ(found.starts, expected.starts) << n << " x " << d;
      EXPECT_EQ(found.representatives, expected.representatives) << n << " x " << d;
    }
  }
}

TEST_F(GeometryOnGpu, LargeDiagramsAreThoseOfTheCpu) {
  const DistanceMatrix distances = distances_of(normal_cloud(1500, 64, 9), Geometry::kSpherical);
  const auto expected = rips_persistence(distances);
  const auto found = rips_persistence(distances, {.accelerator = gpu_.get()});
  ASSERT_TRUE(expected.has_value() && found.has_value());
  EXPECT_EQ(found->bars, expected->bars);
  EXPECT_TRUE(gpu_->status().is_ok()) << gpu_->status().message();
}

}  // namespace
}  // namespace tailor::geometry
