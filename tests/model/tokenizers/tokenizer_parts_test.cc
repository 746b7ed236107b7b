// What travels of a tokenizer opens elsewhere as the same tokenizer.
#include "model/tokenizers/tokenizer_parts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/hash.h"
#include "model/tokenizers/open_tokenizer.h"
#include "tests/model/data/temporary_folder.h"
#include "tests/model/pretrained/gguf_builder.h"

namespace tailor::tokenizers {
namespace {

using nlohmann::json;

const std::string kData = std::string(TAILOR_TEST_DATA) + "/model/tokenizers/";
const std::string kText = "Grass is green,\n  naïvely 𝄞 grün 123 <|endoftext|> \xEF\xBB\xBF.";

class TokenizerPartsTest : public data::TemporaryFolder {
 protected:
  /// The parts of `path`, and its tokenizer opened from them in a folder of their own.
  void expect_travels(const std::string& file, const std::vector<std::string>& names) {
    const auto before = open_tokenizer(file);
    ASSERT_TRUE(before.has_value()) << before.error().message();
    const auto parts = read_tokenizer_parts(file, **before);
    ASSERT_TRUE(parts.has_value()) << parts.error().message();
    std::vector<std::string> found;
    for (const TokenizerPart& part : *parts) {
      found.push_back(part.file);
      write("there/" + part.file, part.content);
    }
    EXPECT_EQ(found, names);
    const auto after = open_tokenizer(path("there/" + names[0]));
    ASSERT_TRUE(after.has_value()) << after.error().message();
    EXPECT_EQ((*after)->sha256(), (*before)->sha256());
    EXPECT_EQ((*after)->eos_id(), (*before)->eos_id());
    EXPECT_EQ((*after)->bos_id(), (*before)->bos_id());
    EXPECT_EQ((*after)->adds_bos(), (*before)->adds_bos());
    std::vector<std::uint32_t> ids, again;
    (*before)->encode(kText, &ids);
    (*after)->encode(kText, &again);
    EXPECT_EQ(again, ids);
  }
};

TEST_F(TokenizerPartsTest, OfATokenizerJsonWithTheConfigBesideItOrOneThatNamesItsTokens) {
  json tokenizer = json::parse(*read_file(kData + "byte_level.json"));
  write("a/tokenizer.json", tokenizer.dump());
  ASSERT_NO_FATAL_FAILURE(
      expect_travels(path("a/tokenizer.json"), {"tokenizer.json", "tokenizer_config.json"}));
  const auto opened = open_tokenizer(path("a/tokenizer.json"));
  const json made = json::parse(content_of(path("there/tokenizer_config.json")));
  std::string eos;
  for (const json& token : tokenizer["added_tokens"]) {
    if (token["id"] == (*opened)->eos_id()) eos = token["content"];
  }
  EXPECT_EQ(made["eos_token"], eos);
  EXPECT_EQ(made["tokenizer_class"], "PreTrainedTokenizerFast");
  const std::string config = R"({"eos_token": ")" + eos + R"(", "chat_template": "kept"})";
  write("a/tokenizer_config.json", config);
  ASSERT_NO_FATAL_FAILURE(expect_travels(path("a"), {"tokenizer.json", "tokenizer_config.json"}));
  EXPECT_EQ(content_of(path("there/tokenizer_config.json")), config);
}

// One meaning of a SentencePiece model's hash, with Google's library and without: that of its file.
TEST_F(TokenizerPartsTest, OfASentencePieceModelWhoseHashIsThatOfItsFile) {
  for (const char* name : {"plain.model", "prefixed.model"}) {
    ASSERT_NO_FATAL_FAILURE(expect_travels(kData + name, {"tokenizer.model"}));
    EXPECT_EQ((*open_tokenizer(kData + name))->sha256(), sha256_hex(*read_file(kData + name)));
  }
  write("folder/tokenizer.model", *read_file(kData + "plain.model"));
  EXPECT_EQ((*open_tokenizer(path("folder")))->sha256(),
            sha256_hex(*read_file(kData + "plain.model")));
}

TEST_F(TokenizerPartsTest, OfAGgufFileWithoutItsTensors) {
  pretrained::GgufBuilder builder;
  builder.str("general.architecture", "llama")
      .str("general.name", "not needed")
      .str("tokenizer.ggml.model", "gpt2")
      .str("tokenizer.ggml.pre", "gpt-2")
      .strings("tokenizer.ggml.tokens", {"G", "r", "a", "s", "Gr", "</s>"})
      .strings("tokenizer.ggml.merges", {"G r"})
      .numbers<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 1, 1, 1, 1, 3})
      .u32("tokenizer.ggml.eos_token_id", 5)
      .floats("weights", {2, 2}, {1, 2, 3, 4});
  ASSERT_NO_FATAL_FAILURE(expect_travels(write("m.gguf", builder.bytes()), {"tokenizer.gguf"}));
  EXPECT_EQ(content_of(path("there/tokenizer.gguf")).find("not needed"), std::string::npos);
}

TEST_F(TokenizerPartsTest, OfBytesNothingButForOthersATokenizerJsonWithTheSameIds) {
  const auto bytes = make_byte_tokenizer();
  EXPECT_TRUE(read_tokenizer_parts("bytes", *bytes)->empty());
  for (const TokenizerPart& part : byte_tokenizer_parts()) write("b/" + part.file, part.content);
  const auto opened = open_tokenizer(path("b"));
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_EQ((*opened)->vocab_size(), 257u);
  EXPECT_EQ((*opened)->eos_id(), 256u);
  std::string all = kText;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  std::vector<std::uint32_t> ids, expected;
  (*opened)->encode(all, &ids);
  for (const char c : all) expected.push_back(static_cast<unsigned char>(c));
  EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace tailor::tokenizers
