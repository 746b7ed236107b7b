// The learning rate of each optimiser step. Torch-free.
#pragma once

#include <cstdint>

#include "protocol/trial_spec.h"

namespace tailor::train {

/// Warm-up steps of a run of `steps_total`: `warmup_steps` if >= 0, else the fraction, rounded up.
std::int64_t warmup_steps(const protocol::LrScheduleSpec& schedule, std::int64_t steps_total);

/// Learning rate of step i = `step`, from 0, of S = `steps_total`, with w warm-up steps:
///
///   i < w:   peak (i + 1) / w
///   constant: peak
///   cosine:   min + (peak - min)/2 (1 + cos(pi (i - w + 1)/(S - w))),  min = final_fraction * peak
///   wsd:      peak until step b = max(w, S - ceil(decay_fraction S)), then, with
///             p = (i - b + 1)/(S - b), min + (peak - min) (1 - p) or (1 - sqrt(p))
///
/// (warm-up, stable, decay: arXiv 2404.06395; the square root: arXiv 2405.18392), so the first step
/// is not zero and the last one is `min` exactly (but for constant). REQUIRES:
/// 0 <= step < steps_total.
double learning_rate(const protocol::LrScheduleSpec& schedule, double peak, std::int64_t step,
                     std::int64_t steps_total);

/// How many of the first steps have the same learning rate in a run of `a` steps and in one of `b`:
/// so far, each is the beginning of the other.
std::int64_t common_steps(const protocol::LrScheduleSpec& schedule, double peak, std::int64_t a,
                          std::int64_t b);

}  // namespace tailor::train
