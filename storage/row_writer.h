// RowWriter: the rows of one batch after the other, and what holds over rows: how many trials are
// in which state, which attempts exist, which tokens were given out. The writer's; internal to
// storage/. Everything but `finish` throws SQLite::Exception. Threads: the writer's.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <unordered_set>

#include "base/status.h"
#include "storage/event_index.h"
#include "storage/records.h"
#include "storage/sqlite_connection.h"

namespace tailor::storage {

class RowWriter {
 public:
  /// Called once, first.
  void load(Connection& db);

  // Inside a transaction:
  /// REQUIRES: no MetricPoint (its owner calls `need`).
  void write(Connection& db, const Mutation& mutation);
  /// The batch has a row of this attempt.
  void need(AttemptId attempt);
  /// Last: writes the counts. Errors: kFailedPrecondition (an attempt that a row needs is missing).
  Status finish(Connection& db);

  // After it:
  void committed();
  void rolled_back();

  EventIndex& events() { return events_; }

 private:
  using Counts = std::array<std::int64_t, 6>;  // by TrialState

  void write_trial(Connection& db, const TrialRow& row);
  void write_attempt(Connection& db, const AttemptRow& row);
  void write_counters(Connection& db, const CountersRow& row);

  EventIndex events_;
  /// Attempts that are stored and have not ended.
  std::unordered_set<std::int64_t> known_;
  /// As stored. Tokens are reserved many at a time: the row would be a page in every batch.
  CountersRow counters_;

  // The transaction in progress.
  std::map<SweepId, Counts> counts_;
  std::unordered_set<std::int64_t> written_;
  std::unordered_set<std::int64_t> ended_;
  std::unordered_set<std::int64_t> needed_;
  std::int64_t last_needed_ = 0;
  CountersRow pending_counters_;
};

}  // namespace tailor::storage
