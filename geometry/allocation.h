// Allocation: cutting hidden widths from measured work, under a budget.
//
//   minimise   sum_l beta_l w_l^(-a_l),   beta_l = lambda_l g_l >= 0,  a_l > 0
//   subject to sum_l c_l w_l = B,  m_l <= w_l <= M_l
//
// l: layer; g: its geometric work; lambda: its sensitivity (1 by default); a: exponent, from the
// intrinsic dimension; c > 0: budget per hidden unit; m, M: floor and cap.
//
// Unit. With different exponents w^(-a) in absolute neurons and (w / w_ref)^(-a) are different
// problems: beta_l becomes beta_l w_ref^(a_l). Both are offered; the papers leave it open.
//
// Solution. Stationarity gives beta a w^(-a-1) = mu c on free layers, hence
//   w_l(mu) = clip((beta_l a_l / (mu c_l))^(1 / (a_l + 1)), m_l, M_l),
// and the multiplier is where S(mu) = sum c_l w_l(mu), which does not increase, meets B. With
//   t = log mu,  k_l = log(beta_l a_l / c_l)
// the breakpoints k_l - (a_l + 1) log m_l and k_l - (a_l + 1) log M_l are sorted and B is bracketed
// between two of them; there the free set F is fixed and
//   sum_F c_l exp((k_l - t) / (a_l + 1))
// is convex and decreasing in t, so Newton's method from the left end converges monotonically.
// (With equal exponents its solution is the closed form.) All in logarithms: no power can overflow.
// The objective is convex on a compact convex set, so this is the optimum; `kkt` lets a test see
// it: beta a w^(-a-1) / (mu c) is 1 on free layers, at most 1 on the floor, at least 1 on the cap.
//
// Cost: n log n. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/status.h"

namespace tailor::geometry {

enum class WidthUnit { kAbsolute, kRelative };

/// One entry a layer in `work`; the other lists hold one entry a layer, or a single entry for all.
struct AllocationProblem {
  std::vector<double> work;               ///< g_l >= 0
  std::vector<double> sensitivity = {1};  ///< lambda_l >= 0
  std::vector<double> exponent = {1};     ///< a_l > 0; below exponent_min counts as exponent_min
  std::vector<double> cost = {1};         ///< c_l > 0
  std::vector<double> floor = {0};        ///< m_l >= 0
  std::vector<double> cap = {std::numeric_limits<double>::infinity()};  ///< M_l >= m_l
  double budget = 0;                                                    ///< B > 0
  WidthUnit unit = WidthUnit::kAbsolute;
  double reference_width = 0;  ///< w_ref of kRelative; 0: the uniform width B / sum c
  double exponent_min = 0.02;  ///< a smaller exponent would only drive its layer to the floor
};

enum class LayerState { kFree, kFloor, kCap };

struct Allocation {
  std::vector<double> widths;
  std::vector<LayerState> states;
  std::vector<double> kkt;  ///< see above; 0 where beta is 0
  double multiplier = 0;    ///< mu; 0 when no layer is free to trade
  double objective = 0;     ///< sum beta_l w_l^(-a_l) in the chosen unit
  double residual = 0;      ///< (sum c w - B) / B
  bool no_signal = false;   ///< all beta are 0: the budget was spread evenly
  int iterations = 0;       ///< of Newton's method
};

/// Solves. Layers with beta = 0 stay at their floor and share what the caps of the others leave
/// over. Errors: kInvalidArgument on lists of wrong length, NaN, negative or otherwise impossible
/// numbers (named by list and layer); kOutOfRange when the budget is below the floors
/// ("infeasible", with the deficit) or above the caps ("over capacity", with the excess), when a
/// layer with work would get width 0 (named), or when the objective overflows.
Result<Allocation> allocate(const AllocationProblem& problem);

struct IntegerAllocation {
  std::vector<std::int64_t> widths;  ///< multiples of the quantum, never outside floor and cap
  double objective = 0;              ///< finite
  double error = 0;                  ///< (sum c w - B) / B
  bool optimal = false;  ///< proved: no other widths of the discrete problem have a lower objective
  bool exact = false;    ///< optimal, and sum c w == B
};

/// Widths in multiples q k_l of `quantum`, the best of this discrete problem:
///   minimise sum_l beta_l (q k_l)^(-a_l)
///   over     whole k_l with m_l <= q k_l <= M_l, and k_l >= 1 where there is work,
///            B (1 - tolerance) <= sum c_l q k_l <= B;
/// only where there are none, the total may exceed B, by the tolerance at most. (Floors and caps
/// that the real problem cannot meet are not helped by the tolerance.) Equal costs: as
/// many quanta as B holds are given out greedily by marginal gain, which is the optimum of a
/// separable convex problem (n log n from near the real optimum); of equal gains the earlier layer
/// gets the quantum. Unequal costs: greedy by gain per cost and exchanges of single quanta, then
/// dynamic programming over the totals that can be reached, restricted to widths that the
/// Lagrangian bound does not rule out; it ends after some 3e7 steps (about a second, 40 MB), and
/// then `optimal` is false. Layers without work and without a floor get width 0 unless the others
/// are at their caps.
///
/// Errors: as allocate, but a layer without any multiple between floor and cap is kInvalidArgument
/// (named; at a cap above 0 a width of 0 does not count); kOutOfRange when the rounded-up floors do
/// not fit, the rounded-down caps leave too much, or no widths within `tolerance` of the budget
/// (from 0 to 1) were found (with the error reached).
Result<IntegerAllocation> allocate_integer(const AllocationProblem& problem,
                                           std::int64_t quantum = 64, double tolerance = 1e-5);

/// How an exponent follows from the intrinsic dimension d, clipped to [1, model_width].
enum class ExponentRule {
  kTwoOverD,              ///< 2 / d: squared error of Lipschitz targets
  kSmoothnessOverD,       ///< s / d
  kTwiceSmoothnessOverD,  ///< 2 s / d
  kConstant,              ///< s, whatever d (1: dimension-free)
};
/// REQUIRES: dimension finite, model_width >= 1, smoothness > 0.
double exponent_from_dimension(ExponentRule rule, double dimension, double model_width,
                               double smoothness = 1);

}  // namespace tailor::geometry
