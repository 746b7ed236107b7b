// Node: a machine with a worker daemon around the real agent step, a disk, and trainers. The daemon
// can die alone, the machine can lose power, the disk can be lost; trainers draw their fate and
// write reports to the disk.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/ledger.h"
#include "tests/simulation/network.h"
#include "worker/agent/step.h"

namespace tailor::simulation {

class Node {
 public:
  Node(Context& context, Ledger& ledger, Network& network, int index);

  int index() const { return index_; }
  bool daemon_up() const { return agent_.has_value(); }
  void start_daemon();
  /// The daemon dies and comes back later; trainers go on.
  void crash_daemon();
  /// Everything on the machine dies; with `wipe` the disk is lost too.
  void crash_node(bool wipe);
  void kill_a_trainer();
  void drain(const std::string& reason);

  // What the network brings; ignored when it is for an earlier life of the daemon.
  void opened(std::uint64_t life, std::uint64_t session);
  void closed(std::uint64_t life, std::uint64_t session, const Status& reason);
  void received(std::uint64_t life, std::uint64_t session, protocol::CoordinatorMessage message);

  /// Nothing runs and nothing is left to send.
  bool idle() const;
  /// What is left, for a failure's explanation.
  std::string describe() const;

 private:
  /// DIR of an attempt.
  struct Folder {
    protocol::Assign assign;
    std::vector<protocol::Report> reports;
    std::string log;
    MonotonicMs lease_deadline_ms = 0;
    std::uint64_t acked = 0;
    std::optional<protocol::Report> end;
    bool forgotten = false;
  };
  enum class Fate {
    kComplete,
    kNoObjective,
    kNanObjective,
    kNan,
    kOom,
    kUser,
    kData,
    kExitCode,
    kSignal,
    kHang
  };
  struct Trainer {
    protocol::AttemptRef ref;
    std::vector<std::uint32_t> slots;
    std::uint64_t parent = 0;  // life of the daemon that started it
    Fate fate = Fate::kComplete;
    std::int64_t step = 0;
    std::int64_t steps_total = 0;
    std::int64_t fate_step = 0;
    std::int64_t hang_until = 0;  // true time
    bool silent = false;          // of a gang whose rank 0 is elsewhere
    bool term = false;
    bool ending = false;
  };

  MonotonicMs boot_clock() const;
  void apply(const agent::AgentEvent& event);
  void later(std::int64_t delay_ms, agent::AgentEvent event);
  void tick();
  void execute(const agent::OpenSession& effect);
  void execute(const agent::CloseSession& effect);
  void execute(const agent::Send& effect);
  void execute(const agent::StartTrainer& effect);
  void execute(const agent::CancelStart&) {}
  void execute(const agent::UploadCheckpoint& effect);
  void execute(const agent::SignalTrainer& effect);
  void execute(const agent::WriteLease& effect);
  void execute(const agent::ReadReports& effect);
  void execute(const agent::ReadLog& effect);
  void execute(const agent::PersistAck& effect);
  void execute(const agent::PersistEnd& effect);
  void execute(const agent::ForgetAttempt& effect);
  void execute(const agent::Exit& effect);
  void execute(const agent::LogLine& effect);
  void read_reports(const agent::ReadReports& request);

  void spawn_member(const protocol::AttemptRef& ref);
  void spawn(const protocol::AttemptRef& ref);
  void train(std::uint64_t pid);
  void write(const protocol::AttemptRef& ref, decltype(protocol::Report::body) body);
  void save_checkpoint(const Trainer& trainer);
  void stop_gracefully(std::uint64_t pid);
  /// Where its spec asks for it.
  void measure(const Trainer& trainer);
  void meet_fate(std::uint64_t pid);
  void say_end(const Trainer& trainer, protocol::EndClass end,
               std::map<std::string, double> values = {});
  /// The process is gone after `delay_ms`.
  void exit(std::uint64_t pid, std::int64_t delay_ms, agent::ExitStatus status);
  void gone(std::uint64_t pid, agent::ExitStatus status);
  double loss_of(const protocol::AttemptRef& ref, std::int64_t step) const;
  void daemon_down();
  void schedule_restart(std::uint64_t delay_bound);

  Context& c_;
  Ledger& ledger_;
  Network& network_;
  const int index_;
  const std::string who_;
  double clock_rate_ = 1;
  std::int64_t boot_time_ = 0;
  MonotonicMs boot_offset_ = 0;
  std::uint64_t life_ = 0;         // of the daemon
  std::int64_t daemon_since_ = 0;  // true time of its start
  std::uint64_t boot_ = 0;         // of the machine
  std::optional<agent::AgentState> agent_;
  std::map<protocol::AttemptRef, Folder> disk_;
  std::map<TrialId, std::int64_t> checkpoints_;
  std::map<std::uint64_t, Trainer> trainers_;  // living processes by pid
  std::uint64_t next_pid_ = 1;
};

}  // namespace tailor::simulation
