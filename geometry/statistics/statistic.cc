// The shared workspace of the statistics.
#include "geometry/statistics/statistic.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tailor::geometry {

Status StatisticOptions::validate() const {
  return DistanceOptions{.geometry = Geometry::kHyperbolic, .rho = rho, .threads = threads}
      .validate();
}

Result<PairWorkspace> PairWorkspace::create(CloudView before, CloudView after,
                                            const StatisticOptions& options) {
  TAILOR_RETURN_IF_ERROR(options.validate());
  PairWorkspace workspace;
  TAILOR_ASSIGN_OR_RETURN(workspace.pair_, clean_pair(before, after));
  workspace.options_ = options;
  return workspace;
}

std::size_t PairWorkspace::duplicates() const {
  std::size_t most = 0;
  for (const Side* side : {&before_, &after_}) {
    for (const auto& matrix : side->distances) {
      if (matrix) most = std::max(most, matrix->duplicates());
    }
  }
  return most;
}

Result<const DistanceMatrix*> PairWorkspace::distances(Geometry geometry, CloudView cloud,
                                                       Side& side) {
  auto& slot = side.distances[static_cast<std::size_t>(geometry)];
  if (!slot) {
    if (geometry == Geometry::kHyperbolic) {
      TAILOR_ASSIGN_OR_RETURN(const DistanceMatrix* angles,
                              distances(Geometry::kSpherical, cloud, side));
      slot = hyperbolic_from_spherical(*angles, options_.rho);
    } else if (geometry == Geometry::kSpherical) {
      TAILOR_ASSIGN_OR_RETURN(const DistanceMatrix* raw, distances(Geometry::kRaw, cloud, side));
      TAILOR_ASSIGN_OR_RETURN(slot, spherical_from_raw(cloud, *raw, distance_options(geometry)));
    } else {
      TAILOR_ASSIGN_OR_RETURN(slot, pairwise_distances(cloud, distance_options(geometry)));
    }
  }
  return &*slot;
}

Result<const DistanceMatrix*> PairWorkspace::distances_before(Geometry geometry) {
  return distances(geometry, before(), before_);
}

Result<const DistanceMatrix*> PairWorkspace::distances_after(Geometry geometry) {
  return distances(geometry, after(), after_);
}

Result<std::span<const Edge>> PairWorkspace::order(Geometry geometry, CloudView cloud, Side& side) {
  if (geometry == Geometry::kHyperbolic) geometry = Geometry::kSpherical;
  auto& slot = side.orders[static_cast<std::size_t>(geometry)];
  if (!slot) {
    TAILOR_ASSIGN_OR_RETURN(const DistanceMatrix* matrix, distances(geometry, cloud, side));
    slot = sorted_edges(*matrix, matrix->diameter());
  }
  return std::span<const Edge>(*slot);
}

Result<std::span<const Edge>> PairWorkspace::order_before(Geometry geometry) {
  return order(geometry, before(), before_);
}

Result<std::span<const Edge>> PairWorkspace::order_after(Geometry geometry) {
  return order(geometry, after(), after_);
}

Result<std::vector<double>> PairWorkspace::displacements(Geometry geometry) {
  if (geometry == Geometry::kRaw) {
    return tailor::geometry::displacements(before(), after(), distance_options(geometry));
  }
  if (!angles_moved_) {
    TAILOR_ASSIGN_OR_RETURN(
        angles_moved_,
        tailor::geometry::displacements(before(), after(), distance_options(Geometry::kSpherical)));
  }
  std::vector<double> moved = *angles_moved_;
  if (geometry == Geometry::kHyperbolic) {
    for (double& x : moved) x = hyperbolic_from_angle(x, options_.rho);
  }
  return moved;
}

Result<const Diagram*> PairWorkspace::diagram(Geometry geometry, CloudView cloud, Side& side) {
  auto& slot = side.diagrams[static_cast<std::size_t>(geometry)];
  if (!slot) {
    if (geometry == Geometry::kHyperbolic) {
      TAILOR_ASSIGN_OR_RETURN(const Diagram* angles, diagram(Geometry::kSpherical, cloud, side));
      slot = hyperbolic_diagram(*angles, options_.rho);
    } else {
      TAILOR_ASSIGN_OR_RETURN(const DistanceMatrix* matrix, distances(geometry, cloud, side));
      std::span<const Edge> edges;
      if (cloud.count() <= kEdgePointsMax) {  // beyond, rips_persistence says so
        TAILOR_ASSIGN_OR_RETURN(edges, order(geometry, cloud, side));
      }
      TAILOR_ASSIGN_OR_RETURN(
          RipsSummary summary,
          rips_persistence(*matrix, {.accelerator = options_.accelerator}, edges));
      slot = std::move(summary.bars);
    }
  }
  return &*slot;
}

Result<const Diagram*> PairWorkspace::diagram_before(Geometry geometry) {
  return diagram(geometry, before(), before_);
}

Result<const Diagram*> PairWorkspace::diagram_after(Geometry geometry) {
  return diagram(geometry, after(), after_);
}

}  // namespace tailor::geometry
