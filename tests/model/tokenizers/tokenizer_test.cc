#include "model/tokenizers/tokenizer.h"

#include <gtest/gtest.h>

namespace tailor::tokenizers {
namespace {

TEST(ByteTokenizer, GivesTheBytesAndNeverTheEnd) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->vocab_size(), 257u);
  EXPECT_EQ(tokenizer->eos_id(), 256u);
  std::vector<std::uint32_t> ids;
  tokenizer->encode("A\xC3\xA9", &ids);
  EXPECT_EQ(ids, (std::vector<std::uint32_t>{65, 195, 169}));
}

TEST(ByteTokenizer, DecodesToTheSameText) {
  const auto tokenizer = make_byte_tokenizer()->clone();
  const std::string text("tab\t\0nul, \r\n \xF0\x9F\x98\x80", 18);
  std::vector<std::uint32_t> ids;
  tokenizer->encode(text, &ids);
  ids.push_back(tokenizer->eos_id());
  EXPECT_EQ(tokenizer->decode(ids).value(), text);
}

TEST(ByteTokenizer, AnIdOutsideTheVocabularyIsRefused) {
  const std::vector<std::uint32_t> ids{257};
  EXPECT_EQ(make_byte_tokenizer()->decode(ids).error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tailor::tokenizers
