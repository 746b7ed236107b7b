// Distances: closed forms of each geometry, the table of hyperbolic distances in 40-digit
// arithmetic, and the properties every matrix must have.
#include "geometry/distance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using ::testing::AllOf;
using testing::distances_of;
using ::testing::HasSubstr;
using testing::make_cloud;
using testing::normal_cloud;
using ::testing::Not;

constexpr double kPi = std::numbers::pi;

TEST(Distance, HyperbolicDistancesMatchTheTableOfRhoAndAngle) {
  struct Row {
    double rho, kappa, sixth, third, half, whole;
  };
  const Row rows[] = {
      {.5, 1.3333333333, .6771712434, 1.2502902345, 1.6806997724, 2.1972245773},
      {kDefaultRho, 3.6268604078, 1.6747149014, 2.7138889801, 3.3419024482, 4},
      {.9, 9.4736842105, 3.2584879650, 4.5189562233, 5.2012329277, 5.8888779583},
      {.99, 99.4974874372, 7.8840604297, 9.2004667786, 9.8935129695, 10.5866096494},
  };
  for (const Row& row : rows) {
    EXPECT_NEAR(2 * row.rho / (1 - row.rho * row.rho), row.kappa, 1e-10);
    EXPECT_NEAR(hyperbolic_from_angle(kPi / 6, row.rho), row.sixth, 1e-10);
    EXPECT_NEAR(hyperbolic_from_angle(kPi / 3, row.rho), row.third, 1e-10);
    EXPECT_NEAR(hyperbolic_from_angle(kPi / 2, row.rho), row.half, 1e-10);
    EXPECT_NEAR(hyperbolic_from_angle(kPi, row.rho), row.whole, 1e-10);
    // The same through points at these angles, of various lengths.
    const Cloud cloud = make_cloud(2, {2, 0, std::cos(kPi / 6), std::sin(kPi / 6),
                                       7 * std::cos(kPi / 3), 7 * std::sin(kPi / 3), 0, 3, -5, 0});
    const DistanceMatrix matrix = distances_of(cloud, Geometry::kHyperbolic, row.rho);
    EXPECT_NEAR(matrix(0, 1), row.sixth, 1e-10);
    EXPECT_NEAR(matrix(0, 2), row.third, 1e-10);
    EXPECT_NEAR(matrix(0, 3), row.half, 1e-10);
    EXPECT_NEAR(matrix(0, 4), row.whole, 1e-10);
  }
}

TEST(Distance, HyperbolicAgreesWithTheDefinitionInTheBall) {
  const Cloud cloud = normal_cloud(40, 7, 5);
  const double rho = 0.9;
  const DistanceMatrix matrix = distances_of(cloud, Geometry::kHyperbolic, rho);
  for (std::size_t i = 0; i < cloud.count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto u = cloud.view().row(i), v = cloud.view().row(j);
      const double nu = norm(u), nv = norm(v);
      double squared = 0;
      for (std::size_t k = 0; k < u.size(); ++k) {
        const double difference = rho * u[k] / nu - rho * v[k] / nv;
        squared += difference * difference;
      }
      const double edge = (1 - rho * rho) * (1 - rho * rho);
      EXPECT_NEAR(matrix(i, j), std::acosh(1 + 2 * squared / edge), 1e-9);
    }
  }
}

TEST(Distance, SmallAnglesKeepTheirDigits) {
  for (const double angle : {1e-3, 1e-6, 1e-9, 1e-12}) {
    const Cloud cloud = make_cloud(2, {1, 0, std::cos(angle), std::sin(angle)});
    EXPECT_NEAR(distances_of(cloud, Geometry::kSpherical)(0, 1) / angle, 1, 1e-9) << angle;
  }
}

TEST(Distance, AnglesNearPiKeepTheirDigits) {
  for (const double angle : {0.0, 1e-3, 1e-6, 1e-9}) {
    const Cloud cloud = make_cloud(2, {1, 0, -std::cos(angle), std::sin(angle)});
    EXPECT_NEAR(distances_of(cloud, Geometry::kSpherical)(0, 1), kPi - angle, 1e-15) << angle;
  }
}

TEST(Distance, DuplicatesAreAtDistanceZeroInEveryGeometry) {
  Cloud cloud = normal_cloud(5, 9, 3);
  for (std::size_t k = 0; k < 9; ++k) cloud.values[4 * 9 + k] = cloud.values[k];
  for (const Geometry geometry : kGeometries) {
    EXPECT_EQ(distances_of(cloud, geometry)(0, 4), 0.0) << geometry_name(geometry);
  }
}

TEST(Distance, MatricesAreSymmetricObeyTheTriangleInequalityAndKnowTheirExtent) {
  const Cloud cloud = normal_cloud(70, 11, 9);
  for (const Geometry geometry : kGeometries) {
    const DistanceMatrix d = distances_of(cloud, geometry);
    double radius = std::numeric_limits<double>::infinity(), diameter = 0;
    for (std::size_t i = 0; i < d.count(); ++i) {
      EXPECT_EQ(d(i, i), 0);
      double farthest = 0;
      for (std::size_t j = 0; j < d.count(); ++j) {
        EXPECT_EQ(d(i, j), d(j, i));
        farthest = std::max(farthest, d(i, j));
        for (std::size_t k = 0; k < d.count(); k += 7) {
          EXPECT_LE(d(i, j), d(i, k) + d(k, j) + 1e-12);
        }
      }
      radius = std::min(radius, farthest);
      diameter = std::max(diameter, farthest);
    }
    EXPECT_EQ(d.enclosing_radius(), radius);
    EXPECT_EQ(d.diameter(), diameter);
  }
}

TEST(Distance, TheNumberOfThreadsDoesNotChangeABit) {
  const Cloud cloud = normal_cloud(150, 37, 2);
  for (const Geometry geometry : kGeometries) {
    const auto one = pairwise_distances(cloud.view(), {.geometry = geometry, .threads = 1});
    const auto four = pairwise_distances(cloud.view(), {.geometry = geometry, .threads = 4});
    ASSERT_TRUE(one && four);
    for (std::size_t i = 0; i < one->values().size(); ++i) {
      ASSERT_EQ(one->values()[i], four->values()[i]) << geometry_name(geometry) << " entry " << i;
    }
    EXPECT_EQ(one->enclosing_radius(), four->enclosing_radius());
  }
}

TEST(Distance, RawScalesWithTheCloudAndAnglesDoNot) {
  const Cloud cloud = normal_cloud(30, 5, 4);
  const double factor = 1024;  // a power of two: exact
  const Cloud larger = testing::scaled(cloud, factor);
  const DistanceMatrix raw = distances_of(cloud), raw_larger = distances_of(larger);
  const DistanceMatrix angle = distances_of(cloud, Geometry::kSpherical);
  const DistanceMatrix angle_larger = distances_of(larger, Geometry::kSpherical);
  for (std::size_t i = 0; i < raw.values().size(); ++i) {
    EXPECT_EQ(raw_larger.values()[i], factor * raw.values()[i]);
    EXPECT_EQ(angle_larger.values()[i], angle.values()[i]);
  }
}

TEST(Distance, HugeAndTinyScalesDoNotOverflow) {
  for (const double factor : {1e-200, 1e-150, 1e150, 1e250, 1e300}) {
    const Cloud cloud = make_cloud(2, {0, 0, 3 * factor, 4 * factor});
    EXPECT_NEAR(distances_of(cloud)(0, 1) / factor, 5, 1e-14) << factor;
  }
  const auto beyond =
      pairwise_distances(make_cloud(1, {-1.7e308, 1.7e308}).view(), {.geometry = Geometry::kRaw});
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message(), HasSubstr("larger than float64 can hold"));
}

TEST(Distance, NanAndInfinityAreRefusedByPlace) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    Cloud cloud = normal_cloud(6, 4, 1);
    cloud.values[2 * 4 + 3] = bad;
    const auto result = pairwise_distances(cloud.view(), {});
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(result.error().message(), HasSubstr("point 2, coordinate 3"));
  }
}

TEST(Distance, ZeroVectorsAreDroppedInBothCloudsAndCounted) {
  const Cloud before = make_cloud(2, {1, 0, 0, 0, 0, 1, 1, 1});
  const Cloud after = make_cloud(2, {1, 0, 1, 0, 0, 5e-13, 1, 2});
  const auto pair = clean_pair(before.view(), after.view());
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->dropped, 2u);
  EXPECT_EQ(pair->before.values, (std::vector<double>{1, 0, 1, 1}));
  EXPECT_EQ(pair->after.values, (std::vector<double>{1, 0, 1, 2}));
  const auto refused = pairwise_distances(before.view(), {.geometry = Geometry::kSpherical});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("point 1 is a zero vector"));
}

TEST(Distance, CloudsOfDifferentShapesAreRefused) {
  EXPECT_FALSE(clean_pair(normal_cloud(3, 2, 1).view(), normal_cloud(4, 2, 1).view()));
  EXPECT_FALSE(
      displacements(normal_cloud(3, 2, 1).view(), normal_cloud(3, 4, 1).view(), {}).has_value());
}

TEST(Distance, OptionsOutOfRangeAreRefused) {
  const Cloud cloud = normal_cloud(3, 2, 1);
  for (const double rho : {0.0, 1.0, -0.5, std::nan("")}) {
    EXPECT_FALSE(pairwise_distances(cloud.view(), {.rho = rho}).has_value()) << rho;
  }
  EXPECT_FALSE(pairwise_distances(cloud.view(), {.threads = 0}).has_value());
}

TEST(Distance, EmptyAndOnePointCloudsHaveNoExtent) {
  for (const std::size_t n : {0u, 1u}) {
    for (const Geometry geometry : kGeometries) {
      const DistanceMatrix d = distances_of(normal_cloud(n, 3, 1), geometry);
      EXPECT_EQ(d.count(), n);
      EXPECT_EQ(d.enclosing_radius(), 0);
      EXPECT_EQ(d.diameter(), 0);
    }
  }
}

TEST(Distance, MatricesFromOutsideAreCheckedByName) {
  const double good[] = {0, 1, 2, 1, 0, 3, 2, 3, 0};
  ASSERT_TRUE(DistanceMatrix::from_square(good, 3));
  EXPECT_EQ(DistanceMatrix::from_square(good, 3)->enclosing_radius(), 2);
  struct Case {
    std::size_t at;
    double value;
    const char* message;
  };
  for (const Case& c : {Case{1, 5, "not symmetric"}, Case{4, 1, "on the diagonal"},
                        Case{5, -3, "entry (1, 2) is -3"}, Case{6, std::nan(""), "entry (2, 0)"}}) {
    std::vector<double> bad(good, good + 9);
    bad[c.at] = c.value;
    const auto result = DistanceMatrix::from_square(bad, 3);
    ASSERT_FALSE(result) << c.message;
    EXPECT_THAT(result.error().message(), HasSubstr(c.message));
  }
  EXPECT_FALSE(DistanceMatrix::from_square(good, 2));
  const double triangle[] = {1, 2, 3};
  const auto lower = DistanceMatrix::from_lower_triangle(triangle, 3);
  ASSERT_TRUE(lower);
  EXPECT_EQ((*lower)(0, 1), 1);
  EXPECT_EQ((*lower)(2, 0), 2);
  EXPECT_EQ((*lower)(2, 1), 3);
  EXPECT_FALSE(DistanceMatrix::from_lower_triangle(triangle, 4));
}

// `cloud`, then its first `count` points again, each times a factor (and rounded by that).
Cloud with_parallel(const Cloud& cloud, std::size_t count, const std::vector<double>& factors) {
  Cloud result = cloud;
  for (std::size_t i = 0; i < count; ++i) {
    for (const double x : cloud.view().row(i)) {
      result.values.push_back(x * factors[i % factors.size()]);
    }
    ++result.count;
  }
  return result;
}

TEST(Distance, ParallelVectorsOfAnyLengthAreOnePointWhereAnglesCount) {
  const std::vector<double> factors = {3, 0.1, 1.0 / 7, 1e150, 1e-8, 12345.678};
  for (const std::size_t d : {2u, 6u, 64u, 1000u}) {
    const Cloud cloud = normal_cloud(40, d, d);
    const Cloud longer = with_parallel(cloud, 30, factors);
    for (const Geometry geometry : {Geometry::kSpherical, Geometry::kHyperbolic}) {
      const DistanceMatrix base = distances_of(cloud, geometry);
      const DistanceMatrix matrix = distances_of(longer, geometry);
      EXPECT_EQ(base.duplicates(), 0u) << d;
      EXPECT_EQ(matrix.duplicates(), 30u) << d << geometry_name(geometry);
      for (std::size_t i = 0; i < 70; ++i) {
        for (std::size_t j = 0; j < 70; ++j) {
          // Bit for bit the rows of the points that they repeat.
          ASSERT_EQ(matrix(i, j), base(i < 40 ? i : i - 40, j < 40 ? j : j - 40));
        }
      }
      EXPECT_EQ(matrix.enclosing_radius(), base.enclosing_radius());
      EXPECT_EQ(matrix.diameter(), base.diameter());
    }
    const Cloud moderate = with_parallel(cloud, 30, {3, 0.1, 1.0 / 7});
    const DistanceMatrix raw = distances_of(moderate);
    EXPECT_EQ(raw.duplicates(), 0u);
    const auto from_raw = spherical_from_raw(moderate.view(), raw, {});
    ASSERT_TRUE(from_raw);
    EXPECT_EQ(from_raw->duplicates(), 30u);
    EXPECT_EQ(hyperbolic_from_spherical(*from_raw, kDefaultRho).duplicates(), 30u);
  }
}

TEST(Distance, OppositeAndNearlyParallelVectorsAreTwoPoints) {
  const Cloud cloud = make_cloud(2, {1, 2, -1, -2, 1, 2 + 1e-13, -0.0, 5, 0.0, 5});
  for (const Geometry geometry : kGeometries) {
    const DistanceMatrix matrix = distances_of(cloud, geometry);
    EXPECT_EQ(matrix.duplicates(), 1u) << geometry_name(geometry);  // of a zero by its sign
    EXPECT_GT(matrix(0, 1), 1);
    EXPECT_GT(matrix(0, 2), 0);
    EXPECT_EQ(matrix(3, 4), 0);
  }
}

TEST(Distance, PointsAFewRoundingsApartAreOneInTheRawGeometryAtAnyScale) {
  const Cloud cloud = normal_cloud(40, 12, 4);
  for (const double scale : {1.0, 1e150, 1e-150, 1e300}) {
    Cloud copies = testing::scaled(cloud, scale);
    for (std::size_t i = 0; i < 30 * 12; ++i) {
      copies.values.push_back(copies.values[i] * 0.3 / 7 / 0.3 * 7);
    }
    copies.count += 30;
    EXPECT_EQ(distances_of(copies).duplicates(), 30u) << scale;
  }
  // float32 roundings are float32's to tell: the same numbers kept as float64 are different points.
  Cloud single = cloud;
  for (std::size_t i = 0; i < 30 * 12; ++i) {
    const float x = static_cast<float>(cloud.values[i]);
    single.values[i] = x;
    single.values.push_back(static_cast<double>(x * 0.1f) * 10);
  }
  single.count += 30;
  EXPECT_EQ(pairwise_distances(single.view(), {.spacing = kFloat32Spacing})->duplicates(), 30u);
  EXPECT_EQ(pairwise_distances(single.view(), {})->duplicates(), 0u);
}

TEST(Distance, SmallClustersFarFromOthersKeepTheirPoints) {
  // Norms of 1e-170 beside norms of 1 and 1e20: what is close is close by its own norm.
  const Cloud cloud = make_cloud(2, {1, 0, 3e-170, 0, 0, 4e-170, 1e20, 0, 5e-324, 0, 1e-323, 0});
  const DistanceMatrix matrix = distances_of(cloud);
  EXPECT_EQ(matrix.duplicates(), 0u);
  EXPECT_NEAR(matrix(1, 2) / 5e-170, 1, 1e-12);
  EXPECT_EQ(matrix(4, 5), 5e-324);
}

TEST(Distance, NearZeroEntriesOfAMatrixFromOutsideAreOnePoint) {
  const Cloud cloud = normal_cloud(30, 5, 6);
  const DistanceMatrix base = distances_of(cloud);
  // Points 28 and 29 repeat 3 and 5 but for rounding; point 27 lies 1e20 away.
  std::vector<double> square(base.values().begin(), base.values().end());
  const auto at = [&](std::size_t i, std::size_t j) -> double& { return square[i * 30 + j]; };
  for (const auto& [copy, of] : {std::pair{28u, 3u}, std::pair{29u, 5u}}) {
    for (std::size_t k = 0; k < 30; ++k)
      at(copy, k) = at(k, copy) = at(of, k) * (1 + 3e-16 * static_cast<double>(k % 3));
    at(copy, of) = at(of, copy) = 3e-16;
    at(copy, copy) = 0;
  }
  at(28, 29) = at(29, 28) = at(3, 5);
  for (std::size_t k = 0; k < 27; ++k) at(27, k) = at(k, 27) = 1e20;
  at(27, 28) = at(28, 27) = at(27, 29) = at(29, 27) = 1e20;
  const auto matrix = DistanceMatrix::from_square(square, 30);
  ASSERT_TRUE(matrix) << matrix.error().message();
  EXPECT_EQ(matrix->duplicates(), 2u);
  EXPECT_EQ((*matrix)(28, 3), 0);
  EXPECT_EQ((*matrix)(29, 7), (*matrix)(5, 7));
  EXPECT_EQ((*matrix)(0, 1), base(0, 1));
  // A dissimilarity whose rows disagree is no metric, and stays as it is.
  at(28, 9) = at(9, 28) = 100;
  const auto odd = DistanceMatrix::from_square(square, 30);
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->duplicates(), 1u);
  EXPECT_EQ((*odd)(28, 3), 3e-16);
}

TEST(Distance, RoundingInAMatrixFromOutsideIsNamedWithItsRepair) {
  const auto refusal = [](std::vector<double> values, std::size_t n) {
    const auto matrix = DistanceMatrix::from_square(std::move(values), n);
    EXPECT_FALSE(matrix);
    return matrix ? std::string() : matrix.error().message();
  };
  const double above = std::nextafter(2.0, 3.0);
  // Entry (2, 1) is off by one place, (2, 0) by four.
  EXPECT_THAT(refusal({0, 1, 2, 1, 0, 2, 2 + 8e-16 * 2, above, 0}, 3),
              AllOf(HasSubstr("entry (2, 0)"), HasSubstr("1.78e-15"), HasSubstr("(D + D.T) / 2")));
  EXPECT_THAT(refusal({0, 1, 2, 1, 0, 2, 9, 2, 0}, 3),
              AllOf(HasSubstr("(2, 0) is 9"), Not(HasSubstr("D.T"))));
  EXPECT_THAT(refusal({0, 1, 2, 1, 1e-17, 2, 2, 2, -3e-17}, 3),
              AllOf(HasSubstr("entry (2, 2) on the diagonal"), HasSubstr("fill_diagonal(D, 0)")));
  EXPECT_THAT(refusal({1, 0.5, 0.5, 1}, 2), Not(HasSubstr("fill_diagonal")));
  EXPECT_THAT(refusal({0, -1e-17, -1e-17, 0}, 2), HasSubstr("maximum(D, 0)"));
}

TEST(Distance, CondensedLengthsGiveTheNumberOfPoints) {
  for (const std::size_t n : {2u, 3u, 4u, 5u, 100u, 65535u, 3000000u}) {
    EXPECT_EQ(condensed_points(n * (n - 1) / 2), n);
    if (n > 3) {
      EXPECT_FALSE(condensed_points(n * (n - 1) / 2 + 1)) << n;
      EXPECT_FALSE(condensed_points(n * (n - 1) / 2 - 1)) << n;
    }
  }
  EXPECT_EQ(condensed_points(0), 1u);
  EXPECT_FALSE(condensed_points(2));
}

TEST(Distance, AnglesThatAreRoundingAreNoDisplacement) {
  const Cloud before = normal_cloud(20, 50, 9);
  const Cloud after = testing::scaled(before, 1.0 / 3);
  for (const Geometry geometry : {Geometry::kSpherical, Geometry::kHyperbolic}) {
    const auto still = displacements(before.view(), after.view(), {.geometry = geometry});
    ASSERT_TRUE(still);
    for (const double moved : *still) EXPECT_EQ(moved, 0);
  }
}

TEST(Distance, GeometryNamesRoundTripAndNearMissesAreSuggested) {
  for (const Geometry geometry : kGeometries) {
    EXPECT_EQ(parse_geometry(geometry_name(geometry)).value(), geometry);
  }
  EXPECT_THAT(parse_geometry("sperical").error().message(), HasSubstr("spherical"));
}

TEST(Distance, TheHyperbolicMatrixIsTheImageOfTheSphericalOne) {
  const Cloud cloud = normal_cloud(50, 6, 8);
  const DistanceMatrix direct = distances_of(cloud, Geometry::kHyperbolic);
  const DistanceMatrix mapped =
      hyperbolic_from_spherical(distances_of(cloud, Geometry::kSpherical), kDefaultRho);
  for (std::size_t i = 0; i < direct.values().size(); ++i) {
    EXPECT_NEAR(direct.values()[i], mapped.values()[i], 1e-14);
  }
}

TEST(Distance, AnglesFromRawDistancesAreThoseOfTheDirections) {
  Cloud cloud = normal_cloud(70, 9, 21);
  // Norms far apart, a duplicate, a parallel and an opposite vector, nearly parallel ones.
  for (std::size_t k = 0; k < 9; ++k) {
    cloud.values[k] *= 1e6;
    cloud.values[9 + k] *= 1e-6;
    cloud.values[3 * 9 + k] = cloud.values[2 * 9 + k];
    cloud.values[4 * 9 + k] = 3 * cloud.values[2 * 9 + k];
    cloud.values[5 * 9 + k] = -cloud.values[2 * 9 + k];
    cloud.values[6 * 9 + k] = cloud.values[2 * 9 + k] * (k == 0 ? 1 + 1e-9 : 1);
  }
  for (const double factor : {1.0, 1e-3, 1e150}) {
    const Cloud scaled = testing::scaled(cloud, factor);
    const DistanceMatrix raw = distances_of(scaled, Geometry::kRaw);
    const DistanceMatrix expected = distances_of(scaled, Geometry::kSpherical);
    const auto angles = spherical_from_raw(scaled.view(), raw, {.threads = 2});
    ASSERT_TRUE(angles);
    EXPECT_EQ((*angles)(2, 3), 0);
    for (std::size_t i = 0; i < cloud.count; ++i) {
      for (std::size_t j = 0; j < cloud.count; ++j) {
        ASSERT_NEAR((*angles)(i, j), expected(i, j), 1e-14 * expected(i, j)) << i << " " << j;
      }
    }
    EXPECT_NEAR(angles->enclosing_radius(), expected.enclosing_radius(), 1e-14);
  }
  const auto none = spherical_from_raw(Cloud{}.view(), DistanceMatrix(), {});
  ASSERT_TRUE(none);
  EXPECT_EQ(none->count(), 0u);
}

}  // namespace
}  // namespace tailor::geometry
