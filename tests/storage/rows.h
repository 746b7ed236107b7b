// Builders of rows for the tests of storage: one line a row, every field set to something telling.
#pragma once

#include <string>
#include <vector>

#include "storage/records.h"

namespace tailor::storage::testing {

inline SweepRow make_sweep(std::uint64_t id, std::string name = "") {
  SweepRow row;
  row.id = SweepId{id};
  row.name = name.empty() ? "sweep-" + std::to_string(id) : name;
  row.spec_hash = "hash" + std::to_string(id);
  row.base_dir = "/data";
  row.toml = "name = \"x\"\n";
  row.priority = 3;
  row.search_state = std::string("state\0with a zero", 17);
  row.infeasible = 2;
  row.infeasible_json = R"({"does not satisfy \"layers > 1\"":2})";
  row.created_ms = 1'700'000'000'000;
  row.user = "ada";
  return row;
}

inline CandidateRow make_candidate(std::uint64_t sweep, std::uint32_t index) {
  return {SweepId{sweep},
          index,
          "k=" + std::to_string(index + 1),
          R"({"ffn.k":1})",
          R"({"layers":4})",
          "abc",
          1'000'000 + index,
          2'000'000};
}

inline TrialRow make_trial(std::uint64_t id, std::uint64_t sweep = 1, std::uint32_t candidate = 0,
                           std::uint64_t seed = 0) {
  TrialRow row;
  row.id = TrialId{id};
  row.sweep = SweepId{sweep};
  row.candidate = candidate;
  row.seed = seed == 0 ? id : seed;
  row.failures_json = R"({"oom":1})";
  row.message = "waits";
  row.created_ms = 5;
  row.priority = -2;
  row.run_ms = 4'000'000'000;
  return row;
}

inline WorkerRow make_worker(std::uint64_t id, std::string name = "") {
  return {WorkerId{id},
          name.empty() ? "node" + std::to_string(id) : name,
          "instance",
          "host",
          "0.1.0",
          R"([{"index":0}])",
          false,
          10,
          20,
          "4f:12",
          {"big", "rack=\"3\""},
          std::uint64_t{1} << 40,
          "three attempts failed to start",
          15,
          QuarantineCause::kTroubles,
          2'500'000'000'000};
}

inline AttemptRow make_attempt(std::uint64_t trial, std::uint32_t number,
                               std::uint64_t worker = 1) {
  AttemptRow row;
  row.id = {TrialId{trial}, number};
  row.token = trial * 100 + number;
  row.worker = WorkerId{worker};
  row.slots = {0, 3};
  row.acked_sequence = 7;
  row.log_bytes = 9;
  row.started_json = "{}";
  row.assigned_ms = 11;
  row.ran_ms = 5'000'000'000;
  row.stop_reason = protocol::StopReason::kPaused;
  row.members = {{WorkerId{worker}, {0, 3}, 0, 2}, {WorkerId{worker + 1}, {}, 2, 1}};
  row.awaits_step = true;
  return row;
}

inline MetricPoint make_point(std::uint64_t trial, std::uint32_t attempt, std::string name,
                              std::int64_t step, double value) {
  return {TrialId{trial}, attempt,     std::move(name),
          step,           step * 1024, 1'700'000'000'000 + step * 100,
          value};
}

/// A sweep with one candidate, one worker, and `trials` trials with one running attempt each: what
/// points, logs and profiles need.
inline std::vector<Mutation> make_base(std::uint64_t trials = 1) {
  std::vector<Mutation> batch{make_sweep(1), make_candidate(1, 0), make_worker(1)};
  for (std::uint64_t id = 1; id <= trials; ++id) {
    TrialRow trial = make_trial(id);
    trial.state = TrialState::kRunning;
    trial.attempts = 1;
    batch.emplace_back(trial);
    batch.emplace_back(make_attempt(id, 1));
  }
  return batch;
}

}  // namespace tailor::storage::testing
