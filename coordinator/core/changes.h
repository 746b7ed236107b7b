// Changes: what the steps of one transaction touched and want said. A keyed row is only noted here
// and written down once, as it is when the transaction is made; so a thousand steps that touch one
// sweep cost one row. Internal to core/: handlers reach it through their Transition.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/core/effect.h"
#include "coordinator/core/event.h"
#include "coordinator/core/state.h"

namespace tailor::core {

using storage::EventKind;

/// What an event row is about; fields left out stay 0.
struct About {
  SweepId sweep;
  TrialId trial;
  std::uint32_t attempt = 0;
  WorkerId worker;
};

class Changes {
 public:
  explicit Changes(const Options& options) : draws_left(options.draws_per_step) {}

  /// Points of search spaces that this transaction may still resolve.
  std::uint32_t draws_left;

  // ---- outward, in order
  void reply(RequestId request, Status status, ReplyBody body);
  void send(SessionId session, protocol::CoordinatorMessage message);
  void close(SessionId session, Status status);

  // ---- rows with a key. What they name must still be in the State when `take` is called.
  void touch(const Sweep& sweep) { sweeps_.insert(sweep.row.id); }
  void touch(const Trial& trial) { trials_.insert(trial.row.id); }
  void touch(const Worker& worker) { workers_.insert(worker.row.id); }
  /// The row as it is now: the State forgets it when the attempt ends.
  void touch(const storage::AttemptRow& attempt) { attempts_[attempt.id] = attempt; }
  void touch_counters() { counters_ = true; }

  // ---- what came back into memory for a request, and may leave again
  void recalled(const Trial& trial) { passing_trials_.insert(trial.row.id); }
  void recalled(const Sweep& sweep) { passing_sweeps_.insert(sweep.row.id); }

  // ---- rows that are only ever added
  void add(storage::CandidateRow candidate) { candidates_.push_back(std::move(candidate)); }
  void append(storage::Mutation row) { appended_.push_back(std::move(row)); }
  void event(WallMs wall_ms, EventKind kind, const About& about, std::string message);
  /// A point of a space fell away, for a `kind` of reason; one event row of `event` says how many
  /// did, with the first one as an example. `event`: kCandidateInfeasible or kCandidateDuplicate.
  void fell_away(WallMs wall_ms, SweepId sweep, EventKind event, const std::string& kind,
                 std::string example);

  /// What was noted to be said so far.
  std::span<const Outward> outward() const { return outward_; }

  /// Everything noted, each keyed row once, in an order that satisfies references. Leaves nothing
  /// behind and begins the next transaction. What has ended leaves the State.
  Effects take(State& state);

 private:
  std::set<SweepId> sweeps_;
  std::set<TrialId> trials_;
  std::set<SweepId> passing_sweeps_;
  std::set<TrialId> passing_trials_;
  std::set<WorkerId> workers_;
  std::map<AttemptId, storage::AttemptRow> attempts_;
  std::vector<storage::CandidateRow> candidates_;
  std::vector<storage::Mutation> appended_;
  std::vector<Outward> outward_;
  bool counters_ = false;

  struct FellAway {
    WallMs wall_ms = 0;
    std::uint64_t points = 0;
    std::map<std::string, std::uint64_t> kinds;
    std::string example;
  };
  std::map<std::pair<SweepId, EventKind>, FellAway> fell_away_;
};

}  // namespace tailor::core
