#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/small_stack.h"

namespace tailor {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string nested(std::size_t depth, const std::string& open, const std::string& close) {
  std::string text;
  for (std::size_t i = 0; i < depth; ++i) text += open;
  text += "1";
  for (std::size_t i = 0; i < depth; ++i) text += close;
  return text;
}

std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  const auto value = parse_json(text, limits);
  EXPECT_FALSE(value.has_value()) << text.substr(0, 80);
  EXPECT_FALSE(parse_ordered_json(text, limits).has_value()) << text.substr(0, 80);
  EXPECT_FALSE(check_json(text, limits).is_ok()) << text.substr(0, 80);
  if (value) return "";
  EXPECT_EQ(value.error().code(), Code::kInvalidArgument);
  EXPECT_LE(value.error().message().size(), 400u);
  return value.error().message();
}

TEST(Json, ValuesAreTheTexts) {
  const std::string text =
      R"( {"b":[1,-2,2.5,true,false,null,"\u00e9\ud83d\ude00"],"a":{"x":{},"y":[]},)"
      R"("c":18446744073709551615} )";
  const auto value = parse_json(text);
  ASSERT_TRUE(value.has_value()) << value.error().message();
  const json expected = {{"b", {1, -2, 2.5, true, false, nullptr, "\u00e9\U0001F600"}},
                         {"a", {{"x", json::object()}, {"y", json::array()}}},
                         {"c", 18446744073709551615u}};
  EXPECT_EQ(*value, expected);
  EXPECT_EQ((*value)["b"][0].type(), json::value_t::number_unsigned);
  EXPECT_EQ((*value)["b"][1].type(), json::value_t::number_integer);
  const auto ordered = parse_ordered_json(text);
  ASSERT_TRUE(ordered.has_value());
  EXPECT_EQ(ordered->dump(),
            "{\"b\":[1,-2,2.5,true,false,null,\"\u00e9\U0001F600\"],\"a\":{\"x\":{},\"y\":[]},"
            "\"c\":18446744073709551615}");
  EXPECT_TRUE(check_json(text).is_ok());
}

TEST(Json, AScalarAloneIsAText) {
  EXPECT_EQ(parse_json(" 3 ").value(), 3);
  EXPECT_EQ(parse_json("null").value(), nullptr);
  EXPECT_EQ(parse_json("\xEF\xBB\xBF[1]").value(), json({1}));  // after a byte order mark
}

TEST(Json, BytesBehindTheValueAreRefused) {
  refusal("{} {}");
  refusal("1 2");
  refusal("{\"a\":1}]");
  refusal("[1],");
  refusal("null x");
}

TEST(Json, ANulIsRefusedWhereverItStands) {
  using namespace std::string_literals;
  for (const std::string& text :
       {"{}\0"s, "{}\0garbage"s, "{}\n\0"s, "\0{}"s, "[1,\0 2]"s, "\"a\0b\""s, "\0"s}) {
    EXPECT_NE(refusal(text).find("NUL"), std::string::npos) << text;
  }
  EXPECT_EQ(refusal("{\n  \"a\": 1}\0x"s), "line 2, column 10: a NUL byte, which JSON never holds");
}

TEST(Json, WhatIsAmbiguousIsRefused) {
  EXPECT_NE(refusal(R"({"a":1,"b":2,"a":3})").find("\"a\""), std::string::npos);
  refusal(R"([{"x":{"a":1,"a":1}}])");
  EXPECT_TRUE(parse_json(R"({"a":{"a":1},"b":{"a":2}})").has_value());
  for (const char* text : {"NaN",
                           "Infinity",
                           "-Infinity",
                           "[nan]",
                           "1e999",
                           "-1e999",
                           "0x10",
                           "1e5junk",
                           "12abc",
                           "01",
                           "+1",
                           ".5",
                           "1.",
                           "1e",
                           "--1",
                           "'a'",
                           "{a:1}",
                           "[1,]",
                           "{\"a\":1,}",
                           "// c\n1",
                           "/* c */1",
                           "",
                           " ",
                           "\"\\ud800\"",
                           "\"\\udc00\\ud800\"",
                           "\"\xFF\"",
                           "\"\xC3\"",
                           "\"\xED\xA0\x80\"",
                           "\"\t\"",
                           "tru",
                           "\xFF\xFE[]"}) {
    refusal(text);
  }
}

TEST(Json, WholeNumbersBeyond64BitsAreDoubles) {
  EXPECT_EQ(parse_json("18446744073709551616").value().type(), json::value_t::number_float);
  EXPECT_EQ(parse_json("-9223372036854775809").value().type(), json::value_t::number_float);
  EXPECT_EQ(parse_json("1000000000000000019884624838656").value(),
            1e30);  // tokenizer_config.json has it
}

TEST(Json, DepthHasALimit) {
  JsonLimits limits;
  EXPECT_TRUE(parse_json(nested(limits.depth, "[", "]")).has_value());
  EXPECT_NE(refusal(nested(limits.depth + 1, "[", "]")).find("128 deep"), std::string::npos);
  EXPECT_TRUE(parse_json(nested(limits.depth, "{\"a\":", "}")).has_value());
  refusal(nested(limits.depth + 1, "{\"a\":", "}"));
  limits.depth = 1;
  EXPECT_TRUE(parse_json("[1]", limits).has_value());
  refusal("[[]]", limits);
  // Neither a closed nor a cut text of any depth takes stack.
  refusal(std::string(10'000'000, '['));
  refusal(nested(2'000'000, "[{\"a\":", "}]"));
}

TEST(Json, WhatIsTakenFitsASmallStack) {
  test::on_small_stack([] {
    const std::string text = nested(JsonLimits().depth / 2, "[{\"a\":", "}]");
    const auto value = parse_json(text);
    ASSERT_TRUE(value.has_value());
    const json copy = *value;  // copying, comparing and writing recurse
    EXPECT_EQ(copy, *value);
    EXPECT_EQ(copy.dump(), text);
    EXPECT_EQ(parse_ordered_json(text).value().dump(), text);
    refusal(std::string(10'000'000, '['));
  });
}

TEST(Json, TheNumberOfValuesHasALimit) {
  JsonLimits limits;
  limits.values = 4;
  EXPECT_TRUE(parse_json("[1,2,3]", limits).has_value());
  EXPECT_NE(refusal("[1,2,3,4]", limits).find("more than 4 values"), std::string::npos);
  refusal(R"({"a":1,"b":2})", limits);  // names count
}

TEST(Json, AMessageIsShortWhateverTheText) {
  refusal("\"" + std::string(1'000'000, 'x'));
  refusal("{\"" + std::string(1'000'000, 'x') + "\":1,\"" + std::string(1'000'000, 'x') + "\":1}");
  refusal("[1" + std::string(1'000'000, '2') + ".e]");
  refusal("1" + std::string(1'000'000, '2'));  // overflow
  EXPECT_EQ(refusal("\x1b[31m").find('\x1b'), std::string::npos);
}

TEST(Json, ManyNamesTakeNoQuadraticTime) {
  std::string text = "{";
  for (int i = 0; i < 300'000; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  text += "}";
  EXPECT_EQ(parse_json(text).value().size(), 300'000u);
  EXPECT_EQ(parse_ordered_json(text).value().size(), 300'000u);
}

}  // namespace
}  // namespace tailor
