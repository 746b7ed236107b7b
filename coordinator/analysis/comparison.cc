#include "coordinator/analysis/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/text.h"
#include "coordinator/analysis/outcomes.h"
#include "coordinator/analysis/westfall_young.h"

namespace tailor::analysis {
namespace {

using storage::CandidateRow;
using storage::TrialRow;

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
  if (of.evaluation_se_count > 0) {
    row.evaluation_se = std::sqrt(of.evaluation_variance_sum / of.evaluation_se_count);
    row.evaluation_se_seeds = of.evaluation_se_count;
  }
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

/// Adjusted p of the family (every tested candidate but the primary one), and what they can reach.
void adjust_family(ComparisonTable& table) {
  std::vector<std::optional<double>> flips, students;
  std::vector<SeededDifferences> joint;
  for (const ComparisonRow& row : table.rows) {
    const auto& test = row.paired.sign_flip;
    const bool member = test.has_value() && !row.primary;
    flips.push_back(member ? std::optional(test->p) : std::nullopt);
    students.push_back(member ? row.paired.p_t : std::nullopt);
    joint.push_back(member ? SeededDifferences{row.seeds, row.differences} : SeededDifferences{});
    table.family_tests += member ? 1 : 0;
  }
  const auto holm = holm_adjust(flips);
  const auto holm_t = holm_adjust(students);
  const WestfallYoung together = westfall_young(joint);
  table.westfall_young_draws = together.draws;
  table.westfall_young_smallest_p = together.smallest_p;
  table.family_adjusted = table.family_tests > 1;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    ComparisonRow& row = table.rows[i];
    row.p_holm = holm[i];
    row.p_t_holm = holm_t[i];
    row.p_westfall_young = together.p[i];
    if (!row.primary || !row.paired.sign_flip) continue;
    row.p_holm = row.paired.sign_flip->p;
    row.p_t_holm = row.paired.p_t;
    row.p_westfall_young = row.paired.sign_flip->p;
  }
}

void judge_rows(ComparisonTable& table) {
  PowerTable power;
  for (ComparisonRow& row : table.rows) {
    if (&row == &table.rows.front()) continue;
    VerdictInput input;
    input.paired = &row.paired;
    input.incomplete = row.status == RowStatus::kIncomplete;
    input.failed = row.failed;
    input.stopped = row.stopped;
    input.seeds = table.seeds;
    input.p = row.p_t_holm;
    input.primary = row.primary;
    input.family_tests = table.family_tests;
    input.smallest_effect = table.smallest_effect;
    input.is_loss = table.objective == kMainObjective;
    row.verdict = judge(input, power);
  }
}

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

/// Which candidate was marked in advance, and which adjusted p can be reached at all.
void note_family(ComparisonTable& table) {
  auto& notes = table.notes;
  if (!table.primary.empty()) {
    const auto primary =
        std::find_if(table.rows.begin(), table.rows.end(),
                     [&](const ComparisonRow& row) { return row.name == table.primary; });
    if (primary == table.rows.end()) {
      notes.push_back(fmt::format("the primary comparison is \"{}\", which is no candidate here",
                                  table.primary));
    } else if (primary == table.rows.begin()) {
      notes.push_back(fmt::format(
          "the primary comparison is of \"{}\" with the sweep's baseline; here it is the baseline",
          table.primary));
    } else {
      notes.push_back(
          fmt::format("\"{}\" is the primary comparison, marked in the sweep file: its p is not "
                      "adjusted and it "
                      "is no test of the family",
                      table.primary));
    }
  }
  if (!table.family_adjusted) return;
  std::size_t pairs = 0;
  for (const ComparisonRow& row : table.rows) {
    if (row.paired.sign_flip && !row.primary) pairs = std::max(pairs, row.paired.n);
  }
  const auto tests = static_cast<double>(table.family_tests);
  table.holm_smallest_p = std::min(1.0, tests * smallest_sign_flip_p(pairs));
  if (table.holm_smallest_p <= kLevel) return;
  notes.push_back(fmt::format(
      "with n = {} pairs and {} comparisons Holm's adjusted sign-flip p cannot go below {:.3g}, so "
      "it can never reach {}; it could from n = {} on. Westfall and Young's cannot go below {:.3g}",
      pairs, table.family_tests, table.holm_smallest_p, kLevel, holm_seeds(table.family_tests),
      table.westfall_young_smallest_p));
}

void note_table(ComparisonTable& table) {
  std::uint64_t incomplete = 0, other_data = 0, other_version = 0, unverified = 0, pairs = 0;
  std::uint64_t sampled = 0, finished = 0, approximated = 0, noise_unknown = 0;
  for (const ComparisonRow& row : table.rows) {
    incomplete += row.status == RowStatus::kIncomplete ? 1 : 0;
    other_data += row.other_data;
    other_version += row.other_version;
    unverified += row.unverified;
    pairs += row.paired.n;
    sampled += row.paired.sign_flip && row.paired.sign_flip->draws > 0 ? 1 : 0;
    finished += row.finished;
    approximated += row.paired.wilcoxon && !row.paired.wilcoxon->exact ? 1 : 0;
    noise_unknown += row.finished - row.evaluation_se_seeds;
  }
  auto& notes = table.notes;
  if (finished == 0) notes.push_back(fmt::format("no seed has a finite {} yet", table.objective));
  if (incomplete > 0) {
    notes.push_back(fmt::format(
        "{} candidates are incomplete: a seed failed, gave no finite {} or was stopped early; they "
        "have no p and are never the best (`tailor retry` runs failed trials again)",
        incomplete, table.objective));
  }
  if (const ComparisonRow& base = table.rows.front(); base.status == RowStatus::kIncomplete) {
    notes.push_back(fmt::format(
        "the baseline is incomplete: {} of its {} seeds failed and {} were stopped early; no "
        "candidate has a pair there, so every difference is of the seeds that the baseline "
        "survived",
        base.failed, table.seeds, base.stopped));
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
  if (approximated > 0) {
    notes.push_back(fmt::format(
        "{} Wilcoxon p are normal approximations with corrections for ties and continuity (over {} "
        "differences)",
        approximated, kExactWilcoxonMax));
  }
  if (table.objective == kMainObjective && noise_unknown > 0) {
    notes.push_back(fmt::format(
        "of {} of {} finished seeds the noise of the evaluation is not known: they reported no {} "
        "(one evaluation block, or trained by an earlier version)",
        noise_unknown, finished, kEvaluationSe));
  }
  if (table.westfall_young_draws > 0 && table.family_adjusted) {
    notes.push_back(fmt::format(
        "Westfall and Young's p are sampled, not exact (over {} seeds): {} sign patterns from seed "
        "{}, a standard error of {:.2g} at p = 0.05",
        kExactJointSeeds, table.westfall_young_draws, kJointSeed,
        std::sqrt(0.05 * 0.95 / static_cast<double>(table.westfall_young_draws))));
  }
  note_family(table);
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
                                std::string_view objective, const CompareSettings& settings) {
  if (objective.empty()) objective = kMainObjective;
  TAILOR_ASSIGN_OR_RETURN(const CandidateRow* const base, find_baseline(candidates, baseline));
  const Collection all = collect(trials, provenance, objective);
  TAILOR_RETURN_IF_ERROR(check_objective(all, trials, objective));

  ComparisonTable table;
  table.baseline = base->name;
  table.objective = std::string(objective);
  table.seeds = static_cast<std::uint32_t>(all.seeds.size());
  table.primary = settings.primary;
  table.smallest_effect = settings.smallest_effect;
  table.rows.reserve(candidates.size());
  static const Collected kNothing;
  const auto collected = [&](const CandidateRow& candidate) -> const Collected& {
    return candidate.index < all.candidates.size() ? all.candidates[candidate.index] : kNothing;
  };
  const Collected& base_values = collected(*base);

  CriticalValues critical;
  std::optional<double> smallest;
  const auto add = [&](const CandidateRow& candidate) {
    const bool is_baseline = &candidate == base;
    ComparisonRow row = row_of(candidate, collected(candidate));
    row.primary = !is_baseline && candidate.name == settings.primary;
    if (!is_baseline) pair_up(collected(candidate), base_values, row);
    const std::size_t pairs = is_baseline ? row.finished : row.seeds.size();
    row.missing = static_cast<std::uint32_t>(table.seeds - pairs);
    row.paired = summarize_pairs(row.differences, critical.of(row.differences.size()));
    row.status = status_of_row(row, table.seeds);
    if (row.status == RowStatus::kIncomplete) drop_tests(row.paired);
    if (const auto& test = row.paired.sign_flip) {
      smallest = std::min(smallest.value_or(1), test->smallest_p);
    }
    row.note = note_of(row, table.seeds, table.objective, is_baseline);
    if (!is_baseline && row.evaluation_se && table.rows.front().evaluation_se) {
      row.difference_evaluation_se_max = *row.evaluation_se + *table.rows.front().evaluation_se;
    }
    table.rows.push_back(std::move(row));
  };
  add(*base);
  for (const CandidateRow& candidate : candidates) {
    if (&candidate != base) add(candidate);
  }
  table.smallest_p = smallest.value_or(smallest_sign_flip_p(table.seeds));
  adjust_family(table);
  judge_rows(table);
  find_best(table);
  note_table(table);
  return table;
}

}  // namespace tailor::analysis
