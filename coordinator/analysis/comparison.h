// The answer of a sweep: every candidate against the baseline, paired by seed.
// Built from rows, pure.
//
// Partly failed candidates are judged by a rule and not by their lucky seeds (science.md 6: failed
// and diverged seeds count). A seed of a candidate is one of
//   finished  completed, with a finite value
//   failed    the trial failed for a reason of its own (user, oom, nan, data, timeout, ...), or it
//             completed without a finite value of the objective
//   stopped   ended early by a rule: it did badly, and has not had its budget
//   lost      ended by a lost node, a lost lease, a preemption or a cancel: says nothing about it
//   open      queued or running
// A candidate with a failed or stopped seed is *incomplete*: its difference and interval are shown
// over the pairs there are, it has no p (and is no test in Holm's adjustment), and it is never the
// best one. Lost and open seeds make it *unfinished*: its p is that of the pairs there are.
//
// One comparison may be the *primary* one, named in the sweep file and so before any result: its p
// is not adjusted, and it is no test of the family. All others are the family: Holm adjusts their
// sign-flip p and their t-test p, Westfall and Young (westfall_young.h) their joint sign flips.
// A row's verdict rests on one rule, which its text names: the t-test at 5 %, the primary one's as
// it is, the others' adjusted by Holm (for n < 6 no sign-flip test can go below 5 %). The t-test
// takes the differences as normal, so the sign-flip p stands beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/analysis/paired.h"
#include "coordinator/analysis/verdict.h"
#include "storage/records.h"

namespace tailor::analysis {

/// What a completed trial was trained on and with, as its last attempt said when it started.
struct Provenance {
  TrialId trial;
  std::string data_hash;  ///< "" = not known
  std::string version;    ///< of the program; "" = not known
};

enum class RowStatus { kComplete, kUnfinished, kIncomplete };
/// "complete", "unfinished", "incomplete".
std::string_view row_status_name(RowStatus status);

/// One candidate. For the baseline itself `paired` is empty (n = 0).
struct ComparisonRow {
  std::uint32_t candidate = 0;
  std::string name;
  std::int64_t parameters_body = 0;
  RowStatus status = RowStatus::kUnfinished;
  std::optional<double> mean;  ///< of its own finished seeds, paired or not
  std::uint32_t finished = 0;
  std::uint32_t failed = 0;
  std::uint32_t stopped = 0;
  std::uint32_t lost = 0;
  std::uint32_t missing = 0;         ///< seeds of the sweep without a pair
  std::uint32_t other_data = 0;      ///< no pair: trained on other data than the baseline's seed
  std::uint32_t overflowed = 0;      ///< no pair: the difference is beyond a double's range
  std::uint32_t other_version = 0;   ///< pairs of different program versions (they count)
  std::uint32_t unverified = 0;      ///< pairs where one side's data is not known (they count)
  std::vector<std::uint64_t> seeds;  ///< ascending, of the pairs
  std::vector<double> differences;   ///< candidate - baseline, one a seed
  PairedSummary paired;              ///< without `sign_flip` when incomplete
  bool primary = false;              ///< the comparison that the sweep file marked in advance
  std::optional<double> p_holm;      ///< sign-flip p adjusted over the family; the primary's own
  std::optional<double> p_t_holm;    ///< the same of the t-test's p
  std::optional<double> p_westfall_young;  ///< over the family; the primary's: its sign-flip p
  /// Root mean square over the finished seeds of the standard error that each trial reported of
  /// its loss (block bootstrap over evaluation sequences); only for "validation_loss". All seeds
  /// read the same text, so it does not shrink with n and no spread over seeds shows it.
  std::optional<double> evaluation_se;
  std::uint32_t evaluation_se_seeds = 0;  ///< finished seeds that reported one
  /// The most that the text's noise can move the difference, |SE| + |SE of the baseline|; both read
  /// the same text, so much of it cancels, how much is not known. Unset where a side's is.
  std::optional<double> difference_evaluation_se_max;
  Verdict verdict;
  std::optional<double> tokens_per_s;  ///< mean of the final values
  std::string note;                    ///< what a reader must know of this row, "" = nothing
};

struct ComparisonTable {
  std::string baseline;
  std::string objective;
  std::vector<ComparisonRow> rows;  ///< baseline first, then by index
  std::uint32_t seeds = 0;          ///< distinct seeds of the sweep
  /// That the tests of this table can reach with the pairs (and ties) there are; with no pair yet,
  /// with all seeds.
  double smallest_p = 1;
  /// The complete candidate with the lowest mean difference, the baseline (0) among them: only for
  /// "validation_loss", whose better direction is known, and only when it was not paired on less.
  std::optional<std::uint32_t> best;
  std::vector<std::string> notes;  ///< what a reader must know of the whole
  std::string primary;             ///< candidate; "" = none was marked
  double smallest_effect = 0;      ///< that matters, as the sweep file says
  bool family_adjusted = true;     ///< whether the family has more than one test
  std::uint32_t family_tests = 0;  ///< candidates with a p, the primary one left out
  /// The least that Holm's adjusted sign-flip p can be with these seeds and tests; 1 for none.
  double holm_smallest_p = 1;
  double westfall_young_smallest_p = 1;
  std::uint64_t westfall_young_draws = 0;  ///< 0 = all patterns were counted
  std::uint64_t as_of = 0;  ///< the sweep's newest event when the rows were read; 0 = not known
};

/// What the sweep file says of the comparison (`[compare]`).
struct CompareSettings {
  std::string primary;  ///< candidate; "" = none
  double smallest_effect = kDefaultSmallestEffect;
};

/// `objective` "" means "validation_loss" (TrialRow::objective); another name is looked up in the
/// final values. Only completed trials give values: an early stopped one has not had its budget.
/// Values that are not finite, differences beyond a double's range, one seed: a table with words.
/// Cost: that of a sign-flip and a Wilcoxon test a candidate, and of `westfall_young`.
/// Errors: kInvalidArgument when `baseline` is empty or names no candidate, or when trials have
/// completed and none reported `objective` (the nearest name is given).
Result<ComparisonTable> compare(std::span<const storage::CandidateRow> candidates,
                                std::span<const storage::TrialRow> trials,
                                std::span<const Provenance> provenance, std::string_view baseline,
                                std::string_view objective = {},
                                const CompareSettings& settings = {});

}  // namespace tailor::analysis
