// Deadlines: every moment at which something happens by time alone, in one index that lives in the
// State. Whoever waits for a time registers it here under a kind and an id and finds it again by
// them; nothing is kept in the answer of a step, so no later event can make it forgotten. The
// driver asks `earliest` when it must come back; timers.cc takes out what is due.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/clock.h"

namespace tailor::core {

/// What happens at a deadline, and whose number its id is. Those due at one moment are dealt with
/// in this order. A new kind: a line here, and what it does in timers.cc (on_tick).
enum class DeadlineKind : std::uint8_t {
  kLease,    ///< a TrialId: the live attempt's lease runs out
  kBackoff,  ///< a TrialId: the queued trial may be placed
  kDraws,    ///< a SweepId: its search was interrupted and goes on
  kLimit,    ///< a TrialId: the live attempt may have used up a limit of time
  kHolder,   ///< a TrialId: it waits no longer for a worker that can reach its checkpoint
  kPause,    ///< a WorkerId: it may be given work again
  kReserve,  ///< a SweepId: its first trial may have waited too long
  kDrain,    ///< a WorkerId: it is to be drained
  kRoom,     ///< a SweepId: who could make room for its trials is looked for again
};
inline constexpr std::size_t kDeadlineKinds = 9;

/// At most one deadline for each (kind, id). Costs: logarithmic, unless said otherwise.
class Deadlines {
 public:
  using Entry = std::pair<MonotonicMs, std::uint64_t>;

  /// Sets or moves a deadline.
  void set(DeadlineKind kind, std::uint64_t id, MonotonicMs at_ms);
  /// No effect when there is none.
  void clear(DeadlineKind kind, std::uint64_t id);
  /// Takes out the first of `kind` that is due at `now_ms` (at or before it).
  std::optional<std::uint64_t> take_due(DeadlineKind kind, MonotonicMs now_ms);
  /// Moves all of `kind` by `by_ms`. Cost: linear.
  void shift(DeadlineKind kind, std::int64_t by_ms);

  std::optional<MonotonicMs> at(DeadlineKind kind, std::uint64_t id) const;
  bool contains(DeadlineKind kind, std::uint64_t id) const { return at(kind, id).has_value(); }
  /// All of one kind, by time and then by id.
  const std::set<Entry>& all(DeadlineKind kind) const { return of(kind).by_time; }
  /// Of all kinds; nullopt when there is none.
  std::optional<MonotonicMs> earliest() const;

 private:
  struct Kind {
    std::set<Entry> by_time;
    std::unordered_map<std::uint64_t, MonotonicMs> by_id;
  };
  Kind& of(DeadlineKind kind) { return kinds_[static_cast<std::size_t>(kind)]; }
  const Kind& of(DeadlineKind kind) const { return kinds_[static_cast<std::size_t>(kind)]; }

  std::array<Kind, kDeadlineKinds> kinds_;
};

}  // namespace tailor::core
