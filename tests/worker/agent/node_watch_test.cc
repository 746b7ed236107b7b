// Looking at the node from a thread that may hang.
#include "worker/agent/node_watch.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>

#include "tests/worker/agent/temporary_folder.h"

namespace tailor::agent {
namespace {

TEST(Periodic, LooksAtOnceAndAgainAndTellsWhatItFound) {
  std::atomic<int> looked{0}, told{0};
  const Periodic periodic(
      [&]() -> std::function<void()> {
        ++looked;
        return [&] { ++told; };
      },
      1);
  EXPECT_TRUE(eventually([&] { return told >= 3; }, 60'000));
  EXPECT_GE(looked, told);
}

TEST(Periodic, TellsNothingAfterItsEndHoweverLongALookTakes) {
  const auto open = std::make_shared<std::atomic<bool>>(false);
  const auto looked = std::make_shared<std::atomic<int>>(0);
  const auto told = std::make_shared<std::atomic<int>>(0);
  {
    const Periodic periodic(
        [=]() -> std::function<void()> {
          ++*looked;
          while (!*open) ::poll(nullptr, 0, 1);
          return [told] { ++*told; };
        },
        1);
    ASSERT_TRUE(eventually([&] { return *looked == 1; }, 60'000));
  }
  *open = true;  // its owner did not wait for it
  EXPECT_EQ(*told, 0);
}

TEST(NodeHealth, KnowsTheDiskOfTheTrialsFolder) {
  TemporaryFolder folder;
  const NodeHealth health = look_at_disk(folder.path());
  EXPECT_GT(health.disk_total_bytes, 0u);
  EXPECT_LE(health.disk_free_bytes, health.disk_total_bytes);
  EXPECT_EQ(health.trouble, "");
  const NodeHealth gone = look_at_disk(folder.file("none"));
  EXPECT_EQ(gone.disk_total_bytes, 0u) << "not known";
  EXPECT_NE(gone.trouble.find(folder.file("none")), std::string::npos) << gone.trouble;
}

}  // namespace
}  // namespace tailor::agent
