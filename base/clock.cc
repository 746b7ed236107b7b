#include "base/clock.h"

#include <fmt/format.h>
#include <time.h>

#include <chrono>

#include "base/check.h"

namespace tailor {

MonotonicMs SystemClock::now_ms() const {
  timespec ts{};
  TAILOR_CHECK(clock_gettime(CLOCK_BOOTTIME, &ts) == 0);
  return static_cast<MonotonicMs>(ts.tv_sec) * 1000 + ts.tv_nsec / 1'000'000;
}

WallMs SystemClock::wall_ms() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void ManualClock::advance(std::int64_t delta_ms) {
  TAILOR_CHECK(delta_ms >= 0, "delta_ms={}", delta_ms);
  now_ms_ += delta_ms;
  wall_ms_ += delta_ms;
}

double steady_seconds() {
  timespec ts{};
  TAILOR_CHECK(clock_gettime(CLOCK_MONOTONIC, &ts) == 0);
  return static_cast<double>(ts.tv_sec) + static_cast<double>(ts.tv_nsec) * 1e-9;
}

double process_cpu_seconds() {
  timespec ts{};
  TAILOR_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts) == 0);
  return static_cast<double>(ts.tv_sec) + static_cast<double>(ts.tv_nsec) * 1e-9;
}

std::string format_wall(WallMs wall_ms) {
  const std::time_t seconds = static_cast<std::time_t>(wall_ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     wall_ms % 1000);
}

}  // namespace tailor
