// Orders and the trainers that carry them out: assign, start, stop, exit. See stepper.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "worker/agent/stepper.h"

namespace tailor::agent {

using protocol::AttemptRef;
using protocol::EndClass;
using protocol::EndReport;
using protocol::Report;

namespace {

/// "SIGKILL" and friends; signals that a person may meet on a trainer.
std::string signal_name(int signal) {
  constexpr std::pair<int, const char*> kNames[] = {
      {1, "SIGHUP"},   {2, "SIGINT"},   {3, "SIGQUIT"}, {4, "SIGILL"},   {6, "SIGABRT"},
      {7, "SIGBUS"},   {8, "SIGFPE"},   {9, "SIGKILL"}, {11, "SIGSEGV"}, {13, "SIGPIPE"},
      {15, "SIGTERM"}, {24, "SIGXCPU"}, {25, "SIGXFSZ"}};
  for (const auto& [number, name] : kNames) {
    if (number == signal) return name;
  }
  return fmt::format("signal {}", signal);
}

}  // namespace

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

void Stepper::receive(const protocol::Stop& message) {
  AgentAttempt* attempt = find(message.ref);
  if (attempt == nullptr) return;
  stop(*attempt, message.discard ? StopKind::kDiscard : StopKind::kStop,
       std::string(protocol::stop_reason_name(message.reason)));
}

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

}  // namespace tailor::agent
