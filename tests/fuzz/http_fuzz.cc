// The HTTP port: any bytes on a connection are answered or the connection is closed, and the target
// of a request is decoded or refused.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "coordinator/http/server.h"
#include "tests/fuzz/fuzz.h"

namespace tailor::fuzz {
namespace {

int port() {
  static const auto server = [] {
    http::Options options;
    options.listen = "127.0.0.1:0";
    options.threads = 1;
    auto started = http::Server::start(options, [](const http::Request& request) {
      http::Response response;
      response.body = request.path;
      for (const auto& [key, value] : request.query) response.body += key + value;
      return response;
    });
    expect(started.has_value(), "a server starts");
    return std::move(*started);
  }();
  return server->port();
}

/// Sends everything, then reads until the server closes.
void send_over_a_connection(std::string_view bytes) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool connected =
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  expect(connected, "the server listens");
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) break;  // closed: as good an answer as any
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  ::shutdown(socket, SHUT_WR);
  char answer[1 << 14];
  while (::recv(socket, answer, sizeof answer, 0) > 0) continue;
  ::close(socket);
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  std::string headers = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 5000; ++i) headers += "X: a\r\n";
  return {"GET /api/v1/trials?sweep=last&limit=5&order=objective HTTP/1.1\r\nHost: x\r\n\r\n",
          "GET /%41%2f?a=%26+b&&c HTTP/1.1\r\nAccept-Encoding: gzip;q=0.5, *;q=0\r\n\r\n",
          "HEAD / HTTP/1.0\r\nIf-None-Match: \"x\"\r\n\r\nGET / HTTP/1.1\r\n\r\n",
          "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
          "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
          headers + "\r\n",
          "/a/b?c=d#e",
          "[::1]:7071"};
}

}  // namespace tailor::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tailor;
  const std::string_view text = fuzz::as_text(data, size);
  http::Request request;
  if (http::parse_target(text, request).is_ok()) {
    fuzz::expect(text.front() == '/', "a target begins with a slash");
    fuzz::expect(request.path.size() <= text.size(), "decoding makes nothing longer");
  }
  (void)http::split_address(text);
  fuzz::send_over_a_connection(text);
  return 0;
}
