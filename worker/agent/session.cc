// The gRPC side of session.h.
#include "worker/agent/session.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/logging.h"
#include "protocol/channel.h"
#include "protocol/convert.h"
#include "tailor/v1/worker.grpc.pb.h"

namespace tailor::agent {

/// One stream. Keeps itself alive from `start` to OnDone.
class SessionClient::Stream final
    : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  Stream(std::uint64_t session, std::function<void(AgentEvent)> post)
      : session_(session), post_(std::move(post)) {}

  void start(v1::WorkerService::Stub& stub, std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    stub.async()->Session(&context_, this);
    AddHold();  // writes start outside of reactions; released when reading fails
    StartRead(&incoming_);
    post_(SessionOpened{session_});
    StartCall();
  }

  void send(const protocol::WorkerMessage& message) {
    v1::WorkerMessage proto;
    protocol::to_proto(message, &proto);
    const std::lock_guard lock(mutex_);
    if (closed_ || finishing_) return;
    queue_.push_back(std::move(proto));
    if (!writing_) write_next();
  }

  void cancel() { context_.TryCancel(); }

  void finish() {
    const std::lock_guard lock(mutex_);
    if (closed_ || finishing_) return;
    finishing_ = true;
    if (!writing_) StartWritesDone();
  }

  bool wait_done(std::int64_t limit_ms) { return ending_->wait(limit_ms); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        const std::lock_guard lock(mutex_);
        closed_ = true;
      }
      RemoveHold();
      return;
    }
    Result<protocol::CoordinatorMessage> message = protocol::from_proto(incoming_);
    if (message) {
      post_(Received{session_, *std::move(message)});
    } else {
      log_error("session", "ignored a message of the coordinator",
                {{"reason", message.error().message()}});
    }
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    queue_.pop_front();
    if (!ok || closed_) return;
    if (!queue_.empty()) {
      write_next();
    } else if (finishing_) {
      StartWritesDone();
    }
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Ending> ending = ending_;
    std::shared_ptr<Stream> self = std::move(self_);
    post_(SessionClosed{
        session_, status.ok() ? Status(Code::kUnavailable, "the coordinator closed the stream")
                              : protocol::from_grpc(status)});
    // Who waits may end the program at once: by then gRPC's threads hold nothing of the stream.
    self.reset();
    ending->set();
  }

  std::uint64_t session() const { return session_; }

 private:
  /// Whether something has ended. Threads: any.
  class Ending {
   public:
    void set() {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      changed_.notify_all();
    }
    bool wait(std::int64_t limit_ms) {
      std::unique_lock lock(mutex_);
      return changed_.wait_for(lock, std::chrono::milliseconds(limit_ms),
                               [this] { return ended_; });
    }

   private:
    std::mutex mutex_;  // guards: ended_
    std::condition_variable changed_;
    bool ended_ = false;
  };

  void write_next() {
    writing_ = true;
    StartWrite(&queue_.front());
  }

  const std::uint64_t session_;
  const std::function<void(AgentEvent)> post_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  std::shared_ptr<Stream> self_;
  const std::shared_ptr<Ending> ending_ = std::make_shared<Ending>();

  std::mutex mutex_;                     // guards what follows
  std::deque<v1::WorkerMessage> queue_;  // the front is being written while writing_
  bool writing_ = false;
  bool closed_ = false;  // reading has failed: no new writes
  bool finishing_ = false;
};

struct SessionClient::Impl {
  std::function<void(AgentEvent)> post;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::WorkerService::Stub> stub;
  std::shared_ptr<Stream> current;
  std::vector<std::shared_ptr<Stream>> former;  // closed, perhaps not yet done

  void retire() {
    if (current) former.push_back(std::move(current));
    std::erase_if(former, [](const auto& stream) { return stream->wait_done(0); });
  }
};

SessionClient::SessionClient(const std::string& target, std::function<void(AgentEvent)> post)
    : impl_(std::make_unique<Impl>()) {
  grpc::ChannelArguments arguments;
  // step() owns the back-off; the channel's own must not hold a due attempt back.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  // Finds a dead peer behind a NAT or a switched-off machine.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetMaxReceiveMessageSize(16 << 20);
  impl_->post = std::move(post);
  impl_->channel = protocol::open_channel(target, std::move(arguments));
  impl_->stub = v1::WorkerService::NewStub(impl_->channel);
}

SessionClient::~SessionClient() {
  impl_->retire();
  for (const auto& stream : impl_->former) stream->cancel();
  for (const auto& stream : impl_->former) {
    while (!stream->wait_done(10'000)) {
      log_warn("session", "still waiting for a stream to end");
    }
  }
}

void SessionClient::open(std::uint64_t session) {
  if (impl_->current) impl_->current->cancel();
  impl_->retire();
  impl_->current = std::make_shared<Stream>(session, impl_->post);
  impl_->current->start(*impl_->stub, impl_->current);
}

void SessionClient::close(std::uint64_t session) {
  if (impl_->current && impl_->current->session() == session) impl_->current->cancel();
}

void SessionClient::send(std::uint64_t session, const protocol::WorkerMessage& message) {
  if (impl_->current && impl_->current->session() == session) impl_->current->send(message);
}

void SessionClient::finish(std::int64_t limit_ms) {
  if (!impl_->current) return;
  impl_->current->finish();
  if (!impl_->current->wait_done(limit_ms)) impl_->current->cancel();
}

}  // namespace tailor::agent
