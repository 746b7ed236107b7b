// Room for trials that matter more or have waited too long.
//
// A trial of higher priority that finds no slot makes the running one of lowest priority (of those
// the one that began last) save and stop, if that one holds what is wanted; it waits for a slot
// again, at no cost of retries. A trial of several slots, or of memory of the node, that waited too
// long has slots kept for it as they become free: on as many workers as it takes, those where least
// is missing. Slots that are kept are given to nobody else, but to one for whom others
// are stopped, if its priority is higher; few trials at once may have them, and
// none longer than they wait and may start.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "coordinator/core/transition.h"

namespace tailor::core {

using protocol::StopReason;
using storage::SweepState;
using storage::TrialState;

namespace {

/// A search for room that looked at more running trials and found none is not made again at once.
constexpr std::size_t kLongSearch = 512;
constexpr std::int64_t kSearchAgainMs = 1'000;

/// What `demand` takes may not become free in one piece: then, without slots that are kept, whoever
/// takes less comes first, for ever.
bool gathers(const scheduler::Demand& demand) {
  return demand.all_slots() > 1 || demand.memory_bytes > 0;
}

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

bool suits(const scheduler::FreeSlot& slot, const scheduler::Demand& demand) {
  return slot.kind == demand.kind && slot.memory_bytes >= demand.slot_memory_bytes;
}

std::uint32_t suitable(const scheduler::Offer& offer, const scheduler::Demand& demand) {
  return static_cast<std::uint32_t>(
      std::count_if(offer.free.begin(), offer.free.end(),
                    [&](const scheduler::FreeSlot& slot) { return suits(slot, demand); }));
}

/// Since when the trial waits for nothing but slots.
MonotonicMs waiting_since(const Sweep& sweep, const Trial& trial) {
  return std::max(trial.ready_since_ms, sweep.startable_since_ms);
}

/// What one running trial holds of one worker.
struct Share {
  TrialId trial;
  std::vector<scheduler::FreeSlot> slots;  ///< that suit
  std::uint64_t memory_bytes = 0;
};

void add_share(scheduler::Offer& offer, const Share& share) {
  offer.free.insert(offer.free.end(), share.slots.begin(), share.slots.end());
  offer.memory_bytes += share.memory_bytes;
}

/// The trial's slots of `worker` that suit, and its memory if memory is wanted. Nothing of both: it
/// would be stopped in vain.
Share share_of(const State& state, const Trial& trial, const Worker& worker,
               const scheduler::Demand& demand) {
  Share share;
  share.trial = trial.row.id;
  for (const WorkerSlot& slot : worker.slots) {
    if (slot.held_by != trial.live->row.id) continue;
    const scheduler::FreeSlot freed{slot.slot.index, slot.slot.kind, slot.slot.memory_bytes};
    if (suits(freed, demand)) share.slots.push_back(freed);
  }
  if (demand.memory_bytes > 0) {
    share.memory_bytes = state.sweeps.at(trial.row.sweep).demand.memory_bytes;
  }
  return share;
}

/// True where the end of a single trial makes enough free: then fair shares decide who comes next.
bool waits_for_one_end(const State& state, const Worker& worker, const scheduler::Offer& free,
                       const scheduler::Demand& demand) {
  return std::any_of(worker.slots.begin(), worker.slots.end(), [&](const WorkerSlot& slot) {
    if (!slot.held_by) return false;
    scheduler::Offer then = free;
    add_share(then, share_of(state, state.trials.at(slot.held_by->trial), worker, demand));
    return scheduler::fits(then, demand);
  });
}

/// Keeps slots for the first trial of the sweep. Cost: linear in the workers; once in
/// `reserve_after_ms` for a sweep whose trials do not fit.
void reserve_for(Transition& t, const Sweep& sweep, const Trial& trial) {
  const scheduler::Demand demand = demand_now(t.state, sweep);
  // The fewest slots missing first, then the least memory.
  std::vector<std::tuple<std::uint32_t, std::uint64_t, WorkerId>> able;
  const std::string folder = checkpoint_folder(t.state, trial);
  for (const auto& [session, id] : t.state.worker_by_session) {
    const Worker& worker = t.state.workers.at(id);
    if (!takes_work(t.state, worker) || worker.reserved_for.valid()) continue;
    if (!worker.row.quarantine.empty()) continue;
    if (!scheduler::fits(whole_offer(worker), demand)) continue;
    const scheduler::Offer offer = offer_of(t.state, worker, {});
    const std::uint32_t free = suitable(offer, demand);
    if (demand.all_slots() == 1 && waits_for_one_end(t.state, worker, offer, demand)) {
      return;
    }
    const std::uint64_t memory = demand.memory_bytes;
    // One that can read its checkpoint comes first, whatever is missing there.
    const bool near = !folder.empty() && folder_of(worker) == folder;
    able.emplace_back(near ? 0 : 1 + demand.slots - std::min(free, demand.slots),
                      memory - std::min(offer.memory_bytes, memory), id);
  }
  if (able.size() < demand.workers) return;
  std::sort(able.begin(), able.end());
  std::vector<WorkerId> workers;
  for (std::uint32_t i = 0; i < demand.workers; ++i) workers.push_back(std::get<WorkerId>(able[i]));
  reserve(t, trial, std::move(workers));
}

void reserve_slots(Transition& t) {
  for (const SweepId id : t.state.open_sweeps) {
    Sweep& sweep = t.state.sweeps.at(id);
    if (!gathers(sweep.demand) || sweep.ready.empty()) continue;
    if (sweep.row.state != SweepState::kRunning || !has_room(sweep)) continue;
    const Trial& trial = t.state.trials.at(sweep.ready.begin()->second);
    if (t.state.reservations.contains(trial.row.id)) continue;
    if (sweep.reserve_due && t.state.reservations.size() < t.state.options.reservations_max &&
        t.now.mono_ms - waiting_since(sweep, trial) >= t.state.options.reserve_after_ms) {
      reserve_for(t, sweep, trial);
    }
    if (sweep.reserve_due || !t.state.deadlines.contains(DeadlineKind::kReserve, id.value)) {
      const MonotonicMs first = waiting_since(sweep, trial) + t.state.options.reserve_after_ms;
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
  std::size_t looked_at = 0;  ///< running trials
};

/// A worker with what its victims would free.
struct Gain {
  scheduler::Offer offer;  ///< what is free now
  scheduler::Offer with;   ///< and with all shares
  std::vector<Share> shares;
};

/// Those without which it would not fit; of those that could stand for each other, the first. Cost:
/// quadratic in the shares, of which a worker has no more than slots.
std::vector<TrialId> needed(const Gain& gain, const scheduler::Demand& demand) {
  std::vector<bool> taken(gain.shares.size(), true);
  // Without the last one it did not fit.
  for (std::size_t i = gain.shares.size() - 1; i-- > 0;) {
    taken[i] = false;
    scheduler::Offer without = gain.offer;
    for (std::size_t j = 0; j < taken.size(); ++j) {
      if (taken[j]) add_share(without, gain.shares[j]);
    }
    taken[i] = !scheduler::fits(without, demand);
  }
  std::vector<TrialId> trials;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (taken[i]) trials.push_back(gain.shares[i].trial);
  }
  return trials;
}

/// Workers that keep slots for a trial below `priority`, or for `trial` itself: that does not stand
/// in its way.
bool keeps_for_less(const State& state, const Worker& worker, const Trial& trial,
                    std::int64_t priority) {
  if (!worker.reserved_for.valid()) return false;
  if (worker.reserved_for == trial.row.id) return true;
  const Trial& kept_for = state.trials.at(worker.reserved_for);
  return priority_of(state.sweeps.at(kept_for.row.sweep), kept_for) < priority;
}

/// Who must stop so that `demand` of `trial` fits, of the trials below `priority`; no victims when
/// that would not be enough. REQUIRES: `state.offers` shows what `keeps_for_less` workers keep.
/// Cost: linear in the trials below `priority`; hardly anything for those of another kind of slots,
/// unless memory is wanted.
Room find_room(const State& state, const Trial& trial, const scheduler::Demand& demand,
               std::int64_t priority) {
  std::map<WorkerId, std::optional<Gain>> gains;  // nullopt: no room can be made there
  Room room;
  // Workers where it fits already count too: a gang needs several.
  scheduler::Demand fewer = demand;
  for (--fewer.workers; fewer.workers > 0 && room.workers.empty(); --fewer.workers) {
    room.workers = state.offers.choose(fewer, {});
  }
  for (const WorkerId id : room.workers) gains[id] = std::nullopt;
  const auto gain_at = [&](const Worker& worker) -> std::optional<Gain>& {
    const auto [found, is_new] = gains.try_emplace(worker.row.id);
    const bool free =
        !worker.reserved_for.valid() || keeps_for_less(state, worker, trial, priority);
    const scheduler::Offer* offer = state.offers.find(worker.row.id);
    if (is_new && free && offer != nullptr && scheduler::fits(whole_offer(worker), demand)) {
      found->second = Gain{*offer, *offer, {}};
    }
    return found->second;
  };
  for (const Preemptible& entry : state.preemptible) {
    if (entry.priority >= priority) break;
    if (entry.kind != demand.kind && demand.memory_bytes == 0) continue;
    ++room.looked_at;
    const Trial& victim = state.trials.at(entry.trial);
    if (victim.live->stop_reason != StopReason::kNone) continue;
    for (const Member& member : victim.live->members) {
      if (member.row.ended) continue;
      const Worker& worker = state.workers.at(member.row.worker);
      std::optional<Gain>& gain = gain_at(worker);
      if (!gain) continue;
      Share share = share_of(state, victim, worker, demand);
      if (share.slots.empty() && share.memory_bytes == 0) continue;
      add_share(gain->with, share);
      gain->shares.push_back(std::move(share));
      if (!scheduler::fits(gain->with, demand)) continue;
      const std::vector<TrialId> victims = needed(*gain, demand);
      gain.reset();
      room.workers.push_back(worker.row.id);
      room.victims.insert(room.victims.end(), victims.begin(), victims.end());
      if (room.workers.size() < demand.workers) continue;
      std::sort(room.workers.begin(), room.workers.end());
      std::sort(room.victims.begin(), room.victims.end());
      room.victims.erase(std::unique(room.victims.begin(), room.victims.end()), room.victims.end());
      return room;
    }
  }
  return {{}, {}, room.looked_at};
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

/// `find_room` with what is kept for less than `priority`, or for `trial`, as free as the rest.
Room room_for(State& state, const Sweep& sweep, const Trial& trial, std::int64_t priority) {
  std::vector<WorkerId> shown;
  for (const auto& [kept_for, reservation] : state.reservations) {
    for (const WorkerId id : reservation.workers) {
      const Worker& worker = state.workers.at(id);
      if (!takes_work(state, worker) || !keeps_for_less(state, worker, trial, priority)) continue;
      state.offers.set(offer_of(state, worker, kept_for));
      shown.push_back(id);
    }
  }
  Room room = find_room(state, trial, demand_now(state, sweep), priority);
  for (const WorkerId id : shown) refresh(state, state.workers.at(id));
  return room;
}

/// For the trials of a sweep that are worth stopping others for, the next one first. `let_go`:
/// slots that were kept for somebody may be free now.
void preempt_for(Transition& t, Sweep& sweep, bool* let_go) {
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
    if (t.state.deadlines.contains(DeadlineKind::kRoom, sweep.row.id.value)) return;
    const Room room = room_for(t.state, sweep, trial, priority);
    if (room.victims.empty()) {
      if (room.looked_at > kLongSearch) {
        t.state.deadlines.set(DeadlineKind::kRoom, sweep.row.id.value,
                              t.now.mono_ms + kSearchAgainMs);
      }
      return;
    }
    stop_for(t, trial, room);
    const bool had_kept = t.state.reservations.contains(id);
    for (const WorkerId on : room.workers) {
      const Worker& worker = t.state.workers.at(on);
      if (!keeps_for_less(t.state, worker, trial, priority)) continue;
      drop_reservation(t.state, worker.reserved_for);
      *let_go = true;
    }
    if (had_kept) drop_reservation(t.state, id);
    *let_go |= had_kept;
    // What is freed in pieces is not there at once: nobody else may take the first of them. A
    // worker keeps slots for one trial only: one that does already has more than that trial needs.
    const bool kept = std::any_of(room.workers.begin(), room.workers.end(), [&](WorkerId worker) {
      return t.state.workers.at(worker).reserved_for.valid();
    });
    const bool pieces = had_kept || sweep.demand.all_slots() > 1 || room.victims.size() > 1;
    if (pieces && !kept) {
      reserve(t, trial, room.workers);
    }
  }
}

bool preempt(Transition& t) {
  if (!t.state.options.preemption || t.state.preemptible.empty()) return false;
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
  bool let_go = false;
  for (const auto& [first, sweep] : above) preempt_for(t, *sweep, &let_go);
  return let_go;
}

}  // namespace

std::int64_t priority_of(const Sweep& sweep, const Trial& trial) {
  return std::int64_t{sweep.row.priority} + trial.row.priority;
}

Preemptible preemptible_of(const Sweep& sweep, const Trial& trial) {
  return {priority_of(sweep, trial), ~trial.live->row.token, trial.row.id, sweep.demand.kind};
}

bool prune_reservations(Transition& t) {
  std::vector<TrialId> idle;
  for (const auto& [id, reservation] : t.state.reservations) {
    const auto trial = t.state.trials.find(id);
    if (trial == t.state.trials.end()) {
      idle.push_back(id);
      continue;
    }
    const Sweep& sweep = t.sweep_of(trial->second);
    const bool waits = is_ready(sweep, trial->second) && has_room(sweep);
    const bool holds =
        std::all_of(reservation.workers.begin(), reservation.workers.end(), [&](WorkerId on) {
          const Worker& worker = t.state.workers.at(on);
          return takes_work(t.state, worker) && scheduler::fits(whole_offer(worker), sweep.demand);
        });
    if (!waits || !holds) idle.push_back(id);
  }
  for (const TrialId id : idle) drop_reservation(t.state, id);
  return !idle.empty();
}

namespace {

/// Reservations of less than `priority` on workers where one share of `demand` would fit, those of
/// lowest priority first.
std::vector<TrialId> reservations_below(Transition& t, const scheduler::Demand& demand,
                                        std::int64_t priority) {
  std::vector<std::pair<std::int64_t, TrialId>> below;
  for (const auto& [kept_for, reservation] : t.state.reservations) {
    const Trial& trial = t.state.trials.at(kept_for);
    const std::int64_t its = priority_of(t.sweep_of(trial), trial);
    if (its >= priority) continue;
    const bool fits =
        std::any_of(reservation.workers.begin(), reservation.workers.end(), [&](WorkerId worker) {
          return scheduler::fits(offer_of(t.state, t.state.workers.at(worker), kept_for), demand);
        });
    if (fits) below.emplace_back(its, kept_for);
  }
  std::sort(below.begin(), below.end());
  std::vector<TrialId> trials;
  for (const auto& [its, trial] : below) trials.push_back(trial);
  return trials;
}

/// Those of `below` without which `trial` could be placed now; empty when it could not.
std::vector<TrialId> in_the_way(State& state, const Sweep& sweep, const Trial& trial,
                                const std::vector<TrialId>& below) {
  std::vector<WorkerId> shown;
  std::vector<WorkerId> found;
  for (const TrialId id : below) {
    for (const WorkerId worker : state.reservations.at(id).workers) {
      if (!takes_work(state, state.workers.at(worker))) continue;
      state.offers.set(offer_of(state, state.workers.at(worker), id));
      shown.push_back(worker);
    }
    found = find_workers(state, sweep, trial);
    if (!found.empty()) break;
  }
  for (const WorkerId worker : shown) refresh(state, state.workers.at(worker));
  std::set<TrialId> kept_for;
  for (const WorkerId worker : found) {
    if (std::count(shown.begin(), shown.end(), worker) == 0) continue;
    kept_for.insert(state.workers.at(worker).reserved_for);
  }
  return {kept_for.begin(), kept_for.end()};
}

}  // namespace

bool yield_reservations(Transition& t) {
  if (t.state.reservations.empty()) return false;
  for (const SweepId id : t.state.open_sweeps) {
    const Sweep& sweep = t.state.sweeps.at(id);
    if (sweep.row.state != SweepState::kRunning || sweep.ready.empty() || !has_room(sweep))
      continue;
    const Trial& first = t.state.trials.at(sweep.ready.begin()->second);
    const std::vector<TrialId> below =
        reservations_below(t, sweep.demand, priority_of(sweep, first));
    if (below.empty()) continue;
    const std::vector<TrialId> yielding = in_the_way(t.state, sweep, first, below);
    for (const TrialId kept_for : yielding) drop_reservation(t.state, kept_for);
    if (!yielding.empty()) return true;
  }
  return false;
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

bool make_room(Transition& t) {
  reserve_slots(t);
  return preempt(t);
}

}  // namespace tailor::core
