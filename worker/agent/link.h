// Link: the loop's way to the coordinator. session.h is the real one (gRPC); tests have their own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "protocol/messages.h"

namespace tailor::agent {

/// Numbered streams, at most one wanted at a time. What happens on them comes back as events.
/// Threads: called from the loop's thread alone; no call blocks.
class Link {
 public:
  virtual ~Link() = default;
  virtual void open(std::uint64_t session) = 0;
  virtual void close(std::uint64_t session) = 0;
  /// Dropped when `session` is not the open stream.
  virtual void send(std::uint64_t session, const protocol::WorkerMessage& message) = 0;
};

/// The coordinator's artifact store, as a worker uses it. Calls block and may take as long as the
/// transfer does; they return kCancelled soon after `give_up` says so (asked now and then).
/// Threads: any.
class CheckpointStore {
 public:
  using GiveUp = std::function<bool()>;
  virtual ~CheckpointStore() = default;
  /// Brings the checkpoint in the report's folder. Errors: kUnavailable, kResourceExhausted,
  /// kDeadlineExceeded, kAborted, kDataLoss (it was changed on its way): later, perhaps;
  /// kFailedPrecondition, kUnimplemented: this coordinator keeps none; others: this one cannot be
  /// brought, kNotFound also when it is damaged here.
  virtual Status upload(const protocol::AttemptRef& ref, const protocol::CheckpointReport& report,
                        const GiveUp& give_up) = 0;
  /// Fetches a checkpoint of the trial of `ref`, the live attempt that needs it, into `folder`,
  /// which must not exist: verified, synced, and there as a whole or not at all. Goes on with what
  /// an earlier call for the same checkpoint has left beside it.
  virtual Status fetch(const protocol::AttemptRef& ref, const protocol::StoredCheckpoint& stored,
                       const std::string& folder, const GiveUp& give_up) = 0;
};

}  // namespace tailor::agent
