// What must hold between any two steps (step.h), checked by walking the whole state.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "coordinator/core/json.h"
#include "coordinator/core/step.h"
#include "coordinator/core/transition.h"

namespace tailor::core {

using storage::AttemptState;
using storage::SweepState;
using storage::TrialState;

namespace {

template <typename... Args>
Status broken(fmt::format_string<Args...> text, Args&&... args) {
  return {Code::kInternal, fmt::format(text, std::forward<Args>(args)...)};
}

/// A gang is placed whole: as many members as the demand allows, on different workers, each with
/// all its slots for as long as it lives, and ranks without gaps.
Status check_members(const State& state, const Sweep& sweep, const LiveAttempt& live) {
  const std::string id = live.row.id.to_string();
  const scheduler::Demand& demand = sweep.demand;
  if (live.members.size() < demand.workers_min || live.members.size() > demand.workers) {
    return broken("{} has {} members and wants {} to {}", id, live.members.size(),
                  demand.workers_min, demand.workers);
  }
  const Member& speaker = live.members.front();
  if (live.row.worker != speaker.row.worker || live.row.slots != speaker.row.slots) {
    return broken("the row of {} names another worker than its first member", id);
  }
  std::set<WorkerId> workers;
  std::uint32_t next_rank = 0;
  std::optional<MonotonicMs> earliest;
  for (std::size_t i = 0; i < live.members.size(); ++i) {
    const Member& member = live.members[i];
    const std::string on = member.row.worker.to_string();
    if (!workers.insert(member.row.worker).second) return broken("{} is twice on {}", id, on);
    if (live.is_gang() && live.row.members.at(i) != member.row) {
      return broken("the row of {} contradicts its member on {}", id, on);
    }
    if (member.row.first_rank != next_rank || member.row.ranks != demand.slots ||
        member.row.slots.size() != demand.slots) {
      return broken("the ranks of {} on {} are not its share", id, on);
    }
    next_rank += member.row.ranks;
    const auto worker = state.workers.find(member.row.worker);
    if (worker == state.workers.end()) return broken("{} runs on unknown {}", id, on);
    const auto held = std::count_if(worker->second.slots.begin(), worker->second.slots.end(),
                                    [&](const WorkerSlot& s) { return s.held_by == live.row.id; });
    const std::size_t wanted = member.row.ended ? 0 : demand.slots;
    if (static_cast<std::size_t>(held) != wanted) {
      return broken("{} holds {} slots of {} and should hold {}", id, held, on, wanted);
    }
    if (member.row.ended) continue;
    earliest = std::min(earliest.value_or(member.lease_deadline_ms), member.lease_deadline_ms);
  }
  if (!earliest) return broken("{} lives, and all its members have ended", id);
  if (state.deadlines.at(DeadlineKind::kLease, live.row.id.trial.value) != earliest) {
    return broken("the lease of {} is not its members' earliest", id);
  }
  return Status::ok();
}

Status check_live(const State& state, const Trial& trial, std::set<FencingToken>* tokens) {
  const LiveAttempt& live = *trial.live;
  const std::string id = live.row.id.to_string();
  if (live.row.id.trial != trial.row.id || live.row.id.number != trial.row.attempts) {
    return broken("live attempt {} is not the last of {}", id, trial.row.id.to_string());
  }
  if (live.row.state == AttemptState::kEnded) return broken("live attempt {} has ended", id);
  if (live.row.token == 0 || live.row.token >= state.counters.next_token ||
      !tokens->insert(live.row.token).second) {
    return broken("token {} of {} is not its own", live.row.token, id);
  }
  if (!state.deadlines.contains(DeadlineKind::kLease, trial.row.id.value)) {
    return broken("{} has no lease in the index", id);
  }
  return check_members(state, state.sweeps.at(trial.row.sweep), live);
}

Status check_trials(const State& state) {
  std::set<FencingToken> tokens;
  std::size_t live = 0;
  std::size_t waiting = 0;
  std::map<SweepId, std::uint64_t> spared;
  for (const auto& [id, trial] : state.trials) {
    const std::string name = id.to_string();
    if (trial.row.id != id || id.value >= state.counters.next_trial ||
        !state.sweeps.contains(trial.row.sweep)) {
      return broken("trial {} is misfiled", name);
    }
    const Sweep& sweep = state.sweeps.at(trial.row.sweep);
    const bool queued = trial.row.state == TrialState::kQueued;
    const bool ready = sweep.ready.contains({-std::int64_t{trial.row.priority}, id});
    const bool backing_off = state.deadlines.contains(DeadlineKind::kBackoff, id.value);
    const bool for_widths = queued && waits_for_schedule(sweep, trial);
    if (queued != (ready || backing_off || for_widths) ||
        (ready ? 1 : 0) + (backing_off ? 1 : 0) + (for_widths ? 1 : 0) > 1) {
      return broken("trial {} is {} but ready={} backing_off={} for_widths={}", name,
                    storage::trial_state_name(trial.row.state), ready, backing_off, for_widths);
    }
    if (trial.live.has_value() != (trial.row.state == TrialState::kRunning)) {
      return broken("trial {} is {} but {} a live attempt", name,
                    storage::trial_state_name(trial.row.state), trial.live ? "has" : "lacks");
    }
    if (trial.row.state == TrialState::kCompleted && !trial.row.objective) {
      return broken("trial {} completed without an objective", name);
    }
    const auto& checkpoint = trial.checkpoint;
    if (checkpoint && (checkpoint->attempt == 0 || checkpoint->attempt > trial.row.attempts ||
                       !state.workers.contains(checkpoint->worker))) {
      return broken("the checkpoint of trial {} is of no attempt, or on no worker", name);
    }
    waiting += backing_off;
    if (trial.live) {
      ++live;
      spared[trial.row.sweep] += slots_spared(sweep, *trial.live);
      TAILOR_RETURN_IF_ERROR(check_live(state, trial, &tokens));
    }
  }
  for (const auto& [id, sweep] : state.sweeps) {
    if (sweep.slots_spared != spared[id]) {
      return broken("{} spares {} slots and counts {}", id.to_string(), spared[id],
                    sweep.slots_spared);
    }
  }
  const std::size_t leases = state.deadlines.all(DeadlineKind::kLease).size();
  const std::size_t backoffs = state.deadlines.all(DeadlineKind::kBackoff).size();
  if (live != leases) return broken("{} live attempts, {} leases", live, leases);
  if (waiting != backoffs) return broken("{} trials back off, {} are indexed", waiting, backoffs);
  return Status::ok();
}

Status check_offer(const State& state, const Worker& worker) {
  const scheduler::Offer* offer = state.offers.find(worker.row.id);
  const std::string name = worker.row.id.to_string();
  if ((offer != nullptr) != takes_work(state, worker)) {
    return broken("{} is {}offered", name, offer == nullptr ? "not " : "");
  }
  if (offer != nullptr && *offer != offer_of(state, worker, {})) {
    return broken("what {} offers is not what it has free", name);
  }
  return Status::ok();
}

/// A quarantine for troubles ends by itself: the next trial that tries the worker is due, may come,
/// or is there.
Status check_quarantine(const State& state, const Worker& worker) {
  if (!is_probed(worker) || worker.may_probe) return Status::ok();
  if (state.deadlines.contains(DeadlineKind::kPause, worker.row.id.value)) return Status::ok();
  for (const auto& [deadline, number] : state.deadlines.all(DeadlineKind::kLease)) {
    const LiveAttempt& live = *state.trials.at(TrialId{number}).live;
    const bool there =
        std::any_of(live.members.begin(), live.members.end(),
                    [&](const Member& member) { return member.row.worker == worker.row.id; });
    if (live.probe && there) return Status::ok();
  }
  return broken("{} is in quarantine, and nothing will ever try it", worker.row.id.to_string());
}

/// Memory is given out once, like slots.
Status check_memory(const State& state, const Worker& worker) {
  std::uint64_t kept = 0;
  std::set<AttemptId> seen;
  for (const WorkerSlot& slot : worker.slots) {
    if (!slot.held_by || !seen.insert(*slot.held_by).second) continue;
    kept += state.sweeps.at(state.trials.at(slot.held_by->trial).row.sweep).demand.memory_bytes;
  }
  if (kept != worker.memory_kept) {
    return broken("{} keeps {} bytes and should keep {}", worker.row.id.to_string(),
                  worker.memory_kept, kept);
  }
  return Status::ok();
}

Status check_priorities(const State& state) {
  std::set<Preemptible> preemptible;
  for (const auto& [deadline, number] : state.deadlines.all(DeadlineKind::kLease)) {
    const Trial& trial = state.trials.at(TrialId{number});
    const Sweep& sweep = state.sweeps.at(trial.row.sweep);
    if (sweep.spec->resources.preemptible) preemptible.insert(preemptible_of(sweep, trial));
  }
  if (preemptible != state.preemptible) {
    return broken("{} trials may be preempted, {} are indexed", preemptible.size(),
                  state.preemptible.size());
  }
  for (const auto& [id, reservation] : state.reservations) {
    const auto trial = state.trials.find(id);
    if (trial == state.trials.end() || trial->second.row.state != TrialState::kQueued) {
      return broken("slots are kept for {}, which does not wait", id.to_string());
    }
    const Sweep& sweep = state.sweeps.at(trial->second.row.sweep);
    if (sweep.row.state != SweepState::kRunning || !has_room(sweep)) {
      return broken("slots are kept for {}, which may not start", id.to_string());
    }
    for (const WorkerId worker : reservation.workers) {
      if (state.workers.at(worker).reserved_for != id) {
        return broken("{} keeps nothing for {}", worker.to_string(), id.to_string());
      }
      if (!takes_work(state, state.workers.at(worker))) {
        return broken("{} keeps slots for {}, and may not be given work", worker.to_string(),
                      id.to_string());
      }
      if (!scheduler::fits(whole_offer(state.workers.at(worker)), sweep.demand)) {
        return broken("{} keeps slots for {}, which does not fit there", worker.to_string(),
                      id.to_string());
      }
    }
  }
  std::map<TrialId, std::uint32_t> makes_room;
  for (const auto& [victim, beneficiary] : state.making_room) {
    if (!state.trials.at(victim).live) {
      return broken("{} makes room and does not run", victim.to_string());
    }
    ++makes_room[beneficiary];
  }
  for (const auto& [id, trial] : state.trials) {
    const auto found = makes_room.find(id);
    if (trial.makes_room != (found == makes_room.end() ? 0 : found->second)) {
      return broken("{} miscounts who makes room for it", id.to_string());
    }
  }
  return Status::ok();
}

Status check_workers(const State& state) {
  std::size_t connected = 0;
  for (const auto& [id, worker] : state.workers) {
    const std::string name = id.to_string();
    if (id.value >= state.counters.next_worker || !state.worker_by_name.contains(worker.row.name) ||
        state.worker_by_name.at(worker.row.name) != id) {
      return broken("worker {} is misfiled", name);
    }
    for (const WorkerSlot& slot : worker.slots) {
      if (!slot.held_by) continue;
      const auto trial = state.trials.find(slot.held_by->trial);
      const bool sound = trial != state.trials.end() && trial->second.live &&
                         trial->second.live->row.id == *slot.held_by;
      if (!sound) {
        return broken("slot {} of {} is held by {}, which is not live there", slot.slot.index, name,
                      slot.held_by->to_string());
      }
    }
    TAILOR_RETURN_IF_ERROR(check_memory(state, worker));
    TAILOR_RETURN_IF_ERROR(check_offer(state, worker));
    TAILOR_RETURN_IF_ERROR(check_quarantine(state, worker));
    if (worker.reserved_for.valid() && !state.reservations.contains(worker.reserved_for)) {
      return broken("{} keeps slots for nobody", name);
    }
    if (worker.session == 0) continue;
    ++connected;
    const auto session = state.worker_by_session.find(worker.session);
    if (session == state.worker_by_session.end() || session->second != id) {
      return broken("session {} of {} is misfiled", worker.session, name);
    }
  }
  if (connected != state.worker_by_session.size()) return broken("sessions and workers differ");
  return Status::ok();
}

}  // namespace

namespace {

/// Who waits for a measurement waits for a trial that will end, and whoever has widths is known by
/// them.
Status check_schedules(const State& state, const Sweep& sweep) {
  const std::string name = sweep.row.id.to_string();
  for (const auto& [index, row] : sweep.schedules) {
    if (row.sweep != sweep.row.id || row.candidate != index || index >= sweep.candidates.size()) {
      return broken("the schedule of candidate {} of {} is misfiled", index, name);
    }
    const bool waits = row.state == storage::ScheduleState::kWaiting;
    if (row.state == storage::ScheduleState::kCut) {
      return broken("the schedule of candidate {} of {} is cut and kept", index, name);
    }
    if (waits && sweep.open_trials[index] == 0) {
      return broken("the schedule of candidate {} of {} waits for nobody", index, name);
    }
    if (!waits) continue;
    const auto reference = state.trials.find(row.reference);
    if (reference == state.trials.end() || reference->second.row.sweep != sweep.row.id ||
        storage::is_final(reference->second.row.state)) {
      return broken("candidate {} of {} waits for {}, which will not be measured", index, name,
                    row.reference.to_string());
    }
  }
  for (std::uint32_t i = 0; i < sweep.candidates.size(); ++i) {
    if (sweep.candidates[i] == nullptr || sweep.open_trials[i] == 0) continue;
    if (sweep.candidates[i]->waiting != sweep.schedules.contains(i)) {
      return broken("candidate {} of {} {} a schedule that is to be cut", i, name,
                    sweep.candidates[i]->waiting ? "lacks" : "has");
    }
  }
  return Status::ok();
}

}  // namespace

Status check_sweep(const State& state, const Sweep& sweep) {
  const std::string name = sweep.row.id.to_string();
  const std::size_t seeds = sweep.spec->seeds.size();
  std::size_t trials = 0;
  for (std::uint32_t i = 0; i < sweep.candidates.size(); ++i) {
    if (i >= sweep.first_note.size() || sweep.first_note[i] != trials) {
      return broken("sweep {} has lost the notes of candidate {}", name, i);
    }
    trials += sweep.seeds_of(i).size();
  }
  if (sweep.notes.size() != trials || sweep.first_note.size() != sweep.candidates.size() ||
      sweep.candidate_by_hash.size() != sweep.candidates.size() ||
      sweep.first_trial.size() != sweep.candidates.size() ||
      sweep.open_trials.size() != sweep.candidates.size()) {
    return broken("sweep {} has {} candidates, {} seeds and {} trials", name,
                  sweep.candidates.size(), seeds, sweep.notes.size());
  }
  std::map<TrialState, std::uint64_t> counts;
  std::vector<std::uint32_t> open(sweep.candidates.size(), 0);
  for (std::size_t i = 0; i < sweep.notes.size(); ++i) {
    const TrialNote& note = sweep.notes[i];
    const TrialId id = sweep.trial_at(i);
    const auto trial = state.trials.find(id);
    const bool here = trial != state.trials.end();
    if (here ? trial->second.row.sweep != sweep.row.id || trial->second.row.state != note.state ||
                   trial->second.row.candidate != sweep.candidate_at(i)
             : !storage::is_final(note.state)) {
      return broken("the note of trial {} is not that of its trial", id.to_string());
    }
    const std::uint32_t candidate = sweep.candidate_at(i);
    if (here && sweep.candidates[candidate] == nullptr) {
      return broken("trial {} is in memory without its candidate", id.to_string());
    }
    ++counts[note.state];
    open[candidate] += !storage::is_final(note.state);
  }
  for (const TrialState s : {TrialState::kQueued, TrialState::kRunning, TrialState::kCompleted,
                             TrialState::kStopped, TrialState::kFailed, TrialState::kCancelled}) {
    if (counts[s] != sweep.count(s)) {
      return broken("sweep {} counts {} {} trials, there are {}", name, sweep.count(s),
                    storage::trial_state_name(s), counts[s]);
    }
  }
  if (open != sweep.open_trials) return broken("sweep {} miscounts open trials", name);
  TAILOR_RETURN_IF_ERROR(check_schedules(state, sweep));
  const bool is_open =
      sweep.row.state == SweepState::kRunning || sweep.row.state == SweepState::kPaused;
  if (is_open != state.open_sweeps.contains(sweep.row.id))
    return broken("sweep {} is misindexed", name);
  const std::uint64_t unfinished = counts[TrialState::kQueued] + counts[TrialState::kRunning];
  if (sweep.row.state == SweepState::kCompleted && (unfinished > 0 || !sweep.search_done)) {
    return broken("sweep {} completed with {} trials open", name, unfinished);
  }
  if (sweep.row.state == SweepState::kFailed && (!sweep.notes.empty() || !sweep.search_done)) {
    return broken("sweep {} failed with {} trials", name, sweep.notes.size());
  }
  if (is_open && unfinished == 0 && sweep.search_done)
    return broken("sweep {} should be completed", name);
  if (sweep.row.state == SweepState::kCancelled && counts[TrialState::kQueued] > 0) {
    return broken("cancelled sweep {} has queued trials", name);
  }
  if (wants_draws(state, sweep) &&
      !state.deadlines.contains(DeadlineKind::kDraws, sweep.row.id.value)) {
    return broken("the search of {} has room to draw and nothing will wake it", name);
  }
  const std::int32_t parallel = sweep.spec->resources.parallel;
  if (parallel > 0 && counts[TrialState::kRunning] > static_cast<std::uint64_t>(parallel)) {
    return broken("sweep {} runs {} trials, {} allowed", name, counts[TrialState::kRunning],
                  parallel);
  }
  if (!sweep.algorithm || sweep.row.state == SweepState::kCancelled) return Status::ok();
  for (std::uint32_t i = 0; i < open.size(); ++i) {
    const bool told = sweep.told.contains(i);
    if (told && i < sweep.named) return broken("the search of {} heard of a named candidate", name);
    if (!told && i >= sweep.named && open[i] == 0) {
      return broken("the search of {} did not hear of candidate {}", name, i);
    }
  }
  return Status::ok();
}

namespace {

/// Nobody waits for what is there: the first trial of a sweep that could be placed is, and one that
/// waits for its checkpoint's worker, and could start over elsewhere, has an end of that wait.
Status check_placements(const State& state) {
  for (const SweepId id : state.open_sweeps) {
    const Sweep& sweep = state.sweeps.at(id);
    if (sweep.row.state != SweepState::kRunning || sweep.ready.empty() || !has_room(sweep)) {
      continue;
    }
    const Trial& trial = state.trials.at(sweep.ready.begin()->second);
    const std::vector<WorkerId> workers = find_workers(state, sweep, trial);
    if (!workers.empty()) {
      return broken("{} waits, and could run on {}", trial.row.id.to_string(),
                    workers.front().to_string());
    }
    if (waits_for_holder(state, trial) &&
        !state.deadlines.contains(DeadlineKind::kHolder, trial.row.id.value) &&
        !state.offers.choose(demand_now(state, sweep), {}).empty()) {
      return broken("{} waits for the worker of its checkpoint without end",
                    trial.row.id.to_string());
    }
  }
  return Status::ok();
}

}  // namespace

Status check_invariants(const State& state) {
  TAILOR_RETURN_IF_ERROR(check_trials(state));
  for (const auto& [id, sweep] : state.sweeps) TAILOR_RETURN_IF_ERROR(check_sweep(state, sweep));
  TAILOR_RETURN_IF_ERROR(check_workers(state));
  TAILOR_RETURN_IF_ERROR(check_placements(state));
  return check_priorities(state);
}

std::string durable_text(const State& state) {
  std::string text =
      fmt::format("counters {} {} {} {}\n", state.counters.next_sweep, state.counters.next_trial,
                  state.counters.next_worker, state.counters.next_token);
  for (const auto& [id, sweep] : state.sweeps) {
    const storage::SweepRow& row = sweep.row;
    text +=
        fmt::format("{} {} {} {} {} infeasible={} {} {} {} named={} user={} search={}\n",
                    id.to_string(), row.name, row.spec_hash, storage::sweep_state_name(row.state),
                    row.priority, row.infeasible, reasons_to_json(sweep.infeasible_reasons),
                    row.created_ms, row.ended_ms, sweep.named, row.user, encode_search(sweep));
    std::map<std::uint32_t, std::string_view> hashes;
    for (const auto& [hash, index] : sweep.candidate_by_hash) hashes[index] = hash;
    for (std::uint32_t i = 0; i < sweep.candidates.size(); ++i) {
      text += fmt::format("  c{} {} first={} open={}", i, hashes[i],
                          sweep.first_trial[i].to_string(), sweep.open_trials[i]);
      if (sweep.open_trials[i] > 0) {
        const sweep::Candidate& c = *sweep.candidates[i];
        text += fmt::format(" '{}' {} {}", c.name, point_to_json(c.point),
                            shape::canonical_json(c.architecture));
      }
      text += '\n';
    }
    for (const auto& [index, cut] : sweep.schedules) {
      text += fmt::format("  schedule of c{} {} {} {} {} {}\n", index,
                          storage::schedule_state_name(cut.state), cut.reference.to_string(),
                          cut.key, cut.message, cut.request_json);
    }
    for (std::size_t i = 0; i < sweep.notes.size(); ++i) {
      const TrialNote& note = sweep.notes[i];
      text += fmt::format("  {} {} {} {}\n", sweep.trial_at(i).to_string(),
                          storage::trial_state_name(note.state), note.attempts, note.objective);
    }
  }
  for (const auto& [sweep_state, count] : state.other_sweeps) {
    text += fmt::format("{} other sweeps {}\n", count, storage::sweep_state_name(sweep_state));
  }
  for (const auto& [trial_state, count] : state.other_trials) {
    text += fmt::format("{} other trials {}\n", count, storage::trial_state_name(trial_state));
  }
  for (const auto& [id, aside] : state.unreadable) {
    text += fmt::format("{} unreadable: {}\n", id.to_string(), aside.reason);
  }
  for (const auto& [id, trial] : state.trials) {
    const storage::TrialRow& row = trial.row;
    if (storage::is_final(row.state)) continue;
    text +=
        fmt::format("{} {} c{} seed={} priority={} ran={} {} attempts={} {} [{}] '{}' {} {} {} {}",
                    id.to_string(), row.sweep.to_string(), row.candidate, row.seed, row.priority,
                    row.run_ms, storage::trial_state_name(row.state), row.attempts,
                    row.failures_json, protocol::end_class_name(row.end_class), row.message,
                    row.objective ? fmt::format("{}", *row.objective) : "-", row.created_ms,
                    row.started_ms, row.ended_ms);
    for (const auto& [name, value] : row.final_values) text += fmt::format(" {}={}", name, value);
    for (const auto& [end, workers] : trial.failed_on) {
      for (const WorkerId w : workers) {
        text += fmt::format(" {}@{}", protocol::end_class_name(end), w.to_string());
      }
    }
    if (trial.live) {
      const storage::AttemptRow& a = trial.live->row;
      text += fmt::format(" live {} token={} {} slots={} {} acked={} log={} ran={} stop='{}' {}{}",
                          a.id.to_string(), a.token, a.worker.to_string(), fmt::join(a.slots, ","),
                          storage::attempt_state_name(a.state), a.acked_sequence, a.log_bytes,
                          a.ran_ms, protocol::stop_reason_name(trial.live->stop_reason),
                          a.started_json, a.awaits_step ? " awaits_step" : "");
      for (const Member& member : trial.live->members) {
        text +=
            fmt::format(" member {} slots={} ranks={}+{} {}", member.row.worker.to_string(),
                        fmt::join(member.row.slots, ","), member.row.first_rank, member.row.ranks,
                        member.row.ended ? protocol::end_class_name(*member.row.ended) : "lives");
      }
    }
    if (trial.checkpoint && !storage::is_final(row.state)) {
      text += fmt::format(" checkpoint={}@{} of {}", trial.checkpoint->step,
                          trial.checkpoint->worker.to_string(), trial.checkpoint->attempt);
    }
    text += '\n';
  }
  for (const auto& [id, worker] : state.workers) {
    const storage::WorkerRow& row = worker.row;
    text += fmt::format(
        "{} {} {} {} {} {} draining={} {} {} folder={} "
        "labels={} memory={} quarantine='{}' {} {} drain_at={}\n",
        id.to_string(), row.name, row.instance, row.host, row.version, row.slots_json, row.draining,
        row.first_seen_ms, row.last_seen_ms, row.folder, fmt::join(row.labels, ","),
        row.memory_bytes, row.quarantine, row.quarantined_ms,
        storage::quarantine_cause_name(row.quarantine_cause), row.drain_at_ms);
  }
  return text;
}

}  // namespace tailor::core
