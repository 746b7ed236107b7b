// Checkpoints in the coordinator's care.
#include "storage/artifacts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "base/hash.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kQuota = 1'000;

struct Checkpoint {
  ArtifactKey key;
  std::vector<ArtifactFile> files;
  std::map<std::string, std::string> contents;
};

Checkpoint checkpoint(std::uint64_t trial, std::uint32_t attempt, std::int64_t step,
                      std::size_t bytes = 100, std::uint64_t generation = 0) {
  Checkpoint made;
  made.contents["model"] = std::string(bytes, static_cast<char>('a' + step % 26));
  made.contents["manifest.json"] = "{\"step\": " + std::to_string(step) +
                                   ", \"trial\": " + std::to_string(trial) +
                                   std::to_string(attempt) + "}";
  for (const auto& [name, content] : made.contents) {
    made.files.push_back({name, content.size(), sha256_hex(content)});
  }
  made.key = {
      {TrialId{trial}, attempt}, generation, step, sha256_hex(made.contents["manifest.json"])};
  return made;
}

class ArtifactsTest : public ::testing::Test {
 protected:
  ArtifactsTest() { reopen(); }
  void reopen(std::uint64_t quota = kQuota) {
    auto opened = ArtifactStore::open(folder_.file("artifacts"), quota, &warnings_);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    store_ = *std::move(opened);
  }
  void bring(const Checkpoint& it) {
    const auto progress = store_->begin(it.key, it.files);
    ASSERT_TRUE(progress.has_value()) << progress.error().message();
    for (const auto& [name, content] : it.contents) {
      const std::uint64_t from = progress->bytes.at(name);
      ASSERT_TRUE(store_->write(it.key, name, from, content.substr(from)).is_ok());
    }
    const Status finished = store_->finish(it.key);
    ASSERT_TRUE(finished.is_ok()) << finished.message();
  }
  test::TemporaryFolder folder_;
  std::unique_ptr<ArtifactStore> store_;
  std::vector<std::string> warnings_;
};

TEST_F(ArtifactsTest, AreReadBackAsTheyWereBroughtAlsoAfterARestart) {
  const Checkpoint it = checkpoint(41, 2, 120, 100, 0x3fa);
  bring(it);
  for (int round = 0; round < 2; ++round) {
    ASSERT_THAT(store_->list(), SizeIs(1));
    EXPECT_EQ(store_->list()[0].key, it.key);
    const auto found = store_->find(TrialId{41}, it.key.sha256);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(*store_->files(it.key), it.files);
    EXPECT_EQ(*store_->read(it.key, "model", 90, 100), it.contents.at("model").substr(90));
    EXPECT_EQ(*store_->read(it.key, "model", 100, 100), "");
    EXPECT_TRUE(store_->begin(it.key, it.files)->whole);
    reopen();
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(ArtifactsTest, ATransferGoesOnWhereItEndedAfterARestart) {
  const Checkpoint it = checkpoint(1, 1, 7);
  ASSERT_TRUE(store_->begin(it.key, it.files).has_value());
  ASSERT_TRUE(store_->write(it.key, "model", 0, it.contents.at("model").substr(0, 60)).is_ok());
  EXPECT_THAT(store_->list(), IsEmpty()) << "not before it is whole and verified";
  reopen();
  EXPECT_THAT(store_->list(), IsEmpty());
  const auto progress = store_->begin(it.key, it.files);
  ASSERT_TRUE(progress.has_value());
  EXPECT_EQ(progress->bytes.at("model"), 60u);
  EXPECT_EQ(store_->write(it.key, "model", 10, "x").code(), Code::kOutOfRange);
  EXPECT_EQ(store_->write(it.key, "model", 60, std::string(41, 'x')).code(), Code::kOutOfRange)
      << "more than was announced";
  EXPECT_EQ(store_->finish(it.key).code(), Code::kFailedPrecondition);
  bring(it);
  EXPECT_THAT(store_->list(), SizeIs(1));
}

TEST_F(ArtifactsTest, BytesThatAreNotWhatWasAnnouncedAreNeverKept) {
  const Checkpoint it = checkpoint(1, 1, 7);
  ASSERT_TRUE(store_->begin(it.key, it.files).has_value());
  ASSERT_TRUE(store_->write(it.key, "model", 0, std::string(100, '?')).is_ok());
  ASSERT_TRUE(store_->write(it.key, "manifest.json", 0, it.contents.at("manifest.json")).is_ok());
  const Status refused = store_->finish(it.key);
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("model"));
  EXPECT_THAT(store_->list(), IsEmpty());
  EXPECT_EQ(store_->begin(it.key, it.files)->bytes.at("model"), 0u) << "that file starts over";
  bring(it);
}

TEST_F(ArtifactsTest, NamesAndHashesFromAfarAreChecked) {
  Checkpoint it = checkpoint(1, 1, 7);
  const auto code_of = [&](auto change) {
    Checkpoint changed = it;
    change(changed);
    const auto result = store_->begin(changed.key, changed.files);
    return result ? Code::kOk : result.error().code();
  };
  EXPECT_EQ(code_of([](Checkpoint& c) { c.files[0].name = "../x"; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](Checkpoint& c) { c.files[0].name = ".."; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](Checkpoint& c) { c.files[0].name = ""; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](Checkpoint& c) { c.files[0].sha256 = "xyz"; }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](Checkpoint& c) { c.key.sha256 = std::string(64, '0'); }),
            Code::kInvalidArgument)
      << "no manifest of that hash";
  EXPECT_EQ(code_of([](Checkpoint& c) { c.files[0].bytes = std::uint64_t{1} << 63; }),
            Code::kInvalidArgument)
      << "no file has so many bytes";
  EXPECT_EQ(code_of([](Checkpoint& c) { c.files.clear(); }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](Checkpoint& c) { c.files.push_back(c.files[0]); }), Code::kInvalidArgument);
  EXPECT_EQ(code_of([](Checkpoint&) {}), Code::kOk);
  EXPECT_EQ(code_of([](Checkpoint& c) { c.files[1].bytes = 7; }), Code::kFailedPrecondition);
  EXPECT_EQ(store_->write(it.key, "other", 0, "x").code(), Code::kNotFound);
  EXPECT_FALSE(store_->read(it.key, "model", 0, 1).has_value()) << "it is not whole";
}

TEST_F(ArtifactsTest, TheQuotaBoundsWhatIsThereAndWhatIsOnItsWay) {
  bring(checkpoint(1, 1, 1, 400));
  const Checkpoint second = checkpoint(2, 1, 1, 400);
  ASSERT_TRUE(store_->begin(second.key, second.files).has_value());
  const Checkpoint third = checkpoint(3, 1, 1, 400);
  const auto refused = store_->begin(third.key, third.files);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kResourceExhausted);
  // Sizes that together are a small number modulo 2^64.
  Checkpoint huge = checkpoint(4, 1, 1);
  for (ArtifactFile& file : huge.files) {
    if (file.name == "model") file.bytes = std::numeric_limits<std::int64_t>::max();
  }
  const ArtifactFile model = huge.files[1];
  ASSERT_EQ(model.name, "model");
  for (int i = 0; i < 3; ++i) {
    huge.files.push_back(model);
    huge.files.back().name += std::to_string(i);
  }
  EXPECT_EQ(store_->begin(huge.key, huge.files).error().code(), Code::kResourceExhausted);
  ASSERT_TRUE(store_->remove(second.key).is_ok());
  EXPECT_TRUE(store_->begin(third.key, third.files).has_value());
  store_->remove_stale_parts(std::int64_t{1} << 40);
  EXPECT_LT(store_->bytes(), 500u);
  EXPECT_THAT(store_->list(), SizeIs(1)) << "what is whole stays";
}

TEST_F(ArtifactsTest, WhatIsDamagedIsNamedAndLeftAlone) {
  bring(checkpoint(1, 1, 1));
  fs::create_directories(folder_.file("artifacts/t2/odd"));
  fs::create_directories(folder_.file("artifacts/not-a-trial"));
  std::ofstream(folder_.file("artifacts/t2/odd/files.json")) << "{";
  reopen();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("t2/odd")));
  EXPECT_THAT(store_->list(), SizeIs(1));
  EXPECT_TRUE(fs::exists(folder_.file("artifacts/t2/odd/files.json")));
}

TEST(ArtifactGarbage, NeverHoldsTheLastCheckpointOfATrialThatGoesOn) {
  const auto artifact = [](std::uint64_t trial, std::uint32_t attempt, std::int64_t step) {
    return Artifact{checkpoint(trial, attempt, step).key, 100};
  };
  const Artifact open_old = artifact(1, 1, 10), open_new = artifact(1, 2, 20);
  const Artifact ended_old = artifact(2, 1, 5), ended_new = artifact(2, 1, 6);
  const Artifact completed = artifact(3, 1, 9), unknown = artifact(4, 1, 9);
  const Garbage garbage =
      garbage_of({open_old, open_new, ended_old, ended_new, completed, unknown}, [](TrialId trial) {
        return trial.value == 1   ? ArtifactUse::kOpen
               : trial.value == 2 ? ArtifactUse::kEnded
               : trial.value == 3 ? ArtifactUse::kCompleted
                                  : ArtifactUse::kUnknown;
      });
  EXPECT_THAT(garbage.now, ElementsAre(open_old.key, ended_old.key, completed.key));
  EXPECT_THAT(garbage.for_space, ElementsAre(ended_new.key, unknown.key));
}

}  // namespace
}  // namespace tailor::storage
