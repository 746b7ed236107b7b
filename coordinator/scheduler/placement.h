// Placement: which queued trial goes to which free slots, now. A pure function of plain values.
//
// Order: sweeps with the higher priority first; among equals the one with the fewest running trials
// (fair share), then the older sweep; within a sweep the lowest trial id. A trial takes all its
// slots on one worker or none. It goes to the worker with most free slots of its kind, but, if it
// can, not to one where it failed.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/ids.h"
#include "protocol/messages.h"

namespace tailor::scheduler {

/// A sweep that wants to run trials. Only running sweeps are given.
struct SweepQueue {
  SweepId sweep;
  std::int32_t priority = 0;                 ///< higher first
  std::int32_t gpus = 0;                     ///< of one trial; 0 = one CPU slot
  std::int32_t parallel = 0;                 ///< trials at once, at most; 0 = no limit
  std::uint64_t running = 0;                 ///< trials that run now
  const std::set<TrialId>* ready = nullptr;  ///< not null; outlives the call
};

/// Free slots of one connected worker that is not draining.
struct FreeWorker {
  WorkerId worker;
  std::vector<std::uint32_t> cpu;  ///< indexes of free slots
  std::vector<std::uint32_t> gpu;
};

struct Placement {
  SweepId sweep;
  TrialId trial;
  WorkerId worker;
  std::vector<std::uint32_t> slots;
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Where a trial would rather not go.
class Avoidance {
 public:
  virtual ~Avoidance() = default;
  /// True when an attempt of `trial` failed on `worker`.
  virtual bool failed_on(TrialId trial, WorkerId worker) const = 0;
};

/// Places as much as fits. Cost: (placements + 1) x (sweeps + workers).
std::vector<Placement> place(std::vector<SweepQueue> sweeps, std::vector<FreeWorker> workers,
                             const Avoidance& avoid);

}  // namespace tailor::scheduler
