// Uploader: brings checkpoints to the coordinator, one at a time and the newest first, on a thread
// of its own. One that waits is replaced by a newer one of its trial. What cannot be brought now is
// tried again under back-off, while others are brought; a coordinator that keeps none is asked
// again with the next checkpoint.
#pragma once

#include <functional>
#include <memory>

#include "worker/agent/link.h"

namespace tailor::agent {

/// Threads: one owner.
class Uploader {
 public:
  /// Called on the uploader's thread, or in `post`, when an upload is over, whatever came of it,
  /// also of one that was replaced; not after the destructor has ended.
  using Over = std::function<void(const protocol::AttemptRef&, std::int64_t step)>;

  /// `store` may be null: everything is over at once.
  Uploader(std::shared_ptr<CheckpointStore> store, std::int64_t retry_ms, Over over);
  /// Gives up what is on its way, and waits for it at most `kLeaveMs`: a thread that hangs in a
  /// file system is left behind, with the store.
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  void post(const protocol::AttemptRef& ref, const protocol::CheckpointReport& checkpoint);

 private:
  static constexpr std::int64_t kLeaveMs = 2'000;
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tailor::agent
