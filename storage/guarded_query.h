// A user's SQL on a connection that can do nothing but read tables. Internal to storage/.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "storage/store.h"

namespace tailor::storage {

/// Store::query on the database file `path`, on a connection of its own. Beside the schema's views
/// there is metric_view(trial, attempt, metric, step, tokens, wall_ms, value): every stored point.
/// Threads: any.
Result<Table> guarded_query(const std::string& path, std::string_view sql,
                            const QueryLimits& limits, const Clock& clock);

}  // namespace tailor::storage
