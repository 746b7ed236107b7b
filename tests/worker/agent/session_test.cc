// The gRPC stream against a small server on a free port.
#include "worker/agent/session.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "protocol/convert.h"
#include "tailor/v1/worker.grpc.pb.h"
#include "tests/worker/agent/agent_harness.h"
#include "tests/worker/agent/temporary_folder.h"

namespace tailor::agent {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

/// Keeps what it is sent; answers Hello with `answer`, or ends the stream with `refusal`.
class TinyCoordinator final : public v1::WorkerService::Service {
 public:
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) override {
    v1::WorkerMessage proto;
    while (stream->Read(&proto)) {
      const Result<protocol::WorkerMessage> message = protocol::from_proto(proto);
      if (!message) return {grpc::StatusCode::INVALID_ARGUMENT, message.error().message()};
      const std::lock_guard lock(mutex);
      received.push_back(*message);
      if (std::holds_alternative<protocol::Hello>(*message)) {
        if (!refusal.ok()) return refusal;
        v1::CoordinatorMessage answer;
        protocol::to_proto(
            protocol::CoordinatorMessage(protocol::Welcome{WorkerId{3}, 500, 4000, {}}), &answer);
        stream->Write(answer);
      }
    }
    const std::lock_guard lock(mutex);
    ++ended;
    return grpc::Status::OK;
  }

  std::size_t count() {
    const std::lock_guard lock(mutex);
    return received.size();
  }

  std::mutex mutex;
  std::vector<protocol::WorkerMessage> received;
  grpc::Status refusal;
  int ended = 0;
};

class SessionTest : public testing::Test {
 protected:
  void start_server() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(port_),
                             grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&coordinator_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void stop_server() {
    server_->Shutdown(std::chrono::system_clock::time_point());  // cancels what is open
    server_->Wait();
    server_.reset();
  }
  void start_client() {
    client_ = std::make_unique<SessionClient>("127.0.0.1:" + std::to_string(port_),
                                              [this](AgentEvent event) {
                                                const std::lock_guard lock(mutex_);
                                                events_.push_back(std::move(event));
                                              });
  }
  void TearDown() override {
    client_.reset();
    if (server_) stop_server();
  }
  template <typename T>
  std::vector<T> events() {
    const std::lock_guard lock(mutex_);
    std::vector<T> found;
    for (const AgentEvent& event : events_) {
      if (const T* value = std::get_if<T>(&event)) found.push_back(*value);
    }
    return found;
  }
  static protocol::Hello hello() {
    protocol::Hello message;
    message.worker_name = "node1";
    message.held = {{attempt_ref(41), {0}, true, 9}};
    return message;
  }

  TinyCoordinator coordinator_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<AgentEvent> events_;
  std::unique_ptr<SessionClient> client_;
};

TEST_F(SessionTest, MessagesGoBothWaysInOrder) {
  start_server();
  start_client();
  client_->open(1);
  client_->send(1, hello());
  for (std::uint64_t i = 1; i <= 200; ++i)
    client_->send(1, protocol::Heartbeat{i, {attempt_ref(41)}});
  ASSERT_TRUE(eventually([&] { return coordinator_.count() == 201; }));
  ASSERT_TRUE(eventually([&] { return !events<Received>().empty(); }));
  EXPECT_THAT(events<SessionOpened>(), SizeIs(1));
  const auto welcome = std::get<protocol::Welcome>(events<Received>()[0].message);
  EXPECT_EQ(welcome.worker, WorkerId{3});
  EXPECT_EQ(welcome.lease_ms, 4000);
  const std::lock_guard lock(coordinator_.mutex);
  EXPECT_EQ(std::get<protocol::Hello>(coordinator_.received[0]).held, hello().held);
  for (std::uint64_t i = 1; i <= 200; ++i) {
    EXPECT_EQ(std::get<protocol::Heartbeat>(coordinator_.received[i]).serial, i);
  }
}

TEST_F(SessionTest, ARefusalComesBackWithItsCodeAndReason) {
  coordinator_.refusal = grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "node1 is connected");
  start_server();
  start_client();
  client_->open(1);
  client_->send(1, hello());
  ASSERT_TRUE(eventually([&] { return !events<SessionClosed>().empty(); }));
  EXPECT_EQ(events<SessionClosed>()[0].session, 1u);
  EXPECT_EQ(events<SessionClosed>()[0].reason, Status(Code::kAlreadyExists, "node1 is connected"));
}

TEST_F(SessionTest, NobodyThereIsACloseAndTheNextStreamFindsTheServer) {
  start_server();
  stop_server();  // its port is known and free
  start_client();
  client_->open(1);
  client_->send(1, hello());
  ASSERT_TRUE(eventually([&] { return !events<SessionClosed>().empty(); }));
  EXPECT_EQ(events<SessionClosed>()[0].reason.code(), Code::kUnavailable);
  start_server();
  std::uint64_t session = 1;
  ASSERT_TRUE(eventually([&] {
    if (events<SessionClosed>().size() == session) {
      client_->open(++session);
      client_->send(session, hello());
    }
    return !events<Received>().empty();
  }));
}

TEST_F(SessionTest, AServerThatGoesAwayClosesTheStream) {
  start_server();
  start_client();
  client_->open(1);
  client_->send(1, hello());
  ASSERT_TRUE(eventually([&] { return !events<Received>().empty(); }));
  stop_server();
  ASSERT_TRUE(eventually([&] { return !events<SessionClosed>().empty(); }));
  client_->send(1, hello());  // into the void, harmless
}

TEST_F(SessionTest, OnlyTheOpenStreamIsSentTo) {
  start_server();
  start_client();
  client_->open(1);
  client_->send(1, hello());
  ASSERT_TRUE(eventually([&] { return coordinator_.count() == 1; }));
  client_->open(2);
  client_->send(1, protocol::Heartbeat{7, {}});
  client_->send(2, hello());
  ASSERT_TRUE(eventually([&] { return coordinator_.count() == 2; }));
  ASSERT_TRUE(eventually([&] { return !events<SessionClosed>().empty(); }));
  EXPECT_EQ(events<SessionClosed>()[0].session, 1u);
  const std::lock_guard lock(coordinator_.mutex);
  EXPECT_TRUE(std::holds_alternative<protocol::Hello>(coordinator_.received[1]));
}

TEST_F(SessionTest, FinishSendsWhatIsQueuedBeforeItSaysGoodbye) {
  start_server();
  start_client();
  client_->open(1);
  client_->send(1, hello());
  for (std::uint64_t i = 1; i <= 50; ++i) client_->send(1, protocol::Heartbeat{i, {}});
  client_->send(1, protocol::Draining{"SIGTERM"});
  client_->finish(10'000);
  EXPECT_EQ(coordinator_.count(), 52u);
  const std::lock_guard lock(coordinator_.mutex);
  EXPECT_EQ(coordinator_.ended, 1) << "it was a goodbye, not a broken line";
}

}  // namespace
}  // namespace tailor::agent
