// tailor logs: what a trial's trainer printed, by trial and attempt, wherever it ran.
#include <fmt/format.h>
#include <unistd.h>

#include "base/ids.h"
#include "client/table.h"

namespace tailor::client {

void add_logs(CLI::App& app, Context& context) {
  struct Options {
    std::string trial;
    std::uint32_t attempt = 0;
    bool follow = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command =
      add_command(app, "logs", "Prints the log of a trial's last (or given) attempt.",
                  "  tailor logs t41\n  tailor logs t41 --attempt 1\n  tailor logs t41 --follow");
  command->add_option("TRIAL", options->trial, "trial id")->required();
  command->add_option("--attempt", options->attempt, "attempt number (0 = the last)");
  command->add_flag("-f,--follow", options->follow, "wait for more until the attempt ends");
  command->callback([&context, options] {
    catch_interrupt();
    v1::GetLogRequest request;
    request.set_trial(trial_id(options->trial));
    request.set_attempt(options->attempt);
    const Printer out = context.printer();
    std::string whole;
    for (;;) {
      const auto answer = context.call<v1::GetLogRequest, v1::GetLogResponse>(
          &v1::CoordinatorService::Stub::GetLog, request);
      if (out.json()) {
        whole += answer.data();
      } else {
        std::fwrite(answer.data().data(), 1, answer.data().size(), stdout);
        std::fflush(stdout);
      }
      request.set_offset(answer.next_offset());
      request.set_attempt(answer.attempt());
      if (!answer.data().empty()) continue;
      if (!options->follow || answer.ended()) break;
      if (interrupted()) {
        throw Failure(
            Exit::kInterrupted,
            fmt::format(
                "stopped following; the trial goes on. `tailor logs {} --follow` follows it again",
                options->trial));
      }
      ::usleep(500'000);
    }
    if (out.json()) {
      Json json;
      json["trial"] = request.trial();
      json["attempt"] = request.attempt();
      json["log"] = whole;
      out.document(json);
    }
  });
}

}  // namespace tailor::client
