// Comparisons: the paired answer of a sweep from its stored rows, computed once while nothing of
// the sweep changes.
//
// A table is kept with the id of the sweep's newest event when its rows were read. Everything that
// changes an answer (a trial's end, a retry, a new candidate) writes an event of the sweep in the
// same transaction, so one short read tells whether the table still holds.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/status.h"
#include "coordinator/analysis/comparison.h"
#include "storage/store.h"

namespace tailor::engine {

/// Threads: any number. One table is computed at a time; who asks meanwhile for one that is not
/// there waits (so that eight who ask for the same cost as much as one): call it from a thread that
/// nothing else waits for. `store` must outlive it.
class Comparisons {
 public:
  explicit Comparisons(const storage::Store& store) : store_(store) {}

  /// Errors: as `analysis::compare`; kFailedPrecondition when the sweep has no candidate; those of
  /// the store.
  Result<std::shared_ptr<const analysis::ComparisonTable>> get(SweepId sweep,
                                                               std::string_view baseline,
                                                               std::string_view objective);
  /// How many tables were computed so far.
  std::uint64_t computed() const;

 private:
  struct Entry {
    SweepId sweep;
    std::string baseline;
    std::string objective;
    std::shared_ptr<const analysis::ComparisonTable> table;
  };

  struct Known {
    std::shared_ptr<const analysis::ComparisonTable> table;  ///< null = none is kept
    bool holds = false;  ///< nothing has happened to the sweep since
  };

  Result<Known> known(SweepId sweep, std::string_view baseline, std::string_view objective) const;
  std::shared_ptr<const analysis::ComparisonTable> kept(SweepId sweep, std::string_view baseline,
                                                        std::string_view objective) const;
  void keep(Entry entry);
  /// Id of the sweep's newest event, at or after `known`.
  Result<std::uint64_t> newest_event(SweepId sweep, std::uint64_t known) const;
  Result<analysis::ComparisonTable> compute(SweepId sweep, std::string_view baseline,
                                            std::string_view objective) const;

  const storage::Store& store_;
  std::mutex computing_;       // held while a table is computed
  mutable std::mutex mutex_;   // guards: entries_, computed_
  std::deque<Entry> entries_;  // newest last
  std::uint64_t computed_ = 0;
};

}  // namespace tailor::engine
