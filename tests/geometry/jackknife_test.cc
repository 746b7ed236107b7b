// The jackknife against closed forms, and reported errors against true ones by simulation.
#include "geometry/jackknife.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "geometry/sampling.h"
#include "tests/geometry/error_simulation.h"

namespace tailor::geometry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WorkProfile profile_of(const std::vector<std::vector<double>>& values,
                       std::vector<std::size_t> weights, const std::string& statistic) {
  WorkProfile profile;
  profile.subsamples = values.size();
  profile.subsample_tokens = std::move(weights);
  for (std::size_t l = 0; l < values[0].size(); ++l) {
    WorkEntry& entry = profile.entries.emplace_back();
    entry.layer = static_cast<int>(l);
    entry.statistic = statistic;
    for (const auto& of : values) {
      entry.subsample_values.push_back(of[l]);
      entry.value += of[l] / static_cast<double>(values.size());
    }
  }
  return profile;
}

TEST(Jackknife, OfAMeanIsTheErrorOfTheMean) {
  const std::vector<std::vector<double>> values = {{1, 10}, {2, 30}, {4, 20}, {9, 21}};
  const auto without = leave_one_out(values);
  ASSERT_EQ(without.size(), 4u);
  EXPECT_NEAR(without[0][0], 5, 1e-14);
  EXPECT_NEAR(without[3][1], 20, 1e-14);
  const auto errors = jackknife_errors(without);
  EXPECT_NEAR(errors[0], *error_of_mean(std::vector<double>{1, 2, 4, 9}), 1e-14);
  EXPECT_NEAR(errors[1], *error_of_mean(std::vector<double>{10, 30, 20, 21}), 1e-13);
  EXPECT_TRUE(leave_one_out(std::vector<std::vector<double>>{{1, 2}}).empty());
}

TEST(Jackknife, WeighsSubsamplesByTheirTokensWhereAMeanOverTokensIsMeant) {
  // Without the first: (3 * 4 + 1 * 8) / 4 = 5.
  const auto without =
      leave_one_out(std::vector<std::vector<double>>{{1}, {4}, {8}}, std::vector<double>{2, 3, 1});
  EXPECT_NEAR(without[0][0], 5, 1e-14);
  const auto shift =
      work_series(profile_of({{1}, {4}, {8}}, {2, 3, 1}, "shift"), Geometry::kRaw, "shift");
  ASSERT_TRUE(shift.has_value());
  EXPECT_NEAR(shift->without[0][0], 5, 1e-14);
  const auto gromov =
      work_series(profile_of({{1}, {4}, {8}}, {2, 3, 1}, "gromov"), Geometry::kRaw, "gromov");
  ASSERT_TRUE(gromov.has_value());
  EXPECT_NEAR(gromov->without[0][0], 6, 1e-14);
}

TEST(Jackknife, LayersThatMoveTogetherLeaveTheirRatioCertain) {
  // The second layer is always three times the first: its share has no error, though both have.
  const auto series = work_series(profile_of({{1, 3}, {2, 6}, {5, 15}}, {1, 1, 1}, "gromov"),
                                  Geometry::kRaw, "gromov");
  ASSERT_TRUE(series.has_value());
  const auto share =
      derive(*series, [](std::span<const double> work) -> Result<std::vector<double>> {
        return std::vector<double>{work[1] / (work[0] + work[1]), work[0]};
      });
  ASSERT_TRUE(share.has_value());
  EXPECT_NEAR(share->values[0], .75, 1e-15);
  EXPECT_NEAR(share->errors[0], 0, 1e-15);
  EXPECT_GT(share->errors[1], 1);
}

TEST(Jackknife, WhatCannotBeKnownIsAbsentWithTheReason) {
  WorkProfile one = profile_of({{1, 2}}, {5}, "gromov");
  one.no_error = "too few";
  const auto series = work_series(one, Geometry::kRaw, "gromov");
  ASSERT_TRUE(series.has_value());
  EXPECT_EQ(series->no_error, "too few");
  const Pipeline same = [](std::span<const double> work) -> Result<std::vector<double>> {
    return std::vector<double>(work.begin(), work.end());
  };
  const auto derived = derive(*series, same);
  ASSERT_TRUE(derived.has_value());
  EXPECT_THAT(derived->values, ElementsAre(1, 2));
  EXPECT_TRUE(derived->errors.empty());
  EXPECT_EQ(derived->no_error, "too few");

  WorkProfile earlier = profile_of({{1}, {2}}, {5, 5}, "gromov");
  earlier.entries[0].subsample_values.clear();
  earlier.entries[0].no_error = std::string(kEarlierErrors);
  EXPECT_EQ(work_series(earlier, Geometry::kRaw, "gromov")->no_error, kEarlierErrors);

  const auto two = work_series(profile_of({{1}, {2}}, {5, 5}, "gromov"), Geometry::kRaw, "gromov");
  const auto failing =
      derive(*two, [](std::span<const double> work) -> Result<std::vector<double>> {
        if (work[0] < 1.2) return error(Code::kOutOfRange, "no room");
        return std::vector<double>{work[0]};
      });
  ASSERT_TRUE(failing.has_value());
  EXPECT_TRUE(failing->errors.empty());
  EXPECT_THAT(failing->no_error, HasSubstr("without subsample 1: no room"));
  EXPECT_EQ(work_series(earlier, Geometry::kSpherical, "gromov").error().code(), Code::kNotFound);
}

TEST(Jackknife, FrontLoadsCarryTheirErrors) {
  const WorkProfile profile = profile_of({{2, 1, 1}, {1, 1, 1}, {2, 1, 1}}, {1, 1, 1}, "gromov");
  const auto all = front_loads(profile);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NEAR(all[0].value, (5. / 3) / (5. / 3 + 2), 1e-15);
  // Without the second 1/2, without another 1.5/3.5: mean .452381, SE^2 = 2/3 of the squares.
  const double a = .5 - (.5 + 2 * 1.5 / 3.5) / 3, b = 1.5 / 3.5 - (.5 + 2 * 1.5 / 3.5) / 3;
  EXPECT_NEAR(*all[0].standard_error, std::sqrt(2. / 3 * (a * a + 2 * b * b)), 1e-15);
  EXPECT_TRUE(front_loads(profile_of({{2, 1}, {1, 1}}, {1, 1}, "gromov")).empty());
}

TEST(TrueErrors, OfEveryStatisticAndOfWidthsAreTheSpreadOverDraws) {
  // Correlated tokens; and tokens for five of the eight subsamples that are asked for.
  for (const std::size_t sequences : {40u, 20u}) {
    testing::ErrorSimulation simulation;
    simulation.sequences = sequences;
    simulation.tokens_of_sequence = 8;
    simulation.layers = 3;
    simulation.draws = 100;
    simulation.work.tokens = 32;
    std::size_t subsamples = 0;
    const auto all = simulate_errors(simulation, &subsamples);
    EXPECT_EQ(subsamples, sequences == 40 ? 8u : 5u);
    EXPECT_EQ(all.size(), 9u * 5);
    for (const auto& [name, quantity] : all) {
      // 100 draws tell a standard deviation to some 7 %.
      EXPECT_GT(quantity.ratio(), 0.8) << name << ", " << sequences;
      // Rounding jumps, and the jackknife counts a jump of one subsample R' - 1 times: errors of
      // whole widths of a few quanta are on the large side, never on the small one.
      const bool whole = name.ends_with("integers");
      EXPECT_LT(quantity.ratio(), whole ? 1.6 : 1.25) << name << ", " << sequences;
    }
  }
}

TEST(TrueErrors, AreMissedByFarWhenTheSequencesAreNotGiven) {
  testing::ErrorSimulation simulation;
  simulation.sequences = 40;
  simulation.layers = 1;
  simulation.draws = 60;
  simulation.give_sequences = false;
  simulation.work.statistics = {"shift"};
  testing::Simulated shift;
  for (std::uint64_t draw = 0; draw < simulation.draws; ++draw) {
    const testing::SimulatedTokens tokens(simulation, draw);
    const auto profile = measure_work(tokens.clouds(), simulation.work);
    ASSERT_TRUE(profile.has_value());
    EXPECT_FALSE(profile->sequences_given);
    shift.add(std::vector<double>{profile->entries[0].value},
              std::vector<double>{*profile->entries[0].standard_error});
  }
  EXPECT_LT(shift.ratio(), 0.7);  // 1 / sqrt(1 + 7 * .3) = .57
}

}  // namespace
}  // namespace tailor::geometry
