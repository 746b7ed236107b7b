// The file of an allocation problem, without a program around it. (What the command prints:
// tests/client/geometry_command_test.cc.)
#include "geometry/width_problem.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

}  // namespace
}  // namespace tailor::geometry
