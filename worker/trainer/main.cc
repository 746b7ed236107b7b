// tailor-trainer: runs one trial from its directory. Knows nothing of the network; see trial_dir.h
// for its whole interface and protocol/report.h for its exit codes.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <new>
#include <string>

#include "base/clock.h"
#include "base/logging.h"
#include "model/train/trial.h"
#include "worker/trainer/bench.h"
#include "worker/trainer/device.h"
#include "worker/trainer/evaluate.h"
#include "worker/trainer/inspect.h"
#include "worker/trainer/trial_dir.h"

namespace {

using namespace tailor;
using protocol::EndClass;
using protocol::EndReport;
using protocol::TrainerExit;

std::atomic<int> g_signal = 0;  // the last SIGTERM or SIGINT; lock-free, set by the handler

extern "C" void on_signal(int number) { g_signal = number; }

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  // A closed log pipe must not end the trial.
  std::signal(SIGPIPE, SIG_IGN);
}

// Writes reports to the directory and listens to signals and the lease.
class DirectoryObserver final : public train::TrialObserver {
 public:
  DirectoryObserver(trainer::ReportLog& log, const std::string& directory, const Clock& clock)
      : log_(log), lease_(directory, clock) {}

  Status report(train::ProgressReport progress) override {
    protocol::Report report;
    std::visit([&](auto& body) { report.body = std::move(body); }, progress);
    const bool durable = !std::holds_alternative<protocol::MetricReport>(report.body);
    return log_.append(std::move(report), durable);
  }

  std::optional<std::string> stop_reason() override {
    if (const int number = g_signal)
      return std::string(number == SIGTERM ? "SIGTERM" : "interrupted");
    return lease_.expired();
  }

 private:
  trainer::ReportLog& log_;
  trainer::Lease lease_;
};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

EndReport end_of(EndClass end, std::string message) {
  EndReport report;
  report.end = end;
  report.message = std::move(message);
  return report;
}

// The trial, with everything that LibTorch and the standard library throw turned into an end.
EndReport run_guarded(const protocol::TrialSpec& spec, const std::string& directory,
                      train::TrialObserver& observer, const Clock& clock) {
  try {
    at::set_num_threads(spec.threads);
    // Denormal numbers (old moments of rare tokens) cost a hundred times their worth.
    at::globalContext().setFlushDenormal(true);
    const auto device = trainer::open_device(spec.device);
    if (!device) {
      const bool bad_name = device.error().code() == Code::kInvalidArgument;
      return end_of(bad_name ? EndClass::kUser : EndClass::kInfrastructure,
                    device.error().message());
    }
    train::TrialHost host;
    host.pid = ::getpid();
    host.host = host_name();
    host.device_name = device->name;
    host.make_graph = device->make_graph;
    host.version = std::string(TAILOR_VERSION) + (*TAILOR_COMMIT != '\0' ? "+" TAILOR_COMMIT : "");
    return train::run_trial(spec, device->device, host,
                            {directory + "/checkpoints", directory + "/artifacts"}, observer,
                            clock);
  } catch (const c10::OutOfMemoryError& failure) {
    return end_of(EndClass::kOom, failure.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return end_of(EndClass::kOom, "out of memory; use a smaller train.micro_batch_tokens");
  } catch (const c10::Error& failure) {
    const std::string what = failure.what_without_backtrace();
    // LibTorch's CPU allocator throws a plain Error.
    const bool memory = what.find("can't allocate memory") != std::string::npos ||
                        what.find("not enough memory") != std::string::npos;
    return end_of(memory ? EndClass::kOom : EndClass::kInfrastructure, what);
  } catch (const std::exception& failure) {
    return end_of(EndClass::kInfrastructure, failure.what());
  }
}

int run(const std::string& given) {
  std::error_code failure;
  // Absolute: reports name checkpoints by their whole path.
  std::string directory = std::filesystem::absolute(given, failure).lexically_normal().string();
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  if (!std::filesystem::is_directory(directory, failure)) {
    std::fprintf(
        stderr,
        "tailor-trainer: %s is no directory; give the trial directory that holds spec.json\n",
        directory.c_str());
    return static_cast<int>(TrainerExit::kUsage);
  }
  const SystemClock clock;
  auto log = trainer::ReportLog::open(directory, clock);
  if (!log) {
    log_error("trainer", log.error().message());
    return static_cast<int>(log.error().code() == Code::kDataLoss ? TrainerExit::kData
                                                                  : TrainerExit::kInfrastructure);
  }
  if (log->earlier_end() == EndClass::kCompleted) {
    log_info("trainer", "this trial is complete already", {{"directory", directory}});
    return static_cast<int>(TrainerExit::kCompleted);
  }
  const auto spec = trainer::read_spec(directory);
  DirectoryObserver observer(*log, directory, clock);
  EndReport end = spec ? run_guarded(*spec, directory, observer, clock)
                       : end_of(EndClass::kUser, spec.error().message());
  const TrainerExit code = trainer::exit_of(end.end);
  const std::string message = end.message;
  const std::string name(protocol::end_class_name(end.end));
  protocol::Report report;
  report.body = std::move(end);
  if (const Status written = log->append(std::move(report), /*durable=*/true); !written) {
    log_error("trainer", "the end could not be reported", {{"reason", written.to_string()}});
  }
  if (code == TrainerExit::kCompleted || code == TrainerExit::kStopped) {
    log_info("trainer", message, {{"end", name}});
  } else {
    log_error("trainer", message, {{"end", name}});
  }
  return static_cast<int>(code);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Trains one trial from its directory.\n\nExample:\n  tailor-trainer run trials/t41.1\n"};
  app.set_version_flag("--version",
                       std::string("tailor-trainer " TAILOR_VERSION " " TAILOR_COMMIT));
  app.require_subcommand(1);
  std::string directory;
  std::string level = "info";
  CLI::App* run_command = app.add_subcommand(
      "run",
      "Run the trial in DIR (spec.json) to its end, resuming from its newest good checkpoint.\n"
      "Exit codes: 0 completed, 2 bad spec, 3 data, 4 out of memory, 5 NaN, 6 stopped (SIGTERM, "
      "lease), 7 other.");
  run_command->add_option("DIR", directory, "trial directory")->required();
  run_command->add_option("--log-level", level, "debug, info, warn or error");
  trainer::BenchOptions bench;
  std::string dtype = "f32";
  CLI::App* bench_command =
      app.add_subcommand("bench", "Time training steps of a shape on this machine.");
  bench_command->add_option("--arch", bench.architecture_file, "ARCH.toml")->required();
  bench_command->add_option("--device", bench.device, "cpu or cuda:N");
  bench_command->add_option("--batch", bench.batch, "sequences of one step");
  bench_command->add_option("--micro-batch", bench.micro_batch,
                            "sequences of one forward pass (0: all)");
  bench_command->add_flag("--graph", bench.graph, "record the step as a CUDA graph and replay it");
  bench_command->add_flag("--any-order", bench.any_order,
                          "allow kernels whose sums have no fixed order; trials do not use them");
  bench_command->add_option("--seq", bench.sequence_length, "tokens of a sequence");
  bench_command->add_option("--dtype", dtype, "f32 or bf16")->check(CLI::IsMember({"f32", "bf16"}));
  bench_command->add_option("--threads", bench.threads, "CPU threads");
  bench_command->add_option("--steps", bench.steps, "timed steps");
  bench_command->add_flag("--json", bench.json, "one line of JSON");
  trainer::InspectOptions inspect;
  std::string inspect_dtype = "f32";
  const auto inspecting = [&](CLI::App* command, const std::string& out) {
    command->add_option("--model", inspect.model, "folder with config.json and safetensors, or GGUF")
        ->required();
    command->add_option("--tokens", inspect.tokens, "IDS.npy: integers, (T) or (B, T)")->required();
    command->add_option("--out", inspect.out, out)->required();
    command->add_option("--dtype", inspect_dtype, "f32 or bf16")
        ->check(CLI::IsMember({"f32", "bf16"}));
    command->add_option("--device", inspect.device, "cpu or cuda:N");
    command->add_option("--threads", inspect.threads, "CPU threads");
    return command;
  };
  CLI::App* logits_command = inspecting(
      app.add_subcommand("logits", "Scores of a model for given tokens, (B, T, v) float32."),
      "LOGITS.npy");
  CLI::App* clouds_command = inspecting(
      app.add_subcommand("clouds",
                         "The residual stream around the FFN of each layer, as clouds that `tailor "
                         "geometry work` reads:\nFOLDER/layer_L_before.npy, layer_L_after.npy."),
      "FOLDER");
  clouds_command->add_option("--layers", inspect.layers, "\"all\", or numbers from 0: 0,3,5");
  clouds_command->add_flag("--sub-blocks", inspect.sub_blocks, "also around each sub-MLP");
  clouds_command->add_option("--skip", inspect.skip,
                             "positions left out at the start of a sequence");
  trainer::EvaluateOptions evaluate;
  CLI::App* evaluate_command = app.add_subcommand(
      "evaluate", "Score a model on multiple-choice tasks, or measure its perplexity.");
  trainer::add_evaluate_options(*evaluate_command, evaluate);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    const int code = app.exit(failure);
    return code == 0 ? 0 : static_cast<int>(TrainerExit::kUsage);
  }
  if (const Status status = init_logging(level); !status) {
    std::fprintf(stderr, "tailor-trainer: %s\n", status.message().c_str());
    return static_cast<int>(TrainerExit::kUsage);
  }
  if (bench_command->parsed()) {
    bench.bf16 = dtype == "bf16";
    return trainer::run_bench(bench);
  }
  inspect.bf16 = inspect_dtype == "bf16";
  if (logits_command->parsed()) return trainer::run_logits(inspect);
  if (clouds_command->parsed()) return trainer::run_clouds(inspect);
  if (evaluate_command->parsed()) return trainer::run_evaluate(evaluate);
  install_signal_handlers();
  return run(directory);
}
