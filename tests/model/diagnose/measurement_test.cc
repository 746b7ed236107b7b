// Sampling by whole sequences, and what one layer's clouds give: against the geometry's own
// functions and against closed forms.
#include "model/diagnose/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/rng.h"
#include "geometry/profile_shaping.h"

namespace tailor::diagnose {
namespace {

using testing::HasSubstr;

constexpr std::size_t kWidth = 12;

std::vector<float> gaussian(std::size_t rows, std::uint64_t seed, double scale = 1) {
  Rng rng(seed);
  std::vector<float> out(rows * kWidth);
  for (float& value : out) value = static_cast<float>(scale * rng.normal());
  return out;
}

TEST(SampleRows, SubsamplesAreDisjointAndMadeOfWholeSequences) {
  const auto found = sample_rows(100, 4, 10, 5, {});  // 3 sequences of 4 for each 10
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->subsamples.size(), 5u);
  EXPECT_EQ(found->tokens, 10u);
  EXPECT_EQ(found->sequences, 15u);
  EXPECT_EQ(found->positions, 50u);
  EXPECT_EQ(found->reason, "");
  std::set<std::uint32_t> sequences;
  for (const auto& rows : found->subsamples) {
    ASSERT_EQ(rows.size(), 10u);
    std::set<std::uint32_t> own;
    for (const std::uint32_t row : rows) own.insert(row / 4);
    for (const std::uint32_t sequence : own) EXPECT_TRUE(sequences.insert(sequence).second);
  }
}

TEST(SampleRows, TooFewSequencesGiveFewerSubsamplesAndTheReason) {
  const auto two = sample_rows(40, 4, 16, 8, {});
  ASSERT_TRUE(two.has_value());
  EXPECT_EQ(two->subsamples.size(), 2u);
  EXPECT_THAT(two->reason, HasSubstr("2 of 8 subsamples"));
  const auto one = sample_rows(12, 4, 16, 8, {});
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->subsamples.size(), 1u);
  EXPECT_EQ(one->tokens, 12u);
  EXPECT_THAT(one->reason, HasSubstr("no standard error"));
  EXPECT_FALSE(sample_rows(0, 4, 16, 8, {}).has_value());
}

TEST(SampleRows, ZeroVectorsLeaveAllSubsamplesOfOneSize) {
  std::vector<bool> zero(32, false);
  zero[1] = zero[2] = zero[20] = true;
  const auto found = sample_rows(32, 4, 8, 4, zero);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->tokens, 6u);
  EXPECT_EQ(found->zero_vectors, 3u);
  for (const auto& rows : found->subsamples) {
    EXPECT_EQ(rows.size(), 6u);
    for (const std::uint32_t row : rows) EXPECT_FALSE(zero[row]);
  }
}

TEST(MeasureLayer, WorkOfRawScalesWithTheCloudAndOfDirectionsNotAtAll) {
  const std::size_t rows = 240;
  const auto before = gaussian(rows, 1);
  auto after = before;
  const auto change = gaussian(rows, 2, 0.4);
  for (std::size_t i = 0; i < after.size(); ++i) after[i] += change[i];
  const auto sampling = sample_rows(rows, 4, 60, 4, {});
  const auto found = measure_layer(3, before, after, kWidth, *sampling, {});
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found->work.size(), 9u);
  const std::vector<double> scales(std::begin(kScales), std::end(kScales));
  for (const auto& [key, values] : found->by_scale) {
    const auto exponent = geometry::scale_exponent(scales, values);
    ASSERT_TRUE(exponent.has_value()) << key.first << " " << key.second;
    EXPECT_NEAR(*exponent, key.first == "raw" ? 1 : 0, 1e-12) << key.first << " " << key.second;
    EXPECT_EQ(values[1], found->work.at(key)[0]);
  }
}

TEST(MeasureLayer, RawShiftOfASubsampleIsItsMeanNormOfF) {
  const std::size_t rows = 160;
  const auto before = gaussian(rows, 5);
  const auto after = gaussian(rows, 6);
  const auto sampling = sample_rows(rows, 4, 40, 4, {});
  const auto found = measure_layer(0, before, after, kWidth, *sampling, {});
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->norm_f.size(), 4u);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_NEAR(found->work.at({"raw", "shift"})[r], found->norm_f[r], 1e-9);
    double norm = 0;
    for (const std::uint32_t row : sampling->subsamples[r]) {
      double squares = 0;
      for (std::size_t i = 0; i < kWidth; ++i) {
        squares += std::pow(static_cast<double>(before[row * kWidth + i]), 2);
      }
      norm += std::sqrt(squares) / 40;
    }
    EXPECT_NEAR(found->norm_x[r], norm, 1e-9);
  }
}

TEST(MeasureLayer, DimensionOfAPlaneIsTwo) {
  const std::size_t rows = 1200;
  const auto plane = [](std::uint64_t seed) {
    Rng rng(seed);
    std::vector<float> out(rows * kWidth, 0.0f);
    for (std::size_t i = 0; i < rows; ++i) {
      out[i * kWidth] = static_cast<float>(rng.uniform());
      out[i * kWidth + 1] = static_cast<float>(rng.uniform());
      out[i * kWidth + 2] = 1;
    }
    return out;
  };
  const auto sampling = sample_rows(rows, 4, 150, 8, {});
  const auto found = measure_layer(0, plane(1), plane(2), kWidth, *sampling, {});
  ASSERT_TRUE(found.has_value());
  for (const auto& [name, value] : found->dimension) {
    EXPECT_NEAR(value.value, 2, 0.25) << name;
    EXPECT_EQ(value.without_subsample.size(), 7u) << name;
  }
  // 150 tokens are 38 sequences of 4: the 300 sequences are enough for 7 subsamples.
  EXPECT_EQ(found->dimension_points, 7u * 150);
}

TEST(MeasureLayer, TokensThatAreAllOneHaveNoDimensionAndSayWhy) {
  const std::vector<float> same(80 * kWidth, 1.0f);
  const auto sampling = sample_rows(80, 4, 20, 4, {});
  const auto found = measure_layer(0, same, same, kWidth, *sampling, {});
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->dimension.empty());
  EXPECT_NE(found->dimension_reason, "");
  EXPECT_EQ(found->work.at({"raw", "shift"})[0], 0);
}

TEST(MeasureLayer, ANumberThatIsNotFiniteIsAnErrorWithItsLayer) {
  auto before = gaussian(80, 1);
  before[5 * kWidth] = std::numeric_limits<float>::infinity();
  const auto sampling = sample_rows(80, 4, 20, 4, {});
  const auto found = measure_layer(7, before, before, kWidth, *sampling, {});
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), Code::kOutOfRange);
  EXPECT_THAT(found.error().message(), HasSubstr("layer 7"));
}

TEST(MeasureLayer, DoesNotDependOnThreadsAndComesBackFromJson) {
  const std::size_t rows = 240;
  const auto before = gaussian(rows, 1), after = gaussian(rows, 2);
  const auto sampling = sample_rows(rows, 4, 60, 4, {});
  MeasurementOptions two;
  two.threads = 2;
  const auto a = measure_layer(0, before, after, kWidth, *sampling, {});
  const auto b = measure_layer(0, before, after, kWidth, *sampling, two);
  ASSERT_TRUE(a.has_value() && b.has_value());
  const auto text = measurement_json(*a).dump();
  EXPECT_EQ(text, measurement_json(*b).dump());
  const auto back = measurement_from_json(nlohmann::json::parse(text));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(measurement_json(*back).dump(), text);
  EXPECT_EQ(measurement_from_json(nlohmann::json::object()).error().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace tailor::diagnose
