// A relabelling that makes two symmetric matrices equal, by refinement of colours and search.
//
// Points of both sides share colours, at first one for all. A point's signature is the multiset of
// (entry to k, colour of k) over all k; points of one colour but different signatures get different
// colours, until none differ (Weisfeiler and Leman, 1968). If some colour has not as many points
// on one side as on the other there is no relabelling. If every colour has one point a side, that
// is the relabelling. Otherwise a point of A in the smallest colour is given a colour of its own,
// together with each point of B of that colour in turn, and all is refined again (McKay, Congr.
// Numer. 30, 1981).
//
// Signatures are sums of 64-bit hashes, changed by what changes colour; of a colour that splits,
// the largest part keeps it. Entries count as equal when they lie within `tolerance` of each other,
// or are joined by a chain of such entries.
//
// Cost: n^2 log n to sort the entries, and about n^2 log n a branch of the search; graphs in use
// need one branch. Memory: some 16 n^2 bytes.
//
// Threads: pure function, one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "geometry/distance.h"

namespace tailor::geometry {

struct Isomorphism {
  bool found = false;
  bool complete = false;  ///< not found, and the search was not cut short: there is none
  /// Point i of A is point permutation[i] of B, when found; else empty.
  std::vector<std::uint32_t> permutation = {};
};

/// REQUIRES: a.count() == b.count(), tolerance >= 0. `steps_max` limits the search (a step takes
/// some nanoseconds). The same for the same input everywhere.
Isomorphism find_isomorphism(const DistanceMatrix& a, const DistanceMatrix& b, double tolerance,
                             double steps_max);

}  // namespace tailor::geometry
