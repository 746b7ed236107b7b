// Right values: Python 3.11's len, strip and capitalize (Unicode 14).
#include "model/eval/unicode.h"

#include <gtest/gtest.h>

namespace tailor::eval {
namespace {

TEST(EvalUnicodeTest, CountsCodePoints) {
  EXPECT_EQ(code_points(""), 0u);
  EXPECT_EQ(code_points("naïve"), 5u);
  EXPECT_EQ(code_points("e\u0301"), 2u);  // a combining mark counts
  EXPECT_EQ(code_points("🙂—"), 2u);
}

TEST(EvalUnicodeTest, StripsTheWhiteSpaceOfUnicode) {
  EXPECT_EQ(strip(" \t\r\n\x1c x y\u00a0\u2003\u3000\u0085"), "x y");
  EXPECT_EQ(strip_left("\u2028 a "), "a ");
  EXPECT_EQ(strip_right(" a \v\f"), " a");
  EXPECT_EQ(strip("\u200b"), "\u200b");  // a zero-width space is none
  EXPECT_EQ(strip("  \n"), "");
  EXPECT_EQ(strip(""), "");
}

TEST(EvalUnicodeTest, CapitalizesAscii) {
  EXPECT_EQ(capitalize("the DJ from New York"), "The dj from new york");
  EXPECT_EQ(capitalize(""), "");
  EXPECT_EQ(capitalize("[header] ABC"), "[header] abc");
  EXPECT_EQ(capitalize("9 LIVES@Z["), "9 lives@z[");
}

TEST(EvalUnicodeTest, CapitalizesEveryScript) {
  EXPECT_EQ(capitalize("éCOLE NORMALE SUPÉRIEURE"), "École normale supérieure");
  EXPECT_EQ(capitalize("ünI"), "Üni");
  EXPECT_EQ(capitalize("жУК"), "Жук");
  EXPECT_EQ(capitalize("ẞẞ"), "ẞß");
  EXPECT_EQ(capitalize("\U00010428\U00010400"), "\U00010400\U00010428");  // Deseret, 4 bytes
  EXPECT_EQ(capitalize("日本Go"), "日本go");
}

TEST(EvalUnicodeTest, UsesTitleCaseAndMappingsThatChangeTheLength) {
  EXPECT_EQ(capitalize("ßa"), "Ssa");
  EXPECT_EQ(capitalize("ǆX"), "ǅx");  // one letter, title case unlike upper case
  EXPECT_EQ(capitalize("ﬁNE"), "Fine");
  EXPECT_EQ(capitalize("xİ"), "Xi̇");
  EXPECT_EQ(capitalize("\u0390\u0391"), "\u0399\u0308\u0301\u03b1");
}

TEST(EvalUnicodeTest, WritesTheFinalSigmaAtTheEndOfWords) {
  EXPECT_EQ(capitalize("ΟΔΥΣΣΕΥΣ ΤΗΣ Σ"), "Οδυσσευς της σ");
  EXPECT_EQ(capitalize("ΑΣ' ΑΣ'Α"), "Ας' ασ'α");
}

}  // namespace
}  // namespace tailor::eval
