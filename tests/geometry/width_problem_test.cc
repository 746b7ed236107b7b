// The file of an allocation problem, without a program around it. (What the command prints:
// tests/client/geometry_command_test.cc.)
#include "geometry/width_problem.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tailor::geometry {
namespace {

std::string refusal(std::string_view text) {
  const auto problem = parse_width_problem(text);
  return problem ? "accepted" : problem.error().message();
}

TEST(WidthProblem, ReadsSymbolsAndNamesAlike) {
  const auto named = parse_width_problem(R"({"work": [4, 1], "exponent": 1, "budget": 12})");
  const auto symbols = parse_width_problem(R"({"beta": [4, 1], "a": 1, "B": 12})");
  ASSERT_TRUE(named.has_value()) << named.error().message();
  ASSERT_TRUE(symbols.has_value()) << symbols.error().message();
  EXPECT_EQ(named->allocation.work, symbols->allocation.work);
  EXPECT_EQ(named->allocation.budget, symbols->allocation.budget);
  EXPECT_FALSE(named->quantum_given);
}

TEST(WidthProblem, WidthsFollowTheSquareRootOfTheWorkForExponentOne) {
  const auto problem =
      parse_width_problem(R"({"work": [4, 1], "exponent": 1, "budget": 12, "quantum": 4})");
  ASSERT_TRUE(problem.has_value()) << problem.error().message();
  const auto solution = solve_width_problem(*problem);
  ASSERT_TRUE(solution.has_value()) << solution.error().message();
  EXPECT_NEAR(solution->allocation.widths[0], 8, 1e-9);
  EXPECT_NEAR(solution->allocation.widths[1], 4, 1e-9);
  const auto json = width_solution_json(*problem, *solution);
  EXPECT_EQ(json.at("integer_widths"), (std::vector<int>{8, 4}));
  EXPECT_EQ(json.at("report").at("states"), (std::vector<std::string>{"free", "free"}));
}

TEST(WidthProblem, ACallerMaySetTheQuantumAndTheUnit) {
  const auto problem = parse_width_problem(R"({"work": [4, 1], "budget": 12, "quantum": 5})",
                                           {.quantum = 0, .width_unit = "relative"});
  ASSERT_TRUE(problem.has_value()) << problem.error().message();
  EXPECT_EQ(problem->quantum, 0);
  EXPECT_EQ(problem->allocation.unit, WidthUnit::kRelative);
  const auto solution = solve_width_problem(*problem);
  ASSERT_TRUE(solution.has_value());
  EXPECT_FALSE(solution->integers.has_value());
  EXPECT_EQ(solution->no_integers, "not asked for");
}

TEST(WidthProblem, ADefaultMultipleThatDoesNotFitIsNoErrorAndOneAskedForIs) {
  const auto quiet = parse_width_problem(R"({"work": [4, 1], "budget": 12})");
  ASSERT_TRUE(quiet.has_value());
  const auto solution = solve_width_problem(*quiet);
  ASSERT_TRUE(solution.has_value()) << solution.error().message();
  EXPECT_FALSE(solution->integers.has_value());
  EXPECT_NE(solution->no_integers, "");
  const auto asked = parse_width_problem(R"({"work": [4, 1], "budget": 12, "quantum": 64})");
  ASSERT_TRUE(asked.has_value());
  EXPECT_FALSE(solve_width_problem(*asked).has_value());
}

TEST(WidthProblem, WhatIsNotUnderstoodIsNamed) {
  EXPECT_NE(refusal("{").find("not JSON"), std::string::npos);
  EXPECT_NE(refusal("[]").find("one JSON object"), std::string::npos);
  EXPECT_NE(refusal(R"({"wrok": [1], "budget": 1})").find("did you mean \"work\"?"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"work": [1], "g": [1], "budget": 1})").find("given twice"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"work": [1]})").find("\"budget\" is missing"), std::string::npos);
  EXPECT_NE(refusal(R"({"work": [1], "budget": 1, "width_unit": "mm"})").find("mm"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"work": [1], "budget": 1, "exponent_rule": "2/d"})").find("\"dimension\""),
            std::string::npos);
  EXPECT_NE(refusal(R"({"work": ["x"], "budget": 1})").find("work[0]"), std::string::npos);
}

WidthSolution solved(std::string_view text, WidthProblem* out = nullptr) {
  const auto problem = parse_width_problem(text);
  EXPECT_TRUE(problem.has_value()) << problem.error().message();
  if (out != nullptr) *out = *problem;
  const auto solution = solve_width_problem(*problem);
  EXPECT_TRUE(solution.has_value()) << solution.error().message();
  return *solution;
}

TEST(WidthProblem, ErrorsAreTheJackknifeThroughSolverAndRounding) {
  // Exponent 1: widths are 30 sqrt(g_1) / (sqrt(g_1) + sqrt(g_2)) of 30 units.
  const WidthSolution solution =
      solved(R"({"work_subsamples": [[4, 1], [9, 1], [1, 1]], "exponent": 1, "budget": 30,)"
             R"( "quantum": 1})");
  const auto first = [](double work) { return 30 * std::sqrt(work) / (std::sqrt(work) + 1); };
  const double a = first(5), b = first(2.5), c = first(6.5), mean = (a + b + c) / 3;
  const double se = std::sqrt(
      2. / 3 * ((a - mean) * (a - mean) + (b - mean) * (b - mean) + (c - mean) * (c - mean)));
  ASSERT_EQ(solution.width_errors.size(), 2u);
  EXPECT_NEAR(solution.allocation.widths[0], first(14. / 3), 1e-9);
  EXPECT_NEAR(solution.width_errors[0], se, 1e-9);
  // A budget is kept: what one layer gains the other loses.
  EXPECT_NEAR(solution.width_errors[1], se, 1e-9);
  // In whole units: 21, 18 and 22 without each, and 9, 12, 8.
  EXPECT_NEAR(solution.integer_errors[0], std::sqrt(2. / 3 * (26. / 3)), 1e-9);
  EXPECT_NEAR(solution.work_errors[0], std::sqrt(49. / 3 / 3), 1e-12);
  EXPECT_EQ(solution.work_errors[1], 0);
  EXPECT_EQ(solution.no_errors, "");
}

TEST(WidthProblem, LayersThatMoveTogetherHaveCertainWidths) {
  // As independent errors of 35 % each these would give widths an error of a tenth.
  const WidthSolution solution = solved(
      R"({"work_subsamples": [[1, 2, 3], [2, 4, 6], [3, 6, 9]], "exponent": 0.2, "budget": 3000,
          "smoothing": "gaussian", "quantum": 0})");
  for (const double error : solution.width_errors) EXPECT_NEAR(error, 0, 1e-6);
  for (const double error : solution.work_errors) EXPECT_GT(error, 0.1);
  EXPECT_NEAR(*solution.front_load_error, 0, 1e-9);
}

TEST(WidthProblem, SmoothedWorkHasErrorsToo) {
  const char* text = R"({"work_subsamples": [[4, 1, 2], [5, 1.5, 2], [3, 1, 2.5]], "budget": 3072,
                         "exponent": 0.3, "floor": 64, "smoothing": "SMOOTHING"})";
  const auto with = [&](const char* smoothing) {
    std::string of = text;
    return solved(of.replace(of.find("SMOOTHING"), 9, smoothing));
  };
  const WidthSolution plain = with("none"), smooth = with("gaussian");
  ASSERT_EQ(smooth.width_errors.size(), 3u);
  for (std::size_t l = 0; l < 3; ++l) {
    EXPECT_GT(smooth.width_errors[l], 0);
    EXPECT_NE(smooth.width_errors[l], plain.width_errors[l]);
  }
}

TEST(WidthProblem, ErrorsThatCannotBeKnownAreAbsentWithTheReason) {
  const WidthSolution without = solved(R"({"work": [4, 1], "exponent": 1, "budget": 640})");
  EXPECT_TRUE(without.width_errors.empty());
  EXPECT_NE(without.no_errors, "");
  WidthProblem problem;
  const WidthSolution single =
      solved(R"({"work": [4, 1], "work_errors": [1, 1], "exponent": 1, "budget": 640})", &problem);
  EXPECT_TRUE(single.width_errors.empty());
  EXPECT_NE(single.no_errors.find("correlated"), std::string::npos);
  const auto json = width_solution_json(problem, single);
  EXPECT_TRUE(json.at("report").at("width_errors").is_null());
  EXPECT_EQ(json.at("report").at("no_errors"), single.no_errors);
  EXPECT_NE(
      solved(R"({"work_subsamples": [[4, 1]], "budget": 640})").no_errors.find("one subsample"),
      std::string::npos);
  // The work of the second layer has no inverse without the last subsample.
  const WidthSolution failing =
      solved(R"({"work_subsamples": [[1, 0], [1, 2]], "budget": 640, "control": "inverse"})");
  EXPECT_TRUE(failing.width_errors.empty());
  EXPECT_NE(failing.no_errors.find("without subsample 1"), std::string::npos);
}

TEST(WidthProblem, SubsamplesThatContradictTheWorkAreRefused) {
  EXPECT_NE(refusal(R"({"work": [4, 1], "work_subsamples": [[4, 1], [5, 1]], "budget": 9})")
                .find("the mean of \"work_subsamples\" is 4.5"),
            std::string::npos);
  EXPECT_EQ(refusal(R"({"work": [4.2, 1], "work_subsamples": [[4, 1], [5, 1]],
                        "subsample_weights": [4, 1], "budget": 9})"),
            "accepted");
  EXPECT_NE(refusal(R"({"work_subsamples": [[4, 1], [5]], "budget": 9})").find("has 1 entries"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"work_subsamples": [4, 1], "budget": 9})").find("one list a subsample"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"work_subsamples": [[4, -1]], "budget": 9})").find("not negative"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"work_subsamples": [[4, 1]], "subsample_weights": [0], "budget": 9})")
                .find("must be positive"),
            std::string::npos);
}

}  // namespace
}  // namespace tailor::geometry
