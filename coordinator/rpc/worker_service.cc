#include "coordinator/rpc/worker_service.h"

#include <fmt/format.h>

#include <deque>
#include <optional>
#include <utility>

#include "base/logging.h"
#include "coordinator/rpc/convert_rows.h"
#include "protocol/convert.h"
#include "protocol/limits.h"

namespace tailor::rpc {
namespace {

/// Messages of one worker that the engine may hold; then the stream is not read until some are
/// committed, so a flood is stopped by HTTP/2 flow control and not by memory.
constexpr std::size_t kInFlightMax = 16;
/// Messages that a worker has not taken yet. One that reads nothing is cut off;
/// it comes back with a Hello.
constexpr std::size_t kUnsentMax = 20'000;

/// Streams among which ended ones may be left standing.
constexpr std::size_t kFewSessions = 64;

}  // namespace

/// One worker stream: the engine's sink on one side, gRPC's reactor on the other. One read and one
/// write are in flight at most. Lives until both have let go.
class WorkerSession final : public engine::SessionSink,
                            public std::enable_shared_from_this<WorkerSession> {
 public:
  using Stream = grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>;
  using CallHook = std::function<void(std::string_view, Code)>;

  /// `version` is the coordinator's. What is referred to must outlive it.
  WorkerSession(engine::Engine& engine, const std::string& version, const CallHook& hook)
      : engine_(engine), version_(version), hook_(hook) {}

  Stream* start() {
    auto* reactor = new Reactor(shared_from_this());  // deleted in OnDone
    const std::scoped_lock lock(mutex_);
    reactor_ = reactor;
    read_next();
    return reactor;
  }

  void send(protocol::CoordinatorMessage message) override {
    v1::CoordinatorMessage proto;
    protocol::to_proto(message, &proto);
    const std::scoped_lock lock(mutex_);
    if (reactor_ == nullptr || ending_.has_value()) return;
    if (unsent_.size() >= kUnsentMax) {
      ending_ = Status(Code::kResourceExhausted,
                       fmt::format("the worker has not taken {} messages", unsent_.size()));
      unsent_.resize(writing_ ? 1 : 0);
    } else {
      unsent_.push_back(std::move(proto));
    }
    write_next();
  }

  void close(const Status& status) override {
    const std::scoped_lock lock(mutex_);
    if (!ending_.has_value()) ending_ = status;
    write_next();
  }

 private:
  class Reactor final : public Stream {
   public:
    explicit Reactor(std::shared_ptr<WorkerSession> session) : session_(std::move(session)) {}
    void OnReadDone(bool ok) override { session_->read(ok); }
    void OnWriteDone(bool ok) override { session_->written(ok); }
    void OnCancel() override {
      session_->gone(Status(Code::kCancelled, "the worker's connection was lost"));
    }
    void OnDone() override {
      session_->gone(Status::ok());
      delete this;
    }

   private:
    std::shared_ptr<WorkerSession> session_;
  };

  /// REQUIRES: mutex_ held.
  void read_next() {
    if (reactor_ == nullptr || reading_ || ending_.has_value() || in_flight_ >= kInFlightMax)
      return;
    reading_ = true;
    incoming_.Clear();
    reactor_->StartRead(&incoming_);
  }

  /// Sends the next message, or finishes once everything before the end is sent.
  /// REQUIRES: mutex_ held.
  void write_next() {
    if (reactor_ == nullptr || writing_) return;
    if (!unsent_.empty()) {
      writing_ = true;
      reactor_->StartWrite(&unsent_.front());
    } else if (ending_.has_value()) {
      std::exchange(reactor_, nullptr)->Finish(to_grpc(*ending_));
      if (hook_) hook_("Session", ending_->code());
    }
  }

  void read(bool ok) {
    if (ok && passes_over()) return;
    std::optional<protocol::WorkerMessage> message;
    {
      // `reading_` stays set until this message is posted: the next one must not overtake it.
      const std::scoped_lock lock(mutex_);
      if (reactor_ == nullptr) return;
      if (ok) {
        auto converted = converted_message();
        if (converted.has_value()) {
          message = std::move(*converted);
          ++in_flight_;
        } else {
          ending_ = converted.error();
        }
      }
    }
    // The worker has closed its side: a session that only listens is of no use.
    if (!ok) return gone(Status::ok());
    if (!message.has_value()) return gone(Status(Code::kInvalidArgument, "bad message"));
    const auto done = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->dealt_with();
    };
    // Nothing is read meanwhile, so nobody else opens the session.
    core::SessionId id = 0;
    {
      const std::scoped_lock lock(mutex_);
      id = id_;
    }
    if (id != 0) {
      engine_.session_message(id, std::move(*message), done);
    } else if (auto* hello = std::get_if<protocol::Hello>(&*message)) {
      id = engine_.open_session(shared_from_this(), std::move(*hello), done);
    } else {
      return gone(Status(Code::kInvalidArgument, "the first message of a session must be Hello"));
    }
    bool lost = false;  // while it was being opened
    {
      const std::scoped_lock lock(mutex_);
      id_ = id;
      reading_ = false;
      if (over_) lost = !std::exchange(told_, true);
      read_next();
    }
    if (lost) engine_.close_session(id);
  }

  /// A message that only newer versions know is no reason to end the session: the worker would come
  /// back and send it again. True when it was one, and the next is awaited.
  bool passes_over() {
    bool first = false;
    {
      const std::scoped_lock lock(mutex_);
      if (!protocol::is_of_another_version(incoming_)) return false;
      first = !std::exchange(passed_over_, true);
      reading_ = false;
      read_next();
    }
    if (first) {
      log_warn("rpc", "a worker sends messages that this version does not know; they are ignored");
    }
    if (hook_) hook_("Session.unknown_message", Code::kUnimplemented);
    return true;
  }

  /// REQUIRES: mutex_ held.
  Result<protocol::WorkerMessage> converted_message() const {
    TAILOR_ASSIGN_OR_RETURN(auto message, protocol::from_proto(incoming_));
    if (const auto* hello = std::get_if<protocol::Hello>(&message)) {
      TAILOR_RETURN_IF_ERROR(
          protocol::check_version(hello->version, version_).with_context("worker and coordinator"));
    }
    return message;
  }

  void dealt_with() {
    const std::scoped_lock lock(mutex_);
    --in_flight_;
    read_next();
  }

  void written(bool ok) {
    {
      const std::scoped_lock lock(mutex_);
      writing_ = false;
      unsent_.pop_front();
      if (ok) {
        write_next();
        return;
      }
      unsent_.clear();
    }
    gone(Status(Code::kCancelled, "the worker's connection was lost"));
  }

  /// The stream is over for `why`; the engine is told once.
  void gone(const Status& why) {
    core::SessionId id = 0;
    {
      const std::scoped_lock lock(mutex_);
      if (!ending_.has_value()) ending_ = why;
      over_ = true;
      if (id_ != 0 && !std::exchange(told_, true)) id = id_;
      write_next();
    }
    if (id != 0) engine_.close_session(id);
  }

  engine::Engine& engine_;
  const std::string& version_;
  const CallHook& hook_;
  std::mutex mutex_;        // guards: all below
  core::SessionId id_ = 0;  // 0 until the Hello was posted
  Stream* reactor_ = nullptr;
  v1::WorkerMessage incoming_;
  std::deque<v1::CoordinatorMessage> unsent_;
  std::size_t in_flight_ = 0;
  bool reading_ = false;  // a read is in flight, or what it brought is not posted yet
  bool writing_ = false;
  bool passed_over_ = false;  // a message that this version does not know has come
  bool over_ = false;         // the stream has ended, whoever ended it
  bool told_ = false;         // ... and the engine knows
  std::optional<Status> ending_;
};

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* WorkerServiceImpl::Session(
    grpc::CallbackServerContext*) {
  auto session = std::make_shared<WorkerSession>(engine_, version_, on_call_);
  auto* reactor = session->start();
  bool closed = false;
  {
    const std::scoped_lock lock(mutex_);
    closed = closed_;
    // Ended ones are looked for now and then, not by each of ten thousand that come at once.
    if (sessions_.size() >= look_at_) {
      std::erase_if(sessions_, [](const auto& weak) { return weak.expired(); });
      look_at_ = 2 * sessions_.size() + kFewSessions;
    }
    if (!closed) sessions_.push_back(session);
  }
  if (closed) session->close(Status(Code::kUnavailable, "the coordinator is shutting down"));
  return reactor;
}

void WorkerServiceImpl::close_streams() {
  std::vector<std::weak_ptr<WorkerSession>> sessions;
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    sessions.swap(sessions_);
  }
  for (const auto& weak : sessions) {
    if (const auto session = weak.lock()) {
      session->close(Status(Code::kUnavailable, "the coordinator is shutting down"));
    }
  }
}

}  // namespace tailor::rpc
