// The work profile: positions, averages and errors, against evaluations done by hand.
#include "geometry/work_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "geometry/statistics/table.h"
#include "tests/geometry/support.h"

namespace tailor::geometry {
namespace {

using ::testing::HasSubstr;

// Layers of `positions` x `dimension` activations; each layer moves its input a little.
struct Network {
  std::size_t positions, dimension;
  std::vector<std::vector<float>> streams;  // one more than there are layers

  Network(std::size_t layers, std::size_t n, std::size_t d, std::uint64_t seed)
      : positions(n), dimension(d) {
    Rng rng(seed);
    std::vector<float> stream(n * d);
    for (float& x : stream) x = static_cast<float>(rng.normal());
    streams.push_back(stream);
    for (std::size_t l = 0; l < layers; ++l) {
      for (float& x : stream) x += static_cast<float>(0.3 * rng.normal());
      streams.push_back(stream);
    }
  }

  std::vector<LayerClouds> layers() const {
    std::vector<LayerClouds> result;
    for (std::size_t l = 0; l + 1 < streams.size(); ++l) {
      result.push_back({.layer = static_cast<int>(l),
                        .sub_block = -1,
                        .before = streams[l],
                        .after = streams[l + 1],
                        .dimension = dimension});
    }
    return result;
  }
};

WorkOptions small_options() {
  return {.tokens = 16, .linear_tokens = 32, .subsamples = 4, .seed = 7};
}

const WorkEntry& find(const WorkProfile& profile, int layer, Geometry geometry,
                      std::string_view statistic) {
  for (const WorkEntry& entry : profile.entries) {
    if (entry.layer == layer && entry.geometry == geometry && entry.statistic == statistic) {
      return entry;
    }
  }
  ADD_FAILURE() << "no such entry";
  return profile.entries.front();
}

TEST(WorkProfile, HasAnEntryForEveryLayerGeometryAndStatisticInOrder) {
  const Network network(3, 100, 6, 1);
  const auto profile = measure_work(network.layers(), small_options());
  ASSERT_TRUE(profile) << profile.error().message();
  ASSERT_EQ(profile->entries.size(), 3 * 3 * statistics().size());
  std::size_t at = 0;
  for (int layer = 0; layer < 3; ++layer) {
    for (const Geometry geometry : kGeometries) {
      for (const Statistic& statistic : statistics()) {
        EXPECT_EQ(profile->entries[at].layer, layer);
        EXPECT_EQ(profile->entries[at].sub_block, -1);
        EXPECT_EQ(profile->entries[at].geometry, geometry);
        EXPECT_EQ(profile->entries[at].statistic, statistic.name);
        ++at;
      }
    }
  }
  EXPECT_EQ(profile->tokens, 16u);
  EXPECT_EQ(profile->linear_tokens, 32u);
  EXPECT_EQ(profile->subsamples, 4u);
}

TEST(WorkProfile, ValuesAndErrorsAreMeanAndStandardErrorOverTheStoredPositions) {
  const Network network(2, 100, 6, 2);
  const auto layers = network.layers();
  const auto profile = measure_work(layers, small_options());
  ASSERT_TRUE(profile);
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<double> values;
    for (const auto& positions : profile->positions) {
      double sum = 0;
      for (const auto position : positions) {
        double squared = 0;
        for (std::size_t k = 0; k < 6; ++k) {
          const std::size_t at = position * 6 + k;
          const double step = static_cast<double>(layers[layer].after[at]) -
                              static_cast<double>(layers[layer].before[at]);
          squared += step * step;
        }
        sum += std::sqrt(squared);
      }
      values.push_back(sum / static_cast<double>(positions.size()));
    }
    double mean = 0, spread = 0;
    for (const double v : values) mean += v / static_cast<double>(values.size());
    for (const double v : values) spread += (v - mean) * (v - mean);
    const double count = static_cast<double>(values.size());
    const WorkEntry& entry = find(*profile, layer, Geometry::kRaw, "shift");
    EXPECT_NEAR(entry.value, mean, 1e-13);
    EXPECT_NEAR(entry.standard_error, std::sqrt(spread / (count - 1) / count), 1e-13);
    EXPECT_GT(entry.standard_error, 0);
  }
}

TEST(WorkProfile, SubsamplesAreDisjointWherePositionsAllow) {
  const Network network(1, 200, 4, 3);
  WorkOptions options = small_options();
  for (const std::size_t linear : {16u, 40u, 50u, 120u}) {
    options.linear_tokens = linear;
    const auto profile = measure_work(network.layers(), options);
    ASSERT_TRUE(profile);
    std::set<std::uint32_t> small, large;
    for (const auto& positions : profile->positions) {
      EXPECT_EQ(positions.size(), linear);
      EXPECT_EQ(std::set<std::uint32_t>(positions.begin(), positions.end()).size(), linear);
      small.insert(positions.begin(), positions.begin() + 16);
      large.insert(positions.begin(), positions.end());
    }
    EXPECT_EQ(small.size(), 4 * 16u);
    if (4 * linear <= 200) {
      EXPECT_EQ(large.size(), 4 * linear);
    }
  }
}

TEST(WorkProfile, SubsamplesOverlapButDifferWherePositionsAreFew) {
  const Network network(1, 20, 4, 3);
  const auto profile = measure_work(network.layers(), small_options());
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->linear_tokens, 20u);
  std::set<std::set<std::uint32_t>> different;
  for (const auto& positions : profile->positions) {
    different.insert({positions.begin(), positions.begin() + 16});
  }
  EXPECT_GT(different.size(), 1u);
}

TEST(WorkProfile, OneSubsampleIsUsedWhenItHoldsEveryPosition) {
  const Network network(1, 12, 4, 3);
  const auto profile = measure_work(network.layers(), small_options());
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->tokens, 12u);
  EXPECT_EQ(profile->subsamples, 1u);
  for (const WorkEntry& entry : profile->entries) EXPECT_EQ(entry.standard_error, 0);
}

TEST(WorkProfile, IsTheSameForTheSameSeedWhateverTheThreads) {
  const Network network(3, 80, 6, 4);
  WorkOptions options = small_options();
  const auto one = measure_work(network.layers(), options);
  options.threads = 4;
  const auto four = measure_work(network.layers(), options);
  options.seed = 8;
  const auto other = measure_work(network.layers(), options);
  ASSERT_TRUE(one && four && other);
  EXPECT_EQ(one->positions, four->positions);
  EXPECT_NE(one->positions, other->positions);
  for (std::size_t i = 0; i < one->entries.size(); ++i) {
    EXPECT_EQ(one->entries[i].value, four->entries[i].value);
    EXPECT_EQ(one->entries[i].standard_error, four->entries[i].standard_error);
  }
}

TEST(WorkProfile, ALayerSubsetIsMeasuredOnTheSamePositions) {
  const Network network(3, 80, 6, 4);
  const auto layers = network.layers();
  const auto all = measure_work(layers, small_options());
  const auto last = measure_work(std::span(layers).last(1), small_options());
  ASSERT_TRUE(all && last);
  EXPECT_EQ(find(*all, 2, Geometry::kSpherical, "shift").value,
            find(*last, 2, Geometry::kSpherical, "shift").value);
}

TEST(WorkProfile, PositionsWithAZeroVectorAreLeftOutAtEveryLayerAndCounted) {
  Network network(2, 40, 4, 5);
  for (std::size_t k = 0; k < 4; ++k) network.streams[0][3 * 4 + k] = 0;
  for (std::size_t k = 0; k < 4; ++k) network.streams[2][9 * 4 + k] = 1e-14f;
  const auto profile = measure_work(network.layers(), small_options());
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->dropped, 2u);
  for (const auto& positions : profile->positions) {
    EXPECT_EQ(std::count(positions.begin(), positions.end(), 3u), 0);
    EXPECT_EQ(std::count(positions.begin(), positions.end(), 9u), 0);
  }
}

TEST(WorkProfile, OnlyTheStatisticsAskedForAreEvaluated) {
  const Network network(1, 40, 4, 6);
  WorkOptions options = small_options();
  options.statistics = {"shift"};
  const auto profile = measure_work(network.layers(), options);
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->entries.size(), 3u);
  options.statistics = {"shitf"};
  EXPECT_THAT(measure_work(network.layers(), options).error().message(), HasSubstr("shift"));
}

TEST(WorkProfile, BadInputIsRefusedByName) {
  const WorkOptions options = small_options();
  Network network(2, 20, 4, 6);
  auto layers = network.layers();
  layers[1].after = layers[1].after.first(19 * 4);
  EXPECT_THAT(measure_work(layers, options).error().message(),
              HasSubstr("layer 1: the cloud after has 76 numbers"));
  network.streams[1][5 * 4 + 2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(measure_work(network.layers(), options).error().message(),
              HasSubstr("position 5, coordinate 2"));
  layers = network.layers();
  layers[0].dimension = 0;
  EXPECT_FALSE(measure_work(layers, options).has_value());
  EXPECT_FALSE(measure_work(network.layers(), {.tokens = 0}).has_value());
  EXPECT_FALSE(measure_work(network.layers(), {.subsamples = 0}).has_value());
  EXPECT_FALSE(measure_work(network.layers(), {.rho = 1}).has_value());
  const std::vector<float> zeros(8, 0.0f);
  const LayerClouds nothing{.before = zeros, .after = zeros, .dimension = 4};
  EXPECT_THAT(measure_work(std::span(&nothing, 1), options).error().message(),
              HasSubstr("no usable token position"));
}

TEST(WorkProfile, TokensThatFloat32CannotTellApartAreCountedAndTheirAnglesDoNotMove) {
  // Tokens 20 to 39 are tokens 0 to 19 at another length; the layer stretches every token.
  Network network(1, 40, 9, 4);
  auto& before = network.streams[0];
  auto& after = network.streams[1];
  for (std::size_t i = 0; i < 20 * 9; ++i) before[20 * 9 + i] = before[i] * 0.7f;
  for (std::size_t i = 0; i < 40 * 9; ++i) after[i] = before[i] * 3.1f;
  const auto profile =
      measure_work(network.layers(), {.tokens = 40, .linear_tokens = 40, .subsamples = 1});
  ASSERT_TRUE(profile) << profile.error().message();
  EXPECT_EQ(profile->duplicates, 20u);
  for (const Geometry geometry : {Geometry::kSpherical, Geometry::kHyperbolic}) {
    EXPECT_EQ(find(*profile, 0, geometry, "shift").value, 0);
    // Distances within either cloud are float32's: they differ by its rounding.
    EXPECT_NEAR(find(*profile, 0, geometry, "gromov").value, 0, 1e-6);
    EXPECT_NEAR(find(*profile, 0, geometry, "topology").value, 0, 1e-6);
  }
  EXPECT_EQ(measure_work(Network(1, 40, 9, 4).layers(), small_options())->duplicates, 0u);
}

TEST(WorkProfile, MoreMemoryThanTheLimitIsRefusedBeforehand) {
  const Network network(2, 60, 5, 1);
  WorkOptions options = small_options();
  const double needed = work_memory_bytes(2, 60, 5, options);
  options.memory_bytes_max = needed / 2;
  const auto refused = measure_work(network.layers(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  options.memory_bytes_max = needed;
  EXPECT_TRUE(measure_work(network.layers(), options));
  // It grows with what is held at once: threads, the square of the tokens, and not with the
  // subsamples.
  options.threads = 4;
  EXPECT_GT(work_memory_bytes(2, 60, 5, options), 2 * needed);
  options.statistics = {"shift"};
  EXPECT_LT(work_memory_bytes(2, 60, 5, options), needed);
}

TEST(WorkProfile, NoLayersGiveAnEmptyProfile) {
  const auto profile = measure_work({}, {});
  ASSERT_TRUE(profile);
  EXPECT_TRUE(profile->entries.empty());
}

TEST(WorkProfile, TheCostEstimateGrowsWithTheWork) {
  const WorkOptions options = small_options();
  EXPECT_GT(work_cost(2, 100, 8, options), work_cost(1, 100, 8, options));
  EXPECT_GT(work_cost(1, 100, 16, options), work_cost(1, 100, 8, options));
}

TEST(WorkProfile, ALargeSampleOfEveryPositionHasNoStandardError) {
  const Network network(1, 100, 6, 8);
  WorkOptions options = small_options();
  options.linear_tokens = 100;
  const auto profile = measure_work(network.layers(), options);
  ASSERT_TRUE(profile);
  ASSERT_GT(profile->subsamples, 1u);
  for (const Geometry geometry : kGeometries) {
    EXPECT_EQ(find(*profile, 0, geometry, "shift").standard_error, 0);
    EXPECT_GT(find(*profile, 0, geometry, "shift").value, 0);
    EXPECT_GT(find(*profile, 0, geometry, "gromov").standard_error, 0);
  }
}

}  // namespace
}  // namespace tailor::geometry
