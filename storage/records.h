// The rows of the store, as plain values. No SQLite here: coordinator/core makes these and the
// engine hands them to a Store, so there is one set of row types and not two (ARCHITECTURE.md, "Why
// core includes storage/records.h").
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "protocol/outcome.h"

namespace tailor::storage {

enum class SweepState {
  kRunning,
  kPaused,
  kCompleted,
  kCancelled,
  kFailed,  ///< ended without a single trial: no point of its space is feasible
};
enum class TrialState {
  kQueued,   ///< waits for a slot (or for `not_before`)
  kRunning,  ///< has a live attempt
  kCompleted,
  kStopped,  ///< ended early by a rule (early stopping)
  kFailed,   ///< out of attempts; `end_class` and `message` say why
  kCancelled,
};
enum class AttemptState { kAssigned, kRunning, kEnded };
/// What put a worker into quarantine. Only kTroubles ends by itself, when a trial does well there.
enum class QuarantineCause { kNone, kTroubles, kLog, kRequest };

std::string_view sweep_state_name(SweepState state);            ///< "running", "paused", ...
std::string_view trial_state_name(TrialState state);            ///< "queued", ...
std::string_view attempt_state_name(AttemptState state);        ///< "assigned", ...
std::string_view quarantine_cause_name(QuarantineCause cause);  ///< "", "troubles", ...
Result<SweepState> parse_sweep_state(std::string_view name);
Result<TrialState> parse_trial_state(std::string_view name);
Result<AttemptState> parse_attempt_state(std::string_view name);
Result<QuarantineCause> parse_quarantine_cause(std::string_view name);
inline bool is_open(SweepState s) { return s == SweepState::kRunning || s == SweepState::kPaused; }
inline bool is_final(TrialState s) { return s != TrialState::kQueued && s != TrialState::kRunning; }

struct SweepRow {
  SweepId id;
  std::string name;  ///< unique
  std::string spec_hash;
  std::string base_dir;
  std::string toml;  ///< the file, whole
  SweepState state = SweepState::kRunning;
  std::int32_t priority = 0;
  std::string search_state;  ///< what the algorithm's `save` gave, in the trial's own transaction
  std::uint64_t infeasible = 0;
  std::string infeasible_json;  ///< {"reason":count}; "" = not known
  WallMs created_ms = 0;
  WallMs ended_ms = 0;  ///< 0 = not ended
  std::string user;     ///< who submitted it, as the client said; "" = not known
  friend bool operator==(const SweepRow&, const SweepRow&) = default;
};

struct CandidateRow {
  SweepId sweep;
  std::uint32_t index = 0;  ///< within the sweep, from 0
  std::string name;
  std::string point_json;         ///< {"ffn.k":4}
  std::string architecture_json;  ///< canonical
  std::string hash;
  std::int64_t parameters_body = 0;
  std::int64_t parameters_total = 0;
  friend bool operator==(const CandidateRow&, const CandidateRow&) = default;
};

struct TrialRow {
  TrialId id;
  SweepId sweep;
  std::uint32_t candidate = 0;
  std::uint64_t seed = 0;
  TrialState state = TrialState::kQueued;
  std::uint32_t attempts = 0;  ///< attempts ever made; the live one has this number
  std::string failures_json;   ///< {"oom":1}: failed attempts by class
  std::optional<protocol::EndClass> end_class;  ///< of the last ended attempt
  std::string message;                          ///< why it ended, for people
  std::optional<double> objective;              ///< final validation loss; NaN is stored as NaN
  std::map<std::string, double> final_values;
  WallMs created_ms = 0;
  WallMs started_ms = 0;
  WallMs ended_ms = 0;
  std::int32_t priority = 0;  ///< added to its sweep's
  std::int64_t run_ms = 0;    ///< time that its ended attempts ran
  friend bool operator==(const TrialRow&, const TrialRow&) = default;
};

/// A worker's share of an attempt that several workers run together.
struct AttemptMember {
  WorkerId worker;
  std::vector<std::uint32_t> slots;
  std::uint32_t first_rank = 0;
  std::uint32_t ranks = 1;
  std::optional<protocol::EndClass> ended =
      {};                    ///< how its processes ended; nullopt = they have not
  std::string message = {};  ///< of that end
  friend bool operator==(const AttemptMember&, const AttemptMember&) = default;
};

struct AttemptRow {
  AttemptId id;
  FencingToken token = 0;
  WorkerId worker;
  std::vector<std::uint32_t> slots;
  AttemptState state = AttemptState::kAssigned;
  std::uint64_t acked_sequence = 0;  ///< reports stored so far
  std::uint64_t log_bytes = 0;       ///< the log is stored up to here, but for what was not kept
  std::optional<protocol::EndClass> end_class;
  std::string message;
  std::string started_json;  ///< the StartedReport, "" before it
  WallMs assigned_ms = 0;
  WallMs ended_ms = 0;
  std::int64_t ran_ms = 0;  ///< how long it had run when the row was written
  /// Why it was told to stop; kNone = it was not.
  protocol::StopReason stop_reason = protocol::StopReason::kNone;
  /// All members of a gang; empty = one member, `worker` with `slots`.
  std::vector<AttemptMember> members;
  bool awaits_step = false;  ///< it resumed, and has reported no step since
  friend bool operator==(const AttemptRow&, const AttemptRow&) = default;
};

struct WorkerRow {
  WorkerId id;
  std::string name;  ///< unique
  std::string instance;
  std::string host;
  std::string version;
  std::string slots_json;
  bool draining = false;
  WallMs first_seen_ms = 0;
  WallMs last_seen_ms = 0;  ///< of the last Hello (heartbeats write nothing)
  std::string folder;       ///< identity of its trials folder; "" = not known
  std::vector<std::string> labels;
  std::uint64_t memory_bytes = 0;  ///< of the node; 0 = not known
  std::string quarantine;          ///< why it is given no work; "" = it is given work
  WallMs quarantined_ms = 0;       ///< since when; 0 = it is not
  QuarantineCause quarantine_cause = QuarantineCause::kNone;
  WallMs drain_at_ms = 0;  ///< when it is to be drained; 0 = no such time is set
  friend bool operator==(const WorkerRow&, const WorkerRow&) = default;
};

struct MetricPoint {
  TrialId trial;
  std::uint32_t attempt = 0;
  std::string name;
  std::int64_t step = 0;
  std::int64_t tokens = 0;
  WallMs wall_ms = 0;
  double value = 0;  ///< NaN and infinities allowed
};

struct CheckpointRow {
  AttemptId attempt;
  std::int64_t step = 0;
  std::string path;
  std::string sha256;
  std::int64_t bytes = 0;
  WallMs wall_ms = 0;
  friend bool operator==(const CheckpointRow&, const CheckpointRow&) = default;
};

struct ProfileRow {  ///< one entry of a work profile
  AttemptId attempt;
  std::int64_t step = 0;
  std::int32_t layer = 0;
  std::int32_t sub_block = -1;
  std::string geometry;
  std::string statistic;
  double value = 0;
  std::optional<double> standard_error = {};  ///< none where it cannot be known
  std::int32_t tokens = 0;
  std::int32_t subsamples = 0;
  std::int32_t linear_tokens = 0;
  double rho = 0;
  std::uint64_t seed = 0;
  std::int32_t dropped = 0;
  std::string no_error = {};                  ///< why there is no error
  std::vector<double> subsample_values = {};  ///< finite ones
  std::int32_t subsamples_asked = 0;
  std::int64_t positions = 0;  ///< tokens that could be used; 0 = measured by an earlier version
  std::int64_t sequences = 0;  ///< that these are of
  bool sequences_given = false;
  std::vector<std::int64_t> subsample_tokens = {};       ///< of statistics that are linear in n
  std::optional<protocol::MatchEnergies> energies = {};  ///< of "gromov"; finite
  friend bool operator==(const ProfileRow&, const ProfileRow&) = default;
};

/// That a trial was measured, or why not: one row a work profile.
struct MeasurementRow {
  AttemptId attempt;
  std::int64_t step = 0;
  std::string key;        ///< sweep::measurement_key: equal keys are one measurement
  std::string data_hash;  ///< of the shards, as the trainer found them; "" = not known
  std::string failure;    ///< why there is no profile; "" = there is
  std::string
      dimension_failure;  ///< why there are no dimensions; "" = there are, or none were asked
  WallMs wall_ms = 0;
  friend bool operator==(const MeasurementRow&, const MeasurementRow&) = default;
};

/// A measurement with what was measured.
struct Measured {
  MeasurementRow row;
  std::vector<ProfileRow> profile;
};

enum class ScheduleState {
  kWaiting,  ///< for a measurement
  kCut,      ///< its widths are those of the candidate
  kSame,     ///< the widths are another candidate's, which is trained for both
  kFailed,   ///< there is no measurement, or nothing can be cut from it
};
std::string_view schedule_state_name(ScheduleState state);  ///< "waiting", "cut", "same", "failed"
Result<ScheduleState> parse_schedule_state(std::string_view name);

/// How the widths of a candidate came from a measurement: whatever went in, and whatever came out.
struct ScheduleRow {
  SweepId sweep;
  std::uint32_t candidate = 0;
  ScheduleState state = ScheduleState::kWaiting;
  TrialId reference;          ///< the trial of this sweep that is measured for it; 0 = none is
  std::string key;            ///< of the measurement; "" while the reference's widths are not known
  AttemptId measured;         ///< whose profile it was cut from, of any sweep; 0 = not yet
  std::string data_hash;      ///< of the data of that measurement; "" = not known
  std::string message;        ///< for people: what it waits for, why it failed
  std::string request_json;   ///< the keys that asked for it
  std::string problem_json;   ///< as `tailor geometry allocate` reads it
  std::string solution_json;  ///< as it prints it
  std::string raw_widths_json;  ///< [5323.15, ...]: before rounding
  std::string widths_json;      ///< [[5312], ...]
  WallMs wall_ms = 0;           ///< of its last change
  friend bool operator==(const ScheduleRow&, const ScheduleRow&) = default;
};

/// What an event row says happened. A new one: a line here and its name in records.cc.
enum class EventKind {
  kSweepSubmitted,
  kSweepPaused,
  kSweepResumed,
  kSweepCancelled,
  kSweepCompleted,
  kSweepFailed,
  kSweepPriority,
  kSearchStopped,
  kCandidateDuplicate,
  kCandidateInfeasible,
  kTrialQueued,
  kTrialCompleted,
  kTrialStopped,
  kTrialFailed,
  kTrialCancelled,
  kTrialPriority,
  kMeasured,           ///< a trial's work profile is stored
  kMeasureFailed,      ///< it could not be measured
  kMeasurementReused,  ///< a schedule is cut from a measurement that was there
  kScheduleCut,
  kScheduleSame,
  kScheduleFailed,
  kAttemptAssigned,
  kAttemptStarted,
  kAttemptBehind,
  kAttemptResumed,
  kAttemptPreempted,
  kAttemptEnded,
  kMemberEnded,
  kSlotsReserved,
  kWorkerConnected,
  kWorkerDisconnected,
  kWorkerLost,
  kWorkerDraining,
  kWorkerDrainPlanned,
  kWorkerRefused,
  kWorkerUnfit,
  kWorkerFit,
  kWorkerQuarantined,
  kWorkerReleased,
  kWorkerClock,  ///< it is far from the coordinator's, or agrees again
  kDatabaseRestored,
  kOther,  ///< one that this version does not know
};
std::string_view event_kind_name(EventKind kind);   ///< "sweep_submitted", ...
EventKind parse_event_kind(std::string_view name);  ///< kOther for names that are not known

/// Every change of state, for people and for audits.
struct EventRow {
  std::uint64_t id = 0;  ///< set by the store, ascending
  WallMs wall_ms = 0;
  EventKind kind = EventKind::kOther;
  SweepId sweep;  ///< 0 = not about one
  TrialId trial;
  std::uint32_t attempt = 0;
  WorkerId worker;
  std::string message;
  friend bool operator==(const EventRow&, const EventRow&) = default;
};

struct LogRow {
  AttemptId attempt;
  std::uint64_t offset = 0;
  std::string bytes;
  friend bool operator==(const LogRow&, const LogRow&) = default;
};

/// Log bytes of an attempt that are not kept: what lies wholly in [from, to) goes, whatever pieces
/// it was stored in.
struct LogTrim {
  AttemptId attempt;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  friend bool operator==(const LogTrim&, const LogTrim&) = default;
};

/// Tokens of a generation begin at generation << kGenerationShift and fit into 62 bits.
constexpr int kGenerationShift = 40;
constexpr std::uint32_t kGenerationMax = (1u << 22) - 1;

/// Counters that must survive a restart so that ids and tokens are never reused.
struct CountersRow {
  std::uint64_t next_sweep = 1;
  std::uint64_t next_trial = 1;
  std::uint64_t next_worker = 1;
  FencingToken next_token = 1;
  /// Raised when a backup is restored: tokens begin at generation << 40. Below 2^22.
  std::uint32_t generation = 0;
  std::string file_id = {};  ///< names the file that the generation belongs to; "" = not known yet
  friend bool operator==(const CountersRow&, const CountersRow&) = default;
};

/// One change. Rows with a key are inserted or replaced whole;
/// points, events and logs are appended.
using Mutation = std::variant<SweepRow, CandidateRow, TrialRow, AttemptRow, WorkerRow, MetricPoint,
                              CheckpointRow, ProfileRow, MeasurementRow, ScheduleRow, EventRow,
                              LogRow, LogTrim, CountersRow>;

/// What every store demands of a row before it looks at the others: valid ids, names where they are
/// keys, numbers that fit. Errors: kInvalidArgument.
Status check_row(const Mutation& row);

/// Answers that every store gives alike.
Status no_candidate(SweepId sweep, std::uint32_t number);
Status after_without_id();

/// What a restart loads: everything that `core` keeps in memory.
struct Snapshot {
  CountersRow counters;
  std::vector<SweepRow> sweeps;
  std::vector<CandidateRow> candidates;
  std::vector<TrialRow> trials;
  std::vector<AttemptRow>
      attempts;  ///< of trials that are not final, all of them; live ones included
  /// Of each trial that is not final, the newest one of the last attempt that has any.
  std::vector<CheckpointRow> checkpoints;
  std::vector<ScheduleRow> schedules;  ///< of those sweeps
  /// How many sweeps, and trials of them, are not in `sweeps`, by state.
  std::map<SweepState, std::uint64_t> other_sweeps;
  std::map<TrialState, std::uint64_t> other_trials;
  std::vector<WorkerRow> workers;
};

}  // namespace tailor::storage
