// Wasserstein distance between persistence diagrams, exact.
//
//   W_q(A, B) = (min over partial matchings of
//                sum_matched |a - b|_p^q + sum_alone diag(x)^q)^(1/q)
//   diag(b, d) = (d - b) 2^(1/p - 1):  (d - b) / sqrt 2 for p = 2,  (d - b) / 2 for p = infinity
//
// q is the order (default 2), p the ground norm (default 2). Both change the number, so both are
// options and belong beside any value that is written down: GUDHI and Hera default to other ones.
//
// Reduction. Matching a with b instead of leaving both alone gains
//   w = diag(a)^q + diag(b)^q - |a - b|_p^q,
// and only pairs with w > 0 can be of use: all others are dropped, exactly. What remains is a
// sparse matching of largest gain (assignment.h) with n rows instead of the n + m of the usual
// augmented matrix. Equal points must not be cancelled beforehand: for q > 1 that can be wrong.
//
// Equal bars of one diagram are one point with a multiplicity, and the matching is one of multisets
// (a transport): its cost goes with the number of different bars.
//
// Few pairs suffice. Most useful pairs are never used: the solver starts from the nearest few of
// every point and adds pairs as its duals ask for them. With duals u_i, v_j a pair can improve the
// matching only if |a - b|_p^q < (diag(a)^q + u_i) + (diag(b)^q + v_j): discs that overlap. Points
// of B are grouped by powers of two of their disc and sorted along the diagonal, so that one window
// a group is searched for each a. When no discs overlap, the matching is optimal among all pairs.
// Each round starts from the matching and the duals of the last.
//
// Scale. All is divided by a power of two near the largest persistence, so tiny and huge diagrams
// give the same digits; costs use differences of births and deaths,
// so a far-away origin does not hurt.
//
// Certificate. The dual over all pairs bounds the distance from below; `gap` is the difference of
// primal and dual in the q-th powers, relative to leaving all points alone: about 1e-15.
//
// Infinite deaths are matched among themselves by sorted births (optimal on a line for q >= 1);
// different numbers of them put the diagrams infinitely far apart. Points on the diagonal do not
// matter and are dropped.
//
// Cost: a few rounds of a sparse matching with some twenty pairs a point, each (n + m) log(n + m)
// and the windows; m bars within a small distance of each other, but not equal, may need all m^2
// pairs and the time of a dense assignment. Memory: some hundred bytes a point, times ten. Source:
// Kerber, Morozov, Nigmetov, ACM JEA 22, 2017, for the geometry of the problem.
//
// Threads: pure function, one thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"
#include "geometry/rips.h"

namespace tailor::geometry {

enum class GroundNorm { kTwo, kInfinity };

/// "2" or "inf".
std::string_view ground_norm_name(GroundNorm norm);
/// Errors: kInvalidArgument.
Result<GroundNorm> parse_ground_norm(std::string_view name);

struct DiagramDistanceOptions {
  double order = 2;  ///< q, in [1, 64]
  GroundNorm ground = GroundNorm::kTwo;
};

struct DiagramDistance {
  double distance = 0;      ///< infinity when the numbers of infinite bars differ
  double lower_bound = 0;   ///< proven by the dual; equal but for rounding
  double gap = 0;           ///< see above
  std::size_t matched = 0;  ///< finite points matched with each other
  std::size_t pairs = 0;    ///< pairs of different points that were looked at by the matching
  int rounds = 0;           ///< matchings solved until no pair was missing
};

/// Errors: kInvalidArgument on a bad option, or on a point that is NaN, has an infinite birth or
/// dies before it is born (named by diagram and row).
Result<DiagramDistance> diagram_distance(const Diagram& a, const Diagram& b,
                                         const DiagramDistanceOptions& options = {});

}  // namespace tailor::geometry
