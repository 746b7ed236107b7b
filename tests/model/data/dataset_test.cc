#include "model/data/dataset.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/text.h"
#include "tests/model/data/temporary_folder.h"

namespace tailor::data {
namespace {

class DatasetTest : public TemporaryFolder {
 protected:
  void SetUp() override {
    write_shard(path("x-train-00000.tokens"), {0, 1, 2, 3});
    write_shard(path("x-train-00001.tokens"), {});
    write_shard(path("x-train-00002.tokens"), {4});
    write_shard(path("x-train-00010.tokens"), {5, 6, 7, 8, 9});
  }
};

TEST_F(DatasetTest, ShardsAreOneStreamInTheOrderOfTheirNames) {
  const auto dataset = Dataset::open_glob(path("x-train-*.tokens"), {});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().to_string();
  EXPECT_EQ(dataset->token_count(), 10u);
  EXPECT_EQ(dataset->text_bytes(), 30u);
  for (std::uint64_t start = 0; start <= 10; ++start) {
    for (std::uint64_t count = 0; start + count <= 10; ++count) {
      std::vector<std::uint32_t> out(count);
      std::vector<std::uint32_t> expected(count);
      std::iota(expected.begin(), expected.end(), static_cast<std::uint32_t>(start));
      ASSERT_TRUE(dataset->read(start, out).is_ok());
      EXPECT_EQ(out, expected) << start;
    }
  }
}

TEST_F(DatasetTest, TheContentHashIsThatOfTheTokensAndNotOfThePlace) {
  const auto a = Dataset::open_glob(path("x-train-*.tokens"), {});
  std::filesystem::create_directories(path("elsewhere"));
  for (const char* name : {"0", "1", "2", "10"}) {
    const std::string full = std::string("x-train-") + (name[1] == 0 ? "0000" : "000") + name;
    std::filesystem::copy_file(path(full + ".tokens"), path("elsewhere/" + full + ".tokens"));
  }
  const auto b = Dataset::open_glob(path("elsewhere/*.tokens"), {});
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(a->content_hash(), b->content_hash());
  EXPECT_EQ(a->content_hash().size(), 64u);
  write_shard(path("elsewhere/x-train-00002.tokens"), {3});
  const auto c = Dataset::open_glob(path("elsewhere/*.tokens"), {});
  ASSERT_TRUE(c.has_value());
  EXPECT_NE(c->content_hash(), a->content_hash());
}

TEST_F(DatasetTest, ATokenIdOutsideTheModelsVocabularyNamesTheFile) {
  const auto result = Dataset::open_glob(path("x-train-*.tokens"), {.vocab_size = 9});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_NE(result.error().message().find("x-train-00010.tokens"), std::string::npos);
  EXPECT_NE(result.error().message().find("outside the model's vocabulary of 9"),
            std::string::npos);
  EXPECT_TRUE(Dataset::open_glob(path("x-train-*.tokens"), {.vocab_size = 10}).has_value());
}

TEST_F(DatasetTest, AnAlteredShardIsFoundAtOpenUnlessVerifyingIsOff) {
  std::string altered = content_of(path("x-train-00010.tokens"));
  altered.back() = 1;
  write("x-train-00010.tokens", altered);
  const auto result = Dataset::open_glob(path("x-train-*.tokens"), {});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), Code::kDataLoss);
  EXPECT_NE(result.error().message().find("x-train-00010.tokens"), std::string::npos);
  EXPECT_TRUE(Dataset::open_glob(path("x-train-*.tokens"), {.verify = false}).has_value());
}

TEST_F(DatasetTest, ShardsOfDifferentTokenizersDoNotMix) {
  write_shard(path("x-train-00011.tokens"), {1}, 1000, 0, "another");
  const auto result = Dataset::open_glob(path("x-train-*.tokens"), {});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  const auto train = Dataset::open({path("x-train-00000.tokens")}, {});
  const auto other = Dataset::open({path("x-train-00011.tokens")}, {});
  const auto same = Dataset::open({path("x-train-00002.tokens")}, {});
  ASSERT_TRUE(train.has_value() && other.has_value() && same.has_value());
  EXPECT_EQ(check_same_tokenizer(*train, *other).code(), Code::kInvalidArgument);
  EXPECT_TRUE(check_same_tokenizer(*train, *same).is_ok());
}

TEST_F(DatasetTest, NothingToReadIsATypedError) {
  EXPECT_EQ(Dataset::open_glob(path("none-*.tokens"), {}).error().code(), Code::kNotFound);
  const auto no_folder = Dataset::open_glob(path("none/*.tokens"), {});
  EXPECT_EQ(no_folder.error().code(), Code::kNotFound);
  EXPECT_NE(no_folder.error().message().find("none/*.tokens"), std::string::npos);
  EXPECT_EQ(Dataset::open_glob(" , ", {}).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Dataset::open({}, {}).error().code(), Code::kInvalidArgument);
  const auto empty = Dataset::open({path("x-train-00001.tokens")}, {});
  EXPECT_EQ(empty.error().code(), Code::kInvalidArgument);
  EXPECT_NE(empty.error().message().find("x-train-00001.tokens"), std::string::npos);
}

TEST_F(DatasetTest, SeveralPatternsKeepTheirOrder) {
  const auto dataset =
      Dataset::open_glob(path("x-train-00010.tokens") + ", " + path("x-train-0000?.tokens"), {});
  ASSERT_TRUE(dataset.has_value()) << dataset.error().to_string();
  std::vector<std::uint32_t> out(10);
  ASSERT_TRUE(dataset->read(0, out).is_ok());
  EXPECT_EQ(out, (std::vector<std::uint32_t>{5, 6, 7, 8, 9, 0, 1, 2, 3, 4}));
}

TEST_F(DatasetTest, ABackslashMakesCommasAndBracketsOfAFolderStandForThemselves) {
  for (const char* folder :
       {"lr=0.1,k=4", "k=[4]", "k=4", "a*", "ab", "w?", "wx", R"(back\slash)", "sp ace",
        "\"quoted'", "new\nline", "-dash", "~", "$HOME", "\xC3\xA9{1,2}"}) {
    std::filesystem::create_directories(path(folder));
    write_shard(path(folder) + "/t-0.tokens", {1, 2});
    const std::string pattern = escape_pattern(path(folder)) + "/t-*.tokens";
    const auto dataset = Dataset::open_glob(pattern + "," + pattern, {});
    ASSERT_TRUE(dataset.has_value()) << dataset.error().to_string();
    ASSERT_EQ(dataset->shards().size(), 2u) << folder;
    EXPECT_EQ(dataset->shards()[0].path(), path(folder) + "/t-0.tokens");
    // Without a pattern behind it, too.
    const auto plain = Dataset::open_glob(escape_pattern(path(folder) + "/t-0.tokens"), {});
    ASSERT_TRUE(plain.has_value()) << plain.error().to_string();
    EXPECT_EQ(plain->shards()[0].path(), path(folder) + "/t-0.tokens");
  }
}

TEST_F(DatasetTest, APatternThatIsAlsoTheNameOfAnotherFileIsRefused) {
  write_shard(path("a[1].tokens"), {1});
  const auto none = Dataset::open_glob(path("a[1].tokens"), {});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), Code::kInvalidArgument);
  EXPECT_NE(none.error().message().find("backslash"), std::string::npos);
  write_shard(path("a1.tokens"), {2});
  EXPECT_EQ(Dataset::open_glob(path("a[1].tokens"), {}).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(Dataset::open_glob(path("a[12].tokens"), {}).has_value());
  EXPECT_TRUE(Dataset::open_glob(path(R"(a\[1\].tokens)"), {}).has_value());
}

// The C library's glob recurses a folder for each part with a wildcard.
TEST_F(DatasetTest, APatternOfAnyDepthIsRefused) {
  std::string deep, doubled;
  for (int i = 0; i < 100'000; ++i) {
    deep += "*/";
    doubled += "**/";
  }
  for (const std::string& pattern :
       {deep + "x.tokens", doubled + "x.tokens", std::string("*/*/*/*/*/*/*/*/*/x"),
        std::string(5000, 'a'), std::string(1'000'000, '[')}) {
    const auto dataset = Dataset::open_glob(path(pattern), {});
    ASSERT_FALSE(dataset.has_value());
    EXPECT_EQ(dataset.error().code(), Code::kInvalidArgument);
    EXPECT_LT(dataset.error().message().size(), 400u);
  }
}

}  // namespace
}  // namespace tailor::data
