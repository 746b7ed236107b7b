#include "model/train/ranks/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace tailor::train::ranks {
namespace {

constexpr int kRetryMs = 20;  // between two attempts to connect

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<Addresses> resolve(const Endpoint& endpoint, int type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = type;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (failure != 0) {
    return error(Code::kNotFound, fmt::format("the host \"{}\" cannot be found: {}", endpoint.host,
                                              ::gai_strerror(failure)));
  }
  return Addresses(found, &::freeaddrinfo);
}

Result<Endpoint> numeric(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof host, port,
                    sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return error(Code::kUnavailable, "a socket has no numeric address");
  }
  return Endpoint{host, std::atoi(port)};
}

void send_at_once(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Waits for `events`; kDeadlineExceeded when they do not come.
Status wait_for(int descriptor, short events, const Clock& clock, MonotonicMs deadline_ms) {
  for (;;) {
    const std::int64_t left_ms = deadline_ms - clock.now_ms();
    if (left_ms <= 0) return Status(Code::kDeadlineExceeded, "no answer in time");
    pollfd entry{descriptor, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left_ms, 60'000)));
    if (ready > 0) return Status::ok();
    if (ready < 0 && errno != EINTR) {
      return Status(Code::kUnavailable, fmt::format("poll: {}", std::strerror(errno)));
    }
  }
}

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = other.release();
  }
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Socket::finish_writing() { ::shutdown(descriptor_, SHUT_WR); }
void Socket::shutdown() { ::shutdown(descriptor_, SHUT_RDWR); }

Result<Endpoint> parse_endpoint(std::string_view text) {
  const auto colon = text.rfind(':');
  Endpoint endpoint;
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    } else if (host.find(':') != std::string_view::npos) {
      host = {};  // an IPv6 address without brackets
    }
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
    if (!host.empty() && failure == std::errc() && end == digits.data() + digits.size() &&
        endpoint.port >= 0 && endpoint.port <= 65535) {
      endpoint.host = host;
      return endpoint;
    }
  }
  return error(Code::kInvalidArgument,
               fmt::format("\"{}\" is no address; HOST:PORT or [IPV6]:PORT is needed", text));
}

std::string to_string(const Endpoint& endpoint) {
  return endpoint.host.find(':') == std::string::npos
             ? fmt::format("{}:{}", endpoint.host, endpoint.port)
             : fmt::format("[{}]:{}", endpoint.host, endpoint.port);
}

Result<Socket> listen_on(const Endpoint& endpoint) {
  TAILOR_ASSIGN_OR_RETURN(const Addresses addresses, resolve(endpoint, SOCK_STREAM));
  int reason = 0;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.is_open()) {
      reason = errno;
      continue;
    }
    const int on = 1;
    ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(socket.descriptor(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(socket.descriptor(), 1024) == 0) {
      return socket;
    }
    reason = errno;
  }
  return error(reason == EADDRINUSE ? Code::kAlreadyExists : Code::kUnavailable,
               fmt::format("cannot listen on {}: {}", to_string(endpoint), std::strerror(reason)));
}

Result<Endpoint> local_endpoint(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return error(Code::kUnavailable, fmt::format("getsockname: {}", std::strerror(errno)));
  }
  return numeric(address, size);
}

Result<std::string> address_towards(const Endpoint& endpoint) {
  TAILOR_ASSIGN_OR_RETURN(const Addresses addresses, resolve(endpoint, SOCK_DGRAM));
  int reason = 0;
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    const Socket socket(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.is_open() && ::connect(socket.descriptor(), at->ai_addr, at->ai_addrlen) == 0) {
      TAILOR_ASSIGN_OR_RETURN(const Endpoint mine, local_endpoint(socket));
      return mine.host;
    }
    reason = errno;
  }
  return error(Code::kUnavailable,
               fmt::format("no way to {}: {}", to_string(endpoint), std::strerror(reason)));
}

Result<Socket> connect_to(const Endpoint& endpoint, const Clock& clock, MonotonicMs deadline_ms) {
  TAILOR_ASSIGN_OR_RETURN(const Addresses addresses, resolve(endpoint, SOCK_STREAM));
  int reason = ETIMEDOUT;
  while (clock.now_ms() < deadline_ms) {
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
      Socket socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (!socket.is_open()) {
        reason = errno;
        continue;
      }
      if (::connect(socket.descriptor(), at->ai_addr, at->ai_addrlen) != 0) {
        if (errno != EINPROGRESS) {
          reason = errno;
          continue;
        }
        if (!wait_for(socket.descriptor(), POLLOUT, clock, deadline_ms)) continue;
        socklen_t size = sizeof reason;
        ::getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &reason, &size);
        if (reason != 0) continue;
      }
      send_at_once(socket.descriptor());
      return socket;
    }
    ::poll(nullptr, 0, kRetryMs);
  }
  return error(Code::kDeadlineExceeded,
               fmt::format("no connection to {}: {}", to_string(endpoint), std::strerror(reason)));
}

Result<Socket> accept_from(const Socket& listener, const Clock& clock, MonotonicMs deadline_ms) {
  for (;;) {
    TAILOR_RETURN_IF_ERROR(wait_for(listener.descriptor(), POLLIN, clock, deadline_ms));
    Socket socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.is_open()) {
      send_at_once(socket.descriptor());
      return socket;
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      return error(Code::kUnavailable, fmt::format("accept: {}", std::strerror(errno)));
    }
  }
}

Status send_all(const Socket& socket, std::span<const std::byte> bytes, const Clock& clock,
                MonotonicMs deadline_ms) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      TAILOR_RETURN_IF_ERROR(wait_for(socket.descriptor(), POLLOUT, clock, deadline_ms));
    } else if (errno != EINTR) {
      return Status(Code::kUnavailable, std::strerror(errno));
    }
  }
  return Status::ok();
}

Status receive_all(const Socket& socket, std::span<std::byte> bytes, const Clock& clock,
                   MonotonicMs deadline_ms) {
  while (!bytes.empty()) {
    const ssize_t count = ::recv(socket.descriptor(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    } else if (count == 0) {
      return Status(Code::kUnavailable, "the connection was closed");
    } else if (errno == EAGAIN) {
      TAILOR_RETURN_IF_ERROR(wait_for(socket.descriptor(), POLLIN, clock, deadline_ms));
    } else if (errno != EINTR) {
      return Status(Code::kUnavailable, std::strerror(errno));
    }
  }
  return Status::ok();
}

}  // namespace tailor::train::ranks
