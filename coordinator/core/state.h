// State: everything the coordinator decides from. Owned by one thread (the engine's), changed by
// core::step only, rebuilt from a storage::Snapshot by core::load. No I/O, no clock, no randomness.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/core/deadlines.h"
#include "coordinator/core/departures.h"
#include "coordinator/core/event.h"
#include "coordinator/core/index_set.h"
#include "coordinator/scheduler/worker_index.h"
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
  /// So many of any search are told of in each transaction, later ones each time they have doubled.
  std::uint64_t infeasible_max = 10'000;

  // ---- who goes first
  bool preemption = true;             ///< trials of lower priority make room for those of higher
  std::uint32_t preempting_max = 64;  ///< trials for which others are being stopped, at once
  /// A trial of several slots that waited so long has slots kept for it as they become free.
  std::int64_t reserve_after_ms = 60'000;
  std::uint32_t reservations_max = 4;  ///< trials for which slots are kept, at once
  /// A trial waits at most so long for a worker that can reach its checkpoint; then it starts over.
  std::int64_t holder_wait_ms = 120'000;

  // ---- workers in trouble
  /// Before a worker is given work again that lost leases, refused an order or could not start a
  /// trainer; doubles each time, at most 5 min.
  std::int64_t worker_pause_ms = 10'000;
  /// Refusals, failed starts and ends of class infrastructure in a row that quarantine a worker.
  std::uint32_t quarantine_after = 3;
  /// After so long a quarantined worker is tried with one trial; doubles up to a day.
  std::int64_t probe_after_ms = 300'000;
  /// A log line that contains one of these quarantines the worker.
  std::vector<std::string> quarantine_patterns;
  /// Starts that failed on so many workers, or in all, count against the trial.
  std::uint32_t start_failure_workers = 3;
  std::uint32_t start_failures = 10;

  /// Workers enforce limits of time; an attempt that is still there so long after is stopped from
  /// here.
  std::int64_t limit_slack_ms = 120'000;
  std::int64_t gang_start_ms = 600'000;  ///< a gang whose ranks have not found each other is ended
};

/// One worker's share of a live attempt.
struct Member {
  storage::AttemptMember row;
  MonotonicMs lease_deadline_ms = 0;  ///< its own; means nothing once it has ended
};

/// The live attempt of a running trial. It has one member, or several in a gang; it lives until all
/// of them have ended, by their own word or by their lease, and ends once.
struct LiveAttempt {
  storage::AttemptRow row;      ///< `worker` and `slots` are those of the first member
  std::vector<Member> members;  ///< by rank, never empty; the first speaks for the attempt
  /// Not kNone: told to stop; also in the row.
  protocol::StopReason stop_reason = protocol::StopReason::kNone;
  MonotonicMs began_ms = 0;        ///< after a restart so that what ran until its last row counts
  MonotonicMs watched_ms = 0;      ///< since when this process looks after its limits
  MonotonicMs progress_ms = 0;     ///< when it last came to a new step, or began
  std::int64_t first_step = 0;     ///< of the newest checkpoint of the trial when it began
  std::int64_t resumed_step = -1;  ///< as the trainer said; -1 = it has said nothing yet
  std::int64_t step = -1;          ///< the last that it reported; -1 = none
  std::string rendezvous;          ///< where rank 0 of a gang listens; "" = not known yet
  bool refused = false;            ///< a member could not take it: that is its worker's fault
  std::string log_tail;            ///< the end of the log, while its last line has no end
  bool probe = false;              ///< it tries whether a quarantined worker is well

  bool is_gang() const { return members.size() > 1; }
};

/// The checkpoint that a trial goes on from: the newest one of the last attempt that reported any.
/// Where that one had to start over, later steps of earlier attempts are another history.
struct CheckpointNote {
  std::int64_t step = 0;
  WorkerId worker;            ///< in whose trials folder it lies
  std::uint32_t attempt = 0;  ///< that reported it
  friend bool operator==(const CheckpointNote&, const CheckpointNote&) = default;
};

struct Trial {
  storage::TrialRow row;
  std::map<protocol::EndClass, std::int32_t> failures;  ///< since the last progress
  /// Workers where attempts ended so, for classes that are the trial's own fault.
  /// Empty once it is final.
  std::map<protocol::EndClass, std::set<WorkerId>> failed_on;
  std::set<WorkerId> not_started_on;  ///< since a trainer of it was last up
  std::uint32_t not_started = 0;      ///< times, since then
  std::optional<CheckpointNote> checkpoint;
  bool may_start_over = false;      ///< it has waited long enough for who can read its checkpoint
  MonotonicMs ready_since_ms = 0;   ///< while it is ready to be placed
  std::uint32_t makes_room = 0;     ///< attempts that are being stopped for this one
  std::optional<LiveAttempt> live;  ///< exactly when row.state == kRunning
};

/// Queued trials that may be placed, the next one first.
using ReadyOrder = std::set<std::pair<std::int64_t, TrialId>>;  // (-priority, id)

/// What is kept of every trial of a sweep in memory, ended or not. All else of an ended trial is in
/// its row.
struct TrialNote {
  double objective = std::numeric_limits<double>::quiet_NaN();  ///< NaN = none
  std::uint32_t attempts = 0;
  storage::TrialState state = storage::TrialState::kQueued;
  bool own_fault = false;  ///< when it ended without an objective (search::SeedOutcome)
};

/// A sweep with something to do: open, or ended with trials that still run. Others are rows only.
struct Sweep {
  storage::SweepRow row;
  std::shared_ptr<const sweep::Spec> spec;  ///< the recipe; architectures are the candidates' own
  /// As they were resolved when they were made, for ever: point, architecture, recipe. Null while
  /// no trial of it is in memory: then it is in its row.
  std::vector<std::unique_ptr<const sweep::Candidate>> candidates;
  std::unordered_map<std::string, std::uint32_t> candidate_by_hash;
  /// Of `row.infeasible` points, and under kDuplicateReason of those that came out as another.
  std::map<std::string, std::uint64_t> infeasible_reasons;
  std::unique_ptr<search::Algorithm> algorithm;  ///< null when there is no [space]
  bool search_done = false;                      ///< no candidate will come any more
  std::size_t named = 0;                ///< the first `named` candidates come from [[candidate]]
  std::vector<TrialId> first_trial;     ///< by candidate; its seeds follow in their order, ids + 1
  std::vector<std::size_t> first_note;  ///< by candidate: where its trials begin in `notes`
  /// Of candidates that are trained with some of the sweep's seeds only: to be measured.
  std::map<std::uint32_t, std::vector<std::uint64_t>> own_seeds;
  /// Of candidates without widths of their own: they wait for a measurement, it failed, or
  /// another candidate is trained for them.
  std::map<std::uint32_t, storage::ScheduleRow> schedules;
  /// Of candidates whose widths were cut from another sweep's measurement: the data of that.
  std::map<std::uint32_t, std::string> cut_on_data;
  std::vector<std::uint32_t> open_trials;  ///< by candidate: trials that are not final
  std::vector<TrialNote> notes;            ///< of all trials, by candidate and then seed
  IndexSet told;             ///< candidates of the space whose outcome the algorithm heard
  ReadyOrder ready;          ///< queued trials whose back-off is over
  scheduler::Demand demand;  ///< what each of its trials takes; follows from `spec`
  /// Slots that its running trials do without, because they run on fewer workers than `demand`
  /// asks for.
  std::uint64_t slots_spared = 0;
  bool reserve_due = false;  ///< its first trial has waited long enough to have slots kept
  /// When `resources.parallel`, or a pause, last began to let a trial start; 0 = it always did.
  MonotonicMs startable_since_ms = 0;
  std::map<storage::TrialState, std::uint64_t> counts;

  std::uint64_t count(storage::TrialState state) const {
    const auto found = counts.find(state);
    return found == counts.end() ? 0 : found->second;
  }
  /// The seeds of a candidate's trials.
  const std::vector<std::uint64_t>& seeds_of(std::uint32_t candidate) const {
    const auto own = own_seeds.find(candidate);
    return own == own_seeds.end() ? spec->seeds : own->second;
  }
  /// The candidate of the trial that `notes[index]` is about.
  std::uint32_t candidate_at(std::size_t index) const {
    const auto after = std::upper_bound(first_note.begin(), first_note.end(), index);
    return static_cast<std::uint32_t>(after - first_note.begin() - 1);
  }
  /// The id of the trial that `notes[index]` is about.
  TrialId trial_at(std::size_t index) const {
    const std::uint32_t candidate = candidate_at(index);
    return TrialId{first_trial[candidate].value + (index - first_note[candidate])};
  }
  /// REQUIRES: a trial of this sweep.
  TrialNote& note_of(const storage::TrialRow& trial) {
    return notes[first_note[trial.candidate] +
                 (trial.id.value - first_trial[trial.candidate].value)];
  }
};

/// An open sweep whose rows this version cannot make sense of. Nothing of it is scheduled; it stays
/// as it is stored, for a version that can, or until it is cancelled.
struct UnreadableSweep {
  storage::SweepRow row;
  std::string reason;
  std::vector<storage::TrialRow> open;  ///< trials that are not final
  std::map<storage::TrialState, std::uint64_t> counts;
  std::vector<storage::AttemptRow> live;  ///< attempts that have not ended
};

struct WorkerSlot {
  protocol::Slot slot;
  std::optional<AttemptId> held_by;  ///< at most one live attempt
};

struct Worker {
  storage::WorkerRow row;
  SessionId session = 0;  ///< 0 = not connected
  std::vector<WorkerSlot> slots;
  MonotonicMs heard_ms = 0;            ///< the last message of its session
  std::uint64_t memory_kept = 0;       ///< bytes of the node that live attempts asked for
  std::string unfit;                   ///< why it wants no work at the moment; "" = it does
  std::uint64_t disk_free_bytes = 0;   ///< as it last said; of the trials folder
  std::uint64_t disk_total_bytes = 0;  ///< 0 = not known
  /// It lost leases and has not been heard of since.
  bool silent = false;
  std::uint32_t leases_lost = 0;     ///< in a row
  std::uint32_t troubles = 0;        ///< refusals, failed starts, infrastructure, in a row
  std::set<TrialId> trouble_trials;  ///< those of them; bounded by `troubles`
  std::uint32_t probes = 0;          ///< that failed, in a row
  bool may_probe = false;            ///< quarantined, but one trial may try it
  std::string pause_reason;          ///< why there is a deadline kPause
  TrialId reserved_for;              ///< slots of it are kept for this trial
  /// Its clock minus this one's when it was last heard; nullopt = not known. Decides nothing.
  std::optional<std::int64_t> clock_skew_ms;
};

/// Slots that are kept for a trial as they become free.
struct Reservation {
  MonotonicMs since_ms = 0;
  std::vector<WorkerId> workers;
  friend bool operator==(const Reservation&, const Reservation&) = default;
};

/// A running trial that may be stopped for one of higher priority.
struct Preemptible {
  std::int64_t priority = 0;
  std::uint64_t newest = 0;  ///< larger for older attempts: what began last is stopped first
  TrialId trial;
  protocol::DeviceKind kind = protocol::DeviceKind::kCpu;  ///< of its slots
  friend auto operator<=>(const Preemptible&, const Preemptible&) = default;
};

struct State {
  Options options;
  storage::CountersRow counters;
  std::map<SweepId, Sweep> sweeps;  ///< those with something to do
  std::map<SweepId, UnreadableSweep> unreadable;
  /// Those that are not final; others only until the transaction that they matter to is made.
  std::map<TrialId, Trial> trials;
  std::map<WorkerId, Worker> workers;
  std::unordered_map<std::string, SweepId> sweep_by_name;  ///< of the above and of the unreadable
  std::unordered_map<std::string, WorkerId> worker_by_name;
  std::unordered_map<SessionId, WorkerId> worker_by_session;

  /// What the artifact store has, newest first; of trials that are in memory or not, never empty.
  /// It says so at a start and after each change, and is never asked: a trial that is tried again
  /// finds its own here.
  std::map<TrialId, std::vector<protocol::StoredCheckpoint>> stored;

  // Indexes, so that no step walks over all trials.
  std::set<SweepId> open_sweeps;  ///< running or paused, and readable
  SweepId drew_last;              ///< the search that used up the draws; those behind it go first
  /// Sweeps that left memory, or changed without being in it: rows of them that were read before
  /// are old.
  Departures departures;
  /// Sweeps that are rows only, and their trials, by state.
  std::map<storage::SweepState, std::uint64_t> other_sweeps;
  std::map<storage::TrialState, std::uint64_t> other_trials;
  Deadlines deadlines;            ///< leases, back-offs, whatever happens by time alone
  scheduler::WorkerIndex offers;  ///< of the workers that may be given work
  std::map<TrialId, Reservation> reservations;
  /// A worker may not be given work any more, and schedule() has not looked since: what others keep
  /// with it is idle, and gangs may do with fewer.
  bool fewer_workers = false;
  std::set<Preemptible> preemptible;       ///< lowest priority first
  std::map<TrialId, TrialId> making_room;  ///< running trial that was told to stop -> for whom
};

}  // namespace tailor::core
