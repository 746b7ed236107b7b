// Requests of people: pause, resume, cancel, priority, retry, drain.
// None of them needs a worker to be there.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "coordinator/core/json.h"
#include "coordinator/core/transition.h"

namespace tailor::core {

using protocol::EndClass;
using storage::SweepState;
using storage::TrialState;

namespace {

/// Cost: linear in what runs in the whole cluster, not in the trials of the sweep.
std::vector<TrialId> running_in(const State& state, const Sweep& sweep) {
  std::vector<TrialId> found;
  for (const auto& [deadline_ms, number] : state.deadlines.all(DeadlineKind::kLease)) {
    const TrialId id{number};
    if (state.trials.at(id).row.sweep == sweep.row.id) found.push_back(id);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<TrialId> queued_in(const Sweep& sweep) {
  std::vector<TrialId> found;
  if (sweep.count(TrialState::kQueued) == 0) return found;
  for (std::size_t i = 0; i < sweep.notes.size(); ++i) {
    if (sweep.notes[i].state == TrialState::kQueued) found.push_back(sweep.trial_at(i));
  }
  return found;
}

/// A running trial is told to stop; workers that are away are not waited for: their members end
/// now, and their tokens are stale when they come back.
void stop_running(Transition& t, Trial& trial, protocol::StopReason reason) {
  ask_to_stop(t, trial, reason);
  std::vector<WorkerId> away;
  for (const Member& member : trial.live->members) {
    if (!member.row.ended && t.worker_of(member).session == 0) away.push_back(member.row.worker);
  }
  for (const WorkerId worker : away) {
    end_member(t, trial, worker, EndClass::kStopped,
               fmt::format("{} while its worker was away", protocol::stop_reason_name(reason)));
  }
}

void cancel_trial(Transition& t, Trial& trial) {
  if (trial.row.state == TrialState::kQueued) {
    finish_trial(t, trial, TrialState::kCancelled, trial.row.end_class, "cancelled by request");
  } else if (trial.row.state == TrialState::kRunning) {
    stop_running(t, trial, protocol::StopReason::kCancelled);
  }
}

void retry_trial(Transition& t, Trial& trial) {
  Sweep& sweep = t.sweep_of(trial);
  trial.failures.clear();
  trial.row.failures_json = failures_to_json({});
  trial.row.ended_ms = 0;
  trial.row.objective.reset();
  trial.row.final_values.clear();
  trial.row.run_ms = 0;
  trial.not_started = 0;
  trial.not_started_on.clear();
  if (sweep.row.state == SweepState::kCompleted) {
    sweep.row.state = SweepState::kRunning;
    sweep.row.ended_ms = 0;
    t.state.open_sweeps.insert(sweep.row.id);
    t.touch(sweep);
    t.event(EventKind::kSweepResumed, {sweep.row.id, {}, 0, {}}, "trials are tried again");
  }
  retry_schedule(t, sweep, trial.row.candidate);
  queue_trial(t, trial, 0);
}

/// `change` changes the priority of the sweep or of trials of it; the index of running trials
/// follows.
void change_priority(Transition& t, Sweep& sweep, const std::function<void()>& change) {
  std::vector<TrialId> indexed;
  if (sweep.spec->resources.preemptible) indexed = running_in(t.state, sweep);
  for (const TrialId id : indexed) {
    t.state.preemptible.erase(preemptible_of(sweep, t.state.trials.at(id)));
  }
  change();
  for (const TrialId id : indexed) {
    t.state.preemptible.insert(preemptible_of(sweep, t.state.trials.at(id)));
  }
  t.placement_changed = true;
}

void set_trial_priority(Transition& t, Trial& trial, std::int32_t priority) {
  Sweep& sweep = t.sweep_of(trial);
  const bool ready = sweep.ready.erase({-std::int64_t{trial.row.priority}, trial.row.id}) > 0;
  const bool indexed = trial.live && sweep.spec->resources.preemptible;
  if (indexed) t.state.preemptible.erase(preemptible_of(sweep, trial));
  trial.row.priority = priority;
  if (indexed) t.state.preemptible.insert(preemptible_of(sweep, trial));
  if (ready) sweep.ready.insert({-std::int64_t{priority}, trial.row.id});
  t.touch(trial);
  t.placement_changed = true;
  t.event(EventKind::kTrialPriority, {sweep.row.id, trial.row.id, 0, {}}, std::to_string(priority));
}

void act_on(Transition& t, Trial& trial, const ControlTrials& event) {
  switch (event.action) {
    case TrialAction::kCancel:
      return cancel_trial(t, trial);
    case TrialAction::kRetry:
      return retry_trial(t, trial);
    case TrialAction::kSetPriority:
      return set_trial_priority(t, trial, event.priority);
  }
}

void pause(Transition& t, Sweep& sweep) {
  sweep.row.state = SweepState::kPaused;
  t.touch(sweep);
  t.placement_changed = true;  // nothing is kept for its trials any more
  t.event(EventKind::kSweepPaused, {sweep.row.id, {}, 0, {}}, "");
  for (const TrialId id : running_in(t.state, sweep)) {
    stop_running(t, t.state.trials.at(id), protocol::StopReason::kPaused);
  }
}

void resume(Transition& t, Sweep& sweep) {
  sweep.row.state = SweepState::kRunning;
  sweep.startable_since_ms = t.now.mono_ms;
  t.touch(sweep);
  t.placement_changed = true;
  t.event(EventKind::kSweepResumed, {sweep.row.id, {}, 0, {}}, "");
  complete_if_done(t, sweep);
}

void cancel(Transition& t, Sweep& sweep) {
  sweep.row.state = SweepState::kCancelled;
  sweep.row.ended_ms = t.now.wall_ms;
  t.state.open_sweeps.erase(sweep.row.id);
  t.touch(sweep);
  t.event(EventKind::kSweepCancelled, {sweep.row.id, {}, 0, {}}, "");
  for (const TrialId id : queued_in(sweep)) cancel_trial(t, t.state.trials.at(id));
  for (const TrialId id : running_in(t.state, sweep)) cancel_trial(t, t.state.trials.at(id));
}

}  // namespace

bool applies(TrialAction action, TrialState state) {
  if (action == TrialAction::kRetry) {
    return state == TrialState::kFailed || state == TrialState::kCancelled;
  }
  return !storage::is_final(state);
}

void on_control_sweep(Transition& t, const ControlSweep& event) {
  if (!recall(t, event)) return;
  Sweep& sweep = t.state.sweeps.at(event.sweep);
  const SweepState state = sweep.row.state;
  const bool ended = state != SweepState::kRunning && state != SweepState::kPaused;
  if (event.action == SweepAction::kSetPriority) {
    change_priority(t, sweep, [&] { sweep.row.priority = event.priority; });
    t.touch(sweep);
    t.event(EventKind::kSweepPriority, {sweep.row.id, {}, 0, {}}, std::to_string(event.priority));
    return t.reply(event.request, Status::ok());
  }
  if (event.action == SweepAction::kCancel && state == SweepState::kCancelled) {
    return t.reply(event.request, Status::ok());  // asked twice
  }
  if (ended) {
    return t.reply(event.request, {Code::kFailedPrecondition,
                                   fmt::format("sweep {} is {} already", sweep.row.id.to_string(),
                                               storage::sweep_state_name(state))});
  }
  switch (event.action) {
    case SweepAction::kPause:
      if (state == SweepState::kRunning) pause(t, sweep);
      break;
    case SweepAction::kResume:
      if (state == SweepState::kPaused) resume(t, sweep);
      break;
    case SweepAction::kCancel:
      cancel(t, sweep);
      break;
    case SweepAction::kSetPriority:
      break;
  }
  t.reply(event.request, Status::ok());
}

std::set<TrialId> trials_meant(const State& state, const ControlTrials& event) {
  std::set<TrialId> meant(event.trials.begin(), event.trials.end());
  const auto found = state.sweeps.find(event.failed_of);
  if (found == state.sweeps.end()) return meant;
  const Sweep& sweep = found->second;
  for (std::size_t i = 0; i < sweep.notes.size(); ++i) {
    if (sweep.notes[i].state == TrialState::kFailed) meant.insert(sweep.trial_at(i));
  }
  return meant;
}

void on_control_trials(Transition& t, const ControlTrials& event) {
  if (!recall(t, event)) return;
  TrialsOutcome outcome;
  for (const TrialId id : trials_meant(t.state, event)) {
    const auto found = t.state.trials.find(id);
    if (found == t.state.trials.end()) continue;  // final, and nothing is to be done with it
    const Trial& trial = found->second;
    if (!applies(event.action, trial.row.state)) continue;
    if (!event.states.empty() && !event.states.contains(trial.row.state)) continue;
    if (event.action == TrialAction::kRetry &&
        t.sweep_of(trial).row.state == SweepState::kCancelled) {
      return t.reply(
          event.request,
          {Code::kFailedPrecondition,
           fmt::format("trial {} belongs to sweep {}, which is cancelled; nothing was done. "
                       "Submit the file again under another name",
                       id.to_string(), trial.row.sweep.to_string())});
    }
    outcome.trials.push_back(id);
  }
  for (const TrialId id : outcome.trials) {
    const Trial& trial = t.state.trials.at(id);
    TrialsOutcome::Target& target = outcome.targets[trial.row.sweep];
    target.sweep_name = t.sweep_of(trial).row.name;
    ++target.trials;
    target.running += trial.row.state == TrialState::kRunning ? 1 : 0;
  }
  if (!event.dry_run) {
    for (const TrialId id : outcome.trials) act_on(t, t.state.trials.at(id), event);
    if (event.action == TrialAction::kRetry) {
      for (const auto& [sweep, target] : outcome.targets) {
        settle_schedules(t, t.state.sweeps.at(sweep));
      }
    }
  }
  t.reply(event.request, Status::ok(), std::move(outcome));
}

void plan_drain(Transition& t, Worker& worker, WallMs at_ms) {
  if (at_ms == 0) {
    t.state.deadlines.clear(DeadlineKind::kDrain, worker.row.id.value);
  } else {
    t.state.deadlines.set(DeadlineKind::kDrain, worker.row.id.value,
                          t.now.mono_ms + (at_ms - t.now.wall_ms));
  }
  if (worker.row.drain_at_ms == at_ms) return;
  worker.row.drain_at_ms = at_ms;
  t.touch(worker);
}

void drain_worker(Transition& t, Worker& worker, const std::string& reason) {
  plan_drain(t, worker, 0);
  if (!worker.row.draining) {
    worker.row.draining = true;
    t.placement_changed = true;  // who waited for it to come back, for a checkpoint, waits no more
    t.touch(worker);
    refresh(t.state, worker);
    t.event(EventKind::kWorkerDraining, {{}, {}, 0, worker.row.id}, reason);
  }
  t.send(worker.session, protocol::Drain{});
}

void on_drain_worker(Transition& t, const DrainWorker& event) {
  const auto found = t.state.workers.find(event.worker);
  if (found == t.state.workers.end()) {
    return t.reply(event.request, {Code::kNotFound,
                                   fmt::format("there is no worker {}", event.worker.to_string())});
  }
  if (event.in_ms < 0 || event.in_ms > kDrainInMsMax) {
    return t.reply(event.request, {Code::kInvalidArgument,
                                   fmt::format("a drain in {} ms: allowed is 0 (now) to {} days",
                                               event.in_ms, kDrainInMsMax / 86'400'000)});
  }
  if (event.in_ms == 0) {
    drain_worker(t, found->second, "by request");
  } else {
    plan_drain(t, found->second, t.now.wall_ms + event.in_ms);
    t.event(EventKind::kWorkerDrainPlanned, {{}, {}, 0, event.worker},
            fmt::format("in {} s", event.in_ms / 1'000));
  }
  t.reply(event.request, Status::ok());
}

}  // namespace tailor::core
