#include "client/context.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"

namespace tailor::client {
namespace {

/// A temporary current folder and HOME, put back afterwards.
class ContextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    folder_ =
        std::filesystem::temp_directory_path() / ("tailor_context_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / "home/.config/tailor");
    std::filesystem::create_directories(folder_ / "project");
    std::filesystem::current_path(folder_ / "project");
    if (const char* home = std::getenv("HOME")) home_ = home;
    ::setenv("HOME", (folder_ / "home").c_str(), 1);
    ::unsetenv("TAILOR_COORDINATOR");
  }
  void TearDown() override {
    std::filesystem::current_path(before_);
    ::setenv("HOME", home_.c_str(), 1);
    ::unsetenv("TAILOR_COORDINATOR");
    std::filesystem::remove_all(folder_);
  }
  std::filesystem::path before_, folder_;
  std::string home_;
};

TEST_F(ContextTest, FlagBeatsEnvironmentBeatsProjectFileBeatsUserFileBeatsDefault) {
  Context context;
  EXPECT_EQ(context.coordinator().origin, "default");
  ASSERT_TRUE(
      write_file_atomic(folder_ / "home/.config/tailor/tailor.toml", "coordinator = \"user:1\"\n")
          .is_ok());
  EXPECT_EQ(context.coordinator().value, "user:1");
  ASSERT_TRUE(write_file_atomic("tailor.toml", "coordinator = \"project:1\"\n").is_ok());
  EXPECT_EQ(context.coordinator().value, "project:1");
  ::setenv("TAILOR_COORDINATOR", "environment:1", 1);
  EXPECT_EQ(context.coordinator().value, "environment:1");
  context.coordinator_flag = "flag:1";
  EXPECT_EQ(context.coordinator().value, "flag:1");
}

TEST_F(ContextTest, ABrokenProjectFileIsAnErrorAndNotSkipped) {
  ASSERT_TRUE(write_file_atomic("tailor.toml", "cordinator = \"x:1\"\n").is_ok());
  Context context;
  try {
    context.coordinator();
    FAIL() << "accepted an unknown key";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit_code(), Exit::kUsage);
    EXPECT_NE(std::string(failure.what()).find("did you mean `coordinator`"), std::string::npos)
        << failure.what();
  }
}

TEST(Refs, SweepsAreNamedByIdNameOrLast) {
  EXPECT_EQ(sweep_ref("s3").id(), 3u);
  EXPECT_EQ(sweep_ref("3").id(), 3u);
  EXPECT_EQ(sweep_ref("last").name(), "last");
  EXPECT_EQ(sweep_ref("my-sweep").name(), "my-sweep");
  EXPECT_EQ(trial_id("t41"), 41u);
  EXPECT_THROW(trial_id("banana"), Failure);
}

TEST(Refs, EveryCodeHasTheDocumentedExitCode) {
  EXPECT_EQ(exit_for(Code::kInvalidArgument), Exit::kUsage);
  EXPECT_EQ(exit_for(Code::kNotFound), Exit::kNotFound);
  EXPECT_EQ(exit_for(Code::kUnavailable), Exit::kUnreachable);
  EXPECT_EQ(exit_for(Code::kPermissionDenied), Exit::kAuth);
  EXPECT_EQ(exit_for(Code::kAlreadyExists), Exit::kConflict);
  EXPECT_EQ(exit_for(Code::kDeadlineExceeded), Exit::kTimedOut);
  EXPECT_EQ(exit_for(Code::kInternal), Exit::kInternal);
}

}  // namespace
}  // namespace tailor::client
