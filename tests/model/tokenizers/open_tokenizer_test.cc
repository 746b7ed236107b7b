// Tokenizers of published models: ids equal those of the libraries that they come from (tokenizers
// and SentencePiece; tests/data/model/tokenizers/make.py), from every kind
// of file, also on broken UTF-8.
#include "model/tokenizers/open_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "model/tokenizers/unicode_text.h"
#include "tests/model/data/temporary_folder.h"
#include "tests/model/pretrained/gguf_builder.h"

namespace tailor::tokenizers {
namespace {

using nlohmann::json;
using pretrained::GgufBuilder;
using testing::HasSubstr;
using Ids = std::vector<std::uint32_t>;

const std::string kData = std::string(TAILOR_TEST_DATA) + "/model/tokenizers/";

json read_json(const std::string& name) { return json::parse(*read_file(kData + name)); }

std::string bytes_of_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// tokenizer.json of a case: its base with some members replaced.
json patched(const json& c) {
  json tokenizer = read_json(c["base"]);
  for (const auto& [key, value] : c["patch"].items()) {
    (key == "ignore_merges" ? tokenizer["model"] : tokenizer)[key] = value;
  }
  return tokenizer;
}

// Without the tokens that take white space away or stand alone, which GGUF has no word for. The
// others get the ids that they would have in the library, which a converter asks.
json without_greedy(json tokenizer) {
  std::erase_if(tokenizer["added_tokens"].get_ref<json::array_t&>(), [](const json& token) {
    return token["single_word"] == true || token["lstrip"] == true || token["rstrip"] == true;
  });
  const json& vocab = tokenizer["model"]["vocab"];
  std::size_t next = vocab.size();
  for (json& token : tokenizer["added_tokens"]) {
    const std::string content = token["content"];
    token["id"] = vocab.contains(content) ? vocab[content].get<std::size_t>() : next++;
  }
  return tokenizer;
}

class OpenTokenizerTest : public data::TemporaryFolder {
 protected:
  std::unique_ptr<Tokenizer> opened(const std::string& file) const {
    auto tokenizer = open_tokenizer(file);
    EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
    return tokenizer ? std::move(*tokenizer) : nullptr;
  }
  std::unique_ptr<Tokenizer> opened(const json& tokenizer) const {
    return opened(write("t/tokenizer.json", tokenizer.dump()));
  }
  void refused(const std::string& file, Code code, const std::string& what) const {
    const auto tokenizer = open_tokenizer(file);
    ASSERT_FALSE(tokenizer.has_value()) << what;
    EXPECT_EQ(tokenizer.error().code(), code) << tokenizer.error().message();
    EXPECT_THAT(tokenizer.error().message(), testing::AllOf(HasSubstr(file), HasSubstr(what)));
  }
  void refused(const json& tokenizer, Code code, const std::string& what) const {
    refused(write("r/tokenizer.json", tokenizer.dump()), code, what);
  }
  // Every text of the fixture, twice: the second time from the cache.
  static void expect_ids(Tokenizer& tokenizer, const json& texts, const json& ids,
                         const std::string& name) {
    for (int round = 0; round < 2; ++round) {
      for (const auto& [text_name, hex] : texts.items()) {
        const std::string text = bytes_of_hex(hex);
        Ids plain, special;
        tokenizer.encode(text, &plain);
        EXPECT_EQ(plain, ids[text_name][0].get<Ids>()) << name << ", " << text_name;
        if (ids[text_name][1].is_null()) continue;
        tokenizer.encode_with_specials(text, &special);
        EXPECT_EQ(special, ids[text_name][1].get<Ids>())
            << name << ", " << text_name << ", specials";
      }
    }
  }
  // The GGUF file that a converter makes of byte_level.json; `pre` is the pre-tokenizer's name.
  GgufBuilder byte_level_gguf(const std::string& pre, const json& tokenizer) const {
    std::vector<std::string> tokens;
    std::vector<std::int32_t> types;
    const auto put = [&](std::size_t id, const std::string& token, std::int32_t type) {
      if (tokens.size() <= id) {
        tokens.resize(id + 1);
        types.resize(id + 1, 5);
      }
      tokens[id] = token;
      types[id] = type;
    };
    for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) put(id, token, 1);
    std::uint32_t eos = 0;
    for (const json& token : tokenizer["added_tokens"]) {
      put(token["id"], token["content"], token["special"] == true ? 3 : 4);
      if (token["content"] == "<|endoftext|>") eos = token["id"];
    }
    std::vector<std::string> merges;
    for (const json& merge : tokenizer["model"]["merges"]) {
      merges.push_back(merge.is_string()
                           ? merge.get<std::string>()
                           : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    GgufBuilder builder;
    builder.str("tokenizer.ggml.model", "gpt2")
        .str("tokenizer.ggml.pre", pre)
        .strings("tokenizer.ggml.tokens", tokens)
        .numbers("tokenizer.ggml.token_type", 5, types)
        .strings("tokenizer.ggml.merges", merges)
        .u32("tokenizer.ggml.eos_token_id", eos)
        .u32("tokenizer.ggml.bos_token_id", eos);
    return builder;
  }
};

TEST_F(OpenTokenizerTest, IdsAreThoseOfTheLibraries) {
  const json fixture = read_json("cases.json");
  std::size_t checked = 0;
  for (const json& c : fixture["cases"]) {
    const std::string base = c["base"], name = c["name"];
    SCOPED_TRACE(name);
    const auto tokenizer = base.ends_with(".model") ? opened(kData + base) : opened(patched(c));
    ASSERT_NE(tokenizer, nullptr);
    expect_ids(*tokenizer, fixture["texts"], c["ids"], name);
    expect_ids(*tokenizer->clone(), fixture["texts"], c["ids"], name + " cloned");
    ++checked;
  }
  EXPECT_EQ(checked, 17u);
}

TEST_F(OpenTokenizerTest, TextsDecodeToThemselves) {
  const json fixture = read_json("cases.json");
  for (const json& c : fixture["cases"]) {
    const std::string base = c["base"], name = c["name"];
    // These change the text on purpose.
    if (c["patch"].contains("normalizer") && base == "byte_level.json") continue;
    if (name.find("removed") != std::string::npos || name.starts_with("metaspace")) continue;
    const auto tokenizer =
        base.ends_with(".model") ? opened(kData + base) : opened(without_greedy(patched(c)));
    for (const auto& [text_name, hex] : fixture["texts"].items()) {
      const std::string text = repaired_utf8(bytes_of_hex(hex));
      // A literal U+2581 decodes to a space, and what is no UTF-8 has no piece
      // in small vocabularies.
      if (text_name == "special" || text_name == "broken") continue;
      // There every stretch between added tokens gets a space of its own.
      if (name == "legacy llama" && text_name != "prose") continue;
      Ids ids;
      tokenizer->encode(text, &ids);
      EXPECT_EQ(tokenizer->decode(ids).value(), text) << name << ", " << text_name;
    }
  }
}

TEST_F(OpenTokenizerTest, AGgufFileGivesTheIdsOfTheTokenizerItWasMadeFrom) {
  const json fixture = read_json("cases.json");
  std::size_t checked = 0;
  for (const json& c : fixture["cases"]) {
    const std::string name = c["name"];
    if (name != "gpt-2" && name != "smollm" && name != "llama-bpe" && name != "dbrx" &&
        name != "qwen2") {
      continue;
    }
    const json tokenizer = without_greedy(patched(c));
    const auto wanted = opened(tokenizer);
    const auto got = opened(write("m.gguf", byte_level_gguf(name, tokenizer).bytes()));
    ASSERT_NE(wanted, nullptr);
    ASSERT_NE(got, nullptr);
    for (const auto& [text_name, hex] : fixture["texts"].items()) {
      Ids a, b;
      wanted->encode_with_specials(bytes_of_hex(hex), &a);
      got->encode_with_specials(bytes_of_hex(hex), &b);
      EXPECT_EQ(b, a) << name << ", " << text_name;
    }
    EXPECT_EQ(got->eos_id(), wanted->eos_id());
    EXPECT_EQ(got->adds_bos(), name == "llama-bpe");
    ++checked;
  }
  EXPECT_EQ(checked, 5u);
}

// SentencePiece's pieces, scores and types, as GGUF keeps them.
TEST_F(OpenTokenizerTest, AGgufFileOfSentencePieceGivesItsIds) {
  const json fixture = read_json("cases.json");
  const json listed = read_json("sentencepiece.json");
  for (const bool prefix : {false, true}) {
    const std::string base = prefix ? "prefixed.model" : "plain.model";
    GgufBuilder builder;
    builder.str("tokenizer.ggml.model", "llama")
        .str("tokenizer.ggml.pre", "default")
        .strings("tokenizer.ggml.tokens", listed[base]["pieces"].get<std::vector<std::string>>())
        .numbers("tokenizer.ggml.scores", 6, listed[base]["scores"].get<std::vector<float>>())
        .numbers("tokenizer.ggml.token_type", 5,
                 listed[base]["types"].get<std::vector<std::int32_t>>())
        .flag("tokenizer.ggml.add_space_prefix", prefix)
        .u32("tokenizer.ggml.unknown_token_id", 0)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2);
    const auto tokenizer = opened(write("m.gguf", builder.bytes()));
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_TRUE(tokenizer->adds_bos());
    EXPECT_EQ(tokenizer->bos_id(), 1u);
    for (const json& c : fixture["cases"]) {
      if (c["base"] == base) expect_ids(*tokenizer, fixture["texts"], c["ids"], base + " as GGUF");
    }
    EXPECT_EQ(tokenizer->sha256(), opened(write("n.gguf", builder.bytes()))->sha256());
  }
}

TEST_F(OpenTokenizerTest, FilesBesideATokenizerSayItsEnds) {
  json tokenizer = read_json("byte_level.json");
  const auto alone = opened(write("a/tokenizer.json", tokenizer.dump()));
  EXPECT_EQ(alone->decode(Ids{alone->eos_id()}).value(), "");
  EXPECT_EQ(alone->bos_id(), std::nullopt);
  EXPECT_FALSE(alone->adds_bos());
  write("b/tokenizer.json", tokenizer.dump());
  write("b/tokenizer_config.json",
        R"({"eos_token":{"content":"<|im_start|>"},"bos_token":"<|endoftext|>",)"
        R"("add_bos_token":true})");
  const auto told = opened(path("b"));
  ASSERT_NE(told, nullptr);
  EXPECT_EQ(told->bos_id(), alone->eos_id());
  EXPECT_NE(told->eos_id(), alone->eos_id());
  EXPECT_TRUE(told->adds_bos());
  EXPECT_NE(told->sha256(), alone->sha256());
  tokenizer["post_processor"] =
      json::parse(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)"
                  R"({"type":"TemplateProcessing","single":[
          {"SpecialToken":{"id":"<|im_start|>","type_id":0}},)"
                  R"({"Sequence":{"id":"A","type_id":0}}]}]})");
  const auto templated = opened(write("c/tokenizer.json", tokenizer.dump()));
  EXPECT_TRUE(templated->adds_bos());
  EXPECT_EQ(templated->bos_id(), told->eos_id());
  Ids ids;
  templated->encode("a", &ids);
  EXPECT_EQ(ids.size(), 1u) << "encode itself adds nothing";
  write("d/tokenizer.json", tokenizer.dump());
  write("d/tokenizer_config.json", R"({"eos_token":"<gone>"})");
  refused(path("d") + "/tokenizer.json", Code::kInvalidArgument, "<gone>");
  write("e/tokenizer.json", tokenizer.dump());
  write("e/tokenizer_config.json", "{");
  EXPECT_EQ(open_tokenizer(path("e")).error().code(), Code::kDataLoss);
}

TEST_F(OpenTokenizerTest, WhatWouldChangeIdsIsRefusedByName) {
  const json good = read_json("byte_level.json");
  const auto with = [&](const char* pointer, const json& value) {
    json tokenizer = good;
    tokenizer[json::json_pointer(pointer)] = value;
    return tokenizer;
  };
  refused(with("/model/type", "Unigram"), Code::kUnimplemented, "Unigram");
  refused(with("/model/dropout", 0.1), Code::kUnimplemented, "dropout");
  refused(with("/normalizer", {{"type", "Precompiled"}}), Code::kUnimplemented, "Precompiled");
  refused(with("/normalizer", json::parse(R"({"type":"Replace","pattern":{"Regex":"x*"},
                                             "content":"a"})")),
          Code::kUnimplemented, "x*");
  refused(with("/pre_tokenizer", {{"type", "UnicodeScripts"}}), Code::kUnimplemented,
          "UnicodeScripts");
  refused(with("/pre_tokenizer", json::parse(R"({"type":"Metaspace","replacement":"_",
                                                "add_prefix_space":false})")),
          Code::kUnimplemented, "Metaspace");
  refused(with("/pre_tokenizer", json::parse(R"({"type":"Split","pattern":{"Regex":"(a"},
                                                "behavior":"Isolated","invert":false})")),
          Code::kUnimplemented, "(a");
  refused(with("/pre_tokenizer", json::parse(R"({"type":"Split","pattern":{"Regex":"a"},
                                                "behavior":"Guessed","invert":false})")),
          Code::kUnimplemented, "Split");
  refused(with("/model/merges/0", "nopair"), Code::kDataLoss, "merge 0");
  refused(with("/model/merges/0", {"\xE2\x98\x83", "b"}), Code::kDataLoss, "merge 0");
  refused(with("/model/vocab/!", -1), Code::kDataLoss, "no id");
  refused(with("/model/vocab/!", 2'000'000'000), Code::kDataLoss, "no id");
  refused(with("/model/vocab/!", 9'000'000), Code::kDataLoss, "holes");
  refused(with("/model/vocab/!", 5), Code::kDataLoss, "two pieces have id 5");
  refused(with("/added_tokens/0/id", -1), Code::kDataLoss, "added token");
  refused(with("/model/unk_token", "gone"), Code::kDataLoss, "unk_token");
  json no_end = good;
  no_end["added_tokens"].clear();
  refused(no_end, Code::kInvalidArgument, "no token ends a text");
  const std::string whole = good.dump();
  for (std::size_t size = 0; size < whole.size(); size += 97) {
    refused(write("cut/tokenizer.json", whole.substr(0, size)), Code::kDataLoss, "cut");
  }
}

TEST_F(OpenTokenizerTest, WrongGgufTokenizersAreRefusedByName) {
  const json tokenizer = read_json("byte_level.json");
  const auto put = [&](const GgufBuilder& builder) { return write("m.gguf", builder.bytes()); };
  refused(put(byte_level_gguf("chatglm-bpe", tokenizer)), Code::kUnimplemented, "chatglm-bpe");
  refused(put(byte_level_gguf("default", tokenizer)), Code::kUnimplemented, "default");
  refused(put(GgufBuilder().str("tokenizer.ggml.model", "bert")), Code::kUnimplemented, "bert");
  refused(put(GgufBuilder()), Code::kInvalidArgument, "tokenizer.ggml.model is missing");
  const auto small = [](std::int32_t type, std::uint32_t eos, const std::string& merge) {
    GgufBuilder builder;
    builder.str("tokenizer.ggml.model", "gpt2")
        .str("tokenizer.ggml.pre", "gpt-2")
        .strings("tokenizer.ggml.tokens", {"!", "?", "!?"})
        .numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {1, type, 1})
        .strings("tokenizer.ggml.merges", {merge})
        .u32("tokenizer.ggml.eos_token_id", eos);
    return builder;
  };
  // A byte without a token vanishes before its neighbours merge, as in the library tokenizers.
  Ids ids;
  opened(put(small(1, 2, "! ?")))
      ->encode(
          "!\x01"
          "?\x01",
          &ids);
  EXPECT_EQ(ids, Ids{2});
  refused(put(small(9, 2, "! ?")), Code::kDataLoss, "unknown type 9");
  refused(put(small(6, 2, "! ?")), Code::kDataLoss, "marked as a byte");
  refused(put(small(1, 3, "! ?")), Code::kInvalidArgument, "eos_token_id");
  refused(put(small(1, 2, "!?")), Code::kDataLoss, "merge 0");
  refused(put(small(1, 2, "! x")), Code::kDataLoss, "merge 0");
  GgufBuilder scores;
  scores.str("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", {"a", "b"});
  scores.numbers<float>("tokenizer.ggml.scores", 6, {1});
  refused(put(scores), Code::kInvalidArgument, "tokenizer.ggml.scores");
}

TEST_F(OpenTokenizerTest, ACutSentencePieceModelIsDataLoss) {
  const std::string whole = *read_file(kData + "plain.model");
  for (std::size_t size = 0; size + 400 < whole.size(); size += 53) {
    const auto tokenizer = open_tokenizer(write("cut.model", whole.substr(0, size)));
    // A cut between two pieces is a shorter model; its ends or its kind then say that it is none.
    EXPECT_FALSE(tokenizer.has_value()) << size;
  }
  refused(write("other.model", "no protobuf at all"), Code::kDataLoss, "SentencePiece");
}

TEST_F(OpenTokenizerTest, FoldersAndNamesAreToldApart) {
  EXPECT_EQ(opened(std::string("bytes"))->vocab_size(), 257u);
  EXPECT_EQ(open_tokenizer(path("none")).error().code(), Code::kNotFound);
  std::filesystem::create_directories(path("empty"));
  EXPECT_EQ(open_tokenizer(path("empty")).error().code(), Code::kNotFound);
  std::filesystem::create_directories(path("sp"));
  std::filesystem::copy_file(kData + "plain.model", path("sp/tokenizer.model"));
  EXPECT_EQ(opened(path("sp"))->sha256(), opened(kData + "plain.model")->sha256());
  EXPECT_FALSE(opened(path("sp"))->adds_bos());
  write("sp/tokenizer_config.json", R"({"add_bos_token": true})");
  EXPECT_TRUE(opened(path("sp"))->adds_bos());
}

TEST_F(OpenTokenizerTest, IdsOutsideTheVocabularyDoNotDecode) {
  const auto tokenizer = opened(read_json("byte_level.json"));
  EXPECT_EQ(tokenizer->decode(Ids{tokenizer->vocab_size()}).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tailor::tokenizers
