// Pages of trials.
//
// A page of one sweep is put together from runs, each of which an index gives in order: by
// objective these are the finite ones, then NaN, then the missing; by state one for each state.
// `offset` is spent on whole runs by their counts.
#include "storage/trial_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "storage/sqlite_rows.h"

namespace tailor::storage {
namespace {

constexpr auto kSignedMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
constexpr TrialState kStates[] = {TrialState::kQueued,    TrialState::kRunning,
                                  TrialState::kCompleted, TrialState::kStopped,
                                  TrialState::kFailed,    TrialState::kCancelled};

// Parameters of every text: ?1 sweep, ?2 state ('' = any), ?3 limit, ?4 offset, ?5 after.
struct Cursor {
  std::uint64_t sweep = 0;
  std::string_view state;
  std::uint64_t limit = 0;
  std::uint64_t offset = 0;
  std::uint64_t after = 0;
};

std::uint64_t count_where(Connection& db, const Cursor& cursor, std::string_view rest) {
  Query query(db.statement(sql_text("SELECT count(*) FROM trial", rest)), cursor.sweep,
              cursor.state);
  query.next();
  return query.u64(0);
}

/// Appends rows of one run and takes what it gave, or could have given, off the cursor.
void take(Connection& db, Cursor& cursor, std::string_view rest, std::vector<TrialRow>& rows) {
  if (cursor.limit == 0) return;
  Query query(db.statement(sql_text(kTrialColumns, rest)), cursor.sweep, cursor.state, cursor.limit,
              cursor.offset, cursor.after);
  while (query.next()) {
    rows.push_back(trial_of(query));
    --cursor.limit;
  }
}

/// The index that gives the trials of one state by id.
std::string_view by_id(std::string_view state) {
  if (state == "queued" || state == "running") {
    return "INDEXED BY trial_open WHERE sweep = ?1 AND state = ?2 AND "
           "(state = 'queued' OR state = 'running')";
  }
  if (state == "stopped" || state == "failed" || state == "cancelled") {
    return "INDEXED BY trial_unsuccessful WHERE sweep = ?1 AND state = ?2 AND "
           "(state = 'stopped' OR state = 'failed' OR state = 'cancelled')";
  }
  return "INDEXED BY trial_by_sweep WHERE sweep = ?1 AND (?2 = '' OR state = ?2)";
}

std::string page_of(std::string_view where, std::string_view order) {
  // What is skipped is skipped in the index: only the page's rows are read. ?5 stands in every
  // text, since it is bound for every text.
  return fmt::format(
      "WHERE id IN (SELECT id FROM trial {0} AND ?5 >= 0 ORDER BY {1} LIMIT ?3 OFFSET ?4) "
      "ORDER BY {1}",
      where, order);
}

void take_by_id(Connection& db, Cursor& cursor, bool descending, bool keyset,
                std::vector<TrialRow>& rows) {
  std::string where(by_id(cursor.state));
  if (keyset) where += descending ? " AND id < ?5" : " AND id > ?5";
  take(db, cursor, page_of(where, descending ? "id DESC" : "id"), rows);
}

void take_by_state(Connection& db, Cursor& cursor, bool descending, const TrialCounts& counts,
                   std::vector<TrialRow>& rows) {
  std::vector<TrialState> order(std::begin(kStates), std::end(kStates));
  if (descending) std::reverse(order.begin(), order.end());
  for (const TrialState state : order) {
    if (!cursor.state.empty() && cursor.state != trial_state_name(state)) continue;
    const std::uint64_t count = counts.of(state);
    if (cursor.offset >= count) {
      cursor.offset -= count;
      continue;
    }
    Cursor run = cursor;
    run.state = trial_state_name(state);
    take_by_id(db, run, false, false, rows);
    cursor.limit = run.limit;
    cursor.offset = 0;
  }
}

void take_by_objective(Connection& db, Cursor& cursor, bool descending,
                       std::vector<TrialRow>& rows) {
  constexpr std::string_view kFinite =
      "INDEXED BY trial_by_objective WHERE sweep = ?1 AND objective IS NOT NULL AND "
      "(?2 = '' OR state = ?2)";
  constexpr std::string_view kNaN =
      "INDEXED BY trial_objective_nan WHERE sweep = ?1 AND objective_nan = 1 AND "
      "(?2 = '' OR state = ?2)";
  const std::string missing =
      std::string(by_id(cursor.state)) + " AND objective IS NULL AND objective_nan = 0";
  const struct {
    std::string_view where;
    std::string_view order;
    bool last;
  } runs[] = {{kFinite, descending ? "objective DESC, id" : "objective, id", false},
              {kNaN, "id", false},
              {missing, "id", true}};
  for (const auto& run : runs) {
    if (cursor.offset > 0 && !run.last) {
      const std::uint64_t count = count_where(db, cursor, run.where);
      if (cursor.offset >= count) {
        cursor.offset -= count;
        continue;
      }
    }
    take(db, cursor, page_of(run.where, run.order), rows);
    cursor.offset = 0;
  }
}

void take_by_candidate(Connection& db, Cursor& cursor, bool descending,
                       std::vector<TrialRow>& rows) {
  take(db, cursor,
       page_of("INDEXED BY sqlite_autoindex_trial_1 WHERE sweep = ?1 AND (?2 = '' OR state = ?2)",
               descending ? "candidate DESC, seed < 0 DESC, seed DESC, id"
                          : "candidate, seed < 0, seed, id"),
       rows);
}

/// Over all sweeps: rare, and looks at all trials for every order but that by id.
void take_of_all(Connection& db, Cursor& cursor, const TrialQuery& query,
                 std::vector<TrialRow>& rows) {
  std::string where = "WHERE ?1 = 0 AND (?2 = '' OR state = ?2)";
  if (query.after) where += query.descending ? " AND id < ?5" : " AND id > ?5";
  std::string order = query.descending ? "id DESC" : "id";
  if (query.order == "objective") {
    order = fmt::format("objective IS NULL, objective_nan DESC, objective{}, id",
                        query.descending ? " DESC" : "");
  } else if (query.order == "state") {
    // In the order of the life of a trial, as TrialState lists them.
    order = fmt::format("instr('queued running completed stopped failed cancelled', state){}, id",
                        query.descending ? " DESC" : "");
  } else if (query.order == "candidate") {
    order = query.descending ? "sweep DESC, candidate DESC, seed < 0 DESC, seed DESC, id"
                             : "sweep, candidate, seed < 0, seed, id";
  }
  take(db, cursor, page_of(where, order), rows);
}

TrialCounts counts_of(Query& row) {
  TrialCounts counts;
  for (const TrialState state : kStates) {
    counts.by_state[static_cast<std::size_t>(state)] = row.u64(static_cast<int>(state));
  }
  return counts;
}

}  // namespace

TrialCounts read_all_trial_counts(Connection& db) {
  Query query(
      db.statement("SELECT coalesce(sum(queued), 0), coalesce(sum(running), 0), "
                   "coalesce(sum(completed), 0), coalesce(sum(stopped), 0), "
                   "coalesce(sum(failed), 0), coalesce(sum(cancelled), 0) "
                   "FROM trial_count"));
  query.next();
  return counts_of(query);
}

TrialCounts read_trial_counts(Connection& db, SweepId sweep) {
  Query query(db.statement("SELECT queued, running, completed, stopped, failed, cancelled "
                           "FROM trial_count WHERE sweep = ?"),
              sweep.value);
  return query.next() ? counts_of(query) : TrialCounts();
}

TrialPage read_trials(Connection& db, const TrialQuery& query) {
  Cursor cursor{query.sweep ? query.sweep->value : 0,
                query.state ? trial_state_name(*query.state) : "", query.limit,
                std::min(query.offset, kSignedMax),
                query.after ? std::min(query.after->value, kSignedMax) : 0};
  const TrialCounts counts =
      query.sweep ? read_trial_counts(db, *query.sweep) : read_all_trial_counts(db);
  TrialPage page;
  if (query.count) page.total = query.state ? counts.of(*query.state) : counts.total();
  if (!query.sweep) {
    take_of_all(db, cursor, query, page.trials);
  } else if (query.order == "objective") {
    take_by_objective(db, cursor, query.descending, page.trials);
  } else if (query.order == "state") {
    take_by_state(db, cursor, query.descending, counts, page.trials);
  } else if (query.order == "candidate") {
    take_by_candidate(db, cursor, query.descending, page.trials);
  } else {
    take_by_id(db, cursor, query.descending, query.after.has_value(), page.trials);
  }
  return page;
}

}  // namespace tailor::storage
