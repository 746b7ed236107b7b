// What time alone does: leases run out, back-offs and pauses end, interrupted searches go on. One
// function a kind of deadline, in the order of DeadlineKind.
#include <fmt/format.h>

#include <set>

#include "coordinator/core/transition.h"

namespace tailor::core {

using protocol::EndClass;

namespace {

void lose_member(Transition& t, Trial& trial, Member& member, std::set<WorkerId>& said) {
  const protocol::AttemptRef ref{trial.live->row.id, trial.live->row.token};
  Worker& worker = t.worker_of(member);
  const SessionId session = worker.session;
  if (session == 0 && said.insert(worker.row.id).second) {
    t.event(EventKind::kWorkerLost, {{}, {}, 0, worker.row.id},
            fmt::format("{} was away for longer than a lease", worker.row.name));
  }
  lose_lease(t, worker);
  end_member(t, trial, worker.row.id, session == 0 ? EndClass::kNodeLost : EndClass::kLeaseLost,
             fmt::format("worker {} did not renew the lease", worker.row.name));
  // Nobody wants it any more; if the stream is only slow, the order still gets there.
  t.send(session, protocol::Stop{ref, protocol::StopReason::kFenced, true});
}

void end_leases(Transition& t) {
  std::set<WorkerId> said;
  while (const auto due = t.state.deadlines.take_due(DeadlineKind::kLease, t.now.mono_ms)) {
    Trial& trial = t.state.trials.at(TrialId{*due});
    for (std::size_t i = 0; trial.live && i < trial.live->members.size(); ++i) {
      Member& member = trial.live->members[i];
      if (!member.row.ended && member.lease_deadline_ms <= t.now.mono_ms) {
        lose_member(t, trial, member, said);
      }
    }
    if (trial.live) index_lease(t.state, trial);
  }
}

void end_backoffs(Transition& t) {
  while (const auto due = t.state.deadlines.take_due(DeadlineKind::kBackoff, t.now.mono_ms)) {
    Trial& trial = t.state.trials.at(TrialId{*due});
    make_ready(t, t.sweep_of(trial), trial);
  }
}

void go_on_drawing(Transition& t) {
  while (t.state.deadlines.take_due(DeadlineKind::kDraws, t.now.mono_ms)) {
    t.placement_changed = true;  // schedule() draws
  }
}

void watch_all_limits(Transition& t) {
  while (const auto due = t.state.deadlines.take_due(DeadlineKind::kLimit, t.now.mono_ms)) {
    end_by_limit(t, t.state.trials.at(TrialId{*due}));
  }
}

void wait_no_longer(Transition& t) {
  while (const auto due = t.state.deadlines.take_due(DeadlineKind::kHolder, t.now.mono_ms)) {
    t.state.trials.at(TrialId{*due}).may_start_over = true;
    t.placement_changed = true;
  }
}

void end_pauses(Transition& t) {
  while (const auto due = t.state.deadlines.take_due(DeadlineKind::kPause, t.now.mono_ms)) {
    Worker& worker = t.state.workers.at(WorkerId{*due});
    worker.pause_reason.clear();
    worker.may_probe = is_probed(worker);
    refresh(t.state, worker);
    t.placement_changed = true;
  }
}

void consider_reserving(Transition& t) {
  while (const auto due = t.state.deadlines.take_due(DeadlineKind::kReserve, t.now.mono_ms)) {
    const auto sweep = t.state.sweeps.find(SweepId{*due});
    if (sweep == t.state.sweeps.end()) continue;
    sweep->second.reserve_due = true;
    t.placement_changed = true;
  }
}

void begin_drains(Transition& t) {
  while (const auto due = t.state.deadlines.take_due(DeadlineKind::kDrain, t.now.mono_ms)) {
    drain_worker(t, t.state.workers.at(WorkerId{*due}), "by request, at this time");
  }
}

void look_for_room(Transition& t) {
  while (t.state.deadlines.take_due(DeadlineKind::kRoom, t.now.mono_ms)) {
    t.placement_changed = true;  // schedule() looks
  }
}

}  // namespace

void on_tick(Transition& t) {
  end_leases(t);
  end_backoffs(t);
  go_on_drawing(t);
  watch_all_limits(t);
  wait_no_longer(t);
  end_pauses(t);
  consider_reserving(t);
  begin_drains(t);
  look_for_room(t);
}

void on_stalled(Transition& t, const Stalled& event) {
  if (event.gap_ms <= 0) return;
  for (const auto& [deadline_ms, number] : t.state.deadlines.all(DeadlineKind::kLease)) {
    Trial& trial = t.state.trials.at(TrialId{number});
    for (Member& member : trial.live->members) member.lease_deadline_ms += event.gap_ms;
    // What it came to meanwhile is not read yet; and nothing lies in the future.
    for (MonotonicMs* since : {&trial.live->watched_ms, &trial.live->progress_ms}) {
      *since = std::min(std::max(*since, t.now.mono_ms), *since + event.gap_ms);
    }
    watch_limits(t.state, trial);
  }
  t.state.deadlines.shift(DeadlineKind::kLease, event.gap_ms);
  // Nor could the holder of a checkpoint come back.
  t.state.deadlines.shift(DeadlineKind::kHolder, event.gap_ms);
  for (const auto& [session, id] : t.state.worker_by_session) {
    t.state.workers.at(id).heard_ms += event.gap_ms;
  }
}

}  // namespace tailor::core
