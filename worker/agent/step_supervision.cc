// What the clock asks of one attempt: its lease, a kill that is due, resends. See stepper.h.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "worker/agent/stepper.h"

namespace tailor::agent {

namespace {

constexpr std::int64_t kPersistAckEveryMs = 1000;

}  // namespace

void Stepper::on(const FilesAnswer& event) {
  AgentAttempt* attempt = find(event.ref);
  if (attempt == nullptr || attempt->files_trouble == event.trouble) return;
  attempt->files_trouble = event.trouble;
  if (event.trouble.empty()) {
    say(LogLevel::kInfo, "the attempt's files answer again", attempt);
  } else {
    // Without its lease the trainer stops by itself. The coordinator may give the trial to a node
    // that can write; should the files come back first, nothing is lost.
    say(LogLevel::kError, "the attempt's files do not answer: its lease cannot be renewed", attempt,
        event.trouble);
  }
}

void Stepper::on(const NodeHealth& event) {
  s_.health_at_ms = now_;
  s_.device_trouble = event.trouble;
  s_.disk_free_bytes = event.disk_free_bytes;
  s_.disk_total_bytes = event.disk_total_bytes;
  look_at_health();
}

/// Whether the node may be given work, from what is known of its disk and devices. A change is told
/// at once.
void Stepper::look_at_health() {
  const std::uint64_t total = s_.disk_total_bytes;
  const auto share = static_cast<std::uint64_t>(static_cast<double>(total) * o_.disk_reserve_share);
  const std::uint64_t reserve = total == 0 ? 0 : std::min(o_.disk_reserve_bytes, share);
  // Fit again a little above the mark, so that it does not change with every file.
  s_.disk_low = s_.disk_free_bytes < (s_.disk_low ? reserve + reserve / 10 : reserve);
  std::string unfit = s_.device_trouble;
  const auto add = [&](std::string why) { unfit += (unfit.empty() ? "" : "; ") + std::move(why); };
  if (s_.disk_low) {
    add(
        fmt::format("the disk of the trials folder has {} MiB free, less than the {} MiB that are "
                    "kept free (--disk-reserve): make room",
                    s_.disk_free_bytes >> 20, reserve >> 20));
  }
  const std::int64_t silent_ms = now_ - s_.health_at_ms;
  if (o_.health_limit_ms > 0 && silent_ms >= o_.health_limit_ms) {
    add("the file system of the trials folder, or a device's driver, does not answer");
  }
  const bool changed = unfit.empty() != s_.unfit.empty();
  s_.unfit = std::move(unfit);
  if (!changed) return;
  if (s_.unfit.empty()) {
    say(LogLevel::kInfo, "fit for work again");
  } else {
    say(LogLevel::kWarn, "not fit for new work; what runs goes on", nullptr, s_.unfit);
  }
  s_.heartbeat_at_ms = now_;
}

/// Ends a trainer that passed a limit of its Assign.
void Stepper::check_limits(AgentAttempt& attempt) {
  const auto end = [&](std::string why) {
    say(LogLevel::kWarn, "a limit has passed: the trainer is told to save and stop", &attempt, why);
    attempt.timeout = std::move(why);
    stop(attempt, StopKind::kStop, "timeout");
  };
  const AttemptLimits& limits = attempt.limits;
  if (limits.time_ms > 0 && now_ - attempt.started_at_ms >= limits.time_ms) {
    return end(fmt::format("the attempt ran for {} s, its time limit", limits.time_ms / 1000));
  }
  if (limits.progress_ms <= 0 || is_silent(attempt) || attempt.end_sequence != 0) return;
  if (now_ - attempt.stepped_at_ms < limits.progress_ms) return;
  end(attempt.last_step < 0 ? fmt::format("no step within {} s of its start, the progress limit",
                                          limits.progress_ms / 1000)
                            : fmt::format("no news since step {} for {} s, the progress limit",
                                          attempt.last_step, limits.progress_ms / 1000));
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
  if (attempt.phase == Phase::kRunning && attempt.stop == StopKind::kNone) check_limits(attempt);
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
