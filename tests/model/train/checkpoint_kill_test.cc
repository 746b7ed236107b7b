// SIGKILL at a hundred points of checkpointing: at every stage of the writer, and at random times.
// Whatever was killed, the last checkpoint that was reported (or a later one) is there and whole,
// and every step trained from it has the bits of a run that was never stopped.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/rng.h"
#include "model/train/checkpoint_writer.h"
#include "model/train/step.h"
#include "tests/model/support.h"

namespace tailor::train {
namespace {

constexpr std::int64_t kSteps = 300;
constexpr int kKills = 100;
constexpr std::string_view kStages[] = {"snapshot", "folder",    "model",   "optimizer",
                                        "state",    "manifest",  "renamed", "synced",
                                        "verified", "set aside", "removed"};

// A small network and its data, which is a function of the step.
struct Loop {
  net::Decoder decoder{test::small_architecture(), at::kCPU, false};
  AdamW optimizer{decoder.parameters(), {}};
  TrainStep step{decoder, optimizer, 0};
  std::int64_t done = 0;

  Loop() { decoder.initialise(1, 0.05); }

  void train_one() {
    at::Tensor tokens = at::zeros({2, 9}, at::kLong);
    for (std::int64_t i = 0; i < tokens.numel(); ++i) {
      tokens.mutable_data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(
          keyed_u64(7, static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(i)) % 64);
    }
    step.run(tokens.narrow(1, 0, 8).contiguous(), tokens.narrow(1, 1, 8).contiguous(), 1e-3);
    ++done;
  }

  // Weights and moments.
  std::string bits() {
    std::string all;
    for (const at::Tensor& x :
         {decoder.parameters().flat(), optimizer.first_moment(), optimizer.second_moment()}) {
      all.append(static_cast<const char*>(x.const_data_ptr()), x.nbytes());
    }
    return sha256_hex(all);
  }
};

// Where a child dies: at the `count`-th time of `stage`, or after `after_ns`.
struct Point {
  std::string_view stage;
  int count = 0;
  std::int64_t after_ns = 0;
};

void arm(std::int64_t after_ns) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  itimerspec when{};
  when.it_value.tv_nsec = after_ns;
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
      ::timer_settime(timer, 0, &when, nullptr) != 0) {
    ::_exit(3);
  }
}

// Trains on from the newest checkpoint, saving as often as it can, and tells `pipe` of each
// checkpoint that is done.
[[noreturn]] void child(const std::string& folder, const Point& point, int pipe) {
  Loop run;
  const auto found = newest_checkpoint({folder}, "me", [](auto&, auto&) {});
  if (found) {
    if (!load_checkpoint(*found, run.decoder, run.optimizer)) ::_exit(4);
    run.done = found->state.step;
  }
  if (point.after_ns > 0) arm(point.after_ns);
  int seen = 0;
  CheckpointWriter writer(folder, {}, run.decoder, run.optimizer, [&](std::string_view stage) {
    if (stage == point.stage && ++seen == point.count) ::raise(SIGKILL);
  });
  while (run.done < kSteps) {
    run.train_one();
    if (const auto outcome = writer.poll()) {
      if (!outcome->has_value()) ::_exit(5);
      const std::int64_t saved = (*outcome)->state.step;
      if (::write(pipe, &saved, sizeof saved) != sizeof saved) ::_exit(6);
    }
    if (writer.busy()) continue;
    CheckpointState state;
    state.step = run.done;
    state.identity = "me";
    if (!writer.start(state)) ::_exit(7);
  }
  writer.wait();
  ::_exit(0);
}

TEST(CheckpointKillTest, AHundredKillsNeverLoseTheLastCheckpointNorABit) {
  std::vector<std::string> wanted;  // bits after each step
  {
    Loop run;
    wanted.push_back(run.bits());
    while (run.done < kSteps) {
      run.train_one();
      wanted.push_back(run.bits());
    }
  }
  const test::TemporaryFolder temporary;
  Rng rng(11);
  int kills = 0;
  int chain = 0;
  std::int64_t promised = 0;  // the newest checkpoint that was reported in this folder
  std::int64_t resumed = 0;   // children that began with a checkpoint
  for (int attempt = 0; kills < kKills; ++attempt) {
    ASSERT_LT(attempt, 3 * kKills) << "children end before they are killed";
    const std::string folder = temporary.path() + "/" + std::to_string(chain);
    Point point;
    if (kills < 2 * kKills / 3) {
      point.stage = kStages[static_cast<std::size_t>(kills) % std::size(kStages)];
      point.count = 1 + static_cast<int>(rng.below(3));
    } else {
      point.after_ns = 100'000 + static_cast<std::int64_t>(rng.below(40'000'000));
    }
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) child(folder, point, ends[1]);
    ::close(ends[1]);
    std::int64_t saved = 0;
    while (::read(ends[0], &saved, sizeof saved) == sizeof saved) promised = saved;
    ::close(ends[0]);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0)
        << "child ended with " << status;
    kills += WIFSIGNALED(status) ? 1 : 0;

    std::vector<std::string> skipped;
    const auto found =
        newest_checkpoint({folder}, "me", [&](const std::string& path, const Status& why) {
          skipped.push_back(path + ": " + why.message());
        });
    EXPECT_TRUE(skipped.empty()) << skipped.front();
    ASSERT_EQ(found.has_value() || promised == 0, true) << "killed at " << point.stage;
    if (!found) continue;
    ++resumed;
    ASSERT_GE(found->state.step, promised) << "killed at " << point.stage;
    Loop run;
    ASSERT_TRUE(load_checkpoint(*found, run.decoder, run.optimizer).is_ok());
    ASSERT_EQ(run.bits(), wanted[static_cast<std::size_t>(found->state.step)])
        << "killed at " << point.stage << point.after_ns << ", step " << found->state.step;
    if (found->state.step > kSteps - 100) {
      // The end comes: the next run would not be killed. Finish this one here, and begin anew.
      run.done = found->state.step;
      while (run.done < kSteps) run.train_one();
      ASSERT_EQ(run.bits(), wanted.back());
      ++chain;
      promised = 0;
    }
  }
  EXPECT_GT(resumed, kKills / 2);
}

}  // namespace
}  // namespace tailor::train
