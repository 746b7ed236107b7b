#include "coordinator/analysis/outcomes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

#include "base/text.h"
#include "coordinator/scheduler/retry.h"
#include "protocol/report.h"

namespace tailor::analysis {
namespace {

using storage::TrialRow;
using storage::TrialState;

std::optional<double> value_of(const TrialRow& trial, std::string_view objective) {
  if (objective == kMainObjective && trial.objective.has_value()) return trial.objective;
  const auto found = trial.final_values.find(std::string(objective));
  if (found == trial.final_values.end()) return std::nullopt;
  return found->second;
}

/// A class that is not known counts against the candidate.
bool lost_by_others(const TrialRow& trial) {
  const auto& end = trial.end_class;
  return end.has_value() && !scheduler::is_own_fault(*end);
}

void collect_completed(const TrialRow& trial, std::string_view objective, const Provenance* source,
                       Collection& all, Collected& of) {
  ++all.completed;
  const std::optional<double> value = value_of(trial, objective);
  if (value.has_value()) ++all.reported;
  if (value.has_value() && std::isfinite(*value)) {
    of.by_seed[trial.seed] = {*value, source};
  } else {
    ++of.failed;
  }
  const auto noise = trial.final_values.find(std::string(kEvaluationSe));
  if (value.has_value() && std::isfinite(*value) && objective == kMainObjective &&
      noise != trial.final_values.end() && std::isfinite(noise->second)) {
    of.evaluation_variance_sum += noise->second * noise->second;
    ++of.evaluation_se_count;
  }
  const auto speed = trial.final_values.find("tokens_per_s");
  if (speed != trial.final_values.end() && std::isfinite(speed->second)) {
    of.tokens_per_s_sum += speed->second;
    ++of.tokens_per_s_count;
  }
}

}  // namespace

Collection collect(std::span<const TrialRow> trials, std::span<const Provenance> provenance,
                   std::string_view objective) {
  std::unordered_map<std::uint64_t, const Provenance*> sources;
  sources.reserve(provenance.size());
  for (const Provenance& source : provenance) sources.emplace(source.trial.value, &source);
  Collection all;
  for (const TrialRow& trial : trials) {
    all.seeds.insert(trial.seed);
    if (trial.candidate >= all.candidates.size()) {
      all.candidates.resize(trial.candidate + std::size_t{1});
    }
    Collected& of = all.candidates[trial.candidate];
    switch (trial.state) {
      case TrialState::kCompleted: {
        const auto found = sources.find(trial.id.value);
        collect_completed(trial, objective, found == sources.end() ? nullptr : found->second, all,
                          of);
        break;
      }
      case TrialState::kFailed:
        ++(lost_by_others(trial) ? of.lost : of.failed);
        break;
      case TrialState::kStopped:
        ++of.stopped;
        break;
      case TrialState::kCancelled:
        ++of.lost;
        break;
      case TrialState::kQueued:
      case TrialState::kRunning:
        break;
    }
  }
  return all;
}

Status check_objective(const Collection& all, std::span<const TrialRow> trials,
                       std::string_view objective) {
  if (all.completed == 0 || all.reported > 0) return Status::ok();
  std::set<std::string_view> known;
  for (const TrialRow& trial : trials) {
    if (trial.state != TrialState::kCompleted) continue;
    for (const auto& [name, value] : trial.final_values) known.insert(name);
  }
  const std::vector<std::string_view> names(known.begin(), known.end());
  if (names.empty()) return Status::ok();  // then nothing was reported under any name
  const std::string near = nearest_name(objective, names);
  const std::size_t shown = std::min<std::size_t>(names.size(), 12);
  return {
      Code::kInvalidArgument,
      fmt::format(
          "none of the {} completed trials reported \"{}\"{}; they reported {}{}", all.completed,
          objective, near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near),
          fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
          shown < names.size() ? ", ..." : "")};
}

}  // namespace tailor::analysis
