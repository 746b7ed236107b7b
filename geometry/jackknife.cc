// Leave-one-out means and the spread of what follows from them.
#include "geometry/jackknife.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "geometry/profile_shaping.h"
#include "geometry/statistics/table.h"

namespace tailor::geometry {

Result<WorkSeries> work_series(const WorkProfile& profile, Geometry geometry,
                               std::string_view statistic, bool sub_blocks) {
  WorkSeries series;
  std::vector<std::vector<double>> values(profile.subsamples);
  for (const WorkEntry& entry : profile.entries) {
    if (entry.geometry != geometry || entry.statistic != statistic ||
        (entry.sub_block >= 0) != sub_blocks) {
      continue;
    }
    series.layers.push_back(entry.layer);
    series.sub_blocks.push_back(entry.sub_block);
    series.values.push_back(entry.value);
    if (entry.subsample_values.size() != profile.subsamples) {
      if (series.no_error.empty()) {
        series.no_error =
            entry.no_error.empty() ? "values of the subsamples were not kept" : entry.no_error;
      }
      continue;
    }
    for (std::size_t r = 0; r < values.size(); ++r) values[r].push_back(entry.subsample_values[r]);
  }
  if (series.values.empty()) {
    return error(Code::kNotFound, fmt::format("the profile has no {} {}{}", geometry_name(geometry),
                                              statistic, sub_blocks ? " of sub-MLPs" : ""));
  }
  if (series.no_error.empty() && profile.subsamples < 2) series.no_error = profile.no_error;
  if (!series.no_error.empty()) return series;
  // A mean over positions weighs a subsample by how many it has.
  const auto known = find_statistic(statistic);
  std::vector<double> weights;
  if (known && (*known)->per_token != nullptr) {
    weights.assign(profile.subsample_tokens.begin(), profile.subsample_tokens.end());
    if (weights.size() != profile.subsamples) weights.clear();
  }
  series.without = leave_one_out(values, weights);
  return series;
}

std::vector<std::vector<double>> leave_one_out(std::span<const std::vector<double>> values,
                                               std::span<const double> weights) {
  TAILOR_CHECK(weights.empty() || weights.size() == values.size());
  std::vector<std::vector<double>> without;
  if (values.size() < 2) return without;
  for (std::size_t r = 0; r < values.size(); ++r) {
    std::vector<double> mean(values[r].size(), 0.0);
    double total = 0;
    for (std::size_t s = 0; s < values.size(); ++s) {
      if (s == r) continue;
      TAILOR_CHECK(values[s].size() == mean.size());
      const double weight = weights.empty() ? 1 : weights[s];
      total += weight;
      for (std::size_t l = 0; l < mean.size(); ++l) {
        mean[l] += (values[s][l] - mean[l]) * (weight / total);
      }
    }
    without.push_back(std::move(mean));
  }
  return without;
}

std::vector<double> jackknife_errors(std::span<const std::vector<double>> replicates) {
  TAILOR_CHECK(replicates.size() >= 2);
  const double count = static_cast<double>(replicates.size());
  std::vector<double> errors(replicates[0].size());
  for (std::size_t i = 0; i < errors.size(); ++i) {
    double mean = 0, square = 0, seen = 0;  // Welford
    for (const std::vector<double>& replicate : replicates) {
      TAILOR_CHECK(replicate.size() == errors.size());
      const double step = replicate[i] - mean;
      mean += step / ++seen;
      square += step * (replicate[i] - mean);
    }
    errors[i] = std::sqrt((count - 1) / count * square);
  }
  return errors;
}

Result<Derived> derive(const WorkSeries& series, const Pipeline& pipeline) {
  Derived derived;
  TAILOR_ASSIGN_OR_RETURN(derived.values, pipeline(series.values));
  derived.no_error = series.no_error;
  if (series.without.size() < 2) return derived;
  std::vector<std::vector<double>> replicates;
  for (std::size_t r = 0; r < series.without.size(); ++r) {
    auto one = pipeline(series.without[r]);
    if (!one) {
      derived.no_error = fmt::format("without subsample {}: {}", r, one.error().message());
      return derived;
    }
    if (one->size() != derived.values.size()) {
      derived.no_error = fmt::format("without subsample {} there is another number of values", r);
      return derived;
    }
    replicates.push_back(*std::move(one));
  }
  derived.errors = jackknife_errors(replicates);
  return derived;
}

std::vector<FrontLoad> front_loads(const WorkProfile& profile) {
  std::vector<FrontLoad> out;
  for (const Geometry geometry : kGeometries) {
    for (const Statistic& statistic : statistics()) {
      const auto series = work_series(profile, geometry, statistic.name);
      if (!series || series->values.size() < 3) continue;
      const auto derived =
          derive(*series, [](std::span<const double> work) -> Result<std::vector<double>> {
            TAILOR_ASSIGN_OR_RETURN(const double share, front_load_index(work));
            return std::vector<double>{share};
          });
      if (!derived) continue;
      FrontLoad& of = out.emplace_back();
      of.geometry = geometry;
      of.statistic = std::string(statistic.name);
      of.value = derived->values[0];
      of.no_error = derived->no_error;
      if (!derived->errors.empty()) of.standard_error = derived->errors[0];
    }
  }
  return out;
}

}  // namespace tailor::geometry
