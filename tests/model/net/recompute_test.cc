// Recomputed layers: the same bits of losses and gradients, and less memory.
#include "model/net/recompute.h"

#include <ATen/ops/randint.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "model/net/decoder.h"
#include "tests/model/support.h"

namespace tailor::net {
namespace {

shape::Architecture hourglass() {
  shape::Architecture a = test::small_architecture();
  a.ffn_kind = shape::FfnKind::kHourglass;
  a.widths = shape::uniform_widths(3, 3, 20);
  a.ffn_outer_residual = true;
  return a;
}

shape::Architecture olmo2() {
  shape::Architecture a = test::small_architecture();
  a.family = shape::Family::kOlmo2;
  a.ffn_norm = shape::FfnNorm::kPerSubPost;
  a.tie_embeddings = false;
  return a;
}

TEST(RecomputeTest, LossesAndGradientsAreTheSameBits) {
  const at::Tensor tokens = at::randint(64, {3, 12}, at::kLong);
  const at::Tensor targets = at::randint(64, {3, 12}, at::kLong);
  for (const shape::Architecture& a : {test::small_architecture(), hourglass(), olmo2()}) {
    for (const bool bf16 : {false, true}) {
      Decoder kept(a, at::kCPU, bf16);
      Decoder again(a, at::kCPU, bf16);
      again.set_recompute(true);
      for (Decoder* decoder : {&kept, &again}) decoder->initialise(4, 0.1);
      // Two micro-batches: gradients add up.
      for (int i = 0; i < 2; ++i) {
        const at::Tensor x = kept.loss(tokens, targets, 1.0 / 36);
        const at::Tensor y = again.loss(tokens, targets, 1.0 / 36);
        EXPECT_TRUE(test::same_bits(x, y));
        x.backward();
        y.backward();
      }
      EXPECT_GT(kept.parameters().gradient().abs().max().item<float>(), 0);
      EXPECT_TRUE(test::same_bits(kept.parameters().gradient(), again.parameters().gradient()))
          << static_cast<int>(a.ffn_kind) << bf16;
    }
  }
}

// Counts what LibTorch holds on the CPU.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, 255); }
  ~CountingAllocator() override { c10::SetCPUAllocator(inner_, 255); }
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr data = inner_->allocate(bytes);
    held_ += static_cast<std::int64_t>(bytes);
    most_ = std::max(most_, held_);
    void* place = data.get();
    auto* block = new Block{this, bytes, std::move(data)};
    return {place, block, &release, at::kCPU};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  std::int64_t held() const { return held_; }
  std::int64_t most() const { return most_; }
  void forget_most() { most_ = held_; }

 private:
  struct Block {
    CountingAllocator* owner;
    std::size_t bytes;
    c10::DataPtr data;
  };
  static void release(void* block) {
    auto* given = static_cast<Block*>(block);
    given->owner->held_ -= static_cast<std::int64_t>(given->bytes);
    delete given;
  }

  c10::Allocator* inner_;
  std::int64_t held_ = 0;
  std::int64_t most_ = 0;
};

TEST(RecomputeTest, TheActivationsOfOneLayerAndTheStreamsAreHeldInsteadOfAll) {
  shape::Architecture a = test::small_architecture();
  a.widths = shape::uniform_widths(12, 1, 96);
  const at::Tensor tokens = at::randint(64, {4, 64}, at::kLong);
  CountingAllocator memory;
  std::int64_t extra[2];
  for (const bool recompute : {false, true}) {
    Decoder decoder(a, at::kCPU, false);
    decoder.set_recompute(recompute);
    decoder.initialise(1, 0.05);
    memory.forget_most();
    const std::int64_t before = memory.held();
    decoder.loss(tokens, tokens, 1.0).backward();
    extra[recompute] = memory.most() - before;
  }
  // A layer holds about 20 values of width d a token, its input is one of them.
  EXPECT_LT(extra[1], extra[0] / 3) << extra[0] << " and " << extra[1] << " bytes";
  RecordProperty("bytes_kept", std::to_string(extra[0]));
  RecordProperty("bytes_recomputed", std::to_string(extra[1]));
}

}  // namespace
}  // namespace tailor::net
