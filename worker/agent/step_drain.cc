// Taking nothing new, and ending when nothing is left. See stepper.h.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "worker/agent/stepper.h"

namespace tailor::agent {

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
  if (!s_.uploads.empty()) {
    // Without them the trials would go on from older checkpoints, or from nothing.
    const bool reachable = welcomed() || now_ - s_.last_contact_ms < o_.flush_limit_ms;
    if (!any_live && reachable && now_ - s_.quiet_since_ms < o_.upload_limit_ms) return;
    if (s_.draining && s_.attempts.empty()) {
      say(LogLevel::kWarn,
          "checkpoints were not brought to the coordinator in time; they stay here", nullptr,
          fmt::format("{} trials", s_.uploads.size()));
    }
  }
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

}  // namespace tailor::agent
