// tailor workers, drain, quarantine, release: the nodes that train.
#include <fmt/format.h>

#include <cstdlib>

#include "base/ids.h"
#include "base/text.h"
#include "client/format.h"
#include "client/table.h"

namespace tailor::client {
namespace {

/// By name or id; null when there is none (the coordinator then says so). Throws Failure when the
/// text is the name of one and the id of another.
const v1::WorkerInfo* find_worker(const v1::ListWorkersResponse& all, const std::string& text) {
  const auto id = WorkerId::parse(text);
  const v1::WorkerInfo* named = nullptr;
  const v1::WorkerInfo* numbered = nullptr;
  for (const auto& worker : all.workers()) {
    if (worker.name() == text) named = &worker;
    if (id && worker.id() == id->value) numbered = &worker;
  }
  if (named != nullptr && numbered != nullptr && named != numbered) {
    throw Failure(
        Exit::kUsage,
        fmt::format(
            "\"{}\" is the name of worker {} and the id of worker \"{}\": say \"{}\" or \"{}\"; "
            "nothing was done",
            text, WorkerId{named->id()}.to_string(), numbered->name(),
            WorkerId{named->id()}.to_string(), numbered->name()));
  }
  return named != nullptr ? named : numbered;
}

constexpr std::int64_t kSkewWarnMs = 60'000;
constexpr std::int64_t kDrainInMsMax = 365ll * 86'400'000;  // as the coordinator allows

v1::ListWorkersResponse all_workers(Context& context) {
  v1::ListWorkersRequest request;
  v1::ListWorkersResponse whole;
  for (;;) {
    request.set_offset(static_cast<std::uint64_t>(whole.workers_size()));
    const auto answer = context.call<v1::ListWorkersRequest, v1::ListWorkersResponse>(
        &v1::CoordinatorService::Stub::ListWorkers, request);
    whole.mutable_workers()->MergeFrom(answer.workers());
    whole.set_total(answer.total());
    if (!answer.more() || answer.workers_size() == 0) return whole;
  }
}

/// "-3.2 s"; "" when the worker's clock was not heard, or agrees to a tenth of a second.
std::string skew_text(const v1::WorkerInfo& worker) {
  if (!worker.has_clock_skew_ms() || std::abs(worker.clock_skew_ms()) < 100) return "";
  return fmt::format("{:+.1f} s", static_cast<double>(worker.clock_skew_ms()) / 1000.0);
}

/// Times in a trial's log and reports are its worker's: nothing else depends on its clock.
void note_skews(const Printer& out, const v1::ListWorkersResponse& workers) {
  std::size_t skewed = 0;
  const v1::WorkerInfo* worst = nullptr;
  for (const auto& worker : workers.workers()) {
    if (std::abs(worker.clock_skew_ms()) < kSkewWarnMs) continue;
    ++skewed;
    if (worst == nullptr || std::abs(worker.clock_skew_ms()) > std::abs(worst->clock_skew_ms())) {
      worst = &worker;
    }
  }
  if (worst == nullptr) return;
  out.note(fmt::format(
      "the clocks of {} worker{} are more than {} s from the coordinator's; the farthest is that "
      "of {}: {}. Nothing is lost by it, but times in curves and logs are off: set the clock (NTP)",
      skewed, skewed == 1 ? "" : "s", kSkewWarnMs / 1000, worst->name(), skew_text(*worst)));
}

struct ChangeOptions {
  std::string worker;
  std::string reason;
  std::string in;          ///< duration, as given
  std::int64_t in_ms = 0;  ///< the same
  bool dry_run = false;
};

/// A command that changes one worker.
struct Change {
  const char* name;
  const char* help;
  const char* examples;
  const char* doing;  ///< "draining"
  const char* done;   ///< what follows the worker's name once it is so
  void (*call)(Context& context, const std::string& worker, const ChangeOptions& options);
};

constexpr Change kDrain = {
    "drain",
    "Lets a worker finish what it runs and gives it nothing new.",
    "  tailor drain node7\n  tailor drain w2 --dry-run\n  tailor drain node7 --in 6h",
    "draining",
    "is draining: it finishes what it runs and gets nothing new",
    [](Context& context, const std::string& worker, const ChangeOptions& options) {
      v1::DrainWorkerRequest request;
      request.set_worker(worker);
      request.set_in_ms(options.in_ms);
      context.call<v1::DrainWorkerRequest, v1::DrainWorkerResponse>(
          &v1::CoordinatorService::Stub::DrainWorker, request);
    }};
constexpr Change kQuarantine = {
    "quarantine",
    "Gives a worker no work until it is released; what runs there goes on.",
    "  tailor quarantine node7 --reason \"fan is broken\"",
    "taking out",
    "is in quarantine: what runs there goes on, and it gets nothing new until it is released",
    [](Context& context, const std::string& worker, const ChangeOptions& options) {
      v1::QuarantineWorkerRequest request;
      request.set_worker(worker);
      request.set_reason(options.reason);
      context.call<v1::QuarantineWorkerRequest, v1::QuarantineWorkerResponse>(
          &v1::CoordinatorService::Stub::QuarantineWorker, request);
    }};
constexpr Change kRelease = {"release",
                             "Ends the quarantine of a worker, whatever it was for.",
                             "  tailor release node7",
                             "releasing",
                             "is released: it is given work again",
                             [](Context& context, const std::string& worker, const ChangeOptions&) {
                               v1::ReleaseWorkerRequest request;
                               request.set_worker(worker);
                               context.call<v1::ReleaseWorkerRequest, v1::ReleaseWorkerResponse>(
                                   &v1::CoordinatorService::Stub::ReleaseWorker, request);
                             }};

void change(Context& context, const Change& change, const ChangeOptions& options) {
  const auto all = all_workers(context);
  const v1::WorkerInfo* found = find_worker(all, options.worker);
  const Printer out = context.printer();
  const std::string text =
      found == nullptr
          ? options.worker
          : fmt::format("worker {} \"{}\" ({}, {} attempts running)",
                        WorkerId{found->id()}.to_string(), found->name(),
                        found->connected() ? "connected" : "not connected", found->running_size());
  if (!options.dry_run || found == nullptr) {
    if (found != nullptr) {
      out.note(options.in_ms == 0
                   ? fmt::format("{} {}", change.doing, text)
                   : fmt::format("planning to {} {} in {}", change.name, text, options.in));
    }
    // A name that reads like an id would be somebody else's to the coordinator.
    change.call(context,
                found == nullptr                 ? options.worker
                : WorkerId::parse(found->name()) ? WorkerId{found->id()}.to_string()
                                                 : found->name(),
                options);
  }
  const bool is_drain = change.name == std::string_view(kDrain.name);
  if (out.json()) {
    Json json{{"worker", options.worker},
              {"action", change.name},
              {"draining", is_drain && options.in_ms == 0 && !options.dry_run},
              {"dry_run", options.dry_run}};
    if (is_drain) json["in_ms"] = options.in_ms;
    if (found != nullptr) {
      json["kind"] = "worker";
      json["id"] = found->id();
      json["name"] = found->name();
      json["running"] = found->running_size();
    }
    return out.document(json);
  }
  const std::string when = options.in_ms == 0 ? "" : " in " + options.in;
  if (options.dry_run) return out.line(fmt::format("would {} {}{}", change.name, text, when));
  if (options.in_ms != 0) {
    return out.line(
        fmt::format("{} will be drained{}; a restart of the coordinator changes nothing "
                    "in that",
                    options.worker, when));
  }
  out.line(fmt::format("{} {}", options.worker, change.done));
}

void add_change(CLI::App& app, Context& context, const Change& made) {
  auto options = std::make_shared<ChangeOptions>();
  CLI::App* command = add_command(app, made.name, made.help, made.examples);
  command->add_option("WORKER", options->worker, "name or id (w2)")->required();
  command->add_flag("--dry-run", options->dry_run, "only say what would be hit");
  if (made.name == kDrain.name) {
    command->add_option("--in", options->in, "not now, but after so long (\"6h\")");
  }
  if (made.name == kQuarantine.name) {
    command->add_option("--reason", options->reason, "for people")->required();
  }
  command->callback([&context, options, &made] {
    if (!options->in.empty()) {
      const auto in_ms = parse_duration_ms(options->in);
      if (!in_ms) throw Failure(Exit::kUsage, "--in: " + in_ms.error().message());
      if (*in_ms < 0 || *in_ms > kDrainInMsMax) {
        throw Failure(Exit::kUsage, "--in: \"" + options->in + "\": allowed is 0 s to 365 d");
      }
      options->in_ms = *in_ms;
    }
    change(context, made, *options);
  });
}

}  // namespace

void add_workers(CLI::App& app, Context& context) {
  CLI::App* list = add_command(app, "workers", "Lists workers, their slots and what they run.",
                               "  tailor workers\n  tailor workers --json");
  list->callback([&context] {
    const auto answer = all_workers(context);
    const Printer out = context.printer();
    note_skews(out, answer);
    if (out.json()) return out.list_document(to_json(answer), "workers");
    std::vector<std::vector<std::string>> rows;
    for (const auto& w : answer.workers()) {
      std::string running;
      for (const auto& a : w.running()) running += (running.empty() ? "" : " ") + a;
      const std::string state = !w.connected()            ? "lost"
                                : w.draining()            ? "draining"
                                : !w.quarantine().empty() ? "quarantined"
                                                          : "connected";
      rows.push_back({w.name(), out.state(state), w.host(), w.devices(),
                      fmt::format("{}/{}", w.busy_slots(), w.slots()), running,
                      local_time(w.last_seen_ms()), skew_text(w), WorkerId{w.id()}.to_string()});
    }
    out.table({{"WORKER"},
               {"STATE"},
               {"HOST"},
               {"DEVICES"},
               {"BUSY", Align::kRight},
               {"RUNNING"},
               {"CONNECTED SINCE"},
               {"CLOCK", Align::kRight},
               {"ID"}},
              rows);
    for (const auto& w : answer.workers()) {
      if (w.drain_at_ms() > 0) {
        out.note(fmt::format("{} is to be drained at {}", w.name(), local_time(w.drain_at_ms())));
      }
      if (w.quarantine().empty()) continue;
      out.note(fmt::format("{} is in quarantine since {}: {}; `tailor release {}` ends that",
                           w.name(), local_time(w.quarantined_ms()), w.quarantine(),
                           WorkerId{w.id()}.to_string()));
    }
    if (rows.empty()) {
      out.note(fmt::format("no worker yet: run `tailor-worker --coordinator {}` on each node",
                           context.coordinator().value));
    }
  });

  add_change(app, context, kDrain);
  add_change(app, context, kQuarantine);
  add_change(app, context, kRelease);
}

}  // namespace tailor::client
