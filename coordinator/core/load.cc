// From rows back to the State: at a restart all that is open, later what a request is about. What
// is stored is the truth: a candidate's architecture is its row's and never resolved again; its
// recipe comes from the stored file and must give the stored hash. A sweep that cannot be read is
// set aside with the reason and hinders nothing else. Leases, sessions and back-offs begin anew.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <type_traits>
#include <unordered_map>

#include "coordinator/core/json.h"
#include "coordinator/core/step.h"
#include "coordinator/core/transition.h"
#include "coordinator/scheduler/retry.h"
#include "model/shape/architecture.h"

namespace tailor::core {

using storage::AttemptState;
using storage::ScheduleState;
using storage::SweepState;
using storage::TrialState;

namespace {

template <typename... Args>
Status damaged(fmt::format_string<Args...> text, Args&&... args) {
  return {Code::kDataLoss, fmt::format(text, std::forward<Args>(args)...)};
}

/// The text of a Status, with what it is about in front.
Status in(const Status& status, const std::string& what) { return status.with_context(what); }

/// A sweep as it was read, not yet in the State.
struct Reading {
  Sweep sweep;
  std::vector<Trial> trials;
};

Status read_file(const storage::SweepRow& row, Sweep* sweep) {
  auto spec = sweep::parse(row.toml, row.name, row.base_dir, sweep::Origin::kStored);
  if (!spec) return damaged("the stored file no longer parses: {}", spec.error().message());
  if (spec->name != row.name) {
    return damaged("the stored file is that of a sweep named '{}'", spec->name);
  }
  sweep->row = row;
  TAILOR_ASSIGN_OR_RETURN(sweep->infeasible_reasons, reasons_from_json(row.infeasible_json));
  if (!spec->space.empty()) {
    TAILOR_ASSIGN_OR_RETURN(sweep->algorithm,
                            search::make_algorithm(spec->search.algorithm, *spec));
  }
  sweep->demand = demand_of(spec->resources);
  sweep->spec = std::make_shared<const sweep::Spec>(std::move(*spec));
  return Status::ok();
}

/// The candidate as it was stored: nothing of its architecture is resolved again.
Result<std::unique_ptr<const sweep::Candidate>> read_candidate(const Sweep& sweep,
                                                               const storage::CandidateRow& row) {
  TAILOR_ASSIGN_OR_RETURN(sweep::Point point, point_from_json(row.point_json));
  TAILOR_ASSIGN_OR_RETURN(shape::Architecture architecture,
                          shape::architecture_from_json(row.architecture_json));
  TAILOR_ASSIGN_OR_RETURN(
      sweep::Candidate candidate,
      sweep::restore(*sweep.spec, row.name, std::move(point), std::move(architecture), row.hash));
  if (candidate.counts.body != row.parameters_body ||
      candidate.counts.total != row.parameters_total) {
    return error(damaged("its architecture has {} parameters and its row says {}",
                         candidate.counts.total, row.parameters_total));
  }
  return std::make_unique<const sweep::Candidate>(std::move(candidate));
}

Status read_candidates(const SweepRows& rows, Sweep* sweep) {
  sweep->named = 0;
  for (const storage::CandidateRow* row : rows.candidates) {
    const std::string what = fmt::format("candidate {}", row->index);
    if (row->index != sweep->candidates.size()) return damaged("{} is out of order", what);
    if (!sweep->candidate_by_hash.emplace(row->hash, row->index).second) {
      return damaged("{} is stored twice", what);
    }
    if (sweep->named == row->index) {  // those that the file names come first
      const auto point = point_from_json(row->point_json);
      if (!point) return in(point.error(), what);
      sweep->named += sweep::is_from_file(*sweep->spec, row->name, *point) ? 1 : 0;
    }
    note_seeds(*sweep, row->index, row->name);
    sweep->candidates.emplace_back();
    sweep->first_note.push_back(sweep->notes.size());
    sweep->notes.resize(sweep->notes.size() + sweep->seeds_of(row->index).size());
  }
  sweep->first_trial.resize(sweep->candidates.size());
  sweep->open_trials.resize(sweep->candidates.size(), 0);
  for (const storage::ScheduleRow* row : rows.schedules) {
    if (row->candidate >= sweep->candidates.size()) {
      return damaged("a schedule names candidate {} of {}", row->candidate,
                     sweep->candidates.size());
    }
    if (row->state != ScheduleState::kCut) {
      sweep->schedules.emplace(row->candidate, *row);
    } else if (row->reference != row->measured.trial && !row->data_hash.empty()) {
      sweep->cut_on_data.emplace(row->candidate, row->data_hash);
    }
  }
  return Status::ok();
}

Status read_trial(const storage::TrialRow& row, Sweep* sweep) {
  const std::string id = row.id.to_string();
  if (row.candidate >= sweep->candidates.size()) {
    return damaged("trial {} names candidate {} of {}", id, row.candidate,
                   sweep->candidates.size());
  }
  TrialId& first = sweep->first_trial[row.candidate];
  if (!first.valid()) first = row.id;
  const std::uint64_t position = row.id.value - first.value;
  const std::vector<std::uint64_t>& seeds = sweep->seeds_of(row.candidate);
  if (position >= seeds.size() || seeds[position] != row.seed) {
    return damaged("trial {} has not the seed that its sweep gives it", id);
  }
  sweep->note_of(row) = note_of(row);
  ++sweep->counts[row.state];
  if (!storage::is_final(row.state)) ++sweep->open_trials[row.candidate];
  return Status::ok();
}

Result<Trial> read_trial_whole(const storage::TrialRow& row) {
  Trial trial;
  trial.row = row;
  TAILOR_ASSIGN_OR_RETURN(trial.failures, failures_from_json(row.failures_json));
  return trial;
}

Status read_sweep(const SweepRows& rows, const std::set<TrialId>& wanted, Reading* reading) {
  Sweep& sweep = reading->sweep;
  TAILOR_RETURN_IF_ERROR(read_file(*rows.row, &sweep));
  TAILOR_RETURN_IF_ERROR(read_candidates(rows, &sweep));
  for (const storage::TrialRow* row : rows.trials) {
    TAILOR_RETURN_IF_ERROR(read_trial(*row, &sweep));
    if (storage::is_final(row->state) && !wanted.contains(row->id)) continue;
    TAILOR_ASSIGN_OR_RETURN(Trial trial, read_trial_whole(*row));
    reading->trials.push_back(std::move(trial));
    auto& candidate = sweep.candidates[row->candidate];
    if (candidate != nullptr) continue;
    auto read = read_candidate(sweep, *rows.candidates[row->candidate]);
    if (!read) return in(read.error(), fmt::format("candidate {}", row->candidate));
    candidate = std::move(*read);
  }
  if (rows.trials.size() != sweep.notes.size() ||
      !std::is_sorted(sweep.first_trial.begin(), sweep.first_trial.end())) {
    return damaged("{} candidates with {} seeds, but {} trials", sweep.candidates.size(),
                   sweep.spec->seeds.size(), rows.trials.size());
  }
  return decode_search(sweep, rows.candidates);
}

Status load_worker(State& state, const storage::WorkerRow& row) {
  Worker worker;
  worker.row = row;
  TAILOR_ASSIGN_OR_RETURN(const std::vector<protocol::Slot> slots, slots_from_json(row.slots_json));
  for (const protocol::Slot& slot : slots) worker.slots.push_back({slot, std::nullopt});
  const bool is_new = row.id.value < state.counters.next_worker &&
                      state.worker_by_name.emplace(row.name, row.id).second &&
                      state.workers.emplace(row.id, std::move(worker)).second;
  if (!is_new) return damaged("worker {} or its name is stored twice", row.id.to_string());
  return Status::ok();
}

/// Rows older than their column say it in words: "stopping: paused".
protocol::StopReason stop_reason_of(const storage::AttemptRow& row) {
  constexpr std::string_view kPrefix = "stopping: ";
  if (row.stop_reason != protocol::StopReason::kNone) return row.stop_reason;
  return row.message.starts_with(kPrefix)
             ? protocol::parse_stop_reason(std::string_view(row.message).substr(kPrefix.size()))
             : protocol::StopReason::kNone;
}

/// The resumed step in the stored StartedReport; -1 = there is none.
std::int64_t resumed_step_of(const storage::AttemptRow& row) {
  if (row.started_json.empty()) return -1;
  return started_step(row.started_json);
}

Status check_slots(const State& state, const LiveAttempt& live, const Member& member) {
  const std::string id = live.row.id.to_string();
  const auto worker = state.workers.find(member.row.worker);
  if (worker == state.workers.end()) return damaged("attempt {} runs on an unknown worker", id);
  std::set<std::uint32_t> seen;
  for (const std::uint32_t index : member.row.slots) {
    const auto& slots = worker->second.slots;
    const auto slot = std::find_if(slots.begin(), slots.end(),
                                   [&](const WorkerSlot& s) { return s.slot.index == index; });
    if (slot == slots.end() || slot->held_by || !seen.insert(index).second)
      return damaged("attempt {} has no slot {}", id, index);
  }
  return Status::ok();
}

/// REQUIRES: check_slots.
void hold_slots(State& state, const LiveAttempt& live, const Member& member,
                std::uint64_t memory_bytes) {
  Worker& worker = state.workers.at(member.row.worker);
  for (WorkerSlot& slot : worker.slots) {
    if (std::count(member.row.slots.begin(), member.row.slots.end(), slot.slot.index) > 0) {
      slot.held_by = live.row.id;
    }
  }
  worker.memory_kept += memory_bytes;
}

Status load_live(State& state, Trial& trial, const storage::AttemptRow& row, Now now) {
  const std::string id = row.id.to_string();
  Sweep& sweep = state.sweeps.at(trial.row.sweep);
  const auto worker = state.workers.find(row.worker);
  if (trial.row.state != TrialState::kRunning || row.id.number != trial.row.attempts ||
      trial.live || worker == state.workers.end() || row.token >= state.counters.next_token) {
    return damaged("attempt {} is stored as live but its trial, worker or token says otherwise",
                   id);
  }
  LiveAttempt live;
  live.row = row;
  live.stop_reason = stop_reason_of(row);
  live.row.stop_reason = live.stop_reason;
  std::vector<storage::AttemptMember> members = row.members;
  if (members.empty()) members.push_back({row.worker, row.slots, 0, 1, std::nullopt, ""});
  for (storage::AttemptMember& member : members) {
    live.members.push_back({std::move(member), now.mono_ms + state.options.lease_ms});
    if (live.members.back().row.ended) continue;
    TAILOR_RETURN_IF_ERROR(check_slots(state, live, live.members.back()));
  }
  if (!row.members.empty() && row.members.front().worker != row.worker) {
    return damaged("attempt {} is not on the worker of its first member", id);
  }
  if (row.members.empty()) live.members.front().row.ranks = sweep.demand.slots;
  // The clock that ran when it began is gone, and the wall clock may have jumped: what is proved is
  // what it had run when its row was last written. Its worker counts on by itself.
  live.began_ms = now.mono_ms - std::max<std::int64_t>(0, row.ran_ms);
  live.watched_ms = live.progress_ms = now.mono_ms;
  live.first_step = trial.checkpoint ? trial.checkpoint->step : 0;
  live.resumed_step = resumed_step_of(row);
  live.step = live.resumed_step;
  if (std::all_of(live.members.begin(), live.members.end(),
                  [](const Member& member) { return member.row.ended.has_value(); })) {
    return damaged("attempt {} is stored as live, and all its members have ended", id);
  }
  for (const Member& member : live.members) {
    if (!member.row.ended) hold_slots(state, live, member, sweep.demand.memory_bytes);
  }
  sweep.slots_spared += slots_spared(sweep, live);
  trial.live = std::move(live);
  index_lease(state, trial);
  watch_limits(state, trial);
  if (sweep.spec->resources.preemptible) state.preemptible.insert(preemptible_of(sweep, trial));
  return Status::ok();
}

/// Where the end of an ended attempt happened.
WorkerId worker_of_end(const storage::AttemptRow& row) {
  if (row.members.empty()) return row.worker;
  LiveAttempt ended;
  ended.row = row;
  ended.stop_reason = row.stop_reason;
  for (const storage::AttemptMember& member : row.members) {
    if (!member.ended) return row.worker;
    ended.members.push_back({member, 0});
  }
  return verdict_of(ended).worker;
}

using Attempts = std::vector<const storage::AttemptRow*>;

/// `attempts`: all of one trial, ascending. The last failures_json[class] ends of a class are those
/// that count (earlier ones were forgiven by a retry).
void load_failed_on(Trial& trial, const Attempts& attempts) {
  auto left = trial.failures;
  for (auto it = attempts.rbegin(); it != attempts.rend(); ++it) {
    const storage::AttemptRow& row = **it;
    const auto& end = row.end_class;
    if (row.state != AttemptState::kEnded || !end || !scheduler::is_own_fault(*end)) continue;
    if (left[*end]-- > 0) trial.failed_on[*end].insert(worker_of_end(row));
  }
}

/// What is left of the back-off, by the wall clock;
/// at most the whole of it should the clock have jumped.
std::int64_t backoff_left(const State& state, const Trial& trial, const storage::AttemptRow& last,
                          Now now) {
  const auto& end = last.end_class;
  if (!end) return 0;
  const auto failures = trial.failures.find(*end);
  if (failures == trial.failures.end()) return 0;
  const std::int64_t whole =
      scheduler::backoff_delay(*end, failures->second, state.options.backoff_ms);
  return std::clamp<std::int64_t>(last.ended_ms + whole - now.wall_ms, 0, whole);
}

Status load_checkpoint(Trial& trial, const storage::CheckpointRow& row, const Attempts& attempts) {
  for (const storage::AttemptRow* attempt : attempts) {
    if (attempt->id != row.attempt) continue;
    trial.checkpoint = CheckpointNote{row.step, attempt->worker, attempt->id.number};
    return Status::ok();
  }
  return damaged("a checkpoint of {} belongs to no attempt", row.attempt.to_string());
}

/// Queued trials that do not back off may be placed.
void load_ready(State& state, Trial& trial, Now now) {
  if (trial.row.state != TrialState::kQueued) return;
  if (state.deadlines.contains(DeadlineKind::kBackoff, trial.row.id.value)) return;
  if (waits_for_schedule(state.sweeps.at(trial.row.sweep), trial)) return;
  state.sweeps.at(trial.row.sweep).ready.insert({-std::int64_t{trial.row.priority}, trial.row.id});
  trial.ready_since_ms = now.mono_ms;
}

/// What is left of the time before a quarantined worker is tried.
void load_quarantine(State& state, const Worker& worker, Now now) {
  if (!is_probed(worker)) return;
  const std::int64_t whole = state.options.probe_after_ms;
  const std::int64_t left =
      std::clamp<std::int64_t>(worker.row.quarantined_ms + whole - now.wall_ms, 0, whole);
  state.deadlines.set(DeadlineKind::kPause, worker.row.id.value, now.mono_ms + left);
}

/// A drain whose time came meanwhile is due at once.
void load_drain(State& state, const Worker& worker, Now now) {
  if (worker.row.drain_at_ms == 0) return;
  const std::int64_t left = std::max<std::int64_t>(worker.row.drain_at_ms - now.wall_ms, 0);
  state.deadlines.set(DeadlineKind::kDrain, worker.row.id.value, now.mono_ms + left);
}

/// What its attempts left behind. REQUIRES: the trial is in `state`.
Status load_history(State& state, Trial& trial, const SweepRows& rows, Now now) {
  static const Attempts kNone;
  const auto found = rows.attempts.find(trial.row.id);
  const Attempts& attempts = found == rows.attempts.end() ? kNone : found->second;
  if (const auto row = rows.checkpoints.find(trial.row.id); row != rows.checkpoints.end()) {
    TAILOR_RETURN_IF_ERROR(load_checkpoint(trial, *row->second, attempts));
  }
  if (storage::is_final(trial.row.state)) return Status::ok();
  load_failed_on(trial, attempts);
  for (const storage::AttemptRow* row : attempts) {
    if (row->state != AttemptState::kEnded) {
      TAILOR_RETURN_IF_ERROR(load_live(state, trial, *row, now));
    }
  }
  if (trial.row.state == TrialState::kRunning && !trial.live) {
    return damaged("trial {} is running but lacks a live attempt", trial.row.id.to_string());
  }
  if (trial.row.state == TrialState::kQueued && !attempts.empty()) {
    const std::int64_t left = backoff_left(state, trial, *attempts.back(), now);
    if (left > 0) {
      state.deadlines.set(DeadlineKind::kBackoff, trial.row.id.value, now.mono_ms + left);
    }
  }
  return Status::ok();
}

/// Takes a sweep that was not read to the end out again.
void take_out(State& state, SweepId id) {
  const auto found = state.sweeps.find(id);
  if (found == state.sweeps.end()) return;
  for (auto& [number, worker] : state.workers) {
    for (WorkerSlot& slot : worker.slots) {
      if (!slot.held_by) continue;
      const auto trial = state.trials.find(slot.held_by->trial);
      if (trial != state.trials.end() && trial->second.row.sweep == id) slot.held_by.reset();
    }
  }
  for (auto trial = state.trials.begin(); trial != state.trials.end();) {
    if (trial->second.row.sweep != id) {
      ++trial;
      continue;
    }
    if (trial->second.live) {
      state.preemptible.erase(preemptible_of(found->second, trial->second));
      for (const Member& member : trial->second.live->members) {
        if (member.row.ended) continue;
        state.workers.at(member.row.worker).memory_kept -= found->second.demand.memory_bytes;
      }
    }
    for (const DeadlineKind kind : {DeadlineKind::kLease, DeadlineKind::kBackoff,
                                    DeadlineKind::kLimit, DeadlineKind::kHolder}) {
      state.deadlines.clear(kind, trial->first.value);
    }
    trial = state.trials.erase(trial);
  }
  state.deadlines.clear(DeadlineKind::kDraws, id.value);
  state.open_sweeps.erase(id);
  state.sweep_by_name.erase(found->second.row.name);
  state.sweeps.erase(found);
}

/// What is kept of a sweep that cannot be read.
void set_aside(State& state, const SweepRows& rows, std::string reason) {
  UnreadableSweep aside;
  aside.row = *rows.row;
  aside.reason = std::move(reason);
  for (const storage::TrialRow* row : rows.trials) {
    ++aside.counts[row->state];
    if (!storage::is_final(row->state)) aside.open.push_back(*row);
  }
  for (const auto& [trial, attempts] : rows.attempts) {
    for (const storage::AttemptRow* row : attempts) {
      if (row->state != AttemptState::kEnded) aside.live.push_back(*row);
    }
  }
  state.sweep_by_name.emplace(aside.row.name, aside.row.id);
  state.unreadable.emplace(aside.row.id, std::move(aside));
}

bool has_ended(const SweepRows& rows) {
  const SweepState state = rows.row->state;
  if (state == SweepState::kRunning || state == SweepState::kPaused) return false;
  return std::all_of(rows.trials.begin(), rows.trials.end(),
                     [](const storage::TrialRow* row) { return storage::is_final(row->state); });
}

template <typename Row>
void sort_rows(std::vector<const Row*>& rows) {
  std::sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) {
    if constexpr (std::is_same_v<Row, storage::CandidateRow>) {
      return a->index < b->index;
    } else {
      return a->id < b->id;
    }
  });
}

void sort_rows(SweepRows& rows) {
  sort_rows(rows.candidates);
  sort_rows(rows.trials);
  for (auto& [trial, attempts] : rows.attempts) sort_rows(attempts);
}

/// Errors: kDataLoss for rows that belong to no sweep of `snapshot`.
Result<std::map<SweepId, SweepRows>> by_sweep(const storage::Snapshot& snapshot) {
  std::map<SweepId, SweepRows> sweeps;
  std::unordered_map<std::uint64_t, SweepRows*> of_trial;
  for (const auto& row : snapshot.sweeps) {
    if (row.id.value >= snapshot.counters.next_sweep) {
      return error(damaged("sweep {} has an id that was never given out", row.id.to_string()));
    }
    if (!sweeps.emplace(row.id, SweepRows{&row, {}, {}, {}, {}, {}}).second) {
      return error(damaged("sweep {} is stored twice", row.id.to_string()));
    }
  }
  for (const auto& row : snapshot.candidates) {
    const auto found = sweeps.find(row.sweep);
    if (found == sweeps.end()) {
      return error(
          damaged("candidate {} belongs to no sweep ({})", row.index, row.sweep.to_string()));
    }
    found->second.candidates.push_back(&row);
  }
  for (const auto& row : snapshot.trials) {
    const auto found = sweeps.find(row.sweep);
    if (found == sweeps.end() || row.id.value >= snapshot.counters.next_trial) {
      return error(damaged("trial {} belongs to no sweep, or its id was never given out",
                           row.id.to_string()));
    }
    found->second.trials.push_back(&row);
    of_trial[row.id.value] = &found->second;
  }
  for (const auto& row : snapshot.attempts) {
    const auto found = of_trial.find(row.id.trial.value);
    if (found == of_trial.end()) {
      return error(damaged("attempt {} belongs to no trial", row.id.to_string()));
    }
    found->second->attempts[row.id.trial].push_back(&row);
  }
  for (const auto& row : snapshot.checkpoints) {
    const auto found = of_trial.find(row.attempt.trial.value);
    if (found == of_trial.end()) {
      return error(damaged("a checkpoint of {} belongs to no trial", row.attempt.to_string()));
    }
    found->second->checkpoints[row.attempt.trial] = &row;
  }
  for (const auto& row : snapshot.schedules) {
    const auto found = sweeps.find(row.sweep);
    if (found == sweeps.end()) {
      return error(damaged("a schedule belongs to no sweep ({})", row.sweep.to_string()));
    }
    found->second.schedules.push_back(&row);
  }
  for (auto& [id, rows] : sweeps) sort_rows(rows);
  return sweeps;
}

}  // namespace

SweepRows rows_of(const storage::Snapshot& snapshot, const storage::SweepRow& sweep) {
  SweepRows rows{&sweep, {}, {}, {}, {}, {}};
  std::set<TrialId> trials;
  for (const auto& row : snapshot.candidates) {
    if (row.sweep == sweep.id) rows.candidates.push_back(&row);
  }
  for (const auto& row : snapshot.trials) {
    if (row.sweep != sweep.id || !trials.insert(row.id).second) continue;
    rows.trials.push_back(&row);
  }
  for (const auto& row : snapshot.attempts) {
    if (trials.contains(row.id.trial)) rows.attempts[row.id.trial].push_back(&row);
  }
  for (const auto& row : snapshot.checkpoints) {
    if (trials.contains(row.attempt.trial)) rows.checkpoints[row.attempt.trial] = &row;
  }
  for (const auto& row : snapshot.schedules) {
    if (row.sweep == sweep.id) rows.schedules.push_back(&row);
  }
  sort_rows(rows);
  return rows;
}

Result<Sweep> read_ended(const storage::SweepRow& row, std::uint64_t candidates) {
  Sweep sweep;
  TAILOR_RETURN_IF_ERROR(read_file(row, &sweep));
  sweep.candidates.resize(candidates);
  TAILOR_RETURN_IF_ERROR(decode_search(sweep));
  return sweep;
}

Status install(State& state, const SweepRows& rows, const std::set<TrialId>& wanted, Now now) {
  Reading reading;
  TAILOR_RETURN_IF_ERROR(read_sweep(rows, wanted, &reading));
  const SweepId id = rows.row->id;
  if (!state.sweep_by_name.emplace(rows.row->name, id).second) {
    return damaged("another sweep has its name");
  }
  Sweep& sweep = state.sweeps.emplace(id, std::move(reading.sweep)).first->second;
  if (sweep.row.state == SweepState::kRunning || sweep.row.state == SweepState::kPaused) {
    state.open_sweeps.insert(id);
  }
  Status status;
  for (Trial& read : reading.trials) {
    const TrialId trial_id = read.row.id;
    Trial& trial = state.trials.emplace(trial_id, std::move(read)).first->second;
    status = load_history(state, trial, rows, now);
    if (!status.is_ok()) break;
    load_ready(state, trial, now);
  }
  if (status.is_ok() && wants_draws(state, sweep)) {
    state.deadlines.set(DeadlineKind::kDraws, id.value, now.mono_ms);
  }
  if (status.is_ok()) status = check_sweep(state, sweep);
  if (!status.is_ok()) take_out(state, id);
  return status;
}

Status install(State& state, Sweep& sweep, const storage::TrialRow& row,
               const storage::CandidateRow& candidate,
               const std::vector<const storage::AttemptRow*>& attempts,
               const storage::CheckpointRow* checkpoint) {
  if (sweep.candidates.at(row.candidate) == nullptr) {
    TAILOR_ASSIGN_OR_RETURN(sweep.candidates[row.candidate], read_candidate(sweep, candidate));
  }
  TAILOR_ASSIGN_OR_RETURN(Trial trial, read_trial_whole(row));
  if (checkpoint != nullptr) {
    TAILOR_RETURN_IF_ERROR(load_checkpoint(trial, *checkpoint, attempts));
  }
  state.trials.emplace(row.id, std::move(trial));
  return Status::ok();
}

Result<State> load(const storage::Snapshot& snapshot, const Options& options, Now now) {
  State state;
  state.options = options;
  state.counters = snapshot.counters;
  state.other_sweeps = snapshot.other_sweeps;
  state.other_trials = snapshot.other_trials;
  TAILOR_ASSIGN_OR_RETURN(const auto sweeps, by_sweep(snapshot));
  for (const auto& row : snapshot.workers) TAILOR_RETURN_IF_ERROR(load_worker(state, row));
  for (const auto& [id, rows] : sweeps) {
    if (has_ended(rows)) {
      std::map<TrialState, std::uint64_t> counts;
      for (const storage::TrialRow* row : rows.trials) ++counts[row->state];
      count_others(state, rows.row->state, counts, 1);
      continue;
    }
    const Status read = install(state, rows, {}, now);
    if (!read.is_ok()) set_aside(state, rows, read.message());
  }
  for (const auto& [id, worker] : state.workers) {
    load_quarantine(state, worker, now);
    load_drain(state, worker, now);
  }
  if (const Status status = check_invariants(state); !status.is_ok()) {
    return error(Code::kDataLoss, "the stored rows contradict each other: " + status.message());
  }
  return state;
}

}  // namespace tailor::core
