// Context: what every part of a simulated world shares: the queue of things to come, the clock, the
// dice, the trace, and the first broken promise.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "tests/simulation/faults.h"

namespace tailor::simulation {

class Context {
 public:
  /// `print` writes the trace to stdout as it happens.
  Context(std::uint64_t seed, const Faults& f, bool print);

  Faults faults;
  Rng rng;
  ManualClock clock;                              ///< true time; processes see it through offsets
  bool healed = false;                            ///< the second phase: no new faults
  std::map<std::string, std::uint64_t> counters;  ///< how often what happened, for coverage

  std::int64_t now() const { return clock.now_ms(); }
  /// Runs `act` in `delay_ms`. What is due at the same time runs in the order it was asked for.
  void after(std::int64_t delay_ms, std::function<void()> act);
  /// Runs the next thing. False when nothing is left or a promise was broken.
  bool run_next();
  /// When the next thing is due; the far future when nothing is.
  std::int64_t next_time() const;

  /// Uniform in [0, max].
  std::int64_t up_to(std::int64_t max) {
    return static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(max) + 1));
  }
  /// Exponential with this mean, at least 1.
  std::int64_t exponential(std::int64_t mean_ms);
  bool chance(double probability) { return rng.uniform() < probability; }
  std::int64_t network_delay() { return up_to(healed ? 50 : faults.delay_ms_max); }

  void count(const std::string& what) { ++counters[what]; }
  void trace(std::string_view who, const std::string& text);
  std::uint64_t trace_hash() const { return hash_; }
  /// A broken promise; the first one stays and ends the run.
  void fail(const std::string& what);
  const std::string& failure() const { return failure_; }

 private:
  struct Due {
    std::int64_t time;
    std::uint64_t order;
    std::function<void()> act;
    bool operator<(const Due& other) const {  // for a heap with the earliest on top
      return std::pair(other.time, other.order) < std::pair(time, order);
    }
  };
  std::vector<Due> heap_;
  std::uint64_t next_order_ = 0;
  std::uint64_t hash_ = 0;
  const bool print_;
  std::string failure_;
};

}  // namespace tailor::simulation
