// Pruning: deletes what users' rules say of trials that have ended, in pieces. Logs, chunks of
// points and events are walked in the order in which they were stored; what is left of a walk is
// remembered in memory and begun anew after a restart. The space is used again by what comes.
// Internal to storage/. Throws SQLite::Exception. Threads: the writer's.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "storage/sqlite_connection.h"
#include "storage/store.h"

namespace tailor::storage {

class Pruning {
 public:
  /// One piece, inside a transaction. `indexed`: events up to this one may be deleted.
  Pruned piece(Connection& db, std::int64_t indexed, const PruneRules& rules, WallMs now_ms);

 private:
  /// When a trial ended; nullopt: it has not.
  using Ends = std::unordered_map<std::uint64_t, std::optional<WallMs>>;

  /// Each returns true when its walk is at its end.
  bool walk_logs(Connection& db, const PruneRules& rules, WallMs now_ms, Pruned& pruned);
  bool walk_points(Connection& db, const PruneRules& rules, WallMs now_ms, Pruned& pruned);
  bool walk_events(Connection& db, std::int64_t indexed, const PruneRules& rules, WallMs now_ms,
                   Pruned& pruned);
  std::optional<WallMs> end_of(Connection& db, TrialId trial);

  Ends ends_;  // of this piece
  std::int64_t logs_from_ = 0;
  std::int64_t points_from_ = 0;
  std::int64_t events_from_ = 0;
  std::uint64_t log_bytes_seen_ = 0;  // by this walk and not deleted
  std::uint64_t log_bytes_over_ = 0;  // the quota, by the last whole walk
  bool trimming_ = false;             // this walk takes those
};

/// When something of a trial was pruned.
std::optional<PrunedTrial> read_pruned(Connection& db, TrialId trial);
/// Trials of the sweep above `after` whose points were pruned.
std::uint64_t count_without_points(Connection& db, SweepId sweep, TrialId after);

}  // namespace tailor::storage
