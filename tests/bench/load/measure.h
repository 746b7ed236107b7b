// What is measured beside the work itself: the disk, the load, another process's use of the
// machine, and distributions of times.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tailor::load {

using Json = nlohmann::ordered_json;

/// Times in seconds, kept whole. Threads: any.
class Times {
 public:
  void add(double seconds);
  /// Forgets all.
  void clear();
  std::size_t count() const;
  /// {"count", "p50_ms", "p90_ms", "p99_ms", "max_ms"}; numbers are null without a time.
  Json json() const;
  /// The time below which `share` of all lie; 0 without one.
  double quantile(double share) const;

 private:
  mutable std::mutex mutex_;  // guards: seconds_
  mutable std::vector<float> seconds_;
};

/// What a process has used so far, of /proc/PID. Missing files read as 0.
struct Usage {
  double cpu_s = 0;   ///< user and system
  double rss_mb = 0;  ///< resident now
  double rss_peak_mb = 0;
  std::uint64_t written_bytes = 0;  ///< by write calls: database, WAL and log, no sockets
  std::uint64_t threads = 0;
};
Usage usage_of(pid_t pid);

/// fdatasync of 4 KiB appends to a file in `folder` for `seconds`: {"syncs_per_s", "p50_us",
/// "p99_us"}.
Json measure_disk(const std::string& folder, double seconds = 0.5);

/// The machine now: {"load1", "processors", "disk": measure_disk}.
Json machine_now(const std::string& folder);

/// Bytes of a file; 0 when it is not there.
std::uint64_t file_bytes(const std::string& path);

/// Sleeps. The bench waits for wall time by its nature.
void sleep_s(double seconds);

/// A number rounded to `digits` significant ones, so that JSON stays readable.
double rounded(double value, int digits = 4);

}  // namespace tailor::load
