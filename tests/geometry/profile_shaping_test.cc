// Shaping of profiles: closed forms, fixed points and refusals.
#include "geometry/profile_shaping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "geometry/statistics/table.h"
#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

std::vector<double> shaped(const std::vector<double>& work, const ShapingOptions& options) {
  const auto result = shape_profile(work, options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return *result;
}

TEST(ProfileShaping, GaussianLeavesAnEvenProfileAndScalesWithTheWork) {
  EXPECT_THAT(shaped({3, 3, 3, 3}, {}), Pointwise(DoubleNear(1e-11), {3., 3., 3., 3.}));
  const std::vector<double> work = {4, 1, 2, 8, 1};
  std::vector<double> tenfold = work;
  for (double& g : tenfold) g *= 10;
  const auto once = shaped(work, {}), ten = shaped(tenfold, {});
  for (std::size_t l = 0; l < work.size(); ++l) EXPECT_NEAR(ten[l], 10 * once[l], 1e-9);
}

TEST(ProfileShaping, GaussianIsTheWeightedMeanOfLogarithmsWithReflection) {
  // Three layers, sigma so small that only the neighbours count:
  // weights 1 and w = exp(-1 / 2 sigma^2).
  const double sigma = 0.4, w = std::exp(-1 / (2 * sigma * sigma));
  const double far = std::exp(-4 / (2 * sigma * sigma));
  const std::vector<double> work = {2, 5, 11};
  const auto result = shaped(work, {.sigma = sigma});
  const double total = 1 + 2 * w + 2 * far;
  // Neighbours of layer 0 are itself (reflected) and layer 1;
  // two away layer 1 (reflected) and layer 2.
  const double first =
      (std::log(2) * (1 + w) + std::log(5) * (w + far) + std::log(11) * far) / total;
  EXPECT_NEAR(std::log(result[0]), first, 1e-9);
  const double second =
      (std::log(5) + w * (std::log(2) + std::log(11)) + far * (std::log(2) + std::log(11))) / total;
  EXPECT_NEAR(std::log(result[1]), second, 1e-9);
}

TEST(ProfileShaping, MedianTakesAwayASingleSpike) {
  EXPECT_THAT(shaped({1, 1, 50, 1, 2}, {.smoothing = Smoothing::kMedian}),
              ElementsAre(1, 1, 1, 2, 2));
  EXPECT_THAT(shaped({1, 5, 2}, {.smoothing = Smoothing::kMedian, .window = 1}),
              ElementsAre(1, 5, 2));
}

TEST(ProfileShaping, ControlsKeepWhatTheyPromise) {
  const std::vector<double> work = {1, 4, 2};
  const auto control = [&](Control c) {
    return shaped(work, {.smoothing = Smoothing::kNone, .control = c, .seed = 5});
  };
  EXPECT_THAT(control(Control::kNone), ElementsAre(1, 4, 2));
  EXPECT_THAT(control(Control::kMirrored), ElementsAre(4, 1, 3));
  EXPECT_THAT(control(Control::kInverse), ElementsAre(1, 0.25, 0.5));
  EXPECT_THAT(control(Control::kReversed), ElementsAre(2, 4, 1));
  EXPECT_THAT(control(Control::kPermuted), ::testing::UnorderedElementsAre(1, 2, 4));
  EXPECT_EQ(control(Control::kPermuted), control(Control::kPermuted));
  std::vector<double> many(40);
  for (std::size_t l = 0; l < many.size(); ++l) many[l] = static_cast<double>(l + 1);
  const ShapingOptions one{.smoothing = Smoothing::kNone, .control = Control::kPermuted, .seed = 1};
  ShapingOptions two = one;
  two.seed = 2;
  EXPECT_NE(shaped(many, one), shaped(many, two));
  EXPECT_NE(shaped(many, one), many);
}

TEST(ProfileShaping, FrontLoadIndexIsTheShareOfTheFirstThird) {
  EXPECT_NEAR(front_load_index(std::vector<double>{1, 1, 1, 1, 1, 1}).value(), 1. / 3, 1e-15);
  EXPECT_NEAR(front_load_index(std::vector<double>{1, 1, 1, 1}).value(), 1. / 3, 1e-15);
  EXPECT_NEAR(front_load_index(std::vector<double>{6, 0, 0}).value(), 1, 1e-15);
  EXPECT_NEAR(front_load_index(std::vector<double>{3, 6, 0, 0}).value(), (3 + 2) / 9., 1e-15);
  EXPECT_FALSE(front_load_index(std::vector<double>{0, 0}).has_value());
  EXPECT_FALSE(front_load_index({}).has_value());
}

TEST(ProfileShaping, ScaleExponentIsOneForRawWorkAndZeroForAngles) {
  const Cloud before = testing::normal_cloud(30, 5, 1);
  Cloud after = before;
  for (std::size_t i = 0; i < after.values.size(); i += 2) after.values[i] *= 1.3;
  const std::vector<double> scales = {0.5, 1, 2, 4};
  for (const Statistic& statistic : statistics()) {
    for (const Geometry geometry : kGeometries) {
      std::vector<double> values;
      for (const double s : scales) {
        const Cloud x = testing::scaled(before, s), y = testing::scaled(after, s);
        auto pair = PairWorkspace::create(x.view(), y.view(), {});
        values.push_back(*statistic.evaluate(*pair, geometry));
      }
      const auto exponent = scale_exponent(scales, values);
      ASSERT_TRUE(exponent);
      EXPECT_NEAR(*exponent, geometry == Geometry::kRaw ? 1 : 0, 1e-9)
          << statistic.name << " " << geometry_name(geometry);
    }
  }
}

TEST(ProfileShaping, BadInputIsRefusedByName) {
  const std::vector<double> negative = {1, -2}, nan = {1, std::nan("")}, zero = {1, 0};
  EXPECT_THAT(shape_profile(negative, {}).error().message(), HasSubstr("layer 1 is -2"));
  EXPECT_THAT(shape_profile(nan, {}).error().message(), HasSubstr("layer 1"));
  EXPECT_THAT(shape_profile(zero, {.smoothing = Smoothing::kNone, .control = Control::kInverse})
                  .error()
                  .message(),
              HasSubstr("no inverse"));
  EXPECT_FALSE(shape_profile(zero, {.sigma = 0}).has_value());
  EXPECT_FALSE(shape_profile(zero, {.window = 4}).has_value());
  EXPECT_TRUE(shape_profile({}, {}).value().empty());
  const std::vector<double> one = {1}, two = {1, 2};
  EXPECT_FALSE(scale_exponent(one, two).has_value());
  EXPECT_FALSE(scale_exponent(one, one).has_value());
  EXPECT_FALSE(scale_exponent(two, zero).has_value());
}

TEST(ProfileShaping, NamesRoundTripAndNearMissesAreSuggested) {
  for (const Smoothing s : {Smoothing::kNone, Smoothing::kGaussian, Smoothing::kMedian}) {
    EXPECT_EQ(parse_smoothing(smoothing_name(s)).value(), s);
  }
  for (const Control c : {Control::kNone, Control::kMirrored, Control::kInverse, Control::kReversed,
                          Control::kPermuted}) {
    EXPECT_EQ(parse_control(control_name(c)).value(), c);
  }
  EXPECT_THAT(parse_control("reverse").error().message(), HasSubstr("reversed"));
  EXPECT_FALSE(parse_smoothing("kalman").has_value());
}

}  // namespace
}  // namespace tailor::geometry
