#include "tests/simulation/faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/rng.h"

namespace tailor::simulation {

Faults Faults::draw(std::uint64_t seed) {
  Rng rng = Rng::split(seed, "faults");
  // Each fault is off in some runs, so that a seed also shows what one fault does alone.
  const auto mean = [&](std::int64_t low, std::int64_t high) -> std::int64_t {
    const bool on = rng.below(3) != 0;
    const auto drawn =
        low + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(high - low)));
    return on ? drawn : 0;
  };
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(high - low)));
  };
  Faults f;
  f.nodes = static_cast<int>(between(1, 5));
  f.slots = static_cast<int>(between(1, 4));
  f.delay_ms_max = rng.below(4) == 0 ? between(500, 3'000) : between(1, 200);
  f.stream_drop_mean_ms = mean(3'000, 60'000);
  f.half_open_ms_max = between(1, 20'000);
  f.partition_mean_ms = mean(20'000, 120'000);
  f.partition_ms_max = between(1'000, 30'000);
  f.coordinator_crash_mean_ms = mean(5'000, 90'000);
  f.coordinator_down_ms_max = between(1, 20'000);
  f.daemon_crash_mean_ms = mean(5'000, 90'000);
  f.node_crash_mean_ms = mean(20'000, 120'000);
  f.node_wipe_mean_ms = mean(60'000, 240'000);
  f.node_down_ms_max = between(1, 20'000);
  f.trainer_kill_mean_ms = mean(10'000, 90'000);
  f.commit_ms_max = rng.below(4) == 0 ? between(100, 4'000) : between(1, 30);
  f.disk_full_mean_ms = mean(30'000, 180'000);
  f.disk_full_ms_max = between(1, 30'000);
  f.request_mean_ms = mean(2'000, 30'000);
  f.wall_jump_mean_ms = mean(10'000, 60'000);
  f.clock_drift_max = rng.below(2) == 0 ? 0 : 0.01;
  f.trainer_failure = rng.uniform() * 0.5;
  f.spawn_failure = rng.below(3) == 0 ? 0.05 : 0;
  f.batch_max = 1 + rng.below(16);
  f.offline_limit_ms = rng.below(3) == 0 ? between(5'000, 30'000) : 86'400'000;
  // From here on, what came later: seeds keep their earlier draws.
  f.disk_hang_mean_ms = mean(20'000, 120'000);
  f.disk_hang_ms_max = between(1'000, 40'000);
  f.disk_read_only = rng.below(2) == 0;
  if (rng.below(2) == 0) f.wall_jump_ms_max = between(3'600'000, 12 * 3'600'000);
  f.message_twice = rng.below(3) == 0 ? 0.05 : 0;
  f.message_overtakes = rng.below(3) == 0 ? 0.02 : 0;
  f.forgery_mean_ms = mean(500, 20'000);
  f.slots_lost = rng.below(4) == 0 ? 0.2 : 0;
  f.same_name = false;
  return f;
}

void Faults::enlarge(int workers) {
  nodes = workers;
  random_trials = std::max(random_trials, workers / 10);
}

std::string Faults::describe() const {
  return fmt::format(
      "nodes={} slots={} delay_ms_max={} stream_drop_mean_ms={} half_open_ms_max={} "
      "partition_mean_ms={} "
      "partition_ms_max={} coordinator_crash_mean_ms={} coordinator_down_ms_max={} "
      "daemon_crash_mean_ms={} "
      "node_crash_mean_ms={} node_wipe_mean_ms={} node_down_ms_max={} trainer_kill_mean_ms={} "
      "commit_ms_max={} disk_full_mean_ms={} disk_full_ms_max={} request_mean_ms={} "
      "wall_jump_mean_ms={} "
      "clock_drift_max={} trainer_failure={:.3f} spawn_failure={} batch_max={} offline_limit_ms={} "
      "disk_hang_mean_ms={} disk_hang_ms_max={} disk_read_only={} wall_jump_ms_max={} "
      "message_twice={} message_overtakes={} forgery_mean_ms={} slots_lost={} random_trials={} "
      "same_name={}",
      nodes, slots, delay_ms_max, stream_drop_mean_ms, half_open_ms_max, partition_mean_ms,
      partition_ms_max, coordinator_crash_mean_ms, coordinator_down_ms_max, daemon_crash_mean_ms,
      node_crash_mean_ms, node_wipe_mean_ms, node_down_ms_max, trainer_kill_mean_ms, commit_ms_max,
      disk_full_mean_ms, disk_full_ms_max, request_mean_ms, wall_jump_mean_ms, clock_drift_max,
      trainer_failure, spawn_failure, batch_max, offline_limit_ms, disk_hang_mean_ms,
      disk_hang_ms_max, disk_read_only, wall_jump_ms_max, message_twice, message_overtakes,
      forgery_mean_ms, slots_lost, random_trials, same_name);
}

}  // namespace tailor::simulation
