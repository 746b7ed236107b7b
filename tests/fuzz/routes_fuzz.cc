// The JSON API: whatever is asked for, the answer is JSON, of a bounded size, and says what was
// wrong with a request that is.
#include "base/json.h"
#include "coordinator/http/api.h"
#include "coordinator/http/routes.h"
#include "storage/memory_store.h"
#include "tests/fuzz/fuzz.h"
#include "tests/storage/rows.h"

namespace tailor::fuzz {
namespace {

/// A coordinator without ports over a small store.
struct Served {
  Served() {
    engine = engine::Engine::start(store, clock, {}, {}).value();
    views = std::make_unique<engine::Views>(store, *engine);
    api = std::make_unique<http::Api>(*views, metrics, "0.0.0");
    using namespace storage::testing;
    std::vector<storage::Mutation> rows = {make_sweep(1, "one"), make_worker(1),
                                           make_candidate(1, 0)};
    for (std::uint64_t id = 1; id <= 20; ++id) rows.emplace_back(make_trial(id, 1, 0, id));
    rows.emplace_back(make_attempt(1, 1));
    expect(store.commit(rows).is_ok(), "the rows are stored");
  }
  storage::MemoryStore store;
  SystemClock clock;
  http::Metrics metrics{"0.0.0", "", 0};
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<engine::Views> views;
  std::unique_ptr<http::Api> api;
};

const http::Api& api() {
  static const Served served;
  return *served.api;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds = {"/readyz",
                                    "/healthz",
                                    "/metrics",
                                    "/",
                                    "/api/v1/",
                                    "/api//v1",
                                    "/api/v1/trials/t1/log?attempt=1&offset=0&bytes=9",
                                    "/api/v1/trials?after=t3&limit=2&order=id&descending=1",
                                    "/api/v1/trials/18446744073709551615/why",
                                    "/api/v1/sweeps/one?offset=1099511627776&limit=1000"};
  for (const http::Route& route : http::routes()) {
    std::string target(route.pattern);
    if (const std::size_t open = target.find('{'); open != target.npos) {
      target.replace(open, target.find('}') - open + 1,
                     route.pattern.find("trial") != route.pattern.npos ? "t1" : "one");
    }
    seeds.push_back(target);
    std::string key;
    std::string query = "?";
    for (const char c : std::string(route.keys) + " ") {
      if (c != ' ') {
        key += c;
      } else if (!key.empty()) {
        query += key + "=1&";
        key.clear();
      }
    }
    seeds.push_back(target + query);
  }
  return seeds;
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  http::Request request;
  request.method = "GET";
  if (!http::parse_target(fuzz::as_text(data, size), request).is_ok()) return 0;
  const http::Response response = fuzz::api().handle(request);
  fuzz::expect(response.status >= 200 && response.status < 600, "there is a status");
  fuzz::expect(response.body.size() < (8u << 20), "an answer is bounded");
  if (response.content_type == "application/json") {
    fuzz::expect(check_json(response.body).is_ok(), "an answer is JSON");
  }
  if (!request.path.starts_with("/api/")) return 0;
  fuzz::expect(response.content_type == "application/json", "the API answers with JSON");
  const auto json = parse_json(response.body);
  fuzz::expect(response.status == 200 || json->contains("error"), "a refusal says why");
  return 0;
}
