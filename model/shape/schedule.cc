// Profiles and the largest-remainder rounding of schedule.h.
#include "model/shape/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace tailor::shape {
namespace {

/// Fixed point in which shares are compared.
constexpr std::int64_t kScale = 1 << 20;
constexpr std::int64_t kWidthMax = 1 << 20;

constexpr ScheduleKind kKinds[] = {ScheduleKind::kUniform, ScheduleKind::kCosine,
                                   ScheduleKind::kLinear, ScheduleKind::kSigmoid,
                                   ScheduleKind::kBowtie};

/// t_l of the bow-tie: 0 at both ends, 1 at the turning layer.
std::vector<double> bowtie_places(double turn, std::int32_t layers) {
  const std::int32_t k =
      std::clamp(static_cast<std::int32_t>(std::lround(turn * layers)), 1, layers);
  std::vector<double> out;
  for (std::int32_t l = 1; l <= layers; ++l) {
    // At an end, the turn has one side alone.
    out.push_back(l == k  ? 1.0
                  : l < k ? static_cast<double>(l - 1) / (k - 1)
                          : static_cast<double>(layers - l) / (layers - k));
  }
  return out;
}

/// exp(-s t) with mean 1 and minimum rho: the minimum falls as s grows, so s is bisected.
std::vector<double> bowtie_profile(const WidthSchedule& schedule, std::int32_t layers) {
  const std::vector<double> places = bowtie_places(schedule.turn, layers);
  std::vector<double> out(places.size(), 1.0);
  const auto fill = [&](double s) {
    double sum = 0;
    for (std::size_t l = 0; l < places.size(); ++l) sum += out[l] = std::exp(-s * places[l]);
    for (double& r : out) r *= static_cast<double>(layers) / sum;
    return *std::min_element(out.begin(), out.end());
  };
  double low = 0, high = 1;
  while (high < 600 && fill(high) > schedule.waist) high *= 2;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (fill(middle) > schedule.waist ? low : high) = middle;
  }
  fill(high);
  return out;
}

}  // namespace

std::string_view schedule_kind_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kUniform:
      return "uniform";
    case ScheduleKind::kCosine:
      return "cosine";
    case ScheduleKind::kLinear:
      return "linear";
    case ScheduleKind::kSigmoid:
      return "sigmoid";
    case ScheduleKind::kBowtie:
      return "bowtie";
  }
  TAILOR_CHECK(false, "kind={}", static_cast<int>(kind));
  return {};
}

std::string_view schedule_convention_name(ScheduleConvention convention) {
  return convention == ScheduleConvention::kEndpoint ? "endpoint" : "midpoint";
}

Result<ScheduleKind> parse_schedule_kind(std::string_view name) {
  for (const auto kind : kKinds) {
    if (schedule_kind_name(kind) == name) return kind;
  }
  return error(
      Code::kInvalidArgument,
      fmt::format("schedule kind is \"{}\"; allowed: uniform, cosine, linear, sigmoid, bowtie",
                  name));
}

Result<ScheduleConvention> parse_schedule_convention(std::string_view name) {
  if (name == "endpoint") return ScheduleConvention::kEndpoint;
  if (name == "midpoint") return ScheduleConvention::kMidpoint;
  return error(Code::kInvalidArgument,
               fmt::format("schedule convention is \"{}\"; allowed: endpoint, midpoint", name));
}

std::vector<double> schedule_profile(const WidthSchedule& schedule, std::int32_t layers) {
  TAILOR_CHECK(layers >= 1, "layers={}", layers);
  std::vector<double> out(static_cast<std::size_t>(layers), 1.0);
  if (layers == 1 || schedule.kind == ScheduleKind::kUniform) return out;
  if (schedule.kind == ScheduleKind::kBowtie) return bowtie_profile(schedule, layers);
  for (std::int32_t l = 0; l < layers; ++l) {
    const double t = schedule.convention == ScheduleConvention::kEndpoint
                         ? static_cast<double>(l) / (layers - 1)
                         : (l + 0.5) / layers;
    if (schedule.kind == ScheduleKind::kSigmoid) {
      out[static_cast<std::size_t>(l)] =
          schedule.low +
          (schedule.high - schedule.low) / (1 + std::exp(schedule.steepness * (2 * t - 1)));
      continue;
    }
    const double along =
        schedule.kind == ScheduleKind::kCosine ? std::cos(std::numbers::pi * t) : 1.0 - 2.0 * t;
    out[static_cast<std::size_t>(l)] =
        (schedule.high + schedule.low) / 2 + (schedule.high - schedule.low) / 2 * along;
  }
  return out;
}

Result<std::vector<std::int64_t>> apportion(std::span<const double> weights, std::int64_t total,
                                            std::int64_t multiple) {
  if (weights.empty() || multiple < 1 || total < 1) {
    return error(Code::kOutOfRange,
                 fmt::format("cannot split {} hidden units over {} sub-MLPs in units of {}",
                             with_thousands(total), weights.size(), multiple));
  }
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] <= 0) {
      return error(
          Code::kOutOfRange,
          fmt::format("the schedule gives sub-MLP {} the relative width {}; allowed: finite "
                      "numbers above 0",
                      i, weights[i]));
    }
    sum += weights[i];
  }
  if (total % multiple != 0) {
    return error(Code::kOutOfRange,
                 fmt::format("{} hidden units are no multiple of {}: {} are left over",
                             with_thousands(total), multiple, total % multiple));
  }
  const std::int64_t units = total / multiple;
  // Floor first, then one more unit for the largest remainders: since the rounding to 1/kScale
  // moves each share by half of 2^-20 at most, fewer units are left than there are shares.
  std::vector<std::int64_t> shares(weights.size());
  std::vector<std::int64_t> remainders(weights.size());
  std::int64_t left = units;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double quota = static_cast<double>(units) * (weights[i] / sum);
    const std::int64_t fixed = std::llround(quota * static_cast<double>(kScale));
    shares[i] = fixed / kScale;
    remainders[i] = fixed % kScale;
    left -= shares[i];
  }
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  // Only totals near 2^53 get here: their shares have no digits left for a remainder.
  if (left < 0 || left > static_cast<std::int64_t>(order.size())) {
    return error(Code::kOutOfRange,
                 fmt::format("{} hidden units over {} sub-MLPs are too many to split exactly",
                             with_thousands(total), weights.size()));
  }
  for (std::int64_t i = 0; i < left; ++i) ++shares[order[static_cast<std::size_t>(i)]];
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] == 0) {
      return error(
          Code::kOutOfRange,
          fmt::format("sub-MLP {} of {} would get no hidden unit: {} units of {} are too few for "
                      "this schedule",
                      i, shares.size(), with_thousands(units), multiple));
    }
    shares[i] *= multiple;
  }
  return shares;
}

Result<std::vector<LayerWidths>> scheduled_widths(const WidthSchedule& schedule,
                                                  std::int32_t layers, std::int32_t k,
                                                  std::int64_t hidden_total,
                                                  std::int64_t multiple) {
  TAILOR_CHECK(layers >= 1 && k >= 1, "layers={} k={}", layers, k);
  std::vector<double> weights;
  for (const double weight : schedule_profile(schedule, layers)) {
    weights.insert(weights.end(), static_cast<std::size_t>(k), weight);
  }
  TAILOR_ASSIGN_OR_RETURN(const auto flat, apportion(weights, hidden_total, multiple));
  std::vector<LayerWidths> out(static_cast<std::size_t>(layers));
  for (std::size_t i = 0; i < flat.size(); ++i) {
    if (flat[i] > kWidthMax) {
      return error(Code::kOutOfRange,
                   fmt::format("sub-MLP {} would be {} units wide; allowed: up to {}", i,
                               with_thousands(flat[i]), with_thousands(kWidthMax)));
    }
    out[i / static_cast<std::size_t>(k)].push_back(static_cast<std::int32_t>(flat[i]));
  }
  return out;
}

}  // namespace tailor::shape
