#include "model/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tailor::train {

std::int64_t warmup_steps(const protocol::LrScheduleSpec& schedule, std::int64_t steps_total) {
  const std::int64_t wanted =
      schedule.warmup_steps >= 0
          ? schedule.warmup_steps
          : static_cast<std::int64_t>(
                std::ceil(schedule.warmup_fraction * static_cast<double>(steps_total)));
  return std::min(wanted, steps_total);
}

double learning_rate(const protocol::LrScheduleSpec& schedule, double peak, std::int64_t step,
                     std::int64_t steps_total) {
  const std::int64_t warmup = warmup_steps(schedule, steps_total);
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (schedule.kind == protocol::LrScheduleKind::kConstant) return peak;
  const double lowest = schedule.final_fraction * peak;
  if (schedule.kind == protocol::LrScheduleKind::kWsd) {
    const auto decay = static_cast<std::int64_t>(
        std::ceil(schedule.decay_fraction * static_cast<double>(steps_total)));
    const std::int64_t begin = std::max(warmup, steps_total - decay);
    if (step < begin) return peak;
    const double progress =
        static_cast<double>(step - begin + 1) / static_cast<double>(steps_total - begin);
    const double left = schedule.decay_shape == protocol::DecayShape::kLinear
                            ? 1 - progress
                            : 1 - std::sqrt(progress);
    return lowest + (peak - lowest) * left;
  }
  const double progress =
      static_cast<double>(step - warmup + 1) / static_cast<double>(steps_total - warmup);
  return lowest + (peak - lowest) / 2 * (1 + std::cos(std::numbers::pi * progress));
}

std::int64_t common_steps(const protocol::LrScheduleSpec& schedule, double peak, std::int64_t a,
                          std::int64_t b) {
  const std::int64_t shorter = std::min(a, b);
  for (std::int64_t step = 0; step < shorter; ++step) {
    if (learning_rate(schedule, peak, step, a) != learning_rate(schedule, peak, step, b)) {
      return step;
    }
  }
  return shorter;
}

}  // namespace tailor::train
