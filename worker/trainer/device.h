// Turning "cpu" or "cuda:N" into a device that can be used.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/kernels/graph.h"

namespace tailor::trainer {

/// A usable device and its name for people.
struct OpenDevice {
  at::Device device{at::kCPU};
  std::string name = "cpu";
  /// Makes CUDA graphs on it; empty on the CPU.
  std::function<std::unique_ptr<kernels::Graph>()> make_graph;
};

/// "cpu", or "cuda:N": then libtailor_cuda.so, which stands beside this program, is loaded with
/// CUDA's libraries. Errors: kInvalidArgument (another word), kFailedPrecondition saying which
/// library or GPU is missing.
Result<OpenDevice> open_device(std::string_view name);

/// Dense bf16 peak in FLOP/s of a GPU that calls itself so, from its maker's data sheet; nullopt
/// for the CPU, for GPUs that are not in the table and for parts of one (MIG):
/// there a share would be a guess.
std::optional<double> dense_bf16_peak(std::string_view device_name);

}  // namespace tailor::trainer
