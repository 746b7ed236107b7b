// A server over any store, and calls to it by a client with gRPC's own limits.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "coordinator/rpc/server.h"
#include "protocol/channel.h"
#include "tailor/v1/coordinator.grpc.pb.h"
#include "tailor/v1/worker.grpc.pb.h"
#include "tests/coordinator/engine/support.h"

namespace tailor::testing {

class Served {
 public:
  using Stub = v1::CoordinatorService::Stub;

  /// `store` must outlive it. Aborts the program when the server does not start.
  explicit Served(storage::Store& store, rpc::Options options = {}) {
    engine_ = engine::Engine::start(store, clock_, {}, {}).value();
    views_ = std::make_unique<engine::Views>(store, *engine_);
    options.listen = "127.0.0.1:0";
    options.version = "1.2.3";
    server_ = rpc::Server::start(*views_, std::move(options)).value();
    server_->set_serving(true);
    channel_ = protocol::open_channel(address());
    client_ = v1::CoordinatorService::NewStub(channel_);
    workers_ = v1::WorkerService::NewStub(channel_);
  }
  ~Served() {
    server_->stop(200);
    engine_->stop();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  engine::Engine& engine() { return *engine_; }
  rpc::Server& server() { return *server_; }
  Stub& client() { return *client_; }
  v1::WorkerService::Stub& workers() { return *workers_; }

  template <typename Request, typename Response>
  grpc::Status call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    set_deadline(context);
    return (client_.get()->*method)(&context, request, response);
  }
  static void set_deadline(grpc::ClientContext& context) {
    context.set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_seconds(60, GPR_TIMESPAN)));
  }

 private:
  ManualClock clock_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::Views> views_;
  std::unique_ptr<rpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<Stub> client_;
  std::unique_ptr<v1::WorkerService::Stub> workers_;
};

}  // namespace tailor::testing
