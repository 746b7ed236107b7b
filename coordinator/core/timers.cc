// What time alone does: leases run out.
#include <fmt/format.h>

#include <set>

#include "coordinator/core/transition.h"

namespace tailor::core {

using protocol::EndClass;

void on_tick(Transition& t) {
  t.placement_changed = true;
  std::set<WorkerId> lost;
  auto& leases = t.state.leases;
  while (!leases.empty() && leases.begin()->first <= t.now.mono_ms) {
    Trial& trial = t.state.trials.at(leases.begin()->second);
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

void on_stalled(Transition& t, const Stalled& event) {
  if (event.gap_ms <= 0) return;
  std::set<std::pair<MonotonicMs, TrialId>> moved;
  for (const auto& [deadline_ms, id] : t.state.leases) {
    t.state.trials.at(id).live->lease_deadline_ms = deadline_ms + event.gap_ms;
    moved.emplace(deadline_ms + event.gap_ms, id);
  }
  t.state.leases = std::move(moved);
}

}  // namespace tailor::core
