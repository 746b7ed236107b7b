// Turning "cpu" or "cuda:N" into a device that can be used.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace tailor::trainer {

/// A usable device and its name for people.
struct OpenDevice {
  at::Device device{at::kCPU};
  std::string name = "cpu";
};

/// "cpu", or "cuda:N": then libtailor_cuda.so, which stands beside this program, is loaded with
/// CUDA's libraries. Errors: kInvalidArgument (another word), kFailedPrecondition saying which
/// library or GPU is missing.
Result<OpenDevice> open_device(std::string_view name);

}  // namespace tailor::trainer
