// WorkPool: a few threads for work that may take longer than a callback should (reads, parsing,
// backups). Bounded, so that a flood is refused and not stored up.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tailor::engine {

class WorkPool {
 public:
  /// `nice` is added to the threads' own priority (19 = whatever nobody else wants), so that long
  /// work takes no processor from short one. REQUIRES: threads >= 1.
  WorkPool(std::size_t threads, std::size_t queue_max, int nice = 0);
  /// Stops as `stop` does.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  /// False when the queue is full or the pool has stopped; `work` is then not run. Threads: any.
  bool post(std::function<void()> work);
  /// How much is queued and not begun. Threads: any.
  std::size_t waiting() const;
  /// Runs what is queued and ends the threads. Idempotent. Not from a pool thread.
  void stop();

 private:
  void run();
  const std::size_t queue_max_;
  mutable std::mutex mutex_;  // guards: queue_, stopping_
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace tailor::engine
