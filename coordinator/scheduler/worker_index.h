// WorkerIndex: the workers that may be given work, by what they have free, so that a placement
// looks at the few best ones and never at all of them. A plain value without clock or I/O.
//
// Workers are kept in groups: all of them, those of one trials folder, those with one label. Within
// a group they are apart by the shape of their slots (kind, memory), and within a shape in the
// order (most free slots, lowest id). A choice walks the smallest group that can answer, best
// first.
//
// Costs, n workers: `set` and `erase` (2 + labels) x log n; `choose` log n a worker that it looks
// at. It looks at more than it takes only where the best ones lack memory or GPUs of a size, or are
// to be avoided.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "protocol/messages.h"

namespace tailor::scheduler {

/// What a trial takes: on each of `workers` different workers the same. Nobody here looks at
/// `workers_min`: who asks decides how many there may be.
struct Demand {
  protocol::DeviceKind kind = protocol::DeviceKind::kCpu;
  std::uint32_t slots = 1;              ///< of one worker
  std::uint32_t workers = 1;            ///< at once
  std::uint32_t workers_min = 1;        ///< where so many could never take it now; <= workers
  std::uint64_t slot_memory_bytes = 0;  ///< of each slot, at least
  std::uint64_t memory_bytes = 0;       ///< of the node, kept for the trial; 0 = not counted
  std::vector<std::string> labels;      ///< ascending, each once
  friend bool operator==(const Demand&, const Demand&) = default;

  /// Slots of the whole trial.
  std::uint64_t all_slots() const { return std::uint64_t{slots} * workers; }
};

/// A slot that holds nothing.
struct FreeSlot {
  std::uint32_t index = 0;
  protocol::DeviceKind kind = protocol::DeviceKind::kCpu;
  std::uint64_t memory_bytes = 0;
  friend bool operator==(const FreeSlot&, const FreeSlot&) = default;
};

/// What a worker that may be given work has left.
struct Offer {
  WorkerId worker;
  std::string folder;               ///< identity of its trials folder; "" = not known
  std::vector<std::string> labels;  ///< ascending, each once
  std::vector<FreeSlot> free;       ///< ascending by index
  std::uint64_t memory_bytes = 0;   ///< of the node, not kept for anybody
  friend bool operator==(const Offer&, const Offer&) = default;
};

/// True when `offer` has what `demand` takes of one worker.
bool fits(const Offer& offer, const Demand& demand);
/// The slots that `demand` takes: those with least memory that is enough, then the lowest.
/// REQUIRES: fits(offer, demand).
std::vector<std::uint32_t> pick_slots(const Offer& offer, const Demand& demand);

/// Where a trial would rather be.
struct Preference {
  /// Workers of this trials folder first (its checkpoint lies there); "" = any.
  std::string folder;
  /// Only those of `folder`.
  bool only_folder = false;
  /// These only where there is no other; may be null.
  const std::set<WorkerId>* avoid = nullptr;
};

class WorkerIndex {
 public:
  /// Adds the worker, or replaces what it offered.
  void set(Offer offer);
  /// No effect when it is not there.
  void erase(WorkerId worker);
  /// nullptr when it is not there.
  const Offer* find(WorkerId worker) const;
  std::size_t size() const { return offers_.size(); }

  /// Slots of `kind` that are free together; 0 answers every question at once.
  std::uint64_t free_slots(protocol::DeviceKind kind) const { return free_[kind_index(kind)]; }

  /// `demand.workers` different workers that fit it, the preferred ones first; empty when there are
  /// not so many.
  std::vector<WorkerId> choose(const Demand& demand, const Preference& preference) const;

  /// Offers looked at by `choose` so far, for tests of its cost.
  std::uint64_t looked_at() const { return looked_at_; }

 private:
  static std::size_t kind_index(protocol::DeviceKind kind) {
    return kind == protocol::DeviceKind::kGpu ? 1 : 0;
  }
  /// Kind and memory of the largest slot in whole GiB, rounded up: what a shape cannot have is not
  /// looked for in it.
  struct Shape {
    protocol::DeviceKind kind;
    std::uint64_t memory_gib;
    friend auto operator<=>(const Shape&, const Shape&) = default;
  };
  struct Entry {
    std::uint32_t free;
    WorkerId worker;
    friend bool operator<(const Entry& a, const Entry& b) {
      return a.free != b.free ? a.free > b.free : a.worker < b.worker;
    }
  };
  using Group = std::map<Shape, std::set<Entry>>;

  template <typename Act>
  void each_place(const Offer& offer, Act act);
  const Group* find_group(const std::string& name) const;
  /// The smallest group in which every worker for `demand` is; nullptr when there is none.
  const Group* group_of(const Demand& demand) const;
  /// Walks `group` best first until `take` says that it has enough.
  template <typename Take>
  void walk(const Group& group, const Demand& demand, Take take) const;

  std::unordered_map<WorkerId, Offer> offers_;
  std::unordered_map<std::string, Group> groups_;  // "", "f" + folder, "l" + label
  std::uint64_t free_[2] = {0, 0};
  mutable std::uint64_t looked_at_ = 0;
};

}  // namespace tailor::scheduler
