// Splits off the infinite bars, scales, lists the useful pairs, matches,
// and sums the matching anew.
#include "geometry/diagram_distance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <tuple>
#include <vector>

#include "geometry/assignment.h"

namespace tailor::geometry {
namespace {

// A finite point off the diagonal, scaled.
struct Point {
  double birth, death;
  double middle;            // position along the diagonal, in the ground norm's unit
  double height;            // distance to the diagonal
  double height_q;          // height^q
  std::uint32_t units = 1;  // bars that are equal to it, itself among them
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
  Point point(double birth, double death, std::uint32_t units) const {
    const double unit = euclidean_ ? std::numbers::sqrt2 / 2 : 0.5;
    Point p{birth,
            death,
            (birth / 2 + death / 2) * (euclidean_ ? std::numbers::sqrt2 : 1),
            (death - birth) * unit,
            0,
            units};
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
      result.points.push_back({birth, death, 0, 0, 0, 1});
    }
  }
  std::sort(result.essential.begin(), result.essential.end());
  return result;
}

// How far apart two middles may be more than their difference says, by rounding.
double middle_rounding(const std::vector<Point>& a, const std::vector<Point>& b) {
  double farthest = 0;
  for (const Point& p : a) farthest = std::max(farthest, std::abs(p.middle));
  for (const Point& p : b) farthest = std::max(farthest, std::abs(p.middle));
  return 8 * std::numeric_limits<double>::epsilon() * farthest;
}

std::vector<std::uint32_t> by_middle(const std::vector<Point>& points) {
  std::vector<std::uint32_t> order(points.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&points](std::uint32_t x, std::uint32_t y) {
    return std::pair(points[x].middle, x) < std::pair(points[y].middle, y);
  });
  return order;
}

// Useful pairs to begin with: for every point of `from` its nearest few of `to`. visit(i, j).
template <typename Visit>
void nearest_pairs(const std::vector<Point>& from, const std::vector<Point>& to,
                   const Ground& ground, const Visit& visit) {
  constexpr std::size_t kNearest = 8;
  if (to.empty()) return;
  const std::vector<std::uint32_t> order = by_middle(to);
  std::vector<std::pair<double, std::uint32_t>> best;
  for (std::uint32_t i = 0; i < from.size(); ++i) {
    const Point& x = from[i];
    best.clear();
    std::size_t right = static_cast<std::size_t>(
        std::partition_point(order.begin(), order.end(),
                             [&](std::uint32_t j) { return to[j].middle < x.middle; }) -
        order.begin());
    std::size_t left = right;  // candidates to the left are [0, left)
    while (left > 0 || right < order.size()) {
      const double gap_left = left > 0 ? x.middle - to[order[left - 1]].middle
                                       : std::numeric_limits<double>::infinity();
      const double gap_right = right < order.size() ? to[order[right]].middle - x.middle
                                                    : std::numeric_limits<double>::infinity();
      if (best.size() == kNearest &&
          ground.power(std::min(gap_left, gap_right)) > best.back().first) {
        break;
      }
      const std::uint32_t j = gap_left < gap_right ? order[--left] : order[right++];
      const double cost = ground.cost(x, to[j]);
      if (best.size() < kNearest || cost < best.back().first) {
        if (best.size() == kNearest) best.pop_back();
        best.insert(std::upper_bound(best.begin(), best.end(), std::pair(cost, j)), {cost, j});
      }
    }
    for (const auto& [cost, j] : best) {
      if (x.height_q + to[j].height_q > cost) visit(i, j);
    }
  }
}

// The duals turn every point into a disc: its radius (to the power q) is what is left of height^q.
// A pair is priced out by the duals when the discs do not reach each other:
//   c_ij - u_i - v_j >= 0  <=>  |x - y|^q >= (h_x^q + u_i) + (h_y^q + v_j).
// Points of B are grouped by powers of two of this radius and sorted by middle within a group.
class Discs {
 public:
  Discs(const std::vector<Point>& points, const std::vector<double>& duals) : points_(points) {
    std::vector<std::tuple<int, double, std::uint32_t>> sorted;
    for (std::uint32_t j = 0; j < points.size(); ++j) {
      radius_q_.push_back(points[j].height_q + duals[j]);
      const int level = radius_q_[j] > 0 ? std::max(std::ilogb(radius_q_[j]), kLowest) : kLowest;
      sorted.emplace_back(level, points[j].middle, j);
    }
    std::sort(sorted.begin(), sorted.end());
    int last = 0;
    for (const auto& [level, middle, j] : sorted) {
      if (groups_.empty() || level != last) groups_.push_back({radius_q_[j], {}, {}});
      last = level;
      groups_.back().radius_q_max = std::max(groups_.back().radius_q_max, radius_q_[j]);
      groups_.back().members.push_back(j);
      groups_.back().middles.push_back(middle);
    }
  }

  /// Calls visit(j, overlap) for every disc that overlaps that of x,
  /// overlap = radii - |x - y|^q > 0.
  template <typename Visit>
  void overlapping(const Point& x, double radius_q, const Ground& ground, double rounding,
                   const Visit& visit) const {
    for (const Group& group : groups_) {
      if (!(radius_q + group.radius_q_max > 0)) continue;
      const double reach = ground.root(radius_q + group.radius_q_max) * (1 + 1e-9) + rounding;
      const auto first =
          std::lower_bound(group.middles.begin(), group.middles.end(), x.middle - reach);
      for (auto it = first; it != group.middles.end() && *it <= x.middle + reach; ++it) {
        const std::uint32_t j = group.members[static_cast<std::size_t>(it - group.middles.begin())];
        const double overlap = radius_q + radius_q_[j] - ground.cost(x, points_[j]);
        if (overlap > 0) visit(j, overlap);
      }
    }
  }

 private:
  static constexpr int kLowest = -200;
  struct Group {
    double radius_q_max;
    std::vector<std::uint32_t> members;
    std::vector<double> middles;
  };
  const std::vector<Point>& points_;
  std::vector<double> radius_q_;
  std::vector<Group> groups_;
};

// Matches the points of two diagrams; few pairs at first,
// then those that the duals do not price out.
class DiagramMatching {
 public:
  DiagramMatching(const std::vector<Point>& a, const std::vector<Point>& b, const Ground& ground)
      : a_(a), b_(b), ground_(ground), rounding_(middle_rounding(a, b)), pairs_(a.size()) {}

  void solve() {
    nearest_pairs(a_, b_, ground_, [this](std::uint32_t i, std::uint32_t j) { add(i, j); });
    nearest_pairs(b_, a_, ground_, [this](std::uint32_t j, std::uint32_t i) { add(i, j); });
    // Leaving all alone is paid for by these duals, and no pair is below them.
    for (const Point& p : a_) matching_.duals.rows.push_back(-p.height_q);
    for (const Point& p : b_) matching_.duals.columns.push_back(-p.height_q);
    do {
      const MatchingDuals start = std::move(matching_.duals);
      const std::vector<Match> earlier = std::move(matching_.matches);
      matching_ = solve_matching(gains(), &start, earlier);
      ++rounds_;
    } while (add_overlapping_pairs());
  }

  const Matching& matching() const { return matching_; }
  /// The dual objective over all pairs: no matching gains more.
  double upper_bound() const { return upper_bound_; }
  int rounds() const { return rounds_; }
  std::size_t pair_count() const {
    std::size_t count = 0;
    for (const auto& columns : pairs_) count += columns.size();
    return count;
  }

 private:
  bool add(std::uint32_t i, std::uint32_t j) {
    auto& columns = pairs_[i];
    const auto at = std::lower_bound(columns.begin(), columns.end(), j);
    if (at != columns.end() && *at == j) return false;
    columns.insert(at, j);
    return true;
  }

  SparseGains gains() const {
    SparseGains gains;
    gains.column_count = b_.size();
    for (std::size_t i = 0; i < a_.size(); ++i) {
      for (const std::uint32_t j : pairs_[i]) {
        const double gain = a_[i].height_q + b_[j].height_q - ground_.cost(a_[i], b_[j]);
        if (!(gain > 0)) continue;
        gains.columns.push_back(j);
        gains.gains.push_back(gain);
      }
      gains.starts.push_back(gains.columns.size());
    }
    for (const Point& p : a_) gains.row_units.push_back(p.units);
    for (const Point& p : b_) gains.column_units.push_back(p.units);
    return gains;
  }

  // Prices all pairs; false when none is left that could be of use.
  bool add_overlapping_pairs() {
    // A row and round. Bars that are close together but not equal all want the same few partners
    // and would ask for the next few in every round: after some rounds they get a part of all.
    constexpr std::size_t kAdded = 8, kPart = 4;
    constexpr int kPartsFrom = 4;
    const Discs discs(b_, matching_.duals.columns);
    double dual = 0;
    for (std::size_t j = 0; j < b_.size(); ++j) {
      dual += static_cast<double>(b_[j].units) * matching_.duals.columns[j];
    }
    bool added = false;
    std::vector<std::pair<double, std::uint32_t>> found;
    for (std::uint32_t i = 0; i < a_.size(); ++i) {
      const double u = matching_.duals.rows[i];
      found.clear();
      discs.overlapping(a_[i], a_[i].height_q + u, ground_, rounding_,
                        [&](std::uint32_t j, double overlap) { found.emplace_back(-overlap, j); });
      const std::size_t part = rounds_ < kPartsFrom ? 0 : found.size() / kPart;
      const std::size_t kept = std::min(found.size(), std::max(kAdded, part));
      std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(kept),
                        found.end());
      dual += static_cast<double>(a_[i].units) * (kept > 0 ? u + found[0].first : u);
      for (std::size_t k = 0; k < kept; ++k) {
        const double scale = a_[i].height_q + b_[found[k].second].height_q;
        if (-found[k].first > 16 * std::numeric_limits<double>::epsilon() * scale) {
          added |= add(i, found[k].second);
        }
      }
    }
    upper_bound_ = -dual;
    return added;
  }

  const std::vector<Point>& a_;
  const std::vector<Point>& b_;
  const Ground& ground_;
  double rounding_;
  std::vector<std::vector<std::uint32_t>> pairs_;  // per row, sorted columns
  Matching matching_;
  double upper_bound_ = 0;
  int rounds_ = 0;
};

constexpr int kPassesMax = 8;
// A total below so much of all heights has lost digits to them.
constexpr double kCancelled = 1e-6;
constexpr double kBoundRounding = 8 * std::numeric_limits<double>::epsilon();

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

  // Scale: the largest persistence, and where there are infinite bars also their
  // largest difference.
  double largest = 0;
  for (const Point& p : left.points) largest = std::max(largest, p.death / 2 - p.birth / 2);
  for (const Point& p : right.points) largest = std::max(largest, p.death / 2 - p.birth / 2);
  for (std::size_t i = 0; i < left.essential.size(); ++i) {
    largest = std::max(largest, std::abs(left.essential[i] / 2 - right.essential[i] / 2));
  }
  if (largest == 0) return result;
  const int exponent = std::ilogb(largest) + 1;
  const auto scaled = [exponent](double x) { return std::ldexp(x, -exponent); };

  // Equal diagrams are at distance 0, also where rounding would prefer the
  // diagonal for a bar or two.
  const auto by_value = [](const Point& x, const Point& y) {
    return std::pair(x.birth, x.death) < std::pair(y.birth, y.death);
  };
  std::sort(left.points.begin(), left.points.end(), by_value);
  std::sort(right.points.begin(), right.points.end(), by_value);
  if (left.essential == right.essential &&
      std::equal(left.points.begin(), left.points.end(), right.points.begin(), right.points.end(),
                 [](const Point& x, const Point& y) {
                   return x.birth == y.birth && x.death == y.death;
                 })) {
    result.matched = left.points.size();
    return result;
  }

  // Equal bars are one point with many units. (They must not be cancelled against those of the
  // other diagram: for q > 1 that can be wrong.)
  for (std::vector<Point>* points : {&left.points, &right.points}) {
    std::size_t kept = 0;
    for (const Point& p : *points) {
      if (kept > 0 && (*points)[kept - 1].birth == p.birth &&
          (*points)[kept - 1].death == p.death) {
        ++(*points)[kept - 1].units;
      } else {
        (*points)[kept++] = p;
      }
    }
    points->resize(kept);
  }

  const Ground ground(options);
  double essential = 0;
  for (std::size_t i = 0; i < left.essential.size(); ++i) {
    essential += ground.power(std::abs(scaled(left.essential[i]) - scaled(right.essential[i])));
  }
  double alone = 0;
  for (std::vector<Point>* points : {&left.points, &right.points}) {
    for (Point& p : *points) {
      p = ground.point(scaled(p.birth), scaled(p.death), p.units);
      alone += static_cast<double>(p.units) * p.height_q;
    }
    // Bars so short that their power underflows cannot change the sum.
    std::erase_if(*points, [](const Point& p) { return !(p.height_q > 0); });
  }

  // The gain of a pair, h_a^q + h_b^q - cost, loses what is below the rounding of the heights. No
  // best matching leaves a point alone that costs more than a total T already reached, so heights
  // may be cut at 2 T, which changes no best matching and can only lower the bound; then what is
  // lost is relative to T.
  double finite = std::numeric_limits<double>::infinity();
  double finite_bound = 0;
  const double whole = alone;
  for (int pass = 0; pass < kPassesMax; ++pass) {
    DiagramMatching solver(left.points, right.points, ground);
    solver.solve();
    const Matching& matching = solver.matching();
    double total = 0;
    std::size_t matched = 0;
    for (const Match& match : matching.matches) {
      total += static_cast<double>(match.units) *
               ground.cost(left.points[match.row], right.points[match.column]);
      matched += match.units;
    }
    for (std::size_t i = 0; i < left.points.size(); ++i) {
      total += static_cast<double>(matching.rows_alone[i]) * left.points[i].height_q;
    }
    for (std::size_t j = 0; j < right.points.size(); ++j) {
      total += static_cast<double>(matching.columns_alone[j]) * right.points[j].height_q;
    }
    result.pairs += solver.pair_count();
    result.rounds += solver.rounds();
    const bool first = pass == 0;
    if (!first && !(total < finite)) break;
    const bool much_lower = first || total < 0.99 * finite;
    finite = total;
    finite_bound = alone - solver.upper_bound();
    // What rounding may have added to the bound; no matter where the total is of the heights' size.
    if (!first) finite_bound -= kBoundRounding * alone;
    result.matched = matched;
    if (!much_lower || total == 0 || total > kCancelled * alone) break;
    alone = 0;
    for (std::vector<Point>* points : {&left.points, &right.points}) {
      for (Point& p : *points) {
        p.height_q = std::min(p.height_q, 2 * total);
        alone += static_cast<double>(p.units) * p.height_q;
      }
    }
  }
  const double total = essential + finite;
  const double bound = std::clamp(essential + finite_bound, 0.0, total);
  result.distance = std::ldexp(ground.root(total), exponent);
  result.lower_bound = std::ldexp(ground.root(bound), exponent);
  result.gap = whole + essential > 0 ? (total - bound) / (whole + essential) : 0;
  return result;
}

}  // namespace tailor::geometry
