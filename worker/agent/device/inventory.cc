// See inventory.h.
#include "worker/agent/device/inventory.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "base/text.h"
#include "protocol/limits.h"

namespace tailor::agent {

FoundGpus find_gpus(Nvml* nvml, const char* allowed) {
  FoundGpus found;
  std::vector<Gpu> all;
  if (nvml != nullptr) {
    const auto devices = nvml->devices(&found.notes);
    if (!devices) found.notes.push_back(devices.error().message());
    for (const Nvml::Device& device : devices.value_or(std::vector<Nvml::Device>())) {
      if (device.mig) {
        found.notes.push_back(
            fmt::format("GPU {} ({}, {}) is cut into instances (MIG) and not used; name instances "
                        "in CUDA_VISIBLE_DEVICES to use them",
                        device.index, device.name, device.uuid));
        continue;
      }
      all.push_back(
          {device.uuid, device.name, device.memory_bytes, static_cast<std::int32_t>(device.index)});
    }
  }
  if (allowed == nullptr) {
    found.gpus = std::move(all);
    return found;
  }
  for (const std::string_view entry : split(allowed, ',')) {
    const std::string name(trim(entry));
    if (name.empty() || name == "-1") break;  // CUDA reads no further either
    const auto named = std::find_if(all.begin(), all.end(), [&](const Gpu& gpu) {
      return std::to_string(gpu.index) == name ||
             (name.rfind("GPU-", 0) == 0 && gpu.visible.rfind(name, 0) == 0);
    });
    if (named != all.end()) {
      found.gpus.push_back(*named);
    } else if (name.rfind("GPU-", 0) == 0 || name.rfind("MIG-", 0) == 0) {
      found.gpus.push_back({name, "GPU", 0});
    } else {
      found.notes.push_back("CUDA_VISIBLE_DEVICES names " + name +
                            ", which the driver does not list");
    }
  }
  return found;
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
    return error(Code::kFailedPrecondition,
                 "device is \"gpu\" but no GPU is visible: check the driver (nvidia-smi) and "
                 "CUDA_VISIBLE_DEVICES, "
                 "or use --device cpu");
  }
  const std::int32_t count =
      use_gpus ? static_cast<std::int32_t>(gpus.size()) : std::max(options.slots, 1);
  if (static_cast<std::size_t>(count) > protocol::kSlotsMax) {
    return error(Code::kInvalidArgument,
                 fmt::format("{} slots; a coordinator takes workers of at most {}: start several "
                             "workers, each with a --work-dir of its own",
                             count, protocol::kSlotsMax));
  }
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
      inventory.device_indices.push_back(gpu.index);
    } else {
      slot.kind = protocol::DeviceKind::kCpu;
      slot.name = "cpu";
      inventory.visible_devices.emplace_back();
      inventory.device_indices.push_back(-1);
    }
    inventory.slots.push_back(std::move(slot));
  }
  return inventory;
}

}  // namespace tailor::agent
