// `tailor-trainer bench`: how fast training steps of a shape are on this machine.
#pragma once

#include <cstdint>
#include <string>

namespace tailor::trainer {

struct BenchOptions {
  std::string architecture_file;  ///< ARCH.toml
  std::int64_t batch = 16;        ///< sequences of one step
  std::int64_t sequence_length = 128;
  bool bf16 = false;
  int threads = 1;
  int steps = 10;  ///< timed, after two that are not
  bool json = false;
};

/// Prints to stdout: tokens_per_s (of the median step), gflops (training FLOPs of model/shape/count.h a
/// second), peak_rss (bytes), step_ms, parameters. Returns the program's exit code.
int run_bench(const BenchOptions& options);

}  // namespace tailor::trainer
