// A database as a coordinator leaves it behind: one completed sweep of many trials, written through
// the store, so that millions of rows take seconds.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tailor::load {

struct StoredSweep {
  std::string name = "stored";
  std::uint64_t trials = 10'000;
  int seeds = 5;
  int points = 0;                        ///< of one series of each of ...
  std::uint64_t trials_with_points = 0;  ///< ... the first so many trials
};

/// Makes `path`. The candidate called "base" is the baseline. Errors: the store's.
Status store_sweep(const std::string& path, const StoredSweep& sweep);

}  // namespace tailor::load
