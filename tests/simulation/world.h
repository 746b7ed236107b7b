// World: one simulated cluster from one seed, in two phases. First faults fall and every promise
// must hold; then the world is healed and everything must end within a bound.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/simulation/faults.h"

namespace tailor::simulation {

struct Outcome {
  std::string failure;                            ///< "" = every promise was kept
  std::uint64_t trace_hash = 0;                   ///< of everything that happened, in order
  std::map<std::string, std::uint64_t> counters;  ///< what happened how often
  std::int64_t healed_ms = 0;                     ///< from the end of faults until all was done
  std::string final_state;                        ///< core::durable_text at the end
};

struct RunOptions {
  std::uint64_t seed = 0;
  std::int64_t ticks = 240;  ///< simulated seconds with faults
  bool print_trace = false;
  int workers = 0;  ///< instead of the few that the seed draws; 0 = those
};

/// Runs one world. Deterministic: equal options give an equal outcome.
Outcome run_world(const RunOptions& options);

}  // namespace tailor::simulation
