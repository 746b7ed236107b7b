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

/// What main would print for a failed call, and the exit code.
std::pair<Exit, std::string> said_of(grpc::StatusCode code, const std::string& message) {
  Context context;
  context.coordinator_flag = "127.0.0.1:1";
  try {
    context.check(grpc::Status(code, message));
  } catch (const Failure& failure) {
    return {failure.exit_code(), failure.what()};
  }
  return {Exit::kOk, ""};
}

TEST(FailedCalls, EachKindHasItsOwnWordsAndNoneIsSilent) {
  const auto [late, late_text] = said_of(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
  EXPECT_EQ(late, Exit::kTimedOut);
  EXPECT_NE(late_text.find("did not answer within"), std::string::npos) << late_text;
  // The coordinator's own reason is not replaced.
  EXPECT_EQ(said_of(grpc::StatusCode::DEADLINE_EXCEEDED, "the query ran longer than 10 ms").second,
            "the query ran longer than 10 ms");
  const auto [large, large_text] = said_of(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                           "Sent message larger than max (40000000 vs. 33554432)");
  EXPECT_EQ(large, Exit::kInternal);
  EXPECT_NE(large_text.find("Ask for less"), std::string::npos) << large_text;
  EXPECT_EQ(said_of(grpc::StatusCode::RESOURCE_EXHAUSTED, "the disk is full").second,
            "the disk is full");
  EXPECT_EQ(said_of(grpc::StatusCode::PERMISSION_DENIED, "queries only read").first, Exit::kAuth);
  EXPECT_EQ(said_of(grpc::StatusCode::UNAVAILABLE, "Connection refused").first, Exit::kUnreachable);
  EXPECT_NE(said_of(grpc::StatusCode::UNAVAILABLE, "Trying to connect an http1.x server")
                .second.find("no Tailor coordinator"),
            std::string::npos);
  EXPECT_NE(said_of(grpc::StatusCode::UNIMPLEMENTED, "").second.find("no Tailor coordinator"),
            std::string::npos);
  for (const auto code :
       {grpc::StatusCode::INTERNAL, grpc::StatusCode::UNKNOWN, grpc::StatusCode::DATA_LOSS,
        grpc::StatusCode::NOT_FOUND, grpc::StatusCode::UNAVAILABLE}) {
    const auto [exit, text] = said_of(code, "");
    EXPECT_NE(exit, Exit::kOk);
    EXPECT_NE(text.find("no reason given"), std::string::npos) << text;
  }
}

TEST(FailedCalls, TextThatCannotBeSentIsRefusedBeforeItIs) {
  v1::GetSweepRequest request;
  request.mutable_sweep()->set_name("caf\xC3\xA9");
  EXPECT_NO_THROW(require_text(request));
  request.mutable_sweep()->set_name("caf\xE9");
  try {
    require_text(request);
    FAIL() << "sent bytes that are no text";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit_code(), Exit::kUsage);
  }
}

TEST(Refs, OnlyAnIdWithItsLetterIsTakenForATrial) {
  EXPECT_TRUE(is_trial("t41"));
  for (const char* text : {"41", "T41", "t", "t0", "t41.2", "t41x", "taper", ""}) {
    EXPECT_FALSE(is_trial(text)) << text;
  }
}

}  // namespace
}  // namespace tailor::client
