// Axes: an index or a uniform number becomes a value; a grid is an index, never a list.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/check.h"
#include "base/rng.h"
#include "sweep/spec.h"

namespace tailor::sweep {
namespace {

constexpr std::uint64_t kSaturated = 1ull << 63;

/// A grid value: 0.3, not the 0.30000000000000004 of 0.1 + 2 x 0.1.
AxisValue number(const Axis& axis, double value) {
  if (axis.is_integer) return static_cast<std::int64_t>(std::llround(value));
  return std::strtod(fmt::format("{:.12g}", value).c_str(), nullptr);
}

}  // namespace

std::string to_text(const AxisValue& value) {
  return std::visit(
      [](const auto& v) {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>) {
          return v;
        } else {
          return fmt::format("{}", v);
        }
      },
      value);
}

std::string point_name(const Point& point) {
  std::string out;
  for (const auto& [path, value] : point) {
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", path, to_text(value));
  }
  return out;
}

std::uint64_t Axis::grid_size() const {
  if (!values.empty()) return values.size();
  if (step <= 0) return 0;
  // A last point that misses `max` by rounding only still counts.
  const double steps = std::floor((max - min) / step + 1e-9);
  return steps >= 9e18 ? kSaturated : static_cast<std::uint64_t>(steps) + 1;
}

AxisValue Axis::at(std::uint64_t index) const {
  TAILOR_CHECK(index < grid_size(), "index={}", index);
  if (!values.empty()) return values[index];
  return number(*this, std::min(max, min + static_cast<double>(index) * step));
}

AxisValue Axis::draw(double uniform) const {
  TAILOR_CHECK(uniform >= 0 && uniform < 1, "uniform={}", uniform);
  const std::uint64_t size = grid_size();
  if (!log || !values.empty()) {
    if (size == 0) return min + uniform * (max - min);
    const auto index = static_cast<std::uint64_t>(uniform * static_cast<double>(size));
    return at(std::min(index, size - 1));
  }
  if (size == 0) return std::clamp(min * std::pow(max / min, uniform), min, max);
  // Log-uniform over [min, max + step), then down to the grid: every value gets the
  // share of its cell.
  const double value = min * std::pow((max + step) / min, uniform);
  const auto index = static_cast<std::uint64_t>(std::max(0.0, (value - min) / step));
  return at(std::min(index, size - 1));
}

std::uint64_t grid_size(const Spec& spec) {
  if (spec.space.empty()) return 0;
  std::uint64_t product = 1;
  bool saturated = false;
  for (const Axis& axis : spec.space) {
    const std::uint64_t size = axis.grid_size();
    if (size == 0) return 0;
    saturated = saturated || size >= kSaturated / product;
    product = saturated ? 1 : product * size;
  }
  return saturated ? kSaturated : product;
}

std::uint64_t search_size(const Spec& spec) {
  if (spec.space.empty()) return 0;
  const std::uint64_t grid = grid_size(spec);  // 0: continuous, so only `trials` bounds it
  const std::uint64_t wanted = spec.search.trials;
  if (grid == 0 || wanted == 0) return std::max(grid, wanted);
  return std::min(grid, wanted);
}

Point grid_point(const Spec& spec, std::uint64_t index) {
  TAILOR_CHECK(index < grid_size(spec), "index={}", index);
  Point out;
  for (auto axis = spec.space.rbegin(); axis != spec.space.rend(); ++axis) {
    const std::uint64_t size = axis->grid_size();
    out.emplace(axis->path, axis->at(index % size));
    index /= size;
  }
  return out;
}

Point random_point(const Spec& spec, std::uint64_t seed, std::uint64_t index) {
  Point out;
  for (const Axis& axis : spec.space) {
    const std::uint64_t bits = keyed_u64(stable_hash(axis.path, seed), index, 0);
    out.emplace(axis.path, axis.draw(static_cast<double>(bits >> 11) * 0x1.0p-53));
  }
  return out;
}

}  // namespace tailor::sweep
