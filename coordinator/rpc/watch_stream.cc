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

grpc::ServerWriteReactor<v1::Event>* WatchStream::start() {
  auto* reactor = new Reactor(shared_from_this());  // deleted in OnDone
  reactor_ = reactor;
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

void WatchStream::written(bool ok) {
  const std::scoped_lock lock(mutex_);
  writing_ = false;
  buffer_.pop_front();
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
  const std::scoped_lock lock(mutex_);
  fetching_ = false;
  if (!rows.has_value()) {
    if (!ending_.has_value()) ending_ = rows.error();
  } else {
    for (const storage::EventRow& row : *rows) buffer_.push_back(to_proto(row));
    if (!rows->empty()) after_ = rows->back().id;
    if (rows->size() == kWatchBatch) more_ = true;
  }
  pump();
}

}  // namespace tailor::rpc
