// How much memory there is: made-up /proc and cgroup folders with known numbers.
#include "base/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "tests/support/temporary_folder.h"

namespace tailor {
namespace {

using ::testing::HasSubstr;

class Memory : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    ASSERT_TRUE(write_file_atomic(file, text, false).is_ok());
  }
  MemoryLimit available() { return available_memory(root_.path()); }

  test::TemporaryFolder root_;
};

TEST_F(Memory, IsWhatTheMachineHasFree) {
  put("/proc/meminfo", "MemTotal:  9000000 kB\nMemFree:  1 kB\nMemAvailable:    2000 kB\n");
  EXPECT_EQ(available().bytes, 2000 * 1024.0);
  EXPECT_THAT(available().source, HasSubstr("machine"));
}

TEST_F(Memory, IsLessInAControlGroupOrUnderOneAboveIt) {
  put("/proc/meminfo", "MemAvailable: 8000000 kB\n");
  put("/proc/self/cgroup", "0::/user/job\n");
  put("/sys/fs/cgroup/user/job/memory.max", "max\n");
  put("/sys/fs/cgroup/user/memory.max", "1000000\n");
  put("/sys/fs/cgroup/user/memory.current", "700000\n");
  put("/sys/fs/cgroup/user/memory.stat", "anon 1\ninactive_file 100000\n");
  EXPECT_EQ(available().bytes, 400000);
  EXPECT_THAT(available().source, HasSubstr("control group"));
  put("/sys/fs/cgroup/user/job/memory.high", "300000\n");
  put("/sys/fs/cgroup/user/job/memory.current", "290000\n");
  EXPECT_EQ(available().bytes, 10000);
  put("/sys/fs/cgroup/user/job/memory.current", "310000\n");
  EXPECT_EQ(available().bytes, 0);
}

TEST_F(Memory, KnowsControlGroupsOfVersionOne) {
  put("/proc/meminfo", "MemAvailable: 8000000 kB\n");
  put("/proc/self/cgroup", "5:cpu,memory:/a\n4:pids:/a\n");
  put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "500000\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(available().bytes, 400000);
}

TEST_F(Memory, IsUnlimitedWhereNothingIsKnown) {
  EXPECT_EQ(available().bytes, own_memory_limit().bytes);
}

TEST(ResidentMemory, IsThatOfThisProcess) {
  EXPECT_GT(resident_memory(), 1e6);
  EXPECT_LT(resident_memory(), 1e13);
}

}  // namespace
}  // namespace tailor
