#include "coordinator/rpc/watch_stream.h"

#include <utility>

#include "coordinator/rpc/convert_rows.h"

namespace tailor::rpc {
namespace {

constexpr std::size_t kWatchBatch = 256;

}  // namespace

class WatchStream::Reactor final : public grpc::ServerWriteReactor<v1::Event> {
 public:
  explicit Reactor(std::shared_ptr<WatchStream> stream) : stream_(std::move(stream)) {}
  void OnWriteDone(bool ok) override { stream_->written(ok); }
  void OnCancel() override { stream_->end(Status(Code::kCancelled, "the caller left")); }
  void OnDone() override { delete this; }

 private:
  std::shared_ptr<WatchStream> stream_;
};

grpc::ServerWriteReactor<v1::Event>* WatchStream::start(grpc::CallbackServerContext* context,
                                                        UnreadBudget& budget) {
  auto* reactor = new Reactor(shared_from_this());  // deleted in OnDone
  context_ = context;
  reactor_ = reactor;
  share_.emplace(budget, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cut_off();
  });
  return reactor;
}

void WatchStream::begin(std::function<Result<std::optional<SweepId>>()> resolve) {
  const bool posted = pool_.post([self = shared_from_this(), resolve = std::move(resolve)] {
    auto sweep = resolve();
    if (!sweep.has_value()) return self->end(sweep.error());
    const std::scoped_lock lock(self->mutex_);
    self->sweep_ = *sweep;
    self->started_ = true;
    self->pump();
  });
  if (!posted) end(Status(Code::kResourceExhausted, "too many calls are waiting"));
}

void WatchStream::heard() {
  const std::scoped_lock lock(mutex_);
  more_ = true;
  pump();
}

void WatchStream::end(const Status& status) {
  const std::scoped_lock lock(mutex_);
  if (!ending_.has_value()) ending_ = status;
  pump();
}

void WatchStream::cut_off() {
  const std::scoped_lock lock(mutex_);
  // A status of our own would wait behind what the client does not read.
  if (reactor_ != nullptr) context_->TryCancel();
}

void WatchStream::written(bool ok) {
  bool last = false;
  {
    // `writing_` stays set: nothing starts before the budget knows.
    const std::scoped_lock lock(mutex_);
    buffer_.pop_front();
    last = buffer_.empty();
  }
  static_cast<void>(share_->hold(last ? 0 : held_, !last));  // no more than before
  const std::scoped_lock lock(mutex_);
  writing_ = false;
  if (!ok && !ending_.has_value()) ending_ = Status(Code::kCancelled, "the caller left");
  pump();
}

void WatchStream::pump() {
  if (reactor_ == nullptr || writing_) return;
  if (ending_.has_value()) {
    std::exchange(reactor_, nullptr)->Finish(to_grpc(*ending_));
    if (hook_) hook_("WatchEvents", ending_->code());
    return;
  }
  if (!started_ || fetching_) return;
  if (!buffer_.empty()) {
    writing_ = true;
    reactor_->StartWrite(&buffer_.front());
    return;
  }
  if (more_) {
    more_ = false;
    fetching_ = pool_.post([self = shared_from_this()] { self->fetch(); });
    if (fetching_) return;
    ending_ = Status(Code::kResourceExhausted, "too many calls are waiting");
    return pump();
  }
  if (!follow_) {
    ending_ = Status::ok();
    pump();
  }
}

void WatchStream::fetch() {
  auto rows = views_.store().events(after_, kWatchBatch, sweep_);
  std::deque<v1::Event> events;
  Status status;
  if (!rows.has_value()) {
    status = rows.error();
  } else if (!rows->empty()) {
    held_ = 0;
    for (const storage::EventRow& row : *rows) {
      events.push_back(to_proto(row));
      held_ += events.back().ByteSizeLong();
    }
    status = share_->hold(held_, true);
  }
  const std::scoped_lock lock(mutex_);
  fetching_ = false;
  if (!status) {
    if (!ending_.has_value()) ending_ = status;
  } else {
    buffer_ = std::move(events);  // it was empty
    if (!rows->empty()) after_ = rows->back().id;
    if (rows->size() == kWatchBatch) more_ = true;
  }
  pump();
}

}  // namespace tailor::rpc
