// What is brought, in which order, and what becomes of what cannot be.
#include "worker/agent/uploader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/hash.h"
#include "tests/worker/agent/agent_harness.h"
#include "tests/worker/agent/temporary_folder.h"
#include "worker/agent/checkpoint_files.h"

namespace tailor::agent {
namespace {

using testing::ElementsAre;
using Step = std::pair<std::uint64_t, std::int64_t>;  // trial, step

/// Answers as it is told to; holds uploads back while it is shut.
class FakeStore final : public CheckpointStore {
 public:
  Status upload(const protocol::AttemptRef& ref, const protocol::CheckpointReport& report,
                const GiveUp& give_up) override {
    std::unique_lock lock(mutex);
    tried.push_back({ref.attempt.trial.value, report.step});
    changed.notify_all();
    while (shut) {
      if (give_up()) return {Code::kCancelled, "given up"};
      changed.wait_for(lock, std::chrono::milliseconds(5));
    }
    if (answers.empty()) return Status::ok();
    const Status answer = answers.front();
    answers.erase(answers.begin());
    return answer;
  }
  Status fetch(const protocol::AttemptRef&, const protocol::StoredCheckpoint&, const std::string&,
               const GiveUp&) override {
    return {Code::kUnimplemented, "not here"};
  }

  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::vector<Step> tried;
  std::vector<Step> over;
  std::vector<Status> answers;
  bool shut = false;
};

class UploaderTest : public testing::Test {
 protected:
  void start(std::int64_t retry_ms = 1) {
    // The fixture outlives the uploader, whose uploads all end.
    const std::shared_ptr<CheckpointStore> store(&store_, [](CheckpointStore*) {});
    uploader_ = std::make_unique<Uploader>(
        store, retry_ms, [this](const protocol::AttemptRef& ref, std::int64_t step) {
          const std::scoped_lock lock(store_.mutex);
          store_.over.push_back({ref.attempt.trial.value, step});
          store_.changed.notify_all();
        });
  }
  void post(std::uint64_t trial, std::int64_t step) {
    uploader_->post(attempt_ref(trial), {step, "folder", "sum", 1});
  }
  bool await(const std::function<bool()>& condition) {
    std::unique_lock lock(store_.mutex);
    return store_.changed.wait_for(lock, std::chrono::seconds(60), condition);
  }
  void open() {
    const std::scoped_lock lock(store_.mutex);
    store_.shut = false;
    store_.changed.notify_all();
  }
  FakeStore store_;
  std::unique_ptr<Uploader> uploader_;
};

TEST_F(UploaderTest, TheNewestGoesFirstAndReplacesOlderOnesOfItsTrial) {
  store_.shut = true;
  start();
  post(1, 10);
  ASSERT_TRUE(await([&] { return store_.tried.size() == 1; }));
  post(2, 10);
  post(3, 10);
  post(2, 20);
  open();
  ASSERT_TRUE(await([&] { return store_.over.size() == 4; }));
  EXPECT_THAT(store_.tried, ElementsAre(Step{1, 10}, Step{2, 20}, Step{3, 10}));
  EXPECT_THAT(store_.over,
              testing::UnorderedElementsAre(Step{1, 10}, Step{2, 10}, Step{2, 20}, Step{3, 10}));
}

TEST_F(UploaderTest, OneUnderWayIsGivenUpForANewerOneOfItsTrial) {
  store_.shut = true;
  start();
  post(1, 10);
  ASSERT_TRUE(await([&] { return store_.tried.size() == 1; }));
  post(1, 20);
  ASSERT_TRUE(await([&] { return store_.tried.size() == 2; }));
  open();
  ASSERT_TRUE(await([&] { return store_.over.size() == 2; }));
}

TEST_F(UploaderTest, WhatMayRecoverIsTriedAgainAndWhatMayNotIsLetGo) {
  store_.answers = {{Code::kUnavailable, "away"},
                    {Code::kResourceExhausted, "full"},
                    Status::ok(),
                    {Code::kNotFound, "no such file"},
                    {Code::kFailedPrecondition, "keeps none"}};
  start();
  post(1, 10);
  ASSERT_TRUE(await([&] { return store_.over.size() == 1; }));
  EXPECT_EQ(store_.tried.size(), 3u);
  post(2, 10);
  ASSERT_TRUE(await([&] { return store_.over.size() == 2; }));
  post(3, 10);
  ASSERT_TRUE(await([&] { return store_.over.size() == 3; }));
  EXPECT_EQ(store_.tried.size(), 5u) << "once each";
}

constexpr std::int64_t kHourMs = 3'600'000;

TEST_F(UploaderTest, OneThatWaitsForItsNextTryHoldsUpNoOther) {
  for (const Code code : {Code::kDataLoss, Code::kResourceExhausted, Code::kUnavailable}) {
    store_.answers = {{code, "not now"}};
    store_.tried.clear();
    store_.over.clear();
    start(kHourMs);
    post(1, 10);
    ASSERT_TRUE(await([&] { return store_.tried.size() == 1; }));
    post(2, 10);
    post(3, 10);
    ASSERT_TRUE(await([&] { return store_.over.size() == 2; })) << code_name(code);
    EXPECT_THAT(store_.over, testing::UnorderedElementsAre(Step{2, 10}, Step{3, 10}));
    uploader_.reset();
  }
}

TEST_F(UploaderTest, ANewerOneDoesNotWaitForTheNextTryOfTheOneItReplaces) {
  store_.answers = {{Code::kResourceExhausted, "full"}};
  start(kHourMs);
  post(1, 10);
  ASSERT_TRUE(await([&] { return store_.tried.size() == 1; }));
  post(1, 20);
  ASSERT_TRUE(await([&] { return store_.over.size() == 2; }));
  EXPECT_THAT(store_.tried, ElementsAre(Step{1, 10}, Step{1, 20}));
  EXPECT_THAT(store_.over, testing::UnorderedElementsAre(Step{1, 10}, Step{1, 20}));
}

/// A file system that hangs: an upload that gives up for nobody, until it is let go.
struct Hang {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool reached = false;
  bool let_go = false;
  bool store_gone = false;
};
class HungStore final : public CheckpointStore {
 public:
  explicit HungStore(std::shared_ptr<Hang> hang) : hang_(std::move(hang)) {}
  ~HungStore() override {
    const std::scoped_lock lock(hang_->mutex);
    hang_->store_gone = true;
    hang_->changed.notify_all();
  }
  Status upload(const protocol::AttemptRef&, const protocol::CheckpointReport&,
                const GiveUp& give_up) override {
    std::unique_lock lock(hang_->mutex);
    hang_->reached = true;
    hang_->changed.notify_all();
    hang_->changed.wait(lock, [this] { return hang_->let_go; });
    EXPECT_TRUE(give_up()) << "what it asks is still there";
    return {Code::kUnavailable, "hung"};
  }
  Status fetch(const protocol::AttemptRef&, const protocol::StoredCheckpoint&, const std::string&,
               const GiveUp&) override {
    return {Code::kUnimplemented, "not here"};
  }

 private:
  const std::shared_ptr<Hang> hang_;
};

TEST(Uploader, EndsWhenItsFileSystemHangsAndLeavesTheStoreToTheThread) {
  const auto hang = std::make_shared<Hang>();
  int over = 0;
  auto uploader =
      std::make_unique<Uploader>(std::make_shared<HungStore>(hang), 1,
                                 [&](const protocol::AttemptRef&, std::int64_t) { ++over; });
  uploader->post(attempt_ref(1), {1, "", "", 0});
  std::unique_lock lock(hang->mutex);
  ASSERT_TRUE(
      hang->changed.wait_for(lock, std::chrono::seconds(60), [&] { return hang->reached; }));
  lock.unlock();
  uploader.reset();  // ends, though the upload does not
  lock.lock();
  EXPECT_FALSE(hang->store_gone);
  hang->let_go = true;
  hang->changed.notify_all();
  ASSERT_TRUE(
      hang->changed.wait_for(lock, std::chrono::seconds(60), [&] { return hang->store_gone; }));
  EXPECT_EQ(over, 0) << "nobody is told any more";
}

TEST_F(UploaderTest, EndsWhileAnUploadHangs) {
  store_.shut = true;
  start();
  post(1, 10);
  ASSERT_TRUE(await([&] { return store_.tried.size() == 1; }));
  uploader_.reset();
  EXPECT_TRUE(store_.over.empty());
}

TEST(Uploader, WithoutAStoreEverythingIsOverAtOnce) {
  std::mutex mutex;
  std::condition_variable changed;
  int over = 0;
  Uploader uploader(nullptr, 1, [&](const protocol::AttemptRef&, std::int64_t) {
    const std::scoped_lock lock(mutex);
    ++over;
    changed.notify_all();
  });
  uploader.post(attempt_ref(1), {1, "", "", 0});
  std::unique_lock lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return over == 1; }));
}

TEST(CheckpointFiles, AreThoseOfTheManifestThatWasReported) {
  TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.file(name)) << text;
  };
  write("model", "12345");
  write("other", "not named");
  const std::string manifest =
      "{\"files\": {\"model\": {\"bytes\": 5, \"sha256\": \"" + sha256_hex("12345") + "\"}}}";
  write("manifest.json", manifest);
  const auto files = checkpoint_files(folder.path(), sha256_hex(manifest));
  ASSERT_TRUE(files.has_value()) << files.error().message();
  EXPECT_THAT(*files,
              ElementsAre(CheckpointFile{"manifest.json", manifest.size(), sha256_hex(manifest)},
                          CheckpointFile{"model", 5, sha256_hex("12345")}));
  EXPECT_EQ(checkpoint_files(folder.path(), sha256_hex("x")).error().code(), Code::kDataLoss);
  for (const char* bad :
       {"{", "[]", "{}", "{\"files\": {\"../x\": \"00\"}}", "{\"files\": {\"model\": 7}}"}) {
    write("manifest.json", bad);
    EXPECT_EQ(checkpoint_files(folder.path(), sha256_hex(bad)).error().code(), Code::kDataLoss)
        << bad;
  }
  EXPECT_EQ(checkpoint_files(folder.file("none"), "").error().code(), Code::kNotFound);
}

TEST(CheckpointFiles, AreListedByTheirStepsWhenTheyAreWhole) {
  TemporaryFolder folder;
  for (const char* name : {"000000009", "000000120", ".fetch-000000300-1", "500.tmp", "-7"}) {
    std::filesystem::create_directories(folder.file(name));
  }
  const std::vector<CheckpointFolder> found = checkpoints_in(folder.path());
  EXPECT_EQ(found, (std::vector<CheckpointFolder>{{120, folder.file("000000120")},
                                                  {9, folder.file("000000009")}}));
  EXPECT_TRUE(checkpoints_in(folder.file("none")).empty());
}

TEST(CheckpointFiles, AreVerifiedBySizeAndHash) {
  TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.file(name)) << text;
  };
  EXPECT_EQ(verify_checkpoint_files(folder.path()).code(), Code::kNotFound);
  const std::string hash = sha256_hex("12345");
  write("model", "12345");
  write("manifest.json", "{\"files\": {\"model\": {\"bytes\": 5, \"sha256\": \"" + hash + "\"}}}");
  EXPECT_TRUE(verify_checkpoint_files(folder.path()).is_ok());
  write("model", "1234");
  EXPECT_EQ(verify_checkpoint_files(folder.path()).code(), Code::kDataLoss);
  write("model", "12346");
  EXPECT_EQ(verify_checkpoint_files(folder.path()).code(), Code::kDataLoss);
  std::filesystem::remove(folder.file("model"));
  EXPECT_EQ(verify_checkpoint_files(folder.path()).code(), Code::kNotFound);
  write("manifest.json", "{\"fil");
  EXPECT_EQ(verify_checkpoint_files(folder.path()).code(), Code::kDataLoss);
}

}  // namespace
}  // namespace tailor::agent
