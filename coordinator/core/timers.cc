// What time alone does: leases run out, back-offs end, interrupted searches go on. One function a
// kind of deadline, in the order of DeadlineKind.
#include <fmt/format.h>

#include <set>

#include "coordinator/core/transition.h"

namespace tailor::core {

using protocol::EndClass;

namespace {

void end_leases(Transition& t) {
  std::set<WorkerId> lost;
  while (const auto due = t.state.deadlines.take_due(DeadlineKind::kLease, t.now.mono_ms)) {
    Trial& trial = t.state.trials.at(TrialId{*due});
    const protocol::AttemptRef ref{trial.live->row.id, trial.live->row.token};
    const Worker& worker = t.worker_of(*trial.live);
    const SessionId session = worker.session;
    if (session == 0 && lost.insert(worker.row.id).second) {
      t.event("worker_lost", {{}, {}, 0, worker.row.id},
              fmt::format("{} was away for longer than a lease", worker.row.name));
    }
    end_attempt(t, trial, session == 0 ? EndClass::kNodeLost : EndClass::kLeaseLost,
                fmt::format("worker {} did not renew the lease", worker.row.name), nullptr);
    // Nobody wants it any more; if the stream is only slow, the order still gets there.
    t.send(session, protocol::Stop{ref, protocol::StopReason::kFenced, true});
  }
}

void end_backoffs(Transition& t) {
  while (const auto due = t.state.deadlines.take_due(DeadlineKind::kBackoff, t.now.mono_ms)) {
    Trial& trial = t.state.trials.at(TrialId{*due});
    t.sweep_of(trial).ready.insert(trial.row.id);
    t.placement_changed = true;
  }
}

void go_on_drawing(Transition& t) {
  while (t.state.deadlines.take_due(DeadlineKind::kDraws, t.now.mono_ms)) {
    t.placement_changed = true;  // schedule() draws
  }
}

}  // namespace

void on_tick(Transition& t) {
  end_leases(t);
  end_backoffs(t);
  go_on_drawing(t);
}

void on_stalled(Transition& t, const Stalled& event) {
  if (event.gap_ms > 0) t.state.deadlines.shift(DeadlineKind::kLease, event.gap_ms);
}

}  // namespace tailor::core
