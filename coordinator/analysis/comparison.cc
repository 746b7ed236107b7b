#include "coordinator/analysis/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "coordinator/scheduler/retry.h"
#include "protocol/report.h"

namespace tailor::analysis {
namespace {

using storage::CandidateRow;
using storage::TrialRow;
using storage::TrialState;

constexpr std::string_view kMainObjective = "validation_loss";

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

struct SeedValue {
  double value = 0;
  const Provenance* source = nullptr;  ///< null = not known
};

/// What is known of one candidate before it is compared.
struct Collected {
  std::map<std::uint64_t, SeedValue> by_seed;
  std::uint32_t failed = 0;
  std::uint32_t stopped = 0;
  std::uint32_t lost = 0;
  double tokens_per_s_sum = 0;
  std::uint32_t tokens_per_s_count = 0;
};

struct Collection {
  std::vector<Collected> candidates;  // by index
  std::set<std::uint64_t> seeds;
  std::uint64_t completed = 0;
  std::uint64_t reported = 0;  // completed trials that have the objective, finite or not
};

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
  const auto speed = trial.final_values.find("tokens_per_s");
  if (speed != trial.final_values.end() && std::isfinite(speed->second)) {
    of.tokens_per_s_sum += speed->second;
    ++of.tokens_per_s_count;
  }
}

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

Result<const CandidateRow*> find_baseline(std::span<const CandidateRow> candidates,
                                          std::string_view baseline) {
  if (baseline.empty()) {
    return error(Code::kInvalidArgument,
                 "the sweep names no baseline: say which candidate to compare with");
  }
  std::vector<std::string_view> names;
  for (const CandidateRow& candidate : candidates) {
    if (candidate.name == baseline) return &candidate;
    names.push_back(candidate.name);
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

/// A name that no completed trial reported is a mistake; values that are not finite are an answer.
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

void pair_up(const Collected& of, const Collected& base, ComparisonRow& row) {
  for (const auto& [seed, mine] : of.by_seed) {
    const auto match = base.by_seed.find(seed);
    if (match == base.by_seed.end()) continue;
    const SeedValue& theirs = match->second;
    const bool data_known = mine.source != nullptr && theirs.source != nullptr &&
                            !mine.source->data_hash.empty() && !theirs.source->data_hash.empty();
    if (data_known && mine.source->data_hash != theirs.source->data_hash) {
      ++row.other_data;
      continue;
    }
    const double difference = mine.value - theirs.value;
    if (!std::isfinite(difference)) {
      ++row.overflowed;
      continue;
    }
    if (!data_known) ++row.unverified;
    const bool versions_known = mine.source != nullptr && theirs.source != nullptr &&
                                !mine.source->version.empty() && !theirs.source->version.empty();
    if (versions_known && mine.source->version != theirs.source->version) ++row.other_version;
    row.seeds.push_back(seed);
    row.differences.push_back(difference);
  }
}

RowStatus status_of_row(const ComparisonRow& row, std::size_t seeds) {
  if (row.failed > 0 || row.stopped > 0 || row.overflowed > 0) return RowStatus::kIncomplete;
  return row.finished == seeds && seeds > 0 ? RowStatus::kComplete : RowStatus::kUnfinished;
}

std::string seeds_text(std::uint32_t count, std::size_t of) {
  return fmt::format("{} of {} seeds", count, of);
}

std::string note_of(const ComparisonRow& row, std::size_t seeds, std::string_view objective,
                    bool is_baseline) {
  std::vector<std::string> parts;
  if (row.failed > 0) {
    parts.push_back(
        fmt::format("{} failed or gave no finite {}", seeds_text(row.failed, seeds), objective));
  }
  if (row.stopped > 0) {
    parts.push_back(fmt::format("{} stopped early", seeds_text(row.stopped, seeds)));
  }
  if (row.lost > 0) {
    parts.push_back(fmt::format("{} lost or cancelled", seeds_text(row.lost, seeds)));
  }
  if (row.overflowed > 0) {
    parts.push_back(fmt::format("{} too far from the baseline for a number",
                                seeds_text(row.overflowed, seeds)));
  }
  if (row.status == RowStatus::kIncomplete && !is_baseline) {
    parts.push_back(
        row.paired.n > 0
            ? fmt::format("incomplete: {} pairs are shown without p, never the best", row.paired.n)
            : "incomplete: no pair is left");
  }
  if (row.other_data > 0) {
    parts.push_back(fmt::format("{} trained on other data than the baseline: not paired",
                                seeds_text(row.other_data, seeds)));
  }
  if (row.other_version > 0) {
    parts.push_back(fmt::format("{} trained by another version of the program than the baseline",
                                seeds_text(row.other_version, seeds)));
  }
  if (!is_baseline && row.paired.n == 1) parts.push_back("one pair: no interval, no test");
  if (row.paired.n >= 2 && !row.paired.ci_low) {
    parts.push_back("the interval is too wide for a number");
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

ComparisonRow row_of(const CandidateRow& candidate, const Collected& of) {
  ComparisonRow row;
  row.candidate = candidate.index;
  row.name = candidate.name;
  row.parameters_body = candidate.parameters_body;
  row.finished = static_cast<std::uint32_t>(of.by_seed.size());
  row.failed = of.failed;
  row.stopped = of.stopped;
  row.lost = of.lost;
  if (of.tokens_per_s_count > 0) row.tokens_per_s = of.tokens_per_s_sum / of.tokens_per_s_count;
  if (of.by_seed.empty()) return row;
  std::vector<double> values;
  for (const auto& [seed, value] : of.by_seed) values.push_back(value.value);
  row.mean = mean_of(values);
  return row;
}

/// The t quantile of each number of pairs, computed once.
class CriticalValues {
 public:
  double of(std::size_t n) {
    if (n < 2) return 0;
    const auto [found, is_new] = known_.emplace(n, 0.0);
    if (is_new) found->second = critical_t(n);
    return found->second;
  }

 private:
  std::map<std::size_t, double> known_;
};

void find_best(ComparisonTable& table) {
  if (table.objective != kMainObjective) return;
  const ComparisonRow* best = nullptr;
  for (const ComparisonRow& row : table.rows) {
    const bool is_baseline = &row == &table.rows.front();
    const bool judged =
        row.status == RowStatus::kComplete && (is_baseline || row.paired.n == table.seeds);
    if (judged && (best == nullptr || row.paired.mean < best->paired.mean)) best = &row;
  }
  if (best != nullptr) table.best = best->candidate;
}

void note_table(ComparisonTable& table) {
  std::uint64_t incomplete = 0, other_data = 0, other_version = 0, unverified = 0, pairs = 0;
  std::uint64_t sampled = 0, finished = 0;
  for (const ComparisonRow& row : table.rows) {
    incomplete += row.status == RowStatus::kIncomplete ? 1 : 0;
    other_data += row.other_data;
    other_version += row.other_version;
    unverified += row.unverified;
    pairs += row.paired.n;
    sampled += row.paired.sign_flip && row.paired.sign_flip->draws > 0 ? 1 : 0;
    finished += row.finished;
  }
  auto& notes = table.notes;
  if (finished == 0) notes.push_back(fmt::format("no seed has a finite {} yet", table.objective));
  if (incomplete > 0) {
    notes.push_back(fmt::format(
        "{} candidates are incomplete: a seed failed, gave no finite {} or was stopped early; they "
        "have no p and are never the best (`tailor retry` runs failed trials again)",
        incomplete, table.objective));
  }
  if (other_data > 0) {
    notes.push_back(fmt::format(
        "{} pairs are refused: their two trials were trained on different data (the token shards "
        "were replaced during the sweep)",
        other_data));
  }
  if (other_version > 0) {
    notes.push_back(fmt::format(
        "{} pairs were trained by different versions of the program; they count", other_version));
  }
  if (unverified > 0 && unverified < pairs) {
    notes.push_back(fmt::format(
        "of {} of {} pairs it is not known whether both trials had the same data; they count",
        unverified, pairs));
  }
  if (sampled > 0) {
    notes.push_back(fmt::format(
        "{} p are sampled, not exact (over {} differences): at most {} sign patterns from seed {}, "
        "each p with its standard error",
        sampled, kExactSignFlipMax, kSampledPatterns, kSampleSeed));
  }
}

}  // namespace

std::string_view row_status_name(RowStatus status) {
  switch (status) {
    case RowStatus::kComplete:
      return "complete";
    case RowStatus::kUnfinished:
      return "unfinished";
    case RowStatus::kIncomplete:
      return "incomplete";
  }
  return "";
}

Result<ComparisonTable> compare(std::span<const CandidateRow> candidates,
                                std::span<const TrialRow> trials,
                                std::span<const Provenance> provenance, std::string_view baseline,
                                std::string_view objective) {
  if (objective.empty()) objective = kMainObjective;
  TAILOR_ASSIGN_OR_RETURN(const CandidateRow* const base, find_baseline(candidates, baseline));
  const Collection all = collect(trials, provenance, objective);
  TAILOR_RETURN_IF_ERROR(check_objective(all, trials, objective));

  ComparisonTable table;
  table.baseline = base->name;
  table.objective = std::string(objective);
  table.seeds = static_cast<std::uint32_t>(all.seeds.size());
  table.rows.reserve(candidates.size());
  static const Collected kNothing;
  const auto collected = [&](const CandidateRow& candidate) -> const Collected& {
    return candidate.index < all.candidates.size() ? all.candidates[candidate.index] : kNothing;
  };
  const Collected& base_values = collected(*base);

  CriticalValues critical;
  std::vector<std::optional<double>> p;
  std::optional<double> smallest;
  const auto add = [&](const CandidateRow& candidate) {
    const bool is_baseline = &candidate == base;
    ComparisonRow row = row_of(candidate, collected(candidate));
    if (!is_baseline) pair_up(collected(candidate), base_values, row);
    const std::size_t pairs = is_baseline ? row.finished : row.seeds.size();
    row.missing = static_cast<std::uint32_t>(table.seeds - pairs);
    row.paired = summarize_pairs(row.differences, critical.of(row.differences.size()));
    row.status = status_of_row(row, table.seeds);
    if (row.status == RowStatus::kIncomplete) row.paired.sign_flip.reset();
    if (const auto& test = row.paired.sign_flip) {
      smallest = std::min(smallest.value_or(1), test->smallest_p);
    }
    row.note = note_of(row, table.seeds, table.objective, is_baseline);
    p.push_back(row.paired.sign_flip ? std::optional(row.paired.sign_flip->p) : std::nullopt);
    table.rows.push_back(std::move(row));
  };
  add(*base);
  for (const CandidateRow& candidate : candidates) {
    if (&candidate != base) add(candidate);
  }
  const auto adjusted = holm_adjust(p);
  for (std::size_t i = 0; i < table.rows.size(); ++i) table.rows[i].p_holm = adjusted[i];
  table.smallest_p = smallest.value_or(smallest_sign_flip_p(table.seeds));
  find_best(table);
  note_table(table);
  return table;
}

}  // namespace tailor::analysis
