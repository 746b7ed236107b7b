#include "coordinator/engine/store_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace tailor::engine {
namespace {

// How often the watch looks at a commit under way, and every how many such looks at the file.
constexpr std::chrono::milliseconds kLook{250};
constexpr int kLooksPerFileCheck = 4;

/// A store without a file is always there.
template <typename Store>
Status still_there(const Store& store) {
  if constexpr (requires { store.still_there(); }) return store.still_there();
  return Status::ok();
}

}  // namespace

StoreWatch::StoreWatch(const storage::Store& store, const Clock& clock, std::int64_t hung_ms,
                       std::function<void()> changed)
    : store_(store),
      clock_(clock),
      hung_ms_(hung_ms),
      changed_(std::move(changed)),
      thread_([this] { run(); }) {}

void StoreWatch::stop() {
  std::call_once(stopped_, [this] {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      wake_.notify_one();
    }
    thread_.join();
  });
}

void StoreWatch::commit_begins() {
  const std::scoped_lock lock(mutex_);
  committing_since_ = clock_.now_ms();
  committing_wall_ms_ = clock_.wall_ms();
}

void StoreWatch::commit_ended() {
  const std::scoped_lock lock(mutex_);
  committing_since_.reset();
}

StoreWatch::Trouble StoreWatch::trouble() const {
  const std::scoped_lock lock(mutex_);
  return trouble_now();
}

Status StoreWatch::lost() const {
  const std::scoped_lock lock(mutex_);
  return lost_.reason;
}

StoreWatch::Trouble StoreWatch::trouble_now() const {
  if (!lost_.reason.is_ok()) return lost_;
  if (hung_ms_ == 0 || !committing_since_.has_value()) return {};
  const std::int64_t lasts_ms = clock_.now_ms() - *committing_since_;
  if (lasts_ms < hung_ms_) return {};
  return {Status(Code::kUnavailable,
                 fmt::format("the disk of the database has not answered for {} s; look at the "
                             "machine's disk",
                             lasts_ms / 1'000)),
          committing_wall_ms_};
}

void StoreWatch::run() {
  bool troubled = false;
  std::unique_lock lock(mutex_);
  for (int look = 0; !stopping_; ++look) {
    if (look % kLooksPerFileCheck == 0) {
      lock.unlock();
      const Status there = still_there(store_);  // may hang with the disk, and then hangs alone
      lock.lock();
      if (there.is_ok() != lost_.reason.is_ok()) {
        // Whatever it is called there, it is no reason to end: the open file still gives a backup,
        // and a file that was moved away may come back.
        const Status lost = there.is_ok() ? there : Status(Code::kUnavailable, there.message());
        lost_ = {lost, clock_.wall_ms()};
      }
    }
    const bool now_troubled = !trouble_now().reason.is_ok();
    if (std::exchange(troubled, now_troubled) != now_troubled) {
      lock.unlock();
      changed_();
      lock.lock();
    }
    wake_.wait_for(lock, kLook, [this] { return stopping_; });
  }
}

}  // namespace tailor::engine
