// tailor why: what a trial is waiting for, in a sentence.
#include "client/table.h"

namespace tailor::client {

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
    if (out.json()) return out.document(to_json(answer));
    out.line(answer.text());
  });
}

}  // namespace tailor::client
