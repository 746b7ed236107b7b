// Driver: the one loop between core::step and the world (design.md 4), without the world. A shell
// (coordinator/engine, tests/simulation) collects what arrives, hands it over round by round, makes
// each Transaction durable and only then releases what it says. Everything that order and time
// decide is decided here, so the simulation runs the loop that ships.
//
//   Inbox --round--> Driver::run --Transaction--> commit --> release
//
// Rules:
//   - Each message is applied at the time when it arrived, in the order of arrival. A heartbeat
//     that arrived before a lease ran out renews it, whatever backlog, slow step or slow commit
//     came between.
//   - Time goes on, for deadlines, only to `Round::heard`: a moment before which all that arrived
//     has been applied. Messages first, then what is due.
//   - Deadlines are the State's (deadlines.h); `call_again_ms` is asked of it anew each time.
//   - While the shell was deaf (could not take messages in: a commit that hung, a suspended
//     machine) nobody could renew a lease, so all of them are extended by that time.
//   - After a restart thousands of workers call in as fast as they can be accepted. While they
//     still do, no lease ends; for a few lease times at most.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "coordinator/core/changes.h"
#include "coordinator/core/effect.h"
#include "coordinator/core/event.h"
#include "coordinator/core/state.h"

namespace tailor::core {

/// An event and when it came in: read by the shell as it arrives, not when it is dealt with.
struct Arrival {
  Event event;
  Now at;
};

/// What is given to the driver at once; becomes one transaction.
struct Round {
  std::vector<Arrival> arrivals;  ///< in the order in which they arrived
  /// Everything that arrived before this moment is in `arrivals` or was in an earlier round.
  Now heard;
  /// For so long before this round nothing could arrive; 0 = the shell was listening.
  std::int64_t deaf_ms = 0;
};

/// What one round comes to.
struct Transaction {
  std::vector<storage::Mutation> writes;  ///< each keyed row once, as it is after the round
  std::vector<Outward> release;           ///< to be let out once `writes` are durable, in order
  /// Call again at this time at the latest, when nothing arrives before; nullopt = no deadline.
  std::optional<MonotonicMs> call_again_ms;
};

class Driver {
 public:
  /// Sees each step as it was made, with what it added to be said. For the simulation.
  using Witness = std::function<void(State&, const Event&, std::span<const Outward>)>;

  /// `state` as `load` gave it, or empty.
  explicit Driver(State state);

  /// Applies a round. Time never goes back: an arrival older than what was heard counts as of then.
  Transaction run(Round round);

  const State& state() const { return state_; }
  /// When `run` must be called at the latest, if nothing arrives before.
  std::optional<MonotonicMs> call_at_ms() const { return state_.deadlines.earliest(); }
  void set_witness(Witness witness) { witness_ = std::move(witness); }

 private:
  void apply(const Event& event, Now now);
  bool still_calling_in(MonotonicMs heard_ms) const;

  State state_;
  Changes changes_;
  MonotonicMs heard_ms_ = 0;  // time so far
  // Until when workers that held something before the restart are waited for; nullopt = nothing
  // was.
  std::optional<MonotonicMs> calling_in_until_ms_;
  std::optional<MonotonicMs> greeted_ms_;  // when the last stream was opened
  Witness witness_;
};

/// How much of a round an event takes up: about the rows it becomes.
std::size_t weight_of(const Event& event);

/// Of several acknowledgements of one stream and one attempt (ReportsAck, LogAck, HeartbeatAck)
/// only the last stays: it says all that the earlier ones said. Everything else keeps its order.
void coalesce_acks(std::vector<Outward>& outward);

/// What has arrived and waits for its round, in order of arrival. `Extra` is what the shell hangs
/// on an event. Not locked: a shell with threads calls everything, also its clock, under its own
/// lock, so that the order of times is the order of the queue.
template <typename Extra>
class Inbox {
 public:
  struct Entry {
    Arrival arrival;
    Extra extra;
  };

  void post(Event event, Now at, Extra extra) {
    entries_.push_back({{std::move(event), at}, std::move(extra)});
  }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  std::deque<Entry>& entries() { return entries_; }

  /// The beginning of the queue, at most `events_max` of together at most `weight_max` (but one at
  /// least). `heard` becomes the moment up to which nothing is left out: `now`, or the arrival of
  /// the first entry that stays.
  std::vector<Entry> take(std::size_t events_max, std::size_t weight_max, Now now, Now* heard) {
    std::vector<Entry> taken;
    std::size_t weight = 0;
    while (!entries_.empty() && taken.size() < events_max) {
      weight += weight_of(entries_.front().arrival.event);
      if (!taken.empty() && weight > weight_max) break;
      taken.push_back(std::move(entries_.front()));
      entries_.pop_front();
    }
    *heard = entries_.empty() ? now : entries_.front().arrival.at;
    return taken;
  }

 private:
  std::deque<Entry> entries_;
};

}  // namespace tailor::core
