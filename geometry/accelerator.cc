// Finds and loads the plugin; what it does is in geometry/cuda.
#include "geometry/accelerator.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "geometry/cuda/plugin.h"

namespace tailor::geometry {
namespace {

constexpr std::string_view kCuda = "cuda:";

}  // namespace

Result<std::unique_ptr<Accelerator>> open_accelerator(std::string_view name,
                                                      const std::string& folder) {
  if (name == "cpu") return std::unique_ptr<Accelerator>();
  int index = -1;
  if (name.starts_with(kCuda)) {
    const std::string_view digits = name.substr(kCuda.size());
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (failure != std::errc() || end != digits.data() + digits.size()) index = -1;
  }
  if (index < 0) {
    return error(Code::kInvalidArgument,
                 fmt::format("unknown device \"{}\"; known: cpu, cuda:N", name));
  }
  std::filesystem::path path = folder;
  if (folder.empty()) {
    std::error_code failure;
    path = std::filesystem::read_symlink("/proc/self/exe", failure).parent_path();
  }
  path /= cuda::kPluginFile;
  void* plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    return error(
        Code::kFailedPrecondition,
        fmt::format("{} needs {}, which cannot be loaded: {}. Build with nvcc present (preset "
                    "cuda), or use cpu",
                    name, path.string(), ::dlerror()));
  }
  const auto open = reinterpret_cast<cuda::OpenFunction*>(::dlsym(plugin, cuda::kOpenSymbol));
  if (open == nullptr) {
    return error(
        Code::kFailedPrecondition,
        fmt::format("{} is of another version of Tailor: build both together", path.string()));
  }
  std::string reason;
  std::unique_ptr<Accelerator> opened(open(index, &reason));
  if (!opened) {
    return error(Code::kFailedPrecondition, fmt::format("{} cannot be used: {}", name, reason));
  }
  return opened;
}

}  // namespace tailor::geometry
