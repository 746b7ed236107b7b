#include "coordinator/analysis/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/text.h"

namespace tailor::analysis {
namespace {

constexpr std::string_view kMainObjective = "validation_loss";

std::optional<double> value_of(const storage::TrialRow& trial, std::string_view objective) {
  if (objective == kMainObjective && trial.objective.has_value()) return trial.objective;
  const auto found = trial.final_values.find(std::string(objective));
  if (found == trial.final_values.end()) return std::nullopt;
  return found->second;
}

/// What is known of one candidate before it is compared.
struct Collected {
  std::map<std::uint64_t, double> by_seed;  // finite values of completed trials
  std::uint32_t failed = 0;
  double tokens_per_s_sum = 0;
  std::uint32_t tokens_per_s_count = 0;
};

}  // namespace

Result<ComparisonTable> compare(std::span<const storage::CandidateRow> candidates,
                                std::span<const storage::TrialRow> trials,
                                std::string_view baseline, std::string_view objective) {
  if (objective.empty()) objective = kMainObjective;
  const storage::CandidateRow* base = nullptr;
  std::vector<std::string_view> names;
  for (const auto& candidate : candidates) {
    if (candidate.name == baseline) base = &candidate;
    names.push_back(candidate.name);
  }
  if (base == nullptr) {
    if (baseline.empty()) {
      return error(Code::kInvalidArgument,
                   "the sweep names no baseline: say which candidate to compare with");
    }
    std::string message = fmt::format("no candidate is called \"{}\"", baseline);
    if (const std::string near = nearest_name(baseline, names); !near.empty()) {
      message += fmt::format("; did you mean \"{}\"?", near);
    } else if (!names.empty()) {
      const std::size_t shown = std::min<std::size_t>(names.size(), 8);
      message += "; the candidates are ";
      for (std::size_t i = 0; i < shown; ++i) {
        message += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", names[i]);
      }
      if (shown < names.size()) message += fmt::format(" and {} more", names.size() - shown);
    }
    return error(Code::kInvalidArgument, std::move(message));
  }

  std::map<std::uint32_t, Collected> collected;
  std::set<std::uint64_t> seeds;
  for (const auto& trial : trials) {
    seeds.insert(trial.seed);
    Collected& of = collected[trial.candidate];
    if (trial.state == storage::TrialState::kFailed) ++of.failed;
    if (trial.state != storage::TrialState::kCompleted) continue;
    const std::optional<double> value = value_of(trial, objective);
    if (value.has_value() && std::isfinite(*value)) {
      of.by_seed[trial.seed] = *value;
    } else {
      ++of.failed;
    }
    const auto speed = trial.final_values.find("tokens_per_s");
    if (speed != trial.final_values.end() && std::isfinite(speed->second)) {
      of.tokens_per_s_sum += speed->second;
      ++of.tokens_per_s_count;
    }
  }

  ComparisonTable table;
  table.baseline = base->name;
  table.objective = std::string(objective);
  table.seeds = static_cast<std::uint32_t>(seeds.size());
  table.smallest_p = smallest_sign_flip_p(seeds.size());
  const std::map<std::uint64_t, double> base_values = collected[base->index].by_seed;

  std::vector<const storage::CandidateRow*> order{base};
  for (const auto& candidate : candidates) {
    if (&candidate != base) order.push_back(&candidate);
  }
  std::vector<std::optional<double>> p;
  for (const storage::CandidateRow* candidate : order) {
    const Collected& of = collected[candidate->index];
    ComparisonRow row;
    row.candidate = candidate->index;
    row.name = candidate->name;
    row.parameters_body = candidate->parameters_body;
    row.finished = static_cast<std::uint32_t>(of.by_seed.size());
    row.failed = of.failed;
    double sum = 0;
    for (const auto& [seed, value] : of.by_seed) {
      sum += value;
      const auto match = base_values.find(seed);
      if (candidate == base || match == base_values.end()) continue;
      row.seeds.push_back(seed);
      row.differences.push_back(value - match->second);
    }
    if (!of.by_seed.empty()) row.mean = sum / static_cast<double>(of.by_seed.size());
    const std::size_t pairs = candidate == base ? of.by_seed.size() : row.seeds.size();
    row.missing = static_cast<std::uint32_t>(seeds.size() - pairs);
    row.paired = summarize_pairs(row.differences);
    if (of.tokens_per_s_count > 0) {
      row.tokens_per_s = of.tokens_per_s_sum / of.tokens_per_s_count;
    }
    p.push_back(row.paired.p_sign_flip);
    table.rows.push_back(std::move(row));
  }
  const auto adjusted = holm_adjust(p);
  for (std::size_t i = 0; i < table.rows.size(); ++i) table.rows[i].p_holm = adjusted[i];
  return table;
}

}  // namespace tailor::analysis
