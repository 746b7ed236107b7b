// JsonText against nlohmann's parser, whole and cut at every byte.
#include "model/data/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tailor::data {
namespace {

struct Read {
  std::string wrong;
  std::string text;
};

Read read(const std::vector<std::string>& parts, const std::string& key = "text") {
  JsonText json(key);
  json.start();
  Read out;
  for (const std::string& part : parts) {
    out.wrong = json.feed(part, &out.text);
    if (!out.wrong.empty()) return out;
  }
  out.wrong = json.finish();
  return out;
}

const char* const kGood[] = {
    R"({"text":"a"})",
    R"( { "text" : "" } )",
    R"({"id":0,"text":"one\ntwo\t\"q\" \\ \/ \b\f\r","n":-1.5e+10})",
    R"({"text":"\u00e9\u20ac\ud834\udd1e\u0000x"})",
    R"({"meta":{"text":"not this","a":[1,2,[],{},"]"]},"text":"this","z":[true,false,null]})",
    R"({"a\u0062":1,"t\u0065xt":"spelled"})",
    R"({"texts":"no","tex":"no","text":"yes"})",
    R"({"n":[0,-0,0.5,1e5,1E-5,-12.25e3,120],"text":"größe 世界 𝄞"})",
};

const char* const kBad[] = {
    "",
    "   ",
    "{",
    "[]",
    "5",
    "null",
    R"("text")",
    "{}",
    R"({"text":5})",
    R"({"text":null})",
    R"({"text":["a"]})",
    R"({"body":"a"})",
    R"({"a":{"text":"inner"}})",
    R"({"text":"a"}x)",
    R"({"text":"a"}{})",
    R"({"text":"a",})",
    R"({"text" "a"})",
    R"({text:"a"})",
    R"({"text":"a)",
    R"({"text":"\x"})",
    R"({"text":"\u12g4"})",
    R"({"text":"\ud834"})",
    R"({"text":"\ud834\u0041"})",
    R"({"text":"\udd1e"})",
    "{\"text\":\"a\nb\"}",
    R"({"text":"a","n":01})",
    R"({"text":"a","n":1.})",
    R"({"text":"a","n":.5})",
    R"({"text":"a","n":+1})",
    R"({"text":"a","n":1e})",
    R"({"text":"a","n":--1})",
    R"({"text":"a","n":tru})",
    R"({"text":"a","n":nul}})",
    R"({"text":"a","n":[1,]})",
    R"({"text":"a","n":[1}})",
    R"({"text":"a"]})",
};

TEST(JsonText, GivesTheStringThatAParserGives) {
  for (const std::string line : kGood) {
    const Read got = read({line});
    EXPECT_EQ(got.wrong, "") << line;
    EXPECT_EQ(got.text, nlohmann::json::parse(line)["text"].get<std::string>()) << line;
  }
  EXPECT_EQ(read({R"({"a":{"b":1},"body":"x"})"}, "body").text, "x");
}

TEST(JsonText, PartsOfALineGiveWhatTheWholeGives) {
  for (const std::string line : kGood) {
    const std::string whole = read({line}).text;
    for (std::size_t cut = 0; cut <= line.size(); ++cut) {
      const Read got = read({line.substr(0, cut), line.substr(cut)});
      EXPECT_EQ(got.wrong, "") << line << " cut at " << cut;
      EXPECT_EQ(got.text, whole) << line << " cut at " << cut;
    }
  }
}

TEST(JsonText, RefusesWhatAParserRefusesAndWhatHasNoText) {
  for (const std::string line : kBad) {
    EXPECT_NE(read({line}).wrong, "") << line;
    for (std::size_t cut = 0; cut <= line.size(); ++cut) {
      EXPECT_NE(read({line.substr(0, cut), line.substr(cut)}).wrong, "") << line << " at " << cut;
    }
    const auto parsed = nlohmann::json::parse(line, nullptr, false);
    const bool has_text =
        parsed.is_object() && parsed.contains("text") && parsed["text"].is_string();
    EXPECT_FALSE(has_text) << line;
  }
}

TEST(JsonText, ARepeatedKeyAndDeepNestingAreRefused) {
  EXPECT_NE(read({R"({"text":"a","text":"b"})"}).wrong, "");
  const std::string deep(511, '['), end(511, ']');
  EXPECT_EQ(read({R"({"text":"a","n":)" + deep + end + "}"}).wrong, "");
  EXPECT_NE(read({R"({"text":"a","n":[)" + deep + end + "]}"}).wrong, "");
}

}  // namespace
}  // namespace tailor::data
