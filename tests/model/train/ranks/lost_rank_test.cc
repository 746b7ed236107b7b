// A rank that is lost in the middle of a sum. NCCL's communicator, once aborted, hands out what has
// come so far and says nothing; here a backend on the CPU does the same. Nothing that such sums
// went into may be believed: no metric, no checkpoint, no verdict "not finite".
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "model/train/ranks/group.h"
#include "tests/model/train/ranks/group_support.h"
#include "tests/model/train/trial_support.h"

namespace tailor::train {
namespace {

using protocol::EndClass;
using ranks::Group;
using ranks::GroupLost;
using testing::HasSubstr;

constexpr int kRanks = 2;

// Where the ranks, threads of this process, put their tensors.
class Exchange {
 public:
  // The tensors of all ranks for operation `number`, or this rank's alone when it was cut before
  // all had come.
  std::vector<at::Tensor> meet(int rank, int number, const at::Tensor& mine) {
    std::unique_lock lock(mutex_);
    Operation& operation = operations_[number];
    operation.parts[rank] = mine.clone();
    operation.complete = !cut_ && operation.parts.size() == kRanks;
    changed_.notify_all();
    changed_.wait(lock, [&] { return cut_ || operation.complete; });
    if (!operation.complete) {
      if (mine.numel() == 1) ++partial_losses_;
      changed_.notify_all();
      return {operation.parts[rank]};
    }
    std::vector<at::Tensor> all;
    for (const auto& [_, part] : operation.parts) all.push_back(part);
    return all;
  }
  // From now on nobody waits for anybody.
  void cut() {
    const std::lock_guard lock(mutex_);
    cut_ = true;
    changed_.notify_all();
  }
  // Until a rank was handed a partial sum of the loss: its step is over.
  void await_partial_loss() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return partial_losses_ > 0; });
  }
  void set_error(c10d::ErrorType error) {
    const std::lock_guard lock(mutex_);
    error_ = error;
  }
  c10d::ErrorType error() {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  struct Operation {
    std::map<int, at::Tensor> parts;  // by rank
    bool complete = false;            // before it was cut
  };

  std::mutex mutex_;  // guards all
  std::condition_variable changed_;
  std::map<int, Operation> operations_;  // by number
  bool cut_ = false;
  int partial_losses_ = 0;
  c10d::ErrorType error_ = c10d::ErrorType::SUCCESS;
};

class DoneWork final : public c10d::Work {
 public:
  explicit DoneWork(std::vector<at::Tensor> tensors)
      : tensors_(std::move(tensors)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {
    finish();
    future_->markCompleted(c10::IValue(tensors_));
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  std::vector<at::Tensor> tensors_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Sums over an Exchange; an abort cuts it.
class PartialBackend final : public c10d::Backend {
 public:
  // `garbage` is added to sums that are cut short.
  PartialBackend(Exchange& exchange, int rank, const double& garbage)
      : Backend(rank, kRanks), exchange_(exchange), garbage_(garbage) {
    init();
  }
  const std::string getBackendName() const override { return "partial"; }
  c10d::ErrorType getError() override { return exchange_.error(); }
  void abort() override { exchange_.cut(); }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    at::Tensor sum = at::zeros_like(tensors[0]);
    const auto parts = exchange_.meet(rank_, number_++, tensors[0]);
    for (const at::Tensor& part : parts) sum.add_(part);
    if (parts.size() < kRanks) sum.add_(garbage_);
    tensors[0].copy_(sum);
    return c10::make_intrusive<DoneWork>(tensors);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const auto all = exchange_.meet(rank_, number_++, tensors[0]);
    const auto root = static_cast<std::size_t>(options.rootRank);
    if (all.size() == kRanks) tensors[0].copy_(all[root]);
    return c10::make_intrusive<DoneWork>(tensors);
  }

 private:
  Exchange& exchange_;
  const double& garbage_;
  int number_ = 0;  // of the next operation, the same on every rank
};

struct Killed : std::exception {};

class LostRankTest : public TrialTest {
 protected:
  // What became of one rank.
  struct Outcome {
    std::optional<protocol::EndReport> end;
    std::optional<ranks::GroupEnd> lost;
    bool killed = false;
    Observer observer;
  };

  // `before(rank, step, group)` is called before each step of each rank.
  void run_ranks(const std::function<void(int, std::int64_t, Group&)>& before) {
    test::with_groups(
        kRanks,
        [&](Group& group) {
          const int rank = group.rank();
          Outcome& outcome = outcomes_[static_cast<std::size_t>(rank)];
          outcome.observer.probe = [&, rank](std::int64_t step, net::Decoder&) {
            before(rank, step, group);
          };
          try {
            outcome.end =
                run_trial(spec_, at::kCPU, {}, paths("ranks"), outcome.observer, clock_, group);
          } catch (const GroupLost& lost) {
            outcome.lost = lost.end();
          } catch (const Killed&) {
            outcome.killed = true;
          }
        },
        [&](ranks::GroupOptions& options) {
          options.make_backend = [&](const auto&, int of, int, at::Device) {
            const double& garbage = of == 0 ? garbage_of_rank_0_ : no_garbage_;
            return c10::intrusive_ptr<c10d::Backend>(
                c10::make_intrusive<PartialBackend>(exchange_, of, garbage));
          };
        });
  }

  // Nothing after step `last` was reported or saved, and what was before is right.
  void expect_nothing_after(std::int64_t last) {
    Observer whole;
    ASSERT_EQ(run(spec_, "whole", whole).end, EndClass::kCompleted);
    const Observer& seen = outcomes_[0].observer;
    EXPECT_EQ(seen.losses.size(), static_cast<std::size_t>(last));
    for (const auto& [step, loss] : seen.losses) {
      EXPECT_LE(step, last);
      EXPECT_NEAR(loss, whole.losses.at(step), 1e-6 * loss) << "step " << step;
    }
    for (const auto& checkpoint : seen.checkpoints) EXPECT_LE(checkpoint.step, last);
    if (!std::filesystem::exists(paths("ranks").checkpoints)) return;
    for (const auto& entry : std::filesystem::directory_iterator(paths("ranks").checkpoints)) {
      const auto info = verify_checkpoint(entry.path().string());
      ASSERT_TRUE(info.has_value()) << entry.path();
      EXPECT_LE(info->state.step, last);
    }
  }

  Exchange exchange_;
  double garbage_of_rank_0_ = 0;  // read by rank 0's thread alone
  const double no_garbage_ = 0;
  Outcome outcomes_[kRanks];
};

TEST_F(LostRankTest, ABackendThatSumsAllGivesTheLossesOfOneProcess) {
  run_ranks([](int, std::int64_t, Group&) {});
  ASSERT_TRUE(outcomes_[0].end.has_value());
  EXPECT_EQ(outcomes_[0].end->end, EndClass::kCompleted) << outcomes_[0].end->message;
  expect_nothing_after(40);
}

TEST_F(LostRankTest, PartialSumsThatALostRankLeavesAreNeitherReportedNorSaved) {
  spec_.train.checkpoint_every_ms = 1;  // due after every step
  run_ranks([&](int rank, std::int64_t step, Group& group) {
    if (rank != 1 || step != 5) return;
    exchange_.cut();
    exchange_.await_partial_loss();  // rank 0 has made step 6 of its own rows alone
    group.end(EndClass::kNodeLost, "gone");
    throw Killed();
  });
  EXPECT_TRUE(outcomes_[1].killed);
  ASSERT_TRUE(outcomes_[0].lost.has_value());
  EXPECT_EQ(outcomes_[0].lost->end, EndClass::kNodeLost);
  expect_nothing_after(5);
}

TEST_F(LostRankTest, TheAbortThatALossBringsMakesPartialSumsThatNobodyBelieves) {
  spec_.train.checkpoint_every_ms = 1;
  run_ranks([&](int rank, std::int64_t step, Group& group) {
    if (rank != 1 || step != 5) return;
    group.end(EndClass::kNodeLost, "gone");  // rank 0's watch aborts its communicator
    throw Killed();
  });
  ASSERT_TRUE(outcomes_[0].lost.has_value());
  EXPECT_EQ(outcomes_[0].lost->message, "rank 1: gone");
  expect_nothing_after(5);
}

TEST_F(LostRankTest, PartialSumsWithoutALossAreFoundByComparingRanks) {
  spec_.train.checkpoint_every_ms = 1;
  run_ranks([&](int rank, std::int64_t step, Group&) {
    if (rank == 0 && step == 7) exchange_.cut();
  });
  for (const Outcome& outcome : outcomes_) {
    ASSERT_TRUE(outcome.lost.has_value());
    EXPECT_EQ(outcome.lost->end, EndClass::kInfrastructure);
    EXPECT_THAT(outcome.lost->message, HasSubstr("loss and gradient norm up to step 8 differ"));
  }
  expect_nothing_after(7);
}

TEST_F(LostRankTest, ABackendThatHasGivenUpIsNotBelieved) {
  run_ranks([&](int rank, std::int64_t step, Group&) {
    if (rank == 1 && step == 3) exchange_.set_error(c10d::ErrorType::TIMEOUT);
  });
  ASSERT_TRUE(outcomes_[0].lost.has_value());
  EXPECT_THAT(outcomes_[0].lost->message, HasSubstr("partial gave up waiting for another rank"));
  expect_nothing_after(3);
}

TEST_F(LostRankTest, WeightsThatDidNotReachARankEndTheTrialBeforeItStarts) {
  exchange_.cut();
  run_ranks([](int, std::int64_t, Group&) {});
  ASSERT_TRUE(outcomes_[0].lost.has_value());
  EXPECT_THAT(outcomes_[0].lost->message, HasSubstr("weights and moments that rank 0 gave"));
  EXPECT_EQ(outcomes_[0].observer.started.steps_total, 0);
  expect_nothing_after(0);
}

TEST_F(LostRankTest, NumbersThatAreNotFiniteOnOneRankAloneAreNoVerdictOnTheTrial) {
  run_ranks([&](int rank, std::int64_t step, Group&) {
    if (rank != 0 || step != 4) return;
    garbage_of_rank_0_ = std::nan("");
    exchange_.cut();
  });
  for (const Outcome& outcome : outcomes_) {
    EXPECT_FALSE(outcome.end.has_value());
    ASSERT_TRUE(outcome.lost.has_value());
    EXPECT_EQ(outcome.lost->end, EndClass::kInfrastructure);
  }
  expect_nothing_after(4);
}

}  // namespace
}  // namespace tailor::train
