// More connections than the coordinator's limit of open files allows (ulimit -n): they are refused
// with the reason, what is connected goes on, and afterwards all is as before.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "base/descriptors.h"
#include "base/file.h"
#include "tests/integration/cluster.h"

namespace tailor::testing {
namespace {

constexpr int kDescriptors = 256;
constexpr int kConnections = 1'100;

class TcpConnection {
 public:
  explicit TcpConnection(const std::string& address)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const std::size_t colon = address.rfind(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{20, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  ~TcpConnection() { ::close(socket_); }
  TcpConnection(const TcpConnection&) = delete;

  bool connected() const { return connected_; }
  /// Sends, and reads until the other side closes.
  std::string ask(const std::string& text) const {
    ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    std::string answer;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::recv(socket_, bytes, sizeof bytes, 0)) > 0;) {
      answer.append(bytes, static_cast<std::size_t>(got));
    }
    return answer;
  }

 private:
  int socket_;
  bool connected_ = false;
};

std::string get(const std::string& address, const std::string& path) {
  return TcpConnection(address).ask("GET " + path +
                                    " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Connections : public ::testing::Test {
 protected:
  void SetUp() override {
    if (raise_descriptor_limit() < kConnections + 200) {
      GTEST_SKIP() << "this test itself needs more open files than `ulimit -Hn` allows";
    }
    cluster_.limit_coordinator_descriptors(kDescriptors);
    cluster_.set_environment("FAKE_STEPS", "20");
    cluster_.set_environment("FAKE_STEP_MS", "50");
    cluster_.start_coordinator();
    cluster_.start_worker("a");
    ASSERT_TRUE(wait_until([&] { return has(cluster_.tailor({"workers"}).out, "connected"); }, 60));
  }
  std::string log() const {
    return read_file((cluster_.dir() / "coordinator.log").string()).value_or("");
  }
  bool ready() const { return has(get(cluster_.http_address(), "/readyz"), "HTTP/1.1 200"); }

  Cluster cluster_;
};

TEST_F(Connections, BeyondTheLimitAreRefusedWithTheReasonAndTheCoordinatorIsNeverDeaf) {
  ASSERT_TRUE(ready());
  ASSERT_EQ(cluster_.tailor({"submit", cluster_.write_sweep("s", 1, 1)}).exit_code, 0);
  std::vector<std::unique_ptr<TcpConnection>> many;
  for (int i = 0; i < kConnections; ++i) {
    many.push_back(std::make_unique<TcpConnection>(cluster_.address()));
    ASSERT_TRUE(many.back()->connected()) << i;
  }
  ASSERT_TRUE(wait_until([&] { return !ready(); }, 60));
  const std::string unready = get(cluster_.http_address(), "/readyz");
  EXPECT_TRUE(has(unready, "HTTP/1.1 503")) << unready;
  EXPECT_TRUE(has(unready, "refused")) << unready;
  EXPECT_TRUE(has(unready, "ulimit -n")) << unready;
  EXPECT_TRUE(has(get(cluster_.http_address(), "/healthz"), "HTTP/1.1 200"));
  const CommandResult refused = cluster_.tailor({"info"});
  EXPECT_EQ(refused.exit_code, 5) << refused.err;
  EXPECT_TRUE(has(refused.err, "ulimit -n")) << refused.err;
  EXPECT_TRUE(has(log(), "refusing connections")) << log();

  many.clear();
  EXPECT_TRUE(wait_until([&] { return ready(); }, 60));
  const CommandResult again = cluster_.tailor({"info"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(has(log(), "connections are taken again")) << log();
  // The worker was connected all the time: its trial ends as any other.
  const CommandResult watched = cluster_.tailor({"watch", "s"}, 60);
  EXPECT_EQ(watched.exit_code, 0) << watched.err;
  EXPECT_EQ(cluster_.query("SELECT count(*) FROM attempt")[0][0], "1");
}

TEST_F(Connections, TooManyOnTheDashboardsPortLeaveTheOtherPortAlone) {
  std::vector<std::unique_ptr<TcpConnection>> many;
  for (int i = 0; i < kConnections; ++i) {
    many.push_back(std::make_unique<TcpConnection>(cluster_.http_address()));
    ASSERT_TRUE(many.back()->connected()) << i;
  }
  const CommandResult info = cluster_.tailor({"info"});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  many.clear();
  EXPECT_TRUE(wait_until([&] { return ready(); }, 60)) << log();
}

}  // namespace
}  // namespace tailor::testing
