#include "model/diagnose/measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "geometry/distance.h"
#include "geometry/intrinsic_dimension.h"

namespace tailor::diagnose {
namespace {

using geometry::DistanceMatrix;
using nlohmann::json;
using nlohmann::ordered_json;

using CloudPairs = std::vector<std::pair<std::vector<float>, std::vector<float>>>;

std::vector<float> rows_of(std::span<const float> cloud, std::size_t dimension,
                           std::span<const std::uint32_t> rows, float scale = 1) {
  std::vector<float> out;
  out.reserve(rows.size() * dimension);
  for (const std::uint32_t row : rows) {
    const auto values = cloud.subspan(row * dimension, dimension);
    for (const float value : values) out.push_back(value * scale);
  }
  return out;
}

double norm_of(std::span<const float> row) {
  double squares = 0;
  for (const float value : row) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

double norm_of_difference(std::span<const float> a, std::span<const float> b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    squares += difference * difference;
  }
  return std::sqrt(squares);
}

struct Named {
  const char* name;
  double geometry::DimensionEstimate::*value;
};
constexpr Named kEstimators[] = {{"two_nn", &geometry::DimensionEstimate::two_nn},
                                 {"two_nn_fit", &geometry::DimensionEstimate::two_nn_fit},
                                 {"levina_bickel", &geometry::DimensionEstimate::levina_bickel}};

// Distances among `keep`.
Result<DistanceMatrix> part_of(const DistanceMatrix& whole, const std::vector<std::size_t>& keep) {
  std::vector<double> values;
  values.reserve(keep.size() * keep.size());
  for (const std::size_t i : keep) {
    for (const std::size_t j : keep) values.push_back(whole(i, j));
  }
  return DistanceMatrix::from_square(std::move(values), keep.size(), geometry::kFloat32Spacing);
}

void measure_dimension(std::span<const float> before, std::size_t dimension,
                       const Sampling& sampling, const MeasurementOptions& options,
                       LayerMeasurement& out) {
  geometry::Cloud cloud;
  cloud.dimension = dimension;
  for (const auto& rows : sampling.subsamples) {
    for (const float value : rows_of(before, dimension, rows)) cloud.values.push_back(value);
    cloud.count += rows.size();
  }
  geometry::DistanceOptions distances;
  distances.threads = options.threads;
  distances.spacing = geometry::kFloat32Spacing;
  const auto whole = geometry::pairwise_distances(cloud.view(), distances);
  if (!whole) {
    out.dimension_reason = whole.error().message();
    return;
  }
  const auto estimate = geometry::intrinsic_dimension(*whole);
  if (!estimate) {
    out.dimension_reason = estimate.error().message();
    return;
  }
  out.dimension_points = estimate->points;
  out.dimension_duplicates = estimate->dropped;
  for (const Named& named : kEstimators) {
    out.dimension[named.name].value = (*estimate).*(named.value);
  }
  std::string reason;
  std::vector<geometry::DimensionEstimate> without;
  const std::size_t groups = sampling.subsamples.size();
  if (groups < 2) reason = sampling.reason;
  for (std::size_t left_out = 0; groups > 1 && left_out < groups && reason.empty(); ++left_out) {
    std::vector<std::size_t> keep;
    for (std::size_t i = 0; i < cloud.count; ++i) {
      if (i / sampling.tokens != left_out) keep.push_back(i);
    }
    const auto part = part_of(*whole, keep);
    if (!part) {
      reason = part.error().message();
      break;
    }
    const auto value = geometry::intrinsic_dimension(*part);
    if (value) {
      without.push_back(*value);
    } else {
      reason = fmt::format("without subsample {}: {}", left_out, value.error().message());
    }
  }
  for (const Named& named : kEstimators) {
    DimensionValue& value = out.dimension[named.name];
    value.reason = reason;
    if (!reason.empty()) continue;
    for (const geometry::DimensionEstimate& one : without) {
      value.without_subsample.push_back(one.*(named.value));
    }
  }
}

ordered_json keyed_json(const std::map<WorkKey, std::vector<double>>& values) {
  ordered_json out = ordered_json::array();
  for (const auto& [key, numbers] : values) {
    out.push_back({{"geometry", key.first}, {"statistic", key.second}, {"values", numbers}});
  }
  return out;
}

std::map<WorkKey, std::vector<double>> keyed_from(const json& list) {
  std::map<WorkKey, std::vector<double>> out;
  for (const json& entry : list) {
    out[{entry.at("geometry").get<std::string>(), entry.at("statistic").get<std::string>()}] =
        entry.at("values").get<std::vector<double>>();
  }
  return out;
}

}  // namespace

Result<Sampling> sample_rows(std::size_t rows, std::size_t per_sequence, std::size_t tokens,
                             std::size_t asked, const std::vector<bool>& zero) {
  Sampling out;
  out.subsamples_asked = asked;
  const std::size_t sequences = per_sequence == 0 ? 0 : rows / per_sequence;
  if (sequences == 0 || tokens == 0 || asked == 0) {
    return error(Code::kFailedPrecondition, "no token to take clouds from: give more data");
  }
  const std::size_t of_subsample = (tokens + per_sequence - 1) / per_sequence;  // whole sequences
  std::size_t used = std::min(asked, sequences / of_subsample);
  if (used == 0) {
    used = 1;
    tokens = std::min(tokens, sequences * per_sequence);
  }
  if (used < asked) {
    out.reason = fmt::format(
        "{} sequences give {} of {} subsamples of {} tokens{}", sequences, used, asked, tokens,
        used < 2 ? ": one subsample has no standard error; give more data" : "");
  } else if (used < 2) {
    out.reason = "one subsample was asked for: no standard error";
  }
  std::size_t least = tokens;
  for (std::size_t r = 0; r < used; ++r) {
    std::vector<std::uint32_t> chosen;
    const std::size_t first = r * of_subsample * per_sequence;
    const std::size_t end = std::min(first + of_subsample * per_sequence, sequences * per_sequence);
    for (std::size_t row = first; row < end; ++row) {
      if (row < zero.size() && zero[row]) {
        ++out.zero_vectors;
      } else if (chosen.size() < tokens) {
        chosen.push_back(static_cast<std::uint32_t>(row));
      }
    }
    least = std::min(least, chosen.size());
    out.subsamples.push_back(std::move(chosen));
  }
  if (least == 0) {
    return error(Code::kFailedPrecondition,
                 "every token of a subsample has a zero vector at some layer: nothing to measure");
  }
  for (auto& chosen : out.subsamples) chosen.resize(least);
  out.tokens = least;
  out.positions = least * used;
  out.sequences = std::min(sequences, used * of_subsample);
  return out;
}

Result<std::vector<std::map<WorkKey, double>>> measure_clouds(
    std::span<const std::pair<std::vector<float>, std::vector<float>>> clouds,
    std::size_t dimension, const MeasurementOptions& options) {
  if (clouds.empty()) return std::vector<std::map<WorkKey, double>>();
  // Every pair stands as a layer of one profile, so that pairs share the threads.
  std::vector<geometry::LayerClouds> layers;
  for (std::size_t i = 0; i < clouds.size(); ++i) {
    geometry::LayerClouds view;
    view.layer = static_cast<int>(i);
    view.before = clouds[i].first;
    view.after = clouds[i].second;
    view.dimension = dimension;
    layers.push_back(view);
  }
  geometry::WorkOptions work;
  work.tokens = clouds.front().first.size() / dimension;
  work.linear_tokens = work.tokens;
  work.subsamples = 1;
  work.rho = options.rho;
  work.seed = options.seed;
  work.threads = options.threads;
  TAILOR_ASSIGN_OR_RETURN(const geometry::WorkProfile profile,
                          geometry::measure_work(layers, work));
  std::vector<std::map<WorkKey, double>> out(clouds.size());
  for (const geometry::WorkEntry& entry : profile.entries) {
    out[static_cast<std::size_t>(entry.layer)]
       [{std::string(geometry_name(entry.geometry)), entry.statistic}] = entry.value;
  }
  return out;
}

Result<LayerMeasurement> measure_layer(int layer, std::span<const float> before,
                                       std::span<const float> after, std::size_t dimension,
                                       const Sampling& sampling,
                                       const MeasurementOptions& options) {
  LayerMeasurement out;
  out.layer = layer;
  CloudPairs clouds;
  for (const auto& rows : sampling.subsamples) {
    double x = 0, f = 0;
    for (const std::uint32_t row : rows) {
      const auto from = before.subspan(row * dimension, dimension);
      const auto to = after.subspan(row * dimension, dimension);
      x += norm_of(from);
      f += norm_of_difference(to, from);
    }
    const auto count = static_cast<double>(rows.size());
    if (!std::isfinite(x) || !std::isfinite(f)) {
      return error(Code::kOutOfRange,
                   fmt::format("the stream at layer {} is not finite: the weights are broken or "
                               "overflow in this type",
                               layer));
    }
    out.norm_x.push_back(x / count);
    out.norm_f.push_back(f / count);
    clouds.emplace_back(rows_of(before, dimension, rows), rows_of(after, dimension, rows));
  }
  const std::size_t subsamples = clouds.size();
  for (const double scale : kScales) {
    if (scale == 1) continue;
    const auto& rows = sampling.subsamples.front();
    clouds.emplace_back(rows_of(before, dimension, rows, static_cast<float>(scale)),
                        rows_of(after, dimension, rows, static_cast<float>(scale)));
  }
  const auto work = measure_clouds(clouds, dimension, options);
  if (work) {
    for (std::size_t r = 0; r < subsamples; ++r) {
      for (const auto& [key, value] : (*work)[r]) out.work[key].push_back(value);
    }
    for (const auto& [key, value] : work->front()) {
      std::size_t next = subsamples;
      for (const double scale : kScales) {
        out.by_scale[key].push_back(scale == 1 ? value : (*work)[next++].at(key));
      }
    }
  } else {
    out.work_reason = work.error().message();
  }
  measure_dimension(before, dimension, sampling, options, out);
  return out;
}

ordered_json measurement_json(const LayerMeasurement& m) {
  ordered_json dimension = ordered_json::object();
  for (const auto& [name, value] : m.dimension) {
    dimension[name] = {{"value", value.value},
                       {"without_subsample", value.without_subsample},
                       {"reason", value.reason}};
  }
  return {{"layer", m.layer},
          {"work", keyed_json(m.work)},
          {"by_scale", keyed_json(m.by_scale)},
          {"work_reason", m.work_reason},
          {"norm_x", m.norm_x},
          {"norm_f", m.norm_f},
          {"dimension", std::move(dimension)},
          {"dimension_reason", m.dimension_reason},
          {"dimension_points", m.dimension_points},
          {"dimension_duplicates", m.dimension_duplicates}};
}

Result<LayerMeasurement> measurement_from_json(const json& from) {
  try {
    LayerMeasurement m;
    m.layer = from.at("layer").get<int>();
    m.work = keyed_from(from.at("work"));
    m.by_scale = keyed_from(from.at("by_scale"));
    m.work_reason = from.at("work_reason").get<std::string>();
    m.norm_x = from.at("norm_x").get<std::vector<double>>();
    m.norm_f = from.at("norm_f").get<std::vector<double>>();
    for (const auto& [name, value] : from.at("dimension").items()) {
      m.dimension[name] = {value.at("value").get<double>(),
                           value.at("without_subsample").get<std::vector<double>>(),
                           value.at("reason").get<std::string>()};
    }
    m.dimension_reason = from.at("dimension_reason").get<std::string>();
    m.dimension_points = from.at("dimension_points").get<std::size_t>();
    m.dimension_duplicates = from.at("dimension_duplicates").get<std::size_t>();
    return m;
  } catch (const json::exception& failure) {
    return error(Code::kDataLoss, fmt::format("a measured layer: {}", failure.what()));
  }
}

}  // namespace tailor::diagnose
