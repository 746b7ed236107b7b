// The tail of metric points and its sealing.
#include "storage/metric_tail.h"

#include <algorithm>
#include <limits>

#include "storage/chunk.h"
#include "storage/chunk_format.h"

namespace tailor::storage {
namespace {

constexpr std::size_t kSealsPerCommit = 2;     // at least; a seal costs about 0.1 ms
constexpr std::size_t kPointsPerSeal = 128;    // one more for so many points: twice the inflow
constexpr std::int64_t kTailSpanMax = 65'536;  // ids between front and end, before seals come early
constexpr std::int64_t kCutRowsMin = 512;      // do not touch the front for less
// And not for more in one commit, beside twice the inflow.
constexpr std::int64_t kCutRowsMax = 4'096;

}  // namespace

void MetricTail::load(Connection& db) {
  *this = MetricTail();
  Query bounds(
      db.statement("SELECT (SELECT coalesce(max(id), 0) FROM metric_tail), "
                   "(SELECT coalesce(max(tail_from), 0) FROM series), "
                   "(SELECT min(id) FROM metric_tail)"));
  bounds.next();
  next_id_ = std::max(bounds.integer(0), bounds.integer(1)) + 1;
  front_id_ = bounds.null(2) ? next_id_ : bounds.integer(2);
  pending_next_id_ = next_id_;
  pending_front_id_ = front_id_;
  Query rows(
      db.statement("SELECT t.id, t.series, t.step, t.tokens, t.wall_ms, t.value "
                   "FROM metric_tail t JOIN series s ON s.id = t.series "
                   "WHERE t.id >= s.tail_from ORDER BY t.id"));
  while (rows.next()) {
    const std::int64_t series = rows.integer(1);
    Live& live = live_[series];
    if (live.rows.empty()) fronts_[rows.integer(0)] = series;
    live.rows.push_back(
        {rows.integer(0), {rows.integer(2), rows.integer(3), rows.integer(4), rows.real(5)}});
  }
  for (auto& [series, live] : live_) {
    Query owner(db.statement("SELECT s.trial, s.attempt, s.name, a.state = 'ended' FROM series s "
                             "JOIN attempt a ON a.trial = s.trial AND a.number = s.attempt "
                             "WHERE s.id = ?"),
                series);
    if (!owner.next()) throw_corrupt("a metric series without its attempt");
    live.ended = owner.integer(3) != 0;
    if (!live.ended) ids_[{TrialId{owner.u64(0)}, owner.u32(1)}][owner.text(2)] = series;
    queue_if_ready(series, live);
  }
}

void MetricTail::add(Connection& db, const MetricPoint& point) {
  const std::int64_t series = series_id(db, point);
  const Row row{pending_next_id_++, {point.step, point.tokens, point.wall_ms, point.value}};
  Query(db.statement("INSERT INTO metric_tail (id, series, step, tokens, wall_ms, value) "
                     "VALUES (?, ?, ?, ?, ?, ?)"),
        row.id, series, point.step, point.tokens, point.wall_ms, point.value)
      .run();
  pending_rows_.emplace_back(series, row);
}

std::int64_t MetricTail::series_id(Connection& db, const MetricPoint& point) {
  const AttemptId attempt{point.trial, point.attempt};
  for (const Ids* ids : {&ids_, &pending_ids_}) {
    if (const auto found = ids->find(attempt); found != ids->end()) {
      if (const auto named = found->second.find(point.name); named != found->second.end()) {
        return named->second;
      }
    }
  }
  std::int64_t id = 0;
  {
    Query known(db.statement("SELECT id FROM series WHERE trial = ? AND attempt = ? AND name = ?"),
                point.trial.value, point.attempt, point.name);
    if (known.next()) id = known.integer(0);
  }
  if (id == 0) {
    Query(
        db.statement(
            "INSERT INTO series (trial, attempt, name, tail_from, sealed, last_step, last_tokens, "
            "last_wall_ms, last_value) VALUES (?, ?, ?, ?, 0, 0, 0, 0, NULL)"),
        point.trial.value, point.attempt, point.name, pending_next_id_)
        .run();
    id = db.db().getLastInsertRowid();
  }
  pending_ids_[attempt][point.name] = id;
  return id;
}

void MetricTail::queue_if_ready(std::int64_t series, Live& live) {
  if (live.queued) return;
  if (live.rows.size() >= kChunkPointsMax || (live.ended && !live.rows.empty())) {
    live.queued = true;
    ready_.push_back(series);
  }
}

void MetricTail::seal(Connection& db, std::int64_t series, const Live& live, std::size_t begin,
                      std::size_t end) {
  std::vector<Point> points;
  points.reserve(end - begin);
  for (std::size_t i = begin; i < end; ++i) points.push_back(live.rows[i].point);
  const std::string data = encode_chunk(points);
  Query(db.statement("INSERT INTO metric_chunk (series, points, data) VALUES (?, ?, ?)"), series,
        static_cast<std::int64_t>(points.size()), Blob{data})
      .run();
  const Point& last = points.back();
  Query(db.statement(
            "UPDATE series SET tail_from = ?, sealed = sealed + ?, last_step = ?, last_tokens = ?, "
            "last_wall_ms = ?, last_value = ? WHERE id = ?"),
        live.rows[end - 1].id + 1, static_cast<std::int64_t>(points.size()), last.step, last.tokens,
        last.wall_ms, last.value, series)
      .run();
  sealed_[series] = end;
}

std::size_t MetricTail::seal_ready(Connection& db, std::int64_t series, std::size_t chunks) {
  const auto found = live_.find(series);
  if (found == live_.end()) return 0;
  const Live& live = found->second;
  std::size_t done = 0;
  std::size_t begin = 0;
  while (done < chunks) {
    const std::size_t left = live.rows.size() - begin;
    if (left == 0 || (left < kChunkPointsMax && !live.ended)) break;
    const std::size_t end = begin + std::min(left, kChunkPointsMax);
    seal(db, series, live, begin, end);
    begin = end;
    ++done;
  }
  return done;
}

void MetricTail::maintain(Connection& db) {
  const std::size_t inflow = pending_rows_.size();
  std::size_t budget = kSealsPerCommit + inflow / kPointsPerSeal;
  while (budget > 0 && ready_taken_ < ready_.size()) {
    budget -= seal_ready(db, ready_[ready_taken_++], budget);
  }
  for (const auto& [first_id, series] : fronts_) {
    if (budget == 0 || pending_next_id_ - first_id <= kTailSpanMax) break;
    if (sealed_.count(series) != 0) continue;
    const Live& live = live_.at(series);
    seal(db, series, live, 0, std::min(live.rows.size(), kChunkPointsMax));
    --budget;
  }
  const std::int64_t limit = front_id_ + kCutRowsMax + 2 * static_cast<std::int64_t>(inflow);
  const std::int64_t front = std::min(front_after(), limit);
  const bool nothing_left = front == pending_next_id_ && front > front_id_;
  if (front - front_id_ >= kCutRowsMin || nothing_left) {
    Query(db.statement("DELETE FROM metric_tail WHERE id < ?"), front).run();
    pending_front_id_ = front;
  }
}

std::int64_t MetricTail::front_after() const {
  std::int64_t front = pending_rows_.empty() ? pending_next_id_ : pending_rows_.front().second.id;
  for (const auto& [first_id, series] : fronts_) {
    if (first_id >= front) break;
    const auto sealed = sealed_.find(series);
    if (sealed == sealed_.end()) return first_id;
    const Live& live = live_.at(series);
    if (sealed->second < live.rows.size()) front = std::min(front, live.rows[sealed->second].id);
  }
  return front;
}

void MetricTail::committed() {
  next_id_ = pending_next_id_;
  front_id_ = pending_front_id_;
  for (auto& [attempt, names] : pending_ids_) ids_[attempt].merge(names);
  std::vector<std::int64_t> taken(ready_.begin(),
                                  ready_.begin() + static_cast<std::ptrdiff_t>(ready_taken_));
  ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(ready_taken_));
  for (const auto& [series, count] : sealed_) {
    Live& live = live_.at(series);
    fronts_.erase(live.rows.front().id);
    live.rows.erase(live.rows.begin(), live.rows.begin() + static_cast<std::ptrdiff_t>(count));
    if (!live.rows.empty()) fronts_[live.rows.front().id] = series;
  }
  for (const auto& [series, row] : pending_rows_) {
    Live& live = live_[series];
    if (live.rows.empty()) fronts_[row.id] = series;
    live.rows.push_back(row);
    queue_if_ready(series, live);
  }
  for (const std::int64_t series : taken) {
    const auto found = live_.find(series);
    if (found == live_.end()) continue;
    found->second.queued = false;
    queue_if_ready(series, found->second);
  }
  for (const AttemptId& attempt : ended_) {
    const auto names = ids_.find(attempt);
    if (names == ids_.end()) continue;
    for (const auto& [name, series] : names->second) {
      const auto found = live_.find(series);
      if (found == live_.end()) continue;
      found->second.ended = true;
      queue_if_ready(series, found->second);
    }
    ids_.erase(names);
  }
  for (const auto& [series, count] : sealed_) {
    const auto found = live_.find(series);
    if (found != live_.end() && found->second.rows.empty() && !found->second.queued)
      live_.erase(found);
  }
  rolled_back();  // nothing is in progress any more
}

void MetricTail::rolled_back() {
  pending_next_id_ = next_id_;
  pending_front_id_ = front_id_;
  pending_rows_.clear();
  pending_ids_.clear();
  sealed_.clear();
  ended_.clear();
  ready_taken_ = 0;
}

}  // namespace tailor::storage
