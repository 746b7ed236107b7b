// What a node's health is read from (space on the disk of the trials folder, errors of its GPUs),
// and the thread on which it is read, which may hang with what it looks at: step() notices the
// silence.
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

/// Free and total bytes of the file system of `folder`; or the system's reason as the trouble.
NodeHealth look_at_disk(const std::string& folder);

/// Does something every so often on a thread that may hang with it. Threads: one owner.
class Periodic {
 public:
  /// Calls `look` at once and then every `every_ms`, on the thread; what it returns, if anything,
  /// is called there too, unless the destructor has begun. So `look` may hang for longer than its
  /// owner lives and must hold what it needs; what it returns need not.
  Periodic(std::function<std::function<void()>()> look, std::int64_t every_ms);
  ~Periodic();
  Periodic(const Periodic&) = delete;
  Periodic& operator=(const Periodic&) = delete;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tailor::agent
