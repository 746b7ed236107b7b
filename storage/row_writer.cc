// Rows that need more than their own columns.
#include "storage/row_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "storage/attempt_key.h"
#include "storage/sqlite_rows.h"

namespace tailor::storage {
namespace {

// A restart skips so many tokens at most. They only have to grow.
constexpr FencingToken kTokensReserved = 4'096;
constexpr auto kTokenMax = static_cast<FencingToken>(std::numeric_limits<std::int64_t>::max());

}  // namespace

void RowWriter::load(Connection& db) {
  events_.load(db);
  counters_ = pending_counters_ = read_counters(db);
}

void RowWriter::write(Connection& db, const Mutation& mutation) {
  std::visit(
      [&](const auto& row) {
        using Row = std::decay_t<decltype(row)>;
        if constexpr (std::is_same_v<Row, TrialRow>) {
          write_trial(db, row);
        } else if constexpr (std::is_same_v<Row, AttemptRow>) {
          write_attempt(db, row);
        } else if constexpr (std::is_same_v<Row, CountersRow>) {
          write_counters(db, row);
        } else if constexpr (!std::is_same_v<Row, MetricPoint>) {
          if constexpr (requires { row.attempt.number; }) need(row.attempt);
          write_row(db, row);
          if constexpr (std::is_same_v<Row, EventRow>) {
            events_.added(db.db().getLastInsertRowid());
          }
        }
      },
      mutation);
}

void RowWriter::write_trial(Connection& db, const TrialRow& row) {
  const auto count = [&](SweepId sweep, TrialState state, std::int64_t by) {
    counts_[sweep][static_cast<std::size_t>(state)] += by;
  };
  if (const auto old = replace_trial(db, row)) count(old->sweep, old->state, -1);
  count(row.sweep, row.state, 1);
}

void RowWriter::write_attempt(Connection& db, const AttemptRow& row) {
  write_row(db, row);
  const std::int64_t key = attempt_key(row.id);
  written_.insert(key);
  if (row.state == AttemptState::kEnded) {
    ended_.insert(key);
  } else {
    ended_.erase(key);
  }
}

void RowWriter::write_counters(Connection& db, const CountersRow& row) {
  CountersRow stored = row;
  stored.next_token = pending_counters_.next_token;
  if (row.next_token > stored.next_token) {
    stored.next_token = std::min(row.next_token, kTokenMax - kTokensReserved) + kTokensReserved;
  }
  if (stored == pending_counters_) return;
  write_row(db, stored);
  pending_counters_ = stored;
}

void RowWriter::need(AttemptId attempt) {
  const std::int64_t key = attempt_key(attempt);
  if (key == last_needed_) return;  // points of one attempt come together
  last_needed_ = key;
  if (!known_.contains(key)) needed_.insert(key);
}

Status RowWriter::finish(Connection& db) {
  for (const std::int64_t key : needed_) {
    if (written_.contains(key)) continue;
    Query found(db.statement("SELECT state = 'ended' FROM attempt WHERE id = ?"), key);
    if (!found.next()) {
      return Status(
          Code::kFailedPrecondition,
          fmt::format("{} is needed by a row and is not stored", attempt_of_key(key).to_string()));
    }
    if (found.integer(0) == 0) written_.insert(key);
  }
  for (const auto& [sweep, by] : counts_) {
    if (std::all_of(by.begin(), by.end(), [](std::int64_t n) { return n == 0; })) continue;
    Query(db.statement(
              "INSERT INTO trial_count (sweep, queued, running, completed, stopped, failed, "
              "cancelled) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (sweep) DO UPDATE SET "
              "queued = queued + ?2, running = running + ?3, completed = completed + ?4, "
              "stopped = stopped + ?5, failed = failed + ?6, cancelled = cancelled + ?7"),
          sweep.value, by[0], by[1], by[2], by[3], by[4], by[5])
        .run();
  }
  return {};
}

void RowWriter::committed() {
  for (const std::int64_t key : written_) known_.insert(key);
  for (const std::int64_t key : ended_) known_.erase(key);
  counters_ = pending_counters_;
  events_.committed();
  rolled_back();
}

void RowWriter::rolled_back() {
  counts_.clear();
  written_.clear();
  ended_.clear();
  needed_.clear();
  last_needed_ = 0;
  pending_counters_ = counters_;
  events_.rolled_back();
}

}  // namespace tailor::storage
