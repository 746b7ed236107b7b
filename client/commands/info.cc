// tailor info: which coordinator this is, and how the client came to talk to it.
#include <fmt/format.h>

#include "client/table.h"

namespace tailor::client {

void add_info(CLI::App& app, Context& context) {
  CLI::App* command =
      add_command(app, "info", "Shows the coordinator's version, database and dashboard address.",
                  "  tailor info");
  command->callback([&context] {
    const auto answer = context.call<v1::GetInfoRequest, v1::GetInfoResponse>(
        &v1::CoordinatorService::Stub::GetInfo, {});
    const Setting address = context.coordinator();
    const Printer out = context.printer();
    if (out.json()) {
      Json json = to_json(answer);
      json["coordinator"] = address.value;
      json["coordinator_from"] = address.origin;
      json["client_version"] = TAILOR_VERSION;
      return out.document(json);
    }
    out.line(fmt::format("coordinator  {} (from {}), version {}", address.value, address.origin,
                         answer.version()));
    out.line(fmt::format("database     {}", answer.database()));
    out.line(fmt::format("dashboard    http://{}/", answer.http_address()));
    out.line(fmt::format("trials       {} running, {} queued; {} workers connected",
                         answer.trials_running(), answer.trials_queued(),
                         answer.workers_connected()));
  });
}

}  // namespace tailor::client
