// Allocation: vectors computed in 40-digit arithmetic (T1 to T10 and the pipeline vector P1),
// optimality conditions on random problems, exhaustive search for integer widths,
// and every refusal.
#include "geometry/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>

#include "base/rng.h"

namespace tailor::geometry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Vector {
  const char* name;
  AllocationProblem problem;
  std::vector<double> widths;
  double multiplier;
  double objective;
};

void PrintTo(const Vector& vector, std::ostream* out) { *out << vector.name; }

const std::vector<Vector> kVectors = {
    {"T1", {.work = {1, 4, 9}, .budget = 12}, {2, 4, 6}, .25, 3},
    {"T2",
     {.work = {1, 4, 9}, .exponent = {.5}, .cost = {1, 2, 1}, .budget = 12},
     {1.41150717808, 2.24062797935, 6.10723686322},
     .298157245629,
     7.15577389509},
    {"T3",
     {.work = {1, 1, 1}, .exponent = {.5, 1, 2}, .budget = 6},
     {1.74932888002, 2.15113961074, 2.09953150923},
     .216103999838,
     1.44780238857},
    {"T4", {.work = {1, 4, 100}, .floor = {2}, .budget = 12}, {2, 2, 8}, 1.5625, 15},
    {"T5",
     {.work = {2.5, 1.2, .7, .3}, .exponent = {.25, .2, .15, .1}, .floor = {1024}, .budget = 12288},
     {5353.35480146, 3448.21867275, 2394.47482456, 1091.95170123},
     1.36488946782e-5,
     .894510273134},
    {"T6",
     {.work = {5, 3, 2, 1, .5, .1},
      .exponent = {.2, .25, .3, .35, .4, .5},
      .floor = {512},
      .budget = 18432},
     {8349.27231442, 4622.01862963, 2814.04127204, 1406.63854924, 728.029234664, 512},
     1.96798438802e-5,
     1.48933476177},
    {"T7", {.work = {0, 1, 1}, .floor = {1}, .budget = 9}, {1, 4, 4}, .0625, .5},
    {"T8",
     {.work = {1, 1}, .exponent = {50, .1}, .floor = {.01}, .budget = 10},
     {1.1838844434, 8.8161155566},
     .00912420424895,
     .804616430277},
    {"T9",
     {.work = {1, 4, 100}, .floor = {1}, .cap = {6}, .budget = 12},
     {2, 4, 6},
     .25,
     18.1666666667},
    {"T10",
     {.work = {3, 2, 1},
      .exponent = {.4},
      .cost = {2304, 2304, 3072},
      .floor = {64},
      .budget = 2e7},
     {3868.54552293, 2895.79784785, 1437.15913858},
     4.94460922561e-9,
     .24723046128},
};

class AllocationVector : public ::testing::TestWithParam<Vector> {};

TEST_P(AllocationVector, MatchesTheDigitsGiven) {
  const Vector& vector = GetParam();
  const auto result = allocate(vector.problem);
  ASSERT_TRUE(result) << result.error().message();
  for (std::size_t l = 0; l < vector.widths.size(); ++l) {
    EXPECT_NEAR(result->widths[l], vector.widths[l], 1e-10 * vector.widths[l]) << l;
  }
  EXPECT_NEAR(result->multiplier, vector.multiplier, 1e-10 * vector.multiplier);
  EXPECT_NEAR(result->objective, vector.objective, 1e-10 * vector.objective);
  EXPECT_LT(std::abs(result->residual), 1e-13);
}

INSTANTIATE_TEST_SUITE_P(Forty, AllocationVector, ::testing::ValuesIn(kVectors),
                         [](const auto& entry) { return std::string(entry.param.name); });

const AllocationProblem& vector_problem(const char* name) {
  for (const Vector& vector : kVectors) {
    if (std::string(vector.name) == name) return vector.problem;
  }
  return kVectors[0].problem;
}

TEST(Allocation, TheFlooredLayerHasTheMultiplierRatioGiven) {
  const auto result = allocate(vector_problem("T6"));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->states[5], LayerState::kFloor);
  EXPECT_NEAR(result->kkt[5], .219302414886, 1e-11);
  for (std::size_t l = 0; l < 5; ++l) EXPECT_NEAR(result->kkt[l], 1, 1e-12);
}

TEST(Allocation, IntegerWidthsMatchTheVectors) {
  struct Case {
    const char* name;
    std::int64_t quantum;
    std::vector<std::int64_t> widths;
    double objective;
  };
  for (const Case& c : {Case{"T5", 64, {5376, 3456, 2368, 1088}, .894513654578},
                        Case{"T5", 8, {5352, 3448, 2392, 1096}, .894510408639},
                        Case{"T6", 64, {8384, 4608, 2816, 1408, 704, 512}, 1.489348243838},
                        Case{"T6", 8, {8344, 4624, 2816, 1408, 728, 512}, 1.489334846487}}) {
    const auto result = allocate_integer(vector_problem(c.name), c.quantum);
    ASSERT_TRUE(result) << result.error().message();
    EXPECT_EQ(result->widths, c.widths) << c.name << " " << c.quantum;
    EXPECT_NEAR(result->objective, c.objective, 1e-12);
    EXPECT_TRUE(result->exact);
  }
}

TEST(Allocation, RelativeUnitsAreADifferentProblem) {
  AllocationProblem problem = vector_problem("T5");
  problem.unit = WidthUnit::kRelative;
  problem.reference_width = 3072;
  const auto result = allocate(problem);
  ASSERT_TRUE(result);
  const double expected[] = {6657.52017332, 3096.82963803, 1509.65018866, 1024};
  for (std::size_t l = 0; l < 4; ++l) EXPECT_NEAR(result->widths[l], expected[l], 1e-7);
  EXPECT_EQ(result->states[3], LayerState::kFloor);
  problem.reference_width = 0;  // the uniform width is 3072 too
  EXPECT_EQ(allocate(problem)->widths, result->widths);
}

AllocationProblem pipeline() {
  AllocationProblem problem;
  problem.work = {.90, .62, .48, .40, .34, .30, .27, .25, .24, .24, .26, .33};
  problem.exponent.clear();
  for (const double d : {8, 9, 10, 12, 13, 14, 14, 13, 12, 11, 10, 9}) {
    problem.exponent.push_back(exponent_from_dimension(ExponentRule::kTwoOverD, d, 768));
  }
  problem.floor = {1024};
  problem.budget = 36864;
  return problem;
}

void expect_widths(const AllocationProblem& problem, const std::vector<double>& expected) {
  const auto result = allocate(problem);
  ASSERT_TRUE(result);
  for (std::size_t l = 0; l < expected.size(); ++l) {
    EXPECT_NEAR(result->widths[l], expected[l], 2e-12 * 36864 + 1e-11 * expected[l]) << l;
  }
}

TEST(Allocation, PipelineVectorMatchesInAbsoluteRelativeAndConstantExponents) {
  AllocationProblem problem = pipeline();
  expect_widths(problem, {5323.1538774, 4330.91059211, 3742.54179361, 3463.521245, 3072.8998692,
                          2788.41863064, 2542.84665778, 2354.04460859, 2235.43365376, 2179.69729505,
                          2245.31227715, 2585.21949972});
  const auto absolute = allocate(problem);
  EXPECT_NEAR(absolute->multiplier, 4.94847342594e-6, 1e-16);
  EXPECT_NEAR(absolute->objective, .995289092334, 1e-12);
  EXPECT_THAT(allocate_integer(problem, 64)->widths,
              ElementsAre(5312, 4352, 3712, 3456, 3072, 2816, 2560, 2368, 2240, 2176, 2240, 2560));
  problem.unit = WidthUnit::kRelative;
  EXPECT_NEAR(allocate(problem)->widths[0], 7653, 0.5);
  EXPECT_THAT(allocate_integer(problem, 64)->widths,
              ElementsAre(7616, 5248, 3904, 2880, 2304, 1984, 1792, 1792, 1856, 1984, 2368, 3136));
  problem.unit = WidthUnit::kAbsolute;
  problem.exponent = {1.0 / 6};
  expect_widths(problem, {6427.54029397, 4669.98551666, 3750.107502, 3207.55474978, 2790.46136816,
                          2506.59248005, 2290.14524132, 2143.94723641, 2070.22718405, 2070.22718405,
                          2217.24711288, 2719.96413066});
}

AllocationProblem random_problem(std::uint64_t seed, std::size_t layers) {
  Rng rng(seed);
  AllocationProblem problem;
  problem.exponent.clear();
  problem.cost.clear();
  problem.floor.clear();
  problem.cap.clear();
  double floors = 0, caps = 0;
  for (std::size_t l = 0; l < layers; ++l) {
    problem.work.push_back(std::exp(4 * rng.normal()));
    problem.exponent.push_back(0.05 + 3 * rng.uniform());
    problem.cost.push_back(std::exp(rng.normal()));
    problem.floor.push_back(rng.uniform() < 0.3 ? 0 : 20 * rng.uniform());
    problem.cap.push_back(problem.floor.back() + 1 + 200 * rng.uniform());
    floors += problem.cost.back() * problem.floor.back();
    caps += problem.cost.back() * problem.cap.back();
  }
  problem.budget = floors + rng.uniform() * (caps - floors);
  return problem;
}

TEST(Allocation, RandomProblemsKeepTheBudgetAndTheOptimalityConditions) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const AllocationProblem problem = random_problem(seed, 1 + seed % 24);
    const auto result = allocate(problem);
    ASSERT_TRUE(result) << seed << ": " << result.error().message();
    EXPECT_LT(std::abs(result->residual), 1e-12) << seed;
    for (std::size_t l = 0; l < problem.work.size(); ++l) {
      EXPECT_GE(result->widths[l], problem.floor[l]);
      EXPECT_LE(result->widths[l], problem.cap[l]);
      switch (result->states[l]) {
        case LayerState::kFree:
          EXPECT_NEAR(result->kkt[l], 1, 1e-9) << seed << " layer " << l;
          break;
        case LayerState::kFloor:
          EXPECT_LE(result->kkt[l], 1 + 1e-9) << seed << " layer " << l;
          break;
        case LayerState::kCap:
          EXPECT_GE(result->kkt[l], 1 - 1e-9) << seed << " layer " << l;
          break;
      }
    }
  }
}

TEST(Allocation, ScalingAllWorkOrAllCostsDoesNotChangeTheWidths) {
  const AllocationProblem problem = random_problem(5, 12);
  const auto result = allocate(problem);
  for (const double factor : {1e-200, 1e-30, 1e30, 1e200}) {
    AllocationProblem scaled = problem;
    for (double& work : scaled.work) work *= factor;
    const auto by_work = allocate(scaled);
    scaled = problem;
    for (double& cost : scaled.cost) cost *= factor;
    scaled.budget *= factor;
    const auto by_cost = allocate(scaled);
    ASSERT_TRUE(result && by_work && by_cost);
    for (std::size_t l = 0; l < 12; ++l) {
      EXPECT_NEAR(by_work->widths[l], result->widths[l], 1e-9 * (1 + result->widths[l]));
      EXPECT_NEAR(by_cost->widths[l], result->widths[l], 1e-9 * (1 + result->widths[l]));
    }
  }
}

double entry(const std::vector<double>& list, std::size_t layer) {
  return list[list.size() == 1 ? 0 : layer];
}

// The least objective over all integer widths, by trying every width of every layer and keeping
// the best for each total; none where no total is within the tolerance. Totals are whole numbers:
// costs of these problems are.
std::optional<double> best_of_all_widths(const AllocationProblem& problem, std::int64_t quantum,
                                         double tolerance) {
  std::map<double, double> best = {{0, 0}};  // by total
  for (std::size_t l = 0; l < problem.work.size(); ++l) {
    const double beta = problem.work[l] * entry(problem.sensitivity, l);
    std::map<double, double> next;
    for (std::int64_t width = 0;; width += quantum) {
      const auto w = static_cast<double>(width);
      const double used = entry(problem.cost, l) * w;
      if (used > problem.budget * (1 + tolerance) || w > entry(problem.cap, l)) break;
      if (w < entry(problem.floor, l) || (w == 0 && beta > 0)) continue;
      const double term = beta > 0 ? beta * std::pow(w, -entry(problem.exponent, l)) : 0;
      for (const auto& [total, objective] : best) {
        const auto [at, inserted] = next.try_emplace(total + used, objective + term);
        if (!inserted) at->second = std::min(at->second, objective + term);
      }
    }
    best = std::move(next);
  }
  std::optional<double> within, above;
  for (const auto& [total, objective] : best) {
    if (std::abs(total - problem.budget) > tolerance * problem.budget) continue;
    std::optional<double>& least = total <= problem.budget ? within : above;
    least = std::min(least.value_or(objective), objective);
  }
  return within ? within : above;
}

void expect_feasible(const AllocationProblem& problem, const IntegerAllocation& result,
                     std::int64_t quantum, double tolerance) {
  double total = 0;
  for (std::size_t l = 0; l < problem.work.size(); ++l) {
    const auto w = static_cast<double>(result.widths[l]);
    EXPECT_EQ(result.widths[l] % quantum, 0);
    EXPECT_GE(w, entry(problem.floor, l)) << "layer " << l;
    EXPECT_LE(w, entry(problem.cap, l)) << "layer " << l;
    if (problem.work[l] > 0) {
      EXPECT_GT(w, 0) << "layer " << l;
    }
    total += entry(problem.cost, l) * w;
  }
  EXPECT_LE(std::abs(total - problem.budget), tolerance * problem.budget * (1 + 1e-9));
  EXPECT_NEAR(result.error, total / problem.budget - 1, 1e-12);
  EXPECT_TRUE(std::isfinite(result.objective));
  if (result.exact) {
    EXPECT_TRUE(result.optimal);
    EXPECT_EQ(total, problem.budget);
  }
}

TEST(Allocation, IntegerWidthsAreTheBestOfAllUnderFloorsCapsAndQuanta) {
  int solved = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const std::size_t layers = 1 + rng.below(6);
    const std::int64_t quantum = std::vector<std::int64_t>{1, 3, 8, 64}[rng.below(4)];
    const auto q = static_cast<double>(quantum);
    const bool equal_costs = seed % 3 != 0;
    AllocationProblem problem;
    problem.exponent.clear();
    problem.cost.clear();
    problem.floor.clear();
    problem.cap.clear();
    const double common = 1 + static_cast<double>(rng.below(3));
    double reached = 0;
    for (std::size_t l = 0; l < layers; ++l) {
      problem.work.push_back(rng.uniform() < 0.15 ? 0 : std::exp(2 * rng.normal()));
      if (l > 0 && rng.uniform() < 0.2) problem.work[l] = problem.work[l - 1];
      problem.exponent.push_back(rng.uniform() < 0.3 ? 0.5 : 0.05 + 2 * rng.uniform());
      problem.cost.push_back(equal_costs ? common : 1 + static_cast<double>(rng.below(5)));
      problem.floor.push_back(rng.uniform() < 0.4 ? 0 : 4 * q * rng.uniform());
      const double room = rng.uniform();
      problem.cap.push_back(room < 0.3   ? std::numeric_limits<double>::infinity()
                            : room < 0.5 ? problem.floor.back()
                                         : problem.floor.back() + 5 * q * rng.uniform());
      if (rng.uniform() < 0.3) problem.floor.back() = q * std::floor(problem.floor.back() / q);
      reached += problem.cost.back() *
                 (q * std::ceil(problem.floor.back() / q) + q * static_cast<double>(rng.below(4)));
    }
    problem.budget = reached > 0 ? reached : q;
    if (seed % 4 == 0) problem.budget += std::floor(q * rng.uniform());
    const double tolerance = seed % 5 == 0 ? 0.05 : 1e-5;
    const auto best = best_of_all_widths(problem, quantum, tolerance);
    const auto result = allocate_integer(problem, quantum, tolerance);
    // A cap above 0 that no multiple above 0 fits under is refused even without work.
    bool cap_below_quantum = false;
    for (const double cap : problem.cap) cap_below_quantum |= cap > 0 && cap < q;
    if (!best || cap_below_quantum) {
      ++refused;
      EXPECT_FALSE(result.has_value());
      continue;
    }
    // The real problem may be infeasible by what the tolerance lends to the integers.
    if (!result && !allocate(problem)) continue;
    ASSERT_TRUE(result.has_value()) << result.error().message();
    ++solved;
    EXPECT_TRUE(result->optimal);
    EXPECT_NEAR(result->objective, *best, 1e-12 * *best);
    expect_feasible(problem, *result, quantum, tolerance);
  }
  EXPECT_GT(solved, 150);
  EXPECT_GT(refused, 100);
}

// With costs that are no whole numbers no two totals coincide: every combination is tried.
TEST(Allocation, IntegerWidthsAreTheBestOfAllForCostsWithoutCommonMeasure) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    AllocationProblem problem;
    problem.exponent = {0.5};
    problem.cost.clear();
    for (int l = 0; l < 3; ++l) {
      problem.work.push_back(std::exp(rng.normal()));
      problem.cost.push_back(1 + rng.uniform());
    }
    problem.budget = 60;
    const double tolerance = 0.002;
    double best = std::numeric_limits<double>::infinity();
    for (int x = 1; x < 60; ++x) {
      for (int y = 1; y < 60; ++y) {
        for (int z = 1; z < 60; ++z) {
          const double total = problem.cost[0] * x + problem.cost[1] * y + problem.cost[2] * z;
          if (total > 60 || total < 60 * (1 - tolerance)) continue;
          best = std::min(best, problem.work[0] * std::pow(x, -0.5) +
                                    problem.work[1] * std::pow(y, -0.5) +
                                    problem.work[2] * std::pow(z, -0.5));
        }
      }
    }
    const auto result = allocate_integer(problem, 1, tolerance);
    if (std::isinf(best)) continue;
    ASSERT_TRUE(result.has_value()) << result.error().message();
    EXPECT_TRUE(result->optimal);
    EXPECT_FALSE(result->exact);
    EXPECT_NEAR(result->objective, best, 1e-12 * best);
    expect_feasible(problem, *result, 1, tolerance);
  }
}

// With no common measure and many layers there are too many totals to go through.
TEST(Allocation, WidthsThatAreNotProvedTheBestDoNotClaimToBe) {
  AllocationProblem problem;
  problem.exponent = {0.3};
  problem.cost.clear();
  Rng rng(3);
  for (int l = 0; l < 40; ++l) {
    problem.work.push_back(std::exp(rng.normal()));
    problem.cost.push_back(1 + rng.uniform());
  }
  problem.budget = 40 * 1.5 * 40;
  const auto result = allocate_integer(problem, 1, 1e-6);
  if (!result) return;  // what was found missed the tolerance
  EXPECT_FALSE(result->exact);
  expect_feasible(problem, *result, 1, 1e-6);
}

TEST(Allocation, ALayerWithoutAMultipleBetweenFloorAndCapIsRefusedByName) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const auto message = [](const AllocationProblem& problem, std::int64_t quantum) {
    const auto result = allocate_integer(problem, quantum, 1);
    EXPECT_FALSE(result.has_value());
    return result ? std::string() : result.error().message();
  };
  AllocationProblem problem{.work = {4, 3, 2, 1},
                            .floor = {100, 0, 0, 0},
                            .cap = {100, kNone, kNone, kNone},
                            .budget = 1024};
  EXPECT_THAT(message(problem, 64), HasSubstr("layer 0"));
  EXPECT_TRUE(allocate_integer(problem, 50, 0.1).has_value());
  problem.floor = {0};
  problem.cap = {kNone, kNone, 60, kNone};
  EXPECT_THAT(message(problem, 64), ::testing::AllOf(HasSubstr("layer 2"), HasSubstr("cap 60")));
  problem.work[2] = 0;  // with no work either: a cap above 0 asks for a width
  EXPECT_THAT(message(problem, 64), HasSubstr("layer 2"));
  problem.cap[2] = 0;
  const auto none = allocate_integer(problem, 64);
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->widths[2], 0);
  // A floor a little above a multiple needs the next.
  problem = {.work = {1, 1}, .floor = {64 + 1e-9, 0}, .budget = 192};
  EXPECT_THAT(allocate_integer(problem, 64)->widths, ElementsAre(128, 64));
  problem.cap = {64 + 2e-9, kNone};
  EXPECT_THAT(message(problem, 64), HasSubstr("layer 0"));
}

TEST(Allocation, LayersWithWorkNeverGetWidthZero) {
  // Two multiples for three layers that need one each.
  EXPECT_THAT(allocate_integer({.work = {5, 1, 1}, .budget = 128}, 64).error().message(),
              HasSubstr("infeasible in multiples of 64"));
  EXPECT_THAT(allocate_integer({.work = {5, 0, 1}, .budget = 128}, 64)->widths,
              ElementsAre(64, 0, 64));
  EXPECT_THAT(allocate({.work = {5, 1}, .cap = {100, 0}, .budget = 50}).error().message(),
              ::testing::AllOf(HasSubstr("layer 1"), HasSubstr("its cap is 0")));
  // The floor of a layer without work takes the whole budget.
  EXPECT_THAT(allocate({.work = {0, 1}, .floor = {10, 0}, .budget = 10}).error().message(),
              HasSubstr("layer 1 has work and would get width 0"));
  EXPECT_THAT(
      allocate({.work = {1e308, 1e308}, .sensitivity = {1e308}, .budget = 10}).error().message(),
      HasSubstr("beyond the largest number"));
}

TEST(Allocation, EqualGainsGoToTheEarlierLayer) {
  // 1 / k: from one to two quanta layers 0 to 2 gain 1/2 each, as 3 / k does from two to three.
  EXPECT_THAT(allocate_integer({.work = {1, 1, 1}, .budget = 5}, 1)->widths, ElementsAre(2, 2, 1));
  EXPECT_THAT(allocate_integer({.work = {1, 3}, .budget = 4}, 1)->widths, ElementsAre(2, 2));
  EXPECT_THAT(allocate_integer({.work = {3, 1}, .budget = 4}, 1)->widths, ElementsAre(3, 1));
  // Gains that are too small for a number are gains still.
  EXPECT_THAT(
      allocate_integer({.work = {1, 1e250}, .exponent = {900}, .floor = {64}, .budget = 448}, 64)
          ->widths,
      ElementsAre(192, 256));
}

TEST(Allocation, CapsBeyondAllMeasureAreNoCaps) {
  EXPECT_THAT(allocate_integer({.work = {1, 1}, .cap = {1e300}, .budget = 256}, 64)->widths,
              ElementsAre(128, 128));
}

TEST(Allocation, RoundedCapsThatLeaveBudgetAreOverCapacity) {
  const AllocationProblem problem{.work = {1, 1}, .cap = {127}, .budget = 192};
  EXPECT_THAT(
      allocate_integer(problem, 64).error().message(),
      ::testing::AllOf(HasSubstr("over capacity in multiples of 64"), HasSubstr("leave 64")));
}

TEST(Allocation, ABudgetBetweenMultiplesIsExceededOnlyWhereNothingBelowIsWithinTheTolerance) {
  const AllocationProblem problem{.work = {1, 1}, .budget = 999};
  EXPECT_THAT(allocate_integer(problem, 8, 0.01)->widths, ElementsAre(496, 496));
  EXPECT_THAT(allocate_integer(problem, 8, 0.002)->widths, ElementsAre(504, 496));  // 992 is off
  EXPECT_FALSE(allocate_integer(problem, 8, 0.0005).has_value());
  EXPECT_FALSE(allocate_integer(problem, 1, -1).has_value());
  EXPECT_FALSE(allocate_integer(problem, 1, std::nan("")).has_value());
}

TEST(Allocation, UnequalCostsAreRepairedToTheBudgetOrRefused) {
  AllocationProblem problem = vector_problem("T10");
  const auto result = allocate_integer(problem, 1, 1e-4);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_TRUE(result->optimal);
  double used = 0;
  for (std::size_t l = 0; l < 3; ++l) {
    used += problem.cost[l] * static_cast<double>(result->widths[l]);
    EXPECT_NEAR(static_cast<double>(result->widths[l]), allocate(problem)->widths[l], 3);
  }
  EXPECT_NEAR(used, 2e7, 2e3);
  const auto refused = allocate_integer(problem, 64, 1e-9);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("the tolerance is 1e-09"));
}

TEST(Allocation, LayersWithoutWorkStayAtTheFloorAndShareWhatIsLeft) {
  AllocationProblem problem{.work = {0, 5, 0}, .floor = {1}, .cap = {100, 6, 100}, .budget = 30};
  const auto result = allocate(problem);
  ASSERT_TRUE(result);
  EXPECT_THAT(result->widths, ElementsAre(12, 6, 12));
  problem.cap = {4, 6, 100};
  EXPECT_THAT(allocate(problem)->widths, ElementsAre(4, 6, 20));
  const auto integer = allocate_integer(problem, 2);
  ASSERT_TRUE(integer);
  EXPECT_THAT(integer->widths, ElementsAre(4, 6, 20));
}

TEST(Allocation, WithoutAnySignalTheBudgetIsSpreadEvenly) {
  AllocationProblem problem{.work = {0, 0, 0}, .floor = {1, 1, 6}, .budget = 12};
  const auto result = allocate(problem);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->no_signal);
  EXPECT_THAT(result->widths, ElementsAre(3, 3, 6));
  problem.floor = {1};
  EXPECT_THAT(allocate(problem)->widths, ElementsAre(4, 4, 4));
  EXPECT_THAT(allocate_integer(problem, 1)->widths, ElementsAre(4, 4, 4));
}

TEST(Allocation, BudgetsAtTheLimitsGiveTheLimits) {
  const AllocationProblem low{.work = {1, 2}, .floor = {3, 4}, .cap = {9}, .budget = 7};
  EXPECT_THAT(allocate(low)->widths, ElementsAre(3, 4));
  const AllocationProblem high{.work = {1, 2}, .floor = {3, 4}, .cap = {9}, .budget = 18};
  EXPECT_THAT(allocate(high)->widths, ElementsAre(9, 9));
}

TEST(Allocation, ImpossibleProblemsAreRefusedWithTheReason) {
  const auto message = [](const AllocationProblem& problem) {
    const auto result = allocate(problem);
    EXPECT_FALSE(result.has_value());
    return result ? std::string() : result.error().to_string();
  };
  EXPECT_THAT(message({.work = {1, 1}, .floor = {5}, .budget = 9}),
              ::testing::AllOf(HasSubstr("infeasible"), HasSubstr("short by 1")));
  EXPECT_THAT(message({.work = {1, 1}, .cap = {4}, .budget = 9}),
              ::testing::AllOf(HasSubstr("over capacity"), HasSubstr("1 too much")));
  EXPECT_THAT(message({.work = {}, .budget = 9}), HasSubstr("no layer"));
  EXPECT_THAT(message({.work = {1, -1}, .budget = 9}), HasSubstr("work of layer 1 is -1"));
  EXPECT_THAT(message({.work = {1, std::nan("")}, .budget = 9}), HasSubstr("work of layer 1"));
  EXPECT_THAT(message({.work = {1, 1}, .sensitivity = {1, -2}, .budget = 9}),
              HasSubstr("sensitivity of layer 1"));
  EXPECT_THAT(message({.work = {1, 1}, .exponent = {0}, .budget = 9}), HasSubstr("exponent"));
  EXPECT_THAT(message({.work = {1, 1}, .cost = {1, 0}, .budget = 9}), HasSubstr("cost of layer 1"));
  EXPECT_THAT(message({.work = {1, 1}, .floor = {-1}, .budget = 9}), HasSubstr("floor"));
  EXPECT_THAT(message({.work = {1, 1}, .floor = {3}, .cap = {2}, .budget = 9}), HasSubstr("cap"));
  EXPECT_THAT(message({.work = {1, 1}, .cost = {1, 1, 1}, .budget = 9}),
              HasSubstr("cost has 3 entries for 2 layers"));
  EXPECT_THAT(message({.work = {1}, .budget = 0}), HasSubstr("budget"));
  EXPECT_FALSE(allocate_integer({.work = {1}, .budget = 8}, 0).has_value());
  EXPECT_THAT(allocate_integer({.work = {1, 1}, .floor = {5}, .budget = 12}, 8).error().message(),
              HasSubstr("infeasible in multiples of 8"));
}

TEST(Allocation, ExponentsFollowTheDimensionWithinTheModel) {
  EXPECT_EQ(exponent_from_dimension(ExponentRule::kTwoOverD, 10, 512), 0.2);
  EXPECT_EQ(exponent_from_dimension(ExponentRule::kTwoOverD, 0.3, 512), 2);
  EXPECT_EQ(exponent_from_dimension(ExponentRule::kTwoOverD, 9999, 500), 2. / 500);
  EXPECT_EQ(exponent_from_dimension(ExponentRule::kSmoothnessOverD, 10, 512, 3), 0.3);
  EXPECT_EQ(exponent_from_dimension(ExponentRule::kTwiceSmoothnessOverD, 10, 512, 3), 0.6);
  EXPECT_EQ(exponent_from_dimension(ExponentRule::kConstant, 10, 512), 1);
}

TEST(Allocation, ATinyExponentCountsAsTheLeastOne) {
  AllocationProblem problem{.work = {1, 1}, .exponent = {1e-9, 1}, .floor = {1}, .budget = 20};
  AllocationProblem least = problem;
  least.exponent = {0.02, 1};
  EXPECT_EQ(allocate(problem)->widths, allocate(least)->widths);
}

// Given out one by one, these would take years.
TEST(Allocation, HugeNumbersOfQuantaAreGivenOutAtOnce) {
  AllocationProblem problem;
  problem.work = {3, 2, 1, 0.5};
  problem.exponent = {0.4};
  problem.budget = 4e12;
  const auto real = allocate(problem);
  const auto whole = allocate_integer(problem, 1);
  ASSERT_TRUE(real.has_value() && whole.has_value());
  EXPECT_TRUE(whole->exact);
  for (std::size_t l = 0; l < 4; ++l) {
    EXPECT_NEAR(static_cast<double>(whole->widths[l]), real->widths[l], 4) << l;
  }
  problem.cost = {1, 2, 3, 4};
  const auto unequal = allocate_integer(problem, 1);
  ASSERT_TRUE(unequal.has_value());
  EXPECT_LT(std::abs(unequal->error), 1e-11);
}

}  // namespace
}  // namespace tailor::geometry
