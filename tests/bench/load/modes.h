// The modes of tailor-bench: each measures one thing and answers with JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/bench/load/coordinator_process.h"
#include "tests/bench/load/measure.h"

namespace tailor::load {

struct TrialsOptions {
  std::vector<int> clients = {1, 8, 64};
  int seeds = 5;           ///< trials a point of the space
  double think_s = 0;      ///< how long a trial takes
  bool pipelined = false;  ///< the end is sent without waiting for the report's acknowledgement
  std::uint64_t trials_max = 0;  ///< stop after so many trials, 0 = after Options::seconds
};
/// Durable trials: assigned, one report, the end, each acknowledged after its commit.
Result<Json> run_trials(const Options& options, const TrialsOptions& trials);

struct PointsOptions {
  int clients = 64;
  int reports = 16;     ///< points in time of one message
  int values = 8;       ///< series
  int window = 4;       ///< messages of a worker that are not acknowledged yet
  bool single = false;  ///< one point a message
  bool fp32 = true;     ///< values that a float holds
};
/// Durable metric points: reports of running trials, acknowledged after their commit.
Result<Json> run_points(const Options& options, const PointsOptions& points);

struct WorkersOptions {
  int count = 10'000;
  int running = 2'000;     ///< trials running all the time
  double interval_s = 10;  ///< of the heartbeats
  int finishing = 2'000;   ///< trials whose end is timed, before and after
};
/// Many connected workers: heartbeats, ends of trials, and all of them reconnecting at once.
Result<Json> run_workers(const Options& options, const WorkersOptions& workers);

struct RestartOptions {
  std::uint64_t trials = 10'000;     ///< that ended before the kill
  std::uint64_t points = 1'000'000;  ///< of a few running trials, before the kill
  std::uint64_t ended = 1'000'000;   ///< ended trials in the file of the second figure; 0 = skip
};
/// kill -9 and start again, until it serves.
Result<Json> run_restart(const Options& options, const RestartOptions& restart);

struct DashboardOptions {
  std::vector<std::uint64_t> trials = {10'000, 300'000};
  int points = 100;  ///< of each of the first 10,000 trials
  int seeds = 5;
  int rounds = 20;     ///< requests of each kind
  std::string tailor;  ///< the client, for exports; "" = none are made
};
/// What pages load, their size, and exports.
Result<Json> run_dashboard(const Options& options, const DashboardOptions& dashboard);

}  // namespace tailor::load
