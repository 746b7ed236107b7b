// Slots from what the machine has.
#include "worker/agent/device/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "worker/agent/node_watch.h"

namespace tailor::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// The fake driver library (fake_nvml.cc), whose GPUs are described by FAKE_NVML.
class FakeDriver {
 public:
  explicit FakeDriver(const std::string& gpus) {
    set(gpus);
    auto opened = Nvml::open(TAILOR_FAKE_NVML);
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    if (opened) nvml = *std::move(opened);
  }
  ~FakeDriver() { ::unsetenv("FAKE_NVML"); }
  static void set(const std::string& gpus) { ::setenv("FAKE_NVML", gpus.c_str(), 1); }
  std::unique_ptr<Nvml> nvml;
};

TEST(Inventory, ReadsGpusFromTheDriversLibrary) {
  FakeDriver driver(
      "name=NVIDIA H200,uuid=GPU-aa,total=1000,used=10,ecc=0;"
      "name=NVIDIA A100,uuid=GPU-bb,total=2000,used=5,mig=1;"
      "name=Broken,uuid=GPU-cc,fail=15;"
      "name=Small,uuid=GPU-dd,total=300,used=1,ecc=none");
  const FoundGpus found = find_gpus(driver.nvml.get(), nullptr);
  ASSERT_THAT(found.gpus, SizeIs(2));
  EXPECT_EQ(found.gpus[0].visible, "GPU-aa") << "CUDA's order of numbers may be another";
  EXPECT_EQ(found.gpus[0].name, "NVIDIA H200");
  EXPECT_EQ(found.gpus[0].memory_bytes, 1000u);
  EXPECT_EQ(found.gpus[1].index, 3);
  ASSERT_THAT(found.notes, SizeIs(2));
  EXPECT_THAT(found.notes[0], HasSubstr("GPU 2"));
  EXPECT_THAT(found.notes[0], HasSubstr("GPU is lost"));
  EXPECT_THAT(found.notes[1], HasSubstr("GPU-bb) is cut into instances"));
  EXPECT_EQ(driver.nvml->memory_in_use(0).value(), 10u);
  EXPECT_EQ(driver.nvml->uncorrected_errors(0).value(), std::optional<std::uint64_t>(0));
  EXPECT_EQ(driver.nvml->uncorrected_errors(3).value(), std::nullopt);
  EXPECT_THAT(driver.nvml->memory_in_use(2).error().message(), HasSubstr("GPU is lost"));
}

TEST(Inventory, HasNoGpusWithoutADriver) {
  const auto opened = Nvml::open("libno-such-driver.so.1");
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), Code::kNotFound);
  EXPECT_THAT(find_gpus(nullptr, nullptr).gpus, IsEmpty());
}

TEST(Inventory, ABatchSystemsChoiceOfGpusIsKept) {
  FakeDriver driver(
      "name=A,uuid=GPU-aa,total=1,used=0;name=B,uuid=GPU-bb,total=2,used=0;"
      "name=C,uuid=GPU-cb,total=3,used=0");
  const auto chosen = [&](const char* allowed) {
    std::string text;
    const FoundGpus found = find_gpus(driver.nvml.get(), allowed);
    for (const Gpu& gpu : found.gpus) text += gpu.visible + " ";
    for (std::size_t i = 0; i < found.notes.size(); ++i) text += "!";
    return text;
  };
  EXPECT_EQ(chosen("2,0"), "GPU-cb GPU-aa ");
  EXPECT_EQ(chosen("GPU-b"), "GPU-bb ");
  EXPECT_EQ(chosen("1,-1,0"), "GPU-bb ");
  EXPECT_EQ(chosen("MIG-x"), "MIG-x ");
  EXPECT_EQ(chosen("7"), "!") << "said, not dropped without a word";
  EXPECT_EQ(chosen(""), "");
}

TEST(Inventory, GpuErrorsOfBeforeTheStartAreNotHeldAgainstANode) {
  FakeDriver driver("name=A,uuid=GPU-aa,total=1,used=0,ecc=5");
  GpuErrors errors(driver.nvml.get(), {0});
  EXPECT_EQ(errors.trouble(), "");
  FakeDriver::set("name=A,uuid=GPU-aa,total=1,used=0,ecc=7");
  EXPECT_THAT(errors.trouble(), HasSubstr("GPU 0 has had 2 memory errors"));
  FakeDriver::set("name=A,uuid=GPU-aa,fail=15");
  EXPECT_THAT(errors.trouble(), HasSubstr("GPU is lost"));
  EXPECT_EQ(GpuErrors(nullptr, {}).trouble(), "");
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
  EXPECT_TRUE(make_inventory({"cpu", 1'024, 0}, {}, 8).has_value());
  EXPECT_EQ(make_inventory({"cpu", 1'025, 0}, {}, 8).error().code(), Code::kInvalidArgument)
      << "no coordinator would ever take it";
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
