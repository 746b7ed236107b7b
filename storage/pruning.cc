// Pruning.
#include "storage/pruning.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "storage/attempt_key.h"
#include "storage/chunk.h"

namespace tailor::storage {
namespace {

// Of one piece: what is looked at and what is deleted. A few milliseconds.
constexpr std::int64_t kRowsSeenMax = 4'000;
constexpr std::uint64_t kRowsDeletedMax = 500;
constexpr std::uint64_t kBytesDeletedMax = 2u << 20;

bool old_enough(std::optional<WallMs> ended_ms, std::int64_t age_ms, WallMs now_ms) {
  return age_ms > 0 && ended_ms && *ended_ms <= now_ms - age_ms;
}

struct Piece {
  std::int64_t id = 0;
  std::int64_t attempt = 0;
  std::uint64_t size = 0;
};

std::vector<Piece> pieces_after(Connection& db, std::string_view sql, std::int64_t from) {
  std::vector<Piece> pieces;
  Query query(db.statement(sql), from, kRowsSeenMax);
  while (query.next()) pieces.push_back({query.integer(0), query.integer(1), query.u64(2)});
  return pieces;
}

void note_pruned(Connection& db, TrialId trial, std::string_view sql, WallMs now_ms) {
  Query(db.statement(sql), trial.value, now_ms).run();
}

}  // namespace

Pruned Pruning::piece(Connection& db, std::int64_t indexed, const PruneRules& rules,
                      WallMs now_ms) {
  ends_.clear();
  Pruned pruned;
  bool done = true;
  if (rules.logs_ms > 0 || rules.logs_bytes_max > 0) done &= walk_logs(db, rules, now_ms, pruned);
  if (rules.points_ms > 0) done &= walk_points(db, rules, now_ms, pruned);
  if (rules.events_ms > 0) done &= walk_events(db, indexed, rules, now_ms, pruned);
  pruned.more = !done;
  if (!done) return pruned;
  // The next walk begins at the front; above the quota it takes what this one counted too much, if
  // it was not such a one already: then what is left may not go.
  const bool over = rules.logs_bytes_max > 0 && log_bytes_seen_ > rules.logs_bytes_max;
  trimming_ = over && !trimming_;
  log_bytes_over_ = trimming_ ? log_bytes_seen_ - rules.logs_bytes_max : 0;
  pruned.more = trimming_;
  logs_from_ = points_from_ = events_from_ = 0;
  log_bytes_seen_ = 0;
  return pruned;
}

std::optional<WallMs> Pruning::end_of(Connection& db, TrialId trial) {
  const auto known = ends_.find(trial.value);
  if (known != ends_.end()) return known->second;
  std::optional<WallMs> ended;
  Query query(db.statement("SELECT ended_ms FROM trial WHERE id = ? AND state NOT IN ('queued', "
                           "'running')"),
              trial.value);
  if (query.next()) ended = query.integer(0);
  return ends_[trial.value] = ended;
}

bool Pruning::walk_logs(Connection& db, const PruneRules& rules, WallMs now_ms, Pruned& pruned) {
  const std::vector<Piece> pieces =
      pieces_after(db,
                   "SELECT id, attempt, length(bytes) FROM log_chunk WHERE id > ? ORDER BY id "
                   "LIMIT ?",
                   logs_from_);
  std::uint64_t deleted = 0;
  std::uint64_t bytes = 0;
  for (const Piece& piece : pieces) {
    if (deleted >= kRowsDeletedMax || bytes >= kBytesDeletedMax) return false;
    logs_from_ = piece.id;
    const TrialId trial = attempt_of_key(piece.attempt).trial;
    const std::optional<WallMs> ended = end_of(db, trial);
    const bool over = log_bytes_over_ > 0 && ended.has_value();
    if (!over && !old_enough(ended, rules.logs_ms, now_ms)) {
      log_bytes_seen_ += piece.size;
      continue;
    }
    Query(db.statement("DELETE FROM log_chunk WHERE id = ?"), piece.id).run();
    note_pruned(db, trial,
                "INSERT INTO pruned (trial, logs_ms, points_ms) VALUES (?1, ?2, 0) "
                "ON CONFLICT (trial) DO UPDATE SET logs_ms = ?2 WHERE logs_ms <> ?2",
                now_ms);
    log_bytes_over_ -= std::min(log_bytes_over_, piece.size);
    pruned.log_bytes += piece.size;
    bytes += piece.size;
    ++deleted;
  }
  return pieces.size() < static_cast<std::size_t>(kRowsSeenMax);
}

bool Pruning::walk_points(Connection& db, const PruneRules& rules, WallMs now_ms, Pruned& pruned) {
  const std::vector<Piece> pieces =
      pieces_after(db,
                   "SELECT id, attempt, length(data) FROM metric_chunk WHERE id > ? ORDER BY id "
                   "LIMIT ?",
                   points_from_);
  std::int64_t tail_from = std::numeric_limits<std::int64_t>::max();
  {
    Query front(db.statement("SELECT min(id) FROM metric_tail"));
    if (front.next() && !front.null(0)) tail_from = front.integer(0);
  }
  std::uint64_t deleted = 0;
  for (const Piece& piece : pieces) {
    if (deleted >= kRowsDeletedMax) return false;
    points_from_ = piece.id;
    const TrialId trial = attempt_of_key(piece.attempt).trial;
    if (!old_enough(end_of(db, trial), rules.points_ms, now_ms)) continue;
    {
      Query chunk(db.statement("SELECT tail_to, data FROM metric_chunk WHERE id = ?"), piece.id);
      if (!chunk.next()) continue;
      // Points that are still in the tail are known as sealed by this chunk alone.
      if (chunk.integer(0) > tail_from) continue;
      pruned.points += chunk_points(chunk.text(1));
    }
    Query(db.statement("DELETE FROM metric_chunk WHERE id = ?"), piece.id).run();
    note_pruned(db, trial,
                "INSERT INTO pruned (trial, logs_ms, points_ms) VALUES (?1, 0, ?2) "
                "ON CONFLICT (trial) DO UPDATE SET points_ms = ?2 WHERE points_ms <> ?2",
                now_ms);
    ++deleted;
  }
  return pieces.size() < static_cast<std::size_t>(kRowsSeenMax);
}

/// Where to go on behind `from`, before which nothing more is old: events are written in the order
/// of time, but for those of a clock that was wrong for a while. Every so many rows one is looked
/// at; nullopt = none of them is old.
std::optional<std::int64_t> next_old_event(Connection& db, std::int64_t from, std::int64_t last,
                                           WallMs old_ms) {
  constexpr std::int64_t kLooksMax = 4'000;
  const std::int64_t apart = std::max(kRowsSeenMax, (last - from) / kLooksMax);
  for (std::int64_t young = from; young + apart <= last;) {
    Query event(db.statement("SELECT id, wall_ms FROM event WHERE id >= ? ORDER BY id LIMIT 1"),
                young + apart);
    if (!event.next() || event.integer(0) > last) break;
    if (event.integer(1) <= old_ms) return young;
    young = event.integer(0);
  }
  return std::nullopt;
}

bool Pruning::walk_events(Connection& db, std::int64_t indexed, const PruneRules& rules,
                          WallMs now_ms, Pruned& pruned) {
  struct Event {
    std::int64_t id;
    WallMs wall_ms;
    std::uint64_t sweep;
    std::uint64_t trial;
  };
  std::vector<Event> events;
  {
    // The newest stays, whatever its age: ids are never given out twice.
    Query query(db.statement("SELECT id, wall_ms, sweep, trial FROM event WHERE id > ?1 AND id <= "
                             "?2 AND id < (SELECT max(id) FROM event) ORDER BY id LIMIT ?3"),
                events_from_, indexed, kRowsSeenMax);
    while (query.next()) {
      events.push_back({query.integer(0), query.integer(1), query.u64(2), query.u64(3)});
    }
  }
  const WallMs old_ms = now_ms - rules.events_ms;
  std::uint64_t deleted = 0;
  bool some_old = false;
  for (const Event& event : events) {
    if (deleted >= kRowsDeletedMax) return false;
    events_from_ = event.id;
    if (event.wall_ms > old_ms) continue;
    some_old = true;
    if (event.trial != 0 && !end_of(db, TrialId{event.trial})) continue;
    if (event.trial == 0 && event.sweep != 0) {
      Query open(db.statement("SELECT 1 FROM sweep WHERE id = ? AND state IN ('running', "
                              "'paused')"),
                 event.sweep);
      if (open.next()) continue;
    }
    Query(db.statement("DELETE FROM event WHERE id = ?"), event.id).run();
    Query(db.statement("DELETE FROM event_of_sweep WHERE sweep = ? AND event = ?"), event.sweep,
          event.id)
        .run();
    Query(db.statement("DELETE FROM event_of_trial WHERE trial = ? AND event = ?"), event.trial,
          event.id)
        .run();
    ++pruned.events;
    ++deleted;
  }
  if (events.size() < static_cast<std::size_t>(kRowsSeenMax)) return true;
  if (some_old) return false;
  const auto next = next_old_event(db, events_from_, indexed, old_ms);
  if (next) events_from_ = *next;
  return !next;
}

std::optional<PrunedTrial> read_pruned(Connection& db, TrialId trial) {
  Query query(db.statement("SELECT logs_ms, points_ms FROM pruned WHERE trial = ?"), trial.value);
  if (!query.next()) return std::nullopt;
  return PrunedTrial{query.integer(0), query.integer(1)};
}

std::uint64_t count_without_points(Connection& db, SweepId sweep, TrialId after) {
  Query query(db.statement("SELECT count(*) FROM pruned p JOIN trial t ON t.id = p.trial "
                           "WHERE p.trial > ? AND p.points_ms > 0 AND t.sweep = ?"),
              after.value, sweep.value);
  query.next();
  return query.u64(0);
}

}  // namespace tailor::storage
