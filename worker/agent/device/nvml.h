// Nvml: what NVIDIA's driver says about its GPUs, through its management library, found at run
// time. The few declarations that are needed are this project's own (nvml.cc); no header of CUDA
// is.
//
// Calls ask the driver, which may hang with a broken device: call from a thread that may.
// Threads: any, as the library allows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tailor::agent {

class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  /// Errors: kNotFound when there is no such library (no driver); kUnavailable when it fails, with
  /// its reason.
  static Result<std::unique_ptr<Nvml>> open(const std::string& library = kLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  struct Device {
    std::uint32_t index = 0;  ///< the driver's order, which need not be CUDA's
    std::string uuid;         ///< "GPU-...": what CUDA_VISIBLE_DEVICES takes whatever the order
    std::string name;
    std::uint64_t memory_bytes = 0;
    bool mig = false;  ///< cut into instances: the whole cannot be used
  };
  /// A device that does not answer is left out and named in `*trouble`. Errors: kUnavailable.
  Result<std::vector<Device>> devices(std::vector<std::string>* trouble);

  /// Bytes of memory in use. Errors: kUnavailable with the driver's reason ("GPU is lost").
  Result<std::uint64_t> memory_in_use(std::uint32_t index);
  /// Memory errors since the driver was loaded that could not be corrected; nullopt where the
  /// device does not count them. Errors: kUnavailable.
  Result<std::optional<std::uint64_t>> uncorrected_errors(std::uint32_t index);

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  Result<void*> handle(std::uint32_t index);

  std::unique_ptr<Library> library_;
};

}  // namespace tailor::agent
