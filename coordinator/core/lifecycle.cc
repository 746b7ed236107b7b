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

/// How the end of an attempt counts, after the sweep's own rules were applied
/// to the trainer's word.
struct Outcome {
  EndClass end;
  std::string message;
  bool counted = true;  ///< false: asked for; consumes no retry
};

/// A trial without a finite objective has not completed, whatever its trainer says.
Outcome judge_completed(const protocol::EndReport* report, std::string message) {
  if (report == nullptr) return {EndClass::kCompleted, std::move(message)};
  const auto loss = report->values.find("validation_loss");
  if (loss == report->values.end()) {
    return {EndClass::kInfrastructure,
            "no_objective: the trainer ended well but reported no validation_loss"};
  }
  if (!std::isfinite(loss->second)) {
    return {EndClass::kNan,
            fmt::format("validation_loss is {} at step {}", loss->second, report->step)};
  }
  return {EndClass::kCompleted, std::move(message)};
}

Outcome judge(const Sweep& sweep, const Trial& trial, const Worker& worker, EndClass end,
              std::string message, const protocol::EndReport* report) {
  if (end == EndClass::kCompleted) return judge_completed(report, std::move(message));
  const bool asked =
      trial.live->stop_reason != StopReason::kNone || sweep.row.state == SweepState::kCancelled;
  const bool was_stopped = end == EndClass::kStopped || !scheduler::is_own_fault(end);
  if (asked && was_stopped) return {EndClass::kStopped, std::move(message), false};
  if (end == EndClass::kStopped) {
    // The trainer saved and went because its node was drained or its worker was gone.
    return {EndClass::kPreempted, std::move(message), !worker.row.draining};
  }
  return {end, std::move(message)};
}

void free_slots(Transition& t, const LiveAttempt& live) {
  for (WorkerSlot& slot : t.worker_of(live).slots) {
    if (slot.held_by == live.row.id) slot.held_by.reset();
  }
  t.state.deadlines.clear(DeadlineKind::kLease, live.row.id.trial.value);
  t.placement_changed = true;
}

/// What the search hears of a candidate whose seeds are all final.
std::optional<double> candidate_objective(const State& state, const Sweep& sweep,
                                          std::uint32_t candidate) {
  std::vector<search::SeedOutcome> seeds;
  const TrialId first = sweep.first_trial[candidate];
  for (std::size_t i = 0; i < sweep.spec->seeds.size(); ++i) {
    const storage::TrialRow& row = state.trials.at(TrialId{first.value + i}).row;
    search::SeedOutcome outcome;
    if (row.state == TrialState::kCompleted) {
      outcome.objective = row.objective;
      outcome.own_fault = true;  // without one
    } else if (row.state == TrialState::kFailed) {
      const auto end = protocol::parse_end_class(row.end_class);
      outcome.own_fault = !end.has_value() || scheduler::is_own_fault(*end);
    } else {
      outcome.own_fault = row.state == TrialState::kStopped;
    }
    seeds.push_back(outcome);
  }
  return search::judged_objective(seeds);
}

/// The search hears of a candidate of its space when all its seeds are final, once.
void tell_if_final(Transition& t, Sweep& sweep, std::uint32_t candidate) {
  if (!sweep.algorithm || sweep.open_trials[candidate] > 0 || candidate < sweep.named ||
      sweep.row.state == SweepState::kCancelled || !sweep.told.insert(candidate)) {
    return;
  }
  const search::Observation observation{sweep.candidates[candidate].point,
                                        candidate_objective(t.state, sweep, candidate)};
  sweep.algorithm->update({&observation, 1});
  t.touch(sweep);
}

std::string_view event_kind(TrialState final_state) {
  switch (final_state) {
    case TrialState::kCompleted:
      return "trial_completed";
    case TrialState::kStopped:
      return "trial_stopped";
    case TrialState::kFailed:
      return "trial_failed";
    case TrialState::kCancelled:
      return "trial_cancelled";
    case TrialState::kQueued:
    case TrialState::kRunning:
      break;
  }
  TAILOR_CHECK(false, "not a final state");
  return "";
}

/// A failure that counts: another attempt, or the end of the trial.
void retry_or_fail(Transition& t, Trial& trial, const Sweep& sweep, const Outcome& outcome,
                   WorkerId worker) {
  const std::int32_t failures = ++trial.failures[outcome.end];
  trial.row.failures_json = failures_to_json(trial.failures);
  scheduler::RetryInput input;
  input.end = outcome.end;
  input.limit = scheduler::retry_limit(sweep.spec->retry, outcome.end);
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
  const std::string_view end_class = protocol::end_class_name(outcome.end);
  finish_trial(t, trial, TrialState::kFailed, end_class,
               fmt::format("{} ({})", outcome.message, decision.reason));
}

}  // namespace

void set_trial_state(Transition& t, Trial& trial, TrialState next) {
  Sweep& sweep = t.sweep_of(trial);
  const TrialState previous = trial.row.state;
  --sweep.counts[previous];
  ++sweep.counts[next];
  std::uint32_t& open = sweep.open_trials[trial.row.candidate];
  if (!storage::is_final(previous) && storage::is_final(next)) --open;
  if (storage::is_final(previous) && !storage::is_final(next)) ++open;
  trial.row.state = next;
  t.touch(trial);
}

void unindex_queued(State& state, Sweep& sweep, Trial& trial) {
  sweep.ready.erase(trial.row.id);
  state.deadlines.clear(DeadlineKind::kBackoff, trial.row.id.value);
}

void queue_trial(Transition& t, Trial& trial, std::int64_t delay_ms) {
  Sweep& sweep = t.sweep_of(trial);
  set_trial_state(t, trial, TrialState::kQueued);
  if (delay_ms > 0) {
    t.state.deadlines.set(DeadlineKind::kBackoff, trial.row.id.value, t.now.mono_ms + delay_ms);
  } else {
    sweep.ready.insert(trial.row.id);
  }
  t.placement_changed = true;
  t.event("trial_queued", {sweep.row.id, trial.row.id, trial.row.attempts, {}},
          delay_ms > 0 ? fmt::format("waits {} ms", delay_ms) : "");
}

void finish_trial(Transition& t, Trial& trial, TrialState final_state, std::string_view end_class,
                  std::string message) {
  Sweep& sweep = t.sweep_of(trial);
  if (trial.row.state == TrialState::kQueued) {
    unindex_queued(t.state, sweep, trial);
    t.placement_changed = true;  // there is room in the queue
  }
  set_trial_state(t, trial, final_state);
  trial.failed_on.clear();
  trial.row.ended_ms = t.now.wall_ms;
  trial.row.end_class = end_class;
  trial.row.message = message;
  t.event(event_kind(final_state), {sweep.row.id, trial.row.id, trial.row.attempts, {}},
          std::move(message));
  tell_if_final(t, sweep, trial.row.candidate);
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
      !empty ? fmt::format("the search gave up after {} infeasible points", sweep.row.infeasible)
      : unseen > 0
          ? fmt::format("none of the {} points that were tried is feasible", sweep.row.infeasible)
          : fmt::format("no point of the space is feasible: {} were tried", sweep.row.infeasible);
  if (unseen > 0) text += fmt::format("; {} points were never tried", unseen);
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
    t.event("sweep_failed", {sweep.row.id, {}, 0, {}}, outcome_text(sweep));
    return;
  }
  sweep.row.state = SweepState::kCompleted;
  t.event("sweep_completed", {sweep.row.id, {}, 0, {}},
          fmt::format("{} trials completed, {} failed, {} stopped, {} cancelled",
                      sweep.count(TrialState::kCompleted), sweep.count(TrialState::kFailed),
                      sweep.count(TrialState::kStopped), sweep.count(TrialState::kCancelled)));
}

protocol::Assign make_assign(const State& state, const Trial& trial) {
  const LiveAttempt& live = *trial.live;
  const Sweep& sweep = state.sweeps.at(trial.row.sweep);
  protocol::Assign message;
  message.spec =
      sweep::make_trial_spec(*sweep.spec, sweep.candidates[trial.row.candidate], trial.row.seed);
  message.spec.trial = trial.row.id;
  message.spec.attempt = live.row.id.number;
  message.spec.token = live.row.token;
  message.spec.threads = 0;
  for (const WorkerSlot& slot : state.workers.at(live.row.worker).slots) {
    if (slot.held_by == live.row.id) message.spec.threads += slot.slot.threads;
  }
  message.slots = live.row.slots;
  message.stored = trial.stored;
  return message;
}

void assign(Transition& t, Trial& trial, Worker& worker, const std::vector<std::uint32_t>& slots) {
  Sweep& sweep = t.sweep_of(trial);
  unindex_queued(t.state, sweep, trial);
  LiveAttempt live;
  live.row.id = {trial.row.id, ++trial.row.attempts};
  live.row.token = t.state.counters.next_token++;
  live.row.worker = worker.row.id;
  live.row.slots = slots;
  live.row.assigned_ms = t.now.wall_ms;
  t.touch_counters();
  t.touch(live.row);
  for (WorkerSlot& slot : worker.slots) {
    for (const std::uint32_t index : slots) {
      if (slot.slot.index != index) continue;
      TAILOR_CHECK(!slot.held_by, "slot {} of {} is taken", index, worker.row.id.to_string());
      slot.held_by = live.row.id;
    }
  }
  trial.live = std::move(live);
  renew_lease(t, trial);
  set_trial_state(t, trial, TrialState::kRunning);
  t.event("attempt_assigned", {sweep.row.id, trial.row.id, trial.row.attempts, worker.row.id}, "");
  t.send(worker.session, make_assign(t.state, trial));
}

void renew_lease(Transition& t, const Trial& trial) {
  Deadlines& deadlines = t.state.deadlines;
  const MonotonicMs until_ms = t.now.mono_ms + t.state.options.lease_ms;
  const auto before = deadlines.at(DeadlineKind::kLease, trial.row.id.value);
  // It may have been extended beyond that, for a time in which nobody could be heard.
  deadlines.set(DeadlineKind::kLease, trial.row.id.value,
                std::max(until_ms, before.value_or(until_ms)));
}

void ask_to_stop(Transition& t, Trial& trial, StopReason reason) {
  LiveAttempt& live = *trial.live;
  if (live.stop_reason == reason || live.stop_reason == StopReason::kCancelled) return;
  live.stop_reason = reason;
  // In the row, so that a restart knows that this end was asked for.
  live.row.stop_reason = reason;
  t.touch(live.row);
  t.send(t.worker_of(live).session,
         protocol::Stop{{live.row.id, live.row.token}, live.stop_reason, false});
}

void end_attempt(Transition& t, Trial& trial, EndClass end, std::string message,
                 const protocol::EndReport* report) {
  TAILOR_CHECK(trial.live.has_value());
  Sweep& sweep = t.sweep_of(trial);
  const Worker& worker = t.worker_of(*trial.live);
  const Outcome outcome = judge(sweep, trial, worker, end, std::move(message), report);
  const bool cancelled = trial.live->stop_reason == StopReason::kCancelled ||
                         sweep.row.state == SweepState::kCancelled;
  const std::string_view end_class = protocol::end_class_name(outcome.end);

  free_slots(t, *trial.live);
  storage::AttemptRow& attempt = trial.live->row;
  attempt.state = AttemptState::kEnded;
  attempt.end_class = end_class;
  attempt.message = outcome.message;
  attempt.ended_ms = t.now.wall_ms;
  t.touch(attempt);
  const WorkerId worker_id = attempt.worker;
  t.event("attempt_ended", {sweep.row.id, trial.row.id, attempt.id.number, worker_id},
          outcome.message.empty() ? std::string(end_class)
                                  : fmt::format("{}: {}", end_class, outcome.message));
  trial.live.reset();

  trial.row.end_class = end_class;
  trial.row.message = outcome.message;
  if (report != nullptr) trial.row.final_values = report->values;
  if (outcome.end == EndClass::kCompleted) {
    trial.row.objective =
        report != nullptr ? std::optional(report->values.at("validation_loss")) : std::nullopt;
    finish_trial(t, trial, TrialState::kCompleted, end_class, outcome.message);
  } else if (cancelled) {
    finish_trial(t, trial, TrialState::kCancelled, end_class, "cancelled by request");
  } else if (!outcome.counted) {
    queue_trial(t, trial, 0);
  } else {
    retry_or_fail(t, trial, sweep, outcome, worker_id);
  }
}

}  // namespace tailor::core
