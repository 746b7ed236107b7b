// The tail of metric points and its sealing.
#include "storage/metric_tail.h"

#include <algorithm>
#include <span>

#include "storage/chunk_format.h"

namespace tailor::storage {
namespace {

// Series that are ready before a batch seals any: short chunks then share pages.
constexpr std::size_t kBurst = 64;
constexpr std::size_t kUrgentPoints = 2 * kChunkPointsMax;  // of one series: no need for others
constexpr std::size_t kSealsMax = 512;      // in one batch; a seal costs 0.01 to 0.03 ms
constexpr std::size_t kPointsPerSeal = 64;  // of a batch, for one more seal: four times the inflow
constexpr std::size_t kReadyPerSeal = 8;    // waiting series, for one more seal
constexpr std::int64_t kTailSpanMax = 65'536;  // ids between front and end, before seals come early
constexpr std::int64_t kCutRowsMin = 512;      // do not touch the front for less
// And not for more in one batch, beside twice the inflow.
constexpr std::int64_t kCutRowsMax = 4'096;
constexpr std::int64_t kCutRowsIdleMax = 32'768;

}  // namespace

void MetricTail::load(Connection& db) {
  {
    Query metrics(db.statement("SELECT id, name FROM metric"));
    while (metrics.next()) names_[metrics.text(1)] = metrics.integer(0);
  }
  load_points(db);
  std::erase_if(live_, [](const auto& entry) { return entry.second.rows.empty(); });
  load_ends(db);
  load_older(db);
}

void MetricTail::load_points(Connection& db) {
  {
    Query given(db.statement("SELECT tail_next FROM upkeep"));
    if (!given.next()) throw_corrupt("the row of the store's upkeep is missing");
    next_id_ = given.integer(0);
  }
  front_id_ = 0;
  std::map<SeriesKey, std::int64_t> sealed_to;
  Query rows(db.statement("SELECT id, data FROM metric_tail ORDER BY id"));
  while (rows.next()) {
    const Result<std::vector<TailPoint>> points = decode_tail(rows.text(1));
    if (!points) throw_corrupt(points.error().message());
    std::int64_t id = rows.integer(0);
    if (front_id_ == 0) front_id_ = id;
    for (const TailPoint& one : *points) {
      const auto [known, is_new] = sealed_to.try_emplace(one.series, 0);
      if (is_new) {
        Query last(db.statement("SELECT tail_to, sealed FROM metric_chunk WHERE attempt = ? AND "
                                "metric = ? ORDER BY id DESC LIMIT 1"),
                   one.series.attempt, one.series.metric);
        if (last.next()) {
          known->second = last.integer(0);
          live_[one.series].sealed = last.u64(1);
        }
      }
      if (id >= known->second) {
        Live& live = live_[one.series];
        if (live.rows.empty()) fronts_[id] = one.series;
        live.rows.push_back({id, one.point});
        ++unsealed_;
      }
      ++id;
    }
    next_id_ = std::max(next_id_, id);
  }
  if (front_id_ == 0) front_id_ = next_id_;
  pending_front_id_ = front_id_;
}

void MetricTail::load_ends(Connection& db) {
  std::int64_t attempt = 0;
  bool ended = false;
  for (auto& [series, live] : live_) {
    if (series.attempt != attempt) {
      attempt = series.attempt;
      Query owner(db.statement("SELECT state = 'ended' FROM attempt WHERE id = ?"), attempt);
      if (!owner.next()) throw_corrupt("metric points without their attempt");
      ended = owner.integer(0) != 0;
    }
    live.ended = ended;
    queue_if_ready(series, live);
  }
}

void MetricTail::load_older(Connection& db) {
  Query(db.statement("BEGIN IMMEDIATE")).run();
  {
    Query rows(
        db.statement("SELECT attempt, metric, step, tokens, wall_ms, value FROM "
                     "metric_tail_before_005 ORDER BY id"));
    while (rows.next()) {
      add(db, {rows.integer(0), rows.integer(1)},
          {rows.integer(2), rows.integer(3), rows.integer(4), rows.real(5)});
    }
  }
  if (!pending_rows_.empty()) {
    store(db);
    Query(db.statement("DELETE FROM metric_tail_before_005")).run();
  }
  Query(db.statement("COMMIT")).run();
  if (pending_rows_.empty()) return;
  committed();
  load_ends(db);
}

std::int64_t MetricTail::metric_id(Connection& db, const std::string& name) {
  for (const Names* names : {&names_, &pending_names_}) {
    if (const auto found = names->find(name); found != names->end()) return found->second;
  }
  Query(db.statement("INSERT INTO metric (name) VALUES (?)"), name).run();
  const std::int64_t id = db.db().getLastInsertRowid();
  pending_names_[name] = id;
  return id;
}

std::uint64_t MetricTail::sealed_of(Connection& db, SeriesKey series) {
  Query last(db.statement("SELECT sealed FROM metric_chunk WHERE attempt = ? AND metric = ? "
                          "ORDER BY id DESC LIMIT 1"),
             series.attempt, series.metric);
  return last.next() ? last.u64(0) : 0;
}

void MetricTail::add(Connection& db, const MetricPoint& point) {
  add(db, {attempt_key({point.trial, point.attempt}), metric_id(db, point.name)},
      {point.step, point.tokens, point.wall_ms, point.value});
}

void MetricTail::add(Connection& db, SeriesKey series, const Point& point) {
  const bool same = !pending_rows_.empty() && pending_rows_.back().series == series;
  if (!same && !live_.contains(series) && !pending_sealed_.contains(series)) {
    pending_sealed_[series] = sealed_of(db, series);
  }
  pending_rows_.push_back({series, point});
}

void MetricTail::store(Connection& db) {
  const std::span<const TailPoint> points(pending_rows_);
  for (std::size_t at = 0; at < points.size(); at += kTailPointsMax) {
    const auto part = points.subspan(at, std::min(kTailPointsMax, points.size() - at));
    const std::string data = encode_tail(part);
    Query(db.statement("INSERT INTO metric_tail (id, data) VALUES (?, ?)"),
          next_id_ + static_cast<std::int64_t>(at), Blob{data})
        .run();
  }
}

void MetricTail::queue_if_ready(SeriesKey series, Live& live) {
  if (live.queued) return;
  if (live.rows.size() >= kChunkPointsMax || (live.ended && !live.rows.empty())) {
    live.queued = true;
    ready_.push_back(series);
  }
}

void MetricTail::seal(Connection& db, SeriesKey series, const Live& live, std::size_t begin,
                      std::size_t end) {
  std::vector<Point> points;
  points.reserve(end - begin);
  for (std::size_t i = begin; i < end; ++i) points.push_back(live.rows[i].point);
  const std::string data = encode_chunk(points);
  Query(db.statement("INSERT INTO metric_chunk (attempt, metric, sealed, tail_to, data) "
                     "VALUES (?, ?, ?, ?, ?)"),
        series.attempt, series.metric, live.sealed + end, live.rows[end - 1].id + 1, Blob{data})
      .run();
  sealed_[series] = end;
}

std::size_t MetricTail::seal_ready(Connection& db, SeriesKey series, std::size_t chunks) {
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

void MetricTail::seal_early(Connection& db, std::size_t chunks) {
  for (const auto& [first_id, series] : fronts_) {
    if (chunks == 0 || pending_next_id() - first_id <= kTailSpanMax) break;
    if (sealed_.contains(series)) continue;
    const Live& live = live_.at(series);
    seal(db, series, live, 0, std::min(live.rows.size(), kChunkPointsMax));
    --chunks;
  }
}

void MetricTail::maintain(Connection& db, Pace pace) {
  const std::size_t inflow = pending_rows_.size();
  const std::size_t paced =
      std::max({kBurst, inflow / kPointsPerSeal, ready_.size() / kReadyPerSeal});
  if (pace == Pace::kIdle || ready_.size() >= kBurst || urgent_) {
    std::size_t budget = pace == Pace::kIdle ? kSealsMax / 2 : std::min(paced, kSealsMax);
    while (budget > 0 && ready_taken_ < ready_.size()) {
      budget -= seal_ready(db, ready_[ready_taken_++], budget);
    }
  }
  seal_early(db, kBurst / 4 + inflow / kPointsPerSeal);
  cut(db,
      pace == Pace::kIdle ? kCutRowsIdleMax : kCutRowsMax + 2 * static_cast<std::int64_t>(inflow));
}

void MetricTail::cut(Connection& db, std::int64_t rows_max) {
  const std::int64_t front = std::min(front_after(), front_id_ + rows_max);
  // Then nothing is pending either: what comes now is needed.
  const bool nothing_left = front == pending_next_id() && front > front_id_;
  if (front - front_id_ < kCutRowsMin && !nothing_left) return;
  if (nothing_left) {
    Query(db.statement("DELETE FROM metric_tail")).run();
  } else {
    // A row goes with the last of its points.
    Query(db.statement("DELETE FROM metric_tail WHERE id < "
                       "(SELECT max(id) FROM metric_tail WHERE id <= ?)"),
          front)
        .run();
  }
  // Where the table runs empty, only this says which ids were given out.
  Query(db.statement("UPDATE upkeep SET tail_next = ?"), pending_next_id()).run();
  pending_front_id_ = front;
}

std::int64_t MetricTail::front_after() const {
  std::int64_t front = next_id_;  // of what is pending, if anything is
  for (const auto& [first_id, series] : fronts_) {
    if (first_id >= front) break;
    const auto sealed = sealed_.find(series);
    if (sealed == sealed_.end()) return first_id;
    const Live& live = live_.at(series);
    if (sealed->second < live.rows.size()) front = std::min(front, live.rows[sealed->second].id);
  }
  return front;
}

void MetricTail::drop_sealed() {
  for (const auto& [series, count] : sealed_) {
    Live& live = live_.at(series);
    fronts_.erase(live.rows.front().id);
    live.rows.erase(live.rows.begin(), live.rows.begin() + static_cast<std::ptrdiff_t>(count));
    live.sealed += count;
    unsealed_ -= count;
    if (!live.rows.empty()) fronts_[live.rows.front().id] = series;
  }
}

void MetricTail::take_pending() {
  for (const auto& [series, sealed] : pending_sealed_) live_[series].sealed = sealed;
  std::int64_t id = next_id_;
  SeriesKey series;
  Live* live = nullptr;
  for (const TailPoint& one : pending_rows_) {
    if (live == nullptr || one.series != series) {
      series = one.series;
      live = &live_[series];
    }
    if (live->rows.empty()) fronts_[id] = series;
    live->rows.push_back({id++, one.point});
    urgent_ = urgent_ || live->rows.size() >= kUrgentPoints;
    queue_if_ready(series, *live);
  }
  unsealed_ += pending_rows_.size();
}

void MetricTail::requeue(const std::vector<SeriesKey>& taken) {
  for (const SeriesKey series : taken) {
    const auto found = live_.find(series);
    if (found == live_.end()) continue;
    found->second.queued = false;
    queue_if_ready(series, found->second);
  }
}

void MetricTail::mark_ended() {
  for (const std::int64_t attempt : ended_) {
    for (auto it = live_.lower_bound({attempt, 0});
         it != live_.end() && it->first.attempt == attempt; ++it) {
      it->second.ended = true;
      queue_if_ready(it->first, it->second);
    }
  }
}

void MetricTail::committed() {
  const std::lock_guard lock(mutex_);
  front_id_ = pending_front_id_;
  names_.merge(pending_names_);
  const auto taken_end = ready_.begin() + static_cast<std::ptrdiff_t>(ready_taken_);
  const std::vector<SeriesKey> taken(ready_.begin(), taken_end);
  ready_.erase(ready_.begin(), taken_end);
  if (ready_taken_ > 0) urgent_ = false;
  drop_sealed();
  take_pending();
  next_id_ = pending_next_id();
  requeue(taken);
  mark_ended();
  for (const auto& [series, count] : sealed_) {
    const auto found = live_.find(series);
    if (found != live_.end() && found->second.rows.empty() && !found->second.queued)
      live_.erase(found);
  }
  rolled_back();  // nothing is in progress any more
}

void MetricTail::rolled_back() {
  pending_front_id_ = front_id_;
  pending_rows_.clear();
  pending_sealed_.clear();
  pending_names_.clear();
  sealed_.clear();
  ended_.clear();
  ready_taken_ = 0;
}

bool MetricTail::has_work() const {
  // Sealed rows that wait to be cut lie before the first row that is still needed.
  const std::int64_t front = fronts_.empty() ? next_id_ : fronts_.begin()->first;
  const bool nothing_left = fronts_.empty() && front > front_id_;
  return !ready_.empty() || nothing_left || front - front_id_ >= kCutRowsMin;
}

std::uint64_t MetricTail::unsealed() const {
  const std::lock_guard lock(mutex_);
  return unsealed_;
}

LiveCurves MetricTail::live(TrialId trial, std::optional<std::string_view> metric) const {
  LiveCurves found;
  const std::lock_guard lock(mutex_);
  found.next_id = next_id_;
  if (trial.value > kAttemptTrialMax) return found;
  std::int64_t wanted = 0;
  if (metric) {
    const auto named = names_.find(*metric);
    if (named == names_.end()) return found;
    wanted = named->second;
  }
  for (auto it = live_.lower_bound({first_attempt_key(trial), 0});
       it != live_.end() && it->first.attempt < end_attempt_key(trial); ++it) {
    if (metric && it->first.metric != wanted) continue;
    LivePoints part{it->first, {}, it->second.sealed, {}};
    part.points.reserve(it->second.rows.size());
    for (const Row& row : it->second.rows) part.points.push_back(row.point);
    found.series.push_back(std::move(part));
  }
  if (found.series.empty()) return found;
  for (const auto& [name, id] : names_) {
    for (LivePoints& part : found.series) {
      if (part.series.metric == id) part.name = name;
    }
  }
  return found;
}

}  // namespace tailor::storage
