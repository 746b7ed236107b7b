#include "coordinator/core/changes.h"

#include <fmt/format.h>

#include <bit>

#include "coordinator/core/json.h"
#include "coordinator/core/step.h"
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

void Changes::event(WallMs wall_ms, EventKind kind, const About& about, std::string message) {
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

void Changes::fell_away(WallMs wall_ms, SweepId sweep, EventKind event, const std::string& kind,
                        std::string example) {
  FellAway& some = fell_away_[{sweep, event}];
  if (some.points++ == 0) {
    some.wall_ms = wall_ms;
    some.example = std::move(example);
  }
  ++some.kinds[kind];
}

namespace {

/// A trial that is final needs no more than its note; a candidate none of whose trials is in memory
/// no more than its hash.
void let_go(State& state, TrialId id) {
  const auto found = state.trials.find(id);
  if (found == state.trials.end() || !storage::is_final(found->second.row.state)) return;
  Sweep& sweep = state.sweeps.at(found->second.row.sweep);
  const std::uint32_t candidate = found->second.row.candidate;
  state.trials.erase(found);
  if (sweep.open_trials[candidate] == 0) sweep.candidates[candidate].reset();
}

/// A sweep that has ended, and of which nothing runs any more, is rows only.
void let_go(State& state, SweepId id) {
  const auto found = state.sweeps.find(id);
  if (found == state.sweeps.end() || state.open_sweeps.contains(id)) return;
  const Sweep& sweep = found->second;
  if (sweep.count(storage::TrialState::kQueued) + sweep.count(storage::TrialState::kRunning) > 0) {
    return;
  }
  state.deadlines.clear(DeadlineKind::kDraws, id.value);
  state.deadlines.clear(DeadlineKind::kReserve, id.value);
  count_others(state, sweep.row.state, sweep.counts, 1);
  state.sweep_by_name.erase(sweep.row.name);
  state.departures.add(id, sweep.row.name);
  state.sweeps.erase(found);
}

}  // namespace

void count_others(State& state, storage::SweepState sweep,
                  const std::map<storage::TrialState, std::uint64_t>& trials, int times) {
  const auto sign = static_cast<std::uint64_t>(times);  // wraps: -1 takes away
  state.other_sweeps[sweep] += sign;
  for (const auto& [trial, count] : trials) state.other_trials[trial] += sign * count;
  std::erase_if(state.other_sweeps, [](const auto& entry) { return entry.second == 0; });
  std::erase_if(state.other_trials, [](const auto& entry) { return entry.second == 0; });
}

Effects Changes::take(State& state) {
  for (auto& [about, some] : fell_away_) {
    const auto& [sweep, kind_of_event] = about;
    const Sweep& space = state.sweeps.at(sweep);
    const bool duplicates = kind_of_event == EventKind::kCandidateDuplicate;
    const std::uint64_t total = duplicates ? duplicates_of(space) : space.row.infeasible;
    const std::uint64_t before = total - std::min(total, some.points);
    std::string text = some.example;
    if (before >= state.options.infeasible_max) {
      // A space may be as good as endless, the store is not: from here on when there are twice as
      // many.
      if (std::bit_width(before) == std::bit_width(total) && !space.search_done) continue;
      text = fmt::format("{} points in all", total);
      for (const auto& [kind, count] : space.infeasible_reasons) {
        if ((kind == kDuplicateReason) == duplicates) text += fmt::format("; {}: {}", count, kind);
      }
      text += "; one of them: " + some.example;
    } else if (some.points > 1) {
      text = fmt::format("{} points", some.points);
      for (const auto& [kind, count] : some.kinds) text += fmt::format("; {}: {}", count, kind);
      text += "; the first: " + some.example;
    }
    event(some.wall_ms, kind_of_event, {sweep, {}, 0, {}}, std::move(text));
  }
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
  passing_trials_.merge(trials_);
  passing_sweeps_.merge(sweeps_);
  for (const TrialId id : passing_trials_) {
    const auto found = state.trials.find(id);
    if (found == state.trials.end()) continue;
    passing_sweeps_.insert(found->second.row.sweep);
    let_go(state, id);
  }
  for (const SweepId id : passing_sweeps_) let_go(state, id);
  *this = Changes(state.options);
  return effects;
}

}  // namespace tailor::core
