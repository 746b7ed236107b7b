#include "worker/trainer/progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace tailor::trainer {
namespace {

std::string time_left(double seconds) {
  const auto s = static_cast<std::int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  if (s < 48 * 3600) return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
  return fmt::format("{} days", s / 86'400);
}

}  // namespace

void Progress::started(const protocol::StartedReport& report) {
  steps_ = report.resumed_step;
  steps_total_ = report.steps_total;
  samples_.assign(1, {clock_.now_ms(), steps_});
}

void Progress::metric(const protocol::MetricReport& report) {
  steps_ = std::max(steps_, report.step);
  if (const auto found = report.values.find("train_loss"); found != report.values.end()) {
    loss_ = found->second;
  }
  if (const auto found = report.values.find("validation_loss"); found != report.values.end()) {
    validation_loss_ = found->second;
  }
}

void Progress::step(std::int64_t steps) { steps_ = std::max(steps_, steps); }

std::optional<std::string> Progress::line() {
  const MonotonicMs now_ms = clock_.now_ms();
  if (steps_total_ == 0 || (said_ms_ && now_ms - *said_ms_ < kEveryMs)) return std::nullopt;
  said_ms_ = now_ms;
  samples_.push_back({now_ms, steps_});
  while (samples_.size() > 2 && now_ms - samples_[1].at_ms >= kWindowMs) samples_.pop_front();
  std::string text =
      fmt::format("step {}/{} ({} %)", steps_, steps_total_, 100 * steps_ / steps_total_);
  text += loss_ ? fmt::format("  loss {:.4f}", *loss_) : "  loss -";
  if (validation_loss_) text += fmt::format("  validation {:.4f}", *validation_loss_);
  const Sample& first = samples_.front();
  const double seconds = static_cast<double>(now_ms - first.at_ms) / 1000;
  const auto steps = static_cast<double>(steps_ - first.steps);
  if (steps > 0 && seconds > 0) {
    text +=
        fmt::format("  {:.0f} tokens/s", steps * static_cast<double>(tokens_per_step_) / seconds);
    if (steps_ < steps_total_) {
      text += "  ETA " + time_left(static_cast<double>(steps_total_ - steps_) * seconds / steps);
    }
  }
  if (steps_ == steps_total_) text += "  measuring";
  return text;
}

}  // namespace tailor::trainer
