// Long texts in parts: the ids are those of the whole text, for every kind of tokenizer, and the
// parts are small where the text has places to cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/rng.h"
#include "model/tokenizers/open_tokenizer.h"
#include "tests/model/data/temporary_folder.h"
#include "tests/model/pretrained/gguf_builder.h"
#include "tests/model/tokenizers/parts.h"

namespace tailor::tokenizers {
namespace {

using nlohmann::json;
using test::encoded_in_parts;
using test::Parts;
using Ids = std::vector<std::uint32_t>;

const std::string kTokenizers = std::string(TAILOR_TEST_DATA) + "/model/tokenizers/";

json load(const std::string& name) { return json::parse(*read_file(kTokenizers + name)); }

class LongText : public data::TemporaryFolder {
 protected:
  LongText() {
    Rng rng(5);
    std::vector<std::string> words = {"\n",           " ",        "  ",
                                      "\r\n",         "\t",       "   ",
                                      "<i>",          "</i>",     "<mask>",
                                      "hi",           " ok",      "\xE2\x96\x81",
                                      "e\xCC\x81",    "\xC2\xA0", "\xE6\x97\xA5\xE6\x9C\xAC",
                                      "\xE3\x80\x82", "don't",    "1234"};
    for (const char* letters : {"the", "cat", "pilot",
                                "Stra\xC3\x9F"
                                "e",
                                "a", "b", "x.", ",y", "-"}) {
      words.emplace_back(letters);
    }
    while (mixed_.size() < 3'200'000) {
      mixed_ += words[rng.below(words.size())];
      if (rng.below(2) == 0) mixed_ += ' ';
    }
    for (int i = 0; i < 400'000; ++i) lines_ += "ab\n";
    while (solid_.size() < 3'000'000) {
      solid_ += static_cast<char>('!' + rng.below(94));
    }
  }
  // What a converter makes of a SentencePiece model.
  std::string llama_gguf(const std::string& model, bool prefix) const {
    const json listed = load("sentencepiece.json")[model];
    pretrained::GgufBuilder builder;
    builder.str("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", listed["pieces"].get<std::vector<std::string>>())
        .numbers("tokenizer.ggml.scores", 6, listed["scores"].get<std::vector<float>>())
        .numbers("tokenizer.ggml.token_type", 5, listed["types"].get<std::vector<std::int32_t>>())
        .flag("tokenizer.ggml.add_space_prefix", prefix)
        .u32("tokenizer.ggml.unknown_token_id", 0)
        .u32("tokenizer.ggml.eos_token_id", 2);
    return write(model + ".gguf", builder.bytes());
  }
  // Every tokenizer that the tests have, by name.
  std::vector<std::pair<std::string, std::unique_ptr<Tokenizer>>> tokenizers() const {
    std::vector<std::pair<std::string, std::unique_ptr<Tokenizer>>> all;
    const auto add = [&](const std::string& name, const std::string& path) {
      auto opened = open_tokenizer(path);
      ASSERT_TRUE(opened.has_value()) << name << ": " << opened.error().message();
      all.emplace_back(name, std::move(*opened));
    };
    add("bytes", "bytes");
    for (const json& c : load("cases.json")["cases"]) {
      const std::string base = c["base"], name = c["name"];
      if (base.ends_with(".model")) {
        add(name, kTokenizers + base);
        continue;
      }
      json tokenizer = load(base);
      for (const auto& [key, value] : c["patch"].items()) {
        (key == "ignore_merges" ? tokenizer["model"] : tokenizer)[key] = value;
      }
      add(name, write(name + "/tokenizer.json", tokenizer.dump()));
    }
    for (const char* scheme : {"first", "always", "never"}) {
      json tokenizer = load("marked.json");
      tokenizer["normalizer"] = {{"type", "NFC"}};
      tokenizer["pre_tokenizer"] = {
          {"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", scheme}};
      add(scheme, write(std::string(scheme) + "/tokenizer.json", tokenizer.dump()));
    }
    add("GGUF without prefix", llama_gguf("plain.model", false));
    add("GGUF with prefix", llama_gguf("prefixed.model", true));
    return all;
  }
  std::string mixed_, lines_, solid_;
};

TEST_F(LongText, PartsHaveTheIdsOfTheWhole) {
  for (auto& [name, tokenizer] : tokenizers()) {
    for (const auto& [kind, text] :
         {std::pair{"mixed", &mixed_}, {"lines", &lines_}, {"solid", &solid_}}) {
      Ids whole;
      tokenizer->encode(*text, &whole);
      const Parts parts = encoded_in_parts(*tokenizer, *text, 64 << 10);
      EXPECT_TRUE(parts.ids == whole) << name << ", " << kind;
      EXPECT_GT(parts.count, 15u) << name << ", " << kind;
      EXPECT_LE(parts.longest, 128u << 10) << name << ", " << kind;
    }
  }
}

// Windows of a few bytes put a cut wherever one is allowed, also beside tokens, marks and spaces.
TEST_F(LongText, PartsHaveTheIdsOfTheWholeWhereverTheyAreCut) {
  const std::string text = mixed_.substr(0, mixed_.find('\n', 20'000));
  for (auto& [name, tokenizer] : tokenizers()) {
    Ids whole;
    tokenizer->encode(text, &whole);
    for (const std::size_t window : {2, 3, 7, 30}) {
      EXPECT_TRUE(encoded_in_parts(*tokenizer, text, window).ids == whole)
          << name << ", window " << window;
    }
  }
}

TEST_F(LongText, ATextWithoutAnyPlaceToCutStaysWhole) {
  const std::string one(3'000'000, 'a');
  for (auto& [name, tokenizer] : tokenizers()) {
    if (name == "bytes") continue;
    Ids whole;
    tokenizer->encode(one, &whole);
    const Parts parts = encoded_in_parts(*tokenizer, one, 1 << 20);
    EXPECT_TRUE(parts.ids == whole) << name;
  }
}

TEST_F(LongText, NoPlaceIsFoundInWhatIsNoUtf8OrTooShort) {
  for (auto& [name, tokenizer] : tokenizers()) {
    EXPECT_EQ(tokenizer->last_cut(""), 0u) << name;
    EXPECT_EQ(tokenizer->last_cut("a"), 0u) << name;
    if (name == "bytes") continue;
    EXPECT_EQ(tokenizer->last_cut("a b \xFF"), 0u) << name;
  }
}

}  // namespace
}  // namespace tailor::tokenizers
