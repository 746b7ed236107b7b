// Unicode as tokenizers need it. Right values: examples of the Unicode Standard and of Hugging
// Face's documentation of "Split".
#include "model/tokenizers/unicode_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tailor::tokenizers {
namespace {

const std::string kBad = "\xEF\xBF\xBD";

TEST(RepairedUtf8, EveryMaximalPartBecomesOneReplacement) {
  EXPECT_EQ(repaired_utf8("plain \xC3\xA9"), "plain \xC3\xA9");
  // The Unicode Standard, tables 3-8 to 3-11.
  const auto bad = [](int n) {
    std::string text;
    while (n-- > 0) text += kBad;
    return text;
  };
  EXPECT_EQ(repaired_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), bad(8) + "A");
  EXPECT_EQ(repaired_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), bad(8) + "A");
  EXPECT_EQ(repaired_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), bad(5) + "A" + bad(2) + "B");
  EXPECT_EQ(repaired_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), bad(4) + "A");
}

TEST(Normalized, ComposesAndDecomposes) {
  EXPECT_EQ(normalized(NormalForm::kNfc, "e\xCC\x81 \xE2\x84\xAB"), "\xC3\xA9 \xC3\x85");
  EXPECT_EQ(normalized(NormalForm::kNfd, "\xC3\xA9"), "e\xCC\x81");
  EXPECT_EQ(normalized(NormalForm::kNfkc, "\xEF\xAC\x81"), "fi");
  EXPECT_EQ(normalized(NormalForm::kNfkd, "\xC2\xBD"),
            "1\xE2\x81\x84"
            "2");
  EXPECT_EQ(normalized(NormalForm::kNfc, std::string("a\0b", 3)), std::string("a\0b", 3));
  std::string long_text, wanted;
  for (int i = 0; i < 5000; ++i) {  // grows well beyond any first guess
    long_text += "\xEF\xB7\xBA";
    wanted += normalized(NormalForm::kNfkc, "\xEF\xB7\xBA");
  }
  EXPECT_EQ(normalized(NormalForm::kNfkc, long_text), wanted);
}

TEST(WhiteSpace, IsMeasuredOnBothSides) {
  const std::string text =
      "a \xC2\xA0\xE3\x80\x80"
      "b";
  EXPECT_EQ(white_space_before(text, text.size() - 1), 6u);
  EXPECT_EQ(white_space_after(text, 1), 6u);
  EXPECT_EQ(white_space_after(text, 0), 0u);
  EXPECT_EQ(white_space_before("  ", 2), 2u);
}

TEST(WordCharacters, AreLettersMarksDigitsAndConnectors) {
  EXPECT_TRUE(is_word_after("\xC3\xA9", 0));
  EXPECT_TRUE(is_word_after("_", 0));
  EXPECT_TRUE(is_word_before("x9", 2));
  EXPECT_FALSE(is_word_after("-", 0));
  EXPECT_FALSE(is_word_before("x", 0));
  EXPECT_FALSE(is_word_after("x", 1));
}

std::vector<std::string> cut(const std::vector<Cut>& cuts, std::string_view text) {
  auto cutter = TextCutter::create(cuts);
  EXPECT_TRUE(cutter.has_value()) << cutter.error().message();
  std::vector<std::string_view> words;
  cutter->cut(text, &words);
  return {words.begin(), words.end()};
}

TEST(TextCutter, BehaviorsAreThoseOfSplit) {
  using Words = std::vector<std::string>;
  const std::string text = "the-final--countdown";  // the documentation's example
  EXPECT_EQ(cut({{"-", CutBehavior::kRemoved}}, text), (Words{"the", "final", "countdown"}));
  EXPECT_EQ(cut({{"-", CutBehavior::kIsolated}}, text),
            (Words{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(cut({{"-", CutBehavior::kMergedWithPrevious}}, text),
            (Words{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(cut({{"-", CutBehavior::kMergedWithNext}}, text),
            (Words{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(cut({{"[a-z]+", CutBehavior::kRemoved, true}}, text),
            (Words{"the", "final", "countdown"}));
}

TEST(TextCutter, OneExpressionAfterTheOther) {
  EXPECT_EQ(cut({{R"(\p{N})"}, {R"( ?\p{L}+)"}}, "ab 12\xC3\xA9 c"),
            (std::vector<std::string>{"ab", " ", "1", "2", "\xC3\xA9", " c"}));
  EXPECT_EQ(cut({}, "whole text"), std::vector<std::string>{"whole text"});
  EXPECT_TRUE(cut({{"x"}}, "").empty());
}

TEST(TextCutter, WordsOfFourByteCharactersLieWhereTheyShould) {
  EXPECT_EQ(
      cut({{R"(\p{L}+)"}},
          "\xF0\x9F\x98\x80\xF0\x90\x8D\x88z \xE2\x82\xAC"
          "a"),
      (std::vector<std::string>{"\xF0\x9F\x98\x80", "\xF0\x90\x8D\x88z", " \xE2\x82\xAC", "a"}));
}

TEST(TextCutter, LongTextsNeedNoDeepStack) {
  const std::string text(3'000'000, 'a');
  EXPECT_EQ(cut({{R"((?:a|b)+)"}}, text).size(), 1u);
}

TEST(TextCutter, AnExpressionThatWouldNeverEndIsRefused) {
  for (const char* regex : {"(a+)+b", "(\\x{62}+)+x", "(\\x{71}|\\x{71})+z", "(a|a)*b", "(ab|ab)*c",
                            "(\\s+)+x", "([a-z]+)*1", "(\\p{L}|\\p{L})+9"}) {
    const auto cutter = TextCutter::create({{regex}});
    ASSERT_FALSE(cutter.has_value()) << regex;
    EXPECT_EQ(cutter.error().code(), Code::kUnimplemented);
    EXPECT_THAT(cutter.error().message(), testing::HasSubstr(regex));
  }
  // Those of published tokenizers, whose nested repetitions do end.
  for (const char* regex :
       {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
        "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+("
        "?i:'s|'t)?|"
        "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "\\p{N}{1,3}", "[0-9][0-9][0-9]", "(?:\\r?\\n)+(?!\\r?\\n)"}) {
    const auto cutter = TextCutter::create({{regex}});
    EXPECT_TRUE(cutter.has_value()) << regex << ": " << (cutter ? "" : cutter.error().message());
  }
}

TEST(TextCutter, AnExpressionThatIsDeepOrLongIsRefused) {
  const auto nested = [](std::size_t depth, const std::string& open, const std::string& close) {
    std::string text;
    for (std::size_t i = 0; i < depth; ++i) text += open;
    text += "a";
    for (std::size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  for (const std::string& regex :
       {nested(65, "(?:", ")"), nested(100'000, "(", ")*"), nested(100'000, "[", "]"),
        nested(200'000, "(?=", ""), std::string(20'000, 'a')}) {
    const auto cutter = TextCutter::create({{regex}});
    ASSERT_FALSE(cutter.has_value());
    EXPECT_EQ(cutter.error().code(), Code::kUnimplemented);
    EXPECT_LT(cutter.error().message().size(), 500u);
  }
  EXPECT_TRUE(TextCutter::create({{nested(60, "(?:", ")")}}).has_value());
  EXPECT_TRUE(
      TextCutter::create({{"a" + nested(100, "\\(", "\\)")}}).has_value());  // plain characters
}

TEST(TextCutter, AnExpressionThatIsNotUnderstoodIsNamed) {
  const auto cutter = TextCutter::create({{"(unclosed"}});
  ASSERT_FALSE(cutter.has_value());
  EXPECT_EQ(cutter.error().code(), Code::kInvalidArgument);
  EXPECT_NE(cutter.error().message().find("(unclosed"), std::string::npos);
}

}  // namespace
}  // namespace tailor::tokenizers
