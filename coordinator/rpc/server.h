// The gRPC server of the coordinator: CoordinatorService, WorkerService, reflection and health,
// on one port.
//
// Handlers run on gRPC's threads and only post: reads go to a small pool, changes to the engine's
// mailbox. The call is finished from there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "coordinator/engine/views.h"

namespace tailor::storage {
class ArtifactStore;
}

namespace tailor::rpc {

struct Options {
  std::string listen = "127.0.0.1:7070";  ///< HOST:PORT; port 0 = any free one
  std::string version = "unknown";
  std::string database;      ///< path, for GetInfo
  std::string http_address;  ///< for GetInfo
  /// Open files and connections of other kinds that connections here leave room for; half of the
  /// process's limit at most.
  std::uint64_t descriptors_kept = 384;
  storage::ArtifactStore* artifacts = nullptr;  ///< outlives the server; null = none are kept
  /// What streams (QueryRows, ExportCurves, WatchEvents) may hold together of answers that their
  /// clients have not read. Beyond it those end that read nothing for `unread_ms_max`, then new
  /// ones are refused.
  std::size_t unread_bytes_max = 256 << 20;
  std::int64_t unread_ms_max = 30'000;
  /// Called once a finished call with its method ("SubmitSweep") and outcome. Any thread.
  std::function<void(std::string_view method, Code code)> on_call;
};

class Server {
 public:
  /// Starts serving. `views` must outlive the server. Errors: kAlreadyExists when the port is in
  /// use or the address is not one of this machine; kInvalidArgument when it is no address.
  static Result<std::unique_ptr<Server>> start(const engine::Views& views, Options options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// The port in use.
  int port() const;
  /// Ok, or kResourceExhausted with the reason while connections are refused for want of
  /// descriptors. Threads: any.
  Status accepting() const;
  /// What the health service says.
  void set_serving(bool serving);
  /// GetInfo's `http_address`, known once the other server listens.
  void set_http_address(std::string address);
  /// Refuses new calls, ends open streams with kUnavailable, gives running calls up to `grace_ms`.
  /// Call before Engine::stop. Idempotent.
  void stop(std::int64_t grace_ms = 2'000);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor::rpc
