// Published: what anybody may look at at any time without asking the engine: totals, workers,
// sweeps, as of some committed state. The engine's thread makes it, readers hold on to it; nothing
// in it ever changes, and a commit that hangs delays nobody who reads it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "coordinator/core/state.h"
#include "storage/records.h"

namespace tailor::engine {

struct SweepView {
  storage::SweepRow row;  ///< without the file's text (`toml` is empty)
  std::map<storage::TrialState, std::uint64_t> counts;
  std::uint64_t candidates = 0;
  std::uint64_t seeds = 0;
  std::uint64_t search_points = 0;   ///< points of the space that the search will try
  std::uint64_t search_tried = 0;    ///< of those, so far
  std::uint64_t search_left = 0;     ///< of those, when the search goes on; 0 once it has ended
  std::uint64_t trials_at_most = 0;  ///< when all that are left are feasible
  std::map<std::string, std::uint64_t> infeasible_reasons;
  std::string message;  ///< why it failed or gave up, "" = nothing to say
  /// Why this version cannot read it; "" = it can. Then what stands in the file is not known.
  std::string unreadable;
  std::string baseline;
  bool scaling = false;  ///< its file has a [scaling]
  std::string description;
  std::vector<std::string> objectives;
};

struct WorkerView {
  storage::WorkerRow row;
  bool connected = false;
  std::uint32_t slots = 0;
  std::uint32_t busy_slots = 0;
  std::vector<AttemptId> running;
  std::string devices;  ///< "2 x cpu"
  /// Its clock minus this one's as it was when the view was made; nullopt = not known.
  std::optional<std::int64_t> clock_skew_ms;
};

/// What the whole coordinator is doing, for metrics and `GetInfo`.
struct Totals {
  std::map<storage::SweepState, std::uint64_t> sweeps;
  std::map<storage::TrialState, std::uint64_t> trials;
  std::uint64_t search_tried = 0;  ///< points of the spaces of running and paused sweeps
  std::uint64_t search_left = 0;
  std::uint32_t workers_connected = 0;
  std::uint32_t slots = 0;  ///< of connected workers
  std::uint32_t busy_slots = 0;
};

/// The view of a sweep that was read, in memory or from its row (core::read_ended, with counts).
SweepView view_of(const core::Sweep& sweep);

/// Immutable once it is out. Lists ascend by id; never null.
struct Published {
  template <typename View>
  using List = std::shared_ptr<const std::vector<std::shared_ptr<const View>>>;
  Totals totals;
  List<SweepView> sweeps;
  List<WorkerView> workers;

  /// Null when the engine does not have it in memory.
  std::shared_ptr<const SweepView> sweep(SweepId id) const;
};

/// Keeps the published views up with the state, at the cost of what changed (and of a pointer for
/// each entry of a list in which something did). Threads: one, the engine's.
class Publisher {
 public:
  /// Everything of `state` at once.
  explicit Publisher(const core::State& state);

  /// Whatever these rows name will be looked at again. Every change of a sweep or a worker leaves a
  /// row that names it, an event at least.
  void note(std::span<const storage::Mutation> committed);
  /// True when something was noted since `publish`.
  bool stale() const { return !sweeps_.changed.empty() || !workers_.changed.empty(); }
  std::shared_ptr<const Published> publish(const core::State& state);

 private:
  template <typename Id, typename View>
  struct Kept {
    std::set<Id> changed;
    std::map<Id, std::shared_ptr<const View>> views;
    Published::List<View> list;
  };
  /// `make(id)`: the view, or nullopt for what is not in memory any more.
  template <typename Id, typename View, typename Make>
  void refresh(Kept<Id, View>& kept, Make make);
  /// Adds a view to the totals, or takes it out again: `times` is 1 or -1.
  void count(const SweepView& view, int times);
  void count(const WorkerView& view, int times);

  Kept<SweepId, SweepView> sweeps_;
  Kept<WorkerId, WorkerView> workers_;
  Totals totals_;
};

}  // namespace tailor::engine
