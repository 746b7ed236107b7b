// Clock: the only way to ask for the time. Built in `main` and handed down;
// pure code receives `now_ms`.
//
// Two times, never mixed: `now_ms` is monotonic and only good for differences and deadlines;
// `wall_ms` is Unix time, for people and for rows. `system_clock::now` and `steady_clock::now`
// stand in clock.cc alone (tests/base/tidy_test.cc greps for others).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tailor {

/// Milliseconds of a monotonic clock with an arbitrary origin.
using MonotonicMs = std::int64_t;
/// Milliseconds since the Unix epoch, UTC.
using WallMs = std::int64_t;

/// Source of time. Threads: every implementation may be called from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Monotonic milliseconds; never goes back while the process lives.
  virtual MonotonicMs now_ms() const = 0;
  /// Unix time in milliseconds; may jump.
  virtual WallMs wall_ms() const = 0;
};

/// The machine's clocks. `now_ms` is CLOCK_BOOTTIME: it counts suspended time and is the same for
/// every process of the node, so a deadline written by a worker can be read by a trainer.
class SystemClock final : public Clock {
 public:
  MonotonicMs now_ms() const override;
  WallMs wall_ms() const override;
};

/// A clock that moves only when told to. For tests and the simulation.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(MonotonicMs now_ms = 0, WallMs wall_ms = 1'700'000'000'000)
      : now_ms_(now_ms), wall_ms_(wall_ms) {}
  MonotonicMs now_ms() const override { return now_ms_.load(); }
  WallMs wall_ms() const override { return wall_ms_.load(); }
  /// Moves both times forward. REQUIRES: delta_ms >= 0.
  void advance(std::int64_t delta_ms);
  /// Makes the wall clock jump, as NTP or an administrator would.
  void jump_wall(std::int64_t delta_ms) { wall_ms_ += delta_ms; }

 private:
  std::atomic<MonotonicMs> now_ms_;
  std::atomic<WallMs> wall_ms_;
};

/// Monotonic seconds of fine resolution with an arbitrary origin: for how long something took.
double steady_seconds();

/// CPU seconds used by this process (all threads): for benches and reports.
double process_cpu_seconds();

/// "2026-11-29T15:44:23.123Z".
std::string format_wall(WallMs wall_ms);

}  // namespace tailor
