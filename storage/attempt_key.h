// The number that stands for an attempt in tables (schema 005): attempts of one trial, and trials
// that were made one after the other, are neighbours. Constants and arithmetic only.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace tailor::storage {

inline constexpr int kAttemptNumberBits = 20;
inline constexpr std::uint32_t kAttemptNumberMax = (1u << kAttemptNumberBits) - 1;
inline constexpr std::uint64_t kAttemptTrialMax = (1ull << (63 - kAttemptNumberBits)) - 1;

/// REQUIRES: a row that `check_row` takes.
constexpr std::int64_t attempt_key(AttemptId id) {
  return static_cast<std::int64_t>(id.trial.value << kAttemptNumberBits | id.number);
}
constexpr AttemptId attempt_of_key(std::int64_t key) {
  return {TrialId{static_cast<std::uint64_t>(key) >> kAttemptNumberBits},
          static_cast<std::uint32_t>(key) & kAttemptNumberMax};
}
/// The keys of all attempts of a trial are in [first_attempt_key, end_attempt_key).
constexpr std::int64_t first_attempt_key(TrialId trial) {
  return static_cast<std::int64_t>(trial.value << kAttemptNumberBits);
}
constexpr std::int64_t end_attempt_key(TrialId trial) {
  return static_cast<std::int64_t>((trial.value + 1) << kAttemptNumberBits);
}

}  // namespace tailor::storage
