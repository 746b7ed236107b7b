// AgentLoop: the one thread that owns AgentState. It turns the world (mailbox, processes, files,
// signals, time) into events, and the effects of step() into the world.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "worker/agent/attempt_directory.h"
#include "worker/agent/device/inventory.h"
#include "worker/agent/link.h"
#include "worker/agent/mailbox.h"
#include "worker/agent/process/supervisor.h"
#include "worker/agent/step.h"
#include "worker/agent/tailer.h"

namespace tailor::agent {

struct LoopConfig {
  AgentOptions options;                      ///< options.slots are those of `inventory`
  std::vector<std::string> visible_devices;  ///< CUDA_VISIBLE_DEVICES by slot index
  std::string trials_dir;                    ///< absolute
  std::string trainer;                       ///< program, run as `trainer run DIR`
  std::string trainer_working_dir;           ///< "" = the daemon's: relative data paths start there
  LogLimits log_limits;                      ///< of each DIR/log, forwarded
  std::int64_t tick_ms = 100;
};

/// Threads: all calls from one thread.
class AgentLoop {
 public:
  /// The arguments outlive the loop. `signal_fd` is a signalfd of SIGTERM and SIGINT, -1 = none.
  AgentLoop(LoopConfig config, const Clock& clock, Link& link, Mailbox& mailbox, int signal_fd);
  ~AgentLoop();

  /// Finds and re-adopts this worker's attempts and applies Start. Errors: the trials folder cannot
  /// be made or read.
  Status start();
  /// Waits for something to happen, at most until the next tick, and deals with it.
  void run_once();
  /// `run_once` until the daemon has to end. Returns the exit code. Trainers that still run go on.
  int run();

  std::optional<int> exit_code() const { return exit_code_; }
  const AgentState& state() const { return state_; }

 private:
  struct Attempt {
    AttemptDirectory directory;
    AttemptNote note;
    ReportTailer reports;
    LogTailer log;
  };

  void apply(AgentEvent event);
  void run_effect(const OpenSession& effect) { link_.open(effect.session); }
  void run_effect(const CloseSession& effect) { link_.close(effect.session); }
  void run_effect(const Send& effect) { link_.send(effect.session, effect.message); }
  void run_effect(const StartTrainer& effect);
  void run_effect(const SignalTrainer& effect) { supervisor_.signal(effect.ref, effect.signal); }
  void run_effect(const WriteLease& effect);
  void run_effect(const ReadReports& effect);
  void run_effect(const ReadLog& effect);
  void run_effect(const PersistAck& effect);
  void run_effect(const PersistEnd& effect);
  void run_effect(const ForgetAttempt& effect);
  void run_effect(const Exit& effect) { exit_code_ = effect.code; }
  void run_effect(const LogLine& effect);

  Status start_trainer(const StartTrainer& effect);
  Attempt& adopt(AttemptDirectory directory, AttemptNote note);
  void drain_events();
  void wait();

  const LoopConfig config_;
  const Clock& clock_;
  Link& link_;
  Mailbox& mailbox_;
  const int signal_fd_;
  AgentState state_;
  Supervisor supervisor_;
  std::map<protocol::AttemptRef, Attempt> attempts_;  // those with a folder that is ours
  std::deque<AgentEvent> events_;                     // answers to effects, before anything new
  MonotonicMs tick_at_ms_ = 0;
  std::optional<int> exit_code_;
};

}  // namespace tailor::agent
