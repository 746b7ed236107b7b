// EventIndex: which events are about which sweep and trial. Kept in two tables that are filled in
// pieces after the events: an index would cost a page or two in every batch. Internal to storage/.
// Throws SQLite::Exception. Threads: the writer's; `read_events`: the connection's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "storage/records.h"
#include "storage/sqlite_connection.h"

namespace tailor::storage {

class EventIndex {
 public:
  void load(Connection& db);

  // Inside a transaction:
  void added(std::int64_t id) { pending_last_ = id; }
  /// Indexes many events at once, or none; `all`: what there is, up to a piece.
  void maintain(Connection& db, bool all);

  // After it:
  void committed();
  void rolled_back();

  bool has_work() const { return last_ > indexed_; }
  /// Events up to this id are indexed.
  std::int64_t indexed() const { return indexed_; }

 private:
  std::int64_t last_ = 0;
  std::int64_t indexed_ = 0;
  std::int64_t pending_last_ = 0;
  std::int64_t pending_indexed_ = 0;
};

/// As Store::events. REQUIRES: a read transaction, so that index and events belong together.
std::vector<EventRow> read_events(Connection& db, std::uint64_t after, std::size_t limit,
                                  std::optional<SweepId> sweep, std::optional<TrialId> trial);

}  // namespace tailor::storage
