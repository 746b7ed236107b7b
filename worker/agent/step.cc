// The transitions of step.h: one function per event, then what is due by the clock.
#include "worker/agent/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tailor::agent {
namespace {

using protocol::AttemptRef;
using protocol::EndClass;
using protocol::EndReport;
using protocol::Report;

constexpr std::size_t kForgottenMax = 4096;
constexpr std::int64_t kPersistAckEveryMs = 1000;

/// "SIGKILL" and friends; signals that a person may meet on a trainer.
std::string signal_name(int signal) {
  switch (signal) {
    case 1:
      return "SIGHUP";
    case 2:
      return "SIGINT";
    case 3:
      return "SIGQUIT";
    case 4:
      return "SIGILL";
    case 6:
      return "SIGABRT";
    case 7:
      return "SIGBUS";
    case 8:
      return "SIGFPE";
    case 9:
      return "SIGKILL";
    case 11:
      return "SIGSEGV";
    case 13:
      return "SIGPIPE";
    case 15:
      return "SIGTERM";
    case 24:
      return "SIGXCPU";
    case 25:
      return "SIGXFSZ";
    default:
      return fmt::format("signal {}", signal);
  }
}

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
  void receive(const protocol::Rendezvous&) {}
  void receive(const protocol::Drain&) { drain("told by the coordinator", false); }

  AgentAttempt* find(const AttemptRef& ref) {
    const auto found = s_.attempts.find(ref);
    return found == s_.attempts.end() ? nullptr : &found->second;
  }
  bool welcomed() const { return s_.session_phase == SessionPhase::kWelcomed; }
  bool held_or_forgotten(const AttemptRef& ref) const;

  void start_trainer(AgentAttempt& attempt, protocol::Assign assign);
  void start_waiting();
  void stop(AgentAttempt& attempt, StopKind kind, std::string reason);
  void become_exited(AgentAttempt& attempt);
  void write_own_end(AgentAttempt& attempt);
  void forget(const AttemptRef& ref);
  void drain(std::string reason, bool forced);
  void say_draining();
  void close_session(Status reason);

  void request_reads(AgentAttempt& attempt);
  void pump(AgentAttempt& attempt);
  void supervise(AgentAttempt& attempt);
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

// ---- the daemon's own life

void Stepper::on(const Start& event) {
  s_.wall_offset_ms = event.wall_ms - now_;
  s_.last_contact_ms = s_.idle_since_ms = s_.quiet_since_ms = s_.open_at_ms = now_;
  for (const RestoredAttempt& restored : event.restored) {
    AgentAttempt attempt;
    attempt.ref = restored.ref;
    attempt.slots = restored.slots;
    attempt.phase = restored.running ? Phase::kRunning : Phase::kExited;
    attempt.exited_at_ms = now_;
    attempt.reports.restart(restored.acked_sequence);
    attempt.persisted_ack = restored.acked_sequence;
    attempt.own_end = restored.end;
    if (restored.end) attempt.end_sequence = restored.end->sequence;
    say(LogLevel::kInfo,
        restored.running ? "re-adopted a running trainer" : "found an ended attempt", &attempt,
        fmt::format("acknowledged through {}", restored.acked_sequence));
    s_.attempts.emplace(restored.ref, std::move(attempt));
  }
}

void Stepper::on(const Tick& event) {
  s_.wall_offset_ms = event.wall_ms - now_;
  for (auto& [ref, attempt] : s_.attempts) supervise(attempt);
  keep_session();
  for (auto& [ref, attempt] : s_.attempts) {
    request_reads(attempt);
    pump(attempt);
  }
}

void Stepper::on(const DrainRequested& event) { drain(event.reason, s_.draining); }

void Stepper::drain(std::string reason, bool forced) {
  if (!s_.draining) {
    s_.draining = true;
    s_.drain_reason = std::move(reason);
    s_.drain_since_ms = now_;
    say(LogLevel::kInfo, "draining: no new trials; running ones finish", nullptr, s_.drain_reason);
    say_draining();
  }
  if (forced && !s_.drain_forced) {
    s_.drain_forced = true;
    say(LogLevel::kInfo, "draining: trainers are told to save a checkpoint and stop");
    for (auto& [ref, attempt] : s_.attempts) {
      stop(attempt, StopKind::kStop, "the worker shuts down");
    }
  }
}

void Stepper::say_draining() {
  if (welcomed()) send(protocol::Draining{s_.drain_reason});
}

// ---- the stream

void Stepper::on(const SessionOpened& event) {
  if (event.session != s_.session || s_.session_phase != SessionPhase::kOpening) return;
  s_.session_phase = SessionPhase::kGreeting;
  s_.session_since_ms = now_;
  protocol::Hello hello;
  hello.worker_name = o_.worker_name;
  hello.instance = o_.instance;
  hello.version = o_.version;
  hello.host = o_.host;
  hello.slots = o_.slots;
  for (const auto& [ref, attempt] : s_.attempts) {
    if (attempt.stop == StopKind::kDiscard) continue;
    hello.held.push_back({ref, attempt.slots, may_live(attempt), attempt.reports.acked()});
  }
  send(std::move(hello));
}

void Stepper::on(const SessionClosed& event) {
  if (event.session != s_.session || s_.session_phase == SessionPhase::kClosed) return;
  close_session(event.reason);
}

void Stepper::close_session(Status reason) {
  // Exponential with a cap; the factor in [1/2, 1) spreads the workers of a restarted coordinator.
  const int doublings = static_cast<int>(std::min<std::int64_t>(s_.failures, 20));
  const std::int64_t full = std::min(o_.backoff_max_ms, o_.backoff_first_ms << doublings);
  const auto delay =
      static_cast<std::int64_t>(static_cast<double>(full) * (0.5 + s_.rng.uniform() / 2));
  const bool was_welcome = welcomed();
  s_.session_phase = SessionPhase::kClosed;
  s_.session_since_ms = now_;
  s_.open_at_ms = now_ + delay;
  ++s_.failures;
  // The first failure is news; afterwards every tenth,
  // so that a day without a coordinator stays readable.
  const bool news = was_welcome || s_.failures == 1 || s_.failures % 10 == 0;
  say(news ? LogLevel::kWarn : LogLevel::kDebug, "no stream to the coordinator", nullptr,
      fmt::format("{}; trying again in {} ms; trainers go on", reason.to_string(), delay));
  const auto end = [&](int code, std::string why) {
    say(LogLevel::kError, std::move(why), nullptr, reason.message());
    s_.exited = true;
    effects_.push_back(Exit{code});
  };
  if (reason.code() == Code::kAlreadyExists) {
    // Another daemon took this name over. Coming back would take it from that one, and its trials
    // with it, for ever in turns. Our trainers save and stop when their leases run out.
    return end(7, "another worker has this one's name: this one ends");
  }
  const bool refused =
      reason.code() == Code::kUnauthenticated || reason.code() == Code::kPermissionDenied;
  if (refused && s_.attempts.empty() && s_.lease_ms == 0) {
    end(6, "the coordinator refuses this worker");
  }
}

void Stepper::on(const Received& event) {
  if (event.session != s_.session || s_.session_phase == SessionPhase::kClosed) return;
  s_.last_contact_ms = now_;
  // Only Welcome says what the coordinator knows of our attempts;
  // nothing else makes sense before it.
  if (!welcomed() && !std::holds_alternative<protocol::Welcome>(event.message)) return;
  std::visit([this](const auto& message) { receive(message); }, event.message);
}

void Stepper::receive(const protocol::Welcome& welcome) {
  if (s_.session_phase == SessionPhase::kOpening) return;
  if (!welcomed())
    say(LogLevel::kInfo, "connected", nullptr, "worker=" + welcome.worker.to_string());
  s_.session_phase = SessionPhase::kWelcomed;
  s_.session_since_ms = now_;
  s_.failures = 0;
  s_.offline_stopped = false;
  s_.worker = welcome.worker;
  if (welcome.heartbeat_ms > 0) s_.heartbeat_ms = welcome.heartbeat_ms;
  if (welcome.lease_ms > 0) s_.lease_ms = welcome.lease_ms;
  s_.heartbeat_at_ms = now_ + s_.heartbeat_ms;

  // First everything from the last acknowledgement that we know, then the coordinator's word on it.
  for (auto& [ref, attempt] : s_.attempts) {
    attempt.reports.resend();
    attempt.log.resend();
    attempt.progress_at_ms = attempt.log_progress_at_ms = now_;
  }
  for (const protocol::HeldVerdict& verdict : welcome.held) {
    AgentAttempt* attempt = find(verdict.ref);
    if (attempt == nullptr) continue;
    if (!verdict.keep) {
      stop(*attempt, StopKind::kDiscard, "the attempt is not this worker's any more");
      continue;
    }
    if (verdict.acked_sequence < attempt->reports.acked()) {
      say(LogLevel::kWarn,
          "the coordinator knows fewer reports than it acknowledged: sending again", attempt,
          fmt::format("from {}", verdict.acked_sequence + 1));
      attempt->end_acked_at_ms = 0;
      if (attempt->damaged) {  // read up to the damage again
        attempt->damaged = false;
        attempt->failure.clear();
      }
    }
    if (verdict.log_offset < attempt->log.acked()) attempt->log_complete = false;
    attempt->reports.restart(verdict.acked_sequence);
    attempt->log.restart(verdict.log_offset);
  }
  if (s_.draining) say_draining();
  for (auto& [ref, attempt] : s_.attempts) {
    request_reads(attempt);
    pump(attempt);
  }
}

bool Stepper::held_or_forgotten(const AttemptRef& ref) const {
  const auto same = [&](const AttemptRef& other) { return other.attempt == ref.attempt; };
  return std::any_of(s_.attempts.begin(), s_.attempts.end(),
                     [&](const auto& entry) { return same(entry.first); }) ||
         std::any_of(s_.forgotten.begin(), s_.forgotten.end(), same);
}

void Stepper::receive(const protocol::Assign& assign) {
  const AttemptRef ref{{assign.spec.trial, assign.spec.attempt}, assign.spec.token};
  if (held_or_forgotten(ref)) return;
  const auto refuse = [&](std::string why) {
    say(LogLevel::kWarn, "ignored an assignment: its lease will run out at the coordinator",
        nullptr, fmt::format("attempt={} {}", ref.attempt.to_string(), why));
  };
  if (s_.draining) {
    say_draining();
    return refuse("this worker drains");
  }
  if (assign.slots.empty()) return refuse("it names no slot");
  const std::set<std::uint32_t> wanted(assign.slots.begin(), assign.slots.end());
  if (wanted.size() != assign.slots.size()) return refuse("it names a slot twice");
  for (const std::uint32_t index : wanted) {
    const bool exists =
        std::any_of(o_.slots.begin(), o_.slots.end(),
                    [&](const protocol::Slot& slot) { return slot.index == index; });
    if (!exists) return refuse(fmt::format("this worker has no slot {}", index));
  }
  bool must_wait = false;
  for (const auto& [other, attempt] : s_.attempts) {
    if (!may_live(attempt)) continue;
    const bool shares = std::any_of(attempt.slots.begin(), attempt.slots.end(),
                                    [&](std::uint32_t index) { return wanted.contains(index); });
    if (!shares) continue;
    if (attempt.stop == StopKind::kNone) {
      return refuse(fmt::format("its slot is in use by {}", other.attempt.to_string()));
    }
    must_wait = true;
  }
  AgentAttempt attempt;
  attempt.ref = ref;
  attempt.slots = assign.slots;
  attempt.phase = Phase::kWaiting;
  attempt.progress_at_ms = attempt.log_progress_at_ms = now_;
  AgentAttempt& placed = s_.attempts.emplace(ref, std::move(attempt)).first->second;
  if (must_wait) {
    placed.waiting = assign;
  } else {
    start_trainer(placed, assign);
  }
}

void Stepper::receive(const protocol::ReportsAck& ack) {
  AgentAttempt* attempt = find(ack.ref);
  if (attempt == nullptr || !attempt->reports.acknowledge(ack.through_sequence)) return;
  attempt->progress_at_ms = now_;
  request_reads(*attempt);
  pump(*attempt);
}

void Stepper::receive(const protocol::LogAck& ack) {
  AgentAttempt* attempt = find(ack.ref);
  if (attempt == nullptr || !attempt->log.acknowledge(ack.through_offset)) return;
  attempt->log_progress_at_ms = now_;
  request_reads(*attempt);
  pump(*attempt);
}

void Stepper::receive(const protocol::Stop& message) {
  AgentAttempt* attempt = find(message.ref);
  if (attempt == nullptr) return;
  stop(*attempt, message.discard ? StopKind::kDiscard : StopKind::kStop,
       std::string(protocol::stop_reason_name(message.reason)));
}

// ---- attempts

void Stepper::start_trainer(AgentAttempt& attempt, protocol::Assign assign) {
  attempt.phase = Phase::kStarting;
  attempt.waiting.reset();
  attempt.lease_deadline_ms = now_ + lease_length_ms();
  // A slot's GPU is the only one that its trainer sees (CUDA_VISIBLE_DEVICES),
  // hence always number 0.
  std::int32_t threads = 0;
  assign.spec.device = "cpu";
  for (const protocol::Slot& slot : o_.slots) {
    if (std::find(assign.slots.begin(), assign.slots.end(), slot.index) == assign.slots.end())
      continue;
    threads += slot.threads;
    if (slot.kind == protocol::DeviceKind::kGpu) assign.spec.device = "cuda:0";
  }
  assign.spec.threads = std::max(threads, 1);
  effects_.push_back(StartTrainer{std::move(assign), attempt.lease_deadline_ms});
}

void Stepper::start_waiting() {
  for (auto& [ref, attempt] : s_.attempts) {
    if (attempt.phase != Phase::kWaiting || !attempt.waiting) continue;
    bool free = true;
    for (const auto& [other, holder] : s_.attempts) {
      if (other == ref || holder.phase == Phase::kWaiting || !may_live(holder)) continue;
      for (const std::uint32_t index : holder.slots) {
        if (std::find(attempt.slots.begin(), attempt.slots.end(), index) != attempt.slots.end()) {
          free = false;
        }
      }
    }
    if (free) {
      protocol::Assign assign = std::move(*attempt.waiting);
      start_trainer(attempt, std::move(assign));
    }
  }
}

void Stepper::stop(AgentAttempt& attempt, StopKind kind, std::string reason) {
  const bool discards = kind == StopKind::kDiscard && attempt.stop != StopKind::kDiscard;
  if (attempt.stop != StopKind::kNone && !discards) return;
  const bool told = attempt.stop != StopKind::kNone;
  if (attempt.phase != Phase::kExited || discards) {
    say(LogLevel::kInfo, discards ? "attempt is dropped" : "attempt is stopped", &attempt, reason);
  }
  if (attempt.phase == Phase::kExited && !discards) return;  // its end is on its way
  attempt.stop = kind;
  if (!told) attempt.stop_reason = std::move(reason);
  switch (attempt.phase) {
    case Phase::kWaiting:
      become_exited(attempt);
      if (kind == StopKind::kStop) write_own_end(attempt);
      break;
    case Phase::kStarting:
      break;  // signalled when TrainerStarted tells that there is somebody to signal
    case Phase::kRunning:
      if (told) break;
      effects_.push_back(SignalTrainer{attempt.ref, TrainerSignal::kTerm});
      attempt.kill_at_ms = now_ + o_.stop_grace_ms;
      break;
    case Phase::kExited:
      break;
  }
}

void Stepper::on(const TrainerStarted& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || attempt->phase != Phase::kStarting) return;
  attempt->phase = Phase::kRunning;
  say(LogLevel::kInfo, "trainer started", attempt);
  if (attempt->stop != StopKind::kNone) {
    effects_.push_back(SignalTrainer{attempt->ref, TrainerSignal::kTerm});
    attempt->kill_at_ms = now_ + o_.stop_grace_ms;
  }
}

void Stepper::on(const SpawnFailed& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || attempt->phase != Phase::kStarting) return;
  say(LogLevel::kError, "cannot start the trainer", attempt, event.message);
  attempt->failure = "the trainer could not be started: " + event.message;
  become_exited(*attempt);
  if (attempt->stop != StopKind::kDiscard) write_own_end(*attempt);
  pump(*attempt);
}

void Stepper::on(const TrainerExited& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || attempt->phase == Phase::kExited) return;
  attempt->exit = event.status;
  become_exited(*attempt);
  const std::string how = event.status.signal ? "killed by " + signal_name(*event.status.signal)
                          : event.status.code ? fmt::format("exit code {}", *event.status.code)
                                              : "exit status not known";
  say(LogLevel::kInfo, "trainer ended", attempt, how);
  request_reads(*attempt);
  pump(*attempt);
}

void Stepper::become_exited(AgentAttempt& attempt) {
  attempt.phase = Phase::kExited;
  attempt.exited_at_ms = now_;
  attempt.waiting.reset();
  attempt.kill_at_ms.reset();
}

/// The end of a trainer that wrote none: from its exit status, with the next sequence number.
void Stepper::write_own_end(AgentAttempt& attempt) {
  if (!attempt.own_end) {
    EndReport end;
    const ExitStatus& exit = attempt.exit;
    if (!attempt.failure.empty()) {
      end.end = EndClass::kInfrastructure;
      end.message = attempt.failure;
    } else if (attempt.stop == StopKind::kStop) {
      end.end = EndClass::kStopped;
      end.message =
          attempt.killed
              ? fmt::format(
                    "stopped ({}): killed after it did not save and stop within {} s; "
                    "it resumes from its last checkpoint",
                    attempt.stop_reason, o_.stop_grace_ms / 1000)
              : fmt::format("stopped ({}) before it could report its end", attempt.stop_reason);
    } else if (exit.signal) {
      end.end = EndClass::kInfrastructure;
      end.message = fmt::format(
          "the trainer was killed by {}{}; see the end of its log", signal_name(*exit.signal),
          *exit.signal == 9 ? " (somebody, or the kernel when memory ran out: see dmesg)" : "");
    } else if (exit.code && *exit.code == 0) {
      // Without an end there is no objective: never a success.
      end.end = EndClass::kInfrastructure;
      end.message = "the trainer exited with code 0 but reported no end and so no result";
    } else if (exit.code) {
      end.end = protocol::end_class_of_exit(*exit.code);
      end.message = fmt::format(
          "the trainer exited with code {} without reporting why; see the end of "
          "its log",
          *exit.code);
    } else {
      end.end = EndClass::kInfrastructure;
      end.message =
          "the trainer ended without reporting why while its worker was not running; see the end "
          "of its log";
    }
    attempt.own_end = Report{0, now_ + s_.wall_offset_ms, std::move(end)};
  }
  const std::uint64_t sequence = attempt.reports.read_through() + 1;
  if (attempt.own_end->sequence != sequence) {
    attempt.own_end->sequence = sequence;
    effects_.push_back(PersistEnd{attempt.ref, *attempt.own_end});
  }
  attempt.end_sequence = sequence;
  attempt.reports.add({*attempt.own_end});
}

void Stepper::on(const ReportsRead& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || !attempt->reading_reports) return;
  const bool last = std::exchange(attempt->reading_reports_last, false);
  attempt->reading_reports = false;
  if (attempt->stop == StopKind::kDiscard) return;
  if (event.after_sequence != attempt->reports.read_through()) {  // asked before a Welcome moved us
    return request_reads(*attempt);
  }
  std::string damage = event.damage;
  // Nothing counts after the EndReport.
  std::vector<Report> reports = event.reports;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    if (std::holds_alternative<EndReport>(reports[i].body)) {
      reports.resize(i + 1);
      attempt->end_sequence = reports[i].sequence;
      attempt->own_end.reset();
    }
  }
  if (event.end_sequence != 0 && !attempt->own_end) attempt->end_sequence = event.end_sequence;
  const bool some = !reports.empty();
  if (!attempt->reports.add(std::move(reports)) && damage.empty()) {
    damage =
        fmt::format("report {} is missing in reports.jsonl", attempt->reports.read_through() + 1);
  }
  if (!damage.empty() && attempt->failure.empty()) {
    attempt->failure = "the trainer's reports cannot be read: " + damage;
    attempt->damaged = true;
    say(LogLevel::kError, "reports cannot be read", attempt, damage);
    if (attempt->phase == Phase::kRunning && !attempt->kill_at_ms) {
      effects_.push_back(SignalTrainer{attempt->ref, TrainerSignal::kTerm});
      attempt->kill_at_ms = now_ + o_.stop_grace_ms;
    }
  }
  const bool has_end = attempt->end_sequence != 0 && !attempt->own_end;
  if (has_end && attempt->phase == Phase::kRunning && !attempt->kill_at_ms) {
    // It has said its last word; a process that then hangs would hold the slot for ever.
    attempt->kill_at_ms = now_ + o_.stop_grace_ms;
  }
  const bool all_read = last && event.at_end && attempt->phase == Phase::kExited;
  if (!has_end && attempt->phase == Phase::kExited && (all_read || !attempt->failure.empty())) {
    write_own_end(*attempt);
  }
  pump(*attempt);
  if (some || (attempt->phase == Phase::kExited && !last)) request_reads(*attempt);
}

void Stepper::on(const LogRead& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || !attempt->reading_log) return;
  const bool last = std::exchange(attempt->reading_log_last, false);
  attempt->reading_log = false;
  if (attempt->stop == StopKind::kDiscard) return;
  if (event.offset != attempt->log.read_through()) return request_reads(*attempt);
  attempt->log.add(event.bytes, event.left_out);
  if (event.offset >= o_.log_free_bytes) {
    // A trainer that writes without end must not fill the coordinator's disk.
    const auto bytes = static_cast<std::int64_t>(event.bytes.size());
    attempt->log_read_at_ms = now_ + bytes * 1000 / o_.log_bytes_per_s;
  }
  if (last && event.at_end) attempt->log_complete = true;
  pump(*attempt);
  if (!event.bytes.empty() || (attempt->phase == Phase::kExited && !last)) request_reads(*attempt);
}

/// Asks for what the windows have room for.
void Stepper::request_reads(AgentAttempt& attempt) {
  if (attempt.phase != Phase::kRunning && attempt.phase != Phase::kExited) return;
  if (attempt.stop == StopKind::kDiscard) return;
  const bool after_exit = attempt.phase == Phase::kExited;
  const bool end_read =
      attempt.end_sequence != 0 && attempt.reports.read_through() >= attempt.end_sequence;
  const std::size_t room = attempt.reports.room(o_.reports_window);
  if (!attempt.reading_reports && !end_read && room > 0) {
    if (!attempt.failure.empty()) {
      // Unreadable, or never written: what is known is all there will be.
      if (after_exit) {
        write_own_end(attempt);
      }
    } else {
      attempt.reading_reports = true;
      attempt.reading_reports_last = after_exit;
      effects_.push_back(ReadReports{attempt.ref, attempt.reports.read_through(), room});
    }
  }
  const std::size_t log_room = attempt.log.room(o_.log_window_bytes);
  const bool may_read = after_exit || now_ >= attempt.log_read_at_ms;
  if (!attempt.reading_log && !attempt.log_complete && log_room > 0 && may_read) {
    attempt.reading_log = true;
    attempt.reading_log_last = after_exit;
    effects_.push_back(ReadLog{attempt.ref, attempt.log.read_through(),
                               std::min(log_room, o_.log_batch_bytes), after_exit});
  }
}

/// Sends what the windows hold, log first: the end comes last,
/// so that no log tail is lost behind it.
void Stepper::pump(AgentAttempt& attempt) {
  if (!welcomed() || attempt.stop == StopKind::kDiscard) return;
  if (attempt.log.sent_through() == attempt.log.acked()) attempt.log_progress_at_ms = now_;
  for (;;) {
    LogOutbox::Taken taken = attempt.log.take(o_.log_batch_bytes);
    if (taken.bytes.empty()) break;
    send(protocol::LogChunk{attempt.ref, taken.offset, std::move(taken.bytes), taken.left_out});
  }
  const bool log_sent =
      attempt.log_complete && attempt.log.sent_through() == attempt.log.read_through();
  const bool end_allowed = attempt.phase == Phase::kExited &&
                           (log_sent || now_ - attempt.exited_at_ms >= o_.flush_limit_ms);
  if (attempt.reports.sent_through() == attempt.reports.acked()) attempt.progress_at_ms = now_;
  for (;;) {
    std::vector<Report> reports = attempt.reports.take(o_.reports_batch, end_allowed);
    if (reports.empty()) break;
    send(protocol::Reports{attempt.ref, std::move(reports)});
  }
}

/// Leases, kills and resends of one attempt, by the clock.
void Stepper::supervise(AgentAttempt& attempt) {
  if (attempt.phase == Phase::kRunning && attempt.stop == StopKind::kNone) {
    const std::int64_t length = lease_length_ms();
    if (attempt.lease_deadline_ms - now_ <= length * 2 / 3) {
      attempt.lease_deadline_ms = now_ + length;
      effects_.push_back(WriteLease{attempt.ref, attempt.lease_deadline_ms});
    }
  }
  if (attempt.phase == Phase::kRunning && attempt.kill_at_ms && now_ >= *attempt.kill_at_ms) {
    say(LogLevel::kWarn, "trainer did not stop in time: killing its process group", &attempt);
    attempt.killed = true;
    attempt.kill_at_ms = now_ + o_.stop_grace_ms;  // again, should that not help
    effects_.push_back(SignalTrainer{attempt.ref, TrainerSignal::kKill});
  }
  if (welcomed()) {
    if (attempt.reports.sent_through() > attempt.reports.acked() &&
        now_ - attempt.progress_at_ms >= o_.resend_ms) {
      attempt.reports.resend();
    }
    if (attempt.log.sent_through() > attempt.log.acked() &&
        now_ - attempt.log_progress_at_ms >= o_.resend_ms) {
      attempt.log.resend();
    }
  }
  if (attempt.reports.acked() > attempt.persisted_ack && now_ >= attempt.persist_at_ms) {
    attempt.persisted_ack = attempt.reports.acked();
    attempt.persist_at_ms = now_ + kPersistAckEveryMs;
    effects_.push_back(PersistAck{attempt.ref, attempt.persisted_ack});
  }
}

/// Opens, watches and gives up the stream; heartbeats; the limit of life without it.
void Stepper::keep_session() {
  const auto give_up = [&](std::string why) {
    effects_.push_back(CloseSession{s_.session});
    close_session(Status(Code::kDeadlineExceeded, std::move(why)));
  };
  switch (s_.session_phase) {
    case SessionPhase::kClosed:
      if (now_ >= s_.open_at_ms) {
        s_.session_phase = SessionPhase::kOpening;
        s_.session_since_ms = now_;
        effects_.push_back(OpenSession{++s_.session});
      }
      break;
    case SessionPhase::kOpening:
    case SessionPhase::kGreeting:
      if (now_ - s_.session_since_ms >= o_.welcome_limit_ms)
        give_up("the coordinator does not answer");
      break;
    case SessionPhase::kWelcomed: {
      const std::int64_t silence_max = std::max(s_.lease_ms, 4 * s_.heartbeat_ms);
      if (now_ - s_.last_contact_ms >= silence_max) {
        give_up(fmt::format("the coordinator was silent for {} ms", now_ - s_.last_contact_ms));
        break;
      }
      if (now_ >= s_.heartbeat_at_ms) {
        s_.heartbeat_at_ms = now_ + s_.heartbeat_ms;
        protocol::Heartbeat heartbeat;
        heartbeat.serial = ++s_.heartbeat_serial;
        for (const auto& [ref, attempt] : s_.attempts) {
          if (attempt.stop != StopKind::kDiscard) heartbeat.running.push_back(ref);
        }
        send(std::move(heartbeat));
      }
      break;
    }
  }
  if (!welcomed() && !s_.offline_stopped && now_ - s_.last_contact_ms >= o_.offline_limit_ms) {
    s_.offline_stopped = true;
    for (auto& [ref, attempt] : s_.attempts) {
      if (!may_live(attempt)) continue;
      stop(attempt, StopKind::kStop,
           fmt::format("no coordinator for {} s, the offline limit", o_.offline_limit_ms / 1000));
    }
  }
}

void Stepper::forget(const AttemptRef& ref) {
  s_.attempts.erase(ref);
  s_.forgotten.push_back(ref);
  if (s_.forgotten.size() > kForgottenMax) s_.forgotten.pop_front();
  effects_.push_back(ForgetAttempt{ref});
}

void Stepper::settle() {
  std::vector<AttemptRef> done;
  for (auto& [ref, attempt] : s_.attempts) {
    if (attempt.phase != Phase::kExited) continue;
    if (attempt.stop == StopKind::kDiscard) {
      done.push_back(ref);
      continue;
    }
    if (attempt.end_sequence == 0 || attempt.reports.acked() < attempt.end_sequence) continue;
    if (attempt.end_acked_at_ms == 0) attempt.end_acked_at_ms = now_;
    const bool log_done = attempt.log_complete && attempt.log.acked() >= attempt.log.read_through();
    if (log_done || now_ - attempt.end_acked_at_ms >= o_.flush_limit_ms) done.push_back(ref);
  }
  for (const AttemptRef& ref : done) forget(ref);
  start_waiting();
  finish();
}

/// Ends the daemon when there is nothing left for it to do.
void Stepper::finish() {
  if (!s_.attempts.empty()) s_.idle_since_ms = now_;
  const bool any_live = live_count(s_) > 0;
  if (any_live) s_.quiet_since_ms = now_;
  if (s_.exited) return;
  if (s_.draining && !s_.drain_forced && o_.drain_limit_ms > 0 &&
      now_ - s_.drain_since_ms >= o_.drain_limit_ms) {
    drain({}, true);
  }
  const auto leave = [&](std::string why) {
    s_.exited = true;
    say(LogLevel::kInfo, "the worker ends", nullptr, std::move(why));
    effects_.push_back(Exit{0});
  };
  if (s_.draining && s_.attempts.empty()) return leave("drained");
  if (s_.draining && !any_live && !welcomed() && now_ - s_.quiet_since_ms >= o_.flush_limit_ms &&
      now_ - s_.drain_since_ms >= o_.flush_limit_ms) {
    return leave(
        fmt::format("drained, but the coordinator cannot be reached: the unsent reports of {} "
                    "attempts stay on disk; a worker started again with this name and this "
                    "trials folder sends them",
                    s_.attempts.size()));
  }
  if (o_.exit_when_idle && s_.attempts.empty() && now_ - s_.idle_since_ms >= o_.idle_exit_ms) {
    leave(fmt::format("nothing to do for {} s", o_.idle_exit_ms / 1000));
  }
}

}  // namespace

bool may_live(const AgentAttempt& attempt) { return attempt.phase != Phase::kExited; }

std::size_t live_count(const AgentState& state) {
  return static_cast<std::size_t>(
      std::count_if(state.attempts.begin(), state.attempts.end(), [](const auto& entry) {
        return entry.second.phase == Phase::kStarting || entry.second.phase == Phase::kRunning;
      }));
}

Effects step(AgentState& state, const AgentEvent& event, MonotonicMs now) {
  Stepper stepper(state, now);
  if (state.exited) return {};
  std::visit([&](const auto& value) { stepper.on(value); }, event);
  stepper.settle();
  return stepper.take();
}

}  // namespace tailor::agent
