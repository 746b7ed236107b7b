// What the tests of run_trial share: an observer that remembers, and a small trial.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "model/data/token_shard.h"
#include "model/train/checkpoint.h"
#include "model/train/trial.h"
#include "tests/model/support.h"
#include "tests/support/temporary_folder.h"

namespace tailor::train {

/// Keeps what a trial reports; what it says of a checkpoint must be on disk.
class Observer final : public TrialObserver {
 public:
  Status report(ProgressReport report) override {
    if (const auto* metric = std::get_if<protocol::MetricReport>(&report)) {
      if (metric->values.contains("train_loss")) {
        losses[metric->step] = metric->values.at("train_loss");
      }
      if (metric->values.contains("validation_loss")) evaluations[metric->step] = metric->values;
    } else if (const auto* checkpoint = std::get_if<protocol::CheckpointReport>(&report)) {
      // What is reported is on disk and whole.
      const auto info = verify_checkpoint(checkpoint->path);
      EXPECT_TRUE(info.has_value());
      EXPECT_EQ(info ? info->manifest_sha256 : "", checkpoint->sha256);
      checkpoints.push_back(*checkpoint);
    } else if (const auto* begin = std::get_if<protocol::StartedReport>(&report)) {
      started = *begin;
    } else if (const auto* measured = std::get_if<protocol::ProfileReport>(&report)) {
      profiles.push_back(*measured);
    }
    return Status::ok();
  }
  std::optional<std::string> stop_reason() override {
    return step >= stop_at ? std::optional<std::string>("asked to") : std::nullopt;
  }
  void before_step(std::int64_t next, net::Decoder& decoder) override {
    step = next + 1;
    if (probe) probe(next, decoder);
  }

  std::int64_t stop_at = std::numeric_limits<std::int64_t>::max();
  std::function<void(std::int64_t, net::Decoder&)> probe;
  std::int64_t step = 0;
  std::map<std::int64_t, double> losses;
  std::map<std::int64_t, std::map<std::string, double>> evaluations;
  std::vector<protocol::CheckpointReport> checkpoints;
  std::vector<protocol::ProfileReport> profiles;
  protocol::StartedReport started;
};

/// A small trial of 40 steps with its data in a folder of its own.
class TrialTest : public testing::Test {
 protected:
  TrialTest() {
    write_shard("train.tokens", 20'000, 1);
    write_shard("validation.tokens", 3'001, 2);
    spec_.seed = 3;
    spec_.architecture = test::small_architecture();
    spec_.data = {folder() + "/train.tokens", folder() + "/validation.tokens", 16};
    spec_.train.batch_tokens = 128;
    spec_.train.tokens = 128 * 40;
    spec_.train.log_every_steps = 1;
    spec_.train.checkpoint_every_ms = 0;
    spec_.train.optimizer.lr = 1e-2;
  }
  const std::string& folder() const { return temporary_.path(); }

  // Three bytes of text a token.
  void write_shard(const std::string& name, int count, std::uint64_t seed) {
    Rng rng(seed);
    std::vector<std::uint32_t> ids;
    std::uint32_t last = 0;
    for (int i = 0; i < count; ++i) {
      last = static_cast<std::uint32_t>((last * 5 + 1 + rng.below(3)) % 64);
      ids.push_back(last);
    }
    auto writer =
        data::TokenShardWriter::create(folder() + "/" + name, 64, 0, std::string(64, 'a'));
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE(writer->append(ids, 3 * static_cast<std::uint64_t>(count), 1).is_ok());
    ASSERT_TRUE(writer->finish().has_value());
  }

  TrialPaths paths(const std::string& name) const {
    return {folder() + "/" + name + "/checkpoints", folder() + "/" + name + "/artifacts"};
  }
  protocol::EndReport run(const protocol::TrialSpec& spec, const std::string& name,
                          Observer& observer) {
    return run_trial(spec, at::kCPU, {}, paths(name), observer, clock_);
  }
  std::string weights(const std::string& name) const {
    return read_file(paths(name).artifacts + "/model.safetensors").value_or("");
  }

  test::TemporaryFolder temporary_;
  SystemClock clock_;
  protocol::TrialSpec spec_;
};

}  // namespace tailor::train
