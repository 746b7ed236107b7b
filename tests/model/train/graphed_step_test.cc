// Recorded steps on the CPU: a graph that runs its work again when it is replayed. What the
// recording relies on (fixed addresses, the rate outside the work, who counts steps) is tested
// here; that the CUDA graph gives the same bits is tested where a GPU is
// (tests/model/kernels/cuda_kernels_test.cc).
#include "model/train/graphed_step.h"

#include <ATen/ops/randint.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/model/support.h"

namespace tailor::train {
namespace {

struct Training {
  net::Decoder decoder{test::small_architecture(), at::kCPU, false};
  AdamW optimizer{decoder.parameters(), {}};
  TrainStep step{decoder, optimizer, 2};
  Training() { decoder.initialise(1, 0.05); }
};

// Recording must not run the work: it runs and is undone.
class FakeGraph final : public kernels::Graph {
 public:
  explicit FakeGraph(Training& training, bool fails = false) : training_(training), fails_(fails) {}
  void warm_up(const std::function<void()>& body) override {
    ++warm_ups;
    body();
  }
  void record(const std::function<void()>& body) override {
    TORCH_CHECK(!fails_, "this work cannot be recorded");
    const at::Tensor weights = training_.decoder.parameters().flat().clone();
    const at::Tensor m = training_.optimizer.first_moment().clone();
    const at::Tensor v = training_.optimizer.second_moment().clone();
    const std::int64_t steps = training_.optimizer.steps();
    body();
    training_.decoder.parameters().flat().copy_(weights);
    training_.decoder.parameters().refresh();
    training_.optimizer.first_moment().copy_(m);
    training_.optimizer.second_moment().copy_(v);
    training_.optimizer.set_steps(steps);
    body_ = body;
  }
  void replay() override {
    ++replays;
    body_();
  }
  static inline int warm_ups = 0;
  static inline int replays = 0;

 private:
  Training& training_;
  bool fails_;
  std::function<void()> body_;
};

class GraphedStepTest : public testing::Test {
 protected:
  void SetUp() override { FakeGraph::warm_ups = FakeGraph::replays = 0; }
  at::Tensor draw(std::int64_t rows = 4) { return at::randint(64, {rows, 12}, at::kLong); }
};

TEST_F(GraphedStepTest, ReplayedStepsAreThePlainOnes) {
  Training plain;
  Training graphed;
  GraphedStep runner(graphed.step, std::make_unique<FakeGraph>(graphed), 2);
  std::vector<at::Tensor> numbers;
  std::vector<at::Tensor> wanted;
  for (int i = 0; i < 7; ++i) {
    const at::Tensor tokens = draw();
    const at::Tensor targets = draw();
    const double lr = 1e-3 * (i + 1);
    wanted.push_back(plain.step.run(tokens, targets, lr));
    numbers.push_back(runner.run(tokens, targets, lr));
    EXPECT_EQ(runner.recorded(), i >= 2);
  }
  EXPECT_EQ(FakeGraph::warm_ups, 2);
  EXPECT_EQ(FakeGraph::replays, 5);
  // Read at the end: no step has overwritten the numbers of another.
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_TRUE(test::same_bits(numbers[i], wanted[i])) << i;
  }
  EXPECT_TRUE(
      test::same_bits(plain.decoder.parameters().flat(), graphed.decoder.parameters().flat()));
  EXPECT_TRUE(test::same_bits(plain.optimizer.second_moment(), graphed.optimizer.second_moment()));
  EXPECT_EQ(graphed.optimizer.steps(), 7);
}

TEST_F(GraphedStepTest, ABatchOfAnotherShapeRunsAsItIs) {
  Training plain;
  Training graphed;
  GraphedStep runner(graphed.step, std::make_unique<FakeGraph>(graphed), 1);
  for (const std::int64_t rows : {4, 4, 3, 4}) {
    const at::Tensor tokens = draw(rows);
    const at::Tensor targets = draw(rows);
    EXPECT_TRUE(
        test::same_bits(runner.run(tokens, targets, 1e-3), plain.step.run(tokens, targets, 1e-3)));
  }
  EXPECT_EQ(FakeGraph::replays, 2);
  EXPECT_EQ(graphed.optimizer.steps(), 4);
}

TEST_F(GraphedStepTest, WhatCannotBeRecordedRunsAsItIs) {
  Training plain;
  Training graphed;
  GraphedStep runner(graphed.step, std::make_unique<FakeGraph>(graphed, /*fails=*/true), 1);
  for (int i = 0; i < 4; ++i) {
    const at::Tensor tokens = draw();
    const at::Tensor targets = draw();
    EXPECT_TRUE(
        test::same_bits(runner.run(tokens, targets, 1e-3), plain.step.run(tokens, targets, 1e-3)));
  }
  EXPECT_FALSE(runner.recorded());
  EXPECT_EQ(graphed.optimizer.steps(), 4);
}

TEST_F(GraphedStepTest, AStepKeepsItsStateAtFixedAddresses) {
  Training training;
  const auto addresses = [&] {
    return std::vector<const void*>{training.decoder.parameters().flat().const_data_ptr(),
                                    training.decoder.parameters().gradient().const_data_ptr(),
                                    training.optimizer.first_moment().const_data_ptr(),
                                    training.optimizer.second_moment().const_data_ptr()};
  };
  const auto before = addresses();
  for (int i = 0; i < 3; ++i) training.step.run(draw(), draw(), 1e-3);
  EXPECT_EQ(addresses(), before);
}

}  // namespace
}  // namespace tailor::train
