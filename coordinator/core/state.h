// State: everything the coordinator decides from. Owned by one thread (the engine's), changed by
// core::step only, rebuilt from a storage::Snapshot by core::load. No I/O, no clock, no randomness.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/core/deadlines.h"
#include "coordinator/core/event.h"
#include "coordinator/core/index_set.h"
#include "coordinator/search/algorithm.h"
#include "storage/records.h"
#include "sweep/candidate.h"

namespace tailor::core {

struct Options {
  std::int64_t heartbeat_ms = 5'000;  ///< told to workers
  /// Of an attempt without heartbeats; > trainer lease + heartbeat.
  std::int64_t lease_ms = 30'000;
  /// Before the 2nd attempt after a failure; doubles, at most 5 min.
  std::int64_t backoff_ms = 2'000;
  /// The same failure class on so many workers ends the trial.
  std::uint32_t same_failure_workers = 2;
  std::uint32_t queue_ahead = 64;  ///< trials kept queued per sweep beyond what runs (lazy search)
  /// Points resolved in one transaction at most; the rest follows in the next.
  std::uint32_t draws_per_step = 256;
  /// A search that found so many infeasible points (and 100 times more
  /// than feasible ones) is ended.
  std::uint64_t infeasible_max = 10'000;
};

/// The live attempt of a running trial.
struct LiveAttempt {
  storage::AttemptRow row;
  /// Not kNone: told to stop; also in the row.
  protocol::StopReason stop_reason = protocol::StopReason::kNone;
};

struct Trial {
  storage::TrialRow row;
  std::map<protocol::EndClass, std::int32_t> failures;
  /// Workers where attempts ended so, for classes that are the trial's own fault.
  /// Empty once it is final.
  std::map<protocol::EndClass, std::set<WorkerId>> failed_on;
  std::optional<LiveAttempt> live;  ///< exactly when row.state == kRunning
  /// Its checkpoints in the artifact store, newest first.
  std::vector<protocol::StoredCheckpoint> stored;
};

struct Sweep {
  storage::SweepRow row;
  std::shared_ptr<const sweep::Spec> spec;
  std::vector<sweep::Candidate> candidates;
  std::unordered_map<std::string, std::uint32_t> candidate_by_hash;
  std::map<std::string, std::uint64_t> infeasible_reasons;  ///< of `row.infeasible` points
  std::unique_ptr<search::Algorithm> algorithm;             ///< null when there is no [space]
  bool search_done = false;                                 ///< no candidate will come any more
  std::size_t named = 0;             ///< the first `named` candidates come from [[candidate]]
  std::vector<TrialId> first_trial;  ///< by candidate; its seeds follow in spec order, ids + 1
  std::vector<std::uint32_t> open_trials;  ///< by candidate: trials that are not final
  IndexSet told;                ///< candidates of the space whose outcome the algorithm heard
  std::vector<TrialId> trials;  ///< all, ascending
  std::set<TrialId> ready;      ///< queued trials whose back-off is over
  std::map<storage::TrialState, std::uint64_t> counts;

  std::uint64_t count(storage::TrialState state) const {
    const auto found = counts.find(state);
    return found == counts.end() ? 0 : found->second;
  }
};

struct WorkerSlot {
  protocol::Slot slot;
  std::optional<AttemptId> held_by;  ///< at most one live attempt
};

struct Worker {
  storage::WorkerRow row;
  SessionId session = 0;  ///< 0 = not connected
  std::vector<WorkerSlot> slots;
};

struct State {
  Options options;
  storage::CountersRow counters;
  std::map<SweepId, Sweep> sweeps;
  std::map<TrialId, Trial> trials;
  std::map<WorkerId, Worker> workers;
  std::unordered_map<std::string, SweepId> sweep_by_name;
  std::unordered_map<std::string, WorkerId> worker_by_name;
  std::unordered_map<SessionId, WorkerId> worker_by_session;

  // Indexes, so that no step walks over all trials.
  std::set<SweepId> open_sweeps;  ///< running or paused
  Deadlines deadlines;            ///< leases, back-offs, whatever happens by time alone
};

}  // namespace tailor::core
