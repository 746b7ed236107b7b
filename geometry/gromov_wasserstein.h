// Gromov-Wasserstein distance between two metric spaces of n points with uniform weights.
//
//   E(T) = sum_ijkl (A_ik - B_jl)^2 T_ij T_kl,   T a coupling: rows and columns sum to 1/n
//   value = sqrt(min_T E(T))
//
// No factor 1/2 (Memoli's distance has one; POT's gromov_wasserstein2 returns min E).
//
// Permutations suffice. Euclidean, spherical and hyperbolic distance matrices are of negative type,
// so E is concave on couplings: the minimum is at a permutation p / n, and a conditional-gradient
// step goes all the way to the next permutation. Hence an iteration is one assignment that
// maximises sum_i M_i,s(i), M = A (P B), (P B)_k = B_p(k); or, since
//   2 M_ij = |A_i|^2 + |B_j|^2 - |A_i - (P B)_j|^2,
// one that minimises the sum of H_ij = |A_i - (P B)_j|^2 / 2, an assignment of nearest profiles,
// warm-started with the duals of the last one (first: half of what p costs). E falls until the
// assignment returns p.
//
// Most of H is only bounded from below, by sketches of the rows: with V some orthonormal directions
//   |x - y|^2 >= |V'x - V'y|^2 + (|x - V V'x| - |y - V V'y|)^2,
// and rows of distance matrices of tokens have few directions (the rows of far points serve).
// Entries that may matter are computed. An assignment over the bounds whose own entries are all
// exact is the least over H; else they are computed and it is solved again. Where more than a tenth
// of the entries are asked for, H is made whole by one product (2 n^3).
//
// When few points move, H is updated by what they change, exact entry or bound
// alike. A start that arrives where the identity ended goes no further. Then pairs are swapped:
// the change of E by swapping i and j is
//   (2 / n^2) (2 L - 4 A_ij B_p(i)p(j)),  L = H_i,p(j) + H_j,p(i) - H_i,p(i) - H_j,p(j),
// in constant time (at least that, over bounds), and H follows in O(n^2). Both alternate until
// neither helps. Beyond 64 points
// only the starts within 1.5 times the lowest E so far are given swaps. For a matrix from outside
// that is not of negative type the result is the best permutation found: an upper bound of min E.
//
// Starts, since one is not enough: identity (token i stays token i), the assignment of distance
// profiles (third lower bound), the product coupling (whose first step matches the points by their
// mean distance), and seeded random permutations. The best is returned with its name; ties go to
// the earlier start.
//
// Copies. Where no bound below tells the two sides apart (two regular graphs, a relabelled cloud),
// they may be one up to the order of the points, and descent rarely finds the order of a graph:
// many entries are equal, so many steps lead nowhere. Then a relabelling that makes the matrices
// equal is looked for (matrix_isomorphism.h), up to 1e8 + 64 n^2 log n steps, and is the start
// "refinement". Its energy is 0 and certifies itself.
//
// Restarts, as many as asked for while the value is not certified: the best permutation so far with
// a quarter of its points shuffled, in batches of eight. Beyond 256 points only where no bound
// tells the sides apart.
//
// Bounds. E(identity) >= min E >= each of
//   norm bound     (sqrt mean A^2 - sqrt mean B^2)^2
//   second bound   mean over ranks of (sorted A - sorted B)^2
//   third bound    least assignment of C_ij = mean_k (sorted A_i,k - sorted B_j,k)^2
// (Memoli, Found. Comput. Math. 11, 2011). When the value meets a bound it is certified, and no
// further start is tried: E is within 1e-9 of itself of the bound, or within what rounding leaves
// of a difference of squares, 1e-14 sqrt(E (mean A^2 + mean B^2)), or the two matrices are one but
// for rounding (E below 1e-22 of their squares).
//
// Cost: some tens of n^2 for bounds (2 n^3 where a product is needed) and up to n^3 an assignment;
// n = 256 takes about a millisecond a start.
// Memory: n^2 doubles a start and 3 n^2 a thread, see gromov_memory_bytes. Matrices are scaled by
// a power of two first.
//
// Threads: pure function; starts run on up to `threads` threads. The result does not depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "geometry/distance.h"
#include "geometry/sorted_edges.h"

namespace tailor::geometry {

struct GromovOptions {
  /// At least 0; with 0 the value does not depend on the order of the points.
  int random_starts = 8;
  /// Further starts while the value is not certified, at least 0; each costs what a random one
  /// does.
  int restarts = 0;
  std::uint64_t seed = 0;
  int iterations_max = 200;  ///< conditional-gradient steps a start
  int threads = 1;
  /// Descend from the identity and nothing else: no other start, no swaps, and of the lower bounds
  /// the norm bound only (the others are left at 0). A quick upper bound.
  bool identity_only = false;
  /// Try no further start once the identity and the profile start, which knows nothing of the order
  /// of the points, come to the same energy. For tokens that correspond it is the rule, and the
  /// other starts cost most of the time.
  bool until_agreed = false;
  /// Blocks of neighbouring ranks that the sorted rows are averaged over for the third bound and
  /// the profile start; 0 keeps every rank. By Jensen's inequality the bound stays a bound, a
  /// weaker one, and its cost falls from n^3 to n^2 times the blocks.
  std::size_t profile_blocks = 0;
  /// A device for the products that are needed, or null; the result is the same. The caller owns
  /// it.
  const Accelerator* accelerator = nullptr;
};

/// The edges of both sides in ascending order (sorted_edges up to the diameter), where they are at
/// hand; they save two sorts. Those of the spherical geometry serve the hyperbolic one, too:
/// f is increasing.
struct GromovOrders {
  std::span<const Edge> a = {};
  std::span<const Edge> b = {};
};

/// Points up to which restarts are for any problem; beyond, only for what may be a copy.
inline constexpr std::size_t kRestartedMax = 256;

/// What one start came to.
struct GromovRun {
  /// "identity", "profile", "refinement", "product", "random 0", ..., "restart 0", ...
  std::string start;
  double start_energy = 0;  ///< E of the permutation it began with
  double energy = 0;
  int iterations = 0;  ///< assignments solved
  int swaps = 0;       ///< pairs swapped
};

struct GromovResult {
  double value = 0;   ///< sqrt(energy)
  double energy = 0;  ///< E of `permutation`, evaluated directly; never negative
  double identity_energy = 0;
  double lower_bound = 0;  ///< the largest of the three
  double norm_lower_bound = 0;
  double second_lower_bound = 0;
  double third_lower_bound = 0;
  bool certified = false;  ///< energy equals lower_bound but for rounding
  bool no_copy = false;    ///< proved: no relabelling makes the matrices equal, so min E > 0
  std::string start;       ///< which start won
  std::vector<std::uint32_t>
      permutation;              ///< point i of A is matched with point permutation[i] of B
  std::vector<GromovRun> runs;  ///< every start that was tried
};

/// Bytes that gromov_wasserstein holds at once beside the two matrices, at most.
double gromov_memory_bytes(std::size_t points, const GromovOptions& options = {});

/// E(p). REQUIRES: a.count() == b.count() == permutation.size(), a permutation.
double gromov_energy(const DistanceMatrix& a, const DistanceMatrix& b,
                     const std::vector<std::uint32_t>& permutation);

/// Minimises. Sides of different size are allowed when one has a single point (then E is the mean
/// square of the other). Errors: kInvalidArgument on other different sizes, more than 65535 points
/// or a bad option.
Result<GromovResult> gromov_wasserstein(const DistanceMatrix& a, const DistanceMatrix& b,
                                        const GromovOptions& options = {},
                                        const GromovOrders& orders = {});

}  // namespace tailor::geometry
