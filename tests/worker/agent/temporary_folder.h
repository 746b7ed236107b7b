// A folder that goes away with the test, and waiting on a condition.
#pragma once

#include <poll.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <string>

#include "base/clock.h"

namespace tailor::agent {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tailor_worker_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Asks every 5 ms until `condition` holds; false when it still does not after `limit_ms`.
inline bool eventually(const std::function<bool()>& condition, std::int64_t limit_ms = 20'000) {
  const SystemClock clock;
  const MonotonicMs deadline = clock.now_ms() + limit_ms;
  while (!condition()) {
    if (clock.now_ms() > deadline) return false;
    ::poll(nullptr, 0, 5);
  }
  return true;
}

}  // namespace tailor::agent
