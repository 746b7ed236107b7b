// The lives of trials and attempts: queued -> running (one live attempt) -> queued again or final.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "coordinator/core/json.h"
#include "coordinator/core/step.h"
#include "coordinator/core/transition.h"
#include "coordinator/scheduler/retry.h"
#include "coordinator/search/judge.h"

namespace tailor::core {

using protocol::EndClass;
using protocol::StopReason;
using storage::AttemptState;
using storage::SweepState;
using storage::TrialState;

namespace {

/// How the end of an attempt counts, after the sweep's own rules were applied to the members'
/// words.
struct Outcome {
  EndClass end = EndClass::kCompleted;
  std::string message;
  enum class Blame {
    kNobody,  ///< asked for: consumes no retry
    kWorker,  ///< never started: costs the worker, not the trial
    kTrial,   ///< counted
  };
  Blame blame = Blame::kTrial;
};

/// A trial without a finite objective has not completed, whatever its trainer says.
Outcome judge_completed(const Trial& trial, std::string message) {
  const auto loss = trial.row.final_values.find("validation_loss");
  if (loss == trial.row.final_values.end()) {
    return {EndClass::kInfrastructure,
            "no_objective: the trainer ended well but reported no validation_loss"};
  }
  if (!std::isfinite(loss->second)) {
    return {EndClass::kNan,
            fmt::format("validation_loss is {} at step {}", loss->second, trial.live->step)};
  }
  return {EndClass::kCompleted, std::move(message)};
}

bool was_asked_for(StopReason reason) {
  return reason == StopReason::kPaused || reason == StopReason::kCancelled ||
         reason == StopReason::kPreempted || reason == StopReason::kDrained;
}

/// True when no trainer of it was ever heard of.
bool never_started(const LiveAttempt& live) { return live.resumed_step < 0; }

/// Ends for which the trial had worn out the worker's patience rather than the reverse.
bool starts_fail_everywhere(const Options& options, const Trial& trial) {
  return trial.not_started_on.size() >= options.start_failure_workers ||
         trial.not_started >= options.start_failures;
}

Outcome judge(const State& state, const Sweep& sweep, const Trial& trial, Verdict verdict) {
  using Blame = Outcome::Blame;
  const LiveAttempt& live = *trial.live;
  if (verdict.end == EndClass::kCompleted) {
    return judge_completed(trial, std::move(verdict.message));
  }
  const bool asked = was_asked_for(live.stop_reason) || sweep.row.state == SweepState::kCancelled;
  const bool was_stopped =
      verdict.end == EndClass::kStopped || !scheduler::is_own_fault(verdict.end);
  if (asked && was_stopped) return {EndClass::kStopped, std::move(verdict.message), Blame::kNobody};
  if (live.stop_reason == StopReason::kTimeout && was_stopped) {
    return {EndClass::kTimeout, live.row.message.empty() ? verdict.message : live.row.message};
  }
  if (verdict.end == EndClass::kStopped) {
    // The trainer saved and went because its node was drained or its worker was gone.
    const bool draining = state.workers.at(verdict.worker).row.draining;
    return {EndClass::kPreempted, std::move(verdict.message),
            draining ? Blame::kNobody : Blame::kTrial};
  }
  const bool not_started =
      live.refused || (verdict.end == EndClass::kInfrastructure && never_started(live));
  return {verdict.end, std::move(verdict.message), not_started ? Blame::kWorker : Blame::kTrial};
}

/// The search hears of a candidate of its space when all its seeds are final, once.
void tell_if_final(Transition& t, Sweep& sweep, std::uint32_t candidate) {
  if (!sweep.algorithm || sweep.open_trials[candidate] > 0 || candidate < sweep.named ||
      sweep.row.state == SweepState::kCancelled || !sweep.told.insert(candidate)) {
    return;
  }
  const search::Observation observation{sweep.candidates[candidate]->point,
                                        candidate_objective(sweep, candidate)};
  sweep.algorithm->update({&observation, 1});
  t.touch(sweep);
}

EventKind event_kind(TrialState final_state) {
  switch (final_state) {
    case TrialState::kCompleted:
      return EventKind::kTrialCompleted;
    case TrialState::kStopped:
      return EventKind::kTrialStopped;
    case TrialState::kFailed:
      return EventKind::kTrialFailed;
    case TrialState::kCancelled:
      return EventKind::kTrialCancelled;
    case TrialState::kQueued:
    case TrialState::kRunning:
      break;
  }
  TAILOR_CHECK(false, "not a final state");
  return EventKind::kOther;
}

/// A failure that counts: another attempt, or the end of the trial.
void retry_or_fail(Transition& t, Trial& trial, const Sweep& sweep, const Outcome& outcome,
                   WorkerId worker) {
  const std::int32_t failures = ++trial.failures[outcome.end];
  trial.row.failures_json = failures_to_json(trial.failures);
  scheduler::RetryInput input;
  input.end = outcome.end;
  input.limit = sweep.spec->retry.at(outcome.end);
  input.failures = failures;
  input.same_failure_workers = t.state.options.same_failure_workers;
  input.backoff_ms = t.state.options.backoff_ms;
  if (scheduler::is_own_fault(outcome.end)) {
    auto& workers = trial.failed_on[outcome.end];
    workers.insert(worker);
    input.workers = workers.size();
  }
  const scheduler::RetryDecision decision = scheduler::decide(input);
  if (decision.retry) {
    queue_trial(t, trial, decision.delay_ms);
    return;
  }
  finish_trial(t, trial, TrialState::kFailed, outcome.end,
               fmt::format("{} ({})", outcome.message, decision.reason));
}

/// What the end says about the workers: trouble, or that they are well.
void judge_by_end(Transition& t, const Trial& trial, const LiveAttempt& live,
                  const Outcome& outcome, const Verdict& verdict) {
  Worker& there = t.state.workers.at(verdict.worker);
  if (outcome.blame == Outcome::Blame::kWorker) {
    // An order that crossed the news that the worker wants none is nobody's fault.
    if (live.refused && (there.row.draining || !there.unfit.empty())) return;
    if (!live.refused && starts_fail_everywhere(t.state.options, trial)) return;
    return worker_trouble(t, there, live, live.refused ? Trouble::kRefused : Trouble::kNotStarted,
                          outcome.message);
  }
  const bool lost = verdict.end == EndClass::kNodeLost || verdict.end == EndClass::kLeaseLost;
  if (verdict.end == EndClass::kInfrastructure && outcome.blame == Outcome::Blame::kTrial) {
    return worker_trouble(t, there, live, Trouble::kInfrastructure, outcome.message);
  }
  if (lost) return;  // lose_lease has seen to it
  for (const Member& member : live.members) {
    Worker& worker = t.worker_of(member);
    if (!lost && outcome.blame == Outcome::Blame::kTrial) worker_well(t, worker);
  }
}

void judge_workers(Transition& t, const Trial& trial, const LiveAttempt& live,
                   const Outcome& outcome, const Verdict& verdict) {
  judge_by_end(t, trial, live, outcome, verdict);
  if (live.probe) probe_ended(t, live);
}

/// Its starts failed: others get their turn, on other workers if there are any.
void start_later(Transition& t, Trial& trial, const Sweep& sweep, const Outcome& outcome,
                 const LiveAttempt& live, WorkerId worker) {
  if (!live.refused) {
    ++trial.not_started;
    trial.not_started_on.insert(worker);
    if (starts_fail_everywhere(t.state.options, trial)) {
      return retry_or_fail(t, trial, sweep, outcome, worker);
    }
  }
  queue_trial(t, trial,
              live.refused ? 0
                           : scheduler::doubled(t.state.options.backoff_ms,
                                                static_cast<std::int32_t>(trial.not_started)));
}

}  // namespace

std::optional<double> candidate_objective(const Sweep& sweep, std::uint32_t candidate) {
  std::vector<search::SeedOutcome> outcomes;
  for (std::size_t i = 0; i < sweep.seeds_of(candidate).size(); ++i) {
    const TrialNote& note = sweep.notes[sweep.first_note[candidate] + i];
    search::SeedOutcome outcome;
    if (!std::isnan(note.objective)) outcome.objective = note.objective;
    outcome.own_fault = note.own_fault;
    outcomes.push_back(outcome);
  }
  return search::judged_objective(outcomes);
}

TrialNote note_of(const storage::TrialRow& trial) {
  TrialNote note;
  note.state = trial.state;
  note.attempts = trial.attempts;
  if (trial.state == TrialState::kCompleted) {
    note.objective = trial.objective.value_or(note.objective);
    note.own_fault = true;  // without one
  } else if (trial.state == TrialState::kFailed) {
    note.own_fault = !trial.end_class || scheduler::is_own_fault(*trial.end_class);
  } else {
    note.own_fault = trial.state == TrialState::kStopped;
  }
  return note;
}

void set_trial_state(Transition& t, Trial& trial, TrialState next) {
  Sweep& sweep = t.sweep_of(trial);
  const TrialState previous = trial.row.state;
  const bool had_room = has_room(sweep);
  --sweep.counts[previous];
  ++sweep.counts[next];
  if (!had_room && has_room(sweep)) sweep.startable_since_ms = t.now.mono_ms;
  std::uint32_t& open = sweep.open_trials[trial.row.candidate];
  if (!storage::is_final(previous) && storage::is_final(next)) --open;
  if (storage::is_final(previous) && !storage::is_final(next)) ++open;
  trial.row.state = next;
  sweep.note_of(trial.row) = note_of(trial.row);
  t.touch(trial);
}

void make_ready(Transition& t, Sweep& sweep, Trial& trial) {
  sweep.ready.insert({-std::int64_t{trial.row.priority}, trial.row.id});
  trial.ready_since_ms = t.now.mono_ms;
  trial.may_start_over = false;
  t.placement_changed = true;
}

void unindex_queued(State& state, Sweep& sweep, Trial& trial) {
  sweep.ready.erase({-std::int64_t{trial.row.priority}, trial.row.id});
  state.deadlines.clear(DeadlineKind::kBackoff, trial.row.id.value);
  state.deadlines.clear(DeadlineKind::kHolder, trial.row.id.value);
  forget_room(state, trial);
}

void queue_trial(Transition& t, Trial& trial, std::int64_t delay_ms) {
  Sweep& sweep = t.sweep_of(trial);
  set_trial_state(t, trial, TrialState::kQueued);
  if (waits_for_schedule(sweep, trial)) {
    t.event(EventKind::kTrialQueued, {sweep.row.id, trial.row.id, trial.row.attempts, {}},
            "waits for its widths");
    return;
  }
  if (delay_ms > 0) {
    t.state.deadlines.set(DeadlineKind::kBackoff, trial.row.id.value, t.now.mono_ms + delay_ms);
  } else {
    make_ready(t, sweep, trial);
  }
  t.placement_changed = true;
  t.event(EventKind::kTrialQueued, {sweep.row.id, trial.row.id, trial.row.attempts, {}},
          delay_ms > 0 ? fmt::format("waits {} ms", delay_ms) : "");
}

void finish_trial(Transition& t, Trial& trial, TrialState final_state,
                  std::optional<EndClass> end_class, std::string message) {
  Sweep& sweep = t.sweep_of(trial);
  if (trial.row.state == TrialState::kQueued) {
    unindex_queued(t.state, sweep, trial);
    t.placement_changed = true;  // there is room in the queue
  }
  trial.row.ended_ms = t.now.wall_ms;
  trial.row.end_class = end_class;
  trial.row.message = message;
  set_trial_state(t, trial, final_state);
  trial.failed_on.clear();
  trial.not_started_on.clear();
  t.event(event_kind(final_state), {sweep.row.id, trial.row.id, trial.row.attempts, {}},
          std::move(message));
  tell_if_final(t, sweep, trial.row.candidate);
  after_final(t, sweep, trial);
  complete_if_done(t, sweep);
}

std::string outcome_text(const Sweep& sweep) {
  const bool empty = sweep.search_done && sweep.candidates.empty();
  const std::uint64_t unseen =
      sweep.algorithm && sweep.search_done ? sweep.algorithm->remaining().value_or(0) : 0;
  if (!empty && unseen == 0) return "";
  std::vector<std::pair<std::uint64_t, std::string_view>> reasons;
  for (const auto& [reason, count] : sweep.infeasible_reasons) reasons.push_back({count, reason});
  std::sort(reasons.rbegin(), reasons.rend());
  std::string text =
      !empty ? fmt::format("the search gave up after {} points that are infeasible or another's",
                           sweep.row.infeasible + duplicates_of(sweep))
      : unseen > 0
          ? fmt::format("none of the {} points that were tried is feasible", sweep.row.infeasible)
          : fmt::format("no point of the space is feasible: {} were tried", sweep.row.infeasible);
  if (unseen > 0) text += fmt::format("; up to {} candidates more were wanted", unseen);
  for (const auto& [count, reason] : reasons) text += fmt::format("; {}: {}", count, reason);
  return text + ". `tailor plan` says why points fail";
}

void complete_if_done(Transition& t, Sweep& sweep) {
  const bool open =
      sweep.row.state == SweepState::kRunning || sweep.row.state == SweepState::kPaused;
  if (!open || !sweep.search_done || sweep.count(TrialState::kQueued) > 0 ||
      sweep.count(TrialState::kRunning) > 0) {
    return;
  }
  sweep.row.ended_ms = t.now.wall_ms;
  t.state.open_sweeps.erase(sweep.row.id);
  t.touch(sweep);
  if (sweep.candidates.empty()) {
    // Nothing was trained: that is no success, whatever the reason.
    sweep.row.state = SweepState::kFailed;
    t.event(EventKind::kSweepFailed, {sweep.row.id, {}, 0, {}}, outcome_text(sweep));
    return;
  }
  sweep.row.state = SweepState::kCompleted;
  t.event(EventKind::kSweepCompleted, {sweep.row.id, {}, 0, {}},
          fmt::format("{} trials completed, {} failed, {} stopped, {} cancelled",
                      sweep.count(TrialState::kCompleted), sweep.count(TrialState::kFailed),
                      sweep.count(TrialState::kStopped), sweep.count(TrialState::kCancelled)));
}

namespace {

/// The smaller of two limits, of which 0 is none.
std::int64_t sooner(std::int64_t a, std::int64_t b) {
  return a == 0 ? b : b == 0 ? a : std::min(a, b);
}

/// How long the attempt that begins now may run; 0 = for ever.
std::int64_t time_limit_ms(const sweep::LimitSpec& limits, const Trial& trial) {
  const std::int64_t left =
      limits.trial_ms > 0 ? std::max<std::int64_t>(1, limits.trial_ms - trial.row.run_ms) : 0;
  return sooner(limits.attempt_ms, left);
}

void take_slots(State& state, const LiveAttempt& live, const Member& member,
                std::uint64_t memory_bytes) {
  Worker& worker = state.workers.at(member.row.worker);
  for (const std::uint32_t index : member.row.slots) {
    const auto slot = std::find_if(worker.slots.begin(), worker.slots.end(),
                                   [&](const WorkerSlot& s) { return s.slot.index == index; });
    TAILOR_CHECK(slot != worker.slots.end() && !slot->held_by, "slot {} of {} is taken", index,
                 worker.row.id.to_string());
    slot->held_by = live.row.id;
  }
  worker.memory_kept += memory_bytes;
  refresh(state, worker);
}

/// "", or the other workers of a gang.
std::string gang_text(const State& state, const LiveAttempt& live) {
  if (!live.is_gang()) return "";
  std::string text;
  for (const Member& member : live.members) {
    text += fmt::format("{}{}", text.empty() ? "gang of " : ", ",
                        state.workers.at(member.row.worker).row.name);
  }
  return text;
}

}  // namespace

protocol::Assign make_assign(const State& state, const Trial& trial, const Member& member) {
  const LiveAttempt& live = *trial.live;
  const Sweep& sweep = state.sweeps.at(trial.row.sweep);
  protocol::Assign message;
  message.spec = sweep::make_trial_spec(*sweep.spec, *sweep.candidates[trial.row.candidate],
                                        trial.row.seed, is_reference(sweep, trial.row.id));
  message.spec.trial = trial.row.id;
  message.spec.attempt = live.row.id.number;
  message.spec.token = live.row.token;
  message.spec.threads = 0;
  for (const WorkerSlot& slot : state.workers.at(member.row.worker).slots) {
    if (slot.held_by == live.row.id) message.spec.threads += slot.slot.threads;
  }
  message.slots = member.row.slots;
  message.progress_limit_ms = sweep.spec->limits.progress_ms;
  message.time_limit_ms = time_limit_ms(sweep.spec->limits, trial);
  message.gang.first_rank = member.row.first_rank;
  message.gang.ranks = member.row.ranks;
  message.gang.world = static_cast<std::uint32_t>(trial.live->members.size()) * sweep.demand.slots;
  message.stored = stored_of(state, trial.row.id);
  return message;
}

void assign(Transition& t, Trial& trial, const std::vector<WorkerId>& workers) {
  Sweep& sweep = t.sweep_of(trial);
  LiveAttempt live;
  for (const WorkerId id : workers) {
    Member member;
    member.row.worker = id;
    member.row.slots = scheduler::pick_slots(
        offer_of(t.state, t.state.workers.at(id), trial.row.id), sweep.demand);
    member.row.first_rank = static_cast<std::uint32_t>(live.members.size()) * sweep.demand.slots;
    member.row.ranks = sweep.demand.slots;
    member.lease_deadline_ms = t.now.mono_ms + t.state.options.lease_ms;
    live.members.push_back(std::move(member));
  }
  unindex_queued(t.state, sweep, trial);
  live.row.id = {trial.row.id, ++trial.row.attempts};
  live.row.token = t.state.counters.next_token++;
  live.row.worker = live.members.front().row.worker;
  live.row.slots = live.members.front().row.slots;
  live.row.assigned_ms = t.now.wall_ms;
  if (live.is_gang()) {
    for (const Member& member : live.members) live.row.members.push_back(member.row);
  }
  live.began_ms = live.watched_ms = live.progress_ms = t.now.mono_ms;
  live.first_step = trial.checkpoint ? trial.checkpoint->step : 0;
  t.touch_counters();
  t.touch(live);
  for (const Member& member : live.members) {
    Worker& worker = t.worker_of(member);
    live.probe |= is_probed(worker);
    worker.may_probe = false;
    take_slots(t.state, live, member, sweep.demand.memory_bytes);
  }
  sweep.slots_spared += slots_spared(sweep, live);
  trial.live = std::move(live);
  index_lease(t.state, trial);
  watch_limits(t.state, trial);
  set_trial_state(t, trial, TrialState::kRunning);
  if (sweep.spec->resources.preemptible) {
    t.state.preemptible.insert(preemptible_of(sweep, trial));
  }
  t.event(EventKind::kAttemptAssigned,
          {sweep.row.id, trial.row.id, trial.row.attempts, trial.live->row.worker},
          gang_text(t.state, *trial.live));
  for (const Member& member : trial.live->members) {
    t.send(t.worker_of(member).session, make_assign(t.state, trial, member));
  }
}

void watch_limits(State& state, const Trial& trial) {
  const LiveAttempt& live = *trial.live;
  const sweep::LimitSpec& limits = state.sweeps.at(trial.row.sweep).spec->limits;
  const std::int64_t time_ms = time_limit_ms(limits, trial);
  const std::int64_t start_ms =
      live.is_gang() && live.resumed_step < 0 ? state.options.gang_start_ms : 0;
  const std::int64_t progress_ms = sooner(limits.progress_ms, start_ms);
  std::optional<MonotonicMs> due;
  if (time_ms > 0) due = live.watched_ms + time_ms;
  if (progress_ms > 0) {
    due = std::min(due.value_or(live.progress_ms + progress_ms), live.progress_ms + progress_ms);
  }
  if (!due || live.stop_reason != StopReason::kNone) {
    return state.deadlines.clear(DeadlineKind::kLimit, trial.row.id.value);
  }
  state.deadlines.set(DeadlineKind::kLimit, trial.row.id.value,
                      *due + state.options.limit_slack_ms);
}

void end_by_limit(Transition& t, Trial& trial) {
  LiveAttempt& live = *trial.live;
  if (live.stop_reason != StopReason::kNone) return;
  watch_limits(t.state, trial);
  const auto due = t.state.deadlines.at(DeadlineKind::kLimit, trial.row.id.value);
  if (!due || *due > t.now.mono_ms) return;  // it has come to new steps since
  t.state.deadlines.clear(DeadlineKind::kLimit, trial.row.id.value);
  live.row.message =
      live.resumed_step < 0
          ? fmt::format("it did not start within {} s", (t.now.mono_ms - live.began_ms) / 1'000)
          : fmt::format(
                "its worker did not end it at its limit of time: {} s since it began, {} s "
                "since its last step",
                (t.now.mono_ms - live.began_ms) / 1'000,
                (t.now.mono_ms - live.progress_ms) / 1'000);
  ask_to_stop(t, trial, StopReason::kTimeout);
}

void ask_to_stop(Transition& t, Trial& trial, StopReason reason) {
  LiveAttempt& live = *trial.live;
  if (live.stop_reason == reason || live.stop_reason == StopReason::kCancelled) return;
  live.stop_reason = reason;
  // In the row, so that a restart knows that this end was asked for.
  live.row.stop_reason = reason;
  t.touch(live);
  t.state.deadlines.clear(DeadlineKind::kLimit, trial.row.id.value);
  for (const Member& member : live.members) {
    if (member.row.ended) continue;
    t.send(t.worker_of(member).session,
           protocol::Stop{{live.row.id, live.row.token}, live.stop_reason, false});
  }
}

void close_attempt(Transition& t, Trial& trial) {
  TAILOR_CHECK(trial.live.has_value());
  Sweep& sweep = t.sweep_of(trial);
  const Verdict verdict = verdict_of(*trial.live);
  const Outcome outcome = judge(t.state, sweep, trial, verdict);
  const bool cancelled = trial.live->stop_reason == StopReason::kCancelled ||
                         sweep.row.state == SweepState::kCancelled;
  const std::string_view end_class = protocol::end_class_name(outcome.end);

  t.state.deadlines.clear(DeadlineKind::kLease, trial.row.id.value);
  t.state.deadlines.clear(DeadlineKind::kLimit, trial.row.id.value);
  t.state.preemptible.erase(preemptible_of(sweep, trial));
  room_was_made(t.state, trial);
  storage::AttemptRow& attempt = trial.live->row;
  attempt.state = AttemptState::kEnded;
  attempt.end_class = outcome.end;
  attempt.message = outcome.message;
  attempt.ended_ms = t.now.wall_ms;
  t.touch(*trial.live);
  t.event(EventKind::kAttemptEnded, {sweep.row.id, trial.row.id, attempt.id.number, verdict.worker},
          outcome.message.empty() ? std::string(end_class)
                                  : fmt::format("{}: {}", end_class, outcome.message));
  const LiveAttempt ended = std::move(*trial.live);
  trial.live.reset();
  sweep.slots_spared -= slots_spared(sweep, ended);
  trial.row.end_class = outcome.end;
  trial.row.message = outcome.message;
  trial.row.run_ms += ended.row.ran_ms;
  judge_workers(t, trial, ended, outcome, verdict);

  const std::int64_t trial_ms = sweep.spec->limits.trial_ms;
  if (outcome.end == EndClass::kCompleted) {
    trial.row.objective = trial.row.final_values.at("validation_loss");
    finish_trial(t, trial, TrialState::kCompleted, outcome.end, outcome.message);
  } else if (cancelled) {
    finish_trial(t, trial, TrialState::kCancelled, outcome.end, "cancelled by request");
  } else if (trial_ms > 0 && trial.row.run_ms >= trial_ms) {
    finish_trial(t, trial, TrialState::kFailed, EndClass::kTimeout,
                 fmt::format("its attempts ran for {} s together, and limits.trial is {} s{}{}",
                             trial.row.run_ms / 1'000, trial_ms / 1'000,
                             outcome.message.empty() ? "" : "; the last ended: ", outcome.message));
  } else if (outcome.blame == Outcome::Blame::kNobody) {
    queue_trial(t, trial, 0);
  } else if (outcome.blame == Outcome::Blame::kWorker) {
    start_later(t, trial, sweep, outcome, ended, verdict.worker);
  } else {
    retry_or_fail(t, trial, sweep, outcome, verdict.worker);
  }
}

}  // namespace tailor::core
