// TCP sockets as ranks use them: owned descriptors, listening, connecting and short blocking
// messages with a deadline. IPv4 and IPv6. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace tailor::train::ranks {

/// An owned descriptor; closed with its owner. Threads: `shutdown` may be called while another
/// thread reads or writes, which wakes it; everything else from one thread.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  /// Gives the descriptor away.
  int release() { return std::exchange(descriptor_, -1); }
  /// No more bytes to the other side; what it still sends can be read.
  void finish_writing();
  /// Both directions end at once, for every thread.
  void shutdown();

 private:
  int descriptor_ = -1;
};

/// Where a rank can be reached.
struct Endpoint {
  std::string host;  ///< a name, or a numeric address
  int port = 0;
};

/// "10.0.0.1:29500", "node1:29500", "[::1]:29500". Errors: kInvalidArgument.
Result<Endpoint> parse_endpoint(std::string_view text);
std::string to_string(const Endpoint& endpoint);

/// Listens on `endpoint` (port 0: any free one). Errors: kNotFound (no such host), kAlreadyExists
/// (the port is in use), kUnavailable.
Result<Socket> listen_on(const Endpoint& endpoint);
/// The numeric address and port that a socket has on this side.
Result<Endpoint> local_endpoint(const Socket& socket);
/// This machine's numeric address on the way to `endpoint`; nothing is sent.
Result<std::string> address_towards(const Endpoint& endpoint);

/// Connects, trying again while nobody listens. Errors: kNotFound, kDeadlineExceeded.
Result<Socket> connect_to(const Endpoint& endpoint, const Clock& clock, MonotonicMs deadline_ms);
/// The next connection. Errors: kDeadlineExceeded, kUnavailable.
Result<Socket> accept_from(const Socket& listener, const Clock& clock, MonotonicMs deadline_ms);

/// All of `bytes`, or an error: kDeadlineExceeded, kUnavailable (the other side is gone).
Status send_all(const Socket& socket, std::span<const std::byte> bytes, const Clock& clock,
                MonotonicMs deadline_ms);
Status receive_all(const Socket& socket, std::span<std::byte> bytes, const Clock& clock,
                   MonotonicMs deadline_ms);

}  // namespace tailor::train::ranks
