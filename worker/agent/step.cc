// step(), and the daemon's own life: start, ticks, forgetting. See stepper.h for the other parts.
#include "worker/agent/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "worker/agent/stepper.h"

namespace tailor::agent {

using protocol::AttemptRef;

namespace {

constexpr std::size_t kForgottenMax = 4096;

}  // namespace

void Stepper::on(const Start& event) {
  s_.wall_offset_ms = event.wall_ms - now_;
  s_.last_contact_ms = s_.idle_since_ms = s_.quiet_since_ms = s_.open_at_ms = now_;
  s_.health_at_ms = now_;
  for (const RestoredAttempt& restored : event.restored) {
    AgentAttempt attempt;
    attempt.ref = restored.ref;
    attempt.slots = restored.slots;
    attempt.phase = restored.running ? Phase::kRunning : Phase::kExited;
    attempt.exited_at_ms = now_;
    attempt.reports.restart(restored.acked_sequence);
    attempt.persisted_ack = restored.acked_sequence;
    attempt.own_end = restored.end;
    attempt.gang = restored.gang;
    attempt.limits = restored.limits;
    attempt.started_at_ms = restored.started_ms > 0 ? std::min(restored.started_ms, now_) : now_;
    attempt.stepped_at_ms = now_;
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
  look_at_health();
  keep_session();
  for (auto& [ref, attempt] : s_.attempts) {
    request_reads(attempt);
    pump(attempt);
  }
}

void Stepper::forget(const AttemptRef& ref) {
  effects_.push_back(ForgetAttempt{ref, s_.attempts.at(ref).reports.acked()});
  s_.attempts.erase(ref);
  s_.forgotten.push_back(ref);
  if (s_.forgotten.size() > kForgottenMax) s_.forgotten.pop_front();
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
