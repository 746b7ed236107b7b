#include "client/context.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "base/config.h"
#include "base/ids.h"

namespace tailor::client {
namespace {

constexpr const char* kDefaultCoordinator = "127.0.0.1:7070";

volatile std::sig_atomic_t g_interrupted = 0;

/// `coordinator` of a tailor.toml; empty when the file or the key is absent. A broken file is an
/// error: it would otherwise silently talk to the wrong coordinator.
std::string coordinator_in(const std::string& path) {
  if (!std::filesystem::exists(path)) return "";
  const ConfigDocument document = require(ConfigDocument::load(path));
  ConfigTable root = document.root();
  const auto address = root.string("coordinator");
  require(root.finish());
  return address.value_or("");
}

}  // namespace

Exit exit_for(Code code) {
  switch (code) {
    case Code::kOk:
      return Exit::kOk;
    case Code::kInvalidArgument:
    case Code::kUnimplemented:  // an input of a kind that is not read
    case Code::kOutOfRange:
      return Exit::kUsage;
    case Code::kNotFound:
      return Exit::kNotFound;
    case Code::kUnavailable:
      return Exit::kUnreachable;
    case Code::kUnauthenticated:
    case Code::kPermissionDenied:
      return Exit::kAuth;
    case Code::kAlreadyExists:
    case Code::kFailedPrecondition:
    case Code::kAborted:
      return Exit::kConflict;
    case Code::kDeadlineExceeded:
      return Exit::kTimedOut;
    case Code::kCancelled:
      return Exit::kInterrupted;
    default:
      return Exit::kInternal;
  }
}

void require(const Status& status) {
  if (!status.is_ok()) throw Failure(exit_for(status.code()), status.message());
}

Setting Context::coordinator() const {
  if (!coordinator_flag.empty()) return {coordinator_flag, "flag"};
  if (const char* value = std::getenv("TAILOR_COORDINATOR"); value != nullptr && *value != '\0') {
    return {value, "environment TAILOR_COORDINATOR"};
  }
  if (std::string value = coordinator_in("tailor.toml"); !value.empty()) {
    return {value, std::filesystem::absolute("tailor.toml").string()};
  }
  if (const char* home = std::getenv("HOME"); home != nullptr) {
    const std::string path = std::string(home) + "/.config/tailor/tailor.toml";
    if (std::string value = coordinator_in(path); !value.empty()) return {value, path};
  }
  return {kDefaultCoordinator, "default"};
}

v1::CoordinatorService::Stub& Context::stub() {
  if (!stub_) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(256 << 20);
    channel_ = grpc::CreateCustomChannel(coordinator().value, grpc::InsecureChannelCredentials(),
                                         arguments);
    stub_ = v1::CoordinatorService::NewStub(channel_);
  }
  return *stub_;
}

gpr_timespec Context::deadline() const {
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_millis(static_cast<std::int64_t>(timeout_s * 1000), GPR_TIMESPAN));
}

void Context::check(const grpc::Status& status) const {
  if (status.ok()) return;
  const auto code = static_cast<Code>(status.error_code());
  if (code == Code::kUnavailable) {
    const Setting address = coordinator();
    throw Failure(Exit::kUnreachable,
                  fmt::format("no coordinator answers at {} (from {}): {}. Start one with "
                              "`tailor-coordinator --database tailor.db`, or name another with "
                              "--coordinator HOST:PORT or TAILOR_COORDINATOR",
                              address.value, address.origin, status.error_message()));
  }
  if (code == Code::kDeadlineExceeded) {
    throw Failure(
        Exit::kTimedOut,
        fmt::format("the coordinator at {} did not answer within {} s (--timeout changes that)",
                    coordinator().value, timeout_s));
  }
  throw Failure(exit_for(code), status.error_message());
}

v1::SweepRef sweep_ref(const std::string& text) {
  v1::SweepRef ref;
  if (const auto id = SweepId::parse(text)) {
    ref.set_id(id->value);
  } else {
    ref.set_name(text);
  }
  return ref;
}

std::uint64_t trial_id(const std::string& text) {
  const auto id = TrialId::parse(text);
  if (!id)
    throw Failure(
        Exit::kUsage,
        fmt::format("\"{}\" is no trial id; they look like t41 (see `tailor show SWEEP`)", text));
  return id->value;
}

bool interrupted() { return g_interrupted != 0; }

void catch_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace tailor::client
