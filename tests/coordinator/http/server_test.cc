// The HTTP server against clients that are wrong, slow or too many.
#include "coordinator/http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "tests/coordinator/engine/support.h"
#include "tests/coordinator/http/raw_client.h"

namespace tailor::http {
namespace {

using tailor::testing::eventually;
using ::testing::HasSubstr;
using ::testing::Not;

class HttpServerTest : public ::testing::Test {
 protected:
  void start(Options options = {}) {
    options.listen = "127.0.0.1:0";
    options.allowed_hosts.push_back("x");
    auto server = Server::start(options, [](const Request& request) {
      if (request.path == "/throw") throw std::runtime_error("a bug");
      Response response;
      response.content_type = "text/plain";
      response.body = request.method + " " + request.path;
      for (const auto& [key, value] : request.query) response.body += " " + key + "=" + value;
      if (request.accepts_gzip) response.body += " gzip";
      return response;
    });
    ASSERT_TRUE(server.has_value()) << server.error().message();
    server_ = std::move(*server);
    port_ = server_->port();
  }
  std::unique_ptr<Server> server_;
  int port_ = 0;
};

TEST_F(HttpServerTest, DecodesPathAndQuery) {
  start();
  const auto answer = get(port_, "/a%20b/c?x=1%262&y=a+b&z");
  EXPECT_EQ(status_of_answer(answer), 200);
  EXPECT_EQ(body_of(answer), "GET /a b/c x=1&2 y=a b z=");
}

TEST_F(HttpServerTest, ATargetInAbsoluteFormIsUnderstoodAndItsHostChecked) {
  start();
  EXPECT_EQ(body_of(get(port_, "http://localhost/a?x=1")), "GET /a x=1");
  EXPECT_EQ(body_of(get(port_, "HTTP://LOCALHOST:80/a")), "GET /a");
  EXPECT_EQ(body_of(get(port_, "http://localhost")), "GET /");
  EXPECT_EQ(status_of_answer(get(port_, "http://evil.example/a")), 421);
  EXPECT_EQ(status_of_answer(get(port_, "http://me@localhost/a")), 400);
  EXPECT_EQ(status_of_answer(get(port_, "http:///a")), 400);
  EXPECT_EQ(status_of_answer(get(port_, "ftp://localhost/a")), 400);
}

TEST_F(HttpServerTest, QuickPathsAreAnsweredWhileAllOthersHang) {
  std::mutex mutex;
  std::condition_variable released;
  bool go = false;
  std::atomic<int> hanging{0};
  Options options;
  options.listen = "127.0.0.1:0";
  options.quick = [](std::string_view path) { return path == "/healthz"; };
  options.work_waiting_max = 4;
  auto server = Server::start(options, [&](const Request& request) {
    Response response;
    if (request.path != "/healthz") {
      ++hanging;
      std::unique_lock lock(mutex);
      released.wait(lock, [&] { return go; });
    }
    response.body = request.path;
    return response;
  });
  ASSERT_TRUE(server.has_value()) << server.error().message();
  const int port = (*server)->port();
  std::atomic<int> answered{0};
  std::atomic<int> refused{0};
  std::vector<std::jthread> clients;
  const auto ask = [&](int i) {
    clients.emplace_back([&, i] {
      const auto answer = get(port, "/slow/" + std::to_string(i));
      if (status_of_answer(answer) == 503) {
        ++refused;
      } else if (body_of(answer) == "/slow/" + std::to_string(i)) {
        ++answered;
      }
    });
  };
  for (int i = 0; i < 3; ++i) ask(i);
  EXPECT_TRUE(eventually([&] { return hanging == 3; }));
  // Three run, so four of the next wait, and the others are told so at once.
  for (int i = 3; i < 12; ++i) ask(i);
  EXPECT_TRUE(eventually([&] { return refused == 5; }));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(body_of(get(port, "/healthz")), "/healthz");
  {
    const std::scoped_lock lock(mutex);
    go = true;
  }
  released.notify_all();
  clients.clear();
  EXPECT_EQ(answered, 7);
}

TEST_F(HttpServerTest, KeepsAConnectionForSeveralRequests) {
  start();
  const auto answers = talk(
      port_,
      "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answers, HasSubstr("GET /1"));
  EXPECT_THAT(answers, HasSubstr("GET /2"));
}

TEST_F(HttpServerTest, AHeadRequestHasTheLengthAndNoBody) {
  start();
  const auto answer = talk(port_, "HEAD /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(status_of_answer(answer), 200);
  EXPECT_THAT(answer, HasSubstr("Content-Length: 10"));
  EXPECT_EQ(body_of(answer), "");
}

TEST_F(HttpServerTest, MalformedRequestsAreAnsweredAndNeverCrash) {
  start();
  for (const std::string bad :
       {"nonsense\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: minus one\r\n\r\n", "GET / HTTP/1.1\r\n: empty\r\n\r\n",
        "\x16\x03\x01\x02 a TLS hello\r\n\r\n"}) {
    const auto answer = talk(port_, bad);
    EXPECT_EQ(status_of_answer(answer), 400) << bad;
    EXPECT_THAT(body_of(answer), HasSubstr("\"error\""));
  }
  EXPECT_EQ(status_of_answer(get(port_, "/%zz")), 400);
  EXPECT_EQ(status_of_answer(get(port_, "/a?b=%1")), 400);
  EXPECT_EQ(status_of_answer(get(port_, "relative")), 400);
  EXPECT_EQ(status_of_answer(get(port_, "/still-there")), 200);
}

TEST_F(HttpServerTest, RandomBytesNeverCrashIt) {
  Options options;
  options.read_ms_max = 100;
  start(options);
  Rng rng(7);
  const std::string good = "GET /a?b=c HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc";
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good.substr(0, 1 + rng.below(good.size()));
    for (std::uint64_t changes = rng.below(6); changes > 0; --changes) {
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    }
    RawClient client(port_);
    client.send(bytes);
  }
  EXPECT_EQ(status_of_answer(get(port_, "/still-there")), 200);
}

TEST_F(HttpServerTest, OtherMethodsAreNotAllowed) {
  start();
  for (const std::string method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    const auto answer =
        talk(port_,
             method + " / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
    EXPECT_EQ(status_of_answer(answer), 405) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD"));
  }
}

TEST_F(HttpServerTest, LargeHeadersAndBodiesAreCutOff) {
  Options options;
  options.header_bytes_max = 1024;
  options.body_bytes_max = 100;
  start(options);
  EXPECT_EQ(status_of_answer(get(port_, "/", "X-Long: " + std::string(5000, 'a') + "\r\n")), 431);
  EXPECT_EQ(status_of_answer(
                talk(port_, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")),
            413);
}

TEST_F(HttpServerTest, AHandlerThatThrowsIsA500AndTheServerGoesOn) {
  start();
  const auto answer = get(port_, "/throw");
  EXPECT_EQ(status_of_answer(answer), 500);
  EXPECT_THAT(answer, Not(HasSubstr("a bug"))) << "internals stay in the log";
  EXPECT_EQ(status_of_answer(get(port_, "/next")), 200);
}

TEST_F(HttpServerTest, ASlowClientIsCutOff) {
  Options options;
  options.read_ms_max = 50;
  start(options);
  RawClient slow(port_);
  ASSERT_TRUE(slow.send("GET / HT"));
  EXPECT_EQ(slow.read_all(), "");
}

TEST_F(HttpServerTest, ConnectionsBeyondTheLimitAreToldSoAndRoomComesBack) {
  std::atomic<bool> go{false};
  std::atomic<int> busy{0};
  Options options;
  options.connections_max = 2;
  options.listen = "127.0.0.1:0";
  options.quick = [](std::string_view path) { return path != "/slow"; };
  auto server = Server::start(options, [&](const Request& request) {
    if (request.path == "/slow") {
      ++busy;
      eventually([&] { return go.load(); });
    }
    return Response();
  });
  ASSERT_TRUE(server.has_value()) << server.error().message();
  const int port = (*server)->port();
  std::vector<std::jthread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] { EXPECT_EQ(status_of_answer(get(port, "/slow")), 200); });
  }
  ASSERT_TRUE(eventually([&] { return busy == 2; }));
  const std::string refused = get(port, "/");
  EXPECT_EQ(status_of_answer(refused), 503);
  EXPECT_THAT(refused, HasSubstr("connections"));
  go = true;
  clients.clear();
  EXPECT_TRUE(eventually([&] { return status_of_answer(get(port, "/")) == 200; }));
}

TEST_F(HttpServerTest, ConnectionsThatSayNothingKeepNobodyOut) {
  Options options;
  options.connections_max = 4;
  options.read_ms_max = 600'000;
  start(options);
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 40; ++i) {
    silent.push_back(std::make_unique<RawClient>(port_));
    ASSERT_TRUE(silent.back()->connected());
    if (i % 2 == 0) silent.back()->send("GET /half HT");
  }
  EXPECT_EQ(body_of(get(port_, "/healthz")), "GET /healthz");
  EXPECT_EQ(silent.front()->read_all(), "") << "the longest silent one had to go";
}

TEST_F(HttpServerTest, EveryAnswerForbidsForeignScriptsAndFrames) {
  start();
  const auto answer = get(port_, "/");
  EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'self'"));
  EXPECT_THAT(answer, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff"));
}

TEST_F(HttpServerTest, UnderstandsWhatAClientSaysAboutGzip) {
  start();
  EXPECT_THAT(get(port_, "/", "Accept-Encoding: deflate, gzip;q=0.5\r\n"), HasSubstr(" gzip"));
  EXPECT_THAT(get(port_, "/", "Accept-Encoding: *\r\n"), HasSubstr(" gzip"));
  EXPECT_THAT(get(port_, "/", "Accept-Encoding: gzip;q=0\r\n"), Not(HasSubstr(" gzip")));
  EXPECT_THAT(get(port_, "/", "Accept-Encoding: br\r\n"), Not(HasSubstr(" gzip")));
}

TEST_F(HttpServerTest, APortInUseIsAConflict) {
  start();
  Options options;
  options.listen = "127.0.0.1:" + std::to_string(port_);
  const auto second = Server::start(options, [](const Request&) { return Response(); });
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
  EXPECT_THAT(second.error().message(), HasSubstr(options.listen));
  EXPECT_EQ(check_listen(options.listen).code(), Code::kAlreadyExists);
  EXPECT_TRUE(check_listen("127.0.0.1:0").is_ok());
  EXPECT_EQ(check_listen("nowhere:1").code(), Code::kInvalidArgument);
}

TEST_F(HttpServerTest, StoppingEndsOpenConnections) {
  start();
  RawClient open(port_);
  open.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
  std::jthread stopper([&] {
    server_->stop();
    server_.reset();
  });
  open.read_all();  // returns: the connection was closed
}

TEST(SplitAddress, ReadsHostsAndPortsAndNothingElse) {
  EXPECT_EQ(split_address("127.0.0.1:7070").value(),
            std::pair(std::string("127.0.0.1"), std::uint16_t{7070}));
  EXPECT_EQ(split_address("[::1]:0").value(), std::pair(std::string("::1"), std::uint16_t{0}));
  for (const char* bad :
       {"", "7070", ":7070", "host", "host:", "host:x", "host:65536", "::1:7070", "h:-1"}) {
    EXPECT_FALSE(split_address(bad).has_value()) << bad;
  }
}

TEST(IsLoopback, KnowsTheLoopbackAddresses) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org"}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

TEST(HostRule, LoopbackKnowsItsOwnNamesWithAnyPortAndNoOthers) {
  const HostRule rule("127.0.0.1", "Node7.example.org", {"tailor.lab", "[fd00::7]"});
  for (const char* host :
       {"localhost", "LocalHost:8080", "localhost.", "127.0.0.1", "127.0.0.1:7071", "127.3.2.1",
        "[::1]", "[::1]:7071", "node7", "NODE7:1", "node7.example.org", "node7.example.org.:80",
        "tailor.lab", "Tailor.Lab:443", "[fd00::7]:80"}) {
    EXPECT_TRUE(rule.check(host).is_ok()) << host;
  }
  for (const char* host : {"evil.example", "evil.example:7071", "localhost.evil.example",
                           "xlocalhost", "127.0.0.1.nip.io", "10.1.2.3", "0.0.0.0", "[fd00::8]",
                           "node8", "node7.evil.example", "tailor.lab.evil"}) {
    const Status refused = rule.check(host);
    EXPECT_EQ(refused.code(), Code::kPermissionDenied) << host;
    EXPECT_THAT(refused.message(), HasSubstr("--allowed-host")) << host;
  }
  for (const char* host :
       {"", ":7071", "a b", "localhost:7071:1", "localhost:x", "user@localhost", "[::1", "[::1]x",
        "localhost/x", "loc%61lhost", "localhost,evil.example"}) {
    EXPECT_EQ(rule.check(host).code(), Code::kInvalidArgument) << host;
  }
}

TEST(HostRule, ANetworkAddressAlsoKnowsNumericAddressesWhichAreNobodysNames) {
  const HostRule rule("0.0.0.0", "node7", {});
  EXPECT_TRUE(rule.check("10.1.2.3:7071").is_ok());
  EXPECT_TRUE(rule.check("[fd00::8]").is_ok());
  EXPECT_EQ(rule.check("evil.example").code(), Code::kPermissionDenied);
  EXPECT_TRUE(HostRule("127.0.0.1", "n", {"*"}).check("evil.example").is_ok());
}

TEST_F(HttpServerTest, ARequestUnderAForeignNameIsRefusedBeforeAnythingIsSaid) {
  start();
  const auto ask = [&](const std::string& lines) {
    return talk(port_, "GET /secret HTTP/1.1\r\n" + lines + "Connection: close\r\n\r\n");
  };
  const auto foreign = ask("Host: evil.example:7071\r\n");
  EXPECT_EQ(status_of_answer(foreign), 421);
  EXPECT_THAT(body_of(foreign), HasSubstr("--allowed-host evil.example"));
  EXPECT_THAT(foreign, Not(HasSubstr("secret")));
  EXPECT_EQ(status_of_answer(ask("Host: localhost:1\r\n")), 200);
  EXPECT_EQ(status_of_answer(ask("hOsT: LOCALHOST.\r\n")), 200);
  EXPECT_EQ(status_of_answer(ask("")), 400) << "no Host";
  EXPECT_EQ(status_of_answer(ask("Host: localhost\r\nHost: evil.example\r\n")), 400) << "two";
  EXPECT_EQ(status_of_answer(ask("Host: localhost\r\nHost: localhost\r\n")), 400) << "two";
  EXPECT_EQ(status_of_answer(
                talk(port_,
                     "POST / HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n"
                     "Connection: close\r\nContent-Length: 0\r\n\r\n")),
            421);
  EXPECT_EQ(status_of_answer(talk(port_, "GET / HTTP/1.0\r\n\r\n")), 200) << "HTTP/1.0 has no Host";
  EXPECT_EQ(status_of_answer(talk(port_,
                                  "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n")),
            200);
  EXPECT_EQ(status_of_answer(talk(port_,
                                  "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n"
                                  "Connection: close\r\n\r\n")),
            421);
}

}  // namespace
}  // namespace tailor::http
