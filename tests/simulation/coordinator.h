// Coordinator: the engine's loop around the real core, on a simulated disk: a batch of events, one
// transaction, and only then the effects. It can die between any two of these and comes back from
// what was committed.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/step.h"
#include "tests/simulation/checked_store.h"

namespace tailor::simulation {

class Coordinator {
 public:
  Coordinator(Context& context, CheckedStore& store, Ledger& ledger)
      : c_(context), store_(store), ledger_(ledger) {}

  // Set by the world before anything moves.
  std::function<void(core::SessionId, protocol::CoordinatorMessage)> send;
  std::function<void(core::SessionId, Status)> close;
  std::function<void(const core::Reply&)> reply;

  bool up() const { return state_.has_value(); }
  void start();
  /// Everything that is not on the disk is gone.
  void crash();
  /// Dropped when it is down.
  void post(core::Event event);
  /// For explanations and final checks. REQUIRES: up().
  const core::State& state() const { return *state_; }
  core::Now read_clock() const;
  /// The wall clock is set, by up to a minute either way.
  void jump_wall() { c_.clock.jump_wall(c_.up_to(120'000) - 60'000); }

 private:
  void pump();
  void run_batch();
  void finish_commit();
  void release(std::vector<core::Outward> outward);
  void check_outward(const core::Effects& effects);
  void wrap_searches();
  void set_timer(std::optional<MonotonicMs> wake_at_ms);

  Context& c_;
  CheckedStore& store_;
  Ledger& ledger_;
  std::optional<core::State> state_;
  std::uint64_t life_ = 0;  // told apart in callbacks: a crash makes the old ones void
  std::int64_t clock_offset_ = 0;
  std::deque<core::Event> mailbox_;
  bool busy_ = false;  // a batch is between its first step and the release of its effects
  std::int64_t batch_began_ = 0;
  std::vector<storage::Mutation> writes_;
  std::vector<core::Outward> outward_;
  std::optional<MonotonicMs> wake_at_ms_;
  std::uint64_t timer_ = 0;

  // What the search algorithms heard: by the state in memory, and by the state on disk.
  std::set<std::string> heard_;
  std::set<std::string> heard_committed_;
};

}  // namespace tailor::simulation
