#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "base/atomic_file.h"
#include "tests/support/temporary_folder.h"

namespace tailor {
namespace {

class File : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  const test::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(File, AtomicWriteReplacesTheWholeContentAndLeavesNoTemporaryFile) {
  ASSERT_TRUE(write_file_atomic(path("a"), "first, longer").is_ok());
  ASSERT_TRUE(write_file_atomic(path("a"), std::string("2\0d", 3)).is_ok());
  EXPECT_EQ(read_file(path("a")).value(), std::string("2\0d", 3));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(File, AFileThatIsMadeBitByBitIsThereWholeOrNotAtAll) {
  ASSERT_TRUE(write_file_atomic(path("a"), "old").is_ok());
  {
    auto file = AtomicFile::create(path("a"));
    ASSERT_TRUE(file.has_value());
    ASSERT_TRUE(file->write("never ").is_ok());
    ASSERT_TRUE(file->write("finished").is_ok());
    EXPECT_EQ(read_file(path("a")).value(), "old");
  }
  EXPECT_EQ(read_file(path("a")).value(), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  auto file = AtomicFile::create(path("a"));
  ASSERT_TRUE(file.has_value());
  AtomicFile moved = std::move(*file);
  ASSERT_TRUE(moved.write("new, ").is_ok());
  ASSERT_TRUE(moved.write("whole").is_ok());
  ASSERT_TRUE(moved.commit().is_ok());
  EXPECT_EQ(read_file(path("a")).value(), "new, whole");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_FALSE(AtomicFile::create(path("no/such/folder/a")).has_value());
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

TEST_F(File, ReadingAtAPlaceGivesLessOnlyAtTheEnd) {
  ASSERT_TRUE(write_file_atomic(path("a"), "0123456789").is_ok());
  const int file = ::open(path("a").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  std::string bytes(4, '.');
  EXPECT_EQ(read_at(file, bytes.data(), 4, 3, "a").value(), 4u);
  EXPECT_EQ(bytes, "3456");
  EXPECT_EQ(read_at(file, bytes.data(), 4, 8, "a").value(), 2u);
  EXPECT_EQ(bytes, "8956");
  EXPECT_EQ(read_at(file, bytes.data(), 4, 100, "a").value(), 0u);
  ::close(file);
  const auto closed = read_at(-1, bytes.data(), 4, 0, "the file");
  ASSERT_FALSE(closed.has_value());
  EXPECT_NE(closed.error().message().find("cannot read the file"), std::string::npos);
}

TEST_F(File, AnAbsolutePathIsThatOfTheFolderThatTheSystemWouldFind) {
  namespace fs = std::filesystem;
  const fs::path root = fs::canonical(folder_);
  fs::create_directories(root / "a/b");
  fs::create_directories(root / "far/away");
  fs::create_directory_symlink(root / "far/away", root / "a/link");
  const auto of = [&](const std::string& name) { return absolute_path((root / name).string()); };
  EXPECT_EQ(of("a/./b/../x"), root / "a/x");
  EXPECT_EQ(of("a/b/"), root / "a/b");
  EXPECT_EQ(of("a/link/x"), root / "a/link/x");  // links keep their names
  EXPECT_EQ(of("a/link/../x"), root / "far/x");  // ".." is where the system goes, not "a/x"
  EXPECT_EQ(of("not/there/../x"), root / "not/x");
  EXPECT_EQ(absolute_path("."), fs::current_path());
  EXPECT_EQ(absolute_path("/"), "/");
}

TEST_F(File, TheFolderOfTheRunningProgramHoldsIt) {
  EXPECT_TRUE(std::filesystem::exists(program_folder() + "/base_test")) << program_folder();
}

}  // namespace
}  // namespace tailor
