// Boundaries for repeated looks, against a table that was simulated elsewhere (4 million paths,
// issue 12's notes), closed forms, and simulations of their own.
#include "coordinator/analysis/peeking.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "base/stats.h"

namespace tailor::analysis {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
using Looks = std::vector<std::size_t>;

struct Tabulated {
  Looks looks;
  double nominal_p;
  double error;  ///< of nominal_p, one standard error of the simulation
  std::vector<double> critical;
};

const std::vector<Tabulated>& table() {
  static const std::vector<Tabulated> rows = {
      {{3, 4, 5}, .02283, .00005, {6.505, 4.322, 3.597}},
      {{3, 4, 5, 6, 7, 8}, .01440, .00003, {8.242, 5.122, 4.138, 3.673, 3.405, 3.232}},
      {{3, 4, 5, 6, 7, 8, 9, 10},
       .01202,
       .00003,
       {9.038, 5.468, 4.364, 3.848, 3.553, 3.364, 3.232, 3.135}},
      {{5, 10, 20}, .01955, .00004, {3.773, 2.835, 2.550}},
  };
  return rows;
}

TEST(Peeking, AConstantNominalLevelIsThatOfTheTable) {
  for (const Tabulated& row : table()) {
    const auto c = PeekingPlan(row.looks, Spending::kConstant).critical(.05);
    ASSERT_EQ(c.size(), row.critical.size());
    for (std::size_t k = 0; k < c.size(); ++k) {
      const double df = static_cast<double>(row.looks[k]) - 1;
      EXPECT_NEAR(student_t_two_sided_p(c[k], df), row.nominal_p, 2 * row.error) << row.looks[k];
      // The table's critical values carry its error of p (and half a unit of their last digit).
      const double slope = (student_t_quantile(1 - (row.nominal_p - row.error) / 2, df) -
                            student_t_quantile(1 - row.nominal_p / 2, df));
      EXPECT_NEAR(c[k], row.critical[k], 2 * slope + 0.0005) << row.looks[k];
    }
  }
}

TEST(Peeking, LookingEachTimeAtFivePercentIsWrongByAsMuchAsTheNotesSay) {
  for (const auto& [looks, wrong] :
       {std::pair(Looks{3, 4, 5}, .10), std::pair(Looks{3, 4, 5, 6, 7, 8}, .15),
        std::pair(Looks{3, 4, 5, 6, 7, 8, 9, 10}, .17)}) {
    std::vector<double> c;
    for (const std::size_t n : looks) {
      c.push_back(student_t_quantile(.975, static_cast<double>(n) - 1));
    }
    EXPECT_NEAR(crossing_probability(looks, c), wrong, .005);
  }
}

TEST(Peeking, OneLookIsStudentsTest) {
  for (const std::size_t n : {2u, 3u, 5u, 10u, 40u, 200u}) {
    for (const double level : {.5, .05, 1e-4}) {
      const double exact = student_t_quantile(1 - level / 2, static_cast<double>(n) - 1);
      for (const Spending s : {Spending::kObrienFleming, Spending::kPocock, Spending::kConstant}) {
        EXPECT_NEAR(PeekingPlan({n}, s).critical(level)[0] / exact, 1, 2e-4) << n << " " << level;
      }
      EXPECT_NEAR(crossing_probability(Looks{n}, std::vector<double>{exact}) / level, 1, 1e-4);
    }
  }
}

TEST(Peeking, TheLevelIsSpentAsTheFunctionsSay) {
  const Looks looks = {3, 4, 5, 6, 7, 8, 9, 10};
  for (const Spending spending : {Spending::kObrienFleming, Spending::kPocock}) {
    const auto c = PeekingPlan(looks, spending).critical(.05);
    for (std::size_t k = 1; k <= looks.size(); ++k) {
      const double share = static_cast<double>(looks[k - 1]) / 10;
      const double spent = spending == Spending::kPocock
                               ? .05 * std::log(1 + (std::exp(1.0) - 1) * share)
                               : 2 - 2 * normal_cdf(1.959963984540054 / std::sqrt(share));
      EXPECT_NEAR(crossing_probability(std::span(looks).first(k), std::span(c).first(k)), spent,
                  2e-5)
          << k;
    }
    for (std::size_t k = 1; k < c.size(); ++k) EXPECT_LT(c[k], c[k - 1]);
  }
}

TEST(Peeking, SimulatedPathsCrossAsOftenAsTheyShould) {
  // 200,000 paths of another generator's seed: one standard error is .0005.
  const Looks looks = {3, 5, 8};
  const auto c = PeekingPlan(looks, Spending::kObrienFleming).critical(.05);
  int crossed = 0;
  Rng rng(99);
  for (int path = 0; path < 200'000; ++path) {
    double sum = 0, squares = 0;
    bool over = false;
    for (std::size_t n = 1, look = 0; n <= 8; ++n) {
      const double d = 0.3 * rng.normal();
      sum += d;
      squares += d * d;
      if (n != looks[look]) continue;
      const double count = static_cast<double>(n), mean = sum / count;
      const double sd = std::sqrt((squares - count * mean * mean) / (count - 1));
      over = over || std::abs(mean) >= c[look] * sd / std::sqrt(count);
      ++look;
    }
    crossed += over ? 1 : 0;
  }
  EXPECT_NEAR(crossed / 200'000.0, .05, 4 * .0005);
}

TEST(Peeking, AFamilyNeedsMoreThanOneAndLessThanBonferroni) {
  const Looks looks = {3, 4, 5, 6};
  const auto one = PeekingPlan(looks, Spending::kPocock).critical(.05);
  const auto five = PeekingPlan(looks, Spending::kPocock, 5).critical(.05);
  for (std::size_t k = 0; k < looks.size(); ++k) EXPECT_GT(five[k], one[k]) << k;
  const auto bonferroni = PeekingPlan(looks, Spending::kPocock).critical(.01);
  EXPECT_LT(five.back(), bonferroni.back());
}

TEST(Peeking, AFamilyOfOneLookIsTheStudentizedMaximumOfCorrelatedTests) {
  // Two candidates, one look at n = 3, no correlation to gain from: between one test and two.
  const PeekingPlan two({3}, Spending::kConstant, 2);
  EXPECT_EQ(two.paths(), kPeekingPathsMax);
  const double c = two.critical(.05)[0];
  EXPECT_GT(c, student_t_quantile(1 - .025, 2));
  EXPECT_LT(c, student_t_quantile(1 - .0125, 2) * 1.02);
}

TEST(Peeking, TheRepeatedPIsTheLevelAtWhichItWouldJustBeCrossed) {
  const Looks looks = {3, 4, 5};
  for (const Spending spending :
       {Spending::kObrienFleming, Spending::kPocock, Spending::kConstant, Spending::kAnytime}) {
    const PeekingPlan plan(looks, spending);
    for (const double level : {.2, .05, .001}) {
      const auto c = plan.critical(level);
      if (!std::isfinite(c[2])) continue;
      EXPECT_NEAR(plan.repeated_p(std::vector<double>{0, 0, -c[2]}) / level, 1, 2e-3)
          << spending_name(spending) << " " << level;
    }
    EXPECT_EQ(plan.repeated_p({}), 1);
    EXPECT_GT(plan.repeated_p(std::vector<double>{0.0, 0.01}), .99);
    EXPECT_EQ(plan.repeated_p(std::vector<double>{std::nan("")}), 1);
  }
  EXPECT_LT(PeekingPlan(looks, Spending::kPocock).repeated_p(std::vector<double>{kInfinite}), 1e-9);
}

TEST(Peeking, AnytimeIsValidAtEveryNumberOfSeeds) {
  // 20,000 paths looked at after each of 2..60 seeds; the true level is below .05.
  std::vector<double> c;
  for (std::size_t n = 2; n <= 60; ++n) c.push_back(anytime_critical(n, .05));
  int crossed = 0;
  Rng rng(4);
  for (int path = 0; path < 20'000; ++path) {
    double sum = 0, squares = 0;
    for (std::size_t n = 1; n <= 60; ++n) {
      const double d = rng.normal(), count = static_cast<double>(n);
      sum += d;
      squares += d * d;
      if (n < 2) continue;
      const double sd = std::sqrt((squares - sum * sum / count) / (count - 1));
      if (std::abs(sum / count) >= c[n - 2] * sd / std::sqrt(count)) {
        ++crossed;
        break;
      }
    }
  }
  EXPECT_LT(crossed / 20'000.0, .05);
  EXPECT_GT(crossed / 20'000.0, .01);
}

TEST(Peeking, AnytimesCriticalValueIsWhereTheEvidenceIsOneOverTheLevel) {
  for (const std::size_t n : {5u, 10u, 50u}) {
    EXPECT_NEAR(anytime_log_e(n, anytime_critical(n, .05)), std::log(20), 1e-9) << n;
  }
  EXPECT_EQ(anytime_critical(2, 1e-6), kInfinite);
  // t = 0 speaks for the hypothesis: E = (1 + n g)^(-1/2).
  EXPECT_NEAR(anytime_log_e(8, 0), -0.5 * std::log(9.0), 1e-12);
}

TEST(Peeking, NamesAreReadAsTheyAreWritten) {
  for (const Spending s :
       {Spending::kObrienFleming, Spending::kPocock, Spending::kConstant, Spending::kAnytime}) {
    EXPECT_EQ(parse_spending(spending_name(s)).value(), s);
  }
  EXPECT_FALSE(parse_spending("bonus").has_value());
}

}  // namespace
}  // namespace tailor::analysis
