// tailor workers, drain: the nodes that train.
#include <fmt/format.h>

#include "client/format.h"
#include "client/table.h"

namespace tailor::client {

void add_workers(CLI::App& app, Context& context) {
  CLI::App* list = add_command(app, "workers", "Lists workers, their slots and what they run.",
                               "  tailor workers\n  tailor workers --json");
  list->callback([&context] {
    const auto answer = context.call<v1::ListWorkersRequest, v1::ListWorkersResponse>(
        &v1::CoordinatorService::Stub::ListWorkers, {});
    const Printer out = context.printer();
    if (out.json()) return out.document(to_json(answer));
    std::vector<std::vector<std::string>> rows;
    for (const auto& w : answer.workers()) {
      std::string running;
      for (const auto& a : w.running()) running += (running.empty() ? "" : " ") + a;
      const std::string state = !w.connected() ? "lost" : w.draining() ? "draining" : "connected";
      rows.push_back({w.name(), out.state(state), w.host(), w.devices(),
                      fmt::format("{}/{}", w.busy_slots(), w.slots()), running,
                      local_time(w.last_seen_ms())});
    }
    out.table({{"WORKER"},
               {"STATE"},
               {"HOST"},
               {"DEVICES"},
               {"BUSY", Align::kRight},
               {"RUNNING"},
               {"CONNECTED SINCE"}},
              rows);
    if (rows.empty()) {
      out.note(fmt::format("no worker yet: run `tailor-worker --coordinator {}` on each node",
                           context.coordinator().value));
    }
  });

  auto worker = std::make_shared<std::string>();
  CLI::App* drain =
      add_command(app, "drain", "Lets a worker finish what it runs and gives it nothing new.",
                  "  tailor drain node7");
  drain->add_option("WORKER", *worker, "name or id (w2)")->required();
  drain->callback([&context, worker] {
    v1::DrainWorkerRequest request;
    request.set_worker(*worker);
    context.call<v1::DrainWorkerRequest, v1::DrainWorkerResponse>(
        &v1::CoordinatorService::Stub::DrainWorker, request);
    const Printer out = context.printer();
    if (out.json()) return out.document(Json{{"worker", *worker}, {"draining", true}});
    out.line(*worker + " is draining: it finishes what it runs and gets nothing new");
  });
}

}  // namespace tailor::client
