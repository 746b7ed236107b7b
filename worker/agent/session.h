// SessionClient: the stream to the coordinator over gRPC (callback API). The only file of the agent
// that sees gRPC and generated messages is session.cc.
//
// Reactions convert, post an event and return; nothing blocks gRPC's threads. Reconnecting is not
// here: step() decides when to open the next stream.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "worker/agent/event.h"
#include "worker/agent/link.h"

namespace tailor::agent {

class SessionClient final : public Link {
 public:
  /// `target` is host:port. `post` is called from gRPC's threads, until the destructor returns.
  SessionClient(const std::string& target, std::function<void(AgentEvent)> post);
  /// Cancels what is open and waits for it.
  ~SessionClient() override;

  void open(std::uint64_t session) override;
  void close(std::uint64_t session) override;
  void send(std::uint64_t session, const protocol::WorkerMessage& message) override;

  /// Sends what is queued, says goodbye and waits for the coordinator to close, at most `limit_ms`.
  void finish(std::int64_t limit_ms);

 private:
  class Stream;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tailor::agent
