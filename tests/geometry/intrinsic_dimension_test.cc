// Intrinsic dimension: values of numpy, scikit-dimension and dadapy, a hand-computed line of five
// points, and cubes of known dimension.
#include "geometry/intrinsic_dimension.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/geometry/reference.h"
#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using testing::distances_of;
using ::testing::HasSubstr;
using testing::ReferenceCase;

void expect_matches(const DistanceMatrix& distances, const nlohmann::json& expected,
                    double tolerance) {
  for (const std::size_t k : {10u, 20u}) {
    const auto result = intrinsic_dimension(distances, {.neighbours = k});
    ASSERT_TRUE(result) << result.error().message();
    const auto near = [&](double actual, const std::string& key) {
      const double value = expected.at(key);
      EXPECT_NEAR(actual, value, tolerance * value) << key;
    };
    const std::string suffix = "_k" + std::to_string(k);
    near(result->two_nn, "twonn_mle_formula");
    near(result->two_nn_fit, "twonn_fit_i_over_n");
    near(result->two_nn_fit, "twonn_fit_skdim");
    near(result->two_nn_fit_shifted, "twonn_fit_i_minus_1_over_n");
    near(result->levina_bickel, "mackay_ghahramani" + suffix);
    near(result->levina_bickel_mean, "levina_bickel_mean" + suffix);
    near(result->levina_bickel_mean_unbiased, "levina_bickel_mean_unbiased" + suffix);
    EXPECT_EQ(result->dropped, 0u);
  }
}

class DimensionReference : public ::testing::TestWithParam<std::string> {};

TEST_P(DimensionReference, MatchesTheStoredEstimates) {
  const ReferenceCase reference(GetParam());
  for (const auto& [name, expected] : reference.index["expected"].items()) {
    expect_matches(distances_of(reference.cloud("points"), testing::geometry_of_reference(name),
                                reference.index["poincare_radius"]),
                   expected, reference.index["tolerance_rel"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Id, DimensionReference,
                         ::testing::ValuesIn(testing::reference_cases("id")),
                         [](const auto& entry) { return testing::test_name(entry.param); });

TEST(IntrinsicDimension, RealisticPairMatchesInEveryGeometry) {
  const ReferenceCase reference("real/residual512_d256");
  for (const char* side : {"x", "y"}) {
    const Cloud cloud = reference.cloud(side);
    for (const char* geometry : {"euclidean", "spherical", "hyperbolic"}) {
      expect_matches(distances_of(cloud, testing::geometry_of_reference(geometry),
                                  reference.index["poincare_radius"]),
                     reference.index["id"][std::string(side) + "_" + geometry],
                     reference.index["id_tolerance_rel"]);
    }
  }
}

TEST(IntrinsicDimension, MatchesTheLineComputedByHand) {
  const DistanceMatrix line = distances_of(testing::make_cloud(1, {0, 1, 3, 6, 10}));
  const auto result = intrinsic_dimension(line, {.neighbours = 3, .points_min = 5});
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->two_nn, 1.3138349550, 1e-10);
  EXPECT_NEAR(result->two_nn_biased, 1.6422936938, 1e-10);
  const double local[] = {.80485921, .7918507, 4.93260692, 2.72491008, 1.88280544};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(result->local[i], local[i], 1e-8);
  EXPECT_NEAR(result->levina_bickel, 1.3865175161, 1e-10);
  EXPECT_NEAR(result->levina_bickel_unbiased, .6932587580, 1e-10);
}

Cloud cube(std::size_t n, std::size_t d, std::uint64_t seed) {
  Rng rng(seed);
  Cloud cloud{{}, n, d};
  for (std::size_t i = 0; i < n * d; ++i) cloud.values.push_back(rng.uniform());
  return cloud;
}

TEST(IntrinsicDimension, FindsTheDimensionOfACube) {
  for (const std::size_t d : {2u, 5u}) {
    const auto result = intrinsic_dimension(distances_of(cube(2000, d, d)));
    ASSERT_TRUE(result);
    const double truth = static_cast<double>(d);
    EXPECT_NEAR(result->two_nn, truth, 0.15 * truth);
    EXPECT_NEAR(result->two_nn_fit, truth, 0.15 * truth);
    EXPECT_NEAR(result->levina_bickel, truth, 0.15 * truth);
  }
}

TEST(IntrinsicDimension, DoesNotDependOnScaleRotationOrOrder) {
  const Cloud cloud = testing::normal_cloud(200, 4, 3);
  const auto result = intrinsic_dimension(distances_of(cloud));
  const Cloud moved = testing::scaled(
      testing::reordered(testing::rotated(cloud, 4), testing::random_order(200, 5)), 37);
  const auto other = intrinsic_dimension(distances_of(moved));
  ASSERT_TRUE(result && other);
  EXPECT_NEAR(result->two_nn, other->two_nn, 1e-9);
  EXPECT_NEAR(result->two_nn_fit, other->two_nn_fit, 1e-9);
  EXPECT_NEAR(result->levina_bickel, other->levina_bickel, 1e-9);
}

TEST(IntrinsicDimension, DuplicatesAreDroppedAndCounted) {
  const Cloud cloud = testing::normal_cloud(80, 3, 4);
  Cloud repeated = cloud;
  for (std::size_t i = 0; i < 30; ++i) {
    const auto row = cloud.view().row(i % 7);
    repeated.values.insert(repeated.values.end(), row.begin(), row.end());
    ++repeated.count;
  }
  const auto result = intrinsic_dimension(distances_of(repeated));
  const auto expected = intrinsic_dimension(distances_of(cloud));
  ASSERT_TRUE(result && expected);
  EXPECT_EQ(result->dropped, 30u);
  EXPECT_EQ(result->points, 80u);
  EXPECT_EQ(result->two_nn, expected->two_nn);
  EXPECT_EQ(result->levina_bickel, expected->levina_bickel);
}

TEST(IntrinsicDimension, DirectionsAtOtherLengthsAreRepeats) {
  const Cloud cloud = testing::normal_cloud(120, 7, 14);
  Cloud repeated = cloud;
  for (std::size_t i = 0; i < 90 * 7; ++i) repeated.values.push_back(cloud.values[i] * 0.7);
  repeated.count += 90;
  for (const Geometry geometry : {Geometry::kSpherical, Geometry::kHyperbolic}) {
    const auto expected = intrinsic_dimension(distances_of(cloud, geometry));
    const auto result = intrinsic_dimension(distances_of(repeated, geometry));
    ASSERT_TRUE(expected && result);
    EXPECT_EQ(result->dropped, 90u);
    EXPECT_EQ(result->two_nn, expected->two_nn);
    EXPECT_EQ(result->two_nn_fit, expected->two_nn_fit);
    EXPECT_EQ(result->levina_bickel_mean, expected->levina_bickel_mean);
    EXPECT_EQ(result->crowded, 0u);
  }
}

TEST(IntrinsicDimension, WhatOnlyRoundingDefinesIsRefused) {
  // A line of equal steps, a grid, a simplex: turned and moved, so that equal distances are equal
  // but for rounding.
  Cloud line{{}, 64, 8}, grid{{}, 100, 8}, simplex{{}, 60, 60};
  for (std::size_t i = 0; i < 64 * 8; ++i) line.values.push_back(static_cast<double>(i / 8));
  for (std::size_t i = 0; i < 100; ++i) {
    grid.values.insert(grid.values.end(), {double(i % 10), double(i / 10), 0, 0, 0, 0, 0, 0});
  }
  simplex.values.assign(60 * 60, 0.0);
  for (std::size_t i = 0; i < 60; ++i) simplex.values[i * 61] = 0.3;
  for (const Cloud& cloud : {line, grid, simplex}) {
    for (const double move : {0.0, 0.1, 1000.0}) {
      const auto result = intrinsic_dimension(distances_of(testing::rotated(cloud, 5, move)));
      ASSERT_FALSE(result) << cloud.count << " " << move;
      EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
      EXPECT_THAT(result.error().message(), HasSubstr("equally far"));
    }
  }
  // Without the fit's cut the ends of the line count; all of its estimates are numbers.
  const auto ends = intrinsic_dimension(distances_of(line), {.discarded = 0});
  ASSERT_TRUE(ends) << ends.error().message();
  EXPECT_TRUE(std::isfinite(ends->two_nn_fit));
}

TEST(IntrinsicDimension, EveryShareThatIsDiscardedGivesNumbersOrAReason) {
  const DistanceMatrix matrix = distances_of(testing::normal_cloud(50, 3, 1));
  for (int percent = 0; percent < 100; ++percent) {
    const auto result = intrinsic_dimension(matrix, {.discarded = percent / 100.0});
    if (percent >= 98) {
      ASSERT_FALSE(result) << percent;
      EXPECT_THAT(result.error().message(), HasSubstr("discard less"));
      continue;
    }
    if (!result) continue;  // 1 - 0.96 of 50 is 2 or 1.999
    EXPECT_TRUE(std::isfinite(result->two_nn_fit) && result->two_nn_fit > 0) << percent;
    EXPECT_TRUE(std::isfinite(result->two_nn_fit_shifted) && result->two_nn_fit_shifted > 0);
  }
  EXPECT_TRUE(intrinsic_dimension(matrix, {.discarded = 0.9}));
  EXPECT_FALSE(intrinsic_dimension(matrix, {.discarded = std::nan("")}));
}

TEST(IntrinsicDimension, RatiosBeyondFloat64AreStillNumbers) {
  Cloud cloud = testing::normal_cloud(60, 2, 3);
  cloud.values.insert(cloud.values.end(), {1e-320, 0, 2e-320, 0});
  cloud.count += 2;
  const auto result = intrinsic_dimension(distances_of(cloud));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_TRUE(std::isfinite(result->two_nn));
}

TEST(IntrinsicDimension, RepeatsThatAreRoundedCoarselyArePointedOut) {
  // Angles by arccos of float64 dot products: repeats come out some 1e-8 apart.
  const Cloud cloud = testing::normal_cloud(60, 5, 2);
  std::vector<double> lower;
  const DistanceMatrix angles = distances_of(cloud, Geometry::kSpherical);
  for (std::size_t i = 1; i < 90; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      lower.push_back(i - j == 60 ? 2.1e-8 : angles(i % 60, j % 60));
    }
  }
  const auto result = intrinsic_dimension(*DistanceMatrix::from_lower_triangle(lower, 90));
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->crowded, 60u);
}

TEST(IntrinsicDimension, EstimatesAtThreeScalesUseHalfAndQuarter) {
  const auto scales = dimension_by_scale(distances_of(cube(400, 3, 8)));
  ASSERT_TRUE(scales);
  ASSERT_EQ(scales->size(), 3u);
  EXPECT_EQ((*scales)[0].points, 400u);
  EXPECT_EQ((*scales)[1].points, 200u);
  EXPECT_EQ((*scales)[2].points, 100u);
  for (const auto& scale : *scales) EXPECT_NEAR(scale.levina_bickel, 3, 1);
  EXPECT_EQ(dimension_by_scale(distances_of(cube(120, 3, 8)))->size(), 2u);
}

TEST(IntrinsicDimension, UndefinedAndTooSmallInputsAreRefused) {
  EXPECT_THAT(intrinsic_dimension(distances_of(testing::normal_cloud(49, 3, 1))).error().message(),
              HasSubstr("49 distinct points"));
  EXPECT_FALSE(intrinsic_dimension(DistanceMatrix(100)).has_value());
  EXPECT_FALSE(intrinsic_dimension(DistanceMatrix(0)).has_value());
  // All distances equal: every mu is 1.
  const std::vector<double> lower(60 * 59 / 2, 1.0);
  EXPECT_THAT(
      intrinsic_dimension(*DistanceMatrix::from_lower_triangle(lower, 60)).error().message(),
      HasSubstr("undefined"));
  const DistanceMatrix good = distances_of(testing::normal_cloud(60, 3, 1));
  EXPECT_FALSE(intrinsic_dimension(good, {.neighbours = 2}).has_value());
  EXPECT_FALSE(intrinsic_dimension(good, {.discarded = 1}).has_value());
  EXPECT_FALSE(intrinsic_dimension(good, {.neighbours = 60}).has_value());
}

}  // namespace
}  // namespace tailor::geometry
