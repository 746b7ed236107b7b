// Trials, their curves and logs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/http/routes.h"

namespace tailor::http {
namespace {

constexpr std::uint64_t kTrialsPage = 100;
constexpr std::uint64_t kTrialsPageMax = 1'000;
constexpr std::uint64_t kPoints = 500;
constexpr std::uint64_t kPointsMax = 10'000;
constexpr std::uint64_t kLogBytes = 64 * 1024;
constexpr std::uint64_t kLogBytesMax = 1 << 20;
constexpr std::uint64_t kPartsPage = 200;  // attempts and checkpoints of a trial
constexpr std::uint64_t kPartsPageMax = 1'000;
constexpr std::uint64_t kMetricNamesMax = 1'000;

/// A page that is counted from the newest, the last one, back; in the list's order.
template <typename Row>
Json newest_of(const std::vector<Row>& rows, std::uint64_t offset, std::uint64_t limit) {
  const std::vector<Row> back(rows.rbegin(), rows.rend());
  Json page = page_of(back, offset, limit);
  std::reverse(page.begin(), page.end());
  return page;
}

Json names_of(const std::vector<std::string>& names, std::uint64_t offset) {
  Json page = Json::array();
  for (std::uint64_t i = offset; i < names.size() && page.size() < kMetricNamesMax; ++i) {
    page.push_back(names[i]);
  }
  return page;
}

}  // namespace

Result<Json> list_trials(const engine::Views& views, const Arguments& arguments) {
  const Request& request = arguments.request;
  storage::TrialQuery query;
  if (const auto sweep = text_of(request, "sweep"); !sweep.empty()) {
    TAILOR_ASSIGN_OR_RETURN(query.sweep, views.find_sweep(sweep));
  }
  if (const auto state = text_of(request, "state"); !state.empty()) {
    TAILOR_ASSIGN_OR_RETURN(query.state, storage::parse_trial_state(state));
  }
  if (const auto order = text_of(request, "order"); !order.empty()) query.order = order;
  if (query.order != "id" && query.order != "objective" && query.order != "state" &&
      query.order != "candidate") {
    return error(Code::kInvalidArgument,
                 fmt::format("cannot order by \"{}\"; allowed: id, objective, state, candidate",
                             query.order));
  }
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t descending, number_of(request, "descending", 0, 1));
  query.descending = descending != 0;
  TAILOR_ASSIGN_OR_RETURN(query.offset, number_of(request, "offset", 0, std::uint64_t{1} << 40));
  TAILOR_ASSIGN_OR_RETURN(query.limit, limit_of(request, kTrialsPage, kTrialsPageMax));
  if (const auto after = text_of(request, "after"); !after.empty()) {
    TAILOR_ASSIGN_OR_RETURN(query.after, trial_of(after));
    query.count = false;
  }
  TAILOR_ASSIGN_OR_RETURN(const auto page, views.trials(query));
  Json trials = page_of(page.trials, 0, query.limit);
  const std::uint64_t given = trials.size();
  const bool more = given < page.trials.size() ||
                    (query.after ? given == query.limit && given > 0
                                 : engine::is_more(query.offset, given, page.total));
  return Json{{"trials", std::move(trials)},
              {"total", query.after ? Json(nullptr) : Json(page.total)},
              {"offset", query.offset},
              {"limit", query.limit},
              {"more", more}};
}

Result<Json> get_trial(const engine::Views& views, const Arguments& arguments) {
  const Request& request = arguments.request;
  TAILOR_ASSIGN_OR_RETURN(const TrialId id, trial_of(arguments.path[0]));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t offset,
                          number_of(request, "offset", 0, std::uint64_t{1} << 40));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t limit, limit_of(request, kPartsPage, kPartsPageMax));
  TAILOR_ASSIGN_OR_RETURN(const auto detail, views.trial(id));
  Json profile = page_of(detail.profile, 0, detail.profile.size());
  const bool profile_more = profile.size() < detail.profile.size();
  Json candidate = to_json(detail.candidate);
  candidate["architecture"] = parsed(detail.candidate.architecture_json);
  return Json{{"trial", to_json(detail.trial)},
              {"candidate", std::move(candidate)},
              {"attempts", newest_of(detail.attempts, offset, limit)},
              {"attempts_total", detail.attempts.size()},
              {"checkpoints", newest_of(detail.checkpoints, offset, limit)},
              {"checkpoints_total", detail.checkpoints.size()},
              {"metrics", names_of(detail.metrics, offset)},
              {"metrics_total", detail.metrics.size()},
              {"profile", std::move(profile)},
              {"profile_more", profile_more},
              {"logs_pruned_ms", detail.pruned.logs_ms},
              {"points_pruned_ms", detail.pruned.points_ms}};
}

Result<Json> get_log(const engine::Views& views, const Arguments& arguments) {
  const Request& request = arguments.request;
  TAILOR_ASSIGN_OR_RETURN(const TrialId id, trial_of(arguments.path[0]));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t attempt,
                          number_of(request, "attempt", 0, 1'000'000'000));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                          number_of(request, "bytes", kLogBytes, kLogBytesMax));
  engine::LogPiece piece;
  if (attempt == 0 && text_of(request, "offset").empty()) {
    TAILOR_RETURN_IF_ERROR(status_of(views.store().trial(id)));
    TAILOR_ASSIGN_OR_RETURN(piece, views.log_tail(id, bytes));
  } else {
    TAILOR_ASSIGN_OR_RETURN(const std::uint64_t offset,
                            number_of(request, "offset", 0, std::uint64_t{1} << 50));
    TAILOR_ASSIGN_OR_RETURN(piece,
                            views.log(id, static_cast<std::uint32_t>(attempt), offset, bytes));
  }
  return Json{{"text", piece.bytes},
              {"offset", piece.offset},
              {"next_offset", piece.next_offset},
              {"attempt", piece.attempt},
              {"ended", piece.ended}};
}

Result<Json> get_why(const engine::Views& views, const Arguments& arguments) {
  TAILOR_ASSIGN_OR_RETURN(const TrialId id, trial_of(arguments.path[0]));
  TAILOR_ASSIGN_OR_RETURN(const core::Why why, views.why(id));
  return Json{{"text", why.sentence},
              {"state", storage::trial_state_name(why.state)},
              {"reason", core::why_code_name(why.code)},
              {"since_ms", why.since_ms},
              {"details", why.details}};
}

Result<Json> get_series(const engine::Views& views, const Arguments& arguments) {
  const Request& request = arguments.request;
  TAILOR_ASSIGN_OR_RETURN(const TrialId id, trial_of(text_of(request, "trial")));
  const std::string_view metric = text_of(request, "metric");
  if (metric.empty()) return error(Code::kInvalidArgument, "which metric? Give metric=NAME");
  TAILOR_ASSIGN_OR_RETURN(std::uint64_t points, number_of(request, "points", kPoints, kPointsMax));
  if (points == 0) points = kPoints;
  TAILOR_ASSIGN_OR_RETURN(const auto series, views.series(id, metric, points));
  Json values = Json::array();
  for (const double value : series.values) values.push_back(number(value));
  return Json{{"trial", id.value},         {"metric", metric},
              {"steps", series.steps},     {"tokens", series.tokens},
              {"wall_ms", series.wall_ms}, {"values", std::move(values)}};
}

}  // namespace tailor::http
