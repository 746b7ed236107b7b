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
#include "coordinator/analysis/scaling.h"
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
  /// The scaling comparison, kept in the same way; `baseline` is a family, "" = the file's.
  /// Errors: as `analysis::compare_scaling`; kFailedPrecondition when the sweep has no [scaling],
  /// or when this version cannot read its file.
  Result<std::shared_ptr<const analysis::ScalingTable>> scaling(SweepId sweep,
                                                                std::string_view baseline,
                                                                std::string_view objective);
  /// How many tables were computed so far.
  std::uint64_t computed() const;

 private:
  template <typename Table>
  struct Entry {
    SweepId sweep;
    std::string baseline;
    std::string objective;
    /// When the sweep had ended as the table was made; 0 = it had not. Events tell of every change,
    /// but those of a sweep that ended may have been pruned since.
    std::int64_t ended_ms = 0;
    std::shared_ptr<const Table> table;
  };
  template <typename Table>
  using Entries = std::deque<Entry<Table>>;  ///< newest last

  template <typename Table>
  struct Known {
    std::shared_ptr<const Table> table;  ///< null = none is kept
    bool holds = false;                  ///< nothing has happened to the sweep since
  };

  template <typename Table>
  Result<Known<Table>> known(const Entries<Table>& entries, SweepId sweep,
                             std::string_view baseline, std::string_view objective) const;
  template <typename Table>
  void keep(Entries<Table>& entries, Entry<Table> entry);
  template <typename Table, typename Compute>
  Result<std::shared_ptr<const Table>> get_or_compute(Entries<Table>& entries, SweepId sweep,
                                                      std::string_view baseline,
                                                      std::string_view objective,
                                                      const Compute& make);
  /// Id of the sweep's newest event, at or after `known`.
  Result<std::uint64_t> newest_event(SweepId sweep, std::uint64_t known) const;
  Result<analysis::ComparisonTable> compute(SweepId sweep, std::string_view baseline,
                                            std::string_view objective) const;

  Result<analysis::ScalingTable> compute_scaling(SweepId sweep, std::string_view baseline,
                                                 std::string_view objective) const;

  const storage::Store& store_;
  std::mutex computing_;      // held while a table is computed
  mutable std::mutex mutex_;  // guards: entries_, scalings_, computed_
  Entries<analysis::ComparisonTable> entries_;
  Entries<analysis::ScalingTable> scalings_;
  std::uint64_t computed_ = 0;
};

}  // namespace tailor::engine
