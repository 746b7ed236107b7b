#include "coordinator/search/neighbours.h"

#include <algorithm>
#include <cmath>

namespace tailor::search {
namespace {

/// Mirrors a step that leaves [0, 1].
double folded(double x) {
  x = std::abs(x);
  x = std::fmod(x, 2.0);
  return x > 1 ? 2 - x : x;
}

/// Axes that are active and have more than one value.
std::vector<std::size_t> free_axes(const Space& space, const Coordinates& x) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isnan(x[i]) && space.cells(i) != 1) out.push_back(i);
  }
  return out;
}

/// Axes that are not active get a place, in case they become so.
Coordinates with_all(const Coordinates& x, Rng& rng) {
  Coordinates out = x;
  for (double& u : out) {
    const double drawn = rng.uniform();
    if (std::isnan(u)) u = drawn;
  }
  return out;
}

double step_cells(const Space& space, std::size_t axis, double x, std::int64_t cells) {
  const auto last = static_cast<std::int64_t>(space.cells(axis)) - 1;
  auto cell = static_cast<std::int64_t>(space.cell_of(axis, x));
  const bool outside = cell + cells < 0 || cell + cells > last;
  cell = std::clamp<std::int64_t>(outside ? cell - cells : cell + cells, 0, last);
  return space.middle(axis, static_cast<std::uint64_t>(cell));
}

double other_choice(const Space& space, std::size_t axis, double x, Rng& rng) {
  const std::uint64_t n = space.cells(axis);
  const std::uint64_t cell = (space.cell_of(axis, x) + 1 + rng.below(n - 1)) % n;
  return space.middle(axis, cell);
}

double changed(const Space& space, std::size_t axis, double x, double scale, Rng& rng) {
  switch (space.kind(axis)) {
    case AxisKind::kChoice:
      return other_choice(space, axis, x, rng);
    case AxisKind::kContinuous:
      return folded(x + scale * rng.normal());
    case AxisKind::kOrdered:
      break;
  }
  const auto tenth = static_cast<std::int64_t>(space.cells(axis) / 10);
  std::int64_t cells = 1;
  if (tenth > 1 && rng.below(4) == 0) {
    cells = 1 + static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(tenth)));
  }
  return step_cells(space, axis, x, rng.below(2) == 0 ? cells : -cells);
}

}  // namespace

Coordinates mutate_one(const Space& space, const Coordinates& x, double scale, Rng& rng) {
  const std::vector<std::size_t> free = free_axes(space, x);
  Coordinates out = with_all(x, rng);
  if (free.empty()) return space.snap(out);
  const std::size_t axis = free[rng.below(free.size())];
  out[axis] = changed(space, axis, out[axis], scale, rng);
  return space.snap(out);
}

Coordinates trade(const Space& space, const Coordinates& x, double scale, Rng& rng) {
  std::vector<std::size_t> free = free_axes(space, x);
  std::erase_if(free, [&](std::size_t i) { return space.kind(i) != AxisKind::kOrdered; });
  if (free.size() < 2) return mutate_one(space, x, scale, rng);
  const std::size_t first = rng.below(free.size());
  const std::size_t second = (first + 1 + rng.below(free.size() - 1)) % free.size();
  Coordinates out = with_all(x, rng);
  out[free[first]] = step_cells(space, free[first], out[free[first]], 1);
  out[free[second]] = step_cells(space, free[second], out[free[second]], -1);
  return space.snap(out);
}

Coordinates jitter(const Space& space, const Coordinates& x, double scale, Rng& rng) {
  Coordinates out = with_all(x, rng);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (std::isnan(x[i]) || space.cells(i) == 1) continue;
    if (space.kind(i) == AxisKind::kChoice) {
      if (rng.uniform() < scale) out[i] = other_choice(space, i, out[i], rng);
      continue;
    }
    double step = scale * rng.normal();
    if (space.kind(i) == AxisKind::kOrdered && rng.below(4) == 0) {
      out[i] = step_cells(space, i, out[i], step < 0 ? -1 : 1);
    } else {
      out[i] = folded(out[i] + step);
    }
  }
  return space.snap(out);
}

Coordinates cross(const Space& space, const Coordinates& a, const Coordinates& b, Rng& rng) {
  Coordinates out(a.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const bool first = rng.below(2) == 0;
    const double drawn = rng.uniform();
    double value = first ? a[i] : b[i];
    if (std::isnan(value)) value = first ? b[i] : a[i];
    out[i] = std::isnan(value) ? drawn : value;
  }
  return space.snap(out);
}

}  // namespace tailor::search
