#include "tests/bench/load/fleet.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "protocol/channel.h"

namespace tailor::load {

using protocol::from_grpc;

namespace {

constexpr std::int64_t kCallMs = 60'000;

void give_time(grpc::ClientContext& context) {
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_millis(kCallMs, GPR_TIMESPAN)));
}

}  // namespace

Fleet::Fleet(const std::string& target, const std::string& prefix, std::size_t count,
             std::uint32_t slots, Work work)
    : work_(std::move(work)) {
  for (std::size_t i = 0; i < count; ++i) {
    beats_.push_back(std::make_unique<Beat>());
    auto worker = std::make_unique<SimulatedWorker>(fmt::format("{}-{}", prefix, i), target, slots);
    worker->on_message = [this, i](SimulatedWorker& w, const v1::CoordinatorMessage& message) {
      hear(i, w, message);
    };
    worker->on_closed = [this, i](SimulatedWorker&, const grpc::Status& status) {
      if (beats_[i]->welcomed.exchange(false)) --welcomed_;
      if (leaving_) return;
      ++closed_early_;
      const std::scoped_lock lock(mutex_);
      if (reason_.empty()) reason_ = status.error_message();
    };
    workers_.push_back(std::move(worker));
  }
}

Fleet::~Fleet() {
  stop_beating();
  disconnect();
}

std::string Fleet::first_reason() const {
  const std::scoped_lock lock(mutex_);
  return reason_;
}

void Fleet::hear(std::size_t index, SimulatedWorker& worker,
                 const v1::CoordinatorMessage& message) {
  Beat& beat = *beats_[index];
  if (message.has_heartbeat_ack()) {
    const double now = steady_seconds();
    const std::uint64_t serial = message.heartbeat_ack().serial();
    const std::scoped_lock lock(beat.mutex);
    if (serial <= beat.serial && serial + 16 > beat.serial) {
      heartbeat_acks_.add(now - beat.sent_at[serial % 16]);
    }
    return;
  }
  if (message.has_welcome()) {
    welcomes_.add(steady_seconds() - worker.opened_at());
    if (!beat.welcomed.exchange(true)) ++welcomed_;
  }
  if (work_) work_(worker, message);
}

Result<double> Fleet::connect(double limit_s) {
  leaving_ = false;
  const double begin = steady_seconds();
  while (welcomed_ < workers_.size()) {
    for (const auto& worker : workers_) {
      if (!worker->is_open() && worker->wait_closed(0)) worker->open();
    }
    if (steady_seconds() - begin > limit_s) {
      return error(
          Code::kDeadlineExceeded,
          fmt::format("{} of {} workers were welcomed in {} s{}", welcomed_.load(), workers_.size(),
                      limit_s, first_reason().empty() ? "" : "; " + first_reason()));
    }
    sleep_s(0.005);
  }
  return steady_seconds() - begin;
}

void Fleet::send_beat(std::size_t index) {
  SimulatedWorker& worker = *workers_[index];
  if (!worker.is_open()) return;
  Beat& beat = *beats_[index];
  std::uint64_t serial = 0;
  {
    const std::scoped_lock lock(beat.mutex);
    serial = ++beat.serial;
    beat.sent_at[serial % 16] = steady_seconds();
  }
  v1::WorkerMessage message = heartbeat_message(serial);
  {
    const std::scoped_lock lock(worker.held_mutex);
    for (const auto& [trial, attempt] : worker.held) {
      *message.mutable_heartbeat()->add_running() = attempt.ref;
    }
  }
  worker.send(std::move(message));
  ++beats_sent_;
}

void Fleet::beat(double interval_s) {
  beating_ = std::jthread([this, interval_s](const std::stop_token& stop) {
    const double begin = steady_seconds();
    const double step = interval_s / static_cast<double>(workers_.size());
    for (std::uint64_t i = 0; !stop.stop_requested(); ++i) {
      const double due = begin + static_cast<double>(i) * step;
      // Long waits are cut up, so that a stop is heard.
      for (double wait = due - steady_seconds(); wait > 0 && !stop.stop_requested();
           wait = due - steady_seconds()) {
        sleep_s(std::min(wait, 0.05));
      }
      send_beat(i % workers_.size());
    }
  });
}

void Fleet::stop_beating() {
  if (!beating_.joinable()) return;
  beating_.request_stop();
  beating_.join();
}

void Fleet::disconnect() {
  leaving_ = true;
  for (const auto& worker : workers_) worker->cancel();
  for (const auto& worker : workers_) worker->wait_closed(60);
}

std::string sweep_toml(const std::string& name, std::uint64_t trials, int seeds) {
  const auto per_point = static_cast<std::uint64_t>(std::max(seeds, 1));
  const std::uint64_t points = std::max<std::uint64_t>((trials + per_point - 1) / per_point, 2);
  return fmt::format(R"(name = "{}"
[data]
train = "train.tokens"
validation = "validation.tokens"
sequence_length = 16
[architecture]
family = "llama"
d_model = 32
layers = 2
head_dim = 16
vocab_size = 256
ffn = {{ kind = "swiglu", d_h = 64 }}
[train]
tokens = 1024
batch = 64
[space]
"train.optimizer.lr" = {{ min = 0.000001, max = {:.6f}, step = 0.000001 }}
[seeds]
count = {}
)",
                     name, 1e-6 * static_cast<double>(points), per_point);
}

Client::Client(const std::string& target)
    : stub_(v1::CoordinatorService::NewStub(protocol::open_channel(target))) {}

Result<std::uint64_t> Client::submit(const std::string& name, std::uint64_t trials, int seeds,
                                     const std::string& more) {
  v1::SubmitSweepRequest request;
  request.set_toml(sweep_toml(name, trials, seeds) + more);
  request.set_file_name("bench.toml");
  request.set_base_dir("/data");
  v1::SubmitSweepResponse response;
  grpc::ClientContext context;
  give_time(context);
  const grpc::Status status = stub_->SubmitSweep(&context, request, &response);
  if (!status.ok()) return error(from_grpc(status));
  return response.sweep();
}

Status Client::cancel(std::uint64_t sweep) {
  v1::ControlSweepRequest request;
  request.mutable_sweep()->set_id(sweep);
  request.set_cancel(true);
  v1::ControlSweepResponse response;
  grpc::ClientContext context;
  give_time(context);
  return from_grpc(stub_->ControlSweep(&context, request, &response));
}

Result<double> Client::number(const std::string& sql) {
  v1::QueryRequest request;
  request.set_sql(sql);
  v1::QueryResponse response;
  grpc::ClientContext context;
  give_time(context);
  const grpc::Status status = stub_->Query(&context, request, &response);
  if (!status.ok()) return error(from_grpc(status));
  if (response.rows_size() != 1 || response.rows(0).cells_size() != 1) {
    return error(Code::kInternal, "the query did not give one number");
  }
  return std::strtod(response.rows(0).cells(0).text().c_str(), nullptr);
}

}  // namespace tailor::load
