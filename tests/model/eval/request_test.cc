#include "model/eval/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/eval/task.h"
#include "tests/model/eval/reference_items.h"

namespace tailor::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Ids of bytes, but "ab" and " x" are one id each (300, 301):
/// the pair's ids are not those of its parts.
class PairTokenizer final : public tokenizers::Tokenizer {
 public:
  std::uint32_t vocab_size() const override { return 302; }
  std::uint32_t eos_id() const override { return 256; }
  std::string sha256() const override { return "pair"; }
  void encode(std::string_view text, std::vector<std::uint32_t>* ids) override {
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::string_view two = text.substr(i, 2);
      if (two == "ab" || two == " x") {
        ids->push_back(two == "ab" ? 300 : 301);
        ++i;
      } else {
        ids->push_back(static_cast<unsigned char>(text[i]));
      }
    }
  }
  Result<std::string> decode(std::span<const std::uint32_t>) const override { return ""; }
  std::unique_ptr<Tokenizer> clone() const override { return std::make_unique<PairTokenizer>(); }
};

const Encoding kPlain = {std::nullopt, 256, 302, 100};
const Encoding kWithBos = {257, 257, 302, 100};

TEST(EvalRequestTest, EncodesThePairAsOneTextAndSplitsItByTheContextsLength) {
  PairTokenizer tokenizer;
  // "a" + "b" is the one id 300: nothing of the continuation is left to score.
  EXPECT_THAT(encode_request(tokenizer, kPlain, "a", "b").error().message(),
              HasSubstr("adds no token"));
  const auto request = encode_request(tokenizer, kPlain, "ca", "bx");
  ASSERT_TRUE(request.has_value());
  EXPECT_THAT(request->ids, ElementsAre('c', 300, 'x'));
  EXPECT_EQ(request->context_ids, 2u);
  EXPECT_EQ(request->scored, 1u);
}

TEST(EvalRequestTest, MovesWhiteSpaceAtTheContextsEndToTheContinuation) {
  PairTokenizer tokenizer;
  const auto request = encode_request(tokenizer, kPlain, "c\n ", "x");
  ASSERT_TRUE(request.has_value());
  EXPECT_THAT(request->ids, ElementsAre('c', '\n', 301));
  EXPECT_EQ(request->scored, 2u);
}

TEST(EvalRequestTest, PutsBosInFrontOnlyWhereTheTokenizerDoes) {
  PairTokenizer tokenizer;
  EXPECT_THAT(encode_request(tokenizer, kPlain, "c", " x")->ids, ElementsAre('c', 301));
  const auto request = encode_request(tokenizer, kWithBos, "c", " x");
  EXPECT_THAT(request->ids, ElementsAre(257, 'c', 301));
  EXPECT_EQ(request->context_ids, 2u);
  EXPECT_EQ(request->scored, 1u);
}

TEST(EvalRequestTest, ReplacesAnEmptyContextByThePrefix) {
  PairTokenizer tokenizer;
  EXPECT_THAT(encode_request(tokenizer, kPlain, "", "c")->ids, ElementsAre(256, 'c'));
  EXPECT_THAT(encode_request(tokenizer, kWithBos, "", "c")->ids, ElementsAre(257, 'c'));
  const auto spaces = encode_request(tokenizer, kPlain, " ", "x");
  EXPECT_THAT(spaces->ids, ElementsAre(256, 301));
  EXPECT_EQ(spaces->scored, 1u);
}

TEST(EvalRequestTest, CutsFromTheLeftToOneMoreThanTheModelReads) {
  PairTokenizer tokenizer;
  Encoding encoding = kPlain;
  encoding.sequence_length = 4;
  const auto fits = encode_request(tokenizer, encoding, "123", "45");
  EXPECT_THAT(fits->ids, ElementsAre('1', '2', '3', '4', '5'));
  EXPECT_EQ(fits->cut, 0u);
  const auto cut = encode_request(tokenizer, encoding, "0123", "45");
  EXPECT_THAT(cut->ids, ElementsAre('1', '2', '3', '4', '5'));
  EXPECT_EQ(cut->cut, 1u);
  EXPECT_EQ(cut->context_ids, 4u);
  EXPECT_EQ(cut->scored, 2u);
  // As long as the model reads: the last id of the context is all that is left of it.
  EXPECT_EQ(encode_request(tokenizer, encoding, "0123", "4567")->scored, 4u);
  EXPECT_THAT(encode_request(tokenizer, encoding, "0123", "45678").error().message(),
              HasSubstr("5 tokens, but the model reads 4"));
}

TEST(EvalRequestTest, RefusesIdsThatTheModelDoesNotKnow) {
  PairTokenizer tokenizer;
  Encoding encoding = kPlain;
  encoding.vocab_size = 256;
  EXPECT_TRUE(encode_request(tokenizer, encoding, "a", "c").has_value());
  EXPECT_THAT(encode_request(tokenizer, encoding, "", "c").error().message(),
              HasSubstr("token id 256 is outside the model's vocabulary of 256"));
}

// context_tokens and continuation_tokens of the harness's run with one id a byte.
TEST(EvalRequestTest, SplitsTheReferenceItemsAsTheHarnessDoes) {
  const auto tokenizer = tokenizers::make_byte_tokenizer();
  const Encoding encoding = {std::nullopt, 256, 257, 1024};
  for (const auto& [task, run] : reference_scoring()["byte_model_run"]["tasks"].items()) {
    const std::vector<Item> items = reference_items(task);
    ASSERT_EQ(items.size(), run["per_item"].size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      for (std::size_t c = 0; c < items[i].choices.size(); ++c) {
        const auto request = encode_request(*tokenizer, encoding, items[i].context,
                                            std::string(kChoiceDelimiter) + items[i].choices[c]);
        ASSERT_TRUE(request.has_value());
        EXPECT_EQ(request->context_ids, run["per_item"][i]["context_tokens"]);
        EXPECT_EQ(request->scored, run["per_item"][i]["continuation_tokens"][c]);
      }
    }
  }
}

}  // namespace
}  // namespace tailor::eval
