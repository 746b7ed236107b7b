// AgentLoop: the one thread that owns AgentState. It turns the world (mailbox, processes, files,
// signals, time) into events, and the effects of step() into the world.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "worker/agent/attempt_directory.h"
#include "worker/agent/device/inventory.h"
#include "worker/agent/file_thread.h"
#include "worker/agent/link.h"
#include "worker/agent/mailbox.h"
#include "worker/agent/process/supervisor.h"
#include "worker/agent/step.h"
#include "worker/agent/tailer.h"
#include "worker/agent/uploader.h"

namespace tailor::agent {

struct LoopConfig {
  AgentOptions options;                      ///< options.slots are those of `inventory`
  std::vector<std::string> visible_devices;  ///< CUDA_VISIBLE_DEVICES by slot index
  std::string trials_dir;                    ///< absolute
  std::string trainer;                       ///< program, run as `trainer run DIR`
  std::string trainer_working_dir;           ///< "" = the daemon's: relative data paths start there
  std::string cgroup_parent;  ///< where attempts get control groups; "" = they do not
  LogLimits log_limits;       ///< of each DIR/log, forwarded
  /// Shared with threads that hang in a file system and are left behind; null = there is none.
  std::shared_ptr<CheckpointStore> checkpoints;
  std::int64_t upload_retry_ms = 2'000;  ///< after the first failure; doubles
  std::int64_t tick_ms = 100;
  /// A job on an attempt's files that takes longer than this hangs.
  std::int64_t files_limit_ms = 10'000;
  /// Bytes of GPU memory in use in a slot, asked on a thread that may hang; empty = no GPUs. The
  /// end of a trial there is told when they are down to what they were, or after `memory_limit_ms`.
  std::function<std::optional<std::uint64_t>(std::uint32_t slot)> memory_in_use;
  std::int64_t memory_limit_ms = 30'000;
  /// Called before each job on the files of an attempt, on its thread: tests make it hang there.
  std::function<void(const protocol::AttemptRef&, std::string_view job)> before_files;
};

/// Threads: all calls from one thread. The files of each attempt have a thread of their own
/// (file_thread.h), whose answers come back as deliveries.
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
  /// What the thread of an attempt owns. Held by its jobs, so that it outlives a loop whose thread
  /// hangs.
  struct Files;
  struct Attempt {
    std::shared_ptr<Files> files;
    std::unique_ptr<FileThread> thread;
    std::string trouble;            ///< as last told
    bool seeks_rendezvous = false;  ///< its trainer is rank 0 of a gang and has not said where
    /// Set when the start is not wanted any more.
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
    bool seeking = false;  ///< a look at the file is unanswered
  };

  void apply(AgentEvent event);
  void run_effect(const OpenSession& effect) { link_.open(effect.session); }
  void run_effect(const CloseSession& effect) { link_.close(effect.session); }
  void run_effect(const Send& effect) { link_.send(effect.session, effect.message); }
  void run_effect(const StartTrainer& effect);
  void run_effect(const CancelStart& effect);
  void run_effect(const UploadCheckpoint& effect) { uploader_.post(effect.ref, effect.checkpoint); }
  void run_effect(const SignalTrainer& effect) { supervisor_.signal(effect.ref, effect.signal); }
  void run_effect(const WriteLease& effect);
  void run_effect(const ReadReports& effect);
  void run_effect(const ReadLog& effect);
  void run_effect(const PersistAck& effect);
  void run_effect(const PersistEnd& effect);
  void run_effect(const ForgetAttempt& effect);
  void run_effect(const Exit& effect) { exit_code_ = effect.code; }
  void run_effect(const LogLine& effect);

  Attempt& adopt(std::shared_ptr<Files> files);
  /// Runs `job` on the attempt's thread. An event that it returns is applied on the loop's.
  void on_files(const protocol::AttemptRef& ref, Attempt& attempt, std::string name,
                std::function<std::optional<AgentEvent>(Files&)> job, bool patient = false);
  SpawnRequest spawn_request(const StartTrainer& effect, const std::string& directory) const;
  void look_after_files();
  /// Tells of the exit when the memory of its slots' GPUs is free.
  void exited(TrainerExited event);
  /// Waits on a thread of its own, then notes which GPUs are still in use and calls `then`.
  void await_memory(std::vector<std::uint32_t> slots, std::int64_t limit_ms,
                    std::function<void()> then);
  void drain_events();
  void wait();

  const LoopConfig config_;
  const Clock& clock_;
  Link& link_;
  Mailbox& mailbox_;
  const int signal_fd_;
  AgentState state_;
  Supervisor supervisor_;
  const std::shared_ptr<Deliveries> deliveries_;
  std::map<protocol::AttemptRef, Attempt> attempts_;    // those with a folder that is ours
  std::vector<std::unique_ptr<FileThread>> leaving_;    // of forgotten attempts, not yet idle
  std::map<std::uint32_t, std::uint64_t> idle_memory_;  // of GPU slots, when nothing of ours runs
  std::map<std::uint32_t, std::string> occupied_;  // slots whose GPU memory does not become free
  std::deque<AgentEvent> events_;                  // answers to effects, before anything new
  Uploader uploader_;
  MonotonicMs tick_at_ms_ = 0;
  std::optional<int> exit_code_;
};

}  // namespace tailor::agent
