// A client that sends exactly the bytes it is told to, for requests that no library would send.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace tailor::http {

class RawClient {
 public:
  explicit RawClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { ::close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  /// False when the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// Everything until the server closes, or until ten seconds have passed in silence (a failure).
  std::string read_all() {
    std::string all;
    char block[65536];
    for (;;) {
      pollfd waiting{fd_, POLLIN, 0};
      if (::poll(&waiting, 1, 10'000) <= 0) {
        ADD_FAILURE() << "the server keeps the connection open and says nothing";
        return all;
      }
      const ssize_t got = ::recv(fd_, block, sizeof block, 0);
      if (got <= 0) return all;
      all.append(block, static_cast<std::size_t>(got));
    }
  }

 private:
  int fd_;
  bool connected_ = false;
};

/// One request on a connection of its own; the whole answer with its header.
inline std::string talk(int port, std::string_view bytes) {
  RawClient client(port);
  EXPECT_TRUE(client.connected());
  client.send(bytes);
  return client.read_all();
}

inline std::string get(int port, std::string_view target, std::string_view more = "") {
  return talk(port, "GET " + std::string(target) +
                        " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                        std::string(more) + "\r\n");
}

inline int status_of_answer(const std::string& answer) {
  return answer.size() < 12 ? 0 : std::atoi(answer.c_str() + 9);
}
inline std::string body_of(const std::string& answer) {
  const std::size_t at = answer.find("\r\n\r\n");
  return at == std::string::npos ? "" : answer.substr(at + 4);
}

}  // namespace tailor::http
