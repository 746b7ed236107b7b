// tailor-coordinator: builds the parts, runs, drains. Where reading starts.
//
//   store <- engine <- views <- gRPC server, HTTP server
//
// Start: settings, database (locked, migrated, checked), engine (state loaded), HTTP, gRPC, port
// file. Until the last of these nothing is promised to anybody; a failure undoes the earlier ones
// by their destructors. Stop (SIGTERM, SIGINT): gRPC refuses new calls, ends the streams and lets
// running calls finish; the engine deals with what is in its mailbox and commits it; HTTP closes
// last, so that /readyz can say what is going on; then the database is closed.

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/file.h"
#include "base/logging.h"
#include "coordinator/config.h"
#include "coordinator/engine/engine.h"
#include "coordinator/engine/pruner.h"
#include "coordinator/engine/views.h"
#include "coordinator/http/api.h"
#include "coordinator/http/metrics.h"
#include "coordinator/http/server.h"
#include "coordinator/rpc/server.h"
#include "storage/artifacts.h"
#include "storage/sqlite_store.h"

namespace tailor::coordinator {
namespace {

enum Exit : int { kOk = 0, kInternal = 1, kUsage = 2, kConflict = 7 };

constexpr std::int64_t kStallMs = 3'000;  // of silence, from which on leases are extended by it
constexpr std::int64_t kHungMs = 5'000;   // of one commit, from which on it hangs
constexpr std::int64_t kPublishMs = 50;   // between two renewals of what everybody may look at

int exit_code(const Status& status) {
  switch (status.code()) {
    case Code::kInvalidArgument:
      return kUsage;
    case Code::kAlreadyExists:
    case Code::kAborted:
      return kConflict;
    default:
      return kInternal;
  }
}

int fail(const Status& status) {
  std::fprintf(stderr, "tailor-coordinator: error: %s\n", status.message().c_str());
  return exit_code(status);
}

/// Signals that end the program, taken by one thread that waits for them.
sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

/// "127.0.0.1:7071" with the port that was given out.
std::string with_port(const std::string& address, int port) {
  return address.substr(0, address.rfind(':')) + ":" + std::to_string(port);
}

Status serve(const Config& config) {
  // A port in use is the commonest mistake: found before a database is made or migrated.
  TAILOR_RETURN_IF_ERROR(http::check_listen(config.listen).with_context("gRPC"));
  TAILOR_RETURN_IF_ERROR(http::check_listen(config.http).with_context("HTTP"));
  const SystemClock clock;
  storage::SqliteOptions store_options;
  store_options.allow_network_file_system = config.allow_network_file_system;
  store_options.notice = [](const std::string& text) { log_warn("storage", text); };
  TAILOR_ASSIGN_OR_RETURN(const std::unique_ptr<storage::Store> store,
                          storage::open_sqlite(config.database, store_options));

  const std::string version = TAILOR_VERSION;
  http::Metrics metrics(version, config.database, clock.wall_ms());
  core::Options core_options;
  core_options.heartbeat_ms = config.heartbeat_ms;
  core_options.lease_ms = config.lease_ms;
  core_options.backoff_ms = config.backoff_ms;
  core_options.holder_wait_ms = config.checkpoint_wait_ms;
  core_options.preemption = config.preemption;
  core_options.quarantine_after = config.quarantine_after;
  core_options.probe_after_ms = config.quarantine_probe_ms;
  core_options.quarantine_patterns = config.quarantine_patterns;
  engine::Options engine_options;
  engine_options.stall_ms = kStallMs;
  engine_options.hung_ms = kHungMs;
  engine_options.publish_ms = kPublishMs;

  std::mutex fatal_mutex;  // guards: fatal
  Status fatal;
  std::atomic<rpc::Server*> health_service{nullptr};
  engine::Hooks hooks;
  hooks.on_health = [&](const engine::Health& health) {
    if (rpc::Server* server = health_service.load()) {
      server->set_serving(health.running && !health.stalled);
    }
  };
  hooks.on_commit = [&](std::span<const storage::Mutation> batch, double seconds) {
    metrics.on_commit(batch, seconds);
  };
  hooks.on_fatal = [&](const Status& why) {
    {
      const std::scoped_lock lock(fatal_mutex);
      fatal = why;
    }
    kill(getpid(), SIGTERM);  // taken by sigwait below: the same orderly way out
  };
  TAILOR_ASSIGN_OR_RETURN(
      const std::unique_ptr<engine::Engine> engine,
      engine::Engine::start(*store, clock, core_options, engine_options, std::move(hooks)));
  const engine::Views views(*store, *engine);

  const http::Api api(views, metrics, version, [&] {
    const rpc::Server* server = health_service.load();
    return server != nullptr ? server->accepting() : Status::ok();
  });
  http::Options http_options;
  http_options.listen = config.http;
  http_options.allowed_hosts = config.allowed_hosts;
  http_options.quick = http::Api::is_quick;
  // The dashboard's port may not take the descriptors that workers and the database need.
  http_options.connections_max =
      std::min<std::uint64_t>(http_options.connections_max, descriptor_limit() / 4);
  TAILOR_ASSIGN_OR_RETURN(
      const std::unique_ptr<http::Server> http,
      http::Server::start(http_options, [&](const http::Request& r) { return api.handle(r); }));
  const std::string http_address = with_port(config.http, http->port());

  std::unique_ptr<storage::ArtifactStore> artifacts;
  if (config.artifacts_quota > 0) {
    std::vector<std::string> warnings;
    TAILOR_ASSIGN_OR_RETURN(const std::string identity, storage::database_identity(*store));
    TAILOR_ASSIGN_OR_RETURN(
        artifacts, storage::ArtifactStore::open(config.artifacts, config.artifacts_quota, identity,
                                                &warnings));
    for (const std::string& warning : warnings) {
      log_warn("coordinator", "artifacts", {{"reason", warning}});
    }
  }

  rpc::Options rpc_options;
  rpc_options.artifacts = artifacts.get();
  rpc_options.listen = config.listen;
  rpc_options.version = version;
  rpc_options.database = config.database;
  rpc_options.http_address = http_address;
  rpc_options.on_call = [&](std::string_view method, Code code) { metrics.on_rpc(method, code); };
  TAILOR_ASSIGN_OR_RETURN(const std::unique_ptr<rpc::Server> rpc,
                          rpc::Server::start(views, rpc_options));
  const std::string grpc_address = with_port(config.listen, rpc->port());
  health_service = rpc.get();
  rpc->set_serving(!engine->health().stalled);

  const auto stop = [&] {
    health_service = nullptr;
    rpc->stop();
    engine->stop();
    http->stop();
  };
  if (!config.port_file.empty()) {
    const Status written = write_file_atomic(
        config.port_file,
        fmt::format("{{\"grpc\": {}, \"http\": {}, \"grpc_address\": \"{}\", \"http_address\": "
                    "\"{}\", \"pid\": {}}}\n",
                    rpc->port(), http->port(), grpc_address, http_address, getpid()),
        false);
    if (!written.is_ok()) {
      // Whoever waits for this file would wait for ever.
      stop();
      return written.with_context("--port-file");
    }
  }
  log_info(
      "coordinator", "serving",
      {{"grpc", grpc_address}, {"http", "http://" + http_address + "/"}, {"version", version}});

  const engine::Pruner pruner(*store,
                              {config.prune_logs_ms, config.prune_points_ms, config.prune_events_ms,
                               config.prune_logs_bytes},
                              clock);
  const sigset_t signals = ending_signals();
  int signal = 0;
  sigwait(&signals, &signal);
  log_info("coordinator", "draining", {{"signal", std::to_string(signal)}});

  stop();
  const std::scoped_lock lock(fatal_mutex);
  if (!fatal.is_ok()) return fatal.with_context("the database cannot be written any more");
  log_info("coordinator", "stopped");
  return Status::ok();
}

int run(int argc, char** argv) {
  auto command = parse_command_line(argc, argv);
  if (!command.has_value()) return fail(command.error());
  if (command->exit) return kOk;
  if (const Status status = init_logging(command->config.log_level); !status.is_ok()) {
    return fail(status);
  }
  // Before any thread is made, so that all of them inherit the mask
  // and only `serve` takes the signals.
  const sigset_t signals = ending_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  // Every worker and every client costs one: as many as the system allows.
  raise_descriptor_limit();
  log_info("coordinator", "settings " + describe(command->config));
  if (const Status status = serve(command->config); !status.is_ok()) return fail(status);
  return kOk;
}

}  // namespace
}  // namespace tailor::coordinator

int main(int argc, char** argv) { return tailor::coordinator::run(argc, argv); }
