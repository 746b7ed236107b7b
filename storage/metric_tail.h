// MetricTail: where new metric points go, and how they become chunks. The writer's half;
// internal to storage/.
//
// The points of a batch are appended to metric_tail as one row and remembered here by series. A
// series that has a whole chunk, or whose attempt ended, is ready to be sealed: its points are
// encoded into metric_chunk, whose `tail_to` moves past them. Rows stay in metric_tail until all
// their points and everything before them is sealed and are then cut off at the front in one range.
// A series that holds back the front for too long is
// sealed early. Sealing comes in bursts, so that short chunks share pages, and the more is ready
// the larger the bursts; what is left is drained when nothing else is written.
//
// Invariants: memory holds exactly the committed points of metric_tail that are in no chunk; it
// changes only in `load` and `committed`. So readers take unsealed points from here and never
// search the table.
// Threads: the writer's, but for `live`: any.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/attempt_key.h"
#include "storage/chunk.h"
#include "storage/records.h"
#include "storage/series.h"
#include "storage/sqlite_connection.h"

namespace tailor::storage {

/// The unsealed points of one series.
struct LivePoints {
  SeriesKey series;
  std::string name;
  std::uint64_t sealed = 0;  ///< points of the series that are in chunks: what comes before these
  std::vector<Point> points;
};

struct LiveCurves {
  std::int64_t next_id = 0;  ///< rows of the tail from this id on came later
  std::vector<LivePoints> series;
};

class MetricTail {
 public:
  /// How much a call of `maintain` may do.
  enum class Pace {
    kBatch,  ///< beside a batch: in proportion to it and to what is ready
    kIdle,   ///< a piece on its own
  };

  /// Reads what is unsealed. Throws SQLite::Exception. Called once, first.
  void load(Connection& db);

  // Inside a transaction:
  void add(Connection& db, const MetricPoint& point);
  /// Writes what was added. After the last `add`, before `maintain`.
  void store(Connection& db);
  /// No more points are expected of this attempt.
  void attempt_ended(AttemptId attempt) { ended_.push_back(attempt_key(attempt)); }
  /// Seals and cuts. Only points of earlier commits are touched.
  void maintain(Connection& db, Pace pace);

  // After it:
  void committed();
  void rolled_back();

  /// True when a call of `maintain` at idle pace has something to do.
  bool has_work() const;
  /// Points that are in no chunk.
  std::uint64_t unsealed() const;

  /// The unsealed points of a trial; of one metric when `metric` is given. Of commits that have
  /// returned, at least. Threads: any.
  LiveCurves live(TrialId trial, std::optional<std::string_view> metric) const;

 private:
  struct Row {
    std::int64_t id = 0;
    Point point;
  };
  struct Live {
    std::vector<Row> rows;
    std::uint64_t sealed = 0;  // points in chunks
    bool ended = false;        // its attempt is: what is left is sealed as a short chunk
    bool queued = false;       // in ready_
  };
  using Names = std::map<std::string, std::int64_t, std::less<>>;

  std::int64_t metric_id(Connection& db, const std::string& name);
  void add(Connection& db, SeriesKey series, const Point& point);
  void load_points(Connection& db);
  void load_ends(Connection& db);
  /// Takes over what a migration left of the tail of an older schema.
  void load_older(Connection& db);
  std::uint64_t sealed_of(Connection& db, SeriesKey series);
  void queue_if_ready(SeriesKey series, Live& live);
  /// Writes rows [begin, end) of `live` as one chunk.
  void seal(Connection& db, SeriesKey series, const Live& live, std::size_t begin, std::size_t end);
  /// Seals up to `chunks` chunks of the series; returns how many.
  std::size_t seal_ready(Connection& db, SeriesKey series, std::size_t chunks);
  void seal_early(Connection& db, std::size_t chunks);
  void cut(Connection& db, std::int64_t rows_max);
  /// The first row that will still be needed after this transaction.
  std::int64_t front_after() const;
  void drop_sealed();
  void take_pending();
  void requeue(const std::vector<SeriesKey>& taken);
  void mark_ended();

  // Guards, against readers: names_, live_, next_id_, unsealed_; changed by the writer only.
  mutable std::mutex mutex_;
  Names names_;                     // of metrics
  std::map<SeriesKey, Live> live_;  // series with unsealed rows, or that were given one lately

  std::int64_t next_id_ = 1;   // of metric_tail; never goes back, unlike SQLite's own
  std::int64_t front_id_ = 1;  // no row before it
  std::deque<SeriesKey> ready_;
  bool urgent_ = false;                       // one of them has come to several chunks
  std::map<std::int64_t, SeriesKey> fronts_;  // first row id -> series, of every series with rows
  std::uint64_t unsealed_ = 0;

  // The transaction in progress.
  std::int64_t pending_next_id() const {
    return next_id_ + static_cast<std::int64_t>(pending_rows_.size());
  }
  std::int64_t pending_front_id_ = 1;
  std::vector<TailPoint> pending_rows_;                // numbered from next_id_ on
  std::map<SeriesKey, std::uint64_t> pending_sealed_;  // `sealed` of series that are not live yet
  Names pending_names_;
  std::map<SeriesKey, std::size_t> sealed_;  // series -> rows, from its first
  std::size_t ready_taken_ = 0;
  std::vector<std::int64_t> ended_;
};

}  // namespace tailor::storage
