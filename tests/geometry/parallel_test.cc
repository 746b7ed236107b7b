// parallel_for: all items once; what a body throws comes out in the caller.
#include "geometry/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <vector>

namespace tailor::geometry {
namespace {

TEST(ParallelFor, DoesEveryItemOnce) {
  for (const int threads : {1, 3}) {
    std::vector<int> done(100, 0);
    parallel_for(threads, done.size(), [&](std::size_t i) { ++done[i]; });
    EXPECT_EQ(done, std::vector<int>(100, 1));
  }
}

TEST(ParallelFor, MemoryThatRunsOutInAThreadIsTheCallersToHandle) {
  for (const int threads : {1, 4}) {
    std::atomic<int> begun = 0;
    EXPECT_THROW(parallel_for(threads, 1000000,
                              [&](std::size_t) {
                                ++begun;
                                throw std::bad_alloc();
                              }),
                 std::bad_alloc);
    EXPECT_LE(begun, threads);
  }
}

}  // namespace
}  // namespace tailor::geometry
