// MemoryStore: a Store in memory, for tests and the simulation. Passes the same conformance suite
// as SqliteStore; `query` and `backup` answer kUnimplemented.
//
// It outlives the coordinator that a test "crashes", as a disk would: keep it, build a new engine
// on it. Threads: any call from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "storage/series.h"
#include "storage/store.h"

namespace tailor::storage {

class MemoryStore : public Store {
 public:
  /// The next `count` commits fail with `status` and change nothing. REQUIRES: status is not ok.
  void fail_next_commits(Status status, std::uint64_t count = 1);
  /// Every commit fails with `status` until it is set to ok again (a full disk,
  /// and space coming back).
  void set_fault(Status status);
  /// As if the file were removed: `still_there` and every commit fail from now on.
  void lose_file();
  /// Commits that succeeded.
  std::uint64_t commits() const;

  Result<Snapshot> load() override;
  Result<Snapshot> load_open() override;
  Status commit(std::span<const Mutation> batch) override;
  Result<bool> maintain() override { return false; }
  Result<Pruned> prune(const PruneRules& rules, WallMs now_ms) override;
  Status still_there() const override;
  StoreHealth health() const override { return {}; }
  Result<std::vector<SweepRow>> sweeps() const override;
  Result<SweepRow> sweep(SweepId id) const override;
  Result<SweepRow> sweep_by_name(std::string_view name) const override;
  Result<std::vector<CandidateRow>> candidates(SweepId sweep) const override;
  Result<SweepPage> sweep_page(std::uint64_t offset, std::uint64_t limit) const override;
  Result<CandidatePage> candidate_page(SweepId sweep, std::uint64_t offset,
                                       std::uint64_t limit) const override;
  Result<CandidateRow> candidate(SweepId sweep, std::uint32_t number) const override;
  Result<TrialCounts> trial_counts(SweepId sweep) const override;
  Result<TrialPage> trials(const TrialQuery& query) const override;
  Result<TrialRow> trial(TrialId id) const override;
  Result<std::vector<AttemptRow>> attempts(TrialId trial) const override;
  Result<std::vector<StartRow>> starts(SweepId sweep) const override;
  Result<std::vector<WorkerRow>> workers() const override;
  Result<std::vector<std::string>> metric_names(TrialId trial) const override;
  Result<Series> series(TrialId trial, std::string_view metric,
                        std::size_t points_max = 0) const override;
  Result<CurvePage> curves(const CurveQuery& query) const override;
  Result<std::optional<PrunedTrial>> pruned(TrialId trial) const override;
  Result<std::uint64_t> trials_without_points(SweepId sweep, TrialId after) const override;
  Result<std::vector<CheckpointRow>> checkpoints(TrialId trial) const override;
  Result<std::vector<ProfileRow>> profile(TrialId trial) const override;
  Result<std::optional<MeasurementRow>> measurement(TrialId trial) const override;
  Result<std::optional<Measured>> measured(std::string_view key) const override;
  Result<std::vector<ScheduleRow>> schedules(SweepId sweep) const override;
  Result<std::vector<EventRow>> events(std::uint64_t after, std::size_t limit,
                                       std::optional<SweepId> sweep = {},
                                       std::optional<TrialId> trial = {}) const override;
  Result<std::string> log(AttemptId attempt, std::uint64_t offset,
                          std::size_t bytes_max) const override;
  Result<std::optional<std::uint64_t>> log_from(AttemptId attempt,
                                                std::uint64_t offset) const override;
  Result<Table> query(std::string_view sql, const QueryLimits& limits) const override;
  Status backup(const std::string& path) const override;

 private:
  using CandidateKey = std::pair<SweepId, std::uint32_t>;
  using SeedKey = std::tuple<SweepId, std::uint32_t, std::uint64_t>;
  using ProfileKey =
      std::tuple<AttemptId, std::int64_t, std::int32_t, std::int32_t, std::string, std::string>;

  struct BatchChecker;
  Status check_batch(std::span<const Mutation> batch) const;
  void apply(const Mutation& mutation);
  std::vector<CheckpointRow> newest_checkpoints() const;
  /// REQUIRES: the lock.
  bool ended_before(TrialId trial, WallMs wall_ms) const;
  Series joined(TrialId trial, std::string_view metric) const;
  Status lost() const;

  mutable std::mutex mutex_;  // guards: everything below
  Status fault_;
  std::uint64_t faults_left_ = 0;  // of fault_; max = until changed
  std::uint64_t commits_ = 0;
  bool file_lost_ = false;

  CountersRow counters_;
  std::map<SweepId, SweepRow> sweeps_;
  std::map<std::string, SweepId, std::less<>> sweep_names_;
  std::map<CandidateKey, CandidateRow> candidates_;
  std::map<TrialId, TrialRow> trials_;
  std::map<SeedKey, TrialId> trial_seeds_;
  std::map<AttemptId, AttemptRow> attempts_;
  std::map<WorkerId, WorkerRow> workers_;
  std::map<std::string, WorkerId, std::less<>> worker_names_;
  std::map<TrialId, std::map<std::string, std::map<std::uint32_t, std::vector<Point>>, std::less<>>>
      points_;
  std::map<std::pair<AttemptId, std::int64_t>, CheckpointRow> checkpoints_;
  std::map<ProfileKey, ProfileRow> profiles_;
  std::map<std::pair<AttemptId, std::int64_t>, MeasurementRow> measurements_;
  std::map<CandidateKey, ScheduleRow> schedules_;
  std::vector<EventRow> events_;  // ascending by id
  std::uint64_t next_event_ = 1;
  std::map<TrialId, PrunedTrial> pruned_;
  std::map<AttemptId, std::map<std::uint64_t, std::string>> logs_;
};

}  // namespace tailor::storage
