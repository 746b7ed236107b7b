// Splits off the infinite bars, scales, lists the useful pairs, matches, and sums the matching
// anew.
#include "geometry/diagram_distance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>
#include <vector>

#include "geometry/assignment.h"

namespace tailor::geometry {
namespace {

// A finite point off the diagonal, scaled.
struct Point {
  double birth, death;
  double middle;    // position along the diagonal, in the ground norm's unit
  double height;    // distance to the diagonal
  double height_q;  // height^q
};

struct SplitDiagram {
  std::vector<Point> points;
  std::vector<double> essential;  // births of infinite bars, sorted
};

class Ground {
 public:
  explicit Ground(const DiagramDistanceOptions& options)
      : order_(options.order), euclidean_(options.ground == GroundNorm::kTwo) {}

  double power(double x) const {
    if (order_ == 2) return x * x;
    if (order_ == 1) return x;
    return std::pow(x, order_);
  }
  double root(double x) const {
    if (order_ == 2) return std::sqrt(x);
    if (order_ == 1) return x;
    return std::pow(x, 1 / order_);
  }
  Point point(double birth, double death) const {
    const double unit = euclidean_ ? std::numbers::sqrt2 / 2 : 0.5;
    Point p{birth, death, (birth / 2 + death / 2) * (euclidean_ ? std::numbers::sqrt2 : 1),
            (death - birth) * unit, 0};
    // (d - b)^2 / 2 is exact where the square of (d - b) / sqrt 2 is not.
    p.height_q =
        order_ == 2 && euclidean_ ? (death - birth) * (death - birth) / 2 : power(p.height);
    return p;
  }
  /// |a - b|_p^q.
  double cost(const Point& a, const Point& b) const {
    const double births = std::abs(a.birth - b.birth), deaths = std::abs(a.death - b.death);
    if (!euclidean_) return power(std::max(births, deaths));
    if (order_ == 2) return births * births + deaths * deaths;
    return power(std::hypot(births, deaths));
  }
  /// A pair with w > 0 has middles less than this far apart.
  double reach(double height, double height_q, double other_height) const {
    if (order_ == 2 && euclidean_) return std::sqrt(2 * height * other_height);
    return root(height_q + power(other_height));
  }

 private:
  double order_;
  bool euclidean_;
};

Result<SplitDiagram> split(const Diagram& diagram, std::string_view name) {
  SplitDiagram result;
  for (std::size_t i = 0; i < diagram.size(); ++i) {
    const auto [birth, death] = diagram[i];
    if (!std::isfinite(birth) || std::isnan(death) || death < birth) {
      return error(Code::kInvalidArgument,
                   fmt::format("diagram {}, row {}: ({}, {}) is not a bar; births are finite and "
                               "deaths not before them",
                               name, i, birth, death));
    }
    if (std::isinf(death)) {
      result.essential.push_back(birth);
    } else if (death > birth) {
      result.points.push_back({birth, death, 0, 0, 0});
    }
  }
  std::sort(result.essential.begin(), result.essential.end());
  return result;
}

// Points of one diagram by powers of two of their height, each group sorted by middle.
class HeightGroups {
 public:
  explicit HeightGroups(const std::vector<Point>& points) {
    std::vector<std::pair<int, std::uint32_t>> by_level;
    for (std::uint32_t i = 0; i < points.size(); ++i) {
      by_level.emplace_back(std::max(std::ilogb(points[i].height), kLowest), i);
    }
    std::sort(by_level.begin(), by_level.end(), [&points](const auto& x, const auto& y) {
      return std::tuple(x.first, points[x.second].middle, x.second) <
             std::tuple(y.first, points[y.second].middle, y.second);
    });
    for (const auto& [level, i] : by_level) {
      if (groups_.empty() || groups_.back().level != level) groups_.push_back({level, 0, {}, {}});
      Group& group = groups_.back();
      group.height_max = std::max(group.height_max, points[i].height);
      group.members.push_back(i);
      group.middles.push_back(points[i].middle);
    }
  }

  /// Calls visit(i) for every point whose middle may be within reach of `point`.
  template <typename Visit>
  void search(const Point& point, const Ground& ground, double slack, const Visit& visit) const {
    for (const Group& group : groups_) {
      const double reach =
          ground.reach(point.height, point.height_q, group.height_max) * (1 + 1e-9) + slack;
      const auto first =
          std::lower_bound(group.middles.begin(), group.middles.end(), point.middle - reach);
      for (auto it = first; it != group.middles.end() && *it <= point.middle + reach; ++it) {
        visit(group.members[static_cast<std::size_t>(it - group.middles.begin())]);
      }
    }
  }

 private:
  static constexpr int kLowest = -120;  // all heights are at most about 1
  struct Group {
    int level;
    double height_max;
    std::vector<std::uint32_t> members;
    std::vector<double> middles;
  };
  std::vector<Group> groups_;
};

SparseGains useful_pairs(const std::vector<Point>& a, const std::vector<Point>& b,
                         const Ground& ground) {
  SparseGains gains;
  gains.column_count = b.size();
  double farthest = 0;
  for (const Point& p : a) farthest = std::max(farthest, std::abs(p.middle));
  for (const Point& p : b) farthest = std::max(farthest, std::abs(p.middle));
  const double slack = 8 * std::numeric_limits<double>::epsilon() * farthest;
  const HeightGroups groups(b);
  for (const Point& x : a) {
    groups.search(x, ground, slack, [&](std::uint32_t j) {
      const double gain = x.height_q + b[j].height_q - ground.cost(x, b[j]);
      if (gain > 0) {
        gains.columns.push_back(j);
        gains.gains.push_back(gain);
      }
    });
    gains.starts.push_back(gains.columns.size());
  }
  return gains;
}

}  // namespace

std::string_view ground_norm_name(GroundNorm norm) {
  return norm == GroundNorm::kTwo ? "2" : "inf";
}

Result<GroundNorm> parse_ground_norm(std::string_view name) {
  if (name == "2") return GroundNorm::kTwo;
  if (name == "inf") return GroundNorm::kInfinity;
  return error(Code::kInvalidArgument,
               fmt::format("unknown ground norm \"{}\"; known: 2, inf", name));
}

Result<DiagramDistance> diagram_distance(const Diagram& a, const Diagram& b,
                                         const DiagramDistanceOptions& options) {
  if (!(options.order >= 1 && options.order <= 64)) {
    return error(Code::kInvalidArgument,
                 fmt::format("the order of a Wasserstein distance must be from 1 to 64, got {}",
                             options.order));
  }
  TAILOR_ASSIGN_OR_RETURN(SplitDiagram left, split(a, "A"));
  TAILOR_ASSIGN_OR_RETURN(SplitDiagram right, split(b, "B"));
  DiagramDistance result;
  if (left.essential.size() != right.essential.size()) {
    result.distance = result.lower_bound = std::numeric_limits<double>::infinity();
    return result;
  }

  // Scale: the largest persistence, and where there are infinite bars also their largest
  // difference.
  double largest = 0;
  for (const Point& p : left.points) largest = std::max(largest, p.death / 2 - p.birth / 2);
  for (const Point& p : right.points) largest = std::max(largest, p.death / 2 - p.birth / 2);
  for (std::size_t i = 0; i < left.essential.size(); ++i) {
    largest = std::max(largest, std::abs(left.essential[i] / 2 - right.essential[i] / 2));
  }
  if (largest == 0) return result;
  const int exponent = std::ilogb(largest) + 1;
  const auto scaled = [exponent](double x) { return std::ldexp(x, -exponent); };

  const Ground ground(options);
  double essential = 0;
  for (std::size_t i = 0; i < left.essential.size(); ++i) {
    essential += ground.power(std::abs(scaled(left.essential[i]) - scaled(right.essential[i])));
  }
  double alone = 0;
  for (std::vector<Point>* points : {&left.points, &right.points}) {
    for (Point& p : *points) {
      p = ground.point(scaled(p.birth), scaled(p.death));
      alone += p.height_q;
    }
    // Bars so short that their power underflows cannot change the sum.
    std::erase_if(*points, [](const Point& p) { return !(p.height_q > 0); });
  }

  const SparseGains gains = useful_pairs(left.points, right.points, ground);
  const Matching matching = solve_matching(gains);
  double total = essential;
  for (std::size_t i = 0; i < left.points.size(); ++i) {
    const std::uint32_t j = matching.column_of_row[i];
    if (j == kUnmatched) {
      total += left.points[i].height_q;
    } else {
      total += ground.cost(left.points[i], right.points[j]);
      ++result.matched;
    }
  }
  for (std::size_t j = 0; j < right.points.size(); ++j) {
    if (matching.row_of_column[j] == kUnmatched) total += right.points[j].height_q;
  }
  const double bound = std::clamp(essential + alone - matching.upper_bound, 0.0, total);
  result.pairs = gains.columns.size();
  result.distance = std::ldexp(ground.root(total), exponent);
  result.lower_bound = std::ldexp(ground.root(bound), exponent);
  result.gap = alone + essential > 0 ? (total - bound) / (alone + essential) : 0;
  return result;
}

}  // namespace tailor::geometry
