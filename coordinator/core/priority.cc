// Room for trials that matter more or have waited too long.
//
// A trial of higher priority that finds no slot makes the running one of lowest priority (of those
// the one that began last) save and stop; that one waits for a slot again, at no cost of retries. A
// trial of several slots that waited too long has slots kept for it as they become free: on as many
// workers as it takes, those where least is missing. Slots that are kept are given to nobody else;
// few trials at once may have them, and none longer than they wait.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "coordinator/core/transition.h"

namespace tailor::core {

using protocol::StopReason;
using storage::SweepState;
using storage::TrialState;

namespace {

/// Running trials that are looked at to make room for one, at most.
constexpr std::size_t kVictimsSeenMax = 512;

bool is_ready(const Sweep& sweep, const Trial& trial) {
  return sweep.row.state == SweepState::kRunning &&
         sweep.ready.contains({-std::int64_t{trial.row.priority}, trial.row.id});
}

void drop_reservation(State& state, TrialId trial) {
  const auto found = state.reservations.find(trial);
  if (found == state.reservations.end()) return;
  const std::vector<WorkerId> workers = std::move(found->second.workers);
  state.reservations.erase(found);
  for (const WorkerId id : workers) {
    Worker& worker = state.workers.at(id);
    worker.reserved_for = {};
    refresh(state, worker);
  }
}

void reserve(Transition& t, const Trial& trial, std::vector<WorkerId> workers) {
  std::string names;
  for (const WorkerId id : workers) {
    Worker& worker = t.state.workers.at(id);
    worker.reserved_for = trial.row.id;
    names += (names.empty() ? "" : ", ") + worker.row.name;
  }
  t.state.reservations[trial.row.id] = {t.now.mono_ms, workers};
  for (const WorkerId id : workers) refresh(t.state, t.state.workers.at(id));
  t.event(EventKind::kSlotsReserved, {trial.row.sweep, trial.row.id, 0, {}},
          fmt::format("slots of {} are kept for it as they become free", names));
}

std::uint32_t suitable(const scheduler::Offer& offer, const scheduler::Demand& demand) {
  return static_cast<std::uint32_t>(
      std::count_if(offer.free.begin(), offer.free.end(), [&](const scheduler::FreeSlot& slot) {
        return slot.kind == demand.kind && slot.memory_bytes >= demand.slot_memory_bytes;
      }));
}

/// Keeps slots for the first trial of the sweep. Cost: linear in the workers; once in
/// `reserve_after_ms` for a sweep whose trials do not fit.
void reserve_for(Transition& t, const Sweep& sweep, const Trial& trial) {
  std::vector<std::pair<std::uint32_t, WorkerId>> able;  // the fewest slots missing first
  const std::string folder = checkpoint_folder(t.state, trial);
  for (const auto& [session, id] : t.state.worker_by_session) {
    const Worker& worker = t.state.workers.at(id);
    if (!takes_work(t.state, worker) || worker.reserved_for.valid()) continue;
    if (!worker.row.quarantine.empty()) continue;
    if (!scheduler::fits(whole_offer(worker), sweep.demand)) continue;
    const std::uint32_t free = suitable(offer_of(t.state, worker, {}), sweep.demand);
    // One that can read its checkpoint comes first, whatever is missing there.
    const bool near = !folder.empty() && folder_of(worker) == folder;
    able.emplace_back(near ? 0 : 1 + sweep.demand.slots - std::min(free, sweep.demand.slots), id);
  }
  if (able.size() < sweep.demand.workers) return;
  std::sort(able.begin(), able.end());
  std::vector<WorkerId> workers;
  for (std::uint32_t i = 0; i < sweep.demand.workers; ++i) workers.push_back(able[i].second);
  reserve(t, trial, std::move(workers));
}

void reserve_slots(Transition& t) {
  for (const SweepId id : t.state.open_sweeps) {
    Sweep& sweep = t.state.sweeps.at(id);
    if (sweep.demand.all_slots() < 2 || sweep.ready.empty()) continue;
    if (sweep.row.state != SweepState::kRunning) continue;
    const Trial& trial = t.state.trials.at(sweep.ready.begin()->second);
    if (t.state.reservations.contains(trial.row.id)) continue;
    if (sweep.reserve_due && t.state.reservations.size() < t.state.options.reservations_max &&
        t.now.mono_ms - trial.ready_since_ms >= t.state.options.reserve_after_ms) {
      reserve_for(t, sweep, trial);
    }
    if (sweep.reserve_due || !t.state.deadlines.contains(DeadlineKind::kReserve, id.value)) {
      const MonotonicMs first = trial.ready_since_ms + t.state.options.reserve_after_ms;
      const MonotonicMs next = t.now.mono_ms + t.state.options.reserve_after_ms;
      t.state.deadlines.set(DeadlineKind::kReserve, id.value, first > t.now.mono_ms ? first : next);
    }
    sweep.reserve_due = false;
  }
}

/// What stopping some trials would free.
struct Room {
  std::vector<TrialId> victims;
  std::vector<WorkerId> workers;
};

/// Who must stop so that `demand` fits, of the trials below `priority`; no victims when that would
/// not be enough. Cost: linear in the victims looked at.
Room find_room(const State& state, const scheduler::Demand& demand, std::int64_t priority) {
  struct Gain {
    scheduler::Offer offer;
    std::vector<TrialId> victims;
  };
  std::map<WorkerId, Gain> gains;
  Room room;
  // Workers where it fits already count too: a gang needs several.
  scheduler::Demand fewer = demand;
  for (--fewer.workers; fewer.workers > 0 && room.workers.empty(); --fewer.workers) {
    room.workers = state.offers.choose(fewer, {});
  }
  std::size_t seen = 0;
  for (const Preemptible& entry : state.preemptible) {
    if (entry.priority >= priority || ++seen > kVictimsSeenMax) break;
    const LiveAttempt& live = *state.trials.at(entry.trial).live;
    if (live.stop_reason != StopReason::kNone) continue;
    const std::uint64_t memory =
        state.sweeps.at(state.trials.at(entry.trial).row.sweep).demand.memory_bytes;
    for (const Member& member : live.members) {
      const WorkerId id = member.row.worker;
      const Worker& worker = state.workers.at(id);
      if (member.row.ended || !takes_work(state, worker) || worker.reserved_for.valid()) continue;
      if (std::count(room.workers.begin(), room.workers.end(), id) > 0) continue;
      Gain& gain = gains.try_emplace(id, Gain{offer_of(state, worker, {}), {}}).first->second;
      for (const WorkerSlot& slot : worker.slots) {
        if (slot.held_by == live.row.id) {
          gain.offer.free.push_back({slot.slot.index, slot.slot.kind, slot.slot.memory_bytes});
        }
      }
      gain.offer.memory_bytes += memory;
      gain.victims.push_back(entry.trial);
      if (!scheduler::fits(gain.offer, demand)) continue;
      room.workers.push_back(id);
      room.victims.insert(room.victims.end(), gain.victims.begin(), gain.victims.end());
      if (room.workers.size() == demand.workers) {
        std::sort(room.workers.begin(), room.workers.end());
        std::sort(room.victims.begin(), room.victims.end());
        room.victims.erase(std::unique(room.victims.begin(), room.victims.end()),
                           room.victims.end());
        return room;
      }
    }
  }
  return {};
}

void stop_for(Transition& t, Trial& trial, const Room& room) {
  for (const TrialId id : room.victims) {
    Trial& victim = t.state.trials.at(id);
    t.event(
        EventKind::kAttemptPreempted,
        {victim.row.sweep, id, victim.live->row.id.number, victim.live->row.worker},
        fmt::format("it makes room for {}, which has a higher priority", trial.row.id.to_string()));
    ask_to_stop(t, victim, StopReason::kPreempted);
    t.state.making_room[id] = trial.row.id;
    ++trial.makes_room;
  }
}

/// The trials of a sweep that are worth stopping others for, the next one first.
void preempt_for(Transition& t, Sweep& sweep) {
  std::uint64_t wanted = sweep.count(TrialState::kRunning);
  const std::int32_t parallel = sweep.spec->resources.parallel;
  for (const auto& [rank, id] : sweep.ready) {
    Trial& trial = t.state.trials.at(id);
    ++wanted;
    if (parallel > 0 && wanted > static_cast<std::uint64_t>(parallel)) return;
    if (trial.makes_room > 0 || waits_for_holder(t.state, trial)) continue;
    const std::int64_t priority = priority_of(sweep, trial);
    if (t.state.preemptible.empty() || t.state.preemptible.begin()->priority >= priority) return;
    if (t.state.making_room.size() >= t.state.options.preempting_max) return;
    const Room room = find_room(t.state, sweep.demand, priority);
    if (room.victims.empty()) return;
    stop_for(t, trial, room);
    // Several slots do not become free at once: nobody else may take the first of them. A worker
    // keeps slots for one trial only: one that does already has more than that trial needs.
    const bool kept = std::any_of(room.workers.begin(), room.workers.end(), [&](WorkerId worker) {
      return t.state.workers.at(worker).reserved_for.valid();
    });
    if (sweep.demand.all_slots() > 1 && !kept && !t.state.reservations.contains(id)) {
      reserve(t, trial, room.workers);
    }
  }
}

void preempt(Transition& t) {
  if (!t.state.options.preemption || t.state.preemptible.empty()) return;
  const std::int64_t lowest = t.state.preemptible.begin()->priority;
  std::vector<std::pair<std::int64_t, Sweep*>> above;
  for (const SweepId id : t.state.open_sweeps) {
    Sweep& sweep = t.state.sweeps.at(id);
    if (sweep.row.state != SweepState::kRunning || sweep.ready.empty()) continue;
    const std::int64_t first = std::int64_t{sweep.row.priority} - sweep.ready.begin()->first;
    if (first > lowest) above.emplace_back(-first, &sweep);
  }
  std::sort(above.begin(), above.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second->row.id) < std::tie(b.first, b.second->row.id);
  });
  for (const auto& [first, sweep] : above) preempt_for(t, *sweep);
}

}  // namespace

std::int64_t priority_of(const Sweep& sweep, const Trial& trial) {
  return std::int64_t{sweep.row.priority} + trial.row.priority;
}

Preemptible preemptible_of(const Sweep& sweep, const Trial& trial) {
  return {priority_of(sweep, trial), ~trial.live->row.token, trial.row.id};
}

void prune_reservations(Transition& t) {
  std::vector<TrialId> idle;
  for (const auto& [id, reservation] : t.state.reservations) {
    const auto trial = t.state.trials.find(id);
    const bool waits =
        trial != t.state.trials.end() && is_ready(t.sweep_of(trial->second), trial->second);
    const bool holds = std::all_of(
        reservation.workers.begin(), reservation.workers.end(),
        [&](WorkerId worker) { return takes_work(t.state, t.state.workers.at(worker)); });
    if (!waits || !holds) idle.push_back(id);
  }
  for (const TrialId id : idle) drop_reservation(t.state, id);
}

bool yield_reservations(Transition& t) {
  if (t.state.reservations.empty()) return false;
  std::set<TrialId> yielding;
  for (const SweepId id : t.state.open_sweeps) {
    const Sweep& sweep = t.state.sweeps.at(id);
    if (sweep.row.state != SweepState::kRunning || sweep.ready.empty() || !has_room(sweep))
      continue;
    const std::int64_t first = std::int64_t{sweep.row.priority} - sweep.ready.begin()->first;
    for (const auto& [kept_for, reservation] : t.state.reservations) {
      const Trial& trial = t.state.trials.at(kept_for);
      if (priority_of(t.sweep_of(trial), trial) >= first) continue;
      const bool fits =
          std::any_of(reservation.workers.begin(), reservation.workers.end(), [&](WorkerId worker) {
            return scheduler::fits(offer_of(t.state, t.state.workers.at(worker), kept_for),
                                   sweep.demand);
          });
      if (fits) yielding.insert(kept_for);
    }
  }
  for (const TrialId id : yielding) drop_reservation(t.state, id);
  return !yielding.empty();
}

void forget_room(State& state, Trial& trial) {
  drop_reservation(state, trial.row.id);
  if (trial.makes_room == 0) return;
  trial.makes_room = 0;
  std::erase_if(state.making_room, [&](const auto& entry) { return entry.second == trial.row.id; });
}

void room_was_made(State& state, const Trial& trial) {
  const auto found = state.making_room.find(trial.row.id);
  if (found == state.making_room.end()) return;
  Trial& waiting = state.trials.at(found->second);
  state.making_room.erase(found);
  if (waiting.makes_room > 0) --waiting.makes_room;
}

void make_room(Transition& t) {
  reserve_slots(t);
  preempt(t);
}

}  // namespace tailor::core
