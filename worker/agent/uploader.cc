// See uploader.h.
#include "worker/agent/uploader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/logging.h"

namespace tailor::agent {
namespace {

constexpr std::int64_t kRetryMsMax = 60'000;
constexpr int kTriesMax = 20;

/// Worth another try: the other side, or the way to it, may recover.
bool may_recover(Code code) {
  return code == Code::kUnavailable || code == Code::kResourceExhausted ||
         code == Code::kDeadlineExceeded || code == Code::kAborted || code == Code::kDataLoss;
}

bool keeps_none(Code code) {
  return code == Code::kFailedPrecondition || code == Code::kUnimplemented;
}

}  // namespace

struct Uploader::Shared {
  struct Job {
    protocol::AttemptRef ref;
    protocol::CheckpointReport checkpoint;
  };
  CheckpointStore* store = nullptr;
  std::int64_t retry_ms = 0;
  Over over;
  std::atomic<bool> leaving{false};
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<Job> jobs;  // newest first, one a trial
  std::thread thread;

  /// True when time has passed, false when the uploader ends.
  bool pause(std::int64_t ms) {
    std::unique_lock lock(mutex);
    return !changed.wait_for(lock, std::chrono::milliseconds(ms),
                             [this] { return leaving.load(); });
  }
  bool replaced(const Job& job) {
    const std::scoped_lock lock(mutex);
    return std::any_of(jobs.begin(), jobs.end(), [&](const Job& other) {
      return other.ref.attempt.trial == job.ref.attempt.trial;
    });
  }

  void bring(const Job& job) {
    const auto say = [&](const char* what, const Status& status) {
      log_warn("uploader", what,
               {{"attempt", job.ref.attempt.to_string()},
                {"step", std::to_string(job.checkpoint.step)},
                {"reason", status.message()}});
    };
    std::int64_t delay = retry_ms;
    for (int tries = 1; !leaving; ++tries) {
      const Status status =
          store->upload(job.ref, job.checkpoint, [&] { return leaving.load() || replaced(job); });
      if (status.is_ok()) {
        log_info("uploader", "a checkpoint is with the coordinator",
                 {{"attempt", job.ref.attempt.to_string()},
                  {"step", std::to_string(job.checkpoint.step)}});
        return;
      }
      if (status.code() == Code::kCancelled || replaced(job)) return;  // a newer one is next
      if (keeps_none(status.code())) {
        log_debug("uploader", "the coordinator keeps no checkpoints",
                  {{"reason", status.message()}});
        return;
      }
      if (!may_recover(status.code()) || tries == kTriesMax) {
        return say("a checkpoint cannot be brought to the coordinator; it stays here", status);
      }
      if (tries == 1) say("a checkpoint cannot be brought to the coordinator yet", status);
      if (!pause(delay)) return;
      delay = std::min(2 * delay, kRetryMsMax);
    }
  }

  void run() {
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return leaving.load() || !jobs.empty(); });
        if (leaving) return;
        job = std::move(jobs.front());
        jobs.pop_front();
      }
      if (store != nullptr) bring(job);
      if (!leaving) over(job.ref, job.checkpoint.step);
    }
  }
};

Uploader::Uploader(CheckpointStore* store, std::int64_t retry_ms, Over over)
    : shared_(std::make_unique<Shared>()) {
  shared_->store = store;
  shared_->retry_ms = retry_ms;
  shared_->over = std::move(over);
  shared_->thread = std::thread([shared = shared_.get()] { shared->run(); });
}

Uploader::~Uploader() {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->leaving = true;
  }
  shared_->changed.notify_all();
  shared_->thread.join();
}

void Uploader::post(const protocol::AttemptRef& ref, const protocol::CheckpointReport& checkpoint) {
  std::deque<Shared::Job> replaced;
  {
    const std::scoped_lock lock(shared_->mutex);
    const auto older = [&](const Shared::Job& job) {
      return job.ref.attempt.trial == ref.attempt.trial;
    };
    for (const Shared::Job& job : shared_->jobs) {
      if (older(job)) replaced.push_back(job);
    }
    std::erase_if(shared_->jobs, older);
    shared_->jobs.push_front({ref, checkpoint});
  }
  shared_->changed.notify_all();
  for (const Shared::Job& job : replaced) shared_->over(job.ref, job.checkpoint.step);
}

}  // namespace tailor::agent
