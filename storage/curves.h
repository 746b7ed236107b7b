// Reading metric points: sealed ones from the database, unsealed ones from the writer's memory,
// joined to curves. Internal to storage/.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/metric_tail.h"
#include "storage/sqlite_connection.h"
#include "storage/store.h"

namespace tailor::storage {

/// Chunks of one series.
struct SealedPoints {
  std::string name;
  std::uint64_t sealed = 0;  ///< points ever sealed (pruned ones count)
  std::int64_t tail_to = 0;  ///< they were rows of the tail before this id
  std::vector<Point> points;
};
using SealedCurves = std::map<SeriesKey, SealedPoints>;

/// The chunks of a trial's series, of one metric when it is given. Throws SQLite::Exception.
SealedCurves read_sealed(Connection& db, TrialId trial, std::optional<std::string_view> metric);

/// The curves of a trial by name, from unsealed points and from chunks that were read after them.
/// nullopt when a chunk has points that were stored after those: others of their batch would be
/// missing; read both again. Pure.
std::optional<std::vector<Series>> join_curves(LiveCurves live, SealedCurves sealed);

/// Names of metrics that have chunks. Throws SQLite::Exception.
std::vector<std::string> read_sealed_names(Connection& db, TrialId trial);

/// The next trials of a sweep. Throws SQLite::Exception.
std::vector<TrialId> read_trial_ids(Connection& db, SweepId sweep, TrialId after,
                                    std::size_t limit);

}  // namespace tailor::storage
