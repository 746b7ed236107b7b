// LeaseWitness: stands at the coordinator's door and notes when workers were heard of. An attempt
// may only be given up for silence when its worker was silent for a whole lease.
#pragma once

#include <map>
#include <span>

#include "coordinator/core/driver.h"
#include "tests/simulation/context.h"

namespace tailor::simulation {

class LeaseWitness {
 public:
  LeaseWitness(Context& context, std::int64_t lease_ms) : c_(context), lease_ms_(lease_ms) {}

  /// A message came in, whether anybody looks at it yet or not.
  void arrived(const core::Event& event, MonotonicMs at_ms);
  /// It was dealt with; the state says whether its stream was still the worker's.
  void dealt_with(const core::State& state, const core::Event& event);
  /// A round in which everything until `heard_ms` was to be heard was committed.
  void committed(std::span<const storage::Mutation> rows, MonotonicMs heard_ms);
  /// The coordinator died and heard nothing.
  void forget() { heard_.clear(); }

 private:
  struct Heard {
    MonotonicMs at_ms = 0;
    core::SessionId session = 0;
  };
  Context& c_;
  const std::int64_t lease_ms_;
  std::map<protocol::AttemptRef, Heard> heard_;
};

}  // namespace tailor::simulation
