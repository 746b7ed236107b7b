// Pages of trials by every order that a list may have, without looking through all trials of a
// sweep. Internal to storage/. Throws SQLite::Exception. Threads: the connection's.
#pragma once

#include "storage/sqlite_connection.h"
#include "storage/store.h"

namespace tailor::storage {

/// REQUIRES: check_trial_query; a read transaction.
TrialPage read_trials(Connection& db, const TrialQuery& query);

/// Of all sweeps together.
TrialCounts read_all_trial_counts(Connection& db);
/// Of one sweep; all 0 for an unknown one.
TrialCounts read_trial_counts(Connection& db, SweepId sweep);

}  // namespace tailor::storage
