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
  EXPECT_EQ(profile->linear_tokens, 25u);  // a quarter of all
  EXPECT_EQ(profile->subsamples, 4u);
}

// How far every position moves in the raw geometry.
std::vector<double> raw_moves(const LayerClouds& layer) {
  std::vector<double> moves;
  for (std::size_t i = 0; i * layer.dimension < layer.before.size(); ++i) {
    double squared = 0;
    for (std::size_t k = 0; k < layer.dimension; ++k) {
      const std::size_t at = i * layer.dimension + k;
      const double step =
          static_cast<double>(layer.after[at]) - static_cast<double>(layer.before[at]);
      squared += step * step;
    }
    moves.push_back(std::sqrt(squared));
  }
  return moves;
}

TEST(WorkProfile, ShiftIsTheMeanOverAllPositionsWithTheErrorOverSequences) {
  const Network network(2, 100, 6, 2);
  const auto layers = network.layers();
  std::vector<std::int64_t> sequences;
  for (std::int64_t i = 0; i < 100; ++i) sequences.push_back(i / 5);
  WorkOptions options = small_options();
  options.sequences = sequences;
  const auto profile = measure_work(layers, options);
  ASSERT_TRUE(profile);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    const std::vector<double> moves = raw_moves(layers[layer]);
    double mean = 0;
    for (const double x : moves) mean += x / 100;
    double square = 0;
    for (std::size_t c = 0; c < 20; ++c) {
      double sum = 0;
      for (std::size_t i = 5 * c; i < 5 * c + 5; ++i) sum += moves[i] - mean;
      square += sum * sum;
    }
    const WorkEntry& entry = find(*profile, static_cast<int>(layer), Geometry::kRaw, "shift");
    EXPECT_NEAR(entry.value, mean, 1e-13);
    EXPECT_NEAR(*entry.standard_error, std::sqrt(20. / 19 * square) / 100, 1e-13);
    ASSERT_EQ(entry.subsample_values.size(), 4u);
    for (std::size_t r = 0; r < 4; ++r) {
      double of_subsample = 0;
      for (const auto position : profile->positions[r]) of_subsample += moves[position] / 25;
      EXPECT_EQ(profile->subsample_tokens[r], 25u);
      EXPECT_NEAR(entry.subsample_values[r], of_subsample, 1e-13);
    }
  }
}

TEST(WorkProfile, OtherStatisticsAreMeansOfTheKeptValuesOfTheSubsamples) {
  const Network network(1, 100, 6, 2);
  const auto profile = measure_work(network.layers(), small_options());
  ASSERT_TRUE(profile);
  for (const char* statistic : {"gromov", "topology"}) {
    const WorkEntry& entry = find(*profile, 0, Geometry::kSpherical, statistic);
    ASSERT_EQ(entry.subsample_values.size(), 4u);
    double mean = 0, spread = 0;
    for (const double v : entry.subsample_values) mean += v / 4;
    for (const double v : entry.subsample_values) spread += (v - mean) * (v - mean);
    EXPECT_NEAR(entry.value, mean, 1e-14);
    EXPECT_NEAR(*entry.standard_error, std::sqrt(spread / 3 / 4), 1e-14);
    EXPECT_GT(*entry.standard_error, 0);
  }
}

// after = 2 before: E = mean A^2 in the raw geometry, which the norm bound proves; angles stay.
TEST(WorkProfile, GromovEntriesCarryEnergiesBoundsAndHowManyAreCertified) {
  Network network(1, 64, 6, 2);
  network.streams[1] = network.streams[0];
  for (float& x : network.streams[1]) x *= 2;
  const auto profile = measure_work(network.layers(), small_options());
  ASSERT_TRUE(profile);
  EXPECT_FALSE(find(*profile, 0, Geometry::kRaw, "shift").energies);
  EXPECT_FALSE(find(*profile, 0, Geometry::kRaw, "topology").energies);
  double mean = 0;
  for (const auto& positions : profile->positions) {
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j < 16; ++j) {
        for (std::size_t k = 0; k < 6; ++k) {
          const double apart =
              network.streams[0][positions[i] * 6 + k] - network.streams[0][positions[j] * 6 + k];
          mean += apart * apart / (16.0 * 16.0 * 4);
        }
      }
    }
  }
  const auto& raw = find(*profile, 0, Geometry::kRaw, "gromov").energies;
  ASSERT_TRUE(raw);
  EXPECT_NEAR(raw->energy, mean, 1e-6 * mean);
  EXPECT_DOUBLE_EQ(raw->identity, raw->energy);
  EXPECT_EQ(raw->identity_ratio(), 1.0);
  EXPECT_NEAR(raw->norm_bound, raw->energy, 1e-9 * mean);
  EXPECT_LE(raw->second_bound, raw->energy);
  EXPECT_EQ(raw->certified, 4u);
  const auto& ball = find(*profile, 0, Geometry::kHyperbolic, "gromov").energies;
  ASSERT_TRUE(ball);
  EXPECT_NEAR(ball->energy, 0, 1e-25);
}

TEST(WorkProfile, EnergiesAreMeansOverTheSubsamplesAndBoundTheirValues) {
  const Network network(1, 100, 6, 2);
  const auto profile = measure_work(network.layers(), small_options());
  ASSERT_TRUE(profile);
  for (const Geometry geometry : kGeometries) {
    const WorkEntry& entry = find(*profile, 0, geometry, "gromov");
    ASSERT_TRUE(entry.energies);
    double mean = 0;
    for (const double value : entry.subsample_values) mean += value * value / 4;
    EXPECT_NEAR(entry.energies->energy, mean, 1e-13 * mean);
    EXPECT_GE(entry.energies->identity, entry.energies->energy);
    for (const double bound :
         {entry.energies->norm_bound, entry.energies->second_bound, entry.energies->third_bound}) {
      EXPECT_GE(bound, 0);
      EXPECT_LE(bound, entry.energies->energy * (1 + 1e-12));
    }
    EXPECT_LE(entry.energies->certified, 4u);
  }
}

TEST(WorkProfile, SubsamplesAreDisjointHoweverFewPositionsThereAre) {
  for (const std::size_t positions : {200u, 64u, 63u, 33u}) {
    const Network network(1, positions, 4, 3);
    WorkOptions options = small_options();
    for (const std::size_t linear : {16u, 40u, 50u, 120u}) {
      options.linear_tokens = linear;
      const auto profile = measure_work(network.layers(), options);
      ASSERT_TRUE(profile);
      EXPECT_EQ(profile->subsamples, std::min<std::size_t>(4, positions / 16));
      EXPECT_EQ(profile->subsamples_asked, 4u);
      EXPECT_EQ(profile->usable, positions);
      std::set<std::uint32_t> seen;
      std::size_t count = 0;
      for (const auto& of : profile->positions) {
        EXPECT_GE(of.size(), 16u);
        EXPECT_LE(of.size(), linear);
        seen.insert(of.begin(), of.end());
        count += of.size();
      }
      EXPECT_EQ(seen.size(), count);
      // All that there are, as far as they are asked for.
      EXPECT_GE(count, std::min(positions, profile->subsamples * linear) - profile->subsamples);
    }
  }
}

TEST(WorkProfile, AnErrorThatCannotBeKnownIsAbsentWithTheReason) {
  const Network network(1, 31, 4, 3);
  const auto profile = measure_work(network.layers(), small_options());
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->tokens, 16u);
  EXPECT_EQ(profile->subsamples, 1u);
  EXPECT_THAT(profile->no_error, HasSubstr("31 tokens hold one subsample of 16"));
  const WorkEntry& gromov = find(*profile, 0, Geometry::kRaw, "gromov");
  EXPECT_FALSE(gromov.standard_error);
  EXPECT_EQ(gromov.no_error, profile->no_error);
  EXPECT_EQ(gromov.subsample_values.size(), 1u);
  // A mean over positions needs no subsamples.
  EXPECT_GT(*find(*profile, 0, Geometry::kRaw, "shift").standard_error, 0);

  const std::vector<std::int64_t> one(31, 5);
  WorkOptions options = small_options();
  options.sequences = one;
  const auto same = measure_work(network.layers(), options);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->sequences, 1u);
  for (const WorkEntry& entry : same->entries) {
    EXPECT_FALSE(entry.standard_error);
    EXPECT_THAT(entry.no_error, HasSubstr("one sequence"));
  }
}

TEST(WorkProfile, SequencesAreOneAPositionAndSaidWhenTheyAreGiven) {
  const Network network(1, 80, 4, 3);
  WorkOptions options = small_options();
  EXPECT_FALSE(measure_work(network.layers(), options)->sequences_given);
  EXPECT_EQ(measure_work(network.layers(), options)->sequences, 80u);
  std::vector<std::int64_t> sequences(80);
  for (std::size_t i = 0; i < 80; ++i) sequences[i] = static_cast<std::int64_t>(i % 8);
  options.sequences = sequences;
  const auto profile = measure_work(network.layers(), options);
  ASSERT_TRUE(profile);
  EXPECT_TRUE(profile->sequences_given);
  EXPECT_EQ(profile->sequences, 8u);
  std::set<std::int64_t> seen;
  for (const auto& positions : profile->positions) {
    std::set<std::int64_t> mine;
    for (const auto position : positions) mine.insert(sequences[position]);
    for (const std::int64_t id : mine) EXPECT_TRUE(seen.insert(id).second) << id;
  }
  options.sequences = std::span(sequences).first(79);
  EXPECT_THAT(measure_work(network.layers(), options).error().message(),
              HasSubstr("79 sequence numbers are given for 80 tokens"));
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

}  // namespace
}  // namespace tailor::geometry
