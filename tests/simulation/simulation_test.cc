// 200 worlds keep every promise; the same seed is the same world;
// and the worlds are bad enough to matter.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/simulation/world.h"

namespace tailor::simulation {
namespace {

constexpr std::int64_t kTicks = 180;

/// Runs seeds [first, first + count) and returns what happened in them.
std::map<std::string, std::uint64_t> run_seeds(std::uint64_t first, std::uint64_t count) {
  std::map<std::string, std::uint64_t> counters;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Outcome outcome = run_world({seed, kTicks, false});
    EXPECT_EQ(outcome.failure, "")
        << "seed " << seed << "\nfaults: " << Faults::draw(seed).describe()
        << "\nagain: tailor-sim --seeds " << seed << ".." << seed << " --ticks " << kTicks
        << " --trace";
    if (testing::Test::HasFailure()) return counters;
    for (const auto& [what, n] : outcome.counters) counters[what] += n;
  }
  return counters;
}

TEST(Simulation, TwoHundredWorldsKeepEveryPromise) {
  const auto counters = run_seeds(0, 200);
  if (HasFailure()) return;
  // A world in which nothing happens proves nothing: every kind of trouble was met, and met often.
  for (const char* what : {"attempt completed",
                           "attempt stopped",
                           "attempt preempted",
                           "attempt node_lost",
                           "attempt lease_lost",
                           "attempt infrastructure",
                           "attempt oom",
                           "attempt nan",
                           "attempt user",
                           "attempt data",
                           "coordinator crash",
                           "coordinator crash: before a commit",
                           "coordinator crash: after a commit that nobody heard of",
                           "commit: disk full",
                           "commit: disk read-only",
                           "daemon starts with a slot less",
                           "lease ran out",
                           "lie",
                           "message out of order",
                           "message twice",
                           "stall",
                           "daemon crash",
                           "node crash",
                           "node wiped",
                           "trainer killed",
                           "refused: the name is taken",
                           "trainer hangs",
                           "trainer re-adopted",
                           "trainer resumed from a checkpoint",
                           "trainer stopped by its lease",
                           "stream broke",
                           "partition",
                           "held: keep",
                           "held: discard",
                           "assign: again",
                           "stop: fenced",
                           "stop: paused",
                           "stop: cancelled",
                           "drain",
                           "search updates",
                           "reports acknowledged"}) {
    const auto found = counters.find(what);
    EXPECT_GE(found == counters.end() ? 0 : found->second, 20u) << what;
  }
}

/// The worlds of tests/simulation/regressions.
TEST(Simulation, KeptWorldsStayWhole) {
  std::ifstream file(std::string(TAILOR_SOURCE_DIR) + "/tests/simulation/regressions");
  ASSERT_TRUE(file.is_open());
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    RunOptions options;
    std::string found;
    ASSERT_TRUE(words >> options.seed >> options.ticks >> options.workers) << line;
    ASSERT_TRUE(std::getline(words >> std::ws, found) && !found.empty()) << line;
    EXPECT_EQ(run_world(options).failure, "") << line;
  }
}

TEST(Simulation, AThousandWorkersKeepThePromisesToo) {
  const Outcome outcome = run_world({1, 20, false, 1'000});
  EXPECT_EQ(outcome.failure, "");
  EXPECT_GE(outcome.counters.at("attempt completed"), 100u);
}

TEST(Simulation, TheSameSeedIsTheSameWorld) {
  for (const std::uint64_t seed : {3u, 14u, 159u}) {
    const Outcome a = run_world({seed, kTicks, false});
    const Outcome b = run_world({seed, kTicks, false});
    EXPECT_EQ(a.trace_hash, b.trace_hash) << "seed " << seed;
    EXPECT_EQ(a.final_state, b.final_state) << "seed " << seed;
  }
  EXPECT_NE(run_world({3, kTicks, false}).trace_hash, run_world({4, kTicks, false}).trace_hash);
}

}  // namespace
}  // namespace tailor::simulation
