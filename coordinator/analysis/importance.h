// How much each axis of a space matters for an outcome, from the trials there are. Pure.
//
// Functional ANOVA (Hutter, Hoos, Leyton-Brown 2014) of a random forest f grown on the trials. With
// all axes uniform and independent over their range,
//   f_0 = E f,   f_a(x) = E[f | x_a] - f_0,   f_ab(x, y) = E[f | x_a, x_b] - f_a - f_b - f_0
// and the share of axis a is Var f_a / Var f, that of a pair Var f_ab / Var f. Of one tree all are
// exact sums over its leaves. Shares are means over trees.
// Permutation: by how much the squared error on trials that a tree has not seen grows when the
// values of one axis are shuffled among them, in units of the outcome's variance. It asks about the
// trials that were made (which a search concentrates where losses are low), fANOVA about the whole
// range: where they disagree, the trials are uneven.
//
// Uncertainty: every tree is grown on its own bootstrap sample of the trials, and the SD of a
// quantity over trees is given as its spread: about how much it would move with other trials
// (rather too wide, for trees also differ by the axes they look at).
//
// Coordinates are those of search/space.h: [0, 1] an axis, NaN where an axis is not active (a cell
// of its own, as heavy as it is frequent). A continuous axis is looked at in kImportanceCells equal
// cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tailor::analysis {

inline constexpr std::size_t kImportanceCells = 48;
/// Any fixed value would do.
inline constexpr std::uint64_t kImportanceSeed = 0x696D706F7274;

struct ImportanceAxis {
  std::string name;
  bool is_choice = false;  ///< nearness of values means nothing
  std::size_t cells = 0;   ///< values of a finite axis; 0 = continuous
};

struct ImportanceInput {
  std::vector<ImportanceAxis> axes;
  std::vector<std::vector<double>> x;  ///< [trial][axis]
  std::vector<double> y;               ///< outcome; trials that are not finite are left out
};

struct ImportanceSettings {
  std::size_t trees = 64;
  std::size_t leaf_min = 3;  ///< trials in a leaf
  std::uint64_t seed = kImportanceSeed;
};

struct Share {
  double value = 0;
  double spread = 0;  ///< SD over trees
};

struct AxisImportance {
  std::string name;
  Share alone;        ///< of the variance of the forest
  Share permutation;  ///< increase of the squared error / variance of the outcome
};

struct PairImportance {
  std::size_t a = 0, b = 0;  ///< axes, a < b
  Share share;               ///< beyond what either does alone
};

struct Importance {
  std::vector<AxisImportance> axes;   ///< in the order given
  std::vector<PairImportance> pairs;  ///< all, largest first
  std::size_t trials = 0;             ///< used
  std::size_t left_out = 0;           ///< not finite
  /// 1 - squared error / variance on trials that trees have not seen; below 0.2 or so shares mean
  /// little. Unset when every trial was seen by every tree.
  std::optional<double> explained;
  std::vector<std::string> notes;
};

inline constexpr std::size_t kImportanceTrialsMin = 8;

/// Cost: trees x axes x trials x log(trials), and trees x leaves x pairs x cells^2 for the pairs.
/// Errors: kInvalidArgument for lengths that differ, coordinates outside [0, 1], more than
/// kImportanceCells values of a choice; kFailedPrecondition with fewer than kImportanceTrialsMin
/// finite trials or when all have one outcome.
Result<Importance> importance_of(const ImportanceInput& input,
                                 const ImportanceSettings& settings = {});

}  // namespace tailor::analysis
