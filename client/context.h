// What every command shares: where the coordinator is, how to print,
// how failures become exit codes.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/status.h"
#include "client/output.h"
#include "tailor/v1/coordinator.grpc.pb.h"

namespace tailor::client {

/// Exit codes of design.md 9; documented in docs/cli.md.
enum class Exit : int {
  kOk = 0,
  kInternal = 1,
  kUsage = 2,
  kNotFound = 3,
  kSomeFailed = 4,
  kUnreachable = 5,
  kAuth = 6,
  kConflict = 7,
  kTimedOut = 8,
  kInterrupted = 130,
};

/// The exit code that a failed call ends the program with.
Exit exit_for(Code code);

/// Ends a command: main prints the message on stderr and exits with the code. The only exception of
/// the client, thrown by commands and caught in main.
class Failure : public std::runtime_error {
 public:
  Failure(Exit exit_code, const std::string& message)
      : std::runtime_error(message), exit_code_(exit_code) {}
  Exit exit_code() const { return exit_code_; }

 private:
  Exit exit_code_;
};

/// Throws the Failure for `status` unless it is ok.
void require(const Status& status);
template <typename T>
T require(Result<T> result) {
  if (!result) require(result.error());
  return std::move(*result);
}

/// Throws Failure(kUsage) when a text of `message` is not UTF-8: it could not be sent.
void require_text(const google::protobuf::Message& message);

/// Where a setting came from, for `tailor info`.
struct Setting {
  std::string value;
  std::string origin;  ///< "flag", "environment TAILOR_COORDINATOR", a file's path, "default"
};

class Context {
 public:
  // Set by main from the global flags, before a command runs.
  std::string coordinator_flag;
  bool json = false;
  bool json_lines = false;
  std::string color = "auto";
  double timeout_s = 30;
  bool timeout_given = false;  ///< by --timeout
  double reconnect_s = 300;    ///< how long commands that follow try to reach a coordinator again

  /// The coordinator's address: flag > TAILOR_COORDINATOR > ./tailor.toml > user file > default.
  Setting coordinator() const;

  /// Connected lazily. One channel a process.
  v1::CoordinatorService::Stub& stub();

  /// Runs one unary call with the deadline; throws Failure with the address when nobody answers.
  template <typename Request, typename Response>
  Response call(grpc::Status (v1::CoordinatorService::Stub::*method)(grpc::ClientContext*,
                                                                     const Request&, Response*),
                const Request& request) {
    require_text(request);
    grpc::ClientContext context;
    context.set_deadline(deadline());
    Response response;
    check((stub().*method)(&context, request, &response));
    answered_ = true;
    return response;
  }

  /// Throws the Failure of a gRPC status unless it is ok. Where the call itself did not get through
  /// it is asked once more whether anybody answers there, so that the message is about what is
  /// wrong.
  void check(const grpc::Status& status) const;

  /// The same for commands that follow something. While the coordinator is away (killed, restarted,
  /// cut off) it is asked again with growing pauses, and stderr says so, once; only who was never
  /// answered, or not for `reconnect_s`, fails. `attempt` must be safe to repeat.
  void follow(const std::function<grpc::Status()>& attempt);
  /// The same for an attempt that lasts, such as a stream: it calls what it is given whenever the
  /// coordinator was heard.
  void follow_long(const std::function<grpc::Status(const std::function<void()>& heard)>& attempt);
  template <typename Request, typename Response>
  Response follow(grpc::Status (v1::CoordinatorService::Stub::*method)(grpc::ClientContext*,
                                                                       const Request&, Response*),
                  const Request& request) {
    Response response;
    follow([&] {
      grpc::ClientContext context;
      context.set_deadline(deadline());
      response.Clear();
      return (stub().*method)(&context, request, &response);
    });
    return response;
  }

  gpr_timespec deadline() const;
  Printer printer() const { return Printer(json, json_lines, color); }

 private:
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;
  bool answered_ = false;  // anything, ever: `follow` then has patience
};

/// "s3" and "3" are ids, anything else is a name; "last" is the newest sweep.
v1::SweepRef sweep_ref(const std::string& text);
/// Throws Failure(kUsage) for a text that is no trial id.
std::uint64_t trial_id(const std::string& text);
/// True for a text that commands take for a trial: "t41", never "41".
bool is_trial(const std::string& text);
/// Which part of a list a command shows.
struct Page {
  std::uint64_t offset = 0;
  std::uint64_t limit = 0;
  bool limit_given = false;
  bool all = false;

  /// Entries that are wanted: all, `--limit`, or `standard`.
  std::uint64_t wanted(std::uint64_t standard) const {
    return all ? ~std::uint64_t{0} : limit_given ? limit : standard;
  }
};
/// "... 19,900 more (--all, --offset 100)"; "" when nothing is left behind `offset + shown`.
std::string more_text(std::uint64_t total, std::uint64_t offset, std::uint64_t shown);

/// "failed". Throws Failure(kUsage) for a text that is no state.
v1::TrialState parse_trial_state(const std::string& text);
/// A sweep as it is now, by id, name or "last", without its candidates. Throws Failure.
v1::Sweep find_sweep(Context& context, const std::string& text);

/// True once SIGINT arrived. Installed by `catch_interrupt`; polled by commands that wait.
bool interrupted();
void catch_interrupt();

/// Waits, but not after SIGINT. Ends the program as a write would (SIGPIPE; where that is ignored,
/// Failure) once nobody reads stdout any more: `... | head` must not wait for the next line.
void pause_for(double seconds);
/// Throws Failure when stdout did not take what was printed.
void flush_output();

}  // namespace tailor::client
