// Stranger: says what is not true, on a stream of its own and in the middle of honest ones:
// attempts that it never had, tokens of yesterday, reports with a gap before them, hardware that
// cannot be. None of it may change anything; the ledger and the invariants would see.
#pragma once

#include <vector>

#include "tests/simulation/coordinator.h"
#include "tests/simulation/network.h"

namespace tailor::simulation {

class Stranger {
 public:
  Stranger(Context& context, Coordinator& coordinator, Network& network)
      : c_(context), coordinator_(coordinator), network_(network) {}

  /// One lie.
  void act();

 private:
  void introduce();
  /// A live attempt, or one that is made up when there is none.
  protocol::AttemptRef some_attempt();
  protocol::WorkerMessage lie();

  Context& c_;
  Coordinator& coordinator_;
  Network& network_;
  core::SessionId session_ = 0;
};

}  // namespace tailor::simulation
