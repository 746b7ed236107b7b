// How far a trial is, in a line for a terminal. No LibTorch.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "base/clock.h"
#include "protocol/report.h"

namespace tailor::trainer {

/// Told what a trial does, says once a second how far it is. Threads: one.
class Progress {
 public:
  /// `tokens_per_step` >= 0.
  Progress(const Clock& clock, std::int64_t tokens_per_step)
      : clock_(clock), tokens_per_step_(tokens_per_step) {}

  void started(const protocol::StartedReport& report);
  void metric(const protocol::MetricReport& report);
  /// `steps` are done.
  void step(std::int64_t steps);

  /// "step 1234/5000 (24 %)  loss 3.2140  12345 tokens/s  ETA 3 min 20 s", or nullopt when the last
  /// line is less than a second old or nothing has started. Speed is that of the last half minute,
  /// evaluations included.
  std::optional<std::string> line();

 private:
  static constexpr std::int64_t kEveryMs = 1000;
  static constexpr std::int64_t kWindowMs = 30'000;
  struct Sample {
    MonotonicMs at_ms = 0;
    std::int64_t steps = 0;
  };

  const Clock& clock_;
  const std::int64_t tokens_per_step_;
  std::int64_t steps_ = 0;
  std::int64_t steps_total_ = 0;  // 0 = not started
  std::optional<double> loss_;
  std::optional<double> validation_loss_;
  std::deque<Sample> samples_;
  std::optional<MonotonicMs> said_ms_;
};

}  // namespace tailor::trainer
