// See file_thread.h.
#include "worker/agent/file_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>

#include "base/check.h"

namespace tailor::agent {

Deliveries::Deliveries() : event_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TAILOR_CHECK(event_fd_ >= 0, "no event descriptor: raise the limit of open files (ulimit -n)");
}

Deliveries::~Deliveries() { ::close(event_fd_); }

void Deliveries::post(std::function<void()> delivery) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(delivery));
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t told = ::write(event_fd_, &one, sizeof one);
}

std::vector<std::function<void()>> Deliveries::take() {
  const std::lock_guard lock(mutex_);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(event_fd_, &count, sizeof count);
  return std::exchange(waiting_, {});
}

struct FileThread::Shared {
  struct Job {
    std::string name;
    std::function<void()> work;
    bool patient = false;
  };
  const SystemClock clock;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<Job> jobs;
  bool working = false;
  bool patient = false;
  Running running;
  bool leaving = false;
  bool ended = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return leaving || !jobs.empty(); });
      if (jobs.empty()) break;
      Job job = std::move(jobs.front());
      jobs.pop_front();
      running = {job.name, clock.now_ms()};
      patient = job.patient;
      working = true;
      lock.unlock();
      job.work();
      job.work = nullptr;  // what it held goes before it counts as done
      lock.lock();
      working = false;
    }
    ended = true;
    changed.notify_all();
  }
};

FileThread::FileThread() : shared_(std::make_shared<Shared>()) {
  std::thread([shared = shared_] { shared->run(); }).detach();
}

FileThread::~FileThread() {
  std::unique_lock lock(shared_->mutex);
  shared_->leaving = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, std::chrono::milliseconds(kLeaveMs),
                            [this] { return shared_->ended; });
}

void FileThread::post(std::string name, std::function<void()> job, bool patient) {
  const std::lock_guard lock(shared_->mutex);
  shared_->jobs.push_back({std::move(name), std::move(job), patient});
  shared_->changed.notify_all();
}

std::optional<FileThread::Running> FileThread::running() const {
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->working || shared_->patient) return std::nullopt;
  return shared_->running;
}

bool FileThread::idle() const {
  const std::lock_guard lock(shared_->mutex);
  return !shared_->working && shared_->jobs.empty();
}

}  // namespace tailor::agent
