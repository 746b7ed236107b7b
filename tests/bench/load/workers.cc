// Many workers: what they cost while they only beat, what the end of a trial costs among them, and
// what happens when all come back at once.
#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "tests/bench/load/fleet.h"
#include "tests/bench/load/modes.h"

namespace tailor::load {
namespace {

constexpr std::string_view kHeld = "held-";        // its trials run on and on
constexpr std::string_view kFinished = "finish-";  // its trials end at once

/// What the workers do with what they are given.
class Duties {
 public:
  void hear(SimulatedWorker& worker, const v1::CoordinatorMessage& message) {
    if (message.has_assign()) {
      const v1::TrialSpec& spec = message.assign().spec();
      HeldTrial held;
      held.ref = ref_of(spec);
      held.sent = 1;
      {
        const std::scoped_lock lock(worker.held_mutex);
        worker.held[spec.trial()] = held;
      }
      worker.send(report_message(held.ref, metric_report(1, 1, 1, true)));
      if (spec.sweep_name().starts_with(kHeld)) {
        ++started;
      } else {
        worker.send(report_message(held.ref, end_report(2, 3.0)));
      }
    } else if (message.has_reports_ack()) {
      const std::scoped_lock lock(worker.held_mutex);
      const auto found = worker.held.find(message.reports_ack().ref().trial());
      if (found == worker.held.end()) return;
      found->second.acked = message.reports_ack().through_sequence();
      if (found->second.acked < 2) return;
      worker.held.erase(found);
      ++finished;
    } else if (message.has_welcome()) {
      refuse(worker, message.welcome());
    } else if (message.has_stop()) {
      ++stopped;
      const std::scoped_lock lock(worker.held_mutex);
      worker.held.erase(message.stop().ref().trial());
    }
  }

  std::atomic<std::uint64_t> started{0}, finished{0}, stopped{0};

 private:
  /// Attempts that the coordinator does not know any more are lost to this worker.
  void refuse(SimulatedWorker& worker, const v1::Welcome& welcome) {
    const std::scoped_lock lock(worker.held_mutex);
    for (const v1::HeldVerdict& verdict : welcome.held()) {
      if (verdict.keep()) continue;
      ++stopped;
      worker.held.erase(verdict.ref().trial());
    }
  }
};

/// Submits `trials` trials, eight of them at once, and waits until all have ended. `cpu_per_s` is
/// what the heartbeats cost.
Result<Json> finish_trials(Client& client, Duties& duties, const Coordinator& coordinator,
                           const std::string& name, int trials, double cpu_per_s) {
  const std::uint64_t before = duties.finished;
  const Usage used = coordinator.usage();
  const double begin = steady_seconds();
  TAILOR_ASSIGN_OR_RETURN(
      const std::uint64_t sweep,
      client.submit(name, static_cast<std::uint64_t>(trials), 1, "[resources]\nparallel = 8\n"));
  const double limit = begin + 120;
  while (duties.finished - before < static_cast<std::uint64_t>(trials) &&
         steady_seconds() < limit) {
    sleep_s(0.01);
  }
  const std::uint64_t done = duties.finished - before;
  const double wall = steady_seconds() - begin;
  if (done < static_cast<std::uint64_t>(trials)) TAILOR_RETURN_IF_ERROR(client.cancel(sweep));
  if (done == 0) return error(Code::kDeadlineExceeded, "not one trial ended in 120 s");
  const double cpu = coordinator.usage().cpu_s - used.cpu_s;
  return Json{{"trials", done},
              {"trials_per_s", rounded(static_cast<double>(done) / wall)},
              {"cpu_ms_per_trial", rounded(1e3 * cpu / static_cast<double>(done))},
              {"cpu_ms_per_trial_without_heartbeats",
               rounded(1e3 * std::max(cpu - cpu_per_s * wall, 0.0) / static_cast<double>(done))}};
}

Result<double> lost_attempts(Client& client) {
  return client.number(
      "SELECT count(*) FROM attempt WHERE end_class IN ('lease_lost', 'node_lost')");
}

/// What is seen while all workers come back: how long, how late the answers, what was lost.
Result<Json> come_back(Fleet& fleet, Client& client, Duties& duties, double interval_s) {
  const std::uint64_t stopped = duties.stopped;
  fleet.heartbeat_acks().clear();
  fleet.welcomes().clear();
  TAILOR_ASSIGN_OR_RETURN(const double lost_before, lost_attempts(client));
  TAILOR_ASSIGN_OR_RETURN(const double seconds, fleet.connect(180));
  sleep_s(2 * interval_s);
  TAILOR_ASSIGN_OR_RETURN(const double lost, lost_attempts(client));
  return Json{{"seconds_until_all_are_welcomed", rounded(seconds)},
              {"welcome", fleet.welcomes().json()},
              {"heartbeat_ack", fleet.heartbeat_acks().json()},
              {"attempts_lost", lost - lost_before},
              {"attempts_stopped", duties.stopped - stopped}};
}

}  // namespace

Result<Json> run_workers(const Options& options, const WorkersOptions& workers) {
  Json out = {{"mode", "workers"},
              {"workers", workers.count},
              {"running", workers.running},
              {"interval_s", workers.interval_s}};
  double small_cost = 0;
  if (options.coordinator.empty() && workers.finishing > 0) {
    // The cost of a trial's end among ten workers, to compare with.
    TAILOR_ASSIGN_OR_RETURN(const auto coordinator, Coordinator::open(options));
    Client client(coordinator->grpc_address());
    Duties duties;
    Fleet fleet(coordinator->grpc_address(), "few", 10, 1,
                [&](SimulatedWorker& w, const v1::CoordinatorMessage& m) { duties.hear(w, m); });
    TAILOR_RETURN_IF_ERROR(status_of(fleet.connect(60)));
    TAILOR_ASSIGN_OR_RETURN(out["ends_with_10_workers"],
                            finish_trials(client, duties, *coordinator,
                                          std::string(kFinished) + "few", workers.finishing, 0));
    small_cost = out["ends_with_10_workers"]["cpu_ms_per_trial"].get<double>();
  }

  TAILOR_ASSIGN_OR_RETURN(const auto coordinator, Coordinator::open(options));
  out["before"] = machine_now(coordinator->folder());
  Client client(coordinator->grpc_address());
  Duties duties;
  Fleet fleet(coordinator->grpc_address(), "node", static_cast<std::size_t>(workers.count), 1,
              [&](SimulatedWorker& w, const v1::CoordinatorMessage& m) { duties.hear(w, m); });
  const Usage idle = coordinator->usage();
  TAILOR_ASSIGN_OR_RETURN(const double connected, fleet.connect(300));
  out["connect_s"] = rounded(connected);
  out["connect_cpu_ms_per_worker"] =
      rounded(1e3 * (coordinator->usage().cpu_s - idle.cpu_s) / workers.count);
  fleet.beat(workers.interval_s);
  if (workers.running > 0) {
    TAILOR_RETURN_IF_ERROR(status_of(
        client.submit(std::string(kHeld) + "all", static_cast<std::uint64_t>(workers.running), 1)));
    const double limit = steady_seconds() + 120;
    while (duties.started < static_cast<std::uint64_t>(workers.running) &&
           steady_seconds() < limit) {
      sleep_s(0.02);
    }
  }
  out["started"] = duties.started.load();
  sleep_s(1);
  TAILOR_ASSIGN_OR_RETURN(const double lost_before, lost_attempts(client));
  fleet.heartbeat_acks().clear();
  const Usage used = coordinator->usage();
  const double begin = steady_seconds();
  const std::uint64_t beats = fleet.beats_sent();
  sleep_s(options.seconds);
  const double wall = steady_seconds() - begin;
  const Usage now = coordinator->usage();
  const double cpu_per_s = (now.cpu_s - used.cpu_s) / wall;
  TAILOR_ASSIGN_OR_RETURN(const double lost, lost_attempts(client));
  out["beating"] = {
      {"seconds", rounded(wall)},
      {"beats_per_s", rounded(static_cast<double>(fleet.beats_sent() - beats) / wall)},
      {"core_share", rounded(cpu_per_s)},
      {"rss_mb", rounded(now.rss_mb)},
      {"threads", now.threads},
      {"heartbeat_ack", fleet.heartbeat_acks().json()},
      {"attempts_lost", lost - lost_before},
      {"attempts_stopped", duties.stopped.load()},
      {"streams_closed", fleet.closed_early()},
      {"first_reason", fleet.first_reason()}};
  if (workers.finishing > 0) {
    TAILOR_ASSIGN_OR_RETURN(
        Json ends, finish_trials(client, duties, *coordinator, std::string(kFinished) + "many",
                                 workers.finishing, cpu_per_s));
    if (small_cost > 0) {
      ends["cost_ratio_to_10_workers"] =
          rounded(ends["cpu_ms_per_trial_without_heartbeats"].get<double>() / small_cost);
    }
    out["ends_with_all_workers"] = std::move(ends);
  }
  fleet.disconnect();
  TAILOR_ASSIGN_OR_RETURN(out["all_reconnect"],
                          come_back(fleet, client, duties, workers.interval_s));
  if (options.coordinator.empty()) {
    coordinator->kill();
    TAILOR_ASSIGN_OR_RETURN(const double started, coordinator->start());
    TAILOR_ASSIGN_OR_RETURN(Json back, come_back(fleet, client, duties, workers.interval_s));
    back["seconds_until_it_serves"] = rounded(started);
    out["coordinator_killed"] = std::move(back);
  }
  out["after"] = machine_now(coordinator->folder());
  return out;
}

}  // namespace tailor::load
