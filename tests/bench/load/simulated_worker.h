// One simulated worker: a gRPC channel and a session stream of its own, by the callback API, so
// that thousands fit into one process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tailor/v1/worker.grpc.pb.h"
#include "tests/bench/load/measure.h"

namespace tailor::load {

/// What the coordinator thinks that a worker runs.
struct HeldTrial {
  v1::AttemptRef ref;
  std::uint64_t sent = 0;   ///< sequence number of the last report sent
  std::uint64_t acked = 0;  ///< and acknowledged
};

/// Threads: `open`, `send`, `close` from any thread; the handlers run on gRPC's threads, those of
/// one worker one after the other. REQUIRES: handlers are set before `open`; the worker outlives
/// its stream (`wait_closed`).
class SimulatedWorker {
 public:
  SimulatedWorker(std::string name, const std::string& target, std::uint32_t slots);
  ~SimulatedWorker();
  SimulatedWorker(const SimulatedWorker&) = delete;
  SimulatedWorker& operator=(const SimulatedWorker&) = delete;

  std::function<void(SimulatedWorker&, const v1::CoordinatorMessage&)> on_message;
  std::function<void(SimulatedWorker&, const grpc::Status&)> on_closed;

  /// Opens a stream and says Hello with what is held. REQUIRES: none is open.
  void open();
  void send(v1::WorkerMessage message);
  /// Cancels the stream; `wait_closed` says when it is gone. False: it still is after `limit_s`.
  void cancel();
  bool wait_closed(double limit_s);
  bool is_open() const { return open_.load(); }

  const std::string& name() const { return name_; }
  double opened_at() const { return opened_at_; }  ///< steady seconds, of the last `open`

  /// Attempts that it was given and has not seen the end of. For the handlers' use, and for others
  /// only with `held_mutex`.
  std::map<std::uint64_t, HeldTrial> held;  ///< by trial
  std::mutex held_mutex;

 private:
  class Stream;
  v1::WorkerMessage hello();

  const std::string name_;
  const std::uint32_t slots_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::atomic<bool> open_{false};
  double opened_at_ = 0;
  std::mutex mutex_;  // guards: stream_, gone_
  std::condition_variable closed_;
  bool gone_ = true;  // no stream is left of this worker, not even a part of one
  Stream* stream_ = nullptr;  // deletes itself when gRPC is done with it
};

/// The attempt that an order is about.
v1::AttemptRef ref_of(const v1::TrialSpec& spec);
/// Reports message of one report.
v1::WorkerMessage report_message(const v1::AttemptRef& ref, v1::Report report);
/// The end of a trial that completed with `loss`.
v1::Report end_report(std::uint64_t sequence, double loss);
/// One point of `values` series.
v1::Report metric_report(std::uint64_t sequence, std::int64_t step, int values, bool fp32);
v1::WorkerMessage heartbeat_message(std::uint64_t serial);

}  // namespace tailor::load
