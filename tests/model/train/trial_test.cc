// run_trial in this process: NaN, skipped steps, checkpoints beside the training, resumption,
// evaluations; and what a spec may not say.
#include "model/train/trial.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "geometry/npy.h"
#include "model/train/checkpoint.h"
#include "tests/model/support.h"
#include "tests/model/train/trial_support.h"

namespace tailor::train {
namespace {

namespace fs = std::filesystem;
using protocol::EndClass;
using protocol::EndReport;
using testing::HasSubstr;

at::Tensor weight(net::Decoder& decoder, const std::string& name) {
  for (const net::Part* part : decoder.parameters().parts()) {
    if (part->name == name) {
      return decoder.parameters().flat().narrow(0, part->offset, part->size());
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

constexpr const char* kDown = "model.layers.1.mlp.down_proj.weight";

TEST_F(TrialTest, NanAtAStepEndsTheTrialWithTheStepTheTensorAndTheLastGoodCheckpoint) {
  spec_.train.checkpoint_every_ms = 1;
  Observer observer;
  observer.probe = [&](std::int64_t step, net::Decoder& decoder) {
    if (step == 25) weight(decoder, kDown)[5] = std::nan("");
  };
  const EndReport end = run(spec_, "a", observer);
  EXPECT_EQ(end.end, EndClass::kNan);
  EXPECT_EQ(end.step, 26);
  EXPECT_THAT(end.message, HasSubstr("step 26:"));
  EXPECT_THAT(end.message, HasSubstr(std::string("the weight ") + kDown));
  ASSERT_FALSE(observer.checkpoints.empty());
  EXPECT_THAT(end.message, HasSubstr(observer.checkpoints.back().path));
  EXPECT_LE(observer.checkpoints.back().step, 25);
  EXPECT_TRUE(std::isnan(end.values.at("train_loss")));
  // It is good indeed: the trial goes on from there.
  Observer again;
  EXPECT_EQ(run(spec_, "a", again).end, EndClass::kCompleted);
  EXPECT_EQ(again.started.resumed_step, observer.checkpoints.back().step);
}

TEST_F(TrialTest, StepsThatAreNotFiniteAreSkippedUpToALimitAndReported) {
  // Damaged before the steps 10 and 20, mended after them.
  float kept = 0;
  const auto damage_at = [&](std::vector<std::int64_t> steps) {
    return [&kept, steps](std::int64_t step, net::Decoder& decoder) {
      at::Tensor hit = weight(decoder, kDown)[5];
      for (const std::int64_t bad : steps) {
        if (step == bad) {
          kept = hit.item<float>();
          hit.fill_(std::numeric_limits<float>::infinity());
        }
        if (step == bad + 1) {
          EXPECT_TRUE(std::isinf(hit.item<float>())) << "the step was taken";
          hit.fill_(kept);
        }
      }
    };
  };
  spec_.train.nan_skip_limit = 2;
  Observer whole;
  whole.probe = damage_at({10, 20});
  const EndReport end = run(spec_, "whole", whole);
  ASSERT_EQ(end.end, EndClass::kCompleted) << end.message;
  EXPECT_EQ(end.values.at("skipped_steps"), 2);
  EXPECT_THAT(end.message, HasSubstr("2 steps were skipped"));
  // A third one ends it.
  Observer third;
  third.probe = damage_at({10, 20, 30});
  const EndReport over = run(spec_, "third", third);
  EXPECT_EQ(over.end, EndClass::kNan);
  EXPECT_EQ(over.step, 31);
  EXPECT_THAT(over.message, HasSubstr("2 steps before it were skipped"));
  // The count and the optimiser's own step survive a restart: same bits.
  Observer first;
  first.probe = damage_at({10, 20});
  first.stop_at = 15;
  EXPECT_EQ(run(spec_, "parts", first).end, EndClass::kStopped);
  Observer second;
  second.probe = damage_at({20});
  const EndReport resumed = run(spec_, "parts", second);
  ASSERT_EQ(resumed.end, EndClass::kCompleted) << resumed.message;
  EXPECT_EQ(second.started.resumed_step, 15);
  EXPECT_EQ(resumed.values.at("skipped_steps"), 2);
  EXPECT_TRUE(weights("parts") == weights("whole"));
}

TEST_F(TrialTest, AResumedTrialHasTheBitsOfAnUnbrokenOneWithEveryPartOfTheRecipe) {
  spec_.train.optimizer.lr_mode = protocol::LrMode::kMup;
  spec_.train.optimizer.mup_base_width = 16;
  spec_.train.schedule.kind = protocol::LrScheduleKind::kWsd;
  spec_.train.schedule.decay_fraction = 0.5;
  spec_.train.z_loss = 1e-3;
  spec_.train.down_init = protocol::DownInit::kFanIn;
  Observer whole;
  ASSERT_EQ(run(spec_, "whole", whole).end, EndClass::kCompleted);
  spec_.train.checkpoint_every_ms = 1;
  for (const std::int64_t stop : {7, 22, 31, 1000}) {
    Observer part;
    part.stop_at = stop;
    run(spec_, "parts", part);
    for (const auto& [step, loss] : part.losses) EXPECT_EQ(loss, whole.losses[step]) << step;
  }
  ASSERT_FALSE(weights("whole").empty());
  EXPECT_TRUE(weights("parts") == weights("whole"));
}

TEST_F(TrialTest, ATrialResumesWithOtherMicroBatchesToRounding) {
  Observer whole;
  const EndReport end = run(spec_, "whole", whole);
  Observer first;
  first.stop_at = 20;
  ASSERT_EQ(run(spec_, "parts", first).end, EndClass::kStopped);
  spec_.train.micro_batch_tokens = 48;  // 3 + 3 + 2 sequences
  Observer second;
  const EndReport resumed = run(spec_, "parts", second);
  ASSERT_EQ(resumed.end, EndClass::kCompleted) << resumed.message;
  EXPECT_EQ(second.started.resumed_step, 20);
  ASSERT_EQ(second.losses.size(), 20u);
  for (const auto& [step, loss] : second.losses) {
    EXPECT_NEAR(loss, whole.losses[step], 1e-6 * loss) << step;
  }
  EXPECT_NEAR(resumed.values.at("validation_loss"), end.values.at("validation_loss"), 1e-6);
}

TEST_F(TrialTest, TheBestCheckpointByValidationLossIsSavedAndKept) {
  spec_.train.keep_best = true;
  spec_.train.keep_last = 1;
  spec_.train.evaluate_every_tokens = 128 * 5;
  // Worse from step 20 on: the rate of the last half ruins what was learnt.
  Observer observer;
  observer.probe = [](std::int64_t step, net::Decoder& decoder) {
    if (step >= 20) decoder.parameters().flat().mul_(0.5);
  };
  ASSERT_EQ(run(spec_, "a", observer).end, EndClass::kCompleted);
  std::int64_t best_step = 0;
  double best = 1e9;
  for (const auto& [step, values] : observer.evaluations) {
    if (step == 40 || values.at("validation_loss") >= best) continue;
    best = values.at("validation_loss");
    best_step = step;
  }
  ASSERT_EQ(best_step, 20);
  std::map<std::int64_t, CheckpointState> kept;
  for (const auto& [step, path] : list_checkpoints(paths("a").checkpoints)) {
    kept[step] = verify_checkpoint(path)->state;
  }
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept.begin()->first, best_step);
  EXPECT_EQ(kept.begin()->second.validation_loss, best);
  EXPECT_EQ(kept.rbegin()->first, 40);
  EXPECT_EQ(kept.rbegin()->second.best_validation_loss, best);
}

TEST_F(TrialTest, EvaluationsTellBitsPerByteTheirStandardErrorAndTheLossOfEachSequence) {
  spec_.train.evaluate_every_tokens = 128 * 20;
  Observer observer;
  const EndReport end = run(spec_, "a", observer);
  ASSERT_EQ(end.end, EndClass::kCompleted) << end.message;
  ASSERT_EQ(observer.evaluations.size(), 2u);
  EXPECT_EQ(observer.evaluations.at(40).at("bits_per_byte"), end.values.at("bits_per_byte"));
  for (const auto& [step, values] : observer.evaluations) {
    const double loss = values.at("validation_loss");
    // 3000 tokens scored, 3 x 3001 bytes of text.
    EXPECT_NEAR(values.at("bits_per_byte"), loss * 3000 / (std::log(2.0) * 9003), 1e-12);
    EXPECT_GT(values.at("validation_loss_se"), 0);
    EXPECT_LT(values.at("validation_loss_se"), 0.1);
  }
  const auto blocks = geometry::read_npy(paths("a").artifacts + "/validation_blocks.npy");
  ASSERT_TRUE(blocks.has_value());
  ASSERT_EQ(blocks->shape, (std::vector<std::size_t>{188, 2}));  // 187 of 16 and one of 8
  const std::vector<double> values = blocks->to_doubles();
  double nats = 0;
  double tokens = 0;
  for (std::size_t i = 0; i < 188; ++i) {
    nats += values[2 * i];
    tokens += values[2 * i + 1];
    EXPECT_EQ(values[2 * i + 1], i < 187 ? 16 : 8) << i;
  }
  EXPECT_EQ(tokens, 3000);
  EXPECT_NEAR(nats / tokens, end.values.at("validation_loss"), 1e-12);
}

TEST_F(TrialTest, DimensionsAreEntriesOfTheProfileAndTheirFailureIsTheirsAlone) {
  spec_.train.tokens = 128 * 4;
  spec_.geometry = {true, {}, 32, 4, 0.5, false, true};
  Observer measured;
  ASSERT_EQ(run(spec_, "a", measured).end, EndClass::kCompleted);
  ASSERT_EQ(measured.profiles.size(), 1u);
  const auto count = [](const protocol::ProfileReport& profile, std::string_view statistic) {
    return std::count_if(profile.entries.begin(), profile.entries.end(), [&](const auto& entry) {
      return entry.statistic == statistic && entry.geometry == "raw" && entry.value > 0;
    });
  };
  const auto layers = spec_.architecture.layers();
  EXPECT_EQ(count(measured.profiles[0], "two_nn"), layers);
  EXPECT_EQ(count(measured.profiles[0], "levina_bickel"), layers);
  EXPECT_EQ(count(measured.profiles[0], "shift"), layers);
  EXPECT_EQ(measured.profiles[0].dimension_failure, "");
  spec_.geometry = {true, {}, 8, 2, 0.5, false, true};  // 16 tokens
  Observer few;
  ASSERT_EQ(run(spec_, "b", few).end, EndClass::kCompleted);
  EXPECT_EQ(count(few.profiles[0], "shift"), layers);
  EXPECT_EQ(count(few.profiles[0], "two_nn"), 0);
  EXPECT_THAT(few.profiles[0].dimension_failure, HasSubstr("layer 0"));
}

TEST_F(TrialTest, ATrialThatCannotBeMeasuredIsTrainedAndSaysWhy) {
  write_shard("short.tokens", 11, 2);  // no whole sequence of 16
  spec_.data.validation = folder() + "/short.tokens";
  spec_.train.tokens = 128 * 4;
  spec_.geometry = {true, {}, 8, 2, 0.5};
  Observer observer;
  const EndReport end = run(spec_, "a", observer);
  ASSERT_EQ(end.end, EndClass::kCompleted) << end.message;
  EXPECT_TRUE(end.values.contains("validation_loss"));
  ASSERT_EQ(observer.profiles.size(), 1u);
  EXPECT_TRUE(observer.profiles[0].entries.empty());
  EXPECT_THAT(observer.profiles[0].failure, HasSubstr("no full sequence"));
}

TEST_F(TrialTest, WhatASpecMayNotSayIsNamedWithTheValueAndWhatIsAllowed) {
  using Change = std::function<void(protocol::TrialSpec&)>;
  const double nan = std::nan("");
  const std::vector<std::pair<Change, std::string>> cases = {
      {[](auto& s) { s.data.sequence_length = 0; }, "data.sequence_length is 0"},
      {[](auto& s) { s.train.tokens = 0; }, "train.tokens is 0"},
      {[](auto& s) { s.train.batch_tokens = 100; }, "train.batch_tokens is 100; a multiple"},
      {[](auto& s) { s.train.micro_batch_tokens = 8; }, "train.micro_batch_tokens is 8"},
      {[](auto& s) { s.train.optimizer.lr = 0; }, "train.optimizer.lr is 0"},
      {[&](auto& s) { s.train.optimizer.lr = nan; }, "train.optimizer.lr is nan"},
      {[](auto& s) { s.train.optimizer.beta1 = 1; }, "train.optimizer.beta1 is 1"},
      {[](auto& s) { s.train.optimizer.beta2 = -0.1; }, "train.optimizer.beta2 is -0.1"},
      {[](auto& s) { s.train.optimizer.eps = 0; }, "train.optimizer.eps is 0"},
      {[](auto& s) { s.train.optimizer.weight_decay = -1; }, "weight_decay is -1"},
      {[](auto& s) { s.train.optimizer.clip = INFINITY; }, "train.optimizer.clip is inf"},
      {[](auto& s) { s.train.optimizer.mup_base_width = 0; }, "mup_base_width is 0"},
      {[](auto& s) { s.train.schedule.warmup_fraction = 1; }, "warmup_fraction is 1"},
      {[](auto& s) { s.train.schedule.warmup_steps = -2; }, "warmup_steps is -2"},
      {[](auto& s) { s.train.schedule.final_fraction = 1.5; }, "final_fraction is 1.5"},
      {[](auto& s) { s.train.schedule.decay_fraction = 0; }, "decay_fraction is 0; (0, 1]"},
      {[](auto& s) { s.train.schedule.decay_fraction = 1.01; }, "decay_fraction is 1.01"},
      {[&](auto& s) { s.train.schedule.decay_fraction = nan; }, "decay_fraction is nan"},
      {[](auto& s) { s.train.log_every_steps = 0; }, "train.log_every_steps is 0"},
      {[](auto& s) { s.train.evaluate_every_tokens = -1; }, "evaluate_every_tokens is -1"},
      {[](auto& s) { s.train.checkpoint_every_ms = -1; }, "checkpoint_every_ms is -1"},
      {[](auto& s) { s.train.validation_tokens = -1; }, "train.validation_tokens is -1"},
      {[&](auto& s) { s.train.init_std = nan; }, "train.init_std is nan"},
      {[](auto& s) { s.train.z_loss = -1e-5; }, "train.z_loss is -1e-05"},
      {[&](auto& s) { s.train.z_loss = nan; }, "train.z_loss is nan"},
      {[](auto& s) { s.train.keep_last = 0; }, "train.keep_last is 0"},
      {[](auto& s) { s.train.nan_skip_limit = -1; }, "train.nan_skip_limit is -1"},
      {[](auto& s) { s.threads = 0; }, "threads is 0"},
      {[](auto& s) {
         s.geometry = {true, {2}, 8, 2, 0.5};
       },
       "geometry.layers is 2; 0 to 1"},
      {[](auto& s) {
         s.geometry = {true, {}, 0, 2, 0.5};
       },
       "geometry.tokens is 0"},
      {[](auto& s) {
         s.geometry = {true, {}, 8, 0, 0.5};
       },
       "geometry.subsamples is 0"},
      {[](auto& s) {
         s.geometry = {true, {}, 8, 2, 1.0};
       },
       "geometry.rho is 1"},
  };
  ASSERT_TRUE(validate_trial(spec_).is_ok()) << validate_trial(spec_).message();
  for (const auto& [change, message] : cases) {
    protocol::TrialSpec bad = spec_;
    change(bad);
    const Status status = validate_trial(bad);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
    Observer observer;
    EXPECT_EQ(run(bad, "bad", observer).end, EndClass::kUser);
  }
  EXPECT_FALSE(fs::exists(paths("bad").checkpoints));
}

}  // namespace
}  // namespace tailor::train
