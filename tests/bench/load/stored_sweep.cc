#include "tests/bench/load/stored_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "model/shape/architecture.h"
#include "storage/sqlite_store.h"
#include "sweep/candidate.h"
#include "tests/bench/load/fleet.h"

namespace tailor::load {
namespace {

constexpr WallMs kBegin = 1'760'000'000'000;
constexpr std::uint64_t kTrialsABatch = 1'000;

/// One axis alone, so that the JSON of a point is one number.
std::string point_json(const sweep::Point& point) {
  std::string json = "{";
  for (const auto& [path, value] : point) {
    json += fmt::format("{}\"{}\":{}", json.size() > 1 ? "," : "", path, sweep::to_text(value));
  }
  return json + "}";
}

class Writer {
 public:
  Writer(storage::Store& store, const StoredSweep& sweep) : store_(store), sweep_(sweep) {}

  Status run() {
    const std::string toml = "baseline = \"base\"\n" +
                             sweep_toml(sweep_.name, sweep_.trials, sweep_.seeds) +
                             "[[candidate]]\nname = \"base\"\n";
    TAILOR_ASSIGN_OR_RETURN(const sweep::Spec spec, sweep::parse(toml, "bench.toml", "/data"));
    storage::SweepRow row;
    row.id = SweepId{1};
    row.name = sweep_.name;
    row.spec_hash = sweep::spec_hash(toml, "/data");
    row.base_dir = "/data";
    row.toml = toml;
    row.state = storage::SweepState::kCompleted;
    row.created_ms = kBegin;
    row.ended_ms = kBegin + 1'000;
    storage::WorkerRow worker;
    worker.id = WorkerId{1};
    worker.name = "node";
    worker.slots_json = R"([{"index":0,"kind":"cpu","name":"cpu","memory_bytes":0,"threads":1}])";
    batch_.emplace_back(worker);
    const auto seeds = static_cast<std::uint64_t>(sweep_.seeds);
    const std::uint64_t candidates = (sweep_.trials + seeds - 1) / seeds;
    row.search_state = candidates > 1
                           ? fmt::format("told 1-{} done\n{}", candidates - 1, candidates - 1)
                           : "told  done\n0";
    batch_.emplace_back(row);
    for (std::uint64_t c = 0; c < candidates; ++c) {
      const sweep::Point point = c == 0 ? sweep::Point{} : sweep::grid_point(spec, c - 1);
      TAILOR_RETURN_IF_ERROR(add_candidate(spec, static_cast<std::uint32_t>(c), point));
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        add_trial(static_cast<std::uint32_t>(c), seed);
        if (next_trial_ % kTrialsABatch != 0) continue;
        TAILOR_RETURN_IF_ERROR(flush());
      }
    }
    storage::CountersRow counters;
    counters.next_sweep = 2;
    counters.next_trial = next_trial_;
    counters.next_worker = 2;
    counters.next_token = next_trial_;
    batch_.emplace_back(counters);
    return flush();
  }

 private:
  Status flush() {
    const Status status = store_.commit(batch_);
    batch_.clear();
    return status;
  }

  Status add_candidate(const sweep::Spec& spec, std::uint32_t index, const sweep::Point& point) {
    const std::string name = index == 0 ? "base" : sweep::point_name(point);
    TAILOR_ASSIGN_OR_RETURN(const sweep::Candidate candidate, sweep::resolve(spec, name, point));
    storage::CandidateRow row;
    row.sweep = SweepId{1};
    row.index = index;
    row.name = name;
    row.point_json = point_json(point);
    row.architecture_json = shape::canonical_json(candidate.architecture);
    row.hash = candidate.hash;
    row.parameters_body = candidate.counts.body;
    row.parameters_total = candidate.counts.total;
    batch_.emplace_back(std::move(row));
    return Status::ok();
  }

  void add_event(storage::EventKind kind, TrialId trial, std::string message) {
    storage::EventRow event;
    event.wall_ms = kBegin;
    event.kind = kind;
    event.sweep = SweepId{1};
    event.trial = trial;
    event.attempt = 1;
    event.worker = WorkerId{1};
    event.message = std::move(message);
    batch_.emplace_back(std::move(event));
  }

  void add_trial(std::uint32_t candidate, std::uint64_t seed) {
    const TrialId id{next_trial_++};
    storage::TrialRow trial;
    trial.id = id;
    trial.sweep = SweepId{1};
    trial.candidate = candidate;
    trial.seed = seed;
    trial.state = storage::TrialState::kCompleted;
    trial.attempts = 1;
    trial.failures_json = "{}";
    trial.end_class = protocol::EndClass::kCompleted;
    trial.objective = 3 - 1e-5 * candidate + 0.01 * rng_.normal();
    trial.final_values = {{"validation_loss", *trial.objective}, {"tokens_per_s", 1e5}};
    trial.created_ms = trial.started_ms = kBegin;
    trial.ended_ms = kBegin + 500;
    batch_.emplace_back(std::move(trial));
    storage::AttemptRow attempt;
    attempt.id = {id, 1};
    attempt.token = id.value;
    attempt.worker = WorkerId{1};
    attempt.slots = {0};
    attempt.state = storage::AttemptState::kEnded;
    attempt.acked_sequence = static_cast<std::uint64_t>(sweep_.points) + 2;
    attempt.end_class = protocol::EndClass::kCompleted;
    attempt.started_json = R"({"data_hash":"d","version":"bench"})";
    attempt.assigned_ms = kBegin;
    attempt.ended_ms = kBegin + 500;
    batch_.emplace_back(std::move(attempt));
    add_event(storage::EventKind::kTrialQueued, id, "");
    add_event(storage::EventKind::kAttemptAssigned, id, "");
    add_event(storage::EventKind::kAttemptEnded, id, "completed");
    add_event(storage::EventKind::kTrialCompleted, id, "");
    if (id.value > sweep_.trials_with_points) return;
    for (int i = 1; i <= sweep_.points; ++i) {
      storage::MetricPoint point;
      point.trial = id;
      point.attempt = 1;
      point.name = "train_loss";
      point.step = i * 10;
      point.tokens = i * 40'960;
      point.wall_ms = kBegin + i;
      point.value = static_cast<float>(3 + rng_.normal() / i);
      batch_.emplace_back(std::move(point));
    }
  }

  storage::Store& store_;
  const StoredSweep sweep_;
  std::vector<storage::Mutation> batch_;
  std::uint64_t next_trial_ = 1;
  Rng rng_{7};
};

}  // namespace

Status store_sweep(const std::string& path, const StoredSweep& sweep) {
  TAILOR_ASSIGN_OR_RETURN(const auto store, storage::open_sqlite(path));
  return Writer(*store, sweep).run();
}

}  // namespace tailor::load
