// Subsamples share no sequence, and the errors are those of the formulas.
#include "geometry/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/rng.h"

namespace tailor::geometry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::uint32_t> all_of(std::size_t count) {
  std::vector<std::uint32_t> positions(count);
  std::iota(positions.begin(), positions.end(), 0u);
  return positions;
}

// Sequences of the given lengths, one after the other, with ids that mean nothing.
std::vector<std::int64_t> of_lengths(const std::vector<std::size_t>& lengths) {
  std::vector<std::int64_t> ids;
  for (std::size_t c = 0; c < lengths.size(); ++c) {
    ids.insert(ids.end(), lengths[c], 7 - 1000 * static_cast<std::int64_t>(c));
  }
  return ids;
}

// Nothing twice, no sequence in two subsamples, n positions or more in each.
void check(const Sample& sample, const std::vector<std::int64_t>& ids) {
  std::set<std::uint32_t> seen;
  std::map<std::int64_t, std::size_t> owner;
  for (std::size_t r = 0; r < sample.subsamples.size(); ++r) {
    EXPECT_GE(sample.subsamples[r].size(), sample.tokens);
    for (const std::uint32_t position : sample.subsamples[r]) {
      EXPECT_TRUE(seen.insert(position).second) << position;
      if (ids.empty()) continue;
      EXPECT_EQ(owner.try_emplace(ids[position], r).first->second, r) << ids[position];
    }
  }
  EXPECT_EQ(sample.no_error.empty(), sample.subsamples.size() > 1);
}

std::size_t used(std::size_t positions, const std::vector<std::int64_t>& ids, std::size_t tokens,
                 std::size_t asked) {
  const Sample sample = draw_sample(
      all_of(positions), ids, {.tokens = tokens, .linear_tokens = tokens, .subsamples = asked});
  check(sample, ids);
  return sample.subsamples.size();
}

TEST(Sampling, WithoutSequencesThereAreAsManySubsamplesAsFit) {
  for (const std::size_t positions :
       {1u, 255u, 256u, 257u, 400u, 512u, 1024u, 2047u, 2048u, 9000u}) {
    const std::size_t fit = std::max<std::size_t>(1, std::min<std::size_t>(8, positions / 256));
    EXPECT_EQ(used(positions, {}, 256, 8), fit) << positions;
  }
}

TEST(Sampling, SequencesOfOneLengthAreDealtInTurn) {
  // 64 sequences of 4 in each of 8 subsamples of 256; of 255 tokens two make one.
  EXPECT_EQ(used(2048, of_lengths(std::vector<std::size_t>(512, 4)), 256, 8), 8u);
  EXPECT_EQ(used(2044, of_lengths(std::vector<std::size_t>(511, 4)), 256, 8), 7u);
  EXPECT_EQ(used(15 * 255, of_lengths(std::vector<std::size_t>(15, 255)), 256, 8), 7u);
  EXPECT_EQ(used(16 * 255, of_lengths(std::vector<std::size_t>(16, 255)), 256, 8), 8u);
}

TEST(Sampling, SequencesThatAreLongerThanASubsampleMakeOneEach) {
  EXPECT_EQ(used(3000, of_lengths({1000, 1000, 1000}), 256, 8), 3u);
  EXPECT_EQ(used(5000, of_lengths({5000}), 256, 8), 1u);
  // The rest of the short ones together is too little for a fourth.
  EXPECT_EQ(used(3100, of_lengths({1000, 1000, 1000, 50, 50}), 256, 8), 3u);
  EXPECT_EQ(used(3300, of_lengths({1000, 1000, 1000, 100, 100, 100}), 256, 8), 4u);
}

TEST(Sampling, SequencesOfAnyLengthsShareNothing) {
  Rng rng(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::size_t> lengths;
    for (std::uint64_t c = 1 + rng.below(60); c > 0; --c) lengths.push_back(1 + rng.below(90));
    const std::vector<std::int64_t> ids = of_lengths(lengths);
    const std::size_t tokens = 1 + rng.below(70), asked = 1 + rng.below(12);
    const std::size_t count = used(ids.size(), ids, tokens, asked);
    EXPECT_LE(count, std::max<std::size_t>(1, std::min(asked, ids.size() / tokens)));
    EXPECT_LE(count, lengths.size());
  }
}

TEST(Sampling, TheReasonForNoErrorNamesWhatIsMissing) {
  const auto reason = [](std::size_t positions, const std::vector<std::int64_t>& ids,
                         std::size_t asked) {
    return draw_sample(all_of(positions), ids,
                       {.tokens = 256, .linear_tokens = 256, .subsamples = asked})
        .no_error;
  };
  EXPECT_THAT(reason(257, {}, 8), HasSubstr("257 tokens hold one subsample of 256"));
  EXPECT_THAT(reason(900, of_lengths({900}), 8), HasSubstr("all tokens are of one sequence"));
  EXPECT_THAT(reason(900, {}, 1), HasSubstr("one subsample was asked for"));
  EXPECT_THAT(reason(700, of_lengths({600, 100}), 8), HasSubstr("700 tokens of 2 sequences"));
  EXPECT_THAT(reason(0, {}, 8), HasSubstr("no tokens"));
  EXPECT_EQ(reason(900, {}, 8), "");
}

TEST(Sampling, PositionsAreSpreadOverTheSequencesOfASubsample) {
  // Two subsamples of 10 from 8 sequences of 20: four each, 2 or 3 positions of every one, and of
  // any first positions as many of each as of the others, or one more.
  const std::vector<std::int64_t> ids = of_lengths(std::vector<std::size_t>(8, 20));
  const Sample sample =
      draw_sample(all_of(160), ids, {.tokens = 10, .linear_tokens = 30, .subsamples = 2});
  check(sample, ids);
  for (const auto& positions : sample.subsamples) {
    ASSERT_EQ(positions.size(), 30u);
    std::map<std::int64_t, std::size_t> count;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      ++count[ids[positions[i]]];
      if (i + 1 < 4) continue;
      ASSERT_EQ(count.size(), 4u);
      for (const auto& [id, many] : count) {
        EXPECT_GE(many, (i + 1) / 4);
        EXPECT_LE(many, (i + 4) / 4);
      }
    }
  }
}

TEST(Sampling, UnusablePositionsAreNotDrawnAndTheSeedDecides) {
  const std::vector<std::int64_t> ids = of_lengths(std::vector<std::size_t>(40, 5));
  std::vector<std::uint32_t> usable;
  for (std::uint32_t i = 0; i < 200; ++i) {
    if (i % 7 != 0) usable.push_back(i);
  }
  SamplingOptions options{.tokens = 20, .linear_tokens = 30, .subsamples = 4, .seed = 1};
  const Sample one = draw_sample(usable, ids, options);
  check(one, ids);
  EXPECT_EQ(one.positions, usable.size());
  EXPECT_EQ(one.sequences, 40u);
  for (const auto& positions : one.subsamples) {
    for (const std::uint32_t position : positions) EXPECT_NE(position % 7, 0u);
  }
  EXPECT_EQ(draw_sample(usable, ids, options).subsamples, one.subsamples);
  options.seed = 2;
  EXPECT_NE(draw_sample(usable, ids, options).subsamples, one.subsamples);
}

TEST(Sampling, ErrorOfAMeanNeedsTwoValues) {
  EXPECT_FALSE(error_of_mean({}));
  EXPECT_FALSE(error_of_mean(std::vector<double>{3}));
  EXPECT_NEAR(*error_of_mean(std::vector<double>{1, 2, 4}), std::sqrt(7. / 3 / 3), 1e-15);
  EXPECT_EQ(*error_of_mean(std::vector<double>{2, 2}), 0);
}

TEST(ClusterSums, GiveTheErrorOfTheMeanOverSequences) {
  // Sequences {1, 2}, {3, 5}, {4}.
  const ClusterSums whole(std::vector<double>{1, 2, 3, 5, 4},
                          std::vector<std::uint32_t>{0, 0, 1, 1, 2});
  EXPECT_NEAR(whole.mean(), 3, 1e-15);
  EXPECT_NEAR(*whole.standard_error(), .916515138991, 5e-13);
  // In parts, and in any order.
  ClusterSums parts(std::vector<double>{5, 4, 3}, std::vector<std::uint32_t>{0, 1, 0});
  parts.add(ClusterSums());
  parts.add(ClusterSums(std::vector<double>{2, 1}, std::vector<std::uint32_t>{0, 0}));
  EXPECT_NEAR(parts.mean(), 3, 1e-15);
  EXPECT_NEAR(*parts.standard_error(), .916515138991, 5e-13);
  EXPECT_EQ(parts.positions(), 5u);
  EXPECT_EQ(parts.sequences(), 3u);
}

TEST(ClusterSums, OfSingleTokensGiveTheErrorOfAMean) {
  const std::vector<double> values = {1, 7, 2, 9};
  const ClusterSums sums(values, std::vector<std::uint32_t>{0, 1, 2, 3});
  EXPECT_NEAR(*sums.standard_error(), *error_of_mean(values), 1e-15);
}

TEST(ClusterSums, OfOneSequenceGiveNoError) {
  EXPECT_FALSE(ClusterSums().standard_error());
  EXPECT_FALSE(
      ClusterSums(std::vector<double>{1, 2}, std::vector<std::uint32_t>{0, 0}).standard_error());
}

TEST(ClusterSums, KeepSmallErrorsOfLargeMeans) {
  const double large = 0x1p40;
  ClusterSums sums(std::vector<double>{large + 1, large + 2}, std::vector<std::uint32_t>{0, 0});
  sums.add(
      ClusterSums(std::vector<double>{large + 3, large + 5}, std::vector<std::uint32_t>{0, 0}));
  sums.add(ClusterSums(std::vector<double>{large + 4}, std::vector<std::uint32_t>{0}));
  EXPECT_NEAR(*sums.standard_error(), .916515138991, 1e-3);
}

TEST(DenseNumbers, CountSequencesAsTheyCome) {
  const std::vector<std::int64_t> ids = {9, -4, 9, 0};
  EXPECT_THAT(dense_numbers(std::vector<std::uint32_t>{2, 1, 0, 3}, ids), ElementsAre(0, 1, 0, 2));
  EXPECT_THAT(dense_numbers(std::vector<std::uint32_t>{2, 1, 0}, {}), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace tailor::geometry
