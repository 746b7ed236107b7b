// A stream of messages to one client, made one at a time as the client takes them (private to
// coordinator/rpc): whatever the whole answer's size, the server holds one message of it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "coordinator/engine/work_pool.h"
#include "coordinator/rpc/call.h"

namespace tailor::rpc {

/// Asks `next` in a pool for message after message, until nullopt or an error ends the stream.
/// Lives until gRPC and the pool have let go of it. Threads: any. The pool and the hook must
/// outlive it.
template <typename Message>
class PullStream : public std::enable_shared_from_this<PullStream<Message>> {
 public:
  /// Run by one thread at a time; may block for a short read.
  using Next = std::function<Result<std::optional<Message>>(const PullStream&)>;

  /// True when nobody waits for more.
  bool over() const {
    const std::scoped_lock lock(mutex_);
    return reactor_ == nullptr;
  }

  /// The reactor that gRPC owns until OnDone. When the pool has no room even for the first message
  /// the stream ends with kResourceExhausted.
  static grpc::ServerWriteReactor<Message>* start(engine::WorkPool& pool, std::string_view method,
                                                  const CallHook& hook, Next next) {
    auto stream = std::make_shared<PullStream>(pool, method, hook, std::move(next));
    auto* reactor = new Reactor(stream);  // deleted in OnDone
    stream->reactor_ = reactor;
    stream->pull();
    return reactor;
  }

  PullStream(engine::WorkPool& pool, std::string_view method, const CallHook& hook, Next next)
      : pool_(pool), method_(method), hook_(hook), next_(std::move(next)) {}

 private:
  class Reactor final : public grpc::ServerWriteReactor<Message> {
   public:
    explicit Reactor(std::shared_ptr<PullStream> stream) : stream_(std::move(stream)) {}
    void OnWriteDone(bool ok) override {
      if (ok) return stream_->pull();
      stream_->finish(Status(Code::kCancelled, "the caller left"));
    }
    void OnCancel() override { stream_->finish(Status(Code::kCancelled, "the caller left")); }
    void OnDone() override { delete this; }

   private:
    std::shared_ptr<PullStream> stream_;
  };

  void pull() {
    const bool posted = pool_.post([self = this->shared_from_this()] {
      if (!self->over()) self->write(self->next_(*self));
    });
    if (!posted) finish(Status(Code::kResourceExhausted, "too many calls are waiting"));
  }

  void write(Result<std::optional<Message>> made) {
    if (!made.has_value()) return finish(made.error());
    if (!made->has_value()) return finish(Status::ok());
    const std::scoped_lock lock(mutex_);
    if (reactor_ == nullptr) return;
    message_ = std::move(**made);
    reactor_->StartWrite(&message_);
  }

  void finish(const Status& status) {
    {
      const std::scoped_lock lock(mutex_);
      if (reactor_ == nullptr) return;
      std::exchange(reactor_, nullptr)->Finish(to_grpc(status));
    }
    if (hook_) hook_(method_, status.code());
  }

  engine::WorkPool& pool_;
  const std::string_view method_;
  const CallHook& hook_;
  Next next_;
  mutable std::mutex mutex_;                              // guards: reactor_, message_
  grpc::ServerWriteReactor<Message>* reactor_ = nullptr;  // null once finished
  Message message_;
};

}  // namespace tailor::rpc
