// Sums, broadcasts and gathering over ranks: right, the same bits everywhere, and with an end that
// names the rank that is the reason.
#include "model/train/ranks/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <numeric>

#include "base/rng.h"
#include "tests/model/train/ranks/support.h"

namespace tailor::train::ranks {
namespace {

using protocol::EndClass;
using test::mesh_options;
using test::with_ranks;
using testing::HasSubstr;

template <typename T>
std::vector<T> numbers_of(int rank, std::size_t count) {
  Rng rng(static_cast<std::uint64_t>(rank) * 1000 + count);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(1e4 * (rng.uniform() - 0.5));
  return values;
}

template <typename T>
void expect_sums_in_order(int size) {
  with_ranks(size, [&](Mesh& mesh) {
    for (const std::size_t count : {0u, 1u, 2u, 7u, 500u, 1025u, 5000u, 300'001u}) {
      std::vector<T> wanted = numbers_of<T>(0, count);
      for (int rank = 1; rank < size; ++rank) {
        const std::vector<T> more = numbers_of<T>(rank, count);
        for (std::size_t i = 0; i < count; ++i) wanted[i] += more[i];
      }
      std::vector<T> mine = numbers_of<T>(mesh.rank(), count);
      const Status status = mesh.sum(std::span(mine));
      ASSERT_TRUE(status.is_ok()) << status.message();
      // Floating-point addition is not associative:
      // equal bits say that the order is that of the ranks.
      EXPECT_TRUE(count == 0 || std::memcmp(mine.data(), wanted.data(), count * sizeof(T)) == 0)
          << "rank " << mesh.rank() << " of " << size << ", " << count << " numbers";
    }
  });
}

TEST(MeshTest, SumsAreAddedInTheOrderOfRanksAndTheSameBitsOnEveryRank) {
  for (const int size : {1, 2, 3, 5}) expect_sums_in_order<float>(size);
  expect_sums_in_order<double>(3);
  expect_sums_in_order<std::int64_t>(2);
}

TEST(MeshTest, ABroadcastGivesEveryRankTheBytesOfTheRoot) {
  with_ranks(3, [](Mesh& mesh) {
    for (int root = 0; root < 3; ++root) {
      std::vector<int> values(100'000, mesh.rank());
      if (mesh.rank() == root) std::iota(values.begin(), values.end(), root * 10);
      ASSERT_TRUE(mesh.broadcast(std::as_writable_bytes(std::span(values)), root).is_ok());
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], root * 10 + static_cast<int>(i));
      }
    }
  });
}

TEST(MeshTest, GatheringPutsEveryRanksBytesInTheOrderOfRanks) {
  with_ranks(4, [](Mesh& mesh) {
    const std::vector<int> mine = {mesh.rank(), -mesh.rank()};
    std::vector<int> all(8, 99);
    ASSERT_TRUE(mesh.gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)))
                    .is_ok());
    EXPECT_THAT(all, testing::ElementsAre(0, 0, 1, -1, 2, -2, 3, -3));
  });
}

TEST(MeshTest, OperationsInFlightAreDoneInTheOrderInWhichTheyWereAskedFor) {
  with_ranks(2, [](Mesh& mesh) {
    constexpr int kCount = 50;
    std::vector<std::vector<float>> values(kCount);
    std::vector<int> done;
    for (int i = 0; i < kCount; ++i) {
      values[static_cast<std::size_t>(i)].assign(i % 3 == 0 ? 20'000 : 10, static_cast<float>(i));
      mesh.sum(std::span(values[static_cast<std::size_t>(i)]), [&done, i](const Status& status) {
        EXPECT_TRUE(status.is_ok());
        done.push_back(i);  // on the mesh's thread, one after the other
      });
    }
    float last = 1;
    ASSERT_TRUE(mesh.sum(std::span(&last, 1)).is_ok());
    ASSERT_EQ(done.size(), 50u);
    for (int i = 0; i < kCount; ++i) {
      EXPECT_EQ(done[static_cast<std::size_t>(i)], i);
      EXPECT_EQ(values[static_cast<std::size_t>(i)].back(), 2 * static_cast<float>(i));
    }
  });
}

TEST(MeshTest, ARankThatFailsTellsAllWhyAndWhatWasWaitingEnds) {
  with_ranks(3, [](Mesh& mesh) {
    if (mesh.rank() == 1) {
      mesh.end(EndClass::kOom, "out of memory at step 7");
      return;
    }
    std::vector<float> values(10'000, 1.0f);
    const Status status = mesh.sum(std::span(values));
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_EQ(status.message(), "rank 1: out of memory at step 7");
    EXPECT_EQ(mesh.reason().rank, 1);
    EXPECT_EQ(mesh.reason().end, EndClass::kOom);
    EXPECT_FALSE(mesh.reason().lost);
  });
}

TEST(MeshTest, WhatIsCalledAtTheEndMayTakeItsTimeWhileOthersUseTheMesh) {
  with_ranks(2, [](Mesh& mesh) {
    std::promise<void> failed;
    std::promise<void> called;
    auto over = std::make_shared<std::promise<void>>();  // outlives this call's end
    mesh.on_end([&called, over, wait = failed.get_future().share()] {
      called.set_value();
      wait.wait();  // as an abort that waits for whoever uses the communicator
      over->set_value();
    });
    std::vector<double> numbers(3, 1);
    ASSERT_TRUE(mesh.sum(std::span(numbers)).is_ok());  // both listen by now
    std::thread teller([&] {
      if (mesh.rank() == 1) mesh.end(EndClass::kData, "done for");
    });
    called.get_future().wait();
    EXPECT_FALSE(mesh.sum(std::span(numbers)).is_ok());
    mesh.on_end({});
    failed.set_value();
    over->get_future().wait();
    teller.join();
  });
}

TEST(MeshTest, ARankThatLeavesIsNoLossUntilSomebodyNeedsIt) {
  std::atomic<bool> gone = false;
  with_ranks(2, [&](Mesh& mesh) {
    float one = 1;
    ASSERT_TRUE(mesh.sum(std::span(&one, 1)).is_ok());
    if (mesh.rank() == 1) {
      mesh.leave();
      gone = true;
      gone.notify_all();
      return;
    }
    gone.wait(false);
    EXPECT_FALSE(mesh.ended().has_value());
    EXPECT_FALSE(mesh.sum(std::span(&one, 1)).is_ok());
    EXPECT_EQ(mesh.reason().rank, 1);
    EXPECT_THAT(mesh.reason().message, HasSubstr("has left the group"));
  });
}

TEST(MeshTest, RanksThatDoDifferentThingsAreToldSo) {
  with_ranks(2, [](Mesh& mesh) {
    std::vector<float> values(5000);
    const Status status = mesh.rank() == 0
                              ? mesh.sum(std::span(values))
                              : mesh.broadcast(std::as_writable_bytes(std::span(values)), 1);
    EXPECT_THAT(status.message(), HasSubstr("is out of step"));
    EXPECT_THAT(status.message(), HasSubstr("20000 bytes"));
  });
}

TEST(MeshTest, ARankThatLivesButTakesNoPartRunsIntoTheDeadline) {
  std::atomic<bool> over = false;
  with_ranks(
      2,
      [&](Mesh& mesh) {
        if (mesh.rank() == 1) {
          over.wait(false);
          return;
        }
        std::vector<float> values(10);
        const Status status = mesh.sum(std::span(values));
        EXPECT_THAT(status.message(), HasSubstr("rank 1 (process"));
        EXPECT_THAT(status.message(), HasSubstr("hangs"));
        EXPECT_EQ(mesh.reason().end, EndClass::kTimeout);
        over = true;
        over.notify_all();
      },
      [](MeshOptions& options) { options.stall_ms = 150; });
}

// Ranks 0 and 2 are real, rank 1 meets them and is then whatever `fate` makes of it.
void with_a_false_rank_1(const std::function<void(std::vector<Peer>&)>& fate,
                         std::int64_t lost_after_ms, EndClass wanted, const std::string& words) {
  const SystemClock clock;
  test::MemoryRendezvous rendezvous;
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      MeshOptions options = mesh_options(rank, 3);
      options.lost_after_ms = lost_after_ms;
      auto mesh = Mesh::join(options, rendezvous, clock);
      ASSERT_TRUE(mesh.has_value()) << mesh.error().message();
      std::vector<float> values(100'000);
      EXPECT_FALSE((*mesh)->sum(std::span(values)).is_ok());
      const GroupEnd end = (*mesh)->reason();
      EXPECT_EQ(end.rank, 1);
      EXPECT_EQ(end.end, wanted);
      EXPECT_TRUE(end.lost);
      EXPECT_THAT(end.message, HasSubstr(words));
    });
  }
  MeetingOptions options;
  options.rank = 1;
  options.size = 3;
  options.address = "127.0.0.1";
  options.deadline_ms = clock.now_ms() + 30'000;
  auto peers = meet(options, rendezvous, clock);
  ASSERT_TRUE(peers.has_value()) << peers.error().message();
  fate(*peers);
  for (std::thread& thread : threads) thread.join();
}

TEST(MeshTest, ARankThatDiesIsNamedByAll) {
  with_a_false_rank_1([](std::vector<Peer>& peers) { peers.clear(); }, 30'000,
                      EndClass::kInfrastructure, "closed without a goodbye");
}

TEST(MeshTest, ARankThatFallsSilentIsNamedByAll) {
  with_a_false_rank_1([](std::vector<Peer>&) {}, 400, EndClass::kNodeLost, "not a sign of life");
}

TEST(MeshTest, ARankThatSpeaksNonsenseEndsTheGroup) {
  with_a_false_rank_1(
      [](std::vector<Peer>& peers) {
        const std::vector<std::byte> nonsense(64, std::byte{0xff});
        const SystemClock clock;
        for (Peer& peer : peers) {
          ASSERT_TRUE(send_all(peer.control, nonsense, clock, clock.now_ms() + 1000).is_ok());
        }
      },
      30'000, EndClass::kInfrastructure, "use one version");
}

}  // namespace
}  // namespace tailor::train::ranks
