// Effects: what core::step wants done. Writes go into one transaction; everything outward (replies,
// messages to workers) is released only after that transaction is durable.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "coordinator/core/event.h"
#include "protocol/messages.h"
#include "storage/records.h"

namespace tailor::core {

/// Answers to requests, beside the Status.
struct SubmitOutcome {
  SweepId sweep;
  bool created = false;
  std::uint64_t candidates = 0;  ///< made so far (a grid is drawn lazily)
  std::uint64_t trials = 0;      ///< candidates x seeds, of the whole sweep where it is finite
  bool exact = true;             ///< false: points are still to be drawn, and some may fall away
};
struct TrialsOutcome {
  std::vector<TrialId> trials;  ///< those acted upon (or that would be: dry run)
  /// What they belong to, by sweep, as it was before the change.
  struct Target {
    std::string sweep_name;
    std::uint64_t trials = 0;
    std::uint64_t running = 0;
  };
  std::map<SweepId, Target> targets;
};
/// Nothing was done: the request is about something that has ended and is not in memory. Whoever
/// posted it reads these rows, after this answer, and posts it again with them. Rows of things that
/// do not exist are left out.
struct RowsWanted {
  std::uint64_t as_of = 0;  ///< goes back in Recalled
  std::string sweep_name;   ///< the row of the sweep of that name; "" = none is wanted
  /// Keys of measurements: the newest of each, where there is one.
  std::vector<std::string> measurements;
  SweepId sweep;        ///< its row alone; 0 = none is wanted
  SweepId whole_sweep;  ///< with all its candidates and trials; 0 = none is wanted
  /// Each with its candidate, its attempts and its newest checkpoint.
  std::vector<TrialId> trials;
  bool sweeps_of_trials = false;  ///< and the whole sweep of each of `trials`
  /// Of whole sweeps: attempts and newest checkpoints of all that failed or were cancelled.
  bool for_retry = false;
};
using ReplyBody = std::variant<std::monostate, SubmitOutcome, TrialsOutcome, RowsWanted>;

struct Reply {
  RequestId request = 0;
  Status status;
  ReplyBody body;
};

struct SendTo {
  SessionId session = 0;
  protocol::CoordinatorMessage message;
};

/// Ends a stream (a second worker with the same name, a protocol error).
struct CloseSession {
  SessionId session = 0;
  Status status;
};

using Outward = std::variant<Reply, SendTo, CloseSession>;

struct Effects {
  std::vector<storage::Mutation> writes;
  std::vector<Outward> outward;
};

}  // namespace tailor::core
