// Space: the axes of a sweep as a search sees them.
//
// A point is what a candidate sets ("ffn.k" -> 4); coordinates are the same point as numbers, one
// an
// axis in file order, each in [0, 1]:
//   continuous   (v - min) / (max - min), or the same of logarithms
//   ordered      the middle of its cell; cells are equally wide, or as wide as their share of a log
//                range. A list of numbers is ordered by value, whatever its order in the file
//   choice       the middle of cell i of n; nearness means nothing
//   not active   NaN: an axis whose condition (`when`) does not hold has no value
// `look` says what a point is worth looking at for: whether it is a candidate at all (budget,
// constraints), and which architecture it is. Points that are none are never suggested, so that
// they cost no trial.
//
// Pure and immutable; all members are const and thread-safe as far as the given functions are.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "sweep/spec.h"

namespace tailor::search {

using Coordinates = std::vector<double>;

enum class AxisKind { kContinuous, kOrdered, kChoice };

/// What a point is.
struct Look {
  bool feasible = true;
  std::string reason;  ///< why it is not feasible
  /// Equal for points that are one architecture and recipe; "" = every point is its own.
  std::string hash;
};
using LookAt = std::function<Look(const sweep::Point&)>;

/// The axes restricted to part of their values, for `MayHold`: the cells of a finite axis, the
/// coordinates of a continuous one.
struct Box {
  struct Side {
    double low = 0, high = 1;            ///< coordinates, of continuous axes
    std::uint64_t first = 0, count = 0;  ///< cells, of the others
  };
  std::vector<Side> sides;  ///< one an axis
};
/// False when the box surely holds no feasible point; true when that is not known.
using MayHold = std::function<bool(const Box&)>;

/// How much of a space is feasible.
struct Share {
  std::uint64_t points = 0;  ///< of the whole space, infeasible ones too; 0 = without end
  std::uint64_t looked = 0;
  std::uint64_t feasible = 0;                    ///< of those looked at
  bool exact = false;                            ///< all were looked at
  std::map<std::string, std::uint64_t> reasons;  ///< of infeasible ones, by `reason_kind`
};

class Space {
 public:
  /// Without `look` every point is feasible and its own. REQUIRES: axes have distinct paths; a
  /// condition names an axis that stands earlier.
  explicit Space(std::vector<sweep::Axis> axes, LookAt look = {}, MayHold may_hold = {});

  /// The space of a sweep: `look` resolves the point to an architecture that meets the budget
  /// exactly and checks the constraints.
  static std::shared_ptr<const Space> of(std::shared_ptr<const sweep::Spec> spec);

  std::size_t size() const { return axes_.size(); }  ///< number of axes
  const std::vector<sweep::Axis>& axes() const { return axes_; }
  AxisKind kind(std::size_t axis) const { return kinds_[axis]; }
  /// Cells of an ordered or choice axis; 0 for a continuous one.
  std::uint64_t cells(std::size_t axis) const { return cells_[axis]; }
  bool has_conditions() const { return has_conditions_; }
  /// Points of the grid of all axes, conditions not counted (they make it smaller); 0 = without end
  /// or without axes; at most 2^63.
  std::uint64_t points() const { return points_; }

  /// Coordinates of a point; nullopt when it has no value for an active axis, or one that is not on
  /// it. Values of axes that are not active are passed over.
  std::optional<Coordinates> encode(const sweep::Point& point) const;
  /// The point nearest to `x`, each coordinate in its cell; NaN and what is outside counts as the
  /// nearest end. Axes that are not active are left out.
  sweep::Point decode(std::span<const double> x) const;
  /// Coordinates in the middle of their cells, NaN where not active: `encode(decode(x))`.
  Coordinates snap(std::span<const double> x) const;
  /// The cell of coordinate `x` on a finite axis, and the middle of a cell.
  std::uint64_t cell_of(std::size_t axis, double x) const;
  double middle(std::size_t axis, std::uint64_t cell) const;

  Look look(const sweep::Point& point) const;
  /// Cells of a grid index (mixed radix, last axis fastest, values in file order).
  /// nullopt where an axis that is not active has another value than its first: the point was given
  /// by an earlier index. REQUIRES: index < points().
  std::optional<sweep::Point> grid_point(std::uint64_t index) const;
  /// The inverse; nullopt for a point that is not on the grid.
  std::optional<std::uint64_t> grid_index(const sweep::Point& point) const;

  /// Coordinates drawn uniformly, feasible or not; snapped.
  Coordinates draw(Rng& rng) const;
  /// A feasible point. First plain draws; where these fail, by splitting the space and leaving out
  /// boxes that `may_hold` excludes, which finds 1 feasible point in 10^6 and more. Of those found
  /// the distribution is not uniform then. nullopt after `looks` looks: the space is nearly or
  /// wholly empty. `cells` of axes whose set is ruled out by the budget are found the same way.
  std::optional<Coordinates> draw_feasible(Rng& rng, std::size_t looks = 2'000) const;

  /// Looks at the whole space where it has at most `looks` points, at `looks` draws otherwise.
  Share share(std::uint64_t looks, std::uint64_t seed) const;

 private:
  bool is_active(std::size_t axis, const sweep::Point& so_far) const;
  std::optional<Coordinates> split(Rng& rng, std::size_t looks) const;

  std::vector<sweep::Axis> axes_;
  std::vector<AxisKind> kinds_;
  std::vector<std::uint64_t> cells_;
  /// Of an ordered list: cell -> index in the file, and back.
  std::vector<std::vector<std::uint64_t>> file_index_, cell_index_;
  std::uint64_t points_ = 0;
  bool has_conditions_ = false;
  LookAt look_;
  MayHold may_hold_;
};

/// Equal points give equal text, other points other text.
std::string key_of(const sweep::Point& point);

}  // namespace tailor::search
