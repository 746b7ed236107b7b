// From queued trials and free slots to new attempts.
#include <algorithm>

#include "coordinator/core/transition.h"
#include "coordinator/scheduler/placement.h"

namespace tailor::core {

using storage::SweepState;
using storage::TrialState;

namespace {

class FailedOn final : public scheduler::Avoidance {
 public:
  explicit FailedOn(const State& state) : state_(state) {}
  bool failed_on(TrialId trial, WorkerId worker) const override {
    for (const auto& [end, workers] : state_.trials.at(trial).failed_on) {
      if (workers.contains(worker)) return true;
    }
    return false;
  }

 private:
  const State& state_;
};

std::vector<scheduler::FreeWorker> free_workers(const State& state) {
  std::vector<scheduler::FreeWorker> workers;
  for (const auto& [session, id] : state.worker_by_session) {
    const Worker& worker = state.workers.at(id);
    if (worker.row.draining) continue;
    scheduler::FreeWorker free{id, {}, {}};
    for (const WorkerSlot& slot : worker.slots) {
      if (slot.held_by) continue;
      auto& kind = slot.slot.kind == protocol::DeviceKind::kGpu ? free.gpu : free.cpu;
      kind.push_back(slot.slot.index);
    }
    if (!free.cpu.empty() || !free.gpu.empty()) workers.push_back(std::move(free));
  }
  // worker_by_session has no order of its own; decisions must not depend on its hashing.
  std::sort(workers.begin(), workers.end(),
            [](const auto& a, const auto& b) { return a.worker < b.worker; });
  return workers;
}

std::vector<scheduler::SweepQueue> sweep_queues(const State& state) {
  std::vector<scheduler::SweepQueue> queues;
  for (const SweepId id : state.open_sweeps) {
    const Sweep& sweep = state.sweeps.at(id);
    if (sweep.row.state != SweepState::kRunning || sweep.ready.empty()) continue;
    const sweep::ResourceSpec& resources = sweep.spec->resources;
    queues.push_back({id, sweep.row.priority, resources.gpus, resources.parallel,
                      sweep.count(TrialState::kRunning), &sweep.ready});
  }
  return queues;
}

std::size_t place_once(Transition& t) {
  auto workers = free_workers(t.state);
  if (workers.empty()) return 0;
  const auto placements =
      scheduler::place(sweep_queues(t.state), std::move(workers), FailedOn(t.state));
  for (const scheduler::Placement& p : placements) {
    assign(t, t.state.trials.at(p.trial), t.state.workers.at(p.worker), p.slots);
  }
  return placements.size();
}

void refill_all(Transition& t) {
  const std::vector<SweepId> open(t.state.open_sweeps.begin(), t.state.open_sweeps.end());
  for (const SweepId id : open) refill(t, t.state.sweeps.at(id));
}

}  // namespace

void schedule(Transition& t) {
  if (!t.placement_changed) return;
  do {
    refill_all(t);
  } while (place_once(t) > 0);
}

}  // namespace tailor::core
