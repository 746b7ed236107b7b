// Finds and loads the plugin; what it does is in geometry/cuda.
#include "geometry/accelerator.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <optional>

#include "base/file.h"
#include "base/text.h"
#include "geometry/cuda/plugin.h"

namespace tailor::geometry {

Result<std::unique_ptr<Accelerator>> open_accelerator(std::string_view name,
                                                      const std::string& folder) {
  if (name == "cpu") return std::unique_ptr<Accelerator>();
  const std::optional<int> index = cuda_index(name);
  if (!index) {
    return error(Code::kInvalidArgument,
                 fmt::format("unknown device \"{}\"; known: cpu, cuda:N", name));
  }
  const std::string path = (folder.empty() ? program_folder() : folder) + "/" + cuda::kPluginFile;
  void* plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    return error(
        Code::kFailedPrecondition,
        fmt::format("{} needs {}, which cannot be loaded: {}. Build with nvcc present (preset "
                    "cuda), or use cpu",
                    name, path, ::dlerror()));
  }
  const auto open = reinterpret_cast<cuda::OpenFunction*>(::dlsym(plugin, cuda::kOpenSymbol));
  if (open == nullptr) {
    return error(Code::kFailedPrecondition,
                 fmt::format("{} is of another version of Tailor: build both together", path));
  }
  std::string reason;
  std::unique_ptr<Accelerator> opened(open(*index, &reason));
  if (!opened) {
    return error(Code::kFailedPrecondition, fmt::format("{} cannot be used: {}", name, reason));
  }
  return opened;
}

}  // namespace tailor::geometry
