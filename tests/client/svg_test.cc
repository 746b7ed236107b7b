// Pictures: where points come to lie, what is not drawn, and that any name is well-formed.
#include "client/svg.h"

#include <gmock/gmock.h>

#include <limits>

namespace tailor::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Svg, PointsLieWhereTheAxesSay) {
  // x from 0 to 2 over 94 % of 250 from 62 + 7.5; y from 0 to 4 x 1.05 over 180 down from 232.
  const std::string svg =
      svg_panels("t", "layer", {{"p", {{"c", {{0, 0, {}}, {1, 4, {}}, {2, 2.1, {}}}}}}});
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"69.5\" cy=\"232.0\""));
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"187.0\" cy=\"60.6\""));
  EXPECT_THAT(svg, HasSubstr("<circle cx=\"304.5\" cy=\"142.0\""));
}

TEST(Svg, AnErrorIsABarAndNoneIsNone) {
  const std::string with = svg_panels("t", "layer", {{"p", {{"c", {{0, 1, 0.5}, {1, 1, {}}}}}}});
  const std::string without = svg_panels("t", "layer", {{"p", {{"c", {{0, 1, {}}, {1, 1, {}}}}}}});
  EXPECT_EQ(count(with, "stroke=\"#c4682b\""), 2u) << "the line between them, and one bar";
  EXPECT_EQ(count(without, "stroke=\"#c4682b\""), 1u);
}

TEST(Svg, WhatIsNotFiniteLeavesAGap) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg =
      svg_panels("t", "layer", {{"p", {{"c", {{0, 1, {}}, {1, nan, {}}, {2, 1, {}}}}}}});
  EXPECT_EQ(count(svg, "stroke=\"#c4682b\""), 0u);
  EXPECT_EQ(count(svg, "<circle"), 3u) << "two points and the legend's";
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Svg, NamesCannotBreakThePicture) {
  const std::string svg = svg_panels("a <b> & \n c", "l", {{"<p>", {{"&", {{0, 0, {}}}}}}});
  EXPECT_THAT(svg, HasSubstr("a &lt;b&gt; &amp; "));
  EXPECT_THAT(svg, Not(HasSubstr("<b>")));
  EXPECT_EQ(count(svg, "<svg"), 1u);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(Svg, PanelsWithoutPointsAndWithOneValueAreDrawn) {
  const std::string svg =
      svg_panels("t", "layer", {{"empty", {{"c", {}}}}, {"one", {{"c", {{3, 7, {}}}}}}});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace tailor::client
