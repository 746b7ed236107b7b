// See uploader.h.
#include "worker/agent/uploader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
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
    MonotonicMs due_ms = 0;     ///< not before; 0 = at once
    std::int64_t delay_ms = 0;  ///< after the next failure
    int tries = 0;              ///< so far
  };
  const SystemClock clock;
  std::shared_ptr<CheckpointStore> store;
  std::int64_t retry_ms = 0;
  Over over;
  std::atomic<bool> leaving{false};
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::deque<Job> jobs;  // newest first, one a trial
  bool telling = false;  // the thread is in `over`, or about to be
  bool ended = false;

  /// The first that is due. REQUIRES: the lock.
  std::optional<Job> take_due() {
    const MonotonicMs now = clock.now_ms();
    const auto due =
        std::find_if(jobs.begin(), jobs.end(), [&](const Job& job) { return job.due_ms <= now; });
    if (due == jobs.end()) return std::nullopt;
    Job job = std::move(*due);
    jobs.erase(due);
    return job;
  }
  /// Until something changes, or the next one is due. REQUIRES: the lock.
  void wait(std::unique_lock<std::mutex>& lock) {
    if (jobs.empty()) return changed.wait(lock);
    const auto next = std::min_element(
        jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.due_ms < b.due_ms; });
    const std::int64_t left = std::max<std::int64_t>(next->due_ms - clock.now_ms(), 1);
    changed.wait_for(lock, std::chrono::milliseconds(left));
  }
  /// REQUIRES: the lock.
  bool has_newer(const Job& job) const {
    return std::any_of(jobs.begin(), jobs.end(), [&](const Job& other) {
      return other.ref.attempt.trial == job.ref.attempt.trial;
    });
  }
  bool replaced(const Job& job) {
    const std::scoped_lock lock(mutex);
    return has_newer(job);
  }

  /// One try. False: it is worth another one, later.
  bool bring(const Job& job) {
    const auto say = [&](const char* what, const Status& status) {
      log_warn("uploader", what,
               {{"attempt", job.ref.attempt.to_string()},
                {"step", std::to_string(job.checkpoint.step)},
                {"reason", status.message()}});
    };
    const Status status =
        store->upload(job.ref, job.checkpoint, [&] { return leaving.load() || replaced(job); });
    if (status.is_ok()) {
      log_info("uploader", "a checkpoint is with the coordinator",
               {{"attempt", job.ref.attempt.to_string()},
                {"step", std::to_string(job.checkpoint.step)}});
      return true;
    }
    if (status.code() == Code::kCancelled) return true;  // a newer one is next
    if (keeps_none(status.code())) {
      log_debug("uploader", "the coordinator keeps no checkpoints", {{"reason", status.message()}});
      return true;
    }
    if (!may_recover(status.code()) || job.tries + 1 == kTriesMax) {
      say("a checkpoint cannot be brought to the coordinator; it stays here", status);
      return true;
    }
    if (job.tries == 0) say("a checkpoint cannot be brought to the coordinator yet", status);
    return false;
  }

  void run() {
    std::unique_lock lock(mutex);
    while (!leaving) {
      std::optional<Job> job = take_due();
      if (!job) {
        wait(lock);
        continue;
      }
      lock.unlock();
      const bool done = store == nullptr || bring(*job);
      lock.lock();
      if (leaving) break;
      if (!done && !has_newer(*job)) {
        // The others go first meanwhile.
        job->due_ms = clock.now_ms() + job->delay_ms;
        job->delay_ms = std::min(2 * job->delay_ms, kRetryMsMax);
        ++job->tries;
        jobs.push_back(*std::move(job));
        continue;
      }
      telling = true;
      lock.unlock();
      over(job->ref, job->checkpoint.step);
      lock.lock();
      telling = false;
      changed.notify_all();
    }
    ended = true;
    changed.notify_all();
  }
};

Uploader::Uploader(std::shared_ptr<CheckpointStore> store, std::int64_t retry_ms, Over over)
    : shared_(std::make_shared<Shared>()) {
  shared_->store = std::move(store);
  shared_->retry_ms = retry_ms;
  shared_->over = std::move(over);
  std::thread([shared = shared_] { shared->run(); }).detach();
}

Uploader::~Uploader() {
  std::unique_lock lock(shared_->mutex);
  shared_->leaving = true;
  shared_->changed.notify_all();
  shared_->changed.wait(lock, [this] { return !shared_->telling; });
  const bool ended = shared_->changed.wait_for(lock, std::chrono::milliseconds(kLeaveMs),
                                               [this] { return shared_->ended; });
  if (ended) return;
  log_warn("uploader", "an upload does not end: it is left behind",
           {{"waited_ms", std::to_string(kLeaveMs)}});
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
    shared_->jobs.push_front({ref, checkpoint, 0, shared_->retry_ms, 0});
  }
  shared_->changed.notify_all();
  for (const Shared::Job& job : replaced) shared_->over(job.ref, job.checkpoint.step);
}

}  // namespace tailor::agent
