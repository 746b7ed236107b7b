// Persistence: diagrams made with GUDHI and ripser bit for bit, regular polygons in closed form, a
// plain boundary-matrix reduction for few points, and invariances.
#include "geometry/rips.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numbers>
#include <set>
#include <tuple>

#include "tests/geometry/reference.h"
#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using testing::distances_of;
using ::testing::HasSubstr;
using testing::normal_cloud;
using testing::ReferenceCase;
using testing::regular_polygon;

Diagram bars_of(const DistanceMatrix& distances, const RipsOptions& options = {}) {
  const auto summary = rips_persistence(distances, options);
  EXPECT_TRUE(summary.has_value()) << summary.error().message();
  return summary->bars;
}

// The textbook algorithm: all simplices up to dimension 2 in filtration order, columns over Z/2
// reduced left to right. Exponential memory does not matter for n <= 8.
Diagram brute_force(const DistanceMatrix& d) {
  const std::size_t n = d.count();
  struct Simplex {
    double value;
    std::vector<std::size_t> vertices;
  };
  std::vector<Simplex> simplices;
  for (std::size_t i = 0; i < n; ++i) {
    simplices.push_back({0, {i}});
    for (std::size_t j = i + 1; j < n; ++j) {
      simplices.push_back({d(i, j), {i, j}});
      for (std::size_t k = j + 1; k < n; ++k) {
        simplices.push_back({std::max({d(i, j), d(i, k), d(j, k)}), {i, j, k}});
      }
    }
  }
  std::sort(simplices.begin(), simplices.end(), [](const Simplex& a, const Simplex& b) {
    return std::tuple(a.value, a.vertices.size(), a.vertices) <
           std::tuple(b.value, b.vertices.size(), b.vertices);
  });
  std::map<std::vector<std::size_t>, std::size_t> position;
  for (std::size_t s = 0; s < simplices.size(); ++s) position[simplices[s].vertices] = s;
  std::map<std::size_t, std::set<std::size_t>> by_low;
  Diagram bars;
  for (const Simplex& simplex : simplices) {
    if (simplex.vertices.size() < 2) continue;
    std::set<std::size_t> column;
    for (std::size_t skip = 0; skip < simplex.vertices.size(); ++skip) {
      auto face = simplex.vertices;
      face.erase(face.begin() + static_cast<std::ptrdiff_t>(skip));
      column.insert(position[face]);
    }
    while (!column.empty() && by_low.contains(*column.rbegin())) {
      for (const std::size_t row : std::set<std::size_t>(by_low[*column.rbegin()])) {
        if (!column.insert(row).second) column.erase(row);
      }
    }
    if (column.empty()) continue;
    const Simplex& low = simplices[*column.rbegin()];
    if (low.vertices.size() == 2 && simplex.value > low.value) {
      bars.push_back({low.value, simplex.value});
    }
    by_low[*column.rbegin()] = column;
  }
  std::sort(bars.begin(), bars.end());
  return bars;
}

class RipsReference : public ::testing::TestWithParam<std::string> {};

TEST_P(RipsReference, DiagramOfTheStoredMatrixIsEqualBitForBit) {
  const ReferenceCase reference(GetParam());
  const std::size_t n = reference.index["n"];
  for (const auto& [name, expected] : reference.index["expected"].items()) {
    if (!reference.has("dist_" + name)) continue;
    const auto matrix =
        DistanceMatrix::from_lower_triangle(reference.array("dist_" + name).to_doubles(), n);
    ASSERT_TRUE(matrix);
    const auto summary = rips_persistence(*matrix);
    ASSERT_TRUE(summary);
    EXPECT_EQ(summary->bars, reference.diagram("h1_" + name)) << name;
    EXPECT_EQ(matrix->enclosing_radius(), expected["enclosing_radius"].get<double>()) << name;
    EXPECT_FALSE(summary->truncated);
  }
}

Diagram above(const Diagram& bars, double floor) {
  Diagram result;
  for (const Bar& bar : bars) {
    if (bar.death - bar.birth > floor) result.push_back(bar);
  }
  return result;
}

// Sorted by birth, then death, up to `tolerance` in both.
void expect_close(const Diagram& actual, const Diagram& expected, double tolerance,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i].birth, expected[i].birth, tolerance) << what << ", bar " << i;
    EXPECT_NEAR(actual[i].death, expected[i].death, tolerance) << what << ", bar " << i;
  }
}

TEST_P(RipsReference, DiagramOfThePointsAgreesWithinTheTolerance) {
  const ReferenceCase reference(GetParam());
  const Cloud points = reference.cloud("points");
  const double rho = reference.index["poincare_radius"];
  for (const auto& [name, expected] : reference.index["expected"].items()) {
    const DistanceMatrix matrix = distances_of(points, testing::geometry_of_reference(name), rho);
    EXPECT_NEAR(matrix.enclosing_radius(), expected["enclosing_radius"].get<double>(), 1e-12);
    const double floor = expected["persistence_floor"];
    expect_close(above(bars_of(matrix), floor), above(reference.diagram("h1_" + name), floor),
                 expected["tolerance_float64"].get<double>() + 1e-15, name);
  }
}

TEST_P(RipsReference, HyperbolicDiagramIsTheImageOfTheSphericalOne) {
  const ReferenceCase reference(GetParam());
  if (!reference.has("h1_hyperbolic")) return;  // a large case in one geometry
  const double floor = reference.index["expected"]["hyperbolic"]["persistence_floor"];
  const Diagram mapped =
      hyperbolic_diagram(reference.diagram("h1_spherical"), reference.index["poincare_radius"]);
  expect_close(above(mapped, floor), above(reference.diagram("h1_hyperbolic"), floor), 1e-9,
               GetParam());
}

INSTANTIATE_TEST_SUITE_P(H1, RipsReference, ::testing::ValuesIn(testing::reference_cases("h1")),
                         [](const auto& entry) { return testing::test_name(entry.param); });

TEST(Rips, ResidualCloudMatchesTheStoredDiagrams) {
  const ReferenceCase reference("real/residual512_d256");
  for (const char* side : {"x", "y"}) {
    const Cloud cloud = reference.cloud(side);
    for (const char* name : {"euclidean", "spherical", "hyperbolic"}) {
      const std::string key = std::string(side) + "_" + name;
      const auto& expected = reference.index["h1"][key];
      const Diagram bars = bars_of(distances_of(cloud, testing::geometry_of_reference(name), 0.9));
      EXPECT_EQ(bars.size(), expected["h1_count"].get<std::size_t>()) << key;
      const double floor = expected["persistence_floor"];
      expect_close(above(bars, floor), above(reference.diagram("h1_" + key), floor),
                   expected["tolerance_float64"], key);
    }
  }
}

TEST(Rips, RegularPolygonsHaveOneBarInClosedForm) {
  for (const std::size_t n : {4u, 5u, 6u, 8u, 12u, 20u}) {
    const Diagram bars = bars_of(distances_of(regular_polygon(n)), {.persistence_floor = 1e-9});
    ASSERT_EQ(bars.size(), 1u) << n;
    const double step = std::numbers::pi / static_cast<double>(n);
    EXPECT_NEAR(bars[0].birth, 2 * std::sin(step), 1e-13) << n;
    EXPECT_NEAR(bars[0].death, 2 * std::sin(step * static_cast<double>((n + 2) / 3)), 1e-13) << n;
  }
}

TEST(Rips, AgreesWithPlainMatrixReductionForFewPoints) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    const std::size_t n = 3 + rng.below(6);
    // Any symmetric matrix will do; integers make many ties.
    const bool ties = seed % 3 == 0;
    std::vector<double> lower(n * (n - 1) / 2);
    for (double& x : lower) x = ties ? 1 + static_cast<double>(rng.below(4)) : rng.uniform();
    const auto matrix = DistanceMatrix::from_lower_triangle(lower, n);
    ASSERT_TRUE(matrix);
    EXPECT_EQ(bars_of(*matrix), brute_force(*matrix)) << "seed " << seed;
  }
}

TEST(Rips, AgreesWithPlainMatrixReductionOnCloudsOfTwentyPoints) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const DistanceMatrix matrix = distances_of(normal_cloud(20, 2 + seed % 4, seed));
    EXPECT_EQ(bars_of(matrix), brute_force(matrix)) << "seed " << seed;
  }
}

TEST(Rips, DoesNotDependOnTheOrderOfThePoints) {
  const Cloud cloud = normal_cloud(90, 3, 5);
  const Diagram bars = bars_of(distances_of(cloud));
  EXPECT_GT(bars.size(), 5u);
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    const Cloud shuffled = testing::reordered(cloud, testing::random_order(90, seed));
    EXPECT_EQ(bars_of(distances_of(shuffled)), bars);
  }
  // With many equal distances too.
  Cloud grid = testing::make_cloud(2, {});
  for (int i = 0; i < 49; ++i) {
    grid.values.push_back(i % 7);
    grid.values.push_back(i / 7);
    ++grid.count;
  }
  const Diagram grid_bars = bars_of(distances_of(grid));
  EXPECT_EQ(grid_bars.size(), 36u);  // one a cell: born at 1, filled by its diagonal
  for (const Bar& bar : grid_bars) EXPECT_EQ(bar, (Bar{1, std::sqrt(2.0)}));
  EXPECT_EQ(bars_of(distances_of(testing::reordered(grid, testing::random_order(49, 3)))),
            grid_bars);
}

TEST(Rips, ScalesWithTheMatrixAtAnyMagnitude) {
  const Cloud cloud = normal_cloud(60, 3, 6);
  const Diagram bars = bars_of(distances_of(cloud));
  for (const int exponent : {-900, -20, 20, 900}) {
    const Diagram scaled = bars_of(distances_of(testing::scaled(cloud, std::ldexp(1.0, exponent))));
    ASSERT_EQ(scaled.size(), bars.size());
    for (std::size_t i = 0; i < bars.size(); ++i) {
      EXPECT_EQ(std::ldexp(scaled[i].birth, -exponent), bars[i].birth);
      EXPECT_EQ(std::ldexp(scaled[i].death, -exponent), bars[i].death);
    }
  }
}

TEST(Rips, AnOutlierFarAwayDoesNotChangeTheBarsOfTheRest) {
  Cloud cloud = regular_polygon(12);
  cloud.values.insert(cloud.values.end(), {1e12, 0});
  ++cloud.count;
  const Diagram bars = bars_of(distances_of(cloud), {.persistence_floor = 1e-3});
  ASSERT_EQ(bars.size(), 1u);
  EXPECT_NEAR(bars[0].birth, .5176380902, 1e-10);
  EXPECT_NEAR(bars[0].death, 1.7320508076, 1e-10);
}

TEST(Rips, FewOrEqualPointsHaveNoBars) {
  for (const std::size_t n : {0u, 1u, 2u, 3u}) {
    EXPECT_TRUE(bars_of(distances_of(normal_cloud(n, 3, 1))).empty()) << n;
  }
  EXPECT_TRUE(bars_of(DistanceMatrix(30)).empty());
}

TEST(Rips, ALowerThresholdCutsBarsAndSaysSo) {
  const DistanceMatrix matrix = distances_of(regular_polygon(12));
  const auto cut = rips_persistence(matrix, {.threshold = 1.2});
  ASSERT_TRUE(cut);
  EXPECT_TRUE(cut->truncated);
  ASSERT_EQ(cut->bars.size(), 1u);
  EXPECT_NEAR(cut->bars[0].birth, .5176380902, 1e-10);
  EXPECT_EQ(cut->bars[0].death, 1.2);
  const auto whole = rips_persistence(matrix, {.threshold = 100});
  ASSERT_TRUE(whole);
  EXPECT_FALSE(whole->truncated);
}

TEST(Rips, AllBarsDieByTheEnclosingRadius) {
  const DistanceMatrix matrix = distances_of(normal_cloud(120, 16, 2));
  for (const Bar& bar : bars_of(matrix)) {
    EXPECT_LT(bar.birth, bar.death);
    EXPECT_LE(bar.death, matrix.enclosing_radius());
  }
}

TEST(Rips, RefusesWhatDoesNotFitAndBadOptions) {
  const DistanceMatrix matrix = distances_of(normal_cloud(50, 3, 2));
  const auto refused = rips_persistence(matrix, {.memory_bytes_max = 1000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), HasSubstr("50 points need"));
  EXPECT_FALSE(rips_persistence(matrix, {.threshold = -1}).has_value());
  EXPECT_FALSE(rips_persistence(matrix, {.persistence_floor = std::nan("")}).has_value());
  EXPECT_GT(rips_cost(2048), rips_cost(512));
}

TEST(Rips, AnOrderAtHandGivesTheSameDiagram) {
  const DistanceMatrix matrix =
      testing::distances_of(testing::normal_cloud(60, 4, 41), Geometry::kRaw);
  const std::vector<Edge> order = sorted_edges(matrix, matrix.diameter());
  for (const double threshold : {matrix.diameter(), matrix.enclosing_radius() / 2, 0.0}) {
    const auto own = rips_persistence(matrix, {.threshold = threshold});
    const auto given = rips_persistence(matrix, {.threshold = threshold}, order);
    ASSERT_TRUE(own && given);
    EXPECT_EQ(own->bars, given->bars);
    EXPECT_EQ(own->edges, given->edges);
  }
}

TEST(SortedEdges, AreInTheOrderOfLengthThenPointsAtAnyScaleAndWithTies) {
  for (const double scale : {1.0, 1e300, 1e-300, 1e-318}) {
    for (const std::uint64_t levels : {1u, 3u, 1000000u}) {
      Rng rng(levels);
      DistanceMatrix matrix(40);
      for (std::size_t i = 0; i < 40; ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          const double length = scale * static_cast<double>(1 + rng.below(levels));
          matrix.mutable_values()[i * 40 + j] = matrix.mutable_values()[j * 40 + i] = length;
        }
      }
      matrix.refresh_extent();
      const std::vector<Edge> edges = sorted_edges(matrix, matrix.diameter());
      ASSERT_EQ(edges.size(), 780u);
      for (std::size_t k = 1; k < edges.size(); ++k) {
        const auto key = [&matrix](const Edge& e) {
          return std::tuple(matrix(e.i, e.j), e.i, e.j);
        };
        ASSERT_LT(key(edges[k - 1]), key(edges[k])) << scale << " " << levels << " " << k;
      }
    }
  }
}

// Points of a line have no loops, however many of their distances are equal.
TEST(Rips, CollinearPointsHaveNoBars) {
  for (const double step : {1.0, 1e-300, 1e300}) {
    Cloud line;
    line.dimension = 3;
    for (int i = 0; i < 40; ++i) {
      const double x = step * ((i * 7) % 40) / 64;  // whole 64ths: distances are exact
      line.values.insert(line.values.end(), {x, 0, 0});
      ++line.count;
    }
    EXPECT_TRUE(bars_of(distances_of(line)).empty()) << step;
  }
}

TEST(Rips, ClassesBeyondTheMemoryLimitEndTheRun) {
  // Two halves, 1 between them and 2 within: 200^2 edges at 1 make 199^2 loops that live until 2.
  const std::size_t n = 400;
  DistanceMatrix matrix(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      matrix.mutable_values()[i * n + j] = i == j ? 0 : (i < n / 2) == (j < n / 2) ? 2 : 1;
    }
  }
  matrix.refresh_extent();
  const auto refused = rips_persistence(matrix, {.memory_bytes_max = rips_memory_bytes(n)});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("only the run could show"));
}

}  // namespace
}  // namespace tailor::geometry
