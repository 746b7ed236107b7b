// The CUDA kernels against the reference in double, and a training step on the GPU against the
// CPU's. Skipped, with the reason, where the plugin cannot be loaded or no GPU is there.
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "model/kernels/ops.h"
#include "model/net/decoder.h"
#include "model/train/optimizer.h"
#include "model/train/step.h"
#include "tests/model/support.h"

namespace tailor::kernels {
namespace {

using test::relative_difference;

at::Tensor wide(const at::Tensor& x) { return x.to(at::kCPU, at::kDouble); }

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    void* plugin = ::dlopen((std::string(TAILOR_BIN_DIR) + "/libtailor_cuda.so").c_str(),
                            RTLD_NOW | RTLD_GLOBAL);
    if (plugin == nullptr) GTEST_SKIP() << ::dlerror();
    const auto count = reinterpret_cast<int (*)()>(::dlsym(plugin, "tailor_cuda_device_count"));
    ASSERT_NE(count, nullptr);
    if (count() == 0) GTEST_SKIP() << "no GPU is visible";
  }
};

TEST_F(CudaKernels, RmsNormAndItsGradientAgreeWithTheReference) {
  for (const std::int64_t d : {7, 64, 300, 2048}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const double tolerance = type == at::kFloat ? 5e-6 : 1.0 / 100;
      const at::Tensor x = at::randn({517, d}).to(at::kCUDA);
      const at::Tensor w = at::randn({d}).to(at::kCUDA);
      const at::Tensor g = at::randn({517, d}).to(at::kCUDA, type);
      const auto [y, rstd] = op::rms_norm(x, w, 1e-5, type);
      const auto [gx, gw] = op::rms_norm_backward(g, x, w, rstd);
      const auto [y2, rstd2] = reference::rms_norm(wide(x), wide(w), 1e-5, at::kDouble);
      const auto [gx2, gw2] = reference::rms_norm_backward(wide(g), wide(x), wide(w), rstd2);
      EXPECT_LT(relative_difference(wide(y), y2), tolerance) << d;
      EXPECT_LT(relative_difference(wide(gx), gx2), tolerance) << d;
      EXPECT_LT(relative_difference(wide(gw), gw2), tolerance) << d;
    }
  }
}

TEST_F(CudaKernels, SwigluAndItsGradientAgreeWithTheReference) {
  const at::Tensor x = at::randn({333, 2 * 77}).to(at::kCUDA);
  const at::Tensor g = at::randn({333, 77}).to(at::kCUDA);
  EXPECT_LT(relative_difference(wide(op::swiglu(x)), reference::swiglu(wide(x))), 2e-6);
  EXPECT_LT(relative_difference(wide(op::swiglu_backward(g, x)),
                                reference::swiglu_backward(wide(g), wide(x))),
            2e-6);
}

TEST_F(CudaKernels, TrainingStepsFollowTheCpu) {
  net::Decoder cpu(test::small_architecture(), at::kCPU, false);
  net::Decoder gpu(test::small_architecture(), at::Device(at::kCUDA, 0), false);
  cpu.initialise(1, 0.05);
  gpu.initialise(1, 0.05);
  train::AdamW cpu_adam(cpu.parameters(), {});
  train::AdamW gpu_adam(gpu.parameters(), {});
  train::TrainStep cpu_step(cpu, cpu_adam, 0);
  train::TrainStep gpu_step(gpu, gpu_adam, 0);
  for (int i = 0; i < 5; ++i) {
    const at::Tensor tokens = at::randint(64, {4, 16}, at::kLong);
    const at::Tensor targets = at::randint(64, {4, 16}, at::kLong);
    const at::Tensor a = cpu_step.run(tokens, targets, 1e-3);
    const at::Tensor b = gpu_step.run(tokens, targets, 1e-3);
    EXPECT_LT(relative_difference(wide(b), a), 1e-4) << i;
  }
}

}  // namespace
}  // namespace tailor::kernels
