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
    store_.reset();  // two may not have the folder
    auto opened = ArtifactStore::open(folder_.file("artifacts"), quota, "db1", &warnings_);
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
  ASSERT_TRUE(store_->remove(third.key).is_ok());
  EXPECT_LT(store_->bytes(), 500u);
  EXPECT_THAT(store_->list(), SizeIs(1));
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

TEST_F(ArtifactsTest, WhatIsWholeTakesThePlaceOfWhatCouldNotBeRead) {
  const Checkpoint it = checkpoint(1, 1, 7);
  bring(it);
  std::string folder;
  for (const auto& at : fs::recursive_directory_iterator(folder_.file("artifacts"))) {
    if (at.path().filename() == "files.json") folder = at.path().parent_path();
  }
  ASSERT_FALSE(folder.empty());
  std::ofstream(folder + "/files.json") << "{";
  reopen();
  ASSERT_THAT(store_->list(), IsEmpty());
  ASSERT_THAT(warnings_, SizeIs(1));
  bring(it);
  EXPECT_THAT(store_->list(), SizeIs(1));
  warnings_.clear();
  reopen();
  EXPECT_THAT(store_->list(), SizeIs(1));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(ArtifactsTest, SumsOfSizesAreExactAlsoBeyondTheGreatestNumber) {
  ByteSum sum;
  const std::uint64_t half = std::uint64_t{1} << 63;
  sum.add(5);
  sum.add(half);
  sum.add(half);
  EXPECT_EQ(sum.value(), std::numeric_limits<std::uint64_t>::max());
  sum.take(half);
  EXPECT_EQ(sum.value(), half + 5);
  sum.take(half);
  EXPECT_EQ(sum.value(), 5u);
}

TEST_F(ArtifactsTest, WhatIsRemovedIsTakenFromTheSum) {
  const Checkpoint a = checkpoint(1, 1, 7, 100), b = checkpoint(2, 1, 7, 50);
  bring(a);
  bring(b);
  const std::uint64_t of_b = 50 + b.contents.at("manifest.json").size();
  ASSERT_TRUE(store_->remove(a.key).is_ok());
  EXPECT_EQ(store_->bytes(), of_b);
  ASSERT_TRUE(store_->remove(a.key).is_ok()) << "again is nothing new";
  EXPECT_EQ(store_->bytes(), of_b);
  ASSERT_TRUE(store_->remove(b.key).is_ok());
  EXPECT_EQ(store_->bytes(), 0u);
}

TEST_F(ArtifactsTest, PartsAreListedWithTheirTrialAndWhenTheyWereWritten) {
  const Checkpoint whole = checkpoint(1, 1, 1), part = checkpoint(1, 1, 2),
                   other = checkpoint(2, 1, 1);
  bring(whole);
  ASSERT_TRUE(store_->begin(part.key, part.files).has_value());
  ASSERT_TRUE(store_->begin(other.key, other.files).has_value());
  for (int round = 0; round < 2; ++round) {
    const std::vector<Artifact> found = store_->list(TrialId{1});
    ASSERT_THAT(found, SizeIs(2));
    EXPECT_TRUE(found[0].whole);
    EXPECT_EQ(found[1].key, part.key);
    EXPECT_FALSE(found[1].whole);
    EXPECT_GT(found[1].written_s, 1'500'000'000);
    EXPECT_LT(found[1].written_s, 5'000'000'000);
    EXPECT_THAT(store_->trials(), ElementsAre(TrialId{1}, TrialId{2}));
    reopen();
  }
  ASSERT_TRUE(store_->remove(part.key).is_ok());
  EXPECT_THAT(store_->trials_with_parts(), ElementsAre(TrialId{2}));
  EXPECT_EQ(store_->write(part.key, "model", 0, "x").code(), Code::kNotFound);
  EXPECT_EQ(store_->begin(part.key, part.files)->bytes.at("model"), 0u) << "announced anew";
}

TEST_F(ArtifactsTest, AFolderBelongsToOneProcessAndOneDatabase) {
  const std::string root = folder_.file("artifacts");
  bring(checkpoint(1, 1, 1));
  const auto second = ArtifactStore::open(root, kQuota, "db1", &warnings_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  store_.reset();
  const auto other = ArtifactStore::open(root, kQuota, "db2", &warnings_);
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code(), Code::kAborted);
  EXPECT_THAT(other.error().message(), HasSubstr("--artifacts"));
  reopen();
  EXPECT_THAT(store_->list(), SizeIs(1));
  EXPECT_THAT(warnings_, IsEmpty());
}

ArtifactNeeds needs_of(ArtifactUse use, const std::vector<Artifact>& named) {
  ArtifactNeeds needs{use, {}};
  for (const Artifact& one : named) {
    needs.named.emplace(one.key.attempt.number, one.key.step, one.key.sha256);
  }
  return needs;
}
Artifact whole(std::uint32_t attempt, std::int64_t step, std::uint64_t generation = 0) {
  return {checkpoint(1, attempt, step, 100, generation).key, 100, true, 0};
}
Artifact part(std::uint32_t attempt, std::int64_t step, std::int64_t written_s) {
  return {checkpoint(1, attempt, step).key, 100, false, written_s};
}
constexpr PartAges kAges{1'000, 2'000};

TEST(ArtifactGarbage, NeverHoldsTheLastCheckpointOfATrialThatGoesOn) {
  const std::vector<Artifact> all = {whole(1, 10), whole(1, 20)};
  const auto of = [&](ArtifactUse use) { return garbage_of(all, needs_of(use, all), kAges); };
  EXPECT_THAT(of(ArtifactUse::kOpen).now, ElementsAre(all[0].key));
  EXPECT_THAT(of(ArtifactUse::kOpen).ended, IsEmpty());
  EXPECT_THAT(of(ArtifactUse::kEnded).now, ElementsAre(all[0].key));
  EXPECT_THAT(of(ArtifactUse::kEnded).ended, ElementsAre(all[1].key));
  EXPECT_THAT(of(ArtifactUse::kCompleted).now, ElementsAre(all[0].key, all[1].key));
  EXPECT_THAT(of(ArtifactUse::kUnknown).now, ElementsAre(all[0].key));
}

TEST(ArtifactGarbage, TheLastAttemptsCheckpointIsTheNewestAlsoWhenItStartedOver) {
  const std::vector<Artifact> all = {whole(1, 1'000), whole(2, 900)};
  EXPECT_THAT(garbage_of(all, needs_of(ArtifactUse::kOpen, all), kAges).now,
              ElementsAre(all[0].key));
  const std::vector<Artifact> restored = {whole(2, 1'000), whole(1, 900, 0x3fa)};
  EXPECT_THAT(garbage_of(restored, needs_of(ArtifactUse::kOpen, restored), kAges).now,
              ElementsAre(restored[0].key));
}

// A restored database: the folder has what it does not know.
TEST(ArtifactGarbage, WhatAnotherHistoryLeftSupersedesNothing) {
  const Artifact ours = whole(1, 50), theirs = whole(1, 100);
  for (const ArtifactUse use : {ArtifactUse::kOpen, ArtifactUse::kEnded}) {
    const Garbage garbage = garbage_of({ours, theirs}, needs_of(use, {ours}), kAges);
    EXPECT_THAT(garbage.now, IsEmpty());
    EXPECT_THAT(garbage.others, ElementsAre(theirs.key));
  }
  const Garbage unknown = garbage_of({ours, theirs}, {}, kAges);
  EXPECT_THAT(unknown.now, IsEmpty());
  EXPECT_THAT(unknown.others, ElementsAre(ours.key, theirs.key));
}

TEST(ArtifactGarbage, PartsGoWhenANewerOneComesOrNobodyWritesToThem) {
  const Artifact last = whole(1, 10), old = part(1, 20, 5'000), coming = part(1, 30, 5'000);
  const Garbage replaced =
      garbage_of({last, old, coming}, needs_of(ArtifactUse::kOpen, {last, old, coming}), kAges);
  EXPECT_THAT(replaced.now, ElementsAre(old.key)) << "the last whole one stays";
  const auto of = [&](std::int64_t written_s) {
    const Artifact one = part(1, 30, written_s);
    return garbage_of({last, one}, needs_of(ArtifactUse::kOpen, {last, one}), kAges);
  };
  EXPECT_THAT(of(999).now, SizeIs(1)) << "stale";
  EXPECT_THAT(of(1'500).now, IsEmpty());
  EXPECT_THAT(of(1'500).idle, SizeIs(1)) << "when space is needed";
  EXPECT_THAT(of(5'000).idle, IsEmpty()) << "somebody writes to it";
}

}  // namespace
}  // namespace tailor::storage
