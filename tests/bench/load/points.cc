// Metric points of running trials, as fast as they are acknowledged.
#include <fmt/format.h>

#include <unordered_map>

#include "base/clock.h"
#include "tests/bench/load/fleet.h"
#include "tests/bench/load/modes.h"

namespace tailor::load {
namespace {

class PointLoop {
 public:
  explicit PointLoop(const PointsOptions& options) : options_(options) {}

  void hear(SimulatedWorker& worker, const v1::CoordinatorMessage& message) {
    const std::scoped_lock lock(worker.held_mutex);
    if (message.has_assign()) {
      HeldTrial held;
      held.ref = ref_of(message.assign().spec());
      HeldTrial& kept = worker.held[held.ref.trial()] = held;
      ++running;
      for (int i = 0; i < options_.window; ++i) send(worker, kept);
    } else if (message.has_reports_ack()) {
      const auto found = worker.held.find(message.reports_ack().ref().trial());
      if (found == worker.held.end()) return;
      HeldTrial& held = found->second;
      const std::uint64_t through = message.reports_ack().through_sequence();
      if (through <= held.acked) return;
      acked += (through - held.acked) * points_a_report();
      held.acked = through;
      const auto most = static_cast<std::uint64_t>(options_.window) * reports_a_message();
      while (!stopping && held.sent - held.acked + reports_a_message() <= most) {
        send(worker, held);
      }
    }
  }

  std::uint64_t points_a_report() const {
    return options_.single ? 1 : static_cast<std::uint64_t>(options_.values);
  }
  std::uint64_t reports_a_message() const {
    return options_.single ? 1 : static_cast<std::uint64_t>(options_.reports);
  }

  std::atomic<std::uint64_t> acked{0};
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::size_t> running{0};
  std::atomic<bool> stopping{false};

 private:
  void send(SimulatedWorker& worker, HeldTrial& held) {
    v1::WorkerMessage message;
    *message.mutable_reports()->mutable_ref() = held.ref;
    for (std::uint64_t i = 0; i < reports_a_message(); ++i) {
      const std::uint64_t sequence = ++held.sent;
      *message.mutable_reports()->add_reports() =
          metric_report(sequence, static_cast<std::int64_t>(sequence),
                        static_cast<int>(points_a_report()), options_.fp32);
    }
    sent += reports_a_message() * points_a_report();
    worker.send(std::move(message));
  }

  const PointsOptions options_;
};

}  // namespace

Result<Json> run_points(const Options& options, const PointsOptions& points) {
  TAILOR_ASSIGN_OR_RETURN(const auto coordinator, Coordinator::open(options));
  Json figure = {{"mode", "points"},
                 {"clients", points.clients},
                 {"points_a_message", points.single ? 1 : points.reports * points.values},
                 {"window", points.window},
                 {"fp32", points.fp32},
                 {"before", machine_now(coordinator->folder())}};
  Client client(coordinator->grpc_address());
  PointLoop loop(points);
  const auto count = static_cast<std::size_t>(points.clients);
  Fleet fleet(coordinator->grpc_address(), "bench", count, 1,
              [&](SimulatedWorker& worker, const v1::CoordinatorMessage& message) {
                loop.hear(worker, message);
              });
  TAILOR_RETURN_IF_ERROR(status_of(fleet.connect(60)));
  fleet.beat(1);
  const std::uint64_t file_before = file_bytes(coordinator->database());
  TAILOR_ASSIGN_OR_RETURN(
      const std::uint64_t sweep,
      client.submit(fmt::format("bench-{}", static_cast<std::int64_t>(1e3 * steady_seconds())),
                    count, 1));
  const double limit = steady_seconds() + 60;
  while (loop.running < count && steady_seconds() < limit) sleep_s(0.01);
  sleep_s(0.2);
  const Usage used = coordinator->usage();
  const std::uint64_t before = loop.acked;
  const double begin = steady_seconds();
  std::uint64_t wal_peak = 0;
  while (steady_seconds() - begin < options.seconds) {
    sleep_s(0.05);
    wal_peak = std::max(wal_peak, file_bytes(coordinator->database() + "-wal"));
  }
  const double wall = steady_seconds() - begin;
  const Usage now = coordinator->usage();
  const std::uint64_t done = loop.acked - before;
  if (done == 0) return error(Code::kDeadlineExceeded, "not one point was acknowledged");
  const auto n = static_cast<double>(done);
  figure["seconds"] = rounded(wall);
  figure["points"] = done;
  figure["points_per_s"] = rounded(n / wall);
  figure["coordinator_cpu_us_per_point"] = rounded(1e6 * (now.cpu_s - used.cpu_s) / n);
  figure["coordinator_cores"] = rounded((now.cpu_s - used.cpu_s) / wall);
  figure["written_bytes_per_point"] =
      rounded(static_cast<double>(now.written_bytes - used.written_bytes) / n);
  figure["wal_mb_peak"] = rounded(static_cast<double>(wal_peak) / 1e6);
  figure["rss_mb"] = rounded(now.rss_mb);
  figure["heartbeat_ack"] = fleet.heartbeat_acks().json();
  loop.stopping = true;
  const double drain = steady_seconds() + 30;
  while (loop.acked < loop.sent && steady_seconds() < drain) sleep_s(0.02);
  figure["unacknowledged_at_the_end"] = loop.sent.load() - loop.acked.load();
  fleet.stop_beating();
  if (options.coordinator.empty()) {
    // Trials end, so that every point is sealed, and the WAL is gone after an orderly stop.
    TAILOR_RETURN_IF_ERROR(client.cancel(sweep));
    sleep_s(1);
    fleet.disconnect();
    coordinator->stop();
    figure["file_bytes_per_point"] =
        rounded(static_cast<double>(file_bytes(coordinator->database()) - file_before) /
                static_cast<double>(std::max<std::uint64_t>(loop.acked.load(), 1)));
  } else {
    TAILOR_RETURN_IF_ERROR(client.cancel(sweep));
  }
  figure["after"] = machine_now(coordinator->folder());
  return figure;
}

}  // namespace tailor::load
