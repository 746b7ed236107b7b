// Requests about what has ended. The State keeps only what has something to do; what a request is
// about beyond that, it brings with it as rows (event.h, Recalled). Memory comes first: a row is
// believed only where memory does not know better, and only when its sweep has not left memory
// since it was asked for, or when it agrees with the note of its trial. What leaves otherwise is
// nothing to the request: requests go on however many sweeps end.
#include <fmt/format.h>

#include <algorithm>

#include "coordinator/core/transition.h"

namespace tailor::core {

using storage::SweepState;
using storage::TrialState;

namespace {

void want(Transition& t, RequestId request, RowsWanted wanted) {
  wanted.as_of = t.state.departures.count();
  t.reply(request, {Code::kAborted, "what this is about has ended: its rows are to be read first"},
          std::move(wanted));
}

/// The rows, unless that sweep (by its id or its name) has left memory since they were asked for.
template <typename Sweep>
const Recalled* fresh(const State& state, const std::shared_ptr<const Recalled>& recalled,
                      const Sweep& sweep) {
  const bool old = recalled == nullptr || state.departures.since(recalled->as_of, sweep);
  return old ? nullptr : recalled.get();
}

const storage::SweepRow* find_row(const Recalled& recalled, SweepId id) {
  for (const storage::SweepRow& row : recalled.rows.sweeps) {
    if (row.id == id) return &row;
  }
  return nullptr;
}

Status cannot_read(SweepId id, const std::string& reason) {
  return {Code::kFailedPrecondition,
          fmt::format("sweep {} cannot be read by this version: {}; it can be cancelled, or a "
                      "version that reads it can go on with it",
                      id.to_string(), reason)};
}

void cancel_unreadable(Transition& t, UnreadableSweep& sweep) {
  const SweepId id = sweep.row.id;
  for (storage::AttemptRow& row : sweep.live) {
    row.state = storage::AttemptState::kEnded;
    row.stop_reason = protocol::StopReason::kCancelled;
    row.end_class = protocol::EndClass::kStopped;
    row.message = "cancelled by request";
    row.ended_ms = t.now.wall_ms;
    t.append(row);
  }
  for (storage::TrialRow& row : sweep.open) {
    --sweep.counts[row.state];
    ++sweep.counts[TrialState::kCancelled];
    row.state = TrialState::kCancelled;
    row.message = "cancelled by request";
    row.ended_ms = t.now.wall_ms;
    t.append(row);
    t.event(EventKind::kTrialCancelled, {id, row.id, row.attempts, {}}, row.message);
  }
  sweep.row.state = SweepState::kCancelled;
  sweep.row.ended_ms = t.now.wall_ms;
  t.append(sweep.row);
  t.event(EventKind::kSweepCancelled, {id, {}, 0, {}}, "it could not be read: " + sweep.reason);
  count_others(t.state, sweep.row.state, sweep.counts, 1);
  t.state.sweep_by_name.erase(sweep.row.name);
  t.state.departures.add(id, sweep.row.name);
  t.state.unreadable.erase(id);
}

/// A change to a sweep that is rows only.
void control_ended(Transition& t, const ControlSweep& event, const storage::SweepRow& row) {
  if (event.action == SweepAction::kSetPriority) {
    storage::SweepRow changed = row;
    changed.priority = event.priority;
    t.append(std::move(changed));
    t.event(EventKind::kSweepPriority, {row.id, {}, 0, {}}, std::to_string(event.priority));
    t.state.departures.add(row.id, row.name);  // rows that were read before are old now
    return t.reply(event.request, Status::ok());
  }
  if (event.action == SweepAction::kCancel && row.state == SweepState::kCancelled) {
    return t.reply(event.request, Status::ok());  // asked twice
  }
  t.reply(event.request,
          {Code::kFailedPrecondition, fmt::format("sweep {} is {} already", row.id.to_string(),
                                                  storage::sweep_state_name(row.state))});
}

struct Place {
  const Sweep* sweep = nullptr;
  std::size_t index = 0;  ///< in `notes`
};

/// Cost: (sweeps in memory) x log(their candidates).
std::optional<Place> place_of(const State& state, TrialId trial) {
  for (const auto& [id, sweep] : state.sweeps) {
    const auto& first = sweep.first_trial;
    const auto after = std::upper_bound(first.begin(), first.end(), trial);
    if (after == first.begin()) continue;
    const std::uint64_t position = trial.value - std::prev(after)->value;
    const auto candidate = static_cast<std::uint32_t>(std::prev(after) - first.begin());
    if (position >= sweep.seeds_of(candidate).size()) continue;
    return Place{&sweep, sweep.first_note[candidate] + position};
  }
  return std::nullopt;
}

/// The rows of a request by their keys.
struct RowIndex {
  std::map<TrialId, const storage::TrialRow*> trials;
  std::map<std::pair<SweepId, std::uint32_t>, const storage::CandidateRow*> candidates;
  std::map<TrialId, std::vector<const storage::AttemptRow*>> attempts;
  std::map<TrialId, const storage::CheckpointRow*> checkpoints;

  explicit RowIndex(const Recalled* recalled) {
    if (recalled == nullptr) return;
    const storage::Snapshot& rows = recalled->rows;
    for (const auto& row : rows.trials) trials.emplace(row.id, &row);
    for (const auto& row : rows.candidates) {
      candidates.emplace(std::pair(row.sweep, row.index), &row);
    }
    for (const auto& row : rows.attempts) attempts[row.id.trial].push_back(&row);
    for (const auto& row : rows.checkpoints) checkpoints.emplace(row.attempt.trial, &row);
  }
};

/// True when the rows of a final trial of a sweep in memory are there, and no older than what
/// memory knows.
bool is_noted(const Place& place, TrialId id, const RowIndex& rows) {
  const auto row = rows.trials.find(id);
  if (row == rows.trials.end()) return false;
  const TrialNote& note = place.sweep->notes[place.index];
  return row->second->state == note.state && row->second->attempts == note.attempts &&
         rows.candidates.contains({place.sweep->row.id, row->second->candidate});
}

/// Brings such a trial back. Errors: it cannot be read.
Status recall_trial(Transition& t, const Place& place, TrialId id, const RowIndex& rows) {
  const storage::TrialRow& row = *rows.trials.at(id);
  const auto attempts = rows.attempts.find(id);
  const auto checkpoint = rows.checkpoints.find(id);
  static const std::vector<const storage::AttemptRow*> kNone;
  TAILOR_RETURN_IF_ERROR(
      install(t.state, t.state.sweeps.at(place.sweep->row.id), row,
              *rows.candidates.at({place.sweep->row.id, row.candidate}),
              attempts == rows.attempts.end() ? kNone : attempts->second,
              checkpoint == rows.checkpoints.end() ? nullptr : checkpoint->second));
  t.changes.recalled(t.state.trials.at(id));
  return Status::ok();
}

/// Brings back a sweep that has ended, with those of `meant` that the action applies to.
Status recall_sweep(Transition& t, const Recalled& recalled, const storage::SweepRow& row,
                    const ControlTrials& event) {
  const SweepRows rows = rows_of(recalled.rows, row);
  std::set<TrialId> wanted;
  for (const storage::TrialRow* trial : rows.trials) {
    const bool named = std::count(event.trials.begin(), event.trials.end(), trial->id) > 0;
    const bool failed = event.failed_of == row.id && trial->state == TrialState::kFailed;
    if ((named || failed) && applies(event.action, trial->state)) wanted.insert(trial->id);
  }
  const Status status = install(t.state, rows, wanted, t.now);
  if (!status.is_ok()) return cannot_read(row.id, status.message());
  count_others(t.state, row.state, t.state.sweeps.at(row.id).counts, -1);
  t.changes.recalled(t.state.sweeps.at(row.id));
  for (const TrialId id : wanted) t.changes.recalled(t.state.trials.at(id));
  return Status::ok();
}

/// Why nothing can be done to a trial of a sweep that was set aside; ok for others.
Status check_readable(const State& state, TrialId trial, const RowIndex& rows) {
  const auto row = rows.trials.find(trial);
  for (const auto& [id, sweep] : state.unreadable) {
    const bool open = std::any_of(sweep.open.begin(), sweep.open.end(),
                                  [&](const auto& t) { return t.id == trial; });
    if (open || (row != rows.trials.end() && row->second->sweep == id)) {
      return cannot_read(id, sweep.reason);
    }
  }
  return Status::ok();
}

}  // namespace

std::optional<TrialState> state_of(const State& state, TrialId trial) {
  const auto place = place_of(state, trial);
  if (!place) return std::nullopt;
  return place->sweep->notes[place->index].state;
}

bool recall(Transition& t, const SubmitSweep& event) {
  const std::string& name = event.spec->name;
  if (const auto named = t.state.sweep_by_name.find(name); named != t.state.sweep_by_name.end()) {
    const UnreadableSweep& aside = t.state.unreadable.at(named->second);
    t.reply(event.request, aside.row.spec_hash == event.hash
                               ? cannot_read(aside.row.id, aside.reason)
                               : taken(aside.row));
    return false;
  }
  std::vector<std::string> keys = measurements_wanted(*event.spec);
  // There is no sweep that is not in memory, and nothing that may be measured already.
  if (t.state.other_sweeps.empty() && keys.empty()) return true;
  const Recalled* recalled = fresh(t.state, event.recalled, name);
  if (recalled == nullptr) {
    RowsWanted wanted;
    wanted.sweep_name = name;
    wanted.measurements = std::move(keys);
    want(t, event.request, std::move(wanted));
    return false;
  }
  for (const storage::SweepRow& row : recalled->rows.sweeps) {
    if (row.name != name) continue;
    if (row.spec_hash != event.hash) {
      t.reply(event.request, taken(row));
    } else {
      t.reply(event.request, Status::ok(),
              SubmitOutcome{row.id, false, recalled->candidates, recalled->trials, true});
    }
    return false;
  }
  return true;
}

bool recall(Transition& t, const ControlSweep& event) {
  if (t.state.sweeps.contains(event.sweep)) return true;
  if (const auto aside = t.state.unreadable.find(event.sweep); aside != t.state.unreadable.end()) {
    if (event.action == SweepAction::kCancel) {
      cancel_unreadable(t, aside->second);
      t.reply(event.request, Status::ok());
    } else {
      t.reply(event.request, cannot_read(event.sweep, aside->second.reason));
    }
    return false;
  }
  const Recalled* recalled = fresh(t.state, event.recalled, event.sweep);
  if (recalled == nullptr) {
    RowsWanted wanted;
    wanted.sweep = event.sweep;
    want(t, event.request, std::move(wanted));
  } else if (const storage::SweepRow* row = find_row(*recalled, event.sweep)) {
    control_ended(t, event, *row);
  } else {
    t.reply(event.request,
            {Code::kNotFound, fmt::format("there is no sweep {}", event.sweep.to_string())});
  }
  return false;
}

bool recall(Transition& t, const ControlTrials& event) {
  const auto answer = [&](Status status) {
    t.reply(event.request, std::move(status));
    return false;
  };
  const Recalled* const recalled = event.recalled.get();
  const RowIndex rows(recalled);
  RowsWanted wanted;
  wanted.for_retry = event.action == TrialAction::kRetry;
  // Nothing is brought back before all is there. When something lacks, everything is asked for:
  // rows that were read before are gone by then.
  bool lacks = false;
  if (event.failed_of.valid() && !t.state.sweeps.contains(event.failed_of)) {
    const auto aside = t.state.unreadable.find(event.failed_of);
    if (aside != t.state.unreadable.end()) {
      return answer(cannot_read(event.failed_of, aside->second.reason));
    }
    wanted.whole_sweep = event.failed_of;
    if (fresh(t.state, event.recalled, event.failed_of) == nullptr) {
      lacks = true;
    } else if (find_row(*recalled, event.failed_of) == nullptr) {
      return answer(
          {Code::kNotFound, fmt::format("there is no sweep {}", event.failed_of.to_string())});
    }
  }
  for (const TrialId id : trials_meant(t.state, event)) {
    if (t.state.trials.contains(id)) continue;
    if (Status status = check_readable(t.state, id, rows); !status.is_ok()) return answer(status);
    if (const auto place = place_of(t.state, id)) {
      if (!applies(event.action, place->sweep->notes[place->index].state)) continue;
      wanted.trials.push_back(id);
      // One that failed since the request was made is not meant by it, unless it was named.
      const bool named = std::count(event.trials.begin(), event.trials.end(), id) > 0;
      lacks |= !is_noted(*place, id, rows) && (named || recalled == nullptr);
      continue;
    }
    wanted.trials.push_back(id);
    wanted.sweeps_of_trials |= event.action == TrialAction::kRetry;
    const auto row = rows.trials.find(id);
    if (row != rows.trials.end()) {
      lacks |= fresh(t.state, event.recalled, row->second->sweep) == nullptr;
    } else if (recalled != nullptr && recalled->asked.contains(id)) {
      return answer(
          {Code::kNotFound, fmt::format("there is no trial {}; nothing was done", id.to_string())});
    } else {
      lacks = true;
    }
  }
  if (lacks) {
    want(t, event.request, std::move(wanted));
    return false;
  }
  if (wanted.whole_sweep.valid()) {
    const Status read = recall_sweep(t, *recalled, *find_row(*recalled, wanted.whole_sweep), event);
    if (!read.is_ok()) return answer(read);
  }
  for (const TrialId id : wanted.trials) {
    if (t.state.trials.contains(id)) continue;  // it came with its sweep
    if (const auto place = place_of(t.state, id)) {
      if (!is_noted(*place, id, rows)) continue;
      if (!applies(event.action, place->sweep->notes[place->index].state)) continue;
      const Status read = recall_trial(t, *place, id, rows);
      if (!read.is_ok()) return answer(cannot_read(place->sweep->row.id, read.message()));
      continue;
    }
    const storage::TrialRow& row = *rows.trials.at(id);
    if (!applies(event.action, row.state)) continue;
    const storage::SweepRow* sweep = find_row(*recalled, row.sweep);
    if (sweep == nullptr) {
      return answer(
          {Code::kInternal, fmt::format("the rows of {} came without its sweep", id.to_string())});
    }
    const Status read = recall_sweep(t, *recalled, *sweep, event);
    if (!read.is_ok()) return answer(read);
  }
  return true;
}

}  // namespace tailor::core
