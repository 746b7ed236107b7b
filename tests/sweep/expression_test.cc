#include "sweep/expression.h"

#include <gmock/gmock.h>

#include <map>

namespace tailor::sweep {
namespace {

using ::testing::HasSubstr;

bool holds(std::string_view text) {
  static const std::map<std::string, double, std::less<>> kValues = {
      {"d_model", 768}, {"layers", 12}, {"k", 4}, {"zero", 0}};
  const auto expression = Expression::parse(text);
  EXPECT_TRUE(expression.has_value()) << expression.error().to_string();
  return expression &&
         expression->holds([](std::string_view name) { return kValues.find(name)->second; });
}

TEST(Expression, FollowsTheUsualPrecedence) {
  EXPECT_TRUE(holds("1 + 2 * 3 == 7"));
  EXPECT_TRUE(holds("(1 + 2) * 3 == 9"));
  EXPECT_TRUE(holds("10 - 3 - 2 == 5"));
  EXPECT_TRUE(holds("64 / 4 / 2 == 8"));
  EXPECT_TRUE(holds("-2 * -3 == 6"));
  EXPECT_TRUE(holds("7 % 4 == 3"));
  EXPECT_TRUE(holds("1 == 1 or 1 == 2 and 1 == 3"));
  EXPECT_FALSE(holds("(1 == 1 or 1 == 2) and 1 == 3"));
  EXPECT_TRUE(holds("not 1 == 2 and 2 == 2"));
}

TEST(Expression, ComparisonsChainAsInMathematics) {
  EXPECT_TRUE(holds("25 <= d_model / layers <= 500"));
  EXPECT_FALSE(holds("25 <= d_model / layers <= 63"));
  EXPECT_FALSE(holds("65 <= d_model / layers <= 500"));
  EXPECT_TRUE(holds("1 < 2 < 3 < 4"));
  EXPECT_FALSE(holds("1 < 3 < 2 < 4"));
  EXPECT_TRUE(holds("3 > 2 >= 2 != 1"));
}

TEST(Expression, ReadsNamesNumbersAndDottedPaths) {
  EXPECT_TRUE(holds("ffn.k == 4"));
  EXPECT_TRUE(holds("k*layers==48"));
  EXPECT_TRUE(holds("113_246_208 == 1.13246208e8"));
  EXPECT_TRUE(holds("1e-2 < .02"));
  EXPECT_EQ(Expression::parse("d_model / layers <= ffn.k").value().names()[2].name, "k");
  EXPECT_EQ(Expression::parse("d_model / layers <= ffn.k").value().names()[1].column, 11u);
}

TEST(Expression, ComparingWithADivisionByZeroIsFalse) {
  EXPECT_FALSE(holds("1 / zero > 0"));
  EXPECT_FALSE(holds("1 / zero <= 0"));
  EXPECT_FALSE(holds("1 % zero != 5"));
}

TEST(Expression, ChainsAreAsLongAsATextMayBe) {
  std::string sum = "1", minus = "k", comparisons = "0", both = "k == 4", nots = "k == 4";
  for (int i = 0; i < 900; ++i) sum += "+1";
  for (int i = 0; i < 60; ++i) minus = "-" + minus;
  for (int i = 1; i < 400; ++i) comparisons += "<" + std::to_string(i);
  for (int i = 0; i < 150; ++i) both += " and 1 < 2";
  for (int i = 0; i < 60; ++i) nots = "not " + nots;
  EXPECT_TRUE(holds(sum + " == 901"));
  EXPECT_TRUE(holds(minus + " == 4"));
  EXPECT_TRUE(holds(comparisons));
  EXPECT_FALSE(holds(comparisons + "<0"));
  EXPECT_TRUE(holds(both));
  EXPECT_TRUE(holds(nots));
}

TEST(Expression, DepthIsRefused) {
  for (const std::string part : {"(", "-", "not ", "-(", "not ("}) {
    std::string text;
    while (text.size() + part.size() <= 1900) text += part;
    const auto deep = Expression::parse(text + "k < 1");
    ASSERT_FALSE(deep.has_value()) << part;
    EXPECT_THAT(deep.error().message(), HasSubstr("nested too deeply"));
    EXPECT_FALSE(Expression::parse(text + text).has_value());
  }
  EXPECT_FALSE(Expression::parse(std::string(1'000'000, '(')).has_value());
}

TEST(Expression, MistakesAreNamedWithTheirCharacter) {
  struct Case {
    std::string text;
    const char* message;
  };
  const Case cases[] = {
      {"", "at character 1: a number, a name or '(' is missing at the end"},
      {"d_model <", "at character 10: a number, a name or '(' is missing"},
      {"d_model", "at character 1: this is a number, not a condition"},
      {"1 + 2", "this is a number, not a condition"},
      {"d_model = 3", "at character 9: use == to compare"},
      {"(1 < 2", "at character 7: the '(' at character 1 is not closed"},
      {"1 < 2)", "at character 6: ')' is not expected here"},
      {"1 < 2 3", "at character 7: '3' is not expected here"},
      {"1 < 2 and 3", "at character 11: and needs a condition here"},
      {"(1 < 2) + 3 < 4", "at character 1: arithmetic needs a number here"},
      {"not 3", "at character 5: not needs a condition here"},
      {"(1 < 2) < 3", "at character 1: a comparison needs a number here"},
      {"1.2.3 < 4", "at character 1: this is no number"},
      {"2x < 4", "at character 1: this is no number"},
      {"1 < and", "at character 5: 'and' is not expected here"},
      {"1 & 2", "at character 3: '&' is not expected here"},
      {std::string(200, '(') + "1", "nested too deeply"},
      {"not " + std::string(3'000, ' ') + "1 < 2", "allowed: up to 2,000"},
      {std::string(300, '-') + "1 < 2", "nested too deeply"},
  };
  for (const Case& c : cases) {
    const auto expression = Expression::parse(c.text);
    ASSERT_FALSE(expression.has_value()) << c.text;
    EXPECT_EQ(expression.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(expression.error().message(), HasSubstr(c.message));
  }
}

TEST(Expression, KnowsPowersAndFunctions) {
  EXPECT_TRUE(holds("-2 ^ 2 == -4"));
  EXPECT_TRUE(holds("2 ^ 3 ^ 2 == 512"));
  EXPECT_TRUE(holds("2 ^ -1 == 0.5"));
  EXPECT_TRUE(holds("3 * 2 ^ 2 == 12"));
  EXPECT_TRUE(holds("abs(3 - 5) == 2 and sqrt(16) == 4 and ln(exp(2)) == 2"));
  EXPECT_TRUE(holds("min(3, layers, 20) == 3 and max(3, layers) == 12 and min(7) == 7"));
  EXPECT_FALSE(holds("ln(zero) < 1 or ln(zero) >= 1"));
  EXPECT_FALSE(holds("sqrt(-1) == sqrt(-1)"));
  EXPECT_FALSE(holds("min(sqrt(-1), 1) <= 1"));
}

TEST(Expression, SaysWhatIsWrongWithAFunction) {
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"sin(1) < 2", "there is no function 'sin'"},
           {"ln(1, 2) < 2", "ln takes one number"},
           {"max(1, 2 < 3", "the '(' at character 4 is not closed"},
           {"ln(1 < 2) < 3", "the '(' at character 3 is not closed"}}) {
    const auto expression = Expression::parse(text);
    ASSERT_FALSE(expression.has_value()) << text;
    EXPECT_THAT(expression.error().message(), HasSubstr(message));
  }
}

TEST(Expression, MayBeANumberByFormula) {
  const auto number = Expression::parse_number("3.4 + 0.15 * (ratio - 0.45)^2 + 0.04 / k");
  ASSERT_TRUE(number.has_value());
  const double value =
      number->value([](std::string_view name) { return name == "k" ? 4.0 : 0.65; });
  EXPECT_NEAR(value, 3.416, 1e-12);
  EXPECT_FALSE(Expression::parse_number("1 < 2").has_value());
}

TEST(Expression, KnowsWhereAConditionCannotHold) {
  const auto may_hold = [](std::string_view text, Bounds x) {
    return Expression::parse(text)->may_hold([&](std::string_view) { return x; });
  };
  EXPECT_FALSE(may_hold("x * x > 100", {1, 9, false}));
  EXPECT_TRUE(may_hold("x * x > 80", {1, 9, false}));
  EXPECT_FALSE(may_hold("25 <= 768 / x <= 500", {1, 1.5, false}));
  EXPECT_FALSE(may_hold("not x >= 2", {2, 9, false}));
  EXPECT_FALSE(may_hold("x % 64 == 5", {128, 128, false}));
  EXPECT_TRUE(may_hold("x % 64 == 0", {100, 200, false}));
  EXPECT_FALSE(may_hold("abs(x) + sqrt(x) < 1", {4, 9, false}));
  EXPECT_FALSE(may_hold("ln(x) > 3 or x == 0", {1, 9, false}));
  EXPECT_TRUE(may_hold("x > 3", Bounds::unknown()));
}

}  // namespace
}  // namespace tailor::sweep
