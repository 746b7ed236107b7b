// What a statistic of geometric work is: a number that says how far a layer moved a token cloud, in
// one of three geometries. A statistic is one file with its formula and cost, one evaluate
// function, and one line in table.cc; the profile,
// the command line and the shared test suite then know it.
//
// Rules that the suite checks for every entry of the table: an empty pair and a pair of equal
// clouds give 0; the value does not depend on the order of the tokens; multiplying both clouds by
// s > 0 multiplies the raw value by s and leaves the spherical and hyperbolic ones as they are;
// values are finite and not negative.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "geometry/cloud.h"
#include "geometry/distance.h"
#include "geometry/rips.h"
#include "geometry/sorted_edges.h"
#include "geometry/work_energies.h"

namespace tailor::geometry {

/// What every statistic may be told. Each reads what it needs.
struct StatisticOptions {
  double rho = kDefaultRho;  ///< radius of the hyperbolic geometry, in (0, 1)
  std::uint64_t seed = 0;    ///< for statistics that draw (random starts)
  int threads = 1;           ///< threads within one evaluation
  /// A device for the dense loops, or null (accelerator.h). The caller owns it.
  const Accelerator* accelerator = nullptr;
  /// Spacing of the numbers that the clouds were kept in ("One point" in distance.h).
  double spacing = kFloat64Spacing;

  Status validate() const;
};

/// A cleaned pair of clouds with what several statistics share, made on first use: distance
/// matrices of both clouds in every geometry. One pair is used by one thread at a time.
class PairWorkspace {
 public:
  /// Checks and cleans (see clean_pair). Errors: as clean_pair and StatisticOptions::validate.
  static Result<PairWorkspace> create(CloudView before, CloudView after,
                                      const StatisticOptions& options);

  CloudView before() const { return pair_.before.view(); }
  CloudView after() const { return pair_.after.view(); }
  std::size_t count() const { return pair_.before.count; }
  std::size_t dropped() const { return pair_.dropped; }
  /// Points that are one with an earlier one of their cloud: the most of any matrix made so far.
  std::size_t duplicates() const;
  const StatisticOptions& options() const { return options_; }
  DistanceOptions distance_options(Geometry geometry) const {
    return {.geometry = geometry,
            .rho = options_.rho,
            .threads = options_.threads,
            .accelerator = options_.accelerator,
            .spacing = options_.spacing};
  }

  /// Distances within the cloud before / after the layer.
  /// The reference lives as long as the workspace.
  Result<const DistanceMatrix*> distances_before(Geometry geometry);
  Result<const DistanceMatrix*> distances_after(Geometry geometry);

  /// Edges in ascending order of their length (sorted_edges up to the diameter); those of the
  /// hyperbolic geometry are the spherical ones. For clouds of at most kEdgePointsMax points.
  Result<std::span<const Edge>> order_before(Geometry geometry);
  Result<std::span<const Edge>> order_after(Geometry geometry);

  /// What the gromov statistic found beside its value, once it was evaluated in that geometry.
  const std::optional<WorkEnergies>& energies(Geometry geometry) const {
    return energies_[static_cast<std::size_t>(geometry)];
  }
  void keep_energies(Geometry geometry, const WorkEnergies& energies) {
    energies_[static_cast<std::size_t>(geometry)] = energies;
  }

  /// How far every token moves. The hyperbolic ones are the spherical ones mapped.
  Result<std::vector<double>> displacements(Geometry geometry);

  /// Degree-1 diagrams of the cloud before / after the layer;
  /// hyperbolic ones are spherical ones mapped.
  Result<const Diagram*> diagram_before(Geometry geometry);
  Result<const Diagram*> diagram_after(Geometry geometry);

 private:
  // What is known of one cloud, by geometry.
  struct Side {
    std::optional<DistanceMatrix> distances[std::size(kGeometries)];
    std::optional<std::vector<Edge>> orders[std::size(kGeometries)];
    std::optional<Diagram> diagrams[std::size(kGeometries)];
  };
  Result<const DistanceMatrix*> distances(Geometry geometry, CloudView cloud, Side& side);
  Result<std::span<const Edge>> order(Geometry geometry, CloudView cloud, Side& side);
  Result<const Diagram*> diagram(Geometry geometry, CloudView cloud, Side& side);

  CloudPair pair_;
  StatisticOptions options_;
  Side before_;
  Side after_;
  std::optional<std::vector<double>> angles_moved_;
  std::optional<WorkEnergies> energies_[std::size(kGeometries)];
};

/// How many tokens a statistic can afford: those linear in n use the larger sample of a profile.
enum class SampleSize { kLinear, kPairwise };

/// One row of the table.
struct Statistic {
  std::string_view name;     ///< as in files, tables and schedules
  std::string_view summary;  ///< one line for people
  SampleSize sample = SampleSize::kPairwise;
  /// Rough floating-point operations for n tokens of dimension d,
  /// to say beforehand how long it takes.
  double (*cost)(std::size_t n, std::size_t d) = nullptr;
  /// Bytes that one evaluation takes beside what the workspace keeps, for n tokens.
  double (*memory)(std::size_t n) = nullptr;
  /// The value. Errors: kInvalidArgument when a cloud leaves the range of float64.
  Result<double> (*evaluate)(PairWorkspace& pair, Geometry geometry) = nullptr;
  /// Of a statistic that is a mean over tokens: its terms, one a token, of which a profile takes
  /// the mean over all positions that it measures. Null for the others.
  Result<std::vector<double>> (*per_token)(PairWorkspace& pair, Geometry geometry) = nullptr;
  /// It keeps PairWorkspace::energies.
  bool has_energies = false;
};

}  // namespace tailor::geometry
