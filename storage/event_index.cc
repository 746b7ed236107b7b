// The index of events, and reading by it.
#include "storage/event_index.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace tailor::storage {
namespace {

constexpr std::int64_t kIndexBurst = 512;       // events before a batch indexes any
constexpr std::int64_t kIndexPieceMax = 2'048;  // in one transaction: about 2 ms

EventRow event_of(Query& row) {
  EventRow event;
  event.id = row.u64(0);
  event.wall_ms = row.integer(1);
  event.kind = parse_event_kind(row.text(2));
  event.sweep = SweepId{row.u64(3)};
  event.trial = TrialId{row.u64(4)};
  event.attempt = row.u32(5);
  event.worker = WorkerId{row.u64(6)};
  event.message = row.text(7);
  return event;
}

// What is read, and from where: ?1 = after, ?2 = limit, ?3 = sweep, ?4 = trial (0 = any).
constexpr std::string_view kByTrial =
    "SELECT e.id, e.wall_ms, e.kind, e.sweep, e.trial, e.attempt, e.worker, e.message "
    "FROM event_of_trial x CROSS JOIN event e ON e.id = x.event "
    "WHERE x.trial = ?4 AND x.event > ?1 AND (?3 = 0 OR e.sweep = ?3) ORDER BY x.event LIMIT ?2";
constexpr std::string_view kBySweep =
    "SELECT e.id, e.wall_ms, e.kind, e.sweep, e.trial, e.attempt, e.worker, e.message "
    "FROM event_of_sweep x CROSS JOIN event e ON e.id = x.event "
    "WHERE x.sweep = ?3 AND x.event > ?1 AND ?4 = 0 ORDER BY x.event LIMIT ?2";
constexpr std::string_view kInOrder =
    "SELECT id, wall_ms, kind, sweep, trial, attempt, worker, message FROM event "
    "WHERE id > ?1 AND (?3 = 0 OR sweep = ?3) AND (?4 = 0 OR trial = ?4) ORDER BY id LIMIT ?2";

void append(Connection& db, std::string_view sql, std::uint64_t after, std::uint64_t limit,
            std::uint64_t sweep, std::uint64_t trial, std::vector<EventRow>& rows) {
  Query query(db.statement(sql), after, limit, sweep, trial);
  while (query.next()) rows.push_back(event_of(query));
}

}  // namespace

void EventIndex::load(Connection& db) {
  Query query(
      db.statement("SELECT (SELECT coalesce(max(id), 0) FROM event), events_indexed "
                   "FROM upkeep"));
  if (!query.next()) throw_corrupt("the row of the store's upkeep is missing");
  last_ = query.integer(0);
  indexed_ = query.integer(1);
  rolled_back();
}

void EventIndex::maintain(Connection& db, bool all) {
  // Only events of earlier commits: those of this one may still be many.
  const std::int64_t waiting = last_ - indexed_;
  if (waiting < (all ? 1 : kIndexBurst)) return;
  const std::int64_t to = indexed_ + std::min(waiting, kIndexPieceMax);
  Query(db.statement("INSERT INTO event_of_sweep SELECT sweep, id FROM event "
                     "WHERE id > ? AND id <= ? AND sweep <> 0 ORDER BY sweep, id"),
        indexed_, to)
      .run();
  Query(db.statement("INSERT INTO event_of_trial SELECT trial, id FROM event "
                     "WHERE id > ? AND id <= ? AND trial <> 0 ORDER BY trial, id"),
        indexed_, to)
      .run();
  Query(db.statement("UPDATE upkeep SET events_indexed = ?"), to).run();
  pending_indexed_ = to;
}

void EventIndex::committed() {
  last_ = pending_last_;
  indexed_ = pending_indexed_;
}

void EventIndex::rolled_back() {
  pending_last_ = last_;
  pending_indexed_ = indexed_;
}

std::vector<EventRow> read_events(Connection& db, std::uint64_t after, std::size_t limit,
                                  std::optional<SweepId> sweep, std::optional<TrialId> trial) {
  const auto signed_max = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::uint64_t sweep_id = sweep ? sweep->value : 0;
  const std::uint64_t trial_id = trial ? trial->value : 0;
  const std::uint64_t rows_max = std::min<std::uint64_t>(limit, signed_max);
  std::uint64_t from = std::min(after, signed_max);
  std::vector<EventRow> rows;
  if (sweep || trial) {
    std::uint64_t indexed = 0;
    {
      Query query(db.statement("SELECT events_indexed FROM upkeep"));
      if (query.next()) indexed = query.u64(0);
    }
    append(db, trial ? kByTrial : kBySweep, from, rows_max, sweep_id, trial_id, rows);
    from = std::max(from, indexed);
  }
  if (rows.size() < rows_max) {
    append(db, kInOrder, from, rows_max - rows.size(), sweep_id, trial_id, rows);
  }
  return rows;
}

}  // namespace tailor::storage
