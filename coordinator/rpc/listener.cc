#include "coordinator/rpc/listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/descriptors.h"
#include "base/logging.h"

namespace tailor::rpc {
namespace {

constexpr int kBacklog = 4096;           // 10,000 workers may come back at once
constexpr int kPauseWithoutRoomMs = 50;  // between two tries when the system has no descriptor

constexpr std::string_view kRefusal =
    "this coordinator has as many connections as its limit of open files allows (ulimit -n); close "
    "some, or start it with a higher limit\n";

/// In HTTP/1.1, which people and programs of every kind can read. A gRPC client takes it for a
/// connection that failed and waits before the next try; after a GOAWAY it would come back at once.
std::string refusal() {
  return fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: "
      "{}\r\nRetry-After: 5\r\nConnection: close\r\n\r\n{}",
      kRefusal.size(), kRefusal);
}

Status cannot_listen(const std::string& listen, const char* why) {
  return {Code::kAlreadyExists,
          fmt::format("cannot listen on {} for gRPC: the port is in use (is another coordinator "
                      "running?) or the address is not this machine's ({})",
                      listen, why)};
}

/// The addresses of HOST:PORT, "[::1]:7070" too.
Result<std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>> resolve(const std::string& listen) {
  const std::size_t colon = listen.rfind(':');
  if (colon == std::string::npos) {
    return error(Code::kInvalidArgument, fmt::format("\"{}\" is not HOST:PORT", listen));
  }
  std::string host = listen.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host == "localhost") host = "127.0.0.1";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                   listen.c_str() + colon + 1, &hints, &found);
  if (failed != 0) {
    return error(Code::kInvalidArgument,
                 fmt::format("\"{}\": the host must be an address in numbers, such as 127.0.0.1 or "
                             "0.0.0.0, and the port a number ({})",
                             listen, ::gai_strerror(failed)));
  }
  return std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>(found, &::freeaddrinfo);
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(const std::string& listen,
                                                 std::uint64_t descriptors_max) {
  TAILOR_ASSIGN_OR_RETURN(const auto address, resolve(listen));
  const int socket =
      ::socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (socket < 0) return error(cannot_listen(listen, std::strerror(errno)));
  // No SO_REUSEPORT: a second coordinator would silently share the port.
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // inherited by connections
  if (address->ai_family == AF_INET6) {
    const int off = 0;
    ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(socket, address->ai_addr, address->ai_addrlen) != 0 ||
      ::listen(socket, kBacklog) != 0) {
    const Status why = cannot_listen(listen, std::strerror(errno));
    ::close(socket);
    return error(why);
  }
  const int wake = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake < 0) {
    const Status why = cannot_listen(listen, std::strerror(errno));
    ::close(socket);
    return error(why);
  }
  return std::unique_ptr<Listener>(new Listener(socket, port_of(socket), wake, descriptors_max));
}

Listener::~Listener() {
  stop();
  ::close(wake_);
}

void Listener::start(Taken taken) {
  thread_ = std::jthread(
      [this, taken = std::move(taken)](const std::stop_token& stop) { run(stop, taken); });
}

void Listener::stop() {
  std::call_once(stopped_, [this] {
    thread_.request_stop();
    const std::uint64_t one = 1;
    // The counter cannot be full: this is the only write.
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof one);
    if (thread_.joinable()) thread_.join();
    ::close(socket_);
  });
}

void Listener::run(const std::stop_token& stop, const Taken& taken) {
  bool pause = false;
  while (!stop.stop_requested()) {
    pollfd waits[] = {{wake_, POLLIN, 0}, {pause ? -1 : socket_, POLLIN, 0}};
    ::poll(waits, 2, pause ? kPauseWithoutRoomMs : -1);
    if (stop.stop_requested()) return;
    pause = !take_waiting(taken);
  }
}

bool Listener::take_waiting(const Taken& taken) {
  for (;;) {
    const int connected = ::accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connected < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      if (!full_.exchange(true)) {
        log_warn("rpc", "cannot accept connections", {{"reason", std::strerror(errno)}});
      }
      return false;
    }
    // The system gives the lowest descriptor that is free, so this one says how many are in use.
    if (static_cast<std::uint64_t>(connected) >= descriptors_max_) {
      refuse(connected);
    } else {
      if (full_.exchange(false)) {
        log_info("rpc", "connections are taken again", {{"refused", std::to_string(refused())}});
      }
      taken(socket_, connected);
    }
  }
}

void Listener::refuse(int connected) {
  ++refused_;
  if (!full_.exchange(true)) {
    log_warn("rpc", "refusing connections: the limit of open files is near",
             {{"limit", std::to_string(descriptor_limit())},
              {"connections_up_to", std::to_string(descriptors_max_)}});
  }
  static const std::string text = refusal();
  // What does not fit at once into an empty buffer would not be read either.
  [[maybe_unused]] const auto sent =
      ::send(connected, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // Closing with unread bytes would reset the connection, and the other side lose the reason.
  ::shutdown(connected, SHUT_WR);
  // Not all of what a fast sender sends: others wait for this thread.
  char bytes[4096];
  for (int i = 0; i < 16 && ::recv(connected, bytes, sizeof bytes, MSG_DONTWAIT) > 0; ++i) continue;
  ::close(connected);
}

bool Listener::has_room() const { return lowest_free_descriptor() < descriptors_max_; }

Status Listener::accepting() const {
  if (!full_.load()) return Status::ok();
  if (has_room()) {
    if (full_.exchange(false)) {
      log_info("rpc", "connections are taken again", {{"refused", std::to_string(refused())}});
    }
    return Status::ok();
  }
  return {Code::kResourceExhausted,
          fmt::format("connections for clients and workers are refused ({} so far): the limit of "
                      "open files, {}, is near; close some, or start with a higher `ulimit -n`",
                      refused(), descriptor_limit())};
}

}  // namespace tailor::rpc
