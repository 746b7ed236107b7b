#include "client/context.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/ids.h"
#include "base/text.h"
#include "protocol/channel.h"

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
    // `follow` has its own pauses: the channel's must not add minutes to them.
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 10'000);
    // A peer that is gone without a word is noticed by streams that wait for it.
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // however long nothing happens
    // Coordinators of earlier versions answered with more than gRPC's standard 4 MiB.
    arguments.SetMaxReceiveMessageSize(256 << 20);
    channel_ = protocol::open_channel(coordinator().value, std::move(arguments));
    stub_ = v1::CoordinatorService::NewStub(channel_);
  }
  return *stub_;
}

gpr_timespec Context::deadline() const {
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_millis(static_cast<std::int64_t>(timeout_s * 1000), GPR_TIMESPAN));
}

namespace {

/// What a port says that answers everybody with 503: a coordinator that has no room for one more
/// connection. gRPC throws the words away. "" for any other port.
std::string refusal_of(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos) return "";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.substr(0, colon).c_str(), address.c_str() + colon + 1, &hints,
                    &found) != 0) {
    return "";
  }
  const int socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  std::string answer;
  if (::connect(socket, found->ai_addr, found->ai_addrlen) == 0) {
    char bytes[2048];
    for (ssize_t got = 0; answer.size() < sizeof bytes; answer.append(bytes, got)) {
      got = ::recv(socket, bytes, sizeof bytes, 0);
      if (got <= 0) break;
    }
  }
  ::close(socket);
  ::freeaddrinfo(found);
  const std::size_t body = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.1 503") || body == std::string::npos) return "";
  return escape_controls(trim(answer.substr(body + 4)));
}

/// What a call that did not get through says about the other end.
enum class Peer { kCoordinator, kOther, kNobody };

Peer ask_peer(v1::CoordinatorService::Stub& stub) {
  grpc::ClientContext context;
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(2, GPR_TIMESPAN)));
  v1::GetInfoResponse answer;
  switch (static_cast<Code>(stub.GetInfo(&context, {}, &answer).error_code())) {
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return Peer::kNobody;
    case Code::kUnimplemented:
      return Peer::kOther;
    default:
      return Peer::kCoordinator;
  }
}

}  // namespace

void Context::check(const grpc::Status& status) const {
  if (status.ok()) return;
  const auto code = static_cast<Code>(status.error_code());
  const Setting address = coordinator();
  const std::string said = status.error_message().empty()
                               ? fmt::format("no reason given ({})", code_name(code))
                               : status.error_message();
  const std::string proxy = protocol::unused_proxy();
  const auto something_else = [&] {
    return Failure(
        Exit::kUnreachable,
        fmt::format("what answers at {} (from {}) is no Tailor coordinator: {}. The port for "
                    "clients is that of its --listen (7070), not of the dashboard",
                    address.value, address.origin, said));
  };
  switch (code) {
    case Code::kUnavailable:
      if (said.find("http1.x server") != std::string::npos) {
        const std::string refusal = refusal_of(address.value);
        if (refusal.empty()) throw something_else();
        throw Failure(Exit::kUnreachable,
                      fmt::format("{} refuses this connection: {}", address.value, refusal));
      }
      if (stub_ && ask_peer(*stub_) == Peer::kCoordinator) {
        throw Failure(Exit::kUnreachable,
                      fmt::format("the coordinator at {} answers, but this call failed: {}",
                                  address.value, said));
      }
      throw Failure(
          Exit::kUnreachable,
          fmt::format("no coordinator answers at {} (from {}): {}. Start one with "
                      "`tailor-coordinator --database tailor.db`, or name another with "
                      "--coordinator HOST:PORT or TAILOR_COORDINATOR{}",
                      address.value, address.origin, said,
                      proxy.empty() ? ""
                                    : " (the environment's " + proxy +
                                          " is not used: coordinators are reached directly)"));
    case Code::kDeadlineExceeded:
      // gRPC's own words when the time of the call is over; other words are the coordinator's.
      if (said != "Deadline Exceeded") break;
      throw Failure(
          Exit::kTimedOut,
          fmt::format("the coordinator at {} did not answer within {} s (--timeout changes that)",
                      address.value, timeout_s));
    case Code::kUnimplemented:
      if (!stub_ || ask_peer(*stub_) != Peer::kCoordinator) throw something_else();
      if (!status.error_message().empty()) break;
      throw Failure(Exit::kInternal,
                    fmt::format("the coordinator at {} does not know this call: it is older than "
                                "this client ({}); `tailor info` shows its version",
                                address.value, TAILOR_VERSION));
    case Code::kResourceExhausted:
      if (said.find("message larger than max") == std::string::npos) break;
      throw Failure(Exit::kInternal, fmt::format("the answer of the coordinator at {} is too large "
                                                 "to be sent as one: {}. Ask for less "
                                                 "(--limit and --offset, or LIMIT in SQL)",
                                                 address.value, said));
    default:
      break;
  }
  throw Failure(exit_for(code), said);
}

void require_text(const google::protobuf::Message& message) {
  using google::protobuf::FieldDescriptor;
  const auto* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> set;
  reflection->ListFields(message, &set);
  for (const FieldDescriptor* field : set) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated()) {
      require_text(reflection->GetMessage(message, field));
    } else if (field->type() == FieldDescriptor::TYPE_STRING && !field->is_repeated()) {
      const std::string text = reflection->GetString(message, field);
      if (is_valid_utf8(text)) continue;
      throw Failure(Exit::kUsage, fmt::format("\"{}\" is no UTF-8 text", text));
    }
  }
}

void Context::follow(const std::function<grpc::Status()>& attempt) {
  follow_long([&](const std::function<void()>&) { return attempt(); });
}

void Context::follow_long(
    const std::function<grpc::Status(const std::function<void()>& heard)>& attempt) {
  constexpr double kFirstPauseS = 0.1;
  constexpr double kPauseMaxS = 2;
  const SystemClock clock;
  std::optional<MonotonicMs> away_since_ms;
  double pause_s = kFirstPauseS;
  const auto heard = [&] {
    answered_ = true;
    if (!away_since_ms) return;
    away_since_ms.reset();
    pause_s = kFirstPauseS;
    printer().note("the coordinator answers again");
  };
  for (;; pause_s = std::min(2 * pause_s, kPauseMaxS)) {
    const grpc::Status status = attempt(heard);
    const grpc::StatusCode code = status.error_code();
    // A coordinator that ends cancels the calls it has.
    const bool away =
        code == grpc::UNAVAILABLE || code == grpc::CANCELLED || code == grpc::DEADLINE_EXCEEDED;
    if (!away || !answered_) {
      check(status);
      return heard();
    }
    const MonotonicMs now_ms = clock.now_ms();
    if (!away_since_ms) {
      away_since_ms = now_ms;
      if (reconnect_s > 0) {
        printer().note(fmt::format("the coordinator at {} is away ({}); trying again for {} s",
                                   coordinator().value, status.error_message(), reconnect_s));
      }
    }
    if (static_cast<double>(now_ms - *away_since_ms) >= reconnect_s * 1000) {
      throw Failure(code == grpc::DEADLINE_EXCEEDED ? Exit::kTimedOut : Exit::kUnreachable,
                    fmt::format("the coordinator at {} did not come back within {} s: {} "
                                "(--reconnect changes how long is waited)",
                                coordinator().value, reconnect_s, status.error_message()));
    }
    pause_for(pause_s);
    if (interrupted()) {
      throw Failure(Exit::kInterrupted, "stopped waiting for the coordinator");
    }
  }
}

std::string more_text(std::uint64_t total, std::uint64_t offset, std::uint64_t shown) {
  const std::uint64_t until = offset + shown;
  if (until >= total) return "";
  return fmt::format("... {} more (--all, --offset {})",
                     with_thousands(static_cast<std::int64_t>(total - until)), until);
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

bool is_trial(const std::string& text) {
  return text.size() > 1 && text.front() == 't' && TrialId::parse(text).has_value();
}

v1::TrialState parse_trial_state(const std::string& text) {
  std::string name = "TRIAL_STATE_";
  for (const char c : text) name += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  v1::TrialState state = v1::TRIAL_STATE_UNSPECIFIED;
  if (!v1::TrialState_Parse(name, &state) || state == v1::TRIAL_STATE_UNSPECIFIED) {
    throw Failure(
        Exit::kUsage,
        fmt::format(
            "unknown state \"{}\"; allowed: queued, running, completed, stopped, failed, cancelled",
            text));
  }
  return state;
}

v1::Sweep find_sweep(Context& context, const std::string& text) {
  v1::GetSweepRequest request;
  *request.mutable_sweep() = sweep_ref(text);
  request.set_without_candidates(true);
  return context
      .call<v1::GetSweepRequest, v1::GetSweepResponse>(&v1::CoordinatorService::Stub::GetSweep,
                                                       request)
      .sweep();
}

bool interrupted() { return g_interrupted != 0; }

void catch_interrupt() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);
}

void pause_for(double seconds) {
  const SystemClock clock;
  const MonotonicMs until_ms = clock.now_ms() + static_cast<std::int64_t>(seconds * 1000);
  while (!interrupted()) {
    // No events: only that the reader is gone ends it early.
    pollfd out{STDOUT_FILENO, 0, 0};
    const std::int64_t left_ms = until_ms - clock.now_ms();
    if (left_ms <= 0) return;
    if (::poll(&out, 1, static_cast<int>(std::min<std::int64_t>(left_ms, 100))) > 0) {
      if ((out.revents & POLLERR) != 0) {
        ::raise(SIGPIPE);
        throw Failure(Exit::kInternal, "nobody reads the output any more");
      }
      ::poll(nullptr, 0, static_cast<int>(std::min<std::int64_t>(left_ms, 100)));
    }
  }
}

void flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw Failure(Exit::kInternal,
                "the output could not be written: free space where it goes, and repeat");
}

}  // namespace tailor::client
