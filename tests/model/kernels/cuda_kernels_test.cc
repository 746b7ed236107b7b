// The CUDA kernels against the reference in double, and training on a GPU: steps against the CPU's,
// recorded steps against plain ones. Skipped, with the reason, where the plugin cannot be loaded or
// no GPU is there. tests/gpu.sh runs these where a GPU is.
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "model/kernels/ops.h"
#include "model/net/decoder.h"
#include "model/train/graphed_step.h"
#include "model/train/optimizer.h"
#include "model/train/staging.h"
#include "model/train/step.h"
#include "tests/model/gpu.h"
#include "tests/model/kernels/op_calls.h"
#include "tests/model/kernels/op_choices.h"
#include "tests/model/kernels/op_walk.h"
#include "tests/model/support.h"

namespace tailor::kernels {
namespace {

using tailor::test::relative_difference;

const at::Device kGpu(at::kCUDA, 0);

at::Tensor wide(const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); }
std::optional<at::Tensor> optional(const at::Tensor& x) {
  return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
}
std::optional<at::Tensor> optional_wide(const at::Tensor& x) {
  return x.defined() ? std::optional<at::Tensor>(wide(x)) : std::nullopt;
}
double rounding(at::ScalarType type) { return type == at::kFloat ? 5e-6 : 1.0 / 128; }

class CudaKernels : public tailor::test::GpuTest {
 protected:
  at::Tensor draw(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
    return at::randn(sizes).to(kGpu, type);
  }
};

// Needs CUDA's libraries alone, no GPU.
TEST(CudaOperators, ThePluginRegistersTheOperatorsOfTheTableAndNoOthers) {
  if (tailor::test::gpus().plugin == nullptr) GTEST_SKIP() << tailor::test::gpus().reason;
  for (const Operator& line : kOperators) {
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
        ("tailor::" + std::string(line.name)).c_str(), "");
    EXPECT_EQ(handle.hasKernelForDispatchKey(c10::DispatchKey::CUDA), !line.cpu_only) << line.name;
  }
}

// Every line of op_table.h: all combinations, sizes and layouts, and what is refused.
TEST_F(CudaKernels, EveryListedCombinationGivesTheValuesOfTheReference) {
  test::expect_every_listed_call_right(kGpu);
}

TEST_F(CudaKernels, EveryListedCombinationTakesEveryLayout) {
  test::expect_every_layout_right(kGpu);
}

TEST_F(CudaKernels, EveryOtherCombinationIsRefusedInTheSameWordsAsOnTheCpu) {
  test::expect_every_other_call_refused(kGpu);
}

// What op_walk_test.cc takes on the meta level, but for its full product.
TEST_F(CudaKernels, EveryFormAndOptionTrainsAndIsEvaluated) {
  test::Record record;
  std::set<std::string> types;
  for (const auto& choices :
       {test::published_choices(&types), test::pairwise_choices(), test::form_choices()}) {
    for (const test::Choice& choice : choices) test::walk(choice, kGpu, record);
  }
  std::string missing;
  for (const std::string& text : test::missing(kOperators, record, /*cpu=*/false)) {
    missing += "\n  " + text;
  }
  EXPECT_EQ(missing, "");
}

TEST_F(CudaKernels, RmsNormAndItsGradientAgreeWithTheReference) {
  // 7 and 301 are read one value at a time; 4096 and 12288 leave room for fewer warps, and wider
  // rows sum the gain's gradient in the GPU's memory.
  for (const std::int64_t d : {7, 64, 301, 768, 2048, 4096, 12288, 12289, 16384}) {
    const auto check = [&](at::ScalarType x_type, at::ScalarType y_type) {
      for (const bool gain : {true, false}) {
        for (const bool with_skip : {true, false}) {
          SCOPED_TRACE(testing::Message() << "d " << d << " x " << x_type << " y " << y_type
                                          << " gain " << gain << " skip " << with_skip);
          const std::int64_t rows = 133;
          const at::Tensor x = draw({rows, d + 8}, x_type).narrow(1, 0, d);
          const at::Tensor w = gain ? draw({d}) : at::Tensor();
          const at::Tensor g = draw({rows, d}, y_type);
          const at::Tensor skip = with_skip ? draw({rows, d}, x_type) : at::Tensor();
          const auto [y, rstd] = op::rms_norm(x, optional(w), 1e-5, y_type);
          const auto [gx, gw] = op::rms_norm_backward(g, x, optional(w), rstd, optional(skip));
          const auto [y2, rstd2] =
              reference::rms_norm(wide(x), optional_wide(w), 1e-5, at::kDouble);
          const auto [gx2, gw2] = reference::rms_norm_backward(wide(g), wide(x), optional_wide(w),
                                                               rstd2, optional_wide(skip));
          EXPECT_LT(relative_difference(wide(y), y2), rounding(y_type));
          EXPECT_LT(relative_difference(wide(gx), gx2), rounding(x_type));
          if (gain) {
            EXPECT_LT(relative_difference(wide(gw), gw2), 5e-6);
          }
        }
      }
    };
#define TAILOR_CASE(X, Y) check(test::scalar_of(Type::X), test::scalar_of(Type::Y));
    TAILOR_NORM_TYPES(TAILOR_CASE)
#undef TAILOR_CASE
  }
}

TEST_F(CudaKernels, SwigluAndItsGradientAgreeWithTheReference) {
  for (const std::int64_t f : {3, 77, 512, 2048}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor x = draw({333, 2 * f}, type);
      const at::Tensor g = draw({333, f}, type);
      EXPECT_LT(relative_difference(wide(op::swiglu(x)), reference::swiglu(wide(x))),
                rounding(type))
          << f;
      EXPECT_LT(relative_difference(wide(op::swiglu_backward(g, x)),
                                    reference::swiglu_backward(wide(g), wide(x))),
                rounding(type))
          << f;
    }
  }
}

TEST_F(CudaKernels, RopeSplitsAndMergesAsTheReference) {
  struct Heads {
    std::int64_t heads, kv_heads, e;
  };
  for (const Heads h : {Heads{12, 12, 64}, Heads{8, 2, 128}, Heads{3, 1, 48}, Heads{4, 2, 6}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      SCOPED_TRACE(testing::Message() << "H " << h.heads << " e " << h.e << " " << type);
      const std::int64_t batch = 3;
      const std::int64_t time = 37;
      const at::Tensor angle = at::randn({time, h.e / 2}, at::kDouble) * 3;
      const at::Tensor cos = angle.cos().to(kGpu, at::kFloat);
      const at::Tensor sin = angle.sin().to(kGpu, at::kFloat);
      const at::Tensor packed = draw({batch * time, (h.heads + 2 * h.kv_heads) * h.e}, type);
      const auto [q, k, v] = op::rope_split(packed, cos, sin, batch, h.heads, h.kv_heads);
      const auto [q2, k2, v2] =
          reference::rope_split(wide(packed), wide(cos), wide(sin), batch, h.heads, h.kv_heads);
      EXPECT_LT(relative_difference(wide(q), q2), rounding(type));
      EXPECT_LT(relative_difference(wide(k), k2), rounding(type));
      EXPECT_EQ(relative_difference(wide(v), v2), 0);
      // Gradients as attention gives them, and dense ones.
      const at::Tensor gq = draw({batch, time, h.heads, h.e}, type).transpose(1, 2);
      const at::Tensor gk = draw({batch, time, h.kv_heads, h.e}, type).transpose(1, 2);
      const at::Tensor gv = draw({batch, h.kv_heads, time, h.e}, type);
      EXPECT_LT(relative_difference(
                    wide(op::rope_merge(gq, gk, gv, cos, sin)),
                    reference::rope_merge(wide(gq), wide(gk), wide(gv), wide(cos), wide(sin))),
                rounding(type));
    }
  }
}

TEST_F(CudaKernels, CrossEntropyAndItsGradientAgreeWithTheReference) {
  for (const std::int64_t v : {2, 77, 4096, 50304}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      for (const double z_loss : {0.0, 1e-3}) {
        SCOPED_TRACE(testing::Message() << "v " << v << " " << type << " z " << z_loss);
        at::Tensor scores = (at::randn({65, v}) * 4).to(kGpu, type);
        at::Tensor targets = at::randint(v, {65}, at::kLong);
        targets[3] = -100;
        targets[4] = v - 1;
        at::Tensor wanted = wide(scores);
        const at::Tensor losses2 = reference::cross_entropy_(wanted, targets, 0.125, true, z_loss);
        const at::Tensor on_gpu = targets.to(kGpu);
        const at::Tensor only = op::cross_entropy_(scores, on_gpu, 0.125, false, z_loss);
        const at::Tensor losses = op::cross_entropy_(scores, on_gpu, 0.125, true, z_loss);
        EXPECT_EQ((wide(losses) - wide(only)).abs().max().item<double>(), 0);
        EXPECT_LT(relative_difference(wide(losses), losses2), 1e-5);
        EXPECT_LT(relative_difference(wide(scores), wanted), rounding(type));
      }
    }
  }
}

TEST_F(CudaKernels, ASumOfSquaresIsThatOfDoublesAndTheSameOnEveryRun) {
  for (const std::int64_t n : {1, 5, 4096, 3000001}) {
    const at::Tensor x = draw({n});
    const at::Tensor sum = op::sum_squares(x);
    EXPECT_LT(relative_difference(wide(sum), wide(x).square().sum()), 1e-12) << n;
    EXPECT_TRUE(tailor::test::same_bits(sum.to(at::kCPU), op::sum_squares(x).to(at::kCPU)));
    // From an address that is no multiple of 16.
    const at::Tensor tail = x.narrow(0, n / 2, n - n / 2);
    EXPECT_LT(relative_difference(wide(op::sum_squares(tail)), wide(tail).square().sum()), 1e-12);
  }
}

TEST_F(CudaKernels, ProductsAreMadeAndAddedInFp32ForEveryLayout) {
  struct Sizes {
    std::int64_t n, k, m;
  };
  for (const Sizes s : {Sizes{256, 768, 512}, Sizes{64, 40, 24}, Sizes{5, 7, 3}}) {
    const at::Tensor a = draw({s.n, s.k}, at::kBFloat16);
    const at::Tensor b = draw({s.k, s.m}, at::kBFloat16);
    const at::Tensor wanted = at::mm(wide(a), wide(b));
    const at::Tensor base = draw({s.n, s.m});
    for (const at::Tensor& left : {a, a.t().contiguous().t()}) {
      for (const at::Tensor& right : {b, b.t().contiguous().t()}) {
        SCOPED_TRACE(testing::Message() << s.n << " " << s.k << " " << s.m);
        at::Tensor out = draw({s.n, s.m});
        op::product_(out, std::nullopt, left, right);
        EXPECT_LT(relative_difference(wide(out), wanted), 2e-5);
        op::product_(out, base, left, right);
        EXPECT_LT(relative_difference(wide(out), wanted + wide(base)), 2e-5);
        op::product_(out, out, left, right);
        EXPECT_LT(relative_difference(wide(out), wanted * 2 + wide(base)), 2e-5);
      }
    }
  }
}

// One network, optimiser and step.
struct Training {
  net::Decoder decoder;
  train::AdamW optimizer;
  train::TrainStep step;
  Training(const shape::Architecture& a, at::Device device, bool bf16, std::int64_t micro_rows = 0)
      : decoder(a, device, bf16),
        optimizer(decoder.parameters(), {}),
        step(decoder, optimizer, micro_rows) {
    decoder.initialise(1, 0.05);
  }
};

std::vector<shape::Architecture> architectures() {
  shape::Architecture conventional = tailor::test::small_architecture();
  conventional.head_dim = 16;
  shape::Architecture hourglass = conventional;
  hourglass.ffn_kind = shape::FfnKind::kHourglass;
  hourglass.widths = shape::uniform_widths(2, 3, 24);
  shape::Architecture olmo2 = conventional;
  olmo2.family = shape::Family::kOlmo2;
  olmo2.ffn_norm = shape::FfnNorm::kPerSubPost;
  olmo2.tie_embeddings = false;
  return {conventional, hourglass, olmo2};
}

TEST_F(CudaKernels, TrainingStepsFollowTheCpu) {
  for (const shape::Architecture& a : architectures()) {
    for (const bool bf16 : {false, true}) {
      Training cpu(a, at::kCPU, bf16);
      Training gpu(a, kGpu, bf16, 3);
      for (int i = 0; i < 10; ++i) {
        const at::Tensor tokens = at::randint(64, {4, 16}, at::kLong);
        const at::Tensor targets = at::randint(64, {4, 16}, at::kLong);
        const at::Tensor wanted = cpu.step.run(tokens, targets, 1e-3);
        const at::Tensor got = wide(gpu.step.run(tokens, targets, 1e-3));
        EXPECT_LT(relative_difference(got[0], wanted[0]), bf16 ? 2e-2 : 1e-4) << i;
        EXPECT_LT(relative_difference(got[1], wanted[1]), bf16 ? 5e-2 : 1e-3) << i;
      }
    }
  }
}

TEST_F(CudaKernels, RecordedStepsAreThePlainOnesBitForBit) {
  for (const shape::Architecture& a : architectures()) {
    for (const bool bf16 : {false, true}) {
      SCOPED_TRACE(testing::Message() << shape::canonical_json(a) << " bf16 " << bf16);
      Training plain(a, kGpu, bf16, 2);
      Training recorded(a, kGpu, bf16, 2);
      train::GraphedStep runner(recorded.step, make_graph());
      std::vector<at::Tensor> wanted;
      std::vector<at::Tensor> got;
      for (int i = 0; i < 20; ++i) {
        const at::Tensor tokens = at::randint(64, {4, 16}, at::kLong);
        const at::Tensor targets = at::randint(64, {4, 16}, at::kLong);
        const double lr = 1e-3 * (1 + i % 5);
        wanted.push_back(plain.step.run(tokens, targets, lr));
        got.push_back(runner.run(tokens, targets, lr));
      }
      ASSERT_TRUE(runner.recorded());
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(tailor::test::same_bits(got[i].to(at::kCPU), wanted[i].to(at::kCPU)))
            << "step " << i << ": " << wide(got[i])[0].item<double>() << " and "
            << wide(wanted[i])[0].item<double>();
      }
      EXPECT_TRUE(tailor::test::same_bits(plain.decoder.parameters().flat().to(at::kCPU),
                                          recorded.decoder.parameters().flat().to(at::kCPU)));
      EXPECT_EQ(recorded.optimizer.steps(), 20);
    }
  }
}

TEST_F(CudaKernels, AStepThatIsNotFiniteChangesNoWeightInARecordingEither) {
  Training run(tailor::test::small_architecture(), kGpu, false);
  train::GraphedStep runner(run.step, make_graph(), 1);
  const at::Tensor tokens = at::zeros({4, 16}, at::kLong);
  for (int i = 0; i < 3; ++i) runner.run(tokens, tokens, 1e-3);
  ASSERT_TRUE(runner.recorded());
  at::Tensor flat = run.decoder.parameters().flat();
  flat[3] = std::numeric_limits<float>::infinity();
  const at::Tensor broken = flat.to(at::kCPU);
  const at::Tensor numbers = wide(runner.run(tokens, tokens, 1e-3));
  EXPECT_FALSE(std::isfinite(numbers[0].item<double>()) &&
               std::isfinite(numbers[1].item<double>()));
  runner.run(tokens, tokens, 1e-3);
  EXPECT_TRUE(tailor::test::same_bits(flat.to(at::kCPU), broken));
}

TEST_F(CudaKernels, StagedBatchesArriveWhileStepsRun) {
  train::Staging staging(kGpu, 64, 512);
  const at::Tensor work = draw({2048, 2048});
  at::Tensor sums = at::zeros({20}, at::TensorOptions().device(kGpu).dtype(at::kLong));
  const auto send = [&](std::int64_t value) {
    staging.host().tokens.fill_(value);
    staging.host().targets.fill_(value);
    staging.send();
  };
  send(0);
  for (std::int64_t i = 0; i < 20; ++i) {
    const train::Batch& batch = staging.take();
    at::Tensor product = work;
    for (int j = 0; j < 5; ++j) product = at::mm(product, work);  // keeps the GPU behind the host
    sums[i].copy_(batch.tokens.sum() + batch.targets.sum());
    send(i + 1);
  }
  const at::Tensor read = sums.to(at::kCPU);
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(read[i].item<std::int64_t>(), 2 * 64 * 512 * i) << i;
  }
}

TEST_F(CudaKernels, NumbersOfStepsComeBackInOrderHoweverManyThereAre) {
  train::StepNumbers numbers(kGpu);
  const std::int64_t count = train::StepNumbers::kMost + 5;
  at::Tensor pair = at::zeros({2}, at::TensorOptions().device(kGpu).dtype(at::kDouble));
  for (std::int64_t i = 0; i < count; ++i) {
    pair.add_(1);  // what the next step overwrites was copied before
    numbers.push(pair);
  }
  const auto read = numbers.read();
  ASSERT_EQ(static_cast<std::int64_t>(read.size()), count);
  for (std::int64_t i = 0; i < count; ++i) {
    EXPECT_EQ(read[static_cast<std::size_t>(i)][0], static_cast<double>(i + 1));
  }
}

}  // namespace
}  // namespace tailor::kernels
