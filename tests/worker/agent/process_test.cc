// Spawning and supervising real processes.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "tests/worker/agent/agent_harness.h"
#include "tests/worker/agent/temporary_folder.h"
#include "worker/agent/process/spawner.h"
#include "worker/agent/process/supervisor.h"

namespace tailor::agent {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

const protocol::AttemptRef kA = attempt_ref(41);

class ProcessTest : public testing::Test {
 protected:
  SpawnRequest shell(const std::string& script) {
    return {{"/bin/sh", "-c", script}, environment_with({}), folder_.path(), folder_.file("log")};
  }
  ProcessIdentity start(const std::string& script) { return start(shell(script)); }
  ProcessIdentity start(const SpawnRequest& request) {
    Result<HeldProcess> held = spawn_held(request);
    EXPECT_TRUE(held.has_value()) << held.error().message();
    const Status released = held->release();
    EXPECT_TRUE(released.is_ok()) << released.message();
    supervisor_.watch(kA, held->identity(), true);
    return held->identity();
  }
  TrainerExited wait_for_exit() {
    std::vector<TrainerExited> ended;
    EXPECT_TRUE(eventually([&] { return !(ended = supervisor_.reap()).empty(); }));
    return ended.empty() ? TrainerExited{} : ended.front();
  }
  std::string log() { return read_file(folder_.file("log")).value_or(std::string()); }
  static bool exists(pid_t pid) { return process_start_time(pid).has_value(); }

  TemporaryFolder folder_;
  SystemClock clock_;
  Supervisor supervisor_{clock_};
};

TEST_F(ProcessTest, OutputGoesToTheLogAndTheExitCodeIsTold) {
  start("echo out; echo err >&2; pwd; exit 5");
  const TrainerExited ended = wait_for_exit();
  EXPECT_EQ(ended.ref, kA);
  EXPECT_EQ(ended.status.code, 5);
  EXPECT_EQ(ended.status.signal, std::nullopt);
  EXPECT_EQ(log(), "out\nerr\n" + std::filesystem::canonical(folder_.path()).string() + "\n");
}

TEST_F(ProcessTest, NothingOfOursIsOpenInTheChild) {
  int leak[2];
  ASSERT_EQ(::pipe(leak), 0);  // without close-on-exec, as a careless library would
  SpawnRequest request = shell("");
  request.argv = {"/bin/ls", "/proc/self/fd"};  // no shell: it opens pipes of its own
  start(request);
  EXPECT_EQ(wait_for_exit().status.code, 0);
  ::close(leak[0]);
  ::close(leak[1]);
  EXPECT_EQ(log(), "0\n1\n2\n3\n") << "3 is the folder that ls reads";
}

TEST_F(ProcessTest, TheChildIsItsOwnGroupWithDefaultSignals) {
  ::signal(SIGPIPE, SIG_IGN);
  SpawnRequest request = shell("");
  // No shell: it blocks signals itself while it forks.
  request.argv = {"/bin/grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"};
  start(request);
  EXPECT_EQ(wait_for_exit().status.code, 0);
  ::signal(SIGPIPE, SIG_DFL);
  EXPECT_THAT(log(), HasSubstr("SigBlk:\t0000000000000000"));
  EXPECT_THAT(log(), HasSubstr("SigIgn:\t0000000000000000"));

  const ProcessIdentity process = start("sleep 100");
  EXPECT_EQ(::getpgid(process.pid), process.pid);
  supervisor_.signal(kA, TrainerSignal::kTerm);
  EXPECT_EQ(wait_for_exit().status.signal, SIGTERM);
}

TEST_F(ProcessTest, KillEndsTheWholeTree) {
  const ProcessIdentity process = start("trap '' TERM; sleep 100 & echo $! > child; wait; wait");
  ASSERT_TRUE(
      eventually([&] { return read_file(folder_.file("child")).value_or("").ends_with('\n'); }));
  const pid_t child = static_cast<pid_t>(std::stol(*read_file(folder_.file("child"))));
  ASSERT_TRUE(exists(child));
  supervisor_.signal(kA, TrainerSignal::kKill);
  EXPECT_EQ(wait_for_exit().status.signal, SIGKILL);
  EXPECT_FALSE(exists(process.pid));
  EXPECT_FALSE(exists(child)) << "a grandchild still holds the slot's device";
}

TEST_F(ProcessTest, AnExitIsToldOnlyWhenTheLeftoverChildrenAreGone) {
  start("sleep 100 & echo $! > child; exit 0");
  EXPECT_EQ(wait_for_exit().status.code, 0);
  const pid_t child = static_cast<pid_t>(std::stol(*read_file(folder_.file("child"))));
  EXPECT_FALSE(exists(child));
}

// Two coordinators on one machine give out the same numbers and tokens.
TEST_F(ProcessTest, TheEndOfAnAttemptTouchesNoneOfTheSameNumberOfAnotherWorker) {
  Supervisor other(clock_, "other");
  SpawnRequest request = shell("sleep 100");
  request.environment = environment_with({other.mark(kA)});
  Result<HeldProcess> held = spawn_held(request);
  ASSERT_TRUE(held.has_value());
  ASSERT_TRUE(held->release().is_ok());
  other.watch(kA, held->identity(), true);
  request.environment = environment_with({supervisor_.mark(kA)});
  start(request);
  supervisor_.signal(kA, TrainerSignal::kKill);
  EXPECT_EQ(wait_for_exit().status.signal, SIGKILL);
  EXPECT_TRUE(exists(held->identity().pid));
  EXPECT_THAT(other.reap(), testing::IsEmpty());
  other.signal(kA, TrainerSignal::kKill);
  EXPECT_TRUE(eventually([&] { return !other.reap().empty(); }));
}

TEST_F(ProcessTest, AProgramThatIsNotThereIsAnErrorNotAnExit) {
  SpawnRequest request = shell("");
  request.argv = {folder_.file("no-such-program"), "run"};
  Result<HeldProcess> held = spawn_held(request);
  ASSERT_TRUE(held.has_value());
  const Status released = held->release();
  EXPECT_EQ(released.code(), Code::kNotFound) << released.to_string();
}

TEST_F(ProcessTest, AChildWhoseParentGoesAwayAtTheGateNeverRuns) {
  pid_t pid = 0;
  {
    Result<HeldProcess> held = spawn_held(shell("touch ran"));
    ASSERT_TRUE(held.has_value());
    pid = held->identity().pid;
    EXPECT_TRUE(is_alive(held->identity())) << "it can be noted before it runs";
  }
  EXPECT_FALSE(exists(pid));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("ran")));
}

TEST_F(ProcessTest, AnotherProcessWithTheSamePidIsAnother) {
  const ProcessIdentity process = start("sleep 100");
  EXPECT_TRUE(is_alive(process));
  ProcessIdentity other = process;
  other.start_time += 1;
  EXPECT_FALSE(is_alive(other));
  other = process;
  other.boot_id = "another boot";
  EXPECT_FALSE(is_alive(other));
  supervisor_.signal(kA, TrainerSignal::kKill);
  wait_for_exit();
  EXPECT_FALSE(is_alive(process));
}

TEST_F(ProcessTest, AnAdoptedProcessIsWatchedAndSignalledWithoutAStatus) {
  const ProcessIdentity process = start("sleep 100");
  Supervisor restarted(clock_);
  restarted.watch(kA, process, false);
  EXPECT_THAT(restarted.reap(), testing::IsEmpty());
  restarted.signal(kA, TrainerSignal::kTerm);
  std::vector<TrainerExited> ended;
  EXPECT_TRUE(eventually([&] { return !(ended = restarted.reap()).empty(); }));
  ASSERT_THAT(ended, SizeIs(1));
  EXPECT_EQ(ended[0].status.code, std::nullopt);
  EXPECT_EQ(ended[0].status.signal, std::nullopt);
}

TEST_F(ProcessTest, TheEnvironmentIsOursWithChanges) {
  ::setenv("TAILOR_TEST_KEPT", "kept", 1);
  ::setenv("TAILOR_TEST_GONE", "gone", 1);
  const auto environment = environment_with({"TAILOR_TEST_NEW=a=b", "TAILOR_TEST_GONE"});
  EXPECT_THAT(environment, testing::Contains("TAILOR_TEST_KEPT=kept"));
  EXPECT_THAT(environment, testing::Contains("TAILOR_TEST_NEW=a=b"));
  for (const std::string& entry : environment)
    EXPECT_EQ(entry.find("TAILOR_TEST_GONE"), std::string::npos);
}

}  // namespace
}  // namespace tailor::agent
