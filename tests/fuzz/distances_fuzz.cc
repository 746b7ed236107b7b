// Distance matrices from outside: the bytes are float64 entries, taken as a square and as a lower
// triangle. What is accepted has the properties that everything after relies on; small ones are
// then measured.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "geometry/diagram_distance.h"
#include "geometry/distance.h"
#include "geometry/gromov_wasserstein.h"
#include "geometry/intrinsic_dimension.h"
#include "geometry/rips.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

// Beyond this a single input would take too long for thousands of them.
constexpr std::size_t kMeasuredMax = 20;

void check(const geometry::DistanceMatrix& matrix) {
  const std::size_t n = matrix.count();
  double diameter = 0;
  for (std::size_t i = 0; i < n; ++i) {
    expect(matrix(i, i) == 0, "the diagonal is zero");
    for (std::size_t j = 0; j < n; ++j) {
      expect(std::isfinite(matrix(i, j)) && matrix(i, j) >= 0, "entries are finite, not negative");
      expect(matrix(i, j) == matrix(j, i), "the matrix is symmetric");
      diameter = std::max(diameter, matrix(i, j));
    }
  }
  expect(matrix.diameter() == diameter, "the diameter is the largest entry");
  expect(matrix.enclosing_radius() <= diameter, "the radius is no more than the diameter");
  if (n > kMeasuredMax) return;

  const auto is_entry = [&](double value) {
    for (const double entry : matrix.values()) {
      if (entry == value) return true;
    }
    return false;
  };
  const auto rips = geometry::rips_persistence(matrix);
  expect(rips.has_value() && !rips->truncated, "a small matrix has a whole diagram");
  for (const geometry::Bar& bar : rips->bars) {
    expect(bar.birth < bar.death && is_entry(bar.birth) && is_entry(bar.death),
           "births and deaths are entries");
  }
  const auto none = geometry::diagram_distance(rips->bars, {});
  double longest = 0;
  for (const geometry::Bar& bar : rips->bars) longest = std::max(longest, bar.death - bar.birth);
  // The smallest float64 halved is 0.
  expect(none.has_value() && (longest < 1e-300 || none->distance >= longest / 2),
         "a diagram is away from the empty one");
  // Exact up to the rounding of squares: swapping two bars that differ by 1e-9 costs 1e-18.
  const auto same = geometry::diagram_distance(rips->bars, rips->bars);
  expect(same.has_value() && same->distance <= 1e-7 * none->distance + 1e-300,
         "a diagram is at distance 0 from itself");
  const auto gromov = geometry::gromov_wasserstein(matrix, matrix, {.random_starts = 0});
  expect(gromov.has_value() && gromov->energy == 0, "a space is at distance 0 from itself");
  // Most matrices have no dimension to speak of; a Status says so.
  const auto dimension = geometry::intrinsic_dimension(matrix, {.neighbours = 3, .points_min = 4});
  if (dimension) {
    for (const double estimate :
         {dimension->two_nn, dimension->two_nn_fit, dimension->two_nn_fit_shifted,
          dimension->levina_bickel, dimension->levina_bickel_mean}) {
      expect(std::isfinite(estimate) && estimate > 0, "a dimension that is given is a number");
    }
  }
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  const auto bytes = [](const std::vector<double>& values) {
    return std::string(reinterpret_cast<const char*>(values.data()),
                       values.size() * sizeof(double));
  };
  // A square matrix as a list, and as the lower triangle that mutations keep symmetric.
  std::vector<double> line(64), circle(66), grid;
  for (std::size_t i = 0; i < 8; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      line[i * 8 + j] = std::abs(static_cast<double>(i) - static_cast<double>(j));
    }
  }
  std::size_t at = 0;
  for (std::size_t i = 1; i < 12; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      circle[at++] = 2 * std::sin(M_PI * static_cast<double>(i - j) / 12);
    }
  }
  for (std::size_t i = 0; i < 9; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      grid.push_back(std::hypot(static_cast<double>(i / 3) - static_cast<double>(j / 3),
                                static_cast<double>(i % 3) - static_cast<double>(j % 3)));
    }
  }
  return {bytes(line),
          bytes(circle),
          bytes(grid),
          bytes({0, 1, 1, 0}),
          bytes({0}),
          bytes({1e308, 1e-308, 5e-324}),
          bytes(std::vector<double>(36, 1.0))};
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  std::vector<double> values(std::min<std::size_t>(size / sizeof(double), 4096));
  if (!values.empty()) std::memcpy(values.data(), data, values.size() * sizeof(double));
  // The nearest counts, so that lengths that do not fit are tried too.
  const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(values.size())));
  for (const std::size_t count : {root, root + 1}) {
    const auto matrix = geometry::DistanceMatrix::from_square(values, count);
    if (matrix) fuzz::check(*matrix);
    fuzz::expect(matrix || !matrix.error().message().empty(), "a refusal says why");
  }
  const auto corner =
      static_cast<std::size_t>((1 + std::sqrt(1 + 8 * static_cast<double>(values.size()))) / 2);
  for (const std::size_t count : {corner, corner + 1}) {
    const auto matrix = geometry::DistanceMatrix::from_lower_triangle(values, count);
    if (matrix) fuzz::check(*matrix);
  }
  // A prefix that fits, and its entries without their signs: most mutations then get through.
  std::vector<double> triangle(
      values.begin(), values.begin() + static_cast<std::ptrdiff_t>(corner * (corner - 1) / 2));
  for (double& value : triangle) value = std::abs(value);
  if (const auto matrix = geometry::DistanceMatrix::from_lower_triangle(triangle, corner)) {
    fuzz::check(*matrix);
  }
  return 0;
}
