// Checkpoints over gRPC: what one worker brings, the next one fetches; nobody else does.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "base/hash.h"
#include "coordinator/rpc/server.h"
#include "protocol/channel.h"
#include "protocol/convert.h"
#include "storage/artifacts.h"
#include "tailor/v1/artifact.grpc.pb.h"
#include "tailor/v1/coordinator.grpc.pb.h"
#include "tailor/v1/worker.grpc.pb.h"
#include "tests/coordinator/engine/support.h"
#include "tests/support/temporary_folder.h"
#include "worker/agent/session_artifacts.h"

namespace tailor::rpc {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::size_t kModelBytes = 2'500'000;  // more than two chunks

class ArtifactServiceTest : public ::testing::Test {
 protected:
  ~ArtifactServiceTest() override { stop(); }

  void start(bool with_store) {
    std::vector<std::string> warnings;
    if (with_store) {
      artifacts_ =
          *storage::ArtifactStore::open(folder_.file("artifacts"), quota_, "db1", &warnings);
    }
    engine_ = std::move(*engine::Engine::start(store_, clock_, {}, {}));
    views_ = std::make_unique<engine::Views>(store_, *engine_);
    Options options;
    options.listen = "127.0.0.1:0";
    options.artifacts = artifacts_.get();
    options.on_call = [this](std::string_view method, Code code) {
      if (method == "WriteChunk" && code == Code::kCancelled) ++writes_left_;
      if (method == "WriteChunk" && code == Code::kOk) ++writes_;
      if (method == "ReadChunk" && code == Code::kOk) ++reads_;
    };
    server_ = std::move(*Server::start(*views_, options));
    const std::string address = "127.0.0.1:" + std::to_string(server_->port());
    channel_ = protocol::open_channel(address);
    workers_ = v1::WorkerService::NewStub(channel_);
    address_ = address;
    client_ = std::make_unique<agent::ArtifactClient>(address, 0);
  }
  void stop() {
    if (context_) context_->TryCancel();
    stream_.reset();
    client_.reset();
    if (server_) server_->stop(200);
    if (engine_) engine_->stop();
    server_.reset();
    views_.reset();
    engine_.reset();
    artifacts_.reset();
  }

  /// A worker connects, is given a trial and reports a checkpoint of it.
  void run_a_trial() {
    engine_->request(testing::submit_event(testing::sweep_text()),
                     [](const Status& status, const core::ReplyBody&) {
                       EXPECT_TRUE(status.is_ok()) << status.message();
                     });
    context_ = std::make_unique<grpc::ClientContext>();
    stream_ = workers_->Session(context_.get());
    send(testing::hello("node1"));
    assign_ = wait_for<protocol::Assign>();
    ref_ = {{assign_.spec.trial, assign_.spec.attempt}, assign_.spec.token};
    checkpoint_ = make_checkpoint(folder_.file("checkpoint"), 120);
    send(protocol::Reports{ref_, {{1, 1, protocol::StartedReport{}}, {2, 2, checkpoint_}}});
    EXPECT_EQ(wait_for<protocol::ReportsAck>().through_sequence, 2u);
  }
  void send(const protocol::WorkerMessage& message) {
    v1::WorkerMessage proto;
    protocol::to_proto(message, &proto);
    ASSERT_TRUE(stream_->Write(proto));
  }
  template <typename M>
  M wait_for() {
    v1::CoordinatorMessage proto;
    while (stream_->Read(&proto)) {
      auto message = protocol::from_proto(proto);
      if (!message.has_value()) continue;
      if (const auto* wanted = std::get_if<M>(&*message)) return *wanted;
    }
    ADD_FAILURE() << "the stream ended";
    return M();
  }
  /// The next order for the trial of `run_a_trial`; others of the sweep may come first.
  protocol::Assign wait_for_assign() {
    protocol::Assign next = wait_for<protocol::Assign>();
    while (next.spec.trial.value != 0 && next.spec.trial != ref_.attempt.trial) {
      send(protocol::Refused{{{next.spec.trial, next.spec.attempt}, next.spec.token},
                             protocol::EndClass::kStopped,
                             "not this one"});
      next = wait_for<protocol::Assign>();
    }
    return next;
  }
  protocol::CheckpointReport make_checkpoint(const std::string& folder, std::int64_t step) {
    std::filesystem::create_directories(folder);
    std::string model;
    for (std::size_t i = 0; i < kModelBytes; ++i) model += static_cast<char>(i * 31 % 251);
    std::ofstream(folder + "/model") << model;
    const std::string manifest =
        "{\"files\": {\"model\": {\"sha256\": \"" + sha256_hex(model) + "\"}}}";
    std::ofstream(folder + "/manifest.json") << manifest;
    return {step, folder, sha256_hex(manifest), static_cast<std::int64_t>(kModelBytes)};
  }
  static bool never() { return false; }

  std::uint64_t quota_ = 100'000'000;
  test::TemporaryFolder folder_;
  storage::MemoryStore store_;
  ManualClock clock_;
  std::unique_ptr<storage::ArtifactStore> artifacts_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::Views> views_;
  std::unique_ptr<Server> server_;
  std::atomic<int> writes_left_ = 0;  // calls of WriteChunk whose caller left
  std::atomic<int> writes_ = 0;       // chunks that were taken
  /// The first chunk of a model's file, and not all of it, lies under this folder.
  bool chunk_is_in(const std::string& name) const {
    std::error_code failure;
    for (std::filesystem::recursive_directory_iterator at(folder_.file(name), failure), end;
         !failure && at != end; at.increment(failure)) {
      if (at->path().filename() != "model") continue;
      const auto bytes = at->file_size(failure);
      if (!failure && bytes >= (1u << 20) && bytes < kModelBytes) return true;
    }
    return false;
  }

  std::atomic<int> reads_ = 0;  // chunks that were given
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::WorkerService::Stub> workers_;
  std::unique_ptr<agent::ArtifactClient> client_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;
  protocol::Assign assign_;
  protocol::AttemptRef ref_;
  protocol::CheckpointReport checkpoint_;
};

TEST_F(ArtifactServiceTest, WhatOneWorkerBringsAnotherFetches) {
  start(true);
  run_a_trial();
  const Status brought = client_->upload(ref_, checkpoint_, never);
  ASSERT_TRUE(brought.is_ok()) << brought.message();
  ASSERT_THAT(artifacts_->list(), SizeIs(1));
  EXPECT_EQ(artifacts_->list()[0].key.step, 120);
  EXPECT_TRUE(client_->upload(ref_, checkpoint_, never).is_ok()) << "again is nothing new";

  const protocol::StoredCheckpoint stored{1, 120, checkpoint_.sha256, 0};
  const std::string fetched = folder_.file("elsewhere/checkpoints/000000120");
  const Status status = client_->fetch(ref_, stored, fetched, never);
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(read_file(fetched + "/model").value(), read_file(checkpoint_.path + "/model").value());
  EXPECT_EQ(sha256_hex(read_file(fetched + "/manifest.json").value()), checkpoint_.sha256);
}

TEST_F(ArtifactServiceTest, AStoredCheckpointIsNamedInTheNextAssign) {
  start(true);
  run_a_trial();
  ASSERT_TRUE(client_->upload(ref_, checkpoint_, never).is_ok());
  send(protocol::Reports{
      ref_, {{3, 3, protocol::EndReport{protocol::EndClass::kStopped, "again", 120, {}}}}});
  const protocol::Assign next = wait_for_assign();
  ASSERT_THAT(next.stored, SizeIs(1));
  EXPECT_EQ(next.stored[0].step, 120);
  EXPECT_EQ(next.stored[0].sha256, checkpoint_.sha256);
}

TEST_F(ArtifactServiceTest, AFailedTrialThatIsTriedAgainIsOfferedItsStoredCheckpoint) {
  start(true);
  run_a_trial();
  ASSERT_TRUE(client_->upload(ref_, checkpoint_, never).is_ok());
  send(protocol::Reports{
      ref_, {{3, 3, protocol::EndReport{protocol::EndClass::kUser, "bad data", 120, {}}}}});
  const protocol::Assign other = wait_for<protocol::Assign>();
  ASSERT_NE(other.spec.trial, ref_.attempt.trial);
  ASSERT_EQ(store_.trial(ref_.attempt.trial)->state, storage::TrialState::kFailed);
  testing::Answer retried;
  engine_->request(
      core::ControlTrials{0, {ref_.attempt.trial}, {}, core::TrialAction::kRetry, false},
      retried.handler());
  ASSERT_TRUE(retried.wait());
  const protocol::AttemptRef ref{{other.spec.trial, other.spec.attempt}, other.spec.token};
  send(protocol::Reports{
      ref,
      {{1, 1, protocol::StartedReport{}},
       {2, 2,
        protocol::EndReport{
            protocol::EndClass::kCompleted, "", 120, {{"validation_loss", 3.0}}}}}});
  const protocol::Assign next = wait_for<protocol::Assign>();
  ASSERT_EQ(next.spec.trial, ref_.attempt.trial);
  ASSERT_THAT(next.stored, SizeIs(1));
  EXPECT_EQ(next.stored[0].sha256, checkpoint_.sha256);
}

// What an uploader leaves when a newer checkpoint replaces the one that it was bringing.
TEST_F(ArtifactServiceTest, AnAbandonedUploadGoesWhenANewerCheckpointComes) {
  start(true);
  run_a_trial();
  const Status left =
      client_->upload(ref_, checkpoint_, [&] { return !artifacts_->trials_with_parts().empty(); });
  ASSERT_EQ(left.code(), Code::kCancelled) << left.message();
  ASSERT_THAT(artifacts_->trials_with_parts(), SizeIs(1));
  const auto newer = make_checkpoint(folder_.file("newer"), 130);
  send(protocol::Reports{ref_, {{3, 3, newer}}});
  EXPECT_EQ(wait_for<protocol::ReportsAck>().through_sequence, 3u);
  ASSERT_TRUE(client_->upload(ref_, newer, never).is_ok());
  ASSERT_THAT(artifacts_->list(), SizeIs(1));
  EXPECT_EQ(artifacts_->bytes(), artifacts_->list()[0].bytes);
  EXPECT_EQ(client_->upload(ref_, checkpoint_, never).code(), Code::kCancelled)
      << "nobody needs the older one any more";
}

// The folder has what another history left there: the database was restored.
TEST_F(ArtifactServiceTest, OnlyWhatTheTrialsOwnRowsNameIsOfferedAndReplaced) {
  quota_ = 3 * kModelBytes;
  start(true);
  run_a_trial();
  ASSERT_TRUE(client_->upload(ref_, checkpoint_, never).is_ok());
  const storage::ArtifactKey theirs{ref_.attempt, 7, 500, sha256_hex("theirs")};
  ASSERT_TRUE(artifacts_
                  ->begin(theirs, {{"manifest.json", 6, sha256_hex("theirs")},
                                   {"model", 4'000'000, sha256_hex(std::string(4'000'000, 'x'))}})
                  .has_value());
  ASSERT_TRUE(artifacts_->write(theirs, "manifest.json", 0, "theirs").is_ok());
  ASSERT_TRUE(artifacts_->write(theirs, "model", 0, std::string(4'000'000, 'x')).is_ok());
  ASSERT_TRUE(artifacts_->finish(theirs).is_ok());
  stop();
  context_.reset();
  start(true);
  context_ = std::make_unique<grpc::ClientContext>();
  stream_ = workers_->Session(context_.get());
  protocol::Hello hello = testing::hello("node1");
  hello.held = {{ref_, assign_.slots, true, 2}};
  send(hello);
  wait_for<protocol::Welcome>();
  EXPECT_THAT(artifacts_->list(), SizeIs(2)) << "nothing of it is garbage while there is space";
  const auto newer = make_checkpoint(folder_.file("newer"), 130);
  send(protocol::Reports{ref_, {{3, 3, newer}}});
  EXPECT_EQ(wait_for<protocol::ReportsAck>().through_sequence, 3u);
  ASSERT_TRUE(client_->upload(ref_, newer, never).is_ok()) << "theirs makes room";
  ASSERT_THAT(artifacts_->list(), SizeIs(1));
  EXPECT_EQ(artifacts_->list()[0].key.step, 130);
  send(protocol::Reports{
      ref_, {{4, 4, protocol::EndReport{protocol::EndClass::kStopped, "again", 130, {}}}}});
  const protocol::Assign next = wait_for_assign();
  ASSERT_THAT(next.stored, SizeIs(1));
  EXPECT_EQ(next.stored[0].step, 130);
}

TEST_F(ArtifactServiceTest, WhoHasNoBusinessThereIsRefused) {
  start(true);
  run_a_trial();
  protocol::AttemptRef stranger = ref_;
  stranger.token += 1;
  EXPECT_EQ(client_->upload(stranger, checkpoint_, never).code(), Code::kPermissionDenied);
  const auto unreported = make_checkpoint(folder_.file("other"), 130);
  EXPECT_EQ(client_->upload(ref_, unreported, never).code(), Code::kNotFound);
  ASSERT_TRUE(client_->upload(ref_, checkpoint_, never).is_ok());
  const protocol::StoredCheckpoint stored{1, 120, checkpoint_.sha256, 0};
  EXPECT_EQ(client_->fetch(stranger, stored, folder_.file("x/1"), never).code(),
            Code::kPermissionDenied);
  EXPECT_EQ(
      client_->fetch(ref_, {1, 120, std::string(64, '0'), 0}, folder_.file("x/1"), never).code(),
      Code::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(folder_.file("x/1")));
}

TEST_F(ArtifactServiceTest, ADamagedFileIsNotBroughtAndAGivenUpTransferGoesOnLater) {
  start(true);
  run_a_trial();
  int asked = 0;
  EXPECT_EQ(client_->upload(ref_, checkpoint_, [&] { return ++asked > 2; }).code(),
            Code::kCancelled);
  ASSERT_TRUE(client_->upload(ref_, checkpoint_, never).is_ok());

  // The manifest is as reported; the disk has changed a byte of the model since.
  const auto second = make_checkpoint(folder_.file("second"), 120);
  ASSERT_EQ(second.sha256, checkpoint_.sha256);
  ASSERT_TRUE(artifacts_->remove(artifacts_->list().at(0).key).is_ok());
  std::fstream(second.path + "/model", std::ios::in | std::ios::out).put('!');
  const Status refused = client_->upload(ref_, second, never);
  EXPECT_EQ(refused.code(), Code::kNotFound) << "another try would send the same";
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("damaged"), HasSubstr("model")));
  EXPECT_THAT(artifacts_->list(), SizeIs(0));
}

TEST_F(ArtifactServiceTest, ADamagedManifestHereIsNotWorthAnotherTry) {
  start(true);
  run_a_trial();
  std::ofstream(checkpoint_.path + "/manifest.json") << "{";
  const Status refused = client_->upload(ref_, checkpoint_, never);
  EXPECT_EQ(refused.code(), Code::kNotFound) << refused.message();
}

TEST_F(ArtifactServiceTest, ABrokenFetchGoesOnWhereItEndedAlsoForTheNextAttempt) {
  start(true);
  run_a_trial();
  ASSERT_TRUE(client_->upload(ref_, checkpoint_, never).is_ok());
  const protocol::StoredCheckpoint stored{1, 120, checkpoint_.sha256, 0};
  const std::string checkpoints = folder_.file("elsewhere/checkpoints");
  const std::string folder = checkpoints + "/000000120";
  const Status broken =
      client_->fetch(ref_, stored, folder, [&] { return chunk_is_in("elsewhere"); });
  ASSERT_EQ(broken.code(), Code::kCancelled) << broken.message();
  // As an earlier attempt of the trial left it, and something older of another step.
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(checkpoints), {}), 1);
  const std::string part = std::filesystem::directory_iterator(checkpoints)->path();
  const auto there = std::filesystem::file_size(part + "/model");
  ASSERT_GE(there, 1u << 20) << "a chunk of it at least";
  std::filesystem::rename(part, part.substr(0, part.rfind('-')) + "-0");
  std::filesystem::create_directories(checkpoints + "/.fetch-000000100-0123456789abcdef-0");
  const int before = reads_;
  const Status status = client_->fetch(ref_, stored, folder, never);
  ASSERT_TRUE(status.is_ok()) << status.message();
  // In chunks of 1 MiB, and nothing of the manifest; one that was given up may be counted late.
  const int rest = static_cast<int>((kModelBytes - there + (1 << 20) - 1) >> 20);
  EXPECT_GE(reads_ - before, rest);
  EXPECT_LE(reads_ - before, rest + 1);
  EXPECT_EQ(read_file(folder + "/model").value(), read_file(checkpoint_.path + "/model").value());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(checkpoints), {}), 1)
      << "nothing of a fetch is left";
}

TEST_F(ArtifactServiceTest, WhatABrokenFetchLeftAndADiskChangedIsFetchedAnew) {
  start(true);
  run_a_trial();
  ASSERT_TRUE(client_->upload(ref_, checkpoint_, never).is_ok());
  const protocol::StoredCheckpoint stored{1, 120, checkpoint_.sha256, 0};
  const std::string folder = folder_.file("elsewhere/checkpoints/000000120");
  ASSERT_FALSE(client_->fetch(ref_, stored, folder, [&] { return chunk_is_in("elsewhere"); }));
  for (const auto& at : std::filesystem::recursive_directory_iterator(folder_.file("elsewhere"))) {
    if (at.path().filename() == "model")
      std::fstream(at.path(), std::ios::in | std::ios::out).put('!');
  }
  const Status status = client_->fetch(ref_, stored, folder, never);
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(read_file(folder + "/model").value(), read_file(checkpoint_.path + "/model").value());
}

// At this rate a chunk takes 17 minutes.
TEST_F(ArtifactServiceTest, ATransferThatIsHeldBackByItsRateIsGivenUpSoon) {
  start(true);
  run_a_trial();
  agent::ArtifactClient slow(address_, 1024);
  const double begin = steady_seconds();
  EXPECT_EQ(slow.upload(ref_, checkpoint_, [&] { return writes_ >= 2; }).code(), Code::kCancelled);
  ASSERT_TRUE(client_->upload(ref_, checkpoint_, never).is_ok());
  const protocol::StoredCheckpoint stored{1, 120, checkpoint_.sha256, 0};
  EXPECT_EQ(slow.fetch(ref_, stored, folder_.file("x/1"), [&] { return reads_ >= 2; }).code(),
            Code::kCancelled);
  EXPECT_LT(steady_seconds() - begin, 300);
}

TEST_F(ArtifactServiceTest, ChunksAreForTheAttemptsOfTheTrialAlone) {
  start(true);
  run_a_trial();
  ASSERT_TRUE(client_->upload(ref_, checkpoint_, never).is_ok());
  const auto artifacts = v1::ArtifactService::NewStub(channel_);
  const auto read = [&](std::uint32_t attempt, FencingToken token) {
    v1::ReadChunkRequest request;
    request.mutable_key()->set_trial(ref_.attempt.trial.value);
    request.mutable_key()->set_attempt(ref_.attempt.number);
    request.mutable_key()->set_token(ref_.token);
    request.mutable_key()->set_step(checkpoint_.step);
    request.mutable_key()->set_sha256(checkpoint_.sha256);
    request.set_file("model");
    request.set_bytes_max(10);
    request.set_reader_attempt(attempt);
    request.set_reader_token(token);
    grpc::ClientContext context;
    v1::ReadChunkResponse response;
    return artifacts->ReadChunk(&context, request, &response).error_code();
  };
  EXPECT_EQ(read(ref_.attempt.number, ref_.token), grpc::StatusCode::OK);
  EXPECT_EQ(read(0, 0), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(read(ref_.attempt.number, ref_.token + 1), grpc::StatusCode::PERMISSION_DENIED);
  v1::WriteChunkRequest chunk;
  chunk.mutable_key()->set_trial(ref_.attempt.trial.value);
  chunk.mutable_key()->set_attempt(ref_.attempt.number);
  chunk.mutable_key()->set_token(ref_.token + 1);  // of the same generation
  chunk.mutable_key()->set_step(130);
  chunk.mutable_key()->set_sha256(std::string(64, '1'));
  chunk.set_file("model");
  grpc::ClientContext context;
  v1::WriteChunkResponse wrote;
  EXPECT_EQ(artifacts->WriteChunk(&context, chunk, &wrote).error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  // Once it has ended it has nothing to resume.
  send(protocol::Reports{
      ref_, {{3, 3, protocol::EndReport{protocol::EndClass::kStopped, "again", 120, {}}}}});
  wait_for_assign();
  EXPECT_EQ(read(ref_.attempt.number, ref_.token), grpc::StatusCode::PERMISSION_DENIED);
}

/// Whoever opens a file for writing waits while somebody has a lease on it.
class LeaseOnFile {
 public:
  explicit LeaseOnFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    std::signal(SIGIO, SIG_IGN);  // how the system tells of one that waits
    held_ = ::fcntl(fd_, F_SETLEASE, F_RDLCK) == 0;
  }
  ~LeaseOnFile() {
    let_go();
    ::close(fd_);
  }
  LeaseOnFile(const LeaseOnFile&) = delete;
  LeaseOnFile& operator=(const LeaseOnFile&) = delete;
  bool held() const { return held_; }
  bool somebody_waits() const { return ::fcntl(fd_, F_GETLEASE) == F_UNLCK; }
  void let_go() {
    if (held_) ::fcntl(fd_, F_SETLEASE, F_UNLCK);
    held_ = false;
  }

 private:
  const int fd_;
  bool held_ = false;
};

TEST_F(ArtifactServiceTest, WhatACallerSentIsWrittenEvenWhenItLeavesMeanwhile) {
  start(true);
  run_a_trial();
  const auto artifacts = v1::ArtifactService::NewStub(channel_);
  constexpr std::size_t kChunk = 1 << 20;
  v1::BeginUploadRequest announced;
  v1::ArtifactKey& key = *announced.mutable_key();
  key.set_trial(ref_.attempt.trial.value);
  key.set_attempt(ref_.attempt.number);
  key.set_token(ref_.token);
  key.set_step(checkpoint_.step);
  key.set_sha256(checkpoint_.sha256);
  for (const auto& [name, bytes, hash] :
       {std::tuple("manifest.json", std::size_t{2}, checkpoint_.sha256),
        std::tuple("model", kChunk, std::string(64, '0'))}) {
    v1::ArtifactFile& file = *announced.add_files();
    file.set_name(name);
    file.set_bytes(bytes);
    file.set_sha256(hash);
  }
  v1::WriteChunkRequest chunk;
  *chunk.mutable_key() = key;
  chunk.set_file("model");
  {
    grpc::ClientContext first, second;
    v1::BeginUploadResponse begun;
    ASSERT_TRUE(artifacts->BeginUpload(&first, announced, &begun).ok());
    v1::WriteChunkResponse wrote;
    ASSERT_TRUE(artifacts->WriteChunk(&second, chunk, &wrote).ok());  // of no bytes: makes the file
  }
  std::string path;
  for (const auto& at : std::filesystem::recursive_directory_iterator(folder_.file("artifacts"))) {
    if (at.path().filename() == "model") path = at.path();
  }
  ASSERT_FALSE(path.empty());
  LeaseOnFile lease(path);
  if (!lease.held()) GTEST_SKIP() << "the temporary folder's file system knows no leases";

  chunk.set_data(std::string(kChunk, 'A'));
  grpc::ClientContext leaving;
  std::jthread caller([&] {
    v1::WriteChunkResponse wrote;
    EXPECT_EQ(artifacts->WriteChunk(&leaving, chunk, &wrote).error_code(),
              grpc::StatusCode::CANCELLED);
  });
  ASSERT_TRUE(testing::eventually([&] { return lease.somebody_waits(); }));
  leaving.TryCancel();
  ASSERT_TRUE(testing::eventually([&] { return writes_left_ == 1; }));
  caller.join();
  // Another's request takes the memory of whatever is not held on to.
  const auto others = v1::CoordinatorService::NewStub(channel_);
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    v1::SubmitSweepRequest request;
    v1::SubmitSweepResponse response;
    request.set_toml("#" + std::string(kChunk - 100, 'B'));
    EXPECT_FALSE(others->SubmitSweep(&context, request, &response).ok());
  }
  lease.let_go();
  ASSERT_TRUE(testing::eventually([&] { return std::filesystem::file_size(path) == kChunk; }));
  EXPECT_EQ(read_file(path).value().find_first_not_of('A'), std::string::npos);
}

TEST_F(ArtifactServiceTest, AChunkThatIsTooLargeIsRefused) {
  start(true);
  const auto artifacts = v1::ArtifactService::NewStub(channel_);
  v1::WriteChunkRequest chunk;
  chunk.set_data(std::string((1 << 20) + 1, 'A'));
  grpc::ClientContext context;
  v1::WriteChunkResponse wrote;
  EXPECT_EQ(artifacts->WriteChunk(&context, chunk, &wrote).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ArtifactServiceTest, ACoordinatorWithoutAStoreSaysSo) {
  start(false);
  run_a_trial();
  EXPECT_EQ(client_->upload(ref_, checkpoint_, never).code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tailor::rpc
