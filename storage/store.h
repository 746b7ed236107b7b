// Store: what the coordinator remembers. Two implementations pass one conformance suite
// (tests/storage/store_conformance.h): SqliteStore (durable) and MemoryStore (tests, simulation).
//
// Writing: one writer. `commit` applies a batch in one transaction; when it returns ok the batch is
// durable (acknowledged means committed); when it fails nothing of it is there.
// Reading: every read sees some committed state, never a part of a batch. Readers use their own
// connections and never delay the writer.
// Rules that hold for every batch, whatever the order inside it: a candidate needs its sweep, a
// trial its candidate, a schedule too, an attempt its trial and worker, and points, checkpoints,
// profiles, measurements and logs their attempt; names of sweeps and workers, and (sweep,
// candidate, seed) of trials, are unique. Lists of something unknown are empty; only
// reads of one row say kNotFound.
// Threads: all calls from any thread; commits wait for each other.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "storage/records.h"

namespace tailor::storage {

/// A page of trials for lists.
struct TrialQuery {
  std::optional<SweepId> sweep;
  std::optional<TrialState> state;
  std::string order = "id";  ///< "id" | "objective" | "state" | "candidate"
  bool descending = false;
  std::uint64_t offset = 0;
  std::uint64_t limit = 100;  ///< at most 10,000
  /// Only trials behind this one: above its id, or below it when descending. Of order "id" only.
  /// Pages by it cost the same wherever they are, and miss and repeat nothing when rows change.
  std::optional<TrialId> after;
  bool count = true;  ///< false: `total` is not wanted and 0
};

struct SweepPage {
  std::vector<SweepRow> sweeps;
  std::uint64_t total = 0;
};

struct CandidatePage {
  std::vector<CandidateRow> candidates;
  std::uint64_t total = 0;  ///< of the sweep
};

/// What a store demands of a query. Errors: kInvalidArgument.
Status check_trial_query(const TrialQuery& query);

struct TrialPage {
  std::vector<TrialRow> trials;
  std::uint64_t total = 0;  ///< rows that match, whatever `after`, `offset` and `limit`
};

/// How many trials of a sweep are in which state.
struct TrialCounts {
  std::array<std::uint64_t, 6> by_state{};  ///< index: TrialState
  std::uint64_t of(TrialState state) const { return by_state[static_cast<std::size_t>(state)]; }
  std::uint64_t total() const;
  friend bool operator==(const TrialCounts&, const TrialCounts&) = default;
};

/// One metric of one trial, steps ascending. Where attempts overlap after a resume the later
/// attempt wins: points of an earlier attempt at or after the first step of a later one belong to a
/// history that was given up, and are left out.
struct Series {
  std::string name;
  std::vector<std::int64_t> steps;
  std::vector<std::int64_t> tokens;
  std::vector<WallMs> wall_ms;
  std::vector<double> values;
};

/// A page of all curves of a sweep.
struct CurveQuery {
  SweepId sweep;
  TrialId after;       ///< trials after this one
  std::string metric;  ///< only this one; "" = all
  /// A page ends with the trial that brings it to so many points, or that is the so-manyth looked
  /// at: a page may be empty and not be the last.
  std::size_t points_max = 20'000;
  std::size_t trials_max = 1'000;
};

struct TrialCurves {
  TrialId trial;
  std::vector<Series> series;  ///< by name; those without points are left out
};

struct CurvePage {
  std::vector<TrialCurves> trials;  ///< ascending; those without series are left out
  std::optional<TrialId> next;      ///< `after` of the next page; nullopt: this was the last
};

/// What may be deleted of trials that have ended. Ages are counted from the end of the trial (of
/// events: from the event) in milliseconds; 0 = kept for ever.
struct PruneRules {
  std::int64_t logs_ms = 0;
  std::int64_t points_ms = 0;
  std::int64_t events_ms = 0;        ///< also events that are about no trial or sweep that is open
  std::uint64_t logs_bytes_max = 0;  ///< of all logs; the oldest of ended trials go first; 0 = any
  friend bool operator==(const PruneRules&, const PruneRules&) = default;
};

/// What one call of `prune` deleted.
struct Pruned {
  std::uint64_t log_bytes = 0;
  std::uint64_t points = 0;
  std::uint64_t events = 0;
  bool more = false;  ///< rows are left that were not looked at: call again
};

/// That something of a trial was pruned, and when; 0 = it is kept.
struct PrunedTrial {
  WallMs logs_ms = 0;
  WallMs points_ms = 0;
  friend bool operator==(const PrunedTrial&, const PrunedTrial&) = default;
};

/// How the store itself is doing.
struct StoreHealth {
  std::uint64_t log_bytes = 0;        ///< of the write-ahead log in use
  std::uint64_t unsealed_points = 0;  ///< that are in no chunk yet
  /// Since when the log grows because a reader holds on to an old state; 0 = it does not.
  MonotonicMs log_held_since_ms = 0;
  Status upkeep;  ///< the last failure of checkpoints or sealing, ok once they work again
};

/// One value of a user's query. `text` says it exactly: a real as the shortest text that reads as
/// the same double ("inf" and "-inf" too), bytes in hexadecimal, NULL (also for NaN) as "".
struct Cell {
  enum class Kind { kNull, kInteger, kReal, kText, kBytes };
  Kind kind = Kind::kNull;
  std::string text;
  friend bool operator==(const Cell&, const Cell&) = default;
};

/// What the last attempt of a completed trial said when it started (`AttemptRow::started_json`, ""
/// = nothing).
struct StartRow {
  TrialId trial;
  std::string started_json;
  friend bool operator==(const StartRow&, const StartRow&) = default;
};

/// Result of a user's read-only SQL.
struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
  bool truncated = false;  ///< the limit of rows or of bytes cut it
};

struct QueryLimits {
  std::uint64_t rows_max = 100'000;
  std::int64_t time_ms_max = 10'000;
  std::uint64_t bytes_max = 24u << 20;  ///< of all values together; below what one answer may carry
  /// Asked now and then while the query runs, on its thread: a failing Status ends it. May be
  /// empty.
  std::function<Status()> stop;
};

class Store {
 public:
  virtual ~Store() = default;

  /// Everything that survives a restart of the coordinator. Errors: kDataLoss, kUnavailable.
  virtual Result<Snapshot> load() = 0;
  /// What is open, and nothing of what has ended: sweeps that run or are paused, and any other with
  /// a trial that is not final; all their candidates and trials; the attempts of trials that are
  /// not final; all workers; the counters. Its cost does not grow with what has ended: that is read
  /// on demand (`sweep`, `sweep_by_name`, `trial`, ...). Errors: those of `load`.
  virtual Result<Snapshot> load_open() = 0;

  /// One transaction, durable when ok. Errors: kResourceExhausted (disk full: nothing was written,
  /// try again later), kDataLoss (corrupt file), kUnavailable; kInvalidArgument (`check_row`),
  /// kAlreadyExists (a unique name is taken), kFailedPrecondition (a row that others need is
  /// missing): bugs of the caller.
  virtual Status commit(std::span<const Mutation> batch) = 0;

  /// One piece of what the store does beside commits (sealing points, indexing events): true when
  /// more is left. A store that does this by itself needs no calls. Errors: those of `commit`.
  virtual Result<bool> maintain() = 0;
  /// Deletes what `rules` say, a piece of a few milliseconds at a time, beginning anew after a call
  /// that said it is the last. Readers of what was pruned find nothing; `pruned` says so. Errors:
  /// those of `commit`.
  virtual Result<Pruned> prune(const PruneRules& rules, WallMs now_ms) = 0;
  /// Ok while the file that is being written is the one that a restart would find. Errors:
  /// kDataLoss (it was removed or replaced: what to do), and then every `commit` fails so too.
  virtual Status still_there() const = 0;
  virtual StoreHealth health() const = 0;

  virtual Result<std::vector<SweepRow>> sweeps() const = 0;
  /// The newest first: from place `offset` on, at most `limit`; without their files' texts (`toml`
  /// is empty).
  virtual Result<SweepPage> sweep_page(std::uint64_t offset, std::uint64_t limit) const = 0;
  virtual Result<SweepRow> sweep(SweepId id) const = 0;                     ///< kNotFound
  virtual Result<SweepRow> sweep_by_name(std::string_view name) const = 0;  ///< kNotFound
  virtual Result<std::vector<CandidateRow>> candidates(SweepId sweep) const = 0;
  /// Candidates by number from number `offset` on, at most `limit`.
  virtual Result<CandidatePage> candidate_page(SweepId sweep, std::uint64_t offset,
                                               std::uint64_t limit) const = 0;
  virtual Result<CandidateRow> candidate(SweepId sweep,
                                         std::uint32_t number) const = 0;  ///< kNotFound
  /// All 0 for an unknown sweep.
  virtual Result<TrialCounts> trial_counts(SweepId sweep) const = 0;
  /// Ties by ascending id. By objective, NaN and then missing come last in both directions.
  /// Errors: kInvalidArgument (unknown order, limit over 10,000, `after` with another order).
  virtual Result<TrialPage> trials(const TrialQuery& query) const = 0;
  virtual Result<TrialRow> trial(TrialId id) const = 0;  ///< kNotFound
  virtual Result<std::vector<AttemptRow>> attempts(TrialId trial) const = 0;
  /// Of the sweep's completed trials, by ascending id, in one read: what they were trained on.
  virtual Result<std::vector<StartRow>> starts(SweepId sweep) const = 0;
  virtual Result<std::vector<WorkerRow>> workers() const = 0;
  virtual Result<std::vector<std::string>> metric_names(TrialId trial) const = 0;
  /// `points_max` > 0 thins to about so many points, keeping first, last, minimum, maximum and the
  /// first NaN or infinity of each bin.
  virtual Result<Series> series(TrialId trial, std::string_view metric,
                                std::size_t points_max = 0) const = 0;
  /// The curves of a sweep's trials, page after page: the whole costs what its points cost. Each
  /// trial's are of one committed state.
  virtual Result<CurvePage> curves(const CurveQuery& query) const = 0;
  /// When pruning took a trial's log or points; nullopt: never.
  virtual Result<std::optional<PrunedTrial>> pruned(TrialId trial) const = 0;
  /// How many trials of the sweep, with ids above `after`, have lost their points to `prune`.
  virtual Result<std::uint64_t> trials_without_points(SweepId sweep, TrialId after) const = 0;
  virtual Result<std::vector<CheckpointRow>> checkpoints(TrialId trial) const = 0;
  /// The work profile of the last attempt that measured one, at its last step; by layer, sub-block,
  /// geometry, statistic.
  virtual Result<std::vector<ProfileRow>> profile(TrialId trial) const = 0;
  /// The newest measurement of the trial, also one that failed; nullopt: it was not measured.
  virtual Result<std::optional<MeasurementRow>> measurement(TrialId trial) const = 0;
  /// The newest measurement with this key that did not fail; nullopt: there is none.
  virtual Result<std::optional<Measured>> measured(std::string_view key) const = 0;
  /// Of a sweep, by candidate.
  virtual Result<std::vector<ScheduleRow>> schedules(SweepId sweep) const = 0;
  /// Events with id > `after`, ascending, at most `limit`; optionally of one sweep or trial.
  virtual Result<std::vector<EventRow>> events(std::uint64_t after, std::size_t limit,
                                               std::optional<SweepId> sweep = {},
                                               std::optional<TrialId> trial = {}) const = 0;
  /// Log bytes of one attempt from `offset`, at most `bytes_max`; ends early at a gap.
  virtual Result<std::string> log(AttemptId attempt, std::uint64_t offset,
                                  std::size_t bytes_max) const = 0;
  /// Where the log goes on: the offset of the first stored byte at or after `offset`; nullopt when
  /// there is none.
  virtual Result<std::optional<std::uint64_t>> log_from(AttemptId attempt,
                                                        std::uint64_t offset) const = 0;

  /// A user's SELECT on a guarded connection: read-only, one statement, time and row limits.
  /// Errors: kInvalidArgument (bad SQL), kPermissionDenied (a write or a forbidden function),
  /// kDeadlineExceeded, what `limits.stop` said, kUnimplemented (MemoryStore).
  virtual Result<Table> query(std::string_view sql, const QueryLimits& limits) const = 0;

  /// A consistent copy while running, verified before ok. Errors: kUnimplemented (MemoryStore).
  virtual Status backup(const std::string& path) const = 0;
};

}  // namespace tailor::storage
