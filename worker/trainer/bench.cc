#include "worker/trainer/bench.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randint.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "model/net/decoder.h"
#include "model/shape/count.h"
#include "model/train/graphed_step.h"
#include "model/train/optimizer.h"
#include "model/train/staging.h"
#include "model/train/step.h"
#include "protocol/report.h"
#include "sweep/architecture_file.h"
#include "worker/trainer/device.h"

namespace tailor::trainer {
namespace {

constexpr int kWarmUpSteps = 2;
constexpr int kGraphWarmUpSteps = 3;    // run before recording
constexpr int kStepsOfSample = 5;       // launched without a wait between on a GPU
constexpr double kSampleSeconds = 0.1;  // short steps are repeated for so long on a CPU
constexpr double kRate = 1e-4;
// What peers count: each matrix parameter is multiplied and added in 6 FLOPs a token, and attention
// takes every pair of positions as if it were not causal.
constexpr const char* kFormula =
    "6 * (body + vocab * d_model) + 12 * layers * seq * heads * head_dim";

int refuse(const std::string& message) {
  std::fprintf(stderr, "tailor-trainer bench: %s\n", message.c_str());
  return static_cast<int>(protocol::TrainerExit::kUsage);
}

double flops_per_token(const shape::Architecture& a, std::int64_t sequence_length) {
  const double matrices = static_cast<double>(shape::count_parameters(a).body) +
                          static_cast<double>(a.vocab_size) * a.d_model;
  return 6.0 * matrices + 12.0 * a.layers() * static_cast<double>(sequence_length) *
                              (static_cast<double>(a.heads) * a.head_dim);
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

// The steps of one bench.
class Bench {
 public:
  Bench(const BenchOptions& options, const shape::Architecture& architecture,
        const OpenDevice& opened)
      : options_(options),
        device_(opened.device),
        decoder_(architecture, device_, options.bf16),
        optimizer_(decoder_.parameters(), {}),
        plain_(decoder_, optimizer_, options.micro_batch),
        staging_(device_, options.batch, options.sequence_length) {
    decoder_.initialise(1, 0.02);
    plain_.set_fixed_order(!options.any_order);
    const auto draw = [&] {
      return at::randint(architecture.vocab_size, {options.batch, options.sequence_length},
                         at::kLong);
    };
    source_ = {draw(), draw()};
    if (options.graph) {
      graphed_.emplace(plain_, opened.make_graph(), kGraphWarmUpSteps);
    }
  }

  void warm_up() {
    // One more records and replays.
    for (int i = 0; i < (graphed_ ? kGraphWarmUpSteps + 1 : kWarmUpSteps); ++i) step();
    wait();
    if (!device_.is_cpu()) allocator()->resetPeakStats(device_.index());
  }
  bool recorded() const { return graphed_ && graphed_->recorded(); }

  // Fills `samples` until `steps` are timed.
  void time_steps() {
    int done = 0;
    while (done < options_.steps) {
      const double cpu_before = process_cpu_seconds();
      const double before = steady_seconds();
      int count = 0;
      if (device_.is_cpu()) {
        do {
          step();
          ++count;
        } while (steady_seconds() - before < kSampleSeconds);
        ++done;
      } else {
        for (; count < std::min(kStepsOfSample, options_.steps - done); ++count) step();
        wait();
        done += count;
      }
      wall_s.push_back((steady_seconds() - before) / count);
      cpu_s.push_back((process_cpu_seconds() - cpu_before) / count);
    }
  }

  // The phases of some plain steps, waiting after each:
  // processor seconds on a CPU, seconds on a GPU.
  void time_phases() {
    const auto now = [&] {
      wait();
      return device_.is_cpu() ? process_cpu_seconds() : steady_seconds();
    };
    constexpr int kSteps = 3;
    double best = 0;
    for (int i = 0; i < kSteps; ++i) {
      std::array<double, 4> phases{};
      double mark = now();
      const auto over = [&](std::size_t phase) {
        const double here = now();
        phases[phase] += here - mark;
        mark = here;
      };
      const train::Batch& batch = load();
      over(0);
      plain_.watch([&](train::Phase phase) { over(1 + static_cast<std::size_t>(phase)); });
      plain_.run(batch.tokens, batch.targets, kRate);
      plain_.watch({});
      double total = 0;
      for (const double one : phases) total += one;
      if (i == 0 || total < best) {
        best = total;
        phases_s = phases;
      }
    }
  }

  std::int64_t peak_device_bytes() const {
    return allocator()
        ->getDeviceStats(device_.index())
        .allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)]
        .peak;
  }

  std::vector<double> wall_s;        // of a step, one a sample
  std::vector<double> cpu_s;         // processor seconds of a step, one a sample
  std::array<double, 4> phases_s{};  // loader, forward, backward, update

 private:
  const train::Batch& load() {
    const train::Batch& host = staging_.host();
    host.tokens.copy_(source_.tokens);
    host.targets.copy_(source_.targets);
    staging_.send();
    return staging_.take();
  }

  void step() {
    const train::Batch& batch = load();
    graphed_ ? graphed_->run(batch.tokens, batch.targets, kRate)
             : plain_.run(batch.tokens, batch.targets, kRate);
  }

  void wait() const {
    if (device_.is_cpu()) return;
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  }

  c10::DeviceAllocator* allocator() const { return c10::getDeviceAllocator(device_.type()); }

  const BenchOptions& options_;
  at::Device device_;
  net::Decoder decoder_;
  train::AdamW optimizer_;
  train::TrainStep plain_;
  train::Staging staging_;
  train::Batch source_;
  std::optional<train::GraphedStep> graphed_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
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
  if (options.micro_batch < 0) return refuse("--micro-batch must be 0 (the whole batch) or more");
  const auto opened = open_device(options.device);
  if (!opened) return refuse("--device: " + opened.error().message());
  if (options.graph && !opened->make_graph) {
    return refuse("--graph needs a GPU: give --device cuda:0");
  }
  at::set_num_threads(options.threads);
  at::globalContext().setFlushDenormal(true);
  const std::int64_t start_rss = resident_bytes();
  Bench bench(options, *architecture, *opened);
  bench.warm_up();
  if (options.graph && !bench.recorded()) {
    std::fprintf(stderr, "tailor-trainer bench: the step could not be recorded, see above\n");
    return static_cast<int>(protocol::TrainerExit::kInfrastructure);
  }
  bench.time_steps();
  // Before the phases: outside a graph the memory of its steps comes on top.
  const bool gpu = !opened->device.is_cpu();
  const std::int64_t device_bytes = gpu ? bench.peak_device_bytes() : 0;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const std::int64_t peak_rss = std::int64_t{usage.ru_maxrss} * 1024;
  if (!options.graph) bench.time_phases();

  const double step_s = median(bench.wall_s);
  const double tokens_per_s = static_cast<double>(options.batch * options.sequence_length) / step_s;
  const double flops = flops_per_token(*architecture, options.sequence_length);
  const double causal = shape::training_flops_per_token(*architecture, options.sequence_length);
  const std::optional<double> peak = options.bf16 ? dense_bf16_peak(opened->name) : std::nullopt;
  const std::int64_t parameters = shape::count_parameters(*architecture).total;
  if (options.json) {
    double cpu_s = 0;
    for (const double one : bench.cpu_s) cpu_s += one / static_cast<double>(bench.cpu_s.size());
    nlohmann::ordered_json out = {
        {"tokens_per_s", tokens_per_s},
        {"gflops", tokens_per_s * flops / 1e9},
        {"gflops_causal", tokens_per_s * causal / 1e9},
        {"flops_per_token", flops},
        {"flops_formula", kFormula},
        {"peak_gflops", nullptr},
        {"peak_share", nullptr},
        {"peak_rss", peak_rss},
        {"start_rss", start_rss},
        {"peak_device_bytes", nullptr},
        {"step_ms", step_s * 1e3},
        {"best_step_ms", *std::min_element(bench.wall_s.begin(), bench.wall_s.end()) * 1e3},
        {"cpu_s_per_step", cpu_s},
        {"best_cpu_s_per_step", *std::min_element(bench.cpu_s.begin(), bench.cpu_s.end())},
        {"phases_s", nullptr},
        {"parameters", parameters},
        {"device", opened->name},
        {"graph", options.graph},
        {"any_order", options.any_order},
        {"threads", options.threads},
        {"dtype", options.bf16 ? "bf16" : "f32"},
        {"batch", options.batch},
        {"seq", options.sequence_length}};
    if (peak) {
      out["peak_gflops"] = *peak / 1e9;
      out["peak_share"] = tokens_per_s * flops / *peak;
    }
    if (gpu) out["peak_device_bytes"] = device_bytes;
    if (!options.graph) {
      out["phases_s"] = {{"loader", bench.phases_s[0]},
                         {"forward", bench.phases_s[1]},
                         {"backward", bench.phases_s[2]},
                         {"update", bench.phases_s[3]}};
    }
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("{}: {:.0f} tokens/s, {:.1f} ms a step, {} parameters\n", opened->name, tokens_per_s,
             step_s * 1e3, parameters);
  fmt::print("{:.1f} GFLOP/s", tokens_per_s * flops / 1e9);
  if (peak) {
    fmt::print(", {:.1f} % of the device's {:.0f} TFLOP/s (dense bf16)",
               100 * tokens_per_s * flops / *peak, *peak / 1e12);
  }
  fmt::print("\n  counted as {}; {:.1f} counted causally\n", kFormula, tokens_per_s * causal / 1e9);
  if (!options.graph) {
    fmt::print("loader {:.1f} ms, forward {:.1f}, backward {:.1f}, clipping and AdamW {:.1f}\n",
               bench.phases_s[0] * 1e3, bench.phases_s[1] * 1e3, bench.phases_s[2] * 1e3,
               bench.phases_s[3] * 1e3);
  }
  if (gpu)
    fmt::print("peak {:.0f} MiB on the device, ", static_cast<double>(device_bytes) / (1 << 20));
  else
    fmt::print("peak ");
  fmt::print("{:.0f} MiB of memory ({:.0f} at the start)\n",
             static_cast<double>(peak_rss) / (1 << 20), static_cast<double>(start_rss) / (1 << 20));
  return 0;
}

}  // namespace tailor::trainer
