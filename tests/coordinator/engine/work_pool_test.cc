#include "coordinator/engine/work_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace tailor::engine {
namespace {

TEST(WorkPool, RunsEverythingThatItTookBeforeItStops) {
  std::atomic<int> done{0};
  {
    WorkPool pool(2, 100);
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(pool.post([&] { ++done; }));
    pool.stop();
    EXPECT_FALSE(pool.post([&] { ++done; }));
  }
  EXPECT_EQ(done.load(), 50);
}

TEST(WorkPool, RefusesWorkWhenItsQueueIsFull) {
  // Before the pool: its work uses them until it is destroyed.
  std::promise<void> gate;
  std::promise<void> begun;
  std::future<void> opened = gate.get_future();
  WorkPool pool(1, 2);
  ASSERT_TRUE(pool.post([&] {
    begun.set_value();
    opened.wait();
  }));
  begun.get_future().wait();
  EXPECT_TRUE(pool.post([] {}));
  EXPECT_TRUE(pool.post([] {}));
  EXPECT_FALSE(pool.post([] {}));
  gate.set_value();
}

TEST(WorkPool, CountsWhatWaitsAndNotWhatRuns) {
  std::promise<void> gate;
  std::promise<void> begun;
  std::future<void> opened = gate.get_future();
  WorkPool pool(1, 8, 10);
  EXPECT_EQ(pool.waiting(), 0u);
  ASSERT_TRUE(pool.post([&] {
    begun.set_value();
    opened.wait();
  }));
  begun.get_future().wait();
  EXPECT_EQ(pool.waiting(), 0u);
  pool.post([] {});
  pool.post([] {});
  EXPECT_EQ(pool.waiting(), 2u);
  gate.set_value();
  pool.stop();
  EXPECT_EQ(pool.waiting(), 0u);
}

}  // namespace
}  // namespace tailor::engine
