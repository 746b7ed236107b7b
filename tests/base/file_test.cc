#include "base/file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tailor {
namespace {

class File : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("tailor_file_" + std::to_string(::getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

TEST_F(File, AtomicWriteReplacesTheWholeContentAndLeavesNoTemporaryFile) {
  ASSERT_TRUE(write_file_atomic(path("a"), "first, longer").is_ok());
  ASSERT_TRUE(write_file_atomic(path("a"), std::string("2\0d", 3)).is_ok());
  EXPECT_EQ(read_file(path("a")).value(), std::string("2\0d", 3));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(File, AMissingFileIsNamed) {
  const auto result = read_file(path("none"));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), Code::kNotFound);
  EXPECT_NE(result.error().message().find(path("none")), std::string::npos);
}

TEST_F(File, ADirectoryIsNoFile) {
  EXPECT_EQ(read_file(folder_.string()).error().code(), Code::kInvalidArgument);
}

TEST_F(File, AFileAboveTheLimitIsRefused) {
  ASSERT_TRUE(write_file_atomic(path("a"), std::string(100, 'x')).is_ok());
  EXPECT_EQ(read_file(path("a"), 99).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(read_file(path("a"), 100).has_value());
}

TEST_F(File, ASizeThatAFileOnlyClaimsIsNotAllocated) {
  ASSERT_TRUE(write_file_atomic(path("a"), "x").is_ok());
  std::filesystem::resize_file(path("a"), std::uintmax_t{1} << 42);  // a hole
  EXPECT_EQ(read_file(path("a"), 1000).error().code(), Code::kInvalidArgument);
}

TEST_F(File, AFullDiskIsResourceExhausted) {
  EXPECT_EQ(errno_status(ENOSPC, "write", "x").code(), Code::kResourceExhausted);
  EXPECT_FALSE(write_file_atomic(path("no/such/folder/a"), "x").is_ok());
}

}  // namespace
}  // namespace tailor
