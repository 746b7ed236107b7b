#include "coordinator/http/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text.h"

namespace tailor::http {
namespace {

Result<Json> list_routes(const engine::Views&, const Arguments&) { return routes_json(); }

constexpr Route kRoutes[] = {
    {"GET", "/api/v1", "", list_routes, "these routes"},
    {"GET", "/api/v1/sweeps", "offset limit", list_sweeps,
     "sweeps with their trials by state: of the newest `limit` (1,000) behind `offset`, by id"},
    {"GET", "/api/v1/sweeps/{sweep}", "offset limit", get_sweep,
     "one sweep (name, id or \"last\"), a page of its candidates, the beginning of its file"},
    {"GET", "/api/v1/sweeps/{sweep}/file", "", get_sweep_file, "its file, whole"},
    {"GET", "/api/v1/trials", "sweep state offset limit order descending after", list_trials,
     "a page of trials; with after=ID (order id) those behind one, which costs the same anywhere"},
    {"GET", "/api/v1/trials/{trial}", "offset limit", get_trial,
     "one trial: candidate, profile, and a page of its attempts and checkpoints (from the newest "
     "back) and of its metrics"},
    {"GET", "/api/v1/trials/{trial}/log", "attempt offset bytes", get_log,
     "a piece of a log; without offset the end of it"},
    {"GET", "/api/v1/trials/{trial}/why", "", get_why,
     "why it is in its state: a sentence, a code, since when"},
    {"GET", "/api/v1/series", "trial metric points", get_series,
     "a curve, thinned to about so many points (500; at most 10,000)"},
    {"GET", "/api/v1/compare",
     "sweep baseline objective order descending offset limit differences ratio_to fresh",
     get_compare,
     "a page of the paired differences from a baseline, 100 kB at most: next_offset tells the "
     "next. A table that takes long is the last one with its age (current, age_ms); fresh=1 waits "
     "for a new one"},
    {"GET", "/api/v1/scaling", "sweep baseline objective", get_scaling,
     "of a sweep with [scaling]: the law over sizes of each family, and its compute-efficiency "
     "gain"},
    {"GET", "/api/v1/workers", "offset limit", list_workers, "a page of workers and what they run"},
    {"GET", "/api/v1/events", "after limit sweep trial tail", list_events,
     "a page of events after an id; or with tail=N the last N (of the sweep, of the trial)"},
};

/// The parts that stand for {...}; nullopt when the path is another one.
std::optional<std::vector<std::string_view>> match(std::string_view pattern,
                                                   const std::vector<std::string>& given) {
  const std::vector<std::string_view> wanted = split(pattern.substr(1), '/');
  if (wanted.size() != given.size()) return std::nullopt;
  std::vector<std::string_view> values;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].starts_with('{')) {
      values.emplace_back(given[i]);
    } else if (wanted[i] != given[i]) {
      return std::nullopt;
    }
  }
  return values;
}

/// An unknown parameter is a mistake worth an answer.
Status check_keys(const Route& route, const Request& request) {
  const std::vector<std::string_view> allowed =
      route.keys.empty() ? std::vector<std::string_view>() : split(route.keys, ' ');
  for (const auto& [key, value] : request.query) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    return {Code::kInvalidArgument,
            fmt::format("unknown parameter \"{}\"; allowed: {}", key,
                        allowed.empty() ? "none" : fmt::format("{}", fmt::join(allowed, ", ")))};
  }
  return Status::ok();
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

Json routes_json() {
  Json list = Json::array();
  for (const Route& route : kRoutes) {
    list.push_back({{"method", route.method},
                    {"path", route.pattern},
                    {"parameters", route.keys},
                    {"answer", route.doc}});
  }
  return Json{{"routes", std::move(list)}};
}

Result<Json> answer(const engine::Views& views, const Request& request) {
  // Views on both sides: a choice between a literal and a string would be a string that ends here.
  const std::string_view method =
      request.method == "HEAD" ? std::string_view("GET") : std::string_view(request.method);
  for (const Route& route : kRoutes) {
    if (route.method != method) continue;
    auto values = match(route.pattern, request.parts);
    if (!values.has_value()) continue;
    TAILOR_RETURN_IF_ERROR(check_keys(route, request));
    return route.handle(views, {request, *std::move(values)});
  }
  return error(Code::kNotFound,
               "no such resource; there are sweeps, trials, series, compare, workers and events "
               "under /api/v1");
}

}  // namespace tailor::http
