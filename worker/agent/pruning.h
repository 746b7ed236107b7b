// Pruning: what old trials leave on a node's disk is removed by rules that the user sets. Only what
// nobody works in, and never the newest sound checkpoint of a trial that has not completed: the
// last one is kept only when it was read and is whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tailor::agent {

/// Ages since anything in a trial's folder changed; 0 = never.
struct PruneRules {
  /// Superseded checkpoints, and all of completed trials.
  std::int64_t checkpoints_after_ms = 0;
  /// Everything of completed trials: reports, logs and artifacts too.
  std::int64_t folders_after_ms = 0;
};

struct Pruned {
  std::uint64_t checkpoints = 0;
  std::uint64_t folders = 0;  ///< of trials
  std::uint64_t bytes = 0;
  std::vector<std::string> failures;  ///< what could not be removed, and why
};

/// Looks through the trials folder once. A trial with an attempt under way (a worker.json, of
/// whatever worker) is passed by. Errors: the folder cannot be read.
Result<Pruned> prune(const std::string& trials_dir, const PruneRules& rules, WallMs now_ms);

/// Removes what fetches of checkpoints have left that were broken off and that nobody has written
/// to for a day: an attempt that still wants one writes more often. `checkpoints` counts them.
Pruned prune_fetches(const std::string& trials_dir, WallMs now_ms);

}  // namespace tailor::agent
