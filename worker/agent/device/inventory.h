// Inventory: what this node can run trials on, as slots.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "protocol/messages.h"
#include "worker/agent/device/nvml.h"

namespace tailor::agent {

/// One GPU as the driver names it.
struct Gpu {
  std::string visible;  ///< its name for CUDA_VISIBLE_DEVICES: an index or a UUID
  std::string name;
  std::uint64_t memory_bytes = 0;
  std::int32_t index = -1;  ///< for Nvml; -1 = not known
};

/// The slots, and for each the CUDA_VISIBLE_DEVICES of its trainers
/// ("" for a CPU slot: no GPU is seen).
struct Inventory {
  std::vector<protocol::Slot> slots;
  std::vector<std::string> visible_devices;
  std::vector<std::int32_t> device_indices;  ///< for Nvml, by slot; -1 = none
};

struct InventoryOptions {
  std::string device = "auto";        ///< "auto": GPUs where there are any; "cpu"; "gpu"
  std::int32_t slots = 0;             ///< CPU slots; 0 = one
  std::int32_t threads_per_slot = 0;  ///< 0 = the cores, shared out evenly, at least one each
};

/// The GPUs that slots are made of, and what a person should know about those that are not.
struct FoundGpus {
  std::vector<Gpu> gpus;
  std::vector<std::string> notes;
};

/// GPUs of this node by their UUIDs, in the driver's order. `allowed` is CUDA_VISIBLE_DEVICES,
/// which a batch system may have set (null = all): indices of that order or the beginnings of
/// UUIDs; what it names and the driver does not list (an instance of a GPU, "MIG-...") is taken as
/// it is. A GPU that is cut into instances is not used as a whole. `nvml` is null where there is no
/// driver.
FoundGpus find_gpus(Nvml* nvml, const char* allowed);

/// CPU cores this process may use (its affinity mask).
std::int32_t usable_cores();

/// Errors: kFailedPrecondition when "gpu" is asked for and there is none.
Result<Inventory> make_inventory(const InventoryOptions& options, const std::vector<Gpu>& gpus,
                                 std::int32_t cores);

}  // namespace tailor::agent
