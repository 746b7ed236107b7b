// The routes of the JSON API: one table (private to coordinator/http). Handlers are in *_routes.cc,
// by noun.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "coordinator/engine/views.h"
#include "coordinator/http/arguments.h"

namespace tailor::http {

struct Route {
  std::string_view method;   ///< "GET" (answers HEAD too)
  std::string_view pattern;  ///< "/api/v1/trials/{trial}/log": {...} stands for one part, any text
  std::string_view keys;     ///< query parameters, separated by spaces; any other one is refused
  /// Threads: any; may block for a short read.
  Result<Json> (*handle)(const engine::Views& views, const Arguments& arguments);
  std::string_view doc;  ///< what it answers with, a line
};

std::span<const Route> routes();

/// The table as JSON, for whoever looks for a way in.
Json routes_json();

/// Finds the route, checks the parameters and runs it. Errors: kNotFound, kInvalidArgument, and the
/// handler's.
Result<Json> answer(const engine::Views& views, const Request& request);

// The handlers, one a route.
Result<Json> list_sweeps(const engine::Views& views, const Arguments& arguments);
Result<Json> get_sweep(const engine::Views& views, const Arguments& arguments);
Result<Json> get_sweep_file(const engine::Views& views, const Arguments& arguments);
Result<Json> get_compare(const engine::Views& views, const Arguments& arguments);
Result<Json> get_scaling(const engine::Views& views, const Arguments& arguments);
Result<Json> list_trials(const engine::Views& views, const Arguments& arguments);
Result<Json> get_trial(const engine::Views& views, const Arguments& arguments);
Result<Json> get_log(const engine::Views& views, const Arguments& arguments);
Result<Json> get_why(const engine::Views& views, const Arguments& arguments);
Result<Json> get_series(const engine::Views& views, const Arguments& arguments);
Result<Json> list_workers(const engine::Views& views, const Arguments& arguments);
Result<Json> list_events(const engine::Views& views, const Arguments& arguments);

}  // namespace tailor::http
