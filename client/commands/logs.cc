// tailor logs: what a trial's trainer printed, by trial and attempt, wherever it ran.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/ids.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

constexpr double kPollS = 0.5;

struct LogOptions {
  std::string trial;
  std::uint32_t attempt = 0;
  bool follow = false;
};

/// One attempt as it was shown.
struct ShownLog {
  std::uint32_t attempt = 0;
  std::string worker;
  std::string log;  ///< with --json only
  std::uint64_t not_kept_bytes = 0;
  std::string end_class;
};

/// True when an attempt ended without its worker: what that had not sent is missing.
bool may_miss_its_end(const std::string& end_class) {
  return end_class == "node_lost" || end_class == "lease_lost";
}

class LogPrinter {
 public:
  LogPrinter(Context& context, const LogOptions& options)
      : context_(context), options_(options), out_(context.printer()) {}

  void run() {
    v1::GetLogRequest request;
    request.set_trial(trial_id(options_.trial));
    request.set_attempt(options_.attempt);
    for (;;) {
      const v1::GetLogResponse answer = ask(request);
      if (answer.attempt() != 0 && (shown_.empty() || shown_.back().attempt != answer.attempt())) {
        begin(answer);
      }
      request.set_attempt(answer.attempt());
      request.set_offset(answer.next_offset());
      if (answer.attempt() != 0) print(answer);
      if (!answer.data().empty()) continue;
      if (answer.attempt() == 0) {
        if (!waits_for_the_first(answer)) break;
      } else if (answer.ended()) {
        end(answer);
        if (answer.attempt() < answer.attempts() && goes_on()) {
          request.set_attempt(answer.attempt() + 1);
          request.set_offset(0);
          continue;
        }
        if (!goes_on() || answer.trial_ended()) break;
        say(fmt::format("attempt {} has ended ({}); waiting for the next one", answer.attempt(),
                        answer.end_class()));
      } else if (!options_.follow) {
        break;
      }
      wait();
    }
    if (out_.json()) print_json(request.trial());
  }

 private:
  /// A given attempt is followed to its own end, otherwise the trial to its last attempt's.
  bool goes_on() const { return options_.follow && options_.attempt == 0; }

  v1::GetLogResponse ask(const v1::GetLogRequest& request) {
    const auto method = &v1::CoordinatorService::Stub::GetLog;
    return options_.follow ? context_.follow<v1::GetLogRequest, v1::GetLogResponse>(method, request)
                           : context_.call<v1::GetLogRequest, v1::GetLogResponse>(method, request);
  }

  /// Once for every text in a row.
  void say(const std::string& text) {
    if (text != said_) out_.note(text);
    said_ = text;
  }

  void begin(const v1::GetLogResponse& answer) {
    const bool first = shown_.empty();
    ShownLog log;
    log.attempt = answer.attempt();
    log.worker = answer.worker();
    shown_.push_back(log);
    break_line();
    if (options_.follow || answer.attempts() > 1) {
      say(fmt::format("attempt {} on worker {}{}", answer.attempt(), answer.worker(),
                      first && answer.attempt() > 1 && options_.attempt == 0
                          ? " (--attempt N shows an earlier one)"
                          : ""));
    }
  }

  void print(const v1::GetLogResponse& answer) {
    ShownLog& log = shown_.back();
    std::string text = answer.data();
    if (answer.offset() > position_of(answer)) {
      const std::uint64_t bytes = answer.offset() - position_of(answer);
      log.not_kept_bytes += bytes;
      text = fmt::format(
          "{}[tailor: {} bytes of this log were not kept here; worker {} has them in {}]\n{}",
          at_line_begin_ ? "" : "\n", bytes, log.worker, path_of(log), text);
    }
    position_ = answer.next_offset();
    if (text.empty()) return;
    at_line_begin_ = text.back() == '\n';
    if (out_.json()) {
      log.log += text;
      return;
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
    flush_output();
  }

  std::uint64_t position_of(const v1::GetLogResponse& answer) {
    if (counted_ != answer.attempt()) {
      counted_ = answer.attempt();
      position_ = 0;
    }
    return position_;
  }

  /// Where the worker has the log, in its folder of trials.
  std::string path_of(const ShownLog& log) const {
    return fmt::format("{}/{}/log", options_.trial, log.attempt);
  }

  bool waits_for_the_first(const v1::GetLogResponse& answer) {
    if (answer.trial_ended()) {
      say(fmt::format("{} ended before an attempt had begun: there is no log", options_.trial));
      return false;
    }
    say(fmt::format("{} has not begun{} (`tailor why {}` says what it waits for)", options_.trial,
                    options_.follow ? "; waiting" : ": there is no log yet", options_.trial));
    return options_.follow;
  }

  void end(const v1::GetLogResponse& answer) {
    ShownLog& log = shown_.back();
    if (!log.end_class.empty()) return;  // said
    log.end_class = answer.end_class();
    if (!may_miss_its_end(log.end_class)) return;
    break_line();
    say(
        fmt::format("attempt {} ended as {}: what its worker {} had not sent is missing here; it "
                    "is in {} of its folder of trials",
                    log.attempt, log.end_class, log.worker, path_of(log)));
  }

  /// Ends a line that the trainer left open, so that no other text is glued to it.
  void break_line() {
    if (at_line_begin_) return;
    at_line_begin_ = true;
    if (out_.json()) return;
    std::fputc('\n', stdout);
    flush_output();
  }

  void wait() const {
    pause_for(kPollS);
    if (!interrupted()) return;
    throw Failure(
        Exit::kInterrupted,
        fmt::format(
            "stopped following; the trial goes on. `tailor logs {} --follow` follows it again",
            options_.trial));
  }

  void print_json(std::uint64_t trial) const {
    const auto shown = [](const ShownLog& log) {
      Json json;
      json["attempt"] = log.attempt;
      json["worker"] = log.worker;
      json["log"] = log.log;
      json["not_kept_bytes"] = log.not_kept_bytes;
      json["end_class"] = log.end_class.empty() ? Json() : Json(log.end_class);
      json["may_miss_its_end"] = may_miss_its_end(log.end_class);
      return json;
    };
    Json json;
    json["trial"] = trial;
    json["attempt"] = shown_.empty() ? 0 : shown_.back().attempt;
    json["log"] = shown_.empty() ? "" : shown_.back().log;
    json["attempts"] = Json::array();
    for (const ShownLog& log : shown_) json["attempts"].push_back(shown(log));
    out_.document(json);
  }

  Context& context_;
  const LogOptions& options_;
  const Printer out_;
  std::vector<ShownLog> shown_;
  std::string said_;
  bool at_line_begin_ = true;
  std::uint32_t counted_ = 0;   // the attempt that position_ is of
  std::uint64_t position_ = 0;  // of its log: up to where it was shown
};

}  // namespace

void add_logs(CLI::App& app, Context& context) {
  auto options = std::make_shared<LogOptions>();
  CLI::App* command =
      add_command(app, "logs", "Prints the log of a trial's last (or given) attempt.",
                  "  tailor logs t41\n  tailor logs t41 --attempt 1\n  tailor logs t41 --follow");
  command->add_option("TRIAL", options->trial, "trial id")->required();
  command->add_option("--attempt", options->attempt, "attempt number (0 = the last)");
  command->add_flag("-f,--follow", options->follow,
                    "wait for more, through further attempts, until the trial ends (with "
                    "--attempt: until that attempt ends)");
  command->callback([&context, options] {
    catch_interrupt();
    LogPrinter(context, *options).run();
  });
}

}  // namespace tailor::client
