// Inventory: what this node can run trials on, as slots.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "protocol/messages.h"

namespace tailor::agent {

/// One GPU as the driver names it.
struct Gpu {
  std::string visible;  ///< its name for CUDA_VISIBLE_DEVICES: an index or a UUID
  std::string name;
  std::uint64_t memory_bytes = 0;
};

/// The slots, and for each the CUDA_VISIBLE_DEVICES of its trainers
/// ("" for a CPU slot: no GPU is seen).
struct Inventory {
  std::vector<protocol::Slot> slots;
  std::vector<std::string> visible_devices;
};

struct InventoryOptions {
  std::string device = "auto";        ///< "auto": GPUs where there are any; "cpu"; "gpu"
  std::int32_t slots = 0;             ///< CPU slots; 0 = one
  std::int32_t threads_per_slot = 0;  ///< 0 = the cores, shared out evenly, at least one each
};

/// Parses `nvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader,nounits`. Lines of
/// another form are passed by.
std::vector<Gpu> parse_nvidia_smi(std::string_view csv);

/// GPUs of this node, those of CUDA_VISIBLE_DEVICES alone if a batch system set it. Empty without a
/// driver. Runs nvidia-smi where it is found, else counts /proc/driver/nvidia/gpus.
std::vector<Gpu> find_gpus();

/// CPU cores this process may use (its affinity mask).
std::int32_t usable_cores();

/// Errors: kFailedPrecondition when "gpu" is asked for and there is none.
Result<Inventory> make_inventory(const InventoryOptions& options, const std::vector<Gpu>& gpus,
                                 std::int32_t cores);

}  // namespace tailor::agent
