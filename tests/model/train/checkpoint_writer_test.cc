// Checkpoints beside the training: what is written is the moment of the start, one is under way at
// a time, and an older one goes only after a newer one was verified.
#include "model/train/checkpoint_writer.h"

#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>

#include "tests/model/support.h"

namespace tailor::train {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckpointWriterTest : public testing::Test {
 protected:
  static CheckpointState state_at(std::int64_t step, std::optional<double> validation = {}) {
    CheckpointState state;
    state.step = step;
    state.validation_loss = validation;
    state.identity = "me";
    return state;
  }
  void change_weights() {
    decoder_.parameters().flat().copy_(at::randn({decoder_.parameters().size()}));
  }
  void save(CheckpointWriter& writer, std::int64_t step, std::optional<double> validation = {}) {
    ASSERT_TRUE(writer.start(state_at(step, validation)).is_ok());
    const auto outcome = writer.wait();
    ASSERT_TRUE(outcome && outcome->has_value());
  }
  std::string folder() const { return temporary_.path() + "/checkpoints"; }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(folder())) {
      all.push_back(entry.path().filename());
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  void damage(std::int64_t step) const {
    fs::resize_file(fmt_path(step) + "/model.safetensors", 100);
  }
  std::string fmt_path(std::int64_t step) const {
    const std::string digits = std::to_string(step);
    return folder() + "/" + std::string(9 - digits.size(), '0') + digits;
  }

  test::TemporaryFolder temporary_;
  net::Decoder decoder_{test::small_architecture(), at::kCPU, false};
  AdamW optimizer_{decoder_.parameters(), {}};
};

TEST_F(CheckpointWriterTest, TrainingGoesOnWhileTheMomentOfTheStartIsWritten) {
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  CheckpointWriter writer(folder(), {}, decoder_, optimizer_, [&](std::string_view stage) {
    if (stage == "folder") released.wait();
  });
  change_weights();
  const at::Tensor wanted = decoder_.parameters().flat().clone();
  ASSERT_TRUE(writer.start(state_at(5)).is_ok());
  // The writer stands still, the weights do not.
  change_weights();
  EXPECT_TRUE(writer.busy());
  EXPECT_FALSE(writer.poll().has_value());
  EXPECT_FALSE(fs::exists(fmt_path(5)));
  release.set_value();
  const auto outcome = writer.wait();
  ASSERT_TRUE(outcome && outcome->has_value());
  EXPECT_FALSE(writer.busy());
  EXPECT_FALSE(writer.wait().has_value()) << "an outcome is told once";
  net::Decoder other{test::small_architecture(), at::kCPU, false};
  AdamW other_optimizer{other.parameters(), {}};
  ASSERT_TRUE(load_checkpoint(**outcome, other, other_optimizer).is_ok());
  EXPECT_TRUE(test::same_bits(other.parameters().flat(), wanted));
}

TEST_F(CheckpointWriterTest, TheNewestAreKept) {
  for (const std::int32_t last : {1, 2, 3}) {
    fs::remove_all(folder());
    CheckpointWriter writer(folder(), {last, false}, decoder_, optimizer_);
    for (const std::int64_t step : {1, 5, 20, 100}) save(writer, step);
    const std::vector<std::string> all = {"000000001", "000000005", "000000020", "000000100"};
    EXPECT_EQ(names(), std::vector<std::string>(all.end() - last, all.end()));
  }
}

TEST_F(CheckpointWriterTest, TheBestIsKeptBesideTheNewest) {
  CheckpointWriter writer(folder(), {2, true}, decoder_, optimizer_);
  save(writer, 1, 3.0);
  save(writer, 2, 2.0);
  save(writer, 3, 2.5);
  save(writer, 4);
  save(writer, 5);
  EXPECT_THAT(names(), ElementsAre("000000002", "000000004", "000000005"));
  save(writer, 6, 1.5);
  save(writer, 7);
  save(writer, 8);
  EXPECT_THAT(names(), ElementsAre("000000006", "000000007", "000000008"));
  // A later writer, as after a restart, finds the best from the files.
  CheckpointWriter again(folder(), {2, true}, decoder_, optimizer_);
  save(again, 9);
  save(again, 10);
  EXPECT_THAT(names(), ElementsAre("000000006", "000000009", "000000010"));
}

TEST_F(CheckpointWriterTest, ADamagedCheckpointNeitherCountsNorReplacesAWholeOne) {
  CheckpointWriter writer(folder(), {2, false}, decoder_, optimizer_);
  save(writer, 1);
  save(writer, 2);
  // After a restart: 2 was damaged meanwhile. Of {1, damaged 2, 3} the whole ones stay.
  damage(2);
  CheckpointWriter again(folder(), {2, false}, decoder_, optimizer_);
  save(again, 3);
  EXPECT_THAT(names(), ElementsAre("000000001", "000000003"));
}

TEST_F(CheckpointWriterTest, NothingIsRemovedWhenTheNewOneDoesNotReadBack) {
  std::string hit;
  CheckpointWriter writer(folder(), {1, false}, decoder_, optimizer_, [&](std::string_view stage) {
    if (stage == "synced" && !hit.empty()) fs::resize_file(hit + "/optimizer.safetensors", 64);
  });
  save(writer, 1);
  hit = fmt_path(2);
  ASSERT_TRUE(writer.start(state_at(2)).is_ok());
  const auto outcome = writer.wait();
  ASSERT_TRUE(outcome.has_value());
  ASSERT_FALSE(outcome->has_value());
  EXPECT_EQ(outcome->error().code(), Code::kDataLoss);
  EXPECT_THAT(outcome->error().message(), HasSubstr("optimizer.safetensors"));
  EXPECT_TRUE(verify_checkpoint(fmt_path(1)).has_value());
  // The same step again, on a good disk: the damaged one is replaced, the old one goes.
  hit.clear();
  save(writer, 2);
  EXPECT_THAT(names(), ElementsAre("000000002"));
}

TEST_F(CheckpointWriterTest, AFailureIsToldAndLeavesNothingBehind) {
  std::ofstream(folder()) << "a file";
  CheckpointWriter writer(folder(), {}, decoder_, optimizer_);
  ASSERT_TRUE(writer.start(state_at(1)).is_ok());
  const auto outcome = writer.wait();
  ASSERT_TRUE(outcome.has_value());
  ASSERT_FALSE(outcome->has_value());
  EXPECT_THAT(outcome->error().message(), HasSubstr(folder()));
}

TEST_F(CheckpointWriterTest, WhatACrashLeftIsRemovedAtTheStart) {
  fs::create_directories(folder() + "/.partial-000000007");
  fs::create_directories(folder() + "/.removed-000000003");
  const CheckpointWriter writer(folder(), {}, decoder_, optimizer_);
  EXPECT_THAT(names(), IsEmpty());
}

}  // namespace
}  // namespace tailor::train
