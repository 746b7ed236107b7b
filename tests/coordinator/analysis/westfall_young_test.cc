// Westfall and Young's step-down p by joint sign flips: brute force, and the error rate of a
// family.
#include "coordinator/analysis/westfall_young.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "base/rng.h"
#include "coordinator/analysis/sign_flip.h"

namespace tailor::analysis {
namespace {

struct Family {
  std::vector<std::vector<std::uint64_t>> seeds;
  std::vector<std::vector<double>> differences;
  void add(std::vector<double> d) {
    seeds.emplace_back();
    for (std::size_t i = 0; i < d.size(); ++i) seeds.back().push_back(i + 1);
    differences.push_back(std::move(d));
  }
  WestfallYoung adjusted() const {
    std::vector<SeededDifferences> tests;
    for (std::size_t i = 0; i < seeds.size(); ++i) tests.push_back({seeds[i], differences[i]});
    return westfall_young(tests);
  }
};

/// The definition, one pattern of all 2^seeds after the other.
std::vector<double> by_brute_force(const Family& family, std::size_t seeds) {
  const std::size_t m = family.seeds.size();
  std::vector<double> root(m), u(m);
  for (std::size_t i = 0; i < m; ++i) {
    double sum = 0, squares = 0;
    for (const double d : family.differences[i]) {
      sum += d;
      squares += d * d;
    }
    root[i] = std::sqrt(squares);
    u[i] = root[i] > 0 ? std::abs(sum) / root[i] : 0;
  }
  std::vector<std::size_t> order(m);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return u[a] > u[b]; });
  std::vector<double> share(m, 0.0);
  for (std::uint64_t pattern = 0; pattern < (std::uint64_t{1} << seeds); ++pattern) {
    for (std::size_t place = 0; place < m; ++place) {
      double largest = 0;
      for (std::size_t later = place; later < m; ++later) {
        const std::size_t i = order[later];
        double sum = 0;
        for (std::size_t k = 0; k < family.seeds[i].size(); ++k) {
          const bool negative = ((pattern >> (family.seeds[i][k] - 1)) & 1) != 0;
          sum += negative ? -family.differences[i][k] : family.differences[i][k];
        }
        if (root[i] > 0) largest = std::max(largest, std::abs(sum) / root[i]);
      }
      share[place] +=
          largest >= u[order[place]] * (1 - 1e-12) ? std::ldexp(1.0, -static_cast<int>(seeds)) : 0;
    }
  }
  std::vector<double> p(m);
  double running = 0;
  for (std::size_t place = 0; place < m; ++place) {
    running = std::max(running, share[place]);
    p[order[place]] = running;
  }
  return p;
}

TEST(WestfallYoung, GivesTheValuesOfAnIndependentCount) {
  // Counted in numpy over all 64 patterns: 2, 16 and 24 of 64.
  Family family;
  family.add({-.021, -.017, -.030, -.009, -.025, -.014});
  family.add({-.011, .004, -.022, -.006, -.013, .002});
  family.add({.005, -.009, -.012, .011, -.004, -.02});
  const WestfallYoung out = family.adjusted();
  EXPECT_EQ(out.draws, 0u);
  EXPECT_DOUBLE_EQ(out.smallest_p, 2.0 / 64);
  EXPECT_NEAR(out.p[0].value(), 2.0 / 64, 1e-12);
  EXPECT_NEAR(out.p[1].value(), 16.0 / 64, 1e-12);
  EXPECT_NEAR(out.p[2].value(), 24.0 / 64, 1e-12);
}

TEST(WestfallYoung, CountsWhatBruteForceCountsWithMissingSeedsToo) {
  Rng rng(9);
  for (int round = 0; round < 25; ++round) {
    Family family;
    const std::size_t seeds = 2 + rng.below(6);
    for (std::size_t i = 0; i < 1 + rng.below(5); ++i) {
      family.seeds.emplace_back();
      family.differences.emplace_back();
      for (std::size_t s = 1; s <= seeds; ++s) {
        // The first has all seeds, so that as many are known as are flipped.
        if (i > 0 && rng.below(4) == 0) continue;
        family.seeds.back().push_back(s);
        family.differences.back().push_back(static_cast<double>(rng.below(13)) - 6 +
                                            0.001 * rng.normal());
      }
      if (family.seeds.back().empty()) {
        family.seeds.pop_back();
        family.differences.pop_back();
      }
    }
    const WestfallYoung out = family.adjusted();
    const std::vector<double> expected = by_brute_force(family, seeds);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(out.p[i].value(), expected[i], 1e-9) << round << " " << i;
    }
  }
}

TEST(WestfallYoung, OneTestIsTheSignFlipTest) {
  Rng rng(4);
  for (int round = 0; round < 20; ++round) {
    Family family;
    std::vector<double> d;
    for (int i = 0; i < 7; ++i) d.push_back(0.4 + rng.normal());
    family.add(d);
    EXPECT_NEAR(family.adjusted().p[0].value(), sign_flip_test(d).p, 1e-12);
  }
}

TEST(WestfallYoung, ReachesWhatHolmCannotWithManyRules) {
  Family family;
  family.add({-.021, -.017, -.030, -.019, -.025, -.014});
  Rng rng(8);
  for (int i = 0; i < 11; ++i) {
    std::vector<double> d;
    for (int s = 0; s < 6; ++s) d.push_back(0.02 * rng.normal());
    family.add(d);
  }
  // Holm's least is 12 x 2 / 64 = .375.
  EXPECT_LE(family.adjusted().p[0].value(), 0.0625);
}

TEST(WestfallYoung, KeepsTheErrorRateOfAFamilyThatSharesItsBaseline) {
  // 400 families of 20 true null hypotheses at n = 8: any rejection at 5 % happens in 5 % of them
  // at most; standard error .011.
  Rng rng(12);
  int rejected = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<double> baseline;
    for (int s = 0; s < 8; ++s) baseline.push_back(rng.normal());
    Family family;
    for (int i = 0; i < 20; ++i) {
      std::vector<double> d;
      for (int s = 0; s < 8; ++s) d.push_back(rng.normal() - baseline[static_cast<std::size_t>(s)]);
      family.add(d);
    }
    const WestfallYoung out = family.adjusted();
    rejected += std::any_of(out.p.begin(), out.p.end(), [](auto p) { return *p <= 0.05; }) ? 1 : 0;
  }
  EXPECT_LE(rejected / 400.0, 0.05 + 3 * 0.011);
  EXPECT_GE(rejected / 400.0, 0.01) << "and it does reject";
}

TEST(WestfallYoung, ManySeedsAreSampledAndSayHowOften) {
  Family family;
  Rng rng(2);
  for (int i = 0; i < 3; ++i) {
    std::vector<double> d;
    for (int s = 0; s < 20; ++s) d.push_back((i == 0 ? 0.8 : 0.1) + rng.normal());
    family.add(d);
  }
  const WestfallYoung out = family.adjusted();
  EXPECT_EQ(out.draws, kJointDrawsMax);
  EXPECT_DOUBLE_EQ(out.smallest_p, 1.0 / (kJointDrawsMax + 1));
  // Of the largest alone the adjusted p is at least the test's own.
  EXPECT_GE(out.p[0].value() + 0.01, sign_flip_test(family.differences[0]).p);
  EXPECT_EQ(out.p[0].value(), family.adjusted().p[0].value()) << "the seed is fixed";
}

TEST(WestfallYoung, WithoutDifferencesThereIsNoTest) {
  Family family;
  family.add({});
  family.add({0, 0, 0});
  const WestfallYoung out = family.adjusted();
  EXPECT_FALSE(out.p[0].has_value());
  EXPECT_DOUBLE_EQ(out.p[1].value(), 1);
  EXPECT_EQ(out.tests, 1u);
  EXPECT_EQ(westfall_young({}).tests, 0u);
}

}  // namespace
}  // namespace tailor::analysis
