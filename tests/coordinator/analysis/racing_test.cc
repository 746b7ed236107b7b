// Races over seeds: what is decided when, what it saves, and that intervals keep their coverage.
#include "coordinator/analysis/racing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace tailor::analysis {
namespace {

RaceSettings settings(double futility, RaceGoal goal = RaceGoal::kBoth) {
  RaceSettings out;
  out.futility = futility;
  out.goal = goal;
  return out;
}

Racer racer(std::vector<double> differences) {
  Racer out;
  out.differences = std::move(differences);
  return out;
}

/// One race of candidates whose noise and the baseline's have SD 1 / sqrt 2, so that differences
/// have SD 1.
struct Raced {
  RaceTable table;
  bool covered = true;
  std::size_t false_claims = 0, found = 0, better = 0;
};

Raced run_race(const Race& race, const std::vector<double>& truth, std::uint64_t number) {
  const std::size_t most = race.settings().most;
  std::vector<Racer> racers(truth.size());
  const auto difference = [&](std::size_t c, std::size_t seed) {
    return truth[c] +
           (keyed_normal(100 + c, number, seed) - keyed_normal(99, number, seed)) / std::sqrt(2.0);
  };
  for (std::size_t c = 0; c < truth.size(); ++c) {
    for (std::size_t s = 0; s < race.settings().first; ++s) {
      racers[c].differences.push_back(difference(c, s));
    }
  }
  Raced out;
  for (std::size_t look = 0; look <= most; ++look) {
    out.table = race.read(racers, false);
    if (out.table.over) break;
    for (std::size_t c = 0; c < truth.size(); ++c) {
      if (out.table.rows[c].next_seed) {
        racers[c].differences.push_back(difference(c, racers[c].differences.size()));
      } else {
        racers[c].out = true;
      }
    }
  }
  for (std::size_t c = 0; c < truth.size(); ++c) {
    const RaceRow& row = out.table.rows[c];
    out.covered = out.covered && (!row.low || (*row.low <= truth[c] && truth[c] <= *row.high));
    out.better += truth[c] < 0 ? 1 : 0;
    out.found += truth[c] < 0 && row.standing == Standing::kBeats ? 1 : 0;
    out.false_claims += truth[c] >= 0 && row.standing == Standing::kBeats ? 1 : 0;
  }
  return out;
}

struct Simulated {
  double coverage = 0, false_claims = 0, power = 0, trials = 0;
};

Simulated simulate(const Race& race, const std::vector<double>& truth, std::uint64_t races) {
  Simulated out;
  double found = 0, better = 0;
  for (std::uint64_t i = 0; i < races; ++i) {
    const Raced raced = run_race(race, truth, i);
    out.coverage += raced.covered ? 1 : 0;
    out.false_claims += raced.false_claims > 0 ? 1 : 0;
    out.trials += static_cast<double>(raced.table.trials);
    found += static_cast<double>(raced.found);
    better += static_cast<double>(raced.better);
  }
  const auto n = static_cast<double>(races);
  out.coverage /= n;
  out.false_claims /= n;
  out.trials /= n;
  out.power = better > 0 ? found / better : 0;
  return out;
}

/// 0, +1, -1, 0, +1, ...: true differences in SDs.
std::vector<double> mixed(std::size_t candidates) {
  std::vector<double> truth;
  for (std::size_t c = 0; c < candidates; ++c)
    truth.push_back(c % 3 == 0 ? 0 : c % 3 == 1 ? 1 : -1);
  return truth;
}

class Coverage : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Coverage, OfAllIntervalsOfARaceTogetherIsThatOfTheLevel) {
  // 10,000 races: one standard error of the coverage is .0022.
  const std::size_t candidates = GetParam();
  const Race race(settings(0), candidates);
  const Simulated all = simulate(race, mixed(candidates), 10'000);
  EXPECT_GE(all.coverage, .945);
  EXPECT_LE(all.coverage, .970);
  // A claim of a win is false in at most half of the misses.
  EXPECT_LE(all.false_claims, .03);
}

TEST_P(Coverage, StaysWhenRacesEndForFutilityAndThatSavesTrialsAtLittleCost) {
  const std::size_t candidates = GetParam();
  const Race full(settings(0), candidates), futile(settings(.05), candidates);
  const std::uint64_t races = candidates < 20 ? 2'000 : 500;
  const Simulated without = simulate(full, mixed(candidates), races);
  const Simulated with = simulate(futile, mixed(candidates), races);
  EXPECT_GE(with.coverage, .945);
  EXPECT_LT(with.trials, .7 * without.trials);
  EXPECT_GE(with.power, without.power - .02);
  EXPECT_LE(with.false_claims, without.false_claims);
}

INSTANTIATE_TEST_SUITE_P(Families, Coverage, ::testing::Values(1u, 5u, 20u));

TEST(Racing, ACandidateThatIsClearlyWorseGetsNoFurtherSeed) {
  const Race race(settings(.05), 1);
  const std::vector<double> worse = {0.50, 0.52, 0.49, 0.51};
  const RaceTable table = race.read(std::vector<Racer>{racer(worse)}, true);
  EXPECT_FALSE(table.rows[0].next_seed);
  EXPECT_TRUE(table.over);
  EXPECT_EQ(table.trials, 8u);
  EXPECT_EQ(table.trials_planned, 20u);
  EXPECT_EQ(table.text, "8 of 20 trials were enough: 12 saved");
}

TEST(Racing, ADecidedLeaderWithoutARivalEndsTheRace) {
  const Race race(settings(.05), 1);
  std::vector<double> better = {-0.50, -0.52, -0.49, -0.51, -0.50};
  const RaceTable table = race.read(std::vector<Racer>{racer(better)}, true);
  EXPECT_EQ(table.rows[0].standing, Standing::kBeats);
  EXPECT_TRUE(table.over);
  EXPECT_LT(*table.rows[0].high, 0);
  EXPECT_LT(table.rows[0].p, .05);
  EXPECT_EQ(table.rows[0].sign_flip_p, 0.0625);
}

TEST(Racing, TwoThatMayBothBeTheBestGoOnForTheBestAndNotForTheBaseline) {
  const std::vector<Racer> close = {racer({-0.50, -0.52, -0.49, -0.51, -0.50}),
                                    racer({-0.51, -0.50, -0.50, -0.52, -0.49})};
  const RaceTable both = Race(settings(.05), 2).read(close, false);
  EXPECT_EQ(both.rows[0].standing, Standing::kBeats);
  EXPECT_TRUE(both.rows[0].next_seed);
  EXPECT_TRUE(both.rows[1].next_seed);
  EXPECT_EQ(both.baseline_seeds, 6u);
  const RaceTable baseline = Race(settings(.05, RaceGoal::kBaseline), 2).read(close, false);
  EXPECT_TRUE(baseline.over);
}

TEST(Racing, ARivalThatIsClearlyBehindTheLeaderIsOut) {
  const std::vector<Racer> apart = {racer({-0.50, -0.52, -0.49, -0.51, -0.50, -0.51}),
                                    racer({-0.30, -0.31, -0.29, -0.31, -0.30, -0.30})};
  const RaceTable table = Race(settings(.05), 2).read(apart, false);
  EXPECT_EQ(table.leader, 0u);
  EXPECT_TRUE(table.rows[0].may_be_best);
  EXPECT_FALSE(table.rows[1].may_be_best);
  EXPECT_TRUE(table.over);
}

TEST(Racing, BeforeTheFirstLookEveryoneGoesOn) {
  const RaceTable table =
      Race(settings(.05), 2).read(std::vector<Racer>{racer({}), racer({9.0, 9.1})}, true);
  for (const RaceRow& row : table.rows) {
    EXPECT_TRUE(row.next_seed);
    EXPECT_FALSE(row.low.has_value());
    EXPECT_EQ(row.p, 1);
  }
  EXPECT_FALSE(table.leader.has_value());
}

TEST(Racing, AFailedCandidateIsNeverTheLeaderAndGetsNoSeed) {
  Racer failed = racer({-9.0, -9.1, -9.0, -9.2});
  failed.failed = true;
  const RaceTable table =
      Race(settings(0), 2).read(std::vector<Racer>{failed, racer({0.1, -0.2, 0.15, 0.05})}, false);
  EXPECT_EQ(table.leader, 1u);
  EXPECT_EQ(table.rows[0].standing, Standing::kFailed);
  EXPECT_FALSE(table.rows[0].next_seed);
  EXPECT_FALSE(table.rows[0].may_be_best);
}

TEST(Racing, WhoIsOutStaysOut) {
  Racer out = racer({0.1, -0.2, 0.15});
  out.out = true;
  const RaceTable table = Race(settings(0), 1).read(std::vector<Racer>{out}, false);
  EXPECT_FALSE(table.rows[0].next_seed);
  EXPECT_TRUE(table.over);
}

TEST(Racing, DifferencesWithoutSpreadAreNoDivisionByZero) {
  const Race race(settings(.05), 1);
  for (const double value : {0.0, 0.5, -0.5}) {
    const RaceTable table =
        race.read(std::vector<Racer>{racer(std::vector<double>(6, value))}, true);
    const RaceRow& row = table.rows[0];
    EXPECT_EQ(row.standing, value < 0   ? Standing::kBeats
                            : value > 0 ? Standing::kWorse
                                        : Standing::kFutile);
    EXPECT_TRUE(std::isfinite(row.p));
  }
}

}  // namespace
}  // namespace tailor::analysis
