// NodeWatch: looks at the node every few seconds (space on the disk of the trials folder, errors of
// its GPUs) on a thread that may hang with what it looks at. step() notices the silence.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/agent/device/nvml.h"
#include "worker/agent/event.h"

namespace tailor::agent {

/// What is wrong with GPUs now, compared with the start: "" = nothing. `asked` are those in use.
class GpuErrors {
 public:
  /// Takes the counts of the start. `nvml` may be null: nothing is ever wrong.
  GpuErrors(Nvml* nvml, std::vector<std::uint32_t> devices);
  std::string trouble();

 private:
  struct Counted {
    std::uint32_t index = 0;
    std::uint64_t errors = 0;
  };
  Nvml* nvml_;
  std::vector<Counted> devices_;
};

/// Free and total bytes of the file system of `folder`; 0 and 0 when it does not say.
NodeHealth look_at_disk(const std::string& folder);

/// Threads: one owner.
class NodeWatch {
 public:
  /// Calls `look` at once and then every `every_ms`, and `post` with what it says, on a thread of
  /// its own. `post` is called until the destructor returns; `look` may hang for longer, and must
  /// hold what it needs.
  NodeWatch(std::function<NodeHealth()> look, std::int64_t every_ms,
            std::function<void(NodeHealth)> post);
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tailor::agent
