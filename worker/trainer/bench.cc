#include "worker/trainer/bench.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "model/net/decoder.h"
#include "model/shape/count.h"
#include "model/train/optimizer.h"
#include "model/train/step.h"
#include "protocol/report.h"
#include "sweep/architecture_file.h"

namespace tailor::trainer {
namespace {

int refuse(const std::string& message) {
  std::fprintf(stderr, "tailor-trainer bench: %s\n", message.c_str());
  return static_cast<int>(protocol::TrainerExit::kUsage);
}

// Resident memory of this process now; 0 where /proc cannot be read.
std::int64_t resident_bytes() {
  long long pages = 0;
  long long resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%lld %lld", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

int run_bench(const BenchOptions& options) {
  const auto text = read_file(options.architecture_file, 1 << 20);
  if (!text) return refuse(text.error().message());
  const auto architecture = sweep::parse_architecture_toml(*text, options.architecture_file);
  if (!architecture) return refuse(architecture.error().message());
  if (options.batch < 1 || options.sequence_length < 1 || options.threads < 1 ||
      options.steps < 1) {
    return refuse("--batch, --seq, --threads and --steps must be at least 1");
  }
  at::set_num_threads(options.threads);
  at::globalContext().setFlushDenormal(true);
  const std::int64_t start_rss = resident_bytes();
  net::Decoder decoder(*architecture, at::kCPU, options.bf16);
  decoder.initialise(1, 0.02);
  train::AdamW optimizer(decoder.parameters(), {});
  train::TrainStep step(decoder, optimizer, 0);
  const auto draw = [&] {
    return at::randint(architecture->vocab_size, {options.batch, options.sequence_length},
                       at::kLong);
  };
  const at::Tensor tokens = draw();
  const at::Tensor targets = draw();
  const SystemClock clock;
  std::vector<double> wall_ms;
  double cpu_s = 0;
  double best_cpu_s = std::numeric_limits<double>::infinity();
  int steps_run = 0;
  for (int i = 0; i < options.steps + 2; ++i) {
    const double cpu_before = process_cpu_seconds();
    // The clock counts milliseconds: repeat short steps until they are long enough to measure.
    const MonotonicMs before_ms = clock.now_ms();
    int repeats = 0;
    do {
      step.run(tokens, targets, 1e-4);
      ++repeats;
    } while (i >= 2 && clock.now_ms() - before_ms < 100);
    if (i < 2) continue;
    wall_ms.push_back(static_cast<double>(clock.now_ms() - before_ms) / repeats);
    steps_run += repeats;
    const double used_s = process_cpu_seconds() - cpu_before;
    cpu_s += used_s;
    best_cpu_s = std::min(best_cpu_s, used_s / repeats);
  }
  std::sort(wall_ms.begin(), wall_ms.end());
  const double step_ms = wall_ms[wall_ms.size() / 2];
  const auto step_tokens = static_cast<double>(options.batch * options.sequence_length);
  const double tokens_per_s = step_tokens * 1000 / step_ms;
  const double gflops =
      tokens_per_s * shape::training_flops_per_token(*architecture, options.sequence_length) / 1e9;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const std::int64_t peak_rss = std::int64_t{usage.ru_maxrss} * 1024;
  const std::int64_t parameters = shape::count_parameters(*architecture).total;
  if (options.json) {
    const nlohmann::ordered_json out = {{"tokens_per_s", tokens_per_s},
                                        {"gflops", gflops},
                                        {"peak_rss", peak_rss},
                                        {"start_rss", start_rss},
                                        {"step_ms", step_ms},
                                        {"best_step_ms", wall_ms.front()},
                                        {"cpu_s_per_step", cpu_s / steps_run},
                                        {"best_cpu_s_per_step", best_cpu_s},
                                        {"parameters", parameters},
                                        {"threads", options.threads},
                                        {"dtype", options.bf16 ? "bf16" : "f32"}};
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print(
        "{:.0f} tokens/s, {:.1f} GFLOP/s, {:.1f} ms a step, {} parameters, peak {:.0f} MiB\n",
        tokens_per_s, gflops, step_ms, parameters, static_cast<double>(peak_rss) / (1 << 20));
  }
  return 0;
}

}  // namespace tailor::trainer
