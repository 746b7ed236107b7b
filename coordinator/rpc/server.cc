#include "coordinator/rpc/server.h"

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "base/descriptors.h"
#include "base/logging.h"
#include "coordinator/rpc/artifact_service.h"
#include "coordinator/rpc/coordinator_service.h"
#include "coordinator/rpc/listener.h"
#include "coordinator/rpc/worker_service.h"

namespace tailor::rpc {
namespace {

// Of what is asked and of what is answered: gRPC's own default, which every client takes. Answers
// are bounded by construction (paging.h), messages of workers by protocol/limits.h.
constexpr int kMessageBytesMax = 4 << 20;

/// gRPC's own lines are for people who debug gRPC; what matters to ours is said by Status.
void log_of_grpc(gpr_log_func_args* line) { log_debug("grpc", line->message); }

void enable_plugins() {
  static std::once_flag once;  // both are process-wide registrations
  std::call_once(once, [] {
    gpr_set_log_function(log_of_grpc);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

}  // namespace

struct Server::Impl {
  Impl(const engine::Views& views, const Options& given)
      : options(given),
        coordinator(views, options),
        worker(views.engine(), options),
        artifacts(views, options) {}

  const Options options;
  CoordinatorServiceImpl coordinator;
  WorkerServiceImpl worker;
  ArtifactServiceImpl artifacts;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Listener> listener;
  std::once_flag stopped;
};

Result<std::unique_ptr<Server>> Server::start(const engine::Views& views, Options options) {
  enable_plugins();
  auto impl = std::make_unique<Impl>(views, options);
  // At least half of what there is stays for files and the dashboard.
  const std::uint64_t limit = descriptor_limit();
  const std::uint64_t kept = std::min(options.descriptors_kept, limit / 2);
  TAILOR_ASSIGN_OR_RETURN(impl->listener, Listener::open(options.listen, limit - kept));
  grpc::ServerBuilder builder;
  using Builder = grpc::ServerBuilder::experimental_type;
  impl->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      Builder::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  builder.RegisterService(&impl->coordinator);
  builder.RegisterService(&impl->worker);
  builder.RegisterService(&impl->artifacts);
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  // A worker whose machine vanished is noticed by pings; its lease decides what that means.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  impl->artifacts.begin();
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return error(Code::kInternal, "gRPC does not start");
  impl->listener->start([acceptor = impl->acceptor.get()](int listening, int connected) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters taken;
    taken.listener_fd = listening;
    taken.fd = connected;
    acceptor->HandleNewConnection(&taken);
  });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() { stop(); }

int Server::port() const { return impl_->listener->port(); }

Status Server::accepting() const { return impl_->listener->accepting(); }

void Server::set_serving(bool serving) {
  if (auto* health = impl_->server->GetHealthCheckService()) health->SetServingStatus(serving);
}

void Server::set_http_address(std::string address) {
  impl_->coordinator.set_http_address(std::move(address));
}

void Server::stop(std::int64_t grace_ms) {
  std::call_once(impl_->stopped, [this, grace_ms] {
    if (auto* health = impl_->server->GetHealthCheckService()) health->Shutdown();
    impl_->listener->stop();
    impl_->coordinator.close_streams();
    impl_->worker.close_streams();
    const gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(grace_ms, GPR_TIMESPAN));
    impl_->server->Shutdown(deadline);
    impl_->server->Wait();
    impl_->coordinator.stop();
    impl_->artifacts.stop();
  });
}

}  // namespace tailor::rpc
