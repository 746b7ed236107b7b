// Trials, their curves and logs.
#include <fmt/format.h>

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
  TAILOR_ASSIGN_OR_RETURN(query.limit, number_of(request, "limit", kTrialsPage, kTrialsPageMax));
  TAILOR_ASSIGN_OR_RETURN(const auto page, views.trials(query));
  return Json{{"trials", list_of(page.trials)},
              {"total", page.total},
              {"offset", query.offset},
              {"limit", query.limit}};
}

Result<Json> get_trial(const engine::Views& views, const Arguments& arguments) {
  TAILOR_ASSIGN_OR_RETURN(const TrialId id, trial_of(arguments.path[0]));
  TAILOR_ASSIGN_OR_RETURN(const auto detail, views.trial(id));
  Json candidate = to_json(detail.candidate);
  candidate["architecture"] = parsed(detail.candidate.architecture_json);
  return Json{{"trial", to_json(detail.trial)},
              {"candidate", std::move(candidate)},
              {"attempts", list_of(detail.attempts)},
              {"checkpoints", list_of(detail.checkpoints)},
              {"metrics", detail.metrics},
              {"profile", list_of(detail.profile)}};
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
  TAILOR_ASSIGN_OR_RETURN(const std::string text, views.explain(id));
  return Json{{"text", text}};
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
