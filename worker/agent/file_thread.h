// FileThread: the one thread that touches the files of one attempt, so that a file system that
// hangs costs that attempt and never the loop, its heartbeats or another attempt.
//
// Jobs run in the order in which they were posted. Answers go through Deliveries back to the loop.
// A thread that hangs in the system is left behind when its owner goes: jobs hold what they need by
// value, and must not refer to the owner.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tailor::agent {

/// Closures for the loop's thread. Threads: `post` from any, the rest from the loop's.
class Deliveries {
 public:
  Deliveries();
  ~Deliveries();
  Deliveries(const Deliveries&) = delete;
  Deliveries& operator=(const Deliveries&) = delete;

  void post(std::function<void()> delivery);
  /// All posted so far, in order.
  std::vector<std::function<void()>> take();
  /// Readable while there is something to take.
  int fd() const { return event_fd_; }

 private:
  int event_fd_;
  std::mutex mutex_;  // guards: waiting_
  std::vector<std::function<void()>> waiting_;
};

/// Threads: one owner.
class FileThread {
 public:
  FileThread();
  /// Lets what was posted be done, for at most `kLeaveMs`; then the thread is on its own.
  ~FileThread();
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  /// `name` says what it does, for people ("writing the lease"). `patient`: it may take long (a
  /// checkpoint that is fetched) and is no sign of a hung file system.
  void post(std::string name, std::function<void()> job, bool patient = false);

  /// The job that runs, if it is not a patient one.
  struct Running {
    std::string name;
    MonotonicMs since_ms = 0;  ///< SystemClock
  };
  std::optional<Running> running() const;
  /// Nothing runs and nothing waits.
  bool idle() const;

 private:
  static constexpr std::int64_t kLeaveMs = 2'000;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tailor::agent
