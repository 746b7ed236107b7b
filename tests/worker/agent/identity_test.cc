// Names that outlive restarts.
#include "worker/agent/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "base/file.h"
#include "tests/worker/agent/temporary_folder.h"

namespace tailor::agent {
namespace {

using testing::StartsWith;

TEST(WorkerName, IsTheHostsWithLettersOfItsOwnAndStaysTheSame) {
  TemporaryFolder folder;
  const auto first = default_worker_name(folder.file("w1"), "box");
  ASSERT_TRUE(first.has_value()) << first.error().message();
  EXPECT_THAT(*first, StartsWith("box-"));
  std::ofstream(folder.file("w1/worker.lock")) << "1";
  EXPECT_EQ(*default_worker_name(folder.file("w1"), "box"), *first);
  EXPECT_NE(*default_worker_name(folder.file("w2"), "box"), *first)
      << "containers may have one host name";
}

TEST(WorkerName, OfAFolderThatAnEarlierVersionUsedIsTheHosts) {
  TemporaryFolder folder;
  std::ofstream(folder.file("worker.lock")) << "1";
  EXPECT_EQ(*default_worker_name(folder.path(), "box"), "box");
  EXPECT_EQ(*default_worker_name(folder.path(), "renamed"), "box") << "kept from then on";
}

TEST(Address, IsTheOneOnTheWayToTheCoordinator) {
  EXPECT_EQ(address_towards("127.0.0.1:7070"), "127.0.0.1");
  EXPECT_EQ(address_towards("no.such.host.invalid:1"), "");
  EXPECT_EQ(address_towards("nonsense"), "");
}

TEST(FolderIdentity, IsOneForAllWhoComeAtOnce) {
  TemporaryFolder folder;
  std::vector<std::string> seen(8);
  std::atomic<bool> go = false;
  std::vector<std::thread> threads;
  for (std::string& one : seen) {
    threads.emplace_back([&] {
      while (!go) std::this_thread::yield();
      one = folder_identity(folder.path()).value_or("failed");
    });
  }
  go = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<std::string>(seen.begin(), seen.end()).size(), 1u);
  EXPECT_EQ(seen[0].size(), 32u);
  TemporaryFolder other;
  EXPECT_NE(folder_identity(other.path()).value(), seen[0]);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path()))
    ++files;
  EXPECT_EQ(files, 1u) << "no temporary file is left";
}

TEST(FolderIdentity, AnEmptyFileThatALossOfPowerLeftIsReplaced) {
  TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomic(folder.file(".tailor-folder"), "").is_ok());
  const auto identity = folder_identity(folder.path());
  ASSERT_TRUE(identity.has_value()) << identity.error().message();
  EXPECT_EQ(identity->size(), 32u);
  EXPECT_EQ(folder_identity(folder.path()).value(), *identity);
}

}  // namespace
}  // namespace tailor::agent
