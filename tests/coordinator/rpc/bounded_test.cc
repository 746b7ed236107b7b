// No answer grows with what there is: every call on a sweep of 20,000 candidates and 300,000
// trials, by a client that takes no more than gRPC's own 4 MiB a message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "storage/sqlite_store.h"
#include "tests/coordinator/rpc/served.h"
#include "tests/storage/rows.h"
#include "tests/support/temporary_folder.h"

namespace tailor::rpc {
namespace {

using testing::eventually;
using ::testing::HasSubstr;
using testing::Served;
using Stub = Served::Stub;

constexpr std::size_t kMessageMax = 4 << 20;
constexpr std::uint64_t kCandidates = 20'000;
constexpr std::uint64_t kSeeds = 15;
constexpr std::uint64_t kTrials = kCandidates * kSeeds;
constexpr std::uint64_t kMany = 5'000;  // attempts, checkpoints and metrics of one trial
constexpr std::uint64_t kWorkers = 3'000;

/// A sweep that has ended: rows in the store, and nothing of it in the engine.
void fill(storage::Store& store) {
  using namespace storage;
  using namespace storage::testing;
  const auto commit = [&](std::vector<Mutation>& batch) {
    const Status status = store.commit(batch);
    ASSERT_TRUE(status.is_ok()) << status.to_string();
    batch.clear();
  };
  std::vector<Mutation> batch;
  SweepRow sweep = make_sweep(1, "big");
  sweep.toml = tailor::testing::sweep_text("big");
  sweep.state = SweepState::kCompleted;
  batch.emplace_back(sweep);
  batch.emplace_back(make_worker(1));
  for (std::uint32_t number = 0; number < kCandidates; ++number) {
    CandidateRow row = make_candidate(1, number);
    row.name = "candidate " + std::to_string(number);
    row.architecture_json = "\"" + std::string(2'000, 'a') + "\"";
    batch.emplace_back(row);
  }
  commit(batch);
  for (std::uint64_t id = 1; id <= kTrials; ++id) {
    const auto candidate = static_cast<std::uint32_t>((id - 1) / kSeeds);
    TrialRow row = make_trial(id, 1, candidate, id % kSeeds + 1);
    row.state = id % 3 == 0 ? TrialState::kFailed : TrialState::kCompleted;
    row.end_class = id % 3 != 0   ? protocol::EndClass::kCompleted
                    : id % 2 == 0 ? protocol::EndClass::kOom
                                  : protocol::EndClass::kNan;
    row.message = std::string(200, 'm');
    batch.emplace_back(row);
    if (batch.size() == 50'000) commit(batch);
  }
  ProfileRow entry;
  for (std::uint32_t n = 1; n <= kMany; ++n) {
    AttemptRow attempt = make_attempt(1, n);
    attempt.state = AttemptState::kEnded;
    attempt.message = std::string(3'900, 'e');
    batch.emplace_back(attempt);
    CheckpointRow checkpoint;
    checkpoint.attempt = {TrialId{1}, n};
    checkpoint.step = n;
    checkpoint.path = "/" + std::string(3'000, 'p');
    batch.emplace_back(checkpoint);
    MetricPoint point;
    point.trial = TrialId{1};
    point.attempt = 1;
    point.name = "metric " + std::to_string(n);
    batch.emplace_back(point);
    for (int layer = 0; layer < 8; ++layer) {
      entry.attempt = {TrialId{1}, 1};
      entry.layer = static_cast<std::int32_t>(n) * 8 + layer;
      entry.geometry = "hyperbolic";
      entry.statistic = "topology";
      batch.emplace_back(entry);
    }
  }
  for (std::int64_t step = 1; step <= 120'000; ++step) {
    MetricPoint point;
    point.trial = TrialId{1};
    point.attempt = 1;
    point.name = "loss";
    point.step = step;
    point.tokens = step * 1'000'000'000;
    point.value = 1.0 / static_cast<double>(step);
    batch.emplace_back(point);
  }
  for (int i = 0; i < 3'000; ++i) {
    EventRow event;
    event.kind = storage::EventKind::kTrialQueued;
    event.sweep = SweepId{1};
    event.message = std::string(3'000, 'e');
    batch.emplace_back(event);
  }
  LogRow log;
  log.attempt = {TrialId{1}, static_cast<std::uint32_t>(kMany)};
  log.bytes = std::string(3 << 20, 'l');
  batch.emplace_back(log);
  AttemptRow last = make_attempt(1, static_cast<std::uint32_t>(kMany));
  last.state = AttemptState::kEnded;
  last.log_bytes = log.bytes.size();
  batch.emplace_back(last);
  commit(batch);
}

/// Filled once: it costs seconds. (The engine starts before, as it loads what there is.)
class Bounded : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    store_ = new storage::MemoryStore;
    served_ = new Served(*store_);
    fill(*store_);
    for (std::uint64_t i = 0; i < kWorkers; ++i) {
      auto hello = testing::hello("worker " + std::to_string(i) + std::string(150, 'w'), 4);
      for (auto& slot : hello.slots) slot.name = std::string(190, 'd');
      hello.host = std::string(190, 'h');
      served_->engine().open_session(std::make_shared<testing::RecordingSink>(), hello);
    }
  }
  static void TearDownTestSuite() {
    delete served_;
    delete store_;
  }

  template <typename Request, typename Response>
  static Response ask(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                      const Request& request) {
    Response response;
    const grpc::Status status = served_->call(method, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_LE(response.ByteSizeLong(), kMessageMax);
    return response;
  }
  template <typename Response, typename Reader>
  static std::vector<Response> read_all(Reader& reader) {
    std::vector<Response> all;
    Response message;
    while (reader->Read(&message)) {
      EXPECT_LE(message.ByteSizeLong(), kMessageMax);
      all.push_back(message);
    }
    const grpc::Status status = reader->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return all;
  }

  static storage::MemoryStore* store_;
  static Served* served_;
};
storage::MemoryStore* Bounded::store_ = nullptr;
Served* Bounded::served_ = nullptr;

TEST_F(Bounded, CandidatesComeInPagesThatCoverAll) {
  v1::GetSweepRequest request;
  request.mutable_sweep()->set_name("big");
  std::uint64_t have = 0;
  for (;;) {
    request.set_offset(have);
    const auto page = ask(&Stub::GetSweep, request);
    EXPECT_EQ(page.candidates_total(), kCandidates);
    EXPECT_LE(page.candidates_size(), 1'000);
    EXPECT_EQ(page.toml().empty(), have > 0);
    for (const auto& candidate : page.candidates()) ASSERT_EQ(candidate.index(), have++);
    if (!page.more()) break;
    ASSERT_GT(page.candidates_size(), 0);
  }
  EXPECT_EQ(have, kCandidates);
  request.set_without_candidates(true);
  const auto bare = ask(&Stub::GetSweep, request);
  EXPECT_EQ(bare.candidates_size(), 0);
  EXPECT_EQ(bare.sweep().candidates(), kCandidates);
  EXPECT_EQ(bare.sweep().failed(), kTrials / 3);
}

TEST_F(Bounded, TrialsComeInPagesBehindOneAnother) {
  v1::ListTrialsRequest request;
  request.mutable_sweep()->set_name("big");
  request.set_limit(10'000);
  std::uint64_t have = 0;
  for (;;) {
    const auto page = ask(&Stub::ListTrials, request);
    EXPECT_EQ(page.total(), have == 0 ? kTrials : 0);
    for (const auto& trial : page.trials()) ASSERT_EQ(trial.id(), ++have);
    if (!page.more()) break;
    ASSERT_GT(page.trials_size(), 0);
    request.set_after(have);
  }
  EXPECT_EQ(have, kTrials);
  request.set_offset(5);
  v1::ListTrialsResponse refused;
  EXPECT_EQ(served_->call(&Stub::ListTrials, request, &refused).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(Bounded, ATrialWithThousandsOfAttemptsShowsTheNewestAndSaysHowManyThereAre) {
  v1::GetTrialRequest request;
  request.set_trial(1);
  const auto newest = ask(&Stub::GetTrial, request);
  EXPECT_EQ(newest.attempts_total(), kMany);
  EXPECT_EQ(newest.checkpoints_total(), kMany);
  EXPECT_EQ(newest.metrics_total(), kMany + 1);
  ASSERT_GT(newest.attempts_size(), 0);
  EXPECT_EQ(newest.attempts(newest.attempts_size() - 1).number(), kMany);
  EXPECT_TRUE(newest.profile_more());
  request.set_limit(100);
  request.set_offset(kMany - 100);
  const auto oldest = ask(&Stub::GetTrial, request);
  ASSERT_EQ(oldest.attempts_size(), 100);
  EXPECT_EQ(oldest.attempts(0).number(), 1u);
  EXPECT_EQ(oldest.checkpoints(0).step(), 1);
  EXPECT_EQ(oldest.work_profile().entries_size(), 0) << "the profile stands on the first page";
}

TEST_F(Bounded, ALongSeriesComesInPagesThatCoverIt) {
  v1::GetSeriesRequest request;
  request.set_trial(1);
  request.set_metric("loss");
  std::int64_t step = 0;
  for (;;) {
    request.set_offset(static_cast<std::uint64_t>(step));
    const auto page = ask(&Stub::GetSeries, request);
    EXPECT_EQ(page.total(), 120'000u);
    for (const std::int64_t given : page.series().steps()) ASSERT_EQ(given, ++step);
    if (!page.more()) break;
  }
  EXPECT_EQ(step, 120'000);
}

TEST_F(Bounded, CurvesOfAWholeSweepAreOneStreamOfSmallMessages) {
  v1::ExportCurvesRequest request;
  request.mutable_sweep()->set_name("big");
  grpc::ClientContext context;
  Served::set_deadline(context);
  auto reader = served_->client().ExportCurves(&context, request);
  const auto messages = read_all<v1::ExportCurvesResponse>(reader);
  std::set<std::string> metrics;
  int points = 0;
  for (const auto& message : messages) {
    for (const auto& curve : message.curves()) {
      EXPECT_EQ(curve.trial(), 1u) << "the only one with points";
      EXPECT_EQ(curve.candidate_name(), "candidate 0");
      metrics.insert(curve.series().metric());
      points += curve.series().steps_size();
    }
  }
  EXPECT_EQ(metrics.size(), kMany + 1);
  EXPECT_EQ(points, 120'000 + static_cast<int>(kMany));
}

TEST_F(Bounded, WorkersComeInPagesThatCoverAll) {
  v1::ListWorkersRequest request;
  // Lists are published a moment after what they show.
  ASSERT_TRUE(eventually([&] { return ask(&Stub::ListWorkers, request).total() == kWorkers; }));
  std::uint64_t have = 0;
  for (;;) {
    request.set_offset(have);
    const auto page = ask(&Stub::ListWorkers, request);
    EXPECT_EQ(page.total(), kWorkers);
    have += static_cast<std::uint64_t>(page.workers_size());
    if (!page.more()) break;
    ASSERT_GT(page.workers_size(), 0);
  }
  EXPECT_EQ(have, kWorkers);
}

TEST_F(Bounded, EventsAreAStreamOfSmallMessages) {
  v1::WatchEventsRequest request;
  request.mutable_sweep()->set_name("big");
  grpc::ClientContext context;
  Served::set_deadline(context);
  auto reader = served_->client().WatchEvents(&context, request);
  EXPECT_EQ(read_all<v1::Event>(reader).size(), 3'000u);
}

TEST_F(Bounded, ALogComesInPieces) {
  v1::GetLogRequest request;
  request.set_trial(1);
  request.set_bytes_max(1 << 30);
  std::uint64_t bytes = 0;
  for (;;) {
    request.set_offset(bytes);
    const auto piece = ask(&Stub::GetLog, request);
    if (piece.data().empty()) break;
    bytes += piece.data().size();
  }
  EXPECT_EQ(bytes, 3u << 20);
}

TEST_F(Bounded, EveryCallThatThereIsHasATestHere) {
  // A new call is bounded by construction, too, and walked above or below; then it is named here.
  const std::map<std::string, std::string> walked = {
      {"GetSweep", "CandidatesComeInPagesThatCoverAll"},
      {"ListTrials", "TrialsComeInPagesBehindOneAnother"},
      {"GetTrial", "ATrialWithThousandsOfAttempts..."},
      {"GetSeries", "ALongSeriesComesInPagesThatCoverIt"},
      {"ExportCurves", "CurvesOfAWholeSweep..."},
      {"ControlTrials", "AFilterHits...; of 10,000 trials: tests/integration/big_sweep_test.cc"},
      {"ListWorkers", "WorkersComeInPagesThatCoverAll"},
      {"WatchEvents", "EventsAreAStreamOfSmallMessages"},
      {"GetLog", "ALogComesInPieces"},
      {"ListSweeps", "TheNewestSweepsComeFirst..."},
      {"Query", "AQuerysRowsComeInPieces"},
      {"QueryRows", "AQuerysRowsComeInPieces"},
      {"Compare", "tests/coordinator/analysis: pages of 100 kB"},
      {"CompareScaling", "16 families of 16 sizes: tests/coordinator/analysis/scaling_test.cc"},
      {"SubmitSweep", "a few numbers"},
      {"ControlSweep", "one sweep without its candidates"},
      {"Explain", "protocol::cut"},
      {"DrainWorker", "empty"},
      {"QuarantineWorker", "empty"},
      {"ReleaseWorker", "empty"},
      {"Backup", "a number"},
      {"ListSchedules", "a page by PageBudget, as candidates"},
      {"GetTrialSpec", "one sweep file, one architecture"},
      {"GetInfo", "a few numbers"},
  };
  const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      "tailor.v1.CoordinatorService");
  ASSERT_NE(service, nullptr);
  for (int i = 0; i < service->method_count(); ++i) {
    EXPECT_EQ(walked.count(service->method(i)->name()), 1u) << service->method(i)->name();
  }
}

class SmallServer : public ::testing::Test {
 protected:
  v1::SubmitSweepResponse submit(const std::string& text) {
    v1::SubmitSweepRequest request;
    request.set_toml(text);
    request.set_base_dir("/data");
    v1::SubmitSweepResponse response;
    const grpc::Status status = served_.call(&Stub::SubmitSweep, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  storage::MemoryStore store_;
  Served served_{store_};
};

TEST_F(SmallServer, TheNewestSweepsComeFirstAndTheOthersAreCounted) {
  for (int i = 1; i <= 7; ++i) submit(testing::sweep_text("sweep-" + std::to_string(i)));
  v1::ListSweepsRequest request;
  v1::ListSweepsResponse response;
  ASSERT_TRUE(served_.call(&Stub::ListSweeps, request, &response).ok());
  EXPECT_EQ(response.sweeps_size(), 7);
  EXPECT_FALSE(response.more());
  request.set_limit(3);
  request.set_offset(1);
  ASSERT_TRUE(served_.call(&Stub::ListSweeps, request, &response).ok());
  ASSERT_EQ(response.sweeps_size(), 3);
  EXPECT_EQ(response.sweeps(0).name(), "sweep-4");
  EXPECT_EQ(response.sweeps(2).name(), "sweep-6");
  EXPECT_EQ(response.total(), 7u);
  EXPECT_TRUE(response.more());
  request.set_offset(99);
  ASSERT_TRUE(served_.call(&Stub::ListSweeps, request, &response).ok());
  EXPECT_EQ(response.sweeps_size(), 0);
  EXPECT_FALSE(response.more());
}

TEST_F(SmallServer, ASweepFileOfMegabytesIsRefusedWithAWayOut) {
  v1::SubmitSweepRequest request;
  request.set_toml(testing::sweep_text() + "#" + std::string(2 << 20, 'x') + "\n");
  v1::SubmitSweepResponse response;
  const grpc::Status status = served_.call(&Stub::SubmitSweep, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("[space]"));
}

/// Six trials of two candidates, all queued.
class FilterTest : public SmallServer {
 protected:
  FilterTest() { submit(testing::sweep_text("taper", 3)); }

  v1::ControlTrialsResponse cancel(const std::function<void(v1::TrialFilter&)>& set,
                                   bool dry_run = true, grpc::Status* refused = nullptr) {
    v1::ControlTrialsRequest request;
    request.set_action(v1::ControlTrialsRequest::ACTION_CANCEL);
    request.set_dry_run(dry_run);
    request.mutable_filter()->mutable_sweep()->set_name("taper");
    set(*request.mutable_filter());
    v1::ControlTrialsResponse response;
    const grpc::Status status = served_.call(&Stub::ControlTrials, request, &response);
    if (refused != nullptr) {
      *refused = status;
    } else {
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
    return response;
  }
};

TEST_F(FilterTest, AFilterHitsWhatFitsAllOfIt) {
  EXPECT_EQ(cancel([](auto&) {}).total(), 6u);
  EXPECT_EQ(cancel([](auto& f) { f.add_candidates("wide"); }).total(), 3u);
  EXPECT_EQ(cancel([](auto& f) { f.add_end_classes("oom"); }).total(), 0u);
  EXPECT_EQ(cancel([](auto& f) { f.add_states(v1::TRIAL_STATE_FAILED); }).total(), 0u);
  std::set<std::uint64_t> seeds;
  const auto rows = store_.trials({});
  for (const auto& row : rows->trials) seeds.insert(row.seed);
  const auto one = cancel([&](auto& f) {
    f.add_candidates("wide");
    f.add_seeds(*seeds.begin());
    f.add_states(v1::TRIAL_STATE_QUEUED);
    f.add_states(v1::TRIAL_STATE_RUNNING);
  });
  EXPECT_EQ(one.total(), 1u);
  ASSERT_EQ(one.trials_size(), 1);
  EXPECT_EQ(one.by_class().at(""), 1u);
  ASSERT_EQ(one.targets_size(), 1);
  EXPECT_EQ(one.targets(0).sweep_name(), "taper");
}

TEST_F(FilterTest, WithoutADryRunExactlyTheseAreChanged) {
  const auto done = cancel([](auto& f) { f.add_candidates("wide"); }, false);
  EXPECT_EQ(done.total(), 3u);
  int cancelled = 0;
  const auto rows = store_.trials({});
  for (const auto& row : rows->trials) {
    cancelled += row.state == storage::TrialState::kCancelled ? 1 : 0;
    EXPECT_EQ(row.state == storage::TrialState::kCancelled, row.candidate == 1);
  }
  EXPECT_EQ(cancelled, 3);
  EXPECT_EQ(cancel([](auto& f) { f.add_candidates("wide"); }).total(), 0u) << "they have ended";
}

TEST_F(FilterTest, WhatAFilterNamesMustBeThere) {
  grpc::Status status;
  cancel([](auto& f) { f.add_candidates("wied"); }, false, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr("did you mean \"wide\"?"));
  cancel([](auto& f) { f.add_end_classes("melted"); }, false, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  cancel([](auto& f) { f.mutable_sweep()->set_name("other"); }, false, &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  v1::ControlTrialsRequest both;
  both.set_action(v1::ControlTrialsRequest::ACTION_CANCEL);
  both.add_trials(1);
  both.mutable_filter()->mutable_sweep()->set_name("taper");
  v1::ControlTrialsResponse response;
  EXPECT_EQ(served_.call(&Stub::ControlTrials, both, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(BoundedQuery, AQuerysRowsComeInPieces) {
  const test::TemporaryFolder folder;
  auto store = storage::open_sqlite(folder.file("t.db"));
  ASSERT_TRUE(store.has_value());
  Served served(**store);
  v1::QueryRequest request;
  request.set_sql(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000) "
      "SELECT i, printf('%.*c', 1000, 'x') FROM n");
  grpc::ClientContext context;
  Served::set_deadline(context);
  auto reader = served.client().QueryRows(&context, request);
  v1::QueryResponse piece;
  std::int64_t rows = 0;
  int pieces = 0;
  while (reader->Read(&piece)) {
    EXPECT_LE(piece.ByteSizeLong(), kMessageMax);
    EXPECT_EQ(piece.columns_size(), pieces == 0 ? 2 : 0);
    EXPECT_FALSE(piece.truncated());
    for (const auto& row : piece.rows()) ASSERT_EQ(row.cells(0).text(), std::to_string(++rows));
    ++pieces;
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(rows, 8'000);
  EXPECT_GT(pieces, 1);
  v1::QueryResponse one;
  ASSERT_TRUE(served.call(&Stub::Query, request, &one).ok());
  EXPECT_TRUE(one.truncated());
  EXPECT_GT(one.rows_size(), 100);
  EXPECT_LE(one.ByteSizeLong(), kMessageMax);
  request.set_sql("SELECT 1 WHERE 0");
  grpc::ClientContext second;
  Served::set_deadline(second);
  auto empty = served.client().QueryRows(&second, request);
  ASSERT_TRUE(empty->Read(&piece));
  EXPECT_EQ(piece.columns_size(), 1);
  EXPECT_EQ(piece.rows_size(), 0);
  EXPECT_FALSE(empty->Read(&piece));
  EXPECT_TRUE(empty->Finish().ok());
}

// ---- messages of workers

v1::WorkerMessage hello_of(const std::string& version) {
  v1::WorkerMessage message;
  message.mutable_hello()->set_worker_name("node1");
  message.mutable_hello()->set_version(version);
  return message;
}

grpc::Status end_of(Served& served, const v1::WorkerMessage& message) {
  grpc::ClientContext context;
  Served::set_deadline(context);
  auto stream = served.workers().Session(&context);
  stream->Write(message);
  v1::CoordinatorMessage answer;
  while (stream->Read(&answer)) continue;
  return stream->Finish();
}

TEST_F(SmallServer, AWorkerOfAFarVersionIsRefusedWithBothVersions) {
  const grpc::Status status = end_of(served_, hello_of("99.9.9"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("99.9.9"));
  EXPECT_THAT(status.error_message(), HasSubstr("1.2.3"));
  EXPECT_TRUE(store_.workers()->empty()) << "nothing of it is kept";
}

TEST_F(SmallServer, ANameOfMegabytesIsRefusedAndNotStored) {
  v1::WorkerMessage message = hello_of("1.2.3");
  message.mutable_hello()->set_host(std::string(3 << 20, 'h'));
  const grpc::Status status = end_of(served_, message);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("Hello.host"));
  EXPECT_TRUE(store_.workers()->empty());
}

TEST_F(SmallServer, AMessageOfAHundredMegabytesEndsItsStreamAndNothingElse) {
  v1::WorkerMessage message = hello_of("1.2.3");
  message.mutable_hello()->set_host(std::string(100 << 20, 'h'));
  EXPECT_EQ(end_of(served_, message).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(store_.workers()->empty());
  v1::GetInfoResponse info;
  EXPECT_TRUE(served_.call(&Stub::GetInfo, v1::GetInfoRequest(), &info).ok());
}

TEST_F(SmallServer, AnUnknownEnumValueIsRefusedByName) {
  v1::WorkerMessage message = hello_of("1.2.3");
  message.mutable_hello()->add_slots()->set_kind(static_cast<v1::DeviceKind>(77));
  const grpc::Status status = end_of(served_, message);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("77"));
}

}  // namespace
}  // namespace tailor::rpc
