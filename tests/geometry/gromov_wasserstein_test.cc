// Gromov-Wasserstein: stored values of POT's best start, closed forms, all permutations for n <= 7,
// and the invariances of the distance.
#include "geometry/gromov_wasserstein.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "geometry/assignment.h"
#include "tests/geometry/reference.h"
#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using testing::distances_of;
using ::testing::HasSubstr;
using testing::make_cloud;
using testing::normal_cloud;
using testing::ReferenceCase;

GromovResult solve(const DistanceMatrix& a, const DistanceMatrix& b,
                   const GromovOptions& options = {}) {
  const auto result = gromov_wasserstein(a, b, options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return *result;
}

// Large cases share the points of the realistic pair: its first n rows.
Cloud points_of(const ReferenceCase& reference, const std::string& side) {
  if (reference.has(side)) return reference.cloud(side);
  Cloud cloud = ReferenceCase("real/residual512_d256").cloud(side);
  cloud.count = reference.index["n"];
  cloud.values.resize(cloud.count * cloud.dimension);
  return cloud;
}

class GromovReference : public ::testing::TestWithParam<std::string> {};

TEST_P(GromovReference, IsNeverAboveTheBestStoredValueAndNeverBelowTheBounds) {
  const ReferenceCase reference(GetParam());
  const Geometry geometry = testing::geometry_of_reference(reference.index["geometry"]);
  const double rho = reference.index["poincare_radius"];
  const DistanceMatrix a = distances_of(points_of(reference, "x"), geometry, rho);
  const DistanceMatrix b = distances_of(points_of(reference, "y"), geometry, rho);
  const auto& expected = reference.index["expected"];
  const double best = expected["best_value"];
  const double absolute = reference.index["tolerance_abs"];
  const double relative = reference.index["tolerance_rel"];
  for (const int random_starts : {0, 8}) {
    const GromovResult result = solve(a, b, {.random_starts = random_starts});
    EXPECT_LE(result.energy, best * (1 + 1e-6) + absolute);
    EXPECT_GE(result.energy, 0);
    EXPECT_NEAR(result.identity_energy, expected["value_at_identity"].get<double>(),
                relative * best + absolute);
    const auto& bounds = expected["lower_bounds"];
    EXPECT_NEAR(result.norm_lower_bound, bounds["norm_lower_bound"].get<double>(),
                relative + absolute);
    EXPECT_NEAR(result.second_lower_bound, bounds["second_lower_bound"].get<double>(),
                relative + absolute);
    EXPECT_NEAR(result.third_lower_bound, bounds["third_lower_bound"].get<double>(),
                relative + absolute);
    EXPECT_LE(result.lower_bound, result.energy);
    EXPECT_LE(result.energy, result.identity_energy);
    if (expected.contains("global_minimum")) {
      EXPECT_NEAR(result.energy, expected["global_minimum"].get<double>(), absolute + 1e-15);
    }
    // The coupling is feasible and evaluates to the value.
    std::vector<char> seen(a.count(), 0);
    for (const auto j : result.permutation) {
      ASSERT_LT(j, a.count());
      EXPECT_FALSE(seen[j]++);
    }
    EXPECT_NEAR(gromov_energy(a, b, result.permutation), result.energy,
                1e-12 * (1 + result.energy));
    EXPECT_DOUBLE_EQ(result.value * result.value, result.energy);
  }
}

INSTANTIATE_TEST_SUITE_P(Gw, GromovReference, ::testing::ValuesIn(testing::reference_cases("gw")),
                         [](const auto& entry) { return testing::test_name(entry.param); });

DistanceMatrix triangle(double d01, double d02, double d12) {
  const double lower[] = {d01, d02, d12};
  return *DistanceMatrix::from_lower_triangle(lower, 3);
}

TEST(GromovWasserstein, MatchesTheVectorOfTwoTriangles) {
  const GromovResult result = solve(triangle(3, 4, 5), triangle(4, 4, 6));
  EXPECT_NEAR(result.identity_energy, 4. / 9, 1e-15);
  EXPECT_NEAR(result.second_lower_bound, 4. / 9, 1e-15);
  EXPECT_NEAR(result.energy, 4. / 9, 1e-15);
  EXPECT_NEAR(result.value, 2. / 3, 1e-15);
  EXPECT_TRUE(result.certified);
}

TEST(GromovWasserstein, FindsTheRelabellingOfALine) {
  const DistanceMatrix line = distances_of(make_cloud(1, {0, 1, 3}));
  const DistanceMatrix other = distances_of(make_cloud(1, {3, 0, 1}));
  const GromovResult result = solve(line, other);
  EXPECT_NEAR(result.identity_energy, 4. / 3, 1e-15);
  EXPECT_EQ(result.energy, 0);
  EXPECT_TRUE(result.certified);
}

DistanceMatrix simplex(std::size_t n, double edge) {
  return *DistanceMatrix::from_lower_triangle(std::vector<double>(n * (n - 1) / 2, edge), n);
}

TEST(GromovWasserstein, MatchesTheClosedFormsOfSimplicesAndSinglePoints) {
  const double a = 1.5, b = 2.25;
  EXPECT_NEAR(solve(simplex(2, a), simplex(2, b)).energy, (a - b) * (a - b) / 2, 1e-15);
  for (const std::size_t n : {3u, 5u, 12u}) {
    const double expected = (1 - 1 / static_cast<double>(n)) * (a - b) * (a - b);
    EXPECT_NEAR(solve(simplex(n, a), simplex(n, b)).energy, expected, 1e-14);
  }
  const DistanceMatrix cloud = distances_of(normal_cloud(9, 3, 1));
  double mean = 0;
  for (const double x : cloud.values()) mean += x * x / 81;
  EXPECT_NEAR(solve(DistanceMatrix(1), cloud).energy, mean, 1e-13);
  EXPECT_NEAR(solve(cloud, DistanceMatrix(1)).energy, mean, 1e-13);
  EXPECT_NEAR(solve(DistanceMatrix(9), cloud).energy, mean, 1e-13);
  EXPECT_EQ(solve(DistanceMatrix(0), DistanceMatrix(0)).value, 0);
  EXPECT_EQ(solve(DistanceMatrix(1), DistanceMatrix(1)).value, 0);
  EXPECT_EQ(solve(DistanceMatrix(7), DistanceMatrix(7)).value, 0);
}

TEST(GromovWasserstein, AScaledCopyCostsExactlyTheScaling) {
  const Cloud cloud = normal_cloud(40, 4, 3);
  const DistanceMatrix a = distances_of(cloud);
  double mean = 0;
  for (const double x : a.values()) mean += x * x / 1600;
  for (const double s : {0.25, 0.9, 1.1, 3.0}) {
    const GromovResult result = solve(a, distances_of(testing::scaled(cloud, s)));
    EXPECT_NEAR(result.energy, (1 - s) * (1 - s) * mean, 1e-12 * mean) << s;
    EXPECT_EQ(result.start, "identity");
    EXPECT_TRUE(result.certified);
  }
}

TEST(GromovWasserstein, AnIsometricRelabelledCopyIsAtDistanceZero) {
  const Cloud cloud = normal_cloud(50, 5, 4);
  const Cloud moved =
      testing::reordered(testing::rotated(cloud, 9, 3.5), testing::random_order(50, 5));
  const GromovResult result = solve(distances_of(cloud), distances_of(moved));
  EXPECT_NEAR(result.value, 0, 1e-12);
}

TEST(GromovWasserstein, FindsTheBestOfAllPermutationsForFewPoints) {
  int found = 0;
  const int trials = 60;
  for (int seed = 0; seed < trials; ++seed) {
    const std::size_t n = 3 + static_cast<std::size_t>(seed) % 5;
    const DistanceMatrix a = distances_of(normal_cloud(n, 3, 10 + static_cast<unsigned>(seed)));
    const DistanceMatrix b = distances_of(normal_cloud(n, 3, 900 + static_cast<unsigned>(seed)));
    std::vector<std::uint32_t> p(n);
    std::iota(p.begin(), p.end(), 0u);
    double best = std::numeric_limits<double>::infinity();
    do {
      best = std::min(best, gromov_energy(a, b, p));
    } while (std::next_permutation(p.begin(), p.end()));
    const GromovResult result = solve(a, b);
    EXPECT_GE(result.energy, best - 1e-12);
    EXPECT_LE(result.lower_bound, best + 1e-12);
    if (result.energy <= best + 1e-12) ++found;
  }
  // Not convex: a local minimum now and then is no error, but it must be rare.
  EXPECT_GE(found, trials - 1);
}

TEST(GromovWasserstein, IsSymmetricAndScalesAtAnyMagnitude) {
  const Cloud x = normal_cloud(30, 4, 6), y = normal_cloud(30, 4, 7);
  const GromovResult ab = solve(distances_of(x), distances_of(y), {.random_starts = 30});
  const GromovResult ba = solve(distances_of(y), distances_of(x), {.random_starts = 30});
  EXPECT_NEAR(ab.lower_bound, ba.lower_bound, 1e-12);
  EXPECT_NEAR(ab.value, ba.value, 0.02 * ab.value);  // two searches of one landscape
  for (const int exponent : {-400, -30, 30, 400}) {
    const double factor = std::ldexp(1.0, exponent);
    const GromovResult scaled =
        solve(distances_of(testing::scaled(x, factor)), distances_of(testing::scaled(y, factor)),
              {.random_starts = 30});
    EXPECT_EQ(std::ldexp(scaled.value, -exponent), ab.value) << exponent;
  }
}

TEST(GromovWasserstein, IsTheSameForTheSameSeedWhateverTheThreads) {
  const DistanceMatrix a = distances_of(normal_cloud(40, 4, 8));
  const DistanceMatrix b = distances_of(normal_cloud(40, 4, 9));
  const GromovResult one = solve(a, b, {.seed = 3, .threads = 1});
  const GromovResult three = solve(a, b, {.seed = 3, .threads = 3});
  EXPECT_EQ(one.energy, three.energy);
  EXPECT_EQ(one.permutation, three.permutation);
  EXPECT_EQ(one.start, three.start);
  EXPECT_EQ(one.runs.size(), 11u);
}

TEST(GromovWasserstein, EveryRunEndsBelowItsStart) {
  const DistanceMatrix a = distances_of(normal_cloud(35, 4, 1));
  const DistanceMatrix b = distances_of(normal_cloud(35, 4, 2));
  for (const GromovRun& run : solve(a, b).runs) {
    EXPECT_LE(run.energy, run.start_energy) << run.start;
    EXPECT_GT(run.iterations, 0) << run.start;
  }
}

TEST(GromovWasserstein, DifferentSizesAndBadOptionsAreRefused) {
  const auto refused =
      gromov_wasserstein(DistanceMatrix(3), distances_of(normal_cloud(4, 2, 1)), {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("got 3 and 4"));
  EXPECT_FALSE(gromov_wasserstein(DistanceMatrix(0), DistanceMatrix(1), {}).has_value());
  EXPECT_FALSE(
      gromov_wasserstein(DistanceMatrix(3), DistanceMatrix(3), {.random_starts = -1}).has_value());
  EXPECT_FALSE(
      gromov_wasserstein(DistanceMatrix(3), DistanceMatrix(3), {.threads = 0}).has_value());
}

using Edges = std::vector<std::pair<std::size_t, std::size_t>>;

DistanceMatrix adjacency(std::size_t n, const Edges& edges) {
  std::vector<double> square(n * n, 0.0);
  for (const auto& [i, j] : edges) square[i * n + j] = square[j * n + i] = 1;
  return *DistanceMatrix::from_square(square, n);
}

DistanceMatrix relabelled(const DistanceMatrix& matrix, const std::vector<std::size_t>& order) {
  std::vector<double> square;
  for (const std::size_t i : order) {
    for (const std::size_t j : order) square.push_back(matrix(i, j));
  }
  return *DistanceMatrix::from_square(square, order.size());
}

DistanceMatrix path(std::size_t n) {
  Edges edges;
  for (std::size_t i = 0; i + 1 < n; ++i) edges.emplace_back(i, i + 1);
  return adjacency(n, edges);
}

DistanceMatrix cycles(std::size_t count, std::size_t length) {
  Edges edges;
  for (std::size_t c = 0; c < count; ++c) {
    for (std::size_t i = 0; i < length; ++i) {
      edges.emplace_back(c * length + i, c * length + (i + 1) % length);
    }
  }
  return adjacency(count * length, edges);
}

DistanceMatrix grid(std::size_t rows, std::size_t columns) {
  Edges edges;
  for (std::size_t i = 0; i < rows * columns; ++i) {
    if (i % columns + 1 < columns) edges.emplace_back(i, i + 1);
    if (i + columns < rows * columns) edges.emplace_back(i, i + columns);
  }
  return adjacency(rows * columns, edges);
}

DistanceMatrix random_tree(std::size_t n) {
  Rng rng(n);
  Edges edges;
  for (std::size_t i = 1; i < n; ++i) edges.emplace_back(i, rng.below(i));
  return adjacency(n, edges);
}

DistanceMatrix random_graph(std::size_t n, double density) {
  Rng rng(n);
  Edges edges;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (rng.uniform() < density) edges.emplace_back(i, j);
    }
  }
  return adjacency(n, edges);
}

// The union of three random perfect matchings; every point has three edges but for coincidences.
DistanceMatrix nearly_cubic(std::size_t n) {
  Edges edges;
  for (std::uint64_t m = 0; m < 3; ++m) {
    const auto order = testing::random_order(n, 100 + m);
    for (std::size_t i = 0; i + 1 < n; i += 2) edges.emplace_back(order[i], order[i + 1]);
  }
  return adjacency(n, edges);
}

DistanceMatrix petersen() {
  Edges edges;
  for (std::size_t i = 0; i < 5; ++i) {
    edges.emplace_back(i, (i + 1) % 5);
    edges.emplace_back(5 + i, 5 + (i + 2) % 5);
    edges.emplace_back(i, 5 + i);
  }
  return adjacency(10, edges);
}

// Two strongly regular graphs of the same parameters (16, 6, 2, 2) that are not the same graph.
DistanceMatrix cayley_4x4(const Edges& steps) {
  Edges edges;
  for (std::size_t x = 0; x < 4; ++x) {
    for (std::size_t y = 0; y < 4; ++y) {
      for (const auto& [dx, dy] : steps) {
        edges.emplace_back(4 * x + y, 4 * ((x + dx) % 4) + (y + dy) % 4);
      }
    }
  }
  return adjacency(16, edges);
}
DistanceMatrix shrikhande() { return cayley_4x4({{1, 0}, {0, 1}, {1, 1}}); }
DistanceMatrix rook() { return cayley_4x4({{1, 0}, {2, 0}, {0, 1}, {0, 2}}); }

DistanceMatrix cube(std::size_t dimension) {
  Edges edges;
  const std::size_t n = std::size_t{1} << dimension;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t bit = 1; bit < n; bit *= 2) edges.emplace_back(i, i ^ bit);
  }
  return adjacency(n, edges);
}

DistanceMatrix weighted(const DistanceMatrix& graph) {
  std::vector<double> square(graph.values().begin(), graph.values().end());
  const std::size_t n = graph.count();
  Rng rng(n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      square[i * n + j] *= 1 + static_cast<double>(rng.below(3));
      square[j * n + i] = square[i * n + j];
    }
  }
  return *DistanceMatrix::from_square(square, n);
}

TEST(GromovWasserstein, PermutedCopiesOfGraphsAreAtDistanceZeroAndCertified) {
  const std::vector<std::pair<std::string, DistanceMatrix>> graphs = {
      {"path", path(40)},
      {"cycle", cycles(1, 30)},
      {"cycles", cycles(7, 5)},
      {"grid", grid(6, 6)},
      {"oblong grid", grid(4, 9)},
      {"tree", random_tree(60)},
      {"star", adjacency(9, {{0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 6}, {0, 7}, {0, 8}})},
      {"random, sparse", random_graph(80, 0.05)},
      {"random, dense", random_graph(50, 0.5)},
      {"nearly cubic", nearly_cubic(60)},
      {"Petersen", petersen()},
      {"Shrikhande", shrikhande()},
      {"rook", rook()},
      {"cube", cube(5)},
      {"two complete graphs", adjacency(5, {{0, 1}, {0, 2}, {1, 2}, {3, 4}})},
      {"weighted grid", weighted(grid(5, 7))},
      {"weighted, random", weighted(random_graph(60, 0.1))},
      {"cloud", distances_of(normal_cloud(60, 4, 3), Geometry::kSpherical)},
  };
  for (const auto& [name, graph] : graphs) {
    SCOPED_TRACE(name);
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const auto order = testing::random_order(graph.count(), seed);
      const DistanceMatrix copy = relabelled(graph, order);
      const GromovResult result = solve(graph, copy);
      EXPECT_LE(result.value, 1e-12);
      EXPECT_TRUE(result.certified);
      EXPECT_LE(gromov_energy(graph, copy, result.permutation), 1e-24);
      EXPECT_FALSE(result.no_copy);
    }
  }
}

TEST(GromovWasserstein, GraphsThatNoBoundTellsApartAreNotCalledEqual) {
  const GromovResult result = solve(shrikhande(), rook());
  EXPECT_GT(result.energy, 0);
  EXPECT_FALSE(result.certified);
  EXPECT_TRUE(result.no_copy);
  // One cycle of six and two of three: every point has two edges.
  const GromovResult six = solve(cycles(1, 6), cycles(2, 3));
  EXPECT_FALSE(six.certified);
  EXPECT_TRUE(six.no_copy);
  // Two triangles hold at most four edges of the cycle: two go and two come, eight of 36 entries.
  EXPECT_NEAR(six.energy, 8. / 36, 1e-12);
}

TEST(GromovWasserstein, ARotatedAndReorderedCloudIsACopyInEveryGeometry) {
  const Cloud cloud = normal_cloud(120, 6, 14);
  // Spherical and hyperbolic distances survive rotations only.
  const Cloud moved = testing::reordered(testing::rotated(cloud, 9), testing::random_order(120, 5));
  for (const Geometry geometry : {Geometry::kRaw, Geometry::kSpherical, Geometry::kHyperbolic}) {
    const GromovResult result = solve(distances_of(cloud, geometry), distances_of(moved, geometry));
    EXPECT_LE(result.value, 1e-12);
    EXPECT_TRUE(result.certified);
  }
}

TEST(GromovWasserstein, RestartsAreTriedOnlyWhileTheValueIsNotCertified) {
  const DistanceMatrix a = distances_of(normal_cloud(30, 4, 8));
  const DistanceMatrix b = distances_of(normal_cloud(30, 4, 9));
  const GromovResult without = solve(a, b, {.random_starts = 2});
  const GromovResult with = solve(a, b, {.random_starts = 2, .restarts = 10});
  EXPECT_EQ(without.runs.size(), 5u);
  EXPECT_EQ(with.runs.size(), 15u);
  EXPECT_EQ(with.runs.back().start, "restart 9");
  EXPECT_LE(with.energy, without.energy);
  const GromovResult threads = solve(a, b, {.random_starts = 2, .restarts = 10, .threads = 3});
  EXPECT_EQ(threads.permutation, with.permutation);
  EXPECT_EQ(solve(a, a, {.restarts = 10}).runs.size(), 1u);
  EXPECT_FALSE(gromov_wasserstein(a, b, {.restarts = -1}).has_value());
}

TEST(GromovWasserstein, TheIdentityAloneGivesNoMoreThanItsEnergyAndNoLessThanTheSearch) {
  const Cloud before = normal_cloud(90, 5, 31);
  Cloud after = before;
  Rng rng(32);
  for (double& x : after.values) x += 0.2 * rng.normal();
  const DistanceMatrix a = distances_of(before, Geometry::kRaw);
  const DistanceMatrix b = distances_of(after, Geometry::kRaw);
  const GromovResult quick = solve(a, b, {.identity_only = true});
  const GromovResult full = solve(a, b);
  ASSERT_EQ(quick.runs.size(), 1u);
  EXPECT_EQ(quick.runs[0].start, "identity");
  EXPECT_LE(quick.energy, quick.identity_energy);
  EXPECT_GE(quick.energy, full.energy * (1 - 1e-12));
  EXPECT_GE(quick.energy, quick.lower_bound);
}

TEST(GromovWasserstein, StopsWhenTheFirstTwoStartsAgreeAndGoesOnWhenTheyDoNot) {
  const Cloud before = normal_cloud(90, 5, 33);
  Cloud after = before;
  Rng rng(34);
  for (double& x : after.values) x += 0.01 * rng.normal();
  const DistanceMatrix a = distances_of(before, Geometry::kRaw);
  const GromovResult near =
      solve(a, distances_of(after, Geometry::kRaw), {.until_agreed = true, .profile_blocks = 16});
  EXPECT_EQ(near.runs.size(), 2u);
  EXPECT_NEAR(near.energy, solve(a, distances_of(after, Geometry::kRaw)).energy,
              1e-12 * near.energy);
  const DistanceMatrix other = distances_of(normal_cloud(90, 5, 35), Geometry::kRaw);
  EXPECT_EQ(solve(a, other, {.random_starts = 2, .until_agreed = true}).runs.size(), 5u);
}

TEST(GromovWasserstein, CoarseProfilesGiveAWeakerBoundAndOrdersAtHandChangeNothing) {
  const DistanceMatrix a = distances_of(normal_cloud(50, 4, 36), Geometry::kRaw);
  const DistanceMatrix b = distances_of(normal_cloud(50, 4, 37), Geometry::kRaw);
  const GromovResult fine = solve(a, b, {.random_starts = 0});
  double last = 0;
  for (const std::size_t blocks : {1u, 5u, 25u}) {  // each divides the next: finer is never weaker
    const GromovResult coarse = solve(a, b, {.random_starts = 0, .profile_blocks = blocks});
    EXPECT_GE(coarse.third_lower_bound, last * (1 - 1e-12));
    EXPECT_LE(coarse.third_lower_bound, fine.third_lower_bound * (1 + 1e-12));
    last = coarse.third_lower_bound;
  }
  const auto order_a = sorted_edges(a, a.diameter()), order_b = sorted_edges(b, b.diameter());
  const auto given = gromov_wasserstein(a, b, {.random_starts = 0}, {order_a, order_b});
  ASSERT_TRUE(given);
  EXPECT_EQ(given->energy, fine.energy);
  EXPECT_EQ(given->third_lower_bound, fine.third_lower_bound);
  EXPECT_EQ(given->permutation, fine.permutation);
}

// `cloud` with every coordinate moved by up to `by` standard deviations, its points in another
// order when `mixed`.
Cloud moved(const Cloud& cloud, double by, bool mixed, std::uint64_t seed) {
  Rng rng(seed);
  Cloud result = cloud;
  for (double& x : result.values) x += by * rng.normal();
  if (!mixed) return result;
  Cloud other = result;
  for (std::size_t i = 0; i < cloud.count; ++i) {
    const std::size_t to = (7 * i + 3) % cloud.count;  // 7 and the counts below share no factor
    for (std::size_t k = 0; k < cloud.dimension; ++k) {
      other.values[to * cloud.dimension + k] = result.values[i * cloud.dimension + k];
    }
  }
  return other;
}

// Bounds stand for most costs. Whatever they leave out, a result must be where a search over all
// costs ends, too: no assignment of the whole gradient leads lower, and no swap does.
TEST(GromovWasserstein, EndsWhereNoStepAndNoSwapOfTheWholeProblemLeadsLower) {
  for (const std::size_t n : {47u, 48u, 96u, 150u}) {
    for (const Geometry geometry : kGeometries) {
      for (const double by : {1e-7, 0.01, 0.3, 3.0}) {
        for (const bool mixed : {false, true}) {
          for (const std::size_t dimension : {2u, 40u}) {
            const Cloud x = normal_cloud(n, dimension, n + dimension);
            const DistanceMatrix a = distances_of(x, geometry, kDefaultRho);
            const DistanceMatrix b = distances_of(moved(x, by, mixed, 5), geometry, kDefaultRho);
            const GromovResult result =
                solve(a, b, {.random_starts = 0, .until_agreed = true, .profile_blocks = 16});
            const auto& p = result.permutation;
            std::vector<double> cost(n * n);
            double current = 0, scale = 0;
            for (std::size_t i = 0; i < n; ++i) {
              for (std::size_t j = 0; j < n; ++j) {
                for (std::size_t k = 0; k < n; ++k) cost[i * n + j] -= a(i, k) * b(j, p[k]);
                scale += (a(i, j) * a(i, j) + b(i, j) * b(i, j)) / 2;
              }
              current += cost[i * n + p[i]];
            }
            const double slack = 1e-12 * scale;
            EXPECT_LE(current, solve_assignment(cost, n).cost + slack)
                << n << " " << geometry_name(geometry) << " " << by << " " << mixed;
            const double before = gromov_energy(a, b, p);
            EXPECT_NEAR(result.energy, before, 1e-9 * before + 1e-20 * scale);
            if (result.certified) continue;
            for (std::size_t i = 0; i < n; i += 5) {
              for (std::size_t j = 0; j < i; ++j) {
                double change = 0;  // of sum (A - B)^2, from its definition
                for (std::size_t k = 0; k < n; ++k) {
                  if (k == i || k == j) continue;
                  change += 4 * (a(i, k) - a(j, k)) * (b(p[i], p[k]) - b(p[j], p[k]));
                }
                EXPECT_GE(change, -slack) << n << " " << i << " " << j;
              }
            }
          }
        }
      }
    }
  }
}

TEST(GromovWasserstein, SmallDistortionsAreNotCertifiedByHowLargeTheDistancesAre) {
  const Cloud x = normal_cloud(60, 5, 3);
  const DistanceMatrix a = distances_of(x, Geometry::kRaw, kDefaultRho);
  double squares = 0;  // mean A^2 + mean B^2
  for (const double entry : a.values()) squares += 2 * entry * entry / (60.0 * 60.0);
  for (const double by : {1e-3, 1e-6, 1e-8}) {
    const DistanceMatrix b = distances_of(moved(x, by, false, 4), Geometry::kRaw, kDefaultRho);
    const GromovResult result = solve(a, b);
    // The less a cloud moves the fewer distances change places, and the closer is the third bound:
    // E is certified where it meets that, never because both are small beside the distances.
    const double slack = 1e-9 * result.energy + 1e-14 * std::sqrt(result.energy * squares);
    EXPECT_EQ(result.certified, result.energy - result.lower_bound <= slack)
        << by << ": " << result.energy << " " << result.lower_bound;
    EXPECT_EQ(result.certified, by < 1e-6) << by;
    EXPECT_GT(result.energy, 0);
  }
  // Scaled by a little the norm bound meets it at any size.
  Cloud scaled = x;
  for (double& value : scaled.values) value *= 1 + 0x1p-20;
  const GromovResult result = solve(a, distances_of(scaled, Geometry::kRaw, kDefaultRho));
  EXPECT_TRUE(result.certified);
  double mean = 0;
  for (const double entry : a.values()) mean += entry * entry / (60.0 * 60.0);
  EXPECT_NEAR(result.energy, 0x1p-40 * mean, 1e-9 * 0x1p-40 * mean);
}

}  // namespace
}  // namespace tailor::geometry
