// The scheduler as a pure state machine: step(state, event, now) -> effects (design.md 4).
//
// Invariants, checked by core::check_invariants after every step in tests and in the simulation:
//   1. a device slot has at most one live attempt; a stale fencing token changes nothing;
//   2. an acknowledged report is stored exactly once;
//   3. no resource is over-committed;
//   4. after faults stop, every trial ends in bounded time;
//   5. the same seed and the same results give the same suggestions, restarts or not;
//   6. lost attempts never consume a sweep's budget of completed trials.
#pragma once

#include <string>

#include "base/status.h"
#include "coordinator/core/effect.h"
#include "coordinator/core/event.h"
#include "coordinator/core/state.h"

namespace tailor::core {

/// Rebuilds the state after a restart, from everything that is open; what has ended is passed over.
/// Running attempts get one lease time from `now` to call in. A sweep that cannot be read is set
/// aside (`State::unreadable`). Errors: kDataLoss when rows of several sweeps do not agree.
Result<State> load(const storage::Snapshot& snapshot, const Options& options, Now now);

/// A sweep that is not in memory, for views: without candidates (but for their number), trials and
/// counts. Errors: why this version cannot read it.
Result<Sweep> read_ended(const storage::SweepRow& row, std::uint64_t candidates);

/// Applies one event, as a transaction of its own (the driver makes one of many). Never fails: what
/// is wrong with a request goes into its Reply. When something is due next, `state.deadlines` says.
Effects step(State& state, const Event& event, Now now);

/// Ok, or kInternal naming the broken invariant. Cost: linear in the state.
/// For tests and the simulation.
Status check_invariants(const State& state);

/// Everything of the state that must survive a restart, as text: `load` of what was committed gives
/// the same text. Leases, sessions and back-offs are not in it. Cost: linear.
/// For tests and the simulation.
std::string durable_text(const State& state);

/// Why a trial is in its state and what it waits for, in a sentence or two for a person.
std::string explain(const State& state, TrialId trial, Now now);

/// What `Sweep::infeasible_reasons` counts points of the space under that have the architecture of
/// an earlier candidate.
inline constexpr const char* kDuplicateReason = "the architecture of an earlier candidate";
/// How many points of the space came out as a candidate that was there.
std::uint64_t duplicates_of(const Sweep& sweep);
/// Points of the space that are still to be drawn; 0 once the search has ended.
std::uint64_t points_left(const Sweep& sweep);
/// Trials of the sweep when all of those are feasible and new; saturates.
std::uint64_t trials_at_most(const Sweep& sweep);
/// Why the sweep failed, or why its search ended early, for people; "" when there is nothing to
/// say.
std::string outcome_text(const Sweep& sweep);

}  // namespace tailor::core
