#include "coordinator/scheduler/placement.h"

#include <tuple>

namespace tailor::scheduler {
namespace {

/// A sweep while placing: `next` is its first trial not looked at yet.
struct Cursor {
  SweepQueue queue;
  std::set<TrialId>::const_iterator next;
  bool blocked = false;  // nothing more of it can be placed in this call
};

std::vector<std::uint32_t>& slots_of(FreeWorker& worker, std::int32_t gpus) {
  return gpus > 0 ? worker.gpu : worker.cpu;
}

bool wants_more(const Cursor& c) {
  return !c.blocked && c.next != c.queue.ready->end() &&
         (c.queue.parallel <= 0 || c.queue.running < static_cast<std::uint64_t>(c.queue.parallel));
}

/// Priority, fair share, age.
auto rank_of(const Cursor& c) {
  return std::make_tuple(-static_cast<std::int64_t>(c.queue.priority), c.queue.running,
                         c.queue.sweep);
}

/// The worker for `trial`, or null when none has enough free slots.
FreeWorker* choose_worker(std::vector<FreeWorker>& workers, const SweepQueue& queue, TrialId trial,
                          const Avoidance& avoid) {
  const std::size_t need = queue.gpus > 0 ? static_cast<std::size_t>(queue.gpus) : 1;
  FreeWorker* best = nullptr;
  bool best_failed = false;
  for (FreeWorker& worker : workers) {
    const std::size_t free = slots_of(worker, queue.gpus).size();
    if (free < need) continue;
    const bool failed = avoid.failed_on(trial, worker.worker);
    const bool better = best == nullptr || (best_failed && !failed) ||
                        (best_failed == failed && free > slots_of(*best, queue.gpus).size());
    if (better) {
      best = &worker;
      best_failed = failed;
    }
  }
  return best;
}

}  // namespace

std::vector<Placement> place(std::vector<SweepQueue> sweeps, std::vector<FreeWorker> workers,
                             const Avoidance& avoid) {
  std::vector<Cursor> cursors;
  cursors.reserve(sweeps.size());
  for (SweepQueue& queue : sweeps) cursors.push_back({queue, queue.ready->begin(), false});

  std::vector<Placement> placements;
  while (true) {
    Cursor* first = nullptr;
    for (Cursor& cursor : cursors) {
      if (wants_more(cursor) && (first == nullptr || rank_of(cursor) < rank_of(*first))) {
        first = &cursor;
      }
    }
    if (first == nullptr) return placements;

    SweepQueue& queue = first->queue;
    const TrialId trial = *first->next;
    FreeWorker* worker = choose_worker(workers, queue, trial, avoid);
    if (worker == nullptr) {
      first->blocked = true;  // every trial of a sweep needs the same slots
      continue;
    }
    auto& free = slots_of(*worker, queue.gpus);
    const auto need = static_cast<std::ptrdiff_t>(queue.gpus > 0 ? queue.gpus : 1);
    Placement placement{queue.sweep, trial, worker->worker, {}};
    placement.slots.assign(free.begin(), free.begin() + need);
    free.erase(free.begin(), free.begin() + need);
    placements.push_back(std::move(placement));
    ++first->next;
    ++queue.running;
  }
}

}  // namespace tailor::scheduler
