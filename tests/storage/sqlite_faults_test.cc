// A disk that is full, and one that has space again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "rows.h"
#include "storage/sqlite_store.h"
#include "tests/support/temporary_folder.h"

namespace tailor::storage {
namespace {

using namespace testing;  // NOLINT
using test::TemporaryFolder;
using ::testing::HasSubstr;

LogRow log_piece(std::uint64_t number, std::size_t bytes) {
  return {
      {TrialId{1}, 1}, number * bytes, std::string(bytes, static_cast<char>('a' + number % 26))};
}

// Commits pieces until one is refused; returns how many were taken.
std::uint64_t fill(Store& store, std::uint64_t from, Status& refusal) {
  for (std::uint64_t number = from; number < from + 10'000; ++number) {
    const std::vector<Mutation> batch{
        log_piece(number, 3000), EventRow{0, 1, EventKind::kTrialQueued, {}, {}, 0, {}, "x"},
        make_point(1, 1, "loss", static_cast<std::int64_t>(number), 1.0)};
    refusal = store.commit(batch);
    if (!refusal.is_ok()) return number;
  }
  return from + 10'000;
}

void expect_whole(Store& store, std::uint64_t pieces) {
  EXPECT_EQ(store.events(0, 100'000)->size(), pieces);
  EXPECT_EQ(store.series(TrialId{1}, "loss")->steps.size(), pieces);
  EXPECT_EQ(store.log({TrialId{1}, 1}, 0, 1ull << 30)->size(), pieces * 3000);
}

TEST(SqliteFaults, AFullFileRefusesWholeBatchesAndGoesOnWhenThereIsRoom) {
  const TemporaryFolder folder;
  SqliteOptions options{.allow_network_file_system = true, .pages_max = 200};
  std::uint64_t taken = 0;
  {
    auto store = open_sqlite(folder.file("a.db"), options);
    ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
    ASSERT_TRUE((*store)->commit(make_base()).is_ok());
    Status refusal;
    taken = fill(**store, 0, refusal);
    EXPECT_EQ(refusal.code(), Code::kResourceExhausted) << refusal.to_string();
    EXPECT_THAT(refusal.message(), HasSubstr("a.db"));
    EXPECT_GT(taken, 10u);
    expect_whole(**store, taken);
    // Still refused, still whole, still readable; what needs no room is taken.
    const auto again = (*store)->commit(std::vector<Mutation>{log_piece(taken, 3000)});
    EXPECT_EQ(again.code(), Code::kResourceExhausted);
    TrialRow trial = make_trial(1);
    trial.message = "changed";
    EXPECT_TRUE((*store)->commit(std::vector<Mutation>{trial}).is_ok());
    expect_whole(**store, taken);
  }
  options.pages_max = 0;
  auto store = open_sqlite(folder.file("a.db"), options);
  ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
  expect_whole(**store, taken);
  ASSERT_TRUE((*store)->commit(std::vector<Mutation>{log_piece(taken, 3000)}).is_ok());
}

// A real file system that runs full, for whoever may mount one.
class SmallDisk {
 public:
  SmallDisk() {
    mounted_ = ::mount("tailor-test", folder_.path().c_str(), "tmpfs", 0, "size=2m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  std::string file(const std::string& name) const { return folder_.file(name); }

 private:
  TemporaryFolder folder_;
  bool mounted_ = false;
};

// A disk that refuses writes for a while (an error, or mounted read-only after one): the kernel
// refuses them here because of a limit on the size of files.
TEST(SqliteFaults, AWriteThatFailsIsRefusedAsWorthAnotherTryAndNothingIsLost) {
  const TemporaryFolder folder;
  auto store = open_sqlite(folder.file("a.db"), {.allow_network_file_system = true});
  ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
  ASSERT_TRUE((*store)->commit(make_base()).is_ok());
  ASSERT_TRUE((*store)->commit(std::vector<Mutation>{log_piece(0, 3000)}).is_ok());
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none{1, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &none), 0);
  const Status refusal = (*store)->commit(std::vector<Mutation>{log_piece(1, 3000)});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(refusal.code(), Code::kUnavailable) << refusal.to_string();
  EXPECT_EQ((*store)->log({TrialId{1}, 1}, 0, 1 << 20)->size(), 3000u);
  const Status status = (*store)->commit(std::vector<Mutation>{log_piece(1, 3000)});
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ((*store)->log({TrialId{1}, 1}, 0, 1 << 20)->size(), 6000u);
}

TEST(SqliteFaults, ARealFullDiskLosesNothingAndRecoversAlone) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount a tmpfs";
  std::ofstream(disk.file("ballast")) << std::string(600 * 1024, 'b');
  auto store = open_sqlite(disk.file("a.db"), {.allow_network_file_system = true});
  ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
  ASSERT_TRUE((*store)->commit(make_base()).is_ok());
  Status refusal;
  const std::uint64_t taken = fill(**store, 0, refusal);
  EXPECT_EQ(refusal.code(), Code::kResourceExhausted) << refusal.to_string();
  EXPECT_GT(taken, 5u);
  expect_whole(**store, taken);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((*store)->commit(std::vector<Mutation>{log_piece(taken, 30'000)}).code(),
              Code::kResourceExhausted);
  }
  ASSERT_TRUE(std::filesystem::remove(disk.file("ballast")));
  const std::vector<Mutation> batch{
      log_piece(taken, 3000), EventRow{0, 1, EventKind::kTrialQueued, {}, {}, 0, {}, "x"},
      make_point(1, 1, "loss", static_cast<std::int64_t>(taken), 1.0)};
  const Status status = (*store)->commit(batch);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  expect_whole(**store, taken + 1);
  store->reset();
  store = open_sqlite(disk.file("a.db"), {.allow_network_file_system = true});
  ASSERT_TRUE(store.has_value()) << status_of(store).to_string();
  expect_whole(**store, taken + 1);
}

}  // namespace
}  // namespace tailor::storage
