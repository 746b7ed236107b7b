// Closed loop: every worker has one slot; a trial is assigned, reports once, ends, and the next one
// is assigned.
#include <fmt/format.h>

#include <condition_variable>
#include <map>
#include <queue>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "tests/bench/load/fleet.h"
#include "tests/bench/load/modes.h"

namespace tailor::load {
namespace {

/// Runs things later, on one thread.
class Later {
 public:
  Later() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  ~Later() { stop(); }
  /// Nothing runs after it. Idempotent.
  void stop() {
    thread_.request_stop();
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void at(double when, std::function<void()> what) {
    const std::scoped_lock lock(mutex_);
    waiting_.emplace(when, std::move(what));
    changed_.notify_all();
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      const double now = steady_seconds();
      if (waiting_.empty() || waiting_.begin()->first > now) {
        const double wait = waiting_.empty() ? 0.1 : std::min(waiting_.begin()->first - now, 0.1);
        changed_.wait_for(lock, std::chrono::duration<double>(wait));
        continue;
      }
      auto what = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      lock.unlock();
      what();
      lock.lock();
    }
  }
  std::mutex mutex_;  // guards: waiting_
  std::condition_variable changed_;
  std::multimap<double, std::function<void()>> waiting_;
  std::jthread thread_;
};

/// One trial under way at a worker.
struct Running {
  v1::AttemptRef ref;
  double reported_at = 0;
  double ended_at = 0;
};

class TrialLoop {
 public:
  TrialLoop(const TrialsOptions& options, std::size_t clients)
      : options_(options), slots_(clients) {}

  void hear(std::size_t index, SimulatedWorker& worker, const v1::CoordinatorMessage& message) {
    Slot& slot = slots_[index];
    const double now = steady_seconds();
    if (message.has_assign()) {
      if (slot.idle_since > 0 && counting_) assigns.add(now - slot.idle_since);
      Running running;
      running.ref = ref_of(message.assign().spec());
      {
        const std::scoped_lock lock(worker.held_mutex);
        worker.held[running.ref.trial()] = {running.ref, 0, 0};
      }
      slot.running = running;
      if (options_.think_s <= 0) {
        report(slot, worker);
      } else {
        later_.at(now + options_.think_s, [this, &slot, &worker] { report(slot, worker); });
      }
    } else if (message.has_reports_ack()) {
      acknowledged(slot, worker, message.reports_ack(), now);
    } else if (message.has_stop()) {
      ++stops;
    }
  }

  void count(bool on) { counting_ = on; }
  /// No trial that is thinking will report any more: before the workers go.
  void stop() { later_.stop(); }
  std::uint64_t done() const { return done_.load(); }

  Times assigns, report_acks, end_acks;
  std::atomic<std::uint64_t> stops{0};

 private:
  struct Slot {
    Running running;
    double idle_since = 0;
  };

  void report(Slot& slot, SimulatedWorker& worker) {
    slot.running.reported_at = steady_seconds();
    worker.send(report_message(slot.running.ref, metric_report(1, 1, 1, true)));
    if (options_.pipelined) end(slot, worker);
  }
  void end(Slot& slot, SimulatedWorker& worker) {
    slot.running.ended_at = steady_seconds();
    slot.idle_since = slot.running.ended_at;
    worker.send(report_message(slot.running.ref, end_report(2, 3.0)));
  }
  void acknowledged(Slot& slot, SimulatedWorker& worker, const v1::ReportsAck& ack, double now) {
    if (ack.ref().trial() != slot.running.ref.trial()) return finished(worker, ack);
    if (slot.running.reported_at > 0) {
      if (counting_) report_acks.add(now - slot.running.reported_at);
      slot.running.reported_at = 0;
      if (!options_.pipelined && ack.through_sequence() == 1) return end(slot, worker);
    }
    if (ack.through_sequence() < 2) return;
    if (counting_) end_acks.add(now - slot.running.ended_at);
    finished(worker, ack);
  }
  void finished(SimulatedWorker& worker, const v1::ReportsAck& ack) {
    if (ack.through_sequence() < 2) return;
    const std::scoped_lock lock(worker.held_mutex);
    if (worker.held.erase(ack.ref().trial()) > 0) ++done_;
  }

  const TrialsOptions options_;
  std::vector<Slot> slots_;
  std::atomic<bool> counting_{false};
  std::atomic<std::uint64_t> done_{0};
  Later later_;
};

/// Trials done and processor time used by then.
struct Sample {
  std::uint64_t trials = 0;
  double at = 0;
  double cpu_s = 0;
};

Json cost_between(const Sample& a, const Sample& b) {
  const auto n = static_cast<double>(std::max<std::uint64_t>(b.trials - a.trials, 1));
  return {{"trials", b.trials - a.trials},
          {"trials_per_s", rounded(n / std::max(b.at - a.at, 1e-9))},
          {"coordinator_cpu_ms_per_trial", rounded(1e3 * (b.cpu_s - a.cpu_s) / n)}};
}

Result<Json> one_figure(const Options& options, const TrialsOptions& trials, int clients) {
  TAILOR_ASSIGN_OR_RETURN(const auto coordinator, Coordinator::open(options));
  Json figure = {{"clients", clients}, {"before", machine_now(coordinator->folder())}};
  Client client(coordinator->grpc_address());
  TrialLoop loop(trials, static_cast<std::size_t>(clients));
  std::unordered_map<const SimulatedWorker*, std::size_t> places;
  Fleet fleet(coordinator->grpc_address(), "bench", static_cast<std::size_t>(clients), 1,
              [&](SimulatedWorker& worker, const v1::CoordinatorMessage& message) {
                loop.hear(places.at(&worker), worker, message);
              });
  const std::shared_ptr<void> before_the_fleet(nullptr, [&](void*) { loop.stop(); });
  for (std::size_t i = 0; i < fleet.workers().size(); ++i) places[fleet.workers()[i].get()] = i;
  TAILOR_RETURN_IF_ERROR(status_of(fleet.connect(60)));
  fleet.beat(1);
  TAILOR_ASSIGN_OR_RETURN(
      const std::uint64_t sweep,
      client.submit(fmt::format("bench-{}", static_cast<std::int64_t>(1e3 * steady_seconds())),
                    90'000'000, trials.seeds));
  sleep_s(std::min(0.5, options.seconds / 10));  // the first are assigned
  loop.count(true);
  const auto sample = [&] {
    return Sample{loop.done(), steady_seconds(), coordinator->usage().cpu_s};
  };
  const Usage used = coordinator->usage();
  std::vector<Sample> samples = {sample()};
  while (samples.back().at - samples.front().at < options.seconds &&
         (trials.trials_max == 0 || loop.done() < trials.trials_max)) {
    sleep_s(0.05);
    samples.push_back(sample());
  }
  loop.count(false);
  const Usage now = coordinator->usage();
  const Sample& first = samples.front();
  const Sample& last = samples.back();
  if (last.trials == first.trials) {
    return error(Code::kDeadlineExceeded,
                 fmt::format("not one of the trials of {} clients ended", clients));
  }
  const auto n = static_cast<double>(last.trials - first.trials);
  const double wall = last.at - first.at;
  figure["seconds"] = rounded(wall);
  figure.update(cost_between(first, last));
  figure["coordinator_cores"] = rounded((last.cpu_s - first.cpu_s) / wall);
  figure["written_bytes_per_trial"] =
      rounded(static_cast<double>(now.written_bytes - used.written_bytes) / n);
  figure["rss_mb"] = rounded(now.rss_mb);
  figure["assign"] = loop.assigns.json();
  figure["report_ack"] = loop.report_acks.json();
  figure["end_ack"] = loop.end_acks.json();
  figure["heartbeat_ack"] = fleet.heartbeat_acks().json();
  figure["stops"] = loop.stops.load();
  // Whether the last trials cost more than the first: a tenth of the samples of either end.
  const std::size_t tenth = std::max<std::size_t>(samples.size() / 10, 1);
  if (samples.size() > 2 * tenth) {
    figure["first_tenth"] = cost_between(samples.front(), samples[tenth]);
    figure["last_tenth"] = cost_between(samples[samples.size() - 1 - tenth], samples.back());
  }
  fleet.stop_beating();
  if (!options.coordinator.empty()) TAILOR_RETURN_IF_ERROR(client.cancel(sweep));
  figure["after"] = machine_now(coordinator->folder());
  return figure;
}

}  // namespace

Result<Json> run_trials(const Options& options, const TrialsOptions& trials) {
  Json figures = Json::array();
  for (const int clients : trials.clients) {
    TAILOR_ASSIGN_OR_RETURN(Json figure, one_figure(options, trials, clients));
    figures.push_back(std::move(figure));
  }
  return Json{{"mode", "trials"},
              {"what", trials.pipelined ? "assign, report and end sent together, acknowledged"
                                        : "assign, report acknowledged, end acknowledged"},
              {"seeds", trials.seeds},
              {"think_s", trials.think_s},
              {"figures", std::move(figures)}};
}

}  // namespace tailor::load
