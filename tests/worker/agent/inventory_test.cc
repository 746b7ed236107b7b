// Slots from what the machine has.
#include "worker/agent/device/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tailor::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Inventory, ReadsWhatNvidiaSmiPrints) {
  const auto gpus = parse_nvidia_smi(
      "0, NVIDIA H200, 143771\n1, NVIDIA A100-SXM4-80GB, rev, 81920\n2, Odd, [N/A]\nNo devices "
      "were found\n");
  ASSERT_THAT(gpus, SizeIs(3));
  EXPECT_EQ(gpus[0].visible, "0");
  EXPECT_EQ(gpus[0].name, "NVIDIA H200");
  EXPECT_EQ(gpus[0].memory_bytes, 143771ull * 1024 * 1024);
  EXPECT_EQ(gpus[1].name, "NVIDIA A100-SXM4-80GB, rev");
  EXPECT_EQ(gpus[2].memory_bytes, 0u);
  EXPECT_THAT(parse_nvidia_smi(""), IsEmpty());
}

TEST(Inventory, SharesTheCoresOutAmongCpuSlots) {
  const auto inventory = make_inventory({"auto", 3, 0}, {}, 8);
  ASSERT_TRUE(inventory.has_value());
  ASSERT_THAT(inventory->slots, SizeIs(3));
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(inventory->slots[i].index, i);
    EXPECT_EQ(inventory->slots[i].threads, 2);
    EXPECT_EQ(inventory->slots[i].kind, protocol::DeviceKind::kCpu);
  }
  EXPECT_THAT(inventory->visible_devices, ElementsAre("", "", "")) << "a CPU trainer sees no GPU";
  EXPECT_EQ(make_inventory({"cpu", 16, 0}, {}, 8)->slots[0].threads, 1);
  EXPECT_THAT(make_inventory({"auto", 0, 0}, {}, 8)->slots, SizeIs(1));
}

TEST(Inventory, AGpuIsASlotAndKeepsItsName) {
  const std::vector<Gpu> gpus = {{"2", "H200", 100}, {"GPU-abc", "H200", 200}};
  const auto inventory = make_inventory({"auto", 7, 0}, gpus, 16);
  ASSERT_TRUE(inventory.has_value());
  ASSERT_THAT(inventory->slots, SizeIs(2));
  EXPECT_EQ(inventory->slots[1].kind, protocol::DeviceKind::kGpu);
  EXPECT_EQ(inventory->slots[1].memory_bytes, 200u);
  EXPECT_EQ(inventory->slots[1].threads, 8);
  EXPECT_THAT(inventory->visible_devices, ElementsAre("2", "GPU-abc"));
  EXPECT_EQ(make_inventory({"cpu", 2, 0}, gpus, 16)->slots[0].kind, protocol::DeviceKind::kCpu);
}

TEST(Inventory, AskingForAGpuWhereThereIsNoneIsRefused) {
  const auto inventory = make_inventory({"gpu", 0, 0}, {}, 8);
  ASSERT_FALSE(inventory.has_value());
  EXPECT_EQ(inventory.error().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tailor::agent
