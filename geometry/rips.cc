// Reads like the header: sort the edges, take them in order, keep the adjacency bits, a union-find
// for degree 0 and the annotations for degree 1.
#include "geometry/rips.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "geometry/accelerator.h"
#include "geometry/sorted_edges.h"

namespace tailor::geometry {
namespace {

using Word = std::uint64_t;

class UnionFind {
 public:
  explicit UnionFind(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), 0u);
  }
  /// False when both were in one set already.
  bool join(std::uint32_t a, std::uint32_t b) {
    a = find(a);
    b = find(b);
    if (a == b) return false;
    parent_[a] = b;
    return true;
  }

 private:
  std::uint32_t find(std::uint32_t x) {
    while (parent_[x] != x) x = parent_[x] = parent_[parent_[x]];
    return x;
  }
  std::vector<std::uint32_t> parent_;
};

// Living classes on edges, with lazy replacement of dead ones.
class Annotations {
 public:
  using ClassId = std::uint32_t;
  using Set = std::vector<ClassId>;

  explicit Annotations(std::size_t points) : handles_(points * (points - 1) / 2, 0), pool_(1) {}

  std::size_t living() const { return living_; }
  /// Bytes of the sets of classes, with what the allocator adds. They depend on the distances: few
  /// in low dimension, many where all distances are alike.
  std::size_t bytes() const { return set_bytes_ + kSetBytes * pool_.capacity(); }

  /// A new class that is 1 on the edge and 0 on all others.
  ClassId give_birth(std::size_t edge) {
    const ClassId id = static_cast<ClassId>(replacement_.size());
    replacement_.emplace_back();
    dead_.push_back(0);
    parity_.push_back(0);
    ++living_;
    store(edge, {id});
    return id;
  }

  /// a(edge) = a(first) + a(second).
  void set_sum(std::size_t edge, std::size_t first, std::size_t second) {
    if (handles_[first] == 0 && handles_[second] == 0) return;
    begin();
    add(first);
    add(second);
    store(edge, finish());
  }

  /// The class of the cycle made of these edges.
  const Set& sum(std::size_t e0, std::size_t e1, std::size_t e2, std::size_t e3) {
    begin();
    for (const std::size_t edge : {e0, e1, e2, e3}) add(edge);
    return finish();
  }

  /// Makes the cycle class `relation` zero: its youngest class dies and is returned.
  ClassId kill_youngest(const Set& relation) {
    const ClassId youngest = *std::max_element(relation.begin(), relation.end());
    Set rest;
    rest.reserve(relation.size() - 1);
    for (const ClassId id : relation) {
      if (id != youngest) rest.push_back(id);
    }
    replacement_[youngest] = std::move(rest);
    dead_[youngest] = 1;
    --living_;
    return youngest;
  }

 private:
  void begin() { touched_.clear(); }

  void toggle(ClassId id) {
    // Bit 0: parity; bit 1: already listed.
    if ((parity_[id] & 2) == 0) {
      parity_[id] = 2;
      touched_.push_back(id);
    }
    parity_[id] ^= 1;
  }

  void add(std::size_t edge) {
    const std::uint32_t handle = handles_[edge];
    if (handle == 0) return;
    bool stale = false;
    for (const ClassId id : pool_[handle]) stale |= dead_[id] != 0;
    if (stale) refresh(edge);
    if (handles_[edge] == 0) return;
    for (const ClassId id : pool_[handles_[edge]]) toggle(id);
  }

  // Rewrites the annotation of an edge in living classes.
  void refresh(std::size_t edge) {
    resolve(pool_[handles_[edge]]);
    if (pool_[handles_[edge]].empty()) {
      free_.push_back(handles_[edge]);
      handles_[edge] = 0;
    }
  }

  // Replaces dead classes, youngest first: a replacement holds older classes only, so each dead
  // class is met once. Uses its own marks, since a sum may be under way.
  void resolve(Set& set) {
    if (mark_.size() < dead_.size()) mark_.resize(std::max(dead_.size(), 2 * mark_.size()), 0);
    heap_.clear();
    resolved_.clear();
    const auto flip = [this](ClassId id) {
      if ((mark_[id] & 2) == 0) {
        mark_[id] = 2;
        if (dead_[id]) {
          heap_.push_back(id);
          std::push_heap(heap_.begin(), heap_.end());
        } else {
          resolved_.push_back(id);
        }
      }
      mark_[id] ^= 1;
    };
    for (const ClassId id : set) flip(id);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end());
      const ClassId id = heap_.back();
      heap_.pop_back();
      const bool odd = (mark_[id] & 1) != 0;
      mark_[id] = 0;
      if (odd) {
        for (const ClassId older : replacement_[id]) flip(older);
      }
    }
    set.clear();
    for (const ClassId id : resolved_) {
      if (mark_[id] & 1) set.push_back(id);
      mark_[id] = 0;
    }
  }

  const Set& finish() {
    result_.clear();
    for (const ClassId id : touched_) {
      if (parity_[id] & 1) result_.push_back(id);
      parity_[id] = 0;
    }
    return result_;
  }

  void store(std::size_t edge, const Set& set) {
    if (set.empty()) return;
    std::uint32_t handle;
    if (free_.empty()) {
      handle = static_cast<std::uint32_t>(pool_.size());
      pool_.emplace_back();
    } else {
      handle = free_.back();
      free_.pop_back();
    }
    set_bytes_ -= allocated(pool_[handle]);
    pool_[handle] = set;
    set_bytes_ += allocated(pool_[handle]);
    handles_[edge] = handle;
  }

  static constexpr std::size_t kSetBytes = sizeof(Set);
  static std::size_t allocated(const Set& set) {
    return set.capacity() == 0 ? 0
                               : std::max<std::size_t>(32, sizeof(ClassId) * set.capacity() + 24);
  }

  std::vector<std::uint32_t> handles_;  // per edge (lower triangle): entry of pool_, 0 = empty
  std::vector<Set> pool_;
  std::vector<std::uint32_t> free_;
  std::vector<Set> replacement_;    // per class: what a dead class stands for
  std::vector<std::uint8_t> dead_;  // per class
  std::vector<std::uint8_t> parity_, mark_;
  Set touched_, resolved_, result_, heap_;
  std::size_t living_ = 0;
  std::size_t set_bytes_ = 0;
};

class LuneReduction {
 public:
  /// `lunes` of the edges to come, or null to find them here. Annotations may take `set_bytes_max`.
  LuneReduction(const DistanceMatrix& distances, const EdgeLunes* lunes, double set_bytes_max)
      : distances_(distances),
        lunes_(lunes),
        set_bytes_max_(set_bytes_max),
        words_((distances.count() + 63) / 64),
        adjacency_(lunes == nullptr ? distances.count() * words_ : 0, 0),
        lune_(words_, 0),
        frontier_(words_, 0),
        components_(distances.count()),
        annotations_(distances.count()) {}

  /// Nothing when the annotations took more than they may.
  std::optional<RipsSummary> run(std::span<const Edge> edges, double threshold, bool whole,
                                 double persistence_floor) {
    summary_.edges = edges.size();
    if (lunes_ != nullptr) {
      take_known(edges);
      return finish(threshold, whole, persistence_floor);
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") &&
        __builtin_cpu_supports("bmi")) {
      take_all_avx2(edges);
    } else {
      take_all(edges);
    }
#else
    take_all(edges);
#endif
    return finish(threshold, whole, persistence_floor);
  }

 private:
  bool too_large() const { return static_cast<double>(annotations_.bytes()) > set_bytes_max_; }

  std::optional<RipsSummary> finish(double threshold, bool whole, double persistence_floor) {
    if (too_large()) return std::nullopt;
    for (const double birth : births_) {
      if (birth >= 0) {
        TAILOR_CHECK(!whole, "a class of the full complex lived beyond the enclosing radius");
        summary_.truncated = true;
        if (threshold > birth) summary_.bars.push_back({birth, threshold});
      }
    }
    std::erase_if(summary_.bars, [persistence_floor](const Bar& bar) {
      return !(bar.death - bar.birth > persistence_floor);
    });
    std::sort(summary_.bars.begin(), summary_.bars.end());
    return std::move(summary_);
  }

  void take_known(std::span<const Edge> edges) {
    for (std::size_t e = 0; e < edges.size() && !too_large(); ++e) {
      const auto representatives = lunes_->of(e);
      if (representatives.empty()) {
        take_without_lune(edges[e]);
      } else if (annotations_.living() > 0) {
        representatives_.assign(representatives.begin(), representatives.end());
        relate(edges[e]);
      }
    }
  }
  void take_all(std::span<const Edge> edges) {
    for (const Edge& edge : edges) {
      if (too_large()) return;
      take(edge);
    }
  }
#if defined(__x86_64__)
  // The same with the instructions that count and scan bits.
  __attribute__((target("avx2,popcnt,bmi"), flatten)) void take_all_avx2(
      std::span<const Edge> edges) {
    for (const Edge& edge : edges) {
      if (too_large()) return;
      take(edge);
    }
  }
#endif

  Word* row(std::size_t i) { return adjacency_.data() + i * words_; }

  static std::size_t edge_index(std::size_t a, std::size_t b) {
    return a > b ? a * (a - 1) / 2 + b : b * (b - 1) / 2 + a;
  }

  void take(const Edge& edge) {
    const std::size_t i = edge.i, j = edge.j;
    if (annotations_.living() == 0) {
      if (!has_common_neighbour(i, j)) take_without_lune(edge);
    } else {
      const std::size_t size = fill_lune(i, j);
      if (size == 0) {
        take_without_lune(edge);
      } else {
        take_with_lune(edge, size);
      }
    }
    row(i)[j / 64] |= Word{1} << (j % 64);
    row(j)[i / 64] |= Word{1} << (i % 64);
  }

  bool has_common_neighbour(std::size_t i, std::size_t j) {
    const Word* a = row(i);
    const Word* b = row(j);
    for (std::size_t w = 0; w < words_; ++w) {
      if (a[w] & b[w]) return true;
    }
    return false;
  }

  std::size_t fill_lune(std::size_t i, std::size_t j) {
    const Word* a = row(i);
    const Word* b = row(j);
    std::size_t size = 0;
    lune_words_.clear();
    for (std::size_t w = 0; w < words_; ++w) {
      const Word common = a[w] & b[w];
      if (common == 0) continue;
      lune_[w] = common;
      lune_words_.push_back(static_cast<std::uint32_t>(w));
      size += static_cast<std::size_t>(std::popcount(common));
    }
    return size;
  }

  void take_without_lune(const Edge& edge) {
    if (components_.join(edge.i, edge.j)) return;
    annotations_.give_birth(edge_index(edge.i, edge.j));
    births_.push_back(distances_(edge.i, edge.j));
    ++summary_.born;
    summary_.living_max = std::max(summary_.living_max, annotations_.living());
  }

  void take_with_lune(const Edge& edge, std::size_t size) {
    find_representatives(size);
    relate(edge);
  }

  // Rules 2 and 3 for an edge whose lune has the points representatives_, one a component.
  void relate(const Edge& edge) {
    const std::size_t i = edge.i, j = edge.j, k = representatives_[0];
    annotations_.set_sum(edge_index(i, j), edge_index(i, k), edge_index(j, k));
    for (std::size_t c = 1; c < representatives_.size() && annotations_.living() > 0; ++c) {
      const std::size_t other = representatives_[c];
      ++summary_.columns;
      const auto& relation = annotations_.sum(edge_index(i, k), edge_index(j, k),
                                              edge_index(i, other), edge_index(j, other));
      if (relation.empty()) continue;
      const std::size_t dead = annotations_.kill_youngest(relation);
      const double death = distances_(i, j);
      if (death > births_[dead]) summary_.bars.push_back({births_[dead], death});
      births_[dead] = -1;
    }
  }

  // One point of every connected component of the lune; stops when no point is left outside. Points
  // that were reached and not yet looked at are bits of frontier_, all zero between calls.
  void find_representatives(std::size_t outside) {
    representatives_.clear();
    while (outside > 0) {
      while (lune_[lune_words_.back()] == 0) lune_words_.pop_back();
      const std::size_t w = lune_words_.back();
      std::size_t point = w * 64 + static_cast<std::size_t>(std::countr_zero(lune_[w]));
      lune_[w] &= lune_[w] - 1;
      --outside;
      representatives_.push_back(static_cast<std::uint32_t>(point));
      while (outside > 0) {
        const Word* neighbours = row(point);
        for (const std::uint32_t word : lune_words_) {
          const Word reached = neighbours[word] & lune_[word];
          lune_[word] ^= reached;
          frontier_[word] |= reached;
          outside -= static_cast<std::size_t>(std::popcount(reached));
        }
        if (!pop_frontier(point)) break;
      }
    }
    for (const std::uint32_t word : lune_words_) frontier_[word] = 0;
  }

  bool pop_frontier(std::size_t& point) {
    for (const std::uint32_t word : lune_words_) {
      if (frontier_[word] == 0) continue;
      point = word * 64 + static_cast<std::size_t>(std::countr_zero(frontier_[word]));
      frontier_[word] &= frontier_[word] - 1;
      return true;
    }
    return false;
  }

  const DistanceMatrix& distances_;
  const EdgeLunes* lunes_;
  double set_bytes_max_;
  std::size_t words_;
  std::vector<Word> adjacency_;            // n rows of words_: the graph so far
  std::vector<Word> lune_;                 // of the edge in hand; used up by find_representatives
  std::vector<std::uint32_t> lune_words_;  // words of lune_ that may be non-zero
  std::vector<Word> frontier_;             // see find_representatives
  std::vector<std::uint32_t> representatives_;
  UnionFind components_;
  Annotations annotations_;
  std::vector<double> births_;  // per class; -1 once dead
  RipsSummary summary_;
};

// First two lists of edges of 8 bytes, then one, a handle of 4 bytes an edge, and a bit a pair each
// way.
double fixed_rips_bytes(std::size_t points) {
  const double n = static_cast<double>(points);
  return n * n / 2 * (8 + 4) + n * n / 8 + 100 * n;
}

}  // namespace

double rips_memory_bytes(std::size_t points) {
  const double n = static_cast<double>(points);
  // Annotations of normal clouds: 1 n^2 bytes in low dimension, 5 in R^64 at 2,000 points, 9 at
  // 4,000.
  return fixed_rips_bytes(points) + 9 * n * n + 1000 * n;
}

double rips_cost(std::size_t points) {
  const double n = static_cast<double>(points);
  return n * n / 2 * (40 + 4 * n / 64) + 20 * n * std::log2(n + 1) * 100;
}

Result<RipsSummary> rips_persistence(const DistanceMatrix& distances, const RipsOptions& options,
                                     std::span<const Edge> order) {
  if (!(options.threshold >= 0) || !(options.persistence_floor >= 0)) {
    return error(Code::kInvalidArgument,
                 fmt::format("persistence: threshold ({}) and persistence floor ({}) must not be "
                             "negative",
                             options.threshold, options.persistence_floor));
  }
  const std::size_t n = distances.count();
  if (n > kRipsPointsMax) {
    return error(Code::kInvalidArgument,
                 fmt::format("persistence: {} points are more than {}; take a subsample", n,
                             kRipsPointsMax));
  }
  if (rips_memory_bytes(n) > options.memory_bytes_max) {
    return error(
        Code::kResourceExhausted,
        fmt::format("persistence: {} points need up to {:.1f} GiB, the limit is {:.1f} GiB; "
                    "take a subsample or raise the limit",
                    n, rips_memory_bytes(n) / (1 << 30), options.memory_bytes_max / (1 << 30)));
  }
  if (n < 3) return RipsSummary{};
  const bool whole = options.threshold >= distances.enclosing_radius();
  const double threshold = whole ? distances.enclosing_radius() : options.threshold;
  std::vector<Edge> sorted;
  if (order.empty()) {
    sorted = sorted_edges(distances, threshold);
    order = sorted;
  } else {
    TAILOR_CHECK(order.size() == n * (n - 1) / 2, "{} edges of {} points", order.size(), n);
    const auto end =
        std::partition_point(order.begin(), order.end(), [&distances, threshold](const Edge& edge) {
          return distances(edge.i, edge.j) <= threshold;
        });
    order = order.first(static_cast<std::size_t>(end - order.begin()));
  }
  EdgeLunes lunes;
  // The list of lunes is the price of a device: some 8 bytes an edge.
  const bool known =
      options.accelerator != nullptr &&
      rips_memory_bytes(n) + 8 * static_cast<double>(order.size()) <= options.memory_bytes_max &&
      options.accelerator->lunes(order, n, lunes);
  const double sets_max = options.memory_bytes_max - fixed_rips_bytes(n) -
                          (known ? 8 * static_cast<double>(order.size()) : 0);
  auto summary = LuneReduction(distances, known ? &lunes : nullptr, sets_max)
                     .run(order, threshold, whole, options.persistence_floor);
  if (!summary) {
    return error(
        Code::kResourceExhausted,
        fmt::format(
            "persistence: the classes of these {} points took more than the {:.3g} GiB that "
            "the limit leaves them, which only the run could show (distances that are all "
            "alike have many); take a subsample or raise the limit",
            n, sets_max / (1 << 30)));
  }
  return std::move(*summary);
}

Diagram hyperbolic_diagram(const Diagram& spherical, double rho) {
  Diagram result;
  result.reserve(spherical.size());
  for (const Bar& bar : spherical) {
    const Bar mapped{hyperbolic_from_angle(bar.birth, rho), hyperbolic_from_angle(bar.death, rho)};
    if (mapped.death > mapped.birth) result.push_back(mapped);
  }
  return result;
}

}  // namespace tailor::geometry
