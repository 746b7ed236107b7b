// tailor why: what a trial is waiting for, in a few sentences.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

constexpr std::size_t kColumnsMax = 100;  // longer lines are hard to read

}  // namespace

void add_why(CLI::App& app, Context& context) {
  auto trial = std::make_shared<std::string>();
  CLI::App* command = add_command(
      app, "why", "Says why a trial is in its state and what it waits for.", "  tailor why t41");
  command->add_option("TRIAL", *trial, "trial id")->required();
  command->callback([&context, trial] {
    v1::ExplainRequest request;
    request.set_trial(trial_id(*trial));
    const auto answer = context.call<v1::ExplainRequest, v1::ExplainResponse>(
        &v1::CoordinatorService::Stub::Explain, request);
    const Printer out = context.printer();
    if (out.json()) {
      Json json = to_json(answer);
      json["trial"] = request.trial();
      return out.document(json);
    }
    const std::size_t columns = std::clamp<std::size_t>(terminal_columns(), 40, kColumnsMax);
    out.line(wrapped(answer.text(), columns, 0));
    if (answer.since_ms() > 0) {
      out.line(fmt::format("  since {} ({})", local_time(answer.since_ms()),
                           duration(answer.since_ms(), 0)));
    }
    const std::map<std::string, std::string> details(answer.details().begin(),
                                                     answer.details().end());
    for (const auto& [name, value] : details) {
      out.line(wrapped(fmt::format("  {}: {}", name, value), columns, 4));
    }
  });
}

}  // namespace tailor::client
