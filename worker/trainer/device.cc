#include "worker/trainer/device.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <charconv>
#include <filesystem>

namespace tailor::trainer {
namespace {

constexpr std::string_view kCuda = "cuda:";
constexpr const char* kPlugin = "libtailor_cuda.so";

// Exported by the plugin (model/kernels/cuda/plugin.cc).
using DeviceCount = int();
using DeviceName = const char*(int);

}  // namespace

Result<OpenDevice> open_device(std::string_view name) {
  if (name == "cpu") return OpenDevice{};
  int index = -1;
  if (name.starts_with(kCuda)) {
    const std::string_view digits = name.substr(kCuda.size());
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (failure != std::errc() || end != digits.data() + digits.size()) index = -1;
  }
  if (index < 0 || index > 127) {
    return error(Code::kInvalidArgument,
                 fmt::format("device is \"{}\"; \"cpu\" or \"cuda:N\" is allowed", name));
  }
  std::error_code failure;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failure);
  const std::string path = (program.parent_path() / kPlugin).string();
  // Never closed: its kernels are registered with LibTorch's dispatcher.
  void* plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (plugin == nullptr) {
    return error(
        Code::kFailedPrecondition,
        fmt::format("{} needs {}, which cannot be loaded: {}. Build with nvcc present (preset "
                    "cuda) and install CUDA's run-time libraries, or use device \"cpu\"",
                    name, kPlugin, ::dlerror()));
  }
  const auto count = reinterpret_cast<DeviceCount*>(::dlsym(plugin, "tailor_cuda_device_count"));
  const auto device_name =
      reinterpret_cast<DeviceName*>(::dlsym(plugin, "tailor_cuda_device_name"));
  if (count == nullptr || device_name == nullptr) {
    return error(Code::kFailedPrecondition,
                 fmt::format("{} is of another version of Tailor: build both together", path));
  }
  if (index >= count()) {
    return error(
        Code::kFailedPrecondition,
        fmt::format("{} is not there: {} GPUs are visible to this process", name, count()));
  }
  return OpenDevice{at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index)), device_name(index)};
}

}  // namespace tailor::trainer
