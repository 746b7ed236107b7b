// What the clock asks of one attempt: its lease, a kill that is due, resends. See stepper.h.
#include <algorithm>

#include "worker/agent/stepper.h"

namespace tailor::agent {

namespace {

constexpr std::int64_t kPersistAckEveryMs = 1000;

}  // namespace

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

}  // namespace tailor::agent
