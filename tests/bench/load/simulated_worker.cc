#include "tests/bench/load/simulated_worker.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "protocol/channel.h"

namespace tailor::load {

class SimulatedWorker::Stream final
    : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  /// What is sent before `start` waits behind the hello.
  Stream(SimulatedWorker& worker, v1::WorkerMessage hello) : worker_(worker) {
    queue_.push_back(std::move(hello));
    writing_ = true;
  }

  void start(v1::WorkerService::Stub& stub) {
    stub.async()->Session(&context_, this);
    AddHold();  // writes start outside of reactions; released when reading fails
    StartRead(&incoming_);
    {
      const std::scoped_lock lock(mutex_);
      StartWrite(&queue_.front());
    }
    StartCall();
  }
  void send(v1::WorkerMessage message) {
    const std::scoped_lock lock(mutex_);
    if (closed_) return;
    queue_.push_back(std::move(message));
    if (writing_) return;
    writing_ = true;
    StartWrite(&queue_.front());
  }
  void cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        const std::scoped_lock lock(mutex_);
        closed_ = true;
      }
      RemoveHold();
      return;
    }
    if (worker_.on_message) worker_.on_message(worker_, incoming_);
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    const std::scoped_lock lock(mutex_);
    queue_.pop_front();
    writing_ = ok && !closed_ && !queue_.empty();
    if (writing_) StartWrite(&queue_.front());
  }
  void OnDone(const grpc::Status& status) override {
    SimulatedWorker& worker = worker_;
    worker.open_ = false;
    if (worker.on_closed) worker.on_closed(worker, status);
    {
      const std::scoped_lock lock(worker.mutex_);
      worker.stream_ = nullptr;  // nobody sends or cancels any more
    }
    delete this;  // before anybody hears of it: the process may end then
    const std::scoped_lock lock(worker.mutex_);
    worker.gone_ = true;
    worker.closed_.notify_all();
  }

 private:
  SimulatedWorker& worker_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  std::mutex mutex_;  // guards what follows
  std::deque<v1::WorkerMessage> queue_;
  bool writing_ = false;
  bool closed_ = false;
};

SimulatedWorker::SimulatedWorker(std::string name, const std::string& target, std::uint32_t slots)
    : name_(std::move(name)), slots_(slots) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  stub_ = v1::WorkerService::NewStub(protocol::open_channel(target, std::move(arguments)));
}

SimulatedWorker::~SimulatedWorker() {
  cancel();
  while (!wait_closed(60)) {
  }
}

v1::WorkerMessage SimulatedWorker::hello() {
  v1::WorkerMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_worker_name(name_);
  hello.set_instance(name_);
  hello.set_version(TAILOR_VERSION);
  hello.set_host("localhost");
  for (std::uint32_t i = 0; i < slots_; ++i) {
    v1::Slot& slot = *hello.add_slots();
    slot.set_index(i);
    slot.set_kind(v1::DEVICE_KIND_CPU);
    slot.set_name("cpu");
    slot.set_threads(1);
  }
  const std::scoped_lock lock(held_mutex);
  std::uint32_t index = 0;
  for (const auto& [trial, attempt] : held) {
    v1::HeldAttempt& kept = *hello.add_held();
    *kept.mutable_ref() = attempt.ref;
    kept.add_slots(index++);
    kept.set_running(true);
    kept.set_acked_sequence(attempt.acked);
  }
  return message;
}

void SimulatedWorker::open() {
  auto* stream = new Stream(*this, hello());  // deleted in OnDone
  opened_at_ = steady_seconds();
  {
    const std::scoped_lock lock(mutex_);
    stream_ = stream;
    gone_ = false;
    open_ = true;
  }
  stream->start(*stub_);
}

void SimulatedWorker::send(v1::WorkerMessage message) {
  const std::scoped_lock lock(mutex_);
  if (stream_ != nullptr) stream_->send(std::move(message));
}

void SimulatedWorker::cancel() {
  const std::scoped_lock lock(mutex_);
  if (stream_ != nullptr) stream_->cancel();
}

bool SimulatedWorker::wait_closed(double limit_s) {
  std::unique_lock lock(mutex_);
  return closed_.wait_for(lock, std::chrono::duration<double>(limit_s),
                          [this] { return gone_; });
}

v1::WorkerMessage report_message(const v1::AttemptRef& ref, v1::Report report) {
  v1::WorkerMessage message;
  *message.mutable_reports()->mutable_ref() = ref;
  *message.mutable_reports()->add_reports() = std::move(report);
  return message;
}

v1::AttemptRef ref_of(const v1::TrialSpec& spec) {
  v1::AttemptRef ref;
  ref.set_trial(spec.trial());
  ref.set_attempt(spec.attempt());
  ref.set_token(spec.token());
  return ref;
}

v1::Report end_report(std::uint64_t sequence, double loss) {
  v1::Report report;
  report.set_sequence(sequence);
  report.set_wall_ms(SystemClock().wall_ms());
  v1::EndReport& end = *report.mutable_end();
  end.set_end(v1::END_CLASS_COMPLETED);
  end.set_step(static_cast<std::int64_t>(sequence));
  (*end.mutable_values())["validation_loss"] = loss;
  return report;
}

v1::Report metric_report(std::uint64_t sequence, std::int64_t step, int values, bool fp32) {
  static const std::vector<std::string> kNames = {"train_loss", "grad_norm", "lr", "tokens_per_s",
                                                  "m4",         "m5",        "m6", "m7"};
  v1::Report report;
  report.set_sequence(sequence);
  report.set_wall_ms(SystemClock().wall_ms());
  v1::MetricReport& metrics = *report.mutable_metric();
  metrics.set_step(step);
  metrics.set_tokens(step * 4096);
  for (int i = 0; i < values; ++i) {
    const std::string name = i < 8 ? kNames[static_cast<std::size_t>(i)] : fmt::format("m{}", i);
    const double value = 3 + std::sin(static_cast<double>(step) * 0.7 + i) / (1 + i);
    (*metrics.mutable_values())[name] = fp32 ? static_cast<float>(value) : value;
  }
  return report;
}

v1::WorkerMessage heartbeat_message(std::uint64_t serial) {
  v1::WorkerMessage message;
  message.mutable_heartbeat()->set_serial(serial);
  message.mutable_heartbeat()->set_wall_ms(SystemClock().wall_ms());
  return message;
}

}  // namespace tailor::load
