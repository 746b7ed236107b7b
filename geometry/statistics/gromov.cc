// Gromov: how much a layer distorts the distances between tokens.
//
//   g_GW = sqrt(min_T E(T)),  E and the search as in gromov_wasserstein.h
//
// A = distances within the cloud before the layer, B = after it. Correspondence of the tokens is
// not used but as one of the starts; others are tried when it and the start from distance profiles
// disagree. No random starts: the value then does not depend on the order of the tokens. 0 for
// fewer than two tokens and for an isometry. Cost: a few products and assignments of n^3. Source:
// arXiv 2608.02064; Memoli 2011; Peyre, Cuturi, Solomon 2016.
#include "geometry/gromov_wasserstein.h"
#include "geometry/statistics/statistic.h"

namespace tailor::geometry {
namespace {

double cost(std::size_t n, std::size_t d) {
  const double points = static_cast<double>(n);
  return points * points * (3.0 * static_cast<double>(d) + 40 * points);
}

// The bounds are not asked for: a coarse profile finds its start as well.
constexpr GromovOptions kOptions{.random_starts = 0, .until_agreed = true, .profile_blocks = 32};

double memory(std::size_t n) { return gromov_memory_bytes(n, kOptions); }

Result<double> evaluate(PairWorkspace& pair, Geometry geometry) {
  TAILOR_ASSIGN_OR_RETURN(const DistanceMatrix* before, pair.distances_before(geometry));
  TAILOR_ASSIGN_OR_RETURN(const DistanceMatrix* after, pair.distances_after(geometry));
  GromovOrders orders;
  if (pair.count() <= kEdgePointsMax) {  // beyond, gromov_wasserstein says so
    TAILOR_ASSIGN_OR_RETURN(orders.a, pair.order_before(geometry));
    TAILOR_ASSIGN_OR_RETURN(orders.b, pair.order_after(geometry));
  }
  GromovOptions options = kOptions;
  options.seed = pair.options().seed;
  options.threads = pair.options().threads;
  options.accelerator = pair.options().accelerator;
  TAILOR_ASSIGN_OR_RETURN(const GromovResult result,
                          gromov_wasserstein(*before, *after, options, orders));
  pair.keep_energies(geometry, {.energy = result.energy,
                                .identity = result.identity_energy,
                                .norm_bound = result.norm_lower_bound,
                                .second_bound = result.second_lower_bound,
                                .third_bound = result.third_lower_bound,
                                .certified = result.certified ? std::size_t{1} : 0});
  return result.value;
}

}  // namespace

extern const Statistic kGromovStatistic;
constinit const Statistic kGromovStatistic{
    .name = "gromov",
    .summary = "Gromov-Wasserstein distortion of the distances between tokens",
    .sample = SampleSize::kPairwise,
    .cost = cost,
    .memory = memory,
    .evaluate = evaluate,
    .has_energies = true,
};

}  // namespace tailor::geometry
