// A restart: from rows back to the State. Candidates are resolved again from their stored points,
// so that code and rows agree or the start is refused;
// only leases, sessions and back-offs begin anew.
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/core/json.h"
#include "coordinator/core/step.h"
#include "coordinator/core/transition.h"
#include "coordinator/scheduler/retry.h"

namespace tailor::core {

using storage::AttemptState;
using storage::SweepState;
using storage::TrialState;

namespace {

template <typename... Args>
Status damaged(fmt::format_string<Args...> text, Args&&... args) {
  return {Code::kDataLoss, fmt::format(text, std::forward<Args>(args)...)};
}

Status load_sweep(State& state, const storage::SweepRow& row) {
  const std::string id = row.id.to_string();
  auto spec = sweep::parse(row.toml, row.name, row.base_dir, sweep::Origin::kStored);
  if (!spec)
    return damaged("the stored file of sweep {} no longer parses: {}", id, spec.error().message());
  if (spec->name != row.name || row.id.value >= state.counters.next_sweep) {
    return damaged("the row of sweep {} contradicts its file or the counters", id);
  }
  Sweep sweep;
  sweep.row = row;
  TAILOR_ASSIGN_OR_RETURN(sweep.infeasible_reasons, reasons_from_json(row.infeasible_json));
  if (!spec->space.empty()) {
    auto algorithm = search::make_algorithm(spec->search.algorithm, *spec);
    if (!algorithm) return damaged("search of sweep {}: {}", id, algorithm.error().message());
    sweep.algorithm = std::move(*algorithm);
  }
  const auto named = sweep::resolve_named(*spec);
  if (!named) return damaged("sweep {}: {}", id, named.error().message());
  std::set<std::string> hashes;
  for (const sweep::Candidate& candidate : *named) hashes.insert(candidate.hash);
  sweep.named = hashes.size();
  sweep.demand = demand_of(spec->resources);
  sweep.spec = std::make_shared<const sweep::Spec>(std::move(*spec));
  if (row.state == SweepState::kRunning || row.state == SweepState::kPaused) {
    state.open_sweeps.insert(row.id);
  }
  const bool is_new = state.sweep_by_name.emplace(row.name, row.id).second &&
                      state.sweeps.emplace(row.id, std::move(sweep)).second;
  if (!is_new) return damaged("sweep {} or its name is stored twice", id);
  return Status::ok();
}

Status load_candidate(State& state, const storage::CandidateRow& row) {
  const auto found = state.sweeps.find(row.sweep);
  if (found == state.sweeps.end()) {
    return damaged("candidate {} belongs to no sweep ({})", row.index, row.sweep.to_string());
  }
  Sweep& sweep = found->second;
  const std::string what =
      fmt::format("candidate {} of sweep {}", row.index, row.sweep.to_string());
  if (row.index != sweep.candidates.size()) return damaged("{} is out of order", what);
  const auto point = point_from_json(row.point_json);
  if (!point) return point.error().with_context(what);
  auto candidate = sweep::resolve(*sweep.spec, row.name, *point);
  if (!candidate)
    return damaged("{} is not feasible any more: {}", what, candidate.error().message());
  if (candidate->hash != row.hash) {
    return damaged("{} resolves to another architecture or recipe than the one stored", what);
  }
  candidate->name = row.name;
  if (!sweep.candidate_by_hash.emplace(row.hash, row.index).second) {
    return damaged("{} is stored twice", what);
  }
  sweep.candidates.push_back(std::move(*candidate));
  sweep.first_trial.emplace_back();
  sweep.open_trials.push_back(0);
  return Status::ok();
}

Status load_trial(State& state, const storage::TrialRow& row) {
  const std::string id = row.id.to_string();
  const auto found = state.sweeps.find(row.sweep);
  if (found == state.sweeps.end()) return damaged("trial {} belongs to no sweep", id);
  Sweep& sweep = found->second;
  if (row.candidate >= sweep.candidates.size() || row.id.value >= state.counters.next_trial) {
    return damaged("trial {} names candidate {} of {} or an id never given out", id, row.candidate,
                   sweep.candidates.size());
  }
  TrialId& first = sweep.first_trial[row.candidate];
  if (!first.valid()) first = row.id;
  const std::uint64_t position = row.id.value - first.value;
  if (position >= sweep.spec->seeds.size() || sweep.spec->seeds[position] != row.seed) {
    return damaged("trial {} has not the seed that its sweep gives it", id);
  }
  Trial trial;
  trial.row = row;
  TAILOR_ASSIGN_OR_RETURN(trial.failures, failures_from_json(row.failures_json));
  ++sweep.counts[row.state];
  if (!storage::is_final(row.state)) ++sweep.open_trials[row.candidate];
  sweep.trials.push_back(row.id);
  if (!state.trials.emplace(row.id, std::move(trial)).second)
    return damaged("trial {} is stored twice", id);
  return Status::ok();
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

Status hold_slots(State& state, const LiveAttempt& live, const Member& member,
                  std::uint64_t memory_bytes) {
  const std::string id = live.row.id.to_string();
  const auto worker = state.workers.find(member.row.worker);
  if (worker == state.workers.end()) return damaged("attempt {} runs on an unknown worker", id);
  for (const std::uint32_t index : member.row.slots) {
    auto& slots = worker->second.slots;
    const auto slot = std::find_if(slots.begin(), slots.end(),
                                   [&](const WorkerSlot& s) { return s.slot.index == index; });
    if (slot == slots.end() || slot->held_by)
      return damaged("attempt {} has no slot {}", id, index);
    slot->held_by = live.row.id;
  }
  worker->second.memory_kept += memory_bytes;
  return Status::ok();
}

Status load_live(State& state, Trial& trial, const storage::AttemptRow& row, Now now) {
  const std::string id = row.id.to_string();
  const Sweep& sweep = state.sweeps.at(trial.row.sweep);
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
    TAILOR_RETURN_IF_ERROR(hold_slots(state, live, live.members.back(), sweep.demand.memory_bytes));
  }
  if (!row.members.empty() && row.members.front().worker != row.worker) {
    return damaged("attempt {} is not on the worker of its first member", id);
  }
  if (row.members.empty()) live.members.front().row.ranks = sweep.demand.slots;
  // The clock that ran when it began is gone; the wall clock may have jumped, but not into the
  // future of an attempt.
  const std::int64_t ran_ms = std::max<std::int64_t>(0, now.wall_ms - row.assigned_ms);
  live.began_ms = now.mono_ms - ran_ms;
  live.watched_ms = live.progress_ms = now.mono_ms;
  live.first_step = trial.checkpoint ? trial.checkpoint->step : 0;
  live.resumed_step = resumed_step_of(row);
  live.step = live.resumed_step;
  trial.live = std::move(live);
  if (std::all_of(trial.live->members.begin(), trial.live->members.end(),
                  [](const Member& member) { return member.row.ended.has_value(); })) {
    return damaged("attempt {} is stored as live, and all its members have ended", id);
  }
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

/// `attempts`: all of one trial, ascending. The last failures_json[class] ends of a class are those
/// that count (earlier ones were forgiven by a retry).
void load_failed_on(Trial& trial, std::span<const storage::AttemptRow> attempts) {
  auto left = trial.failures;
  for (auto it = attempts.rbegin(); it != attempts.rend(); ++it) {
    const auto end = protocol::parse_end_class(it->end_class);
    if (it->state != AttemptState::kEnded || !end || !scheduler::is_own_fault(*end)) continue;
    if (left[*end]-- > 0) trial.failed_on[*end].insert(worker_of_end(*it));
  }
}

/// What is left of the back-off, by the wall clock;
/// at most the whole of it should the clock have jumped.
std::int64_t backoff_left(const State& state, const Trial& trial, const storage::AttemptRow& last,
                          Now now) {
  const auto end = protocol::parse_end_class(last.end_class);
  if (!end) return 0;
  const auto failures = trial.failures.find(*end);
  if (failures == trial.failures.end()) return 0;
  const std::int64_t whole =
      scheduler::backoff_delay(*end, failures->second, state.options.backoff_ms);
  return std::clamp<std::int64_t>(last.ended_ms + whole - now.wall_ms, 0, whole);
}

/// REQUIRES: the attempts of the trial are in `snapshot`, sorted.
Status load_checkpoint(State& state, const storage::CheckpointRow& row,
                       std::span<const storage::AttemptRow> attempts) {
  const auto trial = state.trials.find(row.attempt.trial);
  const auto attempt =
      std::lower_bound(attempts.begin(), attempts.end(), row.attempt,
                       [](const storage::AttemptRow& a, const AttemptId& id) { return a.id < id; });
  if (trial == state.trials.end() || attempt == attempts.end() || attempt->id != row.attempt) {
    return damaged("a checkpoint of {} belongs to no attempt", row.attempt.to_string());
  }
  if (storage::is_final(trial->second.row.state)) return Status::ok();
  trial->second.checkpoint = CheckpointNote{row.step, attempt->worker, false};
  return Status::ok();
}

/// Queued trials that do not back off may be placed; the wait for their checkpoints begins anew.
void load_ready(State& state, Trial& trial, Now now) {
  if (trial.row.state != TrialState::kQueued) return;
  const std::uint64_t id = trial.row.id.value;
  if (state.deadlines.contains(DeadlineKind::kBackoff, id)) return;
  state.sweeps.at(trial.row.sweep).ready.insert({-std::int64_t{trial.row.priority}, trial.row.id});
  trial.ready_since_ms = now.mono_ms;
  if (!checkpoint_folder(state, trial).empty()) {
    state.deadlines.set(DeadlineKind::kHolder, id, now.mono_ms + state.options.holder_wait_ms);
  }
}

/// What is left of the time before a quarantined worker is tried.
void load_quarantine(State& state, const Worker& worker, Now now) {
  if (!is_probed(worker)) return;
  const std::int64_t whole = state.options.probe_after_ms;
  const std::int64_t left =
      std::clamp<std::int64_t>(worker.row.quarantined_ms + whole - now.wall_ms, 0, whole);
  state.deadlines.set(DeadlineKind::kPause, worker.row.id.value, now.mono_ms + left);
}

/// `rows` sorted by id.
Status load_attempts(State& state, std::span<const storage::AttemptRow> rows, Now now) {
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin;
    while (end < rows.size() && rows[end].id.trial == rows[begin].id.trial) ++end;
    const auto found = state.trials.find(rows[begin].id.trial);
    if (found == state.trials.end()) {
      return damaged("attempt {} belongs to no trial", rows[begin].id.to_string());
    }
    Trial& trial = found->second;
    const std::span<const storage::AttemptRow> attempts(rows.data() + begin, end - begin);
    if (!storage::is_final(trial.row.state)) {
      load_failed_on(trial, attempts);
      for (const storage::AttemptRow& row : attempts) {
        if (row.state != AttemptState::kEnded)
          TAILOR_RETURN_IF_ERROR(load_live(state, trial, row, now));
      }
      if (trial.row.state == TrialState::kQueued) {
        const std::int64_t left = backoff_left(state, trial, attempts.back(), now);
        if (left > 0) {
          state.deadlines.set(DeadlineKind::kBackoff, trial.row.id.value, now.mono_ms + left);
        }
      }
    }
    begin = end;
  }
  return Status::ok();
}

}  // namespace

Result<State> load(const storage::Snapshot& snapshot, const Options& options, Now now) {
  State state;
  state.options = options;
  state.counters = snapshot.counters;
  for (const auto& row : snapshot.sweeps) TAILOR_RETURN_IF_ERROR(load_sweep(state, row));
  auto candidates = snapshot.candidates;
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return std::tie(a.sweep, a.index) < std::tie(b.sweep, b.index);
  });
  for (const auto& row : candidates) TAILOR_RETURN_IF_ERROR(load_candidate(state, row));
  auto trials = snapshot.trials;
  std::sort(trials.begin(), trials.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (const auto& row : trials) TAILOR_RETURN_IF_ERROR(load_trial(state, row));
  for (const auto& row : snapshot.workers) TAILOR_RETURN_IF_ERROR(load_worker(state, row));
  auto attempts = snapshot.attempts;
  std::sort(attempts.begin(), attempts.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  for (const auto& row : snapshot.checkpoints) {
    TAILOR_RETURN_IF_ERROR(load_checkpoint(state, row, attempts));
  }
  TAILOR_RETURN_IF_ERROR(load_attempts(state, attempts, now));
  for (auto& [id, sweep] : state.sweeps) TAILOR_RETURN_IF_ERROR(decode_search(sweep));
  for (auto& [id, trial] : state.trials) {
    load_ready(state, trial, now);
  }
  for (const auto& [id, worker] : state.workers) load_quarantine(state, worker, now);
  for (const auto& [id, sweep] : state.sweeps) {
    if (wants_draws(state, sweep)) state.deadlines.set(DeadlineKind::kDraws, id.value, now.mono_ms);
  }
  if (const Status status = check_invariants(state); !status.is_ok()) {
    return error(Code::kDataLoss, "the stored rows contradict each other: " + status.message());
  }
  return state;
}

}  // namespace tailor::core
