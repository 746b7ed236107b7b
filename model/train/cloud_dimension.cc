#include "model/train/cloud_dimension.h"

#include <fmt/format.h>

#include <utility>

#include "geometry/intrinsic_dimension.h"

namespace tailor::train {

Result<std::vector<protocol::WorkEntry>> cloud_dimensions(std::span<const LayerRows> clouds,
                                                          std::size_t d_model, std::uint64_t seed,
                                                          int threads) {
  std::vector<protocol::WorkEntry> entries;
  for (const LayerRows& cloud : clouds) {
    const std::string what =
        cloud.sub_block < 0 ? fmt::format("layer {}", cloud.layer)
                            : fmt::format("sub-MLP {} of layer {}", cloud.sub_block, cloud.layer);
    const std::vector<double> values(cloud.before.begin(), cloud.before.end());
    geometry::DistanceOptions distance;
    distance.threads = threads;
    distance.spacing = geometry::kFloat32Spacing;
    const auto distances = geometry::pairwise_distances(
        geometry::CloudView(values, values.size() / d_model, d_model), distance);
    if (!distances) return error(distances.error().with_context(what));
    geometry::DimensionOptions options;
    options.seed = seed;
    const auto estimate = geometry::intrinsic_dimension(*distances, options);
    if (!estimate) return error(estimate.error().with_context(what));
    for (const auto& [name, value] : {std::pair{"two_nn", estimate->two_nn},
                                      std::pair{"levina_bickel", estimate->levina_bickel}}) {
      protocol::WorkEntry& entry = entries.emplace_back();
      entry.layer = static_cast<std::int32_t>(cloud.layer);
      entry.sub_block = cloud.sub_block;
      entry.geometry = "raw";
      entry.statistic = name;
      entry.value = value;
      entry.no_error = "measured once, on all positions";
    }
  }
  return entries;
}

}  // namespace tailor::train
