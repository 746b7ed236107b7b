// "Why is my trial waiting?" in a sentence or two.
#include <fmt/format.h>

#include "coordinator/core/step.h"

namespace tailor::core {

using storage::SweepState;
using storage::TrialState;

namespace {

std::string seconds(std::int64_t ms) {
  return fmt::format("{:.1f} s", static_cast<double>(ms) / 1000.0);
}

/// What the cluster lacks to run a trial of `sweep` now; "" when there is a free slot.
std::string explain_slots(const State& state, const Sweep& sweep) {
  const bool wants_gpu = sweep.spec->resources.gpus > 0;
  const std::size_t need = wants_gpu ? sweep.spec->resources.gpus : 1;
  const std::string what =
      wants_gpu ? fmt::format("{} GPU slot{}", need, need == 1 ? "" : "s on one worker")
                : "a CPU slot";
  std::size_t connected = 0;
  std::size_t draining = 0;
  bool could_ever = false;
  bool fits_now = false;
  for (const auto& [id, worker] : state.workers) {
    if (worker.session == 0) continue;
    ++connected;
    draining += worker.row.draining;
    if (worker.row.draining) continue;
    std::size_t all = 0;
    std::size_t free = 0;
    for (const WorkerSlot& slot : worker.slots) {
      if ((slot.slot.kind == protocol::DeviceKind::kGpu) != wants_gpu) continue;
      ++all;
      free += !slot.held_by;
    }
    could_ever |= all >= need;
    fits_now |= free >= need;
  }
  if (connected == 0) {
    return fmt::format("no worker is connected ({} known); start one with `tailor-worker`",
                       state.workers.size());
  }
  if (!could_ever) {
    return fmt::format("no connected worker {}has {}", draining > 0 ? "that takes work " : "",
                       what);
  }
  return fits_now ? "" : fmt::format("every slot of its kind is taken; it waits for {}", what);
}

std::string explain_queued(const State& state, const Sweep& sweep, const Trial& trial, Now now) {
  const std::string again =
      trial.row.attempts == 0
          ? ""
          : fmt::format(" after attempt {} ended ({})", trial.row.attempts,
                        trial.row.message.empty() ? trial.row.end_class : trial.row.message);
  const std::string head = fmt::format("{} is queued{}: ", trial.row.id.to_string(), again);
  if (sweep.row.state == SweepState::kPaused) {
    return head + fmt::format("its sweep {} is paused; `tailor resume {}` lets it go on",
                              sweep.row.id.to_string(), sweep.row.id.to_string());
  }
  const auto not_before_ms = state.deadlines.at(DeadlineKind::kBackoff, trial.row.id.value);
  if (not_before_ms.value_or(now.mono_ms) > now.mono_ms) {
    return head + fmt::format("it waits {} before the next attempt",
                              seconds(*not_before_ms - now.mono_ms));
  }
  const std::int32_t parallel = sweep.spec->resources.parallel;
  if (parallel > 0 && sweep.count(TrialState::kRunning) >= static_cast<std::uint64_t>(parallel)) {
    return head + fmt::format("{} trials of its sweep run, as many as resources.parallel allows",
                              sweep.count(TrialState::kRunning));
  }
  if (const std::string lack = explain_slots(state, sweep); !lack.empty()) return head + lack;
  std::size_t ahead = 0;
  for (const TrialId id : sweep.ready) ahead += id < trial.row.id;
  return head + fmt::format("{} trials of its sweep are ahead of it", ahead);
}

std::string explain_running(const State& state, const Trial& trial, Now now) {
  const LiveAttempt& live = *trial.live;
  const Worker& worker = state.workers.at(live.row.worker);
  std::string text =
      fmt::format("{} runs as attempt {} on worker {} ({})", trial.row.id.to_string(),
                  live.row.id.number, worker.row.name, worker.row.id.to_string());
  if (live.row.state == storage::AttemptState::kAssigned)
    text += "; its trainer has not reported yet";
  if (live.stop_reason != protocol::StopReason::kNone)
    text += fmt::format("; it was told to stop ({})", protocol::stop_reason_name(live.stop_reason));
  if (worker.session == 0) {
    const auto lease_ms = state.deadlines.at(DeadlineKind::kLease, trial.row.id.value);
    text += fmt::format(
        "; the worker is not connected: without news within {} the trial is queued again",
        seconds(std::max<std::int64_t>(0, lease_ms.value_or(now.mono_ms) - now.mono_ms)));
  }
  return text;
}

}  // namespace

std::string explain(const State& state, TrialId id, Now now) {
  const auto found = state.trials.find(id);
  if (found == state.trials.end()) return fmt::format("there is no trial {}", id.to_string());
  const Trial& trial = found->second;
  const Sweep& sweep = state.sweeps.at(trial.row.sweep);
  switch (trial.row.state) {
    case TrialState::kQueued:
      return explain_queued(state, sweep, trial, now);
    case TrialState::kRunning:
      return explain_running(state, trial, now);
    case TrialState::kCompleted:
      return fmt::format("{} completed with validation loss {:.6g} after {} attempt{}",
                         id.to_string(), trial.row.objective.value_or(0), trial.row.attempts,
                         trial.row.attempts == 1 ? "" : "s");
    case TrialState::kStopped:
      return fmt::format("{} was stopped early: {}", id.to_string(), trial.row.message);
    case TrialState::kFailed:
      return fmt::format("{} failed ({}): {}; `tailor retry {}` tries again", id.to_string(),
                         trial.row.end_class, trial.row.message, id.to_string());
    case TrialState::kCancelled:
      return fmt::format("{} was cancelled", id.to_string());
  }
  return "";
}

}  // namespace tailor::core
