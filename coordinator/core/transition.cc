#include "coordinator/core/transition.h"

#include <algorithm>

#include "coordinator/core/json.h"

namespace tailor::core {

void Transition::reply(RequestId request, Status status, ReplyBody body) {
  outward_.push_back(Reply{request, std::move(status), std::move(body)});
}

void Transition::send(SessionId session, protocol::CoordinatorMessage message) {
  if (session != 0) outward_.push_back(SendTo{session, std::move(message)});
}

void Transition::close(SessionId session, Status status) {
  outward_.push_back(CloseSession{session, std::move(status)});
}

void Transition::event(std::string_view kind, const About& about, std::string message) {
  storage::EventRow row;
  row.wall_ms = now.wall_ms;
  row.kind = kind;
  row.sweep = about.sweep;
  row.trial = about.trial;
  row.attempt = about.attempt;
  row.worker = about.worker;
  row.message = std::move(message);
  appended_.push_back(std::move(row));
}

Effects Transition::finish() {
  Effects effects;
  effects.outward = std::move(outward_);
  auto& writes = effects.writes;
  for (const SweepId id : sweeps_) {
    Sweep& sweep = state.sweeps.at(id);
    sweep.row.search_state = encode_search(sweep);
    sweep.row.infeasible_json = reasons_to_json(sweep.infeasible_reasons);
    writes.emplace_back(sweep.row);
  }
  for (auto& row : candidates_) writes.emplace_back(std::move(row));
  for (const WorkerId id : workers_) writes.emplace_back(state.workers.at(id).row);
  for (const TrialId id : trials_) writes.emplace_back(state.trials.at(id).row);
  for (auto& [id, row] : attempts_) writes.emplace_back(std::move(row));
  for (auto& row : appended_) writes.push_back(std::move(row));
  if (counters_) writes.emplace_back(state.counters);

  if (more_draws) effects.wake_at_ms = now.mono_ms;
  const auto wake = [&](MonotonicMs at) {
    effects.wake_at_ms = std::min(effects.wake_at_ms.value_or(at), at);
  };
  if (!state.leases.empty()) wake(state.leases.begin()->first);
  if (!state.backing_off.empty()) wake(state.backing_off.begin()->first);
  return effects;
}

}  // namespace tailor::core
