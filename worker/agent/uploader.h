// Uploader: brings checkpoints to the coordinator, one at a time and the newest first, on a thread
// of its own. One that waits is replaced by a newer one of its trial. What cannot be brought now is
// tried again under back-off; a coordinator that keeps none is asked again after a while.
#pragma once

#include <functional>
#include <memory>

#include "worker/agent/link.h"

namespace tailor::agent {

/// Threads: one owner.
class Uploader {
 public:
  /// Called on the uploader's thread when an upload is over, whatever came of it, also of one that
  /// was replaced; not after the destructor has begun.
  using Over = std::function<void(const protocol::AttemptRef&, std::int64_t step)>;

  /// `store` may be null: everything is over at once. It must outlive the uploader.
  Uploader(CheckpointStore* store, std::int64_t retry_ms, Over over);
  /// Gives up what is on its way.
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  void post(const protocol::AttemptRef& ref, const protocol::CheckpointReport& checkpoint);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace tailor::agent
