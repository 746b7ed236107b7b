// See inventory.h.
#include "worker/agent/device/inventory.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/text.h"

namespace tailor::agent {

std::vector<Gpu> parse_nvidia_smi(std::string_view csv) {
  std::vector<Gpu> gpus;
  for (const std::string_view line : split(csv, '\n')) {
    // The name may hold commas: the index is before the first, the memory behind the last.
    const std::size_t first = line.find(',');
    const std::size_t last = line.rfind(',');
    if (first == std::string_view::npos || last == first) continue;
    const std::string_view index = trim(line.substr(0, first));
    const std::string_view memory = trim(line.substr(last + 1));
    std::uint32_t number = 0;
    std::uint64_t mib = 0;
    const auto whole = [](std::string_view text, auto& value) {
      const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
      return failure == std::errc() && end == text.data() + text.size();
    };
    if (!whole(index, number)) continue;
    if (!whole(memory, mib)) mib = 0;  // "[N/A]" on some devices
    gpus.push_back({std::string(index), std::string(trim(line.substr(first + 1, last - first - 1))),
                    mib * 1024 * 1024});
  }
  return gpus;
}

std::vector<Gpu> find_gpus() {
  std::vector<Gpu> gpus;
  const auto close = [](std::FILE* pipe) { ::pclose(pipe); };
  if (const std::unique_ptr<std::FILE, decltype(close)> pipe(
          ::popen("nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits "
                  "2>/dev/null",
                  "re"),
          close);
      pipe) {
    std::string output;
    char block[4096];
    for (std::size_t got; (got = std::fread(block, 1, sizeof block, pipe.get())) > 0;) {
      output.append(block, got);
    }
    gpus = parse_nvidia_smi(output);
  }
  if (gpus.empty()) {
    std::error_code failure;
    std::size_t count = 0;
    for (std::filesystem::directory_iterator it("/proc/driver/nvidia/gpus", failure), end;
         !failure && it != end; it.increment(failure)) {
      gpus.push_back({std::to_string(count++), "GPU", 0});
    }
  }
  const char* allowed = std::getenv("CUDA_VISIBLE_DEVICES");
  if (allowed == nullptr) return gpus;
  std::vector<Gpu> kept;
  for (const std::string_view entry : split(allowed, ',')) {
    const std::string name(trim(entry));
    if (name.empty() || name == "-1") break;  // CUDA reads no further either
    const auto found =
        std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.visible == name; });
    if (found != gpus.end()) {
      kept.push_back(*found);
    } else if (name.rfind("GPU-", 0) == 0 || name.rfind("MIG-", 0) == 0) {
      kept.push_back({name, "GPU", 0});
    }
  }
  return kept;
}

std::int32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(CPU_COUNT(&set), 1);
}

Result<Inventory> make_inventory(const InventoryOptions& options, const std::vector<Gpu>& gpus,
                                 std::int32_t cores) {
  Inventory inventory;
  const bool use_gpus = options.device == "gpu" || (options.device == "auto" && !gpus.empty());
  if (use_gpus && gpus.empty()) {
    return error(
        Code::kFailedPrecondition,
        "device is \"gpu\" but no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES, "
        "or use --device cpu");
  }
  const std::int32_t count =
      use_gpus ? static_cast<std::int32_t>(gpus.size()) : std::max(options.slots, 1);
  const std::int32_t threads =
      options.threads_per_slot > 0 ? options.threads_per_slot : std::max(cores / count, 1);
  for (std::int32_t i = 0; i < count; ++i) {
    protocol::Slot slot;
    slot.index = static_cast<std::uint32_t>(i);
    slot.threads = threads;
    if (use_gpus) {
      const Gpu& gpu = gpus[static_cast<std::size_t>(i)];
      slot.kind = protocol::DeviceKind::kGpu;
      slot.name = gpu.name;
      slot.memory_bytes = gpu.memory_bytes;
      inventory.visible_devices.push_back(gpu.visible);
    } else {
      slot.kind = protocol::DeviceKind::kCpu;
      slot.name = "cpu";
      inventory.visible_devices.emplace_back();
    }
    inventory.slots.push_back(std::move(slot));
  }
  return inventory;
}

}  // namespace tailor::agent
