// Names of states, and what every row must satisfy before any store takes it.
#include "storage/records.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <utility>

#include "storage/attempt_key.h"

namespace tailor::storage {
namespace {

template <typename E, std::size_t N>
using Names = std::array<std::pair<E, std::string_view>, N>;

constexpr Names<SweepState, 5> kSweepStates{{{SweepState::kRunning, "running"},
                                             {SweepState::kPaused, "paused"},
                                             {SweepState::kCompleted, "completed"},
                                             {SweepState::kCancelled, "cancelled"},
                                             {SweepState::kFailed, "failed"}}};
constexpr Names<TrialState, 6> kTrialStates{{{TrialState::kQueued, "queued"},
                                             {TrialState::kRunning, "running"},
                                             {TrialState::kCompleted, "completed"},
                                             {TrialState::kStopped, "stopped"},
                                             {TrialState::kFailed, "failed"},
                                             {TrialState::kCancelled, "cancelled"}}};
constexpr Names<AttemptState, 3> kAttemptStates{{{AttemptState::kAssigned, "assigned"},
                                                 {AttemptState::kRunning, "running"},
                                                 {AttemptState::kEnded, "ended"}}};
constexpr Names<ScheduleState, 4> kScheduleStates{{{ScheduleState::kWaiting, "waiting"},
                                                   {ScheduleState::kCut, "cut"},
                                                   {ScheduleState::kSame, "same"},
                                                   {ScheduleState::kFailed, "failed"}}};
constexpr Names<QuarantineCause, 4> kQuarantineCauses{{{QuarantineCause::kNone, ""},
                                                       {QuarantineCause::kTroubles, "troubles"},
                                                       {QuarantineCause::kLog, "log"},
                                                       {QuarantineCause::kRequest, "request"}}};

constexpr Names<EventKind, 42> kEventKinds{
    {{EventKind::kSweepSubmitted, "sweep_submitted"},
     {EventKind::kSweepPaused, "sweep_paused"},
     {EventKind::kSweepResumed, "sweep_resumed"},
     {EventKind::kSweepCancelled, "sweep_cancelled"},
     {EventKind::kSweepCompleted, "sweep_completed"},
     {EventKind::kSweepFailed, "sweep_failed"},
     {EventKind::kSweepPriority, "sweep_priority"},
     {EventKind::kSearchStopped, "search_stopped"},
     {EventKind::kCandidateDuplicate, "candidate_duplicate"},
     {EventKind::kCandidateInfeasible, "candidate_infeasible"},
     {EventKind::kTrialQueued, "trial_queued"},
     {EventKind::kTrialCompleted, "trial_completed"},
     {EventKind::kTrialStopped, "trial_stopped"},
     {EventKind::kTrialFailed, "trial_failed"},
     {EventKind::kTrialCancelled, "trial_cancelled"},
     {EventKind::kTrialPriority, "trial_priority"},
     {EventKind::kMeasured, "measured"},
     {EventKind::kMeasureFailed, "measure_failed"},
     {EventKind::kMeasurementReused, "measurement_reused"},
     {EventKind::kScheduleCut, "schedule_cut"},
     {EventKind::kScheduleSame, "schedule_same"},
     {EventKind::kScheduleFailed, "schedule_failed"},
     {EventKind::kAttemptAssigned, "attempt_assigned"},
     {EventKind::kAttemptStarted, "attempt_started"},
     {EventKind::kAttemptBehind, "attempt_behind"},
     {EventKind::kAttemptResumed, "attempt_resumed"},
     {EventKind::kAttemptPreempted, "attempt_preempted"},
     {EventKind::kAttemptEnded, "attempt_ended"},
     {EventKind::kMemberEnded, "member_ended"},
     {EventKind::kSlotsReserved, "slots_reserved"},
     {EventKind::kWorkerConnected, "worker_connected"},
     {EventKind::kWorkerDisconnected, "worker_disconnected"},
     {EventKind::kWorkerLost, "worker_lost"},
     {EventKind::kWorkerDraining, "worker_draining"},
     {EventKind::kWorkerDrainPlanned, "worker_drain_planned"},
     {EventKind::kWorkerRefused, "worker_refused"},
     {EventKind::kWorkerUnfit, "worker_unfit"},
     {EventKind::kWorkerFit, "worker_fit"},
     {EventKind::kWorkerQuarantined, "worker_quarantined"},
     {EventKind::kWorkerReleased, "worker_released"},
     {EventKind::kWorkerClock, "worker_clock"},
     {EventKind::kDatabaseRestored, "database_restored"}}};

template <typename E, std::size_t N>
std::string_view name_of(const Names<E, N>& names, E value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "unknown";
}

template <typename E, std::size_t N>
Result<E> parse(const Names<E, N>& names, std::string_view text, std::string_view what) {
  std::string allowed;
  for (const auto& [value, name] : names) {
    if (name == text) return value;
    allowed += allowed.empty() ? "" : ", ";
    allowed += name;
  }
  return error(Code::kInvalidArgument,
               fmt::format("`{}` is no {} state; allowed: {}", text, what, allowed));
}

// Every integer of a row is stored as a signed 64-bit number; seeds alone use all 64 bits.
constexpr std::uint64_t kIdMax =
    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

Status bad(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

template <typename Tag>
Status check_id(Id<Tag> id, std::string_view what) {
  if (!id.valid() || id.value > kIdMax) {
    return bad(fmt::format("{} row without a usable id ({})", what, id.value));
  }
  return {};
}

Status check_attempt(AttemptId id, std::string_view what) {
  TAILOR_RETURN_IF_ERROR(check_id(id.trial, what));
  if (id.number == 0) {
    return bad(fmt::format("{} row of {}: attempts count from 1", what, id.trial.to_string()));
  }
  if (id.number > kAttemptNumberMax || id.trial.value > kAttemptTrialMax) {
    return bad(
        fmt::format("{} row of {}: that many attempts are not stored", what, id.to_string()));
  }
  return {};
}

struct RowChecker {
  Status operator()(const SweepRow& row) const {
    TAILOR_RETURN_IF_ERROR(check_id(row.id, "sweep"));
    if (row.name.empty()) return bad("sweep row without a name");
    return {};
  }
  Status operator()(const CandidateRow& row) const { return check_id(row.sweep, "candidate"); }
  Status operator()(const TrialRow& row) const {
    TAILOR_RETURN_IF_ERROR(check_id(row.id, "trial"));
    return check_id(row.sweep, "trial");
  }
  Status operator()(const AttemptRow& row) const {
    TAILOR_RETURN_IF_ERROR(check_attempt(row.id, "attempt"));
    if (row.token > kIdMax) return bad("attempt row with an impossible token");
    return check_id(row.worker, "attempt");
  }
  Status operator()(const WorkerRow& row) const {
    TAILOR_RETURN_IF_ERROR(check_id(row.id, "worker"));
    if (row.name.empty()) return bad("worker row without a name");
    return {};
  }
  Status operator()(const MetricPoint& row) const {
    TAILOR_RETURN_IF_ERROR(check_attempt({row.trial, row.attempt}, "metric"));
    if (row.name.empty()) return bad("metric point without a name");
    return {};
  }
  Status operator()(const CheckpointRow& row) const {
    return check_attempt(row.attempt, "checkpoint");
  }
  Status operator()(const ProfileRow& row) const { return check_attempt(row.attempt, "profile"); }
  Status operator()(const MeasurementRow& row) const {
    if (row.key.empty()) return bad("measurement row without a key");
    return check_attempt(row.attempt, "measurement");
  }
  Status operator()(const ScheduleRow& row) const {
    if (row.reference.value > kIdMax) return bad("schedule row with an impossible reference");
    if (row.measured.trial.valid()) {
      TAILOR_RETURN_IF_ERROR(check_attempt(row.measured, "schedule"));
    }
    return check_id(row.sweep, "schedule");
  }
  Status operator()(const EventRow& row) const {
    if (row.kind == EventKind::kOther) return bad("event row without a kind");
    return {};
  }
  Status operator()(const LogRow& row) const {
    if (row.offset > kIdMax - row.bytes.size()) return bad("log row with an impossible offset");
    return check_attempt(row.attempt, "log");
  }
  Status operator()(const LogTrim& row) const {
    if (row.from > row.to || row.to > kIdMax) return bad("log trim with an impossible range");
    return check_attempt(row.attempt, "log trim");
  }
  Status operator()(const CountersRow& row) const {
    for (const std::uint64_t next :
         {row.next_sweep, row.next_trial, row.next_worker, row.next_token}) {
      if (next == 0 || next > kIdMax) return bad("counters out of range");
    }
    if (row.generation > kGenerationMax) return bad("counters with an impossible generation");
    return {};
  }
};

}  // namespace

std::string_view sweep_state_name(SweepState state) { return name_of(kSweepStates, state); }
std::string_view trial_state_name(TrialState state) { return name_of(kTrialStates, state); }
std::string_view attempt_state_name(AttemptState state) { return name_of(kAttemptStates, state); }
std::string_view quarantine_cause_name(QuarantineCause cause) {
  return name_of(kQuarantineCauses, cause);
}

std::string_view schedule_state_name(ScheduleState state) {
  return name_of(kScheduleStates, state);
}
Result<ScheduleState> parse_schedule_state(std::string_view name) {
  return parse(kScheduleStates, name, "schedule");
}

Result<SweepState> parse_sweep_state(std::string_view name) {
  return parse(kSweepStates, name, "sweep");
}
Result<TrialState> parse_trial_state(std::string_view name) {
  return parse(kTrialStates, name, "trial");
}
Result<AttemptState> parse_attempt_state(std::string_view name) {
  return parse(kAttemptStates, name, "attempt");
}
Result<QuarantineCause> parse_quarantine_cause(std::string_view name) {
  return parse(kQuarantineCauses, name, "quarantine");
}

std::string_view event_kind_name(EventKind kind) {
  return kind == EventKind::kOther ? "other" : name_of(kEventKinds, kind);
}
EventKind parse_event_kind(std::string_view name) {
  for (const auto& [kind, known] : kEventKinds) {
    if (known == name) return kind;
  }
  return EventKind::kOther;
}

Status check_row(const Mutation& row) { return std::visit(RowChecker{}, row); }

Status no_candidate(SweepId sweep, std::uint32_t number) {
  return {Code::kNotFound, fmt::format("sweep {} has no candidate {}", sweep.to_string(), number)};
}

Status after_without_id() {
  return {Code::kInvalidArgument, "`after` pages trials in the order of their ids only"};
}

}  // namespace tailor::storage
