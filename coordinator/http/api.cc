#include "coordinator/http/api.h"

#include <map>
#include <utility>

#include "base/hash.h"
#include "coordinator/http/assets.h"
#include "coordinator/http/compress.h"
#include "coordinator/http/routes.h"

namespace tailor::http {
namespace {

constexpr std::size_t kCompressFrom = 1'400;  // about one packet: smaller answers gain nothing

Response json_response(const Json& body) {
  Response response;
  // Users' text and logs may hold any bytes; wrong ones are replaced, never thrown about.
  response.body = body.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return response;
}

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

Api::Api(const engine::Views& views, Metrics& metrics, std::string version,
         std::function<Status()> accepting)
    : views_(views),
      metrics_(metrics),
      version_(std::move(version)),
      accepting_(std::move(accepting)) {
  etags();
}

bool Api::is_quick(std::string_view path) {
  return !path.starts_with("/api/") && path != "/metrics";
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
  if (path.starts_with("/api/")) {
    const Result<Json> body = answer(views_, request);
    return body.has_value() ? json_response(*body) : error_response(body.error());
  }
  if (path == "/healthz" || path == "/readyz") {
    const engine::Health health = views_.engine().health();
    const bool ready = path == "/readyz";
    const Status accepting = ready && accepting_ ? accepting_() : Status::ok();
    const bool good = health.running && (!ready || (!health.stalled && accepting.is_ok()));
    Json body = {{path == "/healthz" ? "healthy" : "ready", good}, {"version", version_}};
    if (!health.last_error.is_ok()) {
      body["reason"] = health.last_error.to_string();
      body["since_ms"] = health.since_ms;
    } else if (!accepting.is_ok()) {
      body["reason"] = accepting.message();
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

}  // namespace tailor::http
