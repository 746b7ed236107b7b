// How long it takes to serve again: after kill -9 under load, and with very many ended trials.
#include <fmt/format.h>

#include "base/clock.h"
#include "tests/bench/load/fleet.h"
#include "tests/bench/load/modes.h"
#include "tests/bench/load/stored_sweep.h"

namespace tailor::load {
namespace {

/// Trials end at once until `trials` have; trials of the sweep "points" report batches of points
/// until `points` were acknowledged, and go on running.
class Filler {
 public:
  explicit Filler(std::uint64_t points) : points_(points) {}

  void hear(SimulatedWorker& worker, const v1::CoordinatorMessage& message) {
    const std::scoped_lock lock(worker.held_mutex);
    if (message.has_assign()) {
      HeldTrial held;
      held.ref = ref_of(message.assign().spec());
      HeldTrial& kept = worker.held[held.ref.trial()] = held;
      if (message.assign().spec().sweep_name() == "points") {
        more(worker, kept);
      } else {
        worker.send(report_message(kept.ref, metric_report(1, 1, 1, true)));
        worker.send(report_message(kept.ref, end_report(2, 3.0)));
        kept.sent = 2;
      }
    } else if (message.has_reports_ack()) {
      const auto found = worker.held.find(message.reports_ack().ref().trial());
      if (found == worker.held.end()) return;
      HeldTrial& held = found->second;
      if (held.sent == 2) {
        if (message.reports_ack().through_sequence() < 2) return;
        worker.held.erase(found);
        ++ended;
        return;
      }
      acked += (message.reports_ack().through_sequence() - held.acked) * kValues;
      held.acked = message.reports_ack().through_sequence();
      more(worker, held);
    }
  }

  std::atomic<std::uint64_t> ended{0}, acked{0};

 private:
  static constexpr std::uint64_t kValues = 8;
  static constexpr std::uint64_t kReports = 32;

  void more(SimulatedWorker& worker, HeldTrial& held) {
    if (acked >= points_ || held.sent > held.acked) return;
    v1::WorkerMessage message;
    *message.mutable_reports()->mutable_ref() = held.ref;
    for (std::uint64_t i = 0; i < kReports; ++i) {
      ++held.sent;
      *message.mutable_reports()->add_reports() = metric_report(
          held.sent, static_cast<std::int64_t>(held.sent), static_cast<int>(kValues), true);
    }
    worker.send(std::move(message));
  }

  const std::uint64_t points_;
};

template <typename Condition>
bool wait_for(Condition condition, double limit_s) {
  const double limit = steady_seconds() + limit_s;
  while (!condition()) {
    if (steady_seconds() > limit) return false;
    sleep_s(0.02);
  }
  return true;
}

Result<Json> start_again(Coordinator& coordinator) {
  TAILOR_ASSIGN_OR_RETURN(const double seconds, coordinator.start());
  const Usage usage = coordinator.usage();
  Client client(coordinator.grpc_address());
  const double begin = steady_seconds();
  TAILOR_ASSIGN_OR_RETURN(const double trials, client.number("SELECT count(*) FROM trial"));
  return Json{{"seconds_until_it_serves", rounded(seconds)},
              {"cpu_s", rounded(usage.cpu_s)},
              {"rss_mb", rounded(usage.rss_mb)},
              {"first_query_s", rounded(steady_seconds() - begin)},
              {"trials", trials}};
}

Result<Json> after_a_kill(const Options& options, const RestartOptions& restart) {
  constexpr std::size_t kEnding = 64;
  constexpr std::size_t kReporting = 16;
  TAILOR_ASSIGN_OR_RETURN(const auto coordinator, Coordinator::open(options));
  Json out = {{"before", machine_now(coordinator->folder())}};
  Client client(coordinator->grpc_address());
  Filler filler(restart.points);
  Fleet fleet(coordinator->grpc_address(), "bench", kEnding + kReporting, 1,
              [&](SimulatedWorker& w, const v1::CoordinatorMessage& m) { filler.hear(w, m); });
  TAILOR_RETURN_IF_ERROR(status_of(fleet.connect(60)));
  fleet.beat(1);
  TAILOR_RETURN_IF_ERROR(status_of(client.submit("points", kReporting, 1)));
  TAILOR_RETURN_IF_ERROR(status_of(client.submit("trials", restart.trials, 5)));
  const bool filled = wait_for(
      [&] { return filler.ended >= restart.trials && filler.acked >= restart.points; }, 300);
  const std::uint64_t acknowledged = filler.acked;
  const std::uint64_t ended = filler.ended;
  out["filled"] = filled;
  out["trials_ended"] = ended;
  out["points_acknowledged"] = acknowledged;
  coordinator->kill();
  out["wal_mb_at_the_kill"] =
      rounded(static_cast<double>(file_bytes(coordinator->database() + "-wal")) / 1e6);
  out["file_mb"] = rounded(static_cast<double>(file_bytes(coordinator->database())) / 1e6);
  TAILOR_ASSIGN_OR_RETURN(out["again"], start_again(*coordinator));
  Client after(coordinator->grpc_address());
  TAILOR_ASSIGN_OR_RETURN(const double completed,
                          after.number("SELECT count(*) FROM trial WHERE state = 'completed'"));
  out["completed_after"] = completed;
  out["nothing_acknowledged_was_lost"] = completed >= static_cast<double>(ended);
  TAILOR_ASSIGN_OR_RETURN(const double back, fleet.connect(60));
  out["workers_back_s"] = rounded(back);
  TAILOR_ASSIGN_OR_RETURN(
      out["attempts_lost"],
      after.number("SELECT count(*) FROM attempt WHERE end_class IN ('lease_lost', 'node_lost')"));
  fleet.stop_beating();
  out["after"] = machine_now(coordinator->folder());
  return out;
}

Result<Json> with_ended_trials(const Options& options, const RestartOptions& restart) {
  const std::string path = options.folder + fmt::format("/ended-{}.db", restart.ended);
  Json out = {{"ended_trials", restart.ended}};
  const double begin = steady_seconds();
  StoredSweep stored;
  stored.trials = restart.ended;
  if (file_bytes(path) == 0) TAILOR_RETURN_IF_ERROR(store_sweep(path, stored));
  out["made_in_s"] = rounded(steady_seconds() - begin);
  out["file_mb"] = rounded(static_cast<double>(file_bytes(path)) / 1e6);
  TAILOR_ASSIGN_OR_RETURN(const auto coordinator, Coordinator::open(options, path));
  coordinator->kill();
  out["before"] = machine_now(coordinator->folder());
  TAILOR_ASSIGN_OR_RETURN(out["again"], start_again(*coordinator));
  coordinator->stop();
  if (!options.keep) {
    for (const char* end : {"", "-wal", "-shm", ".lock"}) std::remove((path + end).c_str());
  }
  return out;
}

}  // namespace

Result<Json> run_restart(const Options& options, const RestartOptions& restart) {
  if (!options.coordinator.empty()) {
    return error(Code::kInvalidArgument,
                 "restart kills the coordinator, so it starts its own: leave --coordinator out");
  }
  Json out = {{"mode", "restart"}};
  TAILOR_ASSIGN_OR_RETURN(out["killed"], after_a_kill(options, restart));
  if (restart.ended > 0) {
    TAILOR_ASSIGN_OR_RETURN(out["many_ended"], with_ended_trials(options, restart));
  }
  return out;
}

}  // namespace tailor::load
