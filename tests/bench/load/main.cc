// tailor-bench: load on a coordinator, over gRPC and HTTP on loopback, as JSON on stdout. Every
// figure is bounded in time and has the disk's sync rate and the machine's load beside it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>

#include "base/logging.h"
#include "tests/bench/load/modes.h"

namespace tailor::load {
namespace {

enum Exit : int { kOk = 0, kInternal = 1, kUsage = 2 };

std::string program_beside(const char* name) {
  std::error_code failed;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  return failed ? name : (self.parent_path() / name).string();
}

int print(const Result<Json>& figures) {
  if (!figures.has_value()) {
    std::fprintf(stderr, "tailor-bench: error: %s\n", figures.error().message().c_str());
    return figures.error().code() == Code::kInvalidArgument ? kUsage : kInternal;
  }
  std::printf("%s\n", figures->dump(2).c_str());
  return kOk;
}

int run(int argc, char** argv) {
  Options options;
  options.program = program_beside("tailor-coordinator");
  options.folder = std::filesystem::temp_directory_path().string();
  TrialsOptions trials;
  PointsOptions points;
  WorkersOptions workers;
  RestartOptions restart;
  DashboardOptions dashboard;
  dashboard.tailor = program_beside("tailor");

  CLI::App app("Load on a tailor-coordinator; prints JSON.");
  app.footer(
      "  tailor-bench trials --clients 1,8,64 --seconds 10\n"
      "  tailor-bench trials --clients 256 --think 1       acknowledgements at 256 trials/s\n"
      "  tailor-bench points --folder /data                on the disk of that folder\n"
      "  tailor-bench workers --count 10000 --running 2000 --seconds 600\n"
      "  tailor-bench restart --trials 10000 --points 1000000\n"
      "  tailor-bench dashboard --trials 10000,300000");
  app.require_subcommand(1);
  app.add_option("--coordinator", options.coordinator,
                 "HOST:PORT of a running one (default: one is started for each figure)");
  app.add_option("--program", options.program, "the coordinator to start");
  app.add_option("--folder", options.folder, "where databases are made");
  app.add_option("--seconds", options.seconds, "of one figure, at most")
      ->check(CLI::Range(0.2, 3600.0));
  app.add_flag("--keep", options.keep, "leave the databases there");
  app.add_option("--with", options.coordinator_arguments,
                 "further argument for the coordinator (again for each)");

  CLI::App* mode = app.add_subcommand("trials", "durable trials a second");
  mode->add_option("--clients", trials.clients, "workers, one slot each (1,8,64)")->delimiter(',');
  mode->add_option("--seeds", trials.seeds, "trials a point of the space")
      ->check(CLI::Range(1, 1000));
  mode->add_option("--think", trials.think_s, "seconds that a trial takes");
  mode->add_flag("--pipelined", trials.pipelined,
                 "send the end without waiting for the report's acknowledgement");
  mode->add_option("--until", trials.trials_max, "end after so many trials");

  mode = app.add_subcommand("points", "durable metric points a second");
  mode->add_option("--clients", points.clients, "running trials")->check(CLI::Range(1, 10'000));
  mode->add_option("--reports", points.reports, "reports a message")->check(CLI::Range(1, 10'000));
  mode->add_option("--values", points.values, "values a report")->check(CLI::Range(1, 1'000));
  mode->add_option("--window", points.window, "messages that are not acknowledged yet")
      ->check(CLI::Range(1, 1'000));
  mode->add_flag("--single", points.single, "one point a message");
  mode->add_flag("!--fp64", points.fp32, "values of all bits");

  mode = app.add_subcommand("workers", "many connected workers");
  mode->add_option("--count", workers.count, "workers")->check(CLI::Range(1, 100'000));
  mode->add_option("--running", workers.running, "trials that run all the time");
  mode->add_option("--interval", workers.interval_s, "seconds between heartbeats");
  mode->add_option("--finishing", workers.finishing, "trials whose ends are timed; 0 = none");

  mode = app.add_subcommand("restart", "kill -9 until it serves again");
  mode->add_option("--trials", restart.trials, "trials that ended before");
  mode->add_option("--points", restart.points, "points stored before");
  mode->add_option("--ended", restart.ended, "ended trials of the second figure; 0 = none");

  mode = app.add_subcommand("dashboard", "what pages load");
  mode->add_option("--trials", dashboard.trials, "trials in the file (10000,300000)")
      ->delimiter(',');
  mode->add_option("--points", dashboard.points, "points of each of the first 10,000 trials");
  mode->add_option("--seeds", dashboard.seeds, "trials a candidate")->check(CLI::Range(1, 1000));
  mode->add_option("--rounds", dashboard.rounds, "requests of each kind")
      ->check(CLI::Range(1, 10'000));
  mode->add_option("--tailor", dashboard.tailor, "the client, for exports; \"\" = none");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kOk : kUsage;
  }
  (void)init_logging("warn");
  if (const auto files = raise_file_limit(); files < 25'000 && workers.count > 10'000) {
    std::fprintf(stderr, "tailor-bench: only %llu files may be open: fewer workers will connect\n",
                 static_cast<unsigned long long>(files));
  }
  if (app.got_subcommand("trials")) return print(run_trials(options, trials));
  if (app.got_subcommand("points")) return print(run_points(options, points));
  if (app.got_subcommand("workers")) return print(run_workers(options, workers));
  if (app.got_subcommand("restart")) return print(run_restart(options, restart));
  return print(run_dashboard(options, dashboard));
}

}  // namespace
}  // namespace tailor::load

int main(int argc, char** argv) { return tailor::load::run(argc, argv); }
