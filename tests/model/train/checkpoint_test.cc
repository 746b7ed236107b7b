// Checkpoints on disk: whole ones restore every bit, damaged ones are never used.
#include "model/train/checkpoint.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/file.h"
#include "model/train/step.h"
#include "tests/model/support.h"

namespace tailor::train {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

struct Network {
  net::Decoder decoder{test::small_architecture(), at::kCPU, false};
  AdamW optimizer{decoder.parameters(), {}};
};

void fill(Network& network) {
  network.decoder.parameters().flat().copy_(at::randn({network.decoder.parameters().size()}));
  network.optimizer.first_moment().copy_(at::randn({network.decoder.parameters().size()}));
  network.optimizer.second_moment().copy_(at::randn({network.decoder.parameters().size()}).abs());
}

CheckpointState state_at(std::int64_t step) {
  CheckpointState state;
  state.step = step;
  state.tokens = step * 100;
  state.next_sample = static_cast<std::uint64_t>(step) * 4;
  state.train_loss = 1.0 / 3;
  state.identity = "me";
  return state;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class CheckpointTest : public testing::Test {
 protected:
  std::string save(std::int64_t step) {
    const auto snapshot = take_snapshot(state_at(step), network_.decoder, network_.optimizer);
    const auto saved = write_checkpoint(folder(), *snapshot);
    EXPECT_TRUE(saved.has_value()) << saved.error().message();
    return saved ? saved->path : "";
  }
  std::string folder() const { return temporary_.path() + "/checkpoints"; }
  std::optional<CheckpointInfo> newest(const std::string& identity = "me") {
    skipped_.clear();
    return newest_checkpoint(
        {folder()}, identity, [&](const std::string& path, const Status& reason) {
          skipped_.push_back(fs::path(path).filename().string() + ": " + reason.to_string());
        });
  }

  test::TemporaryFolder temporary_;
  Network network_;
  std::vector<std::string> skipped_;
};

TEST_F(CheckpointTest, EveryBitOfWeightsMomentsAndPositionComesBack) {
  fill(network_);
  save(7);
  const auto found = newest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->state.step, 7);
  EXPECT_EQ(found->state.tokens, 700);
  EXPECT_EQ(found->state.next_sample, 28u);
  EXPECT_EQ(found->state.train_loss, 1.0 / 3);
  Network other;
  const Status loaded = load_checkpoint(*found, other.decoder, other.optimizer);
  ASSERT_TRUE(loaded.is_ok()) << loaded.message();
  EXPECT_TRUE(
      test::same_bits(other.decoder.parameters().flat(), network_.decoder.parameters().flat()));
  EXPECT_TRUE(test::same_bits(other.optimizer.first_moment(), network_.optimizer.first_moment()));
  EXPECT_TRUE(test::same_bits(other.optimizer.second_moment(), network_.optimizer.second_moment()));
  EXPECT_EQ(other.optimizer.steps(), 7);
}

TEST_F(CheckpointTest, TheStateKeepsLossesAndSkippedSteps) {
  CheckpointState state = state_at(4);
  state.skipped = 3;
  state.validation_loss = 2.0 / 3;
  state.best_validation_loss = 0.1;
  const auto snapshot = take_snapshot(state, network_.decoder, network_.optimizer);
  ASSERT_TRUE(write_checkpoint(folder(), *snapshot).has_value());
  const auto found = newest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->state.skipped, 3);
  EXPECT_EQ(found->state.validation_loss, 2.0 / 3);
  EXPECT_EQ(found->state.best_validation_loss, 0.1);
  save(9);
  EXPECT_EQ(newest()->state.validation_loss, std::nullopt);
}

TEST_F(CheckpointTest, ASnapshotDoesNotChangeWithTheWeights) {
  fill(network_);
  const at::Tensor before = network_.decoder.parameters().flat().clone();
  const auto snapshot = take_snapshot(state_at(1), network_.decoder, network_.optimizer);
  fill(network_);
  EXPECT_TRUE(test::same_bits(snapshot->weights, before));
  EXPECT_FALSE(test::same_bits(network_.decoder.parameters().flat(), before));
}

TEST_F(CheckpointTest, SavingTheSameStepAgainKeepsWhatIsThere) {
  const std::string path = save(3);
  const auto before = fs::last_write_time(path + "/manifest.json");
  save(3);
  EXPECT_EQ(fs::last_write_time(path + "/manifest.json"), before);
  // But a damaged one is written anew.
  std::ofstream(path + "/state.json") << "x";
  save(3);
  EXPECT_TRUE(verify_checkpoint(path).has_value());
}

TEST_F(CheckpointTest, ACutOrAlteredFileIsNamedAndTheOlderCheckpointIsUsed) {
  save(1);
  const std::string path = save(2);
  const test::TemporaryFolder copy;
  fs::copy(path, copy.path() + "/good", fs::copy_options::recursive);
  for (const std::string name :
       {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    const std::string file = path + "/" + name;
    const std::string whole = *read_file(file);
    const std::string changes[] = {
        whole.substr(0, whole.size() / 2),
        "",
        [&] {
          std::string altered = whole;
          altered[altered.size() * 2 / 3] ^= 1;
          return altered;
        }(),
    };
    for (const std::string& change : changes) {
      std::ofstream(file, std::ios::binary | std::ios::trunc) << change;
      const auto result = verify_checkpoint(path);
      ASSERT_FALSE(result.has_value()) << name << " of " << change.size() << " bytes passes";
      EXPECT_EQ(result.error().code(), Code::kDataLoss) << result.error().message();
      const auto found = newest();
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->state.step, 1);
      ASSERT_EQ(skipped_.size(), 1u);
      EXPECT_THAT(skipped_.front(), HasSubstr("data_loss"));
    }
    fs::remove(file);
    EXPECT_FALSE(verify_checkpoint(path).has_value());
    fs::copy(copy.path() + "/good/" + name, file);
    ASSERT_TRUE(verify_checkpoint(path).has_value());
  }
}

TEST_F(CheckpointTest, ANewerFormatAndAnotherTrialAreSkippedWithTheirReason) {
  const std::string path = save(2);
  EXPECT_FALSE(newest("somebody else").has_value());
  ASSERT_EQ(skipped_.size(), 1u);
  EXPECT_THAT(skipped_.front(), HasSubstr("another trial"));
  std::string manifest = *read_file(path + "/manifest.json");
  manifest.replace(manifest.find("\"version\": 1"), 12, "\"version\": 2");
  std::ofstream(path + "/manifest.json") << manifest;
  EXPECT_FALSE(newest().has_value());
  ASSERT_EQ(skipped_.size(), 1u);
  EXPECT_THAT(skipped_.front(), HasSubstr("newer version"));
}

TEST_F(CheckpointTest, LeftOversOfACrashAreNoCheckpoints) {
  save(2);
  fs::create_directories(folder() + "/.partial-000000009");
  fs::create_directories(folder() + "/.removed-000000001");
  std::ofstream(folder() + "/notes.txt") << "x";
  const auto found = newest();
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->state.step, 2);
  EXPECT_TRUE(skipped_.empty());
  remove_leftovers(folder());
  EXPECT_THAT(names_in(folder()), ElementsAre("000000002", "notes.txt"));
  EXPECT_FALSE(
      newest_checkpoint({temporary_.path() + "/nowhere"}, "me", [](auto&, auto&) {}).has_value());
}

TEST_F(CheckpointTest, AFolderThatCannotBeMadeIsAnErrorAndLeavesNothing) {
  std::ofstream(temporary_.path() + "/checkpoints") << "a file";
  const auto saved =
      write_checkpoint(folder(), *take_snapshot(state_at(1), network_.decoder, network_.optimizer));
  ASSERT_FALSE(saved.has_value());
  EXPECT_THAT(saved.error().message(), HasSubstr(folder()));
}

TEST_F(CheckpointTest, IdentityDependsOnWhatDecidesTheWeightsAndOnNothingElse) {
  protocol::TrialSpec spec;
  spec.architecture = test::small_architecture();
  spec.data.sequence_length = 8;
  const std::string base = trial_identity(spec, "data");
  protocol::TrialSpec same = spec;
  same.attempt = 3;
  same.resume_from = {"x"};
  same.train.log_every_steps = 1;
  same.train.checkpoint_every_ms = 5;
  same.data.train = "/elsewhere/*.tokens";
  same.train.micro_batch_tokens = 16;
  same.train.recompute = true;
  same.train.keep_last = 7;
  same.train.keep_best = true;
  same.train.nan_skip_limit = 2;
  EXPECT_EQ(trial_identity(same, "data"), base);
  EXPECT_NE(trial_identity(spec, "other data"), base);
  protocol::TrialSpec other = spec;
  other.seed = 9;
  EXPECT_NE(trial_identity(other, "data"), base);
  other = spec;
  other.train.optimizer.lr = 0.1 + 0.2;
  EXPECT_NE(trial_identity(other, "data"), base);
  other = spec;
  other.architecture.widths[0][0] += 1;
  EXPECT_NE(trial_identity(other, "data"), base);
  using Change = void (*)(protocol::TrainSpec&);
  const Change changes[] = {
      [](protocol::TrainSpec& t) { t.z_loss = 1e-5; },
      [](protocol::TrainSpec& t) { t.down_init = protocol::DownInit::kFanIn; },
      [](protocol::TrainSpec& t) { t.optimizer.lr_mode = protocol::LrMode::kMup; },
      [](protocol::TrainSpec& t) {
        t.optimizer.lr_mode = protocol::LrMode::kMup;
        t.optimizer.mup_base_width = 8;
      },
      [](protocol::TrainSpec& t) { t.schedule.kind = protocol::LrScheduleKind::kWsd; },
      [](protocol::TrainSpec& t) {
        t.schedule.kind = protocol::LrScheduleKind::kWsd;
        t.schedule.decay_fraction = 0.3;
      },
      [](protocol::TrainSpec& t) {
        t.schedule.kind = protocol::LrScheduleKind::kWsd;
        t.schedule.decay_shape = protocol::DecayShape::kOneMinusSqrt;
      },
  };
  std::set<std::string> all{base};
  for (const Change change : changes) {
    other = spec;
    change(other.train);
    all.insert(trial_identity(other, "data"));
  }
  EXPECT_EQ(all.size(), 1 + std::size(changes));
}

}  // namespace
}  // namespace tailor::train
