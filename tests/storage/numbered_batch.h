// Batches that can be counted afterwards: batch n leaves one event, one point in each of five
// series, ten bytes of log and the trial's message, all carrying n.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "rows.h"

namespace tailor::storage::testing {

inline constexpr int kSeriesPerBatch = 5;
inline constexpr std::size_t kLogBytesPerBatch = 10;

inline std::vector<Mutation> numbered_batch(std::uint64_t number) {
  std::vector<Mutation> batch;
  if (number == 0) batch = make_base();
  TrialRow trial = make_trial(1);
  trial.state = TrialState::kRunning;
  trial.message = std::to_string(number);
  batch.emplace_back(trial);
  for (int i = 0; i < kSeriesPerBatch; ++i) {
    batch.emplace_back(make_point(1, 1, fmt::format("metric{}", i),
                                  static_cast<std::int64_t>(number),
                                  static_cast<double>(number) + 0.1));
  }
  batch.emplace_back(EventRow{
      0, 1, EventKind::kTrialQueued, SweepId{1}, TrialId{1}, 1, {}, std::to_string(number)});
  batch.emplace_back(
      LogRow{{TrialId{1}, 1}, number * kLogBytesPerBatch, fmt::format("{:010}", number)});
  return batch;
}

}  // namespace tailor::storage::testing
