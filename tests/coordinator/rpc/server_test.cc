// The gRPC server end to end, in one process on a free port: clients by blocking stubs, workers by
// a plain bidirectional stream.
#include "coordinator/rpc/server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <set>

#include "protocol/channel.h"
#include "protocol/convert.h"
#include "storage/sqlite_store.h"
#include "tailor/v1/coordinator.grpc.pb.h"
#include "tailor/v1/worker.grpc.pb.h"
#include "tests/coordinator/engine/support.h"
#include "tests/support/temporary_folder.h"

namespace tailor::rpc {
namespace {

using testing::eventually;
using testing::GatedStore;
using ::testing::HasSubstr;
using testing::sweep_text;

/// A worker as the network sees it: sends plain messages,
/// collects what comes back on its own thread.
class FakeWorker {
 public:
  explicit FakeWorker(v1::WorkerService::Stub& stub) : stream_(stub.Session(&context_)) {
    reader_ = std::jthread([this] {
      v1::CoordinatorMessage proto;
      while (stream_->Read(&proto)) {
        auto message = protocol::from_proto(proto);
        const std::scoped_lock lock(mutex_);
        if (message.has_value()) {
          messages_.push_back(std::move(*message));
        } else {
          ADD_FAILURE() << message.error().message();
        }
      }
      const std::scoped_lock lock(mutex_);
      ended_ = true;
    });
  }
  ~FakeWorker() {
    context_.TryCancel();
    reader_.join();
  }

  bool send(const protocol::WorkerMessage& message) {
    v1::WorkerMessage proto;
    protocol::to_proto(message, &proto);
    return stream_->Write(proto);
  }
  bool send_raw(const v1::WorkerMessage& proto) { return stream_->Write(proto); }
  void cancel() { context_.TryCancel(); }
  bool ended() const {
    const std::scoped_lock lock(mutex_);
    return ended_;
  }
  /// Waits for the server to end the stream.
  grpc::Status finish() {
    EXPECT_TRUE(eventually([this] { return ended(); }));
    return stream_->Finish();
  }
  template <typename M>
  std::vector<M> received() const {
    const std::scoped_lock lock(mutex_);
    std::vector<M> found;
    for (const auto& message : messages_) {
      if (const auto* m = std::get_if<M>(&message)) found.push_back(*m);
    }
    return found;
  }
  template <typename M>
  bool wait_for(std::size_t count = 1) const {
    return eventually([&] { return received<M>().size() >= count; });
  }
  /// Tells the whole story of the attempt of `assign`, ending with `loss`.
  void complete(const protocol::Assign& assign, double loss) {
    protocol::Reports reports;
    reports.ref = {{assign.spec.trial, assign.spec.attempt}, assign.spec.token};
    reports.reports.push_back({1, 1, protocol::StartedReport{}});
    reports.reports.push_back({2, 2, protocol::MetricReport{1, 64, {{"train_loss", loss + 1}}}});
    protocol::EndReport end;
    end.values = {{"validation_loss", loss}};
    reports.reports.push_back({3, 3, end});
    send(reports);
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;
  mutable std::mutex mutex_;  // guards: messages_, ended_
  std::vector<protocol::CoordinatorMessage> messages_;
  bool ended_ = false;
  std::jthread reader_;
};

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() { start(store_); }
  ~ServerTest() override { stop(); }

  void start(storage::Store& store) {
    engine::Options options;
    options.retry_ms = 5;
    engine_ = std::move(*engine::Engine::start(store, clock_, {}, options));
    views_ = std::make_unique<engine::Views>(store, *engine_);
    Options rpc;
    rpc.listen = "127.0.0.1:0";
    rpc.version = "1.2.3";
    rpc.database = "test.db";
    rpc.on_call = [this](std::string_view, Code) { ++calls_; };
    auto server = Server::start(*views_, rpc);
    ASSERT_TRUE(server.has_value()) << server.error().message();
    server_ = std::move(*server);
    server_->set_serving(true);
    channel_ = protocol::open_channel("127.0.0.1:" + std::to_string(server_->port()));
    client_ = v1::CoordinatorService::NewStub(channel_);
    workers_ = v1::WorkerService::NewStub(channel_);
  }
  void stop() {
    if (server_) server_->stop(200);
    if (engine_) engine_->stop();
    server_.reset();
    views_.reset();
    engine_.reset();
  }

  template <typename Method, typename Request, typename Response>
  grpc::Status call(Method method, const Request& request, Response* response,
                    std::int64_t timeout_ms = 10'000) {
    grpc::ClientContext context;
    context.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_millis(timeout_ms, GPR_TIMESPAN)));
    return (client_.get()->*method)(&context, request, response);
  }

  v1::SubmitSweepResponse submit(const std::string& text, grpc::Status* status = nullptr) {
    v1::SubmitSweepRequest request;
    request.set_toml(text);
    request.set_file_name("taper.toml");
    request.set_base_dir("/data");
    v1::SubmitSweepResponse response;
    const grpc::Status got = call(&v1::CoordinatorService::Stub::SubmitSweep, request, &response);
    if (status != nullptr) {
      *status = got;
    } else {
      EXPECT_TRUE(got.ok()) << got.error_message();
    }
    return response;
  }

  GatedStore store_;
  ManualClock clock_;
  std::atomic<int> calls_{0};
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::Views> views_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CoordinatorService::Stub> client_;
  std::unique_ptr<v1::WorkerService::Stub> workers_;
};

using Stub = v1::CoordinatorService::Stub;

TEST_F(ServerTest, SubmittingTheSameFileTwiceGivesTheSameSweep) {
  const auto first = submit(sweep_text());
  EXPECT_TRUE(first.created());
  EXPECT_EQ(first.candidates(), 2u);
  EXPECT_EQ(first.trials(), 4u);
  const auto second = submit(sweep_text());
  EXPECT_EQ(second.sweep(), first.sweep());
  EXPECT_FALSE(second.created());
}

TEST_F(ServerTest, TheSameNameWithOtherContentIsAConflict) {
  submit(sweep_text("taper", 2));
  grpc::Status status;
  submit(sweep_text("taper", 3), &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
}

TEST_F(ServerTest, ABadFileIsRefusedWithItsPositionAndNothingIsSubmitted) {
  grpc::Status status;
  submit("name = \"x\"\nobjectivs = [\"validation_loss\"]\n", &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("taper.toml:"));
  v1::ListSweepsResponse sweeps;
  ASSERT_TRUE(call(&Stub::ListSweeps, v1::ListSweepsRequest(), &sweeps).ok());
  EXPECT_EQ(sweeps.sweeps_size(), 0);
}

TEST_F(ServerTest, ASweepFileOfAnyDepthIsRefusedAndTheCoordinatorGoesOn) {
  std::string keys = "a", lists;
  for (int i = 0; i < 200'000; ++i) {
    keys += ".a";
    lists += "[";
  }
  for (const std::string& deep :
       {"[" + keys + "]\n", "[[" + keys + "]]\n", keys + " = 1\n", "x = {" + keys + " = 1}\n",
        "x = " + lists, std::string("[{a.b=}]\n"), std::string("a = 1\n\0", 7)}) {
    grpc::Status status;
    submit(sweep_text() + deep, &status);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  }
  // A message that does not fit into the trailing metadata would arrive as another error.
  grpc::Status status;
  submit(std::string(100'000, 'k') + " = 1\n" + sweep_text(), &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  submit(sweep_text(), &status);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServerTest, ARelativeBaseFolderIsRefused) {
  v1::SubmitSweepRequest request;
  request.set_toml(sweep_text());
  request.set_base_dir("data");
  v1::SubmitSweepResponse response;
  EXPECT_EQ(call(&Stub::SubmitSweep, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, ASweepIsFoundByIdByNameAndAsTheLast) {
  submit(sweep_text("first"));
  submit(sweep_text("second"));
  v1::GetSweepRequest request;
  v1::GetSweepResponse response;
  request.mutable_sweep()->set_id(1);
  ASSERT_TRUE(call(&Stub::GetSweep, request, &response).ok());
  EXPECT_EQ(response.sweep().name(), "first");
  EXPECT_EQ(response.candidates_size(), 2);
  EXPECT_EQ(response.toml(), sweep_text("first"));
  request.mutable_sweep()->set_name("last");
  ASSERT_TRUE(call(&Stub::GetSweep, request, &response).ok());
  EXPECT_EQ(response.sweep().name(), "second");
  request.mutable_sweep()->set_name("frist");
  const auto missing = call(&Stub::GetSweep, request, &response);
  EXPECT_EQ(missing.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(missing.error_message(), HasSubstr("first"));
  request.mutable_sweep()->set_id(9);
  EXPECT_EQ(call(&Stub::GetSweep, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(call(&Stub::GetSweep, v1::GetSweepRequest(), &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, AWorkerRunsASweepToItsPairedTable) {
  submit(sweep_text());
  FakeWorker worker(*workers_);
  ASSERT_TRUE(worker.send(testing::hello("node1", 2)));
  ASSERT_TRUE(worker.wait_for<protocol::Welcome>());
  std::size_t done = 0;
  ASSERT_TRUE(eventually([&] {
    const auto assigned = worker.received<protocol::Assign>();
    for (; done < assigned.size(); ++done) {
      const auto& spec = assigned[done].spec;
      worker.complete(assigned[done], (spec.candidate_name == "wide" ? 2.0 : 3.0) +
                                          0.5 * static_cast<double>(spec.seed));
    }
    v1::GetSweepRequest request;
    request.mutable_sweep()->set_name("taper");
    v1::GetSweepResponse sweep;
    return call(&Stub::GetSweep, request, &sweep).ok() &&
           sweep.sweep().state() == v1::SWEEP_STATE_COMPLETED;
  }));
  EXPECT_EQ(done, 4u);
  EXPECT_TRUE(worker.wait_for<protocol::ReportsAck>(4));

  v1::CompareRequest compare;
  compare.mutable_sweep()->set_name("taper");
  v1::CompareResponse table;
  ASSERT_TRUE(call(&Stub::Compare, compare, &table).ok());
  EXPECT_EQ(table.baseline(), "plain");
  ASSERT_EQ(table.rows_size(), 2);
  EXPECT_DOUBLE_EQ(table.rows(1).difference(), -1.0);
  EXPECT_DOUBLE_EQ(table.rows(1).p_sign_flip(), 0.5);
  EXPECT_EQ(table.rows(1).status(), "complete");
  EXPECT_EQ(table.best(), table.rows(1).candidate());
  EXPECT_EQ(table.next_offset(), 0u);
  EXPECT_DOUBLE_EQ(table.rows(1).p_westfall_young(), 0.5);
  EXPECT_DOUBLE_EQ(table.rows(1).p_wilcoxon(), 0.5);
  EXPECT_NE(table.rows(1).verdict_text().find("n = 2"), std::string::npos);
  EXPECT_DOUBLE_EQ(table.smallest_effect(), 0.02);
  compare.set_ratio_to("nobody");
  EXPECT_EQ(call(&Stub::Compare, compare, &table).error_code(), grpc::INVALID_ARGUMENT);
  compare.clear_ratio_to();
  v1::CompareScalingRequest scaling;
  scaling.mutable_sweep()->set_name("taper");
  v1::CompareScalingResponse laws;
  EXPECT_EQ(call(&Stub::CompareScaling, scaling, &laws).error_code(), grpc::FAILED_PRECONDITION);
  compare.set_limit(1);
  ASSERT_TRUE(call(&Stub::Compare, compare, &table).ok());
  EXPECT_EQ(table.rows_size(), 1);
  EXPECT_EQ(table.next_offset(), 1u);
  compare.set_order("loss");
  EXPECT_EQ(call(&Stub::Compare, compare, &table).error_code(), grpc::INVALID_ARGUMENT);

  v1::ListTrialsRequest list;
  list.mutable_sweep()->set_name("taper");
  list.set_order("objective");
  list.set_limit(1);
  v1::ListTrialsResponse page;
  ASSERT_TRUE(call(&Stub::ListTrials, list, &page).ok());
  EXPECT_EQ(page.total(), 4u);
  ASSERT_EQ(page.trials_size(), 1);
  EXPECT_EQ(page.trials(0).candidate_name(), "wide");

  v1::GetTrialRequest get;
  get.set_trial(page.trials(0).id());
  v1::GetTrialResponse trial;
  ASSERT_TRUE(call(&Stub::GetTrial, get, &trial).ok());
  ASSERT_EQ(trial.attempts_size(), 1);
  EXPECT_EQ(trial.attempts(0).worker_name(), "node1");
  EXPECT_EQ(trial.attempts(0).end_class(), "completed");
  EXPECT_THAT(trial.metrics(), ::testing::Contains("train_loss"));

  v1::GetSeriesRequest series_request;
  series_request.set_trial(get.trial());
  series_request.set_metric("train_loss");
  v1::GetSeriesResponse series;
  ASSERT_TRUE(call(&Stub::GetSeries, series_request, &series).ok());
  ASSERT_EQ(series.series().values_size(), 1);

  v1::ListWorkersResponse workers;
  ASSERT_TRUE(call(&Stub::ListWorkers, v1::ListWorkersRequest(), &workers).ok());
  ASSERT_EQ(workers.workers_size(), 1);
  EXPECT_TRUE(workers.workers(0).connected());
  EXPECT_EQ(workers.workers(0).devices(), "2 x cpu");
  EXPECT_GT(calls_.load(), 5);
}

TEST_F(ServerTest, ReportsAreAcknowledgedOnlyAfterTheyAreStored) {
  submit(sweep_text());
  FakeWorker worker(*workers_);
  worker.send(testing::hello("node1"));
  ASSERT_TRUE(worker.wait_for<protocol::Assign>());
  const auto assign = worker.received<protocol::Assign>().front();
  const int before = store_.begun();
  store_.hold(true);
  worker.complete(assign, 2.5);
  ASSERT_TRUE(eventually([&] { return store_.begun() > before; }));
  EXPECT_TRUE(worker.received<protocol::ReportsAck>().empty());
  store_.hold(false);
  EXPECT_TRUE(worker.wait_for<protocol::ReportsAck>());
  EXPECT_EQ(store_.trial(assign.spec.trial)->state, storage::TrialState::kCompleted);
}

TEST_F(ServerTest, ASessionThatDoesNotBeginWithHelloIsRefused) {
  FakeWorker worker(*workers_);
  worker.send(protocol::Heartbeat{1, {}});
  EXPECT_EQ(worker.finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, AnEmptyMessageEndsTheSessionWithAReason) {
  FakeWorker worker(*workers_);
  worker.send(testing::hello("node1"));
  ASSERT_TRUE(worker.wait_for<protocol::Welcome>());
  worker.send_raw(v1::WorkerMessage());
  EXPECT_EQ(worker.finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, AMessageOfANewerVersionIsPassedOver) {
  FakeWorker worker(*workers_);
  worker.send(testing::hello("node1"));
  ASSERT_TRUE(worker.wait_for<protocol::Welcome>());
  v1::WorkerMessage newer;
  ASSERT_TRUE(newer.ParseFromString("\xfa\x3f\x02hi"));  // field 1023
  for (int i = 0; i < 20; ++i) worker.send_raw(newer);
  worker.send(protocol::Heartbeat{7, {}});
  ASSERT_TRUE(worker.wait_for<protocol::HeartbeatAck>());
  EXPECT_EQ(worker.received<protocol::HeartbeatAck>()[0].serial, 7u);
}

TEST_F(ServerTest, AReportThatCannotBeReadEndsItsAttemptAndNotTheSession) {
  FakeWorker worker(*workers_);
  worker.send(testing::hello("node1"));
  submit(testing::sweep_text());
  ASSERT_TRUE(worker.wait_for<protocol::Assign>());
  const protocol::TrialSpec spec = worker.received<protocol::Assign>()[0].spec;
  v1::WorkerMessage message;
  auto& reports = *message.mutable_reports();
  reports.mutable_ref()->set_trial(spec.trial.value);
  reports.mutable_ref()->set_attempt(spec.attempt);
  reports.mutable_ref()->set_token(spec.token);
  v1::Report newer;
  ASSERT_TRUE(newer.ParseFromString("\x08\x01\xfa\x3f\x02hi"));  // sequence 1, field 1023
  *reports.add_reports() = newer;
  worker.send_raw(message);
  ASSERT_TRUE(worker.wait_for<protocol::Stop>());
  EXPECT_EQ(worker.received<protocol::Stop>()[0].ref.attempt.trial, spec.trial);
  const auto attempts = store_.attempts(spec.trial).value();
  ASSERT_FALSE(attempts.empty());
  EXPECT_THAT(attempts.front().message, ::testing::HasSubstr("no body that this version knows"));
  worker.send(protocol::Heartbeat{7, {}});
  EXPECT_TRUE(worker.wait_for<protocol::HeartbeatAck>()) << "the session goes on";
}

TEST_F(ServerTest, ASecondWorkerWithTheNameOfOneThatIsConnectedIsRefused) {
  FakeWorker first(*workers_);
  first.send(testing::hello("node1"));
  ASSERT_TRUE(first.wait_for<protocol::Welcome>());
  FakeWorker second(*workers_);
  protocol::Hello hello = testing::hello("node1");
  hello.instance = "instance-2";
  second.send(hello);
  EXPECT_EQ(second.finish().error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_FALSE(first.ended());
}

TEST_F(ServerTest, ALostWorkerIsNoticed) {
  {
    FakeWorker worker(*workers_);
    worker.send(testing::hello("node1"));
    ASSERT_TRUE(worker.wait_for<protocol::Welcome>());
    worker.cancel();
    ASSERT_TRUE(eventually([&] { return worker.ended(); }));
  }
  EXPECT_TRUE(eventually([&] {
    const auto workers = views_->workers();
    return workers.size() == 1 && !workers.front().connected;
  }));
}

TEST_F(ServerTest, OfManyHeartbeatsInARowTheLastIsAnswered) {
  FakeWorker worker(*workers_);
  worker.send(testing::hello("node1"));
  for (std::uint64_t serial = 1; serial <= 500; ++serial) {
    ASSERT_TRUE(worker.send(protocol::Heartbeat{serial, {}}));
  }
  ASSERT_TRUE(eventually([&] {
    const auto acks = worker.received<protocol::HeartbeatAck>();
    return !acks.empty() && acks.back().serial == 500;
  }));
  const auto acks = worker.received<protocol::HeartbeatAck>();
  for (std::size_t i = 1; i < acks.size(); ++i) EXPECT_GT(acks[i].serial, acks[i - 1].serial);
}

TEST_F(ServerTest, ControlsASweepAndItsTrials) {
  submit(sweep_text());
  v1::ControlSweepRequest pause;
  pause.mutable_sweep()->set_name("taper");
  pause.set_pause(true);
  v1::ControlSweepResponse sweep;
  ASSERT_TRUE(call(&Stub::ControlSweep, pause, &sweep).ok());
  EXPECT_EQ(sweep.sweep().state(), v1::SWEEP_STATE_PAUSED);
  v1::ControlSweepRequest priority;
  priority.mutable_sweep()->set_id(1);
  priority.set_priority(7);
  ASSERT_TRUE(call(&Stub::ControlSweep, priority, &sweep).ok());
  EXPECT_EQ(sweep.sweep().priority(), 7);
  v1::ControlSweepRequest nothing;
  nothing.mutable_sweep()->set_id(1);
  EXPECT_EQ(call(&Stub::ControlSweep, nothing, &sweep).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);

  v1::ControlTrialsRequest cancel;
  cancel.add_trials(1);
  cancel.set_action(v1::ControlTrialsRequest::ACTION_CANCEL);
  cancel.set_dry_run(true);
  v1::ControlTrialsResponse trials;
  ASSERT_TRUE(call(&Stub::ControlTrials, cancel, &trials).ok());
  EXPECT_EQ(trials.trials_size(), 1);
  EXPECT_EQ(store_.trial(TrialId{1})->state, storage::TrialState::kQueued);
  cancel.set_dry_run(false);
  ASSERT_TRUE(call(&Stub::ControlTrials, cancel, &trials).ok());
  EXPECT_EQ(store_.trial(TrialId{1})->state, storage::TrialState::kCancelled);
  EXPECT_EQ(call(&Stub::ControlTrials, v1::ControlTrialsRequest(), &trials).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, DrainsAWorkerByName) {
  FakeWorker worker(*workers_);
  worker.send(testing::hello("node1"));
  ASSERT_TRUE(worker.wait_for<protocol::Welcome>());
  v1::DrainWorkerRequest request;
  request.set_worker("node1");
  v1::DrainWorkerResponse response;
  ASSERT_TRUE(call(&Stub::DrainWorker, request, &response).ok());
  EXPECT_TRUE(worker.wait_for<protocol::Drain>());
  request.set_worker("node2");
  EXPECT_EQ(call(&Stub::DrainWorker, request, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServerTest, WatchingGivesEveryEventOnceInOrderAndEndsWithoutFollow) {
  submit(sweep_text("first"));
  submit(sweep_text("second"));
  const auto stored = store_.events(0, 1'000, {}, {}).value();
  grpc::ClientContext context;
  auto reader = client_->WatchEvents(&context, v1::WatchEventsRequest());
  std::vector<std::uint64_t> ids;
  v1::Event event;
  while (reader->Read(&event)) ids.push_back(event.id());
  EXPECT_TRUE(reader->Finish().ok());
  std::vector<std::uint64_t> expected;
  for (const auto& row : stored) expected.push_back(row.id);
  EXPECT_EQ(ids, expected);
}

TEST_F(ServerTest, FollowingSeesNewEventsOfItsSweepAndEndsWithTheServer) {
  submit(sweep_text("first"));
  grpc::ClientContext context;
  v1::WatchEventsRequest request;
  request.mutable_sweep()->set_name("first");
  request.set_follow(true);
  auto reader = client_->WatchEvents(&context, request);
  std::mutex mutex;  // guards: seen
  std::vector<v1::Event> seen;
  std::jthread thread([&] {
    v1::Event event;
    while (reader->Read(&event)) {
      const std::scoped_lock lock(mutex);
      seen.push_back(event);
    }
  });
  const auto has = [&](const std::string& kind) {
    const std::scoped_lock lock(mutex);
    for (const auto& event : seen) {
      if (event.kind() == kind) return true;
    }
    return false;
  };
  ASSERT_TRUE(eventually([&] { return has("sweep_submitted"); }));
  submit(sweep_text("second"));
  v1::ControlSweepRequest pause;
  pause.mutable_sweep()->set_name("first");
  pause.set_pause(true);
  v1::ControlSweepResponse response;
  ASSERT_TRUE(call(&Stub::ControlSweep, pause, &response).ok());
  EXPECT_TRUE(eventually([&] { return has("sweep_paused"); }));
  server_->stop(200);
  thread.join();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  std::set<std::uint64_t> ids;
  for (const auto& event : seen) {
    EXPECT_EQ(event.sweep(), 1u);
    EXPECT_TRUE(ids.insert(event.id()).second) << "twice: " << event.id();
  }
}

TEST_F(ServerTest, WatchingAnUnknownSweepIsNotFound) {
  grpc::ClientContext context;
  v1::WatchEventsRequest request;
  request.mutable_sweep()->set_name("nobody");
  auto reader = client_->WatchEvents(&context, request);
  v1::Event event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(ServerTest, ACallKeepsItsDeadlineWhileACommitHangs) {
  store_.hold(true);
  v1::SubmitSweepRequest request;
  request.set_toml(sweep_text());
  request.set_base_dir("/data");
  v1::SubmitSweepResponse response;
  EXPECT_EQ(call(&Stub::SubmitSweep, request, &response, 100).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  store_.hold(false);
  EXPECT_TRUE(eventually([&] { return store_.sweep_by_name("taper").has_value(); }))
      << "the request itself was taken; repeating it is safe";
}

TEST_F(ServerTest, AFullDiskIsAnsweredAsExhaustedAndReadsGoOn) {
  submit(sweep_text());
  store_.inner.set_fault(Status(Code::kResourceExhausted, "the disk is full"));
  v1::ControlSweepRequest pause;
  pause.mutable_sweep()->set_id(1);
  pause.set_pause(true);
  v1::ControlSweepResponse ignored;
  // The batch that is kept.
  EXPECT_EQ(call(&Stub::ControlSweep, pause, &ignored, 100).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  ASSERT_TRUE(eventually([&] { return engine_->health().stalled; }));
  grpc::Status status;
  submit(sweep_text("other"), &status);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::ListSweepsResponse sweeps;
  EXPECT_TRUE(call(&Stub::ListSweeps, v1::ListSweepsRequest(), &sweeps).ok());
  EXPECT_EQ(sweeps.sweeps_size(), 1);
  store_.inner.set_fault(Status::ok());
  EXPECT_TRUE(
      eventually([&] { return store_.sweep(SweepId{1})->state == storage::SweepState::kPaused; }));
}

TEST_F(ServerTest, StoppingEndsWorkerStreamsAsUnavailable) {
  FakeWorker worker(*workers_);
  worker.send(testing::hello("node1"));
  ASSERT_TRUE(worker.wait_for<protocol::Welcome>());
  server_->stop(1'000);
  EXPECT_EQ(worker.finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, APortInUseIsAConflictThatNamesIt) {
  Options options;
  options.listen = "127.0.0.1:" + std::to_string(server_->port());
  const auto second = Server::start(*views_, options);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.error().message(), HasSubstr(options.listen));
}

TEST_F(ServerTest, ExplainsGivesLogsAndInfo) {
  submit(sweep_text());
  v1::ExplainRequest why;
  why.set_trial(1);
  v1::ExplainResponse text;
  ASSERT_TRUE(call(&Stub::Explain, why, &text).ok());
  EXPECT_FALSE(text.text().empty());
  why.set_trial(99);
  EXPECT_EQ(call(&Stub::Explain, why, &text).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::GetLogRequest log;
  log.set_trial(1);
  v1::GetLogResponse piece;
  ASSERT_TRUE(call(&Stub::GetLog, log, &piece).ok());
  EXPECT_EQ(piece.data(), "");
  EXPECT_FALSE(piece.ended());
  server_->set_http_address("127.0.0.1:7071");
  v1::GetInfoResponse info;
  ASSERT_TRUE(call(&Stub::GetInfo, v1::GetInfoRequest(), &info).ok());
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_EQ(info.trials_queued(), 4u);
  EXPECT_EQ(info.http_address(), "127.0.0.1:7071");
}

TEST_F(ServerTest, WrongListArgumentsAreRefused) {
  v1::ListTrialsRequest request;
  v1::ListTrialsResponse response;
  request.set_order("loss");
  EXPECT_EQ(call(&Stub::ListTrials, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  request.set_order("");
  request.set_state(static_cast<v1::TrialState>(77));
  EXPECT_EQ(call(&Stub::ListTrials, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

/// The same over a database file.
class SqliteServerTest : public ServerTest {
 protected:
  SqliteServerTest() {
    stop();
    auto opened = storage::open_sqlite(temporary_.file("t.db"));
    EXPECT_TRUE(opened.has_value());
    sqlite_ = std::move(*opened);
    start(*sqlite_);
  }
  ~SqliteServerTest() override {
    stop();
    sqlite_.reset();
  }
  const test::TemporaryFolder temporary_;
  std::unique_ptr<storage::Store> sqlite_;
};

TEST_F(SqliteServerTest, AnswersASelectAndRefusesAWrite) {
  v1::QueryRequest request;
  request.set_sql("SELECT 6 * 7 AS answer, NULL AS missing");
  v1::QueryResponse response;
  const auto status = call(&Stub::Query, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.columns(), ::testing::ElementsAre("answer", "missing"));
  EXPECT_EQ(response.rows(0).cells(0).text(), "42");
  EXPECT_EQ(response.rows(0).cells(0).kind(), v1::QueryRow::KIND_INTEGER);
  EXPECT_FALSE(response.rows(0).cells(1).has_text());
  EXPECT_EQ(response.rows(0).cells(1).kind(), v1::QueryRow::KIND_NULL);
  request.set_sql("CREATE TABLE x (y INTEGER)");
  EXPECT_EQ(call(&Stub::Query, request, &response).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  request.set_sql("SELEC 1");
  EXPECT_EQ(call(&Stub::Query, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(SqliteServerTest, BacksUpToANewFileAndNeverOverOne) {
  submit(sweep_text());
  v1::BackupRequest request;
  request.set_path(temporary_.file("copy.db"));
  v1::BackupResponse response;
  const auto status = call(&Stub::Backup, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.bytes(), std::filesystem::file_size(request.path()));
  EXPECT_EQ(call(&Stub::Backup, request, &response).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  request.set_path("copy.db");
  EXPECT_EQ(call(&Stub::Backup, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const auto copy = storage::open_sqlite(temporary_.file("copy.db"));
  ASSERT_TRUE(copy.has_value());
  EXPECT_TRUE((*copy)->sweep_by_name("taper").has_value());
}

}  // namespace
}  // namespace tailor::rpc
