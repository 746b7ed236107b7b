// LeaseWitness: stands at the coordinator's door and notes when workers were heard of. An attempt
// may only be given up for silence when its worker was silent for a whole lease.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>

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
  void forget() {
    heard_.clear();
    names_.clear();
  }

 private:
  /// Streams may lie about attempts that are not theirs; what each says counts for itself.
  using Key = std::pair<protocol::AttemptRef, core::SessionId>;
  Context& c_;
  const std::int64_t lease_ms_;
  std::map<Key, MonotonicMs> heard_;
  std::map<core::SessionId, std::string> names_;  // of the workers, by stream
};

}  // namespace tailor::simulation
