// From raw metric points to the one curve that people look at: join the attempts, then thin.
// Pure; used by every store. Threads: values only.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "storage/store.h"

namespace tailor::storage {

/// One stored point, without the names that all points of its series share.
struct Point {
  std::int64_t step = 0;
  std::int64_t tokens = 0;
  WallMs wall_ms = 0;
  double value = 0;
};

/// Which series of stored points: attempt.id and metric.id.
struct SeriesKey {
  std::int64_t attempt = 0;
  std::int64_t metric = 0;
  friend auto operator<=>(const SeriesKey&, const SeriesKey&) = default;
};

/// The points of one attempt, in the order in which they were stored.
struct AttemptPoints {
  std::uint32_t attempt = 0;
  std::vector<Point> points;
};

/// Joins attempts into one curve (see Series).
/// Within an attempt a repeated step keeps its last value.
Series join_attempts(std::string name, std::vector<AttemptPoints> attempts);

/// About `points_max` points (0 = all): equal bins, of each the first, last, minimum, maximum and
/// the first value that is not finite. First and last point of the series always stay.
Series thin(Series series, std::size_t points_max);

}  // namespace tailor::storage
