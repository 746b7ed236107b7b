// tailor-trainer as a process: whole trials on tiny networks, stopped, killed and resumed,
// with bad input.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "geometry/work_profile_json.h"
#include "model/data/token_shard.h"
#include "model/pretrained/safetensors.h"
#include "protocol/convert.h"
#include "tests/worker/trainer/trainer_process.h"

namespace tailor {
namespace {

namespace fs = std::filesystem;
using protocol::CheckpointReport;
using protocol::EndClass;
using protocol::EndReport;
using protocol::MetricReport;
using protocol::ProfileReport;
using protocol::Report;
using protocol::StartedReport;
using testing::HasSubstr;

using trainer::TrainerTest;

TEST_F(TrainerTest, AWholeTrialReportsEverythingAndLearns) {
  protocol::TrialSpec spec = small_spec();
  spec.train.evaluate_every_tokens = 128 * 15;
  spec.geometry.enabled = true;
  spec.geometry.tokens = 32;
  spec.geometry.subsamples = 4;
  spec.geometry.sub_blocks = true;
  const std::string trial = prepare("a", spec);
  ASSERT_EQ(run(trial), 0) << *read_file(trial + "/log");
  std::uint64_t sequence = 0;
  for (const Report& report : reports(trial)) EXPECT_EQ(report.sequence, ++sequence);

  const auto started = bodies<StartedReport>(trial);
  ASSERT_EQ(started.size(), 1u);
  EXPECT_EQ(started[0].steps_total, 40);
  EXPECT_EQ(started[0].resumed_step, 0);
  EXPECT_EQ(started[0].device, "cpu");
  EXPECT_EQ(started[0].data_hash.size(), 64u);
  EXPECT_EQ(started[0].parameters_body, 2 * (32 * 32 * 2 + 2 * 32 * 16 + 2 * 3 * 32 * 24));

  std::vector<std::int64_t> logged;
  std::vector<std::int64_t> evaluated;
  double last_validation = 0;
  for (const MetricReport& metric : bodies<MetricReport>(trial)) {
    EXPECT_EQ(metric.tokens, metric.step * 128);
    if (metric.values.contains("train_loss")) {
      logged.push_back(metric.step);
      EXPECT_TRUE(metric.values.contains("lr"));
      EXPECT_TRUE(metric.values.contains("grad_norm"));
      EXPECT_GT(metric.values.at("tokens_per_s"), 0);
      EXPECT_GE(metric.values.at("data_wait_ms"), 0);
    }
    if (metric.values.contains("validation_loss")) {
      evaluated.push_back(metric.step);
      last_validation = metric.values.at("validation_loss");
      EXPECT_NEAR(metric.values.at("perplexity"), std::exp(last_validation), 1e-9);
    }
  }
  EXPECT_THAT(logged, testing::ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(evaluated, testing::ElementsAre(15, 30, 40));
  // Three equally likely successors: log 3 = 1.10 nats; log 64 = 4.16 before training.
  EXPECT_LT(last_validation, 2.5);
  EXPECT_GT(last_validation, 1.09);

  const auto checkpoints = bodies<CheckpointReport>(trial);
  ASSERT_EQ(checkpoints.size(), 1u);
  EXPECT_EQ(checkpoints[0].step, 40);
  EXPECT_TRUE(fs::exists(checkpoints[0].path + "/manifest.json"));

  const auto profiles = bodies<ProfileReport>(trial);
  ASSERT_EQ(profiles.size(), 1u);
  EXPECT_EQ(profiles[0].tokens, 32);
  EXPECT_EQ(profiles[0].subsamples, 4);
  EXPECT_EQ(profiles[0].subsamples_asked, 4);
  // Four tokens of a sequence; one sequence more than each subsample needs.
  EXPECT_EQ(profiles[0].positions, 4 * (8 + 1) * 4);
  EXPECT_EQ(profiles[0].sequences, 4 * (8 + 1));
  EXPECT_TRUE(profiles[0].sequences_given);
  int shifts = 0;
  for (const auto& entry : profiles[0].entries) {
    if (entry.statistic != "shift") continue;
    ++shifts;
    EXPECT_GT(entry.value, 0);
    EXPECT_GT(entry.standard_error.value_or(0), 0);
    EXPECT_EQ(entry.subsample_values.size(), 4u);
  }
  EXPECT_EQ(shifts, 2 * (1 + 2) * 3);  // layers x (whole, two sub-MLPs) x geometries
  const auto artifact = nlohmann::json::parse(*read_file(trial + "/artifacts/work_profile.json"));
  EXPECT_EQ(artifact["positions"].size(), 144u);
  const auto whole =
      geometry::work_profile_from_json(*read_file(trial + "/artifacts/work_profile.json"));
  ASSERT_TRUE(whole.has_value()) << whole.error().message();
  EXPECT_EQ(whole->positions.size(), 4u);
  ASSERT_EQ(whole->entries.size(), profiles[0].entries.size());
  EXPECT_EQ(whole->entries.back().value, profiles[0].entries.back().value);

  const EndReport ended = end(trial);
  EXPECT_EQ(ended.end, EndClass::kCompleted);
  EXPECT_EQ(ended.values.at("validation_loss"), last_validation);
  for (const char* name : {"perplexity", "tokens_per_s", "train_loss", "parameters"}) {
    EXPECT_TRUE(ended.values.contains(name)) << name;
  }
  const auto file = pretrained::SafetensorsFile::open(trial + "/artifacts/model.safetensors");
  ASSERT_TRUE(file.has_value());
  EXPECT_NE(file->find("model.layers.1.mlp.blocks.1.down_proj.weight"), nullptr);
  const auto config = nlohmann::json::parse(*read_file(trial + "/artifacts/config.json"));
  EXPECT_EQ(config["model_type"], "tailor_hourglass");
  EXPECT_EQ(config["architecture"]["d_model"], 32);

  // Run again: complete, nothing changes.
  const std::string log = *read_file(trial + "/reports.jsonl");
  EXPECT_EQ(run(trial), 0);
  EXPECT_EQ(*read_file(trial + "/reports.jsonl"), log);
}

TEST_F(TrainerTest, StoppedOrKilledAndResumedATrialEndsWithTheSameBytes) {
  protocol::TrialSpec spec = small_spec();
  spec.train.tokens = 128 * 400;
  spec.train.log_every_steps = 1;
  const std::string whole = prepare("whole", spec);
  ASSERT_EQ(run(whole), 0) << *read_file(whole + "/log");
  const std::string wanted = weights(whole);
  ASSERT_FALSE(wanted.empty());

  // Attempt 1: SIGTERM in the middle. A checkpoint is saved at the step it was in.
  const std::string first = prepare("first", spec);
  start(first);
  wait_for_step(first, 60);
  ::kill(pid_, SIGTERM);
  ASSERT_EQ(wait(), 6) << *read_file(first + "/log");
  const EndReport stopped = end(first);
  EXPECT_EQ(stopped.end, EndClass::kStopped);
  EXPECT_GE(stopped.step, 60);
  EXPECT_LT(stopped.step, 400);
  EXPECT_THAT(stopped.message, HasSubstr("SIGTERM"));
  ASSERT_EQ(bodies<CheckpointReport>(first).size(), 1u);
  EXPECT_EQ(bodies<CheckpointReport>(first)[0].step, stopped.step);

  // Attempt 2, another directory: SIGKILL between checkpoints, which are taken all the time.
  protocol::TrialSpec again = spec;
  again.attempt = 2;
  again.train.checkpoint_every_ms = 1;
  again.resume_from = {first + "/checkpoints"};
  const std::string second = prepare("second", again);
  start(second);
  wait_for_step(second, stopped.step + 25);
  wait_for_checkpoint(second);  // they are written beside the training
  ::kill(pid_, SIGKILL);
  ASSERT_EQ(wait(), -SIGKILL);
  ASSERT_EQ(bodies<StartedReport>(second).size(), 1u);
  EXPECT_EQ(bodies<StartedReport>(second)[0].resumed_step, stopped.step);
  ASSERT_FALSE(bodies<CheckpointReport>(second).empty());

  // Attempt 3 resumes from the newest of both.
  protocol::TrialSpec third_spec = spec;
  third_spec.attempt = 3;
  third_spec.resume_from = {first + "/checkpoints", second + "/checkpoints"};
  const std::string third = prepare("third", third_spec);
  ASSERT_EQ(run(third), 0) << *read_file(third + "/log");
  EXPECT_GE(bodies<StartedReport>(third)[0].resumed_step,
            bodies<CheckpointReport>(second).back().step);
  EXPECT_TRUE(weights(third) == wanted) << "other bytes";
  EXPECT_EQ(end(third).values.at("validation_loss"), end(whole).values.at("validation_loss"));
  // The curve too: every step's loss is that of the unbroken run.
  std::map<std::int64_t, double> curve;
  for (const MetricReport& metric : bodies<MetricReport>(whole)) {
    if (metric.values.contains("train_loss")) curve[metric.step] = metric.values.at("train_loss");
  }
  for (const std::string& trial : {first, second, third}) {
    for (const MetricReport& metric : bodies<MetricReport>(trial)) {
      if (metric.values.contains("train_loss")) {
        EXPECT_EQ(metric.values.at("train_loss"), curve[metric.step])
            << trial << " step " << metric.step;
      }
    }
  }
}

TEST_F(TrainerTest, AResumedTrialFirstReportsWhatItsDeadWorkerDidNotBring) {
  protocol::TrialSpec spec = small_spec();
  spec.train.log_every_steps = 1;
  spec.train.tokens = spec.train.batch_tokens * 1'000'000;
  const std::string first = prepare("first", spec);
  start(first);
  wait_for_step(first, 10);
  ::kill(pid_, SIGTERM);
  ASSERT_EQ(wait(), 6);
  const std::int64_t saved = end(first).step;
  std::ofstream(first + "/worker.json") << "{\"acked_sequence\": 6}";  // its start and five steps

  spec.attempt = 2;
  spec.resume_from = {first + "/checkpoints"};
  const std::string second = prepare("second", spec);
  start(second);
  wait_for_step(second, saved + 5);
  ::kill(pid_, SIGTERM);
  ASSERT_EQ(wait(), 6);
  const auto curve = losses(second);
  EXPECT_EQ(curve.begin()->first, 6);
  EXPECT_EQ(curve.size(), static_cast<std::size_t>(curve.rbegin()->first - 5)) << "without a gap";
  EXPECT_EQ(curve.at(saved), losses(first).at(saved));
  // Before its own start, so that no step seems to go back behind it.
  std::int64_t before = 0;
  for (const protocol::Report& report : reports(second)) {
    if (std::holds_alternative<protocol::StartedReport>(report.body)) break;
    if (const auto* metric = std::get_if<protocol::MetricReport>(&report.body))
      before = metric->step;
  }
  EXPECT_EQ(before, saved);
}

TEST_F(TrainerTest, TwoRunsWithTwoThreadsGiveTheSameBytes) {
  protocol::TrialSpec spec = small_spec();
  spec.threads = 2;
  spec.architecture.d_model = 96;  // large enough that work is shared
  spec.architecture.widths = shape::uniform_widths(2, 2, 160);
  spec.data.sequence_length = 64;
  spec.train.batch_tokens = 1024;
  spec.train.tokens = 1024 * 10;
  const std::string a = prepare("a", spec);
  const std::string b = prepare("b", spec);
  ASSERT_EQ(run(a), 0) << *read_file(a + "/log");
  ASSERT_EQ(run(b), 0) << *read_file(b + "/log");
  ASSERT_FALSE(weights(a).empty());
  EXPECT_TRUE(weights(a) == weights(b));
}

TEST_F(TrainerTest, AKilledTrainerStartedAgainInItsDirectoryContinuesItsLog) {
  protocol::TrialSpec spec = small_spec();
  spec.train.tokens = 128 * 1000;  // the kill comes long before the end
  spec.train.log_every_steps = 1;
  spec.train.checkpoint_every_ms = 1;
  const std::string trial = prepare("a", spec);
  start(trial);
  wait_for_checkpoint(trial);  // they are written beside the training: no step promises one
  ::kill(pid_, SIGKILL);
  ASSERT_EQ(wait(), -SIGKILL);
  std::ofstream(trial + "/reports.jsonl", std::ios::app)
      << "{\"sequence\": \"99";  // torn by the crash
  ASSERT_EQ(run(trial), 0) << *read_file(trial + "/log");
  std::uint64_t sequence = 0;
  for (const Report& report : reports(trial)) EXPECT_EQ(report.sequence, ++sequence);
  const auto started = bodies<StartedReport>(trial);
  ASSERT_EQ(started.size(), 2u);
  EXPECT_GT(started[1].resumed_step, 0);
}

TEST_F(TrainerTest, TheSmallestSpecOfTheDocumentRuns) {
  std::ifstream document(std::string(TAILOR_SOURCE_DIR) + "/docs/trainer.md");
  std::stringstream text;
  text << document.rdbuf();
  const std::size_t begin = text.str().find("```json\n") + 8;
  const std::string trial = directory("smallest");
  fs::create_directories(trial);
  std::ofstream(trial + "/spec.json")
      << text.str().substr(begin, text.str().find("```", begin) - begin);
  // Its data lie where the trainer is started.
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  start(trial);
  fs::current_path(before);
  ASSERT_EQ(wait(), 0) << *read_file(trial + "/log");
  EXPECT_EQ(end(trial).step, 40);  // 5120 / 128
}

TEST_F(TrainerTest, ACompletedTrialSaysWhatWasChangedAndStaysAsItIs) {
  const protocol::TrialSpec spec = small_spec();
  const std::string trial = prepare("a", spec);
  ASSERT_EQ(run(trial), 0);
  const std::string reports_before = *read_file(trial + "/reports.jsonl");
  const std::string weights_before = weights(trial);
  // The result does not depend on these.
  protocol::TrialSpec changed = spec;
  changed.threads = 2;
  changed.train.keep_last = 7;
  prepare("a", changed);
  fs::remove(trial + "/log");
  EXPECT_EQ(run(trial), 0);
  EXPECT_THAT(*read_file(trial + "/log"), HasSubstr("threads was 1, is 2"));
  EXPECT_THAT(*read_file(trial + "/log"), HasSubstr("complete already"));
  // On these it does: a cosine's rates depend on the number of steps, too.
  const std::pair<std::function<void(protocol::TrialSpec&)>, std::string> cases[] = {
      {[](auto& s) { s.train.tokens *= 2; }, "train.tokens was 5120, is 10240"},
      {[](auto& s) { s.train.tokens /= 2; }, "train.tokens was 5120, is 2560"},
      {[](auto& s) { s.train.optimizer.lr = 0.5; }, "train.optimizer.lr was 0.01, is 0.5"},
      {[](auto& s) { s.seed = 99; }, "seed was 3, is 99"},
      {[](auto& s) { s.architecture.widths[0][1] = 25; }, "architecture.widths was "}};
  for (const auto& [change, says] : cases) {
    changed = spec;
    change(changed);
    prepare("a", changed);
    fs::remove(trial + "/log");
    EXPECT_EQ(run(trial), 2) << says;
    const std::string log = *read_file(trial + "/log");
    EXPECT_THAT(log, HasSubstr(says));
    EXPECT_THAT(log, HasSubstr("new directory"));
    EXPECT_EQ(*read_file(trial + "/reports.jsonl"), reports_before) << says;
  }
  EXPECT_TRUE(weights(trial) == weights_before);
  // Put back, it is complete again.
  prepare("a", spec);
  EXPECT_EQ(run(trial), 0);
  EXPECT_EQ(*read_file(trial + "/reports.jsonl"), reports_before);
  // Of an earlier version nothing but the checkpoint's identity is known.
  fs::remove(trial + "/trained.json");
  EXPECT_EQ(run(trial), 0);
  prepare("a", changed);
  EXPECT_EQ(run(trial), 2);
  EXPECT_EQ(*read_file(trial + "/reports.jsonl"), reports_before);
}

TEST_F(TrainerTest, MoreTokensGoOnFromTheLastCheckpointWhereTheRatesAreTheSame) {
  protocol::TrialSpec spec = small_spec();
  spec.train.schedule.kind = protocol::LrScheduleKind::kConstant;
  spec.train.schedule.warmup_steps = 5;
  const std::string grown = prepare("grown", spec);
  ASSERT_EQ(run(grown), 0);
  spec.train.tokens = 128 * 70;
  prepare("grown", spec);
  ASSERT_EQ(run(grown), 0) << *read_file(grown + "/log");
  EXPECT_THAT(*read_file(grown + "/log"), HasSubstr("train.tokens was 5120, is 8960"));
  EXPECT_EQ(bodies<StartedReport>(grown).back().resumed_step, 40);
  EXPECT_EQ(end(grown).step, 70);
  const std::string whole = prepare("whole", spec);
  ASSERT_EQ(run(whole), 0);
  ASSERT_FALSE(weights(whole).empty());
  EXPECT_TRUE(weights(grown) == weights(whole)) << "as if it had been trained in one go";
  // Complete with what it has now.
  const std::string log = *read_file(grown + "/reports.jsonl");
  EXPECT_EQ(run(grown), 0);
  EXPECT_EQ(*read_file(grown + "/reports.jsonl"), log);
}

TEST_F(TrainerTest, WarmupStableDecayGoesOnFromBeforeItsDecay) {
  protocol::TrialSpec spec = small_spec();
  spec.train.schedule.kind = protocol::LrScheduleKind::kWsd;
  spec.train.schedule.warmup_steps = 5;
  spec.train.schedule.decay_fraction = 0.25;
  spec.train.evaluate_every_tokens = 128 * 30;  // with keep_best: a checkpoint at step 30
  spec.train.keep_best = true;
  const std::string grown = prepare("grown", spec);
  ASSERT_EQ(run(grown), 0);
  ASSERT_TRUE(fs::exists(grown + "/checkpoints/000000030"));
  spec.train.tokens *= 2;
  prepare("grown", spec);
  ASSERT_EQ(run(grown), 0) << *read_file(grown + "/log");
  EXPECT_EQ(bodies<StartedReport>(grown).back().resumed_step, 30);
  const std::string whole = prepare("whole", spec);
  ASSERT_EQ(run(whole), 0);
  EXPECT_TRUE(weights(grown) == weights(whole));
  // Without such a checkpoint it is refused, and says from which step on the rates differ.
  spec.train.tokens *= 2;
  spec.train.keep_best = false;
  for (const auto& folder : fs::directory_iterator(grown + "/checkpoints")) {
    if (folder.path().filename() < "000000080") fs::remove_all(folder);
  }
  prepare("grown", spec);
  EXPECT_EQ(run(grown), 2);
  // 80 steps, the last quarter comes down.
  EXPECT_THAT(*read_file(grown + "/log"), HasSubstr("learning rate from step 61 on"));
}

TEST_F(TrainerTest, WhatIsMeasuredMayBeAskedForAfterwards) {
  protocol::TrialSpec spec = small_spec();
  const std::string trial = prepare("a", spec);
  ASSERT_EQ(run(trial), 0);
  const std::string weights_before = weights(trial);
  EXPECT_TRUE(bodies<ProfileReport>(trial).empty());
  spec.geometry.enabled = true;
  spec.geometry.tokens = 32;
  spec.geometry.subsamples = 4;
  prepare("a", spec);
  ASSERT_EQ(run(trial), 0) << *read_file(trial + "/log");
  EXPECT_EQ(bodies<ProfileReport>(trial).size(), 1u);
  EXPECT_EQ(bodies<StartedReport>(trial).back().resumed_step, 40);
  EXPECT_TRUE(weights(trial) == weights_before);
}

TEST_F(TrainerTest, AStoppedTrialWithAnotherSpecIsRefusedAndNotStartedOver) {
  protocol::TrialSpec spec = small_spec();
  spec.train.tokens = 128 * 1'000'000;
  spec.train.log_every_steps = 1;
  const std::string trial = prepare("a", spec);
  start(trial);
  wait_for_step(trial, 5);
  ::kill(pid_, SIGTERM);
  ASSERT_EQ(wait(), 6);
  const std::size_t starts = bodies<StartedReport>(trial).size();
  spec.train.optimizer.weight_decay = 0;
  prepare("a", spec);
  EXPECT_EQ(run(trial), 2);
  EXPECT_THAT(*read_file(trial + "/log"), HasSubstr("train.optimizer.weight_decay was 0.1, is 0"));
  EXPECT_EQ(bodies<StartedReport>(trial).size(), starts);
}

TEST_F(TrainerTest, OnATerminalALineSaysHowFarItIs) {
  protocol::TrialSpec spec = small_spec();
  spec.train.tokens = 128 * 1'000'000;
  const std::string trial = prepare("a", spec);
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(::grantpt(terminal), 0);
  ASSERT_EQ(::unlockpt(terminal), 0);
  const std::string name = ::ptsname(terminal);
  const std::string program = std::string(TAILOR_BIN_DIR) + "/tailor-trainer";
  pid_ = ::fork();
  if (pid_ == 0) {
    const int stderr_fd = ::open(name.c_str(), O_RDWR | O_NOCTTY);
    ::dup2(stderr_fd, 2);
    ::setenv("TERM", "xterm", 1);
    ::execl(program.c_str(), program.c_str(), "run", trial.c_str(), nullptr);
    ::_exit(127);
  }
  std::string seen;
  const auto lines = [&] {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = seen.find("\r\033[Kstep ", at)) != std::string::npos; ++at) {
      ++count;
    }
    return count;
  };
  wait_until("no progress in " + seen, [&] {
    pollfd ready{terminal, POLLIN, 0};
    char block[4096];
    if (::poll(&ready, 1, 10) > 0) {
      const ssize_t got = ::read(terminal, block, sizeof block);
      if (got > 0) seen.append(block, static_cast<std::size_t>(got));
    }
    return lines() >= 3 && seen.find("ETA") != std::string::npos;
  });
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(wait(), 6);
  for (pollfd ready{terminal, POLLIN, 0}; ::poll(&ready, 1, 0) > 0;) {
    char block[4096];
    const ssize_t got = ::read(terminal, block, sizeof block);
    if (got <= 0) break;
    seen.append(block, static_cast<std::size_t>(got));
  }
  ::close(terminal);
  EXPECT_THAT(seen, HasSubstr("/1000000 ("));
  EXPECT_THAT(seen, HasSubstr("loss "));
  EXPECT_THAT(seen, HasSubstr("tokens/s"));
  // Before the last words the line is taken away.
  const std::size_t last = seen.rfind("SIGTERM at step");
  ASSERT_NE(last, std::string::npos) << seen;
  const std::size_t cleared = seen.rfind("\033[K", last);
  ASSERT_NE(cleared, std::string::npos);
  EXPECT_THAT(seen.substr(cleared, last - cleared), testing::Not(HasSubstr("step ")));
  // In a file there is none: no worker's log grows by it.
  const std::string plain = prepare("plain", small_spec());
  ASSERT_EQ(run(plain), 0);
  EXPECT_EQ(read_file(plain + "/log")->find('\r'), std::string::npos);
}

TEST_F(TrainerTest, DamagedCheckpointsAreSkippedWithALogLine) {
  protocol::TrialSpec spec = small_spec();
  const std::string first = prepare("first", spec);
  ASSERT_EQ(run(first), 0);
  const std::string model = first + "/checkpoints/000000040/model.safetensors";
  const std::string bytes = *read_file(model);
  std::ofstream(model, std::ios::binary) << bytes.substr(0, bytes.size() - 100);
  spec.resume_from = {first + "/checkpoints"};
  const std::string second = prepare("second", spec);
  ASSERT_EQ(run(second), 0);
  EXPECT_EQ(bodies<StartedReport>(second)[0].resumed_step, 0);
  const std::string log = *read_file(second + "/log");
  EXPECT_THAT(log, HasSubstr("checkpoint skipped"));
  EXPECT_THAT(log, HasSubstr(model));
  EXPECT_TRUE(weights(second) == bytes) << "the export is the file of the checkpoint";
}

TEST_F(TrainerTest, ARunOutLeaseStopsTheTrialWithACheckpoint) {
  protocol::TrialSpec spec = small_spec();
  spec.train.tokens = 128 * 1'000'000;
  const std::string trial = prepare("a", spec);
  std::ofstream(trial + "/lease") << SystemClock().now_ms() + 300;
  ASSERT_EQ(run(trial), 6);
  EXPECT_EQ(end(trial).end, EndClass::kStopped);
  EXPECT_THAT(end(trial).message, HasSubstr("lease"));
  EXPECT_EQ(bodies<CheckpointReport>(trial).size(), 1u);
}

TEST_F(TrainerTest, NanEndsTheTrialWithTheStepTheTensorAndTheLastGoodCheckpoint) {
  protocol::TrialSpec spec = small_spec();
  spec.train.optimizer.lr = 1e30;
  spec.train.schedule.warmup_steps = 0;
  spec.train.checkpoint_every_ms = 1;
  const std::string trial = prepare("a", spec);
  ASSERT_EQ(run(trial), 5) << *read_file(trial + "/log");
  const EndReport ended = end(trial);
  EXPECT_EQ(ended.end, EndClass::kNan);
  EXPECT_GE(ended.step, 2);
  EXPECT_THAT(ended.message, HasSubstr("step " + std::to_string(ended.step)));
  EXPECT_THAT(ended.message, HasSubstr("first not finite: "));
  EXPECT_THAT(ended.message, testing::AnyOf(HasSubstr("layer"), HasSubstr("gradient"),
                                            HasSubstr("weight"), HasSubstr("scores")));
  EXPECT_FALSE(std::isfinite(ended.values.at("train_loss")) &&
               std::isfinite(ended.values.at("grad_norm")));
}

TEST_F(TrainerTest, HugeInitialValuesEndAsNanInTheFirstStep) {
  protocol::TrialSpec spec = small_spec();
  spec.train.init_std = 1e25;
  const std::string trial = prepare("a", spec);
  ASSERT_EQ(run(trial), 5);
  EXPECT_EQ(end(trial).step, 1);
  EXPECT_THAT(end(trial).message, HasSubstr("checkpoint: none"));
}

TEST_F(TrainerTest, Bf16TrainsToNearlyTheSameLoss) {
  protocol::TrialSpec spec = small_spec();
  const std::string exact = prepare("f32", spec);
  spec.train.precision = protocol::Precision::kBf16;
  const std::string low = prepare("bf16", spec);
  ASSERT_EQ(run(exact), 0);
  ASSERT_EQ(run(low), 0) << *read_file(low + "/log");
  const double wanted = end(exact).values.at("validation_loss");
  EXPECT_NEAR(end(low).values.at("validation_loss"), wanted, 0.02 * wanted);
}

TEST_F(TrainerTest, BadDataAndBadSpecsEndWithTheirClassAndName) {
  struct Case {
    std::string name;
    std::function<void(protocol::TrialSpec&)> change;
    int exit;
    EndClass end;
    std::string says;
  };
  write_shard("wide.tokens", 2'000, 3, 200);
  std::ofstream(folder_ + "/empty.tokens").flush();
  std::ofstream(folder_ + "/text.tokens")
      << "this is no token shard, but some text of a fair length.......";
  fs::copy(folder_ + "/train.tokens", folder_ + "/cut.tokens");
  fs::resize_file(folder_ + "/cut.tokens", fs::file_size(folder_ + "/cut.tokens") / 2);
  fs::copy(folder_ + "/train.tokens", folder_ + "/altered.tokens");
  {
    std::fstream file(folder_ + "/altered.tokens", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-100, std::ios::end);
    const char old = static_cast<char>(file.get());
    file.seekp(-100, std::ios::end);
    file.put(static_cast<char>(old ^ 1));
  }
  const auto train = [&](const std::string& file) {
    return [this, file](protocol::TrialSpec& spec) { spec.data.train = folder_ + "/" + file; };
  };
  const Case cases[] = {
      {"missing", train("nothing-*.tokens"), 3, EndClass::kData, "nothing-*.tokens"},
      {"empty", train("empty.tokens"), 3, EndClass::kData, "empty.tokens"},
      {"text", train("text.tokens"), 3, EndClass::kData, "text.tokens"},
      {"cut", train("cut.tokens"), 3, EndClass::kData, "cut.tokens"},
      {"altered", train("altered.tokens"), 3, EndClass::kData, "altered.tokens"},
      {"vocabulary", train("wide.tokens"), 3, EndClass::kData, "wide.tokens"},
      {"long",
       [](auto& spec) { spec.data.sequence_length = 1 << 20, spec.train.batch_tokens = 1 << 20; },
       3, EndClass::kData, "train"},
      {"batch", [](auto& spec) { spec.train.batch_tokens = 100; }, 2, EndClass::kUser,
       "train.batch_tokens is 100"},
      {"rate", [](auto& spec) { spec.train.optimizer.lr = -1; }, 2, EndClass::kUser,
       "train.optimizer.lr is -1"},
      {"layer",
       [](auto& spec) {
         spec.geometry = {true, {5}, 8, 2, 0.5};
       },
       2, EndClass::kUser, "geometry.layers"},
      // More than a petabyte: no machine's address space holds it.
      {"memory",
       [](auto& spec) {
         spec.architecture.d_model = 1 << 18;
         spec.architecture.heads = 1 << 14;
         spec.architecture.head_dim = 1 << 14;
       },
       4, EndClass::kOom, "memory"},
      {"device", [](auto& spec) { spec.device = "tpu"; }, 2, EndClass::kUser, "cuda:N"},
      {"gpu", [](auto& spec) { spec.device = "cuda:99"; }, 7, EndClass::kInfrastructure, "cuda:99"},
  };
  for (const Case& bad : cases) {
    protocol::TrialSpec spec = small_spec();
    bad.change(spec);
    const std::string trial = prepare(bad.name, spec);
    EXPECT_EQ(run(trial), bad.exit) << bad.name << "\n" << *read_file(trial + "/log");
    const EndReport ended = end(trial);
    EXPECT_EQ(ended.end, bad.end) << bad.name;
    EXPECT_THAT(ended.message, HasSubstr(bad.says)) << bad.name;
  }
  // No spec at all, and one that is no spec.
  fs::create_directories(directory("none"));
  EXPECT_EQ(run(directory("none")), 2);
  EXPECT_EQ(end(directory("none")).end, EndClass::kUser);
  fs::create_directories(directory("torn"));
  std::ofstream(directory("torn") + "/spec.json") << "{\"trial\": 7,";
  EXPECT_EQ(run(directory("torn")), 2);
  EXPECT_THAT(end(directory("torn")).message, HasSubstr("spec.json"));
}

}  // namespace
}  // namespace tailor
