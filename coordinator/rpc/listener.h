// The listening socket of the gRPC server (private to coordinator/rpc). gRPC's own stops listening
// for good, without a word, once the process has no descriptor left for one more connection; this
// one refuses connections while there is still room, tells them why, and goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.h"

namespace tailor::rpc {

/// Threads: any; `taken` is called on the listener's own.
class Listener {
 public:
  /// Gets a connected socket, and the descriptor of the one that listens. It owns the former.
  using Taken = std::function<void(int listening, int connected)>;

  /// Binds and listens; connections wait until `start`. `listen` is HOST:PORT with a numeric host
  /// or "localhost", port 0 = any free one. A connection whose descriptor would be
  /// `descriptors_max` or higher is refused. Errors: kInvalidArgument, kAlreadyExists (the port is
  /// in use, or the address is not this machine's).
  static Result<std::unique_ptr<Listener>> open(const std::string& listen,
                                                std::uint64_t descriptors_max);
  /// Stops.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }
  void start(Taken taken);
  /// No connection is taken any more, and the port is free. Idempotent.
  void stop();

  /// Ok, or kResourceExhausted with the reason while connections are refused.
  Status accepting() const;
  /// Connections refused so far.
  std::uint64_t refused() const { return refused_.load(); }

 private:
  Listener(int socket, int port, int wake, std::uint64_t descriptors_max)
      : socket_(socket), port_(port), wake_(wake), descriptors_max_(descriptors_max) {}
  void run(const std::stop_token& stop, const Taken& taken);
  /// Takes all that wait. False when the system gave none for want of a descriptor.
  bool take_waiting(const Taken& taken);
  void refuse(int connected);
  /// Looks whether there is room again.
  bool has_room() const;

  const int socket_;
  const int port_;
  const int wake_;  // written to by `stop`
  const std::uint64_t descriptors_max_;
  std::atomic<std::uint64_t> refused_{0};
  mutable std::atomic<bool> full_{false};
  std::once_flag stopped_;
  std::jthread thread_;
};

}  // namespace tailor::rpc
