// Distances between diagrams: values made with SciPy's assignment on the augmented matrix, closed
// forms, the dual certificate, and the axioms of a metric.
#include "geometry/diagram_distance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "geometry/assignment.h"
#include "tests/geometry/reference.h"
#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using ::testing::HasSubstr;
using testing::ReferenceCase;

constexpr double kInf = std::numeric_limits<double>::infinity();

DiagramDistance distance_of(const Diagram& a, const Diagram& b, double order = 2,
                            GroundNorm ground = GroundNorm::kTwo) {
  const auto result = diagram_distance(a, b, {.order = order, .ground = ground});
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return *result;
}

class DiagramReference : public ::testing::TestWithParam<std::string> {};

TEST_P(DiagramReference, MatchesTheStoredValueInBothGroundNorms) {
  const ReferenceCase reference(GetParam());
  const Diagram a = reference.diagram("a"), b = reference.diagram("b");
  for (const auto& [name, ground] :
       {std::pair("linf", GroundNorm::kInfinity), std::pair("l2", GroundNorm::kTwo)}) {
    const double expected = ReferenceCase::number(reference.index["expected"][name]);
    const DiagramDistance result = distance_of(a, b, 2, ground);
    if (std::isinf(expected)) {
      EXPECT_EQ(result.distance, expected);
      continue;
    }
    const double absolute = reference.index["tolerance_abs"];
    EXPECT_NEAR(result.distance, expected, 1e-10 * expected + 1e-3 * absolute) << name;
    EXPECT_LE(result.lower_bound, result.distance);
    EXPECT_LT(result.gap, 1e-13) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(W2, DiagramReference, ::testing::ValuesIn(testing::reference_cases("w2")),
                         [](const auto& entry) { return testing::test_name(entry.param); });

TEST(DiagramDistance, RealisticPairMatchesTheStoredValues) {
  const ReferenceCase reference("real/residual512_d256");
  for (const char* geometry : {"euclidean", "spherical", "hyperbolic"}) {
    const Diagram x = reference.diagram(std::string("h1_x_") + geometry);
    const Diagram y = reference.diagram(std::string("h1_y_") + geometry);
    const auto& expected = reference.index["w2"][geometry]["expected"];
    const double l2 = expected["l2"], linf = expected["linf"];
    EXPECT_NEAR(distance_of(x, y).distance, l2, 1e-10 * l2);
    EXPECT_NEAR(distance_of(x, y, 2, GroundNorm::kInfinity).distance, linf, 1e-10 * linf);
  }
}

TEST(DiagramDistance, MatchesTheHandComputedVectors) {
  const Diagram a = {{1, 3}, {2, 2.5}}, b = {{1.2, 2.8}}, empty;
  EXPECT_NEAR(distance_of(a, b).distance, .4527692569, 1e-10);
  EXPECT_NEAR(distance_of(a, b, 2, GroundNorm::kInfinity).distance, .3201562119, 1e-10);
  EXPECT_NEAR(distance_of(a, b, 1).distance, .6363961031, 1e-10);
  EXPECT_NEAR(distance_of(a, b, 1, GroundNorm::kInfinity).distance, .45, 1e-10);
  EXPECT_NEAR(distance_of(a, empty).distance, 1.4577379737, 1e-10);
  EXPECT_NEAR(distance_of(a, empty, 2, GroundNorm::kInfinity).distance, 1.0307764064, 1e-10);
  EXPECT_NEAR(distance_of(a, empty, 1).distance, 1.7677669530, 1e-10);
  EXPECT_NEAR(distance_of(a, empty, 1, GroundNorm::kInfinity).distance, 1.25, 1e-10);
}

TEST(DiagramDistance, SquareAndHexagonAreAtTheirClosedFormDistance) {
  const Diagram square = rips_persistence(testing::distances_of(testing::regular_polygon(4)),
                                          {.persistence_floor = 1e-9})
                             ->bars;
  const Diagram hexagon = rips_persistence(testing::distances_of(testing::regular_polygon(6)),
                                           {.persistence_floor = 1e-9})
                              ->bars;
  EXPECT_NEAR(distance_of(square, hexagon).distance, .4933250906, 1e-10);
  EXPECT_NEAR(distance_of(square, hexagon, 2, GroundNorm::kInfinity).distance, .4142135624, 1e-10);
}

Diagram random_diagram(std::size_t n, std::uint64_t seed) {
  Rng rng(seed);
  Diagram bars;
  for (std::size_t i = 0; i < n; ++i) {
    const double birth = rng.uniform();
    bars.push_back({birth, birth + 0.3 * rng.uniform() * rng.uniform()});
  }
  return bars;
}

// All partial matchings, by recursion.
double brute_force(const Diagram& a, const Diagram& b, std::size_t i, unsigned used, double order,
                   GroundNorm ground) {
  const auto alone = [&](const Bar& x) {
    const double unit = ground == GroundNorm::kTwo ? std::sqrt(0.5) : 0.5;
    return std::pow((x.death - x.birth) * unit, order);
  };
  if (i == a.size()) {
    double sum = 0;
    for (std::size_t j = 0; j < b.size(); ++j) {
      if (!(used >> j & 1)) sum += alone(b[j]);
    }
    return sum;
  }
  double best = alone(a[i]) + brute_force(a, b, i + 1, used, order, ground);
  for (std::size_t j = 0; j < b.size(); ++j) {
    if (used >> j & 1) continue;
    const double x = std::abs(a[i].birth - b[j].birth), y = std::abs(a[i].death - b[j].death);
    const double d = ground == GroundNorm::kTwo ? std::hypot(x, y) : std::max(x, y);
    best = std::min(best,
                    std::pow(d, order) + brute_force(a, b, i + 1, used | 1u << j, order, ground));
  }
  return best;
}

TEST(DiagramDistance, MatchesAllPartialMatchingsForFewPoints) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Diagram a = random_diagram(seed % 6, seed), b = random_diagram(seed % 7, seed + 1000);
    for (const double order : {1.0, 2.0, 3.5}) {
      for (const GroundNorm ground : {GroundNorm::kTwo, GroundNorm::kInfinity}) {
        const double expected = std::pow(brute_force(a, b, 0, 0, order, ground), 1 / order);
        EXPECT_NEAR(distance_of(a, b, order, ground).distance, expected, 1e-12)
            << seed << " " << order << " " << ground_norm_name(ground);
      }
    }
  }
}

TEST(DiagramDistance, IsSymmetricZeroOnEqualDiagramsAndObeysTheTriangleInequality) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Diagram a = random_diagram(60, seed), b = random_diagram(50, seed + 100),
                  c = random_diagram(70, seed + 200);
    const double ab = distance_of(a, b).distance;
    EXPECT_NEAR(distance_of(b, a).distance, ab, 1e-13);
    EXPECT_LE(ab, distance_of(a, c).distance + distance_of(c, b).distance + 1e-13);
    EXPECT_EQ(distance_of(a, a).distance, 0);
    Diagram reversed(a.rbegin(), a.rend());
    EXPECT_EQ(distance_of(a, reversed).distance, 0);
  }
}

TEST(DiagramDistance, ScalesAtAnyMagnitude) {
  const Diagram a = random_diagram(40, 1), b = random_diagram(30, 2);
  const double expected = distance_of(a, b).distance;
  for (const int exponent : {-1000, -300, -30, 30, 300, 1000}) {
    const auto scale = [exponent](Diagram bars) {
      for (Bar& bar : bars) {
        bar = {std::ldexp(bar.birth, exponent), std::ldexp(bar.death, exponent)};
      }
      return bars;
    };
    EXPECT_EQ(std::ldexp(distance_of(scale(a), scale(b)).distance, -exponent), expected)
        << exponent;
  }
}

TEST(DiagramDistance, InfiniteBarsAreMatchedInOrder) {
  const Diagram a = {{0, kInf}, {5, kInf}}, b = {{4, kInf}, {1, kInf}};
  EXPECT_NEAR(distance_of(a, b).distance, std::sqrt(2.0), 1e-14);
  EXPECT_EQ(distance_of(a, {{1, kInf}}).distance, kInf);
  EXPECT_EQ(distance_of({{1, kInf}}, {{1, kInf}}).distance, 0);
}

TEST(DiagramDistance, PointsOnTheDiagonalDoNotMatter) {
  const Diagram a = {{1, 3}, {2, 2}, {0, 0}}, b = {{1, 3}};
  EXPECT_EQ(distance_of(a, b).distance, 0);
  EXPECT_EQ(distance_of({}, {}).distance, 0);
}

TEST(DiagramDistance, ManyEqualPointsAreMatchedExactly) {
  // 60 copies against 50: ten are left alone.
  const Diagram a(60, Bar{1, 2}), b(50, Bar{1, 2});
  EXPECT_NEAR(distance_of(a, b).distance, std::sqrt(10 * 0.5), 1e-12);
}

// Few different bars, so that nearly all are there more than once and costs tie.
Diagram integer_bars(std::size_t n, std::uint64_t seed, std::uint64_t births = 6,
                     std::uint64_t lengths = 4) {
  Rng rng(seed);
  Diagram bars;
  for (std::size_t i = 0; i < n; ++i) {
    const double birth = 1 + static_cast<double>(rng.below(births));
    bars.push_back({birth, birth + 1 + static_cast<double>(rng.below(lengths))});
  }
  return bars;
}

TEST(DiagramDistance, EqualBarsMatchAllPartialMatchings) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    const Diagram a = integer_bars(seed % 7, seed, 2, 2),
                  b = integer_bars(seed % 6, seed + 1000, 2, 3);
    for (const double order : {1.0, 2.0, 3.5}) {
      for (const GroundNorm ground : {GroundNorm::kTwo, GroundNorm::kInfinity}) {
        const double expected = std::pow(brute_force(a, b, 0, 0, order, ground), 1 / order);
        EXPECT_NEAR(distance_of(a, b, order, ground).distance, expected, 1e-12)
            << seed << " " << order << " " << ground_norm_name(ground);
      }
    }
  }
}

// The dense assignment on the augmented matrix, which knows nothing of multiplicities.
double by_assignment(const Diagram& a, const Diagram& b, double order, GroundNorm ground) {
  const std::size_t n = a.size() + b.size();
  const auto alone = [&](const Bar& x) {
    return std::pow((x.death - x.birth) * (ground == GroundNorm::kTwo ? std::sqrt(0.5) : 0.5),
                    order);
  };
  std::vector<double> cost(n * n, 0.0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) {
      const double x = std::abs(a[i].birth - b[j].birth), y = std::abs(a[i].death - b[j].death);
      cost[i * n + j] =
          std::pow(ground == GroundNorm::kTwo ? std::hypot(x, y) : std::max(x, y), order);
    }
    for (std::size_t j = b.size(); j < n; ++j) cost[i * n + j] = alone(a[i]);
  }
  for (std::size_t i = a.size(); i < n; ++i) {
    for (std::size_t j = 0; j < b.size(); ++j) cost[i * n + j] = alone(b[j]);
  }
  return std::pow(solve_assignment(cost, n).cost, 1 / order);
}

TEST(DiagramDistance, BarsWithTiesMatchTheDenseAssignment) {
  const auto nudged = [](Diagram bars, std::uint64_t seed) {  // some by a last place
    Rng rng(seed);
    for (Bar& bar : bars) {
      if (rng.below(3) == 0) bar.death = std::nextafter(bar.death, 100);
    }
    return bars;
  };
  const auto with = [](Diagram bars, const Diagram& more) {
    bars.insert(bars.end(), more.begin(), more.end());
    return bars;
  };
  const Diagram equal(60, Bar{0, 1}), longer(50, Bar{0, 1.2});
  const std::vector<std::pair<Diagram, Diagram>> cases = {
      {equal, longer},
      {integer_bars(80, 1), integer_bars(90, 2)},
      {integer_bars(80, 3, 30, 30), integer_bars(70, 4, 30, 30)},
      {nudged(equal, 5), nudged(longer, 6)},
      {nudged(integer_bars(80, 7), 8), nudged(integer_bars(80, 9), 10)},
      {with(random_diagram(40, 11), equal), with(random_diagram(40, 12), longer)},
      {with(random_diagram(40, 13), random_diagram(40, 13)), random_diagram(40, 14)},
      {integer_bars(100, 15), {}},
  };
  for (std::size_t c = 0; c < cases.size(); ++c) {
    for (const double order : {1.0, 2.0, 5.0}) {
      for (const GroundNorm ground : {GroundNorm::kTwo, GroundNorm::kInfinity}) {
        const double expected = by_assignment(cases[c].first, cases[c].second, order, ground);
        const DiagramDistance result = distance_of(cases[c].first, cases[c].second, order, ground);
        EXPECT_NEAR(result.distance, expected, 1e-12 * expected)
            << c << " " << order << " " << ground_norm_name(ground);
        EXPECT_LT(result.gap, 1e-13);
      }
    }
  }
}

// 40,000 equal bars against as many: each moves by 0.2. One point a side, so one pair is looked at.
TEST(DiagramDistance, TheWorkGoesWithTheNumberOfDifferentBars) {
  const DiagramDistance equal = distance_of(Diagram(40000, Bar{0, 1}), Diagram(40000, Bar{0, 1.2}));
  EXPECT_NEAR(equal.distance, 200 * 0.2, 1e-10);
  EXPECT_EQ(equal.matched, 40000u);
  EXPECT_EQ(equal.pairs, 1u);
  const DiagramDistance integer = distance_of(integer_bars(40000, 1), integer_bars(40000, 2));
  EXPECT_LE(integer.pairs, 24u * 24u);
  EXPECT_LT(integer.gap, 1e-13);
  // The same bars in another order are at distance 0.
  Diagram a = integer_bars(4000, 3);
  const Diagram b(a.rbegin(), a.rend());
  EXPECT_EQ(distance_of(a, b).distance, 0);
}

TEST(DiagramDistance, BadInputIsRefusedByName) {
  EXPECT_THAT(diagram_distance({{1, 2}, {3, 2}}, {}).error().message(),
              HasSubstr("diagram A, row 1"));
  EXPECT_THAT(diagram_distance({}, {{std::nan(""), 2}}).error().message(),
              HasSubstr("diagram B, row 0"));
  EXPECT_FALSE(diagram_distance({{-kInf, 2}}, {}).has_value());
  EXPECT_FALSE(diagram_distance({}, {}, {.order = 0.5}).has_value());
  EXPECT_FALSE(diagram_distance({}, {}, {.order = kInf}).has_value());
  EXPECT_EQ(parse_ground_norm("inf").value(), GroundNorm::kInfinity);
  EXPECT_FALSE(parse_ground_norm("3").has_value());
}

// Every bar moved by 1e-11: the distance is sqrt(20) 1e-11 (births and deaths differ by less than
// the rounding of the bars' own powers).
TEST(DiagramDistance, ADistanceFarBelowTheBarsIsNotLostToTheirRounding) {
  Diagram a, b;
  for (int i = 0; i < 20; ++i) {
    a.push_back({i * 1e-9, 1});
    b.push_back({(i * 7 % 20) * 1e-9 + 1e-11, 1});
  }
  const DiagramDistance result = distance_of(a, b);
  EXPECT_NEAR(result.distance, std::sqrt(20.0) * 1e-11, 1e-15);
  EXPECT_LE(result.lower_bound, result.distance);
}

// Rounding can make the diagonal look cheaper than an equal bar; equal diagrams are still at 0.
TEST(DiagramDistance, EqualDiagramsOfNearlyEqualBarsAreAtDistanceZero) {
  Rng rng(12);
  for (const double spread : {1e-12, 1e-9, 1e-3}) {
    Diagram a;
    for (int i = 0; i < 60; ++i) {
      const double birth = 1 + spread * rng.uniform();
      a.push_back({birth, birth + 1e-6 + spread * rng.uniform()});
    }
    a.push_back({0.5, std::numeric_limits<double>::infinity()});
    a.push_back({2, 2});
    Diagram b(a.rbegin(), a.rend());
    b.push_back({3, 3});
    for (const double order : {1.0, 2.0, 3.0}) {
      const auto result = diagram_distance(a, b, {.order = order});
      ASSERT_TRUE(result.has_value());
      EXPECT_EQ(result->distance, 0) << spread << " " << order;
      EXPECT_EQ(result->matched, 60u);
    }
  }
}

}  // namespace
}  // namespace tailor::geometry
