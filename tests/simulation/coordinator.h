// Coordinator: a shell of the real driver (core/driver.h) on a simulated disk: it takes a round of
// what arrived, commits the driver's transaction, and only then lets out what it says. It can die
// between any two of these and comes back from what was committed.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/driver.h"
#include "coordinator/core/step.h"
#include "tests/simulation/checked_store.h"
#include "tests/simulation/lease_witness.h"

namespace tailor::simulation {

class Coordinator {
 public:
  Coordinator(Context& context, CheckedStore& store, Ledger& ledger);

  // Set by the world before anything moves.
  std::function<void(core::SessionId, protocol::CoordinatorMessage)> send;
  std::function<void(core::SessionId, Status)> close;
  std::function<void(const core::Reply&)> reply;

  bool up() const { return driver_ != nullptr; }
  void start();
  /// Everything that is not on the disk is gone.
  void crash();
  /// Dropped when it is down.
  void post(core::Event event);
  /// For explanations and final checks. REQUIRES: up().
  const core::State& state() const { return driver_->state(); }
  core::Now read_clock() const;
  /// The wall clock is set, forward or back.
  void jump_wall() {
    c_.clock.jump_wall(c_.up_to(2 * c_.faults.wall_jump_ms_max) - c_.faults.wall_jump_ms_max);
  }
  /// The next commit takes so much longer.
  void hang_disk(std::int64_t ms) { hang_ms_ = ms; }

 private:
  void pump();
  void run_round();
  void finish_commit();
  void release(std::vector<core::Outward> outward);
  void answered(const core::Reply& answer);
  void witness(core::State& state, const core::Event& event,
               std::span<const core::Outward> outward);
  void check_outward(const core::State& state, std::span<const core::Outward> outward);
  void wrap_searches(core::State& state);
  void set_timer();

  Context& c_;
  CheckedStore& store_;
  Ledger& ledger_;
  LeaseWitness leases_;
  std::unique_ptr<core::Driver> driver_;
  std::map<core::RequestId, core::Event> asked_;  // requests that may have to be posted again
  std::uint64_t life_ = 0;  // told apart in callbacks: a crash makes the old ones void
  std::int64_t clock_offset_ = 0;
  struct Nothing {};
  core::Inbox<Nothing> inbox_;
  bool busy_ = false;  // a round is between its first step and the release of its effects
  std::int64_t round_began_ = 0;
  std::int64_t deaf_ms_ = 0;
  std::int64_t hang_ms_ = 0;
  bool committing_ = false;  // the disk has the transaction and may or may not have written it
  std::uint64_t steps_unchecked_ = 0;
  MonotonicMs heard_ms_ = 0;  // of the round
  core::Transaction transaction_;
  std::uint64_t timer_ = 0;

  // What the search algorithms heard: by the state in memory, and by the state on disk.
  std::set<std::string> heard_;
  std::set<std::string> heard_committed_;
};

}  // namespace tailor::simulation
