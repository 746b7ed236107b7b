// See node_watch.h.
#include "worker/agent/node_watch.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/file.h"

namespace tailor::agent {

GpuErrors::GpuErrors(Nvml* nvml, std::vector<std::uint32_t> devices) : nvml_(nvml) {
  if (nvml == nullptr) return;
  for (const std::uint32_t index : devices) {
    const auto errors = nvml->uncorrected_errors(index);
    devices_.push_back({index, errors ? errors->value_or(0) : 0});
  }
}

std::string GpuErrors::trouble() {
  std::string text;
  for (const Counted& device : devices_) {
    const auto errors = nvml_->uncorrected_errors(device.index);
    std::string why;
    if (!errors) {
      why = errors.error().message();
    } else if (errors->value_or(0) > device.errors) {
      why = fmt::format(
          "GPU {} has had {} memory errors that cannot be corrected since this worker started: "
          "reset or replace it",
          device.index, errors->value_or(0) - device.errors);
    }
    if (!why.empty()) text += (text.empty() ? "" : "; ") + why;
  }
  return text;
}

NodeHealth look_at_disk(const std::string& folder) {
  struct statvfs status {};
  NodeHealth health;
  if (::statvfs(folder.c_str(), &status) != 0) {
    health.trouble = errno_status(errno, "look at the disk of", folder).message();
    return health;
  }
  health.disk_free_bytes = std::uint64_t{status.f_bavail} * status.f_frsize;
  health.disk_total_bytes = std::uint64_t{status.f_blocks} * status.f_frsize;
  return health;
}

struct Periodic::Shared {
  std::function<std::function<void()>()> look;
  std::int64_t every_ms = 0;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool leaving = false;
  bool ended = false;

  void run() {
    std::unique_lock lock(mutex);
    while (!leaving) {
      lock.unlock();
      const std::function<void()> tell = look();
      lock.lock();
      if (leaving) break;
      if (tell) tell();
      changed.wait_for(lock, std::chrono::milliseconds(every_ms), [this] { return leaving; });
    }
    ended = true;
    changed.notify_all();
  }
};

Periodic::Periodic(std::function<std::function<void()>()> look, std::int64_t every_ms)
    : shared_(std::make_shared<Shared>()) {
  shared_->look = std::move(look);
  shared_->every_ms = every_ms;
  std::thread([shared = shared_] { shared->run(); }).detach();
}

Periodic::~Periodic() {
  constexpr auto kLeave = std::chrono::seconds(2);
  std::unique_lock lock(shared_->mutex);
  shared_->leaving = true;  // nothing is told from now on
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kLeave, [this] { return shared_->ended; });
}

}  // namespace tailor::agent
