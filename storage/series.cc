// Joining attempts and thinning.
#include "storage/series.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace tailor::storage {
namespace {

void append(Series& series, const Point& point) {
  series.steps.push_back(point.step);
  series.tokens.push_back(point.tokens);
  series.wall_ms.push_back(point.wall_ms);
  series.values.push_back(point.value);
}

// Ascending steps; of equal steps the one stored last.
void order(std::vector<Point>& points) {
  std::stable_sort(points.begin(), points.end(),
                   [](const Point& a, const Point& b) { return a.step < b.step; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i + 1 < points.size() && points[i + 1].step == points[i].step) continue;
    points[kept++] = points[i];
  }
  points.resize(kept);
}

}  // namespace

Series join_attempts(std::string name, std::vector<AttemptPoints> attempts) {
  std::sort(attempts.begin(), attempts.end(),
            [](const AttemptPoints& a, const AttemptPoints& b) { return a.attempt < b.attempt; });
  // From the last attempt back: each loses what lies at or after the first step of any later one.
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
  bool bounded = false;
  for (auto it = attempts.rbegin(); it != attempts.rend(); ++it) {
    order(it->points);
    if (bounded) {
      std::erase_if(it->points, [end](const Point& point) { return point.step >= end; });
    }
    if (!it->points.empty()) {
      end = it->points.front().step;
      bounded = true;
    }
  }
  Series series;
  series.name = std::move(name);
  for (const AttemptPoints& attempt : attempts) {
    for (const Point& point : attempt.points) append(series, point);
  }
  return series;
}

Series thin(Series series, std::size_t points_max) {
  const std::size_t count = series.values.size();
  if (points_max == 0 || count <= points_max) return series;
  const std::size_t bins = std::max<std::size_t>(1, points_max / 4);
  Series out;
  out.name = std::move(series.name);
  for (std::size_t bin = 0; bin < bins; ++bin) {
    const std::size_t begin = bin * count / bins;
    const std::size_t end = (bin + 1) * count / bins;
    if (begin == end) continue;
    constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
    std::size_t low = kNone;
    std::size_t high = kNone;
    std::size_t odd = kNone;
    for (std::size_t i = begin; i < end; ++i) {
      const double value = series.values[i];
      if (!std::isfinite(value)) {
        odd = odd == kNone ? i : odd;
        continue;
      }
      if (low == kNone || value < series.values[low]) low = i;
      if (high == kNone || value > series.values[high]) high = i;
    }
    std::array<std::size_t, 5> kept{begin, low, high, odd, end - 1};
    std::sort(kept.begin(), kept.end());
    std::size_t last = kNone;
    for (const std::size_t i : kept) {
      if (i == kNone || i == last) continue;
      append(out, {series.steps[i], series.tokens[i], series.wall_ms[i], series.values[i]});
      last = i;
    }
  }
  return out;
}

}  // namespace tailor::storage
