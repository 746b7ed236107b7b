// Link: the loop's way to the coordinator. session.h is the real one (gRPC); tests have their own.
#pragma once

#include <cstdint>

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

}  // namespace tailor::agent
