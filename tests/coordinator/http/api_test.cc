// The JSON, the health pages and the embedded dashboard, over a running engine.
#include "coordinator/http/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "base/hash.h"
#include "tests/coordinator/engine/support.h"

namespace tailor::http {
namespace {

using ::testing::HasSubstr;
using tailor::testing::Answer;
using tailor::testing::eventually;
using tailor::testing::GatedStore;
using tailor::testing::hello;
using tailor::testing::RecordingSink;
using tailor::testing::submit_event;
using tailor::testing::sweep_text;
using ::testing::Not;

std::string gunzip(std::string_view bytes) {
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string out(64u << 20, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

/// Base64 of bytes given in hexadecimal, as Content-Security-Policy writes hashes.
std::string base64(const std::string& hex) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  unsigned held = 0;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    held = (held << 8) | static_cast<unsigned>(std::stoul(hex.substr(i, 2), nullptr, 16));
    for (bits += 8; bits >= 6; bits -= 6) out += kDigits[(held >> (bits - 6)) & 63];
  }
  if (bits > 0) out += kDigits[(held << (6 - bits)) & 63];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

std::string source_file(const std::string& name) {
  std::ifstream file(std::string(TAILOR_SOURCE_DIR) + "/coordinator/http/web/" + name);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

class ApiTest : public ::testing::Test {
 protected:
  ApiTest() : metrics_("1.2.3", "", 1'700'000'000'000) {
    engine::Options options;
    options.retry_ms = 5;
    options.hung_ms = 5'000;
    engine::Hooks hooks;
    hooks.on_commit = [this](std::span<const storage::Mutation> batch, double seconds) {
      metrics_.on_commit(batch, seconds);
    };
    engine_ = std::move(*engine::Engine::start(store_, clock_, {}, options, std::move(hooks)));
    views_ = std::make_unique<engine::Views>(store_, *engine_);
    api_ = std::make_unique<Api>(*views_, metrics_, "1.2.3");
  }

  Response get(const std::string& target, bool accepts_gzip = false) {
    Request request;
    request.method = "GET";
    request.accepts_gzip = accepts_gzip;
    EXPECT_TRUE(parse_target(target, request).is_ok());
    return api_->handle(request);
  }
  nlohmann::json json(const std::string& target, int status = 200) {
    const Response response = get(target);
    EXPECT_EQ(response.status, status) << target << ": " << response.body;
    EXPECT_EQ(response.content_type, "application/json");
    return nlohmann::json::parse(response.body, nullptr, false);
  }
  void submit(const std::string& name) {
    Answer answer;
    engine_->request(submit_event(sweep_text(name)), answer.handler());
    ASSERT_TRUE(answer.wait());
    ASSERT_TRUE(answer.status().is_ok());
  }
  /// Runs every trial of the newest sweep; "wide" is better by 0.5.
  void run_all() {
    auto sink = std::make_shared<RecordingSink>();
    const auto session = engine_->open_session(sink, hello("node1"));
    std::size_t done = 0;
    ASSERT_TRUE(eventually([&] {
      const auto assigned = sink->received<protocol::Assign>();
      for (; done < assigned.size(); ++done) {
        const auto& spec = assigned[done].spec;
        const protocol::AttemptRef ref = {{spec.trial, spec.attempt}, spec.token};
        engine_->session_message(session,
                                 protocol::LogChunk{ref, 0, "line <b>1</b>\nline \xff 2\n"});
        protocol::Reports reports;
        reports.ref = ref;
        std::uint64_t sequence = 1;
        reports.reports.push_back({sequence++, 1, protocol::StartedReport{}});
        for (int step = 1; step <= 2'000; ++step) {
          const double loss = step == 1'000 ? std::numeric_limits<double>::quiet_NaN() : 4.0 / step;
          reports.reports.push_back(
              {sequence++, step, protocol::MetricReport{step, step * 64, {{"train_loss", loss}}}});
        }
        reports.reports.push_back(
            {sequence++, 3, protocol::CheckpointReport{16, "/c/16", "ab", 99}});
        protocol::ProfileReport profile;
        profile.positions = 900;
        profile.entries = {{0, -1, "raw", "shift", 0.5, 0.125, "", {0.25, 0.75}},
                           {1, -1, "raw", "shift", 0.5, {}, "too few tokens", {0.5}}};
        reports.reports.push_back({sequence++, 3, profile});
        protocol::EndReport end;
        end.values = {{"validation_loss", (spec.candidate_name == "wide" ? 2.5 : 3.0) +
                                              static_cast<double>(spec.seed)}};
        reports.reports.push_back({sequence++, 4, end});
        engine_->session_message(session, reports);
      }
      const auto sweeps = views_->sweeps();
      return sweeps.has_value() && sweeps->back().row.state == storage::SweepState::kCompleted;
    }));
  }

  GatedStore store_;
  ManualClock clock_;
  Metrics metrics_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::Views> views_;
  std::unique_ptr<Api> api_;
};

TEST_F(ApiTest, ListsSweepsWithTheirTrialsByState) {
  EXPECT_EQ(json("/api/v1/sweeps").at("sweeps").size(), 0u);
  submit("taper");
  const auto sweep = json("/api/v1/sweeps").at("sweeps").at(0);
  EXPECT_EQ(sweep.at("name"), "taper");
  EXPECT_EQ(sweep.at("state"), "running");
  EXPECT_EQ(sweep.at("trials").at("queued"), 4);
  EXPECT_EQ(sweep.at("trials").at("total"), 4);
  EXPECT_EQ(sweep.at("baseline"), "plain");
}

TEST_F(ApiTest, GivesOneSweepWithAPageOfItsCandidatesAndItsFile) {
  submit("taper");
  for (const char* reference : {"taper", "1", "s1", "last"}) {
    EXPECT_EQ(json(std::string("/api/v1/sweeps/") + reference).at("sweep").at("id"), 1)
        << reference;
  }
  const auto page = json("/api/v1/sweeps/taper?offset=1&limit=5");
  EXPECT_EQ(page.at("candidates").size(), 1u);
  EXPECT_EQ(page.at("candidates").at(0).at("name"), "wide");
  EXPECT_EQ(page.at("candidates").at(0).at("point").at("ffn.d_h"), 96);
  EXPECT_EQ(page.at("candidates_total"), 2);
  EXPECT_EQ(page.at("file"), sweep_text("taper"));
}

TEST_F(ApiTest, BadRequestsAreAnsweredWithAReason) {
  submit("taper");
  for (const auto& [target, status] : std::vector<std::pair<std::string, int>>{
           {"/api/v1/sweeps/nobody", 404},
           {"/api/v1/sweeps/77", 404},
           {"/api/v1/sweeps?x=1", 400},
           {"/api/v1/trials?state=lost", 400},
           {"/api/v1/trials?limit=1001", 400},
           {"/api/v1/trials?limit=-1", 400},
           {"/api/v1/trials?limit=0", 400},
           {"/api/v1/sweeps?limit=0", 400},
           {"/api/v1/sweeps/taper?limit=0", 400},
           {"/api/v1/workers?limit=0", 400},
           {"/api/v1/events?limit=0", 400},
           {"/api/v1/events?tail=3&after=1", 400},
           {"/api/v1/trials?offset=1e3", 400},
           {"/api/v1/trials?order=loss", 400},
           {"/api/v1/trials?colour=red", 400},
           {"/api/v1/trials?sweep=nobody", 404},
           {"/api/v1/trials/0", 400},
           {"/api/v1/trials/99", 404},
           {"/api/v1/trials/99/log", 404},
           {"/api/v1/trials/99/why", 404},
           {"/api/v1/trials/1/what", 404},
           {"/api/v1/series", 400},
           {"/api/v1/series?trial=1", 400},
           {"/api/v1/series?trial=99&metric=x", 404},
           {"/api/v1/series?trial=1&metric=x&points=999999", 400},
           {"/api/v1/compare", 400},
           {"/api/v1/compare?sweep=taper&baseline=nobody", 400},
           {"/api/v1/events?after=-1", 400},
           {"/api/v2/sweeps", 404},
           {"/api/v1?x=1", 400},
           {"/api/v1/sweeps?limit=1001", 400},
           {"/api/v1/workers?limit=x", 400},
           {"/api/v1/workers?colour=red", 400},
           {"/api/v1/trials?after=0", 400},
           {"/api/v1/trials?after=1&order=objective", 400},
           {"/api/v1/sweeps/nobody/file", 404},
           {"/api/", 404},
           {"/nothing", 404}}) {
    const auto body = json(target, status);
    EXPECT_FALSE(body.at("error").at("message").get<std::string>().empty()) << target;
  }
}

TEST_F(ApiTest, NamesItsRoutes) {
  const auto body = json("/api/v1");
  std::set<std::string> paths;
  for (const auto& route : body.at("routes")) {
    EXPECT_EQ(route.at("method"), "GET");
    EXPECT_FALSE(route.at("answer").get<std::string>().empty());
    paths.insert(route.at("path").get<std::string>());
  }
  EXPECT_EQ(paths.count("/api/v1/trials/{trial}/log"), 1u);
  EXPECT_EQ(paths.size(), body.at("routes").size());
}

TEST_F(ApiTest, ListsArePagesThatSayWhatIsLeft) {
  for (const char* name : {"first", "second", "third"}) submit(name);
  auto page = json("/api/v1/sweeps?limit=2");
  ASSERT_EQ(page.at("sweeps").size(), 2u);
  EXPECT_EQ(page.at("sweeps")[0].at("name"), "second") << "the newest, by id";
  EXPECT_EQ(page.at("sweeps")[1].at("name"), "third");
  EXPECT_EQ(page.at("total"), 3);
  EXPECT_EQ(page.at("more"), true);
  page = json("/api/v1/sweeps?limit=2&offset=2");
  ASSERT_EQ(page.at("sweeps").size(), 1u);
  EXPECT_EQ(page.at("sweeps")[0].at("name"), "first");
  EXPECT_EQ(page.at("more"), false);
  page = json("/api/v1/sweeps/first?offset=1&limit=1");
  ASSERT_EQ(page.at("candidates").size(), 1u);
  EXPECT_EQ(page.at("candidates")[0].at("name"), "wide");
  EXPECT_EQ(page.at("candidates_total"), 2);
  EXPECT_EQ(page.at("file"), sweep_text("first"));
  EXPECT_EQ(json("/api/v1/sweeps/first/file").at("file"), sweep_text("first"));
  page = json("/api/v1/trials?sweep=first&after=2&limit=1");
  ASSERT_EQ(page.at("trials").size(), 1u);
  EXPECT_EQ(page.at("trials")[0].at("id"), 3);
  EXPECT_EQ(page.at("more"), true);
  EXPECT_TRUE(page.at("total").is_null()) << "not counted again for every page";
  for (const char* name : {"a", "b", "c"}) {
    engine_->open_session(std::make_shared<RecordingSink>(), hello(name));
  }
  // Lists are published a moment after what they show.
  ASSERT_TRUE(eventually([&] { return json("/api/v1/workers").at("total") == 3; }));
  page = json("/api/v1/workers?offset=1&limit=1");
  ASSERT_EQ(page.at("workers").size(), 1u);
  EXPECT_EQ(page.at("workers")[0].at("name"), "b");
  EXPECT_EQ(page.at("total"), 3);
  EXPECT_EQ(page.at("more"), true);
}

TEST_F(ApiTest, IsNotReadyWhileTheOtherPortRefusesConnections) {
  Status accepting;
  const Api api(*views_, metrics_, "1.2.3", [&] { return accepting; });
  Request request;
  request.method = "GET";
  request.path = "/readyz";
  EXPECT_EQ(api.handle(request).status, 200);
  accepting = Status(Code::kResourceExhausted, "no descriptor is left");
  const Response refused = api.handle(request);
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("no descriptor is left"));
  request.path = "/healthz";
  EXPECT_EQ(api.handle(request).status, 200);
}

TEST_F(ApiTest, PagesAndFiltersTrials) {
  submit("taper");
  run_all();
  const auto page =
      json("/api/v1/trials?sweep=taper&state=completed&order=objective&limit=2&offset=1");
  EXPECT_EQ(page.at("total"), 4);
  ASSERT_EQ(page.at("trials").size(), 2u);
  EXPECT_LE(page.at("trials").at(0).at("objective"), page.at("trials").at(1).at("objective"));
  EXPECT_EQ(json("/api/v1/trials?state=failed").at("total"), 0);
}

TEST_F(ApiTest, ShowsATrialWithAttemptsCheckpointsMetricsAndProfile) {
  submit("taper");
  run_all();
  const auto body = json("/api/v1/trials/t1");
  EXPECT_EQ(body.at("trial").at("state"), "completed");
  EXPECT_EQ(body.at("attempts").at(0).at("worker_name"), "node1");
  EXPECT_EQ(body.at("checkpoints").at(0).at("step"), 16);
  EXPECT_THAT(body.at("metrics").get<std::vector<std::string>>(),
              ::testing::Contains("train_loss"));
  EXPECT_EQ(body.at("profile").at(0).at("standard_error"), 0.125);
  EXPECT_EQ(body.at("profile").at(0).at("subsample_values"), (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(body.at("profile").at(0).at("positions"), 900);
  EXPECT_TRUE(body.at("profile").at(1).at("standard_error").is_null());
  EXPECT_EQ(body.at("profile").at(1).at("no_error"), "too few tokens");
  EXPECT_EQ(body.at("candidate").at("architecture").at("d_model"), 32);
}

TEST_F(ApiTest, SaysWhatOfATrialWasPruned) {
  submit("taper");
  run_all();
  EXPECT_EQ(json("/api/v1/trials/t1").at("points_pruned_ms"), 0);
  const WallMs later = WallMs{1} << 42;
  ASSERT_TRUE(store_.prune({.logs_ms = 3'600'000, .points_ms = 3'600'000}, later).has_value());
  const auto body = json("/api/v1/trials/t1");
  EXPECT_EQ(body.at("points_pruned_ms"), later);
  EXPECT_EQ(body.at("logs_pruned_ms"), later);
}

TEST_F(ApiTest, ThinsSeriesOnTheServerAndWritesNanAsNull) {
  submit("taper");
  run_all();
  const auto thin = json("/api/v1/series?trial=1&metric=train_loss&points=100");
  EXPECT_LE(thin.at("values").size(), 500u);
  EXPECT_GE(thin.at("values").size(), 50u);
  EXPECT_EQ(thin.at("steps").front(), 1);
  EXPECT_EQ(thin.at("steps").back(), 2000);
  const auto full = json("/api/v1/series?trial=1&metric=train_loss&points=10000");
  ASSERT_EQ(full.at("values").size(), 2000u);
  EXPECT_TRUE(full.at("values").at(999).is_null());
  EXPECT_EQ(full.at("values").at(0), 4.0);
}

TEST_F(ApiTest, GivesTheEndOfALogWithWrongBytesReplaced) {
  submit("taper");
  run_all();
  const auto tail = json("/api/v1/trials/1/log?bytes=9");
  EXPECT_EQ(tail.at("text"), "line \xef\xbf\xbd 2\n");
  EXPECT_EQ(tail.at("ended"), true);
  const auto head = json("/api/v1/trials/1/log?attempt=1&offset=0&bytes=8");
  EXPECT_EQ(head.at("text"), "line <b>");
  EXPECT_EQ(head.at("next_offset"), 8);
}

TEST_F(ApiTest, ComparesPairedBySeed) {
  submit("taper");
  run_all();
  const auto table = json("/api/v1/compare?sweep=taper");
  EXPECT_EQ(table.at("baseline"), "plain");
  EXPECT_EQ(table.at("rows").at(1).at("difference"), -0.5);
  EXPECT_EQ(table.at("rows").at(1).at("pairs"), 2);
  EXPECT_TRUE(table.at("rows").at(0).at("difference").is_null());
  EXPECT_EQ(table.at("smallest_p"), 0.5);
  EXPECT_EQ(table.at("rows").at(1).at("status"), "complete");
  EXPECT_EQ(table.at("best"), table.at("rows").at(1).at("candidate"));
  const auto page = json("/api/v1/compare?sweep=taper&order=difference&limit=1&differences=0");
  EXPECT_EQ(page.at("rows").size(), 1u);
  EXPECT_EQ(page.at("next_offset"), 1);
  EXPECT_FALSE(page.at("rows").at(0).contains("differences"));
}

TEST_F(ApiTest, ARowHasEveryTestItsVerdictAndARatioWhenAsked) {
  submit("taper");
  run_all();
  const auto table = json("/api/v1/compare?sweep=taper");
  const auto& row = table.at("rows").at(1);
  EXPECT_EQ(row.at("p_sign"), 0.5);
  EXPECT_EQ(row.at("p_wilcoxon"), 0.5);
  EXPECT_EQ(row.at("p_westfall_young"), 0.5);
  EXPECT_TRUE(row.at("bca_low").is_null());
  EXPECT_THAT(row.at("bca_note").get<std::string>(), HasSubstr("needs 6 pairs"));
  EXPECT_FALSE(row.at("verdict").get<std::string>().empty());
  EXPECT_THAT(row.at("verdict_text").get<std::string>(), HasSubstr("n = 2"));
  EXPECT_EQ(table.at("smallest_effect"), 0.02);
  EXPECT_EQ(table.at("primary"), "");
  EXPECT_FALSE(row.contains("ratio"));
  const std::string name = row.at("name");
  const auto divided = json("/api/v1/compare?sweep=taper&ratio_to=" + name);
  EXPECT_EQ(divided.at("ratio_to"), name);
  EXPECT_TRUE(divided.at("rows").at(1).contains("ratio"));
  EXPECT_EQ(get("/api/v1/compare?sweep=taper&ratio_to=nobody").status, 400);
  EXPECT_EQ(json("/api/v1/sweeps/taper").at("sweep").at("scaling"), false);
  EXPECT_THAT(get("/api/v1/scaling?sweep=taper").body, HasSubstr("has no [scaling]"));
}

TEST_F(ApiTest, NoPageOfAComparisonIsOver100Kilobytes) {
  // 2,000 candidates x 25 seeds, put into the store as if an earlier coordinator had run them.
  std::vector<storage::Mutation> batch;
  submit("large");
  const SweepId id = views_->find_sweep("large").value();
  const auto made = views_->candidates(id).value();
  std::uint64_t trial_id = 1'000'000;
  for (std::uint32_t c = 0; c < 2'000; ++c) {
    storage::CandidateRow candidate = made.front();
    if (c >= made.size()) {
      candidate.index = c;
      candidate.name = "candidate with a \"quoted\" name " + std::to_string(c);
      batch.emplace_back(candidate);
    }
    for (std::uint64_t seed = 1'000'000'000'001; seed <= 1'000'000'000'025; ++seed) {
      storage::TrialRow trial;
      trial.id = TrialId{++trial_id};
      trial.sweep = id;
      trial.candidate = c;
      trial.seed = seed;
      trial.state = c % 9 == 1 && seed % 5 == 0 ? storage::TrialState::kFailed
                                                : storage::TrialState::kCompleted;
      trial.objective = 3 + 1.0 / static_cast<double>(trial_id % 997 + 3);
      trial.final_values = {{"tokens_per_s", 1e6 / static_cast<double>(trial_id % 89 + 7)}};
      batch.emplace_back(std::move(trial));
    }
  }
  ASSERT_TRUE(store_.inner.commit(batch).is_ok());
  std::uint64_t offset = 0;
  std::size_t rows = 0;
  std::size_t largest = 0;
  do {
    const Response response =
        get("/api/v1/compare?sweep=large&order=difference&offset=" + std::to_string(offset));
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_LE(response.body.size(), 100'000u);
    largest = std::max(largest, response.body.size());
    const auto page = nlohmann::json::parse(response.body, nullptr, false);
    rows += page.at("rows").size();
    offset = page.at("next_offset");
  } while (offset != 0);
  EXPECT_EQ(rows, 2'000u);
  EXPECT_GT(largest, 55'000u) << "pages are filled";
}

TEST_F(ApiTest, EventsAreReadForwardsOrFromTheEnd) {
  for (int i = 0; i < 5; ++i) submit("sweep-" + std::to_string(i));
  const auto all = json("/api/v1/events?limit=1000").at("events");
  const std::uint64_t last = all.back().at("id");
  const auto tail = json("/api/v1/events?tail=3").at("events");
  ASSERT_EQ(tail.size(), 3u);
  EXPECT_EQ(tail.back().at("id"), last);
  // The last ones of a sweep, or of a trial, are not those among the last of all.
  const auto all_of_second = json("/api/v1/events?limit=1000&sweep=sweep-1").at("events");
  ASSERT_GE(all_of_second.size(), 3u);
  const auto of_second = json("/api/v1/events?tail=2&sweep=sweep-1").at("events");
  ASSERT_EQ(of_second.size(), 2u);
  EXPECT_EQ(of_second[1].at("id"), all_of_second.back().at("id"));
  EXPECT_EQ(of_second[0].at("id"), all_of_second[all_of_second.size() - 2].at("id"));
  EXPECT_EQ(json("/api/v1/events?tail=1000&sweep=sweep-1").at("events"), all_of_second);
  EXPECT_EQ(json("/api/v1/events?after=" + std::to_string(last)).at("events").size(), 0u);
  const auto of_sweep = json("/api/v1/events?sweep=sweep-2&limit=1000");
  ASSERT_FALSE(of_sweep.at("events").empty());
  for (const auto& event : of_sweep.at("events")) {
    EXPECT_EQ(event.at("sweep"), 3);
  }
}

TEST_F(ApiTest, ShowsWorkersWithTheirSlots) {
  submit("taper");
  auto sink = std::make_shared<RecordingSink>();
  engine_->open_session(sink, hello("node<1>", 2));
  ASSERT_TRUE(eventually([&] { return sink->count() > 0; }));
  const auto workers = json("/api/v1/workers").at("workers");
  ASSERT_EQ(workers.size(), 1u);
  EXPECT_EQ(workers.at(0).at("name"), "node<1>");
  EXPECT_EQ(workers.at(0).at("busy_slots"), 2);
}

TEST_F(ApiTest, HealthAndReadinessTellAFullDiskApart) {
  EXPECT_EQ(get("/healthz").status, 200);
  EXPECT_EQ(get("/readyz").status, 200);
  store_.inner.set_fault(Status(Code::kResourceExhausted, "the disk is full"));
  Answer pending;
  engine_->request(submit_event(sweep_text()), pending.handler());
  ASSERT_TRUE(eventually([&] { return engine_->health().stalled; }));
  EXPECT_EQ(get("/healthz").status, 200) << "it lives and will recover";
  const auto ready = json("/readyz", 503);
  EXPECT_EQ(ready.at("ready"), false);
  EXPECT_THAT(ready.at("reason").get<std::string>(), HasSubstr("disk is full"));
  EXPECT_EQ(get("/api/v1/sweeps").status, 200) << "committed rows can be read";
  EXPECT_EQ(get("/api/v1/workers").status, 200) << "and what is published needs no engine";
  EXPECT_THAT(get("/metrics").body, HasSubstr("tailor_storage_stalled 1\n"));
  store_.inner.set_fault(Status::ok());
  ASSERT_TRUE(pending.wait());
  EXPECT_EQ(get("/readyz").status, 200);
  engine_->stop();
  EXPECT_EQ(get("/healthz").status, 503);
}

TEST_F(ApiTest, HealthMetricsAndListsAreAnsweredWhileACommitHangs) {
  submit("taper");
  const int begun = store_.begun();
  store_.hold(true);
  Answer hangs;
  engine_->request(submit_event(sweep_text("hangs")), hangs.handler());
  ASSERT_TRUE(eventually([&] { return store_.begun() > begun; }));
  EXPECT_EQ(get("/healthz").status, 200);
  EXPECT_EQ(get("/readyz").status, 200) << "it may only be slow";
  clock_.advance(60'000);
  EXPECT_EQ(get("/healthz").status, 200);
  EXPECT_THAT(json("/readyz", 503).at("reason").get<std::string>(), HasSubstr("not answered"));
  EXPECT_THAT(get("/metrics").body, HasSubstr("tailor_storage_stalled 1\n"));
  EXPECT_EQ(json("/api/v1/sweeps").at("sweeps").size(), 1u);
  EXPECT_EQ(json("/api/v1/workers").at("workers").size(), 0u);
  EXPECT_EQ(hangs.times(), 0) << "all this while it hung";
  store_.hold(false);
  ASSERT_TRUE(hangs.wait());
}

TEST_F(ApiTest, MetricsCountWhatHappened) {
  submit("taper");
  run_all();
  const Response response = get("/metrics");
  EXPECT_EQ(response.content_type, "text/plain; version=0.0.4");
  EXPECT_THAT(response.body, HasSubstr("tailor_trials{state=\"completed\"} 4\n"));
  EXPECT_THAT(response.body, HasSubstr("tailor_sweeps{state=\"completed\"} 1\n"));
  EXPECT_THAT(response.body, HasSubstr("tailor_attempts_ended_total{class=\"completed\"} 4\n"));
  EXPECT_THAT(response.body, HasSubstr("tailor_workers_connected 1\n"));
  EXPECT_THAT(response.body, HasSubstr("tailor_info{version=\"1.2.3\"} 1\n"));
  EXPECT_THAT(response.body, HasSubstr("process_start_time_seconds 1700000000\n"));
  EXPECT_THAT(response.body, HasSubstr("# TYPE tailor_commit_seconds histogram\n"));
}

TEST_F(ApiTest, EmbedsExactlyTheFilesOfTheFolder) {
  for (const auto& [path, name] :
       std::vector<std::pair<std::string, std::string>>{{"/", "index.html"},
                                                        {"/app.js", "app.js"},
                                                        {"/pages.js", "pages.js"},
                                                        {"/style.css", "style.css"},
                                                        {"/icon.svg", "icon.svg"}}) {
    const Response compressed = get(path, true);
    EXPECT_TRUE(compressed.gzip) << path;
    EXPECT_EQ(gunzip(compressed.fixed), source_file(name)) << path;
    EXPECT_EQ(get(path).body, source_file(name)) << path << " for a client without gzip";
    Request again;
    again.path = path;
    again.if_none_match = compressed.etag;
    EXPECT_EQ(api_->handle(again).status, 304) << path;
  }
}

TEST_F(ApiTest, ThePagesUseNothingFromElsewhereAndNoMarkupFromText) {
  for (const char* name : {"index.html", "app.js", "pages.js", "style.css"}) {
    const std::string text = source_file(name);
    std::string without_namespace =
        std::regex_replace(text, std::regex("http://www\\.w3\\.org/2000/svg"), "");
    EXPECT_THAT(without_namespace, Not(HasSubstr("http://"))) << name;
    EXPECT_THAT(without_namespace, Not(HasSubstr("https://"))) << name;
    for (const char* dangerous :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("}) {
      EXPECT_THAT(text, Not(HasSubstr(dangerous))) << name;
    }
  }
  // The policy forbids inline scripts but one, by its hash.
  const std::string index = source_file("index.html");
  const std::size_t begin = index.find("<script>") + 8;
  const std::string script = index.substr(begin, index.find("</script>", begin) - begin);
  EXPECT_EQ(index.find("<script>", begin), std::string::npos);
  EXPECT_THAT(std::string(content_security_policy()),
              HasSubstr("script-src 'self' 'sha256-" + base64(sha256_hex(script)) + "'"));
}

TEST_F(ApiTest, EveryLinkOfThePagesIsRelativeSoThatAProxyMayPutThemUnderAPrefix) {
  // What is looked for from the root would miss the prefix.
  const std::regex rooted(R"((href|src|action|fetch|url)\s*[=(:]\s*["'`]?/[^/])");
  for (const char* name : {"index.html", "app.js", "pages.js", "style.css"}) {
    std::smatch found;
    const std::string text = source_file(name);
    EXPECT_FALSE(std::regex_search(text, found, rooted)) << name << ": " << found.str();
  }
  for (const char* link :
       {"href=\"style.css\"", "href=\"icon.svg\"", "src=\"app.js\"", "src=\"pages.js\""}) {
    EXPECT_THAT(source_file("index.html"), HasSubstr(link));
  }
}

TEST_F(ApiTest, BehindAProxyThatStripsAPrefixEveryFileOfThePageIsFound) {
  const std::string index = get("/").body;
  const std::regex link(R"re((?:href|src)="([^"#]+)")re");
  int found = 0;
  for (auto it = std::sregex_iterator(index.begin(), index.end(), link);
       it != std::sregex_iterator(); ++it) {
    // As a browser resolves it on the page /tailor/ ...
    const std::string written = (*it)[1].str();
    const std::string target = written.front() == '/' ? written : "/tailor/" + written;
    ASSERT_EQ(target.rfind("/tailor/", 0), 0u) << written << " leaves the prefix";
    // ... and as the proxy passes it on.
    EXPECT_EQ(get(target.substr(7)).status, 200) << written;
    ++found;
  }
  EXPECT_GE(found, 5);
}

TEST_F(ApiTest, ASweepShowsItsWholeSearchBesideWhatIsDrawn) {
  submit("taper");
  const nlohmann::json sweep = json("/api/v1/sweeps/1")["sweep"];
  EXPECT_EQ(sweep["search_points"], 0) << "no [space]";
  EXPECT_EQ(sweep["search_tried"], 0);
  EXPECT_EQ(sweep["trials_at_most"], sweep["trials"]["total"]);
  EXPECT_EQ(sweep["message"], "");
  EXPECT_TRUE(sweep["infeasible_reasons"].is_object());
}

TEST_F(ApiTest, LargeJsonIsCompressedForThoseWhoAccept) {
  submit("taper");
  run_all();
  const Response plain = get("/api/v1/series?trial=1&metric=train_loss&points=10000");
  const Response small = get("/api/v1/series?trial=1&metric=train_loss&points=10000", true);
  EXPECT_FALSE(get("/healthz", true).gzip) << "a small answer gains nothing";
  ASSERT_TRUE(small.gzip);
  EXPECT_LT(small.body.size(), plain.body.size() / 2);
  EXPECT_EQ(gunzip(small.body), plain.body);
}

TEST(ParseTarget, APartOfThePathMayHoldASlash) {
  Request request;
  ASSERT_TRUE(parse_target("/api/v1/sweeps/a%2Fb/file?x=1", request).is_ok());
  EXPECT_EQ(request.parts, (std::vector<std::string>{"api", "v1", "sweeps", "a/b", "file"}));
}

TEST(ParseTarget, AParameterThatComesTwiceIsRefused) {
  Request request;
  const Status status = parse_target("/api/v1/trials?limit=5&limit=6", request);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("\"limit\" is given twice"), std::string::npos);
  Request other;
  EXPECT_TRUE(parse_target("/api/v1/trials?limit=5&offset=5&&", other).is_ok());
}

}  // namespace
}  // namespace tailor::http
