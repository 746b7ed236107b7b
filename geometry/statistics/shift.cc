// Shift: how far a token moves on average, with the correspondence of the tokens kept.
//
//   g_shift = (1/n) sum_i d(x_i, y_i)
//
// x_i, y_i: token i before and after the layer; d: the distance of the chosen geometry
// (distance.h). With the residual stream as cloud the raw shift is the mean norm of what the layer
// adds. 0 for an empty cloud. Cost: n d. Source: arXiv 2608.02064.
#include "geometry/statistics/statistic.h"

namespace tailor::geometry {
namespace {

double cost(std::size_t n, std::size_t d) {
  return 3.0 * static_cast<double>(n) * static_cast<double>(d);
}

double memory(std::size_t n) { return 24.0 * static_cast<double>(n); }

Result<double> evaluate(PairWorkspace& pair, Geometry geometry) {
  TAILOR_ASSIGN_OR_RETURN(const std::vector<double> moved, pair.displacements(geometry));
  // A running mean stays finite where a sum of huge displacements would not.
  double mean = 0;
  for (std::size_t i = 0; i < moved.size(); ++i) {
    mean += (moved[i] - mean) / static_cast<double>(i + 1);
  }
  return mean;
}

Result<std::vector<double>> per_token(PairWorkspace& pair, Geometry geometry) {
  return pair.displacements(geometry);
}

}  // namespace

extern const Statistic kShiftStatistic;
constinit const Statistic kShiftStatistic{
    .name = "shift",
    .summary = "mean displacement of a token",
    .sample = SampleSize::kLinear,
    .cost = cost,
    .memory = memory,
    .evaluate = evaluate,
    .per_token = per_token,
};

}  // namespace tailor::geometry
