// Stepper: one application of step(), and what its parts share. The parts, one file each:
//
//     step.cc              the daemon's own life: start, ticks, forgetting, leaving
//     step_session.cc      the stream: opening, greeting, heartbeats, giving up
//     step_attempts.cc     orders and trainers: assign, start, stop, exit, the end written for one
//     step_reports.cc      reports and log: reading, windows, sending
//     step_supervision.cc  what the clock asks of one attempt: leases, kills, resends
//     step_drain.cc        taking nothing new, and ending
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/agent/step.h"

namespace tailor::agent {

/// One application of step(): the state, the time and the effects so far.
class Stepper {
 public:
  Stepper(AgentState& state, MonotonicMs now) : s_(state), o_(state.options), now_(now) {}

  void on(const Start& event);
  void on(const SessionOpened& event);
  void on(const SessionClosed& event);
  void on(const Received& event);
  void on(const ReportsRead& event);
  void on(const LogRead& event);
  void on(const TrainerStarted& event);
  void on(const TrainerExited& event);
  void on(const SpawnFailed& event);
  void on(const EndPersisted& event);
  void on(const FilesAnswer& event);
  void on(const RendezvousFound& event);
  void on(const CheckpointUploaded& event);
  void on(const NodeHealth& event);
  void on(const Tick& event);
  void on(const DrainRequested& event);

  /// What any event may have made possible.
  void settle();

  Effects take() { return std::move(effects_); }

 private:
  void receive(const protocol::Welcome& welcome);
  void receive(const protocol::Assign& assign);
  void receive(const protocol::HeartbeatAck&) {}
  void receive(const protocol::ReportsAck& ack);
  void receive(const protocol::LogAck& ack);
  void receive(const protocol::Stop& stop);
  void receive(const protocol::Rendezvous& rendezvous);
  void receive(const protocol::Drain&) { drain("told by the coordinator", false); }

  AgentAttempt* find(const protocol::AttemptRef& ref) {
    const auto found = s_.attempts.find(ref);
    return found == s_.attempts.end() ? nullptr : &found->second;
  }
  /// Sends no reports and no log: rank 0 of its gang is another worker's.
  static bool is_silent(const AgentAttempt& attempt) { return attempt.gang.first_rank > 0; }
  bool welcomed() const { return s_.session_phase == SessionPhase::kWelcomed; }
  /// True for an assignment that is repeated.
  bool held_or_forgotten(const protocol::AttemptRef& ref) const;
  /// Why `ref` cannot be what the coordinator means; "" = it can.
  std::string clash(const protocol::AttemptRef& ref) const;

  /// Why `assign` cannot be carried out; "" = it can.
  std::string refusal(const protocol::Assign& assign);
  void refuse(const protocol::AttemptRef& ref, protocol::EndClass end, std::string why);
  /// True when a living attempt other than `ref` is in one of `slots`.
  bool in_use(const std::vector<std::uint32_t>& slots, const protocol::AttemptRef& ref) const;
  void start_trainer(AgentAttempt& attempt, protocol::Assign assign);
  void start_waiting();
  void stop(AgentAttempt& attempt, StopKind kind, std::string reason);
  void become_exited(AgentAttempt& attempt);
  void write_own_end(AgentAttempt& attempt);
  void say_rendezvous(const AgentAttempt& attempt);
  void say_member_ended(const AgentAttempt& attempt);
  void forget(const protocol::AttemptRef& ref);
  void drain(std::string reason, bool forced);
  void say_draining();
  void close_session(Status reason);

  /// The coordinator has the reports through `sequence`: a checkpoint among them may travel.
  void upload_through(const AgentAttempt& attempt, std::uint64_t sequence);
  void request_reads(AgentAttempt& attempt);
  void pump(AgentAttempt& attempt);
  void supervise(AgentAttempt& attempt);
  void check_limits(AgentAttempt& attempt);
  void heed(AgentAttempt& attempt, const ReportsRead& event,
            std::vector<protocol::Report>& reports);
  void look_at_health();
  void keep_session();
  void finish();

  std::int64_t lease_length_ms() const {
    if (s_.lease_ms <= 0) return o_.trainer_lease_ms;
    return std::min(o_.trainer_lease_ms, std::max<std::int64_t>(s_.lease_ms * 3 / 4, 500));
  }
  void send(protocol::WorkerMessage message) {
    effects_.push_back(Send{s_.session, std::move(message)});
  }
  void say(LogLevel level, std::string message, const AgentAttempt* attempt = nullptr,
           std::string detail = {}) {
    effects_.push_back(LogLine{level, std::move(message),
                               attempt ? attempt->ref.attempt.to_string() : std::string(),
                               std::move(detail)});
  }

  AgentState& s_;
  const AgentOptions& o_;
  const MonotonicMs now_;
  Effects effects_;
};

}  // namespace tailor::agent
