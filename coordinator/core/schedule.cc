// From queued trials and free slots to new attempts.
//
// Order: the higher priority (of sweep and trial together) first; among equals the user whose
// trials hold the fewest slots, then the sweep whose trials do, then the older sweep; within a
// sweep the lowest trial id. A trial is placed whole: its demand on each of its workers, or
// nothing. It goes where its checkpoint can be read, then to the worker with most free slots, but,
// if it can, not to one where it failed.
#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>

#include "coordinator/core/transition.h"

namespace tailor::core {

using storage::SweepState;
using storage::TrialState;

namespace {

/// Trials of one sweep that wait for workers of their checkpoints are passed over, so many at most.
constexpr std::size_t kPassedOverMax = 64;

std::set<WorkerId> failed_on(const Trial& trial) {
  std::set<WorkerId> workers = trial.not_started_on;
  for (const auto& [end, on] : trial.failed_on) workers.insert(on.begin(), on.end());
  return workers;
}

/// The workers that keep slots for the trial, if all that it takes is free there; else nullptr.
const std::vector<WorkerId>* kept_and_free(const State& state, const Sweep& sweep,
                                           const Trial& trial) {
  const auto reserved = state.reservations.find(trial.row.id);
  if (reserved == state.reservations.end()) return nullptr;
  const auto& kept = reserved->second.workers;
  const bool all = std::all_of(kept.begin(), kept.end(), [&](WorkerId id) {
    const Worker& worker = state.workers.at(id);
    return takes_work(state, worker) &&
           scheduler::fits(offer_of(state, worker, trial.row.id), sweep.demand);
  });
  return all ? &kept : nullptr;
}

}  // namespace

std::vector<WorkerId> find_workers(const State& state, const Sweep& sweep, const Trial& trial) {
  std::set<WorkerId> avoid = failed_on(trial);
  scheduler::Preference preference;
  preference.folder = checkpoint_folder(state, trial);
  // Of a gang rank 0 alone reads the checkpoint: one member there is enough, and it is the first.
  const bool waits = waits_for_holder(state, trial);
  const auto holds = [&](WorkerId id) {
    return folder_of(state.workers.at(id)) == preference.folder;
  };
  // It goes back to where its checkpoint is also where it failed, rather than to wait.
  if (waits) std::erase_if(avoid, holds);
  preference.only_folder = waits && sweep.demand.workers == 1;
  preference.avoid = avoid.empty() ? nullptr : &avoid;
  if (const auto* kept = kept_and_free(state, sweep, trial);
      kept != nullptr && (!waits || std::any_of(kept->begin(), kept->end(), holds))) {
    // Rank 0 first, where its checkpoint is.
    std::vector<WorkerId> workers = *kept;
    std::stable_partition(workers.begin(), workers.end(), holds);
    return workers;
  }
  std::vector<WorkerId> workers = state.offers.choose(demand_now(state, sweep), preference);
  if (waits && !workers.empty() && !holds(workers.front())) return {};
  return workers;
}

namespace {

/// The wait has an end from when the trial could start over elsewhere: before, nothing is lost by
/// it.
void begin_wait_for_holder(Transition& t, const Sweep& sweep, const Trial& trial) {
  const std::uint64_t id = trial.row.id.value;
  if (t.state.deadlines.contains(DeadlineKind::kHolder, id)) return;
  if (kept_and_free(t.state, sweep, trial) == nullptr &&
      t.state.offers.choose(demand_now(t.state, sweep), {}).empty()) {
    return;
  }
  t.state.deadlines.set(DeadlineKind::kHolder, id, t.now.mono_ms + t.state.options.holder_wait_ms);
}

/// A sweep while placing.
struct Cursor {
  Sweep* sweep = nullptr;
  std::uint64_t* user_slots = nullptr;
  std::uint64_t slots = 0;  ///< that its trials hold
  ReadyOrder::const_iterator next;
  std::size_t passed_over = 0;
  bool blocked = false;  ///< nothing more of it can be placed now
};

bool wants_more(const Cursor& c) {
  return !c.blocked && c.next != c.sweep->ready.end() && has_room(*c.sweep);
}

/// Priority, fair share of users and sweeps, age. Of one cursor it only grows while placing.
auto rank_of(const Cursor& c) {
  return std::make_tuple(c.next->first - std::int64_t{c.sweep->row.priority}, *c.user_slots,
                         c.slots, c.sweep->row.id);
}

/// The next ready trial of the sweep behind `at` for which slots are kept. Cost: linear in the
/// reservations, of which there are few.
ReadyOrder::const_iterator next_reserved(const State& state, const Sweep& sweep,
                                         ReadyOrder::const_iterator at) {
  auto best = sweep.ready.end();
  for (const auto& [id, reservation] : state.reservations) {
    const Trial& trial = state.trials.at(id);
    if (trial.row.sweep != sweep.row.id) continue;
    const auto found = sweep.ready.find({-std::int64_t{trial.row.priority}, id});
    if (found == sweep.ready.end() || *found <= *at) continue;
    if (best == sweep.ready.end() || *found < *best) best = found;
  }
  return best;
}

/// Places as much as fits. Returns how many trials. Cost: sweeps with ready trials and placements,
/// times the logarithm of the former; what a placement costs itself hardly depends on the number of
/// workers or trials.
std::size_t place(Transition& t) {
  std::map<std::string, std::uint64_t> users;
  std::vector<Cursor> cursors;
  for (const SweepId id : t.state.open_sweeps) {
    Sweep& sweep = t.state.sweeps.at(id);
    const std::uint64_t slots =
        sweep.count(TrialState::kRunning) * sweep.demand.all_slots() - sweep.slots_spared;
    std::uint64_t& user = users[sweep.row.user];
    user += slots;
    if (sweep.row.state != SweepState::kRunning || sweep.ready.empty()) continue;
    cursors.push_back({&sweep, &user, slots, sweep.ready.begin(), 0, false});
  }
  std::vector<const scheduler::Demand*> too_large;  // for what is free now
  std::size_t placed = 0;
  using Entry = std::pair<decltype(rank_of(cursors.front())), Cursor*>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> order;
  const auto enter = [&order](Cursor& cursor) {
    if (wants_more(cursor)) order.emplace(rank_of(cursor), &cursor);
  };
  for (Cursor& cursor : cursors) enter(cursor);
  while (!order.empty()) {
    const auto [rank, first] = order.top();
    order.pop();
    if (rank != rank_of(*first)) {  // more of its user were placed since
      enter(*first);
      continue;
    }
    Sweep& sweep = *first->sweep;
    Trial& trial = t.state.trials.at(first->next->second);
    const bool reserved = t.state.reservations.contains(trial.row.id);
    const bool hopeless =
        !reserved && std::any_of(too_large.begin(), too_large.end(),
                                 [&](const auto* demand) { return *demand == sweep.demand; });
    const std::vector<WorkerId> workers =
        hopeless ? std::vector<WorkerId>{} : find_workers(t.state, sweep, trial);
    if (!workers.empty()) {
      ++first->next;
      assign(t, trial, workers);
      const std::uint64_t slots = workers.size() * sweep.demand.slots;
      first->slots += slots;
      *first->user_slots += slots;
      ++placed;
    } else if (waits_for_holder(t.state, trial)) {
      if (!hopeless) begin_wait_for_holder(t, sweep, trial);
      ++first->next;  // the others of the sweep may do without
      first->blocked = ++first->passed_over > kPassedOverMax;
    } else {
      // Every trial of a sweep takes the same: only one for which slots are kept may still fit.
      first->next = next_reserved(t.state, sweep, first->next);
      first->blocked = first->next == sweep.ready.end();
      if (!reserved) too_large.push_back(&sweep.demand);
    }
    enter(*first);
  }
  return placed;
}

/// One search may use up all draws of a transaction: in the next one those behind it come first.
void refill_all(Transition& t) {
  std::vector<SweepId> open(t.state.open_sweeps.begin(), t.state.open_sweeps.end());
  std::rotate(open.begin(), std::upper_bound(open.begin(), open.end(), t.state.drew_last),
              open.end());
  for (const SweepId id : open) {
    const bool may_draw = t.changes.draws_left > 0;
    refill(t, t.state.sweeps.at(id));
    if (may_draw && t.changes.draws_left == 0) t.state.drew_last = id;
  }
}

}  // namespace

scheduler::Demand demand_of(const sweep::ResourceSpec& resources) {
  scheduler::Demand demand;
  demand.kind = resources.gpus > 0 ? protocol::DeviceKind::kGpu : protocol::DeviceKind::kCpu;
  demand.slots = static_cast<std::uint32_t>(resources.slots());
  demand.workers = static_cast<std::uint32_t>(resources.nodes);
  demand.workers_min = static_cast<std::uint32_t>(resources.nodes_min);
  demand.slot_memory_bytes = resources.gpu_memory_bytes;
  demand.memory_bytes = resources.memory_bytes;
  demand.labels = resources.labels;
  return demand;
}

scheduler::Demand demand_now(const State& state, const Sweep& sweep) {
  scheduler::Demand demand = sweep.demand;
  if (demand.workers_min == demand.workers) return demand;
  std::uint32_t able = 0;
  for (const auto& [session, id] : state.worker_by_session) {
    const Worker& worker = state.workers.at(id);
    if (takes_work(state, worker) && scheduler::fits(whole_offer(worker), demand)) ++able;
    if (able == demand.workers) break;
  }
  demand.workers = std::max(demand.workers_min, able);
  return demand;
}

std::uint64_t slots_spared(const Sweep& sweep, const LiveAttempt& live) {
  const std::size_t members = std::min<std::size_t>(live.members.size(), sweep.demand.workers);
  return (sweep.demand.workers - members) * sweep.demand.slots;
}

bool has_room(const Sweep& sweep) {
  const std::int32_t parallel = sweep.spec->resources.parallel;
  return parallel <= 0 || sweep.count(TrialState::kRunning) < static_cast<std::uint64_t>(parallel);
}

std::string folder_of(const Worker& worker) {
  return worker.row.folder.empty() ? worker.row.id.to_string() : worker.row.folder;
}

bool waits_for_holder(const State& state, const Trial& trial) {
  if (trial.may_start_over || checkpoint_folder(state, trial).empty()) return false;
  const Worker& holder = state.workers.at(trial.checkpoint->worker);
  return !holder.row.draining && holder.row.quarantine.empty();
}

bool can_be_fetched(const State& state, const Trial& trial) {
  const auto& stored = stored_of(state, trial.row.id);
  return trial.checkpoint && !stored.empty() && stored.front().step >= trial.checkpoint->step;
}

std::string checkpoint_folder(const State& state, const Trial& trial) {
  if (!trial.checkpoint || can_be_fetched(state, trial)) return "";
  const auto holder = state.workers.find(trial.checkpoint->worker);
  return holder == state.workers.end() ? "" : folder_of(holder->second);
}

void schedule(Transition& t) {
  if (!t.placement_changed && !t.state.fewer_workers) return;
  prune_reservations(t);
  do {
    do {
      refill_all(t);
    } while (place(t) > 0);
  } while (prune_reservations(t) || yield_reservations(t) || make_room(t));
  t.state.fewer_workers = false;
}

}  // namespace tailor::core
