#include "model/data/token_shard.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <numeric>

#include "tests/model/data/temporary_folder.h"

namespace tailor::data {
namespace {

class TokenShard : public TemporaryFolder {
 protected:
  /// Opens, verifies and reads all of a shard: the first failure, naming the file, or ok.
  static Status use(const std::string& file) {
    TAILOR_ASSIGN_OR_RETURN(const TokenShardReader shard, TokenShardReader::open(file));
    TAILOR_RETURN_IF_ERROR(shard.verify());
    std::vector<std::uint32_t> ids(shard.info().token_count);
    return shard.read(0, ids);
  }
};

TEST_F(TokenShard, GivesBackWhatWasWrittenAtEveryPosition) {
  std::vector<std::uint32_t> ids(1000);
  for (std::uint32_t i = 0; i < ids.size(); ++i) ids[i] = (i * 7919u) % 1000u;
  for (const std::uint32_t vocab_size : {1000u, 70'000u}) {
    const std::string file = path("a.tokens");
    const TokenShardInfo written = write_shard(file, ids, vocab_size, 5);
    const auto shard = TokenShardReader::open(file);
    ASSERT_TRUE(shard.has_value()) << shard.error().to_string();
    EXPECT_EQ(shard->info(), written);
    EXPECT_EQ(shard->info().token_bytes, vocab_size == 1000 ? 2u : 4u);
    EXPECT_EQ(shard->info().max_id, 999u);
    EXPECT_EQ(shard->info().text_bytes, 3000u);
    EXPECT_TRUE(shard->verify().is_ok());
    for (const std::size_t start : {std::size_t{0}, std::size_t{1}, std::size_t{500}}) {
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{77}, std::size_t{500}}) {
        std::vector<std::uint32_t> out(count);
        ASSERT_TRUE(shard->read(start, out).is_ok());
        EXPECT_TRUE(std::equal(out.begin(), out.end(), ids.begin() + static_cast<long>(start)));
      }
    }
  }
}

TEST_F(TokenShard, LiesOnDiskAsTheReadmeSays) {
  write_shard(path("a.tokens"), {1, 2, 515}, 1000, 7);
  const std::string bytes = content_of(path("a.tokens"));
  ASSERT_EQ(bytes.size(), 128u + 3 * 2);
  EXPECT_EQ(bytes.substr(0, 8), "TAILORTK");
  EXPECT_EQ(bytes.substr(8, 4), std::string("\1\0\0\0", 4));             // version
  EXPECT_EQ(bytes.substr(12, 4), std::string("\2\0\0\0", 4));            // bytes a token
  EXPECT_EQ(bytes.substr(16, 8), std::string("\3\0\0\0\0\0\0\0", 8));    // tokens
  EXPECT_EQ(bytes.substr(24, 4), std::string("\xE8\3\0\0", 4));          // vocabulary 1000
  EXPECT_EQ(bytes.substr(28, 4), std::string("\7\0\0\0", 4));            // EOS
  EXPECT_EQ(bytes.substr(32, 4), std::string("\3\2\0\0", 4));            // largest id 515
  EXPECT_EQ(bytes.substr(40, 8), std::string("\x09\0\0\0\0\0\0\0", 8));  // text bytes
  EXPECT_EQ(bytes.substr(128), std::string("\1\0\2\0\3\2", 6));
  const auto shard = TokenShardReader::open(path("a.tokens"));
  ASSERT_TRUE(shard.has_value());
  EXPECT_EQ(shard->info().sha256, sha256_hex(bytes.substr(128) + bytes.substr(0, 96)));
}

TEST_F(TokenShard, CutAtAnyLengthIsDataLossThatNamesTheFile) {
  write_shard(path("a.tokens"), std::vector<std::uint32_t>(60, 9));
  const std::string whole = content_of(path("a.tokens"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const std::string file = write("cut.tokens", whole.substr(0, size));
    const Status status = use(file);
    ASSERT_EQ(status.code(), Code::kDataLoss) << "cut to " << size << ": " << status.to_string();
    ASSERT_NE(status.message().find(file), std::string::npos);
  }
}

TEST_F(TokenShard, AnyAlteredByteIsDataLossThatNamesTheFile) {
  write_shard(path("a.tokens"), std::vector<std::uint32_t>(40, 9));
  const std::string whole = content_of(path("a.tokens"));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0, 7}) {
      std::string altered = whole;
      altered[at] = static_cast<char>(altered[at] ^ (1 << bit));
      const std::string file = write("altered.tokens", altered);
      const Status status = use(file);
      ASSERT_EQ(status.code(), Code::kDataLoss) << "byte " << at << ": " << status.to_string();
      ASSERT_NE(status.message().find(file), std::string::npos);
    }
  }
}

TEST_F(TokenShard, AlteredHeaderIsSeenAtOpenBeforeAnyTokenIsRead) {
  write_shard(path("a.tokens"), {1, 2, 3});
  std::string altered = content_of(path("a.tokens"));
  altered[24] = static_cast<char>(altered[24] ^ 1);
  const auto shard = TokenShardReader::open(write("b.tokens", altered));
  ASSERT_FALSE(shard.has_value());
  EXPECT_EQ(shard.error().code(), Code::kDataLoss);
}

TEST_F(TokenShard, AppendedBytesAreDataLoss) {
  write_shard(path("a.tokens"), {1, 2, 3});
  for (const std::string_view more : {"x", "xy", "xyzw"}) {
    const std::string file = write("b.tokens", content_of(path("a.tokens")) + std::string(more));
    EXPECT_EQ(use(file).code(), Code::kDataLoss);
  }
}

TEST_F(TokenShard, CutWhileOpenIsAnErrorAndNoCrash) {
  write_shard(path("a.tokens"), std::vector<std::uint32_t>(100'000, 9));
  const auto shard = TokenShardReader::open(path("a.tokens"));
  ASSERT_TRUE(shard.has_value());
  std::filesystem::resize_file(path("a.tokens"), 1000);
  std::vector<std::uint32_t> ids(100'000);
  EXPECT_EQ(shard->read(0, ids).code(), Code::kDataLoss);
  EXPECT_EQ(shard->verify().code(), Code::kDataLoss);
}

TEST_F(TokenShard, AnIdOutsideTheVocabularyIsRefusedByTheWriter) {
  auto writer = TokenShardWriter::create(path("a.tokens"), 10, 0, sha256_hex("x"));
  ASSERT_TRUE(writer.has_value());
  const Status status = writer->append(std::vector<std::uint32_t>{9, 10}, 0, 0);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("10"), std::string::npos);
}

TEST_F(TokenShard, AnIdOutsideTheVocabularyIsRefusedByTheReader) {
  write_shard(path("a.tokens"), {1, 2, 3}, 10);
  std::string altered = content_of(path("a.tokens"));
  altered[128] = 10;
  const auto shard = TokenShardReader::open(write("b.tokens", altered));
  ASSERT_TRUE(shard.has_value());
  std::vector<std::uint32_t> ids(3);
  const Status status = shard->read(0, ids);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_NE(status.message().find(path("b.tokens")), std::string::npos);
  EXPECT_NE(status.message().find("outside the vocabulary"), std::string::npos);
}

TEST_F(TokenShard, AppearsUnderItsNameOnlyWhenFinished) {
  write_shard(path("a.tokens"), {1});
  const std::string before = content_of(path("a.tokens"));
  {
    auto writer = TokenShardWriter::create(path("a.tokens"), 10, 0, sha256_hex("x"));
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE(writer->append(std::vector<std::uint32_t>(600'000, 3), 0, 0).is_ok());
    EXPECT_EQ(content_of(path("a.tokens")), before);
  }
  EXPECT_EQ(content_of(path("a.tokens")), before);
  EXPECT_FALSE(std::filesystem::exists(path("a.tokens.partial")));
}

TEST_F(TokenShard, TwoWritersOfOneShardAreRefused) {
  auto first = TokenShardWriter::create(path("a.tokens"), 10, 0, sha256_hex("x"));
  ASSERT_TRUE(first.has_value());
  const auto second = TokenShardWriter::create(path("a.tokens"), 10, 0, sha256_hex("x"));
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(first->finish().has_value());
}

TEST_F(TokenShard, AMissingFileAndAFolderAreTypedErrors) {
  EXPECT_EQ(TokenShardReader::open(path("none.tokens")).error().code(), Code::kNotFound);
  EXPECT_EQ(TokenShardReader::open(folder_.string()).error().code(), Code::kInvalidArgument);
}

TEST_F(TokenShard, ANamedPipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("pipe.tokens").c_str(), 0600), 0);
  EXPECT_EQ(TokenShardReader::open(path("pipe.tokens")).error().code(), Code::kInvalidArgument);
}

TEST_F(TokenShard, AWriteThatFailsIsReported) {
  EXPECT_EQ(
      TokenShardWriter::create(path("no/folder/a.tokens"), 10, 0, sha256_hex("x")).error().code(),
      Code::kNotFound);
  EXPECT_EQ(TokenShardWriter::create(path("a.tokens"), 10, 10, sha256_hex("x")).error().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace tailor::data
