#include "model/train/clouds.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/json.h"
#include "base/rng.h"
#include "geometry/work_profile_json.h"
#include "model/train/cloud_dimension.h"
#include "protocol/limits.h"

namespace tailor::train {
namespace {

constexpr std::size_t kTokensOfSequenceMax = 4;

}  // namespace

std::size_t positions_wanted(std::size_t tokens, std::size_t subsamples) {
  const std::size_t sequences = (tokens + kTokensOfSequenceMax - 1) / kTokensOfSequenceMax;
  return (sequences + 1) * subsamples * kTokensOfSequenceMax;
}

std::vector<TokenPosition> choose_positions(std::uint64_t full_blocks, std::int64_t sequence_length,
                                            std::size_t count, std::uint64_t seed) {
  std::vector<TokenPosition> positions;
  if (full_blocks == 0 || sequence_length < 2 || count == 0) return positions;
  const auto usable = static_cast<std::uint64_t>(sequence_length - 1);
  const std::size_t of_sequence = std::min<std::size_t>(kTokensOfSequenceMax, usable);
  const std::uint64_t wanted = (count + of_sequence - 1) / of_sequence;
  const std::uint64_t blocks = std::min(full_blocks, wanted);
  const data::Permutation order(full_blocks, stable_hash("cloud blocks", seed));
  std::vector<std::uint64_t> chosen;
  for (std::uint64_t i = 0; i < blocks; ++i) chosen.push_back(order(i));
  std::sort(chosen.begin(), chosen.end());
  for (const std::uint64_t block : chosen) {
    const data::Permutation places(
        usable, stable_hash("cloud offsets", seed ^ (block * 0x9E3779B97F4A7C15ull)));
    std::vector<std::int64_t> offsets;
    for (std::uint64_t i = 0; i < of_sequence; ++i)
      offsets.push_back(1 + static_cast<std::int64_t>(places(i)));
    std::sort(offsets.begin(), offsets.end());
    for (const std::int64_t offset : offsets) {
      if (positions.size() < count) positions.push_back({block, offset});
    }
  }
  return positions;
}

Result<std::vector<LayerRows>> empty_clouds(const net::DecoderForm& form,
                                            const std::vector<std::int32_t>& layers,
                                            bool sub_blocks) {
  const auto depth = static_cast<std::int32_t>(form.depth());
  std::vector<std::int32_t> wanted = layers;
  for (std::int32_t layer = 0; layers.empty() && layer < depth; ++layer) wanted.push_back(layer);
  std::vector<LayerRows> clouds;
  std::set<std::int32_t> seen;
  for (const std::int32_t layer : wanted) {
    if (layer < 0 || layer >= depth) {
      return error(
          Code::kInvalidArgument,
          fmt::format("layer {} is not there; the network has layers 0 to {}", layer, depth - 1));
    }
    if (!seen.insert(layer).second) continue;
    const auto stack = static_cast<int>(form.layers[static_cast<std::size_t>(layer)].widths.size());
    for (int sub = -1; sub < (sub_blocks ? stack : 0); ++sub) {
      LayerRows& cloud = clouds.emplace_back();
      cloud.layer = layer;
      cloud.sub_block = sub;
    }
  }
  return clouds;
}

void append_clouds(net::Decoder& decoder, const at::Tensor& tokens_bt, const at::Tensor& rows,
                   std::vector<LayerRows>& clouds) {
  const c10::NoGradGuard no_grad;
  const at::Tensor index = rows.to(decoder.device());
  std::map<std::pair<std::int64_t, int>, LayerRows*> cloud_of;
  for (LayerRows& cloud : clouds) cloud_of[{cloud.layer, cloud.sub_block}] = &cloud;
  int sub = 0;  // the sub-MLP that comes next
  const net::Tap tap = [&](net::Place place, std::int64_t layer, const at::Tensor& x_nd) {
    if (!cloud_of.contains({layer, -1})) return;
    const bool enters = place == net::Place::kAfterAttention;
    if (!enters && place != net::Place::kAfterSubMlp && place != net::Place::kAfterFfn) return;
    if (place == net::Place::kAfterSubMlp && !cloud_of.contains({layer, sub})) return;
    const at::Tensor picked =
        at::index_select(x_nd, 0, index).to(at::kCPU, at::kFloat).contiguous();
    const float* values = picked.const_data_ptr<float>();
    const auto put = [&](int block, std::vector<float> LayerRows::*side) {
      const auto found = cloud_of.find({layer, block});
      if (found == cloud_of.end()) return;
      std::vector<float>& to = found->second->*side;
      to.insert(to.end(), values, values + picked.numel());
    };
    if (enters) {
      sub = 0;
      put(-1, &LayerRows::before);
      put(0, &LayerRows::before);
    } else if (place == net::Place::kAfterFfn) {
      put(-1, &LayerRows::after);
    } else {
      put(sub, &LayerRows::after);
      put(++sub, &LayerRows::before);
    }
  };
  decoder.hidden(tokens_bt.to(decoder.device()), &tap);
}

Result<std::vector<LayerRows>> take_clouds(net::Decoder& decoder,
                                           const data::EvaluationLoader& loader,
                                           const std::vector<TokenPosition>& positions,
                                           const std::vector<std::int32_t>& layers, bool sub_blocks,
                                           std::int64_t rows, const ShouldStop& should_stop) {
  TAILOR_ASSIGN_OR_RETURN(std::vector<LayerRows> clouds,
                          empty_clouds(decoder.form(), layers, sub_blocks));
  const auto d = static_cast<std::size_t>(decoder.form().d_model);
  for (LayerRows& cloud : clouds) {
    cloud.before.reserve(positions.size() * d);
    cloud.after.reserve(positions.size() * d);
  }
  const std::int64_t time = loader.sequence_length();
  for (std::size_t next = 0; next < positions.size();) {
    if (should_stop && should_stop()) return error(Code::kCancelled, "stopped while taking clouds");
    // The positions of the next `rows` distinct blocks.
    std::vector<std::uint64_t> blocks;
    std::vector<std::int64_t> wanted;
    while (next < positions.size()) {
      const TokenPosition& position = positions[next];
      if (blocks.empty() || blocks.back() != position.block) {
        if (static_cast<std::int64_t>(blocks.size()) == rows) break;
        blocks.push_back(position.block);
      }
      wanted.push_back((static_cast<std::int64_t>(blocks.size()) - 1) * time + position.offset);
      ++next;
    }
    const auto count = static_cast<std::int64_t>(blocks.size());
    at::Tensor tokens = at::empty({count, time}, at::kLong);
    std::vector<std::int64_t> targets(static_cast<std::size_t>(time));
    auto* data = tokens.mutable_data_ptr<std::int64_t>();
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const std::span<std::int64_t> row(data + static_cast<std::int64_t>(b) * time,
                                        static_cast<std::size_t>(time));
      TAILOR_RETURN_IF_ERROR(status_of(loader.fill<std::int64_t>(blocks[b], row, targets)));
    }
    append_clouds(decoder, tokens, at::tensor(wanted, at::kLong), clouds);
  }
  return clouds;
}

Result<MeasuredWork> measure_trial(net::Decoder& decoder, const data::EvaluationLoader& loader,
                                   const protocol::TrialSpec& spec, std::int64_t rows,
                                   const ShouldStop& should_stop,
                                   const geometry::Accelerator* accelerator) {
  geometry::WorkOptions options;
  options.accelerator = accelerator;
  options.tokens = static_cast<std::size_t>(spec.geometry.tokens);
  // No more than was taken: every position counts where a mean over positions is meant.
  options.linear_tokens = positions_wanted(options.tokens, 1);
  options.subsamples = static_cast<std::size_t>(spec.geometry.subsamples);
  options.rho = spec.geometry.rho;
  options.seed = spec.seed;
  options.threads = spec.threads;
  TAILOR_RETURN_IF_ERROR(options.validate());

  MeasuredWork work;
  const std::uint64_t full_blocks =
      loader.scored_tokens() / static_cast<std::uint64_t>(loader.sequence_length());
  work.positions =
      choose_positions(full_blocks, loader.sequence_length(),
                       positions_wanted(options.tokens, options.subsamples), spec.seed);
  if (work.positions.empty()) {
    return error(
        Code::kFailedPrecondition,
        "the validation data has no full sequence of two tokens or more to take clouds from");
  }
  TAILOR_ASSIGN_OR_RETURN(const std::vector<LayerRows> clouds,
                          take_clouds(decoder, loader, work.positions, spec.geometry.layers,
                                      spec.geometry.sub_blocks, rows, should_stop));
  std::vector<geometry::LayerClouds> views;
  for (const LayerRows& cloud : clouds) {
    geometry::LayerClouds view;
    view.layer = static_cast<int>(cloud.layer);
    view.sub_block = cloud.sub_block;
    view.before = cloud.before;
    view.after = cloud.after;
    view.dimension = static_cast<std::size_t>(decoder.form().d_model);
    views.push_back(view);
  }
  std::vector<std::int64_t> sequences;
  for (const TokenPosition& position : work.positions) {
    sequences.push_back(static_cast<std::int64_t>(position.block));
  }
  options.sequences = sequences;
  TAILOR_ASSIGN_OR_RETURN(work.profile, geometry::measure_work(views, options));
  if (spec.geometry.dimension) {
    auto dimensions = cloud_dimensions(clouds, static_cast<std::size_t>(decoder.form().d_model),
                                       spec.seed, spec.threads);
    if (dimensions) {
      work.dimensions = *std::move(dimensions);
    } else {
      work.dimension_failure = dimensions.error().message();
    }
  }
  return work;
}

protocol::ProfileReport to_report(const MeasuredWork& work, std::int64_t step) {
  const geometry::WorkProfile& profile = work.profile;
  protocol::ProfileReport report;
  report.step = step;
  report.tokens = static_cast<std::int32_t>(profile.tokens);
  report.subsamples = static_cast<std::int32_t>(profile.subsamples);
  report.linear_tokens = static_cast<std::int32_t>(profile.linear_tokens);
  report.rho = profile.rho;
  report.seed = profile.seed;
  report.dropped = static_cast<std::int32_t>(profile.dropped);
  report.subsamples_asked = static_cast<std::int32_t>(profile.subsamples_asked);
  report.positions = static_cast<std::int64_t>(profile.usable);
  report.sequences = static_cast<std::int64_t>(profile.sequences);
  report.sequences_given = profile.sequences_given;
  report.no_error = profile.no_error;
  report.subsample_tokens.assign(profile.subsample_tokens.begin(), profile.subsample_tokens.end());
  const bool keep_values =
      profile.entries.size() * profile.subsamples <= protocol::kProfileValuesMax;
  for (const geometry::WorkEntry& entry : profile.entries) {
    protocol::WorkEntry& one = report.entries.emplace_back();
    one.layer = entry.layer;
    one.sub_block = entry.sub_block;
    one.geometry = geometry::geometry_name(entry.geometry);
    one.statistic = entry.statistic;
    one.value = entry.value;
    one.standard_error = entry.standard_error;
    one.no_error = entry.no_error;
    if (keep_values) one.subsample_values = entry.subsample_values;
    if (entry.energies) {
      const geometry::WorkEnergies& of = *entry.energies;
      one.energies = {of.energy,       of.identity,    of.norm_bound,
                      of.second_bound, of.third_bound, static_cast<std::int64_t>(of.certified)};
    }
  }
  report.entries.insert(report.entries.end(), work.dimensions.begin(), work.dimensions.end());
  report.dimension_failure = work.dimension_failure;
  return report;
}

std::string work_profile_json(const MeasuredWork& work, const protocol::TrialSpec& spec,
                              std::int64_t step) {
  using nlohmann::ordered_json;
  ordered_json out = parse_ordered_json(geometry::work_profile_json(work.profile)).value();
  ordered_json positions = ordered_json::array();
  for (const TokenPosition& position : work.positions)
    positions.push_back({position.block, position.offset});
  out["step"] = step;
  out["sequence_length"] = spec.data.sequence_length;
  out["positions"] = std::move(positions);
  return out.dump() + "\n";
}

}  // namespace tailor::train
