#include "model/data/encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "model/data/dataset.h"
#include "tests/model/data/temporary_folder.h"

namespace tailor::data {
namespace {

class Encode : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    for (int i = 0; i < 200; ++i) {
      write("corpus/" + std::to_string(i) + ".txt", "document " + std::to_string(i) + "\n");
    }
    options_.prefix = path("out/x");
    options_.validation_fraction = 0.2;
    options_.threads = 2;
  }

  Result<EncodeSummary> encode() {
    return encode_corpus({path("corpus")}, *make_byte_tokenizer(), options_);
  }

  /// The documents of a split, as they lie in its shards.
  std::vector<std::string> documents(const std::string& split) {
    const auto dataset = Dataset::open_glob(path("out/x-" + split + "-*.tokens"), {});
    EXPECT_TRUE(dataset.has_value()) << dataset.error().to_string();
    std::vector<std::uint32_t> ids(dataset->token_count());
    EXPECT_TRUE(dataset->read(0, ids).is_ok());
    EXPECT_EQ(ids.back(), 256u);
    std::vector<std::string> all(1);
    for (const std::uint32_t id : ids) {
      if (id == 256) {
        all.emplace_back();
      } else {
        all.back() += static_cast<char>(id);
      }
    }
    all.pop_back();
    return all;
  }

  std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path(folder))) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  EncodeOptions options_;
};

TEST_F(Encode, EveryDocumentIsInOneSplitAndEndsWithEos) {
  const auto summary = encode();
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  const auto train = documents("train");
  const auto validation = documents("validation");
  std::set<std::string> all(train.begin(), train.end());
  all.insert(validation.begin(), validation.end());
  EXPECT_EQ(train.size() + validation.size(), 200u);
  EXPECT_EQ(all.size(), 200u);
  EXPECT_NEAR(static_cast<double>(validation.size()), 40, 5 * std::sqrt(200 * 0.2 * 0.8));
  EXPECT_EQ(summary->train.documents, train.size());
  EXPECT_EQ(summary->train.tokens, summary->train.bytes + train.size());
  EXPECT_EQ(summary->train.content_hash,
            Dataset::open_glob(path("out/x-train-*.tokens"), {})->content_hash());
}

TEST_F(Encode, TheSplitOfADocumentDoesNotChangeWhenTheCorpusGrowsOrMoves) {
  ASSERT_TRUE(encode().has_value());
  const auto before = documents("validation");
  for (int i = 200; i < 300; ++i) write("corpus/" + std::to_string(i) + ".txt", "new\n");
  std::filesystem::rename(path("corpus"), path("moved"));
  options_.overwrite = true;
  ASSERT_TRUE(encode_corpus({path("moved")}, *make_byte_tokenizer(), options_).has_value());
  auto after = documents("validation");
  std::erase(after, "new\n");
  EXPECT_EQ(after, before);
}

TEST_F(Encode, ALargerFractionHoldsOutTheSameDocumentsAndMore) {
  for (int i = 0; i < 1000; ++i) {
    const std::string name = std::to_string(i);
    EXPECT_FALSE(is_validation_document(name, 0));
    EXPECT_LE(is_validation_document(name, 0.1), is_validation_document(name, 0.3));
  }
}

TEST_F(Encode, TheShardsAreTheSameForAnyNumberOfThreads) {
  for (int i = 0; i < 40; ++i) {
    write("corpus/big" + std::to_string(i) + ".txt",
          std::string(300'000, static_cast<char>('a' + i % 26)));
  }
  const auto one = encode();
  options_.threads = 5;
  options_.overwrite = true;
  const auto five = encode();
  ASSERT_TRUE(one.has_value() && five.has_value());
  EXPECT_EQ(one->train.content_hash, five->train.content_hash);
  EXPECT_EQ(one->validation.content_hash, five->validation.content_hash);
}

TEST_F(Encode, LongDocumentsHaveOneEosAndShardsAreCutAtTheirSize) {
  std::filesystem::remove_all(path("corpus"));
  std::string text;
  while (text.size() < 5'000'000) text += "a line of text\n";
  write("corpus/long.txt", text);
  options_.validation_fraction = 0;
  options_.shard_tokens = 1'500'000;
  options_.corpus.piece_bytes = 100'000;
  const auto summary = encode();
  ASSERT_TRUE(summary.has_value()) << summary.error().to_string();
  EXPECT_EQ(summary->train.files.size(), 3u);
  EXPECT_EQ(documents("train"), std::vector<std::string>{text});
  EXPECT_EQ(names_in("out"),
            (std::vector<std::string>{"x-train-00000.tokens", "x-train-00001.tokens",
                                      "x-train-00002.tokens"}));
}

TEST_F(Encode, AnEarlierRunIsReplacedOnlyWhenAsked) {
  options_.shard_tokens = 1;  // one block, one shard
  ASSERT_TRUE(encode().has_value());
  write("out/x-train-00001.tokens", "of a longer earlier run");
  write("out/x-train-extra.tokens", "somebody else's");
  write("out/xy-train-00000.tokens", "another prefix");
  const auto refused = encode();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kAlreadyExists);
  options_.overwrite = true;
  ASSERT_TRUE(encode().has_value());
  EXPECT_EQ(names_in("out"),
            (std::vector<std::string>{"x-train-00000.tokens", "x-train-extra.tokens",
                                      "x-validation-00000.tokens", "xy-train-00000.tokens"}));
}

TEST_F(Encode, AFailureLeavesTheEarlierShardsAndNothingElse) {
  ASSERT_TRUE(encode().has_value());
  const auto before = content_of(path("out/x-train-00000.tokens"));
  write("corpus/zzz.txt", "bad \xff");
  options_.overwrite = true;
  const auto failed = encode();
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(content_of(path("out/x-train-00000.tokens")), before);
  EXPECT_EQ(names_in("out"),
            (std::vector<std::string>{"x-train-00000.tokens", "x-validation-00000.tokens"}));
}

TEST_F(Encode, ASplitWithoutDocumentsIsRefusedWithAdvice) {
  std::filesystem::remove_all(path("corpus"));
  write("corpus/0.txt", "one document");
  const auto result = encode();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_NE(result.error().message().find("--validation"), std::string::npos);
  EXPECT_TRUE(names_in("out").empty());
}

TEST_F(Encode, ValidationTextMayBeNamed) {
  write("held/out.txt", "held out");
  options_.validation_inputs = {path("held")};
  ASSERT_TRUE(encode().has_value());
  EXPECT_EQ(documents("validation"), std::vector<std::string>{"held out"});
  EXPECT_EQ(documents("train").size(), 200u);
}

TEST_F(Encode, ImpossibleOptionsAreRefused) {
  const auto code_with = [&](auto change) {
    EncodeOptions options = options_;
    change(&options);
    return encode_corpus({path("corpus")}, *make_byte_tokenizer(), options).error().code();
  };
  EXPECT_EQ(code_with([](auto* o) { o->validation_fraction = 1; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto* o) { o->validation_fraction = std::nan(""); }),
            Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto* o) { o->prefix = "folder/"; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto* o) { o->shard_tokens = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(code_with([](auto* o) { o->threads = 0; }), Code::kInvalidArgument);
}

}  // namespace
}  // namespace tailor::data
