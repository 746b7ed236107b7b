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

constexpr std::size_t kRefusedMax = 256;

/// Its ranks are not the first ones: it reports no end, and needs none.
bool is_member(const AgentAttempt& attempt) { return attempt.gang.first_rank > 0; }

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

/// What the end of a process says of the attempt.
EndReport end_of_process(const AgentAttempt& attempt) {
  const ExitStatus& exit = attempt.exit;
  const auto end = [](EndClass kind, std::string message) {
    EndReport report;
    report.end = kind;
    report.message = std::move(message);
    return report;
  };
  if (!attempt.failure.empty()) return end(EndClass::kInfrastructure, attempt.failure);
  if (!attempt.timeout.empty()) {
    return end(EndClass::kTimeout,
               attempt.timeout + (attempt.killed ? "; it did not save and stop, and was killed"
                                                 : "; it ended without saying more"));
  }
  if (attempt.stop == StopKind::kStop) {
    return end(
        EndClass::kStopped,
        attempt.killed
            ? fmt::format("stopped ({}): killed after it did not save and stop in time; it "
                          "resumes from its last checkpoint",
                          attempt.stop_reason)
            : fmt::format("stopped ({}) before it could report its end", attempt.stop_reason));
  }
  if (exit.signal) {
    return end(
        EndClass::kInfrastructure,
        fmt::format(
            "the trainer was killed by {}{}; see the end of its log", signal_name(*exit.signal),
            *exit.signal == 9 ? " (somebody, or the kernel when memory ran out: see dmesg)" : ""));
  }
  if (exit.code && *exit.code == 0) {
    // Without an end there is no objective: never a success.
    return end(is_member(attempt) ? EndClass::kCompleted : EndClass::kInfrastructure,
               is_member(attempt)
                   ? ""
                   : "the trainer exited with code 0 but reported no end and so no result");
  }
  if (exit.code) {
    return end(protocol::end_class_of_exit(*exit.code),
               fmt::format("the trainer exited with code {}{}; see the end of its log", *exit.code,
                           is_member(attempt) ? "" : " without reporting why"));
  }
  return end(
      EndClass::kInfrastructure,
      "the trainer ended without reporting why while its worker was not running; see the end "
      "of its log");
}

}  // namespace

bool Stepper::held_or_forgotten(const AttemptRef& ref) const {
  return s_.attempts.contains(ref) ||
         std::find(s_.forgotten.begin(), s_.forgotten.end(), ref) != s_.forgotten.end();
}

/// An attempt's number is given out once in a generation of the coordinator's database, to one
/// token. In another generation it is another attempt, which has folders of its own.
std::string Stepper::clash(const AttemptRef& ref) const {
  const auto clashes = [&](const AttemptRef& other) {
    return other.attempt == ref.attempt && other.token != ref.token &&
           generation_of(other.token) == generation_of(ref.token);
  };
  const bool held = std::any_of(s_.attempts.begin(), s_.attempts.end(),
                                [&](const auto& entry) { return clashes(entry.first); });
  if (!held && std::none_of(s_.forgotten.begin(), s_.forgotten.end(), clashes)) return {};
  return fmt::format("this worker {} {} under another token", held ? "holds" : "has had",
                     ref.attempt.to_string());
}

std::string Stepper::refusal(const protocol::Assign& assign) {
  if (s_.draining) {
    say_draining();
    return "this worker drains";
  }
  if (!s_.unfit.empty()) return s_.unfit;
  const AttemptId id{assign.spec.trial, assign.spec.attempt};
  if (std::string why = clash({id, assign.spec.token}); !why.empty()) return why;
  if (assign.slots.empty()) return "it names no slot";
  const std::set<std::uint32_t> wanted(assign.slots.begin(), assign.slots.end());
  if (wanted.size() != assign.slots.size()) return "it names a slot twice";
  for (const std::uint32_t index : wanted) {
    const bool exists =
        std::any_of(o_.slots.begin(), o_.slots.end(),
                    [&](const protocol::Slot& slot) { return slot.index == index; });
    if (!exists) return fmt::format("this worker has no slot {}", index);
  }
  const protocol::Gang& gang = assign.gang;
  if (gang.ranks < 1 || gang.world < gang.ranks || gang.first_rank > gang.world - gang.ranks) {
    return fmt::format("ranks {} to {} are not among {}", gang.first_rank,
                       std::uint64_t{gang.first_rank} + gang.ranks, gang.world);
  }
  for (const auto& [other, attempt] : s_.attempts) {
    if (!may_live(attempt) || attempt.stop != StopKind::kNone) continue;
    const bool shares = std::any_of(attempt.slots.begin(), attempt.slots.end(),
                                    [&](std::uint32_t index) { return wanted.contains(index); });
    if (shares) return fmt::format("its slot is in use by {}", other.attempt.to_string());
  }
  return {};
}

void Stepper::refuse(const AttemptRef& ref, EndClass end, std::string why) {
  say(LogLevel::kWarn, "refused an assignment", nullptr,
      fmt::format("attempt={} {}", ref.attempt.to_string(), why));
  s_.refused.push_back({ref, end, std::move(why)});
  if (s_.refused.size() > kRefusedMax) s_.refused.pop_front();
  if (welcomed()) send(s_.refused.back());
}

void Stepper::receive(const protocol::Assign& assign) {
  const AttemptRef ref{{assign.spec.trial, assign.spec.attempt}, assign.spec.token};
  if (held_or_forgotten(ref)) return;
  const auto before =
      std::find_if(s_.refused.begin(), s_.refused.end(),
                   [&](const protocol::Refused& refused) { return refused.ref == ref; });
  if (before != s_.refused.end()) return send(*before);
  if (std::string why = refusal(assign); !why.empty()) {
    return refuse(ref, EndClass::kInfrastructure, std::move(why));
  }
  AgentAttempt attempt;
  attempt.ref = ref;
  attempt.slots = assign.slots;
  attempt.phase = Phase::kWaiting;
  attempt.gang = assign.gang;
  attempt.limits = {assign.progress_limit_ms, assign.time_limit_ms};
  attempt.progress_at_ms = attempt.log_progress_at_ms = now_;
  attempt.waiting = assign;
  s_.attempts.emplace(ref, std::move(attempt));
  start_waiting();
}

void Stepper::receive(const protocol::Rendezvous& message) {
  AgentAttempt* attempt = find(message.ref);
  if (attempt == nullptr || !is_silent(*attempt) || !attempt->rendezvous.empty()) return;
  attempt->rendezvous = message.address;
  start_waiting();
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
  // The GPUs of its slots are the only ones that its trainer sees (CUDA_VISIBLE_DEVICES), hence
  // numbers from 0.
  std::int32_t threads = 0;
  assign.spec.device = "cpu";
  for (const protocol::Slot& slot : o_.slots) {
    if (std::find(assign.slots.begin(), assign.slots.end(), slot.index) == assign.slots.end())
      continue;
    threads += slot.threads;
    if (slot.kind == protocol::DeviceKind::kGpu) assign.spec.device = "cuda:0";
  }
  const auto ranks = static_cast<std::int32_t>(attempt.gang.ranks);
  assign.spec.threads = std::max(threads / ranks, 1);  // of each process
  effects_.push_back(
      StartTrainer{std::move(assign), attempt.lease_deadline_ms, attempt.rendezvous});
}

bool Stepper::in_use(const std::vector<std::uint32_t>& slots, const AttemptRef& ref) const {
  for (const auto& [other, holder] : s_.attempts) {
    if (other == ref || holder.phase == Phase::kWaiting || !may_live(holder)) continue;
    for (const std::uint32_t index : holder.slots) {
      if (std::find(slots.begin(), slots.end(), index) != slots.end()) return true;
    }
  }
  return false;
}

void Stepper::start_waiting() {
  for (auto& [ref, attempt] : s_.attempts) {
    if (attempt.phase != Phase::kWaiting || !attempt.waiting) continue;
    if (is_silent(attempt) && attempt.rendezvous.empty()) continue;
    if (in_use(attempt.slots, ref)) continue;
    protocol::Assign assign = std::move(*attempt.waiting);
    start_trainer(attempt, std::move(assign));
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
      say_member_ended(attempt);  // of a gang whose rank 0 never came up
      break;
    case Phase::kStarting:  // signalled when TrainerStarted tells that there is somebody to signal
      if (!told) effects_.push_back(CancelStart{attempt.ref});
      break;
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
  attempt->started_at_ms = attempt->stepped_at_ms = now_;
  say(LogLevel::kInfo, "trainer started", attempt);
  if (attempt->stop != StopKind::kNone) {
    effects_.push_back(SignalTrainer{attempt->ref, TrainerSignal::kTerm});
    attempt->kill_at_ms = now_ + o_.stop_grace_ms;
  }
}

void Stepper::on(const SpawnFailed& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || attempt->phase != Phase::kStarting) return;
  const StopKind stop = attempt->stop;
  const std::string reason = attempt->stop_reason;
  effects_.push_back(ForgetAttempt{event.ref, 0});
  s_.attempts.erase(event.ref);
  if (stop == StopKind::kNone) {
    refuse(event.ref, EndClass::kInfrastructure,
           "the trainer could not be started: " + event.message);
  } else if (stop == StopKind::kStop) {
    refuse(event.ref, EndClass::kStopped, fmt::format("stopped ({}) before it started", reason));
  }
}

void Stepper::on(const RendezvousFound& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || is_silent(*attempt) || attempt->gang.world == attempt->gang.ranks)
    return;
  attempt->rendezvous = event.address;
  say_rendezvous(*attempt);
}

void Stepper::say_rendezvous(const AgentAttempt& attempt) {
  if (!welcomed() || is_silent(attempt) || attempt.rendezvous.empty()) return;
  if (attempt.phase == Phase::kRunning) send(protocol::Rendezvous{attempt.ref, attempt.rendezvous});
}

void Stepper::say_member_ended(const AgentAttempt& attempt) {
  if (!welcomed() || !is_silent(attempt) || attempt.phase != Phase::kExited) return;
  if (attempt.stop == StopKind::kDiscard) return;
  EndReport end = end_of_process(attempt);
  send(protocol::MemberEnded{attempt.ref, end.end, std::move(end.message)});
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
  say_member_ended(*attempt);
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
  if (attempt.persisting_end || is_silent(attempt)) return;
  if (!attempt.own_end) {
    attempt.own_end = Report{0, now_ + s_.wall_offset_ms, end_of_process(attempt)};
  }
  const std::uint64_t sequence = attempt.reports.read_through() + 1;
  if (attempt.own_end->sequence != sequence) {
    attempt.own_end->sequence = sequence;
    attempt.persisting_end = true;
    effects_.push_back(PersistEnd{attempt.ref, *attempt.own_end});
    return;
  }
  attempt.end_sequence = sequence;
  attempt.reports.add({*attempt.own_end});
}

void Stepper::on(const EndPersisted& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || !attempt->persisting_end) return;
  attempt->persisting_end = false;
  // A Welcome in between may have moved the window: then it is read, and worked out, again.
  if (attempt->own_end && attempt->own_end->sequence == event.sequence &&
      attempt->reports.read_through() + 1 == event.sequence) {
    write_own_end(*attempt);
    pump(*attempt);
  } else {
    request_reads(*attempt);
  }
}

}  // namespace tailor::agent
