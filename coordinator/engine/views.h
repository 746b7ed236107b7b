// Views: what clients may read, put together from committed rows and the engine's live state, so
// that gRPC and HTTP say the same. Sweeps, workers and totals are as they were last published
// (published.h): whoever was answered a request finds what it did. Other reads block for the time
// of a short query or of one engine batch: call them from a pool thread, never from a gRPC reaction
// or from the engine thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/core/explain.h"
#include "coordinator/engine/comparisons.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/published.h"
#include "storage/store.h"

namespace tailor::engine {

struct TrialView {
  storage::TrialRow row;
  std::string candidate_name;
  std::int64_t parameters_body = 0;
};

struct SweepViewPage {
  std::vector<SweepView> sweeps;
  std::uint64_t total = 0;
};

/// Whether entries are left behind the `given` ones that a page from `offset` on has of `total`.
constexpr bool is_more(std::uint64_t offset, std::uint64_t given, std::uint64_t total) {
  return offset < total && total - offset > given;
}

struct TrialViewPage {
  std::vector<TrialView> trials;
  std::uint64_t total = 0;
};

struct AttemptView {
  storage::AttemptRow row;
  std::string worker_name;
  std::int64_t resumed_step = 0;  ///< 0 = from scratch
};

struct TrialDetail {
  TrialView trial;
  storage::CandidateRow candidate;
  std::vector<AttemptView> attempts;
  std::vector<storage::CheckpointRow> checkpoints;
  std::vector<std::string> metrics;
  std::vector<storage::ProfileRow> profile;
  std::string measure_failure;  ///< why it could not be measured; "" = it was, or nobody asked
  storage::PrunedTrial pruned;  ///< what of it is no longer there
};

struct LogPiece {
  std::string bytes;
  /// Of the first byte. Beyond the asked one where the middle of a long log was not kept.
  std::uint64_t offset = 0;
  std::uint64_t next_offset = 0;
  std::uint32_t attempt = 0;
  bool ended = false;          ///< the attempt has ended and all of its log was given
  bool trial_ended = false;    ///< no further attempt will come
  std::uint32_t attempts = 0;  ///< made so far
  std::string worker_name;     ///< of the attempt; only with offset 0
  std::string end_class;       ///< of the attempt, "" while it lasts
};

/// Threads: any number. `store` and `engine` must outlive it.
class Views {
 public:
  Views(storage::Store& store, Engine& engine)
      : store_(store), engine_(engine), comparisons_(store) {}

  storage::Store& store() const { return store_; }
  Engine& engine() const { return engine_; }

  /// A sweep by name, id ("s3", "3") or "last". Errors: kNotFound saying what was looked for.
  Result<SweepId> find_sweep(std::string_view reference) const;
  Result<WorkerId> find_worker(std::string_view name_or_id) const;

  /// The newest first: from place `offset` on, at most `limit`. Those that are open as they were
  /// last published, others from their rows; waits for no commit.
  Result<SweepViewPage> sweep_page(std::uint64_t offset, std::uint64_t limit) const;
  /// All sweeps (the newest 100,000), ascending.
  Result<std::vector<SweepView>> sweeps() const;
  Result<SweepView> sweep(SweepId id) const;
  Result<std::vector<storage::CandidateRow>> candidates(SweepId sweep) const;

  Result<TrialViewPage> trials(const storage::TrialQuery& query) const;
  Result<TrialDetail> trial(TrialId id) const;
  Result<storage::Series> series(TrialId trial, std::string_view metric,
                                 std::size_t points_max) const;
  /// `attempt` 0 = the last one. Errors: kNotFound.
  Result<LogPiece> log(TrialId trial, std::uint32_t attempt, std::uint64_t offset,
                       std::size_t bytes_max) const;
  /// The end of the last attempt's log, at most `bytes_max`.
  Result<LogPiece> log_tail(TrialId trial, std::size_t bytes_max) const;

  /// `baseline` "" = the sweep's own; `objective` "" = "validation_loss". The whole table, kept
  /// while nothing of the sweep changes; pages of it: `analysis::page_of`. May take as long as
  /// others' tables before it (`Comparisons`): not for threads that answer health.
  Result<std::shared_ptr<const analysis::ComparisonTable>> compare(
      SweepId sweep, std::string_view baseline, std::string_view objective) const;
  /// The same for people who look: at once, or nearly, where a table is kept, though it may be
  /// older than the newest results (`Comparisons::get_or_kept`).
  Result<Comparisons::Kept> compare_soon(SweepId sweep, std::string_view baseline,
                                         std::string_view objective) const;
  /// The scaling comparison; `baseline` is a family, "" = the file's. As `compare` otherwise.
  Result<std::shared_ptr<const analysis::ScalingTable>> scaling(SweepId sweep,
                                                                std::string_view baseline,
                                                                std::string_view objective) const;
  /// Why the trial is in its state, and what it waits for.
  Result<core::Why> why(TrialId trial) const;
  /// These two wait for nobody.
  std::vector<WorkerView> workers() const;
  Totals totals() const;

 private:
  /// The baseline that is meant. Errors: as `compare`.
  Result<std::string> chosen_baseline(SweepId sweep, std::string_view baseline) const;
  /// What a list of trials shows of a candidate.
  struct CandidateName {
    std::string name;
    std::int64_t parameters_body = 0;
  };
  /// Candidates never change once stored, so their names are kept.
  Result<CandidateName> candidate_name(SweepId sweep, std::uint32_t index) const;
  Result<std::map<WorkerId, std::string>> worker_names() const;
  /// `head`: the row, or one without the text of its file.
  Result<SweepView> stored_sweep(const storage::SweepRow& head) const;

  storage::Store& store_;
  Engine& engine_;
  mutable Comparisons comparisons_;
  mutable std::mutex mutex_;  // guards: names_, ended_
  mutable std::map<std::pair<SweepId, std::uint32_t>, std::vector<CandidateName>> names_;
  mutable std::map<SweepId, SweepView> ended_;
};

}  // namespace tailor::engine
