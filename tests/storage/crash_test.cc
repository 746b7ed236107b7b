// kill -9 at random moments: every acknowledged batch is there once, and none in part.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/rng.h"
#include "numbered_batch.h"
#include "storage/sqlite_store.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT
using test::TemporaryFolder;

class Child {
 public:
  Child(const std::string& database, std::uint64_t first) {
    int ends[2];
    TAILOR_CHECK(::pipe(ends) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    std::string program = STORAGE_CRASH_CHILD;
    std::string path = database;
    std::string from = std::to_string(first);
    std::array<char*, 4> arguments{program.data(), path.data(), from.data(), nullptr};
    TAILOR_CHECK(
        ::posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    out_ = ends[0];
  }
  ~Child() {
    if (pid_ > 0) kill();
    ::close(out_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Reads until `number` or more was acknowledged; false when the child ended before.
  bool read_until(std::uint64_t number) {
    while (!acknowledged_any_ || acknowledged_ < number) {
      if (!read_some()) return false;
    }
    return true;
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    while (read_some()) {
    }
  }
  bool acknowledged_any() const { return acknowledged_any_; }
  std::uint64_t acknowledged() const { return acknowledged_; }

 private:
  bool read_some() {
    std::array<char, 4096> buffer;
    const ssize_t size = ::read(out_, buffer.data(), buffer.size());
    if (size <= 0) return false;
    text_.append(buffer.data(), static_cast<std::size_t>(size));
    for (std::size_t end = text_.find('\n'); end != std::string::npos; end = text_.find('\n')) {
      acknowledged_ = std::strtoull(text_.c_str(), nullptr, 10);
      acknowledged_any_ = true;
      text_.erase(0, end + 1);
    }
    return true;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  std::string text_;
  bool acknowledged_any_ = false;
  std::uint64_t acknowledged_ = 0;
};

// Checks that the database holds batches 0..n-1, each once and whole; returns n.
std::uint64_t count_whole_batches(const std::string& database) {
  auto opened = open_sqlite(database, {.allow_network_file_system = true});
  EXPECT_TRUE(opened.has_value()) << status_of(opened).to_string();
  if (!opened) return 0;
  const Store& store = **opened;
  const auto events = store.events(0, 10'000'000);
  EXPECT_TRUE(events.has_value());
  const std::uint64_t count = events->size();
  for (std::uint64_t i = 0; i < count; ++i) EXPECT_EQ((*events)[i].message, std::to_string(i));
  if (count == 0) return 0;
  for (int i = 0; i < kSeriesPerBatch; ++i) {
    const auto series = store.series(TrialId{1}, fmt::format("metric{}", i));
    EXPECT_TRUE(series.has_value()) << status_of(series).to_string();
    EXPECT_EQ(series->steps.size(), count);
    for (std::size_t n = 0; n < series->steps.size(); ++n) {
      EXPECT_EQ(series->steps[n], static_cast<std::int64_t>(n));
      EXPECT_EQ(series->values[n], static_cast<double>(n) + 0.1);
    }
  }
  std::string log;
  for (std::uint64_t i = 0; i < count; ++i) log += fmt::format("{:010}", i);
  EXPECT_EQ(*store.log({TrialId{1}, 1}, 0, 1 << 30), log);
  EXPECT_EQ(store.trial(TrialId{1})->message, std::to_string(count - 1));
  return count;
}

void pause_us(std::uint64_t microseconds) {
  const timespec span{0, static_cast<long>(microseconds * 1000)};
  ::nanosleep(
      &span,
      nullptr);  // the moment of the kill is the input of this test, not a wait for something
}

void kill_and_check(std::uint64_t under_way_max, std::uint64_t seed) {
  const TemporaryFolder folder;
  const std::string database = folder.file("crash.db");
  Rng rng(seed);
  std::uint64_t stored = 0;
  for (int round = 0; round < 20; ++round) {
    Child child(database, stored);
    // Some rounds die while the database is being opened and recovered, most while it is written.
    if (round % 5 != 4) {
      ASSERT_TRUE(child.read_until(stored + rng.next_u64() % 120)) << "the child ended by itself";
    }
    pause_us(rng.next_u64() % 3000);
    child.kill();
    const std::uint64_t found = count_whole_batches(database);
    if (child.acknowledged_any()) {
      ASSERT_GT(found, child.acknowledged()) << "an acknowledged batch is missing";
      ASSERT_LE(found, child.acknowledged() + 1 + under_way_max);
    } else {
      ASSERT_GE(found, stored) << "a batch of an earlier round is missing";
      ASSERT_LE(found, stored + under_way_max);
    }
    stored = found;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round << ", seed " << seed;
  }
  EXPECT_GT(stored, 300u) << "too few batches to seal a chunk: the test shows less than it says";
}

TEST(Crash, KilledWhileCommittingNothingAcknowledgedIsLost) { kill_and_check(1, 11); }

}  // namespace
}  // namespace tailor::storage
