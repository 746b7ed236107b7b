#include "coordinator/search/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "sweep/candidate.h"

namespace tailor::search {
namespace {

constexpr std::uint64_t kPointsMax = std::uint64_t{1} << 63;
/// Plain draws before boxes are split.
constexpr std::size_t kPlainDraws = 200;
/// Looks in one descent before it starts anew at the whole space.
constexpr std::size_t kLooksOfDescent = 64;
/// Boxes that one search for a feasible point may open, for each look that it may take.
constexpr std::size_t kBoxesPerLook = 50;

std::optional<double> number_of_value(const sweep::AxisValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    return static_cast<double>(*integer);
  }
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::nullopt;
}

bool same_value(const sweep::AxisValue& a, const sweep::AxisValue& b) {
  if (a == b) return true;
  const auto x = number_of_value(a), y = number_of_value(b);
  return x && y && *x == *y;
}

double clamp_unit(double x) { return std::isnan(x) ? 0.5 : std::clamp(x, 0.0, 1.0); }

/// Coordinate of `value` on the range of `axis`, of its logarithm where it is logarithmic; `end`:
/// the value at 1.
double position(const sweep::Axis& axis, double value, double end) {
  if (end <= axis.min) return 0.5;
  const double x = axis.log ? std::log(value / axis.min) / std::log(end / axis.min)
                            : (value - axis.min) / (end - axis.min);
  return std::clamp(x, 0.0, 1.0);
}

}  // namespace

std::string key_of(const sweep::Point& point) {
  std::string key;
  for (const auto& [path, value] : point) {
    key += fmt::format("{}={}:{}\n", path, value.index(), sweep::to_text(value));
  }
  return key;
}

Space::Space(std::vector<sweep::Axis> axes, LookAt look, MayHold may_hold)
    : axes_(std::move(axes)), look_(std::move(look)), may_hold_(std::move(may_hold)) {
  file_index_.resize(axes_.size());
  cell_index_.resize(axes_.size());
  points_ = axes_.empty() ? 0 : 1;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const sweep::Axis& axis = axes_[i];
    has_conditions_ = has_conditions_ || !axis.when.empty();
    const std::uint64_t cells = axis.grid_size();
    cells_.push_back(cells);
    points_ = cells == 0 || points_ == 0      ? 0
              : points_ >= kPointsMax / cells ? kPointsMax
                                              : points_ * cells;
    if (axis.values.empty()) {
      kinds_.push_back(cells == 0 ? AxisKind::kContinuous : AxisKind::kOrdered);
      continue;
    }
    const bool numbers = std::all_of(axis.values.begin(), axis.values.end(),
                                     [](const auto& v) { return number_of_value(v).has_value(); });
    kinds_.push_back(numbers ? AxisKind::kOrdered : AxisKind::kChoice);
    file_index_[i].resize(cells);
    std::iota(file_index_[i].begin(), file_index_[i].end(), std::uint64_t{0});
    if (numbers) {
      std::stable_sort(file_index_[i].begin(), file_index_[i].end(), [&](auto a, auto b) {
        return *number_of_value(axis.values[a]) < *number_of_value(axis.values[b]);
      });
    }
    cell_index_[i].resize(cells);
    for (std::uint64_t cell = 0; cell < cells; ++cell) cell_index_[i][file_index_[i][cell]] = cell;
  }
}

bool Space::is_active(std::size_t axis, const sweep::Point& so_far) const {
  return std::all_of(axes_[axis].when.begin(), axes_[axis].when.end(), [&](const auto& condition) {
    const auto found = so_far.find(condition.path);
    return found != so_far.end() &&
           std::any_of(condition.values.begin(), condition.values.end(),
                       [&](const auto& value) { return same_value(value, found->second); });
  });
}

double Space::middle(std::size_t axis, std::uint64_t cell) const {
  const sweep::Axis& a = axes_[axis];
  const auto half = static_cast<double>(cell) + 0.5;
  if (!a.values.empty() || !a.log) return half / static_cast<double>(cells_[axis]);
  return position(a, a.min + half * a.step, a.max + a.step);
}

std::uint64_t Space::cell_of(std::size_t axis, double x) const {
  TAILOR_CHECK(cells_[axis] > 0, "axis {} is continuous", axis);
  const sweep::Axis& a = axes_[axis];
  const double u = clamp_unit(x);
  double cell = u * static_cast<double>(cells_[axis]);
  if (a.values.empty() && a.log) {
    cell = (a.min * std::pow((a.max + a.step) / a.min, u) - a.min) / a.step;
  }
  return std::min(static_cast<std::uint64_t>(std::max(0.0, cell)), cells_[axis] - 1);
}

std::optional<Coordinates> Space::encode(const sweep::Point& point) const {
  Coordinates out(axes_.size(), std::nan(""));
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const sweep::Axis& axis = axes_[i];
    if (!is_active(i, point)) continue;
    const auto found = point.find(axis.path);
    if (found == point.end()) return std::nullopt;
    if (!axis.values.empty()) {
      const auto at = std::find_if(axis.values.begin(), axis.values.end(), [&](const auto& value) {
        return same_value(value, found->second);
      });
      if (at == axis.values.end()) return std::nullopt;
      out[i] = middle(i, cell_index_[i][static_cast<std::size_t>(at - axis.values.begin())]);
      continue;
    }
    const auto value = number_of_value(found->second);
    const double slack = 1e-9 * std::max(1.0, std::abs(axis.max));
    if (!value || *value < axis.min - slack || *value > axis.max + slack) return std::nullopt;
    if (cells_[i] == 0) {
      out[i] = position(axis, *value, axis.max);
      continue;
    }
    const double cell = std::round((*value - axis.min) / axis.step);
    if (std::abs(axis.min + cell * axis.step - *value) > slack || cell < 0 ||
        cell >= static_cast<double>(cells_[i])) {
      return std::nullopt;
    }
    out[i] = middle(i, static_cast<std::uint64_t>(cell));
  }
  return out;
}

sweep::Point Space::decode(std::span<const double> x) const {
  TAILOR_CHECK(x.size() == axes_.size(), "{} coordinates of {} axes", x.size(), axes_.size());
  sweep::Point out;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    const sweep::Axis& axis = axes_[i];
    if (!is_active(i, out)) continue;
    if (cells_[i] == 0) {
      const double u = clamp_unit(x[i]);
      const double value = axis.log ? axis.min * std::pow(axis.max / axis.min, u)
                                    : axis.min + u * (axis.max - axis.min);
      out.emplace(axis.path, std::clamp(value, axis.min, axis.max));
    } else {
      const std::uint64_t cell = cell_of(i, x[i]);
      out.emplace(axis.path, axis.at(axis.values.empty() ? cell : file_index_[i][cell]));
    }
  }
  return out;
}

Coordinates Space::snap(std::span<const double> x) const {
  Coordinates out(x.begin(), x.end());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = cells_[i] == 0 ? clamp_unit(out[i]) : middle(i, cell_of(i, out[i]));
  }
  if (!has_conditions_) return out;
  const sweep::Point point = decode(out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!point.contains(axes_[i].path)) out[i] = std::nan("");
  }
  return out;
}

Look Space::look(const sweep::Point& point) const {
  Look out = look_ ? look_(point) : Look{};
  if (out.feasible && out.hash.empty()) out.hash = key_of(point);
  return out;
}

std::optional<sweep::Point> Space::grid_point(std::uint64_t index) const {
  TAILOR_CHECK(index < points_, "index={}", index);
  std::vector<std::uint64_t> digits(axes_.size());
  for (std::size_t i = axes_.size(); i-- > 0;) {
    digits[i] = index % cells_[i];
    index /= cells_[i];
  }
  sweep::Point out;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (is_active(i, out)) {
      out.emplace(axes_[i].path, axes_[i].at(digits[i]));
    } else if (digits[i] != 0) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<std::uint64_t> Space::grid_index(const sweep::Point& point) const {
  if (points_ == 0) return std::nullopt;
  const auto x = encode(point);
  if (!x) return std::nullopt;
  std::uint64_t index = 0;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    std::uint64_t digit = 0;
    if (!std::isnan((*x)[i])) {
      const std::uint64_t cell = cell_of(i, (*x)[i]);
      digit = axes_[i].values.empty() ? cell : file_index_[i][cell];
    }
    index = index * cells_[i] + digit;
  }
  return index;
}

Coordinates Space::draw(Rng& rng) const {
  Coordinates x(axes_.size());
  for (double& u : x) u = rng.uniform();
  return snap(x);
}

std::optional<Coordinates> Space::draw_feasible(Rng& rng, std::size_t looks) const {
  const std::size_t plain = std::min(looks, kPlainDraws);
  for (std::size_t i = 0; i < plain; ++i) {
    Coordinates x = draw(rng);
    if (look(decode(x)).feasible) return x;
  }
  return split(rng, looks - plain);
}

std::optional<Coordinates> Space::split(Rng& rng, std::size_t looks) const {
  const bool whole = points_ > 0 && points_ <= looks;
  std::size_t boxes_left = looks * kBoxesPerLook;
  Box all;
  for (std::size_t i = 0; i < axes_.size(); ++i) all.sides.push_back({0, 1, 0, cells_[i]});
  while (looks > 0 && boxes_left > 0) {
    std::size_t left_here = whole ? looks : std::min(looks, kLooksOfDescent);
    looks -= left_here;
    // Depth first; the half that comes next is drawn, so that a descent is a draw.
    std::vector<Box> open{all};
    bool cut_short = false;
    while (!open.empty()) {
      if (left_here == 0 || boxes_left == 0) {
        cut_short = true;
        break;
      }
      --boxes_left;
      const Box box = std::move(open.back());
      open.pop_back();
      if (may_hold_ && !may_hold_(box)) continue;
      std::size_t widest = axes_.size();
      std::uint64_t most = 1;
      for (std::size_t i = 0; i < axes_.size(); ++i) {
        if (box.sides[i].count > most) {
          most = box.sides[i].count;
          widest = i;
        }
      }
      if (widest < axes_.size()) {
        Box first = box, second = box;
        const std::uint64_t half = most / 2;
        first.sides[widest].count = half;
        second.sides[widest].first += half;
        second.sides[widest].count -= half;
        const bool swap = rng.uniform() * static_cast<double>(most) < static_cast<double>(half);
        open.push_back(swap ? second : first);
        open.push_back(swap ? std::move(first) : std::move(second));
        continue;
      }
      --left_here;
      Coordinates x(axes_.size());
      for (std::size_t i = 0; i < axes_.size(); ++i) {
        const Box::Side& side = box.sides[i];
        x[i] = cells_[i] > 0 ? middle(i, side.first)
                             : side.low + rng.uniform() * (side.high - side.low);
      }
      x = snap(x);
      if (look(decode(x)).feasible) return x;
    }
    looks += left_here;
    if (!cut_short && points_ > 0) return std::nullopt;  // every point was looked at or ruled out
    if (!cut_short && left_here == kLooksOfDescent) return std::nullopt;  // every box was ruled out
  }
  return std::nullopt;
}

Share Space::share(std::uint64_t looks, std::uint64_t seed) const {
  Share out;
  out.points = points_;
  out.exact = points_ > 0 && points_ <= looks;
  Rng rng(seed);
  const auto take = [&](const sweep::Point& point) {
    ++out.looked;
    Look seen = look(point);
    if (seen.feasible) {
      ++out.feasible;
    } else {
      ++out.reasons[sweep::reason_kind(seen.reason)];
    }
  };
  if (!out.exact) {
    for (std::uint64_t i = 0; i < looks && !axes_.empty(); ++i) take(decode(draw(rng)));
    return out;
  }
  out.points = 0;  // counted, conditions and all
  for (std::uint64_t i = 0; i < points_; ++i) {
    const auto point = grid_point(i);
    if (!point) continue;
    ++out.points;
    take(*point);
  }
  return out;
}

}  // namespace tailor::search
