// The stream to the coordinator: opening it, greeting, heartbeats, giving it up. See stepper.h.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "worker/agent/stepper.h"

namespace tailor::agent {

using protocol::AttemptRef;

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
  hello.wall_ms = now_ + s_.wall_offset_ms;
  hello.folder = o_.folder;
  hello.memory_bytes = o_.memory_bytes;
  hello.labels = o_.labels;
  hello.address = o_.address;
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
  if (reason.code() == Code::kAlreadyExists && news) {
    // The connected one keeps the name. This one's trials go on, and it comes in when the other has
    // gone: it may be this very daemon's former life, which the coordinator has not missed yet.
    say(LogLevel::kError,
        "another worker with this one's name is connected; trying again until it is gone", nullptr,
        fmt::format("give this one another --name if both are wanted: {}", reason.message()));
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
    upload_through(*attempt, verdict.acked_sequence);
    attempt->reports.restart(verdict.acked_sequence);
    attempt->log.restart(verdict.log_offset);
  }
  if (s_.draining) say_draining();
  for (auto& [ref, attempt] : s_.attempts) {
    say_rendezvous(attempt);
    say_member_ended(attempt);
    request_reads(attempt);
    pump(attempt);
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
        heartbeat.wall_ms = now_ + s_.wall_offset_ms;
        heartbeat.unfit = s_.unfit;
        heartbeat.disk_free_bytes = s_.disk_free_bytes;
        heartbeat.disk_total_bytes = s_.disk_total_bytes;
        for (const auto& [ref, attempt] : s_.attempts) {
          const bool wanted = attempt.stop != StopKind::kDiscard;
          if (wanted && attempt.files_trouble.empty()) heartbeat.running.push_back(ref);
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

}  // namespace tailor::agent
