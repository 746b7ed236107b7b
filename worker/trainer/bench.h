// `tailor-trainer bench`: how fast training steps of a shape are on this machine.
#pragma once

#include <cstdint>
#include <string>

namespace tailor::trainer {

struct BenchOptions {
  std::string architecture_file;  ///< ARCH.toml
  std::string device = "cpu";     ///< or "cuda:N"
  std::int64_t batch = 16;        ///< sequences of one step
  std::int64_t micro_batch = 0;   ///< sequences of one forward pass; 0: all
  std::int64_t sequence_length = 128;
  bool bf16 = false;
  bool any_order = false;  ///< sums in any order: kernels that trials do not take (GPU)
  bool graph = false;      ///< record the step once and replay it (GPU)
  int threads = 1;
  int steps = 10;  ///< timed, after those that warm up
  bool json = false;
};

/// Prints speed, model FLOP/s, their share of the device's dense peak where that is known, time by
/// phase and peak memory to stdout; docs/cli.md describes the JSON.
/// Returns the program's exit code.
int run_bench(const BenchOptions& options);

}  // namespace tailor::trainer
