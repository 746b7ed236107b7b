// Mailbox: how other threads (gRPC's) hand events to the loop.
// Its descriptor wakes the loop's poll().
#pragma once

#include <mutex>
#include <vector>

#include "worker/agent/event.h"

namespace tailor::agent {

/// Threads: `post` from any, the rest from the loop's.
class Mailbox {
 public:
  Mailbox();
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void post(AgentEvent event);
  /// All events posted so far, in order.
  std::vector<AgentEvent> take();
  /// Readable while there is something to take.
  int fd() const { return event_fd_; }

 private:
  int event_fd_;
  std::mutex mutex_;  // guards: events_
  std::vector<AgentEvent> events_;
};

}  // namespace tailor::agent
