// WorkerService by the callback API (private to coordinator/rpc).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/engine/engine.h"
#include "coordinator/rpc/server.h"
#include "tailor/v1/worker.grpc.pb.h"

namespace tailor::rpc {

class WorkerSession;

/// Threads: gRPC's. `engine` must outlive it.
class WorkerServiceImpl final : public v1::WorkerService::CallbackService {
 public:
  WorkerServiceImpl(engine::Engine& engine, const Options& options)
      : engine_(engine), version_(options.version), on_call_(options.on_call) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;

  /// Ends every session with kUnavailable, and new ones at once.
  void close_streams();

 private:
  engine::Engine& engine_;
  const std::string version_;
  const std::function<void(std::string_view, Code)> on_call_;
  std::mutex mutex_;  // guards: all below
  std::vector<std::weak_ptr<WorkerSession>> sessions_;
  std::size_t look_at_ = 0;  // sessions_ of so many are searched for ended ones
  bool closed_ = false;
};

}  // namespace tailor::rpc
