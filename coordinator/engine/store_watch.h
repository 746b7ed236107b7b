// StoreWatch: looks after the store from outside the engine's thread, which may be waiting for it:
// a commit that does not come back, a database file that was removed. Whoever asks hears of it at
// once, whatever the disk does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "storage/store.h"

namespace tailor::engine {

/// Threads: any. `store` and `clock` must outlive it.
class StoreWatch {
 public:
  struct Trouble {
    Status reason;  ///< ok = none
    WallMs since_ms = 0;
  };

  /// A commit that lasts `hung_ms` or longer is said to hang; 0 = never. `changed` is called on the
  /// watch's own thread when trouble begins or ends.
  StoreWatch(const storage::Store& store, const Clock& clock, std::int64_t hung_ms,
             std::function<void()> changed);
  ~StoreWatch() { stop(); }
  StoreWatch(const StoreWatch&) = delete;
  StoreWatch& operator=(const StoreWatch&) = delete;

  void commit_begins();
  void commit_ended();
  /// Why nothing can be stored at the moment.
  Trouble trouble() const;
  /// Not ok when the file is gone: what would be committed now is lost with the process.
  Status lost() const;
  /// Ends the thread. Idempotent.
  void stop();

 private:
  void run();
  /// REQUIRES: mutex_ held.
  Trouble trouble_now() const;

  const storage::Store& store_;
  const Clock& clock_;
  const std::int64_t hung_ms_;
  const std::function<void()> changed_;
  mutable std::mutex mutex_;  // guards: all below but the thread
  std::condition_variable wake_;
  std::optional<MonotonicMs> committing_since_;
  WallMs committing_wall_ms_ = 0;
  Trouble lost_;
  bool stopping_ = false;
  std::once_flag stopped_;
  std::thread thread_;
};

}  // namespace tailor::engine
