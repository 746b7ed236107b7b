#include "coordinator/http/api.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "coordinator/http/assets.h"

namespace tailor::http {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kTrialsPage = 100;
constexpr std::uint64_t kTrialsPageMax = 1'000;
constexpr std::uint64_t kCandidatesPageMax = 1'000;
constexpr std::uint64_t kEventsPageMax = 1'000;
constexpr std::uint64_t kPoints = 500;
constexpr std::uint64_t kPointsMax = 10'000;
constexpr std::uint64_t kLogBytes = 64 * 1024;
constexpr std::uint64_t kLogBytesMax = 1 << 20;
constexpr std::size_t kCompressFrom = 1'400;  // about one packet: smaller answers gain nothing

// ---- compression

std::string gzip(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, 5, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return {};
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return result == Z_STREAM_END ? out : std::string();
}

std::string gunzip(std::string_view bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) return {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  char block[64 * 1024];
  int result = Z_OK;
  while (result == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(block);
    stream.avail_out = sizeof block;
    result = inflate(&stream, Z_NO_FLUSH);
    out.append(block, sizeof block - stream.avail_out);
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END ? out : std::string();
}

// ---- rows to JSON

/// Numbers that JSON cannot say are null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
Json number(const std::optional<double>& value) {
  return value.has_value() ? number(*value) : Json(nullptr);
}

/// JSON text of a row as a value; the text itself when it is none.
Json parsed(const std::string& text) {
  auto value = parse_ordered_json(text);
  return value ? *std::move(value) : Json(text);
}

Json to_json(const engine::SweepView& view) {
  using storage::TrialState;
  Json trials = Json::object();
  std::uint64_t total = 0;
  for (const TrialState state :
       {TrialState::kQueued, TrialState::kRunning, TrialState::kCompleted, TrialState::kStopped,
        TrialState::kFailed, TrialState::kCancelled}) {
    const auto found = view.counts.find(state);
    const std::uint64_t count = found == view.counts.end() ? 0 : found->second;
    trials[std::string(storage::trial_state_name(state))] = count;
    total += count;
  }
  trials["total"] = total;
  return {{"id", view.row.id.value},
          {"name", view.row.name},
          {"state", storage::sweep_state_name(view.row.state)},
          {"priority", view.row.priority},
          {"created_ms", view.row.created_ms},
          {"ended_ms", view.row.ended_ms},
          {"description", view.description},
          {"baseline", view.baseline},
          {"objectives", view.objectives},
          {"candidates", view.candidates},
          {"infeasible", view.row.infeasible},
          {"infeasible_reasons", view.infeasible_reasons},
          {"search_points", view.search_points},
          {"search_tried", view.search_tried},
          {"trials_at_most", view.trials_at_most},
          {"message", view.message},
          {"seeds", view.seeds},
          {"trials", std::move(trials)}};
}

Json to_json(const storage::CandidateRow& row) {
  return {{"index", row.index},
          {"name", row.name},
          {"point", parsed(row.point_json)},
          {"parameters_body", row.parameters_body},
          {"parameters_total", row.parameters_total}};
}

Json to_json(const engine::TrialView& view) {
  Json values = Json::object();
  for (const auto& [name, value] : view.row.final_values) values[name] = number(value);
  return {{"id", view.row.id.value},
          {"sweep", view.row.sweep.value},
          {"candidate", view.row.candidate},
          {"candidate_name", view.candidate_name},
          {"seed", view.row.seed},
          {"state", storage::trial_state_name(view.row.state)},
          {"attempts", view.row.attempts},
          {"end_class", view.row.end_class},
          {"message", view.row.message},
          {"objective", number(view.row.objective)},
          {"values", std::move(values)},
          {"parameters_body", view.parameters_body},
          {"created_ms", view.row.created_ms},
          {"started_ms", view.row.started_ms},
          {"ended_ms", view.row.ended_ms}};
}

Json to_json(const engine::AttemptView& view) {
  return {
      {"number", view.row.id.number},
      {"worker", view.row.worker.value},
      {"worker_name", view.worker_name},
      {"slots", view.row.slots},
      {"state", storage::attempt_state_name(view.row.state)},
      {"end_class", view.row.end_class},
      {"message", view.row.message},
      {"assigned_ms", view.row.assigned_ms},
      {"ended_ms", view.row.ended_ms},
      {"resumed_step", view.resumed_step},
      {"reports", view.row.acked_sequence},
      {"log_bytes", view.row.log_bytes},
      {"started", view.row.started_json.empty() ? Json(nullptr) : parsed(view.row.started_json)}};
}

Json to_json(const storage::CheckpointRow& row) {
  return {{"attempt", row.attempt.number}, {"step", row.step},   {"path", row.path},
          {"sha256", row.sha256},          {"bytes", row.bytes}, {"wall_ms", row.wall_ms}};
}

Json to_json(const storage::ProfileRow& row) {
  return {{"layer", row.layer},
          {"sub_block", row.sub_block},
          {"geometry", row.geometry},
          {"statistic", row.statistic},
          {"value", number(row.value)},
          {"standard_error", number(row.standard_error)},
          {"step", row.step},
          {"tokens", row.tokens},
          {"linear_tokens", row.linear_tokens},
          {"subsamples", row.subsamples},
          {"rho", number(row.rho)},
          {"seed", row.seed},
          {"dropped", row.dropped}};
}

Json to_json(const engine::WorkerView& view) {
  Json running = Json::array();
  for (const AttemptId& attempt : view.running) {
    running.push_back({{"trial", attempt.trial.value}, {"attempt", attempt.number}});
  }
  return {{"id", view.row.id.value},
          {"name", view.row.name},
          {"host", view.row.host},
          {"version", view.row.version},
          {"connected", view.connected},
          {"draining", view.row.draining},
          {"slots", view.slots},
          {"busy_slots", view.busy_slots},
          {"devices", view.devices},
          {"running", std::move(running)},
          {"first_seen_ms", view.row.first_seen_ms},
          {"last_seen_ms", view.row.last_seen_ms}};
}

Json to_json(const storage::EventRow& row) {
  return {{"id", row.id},
          {"wall_ms", row.wall_ms},
          {"kind", row.kind},
          {"sweep", row.sweep.value},
          {"trial", row.trial.value},
          {"attempt", row.attempt},
          {"worker", row.worker.value},
          {"message", row.message}};
}

Json to_json(const analysis::ComparisonTable& table) {
  Json rows = Json::array();
  for (const analysis::ComparisonRow& row : table.rows) {
    rows.push_back({{"candidate", row.candidate},
                    {"name", row.name},
                    {"parameters_body", row.parameters_body},
                    {"mean", number(row.mean)},
                    {"finished", row.finished},
                    {"failed", row.failed},
                    {"missing", row.missing},
                    {"pairs", row.paired.n},
                    {"difference", row.paired.n > 0 ? number(row.paired.mean) : Json(nullptr)},
                    {"sd", number(row.paired.sd)},
                    {"ci_low", number(row.paired.ci_low)},
                    {"ci_high", number(row.paired.ci_high)},
                    {"negative", row.paired.negative},
                    {"positive", row.paired.positive},
                    {"p_sign_flip", number(row.paired.p_sign_flip)},
                    {"p_holm", number(row.p_holm)},
                    {"tokens_per_s", number(row.tokens_per_s)},
                    {"seeds", row.seeds},
                    {"differences", row.differences}});
  }
  return {{"baseline", table.baseline},
          {"objective", table.objective},
          {"seeds", table.seeds},
          {"smallest_p", number(table.smallest_p)},
          {"rows", std::move(rows)}};
}

template <typename Row>
Json list_of(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  return list;
}

// ---- requests

Response json_response(const Json& body) {
  Response response;
  // Users' text and logs may hold any bytes; wrong ones are replaced, never thrown about.
  response.body = body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return response;
}

/// The keys a request may carry; an unknown one is a mistake worth an answer.
Status only_keys(const Request& request, std::span<const std::string_view> allowed) {
  for (const auto& [key, value] : request.query) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    std::string list;
    for (const std::string_view name : allowed) {
      list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
    }
    return {Code::kInvalidArgument, fmt::format("unknown parameter \"{}\"; allowed: {}", key,
                                                list.empty() ? "none" : list)};
  }
  return Status::ok();
}

std::string_view text_of(const Request& request, std::string_view key) {
  const auto found = request.query.find(std::string(key));
  return found == request.query.end() ? std::string_view() : std::string_view(found->second);
}

Result<std::uint64_t> number_of(const Request& request, std::string_view key,
                                std::uint64_t fallback, std::uint64_t most) {
  const std::string_view text = text_of(request, key);
  if (text.empty()) return fallback;
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || value > most) {
    return error(
        Code::kInvalidArgument,
        fmt::format("{} must be a whole number from 0 to {}, not \"{}\"", key, most, text));
  }
  return value;
}

Result<TrialId> trial_of(std::string_view text) {
  const auto id = TrialId::parse(text);
  if (!id.has_value()) {
    return error(Code::kInvalidArgument, fmt::format("\"{}\" is no trial id", text));
  }
  return *id;
}

Result<Json> get_sweep(const engine::Views& views, std::string_view reference,
                       const Request& request) {
  TAILOR_RETURN_IF_ERROR(only_keys(request, std::array<std::string_view, 2>{"offset", "limit"}));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t offset,
                          number_of(request, "offset", 0, std::uint64_t{1} << 40));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t limit,
                          number_of(request, "limit", 100, kCandidatesPageMax));
  TAILOR_ASSIGN_OR_RETURN(const SweepId id, views.find_sweep(reference));
  TAILOR_ASSIGN_OR_RETURN(const auto view, views.sweep(id));
  TAILOR_ASSIGN_OR_RETURN(const auto candidates, views.candidates(id));
  TAILOR_ASSIGN_OR_RETURN(const auto row, views.store().sweep(id));
  Json page = Json::array();
  for (std::uint64_t i = offset; i < candidates.size() && i - offset < limit; ++i) {
    page.push_back(to_json(candidates[i]));
  }
  return Json{{"sweep", to_json(view)},
              {"candidates", std::move(page)},
              {"candidates_total", candidates.size()},
              {"file", row.toml}};
}

Result<Json> list_trials(const engine::Views& views, const Request& request) {
  TAILOR_RETURN_IF_ERROR(only_keys(
      request,
      std::array<std::string_view, 6>{"sweep", "state", "offset", "limit", "order", "descending"}));
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

Result<Json> get_trial(const engine::Views& views, std::string_view id_text,
                       const Request& request) {
  TAILOR_RETURN_IF_ERROR(only_keys(request, {}));
  TAILOR_ASSIGN_OR_RETURN(const TrialId id, trial_of(id_text));
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

Result<Json> get_log(const engine::Views& views, std::string_view id_text, const Request& request) {
  TAILOR_RETURN_IF_ERROR(
      only_keys(request, std::array<std::string_view, 3>{"attempt", "offset", "bytes"}));
  TAILOR_ASSIGN_OR_RETURN(const TrialId id, trial_of(id_text));
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

Result<Json> get_series(const engine::Views& views, const Request& request) {
  TAILOR_RETURN_IF_ERROR(
      only_keys(request, std::array<std::string_view, 3>{"trial", "metric", "points"}));
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

Result<Json> get_compare(const engine::Views& views, const Request& request) {
  TAILOR_RETURN_IF_ERROR(
      only_keys(request, std::array<std::string_view, 3>{"sweep", "baseline", "objective"}));
  TAILOR_ASSIGN_OR_RETURN(const SweepId id, views.find_sweep(text_of(request, "sweep")));
  TAILOR_ASSIGN_OR_RETURN(const auto table, views.compare(id, text_of(request, "baseline"),
                                                          text_of(request, "objective")));
  return to_json(table);
}

/// Id of the newest event, by galloping and bisection: about 2 log2 of it short reads.
Result<std::uint64_t> last_event(const storage::Store& store) {
  std::uint64_t known = 0;  // an event with a greater id exists above all smaller values
  std::uint64_t stride = 1;
  for (;;) {
    TAILOR_ASSIGN_OR_RETURN(const auto rows, store.events(known + stride - 1, 1));
    if (rows.empty()) break;
    known = rows.front().id;
    stride *= 2;
  }
  std::uint64_t none_after = known + stride - 1;  // no event has a greater id
  while (known < none_after) {
    const std::uint64_t middle = known + (none_after - known) / 2;
    TAILOR_ASSIGN_OR_RETURN(const auto rows, store.events(middle, 1));
    if (rows.empty()) {
      none_after = middle;
    } else {
      known = rows.front().id;
    }
  }
  return known;
}

Result<Json> list_events(const engine::Views& views, const Request& request) {
  TAILOR_RETURN_IF_ERROR(only_keys(
      request, std::array<std::string_view, 5>{"after", "limit", "sweep", "trial", "tail"}));
  TAILOR_ASSIGN_OR_RETURN(std::uint64_t after, number_of(request, "after", 0, ~0ull >> 1));
  TAILOR_ASSIGN_OR_RETURN(std::uint64_t limit, number_of(request, "limit", 100, kEventsPageMax));
  TAILOR_ASSIGN_OR_RETURN(const std::uint64_t tail, number_of(request, "tail", 0, kEventsPageMax));
  std::optional<SweepId> sweep;
  std::optional<TrialId> trial;
  if (const auto text = text_of(request, "sweep"); !text.empty()) {
    TAILOR_ASSIGN_OR_RETURN(sweep, views.find_sweep(text));
  }
  if (const auto text = text_of(request, "trial"); !text.empty()) {
    TAILOR_ASSIGN_OR_RETURN(trial, trial_of(text));
  }
  if (tail > 0) {
    TAILOR_ASSIGN_OR_RETURN(const std::uint64_t last, last_event(views.store()));
    after = last > tail ? last - tail : 0;
    limit = tail;
  }
  TAILOR_ASSIGN_OR_RETURN(const auto rows, views.store().events(after, limit, sweep, trial));
  return Json{{"events", list_of(rows)}, {"last", rows.empty() ? after : rows.back().id}};
}

// ---- embedded files

const std::map<std::string_view, std::string>& etags() {
  static const std::map<std::string_view, std::string> tags = [] {
    std::map<std::string_view, std::string> made;
    for (const Asset& asset : assets()) {
      made[asset.path] = "\"" + sha256_hex(asset.gzip).substr(0, 16) + "\"";
    }
    return made;
  }();
  return tags;
}

Response serve(const Asset& asset, const Request& request) {
  Response response;
  response.content_type = asset.content_type;
  response.etag = etags().at(asset.path);
  response.cache_control = "no-cache";  // ask again each time; the tag makes that cheap
  if (request.if_none_match.find(response.etag) != std::string::npos) {
    response.status = 304;
    return response;
  }
  if (request.accepts_gzip) {
    response.fixed = asset.gzip;
    response.gzip = true;
  } else {
    response.body = gunzip(asset.gzip);
  }
  return response;
}

}  // namespace

Api::Api(const engine::Views& views, Metrics& metrics, std::string version)
    : views_(views), metrics_(metrics), version_(std::move(version)) {
  etags();
}

Response Api::handle(const Request& request) const {
  Response response = route(request);
  if (!response.gzip && request.accepts_gzip && response.body.size() >= kCompressFrom) {
    if (std::string small = gzip(response.body); !small.empty()) {
      response.body = std::move(small);
      response.gzip = true;
    }
  }
  metrics_.on_http(response.status);
  return response;
}

Response Api::route(const Request& request) const {
  const std::string_view path = request.path;
  if (path.starts_with("/api/")) return api(path, request);
  if (path == "/healthz" || path == "/readyz") {
    const engine::Health health = views_.engine().health();
    const bool good = health.running && (path == "/healthz" || !health.stalled);
    Json body = {{path == "/healthz" ? "healthy" : "ready", good}, {"version", version_}};
    if (!health.last_error.is_ok()) {
      body["reason"] = health.last_error.to_string();
      body["since_ms"] = health.since_ms;
    }
    Response response = json_response(body);
    response.status = good ? 200 : 503;
    return response;
  }
  if (path == "/metrics") {
    Response response;
    response.content_type = "text/plain; version=0.0.4";
    response.body = metrics_.text(views_);
    return response;
  }
  for (const Asset& asset : assets()) {
    if (path == asset.path || (asset.path == "/" && path == "/index.html")) {
      return serve(asset, request);
    }
  }
  return error_response(404, "not_found", "no such page; the dashboard is at /");
}

Response Api::api(std::string_view path, const Request& request) const {
  std::vector<std::string_view> parts = split(path.substr(1), '/');  // "api", "v1", ...
  Result<Json> body = error(Code::kNotFound,
                            "no such resource; there are sweeps, trials, series, compare, workers "
                            "and events under /api/v1");
  if (parts.size() >= 3 && parts[1] == "v1") {
    const std::string_view what = parts[2];
    const std::size_t depth = parts.size() - 3;
    if (what == "sweeps" && depth == 0) {
      const Status keys = only_keys(request, {});
      const auto sweeps = views_.sweeps();
      if (!keys.is_ok()) {
        body = error(keys);
      } else if (!sweeps.has_value()) {
        body = error(sweeps.error());
      } else {
        body = Json{{"sweeps", list_of(*sweeps)}};
      }
    } else if (what == "sweeps" && depth == 1) {
      body = get_sweep(views_, parts[3], request);
    } else if (what == "trials" && depth == 0) {
      body = list_trials(views_, request);
    } else if (what == "trials" && depth == 1) {
      body = get_trial(views_, parts[3], request);
    } else if (what == "trials" && depth == 2 && parts[4] == "log") {
      body = get_log(views_, parts[3], request);
    } else if (what == "trials" && depth == 2 && parts[4] == "why") {
      const auto id = trial_of(parts[3]);
      const auto text =
          id.has_value() ? views_.explain(*id) : Result<std::string>(error(id.error()));
      body = text.has_value() ? Result<Json>(Json{{"text", *text}}) : error(text.error());
    } else if (what == "series" && depth == 0) {
      body = get_series(views_, request);
    } else if (what == "compare" && depth == 0) {
      body = get_compare(views_, request);
    } else if (what == "workers" && depth == 0) {
      const auto workers = views_.workers();
      body = workers.has_value() ? Result<Json>(Json{{"workers", list_of(*workers)}})
                                 : error(workers.error());
    } else if (what == "events" && depth == 0) {
      body = list_events(views_, request);
    }
  }
  if (!body.has_value()) return error_response(body.error());
  return json_response(*body);
}

}  // namespace tailor::http
