// Many simulated workers and what they have in common: connecting, heartbeats, sweeps to work on.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "tailor/v1/coordinator.grpc.pb.h"
#include "tests/bench/load/coordinator_process.h"
#include "tests/bench/load/measure.h"
#include "tests/bench/load/simulated_worker.h"

namespace tailor::load {

class Fleet {
 public:
  /// Assignments, acknowledgements of reports and stops, on gRPC's threads.
  using Work = std::function<void(SimulatedWorker&, const v1::CoordinatorMessage&)>;

  Fleet(const std::string& target, const std::string& prefix, std::size_t count,
        std::uint32_t slots, Work work);
  /// Ends the heartbeats and closes every stream.
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  /// Opens every stream that is not open; the seconds until all were welcomed. Streams that end
  /// meanwhile are opened again. Errors: kDeadlineExceeded.
  Result<double> connect(double limit_s);
  /// Every worker beats once in `interval_s`, evenly spread, from now on.
  void beat(double interval_s);
  void stop_beating();
  /// Cancels every stream at once and waits until all are gone.
  void disconnect();

  std::vector<std::unique_ptr<SimulatedWorker>>& workers() { return workers_; }
  Times& heartbeat_acks() { return heartbeat_acks_; }
  Times& welcomes() { return welcomes_; }  ///< from opening the stream to the Welcome
  std::uint64_t beats_sent() const { return beats_sent_.load(); }
  std::uint64_t closed_early() const { return closed_early_.load(); }
  /// The first reason why a stream that should have stayed was closed.
  std::string first_reason() const;

 private:
  struct Beat {
    std::mutex mutex;  // guards: serial, sent_at
    std::uint64_t serial = 0;
    std::array<double, 16> sent_at{};  // by serial % 16
    std::atomic<bool> welcomed{false};
  };

  void hear(std::size_t index, SimulatedWorker& worker, const v1::CoordinatorMessage& message);
  void send_beat(std::size_t index);

  const Work work_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  std::vector<std::unique_ptr<Beat>> beats_;
  Times heartbeat_acks_, welcomes_;
  std::atomic<std::uint64_t> beats_sent_{0}, closed_early_{0};
  std::atomic<std::size_t> welcomed_{0};
  std::atomic<bool> leaving_{false};
  mutable std::mutex mutex_;  // guards: reason_
  std::string reason_;
  std::jthread beating_;
};

/// Calls of users, blocking.
class Client {
 public:
  explicit Client(const std::string& target);
  /// A sweep of at least `trials` trials that exist only as an index until they are drawn.
  /// `more` is put at the file's end.
  Result<std::uint64_t> submit(const std::string& name, std::uint64_t trials, int seeds,
                               const std::string& more = "");
  Status cancel(std::uint64_t sweep);
  /// One number of one read-only SELECT.
  Result<double> number(const std::string& sql);

 private:
  std::unique_ptr<v1::CoordinatorService::Stub> stub_;
};

/// A sweep file for simulated trainers: a grid over the learning rate, `seeds` trials a point.
std::string sweep_toml(const std::string& name, std::uint64_t trials, int seeds);

}  // namespace tailor::load
