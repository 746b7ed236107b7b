#include "model/shape/schedule.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace tailor::shape {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int32_t> flat(const std::vector<LayerWidths>& widths) {
  std::vector<std::int32_t> out;
  for (const LayerWidths& layer : widths) out.insert(out.end(), layer.begin(), layer.end());
  return out;
}

const WidthSchedule kCosineTaper{ScheduleKind::kCosine, ScheduleConvention::kEndpoint, 1.5, 0.5};

TEST(Schedule, CosineTaperOfTwelveLayersHasThePublishedUnroundedWidths) {
  const double expected[] = {4608,      4545.7812, 4364.1654, 4077.8661, 3710.0775, 3290.5956,
                             2853.4044, 2433.9225, 2066.1339, 1779.8346, 1598.2188, 1536};
  const auto profile = schedule_profile(kCosineTaper, 12);
  ASSERT_EQ(profile.size(), 12u);
  for (std::size_t l = 0; l < 12; ++l) EXPECT_NEAR(3072 * profile[l], expected[l], 5e-5) << l;
}

TEST(Schedule, CosineTaperRoundedTo64HasTheReferenceWidths) {
  EXPECT_THAT(flat(scheduled_widths(kCosineTaper, 12, 1, 36864, 64).value()),
              ElementsAre(4608, 4544, 4352, 4096, 3712, 3264, 2880, 2432, 2048, 1792, 1600, 1536));
  EXPECT_THAT(flat(scheduled_widths(kCosineTaper, 16, 1, 32768, 64).value()),
              ElementsAre(3072, 3072, 3008, 2880, 2752, 2560, 2368, 2176, 1920, 1728, 1536, 1344,
                          1216, 1088, 1024, 1024));
}

TEST(Schedule, MidpointConventionIsAntisymmetricAndInsideTheEnds) {
  WidthSchedule schedule = kCosineTaper;
  schedule.convention = ScheduleConvention::kMidpoint;
  const auto profile = schedule_profile(schedule, 8);
  EXPECT_NEAR(profile.front(), 1.0 + 0.5 * std::cos(std::acos(-1.0) / 16), 1e-15);
  for (std::size_t l = 0; l < 8; ++l) EXPECT_NEAR(profile[l] + profile[7 - l], 2.0, 1e-15);
  schedule.kind = ScheduleKind::kLinear;
  EXPECT_NEAR(schedule_profile(schedule, 8)[0], 1.5 - 1.0 / 16, 1e-15);
}

TEST(Schedule, LinearGoesFromHighToLow) {
  const auto profile =
      schedule_profile({ScheduleKind::kLinear, ScheduleConvention::kEndpoint, 1.5, 0.5}, 5);
  EXPECT_THAT(profile, ElementsAre(1.5, 1.25, 1.0, 0.75, 0.5));
}

TEST(Schedule, AReversedTaperMirrorsTheTaper) {
  WidthSchedule reversed = kCosineTaper;
  std::swap(reversed.high, reversed.low);
  const auto down = schedule_profile(kCosineTaper, 9), up = schedule_profile(reversed, 9);
  for (std::size_t l = 0; l < 9; ++l) EXPECT_NEAR(down[l], up[8 - l], 1e-15);
}

TEST(Schedule, OneLayerKeepsItsWidthWhateverTheSchedule) {
  EXPECT_THAT(flat(scheduled_widths(kCosineTaper, 1, 1, 500, 1).value()), ElementsAre(500));
}

TEST(Schedule, UniformWidthsDifferByOneUnitWithTheExtraOnesFirst) {
  EXPECT_THAT(flat(scheduled_widths({}, 2, 3, 20, 1).value()), ElementsAre(4, 4, 3, 3, 3, 3));
  EXPECT_THAT(flat(scheduled_widths({}, 3, 1, 40, 8).value()), ElementsAre(16, 16, 8));
}

TEST(Schedule, RatiosOnlyMatterRelativeToEachOther) {
  WidthSchedule doubled = kCosineTaper;
  doubled.high *= 2;
  doubled.low *= 2;
  EXPECT_EQ(scheduled_widths(doubled, 12, 2, 9999, 1).value(),
            scheduled_widths(kCosineTaper, 12, 2, 9999, 1).value());
}

TEST(Apportion, KeepsTheTotalAndStaysWithinOneUnitOfTheExactShareForRandomWeights) {
  Rng rng(7);
  for (int i = 0; i < 400; ++i) {
    std::vector<double> weights(1 + rng.below(60));
    for (double& weight : weights) weight = 0.2 + rng.uniform();
    const auto multiple = static_cast<std::int64_t>(1 + rng.below(64));
    const auto units = static_cast<std::int64_t>(weights.size() * (20 + rng.below(5000)));
    const auto shares = apportion(weights, units * multiple, multiple);
    ASSERT_TRUE(shares.has_value()) << shares.error().to_string();
    EXPECT_EQ(std::accumulate(shares->begin(), shares->end(), std::int64_t{0}), units * multiple);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t k = 0; k < weights.size(); ++k) {
      EXPECT_EQ((*shares)[k] % multiple, 0);
      const double exact = static_cast<double>(units) * weights[k] / sum;
      EXPECT_LT(std::abs(static_cast<double>((*shares)[k] / multiple) - exact), 1.0 + 1e-5);
    }
  }
}

TEST(Apportion, ImpossibleSplitsSayWhy) {
  const std::vector<double> equal = {1, 1, 1};
  const std::vector<double> steep = {1000, 1};
  const std::vector<double> wrong = {1, -1};
  EXPECT_THAT(apportion(equal, 65, 8).error().message(),
              HasSubstr("65 hidden units are no multiple of 8: 1"));
  EXPECT_THAT(apportion(equal, 2, 1).error().message(),
              HasSubstr("sub-MLP 2 of 3 would get no hidden unit"));
  EXPECT_THAT(apportion(steep, 10, 1).error().message(), HasSubstr("sub-MLP 1 of 2"));
  EXPECT_THAT(apportion(wrong, 10, 1).error().message(), HasSubstr("relative width -1"));
  EXPECT_EQ(apportion({}, 10, 1).error().code(), Code::kOutOfRange);
  EXPECT_EQ(apportion(equal, 0, 1).error().code(), Code::kOutOfRange);
  EXPECT_THAT(scheduled_widths({}, 1, 1, 3'000'000, 1).error().message(),
              HasSubstr("3,000,000 units wide"));
}

TEST(Schedule, BowtieHasThePublishedRatios) {
  const double expected[] = {2.004739, 1.581032, 1.246877, .983347, .775514,  .611607,
                             .482342,  .380398,  .3,       .565067, 1.064337, 2.004739};
  WidthSchedule bowtie;
  bowtie.kind = ScheduleKind::kBowtie;
  const auto profile = schedule_profile(bowtie, 12);
  ASSERT_EQ(profile.size(), 12u);
  for (std::size_t l = 0; l < 12; ++l) EXPECT_NEAR(profile[l], expected[l], 1e-6) << l;
}

TEST(Schedule, SigmoidFallsFromHighToLowAndIsAntisymmetric) {
  WidthSchedule sigmoid;
  sigmoid.kind = ScheduleKind::kSigmoid;
  const auto profile = schedule_profile(sigmoid, 5);
  EXPECT_NEAR(profile[0], .5 + 1 / (1 + std::exp(-6.0)), 1e-12);
  EXPECT_NEAR(profile[2], 1, 1e-12);
  for (std::size_t l = 0; l < 5; ++l) EXPECT_NEAR(profile[l] + profile[4 - l], 2, 1e-12) << l;
}

TEST(Schedule, NamesAreReadBack) {
  for (const auto kind : {ScheduleKind::kUniform, ScheduleKind::kCosine, ScheduleKind::kLinear,
                          ScheduleKind::kSigmoid, ScheduleKind::kBowtie}) {
    EXPECT_EQ(parse_schedule_kind(schedule_kind_name(kind)).value(), kind);
  }
  for (const auto convention : {ScheduleConvention::kEndpoint, ScheduleConvention::kMidpoint}) {
    EXPECT_EQ(parse_schedule_convention(schedule_convention_name(convention)).value(), convention);
  }
  EXPECT_FALSE(parse_schedule_kind("geometry").has_value());
  EXPECT_FALSE(parse_schedule_convention("start").has_value());
}

}  // namespace
}  // namespace tailor::shape
