#include "coordinator/analysis/importance.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/rng.h"

namespace tailor::analysis {
namespace {

/// Cells of one axis as bits; the highest used one is "not active" where that occurs.
using Cells = std::uint64_t;

struct AxisCells {
  bool is_choice = false;
  std::size_t count = 0;       // cells, the one for "not active" among them
  std::size_t active = 0;      // without it
  std::vector<double> weight;  // by cell, sums to 1
};

struct Leaf {
  std::vector<Cells> sides;  // by axis
  double value = 0;
};

struct TreeNode {
  int axis = -1;   // -1 = a leaf
  Cells left = 0;  // cells of `axis` that go left
  std::size_t left_child = 0, right_child = 0;
  double value = 0;
};

double weight_of(const AxisCells& axis, Cells cells) {
  double sum = 0;
  for (std::size_t c = 0; c < axis.count; ++c) {
    if ((cells >> c & 1) != 0) sum += axis.weight[c];
  }
  return sum;
}

class Forest {
 public:
  Forest(std::vector<AxisCells> axes, std::vector<std::vector<std::uint8_t>> cells,
         std::vector<double> y, const ImportanceSettings& settings)
      : axes_(std::move(axes)), cells_(std::move(cells)), y_(std::move(y)), settings_(settings) {}

  struct Grown {
    std::vector<TreeNode> nodes;
    std::vector<Leaf> leaves;
    std::vector<std::size_t> unseen;
  };

  Grown grow(std::size_t tree) const {
    Rng rng = Rng::split(settings_.seed, fmt::format("tree {}", tree));
    std::vector<std::size_t> sample(y_.size());
    std::vector<bool> seen(y_.size(), false);
    for (std::size_t& i : sample) {
      i = rng.below(y_.size());
      seen[i] = true;
    }
    Grown out;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (!seen[i]) out.unseen.push_back(i);
    }
    std::vector<Cells> sides;
    for (const AxisCells& axis : axes_) sides.push_back((Cells{1} << axis.count) - 1);
    split(sample, std::move(sides), rng, out);
    return out;
  }

  /// `shuffled` gives axis `axis` the cells of another trial.
  double predict(const Grown& tree, std::size_t trial, std::size_t axis,
                 std::size_t shuffled) const {
    std::size_t at = 0;
    while (tree.nodes[at].axis >= 0) {
      const TreeNode& node = tree.nodes[at];
      const auto on = static_cast<std::size_t>(node.axis);
      const std::uint8_t cell = cells_[on == axis ? shuffled : trial][on];
      at = (node.left >> cell & 1) != 0 ? node.left_child : node.right_child;
    }
    return tree.nodes[at].value;
  }

  const std::vector<AxisCells>& axes() const { return axes_; }
  const std::vector<double>& y() const { return y_; }

 private:
  struct Cut {
    double gain = 0;
    int axis = -1;
    Cells left = 0;
  };

  std::size_t split(std::vector<std::size_t> sample, std::vector<Cells> sides, Rng& rng,
                    Grown& out) const {
    const std::size_t at = out.nodes.size();
    out.nodes.emplace_back();
    double sum = 0;
    for (const std::size_t i : sample) sum += y_[i];
    const double mean = sum / static_cast<double>(sample.size());
    out.nodes[at].value = mean;
    const Cut cut =
        sample.size() >= 2 * settings_.leaf_min ? best_cut(sample, sides, mean, rng) : Cut{};
    if (cut.axis < 0) {
      out.leaves.push_back({std::move(sides), mean});
      return at;
    }
    const auto axis = static_cast<std::size_t>(cut.axis);
    std::vector<std::size_t> left, right;
    for (const std::size_t i : sample) {
      ((cut.left >> cells_[i][axis] & 1) != 0 ? left : right).push_back(i);
    }
    sample.clear();
    std::vector<Cells> left_sides = sides, right_sides = std::move(sides);
    left_sides[axis] &= cut.left;
    right_sides[axis] &= ~cut.left;
    out.nodes[at].axis = cut.axis;
    out.nodes[at].left = cut.left;
    const std::size_t left_child = split(std::move(left), std::move(left_sides), rng, out);
    const std::size_t right_child = split(std::move(right), std::move(right_sides), rng, out);
    out.nodes[at].left_child = left_child;
    out.nodes[at].right_child = right_child;
    return at;
  }

  /// The split that lowers the squared error most, over five sixths of the axes.
  Cut best_cut(const std::vector<std::size_t>& sample, const std::vector<Cells>& sides, double mean,
               Rng& rng) const {
    std::vector<std::size_t> order(axes_.size());
    std::iota(order.begin(), order.end(), 0u);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    order.resize((5 * order.size() + 5) / 6);
    Cut best;
    for (const std::size_t axis : order) cut_axis(axis, sample, sides[axis], mean, rng, best);
    return best;
  }

  void cut_axis(std::size_t axis, const std::vector<std::size_t>& sample, Cells side, double mean,
                Rng& rng, Cut& best) const {
    const AxisCells& of = axes_[axis];
    std::vector<double> sums(of.count, 0.0);
    std::vector<std::size_t> counts(of.count, 0);
    for (const std::size_t i : sample) {
      sums[cells_[i][axis]] += y_[i] - mean;
      ++counts[cells_[i][axis]];
    }
    std::vector<std::size_t> order;  // cells with trials, in the order in which they are cut
    for (std::size_t c = 0; c < of.count; ++c) {
      if (counts[c] > 0) order.push_back(c);
    }
    if (of.is_choice) {
      const auto average = [&](std::size_t c) { return sums[c] / static_cast<double>(counts[c]); };
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return average(a) < average(b); });
    }
    double left_sum = 0;
    std::size_t left_count = 0;
    Cells left = 0;
    for (std::size_t k = 0; k + 1 < order.size(); ++k) {
      left_sum += sums[order[k]];
      left_count += counts[order[k]];
      left |= Cells{1} << order[k];
      const std::size_t right_count = sample.size() - left_count;
      if (left_count < settings_.leaf_min || right_count < settings_.leaf_min) continue;
      // The sum of all deviations is 0, so the right one is -left_sum.
      const double gain =
          left_sum * left_sum *
          (1 / static_cast<double>(left_count) + 1 / static_cast<double>(right_count));
      if (!(gain > best.gain * (1 + 1e-12)) || !(gain > 1e-300)) continue;
      Cells all = left;
      if (of.is_choice) {
        // Cells without a trial here go to the larger side.
        if (left_count > right_count) all |= side & ~cells_in(order, of);
      } else {
        // The boundary lies anywhere between the neighbouring cells with trials.
        const std::size_t from = order[k], to = order[k + 1];
        const std::size_t last =
            from + (to > from + 1 && to < of.active ? rng.below(to - from) : 0);
        all = last + 1 >= 64 ? ~Cells{0} : (Cells{1} << (last + 1)) - 1;
      }
      best = {gain, static_cast<int>(axis), all};
    }
  }

  static Cells cells_in(const std::vector<std::size_t>& order, const AxisCells&) {
    Cells all = 0;
    for (const std::size_t c : order) all |= Cells{1} << c;
    return all;
  }

  std::vector<AxisCells> axes_;
  std::vector<std::vector<std::uint8_t>> cells_;  // [trial][axis]
  std::vector<double> y_;
  ImportanceSettings settings_;
};

/// Shares of one tree: of axes, then of pairs in the order (0,1), (0,2), ... NaN = it is constant.
struct TreeShares {
  std::vector<double> axes, pairs;
  bool constant = false;
};

TreeShares shares_of(const std::vector<AxisCells>& axes, const std::vector<Leaf>& leaves) {
  const std::size_t d = axes.size();
  TreeShares out;
  std::vector<std::vector<double>> weights(leaves.size(), std::vector<double>(d));
  std::vector<double> volume(leaves.size(), 1.0);
  double mean = 0;
  for (std::size_t l = 0; l < leaves.size(); ++l) {
    for (std::size_t a = 0; a < d; ++a) {
      weights[l][a] = weight_of(axes[a], leaves[l].sides[a]);
      volume[l] *= weights[l][a];
    }
    mean += volume[l] * leaves[l].value;
  }
  double variance = 0;
  for (std::size_t l = 0; l < leaves.size(); ++l) {
    variance += volume[l] * (leaves[l].value - mean) * (leaves[l].value - mean);
  }
  if (!(variance > 0)) {
    out.constant = true;
    return out;
  }
  std::vector<double> alone(d);
  for (std::size_t a = 0; a < d; ++a) {
    std::vector<double> f(axes[a].count, 0.0);
    for (std::size_t l = 0; l < leaves.size(); ++l) {
      if (!(weights[l][a] > 0)) continue;
      const double part = (leaves[l].value - mean) * volume[l] / weights[l][a];
      for (std::size_t c = 0; c < f.size(); ++c) {
        if ((leaves[l].sides[a] >> c & 1) != 0) f[c] += part;
      }
    }
    for (std::size_t c = 0; c < f.size(); ++c) alone[a] += axes[a].weight[c] * f[c] * f[c];
    out.axes.push_back(alone[a] / variance);
  }
  std::vector<double> f;
  for (std::size_t a = 0; a < d; ++a) {
    for (std::size_t b = a + 1; b < d; ++b) {
      const std::size_t columns = axes[b].count;
      f.assign(axes[a].count * columns, 0.0);
      for (std::size_t l = 0; l < leaves.size(); ++l) {
        if (!(weights[l][a] > 0) || !(weights[l][b] > 0)) continue;
        const double part = (leaves[l].value - mean) * volume[l] / (weights[l][a] * weights[l][b]);
        for (std::size_t c = 0; c < axes[a].count; ++c) {
          if ((leaves[l].sides[a] >> c & 1) == 0) continue;
          for (std::size_t e = 0; e < columns; ++e) {
            if ((leaves[l].sides[b] >> e & 1) != 0) f[c * columns + e] += part;
          }
        }
      }
      double both = 0;
      for (std::size_t c = 0; c < axes[a].count; ++c) {
        for (std::size_t e = 0; e < columns; ++e) {
          both += axes[a].weight[c] * axes[b].weight[e] * f[c * columns + e] * f[c * columns + e];
        }
      }
      out.pairs.push_back(std::max(0.0, both - alone[a] - alone[b]) / variance);
    }
  }
  return out;
}

Share share_over(const std::vector<double>& values) {
  Share out;
  if (values.empty()) return out;
  const auto n = static_cast<double>(values.size());
  out.value = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - out.value) * (v - out.value);
  if (values.size() > 1) out.spread = std::sqrt(squares / (n - 1));
  return out;
}

Result<std::vector<AxisCells>> cells_of_axes(const ImportanceInput& input,
                                             const std::vector<std::size_t>& used) {
  std::vector<AxisCells> out;
  for (std::size_t a = 0; a < input.axes.size(); ++a) {
    const ImportanceAxis& axis = input.axes[a];
    if (axis.is_choice && axis.cells > kImportanceCells) {
      return error(Code::kInvalidArgument,
                   fmt::format("axis {} is a choice of {} values; allowed: {}", axis.name,
                               axis.cells, kImportanceCells));
    }
    AxisCells cells;
    cells.is_choice = axis.is_choice;
    cells.active = axis.cells == 0 ? kImportanceCells : std::min(axis.cells, kImportanceCells);
    std::size_t inactive = 0;
    for (const std::size_t i : used) inactive += std::isnan(input.x[i][a]) ? 1 : 0;
    const double share = static_cast<double>(inactive) / static_cast<double>(used.size());
    cells.weight.assign(cells.active, (1 - share) / static_cast<double>(cells.active));
    if (inactive > 0) cells.weight.push_back(share);
    cells.count = cells.weight.size();
    out.push_back(std::move(cells));
  }
  return out;
}

}  // namespace

Result<Importance> importance_of(const ImportanceInput& input, const ImportanceSettings& settings) {
  if (input.x.size() != input.y.size() || input.axes.empty() || settings.trees == 0) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} points with {} outcomes on {} axes", input.x.size(),
                             input.y.size(), input.axes.size()));
  }
  Importance out;
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < input.y.size(); ++i) {
    if (input.x[i].size() != input.axes.size()) {
      return error(Code::kInvalidArgument, fmt::format("point {} has {} coordinates, and there are "
                                                       "{} axes",
                                                       i, input.x[i].size(), input.axes.size()));
    }
    for (const double x : input.x[i]) {
      if (!std::isnan(x) && !(x >= 0 && x <= 1)) {
        return error(Code::kInvalidArgument,
                     fmt::format("point {} has the coordinate {}; allowed: 0 to 1", i, x));
      }
    }
    if (std::isfinite(input.y[i])) used.push_back(i);
  }
  out.left_out = input.y.size() - used.size();
  out.trials = used.size();
  if (used.size() < kImportanceTrialsMin) {
    return error(Code::kFailedPrecondition,
                 fmt::format("{} trials with a finite outcome say nothing about axes; at least {} "
                             "are needed",
                             used.size(), kImportanceTrialsMin));
  }
  TAILOR_ASSIGN_OR_RETURN(std::vector<AxisCells> axes, cells_of_axes(input, used));
  std::vector<std::vector<std::uint8_t>> cells;
  std::vector<double> y;
  for (const std::size_t i : used) {
    std::vector<std::uint8_t> row;
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const double x = input.x[i][a];
      const auto cell =
          static_cast<std::size_t>(std::isnan(x) ? 0.0 : x * static_cast<double>(axes[a].active));
      row.push_back(static_cast<std::uint8_t>(std::isnan(x) ? axes[a].active
                                                            : std::min(cell, axes[a].active - 1)));
    }
    cells.push_back(std::move(row));
    y.push_back(input.y[i]);
  }
  const double mean = std::accumulate(y.begin(), y.end(), 0.0) / static_cast<double>(y.size());
  double variance = 0;
  for (const double value : y) variance += (value - mean) * (value - mean);
  variance /= static_cast<double>(y.size());
  if (!(variance > 0) || !std::isfinite(variance)) {
    return error(
        Code::kFailedPrecondition,
        "all trials have one outcome (or outcomes beyond a double's range): no axis can be "
        "told to matter");
  }

  const std::size_t d = axes.size();
  const Forest forest(std::move(axes), std::move(cells), std::move(y), settings);
  std::vector<std::vector<double>> alone(d), permuted(d), pairs(d * (d - 1) / 2);
  std::vector<double> predicted(used.size(), 0.0);
  std::vector<std::size_t> predictions(used.size(), 0);
  for (std::size_t tree = 0; tree < settings.trees; ++tree) {
    const Forest::Grown grown = forest.grow(tree);
    const TreeShares shares = shares_of(forest.axes(), grown.leaves);
    for (std::size_t a = 0; a < d && !shares.constant; ++a) alone[a].push_back(shares.axes[a]);
    for (std::size_t p = 0; p < pairs.size() && !shares.constant; ++p) {
      pairs[p].push_back(shares.pairs[p]);
    }
    if (grown.unseen.size() < 2) continue;
    Rng rng = Rng::split(settings.seed, fmt::format("shuffle {}", tree));
    double error_now = 0;
    for (const std::size_t i : grown.unseen) {
      const double value = forest.predict(grown, i, d, i);
      predicted[i] += value;
      ++predictions[i];
      error_now += (value - forest.y()[i]) * (value - forest.y()[i]);
    }
    for (std::size_t a = 0; a < d; ++a) {
      std::vector<std::size_t> order = grown.unseen;
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
      double error_shuffled = 0;
      for (std::size_t k = 0; k < order.size(); ++k) {
        const std::size_t i = grown.unseen[k];
        const double off = forest.predict(grown, i, a, order[k]) - forest.y()[i];
        error_shuffled += off * off;
      }
      permuted[a].push_back((error_shuffled - error_now) /
                            (static_cast<double>(order.size()) * variance));
    }
  }
  for (std::size_t a = 0; a < d; ++a) {
    out.axes.push_back({input.axes[a].name, share_over(alone[a]), share_over(permuted[a])});
  }
  std::size_t p = 0;
  for (std::size_t a = 0; a < d; ++a) {
    for (std::size_t b = a + 1; b < d; ++b) out.pairs.push_back({a, b, share_over(pairs[p++])});
  }
  std::stable_sort(out.pairs.begin(), out.pairs.end(),
                   [](const PairImportance& x, const PairImportance& z) {
                     return x.share.value > z.share.value;
                   });
  double squared = 0;
  std::size_t judged = 0;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    if (predictions[i] == 0) continue;
    const double off = predicted[i] / static_cast<double>(predictions[i]) - forest.y()[i];
    squared += off * off;
    ++judged;
  }
  if (judged > 1) out.explained = 1 - squared / (static_cast<double>(judged) * variance);
  if (out.left_out > 0) {
    out.notes.push_back(fmt::format(
        "{} trials without a finite outcome are left out: where the space fails is not seen here",
        out.left_out));
  }
  if (out.explained && *out.explained < 0.2) {
    out.notes.push_back(
        fmt::format("the forest explains {:.0f} % of the variance of trials it has not seen: "
                    "shares mean little",
                    100 * std::max(0.0, *out.explained)));
  }
  return out;
}

}  // namespace tailor::analysis
