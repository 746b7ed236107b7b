// Faults: what goes wrong in one run, how often,
// all drawn from the seed and printed with a failure.
#pragma once

#include <cstdint>
#include <string>

namespace tailor::simulation {

/// Times are simulated milliseconds. A "mean" is the mean time between two such faults; 0 = never.
struct Faults {
  int nodes = 3;
  int random_trials = 8;                 ///< of the sweep that draws its candidates
  int slots = 2;                         ///< CPU slots of a node
  std::int64_t delay_ms_max = 50;        ///< of one message, one way
  std::int64_t stream_drop_mean_ms = 0;  ///< a stream breaks
  std::int64_t half_open_ms_max = 0;     ///< how late the coordinator notices
  std::int64_t partition_mean_ms = 0;    ///< a node is cut off
  std::int64_t partition_ms_max = 0;
  std::int64_t coordinator_crash_mean_ms = 0;
  std::int64_t coordinator_down_ms_max = 0;
  std::int64_t daemon_crash_mean_ms = 0;  ///< the worker's daemon dies, its trainers live
  std::int64_t node_crash_mean_ms = 0;    ///< power loss: daemon and trainers die, the disk stays
  std::int64_t node_wipe_mean_ms = 0;     ///< ... and the disk is lost too
  std::int64_t node_down_ms_max = 0;
  std::int64_t trainer_kill_mean_ms = 0;  ///< SIGKILL to a trainer
  std::int64_t commit_ms_max = 5;         ///< of one transaction
  std::int64_t disk_hang_mean_ms = 0;     ///< a commit takes up to `disk_hang_ms_max`
  std::int64_t disk_hang_ms_max = 0;
  std::int64_t disk_full_mean_ms = 0;
  std::int64_t disk_full_ms_max = 0;
  bool disk_read_only = false;       ///< it is not full then, it takes no writes
  std::int64_t request_mean_ms = 0;  ///< people pause, resume, cancel, retry, drain
  std::int64_t wall_jump_mean_ms = 0;
  std::int64_t wall_jump_ms_max = 60'000;  ///< either way
  double message_twice = 0;                ///< share of messages that arrive twice
  double message_overtakes = 0;            ///< share that overtakes the one before it in its stream
  std::int64_t forgery_mean_ms = 0;  ///< a stranger with a stream of its own says what is not true
  bool same_name = false;            ///< the second node goes by the name of the first
  double slots_lost = 0;             ///< share of daemon starts that find a slot less
  double clock_drift_max = 0;        ///< of a node's monotonic clock, relative
  double trainer_failure = 0.2;      ///< share of attempts that do not end well by themselves
  double spawn_failure = 0;          ///< share of trainers that cannot be started
  std::uint64_t batch_max = 8;       ///< events in one transaction, at most
  std::int64_t offline_limit_ms = 86'400'000;

  static Faults draw(std::uint64_t seed);
  /// As many workers as one likes, with a tenth as many trials; each thing goes wrong as often in
  /// all as it does among a few.
  void enlarge(int workers);
  /// One line with every setting.
  std::string describe() const;
};

}  // namespace tailor::simulation
