// A stream of messages to one client, made one at a time as the client takes them (private to
// coordinator/rpc): whatever the whole answer's size, the server holds one message of it, and what
// its source says that it keeps. All streams together have an UnreadBudget.
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
#include "coordinator/rpc/unread_budget.h"

namespace tailor::rpc {

/// Asks `next` in a pool for message after message, until nullopt or an error ends the stream.
/// Lives until gRPC and the pool have let go of it. Threads: any. The pool, the hook and the budget
/// must outlive it.
template <typename Message>
class PullStream : public std::enable_shared_from_this<PullStream<Message>> {
 public:
  /// Run by one thread at a time; may block for a short read.
  using Next = std::function<Result<std::optional<Message>>(PullStream&)>;

  /// True when nobody waits for more.
  bool over() const {
    const std::scoped_lock lock(mutex_);
    return reactor_ == nullptr;
  }

  /// Said by `next`: how much it keeps from now on for messages to come. Errors:
  /// kResourceExhausted, which is to end the stream; never when it becomes less.
  Status keep(std::size_t bytes) {
    kept_ = bytes;
    return share_->hold(kept_, false);
  }

  /// The reactor that gRPC owns until OnDone. When the pool has no room even for the first message
  /// the stream ends with kResourceExhausted.
  static grpc::ServerWriteReactor<Message>* start(grpc::CallbackServerContext* context,
                                                  engine::WorkPool& pool, UnreadBudget& budget,
                                                  std::string_view method, const CallHook& hook,
                                                  Next next) {
    auto stream = std::make_shared<PullStream>(pool, method, hook, std::move(next));
    auto* reactor = new Reactor(stream);  // deleted in OnDone
    stream->context_ = context;
    stream->reactor_ = reactor;
    stream->share_.emplace(budget, [weak = std::weak_ptr(stream)] {
      if (const auto self = weak.lock()) self->cut_off();
    });
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
      if (ok) return stream_->taken();
      stream_->finish(Status(Code::kCancelled, "the caller left"));
    }
    void OnCancel() override { stream_->finish(Status(Code::kCancelled, "the caller left")); }
    void OnDone() override { delete this; }

   private:
    std::shared_ptr<PullStream> stream_;
  };

  void taken() {
    static_cast<void>(share_->hold(kept_, false));  // less than before
    pull();
  }

  void pull() {
    const bool posted = pool_.post([self = this->shared_from_this()] {
      if (!self->over()) self->write(self->next_(*self));
    });
    if (!posted) finish(Status(Code::kResourceExhausted, "too many calls are waiting"));
  }

  void write(Result<std::optional<Message>> made) {
    if (!made.has_value()) return finish(made.error());
    if (!made->has_value()) return finish(Status::ok());
    // gRPC has it a second time, in bytes.
    if (Status held = share_->hold(kept_ + 2 * (*made)->ByteSizeLong(), true); !held) {
      return finish(held);
    }
    const std::scoped_lock lock(mutex_);
    if (reactor_ == nullptr) return;
    message_ = std::move(**made);
    reactor_->StartWrite(&message_);
  }

  /// The client reads nothing while others need the room. A status of our own would wait behind
  /// what the client does not read: the call is cancelled, and OnCancel ends it.
  void cut_off() {
    const std::scoped_lock lock(mutex_);
    if (reactor_ != nullptr) context_->TryCancel();
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
  std::optional<UnreadBudget::Share> share_;        // constant once started
  std::size_t kept_ = 0;                            // of the one thread that runs next_ or writes
  grpc::CallbackServerContext* context_ = nullptr;  // there as long as reactor_ is
  mutable std::mutex mutex_;                        // guards: reactor_, message_
  grpc::ServerWriteReactor<Message>* reactor_ = nullptr;  // null once finished
  Message message_;
};

}  // namespace tailor::rpc
