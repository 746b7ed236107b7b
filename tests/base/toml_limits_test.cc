#include "base/toml_limits.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/config.h"
#include "tests/support/small_stack.h"

namespace tailor {
namespace {

constexpr std::size_t kDepth = TomlLimits().depth;

std::string repeated(std::size_t times, std::string_view part) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += part;
  return text;
}

// Each goes `n` deep in another way.
const std::pair<const char*, std::function<std::string(std::size_t)>> kDeep[] = {
    {"header", [](std::size_t n) { return "[a" + repeated(n - 1, ".a") + "]\n"; }},
    {"header with blanks and quotes",
     [](std::size_t n) { return "[ a" + repeated(n - 1, " . \"b\"") + " ]\n"; }},
    {"header of a list", [](std::size_t n) { return "[[a" + repeated(n - 1, ".'c'") + "]]\n"; }},
    {"dotted key", [](std::size_t n) { return "a" + repeated(n - 1, ".a") + " = 1\n"; }},
    {"lists", [](std::size_t n) { return "a = " + repeated(n, "[") + repeated(n, "]") + "\n"; }},
    {"lists over lines",
     [](std::size_t n) { return "a = " + repeated(n, "[ # [\n") + repeated(n, "]\n") + "\n"; }},
    {"inline tables",
     [](std::size_t n) { return "a = " + repeated(n, "{a = ") + "1" + repeated(n, "}") + "\n"; }},
    {"both",
     [](std::size_t n) { return "a = " + repeated(n, "[{a = ") + "1" + repeated(n, "}]") + "\n"; }},
    {"dotted key of an inline table",
     [](std::size_t n) { return "x = { a" + repeated(n - 1, ".a") + " = 1 }\n"; }},
    {"dotted key in a list",
     [](std::size_t n) { return "x = [1, { b = 1, a" + repeated(n, ".a") + " = 1 }]\n"; }},
    {"inline tables in a value of dotted keys",
     [](std::size_t n) { return "x = " + repeated(n, "{a.a = ") + "1" + repeated(n, "}") + "\n"; }},
    {"headers that go on",
     [](std::size_t n) {
       std::string text, path = "a";
       for (std::size_t i = 0; i < n && text.size() < 3'000'000; ++i, path += ".a")
         text += "[" + path + "]\n";
       return text;
     }},
    {"header, then key",
     [](std::size_t n) {
       return "[a" + repeated(n / 2, ".a") + "]\nb" + repeated(n / 2, ".b") + " = 1\n";
     }},
    {"not closed", [](std::size_t n) { return "a = " + repeated(n, "["); }},
    {"not closed header", [](std::size_t n) { return "[a" + repeated(n, ".a"); }},
    {"half a key", [](std::size_t n) { return "a" + repeated(n, ".a"); }},
};

TEST(TomlLimits, DepthOfEveryKindIsRefusedWithAPosition) {
  for (const auto& [name, text] : kDeep) {
    EXPECT_EQ(find_toml_excess(text(8)), std::nullopt) << name;
    for (const std::size_t depth : {2 * kDepth, std::size_t{100'000}, std::size_t{300'000}}) {
      const std::string deep = text(depth);
      if (deep.size() > TomlLimits().bytes) continue;
      const auto excess = find_toml_excess(deep);
      ASSERT_TRUE(excess.has_value()) << name << " " << depth;
      EXPECT_GT(excess->line, 0u) << name;
      const auto document = ConfigDocument::parse(deep, "x.toml");
      ASSERT_FALSE(document.has_value()) << name;
      EXPECT_EQ(document.error().code(), Code::kInvalidArgument);
      EXPECT_NE(document.error().message().find("deep"), std::string::npos)
          << document.error().message();
    }
  }
}

TEST(TomlLimits, WhatIsTakenFitsASmallStack) {
  test::on_small_stack([] {
    for (const auto& [name, text] : kDeep) {
      std::size_t depth = 1;
      while (!find_toml_excess(text(depth + 1)) && depth < 2 * kDepth) ++depth;
      (void)ConfigDocument::parse(text(depth), "x.toml");  // as deep as is allowed: built and freed
    }
    EXPECT_TRUE(ConfigDocument::parse("a = " + repeated(60, "[") + repeated(60, "]") + "\n", "x")
                    .has_value());
  });
}

TEST(TomlLimits, WhatStandsInStringsAndCommentsIsOfNoDepth) {
  const std::string dots = repeated(200'000, ".[{");
  for (const std::string& text :
       {"a = \"" + dots + "\"\n", "a = '" + dots + "'\n",
        "a = \"\"\"\n" + dots + "\n" + dots + "\"\"\"\n", "a = '''" + dots + "''\n'''\n",
        "# " + dots + "\na = 1\n", "a = \"\\\"" + dots + "\"\n",
        "a = \"\"\"\\\"\"\\\"" + dots + "\"\"\"\"\"\nb = 1 # " + dots + "\n"}) {
    EXPECT_EQ(find_toml_excess(text), std::nullopt) << text.substr(0, 20);
    EXPECT_TRUE(ConfigDocument::parse(text, "x").has_value())
        << ConfigDocument::parse(text, "x").error().message().substr(0, 200);
  }
  // A string that is not closed ends with its line, so that what follows counts.
  EXPECT_TRUE(find_toml_excess("a = \"\nb = " + repeated(1000, "[")).has_value());
  EXPECT_TRUE(find_toml_excess("a = \"\"\"\"\"\"\nb = " + repeated(1000, "[")).has_value());
}

TEST(TomlLimits, TwoMillionKeysAreRefusedByTheirSize) {
  const std::string text = "name = \"a\"\n[a" + repeated(2'000'000, ".a") + "]\n";
  EXPECT_FALSE(ConfigDocument::parse(text, "x").has_value());
  TomlLimits roomy;
  roomy.bytes = text.size();
  const auto excess = find_toml_excess(text, roomy);
  ASSERT_TRUE(excess.has_value());
  EXPECT_EQ(excess->line, 2u);
}

TEST(TomlLimits, NumberOfKeysAndValuesHasALimit) {
  std::string list = "a = [", keys, headers, tables;
  for (int i = 0; i < 210'000; ++i) {
    list += "1,";
    keys += "k" + std::to_string(i) + "=1\n";
    if (i < 150'000) headers += "[h" + std::to_string(i) + ".a]\n";
    tables += "[[c]]\n";
  }
  for (const std::string& text : {list + "]\n", keys, headers, tables}) {
    const auto excess = find_toml_excess(text);
    ASSERT_TRUE(excess.has_value());
    EXPECT_NE(excess->what.find("200,000"), std::string::npos) << excess->what;
  }
  EXPECT_EQ(find_toml_excess("a = [" + repeated(190'000, "1,") + "]\n"), std::nullopt);
}

// toml++ 3.3 checks itself with assert() and is wrong about some texts.
TEST(TomlLimits, AHeaderWithoutANameIsAnErrorAndNoAbort) {
  for (const std::string text : {"[{",
                                 "[{a = 1}]",
                                 "[{a.b=[{a.b=}]}]",
                                 "[[{",
                                 "[[ {]]",
                                 "[",
                                 "[[",
                                 "[]",
                                 "[[]]",
                                 "[.a]",
                                 "[=]",
                                 "[#]",
                                 "[ \n]",
                                 "a = 1\n  [{b}]\n",
                                 "[a.{]",
                                 "[a.]",
                                 "[a..b]",
                                 "[a.[b]]",
                                 "[a\n]",
                                 "[a",
                                 "[\"a\" {]"}) {
    const auto document = ConfigDocument::parse(text, "x.toml");
    ASSERT_FALSE(document.has_value()) << text;
    EXPECT_EQ(document.error().code(), Code::kInvalidArgument);
  }
  for (const std::string text :
       {"[a]", "[[a]]", "[ a ]", "[[ 'a' . \"b\" ]]", "[-]", "[_]", "[1]"}) {
    EXPECT_TRUE(ConfigDocument::parse(text, "x.toml").has_value()) << text;
  }
}

TEST(TomlLimits, AnErrorStaysShort) {
  const std::string long_key(1'000'000, 'k');
  for (const std::string& text :
       {long_key + " = 1\n", "[" + long_key + "\n", "a = " + long_key,
        "a = 1\na = \"" + long_key + "\"\n", long_key + " = 1\n" + long_key + " = 2\n"}) {
    auto document = ConfigDocument::parse(text, "x.toml");
    if (!document) {
      EXPECT_LT(document.error().message().size(), 2100u);
      continue;
    }
    auto root = document->root();
    root.integer("a");
    const Status status = root.finish();
    EXPECT_FALSE(status.is_ok());
    EXPECT_LT(status.message().size(), 2100u);
  }
}

}  // namespace
}  // namespace tailor
