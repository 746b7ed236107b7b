// Topology: how much a layer changes the loops of the cloud.
//
//   g_top = W_2(Dgm1(X), Dgm1(Y)), ground norm 2
//
// Dgm1: degree-1 Vietoris-Rips diagram up to the enclosing radius (rips.h); W_2:
// diagram_distance.h. The homology of the hyperbolic geometry is that of the spherical one with
// births and deaths mapped, so one run serves both. 0 for fewer than four tokens. Cost: n^2 lunes
// of n/64 words and the relations. Source: arXiv 2608.02064.
#include "geometry/diagram_distance.h"
#include "geometry/rips.h"
#include "geometry/statistics/statistic.h"

namespace tailor::geometry {
namespace {

double cost(std::size_t n, std::size_t d) {
  const double points = static_cast<double>(n);
  return 3.0 * points * points * static_cast<double>(d) + 2 * rips_cost(n);
}

double memory(std::size_t n) { return rips_memory_bytes(n); }

Result<double> evaluate(PairWorkspace& pair, Geometry geometry) {
  TAILOR_ASSIGN_OR_RETURN(const Diagram* before, pair.diagram_before(geometry));
  TAILOR_ASSIGN_OR_RETURN(const Diagram* after, pair.diagram_after(geometry));
  TAILOR_ASSIGN_OR_RETURN(const DiagramDistance result, diagram_distance(*before, *after));
  return result.distance;
}

}  // namespace

extern const Statistic kTopologyStatistic;
constinit const Statistic kTopologyStatistic{
    .name = "topology",
    .summary = "2-Wasserstein distance between the degree-1 persistence diagrams",
    .sample = SampleSize::kPairwise,
    .cost = cost,
    .memory = memory,
    .evaluate = evaluate,
};

}  // namespace tailor::geometry
