// Helpers of the geometry tests: seeded clouds, reference cases, bitwise comparison.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <string>
#include <vector>

#include "base/rng.h"
#include "geometry/cloud.h"
#include "geometry/distance.h"
#include "geometry/kernels.h"

namespace tailor::geometry::testing {

/// n standard normal points of dimension d.
inline Cloud normal_cloud(std::size_t n, std::size_t d, std::uint64_t seed) {
  Rng rng(seed);
  Cloud cloud;
  cloud.count = n;
  cloud.dimension = d;
  for (std::size_t i = 0; i < n * d; ++i) cloud.values.push_back(rng.normal());
  return cloud;
}

/// `count` rows of `width` standard normal numbers, padded.
inline PaddedRows random_rows(std::size_t count, std::size_t width, std::uint64_t seed) {
  PaddedRows rows(count, width);
  Rng rng(seed);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < width; ++k) rows.row(i)[k] = rng.normal();
  }
  return rows;
}

inline Cloud make_cloud(std::size_t dimension, std::vector<double> values) {
  Cloud cloud;
  cloud.count = dimension == 0 ? 0 : values.size() / dimension;
  cloud.dimension = dimension;
  cloud.values = std::move(values);
  return cloud;
}

/// The rows of `cloud` in the order `order`.
inline Cloud reordered(const Cloud& cloud, const std::vector<std::size_t>& order) {
  Cloud out;
  out.dimension = cloud.dimension;
  out.count = order.size();
  for (const std::size_t i : order) {
    const auto row = cloud.view().row(i);
    out.values.insert(out.values.end(), row.begin(), row.end());
  }
  return out;
}

inline Cloud scaled(Cloud cloud, double factor) {
  for (double& x : cloud.values) x *= factor;
  return cloud;
}

inline std::vector<std::size_t> random_order(std::size_t n, std::uint64_t seed) {
  std::vector<std::size_t> order(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = i;
  Rng rng(seed);
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

/// The vertices of a regular polygon of circumradius 1.
inline Cloud regular_polygon(std::size_t n) {
  Cloud cloud;
  cloud.count = n;
  cloud.dimension = 2;
  for (std::size_t i = 0; i < n; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(n);
    cloud.values.push_back(std::cos(angle));
    cloud.values.push_back(std::sin(angle));
  }
  return cloud;
}

/// `cloud` multiplied by a random orthogonal matrix (Gram-Schmidt on normal columns) and moved by
/// `move` in every coordinate.
inline Cloud rotated(const Cloud& cloud, std::uint64_t seed, double move = 0) {
  const std::size_t d = cloud.dimension;
  std::vector<std::vector<double>> q;
  Rng rng(seed);
  while (q.size() < d) {
    std::vector<double> v(d);
    for (double& x : v) x = rng.normal();
    for (int pass = 0; pass < 2; ++pass) {
      for (const auto& u : q) {
        double dot = 0;
        for (std::size_t k = 0; k < d; ++k) dot += u[k] * v[k];
        for (std::size_t k = 0; k < d; ++k) v[k] -= dot * u[k];
      }
    }
    const double length = norm(v);
    for (double& x : v) x /= length;
    q.push_back(v);
  }
  Cloud out = cloud;
  for (std::size_t i = 0; i < cloud.count; ++i) {
    for (std::size_t a = 0; a < d; ++a) {
      double sum = move;
      for (std::size_t k = 0; k < d; ++k) sum += q[a][k] * cloud.values[i * d + k];
      out.values[i * d + a] = sum;
    }
  }
  return out;
}

inline DistanceMatrix distances_of(const Cloud& cloud, Geometry geometry = Geometry::kRaw,
                                   double rho = kDefaultRho) {
  auto matrix = pairwise_distances(cloud.view(), {.geometry = geometry, .rho = rho, .threads = 1});
  EXPECT_TRUE(matrix.has_value()) << matrix.error().message();
  return std::move(*matrix);
}

}  // namespace tailor::geometry::testing
