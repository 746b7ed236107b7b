// The listening socket goes on, whatever there are too many of.
#include "coordinator/rpc/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mutex>
#include <vector>

#include "base/descriptors.h"
#include "tests/coordinator/rpc/served.h"

namespace tailor::rpc {
namespace {

using tailor::testing::eventually;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Connection {
 public:
  explicit Connection(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;

  bool connected() const { return connected_; }
  /// What the other side sends until it closes; "" when it sends nothing for ten seconds.
  std::string read_all() const {
    std::string text;
    char bytes[4096];
    pollfd wait{socket_, POLLIN, 0};
    while (::poll(&wait, 1, 10'000) > 0) {
      const ssize_t got = ::recv(socket_, bytes, sizeof bytes, 0);
      if (got <= 0) break;
      text.append(bytes, static_cast<std::size_t>(got));
    }
    return text;
  }

 private:
  int socket_;
  bool connected_ = false;
};

/// Connections that were taken, closed at the end.
class Taken {
 public:
  ~Taken() {
    for (const int socket : sockets_) ::close(socket);
  }
  Listener::Taken handler() {
    return [this](int, int socket) {
      const std::scoped_lock lock(mutex_);
      sockets_.push_back(socket);
    };
  }
  std::size_t count() const {
    const std::scoped_lock lock(mutex_);
    return sockets_.size();
  }
  void close_all() {
    const std::scoped_lock lock(mutex_);
    for (const int socket : sockets_) ::close(socket);
    sockets_.clear();
  }

 private:
  mutable std::mutex mutex_;  // guards: sockets_
  std::vector<int> sockets_;
};

TEST(ListenerTest, ConnectionsBeyondTheLimitAreToldWhyAndOthersAreTakenAfterwards) {
  Taken taken;
  // Client and server share this process's descriptors: room for ten pairs.
  const auto listener = std::move(*Listener::open("127.0.0.1:0", lowest_free_descriptor() + 22));
  listener->start(taken.handler());
  EXPECT_TRUE(listener->accepting().is_ok());
  std::vector<std::unique_ptr<Connection>> clients;
  while (listener->refused() == 0 && clients.size() < 100) {
    clients.push_back(std::make_unique<Connection>(listener->port()));
    ASSERT_TRUE(clients.back()->connected());
    ASSERT_TRUE(eventually([&] { return taken.count() + listener->refused() == clients.size(); }));
  }
  EXPECT_GE(taken.count(), 5u);
  ASSERT_EQ(listener->refused(), 1u);
  EXPECT_THAT(clients.back()->read_all(), AllOf(HasSubstr("503"), HasSubstr("ulimit -n")));
  EXPECT_EQ(listener->accepting().code(), Code::kResourceExhausted);
  EXPECT_THAT(listener->accepting().message(), HasSubstr("refused"));

  clients.clear();
  taken.close_all();
  EXPECT_TRUE(listener->accepting().is_ok()) << "there is room again";
  const Connection late(listener->port());
  EXPECT_TRUE(eventually([&] { return taken.count() == 1; }));
}

TEST(ListenerTest, APortInUseIsAConflictAndAWrongAddressAMistake) {
  const auto first = std::move(*Listener::open("127.0.0.1:0", 1'000));
  const auto second = Listener::open("127.0.0.1:" + std::to_string(first->port()), 1'000);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  for (const char* wrong : {"", "7070", "nowhere.invalid:1", "127.0.0.1:port", "[::1:7"}) {
    const auto listener = Listener::open(wrong, 1'000);
    ASSERT_FALSE(listener.has_value()) << wrong;
    EXPECT_EQ(listener.error().code(), Code::kInvalidArgument) << wrong;
  }
}

/// A limit of open files that is quickly reached.
class LoweredLimit {
 public:
  explicit LoweredLimit(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit lowered{limit, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &lowered), 0);
  }
  ~LoweredLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(ListenerTest, AClientBeyondTheLimitIsRefusedAndOneThatIsConnectedGoesOn) {
  const LoweredLimit lowered(lowest_free_descriptor() + 400);
  storage::MemoryStore store;
  Options options;
  options.descriptors_kept = ~0ull;  // half of what there is
  testing::Served served(store, options);
  v1::GetInfoResponse info;
  ASSERT_TRUE(served.call(&testing::Served::Stub::GetInfo, v1::GetInfoRequest(), &info).ok());
  std::vector<std::unique_ptr<Connection>> clients;
  while (served.server().accepting().is_ok() && clients.size() < 400) {
    clients.push_back(std::make_unique<Connection>(served.server().port()));
    ASSERT_TRUE(clients.back()->connected());
  }
  EXPECT_TRUE(eventually([&] { return !served.server().accepting().is_ok(); }));
  grpc::ChannelArguments fresh;
  fresh.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub =
      v1::CoordinatorService::NewStub(protocol::open_channel(served.address(), std::move(fresh)));
  grpc::ClientContext context;
  testing::Served::set_deadline(context);
  const grpc::Status refused = stub->GetInfo(&context, {}, &info);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_LT(served.server().accepting().message().size(), 300u);
  // A client that was connected before goes on.
  EXPECT_TRUE(served.call(&testing::Served::Stub::GetInfo, v1::GetInfoRequest(), &info).ok());
  clients.clear();
  EXPECT_TRUE(eventually([&] { return served.server().accepting().is_ok(); }));
  EXPECT_TRUE(eventually([&] {
    grpc::ClientContext again;
    testing::Served::set_deadline(again);
    return stub->GetInfo(&again, {}, &info).ok();
  }));
}

}  // namespace
}  // namespace tailor::rpc
