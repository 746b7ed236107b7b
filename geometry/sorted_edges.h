// Pairs of points by their distance: the order in which edges enter a Vietoris-Rips filtration,
// and, read row by row, all sorted rows of a distance matrix at the price of one sort.
//
// A monotone map of lengths to 32 bits is sorted by radix (three passes of 11 bits); runs of equal
// keys are then sorted by the lengths themselves. Cost: a few passes over the n (n - 1) / 2 edges.
// Memory: 16 bytes an edge.
//
// Threads: pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "geometry/distance.h"

namespace tailor::geometry {

/// Points are numbered with 16 bits so that an edge fits one word.
inline constexpr std::size_t kEdgePointsMax = 65535;

/// An edge, i > j, with the rounded rank key it is sorted by.
struct Edge {
  std::uint32_t key;
  std::uint16_t i, j;
};

/// Edges not longer than `threshold` in the order (length, i, j). REQUIRES: at most kEdgePointsMax
/// points; threshold finite.
std::vector<Edge> sorted_edges(const DistanceMatrix& distances, double threshold);

}  // namespace tailor::geometry
