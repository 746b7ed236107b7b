// What is removed from the trials folder, and what never is.
#include "worker/agent/pruning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "protocol/convert.h"
#include "tests/worker/agent/agent_harness.h"
#include "tests/worker/agent/temporary_folder.h"

namespace tailor::agent {
namespace {

namespace fs = std::filesystem;
using protocol::EndClass;

constexpr std::int64_t kDay = 24ll * 3600 * 1000;

class PruningTest : public testing::Test {
 protected:
  void attempt(const std::string& path, EndClass end, std::vector<int> steps,
               const char* note = "worker-done.json") {
    const std::string folder = folder_.file(path);
    fs::create_directories(folder);
    for (const int step : steps) {
      const std::string at = folder + "/checkpoints/" + std::to_string(step);
      fs::create_directories(at);
      std::ofstream(at + "/model") << "12345";
      std::ofstream(at + "/manifest.json")
          << "{\"files\": {\"model\": \"" << sha256_hex("12345") << "\"}}";
    }
    std::ofstream(folder + "/reports.jsonl") << protocol::to_json_line(metric(1)) << "\n"
                                             << protocol::to_json_line(end_report(2, end)) << "\n";
    std::ofstream(folder + "/" + note) << "{}";
  }
  Pruned prune_at(std::int64_t age_ms, PruneRules rules) {
    const auto now = SystemClock().wall_ms() + age_ms;
    auto pruned = prune(folder_.path(), rules, now);
    EXPECT_TRUE(pruned.has_value());
    return pruned.value_or(Pruned());
  }
  std::uint64_t bytes_of(const std::string& path) {
    return fs::file_size(folder_.file(path + "/model")) +
           fs::file_size(folder_.file(path + "/manifest.json"));
  }
  void damage(const std::string& checkpoint) {
    std::ofstream(folder_.file(checkpoint + "/model")) << "12346";
  }
  bool exists(const std::string& path) { return fs::exists(folder_.file(path)); }
  TemporaryFolder folder_;
};

TEST_F(PruningTest, WhatABrokenFetchLeftGoesAfterADayAndNothingElse) {
  attempt("t1/1", EndClass::kStopped, {10}, "worker.json");
  const std::string left = "t1/1/checkpoints/.fetch-000000050-0123456789abcdef-1f";
  fs::create_directories(folder_.file(left));
  std::ofstream(folder_.file(left + "/model")) << "123";
  const WallMs now = SystemClock().wall_ms();
  EXPECT_EQ(prune_fetches(folder_.path(), now + kDay / 2).checkpoints, 0u) << "it may go on";
  EXPECT_TRUE(exists(left));
  const Pruned pruned = prune_fetches(folder_.path(), now + 2 * kDay);
  EXPECT_EQ(pruned.checkpoints, 1u);
  EXPECT_EQ(pruned.bytes, 3u);
  EXPECT_FALSE(exists(left));
  EXPECT_TRUE(exists("t1/1/checkpoints/10"));
}

TEST_F(PruningTest, KeepsTheNewestCheckpointOfATrialThatMayGoOn) {
  attempt("t1/1", EndClass::kInfrastructure, {10, 20});
  attempt("t1/2", EndClass::kStopped, {20, 30});
  fs::create_directories(folder_.file("t1/2/checkpoints/.tmp-40"));
  const Pruned pruned = prune_at(2 * kDay, {kDay, kDay});
  EXPECT_EQ(pruned.checkpoints, 3u);
  EXPECT_EQ(pruned.bytes, 3 * bytes_of("t1/2/checkpoints/30"));
  EXPECT_TRUE(exists("t1/2/checkpoints/30"));
  EXPECT_FALSE(exists("t1/2/checkpoints/20"));
  EXPECT_FALSE(exists("t1/1/checkpoints/20"));
  EXPECT_TRUE(exists("t1/1/reports.jsonl"));
}

TEST_F(PruningTest, KeepsTheNewestSoundCheckpointWhenANewerOneIsDamaged) {
  attempt("t1/1", EndClass::kInfrastructure, {10, 20, 30});
  damage("t1/1/checkpoints/30");
  fs::create_directories(folder_.file("t1/1/checkpoints/000000040.damaged"));
  fs::create_directories(folder_.file("t1/1/checkpoints/.fetch-000000050-1"));
  attempt("t2/1", EndClass::kInfrastructure, {10, 20});
  damage("t2/1/checkpoints/10");
  damage("t2/1/checkpoints/20");
  EXPECT_EQ(prune_at(2 * kDay, {kDay, kDay}).checkpoints, 4u);
  EXPECT_TRUE(exists("t1/1/checkpoints/20"));
  EXPECT_FALSE(exists("t1/1/checkpoints/30"));
  EXPECT_FALSE(exists("t1/1/checkpoints/10"));
  EXPECT_TRUE(exists("t2/1/checkpoints/10")) << "none is sound: nothing is known to be superseded";
  EXPECT_TRUE(exists("t2/1/checkpoints/20"));
}

// After a restored backup the number may be another trial's.
TEST_F(PruningTest, CheckpointsOfAnotherGenerationSupersedeNothing) {
  attempt("t1/1", EndClass::kCompleted, {50, 60});
  attempt("t1/1-3fa", EndClass::kStopped, {10, 20});
  prune_at(2 * kDay, {kDay, kDay});
  EXPECT_TRUE(exists("t1/1/checkpoints/60"));
  EXPECT_FALSE(exists("t1/1/checkpoints/50"));
  EXPECT_TRUE(exists("t1/1-3fa/checkpoints/20")) << "the trial of this generation goes on";
  EXPECT_FALSE(exists("t1/1-3fa/checkpoints/10"));
  attempt("t1/2-3fa", EndClass::kCompleted, {30});
  EXPECT_EQ(prune_at(2 * kDay, {kDay, 0}).checkpoints, 3u);
}

TEST_F(PruningTest, ACompletedTrialNeedsNoCheckpointAndLaterNoFolder) {
  attempt("t1/1", EndClass::kStopped, {10});
  attempt("t1/2", EndClass::kCompleted, {20});
  EXPECT_EQ(prune_at(2 * kDay, {kDay, 7 * kDay}).checkpoints, 2u);
  EXPECT_TRUE(exists("t1/2/reports.jsonl"));
  EXPECT_EQ(prune_at(8 * kDay, {kDay, 7 * kDay}).folders, 1u);
  EXPECT_FALSE(exists("t1"));
}

TEST_F(PruningTest, LeavesWhatIsYoungInUseOrForeignAlone) {
  attempt("t1/1", EndClass::kCompleted, {10, 20});
  attempt("t2/1", EndClass::kStopped, {10, 20});
  attempt("t2/2", EndClass::kStopped, {}, "worker.json");
  attempt("notes/1", EndClass::kCompleted, {10});
  EXPECT_EQ(prune_at(kDay / 2, {kDay, kDay}).folders, 0u) << "too young";
  EXPECT_EQ(prune_at(2 * kDay, {0, 0}).bytes, 0u) << "no rules, no pruning";
  prune_at(2 * kDay, {kDay, kDay});
  EXPECT_FALSE(exists("t1"));
  EXPECT_TRUE(exists("t2/1/checkpoints/10")) << "an attempt is under way";
  EXPECT_TRUE(exists("notes/1/checkpoints/10"));
}

}  // namespace
}  // namespace tailor::agent
