#include "model/data/manifest.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "model/data/prepare.h"
#include "tests/model/data/temporary_folder.h"

namespace tailor::data {
namespace {

class Manifest : public TemporaryFolder {
 protected:
  void SetUp() override {
    for (int i = 0; i < 40; ++i)
      write("c/" + std::to_string(i) + ".txt", "text " + std::to_string(i));
    PrepareOptions options;
    options.folder = path("d");
    options.tokenizer_name = "bytes";
    options.validation_fraction = 0.3;
    const auto prepared = prepare_dataset({path("c")}, *tokenizers::make_byte_tokenizer(), options);
    ASSERT_TRUE(prepared.has_value()) << prepared.error().to_string();
    manifest_ = prepared->manifest;
    text_ = content_of(path("d/dataset.json"));
  }

  std::vector<Status> problems() {
    auto found = verify_dataset(path("d"));
    EXPECT_TRUE(found.has_value()) << found.error().to_string();
    return std::move(found).value_or(std::vector<Status>{});
  }

  DatasetManifest manifest_;
  std::string text_;
};

TEST_F(Manifest, ComesBackAsItWasWritten) {
  EXPECT_EQ(format_manifest(manifest_), text_);
  const auto parsed = parse_manifest(text_, "x");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().to_string();
  EXPECT_EQ(*parsed, manifest_);
  EXPECT_TRUE(problems().empty());
}

TEST_F(Manifest, CutOrAlteredAnywhereIsAnErrorThatNamesIt) {
  for (std::size_t size = 0; size + 2 < text_.size(); size += 13) {
    const auto parsed = parse_manifest(text_.substr(0, size), "the file");
    ASSERT_FALSE(parsed.has_value()) << size;
    EXPECT_EQ(parsed.error().code(), Code::kDataLoss);
    EXPECT_NE(parsed.error().message().find("the file"), std::string::npos);
  }
  for (std::size_t at = 0; at < text_.size(); ++at) {
    if (text_[at] < '0' || text_[at] > '9') continue;  // every digit of every number and hash
    std::string altered = text_;
    altered[at] = altered[at] == '9' ? '8' : static_cast<char>(altered[at] + 1);
    EXPECT_FALSE(parse_manifest(altered, "x").has_value()) << at << ": " << text_.substr(at, 30);
  }
}

// What versions wrote that knew neither the tokenizer's files nor what was passed over.
TEST_F(Manifest, OlderOnesAreReadAndNewMembersComeBack) {
  const auto json = nlohmann::json::parse(text_);
  for (const char* name : {"passed_over", "warnings"}) EXPECT_FALSE(json.contains(name)) << name;
  for (const char* name : {"files", "bos_id"}) EXPECT_FALSE(json["tokenizer"].contains(name));
  manifest_.tokenizer.bos_id = 0;
  manifest_.tokenizer.files = {{"tokenizer.json", 3, sha256_hex("x")},
                               {"tokenizer_config.json", 4, sha256_hex("y")}};
  manifest_.passed_over = {{".png", 2, "a.png"}};
  manifest_.warnings = {"a sentence"};
  const auto parsed = parse_manifest(format_manifest(manifest_), "x");
  ASSERT_TRUE(parsed.has_value()) << parsed.error().to_string();
  EXPECT_EQ(*parsed, manifest_);
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(nlohmann::json::parse(format_manifest(manifest_))["version"], 2);
  EXPECT_EQ(*parse_tokenizer(format_tokenizer(manifest_.tokenizer), "x"), manifest_.tokenizer);
  EXPECT_EQ(parse_tokenizer("[]", "x").error().code(), Code::kDataLoss);
  for (const char* name : {"../tokenizer.json", "train-00000.tokens", "tokenizer.json.new", ""}) {
    manifest_.tokenizer.files[0].file = name;
    EXPECT_EQ(parse_manifest(format_manifest(manifest_), "x").error().code(), Code::kDataLoss);
  }
}

TEST_F(Manifest, BytesBehindItAreDamage) {
  using namespace std::string_literals;
  for (const std::string& more : {"\0"s, "\0garbage"s, "{}"s, "x"s}) {
    const auto parsed = parse_manifest(text_ + more, "x");
    ASSERT_FALSE(parsed.has_value());
    EXPECT_EQ(parsed.error().code(), Code::kDataLoss);
  }
}

TEST_F(Manifest, ANewerVersionSaysSo) {
  auto json = nlohmann::ordered_json::parse(text_);
  json["version"] = 3;
  const auto parsed = parse_manifest(json.dump(), "x");
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code(), Code::kUnimplemented);
}

TEST_F(Manifest, AShardOutsideTheFolderIsNoShard) {
  manifest_.splits[kTrain].shards[0].file = "../x.tokens";
  EXPECT_EQ(parse_manifest(format_manifest(manifest_), "x").error().code(), Code::kDataLoss);
}

TEST_F(Manifest, NamesThatAreNoUtf8CanBeWritten) {
  EXPECT_EQ(utf8_name("caf\xe9/\xff.txt"), "caf\\xe9/\\xff.txt");
  EXPECT_EQ(utf8_name("größe.txt"), "größe.txt");
  manifest_.sources[0].name = utf8_name("caf\xe9.txt");
  EXPECT_EQ(*parse_manifest(format_manifest(manifest_), "x"), manifest_);
}

TEST_F(Manifest, VerifyFindsWhatIsMissingAlteredSwappedOrTooMuch) {
  const std::string shard = path("d/train-00000.tokens");
  const std::string whole = content_of(shard);
  std::string altered = whole;
  altered[150] = static_cast<char>(altered[150] ^ 1);
  write("d/train-00000.tokens", altered);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_NE(problems()[0].message().find(shard), std::string::npos);

  // A whole shard, but another one.
  std::filesystem::copy_file(path("d/validation-00000.tokens"), shard,
                             std::filesystem::copy_options::overwrite_existing);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_NE(problems()[0].message().find("SHA-256"), std::string::npos);

  std::filesystem::remove(shard);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_EQ(problems()[0].code(), Code::kNotFound);

  write("d/train-00000.tokens", whole);
  write("d/train-00001.tokens", whole);
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_NE(problems()[0].message().find("train-00001.tokens"), std::string::npos);
}

TEST_F(Manifest, AFolderWithoutOneSaysWhatToDo) {
  std::filesystem::remove(path("d/dataset.json"));
  const auto missing = verify_dataset(path("d"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_NE(missing.error().message().find("tailor data prepare"), std::string::npos);
  EXPECT_EQ(verify_dataset(path("none")).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace tailor::data
