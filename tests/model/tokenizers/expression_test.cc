// What of an expression is the same to Oniguruma and ICU, and what follows from it for texts.
#include "model/tokenizers/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/tokenizers/tokenizer_files.h"
#include "model/tokenizers/unicode_text.h"

namespace tailor::tokenizers {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  const auto expression = Expression::parse(pattern);
  EXPECT_TRUE(expression.has_value()) << expression.error().message();
  auto finder = TextFinder::create(expression->icu());
  EXPECT_TRUE(finder.has_value()) << finder.error().message();
  std::vector<std::string> found;
  for (const auto& [begin, end] : finder->find(text)) {
    found.emplace_back(text.substr(begin, end - begin));
  }
  return found;
}
using Found = std::vector<std::string>;

TEST(Expression, MeansWhatItMeansToOniguruma) {
  EXPECT_EQ(matches(".+", "a\rb\nc"), (Found{"a\rb", "c"})) << "only a newline ends a line";
  EXPECT_EQ(matches(R"(\w+)",
                    "a\xE2\x80\x8D"
                    "b"),
            (Found{"a", "b"}))
      << "a joiner is no word";
  EXPECT_EQ(matches("[^(\\s|[.,!])]+", "a b.c(d"), (Found{"a", "b", "c", "d"})) << "nested classes";
  EXPECT_EQ(matches("(?i:'s)", "'S '\xC5\xBF"), (Found{"'S", "'\xC5\xBF"}));
  EXPECT_EQ(matches(R"([\]\-a&#]+)", "]-&#b"), (Found{"]-&#"}));
  EXPECT_EQ(matches("\xE4\xB8\x80|\xF0\x9F\x98\x80", "x\xF0\x9F\x98\x80\xE4\xB8\x80"),
            (Found{"\xF0\x9F\x98\x80", "\xE4\xB8\x80"}));
  EXPECT_EQ(matches(literal_expression("a.[\\"), "xa.[\\"), Found{"a.[\\"});
}

// As the library tokenizers 0.23.3 does.
TEST(Expression, AWordCharacterWithinAClassIsNoDigitOfAnotherKind) {
  EXPECT_EQ(matches(R"(\w+)", "a\xC2\xB2 \xC2\xBD"), (Found{"a\xC2\xB2", "\xC2\xBD"}));
  EXPECT_EQ(matches(R"([\w]+)", "a\xC2\xB2 \xC2\xBD"), (Found{"a"}));
  EXPECT_EQ(matches(R"([^\w\s]+)", "a\xC2\xB2 \xC2\xBD"), (Found{"\xC2\xB2", "\xC2\xBD"}));
}

TEST(Expression, WhatTheEnginesReadDifferentlyIsRefusedByName) {
  const auto refusal = [](std::string_view pattern) {
    const auto expression = Expression::parse(pattern);
    EXPECT_FALSE(expression.has_value()) << pattern;
    if (expression) return std::string();
    EXPECT_EQ(expression.error().code(), Code::kUnimplemented);
    return expression.error().message();
  };
  for (const char* pattern : {"^a",
                              "a$",
                              R"(\ba)",
                              R"(\h)",
                              R"((a)\1)",
                              "(?m:a)",
                              "(?x)a",
                              "[[:alpha:]]",
                              "[a&&b]",
                              R"(\p{Alpha})",
                              R"(\p{Punct})",
                              "a{2}?",
                              "a{1,3}+",
                              "a**",
                              "(?:a*)*b",
                              "x*",
                              "(?=a)",
                              "",
                              "a|",
                              "(",
                              ")",
                              "[",
                              "a\\",
                              R"(\R)",
                              R"(\v)",
                              "[z-a",
                              "(?<name>a)",
                              "(?i)[a-z]",
                              "\xFF"}) {
    EXPECT_FALSE(refusal(pattern).empty()) << pattern;
  }
  EXPECT_THAT(refusal("ab^c"), testing::AllOf(testing::HasSubstr("ab^c"), testing::HasSubstr("^")));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "(?:";
  EXPECT_THAT(refusal(deep), testing::HasSubstr("deep"));
}

TEST(Expression, SaysWhereMatchesCannotReach) {
  const auto gpt2 = Expression::parse(kGpt2Regex);
  ASSERT_TRUE(gpt2.has_value());
  EXPECT_FALSE(gpt2->joins('b', ' '));
  EXPECT_FALSE(gpt2->joins('b', '\n'));
  EXPECT_FALSE(gpt2->joins('1', 'b'));
  EXPECT_FALSE(gpt2->joins(0x4e00, 0x3002)) << "a character and a full stop of Chinese";
  EXPECT_TRUE(gpt2->joins(' ', 'b'));
  EXPECT_TRUE(gpt2->joins('b', 'b'));
  EXPECT_TRUE(gpt2->joins('\'', 's'));
  EXPECT_TRUE(gpt2->joins('\n', 'b')) << "it looks ahead at the b";
  EXPECT_TRUE(gpt2->always_matches('b'));
  EXPECT_TRUE(gpt2->always_matches('\n'));
  const auto pairs = Expression::parse("[a-f]{2}|xy+|(?<=p)q");
  EXPECT_TRUE(pairs->joins('1', '2')) << "it looks behind, so nothing is promised";
  const auto two = Expression::parse("[a-f]{2}|xy+");
  EXPECT_FALSE(two->always_matches('a'));
  EXPECT_TRUE(two->joins('a', 'b'));
  EXPECT_FALSE(two->joins('y', 'x'));
  EXPECT_FALSE(two->touches('z'));
}

}  // namespace
}  // namespace tailor::tokenizers
