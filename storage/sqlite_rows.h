// Rows to statements and back: the only file pair that knows both records.h and the columns.
// Internal. Everything throws SQLite::Exception (also for stored values that make no sense).
// Threads: the connection's.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "storage/records.h"
#include "storage/sqlite_connection.h"
#include "storage/store.h"

namespace tailor::storage {

// Insert or replace by key (events and logs: append). Metric points go through MetricTail, trials
// through `replace_trial`; RowWriter calls them.
void write_row(Connection& db, const SweepRow& row);
void write_row(Connection& db, const CandidateRow& row);
void write_row(Connection& db, const AttemptRow& row);
void write_row(Connection& db, const WorkerRow& row);
void write_row(Connection& db, const CheckpointRow& row);
void write_row(Connection& db, const ProfileRow& row);
void write_row(Connection& db, const MeasurementRow& row);
void write_row(Connection& db, const ScheduleRow& row);
void write_row(Connection& db, const EventRow& row);
void write_row(Connection& db, const LogRow& row);
void write_row(Connection& db, const LogTrim& row);
void write_row(Connection& db, const CountersRow& row);

/// What a trial was before it was replaced.
struct OldTrial {
  SweepId sweep;
  TrialState state = TrialState::kQueued;
};
/// Inserts or replaces; nullopt for a new trial.
std::optional<OldTrial> replace_trial(Connection& db, const TrialRow& row);

CountersRow read_counters(Connection& db);
Snapshot read_snapshot(Connection& db);
Snapshot read_open_snapshot(Connection& db);
std::vector<SweepRow> read_sweeps(Connection& db);
std::optional<SweepRow> read_sweep(Connection& db, SweepId id);
std::optional<SweepRow> read_sweep(Connection& db, std::string_view name);
std::vector<CandidateRow> read_candidates(Connection& db, SweepId sweep);
SweepPage read_sweep_page(Connection& db, std::uint64_t offset, std::uint64_t limit);
CandidatePage read_candidate_page(Connection& db, SweepId sweep, std::uint64_t offset,
                                  std::uint64_t limit);
std::optional<TrialRow> read_trial(Connection& db, TrialId id);
/// The columns of trial_of, "SELECT ... FROM trial".
extern const std::string_view kTrialColumns;
TrialRow trial_of(Query& row);
/// `columns` and `rest` as one text that outlives every connection.
std::string_view sql_text(std::string_view columns, std::string_view rest);
std::vector<AttemptRow> read_attempts(Connection& db, TrialId trial);
std::vector<StartRow> read_starts(Connection& db, SweepId sweep);
std::vector<WorkerRow> read_workers(Connection& db);
std::vector<CheckpointRow> read_checkpoints(Connection& db, TrialId trial);
std::vector<ProfileRow> read_profile(Connection& db, TrialId trial);
std::optional<MeasurementRow> read_measurement(Connection& db, TrialId trial);
std::optional<Measured> read_measured(Connection& db, std::string_view key);
std::vector<ScheduleRow> read_schedules(Connection& db, SweepId sweep);
std::string read_log(Connection& db, AttemptId attempt, std::uint64_t offset,
                     std::size_t bytes_max);
std::optional<std::uint64_t> read_log_from(Connection& db, AttemptId attempt, std::uint64_t offset);

}  // namespace tailor::storage
