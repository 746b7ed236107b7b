// Fixture: trials in a temporary folder, and tailor-trainer as a process on them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "model/data/token_shard.h"
#include "protocol/convert.h"
#include "tests/support/temporary_folder.h"

namespace tailor::trainer {

inline constexpr int kDeadlineMs = 60'000;

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    write_shard("train.tokens", 40'000, 1);
    write_shard("validation.tokens", 3'000, 2);
  }
  ~TrainerTest() override {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  // Text-like tokens: the next one depends on the last, so there is something to learn.
  void write_shard(const std::string& name, int count, std::uint64_t seed,
                   std::uint32_t vocab = 64) {
    Rng rng(seed);
    std::vector<std::uint32_t> ids;
    std::uint32_t last = 0;
    for (int i = 0; i < count; ++i) {
      last = static_cast<std::uint32_t>((last * 5 + 1 + rng.below(3)) % vocab);
      ids.push_back(last);
    }
    auto writer =
        data::TokenShardWriter::create(folder_ + "/" + name, vocab, 0, std::string(64, 'a'));
    ASSERT_TRUE(writer.has_value()) << writer.error().message();
    ASSERT_TRUE(writer->append(ids, static_cast<std::uint64_t>(count), 1).is_ok());
    ASSERT_TRUE(writer->finish().has_value());
  }

  protocol::TrialSpec small_spec() const {
    protocol::TrialSpec spec;
    spec.trial = TrialId{7};
    spec.attempt = 1;
    spec.seed = 3;
    shape::Architecture& a = spec.architecture;
    a.d_model = 32;
    a.heads = 4;
    a.kv_heads = 2;
    a.head_dim = 8;
    a.vocab_size = 64;
    a.ffn_kind = shape::FfnKind::kHourglass;
    a.widths = shape::uniform_widths(2, 2, 24);
    spec.data.train = folder_ + "/train.tokens";
    spec.data.validation = folder_ + "/validation.tokens";
    spec.data.sequence_length = 16;
    spec.train.batch_tokens = 128;
    spec.train.tokens = 128 * 40;
    spec.train.log_every_steps = 10;
    spec.train.checkpoint_every_ms = 0;
    spec.train.optimizer.lr = 1e-2;
    return spec;
  }

  std::string directory(const std::string& name) const { return folder_ + "/" + name; }

  std::string prepare(const std::string& name, const protocol::TrialSpec& spec) const {
    std::filesystem::create_directories(directory(name));
    std::ofstream(directory(name) + "/spec.json") << protocol::to_json(spec);
    return directory(name);
  }

  void start(const std::string& trial, const std::vector<std::string>& options = {}) {
    pid_ = launch(trial, options);
    ASSERT_GT(pid_, 0);
  }

  // The exit code, or minus the signal.
  int wait() { return wait_for(std::exchange(pid_, -1)); }

  int run(const std::string& trial, const std::vector<std::string>& options = {}) {
    start(trial, options);
    return wait();
  }

  // For more than one process: whoever launches waits.
  static pid_t launch(const std::string& trial, const std::vector<std::string>& options) {
    const char* given = std::getenv("TAILOR_BIN");  // tests/gpu.sh, where it was not built
    const std::string program =
        std::string(given != nullptr ? given : TAILOR_BIN_DIR) + "/tailor-trainer";
    const std::string log = trial + "/log";
    std::vector<std::string> words = {program, "run", trial};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      ::dup2(file, 1);
      ::dup2(file, 2);
      ::execv(program.c_str(), pointers.data());
      ::_exit(127);
    }
    return pid;
  }

  static int wait_for(pid_t pid, int deadline_ms = kDeadlineMs) {
    int status = 0;
    const SystemClock clock;
    const MonotonicMs deadline = clock.now_ms() + deadline_ms;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      if (clock.now_ms() > deadline) {
        ADD_FAILURE() << "the trainer hangs";
        ::kill(pid, SIGKILL);
        ::waitpid(pid, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  static std::vector<protocol::Report> reports(const std::string& trial) {
    std::vector<protocol::Report> all;
    std::istringstream lines(read_file(trial + "/reports.jsonl").value_or(""));
    std::string line;
    while (std::getline(lines, line)) {
      if (auto report = protocol::report_from_json(line)) all.push_back(*report);
    }
    return all;
  }

  template <typename Body>
  static std::vector<Body> bodies(const std::string& trial) {
    std::vector<Body> all;
    for (const protocol::Report& report : reports(trial)) {
      if (const auto* body = std::get_if<Body>(&report.body)) all.push_back(*body);
    }
    return all;
  }

  // Training losses by step.
  static std::map<std::int64_t, double> losses(const std::string& trial) {
    std::map<std::int64_t, double> curve;
    for (const protocol::MetricReport& metric : bodies<protocol::MetricReport>(trial)) {
      const auto found = metric.values.find("train_loss");
      if (found != metric.values.end()) curve[metric.step] = found->second;
    }
    return curve;
  }

  static protocol::EndReport end(const std::string& trial) {
    const auto all = reports(trial);
    EXPECT_FALSE(all.empty());
    const auto* last = all.empty() ? nullptr : std::get_if<protocol::EndReport>(&all.back().body);
    EXPECT_NE(last, nullptr) << read_file(trial + "/log").value_or("");
    return last != nullptr ? *last : protocol::EndReport{};
  }

  // Waits until the log has a report of `step` or later.
  void wait_for_step(const std::string& trial, std::int64_t step) {
    wait_until("no report of step " + std::to_string(step), [&] {
      const auto metrics = bodies<protocol::MetricReport>(trial);
      return std::any_of(metrics.begin(), metrics.end(),
                         [step](const auto& metric) { return metric.step >= step; });
    });
  }
  void wait_for_checkpoint(const std::string& trial) {
    wait_until("no report of a checkpoint",
               [&] { return !bodies<protocol::CheckpointReport>(trial).empty(); });
  }

  // Asks every 2 ms; fails with `otherwise` after kDeadlineMs.
  static void wait_until(const std::string& otherwise, const std::function<bool()>& condition) {
    const SystemClock clock;
    const MonotonicMs deadline = clock.now_ms() + kDeadlineMs;
    while (clock.now_ms() < deadline) {
      if (condition()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    FAIL() << otherwise;
  }

  static std::string weights(const std::string& trial) {
    return read_file(trial + "/artifacts/model.safetensors").value_or("");
  }

  const test::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
  pid_t pid_ = -1;
};

}  // namespace tailor::trainer
