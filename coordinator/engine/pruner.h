// Pruner: carries out the rules of [prune] in the settings, a piece at a time and beside the
// engine.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "storage/store.h"

namespace tailor::engine {

/// Prunes at once and then every few minutes while it lives; does nothing when there are no rules.
/// What was deleted is logged. `store` and `clock` must outlive it.
class Pruner {
 public:
  Pruner(storage::Store& store, const storage::PruneRules& rules, const Clock& clock);
  ~Pruner();
  Pruner(const Pruner&) = delete;
  Pruner& operator=(const Pruner&) = delete;

 private:
  void run();
  /// Until nothing is left. False when it is to end.
  bool prune_all();
  /// False when it is to end.
  bool wait(std::int64_t ms);

  storage::Store& store_;
  const storage::PruneRules rules_;
  const Clock& clock_;
  std::mutex mutex_;  // guards: stopping_
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace tailor::engine
