// Draws the positions, evaluates every (layer, subsample) on its own,
// then averages in a fixed order.
#include "geometry/work_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/rng.h"
#include "geometry/cloud.h"
#include "geometry/kernels.h"
#include "geometry/parallel.h"
#include "geometry/statistics/table.h"

namespace tailor::geometry {
namespace {

std::string layer_label(const LayerClouds& layer) {
  return layer.sub_block < 0 ? fmt::format("layer {}", layer.layer)
                             : fmt::format("layer {}, sub-block {}", layer.layer, layer.sub_block);
}

Status check_side(const LayerClouds& layer, std::span<const float> side, std::string_view name,
                  std::size_t positions) {
  if (side.size() != positions * layer.dimension) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: the cloud {} has {} numbers, not {} positions of dimension {}",
                              layer_label(layer), name, side.size(), positions, layer.dimension));
  }
  for (std::size_t i = 0; i < side.size(); ++i) {
    if (!std::isfinite(side[i])) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("{}: the cloud {} holds {} at position {}, coordinate {}", layer_label(layer),
                      name, side[i], i / layer.dimension, i % layer.dimension));
    }
  }
  return Status::ok();
}

bool is_zero_row(std::span<const float> row) {
  double sum = 0;
  for (const float x : row) {
    sum += static_cast<double>(x) * static_cast<double>(x);
    if (sum > 2 * kZeroNorm * kZeroNorm) return false;  // as most are at once
  }
  return std::sqrt(sum) < kZeroNorm;
}

// Positions at which every layer has a direction, before and after.
std::vector<std::uint32_t> usable_positions(std::span<const LayerClouds> layers,
                                            std::size_t positions) {
  std::vector<char> usable(positions, 1);
  for (const LayerClouds& layer : layers) {
    for (std::size_t i = 0; i < positions; ++i) {
      const std::size_t at = i * layer.dimension;
      if (is_zero_row(layer.before.subspan(at, layer.dimension)) ||
          is_zero_row(layer.after.subspan(at, layer.dimension))) {
        usable[i] = 0;
      }
    }
  }
  std::vector<std::uint32_t> result;
  for (std::size_t i = 0; i < positions; ++i) {
    if (usable[i]) result.push_back(static_cast<std::uint32_t>(i));
  }
  return result;
}

void shuffle(std::vector<std::uint32_t>& values, Rng& rng) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[static_cast<std::size_t>(rng.below(i))]);
  }
}

// `count` subsamples of `small` positions each, extended to `large` by other positions.
std::vector<std::vector<std::uint32_t>> draw_positions(const std::vector<std::uint32_t>& usable,
                                                       std::size_t count, std::size_t small,
                                                       std::size_t large, std::uint64_t seed) {
  std::vector<std::vector<std::uint32_t>> drawn(count);
  std::vector<std::uint32_t> base = usable;
  Rng base_rng = Rng::split(seed, "work profile positions");
  shuffle(base, base_rng);
  const bool disjoint = usable.size() / count >= small;
  for (std::size_t r = 0; r < count; ++r) {
    std::vector<std::uint32_t> order = base;
    if (disjoint) {
      // Block r of the one permutation first; the rest, shuffled on its own, extends it.
      std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(r * small),
                  order.end());
      std::vector<std::uint32_t> rest(order.begin() + static_cast<std::ptrdiff_t>(small),
                                      order.end());
      Rng rng = Rng::split(seed, fmt::format("work profile extension {}", r));
      if (usable.size() / count >= large) {
        // Large blocks can be disjoint too: small block r plus block r of what no small block uses.
        const std::size_t free_from = count * small;
        std::vector<std::uint32_t> free(base.begin() + static_cast<std::ptrdiff_t>(free_from),
                                        base.end());
        const std::size_t extra = large - small;
        rest.assign(free.begin() + static_cast<std::ptrdiff_t>(r * extra),
                    free.begin() + static_cast<std::ptrdiff_t>((r + 1) * extra));
      } else {
        shuffle(rest, rng);
      }
      order.resize(small);
      order.insert(order.end(), rest.begin(), rest.end());
    } else if (r > 0) {
      Rng rng = Rng::split(seed, fmt::format("work profile subsample {}", r));
      shuffle(order, rng);
    }
    order.resize(large);
    drawn[r] = std::move(order);
  }
  return drawn;
}

std::vector<double> gather(std::span<const float> side, std::size_t dimension,
                           std::span<const std::uint32_t> positions) {
  std::vector<double> out(positions.size() * dimension);
  double* target = out.data();
  for (const std::uint32_t position : positions) {
    const float* source = side.data() + position * dimension;
    for (std::size_t k = 0; k < dimension; ++k) target[k] = static_cast<double>(source[k]);
    target += dimension;
  }
  return out;
}

Result<PairWorkspace> make_pair(const LayerClouds& layer, std::span<const std::uint32_t> positions,
                                const StatisticOptions& options) {
  const std::vector<double> before = gather(layer.before, layer.dimension, positions);
  const std::vector<double> after = gather(layer.after, layer.dimension, positions);
  return PairWorkspace::create({before, positions.size(), layer.dimension},
                               {after, positions.size(), layer.dimension}, options);
}

struct Evaluated {
  std::vector<double> values;
  std::size_t duplicates = 0;
};

// Values of one (layer, subsample): geometries x statistics, in entry order. Without `with_linear`
// those of linear statistics are left at 0.
Result<Evaluated> evaluate_all(const LayerClouds& layer, std::span<const std::uint32_t> positions,
                               std::size_t small, bool with_linear,
                               std::span<const Statistic* const> chosen,
                               const StatisticOptions& options) {
  const bool any_linear =
      with_linear && std::any_of(chosen.begin(), chosen.end(), [](const Statistic* s) {
        return s->sample == SampleSize::kLinear;
      });
  const bool any_pairwise = std::any_of(chosen.begin(), chosen.end(), [](const Statistic* s) {
    return s->sample == SampleSize::kPairwise;
  });
  std::optional<PairWorkspace> linear, pairwise;
  if (any_linear) {
    TAILOR_ASSIGN_OR_RETURN(linear, make_pair(layer, positions, options));
  }
  if (any_pairwise) {
    TAILOR_ASSIGN_OR_RETURN(pairwise, make_pair(layer, positions.first(small), options));
  }
  Evaluated result;
  for (const Geometry geometry : kGeometries) {
    for (const Statistic* statistic : chosen) {
      if (statistic->sample == SampleSize::kLinear && !with_linear) {
        result.values.push_back(0);
        continue;
      }
      PairWorkspace& pair = statistic->sample == SampleSize::kLinear ? *linear : *pairwise;
      auto value = statistic->evaluate(pair, geometry);
      if (!value) {
        return error(value.error().with_context(fmt::format(
            "{}, {} {}", layer_label(layer), geometry_name(geometry), statistic->name)));
      }
      result.values.push_back(*value);
    }
  }
  if (pairwise) result.duplicates = pairwise->duplicates();
  return result;
}

Result<std::vector<const Statistic*>> choose(const WorkOptions& options) {
  std::vector<const Statistic*> chosen;
  for (const std::string& name : options.statistics) {
    TAILOR_RETURN_IF_ERROR(status_of(find_statistic(name)));
  }
  for (const Statistic& statistic : statistics()) {
    if (options.statistics.empty() ||
        std::find(options.statistics.begin(), options.statistics.end(), statistic.name) !=
            options.statistics.end()) {
      chosen.push_back(&statistic);
    }
  }
  return chosen;
}

}  // namespace

Status WorkOptions::validate() const {
  TAILOR_RETURN_IF_ERROR(
      (StatisticOptions{.rho = rho, .seed = seed, .threads = threads}.validate()));
  if (tokens < 1 || subsamples < 1) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("tokens and subsamples must be at least 1, got {} and {}", tokens, subsamples));
  }
  if (linear_tokens < tokens) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("linear_tokens ({}) must not be below tokens ({})", linear_tokens, tokens));
  }
  return Status::ok();
}

Result<WorkProfile> measure_work(std::span<const LayerClouds> layers, const WorkOptions& options) {
  TAILOR_RETURN_IF_ERROR(options.validate());
  TAILOR_ASSIGN_OR_RETURN(const std::vector<const Statistic*> chosen, choose(options));
  WorkProfile profile;
  profile.rho = options.rho;
  profile.seed = options.seed;
  if (layers.empty()) return profile;

  if (layers[0].dimension == 0) {
    return error(Code::kInvalidArgument,
                 fmt::format("{}: the dimension is 0", layer_label(layers[0])));
  }
  const std::size_t positions = layers[0].before.size() / layers[0].dimension;
  for (const LayerClouds& layer : layers) {
    if (layer.dimension == 0) {
      return error(Code::kInvalidArgument,
                   fmt::format("{}: the dimension is 0", layer_label(layer)));
    }
    TAILOR_RETURN_IF_ERROR(check_side(layer, layer.before, "before", positions));
    TAILOR_RETURN_IF_ERROR(check_side(layer, layer.after, "after", positions));
  }
  const double needed = work_memory_bytes(layers.size(), positions, layers[0].dimension, options);
  if (needed > options.memory_bytes_max) {
    return error(
        Code::kResourceExhausted,
        fmt::format("work of {} tokens in subsamples of {} (shift: {}) on {} threads needs {:.3g} "
                    "GiB, the limit is {:.3g} GiB; take smaller subsamples or fewer threads",
                    positions, std::min(options.tokens, positions),
                    std::min(options.linear_tokens, positions), options.threads, needed / (1 << 30),
                    options.memory_bytes_max / (1 << 30)));
  }
  const std::vector<std::uint32_t> usable = usable_positions(layers, positions);
  profile.dropped = positions - usable.size();
  if (usable.empty()) {
    return error(Code::kInvalidArgument,
                 fmt::format("no usable token position: {} given, {} with a zero vector", positions,
                             profile.dropped));
  }
  profile.tokens = std::min(options.tokens, usable.size());
  profile.linear_tokens = std::min(options.linear_tokens, usable.size());
  // All subsamples of everything are the same one.
  profile.subsamples = profile.tokens == usable.size() ? 1 : options.subsamples;
  profile.positions = draw_positions(usable, profile.subsamples, profile.tokens,
                                     profile.linear_tokens, options.seed);

  const std::size_t runs = profile.subsamples;
  // Large samples that hold every position are all the same one: measured once.
  const bool one_linear = profile.linear_tokens == usable.size();
  std::vector<Result<Evaluated>> values(layers.size() * runs);
  parallel_for(options.threads, values.size(), [&](std::size_t item) {
    const std::size_t run = item % runs;
    const StatisticOptions statistic_options{
        .rho = options.rho,
        .seed = Rng::split(options.seed, fmt::format("statistic {}", run)).next_u64(),
        .threads = 1,
        .accelerator = options.accelerator,
        .spacing = kFloat32Spacing};
    values[item] = evaluate_all(layers[item / runs], profile.positions[run], profile.tokens,
                                run == 0 || !one_linear, chosen, statistic_options);
  });

  for (std::size_t l = 0; l < layers.size(); ++l) {
    for (std::size_t r = 0; r < runs; ++r) {
      if (!values[l * runs + r]) return error(values[l * runs + r].error());
      profile.duplicates = std::max(profile.duplicates, values[l * runs + r]->duplicates);
    }
    std::size_t at = 0;
    for (const Geometry geometry : kGeometries) {
      for (const Statistic* statistic : chosen) {
        double mean = 0, square = 0;  // Welford
        for (std::size_t r = 0; r < runs; ++r) {
          const bool shared = one_linear && statistic->sample == SampleSize::kLinear;
          const double value = values[l * runs + (shared ? 0 : r)]->values[at];
          const double step = value - mean;
          mean += step / static_cast<double>(r + 1);
          square += step * (value - mean);
        }
        const double count = static_cast<double>(runs);
        const double se = runs < 2 ? 0 : std::sqrt(square / (count - 1) / count);
        profile.entries.push_back({.layer = layers[l].layer,
                                   .sub_block = layers[l].sub_block,
                                   .geometry = geometry,
                                   .statistic = std::string(statistic->name),
                                   .value = mean,
                                   .standard_error = se});
        ++at;
      }
    }
  }
  return profile;
}

double work_memory_bytes(std::size_t layers, std::size_t positions, std::size_t dimension,
                         const WorkOptions& options) {
  const auto chosen = choose(options);
  if (!chosen || !options.validate().is_ok()) return 0;
  const std::size_t small = std::min(options.tokens, positions);
  const std::size_t large = std::min(options.linear_tokens, positions);
  const double s = static_cast<double>(small), m = static_cast<double>(large);
  const double d = static_cast<double>(PaddedRows::padded_width(dimension));
  bool linear = false, pairwise = false;
  // The largest of what is made on the way: a padded cloud, two lists of edges, a statistic's own.
  double made = std::max(8 * s * d, 8 * s * s);
  for (const Statistic* statistic : *chosen) {
    const bool is_linear = statistic->sample == SampleSize::kLinear;
    (is_linear ? linear : pairwise) = true;
    made = std::max(made, statistic->memory(is_linear ? large : small));
  }
  // A pair of clouds, gathered and then cleaned: twice two clouds of float64, of which two stay.
  const double gathered = 16 * d * std::max(linear ? m : 0, pairwise ? s : 0);
  const double kept = 16 * d * ((linear ? m : 0) + (pairwise ? s : 0));
  // Six matrices and four orders of edges.
  const double matrices = pairwise ? 6 * 8 * s * s + 4 * 4 * s * s + made : 0;
  const double runs = small == positions ? 1 : static_cast<double>(options.subsamples);
  const double threads =
      std::min(static_cast<double>(options.threads), runs * static_cast<double>(layers));
  // Drawn positions, 32 bits each: one list a subsample and three to draw from.
  const double drawn = 4 * static_cast<double>(positions) * (runs + 4);
  return drawn + threads * (std::max(gathered, matrices) + kept + 24 * m);
}

double work_cost(std::size_t layers, std::size_t positions, std::size_t dimension,
                 const WorkOptions& options) {
  const auto chosen = choose(options);
  if (!chosen) return 0;
  const std::size_t small = std::min(options.tokens, positions);
  const std::size_t large = std::min(options.linear_tokens, positions);
  double total = 0;
  for (const Statistic* statistic : *chosen) {
    const std::size_t n = statistic->sample == SampleSize::kLinear ? large : small;
    total += static_cast<double>(std::size(kGeometries)) * statistic->cost(n, dimension);
  }
  return total * static_cast<double>(layers) * static_cast<double>(options.subsamples);
}

}  // namespace tailor::geometry
