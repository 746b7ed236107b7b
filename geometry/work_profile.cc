// Draws the positions, evaluates every (layer, subsample) on its own,
// then adds up in a fixed order.
#include "geometry/work_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/rng.h"
#include "geometry/cloud.h"
#include "geometry/kernels.h"
#include "geometry/parallel.h"
#include "geometry/sampling.h"
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
  std::vector<ClusterSums> sums;                      // of the same; of means over tokens only
  std::vector<std::optional<WorkEnergies>> energies;  // of the same; of matches only
  std::size_t duplicates = 0;
};

// Values of one (layer, subsample): geometries x statistics, in entry order. `sequences`: dense
// numbers of the positions' sequences.
Result<Evaluated> evaluate_all(const LayerClouds& layer, std::span<const std::uint32_t> positions,
                               std::size_t small, std::span<const std::uint32_t> sequences,
                               std::span<const Statistic* const> chosen,
                               const StatisticOptions& options) {
  const auto any = [&](SampleSize sample) {
    return std::any_of(chosen.begin(), chosen.end(),
                       [sample](const Statistic* s) { return s->sample == sample; });
  };
  std::optional<PairWorkspace> linear, pairwise;
  if (any(SampleSize::kLinear)) {
    TAILOR_ASSIGN_OR_RETURN(linear, make_pair(layer, positions, options));
  }
  if (any(SampleSize::kPairwise)) {
    TAILOR_ASSIGN_OR_RETURN(pairwise, make_pair(layer, positions.first(small), options));
  }
  Evaluated result;
  for (const Geometry geometry : kGeometries) {
    for (const Statistic* statistic : chosen) {
      const bool is_linear = statistic->sample == SampleSize::kLinear;
      PairWorkspace& pair = is_linear ? *linear : *pairwise;
      const auto failed = [&](const Status& why) {
        return error(why.with_context(fmt::format("{}, {} {}", layer_label(layer),
                                                  geometry_name(geometry), statistic->name)));
      };
      ClusterSums& sums = result.sums.emplace_back();
      std::optional<WorkEnergies>& energies = result.energies.emplace_back();
      if (is_linear && statistic->per_token != nullptr) {
        const auto terms = statistic->per_token(pair, geometry);
        if (!terms) return failed(terms.error());
        if (terms->size() != sequences.size()) {  // left out below, though usable above
          return failed(Status(
              Code::kInvalidArgument,
              fmt::format("the norm of a token is at the limit of a zero vector, {}", kZeroNorm)));
        }
        sums = ClusterSums(*terms, sequences);
        result.values.push_back(sums.mean());
        continue;
      }
      const auto value = statistic->evaluate(pair, geometry);
      if (!value) return failed(value.error());
      result.values.push_back(*value);
      if (statistic->has_energies) energies = pair.energies(geometry);
    }
  }
  if (pairwise) result.duplicates = pairwise->duplicates();
  return result;
}

// Means over the subsamples; none where one lacks them or cannot hold them.
std::optional<WorkEnergies> mean_energies(std::span<const Result<Evaluated>> runs, std::size_t at) {
  WorkEnergies mean;
  double seen = 0;
  for (const Result<Evaluated>& run : runs) {
    const std::optional<WorkEnergies>& one = run->energies[at];
    if (!one) return std::nullopt;
    ++seen;
    for (double WorkEnergies::*part :
         {&WorkEnergies::energy, &WorkEnergies::identity, &WorkEnergies::norm_bound,
          &WorkEnergies::second_bound, &WorkEnergies::third_bound}) {
      if (!std::isfinite((*one).*part)) return std::nullopt;
      mean.*part += ((*one).*part - mean.*part) / seen;
    }
    mean.certified += one->certified;
  }
  return mean;
}

// What the subsamples of a layer say about entry `at`.
WorkEntry summarise(std::span<const Result<Evaluated>> runs, std::size_t at,
                    const Statistic& statistic, const std::string& no_error) {
  WorkEntry entry;
  entry.statistic = std::string(statistic.name);
  for (const Result<Evaluated>& run : runs) entry.subsample_values.push_back(run->values[at]);
  entry.energies = mean_energies(runs, at);
  if (statistic.sample == SampleSize::kLinear && statistic.per_token != nullptr) {
    ClusterSums all;
    for (const Result<Evaluated>& run : runs) all.add(run->sums[at]);
    entry.value = all.mean();
    entry.standard_error = all.standard_error();
    // The reason for the others holds for it: one sequence makes one subsample.
    if (!entry.standard_error) entry.no_error = no_error;
  } else {
    double seen = 0;
    for (const double value : entry.subsample_values) entry.value += (value - entry.value) / ++seen;
    entry.standard_error = error_of_mean(entry.subsample_values);
    if (!entry.standard_error) entry.no_error = no_error;
  }
  if (entry.standard_error && !std::isfinite(*entry.standard_error)) {
    entry.standard_error.reset();
    entry.no_error = "the error is larger than float64 can hold";
  }
  return entry;
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

// R', if the sequences allow it.
std::size_t subsamples_at_most(std::size_t positions, const WorkOptions& options) {
  return std::clamp<std::size_t>(positions / options.tokens, 1, options.subsamples);
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
  if (!options.sequences.empty() && options.sequences.size() != positions) {
    return error(Code::kInvalidArgument, fmt::format("{} sequence numbers are given for {} tokens",
                                                     options.sequences.size(), positions));
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
  Sample sample = draw_sample(usable, options.sequences,
                              {.tokens = options.tokens,
                               .linear_tokens = options.linear_tokens,
                               .subsamples = options.subsamples,
                               .seed = options.seed});
  profile.tokens = sample.tokens;
  profile.subsamples = sample.subsamples.size();
  profile.subsamples_asked = options.subsamples;
  profile.usable = sample.positions;
  profile.sequences = sample.sequences;
  profile.sequences_given = !options.sequences.empty();
  profile.no_error = sample.no_error;
  profile.positions = std::move(sample.subsamples);
  for (const auto& of : profile.positions) {
    profile.subsample_tokens.push_back(of.size());
    profile.linear_tokens = std::max(profile.linear_tokens, of.size());
  }

  const std::size_t runs = profile.subsamples;
  std::vector<std::vector<std::uint32_t>> sequences;
  for (const auto& of : profile.positions) {
    sequences.push_back(dense_numbers(of, options.sequences));
  }
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
                                sequences[run], chosen, statistic_options);
  });

  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto of_layer = std::span(values).subspan(l * runs, runs);
    for (const Result<Evaluated>& run : of_layer) {
      if (!run) return error(run.error());
      profile.duplicates = std::max(profile.duplicates, run->duplicates);
    }
    std::size_t at = 0;
    for (const Geometry geometry : kGeometries) {
      for (const Statistic* statistic : chosen) {
        WorkEntry& entry =
            profile.entries.emplace_back(summarise(of_layer, at++, *statistic, profile.no_error));
        entry.layer = layers[l].layer;
        entry.sub_block = layers[l].sub_block;
        entry.geometry = geometry;
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
  // Subsamples share nothing, so there are no more of them than fit.
  const double runs = static_cast<double>(subsamples_at_most(positions, options));
  const double threads =
      std::min(static_cast<double>(options.threads), runs * static_cast<double>(layers));
  // Per token of a linear sample: its displacement, its sequence, and what adds up a sequence.
  return sampling_memory_bytes(positions) +
         threads * (std::max(gathered, matrices) + kept + 60 * m);
}

double work_cost(std::size_t layers, std::size_t positions, std::size_t dimension,
                 const WorkOptions& options) {
  const auto chosen = choose(options);
  if (!chosen) return 0;
  const std::size_t small = std::min(options.tokens, positions);
  const std::size_t runs = subsamples_at_most(positions, options);
  const std::size_t large = std::min(options.linear_tokens, positions / runs);
  double total = 0;
  for (const Statistic* statistic : *chosen) {
    const std::size_t n = statistic->sample == SampleSize::kLinear ? large : small;
    total += static_cast<double>(std::size(kGeometries)) * statistic->cost(n, dimension);
  }
  return total * static_cast<double>(layers) * static_cast<double>(runs);
}

}  // namespace tailor::geometry
