#include "coordinator/engine/work_pool.h"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

namespace tailor::engine {

WorkPool::WorkPool(std::size_t threads, std::size_t queue_max, int nice) : queue_max_(queue_max) {
  for (std::size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this, nice] {
      // Linux: of the calling thread alone. Where it is not allowed the work runs as it is.
      if (nice != 0) (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice);
      run();
    });
  }
}

std::size_t WorkPool::waiting() const {
  const std::scoped_lock lock(mutex_);
  return queue_.size();
}

WorkPool::~WorkPool() { stop(); }

bool WorkPool::post(std::function<void()> work) {
  const std::scoped_lock lock(mutex_);
  if (stopping_ || queue_.size() >= queue_max_) return false;
  queue_.push_back(std::move(work));
  wake_.notify_one();
  return true;
}

void WorkPool::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  threads_.clear();  // joins
}

void WorkPool::run() {
  for (;;) {
    std::function<void()> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace tailor::engine
