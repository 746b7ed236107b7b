// MetricTail: where new metric points go, and how they become chunks. The writer's half;
// internal to storage/.
//
// Points are appended to metric_tail in order of arrival and remembered here by series. A series
// that has a whole chunk, or whose attempt ended, is sealed: its points are encoded into
// metric_chunk and series.tail_from moves past them. Sealed rows stay in metric_tail until
// everything before them is sealed too and are then cut off at the front in one range: deleting
// them one by one would dirty a page per row. A series that holds back the front for too long is
// sealed early. All of it a little per commit.
//
// Invariants: memory holds exactly the committed rows of metric_tail with id >= their series'
// tail_from; it changes only in `committed`. Threads: the writer's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "storage/records.h"
#include "storage/series.h"
#include "storage/sqlite_connection.h"

namespace tailor::storage {

class MetricTail {
 public:
  /// Reads what is unsealed. Throws SQLite::Exception.
  void load(Connection& db);

  // Inside the batch's transaction:
  void add(Connection& db, const MetricPoint& point);
  /// No more points are expected of this attempt.
  void attempt_ended(AttemptId attempt) { ended_.push_back(attempt); }
  /// Seals and cuts a little, in proportion to the batch.
  /// Only points of earlier commits are touched.
  void maintain(Connection& db);

  // After it:
  void committed();
  void rolled_back();

 private:
  struct Row {
    std::int64_t id = 0;
    Point point;
  };
  struct Live {
    std::deque<Row> rows;
    bool ended = false;   // its attempt is: what is left is sealed as a short chunk
    bool queued = false;  // in ready_
  };
  using Ids = std::map<AttemptId, std::map<std::string, std::int64_t, std::less<>>>;

  std::int64_t series_id(Connection& db, const MetricPoint& point);
  void queue_if_ready(std::int64_t series, Live& live);
  /// Writes rows [begin, end) of `live` as one chunk.
  void seal(Connection& db, std::int64_t series, const Live& live, std::size_t begin,
            std::size_t end);
  /// Seals up to `chunks` chunks of the series; returns how many.
  std::size_t seal_ready(Connection& db, std::int64_t series, std::size_t chunks);
  /// The first row that will still be needed after this transaction.
  std::int64_t front_after() const;

  std::int64_t next_id_ = 1;   // of metric_tail; never goes back, unlike SQLite's own
  std::int64_t front_id_ = 1;  // no row before it
  Ids ids_;                    // series of attempts that have not ended
  std::unordered_map<std::int64_t, Live> live_;
  std::deque<std::int64_t> ready_;
  std::map<std::int64_t, std::int64_t>
      fronts_;  // first row id -> series, of every series with rows

  // The transaction in progress.
  std::int64_t pending_next_id_ = 1;
  std::int64_t pending_front_id_ = 1;
  std::vector<std::pair<std::int64_t, Row>> pending_rows_;
  Ids pending_ids_;
  std::unordered_map<std::int64_t, std::size_t> sealed_;  // series -> rows, from its first
  std::size_t ready_taken_ = 0;
  std::vector<AttemptId> ended_;
};

}  // namespace tailor::storage
