#include "base/text.h"

#include <fnmatch.h>
#include <gtest/gtest.h>

namespace tailor {
namespace {

TEST(Text, EditDistanceCountsASwapOfNeighboursOnce) {
  EXPECT_EQ(edit_distance("layers", "layers"), 0u);
  EXPECT_EQ(edit_distance("layres", "layers"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(Text, NearestNameIsOnlyGivenWhenItIsLikelyMeant) {
  const std::string_view known[] = {"layers", "d_model", "heads"};
  EXPECT_EQ(nearest_name("layer", known), "layers");
  EXPECT_EQ(nearest_name("dmodel", known), "d_model");
  EXPECT_EQ(nearest_name("optimizer", known), "");
}

TEST(Text, CountsSizesAndDurationsReadTheirUnits) {
  EXPECT_DOUBLE_EQ(parse_count("0.5M").value(), 5e5);
  EXPECT_DOUBLE_EQ(parse_count("113_246_208").value(), 113246208);
  EXPECT_DOUBLE_EQ(parse_count("3e-3").value(), 3e-3);
  EXPECT_EQ(parse_bytes("20 GiB").value(), 20ull << 30);
  EXPECT_EQ(parse_duration_ms("10 min").value(), 600000);
  EXPECT_EQ(parse_duration_ms("24h").value(), 86400000);
}

TEST(Text, AnUnknownUnitIsNamedWithTheAllowedOnes) {
  const auto bad = parse_duration_ms("3 fortnights");
  ASSERT_FALSE(bad.has_value());
  EXPECT_NE(bad.error().message().find("fortnights"), std::string::npos);
  EXPECT_NE(bad.error().message().find("min"), std::string::npos);
  EXPECT_FALSE(parse_count("lots").has_value());
  EXPECT_FALSE(parse_bytes("").has_value());
}

TEST(Text, ThousandsAreSeparated) {
  EXPECT_EQ(with_thousands(113246208), "113,246,208");
  EXPECT_EQ(with_thousands(-1000), "-1,000");
  EXPECT_EQ(with_thousands(999), "999");
}

TEST(Text, Utf8IsCheckedStrictly) {
  EXPECT_TRUE(is_valid_utf8("plain"));
  EXPECT_TRUE(is_valid_utf8("gr\xC3\xBC\xC3\x9F \xE4\xB8\xAD \xF0\x9F\x98\x80"));
  std::size_t at = 99;
  EXPECT_FALSE(is_valid_utf8("ab\xFFz", &at));
  EXPECT_EQ(at, 2u);
  EXPECT_FALSE(is_valid_utf8("\xC0\xAF"));          // overlong
  EXPECT_FALSE(is_valid_utf8("\xED\xA0\x80"));      // surrogate
  EXPECT_FALSE(is_valid_utf8("\xF4\x90\x80\x80"));  // above U+10FFFF
  EXPECT_FALSE(is_valid_utf8("\xE4\xB8"));          // cut
}

TEST(Text, WrongBytesBecomeQuestionMarksAndNothingElseChanges) {
  EXPECT_EQ(with_valid_utf8(""), "");
  EXPECT_EQ(with_valid_utf8("gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80"),
            "gr\xC3\xBC\xC3\x9F \xF0\x9F\x98\x80");
  EXPECT_EQ(with_valid_utf8("\xFF\xC3\xBC\xE4\xB8!\xED\xA0\x80\xE4\xB8"), "?\xC3\xBC?\?!?\?\???");
}

TEST(Text, MegabytesOfWrongBytesTakeNoLongerThanOthers) {
  // One look at the whole text for each wrong byte would take hours.
  const std::string bytes = with_valid_utf8(std::string(4'000'000, '\xFF'));
  EXPECT_EQ(bytes.find_first_not_of('?'), std::string::npos);
  EXPECT_EQ(bytes.size(), 4'000'000u);
  const std::string cut = with_valid_utf8(std::string(4'000'000, '\xF4'));  // leads of four bytes
  EXPECT_EQ(cut.find_first_not_of('?'), std::string::npos);
}

TEST(Text, ControlCharactersAreSpelledOutAndEverythingElseIsKept) {
  const std::string plain =
      "gr\xC3\xBC\xC3\x9F \xE4\xB8\xAD \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x94\xAC \xE2\x80\xA6 "
      "<b>\"&";
  EXPECT_EQ(escape_controls(plain), plain);
  EXPECT_EQ(escape_controls("a\nb\tc\r"), "a\\nb\\tc\\r");
  EXPECT_EQ(escape_controls("\033[2J\x7F"), "\\u001b[2J\\u007f");
  EXPECT_EQ(escape_controls(std::string_view("\0x", 2)), "\\u0000x");
  EXPECT_EQ(escape_controls("\xC2\x9B"
                            "1m"),
            "\\u009b1m");                                       // CSI in one character
  EXPECT_EQ(escape_controls("\xE2\x80\xAEgpj"), "\\u202egpj");  // right-to-left override
  EXPECT_EQ(escape_controls("\xE2\x80"), "\xE2\x80");           // cut: passes
}

TEST(Text, AListOfPatternsIsSplitAtCommasThatNoBackslashHolds) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split_patterns("a, b*\t,c"), (Parts{"a", "b*", "c"}));
  EXPECT_EQ(split_patterns(""), (Parts{""}));
  EXPECT_EQ(split_patterns("a,,b,"), (Parts{"a", "", "b", ""}));
  EXPECT_EQ(split_patterns(R"(a\,b,c)"), (Parts{R"(a\,b)", "c"}));
  EXPECT_EQ(split_patterns(R"(a\\,b)"), (Parts{R"(a\\)", "b"}));  // the backslash itself is held
  EXPECT_EQ(split_patterns(R"(a\ , b\\ )"), (Parts{R"(a\ )", R"(b\\)"}));
  EXPECT_EQ(split_patterns("a\\"), (Parts{"a\\"}));
}

TEST(Text, AnEscapedTextIsAPatternThatMatchesOnlyItself) {
  EXPECT_EQ(escape_pattern("/data/plain 'x' {a} ~ $b %20 =#"), "/data/plain 'x' {a} ~ $b %20 =#");
  EXPECT_EQ(escape_pattern(R"(lr=0.1,k=[4]*?\)"), R"(lr=0.1\,k=\[4\]\*\?\\)");
  for (const char* name : {"lr=0.1,k=4", "k=[4]", "a*b", "?", R"(back\slash)", R"(\)", "[!a]", ",",
                           "\xC3\xA9", "a\nb", "-x", "{a,b}", "~root", "$HOME"}) {
    const std::string pattern = escape_pattern(name);
    EXPECT_EQ(::fnmatch(pattern.c_str(), name, 0), 0) << name;
    EXPECT_EQ(split_patterns(pattern), std::vector<std::string_view>{pattern}) << name;
  }
  EXPECT_NE(::fnmatch(escape_pattern("k=[4]").c_str(), "k=4", 0), 0);
}

TEST(Text, OneByteOrderMarkGoesFromTheBeginning) {
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB\xBFx"), "x");
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB\xBF\xEF\xBB\xBFx"), "\xEF\xBB\xBFx");
  EXPECT_EQ(without_byte_order_mark("x\xEF\xBB\xBF"), "x\xEF\xBB\xBF");
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB"), "\xEF\xBB");
  EXPECT_EQ(without_byte_order_mark(""), "");
}

TEST(Text, WiderEncodingsAreKnownByMarkAndByZeroBytes) {
  using namespace std::string_view_literals;
  // "Hi, no" and Cyrillic with spaces, in all of them (Python's str.encode).
  EXPECT_EQ(utf16_or_utf32("\xFF\xFEH\0"sv), "UTF-16LE");
  EXPECT_EQ(utf16_or_utf32("\xFE\xFF\0H"sv), "UTF-16BE");
  EXPECT_EQ(utf16_or_utf32("\xFF\xFE\0\0H\0\0\0"sv), "UTF-32LE");
  EXPECT_EQ(utf16_or_utf32("\0\0\xFE\xFF\0\0\0H"sv), "UTF-32BE");
  EXPECT_EQ(utf16_or_utf32("H\0i\0,\0 \0n\0o\0"sv), "UTF-16LE");
  EXPECT_EQ(utf16_or_utf32("\0H\0i\0,\0 \0n\0o"sv), "UTF-16BE");
  EXPECT_EQ(utf16_or_utf32("H\0\0\0i\0\0\0"sv), "UTF-32LE");
  EXPECT_EQ(utf16_or_utf32("\0\0\0H\0\0\0i"sv), "UTF-32BE");
  std::string cyrillic;
  for (int i = 0; i < 5; ++i) cyrillic += "\x3C\x04\x38\x04\x40\x04 \0"sv;
  EXPECT_EQ(utf16_or_utf32(cyrillic), "UTF-16LE");
  for (const std::string_view other :
       {""sv, "plain text"sv, "\xEF\xBB\xBFmark"sv, "gr\xC3\xBC\xC3\x9F"sv, "a\0b"sv,
        "one\0two\0three\0four\0five\0six\0seven\0"sv}) {
    EXPECT_EQ(utf16_or_utf32(other), "") << other;
  }
}

TEST(Text, CudaDevicesAreNamedByAWholeNumber) {
  EXPECT_EQ(cuda_index("cuda:0"), 0);
  EXPECT_EQ(cuda_index("cuda:12"), 12);
  for (const char* other : {"", "cpu", "cuda", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:+1",
                            "cuda: 1", "CUDA:1", "cuda:99999999999"}) {
    EXPECT_EQ(cuda_index(other), std::nullopt) << other;
  }
}

TEST(Text, ALongNameIsNearToNothingAtNoCost) {
  const std::vector<std::string_view> known = {"layers", "d_model", "heads"};
  EXPECT_EQ(nearest_name(std::string(50'000'000, 'l'), known), "");
  EXPECT_EQ(nearest_name("layer", known), "layers");
  EXPECT_EQ(nearest_name("d_modell", known), "d_model");
}

TEST(Text, ShortTextFitsALine) {
  EXPECT_EQ(short_text("plain"), "plain");
  EXPECT_EQ(short_text("a\nb"), "a\\nb");
  EXPECT_EQ(short_text(std::string(100, 'x')), std::string(80, 'x') + "...");
  EXPECT_EQ(short_text("abc\xC3\xA9", 4), "abc...");  // no half character
  EXPECT_EQ(short_text("\x1b[31m", 2), "\\u001b[...");
}

}  // namespace
}  // namespace tailor
