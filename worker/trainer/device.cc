#include "worker/trainer/device.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace tailor::trainer {
namespace {

constexpr const char* kPlugin = "libtailor_cuda.so";

// Exported by the plugin (model/kernels/cuda/plugin.cc).
using DeviceCount = int();
using DeviceName = const char*(int);
using MakeGraph = kernels::Graph*(int);

// Words that all occur in a device's name, and its dense bf16 peak with fp32 sums, in TFLOP/s; the
// first line that fits counts. Data sheets of the maker; those that print the figure for sparse
// matrices are halved here. Consumer cards: the figure for fp32 accumulation.
struct Peak {
  std::array<std::string_view, 2> words;
  double tflops;
};
constexpr std::array kPeaks = {
    Peak{{"B200", ""}, 2250},     Peak{{"GH200", ""}, 989.4},  Peak{{"H200", "NVL"}, 835.5},
    Peak{{"H200", ""}, 989.4},    Peak{{"H100", "PCIe"}, 756}, Peak{{"H100", "NVL"}, 835.5},
    Peak{{"H100", ""}, 989.4},    Peak{{"H800", "PCIe"}, 756}, Peak{{"H800", ""}, 989.4},
    Peak{{"H20", ""}, 148},       Peak{{"A100", ""}, 312},     Peak{{"A800", ""}, 312},
    Peak{{"A30", ""}, 165},       Peak{{"A40", ""}, 149.7},    Peak{{"A10", ""}, 125},
    Peak{{"A6000", ""}, 154.8},   Peak{{"L40S", ""}, 362},     Peak{{"L40", ""}, 181},
    Peak{{"L4", ""}, 121},        Peak{{"3090", "RTX"}, 71},   Peak{{"4090", "RTX"}, 165.2},
    Peak{{"5090", "RTX"}, 209.5},
};

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0) continue;
    if (i > begin) words.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return words;
}

}  // namespace

Result<OpenDevice> open_device(std::string_view name) {
  if (name == "cpu") return OpenDevice{};
  const std::optional<int> index = cuda_index(name);
  if (!index || *index > 127) {
    return error(Code::kInvalidArgument,
                 fmt::format("device is \"{}\"; \"cpu\" or \"cuda:N\" is allowed", name));
  }
  const std::string path = program_folder() + "/" + kPlugin;
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
  const auto make_graph = reinterpret_cast<MakeGraph*>(::dlsym(plugin, "tailor_cuda_make_graph"));
  if (count == nullptr || device_name == nullptr || make_graph == nullptr) {
    return error(Code::kFailedPrecondition,
                 fmt::format("{} is of another version of Tailor: build both together", path));
  }
  if (*index >= count()) {
    return error(
        Code::kFailedPrecondition,
        fmt::format("{} is not there: {} GPUs are visible to this process", name, count()));
  }
  return OpenDevice{
      at::Device(at::kCUDA, static_cast<at::DeviceIndex>(*index)), device_name(*index),
      [make_graph, index = *index] { return std::unique_ptr<kernels::Graph>(make_graph(index)); }};
}

std::optional<double> dense_bf16_peak(std::string_view device_name) {
  const std::vector<std::string_view> words = words_of(device_name);
  const auto has = [&](std::string_view word) {
    return word.empty() || std::find(words.begin(), words.end(), word) != words.end();
  };
  // Cut-down relatives of a card have its name and one of these.
  for (const std::string_view word : {"MIG", "Laptop", "D", "Mobile"}) {
    if (has(word)) return std::nullopt;
  }
  for (const Peak& peak : kPeaks) {
    if (has(peak.words[0]) && has(peak.words[1])) return peak.tflops * 1e12;
  }
  return std::nullopt;
}

}  // namespace tailor::trainer
