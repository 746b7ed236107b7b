#include "client/format.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "base/clock.h"
#include "base/ids.h"

namespace tailor::client {

std::string state_name(v1::SweepState state) {
  switch (state) {
    case v1::SWEEP_STATE_RUNNING:
      return "running";
    case v1::SWEEP_STATE_PAUSED:
      return "paused";
    case v1::SWEEP_STATE_COMPLETED:
      return "completed";
    case v1::SWEEP_STATE_CANCELLED:
      return "cancelled";
    case v1::SWEEP_STATE_FAILED:
      return "failed";
    default:
      return "unknown";
  }
}

std::string state_name(v1::TrialState state) {
  switch (state) {
    case v1::TRIAL_STATE_QUEUED:
      return "queued";
    case v1::TRIAL_STATE_RUNNING:
      return "running";
    case v1::TRIAL_STATE_COMPLETED:
      return "completed";
    case v1::TRIAL_STATE_STOPPED:
      return "stopped";
    case v1::TRIAL_STATE_FAILED:
      return "failed";
    case v1::TRIAL_STATE_CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

std::string duration(std::int64_t from_ms, std::int64_t to_ms) {
  if (from_ms == 0) return "";
  const std::int64_t end = to_ms == 0 ? SystemClock().wall_ms() : to_ms;
  const std::int64_t s = std::max<std::int64_t>(0, (end - from_ms) / 1000);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m {:02}s", s / 60, s % 60);
  if (s < 86400) return fmt::format("{}h {:02}m", s / 3600, s % 3600 / 60);
  return fmt::format("{}d {:02}h", s / 86400, s % 86400 / 3600);
}

std::string local_time(std::int64_t wall_ms) {
  if (wall_ms == 0) return "";
  const std::time_t seconds = static_cast<std::time_t>(wall_ms / 1000);
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", local);
}

std::string fixed(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }

std::string signed_fixed(double value, int digits) {
  return fmt::format("{:+.{}f}", value, digits);
}

std::string short_count(double value) {
  if (value >= 1e9) return fmt::format("{:.2f}B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

std::uint64_t trials_of(const v1::Sweep& s) {
  return s.queued() + s.running() + s.completed() + s.stopped() + s.failed() + s.cancelled();
}

std::string search_text(const v1::Sweep& s) {
  return s.search_points() == 0 ? "-" : fmt::format("{}/{}", s.search_tried(), s.search_points());
}

std::string trial_text(std::uint64_t id) { return TrialId{id}.to_string(); }
std::string sweep_text(std::uint64_t id) { return SweepId{id}.to_string(); }

}  // namespace tailor::client
