// Devices by name: what is refused, and which peak a GPU has.
#include "worker/trainer/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tailor::trainer {
namespace {

TEST(DeviceTest, TheCpuIsThereAndHasNoGraphs) {
  const auto cpu = open_device("cpu");
  ASSERT_TRUE(cpu.has_value());
  EXPECT_TRUE(cpu->device.is_cpu());
  EXPECT_FALSE(static_cast<bool>(cpu->make_graph));
}

TEST(DeviceTest, OtherWordsAreRefused) {
  for (const char* name :
       {"", "gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:0x", "cuda:500"}) {
    const auto opened = open_device(name);
    ASSERT_FALSE(opened.has_value()) << name;
    EXPECT_EQ(opened.error().code(), Code::kInvalidArgument) << name;
    EXPECT_THAT(opened.error().message(), testing::HasSubstr("cuda:N"));
  }
}

TEST(DeviceTest, PeaksAreTheDenseOnesOfTheRightModel) {
  const auto tflops = [](const char* name) { return dense_bf16_peak(name).value_or(0) / 1e12; };
  EXPECT_NEAR(tflops("NVIDIA H200"), 989.4, 1e-6);
  EXPECT_NEAR(tflops("NVIDIA H200 NVL"), 835.5, 1e-6);
  EXPECT_NEAR(tflops("NVIDIA H100 80GB HBM3"), 989.4, 1e-6);
  EXPECT_NEAR(tflops("NVIDIA H100 PCIe"), 756, 1e-6);
  EXPECT_NEAR(tflops("NVIDIA A100-SXM4-80GB"), 312, 1e-6);
  EXPECT_NEAR(tflops("NVIDIA A10"), 125, 1e-6);
  EXPECT_NEAR(tflops("NVIDIA L40S"), 362, 1e-6);
  EXPECT_NEAR(tflops("NVIDIA L40"), 181, 1e-6);
  EXPECT_NEAR(tflops("NVIDIA GeForce RTX 4090"), 165.2, 1e-6);
}

TEST(DeviceTest, AGpuThatIsNotKnownHasNoPeak) {
  for (const char* name :
       {"cpu", "", "NVIDIA A10G", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4090 D",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "Tesla V100-SXM2-16GB", "NVIDIA H1000"}) {
    EXPECT_FALSE(dense_bf16_peak(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace tailor::trainer
