#include "coordinator/core/changes.h"

#include "coordinator/core/json.h"
#include "coordinator/core/transition.h"

namespace tailor::core {

void Changes::reply(RequestId request, Status status, ReplyBody body) {
  outward_.push_back(Reply{request, std::move(status), std::move(body)});
}

void Changes::send(SessionId session, protocol::CoordinatorMessage message) {
  if (session != 0) outward_.push_back(SendTo{session, std::move(message)});
}

void Changes::close(SessionId session, Status status) {
  outward_.push_back(CloseSession{session, std::move(status)});
}

void Changes::event(WallMs wall_ms, std::string_view kind, const About& about,
                    std::string message) {
  storage::EventRow row;
  row.wall_ms = wall_ms;
  row.kind = kind;
  row.sweep = about.sweep;
  row.trial = about.trial;
  row.attempt = about.attempt;
  row.worker = about.worker;
  row.message = std::move(message);
  appended_.push_back(std::move(row));
}

Effects Changes::take(State& state) {
  Effects effects;
  effects.outward = std::move(outward_);
  auto& writes = effects.writes;
  writes.reserve(sweeps_.size() + candidates_.size() + workers_.size() + trials_.size() +
                 attempts_.size() + appended_.size() + 1);
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
  *this = Changes(state.options);
  return effects;
}

}  // namespace tailor::core
