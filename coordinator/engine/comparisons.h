// Comparisons: the paired answer of a sweep from its stored rows, computed once while nothing of
// the sweep changes.
//
// A table is kept with the id of the sweep's newest event when its rows were read. Everything that
// changes an answer (a trial's end, a retry, a new candidate) writes an event of the sweep in the
// same transaction, so one short read tells whether the table still holds.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/analysis/comparison.h"
#include "coordinator/analysis/scaling.h"
#include "coordinator/engine/work_pool.h"
#include "storage/store.h"

namespace tailor::engine {

/// Threads: any number. One table is computed at a time; who asks meanwhile for one that is not
/// there waits (so that eight who ask for the same cost as much as one): call it from a thread that
/// nothing else waits for. `store` must outlive it.
class Comparisons {
 public:
  explicit Comparisons(const storage::Store& store);

  /// Errors: as `analysis::compare`; kFailedPrecondition when the sweep has no candidate; those of
  /// the store.
  Result<std::shared_ptr<const analysis::ComparisonTable>> get(SweepId sweep,
                                                               std::string_view baseline,
                                                               std::string_view objective);
  /// A table that may be older than the newest results.
  struct Kept {
    std::shared_ptr<const analysis::ComparisonTable> table;
    bool current = true;      ///< nothing has happened to the sweep since its rows were read
    std::int64_t age_ms = 0;  ///< since its rows were read
  };
  /// As `get`, for people who look: where a table is kept that does not hold any more, it is given
  /// when a new one is not there within `patience`; that one is made meanwhile, on a thread of its
  /// own. Without any it waits as `get` does.
  Result<Kept> get_or_kept(SweepId sweep, std::string_view baseline, std::string_view objective,
                           std::chrono::milliseconds patience);
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
    MonotonicMs read_ms = 0;  ///< when its rows were
  };
  template <typename Table>
  using Entries = std::deque<Entry<Table>>;  ///< newest last

  template <typename Table>
  struct Known {
    std::shared_ptr<const Table> table;  ///< null = none is kept
    bool holds = false;                  ///< nothing has happened to the sweep since
    MonotonicMs read_ms = 0;
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

  using Renewed = std::shared_future<Status>;
  /// When a new table is there: of the one who makes it already, or who begins now. Not valid when
  /// too many wait for theirs.
  Renewed renew(SweepId sweep, std::string_view baseline, std::string_view objective);

  Result<analysis::ScalingTable> compute_scaling(SweepId sweep, std::string_view baseline,
                                                 std::string_view objective) const;

  const storage::Store& store_;
  std::mutex computing_;  // held while a table is computed
  const SystemClock clock_;
  mutable std::mutex mutex_;  // guards: entries_, scalings_, computed_, renewing_
  Entries<analysis::ComparisonTable> entries_;
  Entries<analysis::ScalingTable> scalings_;
  std::uint64_t computed_ = 0;
  std::map<std::tuple<SweepId, std::string, std::string>, Renewed> renewing_;
  WorkPool renewals_;  // last: its thread uses all of the above
};

}  // namespace tailor::engine
