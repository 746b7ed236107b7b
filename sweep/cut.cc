#include "sweep/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "geometry/width_problem.h"

namespace tailor::sweep {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kCutWidthMax = 1'048'576;

/// What a width is cut for: a layer (sub_block -1) or one of its sub-MLPs.
using Place = std::pair<std::int32_t, std::int32_t>;

std::string place_text(const Place& place) {
  return place.second < 0 ? fmt::format("layer {}", place.first)
                          : fmt::format("sub-MLP {} of layer {}", place.second, place.first);
}

std::vector<Place> places_of(const ScheduleRequest& request, const shape::Architecture& uniform) {
  std::vector<Place> out;
  for (std::int32_t l = 0; l < uniform.layers(); ++l) {
    const auto stack =
        static_cast<std::int32_t>(uniform.widths[static_cast<std::size_t>(l)].size());
    // Of a layer with one sub-MLP the work is the layer's.
    if (!request.own_sub_mlps || stack == 1) {
      out.push_back({l, -1});
      continue;
    }
    for (std::int32_t k = 0; k < stack; ++k) out.push_back({l, k});
  }
  return out;
}

/// One number a place, each there once, finite and not below `low`.
Result<std::vector<double>> numbers_of(std::span<const protocol::WorkEntry> profile,
                                       std::string_view geometry, std::string_view statistic,
                                       const std::vector<Place>& places, double low) {
  std::map<Place, double> found;
  for (const protocol::WorkEntry& entry : profile) {
    if (entry.geometry == geometry && entry.statistic == statistic) {
      found[{entry.layer, entry.sub_block}] = entry.value;
    }
  }
  std::vector<double> out;
  for (const Place& place : places) {
    const auto entry = found.find(place);
    if (entry == found.end()) {
      return error(Code::kFailedPrecondition,
                   fmt::format("the profile has no {} in geometry {} of {}", statistic, geometry,
                               place_text(place)));
    }
    if (!std::isfinite(entry->second) || entry->second < low) {
      return error(Code::kFailedPrecondition,
                   fmt::format("{} in geometry {} of {} is {}, which is no measurement", statistic,
                               geometry, place_text(place), entry->second));
    }
    out.push_back(entry->second);
  }
  return out;
}

/// The place whose work and exponent come to stand at each place.
Result<std::vector<std::size_t>> order_of(const geometry::ShapingOptions& shaping,
                                          std::size_t count) {
  std::vector<double> index(count);
  std::iota(index.begin(), index.end(), 0.0);
  geometry::ShapingOptions order = shaping;
  order.smoothing = geometry::Smoothing::kNone;
  TAILOR_ASSIGN_OR_RETURN(index, geometry::shape_profile(index, order));
  std::vector<std::size_t> out;
  for (const double i : index) out.push_back(static_cast<std::size_t>(i));
  return out;
}

bool moves_layers(geometry::Control control) {
  return control == geometry::Control::kReversed || control == geometry::Control::kPermuted;
}

template <typename T>
std::vector<T> reordered(const std::vector<T>& values, const std::vector<std::size_t>& order) {
  std::vector<T> out;
  for (const std::size_t i : order) out.push_back(values[i]);
  return out;
}

/// The widths of each sub-MLP from the total of each place.
std::vector<shape::LayerWidths> spread(const std::vector<std::int64_t>& totals,
                                       const std::vector<Place>& places,
                                       const shape::Architecture& uniform, std::int64_t quantum) {
  std::vector<shape::LayerWidths> out(uniform.widths.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    auto& layer = out[static_cast<std::size_t>(places[i].first)];
    const auto parts = static_cast<std::int64_t>(
        places[i].second < 0 ? uniform.widths[static_cast<std::size_t>(places[i].first)].size()
                             : 1);
    const std::int64_t units = totals[i] / quantum;
    for (std::int64_t k = 0; k < parts; ++k) {
      layer.push_back(
          static_cast<std::int32_t>(quantum * (units / parts + (k < units % parts ? 1 : 0))));
    }
  }
  return out;
}

/// As `tailor geometry allocate` reads it.
std::string problem_json(const geometry::AllocationProblem& problem, std::int64_t quantum) {
  ordered_json json;
  json["work"] = problem.work;
  json["sensitivity"] = problem.sensitivity;
  json["exponent"] = problem.exponent;
  json["floor"] = problem.floor;
  json["cap"] = ordered_json::array();
  for (const double cap : problem.cap) {
    json["cap"].push_back(std::isinf(cap) ? ordered_json() : ordered_json(cap));
  }
  json["budget"] = problem.budget;
  json["width_unit"] = geometry::width_unit_name(problem.unit);
  json["reference_width"] = problem.reference_width;
  json["quantum"] = quantum;
  json["tolerance"] = 0;
  return json.dump();
}

}  // namespace

Result<Cut> cut_widths(const ScheduleRequest& request, std::span<const protocol::WorkEntry> profile,
                       const shape::Architecture& uniform, std::int32_t width_multiple) {
  const std::vector<Place> places = places_of(request, uniform);
  TAILOR_ASSIGN_OR_RETURN(std::vector<double> work,
                          numbers_of(profile, request.geometry, request.statistic, places, 0));
  if (std::all_of(work.begin(), work.end(), [](double g) { return g == 0; })) {
    return error(
        Code::kFailedPrecondition,
        fmt::format("{} in geometry {} is 0 in every layer: there is no work to cut widths "
                    "from",
                    request.statistic, request.geometry));
  }
  std::vector<double> exponents(places.size(), request.smoothness);
  if (request.rule != geometry::ExponentRule::kConstant) {
    TAILOR_ASSIGN_OR_RETURN(
        const std::vector<double> dimensions,
        numbers_of(profile, "raw", request.dimension, places, std::numeric_limits<double>::min()));
    for (std::size_t i = 0; i < places.size(); ++i) {
      exponents[i] = geometry::exponent_from_dimension(request.rule, dimensions[i], uniform.d_model,
                                                       request.smoothness);
    }
  }
  geometry::ShapingOptions shaping = request.shaping;
  if (moves_layers(shaping.control)) shaping.control = geometry::Control::kNone;
  TAILOR_ASSIGN_OR_RETURN(work, geometry::shape_profile(work, shaping));
  if (moves_layers(request.shaping.control)) {
    TAILOR_ASSIGN_OR_RETURN(const auto order, order_of(request.shaping, places.size()));
    work = reordered(work, order);
    exponents = reordered(exponents, order);
  }

  std::int64_t units = 0;
  std::int64_t sub_mlps = 0;
  for (const shape::LayerWidths& layer : uniform.widths) {
    for (const std::int32_t width : layer) units += width;
    sub_mlps += static_cast<std::int64_t>(layer.size());
  }
  const double mean = static_cast<double>(units) / static_cast<double>(sub_mlps);
  const std::int64_t quantum = request.quantum > 0 ? request.quantum : std::max(1, width_multiple);
  if (units % quantum != 0) {
    return error(Code::kOutOfRange,
                 fmt::format("{} hidden units are no multiple of {} (schedule.quantum or "
                             "budget.width_multiple): the widths would miss the budget",
                             with_thousands(units), quantum));
  }

  geometry::WidthProblem problem;
  geometry::AllocationProblem& of = problem.allocation;
  of.work = std::move(work);
  of.exponent = std::move(exponents);
  of.sensitivity.clear();
  of.floor.clear();
  of.cap.clear();
  of.budget = static_cast<double>(units);
  of.unit = request.unit;
  of.reference_width = mean;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const double parts =
        places[i].second < 0
            ? static_cast<double>(uniform.widths[static_cast<std::size_t>(places[i].first)].size())
            : 1;
    // beta w^-a with w = W / K. Exactly 1 without a stack.
    of.sensitivity.push_back(
        parts == 1 ? 1 : std::pow(parts, std::max(of.exponent[i], of.exponent_min)));
    of.floor.push_back(request.floor * mean * parts);
    of.cap.push_back(request.cap ? *request.cap * mean * parts
                                 : std::numeric_limits<double>::infinity());
  }
  problem.quantum = quantum;
  problem.quantum_given = true;
  problem.tolerance = 0;
  TAILOR_ASSIGN_OR_RETURN(const geometry::WidthSolution solution,
                          geometry::solve_width_problem(problem));

  Cut out;
  const std::vector<std::int64_t>& totals = solution.integers->widths;
  const std::int64_t sum = std::accumulate(totals.begin(), totals.end(), std::int64_t{0});
  if (sum != units) {
    return error(
        Code::kOutOfRange,
        fmt::format("no multiples of {} between floors and caps add up to {} hidden units; "
                    "the nearest are {}",
                    quantum, with_thousands(units), with_thousands(sum)));
  }
  out.widths = spread(totals, places, uniform, quantum);
  for (std::size_t l = 0; l < out.widths.size(); ++l) {
    for (const std::int32_t width : out.widths[l]) {
      if (width >= 1 && width <= kCutWidthMax) continue;
      return error(Code::kOutOfRange,
                   fmt::format("a sub-MLP of layer {} would be {} units wide; allowed: 1 to {} "
                               "(schedule.floor, schedule.cap)",
                               l, width, kCutWidthMax));
    }
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const double parts =
        places[i].second < 0
            ? static_cast<double>(uniform.widths[static_cast<std::size_t>(places[i].first)].size())
            : 1;
    out.raw_widths.push_back(solution.allocation.widths[i] / parts);
  }
  out.problem_json = problem_json(of, quantum);
  out.solution_json = geometry::width_solution_json(problem, solution).dump();
  return out;
}

}  // namespace tailor::sweep
