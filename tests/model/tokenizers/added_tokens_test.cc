// Added tokens, whatever ids and flags their file gives them, beside every kind of normaliser and
// pre-tokenizer: ids equal those of the library tokenizers (tests/data/model/tokenizers:
// make_added.py, and cases stored by others).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "model/tokenizers/open_tokenizer.h"
#include "tests/model/data/temporary_folder.h"

namespace tailor::tokenizers {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<std::uint32_t>;

const std::string kFolder = std::string(TAILOR_TEST_DATA) + "/model/tokenizers/";

json read_data(const std::string& name) { return json::parse(*read_file(kFolder + name)); }

class AddedTokens : public data::TemporaryFolder {
 protected:
  Result<std::unique_ptr<Tokenizer>> open(const json& tokenizer) const {
    return open_tokenizer(write("a/tokenizer.json", tokenizer.dump()));
  }
  void refused(const json& tokenizer, const std::string& what) const {
    const auto opened = open(tokenizer);
    ASSERT_FALSE(opened.has_value()) << what;
    EXPECT_EQ(opened.error().code(), Code::kUnimplemented) << opened.error().message();
    EXPECT_THAT(opened.error().message(), HasSubstr(what));
  }
};

TEST_F(AddedTokens, IdsAndFlagsAreWhatTheLibraryMakesOfThem) {
  const json fixture = read_data("added.json");
  std::size_t checked = 0;
  for (const json& c : fixture["cases"]) {
    json tokenizer = read_data(c["base"]);
    for (const auto& [key, value] : c["patch"].items()) tokenizer[key] = value;
    tokenizer["added_tokens"] = fixture["added"][c["patch"]["added_tokens"].get<std::size_t>()];
    const auto opened = open(tokenizer);
    ASSERT_TRUE(opened.has_value()) << c["name"] << ": " << opened.error().message();
    const json& texts = c.contains("texts") ? c["texts"] : fixture["texts"];
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      const json& ids = c["ids"][i];
      Ids plain, special;
      (*opened)->encode(text, &plain);
      EXPECT_EQ(plain, ids[0].get<Ids>()) << c["name"] << ", " << text;
      (*opened)->encode_with_specials(text, &special);
      EXPECT_EQ(special, ids.back().get<Ids>()) << c["name"] << ", specials, " << text;
      ++checked;
    }
  }
  EXPECT_GT(checked, 1900u);
}

TEST_F(AddedTokens, StoredCasesGiveTheStoredIds) {
  for (const char* name :
       {"hole", "not_in_order", "same_id_twice", "metaspace_first_split", "nfc"}) {
    const std::string folder = std::string("stored/") + name + "/";
    const auto opened = open_tokenizer(kFolder + folder);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    const auto notes = (*opened)->notes();
    EXPECT_EQ(notes.size(),
              std::string(name) == "metaspace_first_split" || std::string(name) == "nfc" ? 0u : 1u);
    if (!notes.empty()) {
      EXPECT_THAT(notes[0], HasSubstr("in the file 2"));
    }
    Ids ids;
    for (const json& text : read_data(folder + "texts.json")) {
      (*opened)->encode(text.get<std::string>(), &ids);
      ids.push_back((*opened)->eos_id());
    }
    const std::string bytes = *read_file(kFolder + folder + "expected.u32");
    Ids wanted(bytes.size() / 4);
    std::memcpy(wanted.data(), bytes.data(), bytes.size());
    EXPECT_EQ(ids, wanted) << name;
  }
}

// Two tokens that are one: in the library either is found, by chance. One that is nothing: there it
// fails.
TEST_F(AddedTokens, TokensThatTheLibraryCannotTellApartAreRefusedByName) {
  json tokenizer = read_data("byte_level.json");
  tokenizer["normalizer"] = {{"type", "Lowercase"}};
  for (const char* content : {"Hello", "HELLO"}) {
    tokenizer["added_tokens"].push_back(
        {{"id", 700}, {"content", content}, {"normalized", true}, {"special", false}});
  }
  refused(tokenizer, "HELLO");
  tokenizer["normalizer"] = {{"type", "StripAccents"}};
  tokenizer["added_tokens"].back()["content"] = "\xCC\x81";
  refused(tokenizer, "\xCC\x81");
}

TEST_F(AddedTokens, WhatTheLibraryDoesToLengthsIsRefused) {
  json tokenizer = read_data("byte_level.json");
  tokenizer["truncation"] = {{"max_length", 512}};
  refused(tokenizer, "truncation");
  tokenizer["truncation"] = nullptr;
  tokenizer["padding"] = {{"strategy", {{"Fixed", 16}}}};
  refused(tokenizer, "padding");
  tokenizer["padding"] = {{"strategy", "BatchLongest"}, {"pad_to_multiple_of", nullptr}};
  EXPECT_TRUE(open(tokenizer).has_value());
  tokenizer["version"] = "2.0";
  refused(tokenizer, "2.0");
}

TEST_F(AddedTokens, APostProcessorWhoseIdsAreNotTheTokensIsRefused) {
  json tokenizer = read_data("byte_level.json");
  tokenizer["post_processor"] = json::parse(
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|im_start|>"}}],
          "special_tokens":{"<|im_start|>":{"ids":[5],"tokens":["<|im_start|>"]}}})");
  refused(tokenizer, "[5]");
  tokenizer["post_processor"] = {{"type", "Magic"}};
  refused(tokenizer, "Magic");
}

TEST_F(AddedTokens, AHashIsOfTheIdsThatTextsGet) {
  json tokenizer = read_data("byte_level.json");
  const auto hash = [&] { return (*open(tokenizer))->sha256(); };
  const std::string plain = hash();
  for (json& token : tokenizer["added_tokens"]) token["id"] = 3;  // of no consequence
  EXPECT_EQ(hash(), plain);
  for (const char* flag : {"lstrip", "rstrip", "single_word", "normalized", "special"}) {
    json& value = tokenizer["added_tokens"].back()[flag];
    value = !value.get<bool>();
    EXPECT_NE(hash(), plain) << flag;
    value = !value.get<bool>();
  }
  const std::string scheme = R"({"type":"Metaspace","replacement":"_","prepend_scheme":"SCHEME"})";
  std::vector<std::string> seen = {plain};
  for (const char* name : {"first", "always", "never"}) {
    tokenizer["pre_tokenizer"] =
        json::parse(std::string(scheme).replace(scheme.find("SCHEME"), 6, name));
    EXPECT_THAT(seen, testing::Not(testing::Contains(hash())));
    seen.push_back(hash());
  }
}

}  // namespace
}  // namespace tailor::tokenizers
