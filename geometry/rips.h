// Degree-1 Vietoris-Rips persistence over Z/2 of a finite distance matrix,
// by edge lunes and annotations.
//
// Filtration. An edge enters at its length (diameter convention), a triangle at its longest edge.
// Edges are ordered by (length, row, column), which makes the order total; a bar is a pair (birth,
// death) of edge lengths with birth < death. Births and deaths are entries of the input, bit for
// bit: the algorithm works on ranks and only reads lengths at the end.
//
// Threshold. At the enclosing radius r = min_i max_j D_ij some point is joined to all others, the
// complex is a cone, and every class has died: edges longer than r are never looked at and no class
// lives for ever. With a lower threshold the unfinished classes get death = threshold and
// `truncated` is set.
//
// Algorithm (lunes: Koyama, Memoli, Robins, Turner, arXiv 2307.16333 and 2412.07805; annotations:
// Dey, Fan, Wang, SoCG 2014). Take the edges in order. The lune of e = (i, j) is the set of points
// k with both ik and jk before e, one AND of two rows of the adjacency bit matrix.
//   1. Empty lune: e joins two components (union-find), or a class is born.
//   2. Otherwise e is homologous to ik + kj for any k of the lune: the class that e would make dies
//      at once with the triangle ijk, whatever k.
//   3. Let c be the number of connected components of the lune (in the graph so far). Two points of
//      one component give the same relation, so c - 1 relations ik + kj = ik' + k'j remain.
// Every edge carries an annotation, the set of living classes (a basis of H^1) that are 1 on it;
// the annotation of a cycle, the sum over its edges, is its homology class. Rule 1 gives a new
// class {e} or the empty set; rule 2 gives a(e) = a(ik) + a(kj); a relation of rule 3 with a
// non-empty sum kills the youngest class in it, which from then on is replaced by the rest of the
// sum. Replacement is lazy: dead classes are substituted when an annotation is read. While no class
// lives, rule 3 is skipped.
//
// Cost. E edges up to r (at most n(n-1)/2): sorting, E n/64 words for the lunes and a few times
// that for the components; relations only where a lune falls apart, which is rare in clustered data
// and about 20 n log n in high dimension. Memory: the matrix (given), 2 n^2 bytes of annotation
// handles, 8 n^2 bytes while sorting, then 4 n^2, n^2/8 bytes of bits, and the annotations, whose
// number depends on the distances: about n^2 bytes in low dimension, 9 n^2 at 4,000 points in R^64,
// more where all distances are nearly alike. See rips_memory_bytes; memory_bytes_max holds in any
// case.
//
// Threads: pure function, one thread; run pairs of clouds in parallel instead.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "base/status.h"
#include "geometry/distance.h"
#include "geometry/sorted_edges.h"

namespace tailor::geometry {

/// One class: born at `birth`, dies at `death` >= birth.
struct Bar {
  double birth = 0;
  double death = 0;
  friend bool operator==(const Bar&, const Bar&) = default;
  friend auto operator<=>(const Bar&, const Bar&) = default;
};

using Diagram = std::vector<Bar>;

/// More points than this are refused.
inline constexpr std::size_t kRipsPointsMax = kEdgePointsMax;

struct RipsOptions {
  /// Longest edge; the enclosing radius when that is smaller.
  double threshold = std::numeric_limits<double>::infinity();
  /// Bars of this length or shorter are left out. 0 drops the empty ones only.
  double persistence_floor = 0;
  /// Refuse instead of needing more memory than this: at once when rips_memory_bytes is more, else
  /// when the annotations have grown too many.
  double memory_bytes_max = 16.0 * 1024 * 1024 * 1024;
  /// A device for the lunes, or null; the diagram is the same. The caller owns it.
  const Accelerator* accelerator = nullptr;
};

struct RipsSummary {
  Diagram bars;             ///< sorted by (birth, death)
  bool truncated = false;   ///< a class was alive at the threshold
  std::size_t edges = 0;    ///< edges up to the threshold
  std::size_t born = 0;     ///< classes born, bars of length 0 included
  std::size_t columns = 0;  ///< relations of rule 3 that were looked at
  std::size_t living_max = 0;
};

/// Bytes needed beside the matrix for n points: at most in up to some tens of dimensions, see
/// above.
double rips_memory_bytes(std::size_t points);
/// Rough number of elementary operations for n points: to warn before a long run.
double rips_cost(std::size_t points);

/// The diagram. 0, 1 and 2 points have none. Errors: kInvalidArgument for more than kRipsPointsMax
/// points or a negative or NaN option; kResourceExhausted, with the number, beyond
/// memory_bytes_max. `order`, where it is at hand, saves a sort. REQUIRES: it is empty, or
/// sorted_edges(distances, distances.diameter()).
Result<RipsSummary> rips_persistence(const DistanceMatrix& distances,
                                     const RipsOptions& options = {},
                                     std::span<const Edge> order = {});

/// The diagram with every birth and death mapped by the increasing function that turns angles into
/// hyperbolic distances: the diagram of the hyperbolic geometry.
/// Bars that become empty are dropped.
Diagram hyperbolic_diagram(const Diagram& spherical, double rho);

}  // namespace tailor::geometry
