// Classes of entries, then refinement and search with copies of the state to come back to.
#include "geometry/matrix_isomorphism.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/check.h"

namespace tailor::geometry {
namespace {

// Numbers that are kept for coming back, over all levels of the search.
constexpr std::size_t kKeptMax = 30'000'000;

// The finalizer of SplitMix64 (Steele, Lea, Flood, 2014).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t pair_hash(std::uint32_t entry_class, std::uint32_t colour) {
  return mixed((std::uint64_t{entry_class} << 32 | colour) + 0x9e3779b97f4a7c15u);
}

// Every entry by the number of its class; classes are common to both sides.
std::vector<std::vector<std::uint32_t>> entry_classes(const DistanceMatrix& a,
                                                      const DistanceMatrix& b, double tolerance) {
  std::vector<double> values;
  values.reserve(a.values().size());
  for (const DistanceMatrix* side : {&a, &b}) {
    for (std::size_t i = 0; i < side->count(); ++i) {
      const auto row = side->row(i);
      values.insert(values.end(), row.begin(), row.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  std::sort(values.begin(), values.end());
  std::vector<double> first;  // of each class
  for (std::size_t k = 0; k < values.size(); ++k) {
    if (k == 0 || values[k] - values[k - 1] > tolerance) first.push_back(values[k]);
  }
  std::vector<std::vector<std::uint32_t>> classes(2);
  for (std::size_t s = 0; s < 2; ++s) {
    const DistanceMatrix& side = s == 0 ? a : b;
    for (std::size_t i = 0; i < side.count(); ++i) {
      for (const double value : side.row(i)) {
        const auto after = std::upper_bound(first.begin(), first.end(), value);
        classes[s].push_back(static_cast<std::uint32_t>(after - first.begin()));
      }
    }
  }
  return classes;
}

class IsomorphismSearch {
 public:
  IsomorphismSearch(const DistanceMatrix& a, const DistanceMatrix& b, double tolerance,
                    double steps_max)
      : n_(static_cast<std::uint32_t>(a.count())),
        classes_(entry_classes(a, b, tolerance)),
        steps_left_(steps_max) {}

  Isomorphism run() {
    Isomorphism result;
    State state;
    state.colour.assign(2 * n_, 0);
    state.signature.assign(2 * n_, 0);
    state.cells.emplace_back();
    for (std::uint32_t x = 0; x < 2 * n_; ++x) {
      state.cells[0].push_back(x);
      const std::uint32_t* row = row_of(x);
      for (std::uint32_t k = 0; k < n_; ++k) state.signature[x] += pair_hash(row[k], 0);
    }
    steps_left_ -= 2.0 * n_ * n_;
    bool cut = false;
    bool alive = refine(state);
    std::vector<Branch> branches;
    std::size_t kept = 0;
    while (true) {
      if (alive) {
        const std::optional<std::uint32_t> cell = smallest_open(state);
        if (!cell) break;
        Branch branch = branch_at(state, *cell);
        const std::size_t numbers = 5 * state.colour.size();
        if (kept + numbers <= kKeptMax) {
          branch.state = state;
          branch.numbers = numbers;
          kept += numbers;
        } else {
          cut = true;  // only the first of its candidates is tried
        }
        alive = follow(state, branch);
        branches.push_back(std::move(branch));
        continue;
      }
      while (!branches.empty() && (branches.back().next == branches.back().candidates.size() ||
                                   branches.back().numbers == 0)) {
        kept -= branches.back().numbers;
        branches.pop_back();
      }
      if (steps_left_ <= 0) cut = true;
      if (branches.empty() || steps_left_ <= 0) {
        result.complete = !cut;
        return result;
      }
      state = branches.back().state;
      alive = follow(state, branches.back());
    }
    result.found = true;
    result.permutation.resize(n_);
    for (const auto& cell : state.cells) {
      const auto [of_a, of_b] = std::minmax(cell[0], cell[1]);
      result.permutation[of_a] = of_b - n_;
    }
    return result;
  }

 private:
  // Points 0 to n - 1 are those of A, n to 2 n - 1 those of B.
  struct State {
    std::vector<std::uint32_t> colour;
    std::vector<std::uint64_t> signature;
    std::vector<std::vector<std::uint32_t>> cells;  // points of each colour
  };
  struct Branch {
    State state;
    std::size_t numbers = 0;  // kept in `state`; 0: it was not kept
    std::uint32_t point = 0;
    std::vector<std::uint32_t> candidates;
    std::size_t next = 0;
  };
  struct Change {
    std::uint32_t point;
    std::uint32_t colour_before;
  };

  const std::uint32_t* row_of(std::uint32_t x) const {
    return classes_[x < n_ ? 0 : 1].data() + std::size_t{x < n_ ? x : x - n_} * n_;
  }

  static std::optional<std::uint32_t> smallest_open(const State& state) {
    std::optional<std::uint32_t> best;
    for (std::uint32_t c = 0; c < state.cells.size(); ++c) {
      if (state.cells[c].size() > 2 &&
          (!best || state.cells[c].size() < state.cells[*best].size())) {
        best = c;
      }
    }
    return best;
  }

  Branch branch_at(const State& state, std::uint32_t cell) const {
    Branch branch;
    branch.point = *std::min_element(state.cells[cell].begin(), state.cells[cell].end());
    for (const std::uint32_t x : state.cells[cell]) {
      if (x >= n_) branch.candidates.push_back(x);
    }
    std::sort(branch.candidates.begin(), branch.candidates.end());
    return branch;
  }

  // Gives the point of the branch and its next candidate a colour of their own; false when that
  // leads nowhere.
  bool follow(State& state, Branch& branch) {
    const std::uint32_t of_a = branch.point, of_b = branch.candidates[branch.next++];
    const std::uint32_t before = state.colour[of_a];
    std::erase_if(state.cells[before], [&](std::uint32_t x) { return x == of_a || x == of_b; });
    const auto fresh = static_cast<std::uint32_t>(state.cells.size());
    state.cells.push_back({of_a, of_b});
    state.colour[of_a] = state.colour[of_b] = fresh;
    changes_ = {{of_a, before}, {of_b, before}};
    return refine(state);
  }

  // Refines by changes_; false when a colour has not as many points in A as in B.
  bool refine(State& state) {
    while (true) {
      for (const Change& change : changes_) {
        const std::uint32_t* row = row_of(change.point);  // symmetric: also the column
        std::uint64_t* signature = state.signature.data() + (change.point < n_ ? 0 : n_);
        const std::uint32_t now = state.colour[change.point];
        for (std::uint32_t i = 0; i < n_; ++i) {
          signature[i] += pair_hash(row[i], now) - pair_hash(row[i], change.colour_before);
        }
      }
      steps_left_ -= static_cast<double>(changes_.size()) * n_ + 16.0 * n_;
      changes_.clear();
      if (steps_left_ <= 0) return false;
      const std::size_t colours = state.cells.size();
      for (std::uint32_t c = 0; c < colours; ++c) {
        if (!split(state, c)) {
          changes_.clear();
          return false;
        }
      }
      if (changes_.empty()) return true;
    }
  }

  bool split(State& state, std::uint32_t c) {
    const auto by_signature = [&state](std::uint32_t x, std::uint32_t y) {
      return std::pair(state.signature[x], x) < std::pair(state.signature[y], y);
    };
    auto& cell = state.cells[c];
    if (cell.size() == 2) return state.signature[cell[0]] == state.signature[cell[1]];
    std::sort(cell.begin(), cell.end(), by_signature);
    std::vector<std::pair<std::size_t, std::size_t>> parts;  // [from, to)
    for (std::size_t from = 0; from < cell.size();) {
      std::size_t to = from, of_a = 0;
      while (to < cell.size() && state.signature[cell[to]] == state.signature[cell[from]]) {
        of_a += cell[to++] < n_ ? 1 : 0;
      }
      if (2 * of_a != to - from) return false;
      parts.emplace_back(from, to);
      from = to;
    }
    if (parts.size() == 1) return true;
    const auto largest = std::max_element(
        parts.begin(), parts.end(),
        [](const auto& x, const auto& y) { return x.second - x.first < y.second - y.first; });
    const std::vector<std::uint32_t> all = std::move(cell);
    const auto part = [&all](const std::pair<std::size_t, std::size_t>& range) {
      return std::vector<std::uint32_t>(all.begin() + static_cast<std::ptrdiff_t>(range.first),
                                        all.begin() + static_cast<std::ptrdiff_t>(range.second));
    };
    state.cells[c] = part(*largest);
    for (auto it = parts.begin(); it != parts.end(); ++it) {
      if (it == largest) continue;
      const auto fresh = static_cast<std::uint32_t>(state.cells.size());
      state.cells.push_back(part(*it));
      for (const std::uint32_t x : state.cells.back()) {
        state.colour[x] = fresh;
        changes_.push_back({x, c});
      }
    }
    return true;
  }

  std::uint32_t n_;
  std::vector<std::vector<std::uint32_t>> classes_;  // of A and of B, row by row
  double steps_left_;
  std::vector<Change> changes_;
};

}  // namespace

Isomorphism find_isomorphism(const DistanceMatrix& a, const DistanceMatrix& b, double tolerance,
                             double steps_max) {
  TAILOR_CHECK(a.count() == b.count() && tolerance >= 0);
  if (a.count() == 0) return {.found = true};
  return IsomorphismSearch(a, b, tolerance, steps_max).run();
}

}  // namespace tailor::geometry
