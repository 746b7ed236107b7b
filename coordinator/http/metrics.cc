#include "coordinator/http/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

namespace tailor::http {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;

const prometheus::Histogram::BucketBoundaries kCommitBuckets = {
    0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01,
    0.02,    0.05,   0.1,    0.25,   0.5,   1,     2.5,   10};

double file_bytes(const std::string& path) {
  std::error_code failed;
  const auto bytes = std::filesystem::file_size(path, failed);
  return failed ? 0.0 : static_cast<double>(bytes);
}

}  // namespace

struct Metrics::Impl {
  std::string database;
  std::mutex scrape;  // guards: the gauges while they are set and read together
  prometheus::Registry registry;

  prometheus::Family<prometheus::Gauge>& sweeps =
      BuildGauge().Name("tailor_sweeps").Help("Sweeps by state").Register(registry);
  prometheus::Family<prometheus::Gauge>& trials =
      BuildGauge().Name("tailor_trials").Help("Trials by state").Register(registry);
  prometheus::Family<prometheus::Gauge>& search =
      BuildGauge()
          .Name("tailor_search_points")
          .Help("Points of the spaces of open sweeps: tried, and left to try")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& attempts =
      BuildCounter()
          .Name("tailor_attempts_ended_total")
          .Help("Attempts that ended since the coordinator started, by class")
          .Register(registry);
  prometheus::Gauge& workers = BuildGauge()
                                   .Name("tailor_workers_connected")
                                   .Help("Workers with an open stream")
                                   .Register(registry)
                                   .Add({});
  prometheus::Gauge& slots = BuildGauge()
                                 .Name("tailor_slots")
                                 .Help("Device slots of connected workers")
                                 .Register(registry)
                                 .Add({});
  prometheus::Gauge& busy_slots = BuildGauge()
                                      .Name("tailor_slots_busy")
                                      .Help("Device slots that hold an attempt")
                                      .Register(registry)
                                      .Add({});
  prometheus::Gauge& queue = BuildGauge()
                                 .Name("tailor_engine_queue_depth")
                                 .Help("Events and queries waiting for the engine")
                                 .Register(registry)
                                 .Add({});
  prometheus::Gauge& stalled = BuildGauge()
                                   .Name("tailor_storage_stalled")
                                   .Help("1 while commits fail and are retried (full disk)")
                                   .Register(registry)
                                   .Add({});
  prometheus::Histogram& commits = BuildHistogram()
                                       .Name("tailor_commit_seconds")
                                       .Help("Time of one durable transaction")
                                       .Register(registry)
                                       .Add({}, kCommitBuckets);
  prometheus::Counter& mutations = BuildCounter()
                                       .Name("tailor_committed_rows_total")
                                       .Help("Rows written")
                                       .Register(registry)
                                       .Add({});
  prometheus::Counter& events = BuildCounter()
                                    .Name("tailor_events_total")
                                    .Help("Event rows written")
                                    .Register(registry)
                                    .Add({});
  prometheus::Family<prometheus::Counter>& calls =
      BuildCounter().Name("tailor_rpc_calls_total").Help("Finished gRPC calls").Register(registry);
  prometheus::Family<prometheus::Counter>& requests = BuildCounter()
                                                          .Name("tailor_http_requests_total")
                                                          .Help("HTTP requests by status")
                                                          .Register(registry);
  prometheus::Gauge& database_bytes = BuildGauge()
                                          .Name("tailor_database_bytes")
                                          .Help("Size of the database with its log")
                                          .Register(registry)
                                          .Add({});
  prometheus::Gauge& log_bytes = BuildGauge()
                                     .Name("tailor_storage_log_bytes")
                                     .Help("Part of the write-ahead log that is in use")
                                     .Register(registry)
                                     .Add({});
  prometheus::Gauge& unsealed = BuildGauge()
                                    .Name("tailor_storage_unsealed_points")
                                    .Help("Metric points that are in no chunk yet")
                                    .Register(registry)
                                    .Add({});
  prometheus::Gauge& log_held =
      BuildGauge()
          .Name("tailor_storage_log_held")
          .Help("1 while a reader keeps the write-ahead log from shrinking")
          .Register(registry)
          .Add({});
  prometheus::Gauge& upkeep_fails = BuildGauge()
                                        .Name("tailor_storage_upkeep_failing")
                                        .Help("1 while checkpoints, sealing or indexing fail")
                                        .Register(registry)
                                        .Add({});
  prometheus::Gauge& started = BuildGauge()
                                   .Name("process_start_time_seconds")
                                   .Help("Unix time at which the coordinator started")
                                   .Register(registry)
                                   .Add({});
};

Metrics::Metrics(std::string version, std::string database, WallMs started_ms)
    : impl_(std::make_unique<Impl>()) {
  impl_->database = std::move(database);
  impl_->started.Set(static_cast<double>(started_ms) / 1e3);
  BuildGauge()
      .Name("tailor_info")
      .Help("Always 1; the version is a label")
      .Register(impl_->registry)
      .Add({{"version", std::move(version)}})
      .Set(1);
}

Metrics::~Metrics() = default;

void Metrics::on_commit(std::span<const storage::Mutation> batch, double seconds) {
  impl_->commits.Observe(seconds);
  impl_->mutations.Increment(static_cast<double>(batch.size()));
  // An attempt's row is written again after its end (late reports), its event once.
  std::map<AttemptId, const storage::AttemptRow*> ended;
  for (const auto& mutation : batch) {
    if (const auto* row = std::get_if<storage::AttemptRow>(&mutation)) ended[row->id] = row;
  }
  double events = 0;
  for (const auto& mutation : batch) {
    const auto* event = std::get_if<storage::EventRow>(&mutation);
    if (event == nullptr) continue;
    ++events;
    if (event->kind != storage::EventKind::kAttemptEnded) continue;
    const auto found = ended.find(AttemptId{event->trial, event->attempt});
    const std::string_view end_class = found == ended.end() || !found->second->end_class
                                           ? "unknown"
                                           : protocol::end_class_name(*found->second->end_class);
    impl_->attempts.Add({{"class", std::string(end_class)}}).Increment();
  }
  if (events > 0) impl_->events.Increment(events);
}

void Metrics::on_rpc(std::string_view method, Code code) {
  impl_->calls.Add({{"method", std::string(method)}, {"code", std::string(code_name(code))}})
      .Increment();
}

void Metrics::on_http(int status) {
  impl_->requests.Add({{"code", std::to_string(status)}}).Increment();
}

std::string Metrics::text(const engine::Views& views) {
  const auto totals = views.totals();
  const engine::Health health = views.engine().health();
  const std::scoped_lock lock(impl_->scrape);
  using storage::SweepState;
  using storage::TrialState;
  for (const SweepState state : {SweepState::kRunning, SweepState::kPaused, SweepState::kCompleted,
                                 SweepState::kCancelled, SweepState::kFailed}) {
    const auto found = totals.sweeps.find(state);
    impl_->sweeps.Add({{"state", std::string(storage::sweep_state_name(state))}})
        .Set(found == totals.sweeps.end() ? 0.0 : static_cast<double>(found->second));
  }
  for (const TrialState state :
       {TrialState::kQueued, TrialState::kRunning, TrialState::kCompleted, TrialState::kStopped,
        TrialState::kFailed, TrialState::kCancelled}) {
    const auto found = totals.trials.find(state);
    impl_->trials.Add({{"state", std::string(storage::trial_state_name(state))}})
        .Set(found == totals.trials.end() ? 0.0 : static_cast<double>(found->second));
  }
  impl_->search.Add({{"state", "tried"}}).Set(static_cast<double>(totals.search_tried));
  impl_->search.Add({{"state", "left"}}).Set(static_cast<double>(totals.search_left));
  impl_->workers.Set(totals.workers_connected);
  impl_->slots.Set(totals.slots);
  impl_->busy_slots.Set(totals.busy_slots);
  impl_->queue.Set(static_cast<double>(views.engine().queue_depth()));
  impl_->stalled.Set(health.stalled ? 1 : 0);
  // A disk that hangs may hang whoever asks it for a size, too: then the last one stays.
  if (!impl_->database.empty() && !health.stalled) {
    impl_->database_bytes.Set(file_bytes(impl_->database) + file_bytes(impl_->database + "-wal"));
  }
  const storage::StoreHealth store = views.store().health();
  impl_->log_bytes.Set(static_cast<double>(store.log_bytes));
  impl_->unsealed.Set(static_cast<double>(store.unsealed_points));
  impl_->log_held.Set(store.log_held_since_ms > 0 ? 1 : 0);
  impl_->upkeep_fails.Set(store.upkeep.is_ok() ? 0 : 1);
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace tailor::http
