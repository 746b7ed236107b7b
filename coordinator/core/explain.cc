#include "coordinator/core/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "coordinator/core/step.h"
#include "coordinator/core/transition.h"

namespace tailor::core {

using storage::SweepState;
using storage::TrialState;

namespace {

constexpr std::array<std::pair<WhyCode, std::string_view>, 24> kWhyNames = {
    {{WhyCode::kUnknown, "unknown"},
     {WhyCode::kUnreadable, "unreadable"},
     {WhyCode::kPaused, "paused"},
     {WhyCode::kSchedule, "schedule"},
     {WhyCode::kBackOff, "back_off"},
     {WhyCode::kParallel, "parallel"},
     {WhyCode::kNoWorker, "no_worker"},
     {WhyCode::kNeverFits, "never_fits"},
     {WhyCode::kWorkersOut, "workers_out"},
     {WhyCode::kBusy, "busy"},
     {WhyCode::kKept, "kept"},
     {WhyCode::kKeeping, "keeping"},
     {WhyCode::kMakingRoom, "making_room"},
     {WhyCode::kHolder, "holder"},
     {WhyCode::kBehind, "behind"},
     {WhyCode::kAssigned, "assigned"},
     {WhyCode::kRunning, "running"},
     {WhyCode::kStopping, "stopping"},
     {WhyCode::kWorkerAway, "worker_away"},
     {WhyCode::kMembersEnding, "members_ending"},
     {WhyCode::kCompleted, "completed"},
     {WhyCode::kStoppedEarly, "stopped_early"},
     {WhyCode::kFailed, "failed"},
     {WhyCode::kCancelled, "cancelled"}}};

/// Messages come from trainers and workers: of any length.
constexpr std::size_t kTextShown = 400;

std::string cut(std::string_view text) {
  if (text.size() <= kTextShown) return std::string(text);
  return fmt::format("{}... ({} bytes more)", text.substr(0, kTextShown), text.size() - kTextShown);
}

std::string seconds(std::int64_t ms) {
  return fmt::format("{:.1f} s", static_cast<double>(std::max<std::int64_t>(0, ms)) / 1000.0);
}

WallMs wall_of(MonotonicMs at_ms, Now now) { return now.wall_ms - (now.mono_ms - at_ms); }

std::string plural(std::uint64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string bytes_text(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

/// "2 GPU slots of at least 20.0 GiB on each of 2 workers".
std::string demand_text(const scheduler::Demand& demand) {
  const bool gpu = demand.kind == protocol::DeviceKind::kGpu;
  std::string text = plural(demand.slots, gpu ? "GPU slot" : "CPU slot");
  if (demand.slot_memory_bytes > 0) {
    text += " of at least " + bytes_text(demand.slot_memory_bytes);
  }
  if (demand.memory_bytes > 0) text += " and " + bytes_text(demand.memory_bytes) + " of memory";
  if (!demand.labels.empty()) text += fmt::format(" with {}", fmt::join(demand.labels, ", "));
  return text + (demand.workers > 1 ? fmt::format(" on each of {} workers", demand.workers)
                 : demand.slots > 1 ? " on one worker"
                                    : "");
}

/// Why the worker is given no work; "" when it is.
std::string out_text(const State& state, const Worker& worker, Now now) {
  const auto pause = state.deadlines.at(DeadlineKind::kPause, worker.row.id.value);
  if (worker.row.draining) return "is draining";
  if (!worker.row.quarantine.empty()) {
    return fmt::format(
        "is in quarantine ({}){}", cut(worker.row.quarantine),
        worker.may_probe ? "; one trial may try it"
        : pause          ? fmt::format("; one trial tries it in {}", seconds(*pause - now.mono_ms))
        : is_probed(worker)
            ? "; one trial tries it"
            : fmt::format("; `tailor release {}` ends that", worker.row.id.to_string()));
  }
  if (!worker.unfit.empty()) return "wants no work: " + cut(worker.unfit);
  if (worker.silent) return "fell silent and lost a lease";
  if (pause) {
    return fmt::format("waits {} before it is given work ({})", seconds(*pause - now.mono_ms),
                       cut(worker.pause_reason));
  }
  return "";
}

/// What stands between a demand and the connected workers, counted by worker.
struct Survey {
  std::size_t connected = 0;
  std::size_t enough_slots = 0;            ///< have so many slots of the kind and size in all
  std::size_t enough_memory = 0;           ///< of those
  std::size_t labelled = 0;                ///< of those
  std::size_t taking = 0;                  ///< of those, may be given work
  std::size_t free = 0;                    ///< of those, have it free
  std::size_t kept = 0;                    ///< of those, but it is kept for another trial
  std::map<std::string, std::string> out;  ///< who is not given work, and why
};

Survey survey(const State& state, const scheduler::Demand& demand, TrialId trial, Now now) {
  scheduler::Demand slots = demand;
  slots.memory_bytes = 0;
  slots.labels.clear();
  scheduler::Demand memory = slots;
  memory.memory_bytes = demand.memory_bytes;
  Survey s;
  for (const auto& [id, worker] : state.workers) {
    if (worker.session == 0) continue;
    ++s.connected;
    const scheduler::Offer whole = whole_offer(worker);
    if (!scheduler::fits(whole, slots)) continue;
    ++s.enough_slots;
    if (!scheduler::fits(whole, memory)) continue;
    ++s.enough_memory;
    if (!scheduler::fits(whole, demand)) continue;
    ++s.labelled;
    if (!takes_work(state, worker)) {
      if (s.out.size() <= kWhyDetailsMax) {
        s.out.emplace("worker " + worker.row.name, out_text(state, worker, now));
      }
      continue;
    }
    ++s.taking;
    if (scheduler::fits(offer_of(state, worker, trial), demand)) {
      ++s.free;
    } else if (worker.reserved_for.valid() && worker.reserved_for != trial &&
               scheduler::fits(offer_of(state, worker, worker.reserved_for), demand)) {
      ++s.kept;
    }
  }
  return s;
}

struct Reason {
  WhyCode code = WhyCode::kBehind;
  std::string text;
  std::map<std::string, std::string> details;
};

/// What the cluster lacks to run the trial now; kBehind when it lacks nothing.
Reason lack(const State& state, const Sweep& sweep, const Trial& trial, Now now) {
  const scheduler::Demand demand = demand_now(state, sweep);
  const Survey s = survey(state, demand, trial.row.id, now);
  const std::string what = demand_text(demand);
  if (s.connected == 0) {
    return {WhyCode::kNoWorker,
            fmt::format("no worker is connected ({} known); start one with `tailor-worker`",
                        state.workers.size()),
            {}};
  }
  if (s.labelled < demand.workers) {
    const bool slots = s.enough_slots < demand.workers;
    const bool memory = !slots && s.enough_memory < demand.workers;
    const std::size_t have = slots ? s.enough_slots : memory ? s.enough_memory : s.labelled;
    const std::string_view lacking = slots ? "slots" : memory ? "memory of the node" : "labels";
    return {WhyCode::kNeverFits,
            have == 0
                ? fmt::format("no connected worker has {}; what is missing: {}", what, lacking)
                : fmt::format("it needs {}, and of the connected workers {} could do that; what "
                              "is missing: {}",
                              what, have, lacking),
            s.out};
  }
  if (s.taking < demand.workers) {
    return {WhyCode::kWorkersOut,
            fmt::format("it needs {}; of {} that could do that {} given work now", what,
                        plural(s.labelled, "worker"),
                        s.taking == 0 ? "none is" : fmt::format("only {} are", s.taking)),
            s.out};
  }
  if (s.free >= demand.workers) return {};
  if (s.free + s.kept >= demand.workers) {
    return {WhyCode::kKept,
            fmt::format("it waits for {}; what is free is kept for a trial that waited long", what),
            s.out};
  }
  return {WhyCode::kBusy, fmt::format("every slot of its kind is taken; it waits for {}", what),
          s.out};
}

std::string names_of(const State& state, const std::vector<WorkerId>& workers) {
  std::string text;
  for (std::size_t i = 0; i < workers.size() && i < kWhyDetailsMax; ++i) {
    text += (i == 0 ? "" : ", ") + state.workers.at(workers[i]).row.name;
  }
  return workers.size() > kWhyDetailsMax
             ? fmt::format("{} and {} more", text, workers.size() - kWhyDetailsMax)
             : text;
}

/// What the widths of its candidate are cut from, and how far that is.
Reason schedule_reason(const State& state, const Sweep& sweep, const Trial& trial) {
  const storage::ScheduleRow& row = sweep.schedules.at(trial.row.candidate);
  const Trial& reference = state.trials.at(row.reference);
  const sweep::Candidate& from = *sweep.candidates[reference.row.candidate];
  const auto request =
      sweep::schedule_of(*sweep.spec, sweep.candidates[trial.row.candidate]->point);
  std::string doing = reference.live ? "runs" : "is queued";
  if (reference.live && reference.live->step >= 0) {
    doing += fmt::format(", at step {}", reference.live->step);
  } else if (waits_for_schedule(sweep, reference)) {
    doing = "waits for its own widths";
  }
  return {
      WhyCode::kSchedule,
      fmt::format("its widths are cut from the work profile ({}) of {} ('{}', seed {}), which {}",
                  request ? sweep::request_text(*request) : "", row.reference.to_string(),
                  cut(from.name), reference.row.seed, doing),
      {}};
}

Reason queued_reason(const State& state, const Sweep& sweep, const Trial& trial, Now now) {
  const std::string sweep_id = sweep.row.id.to_string();
  if (sweep.row.state == SweepState::kPaused) {
    return {
        WhyCode::kPaused,
        fmt::format("its sweep {} is paused; `tailor resume {}` lets it go on", sweep_id, sweep_id),
        {}};
  }
  if (waits_for_schedule(sweep, trial)) return schedule_reason(state, sweep, trial);
  const auto not_before = state.deadlines.at(DeadlineKind::kBackoff, trial.row.id.value);
  if (not_before.value_or(now.mono_ms) > now.mono_ms) {
    return {WhyCode::kBackOff,
            fmt::format("it waits {} before the next attempt", seconds(*not_before - now.mono_ms)),
            {}};
  }
  if (!has_room(sweep)) {
    return {WhyCode::kParallel,
            fmt::format("{} trials of its sweep run, as many as resources.parallel allows",
                        sweep.count(TrialState::kRunning)),
            {}};
  }
  if (const auto kept = state.reservations.find(trial.row.id); kept != state.reservations.end()) {
    return {WhyCode::kKeeping,
            fmt::format("it needs {}; slots of {} are kept for it as they become free",
                        demand_text(sweep.demand), names_of(state, kept->second.workers)),
            {}};
  }
  if (trial.makes_room > 0) {
    return {WhyCode::kMakingRoom,
            fmt::format("{} of lower priority told to save and stop for it",
                        trial.makes_room == 1 ? "a trial was"
                                              : fmt::format("{} trials were", trial.makes_room)),
            {}};
  }
  const auto until = state.deadlines.at(DeadlineKind::kHolder, trial.row.id.value);
  if (until && waits_for_holder(state, trial)) {
    const Worker& holder = state.workers.at(trial.checkpoint->worker);
    return {WhyCode::kHolder,
            fmt::format("its checkpoint of step {} lies in the trials folder of {}, which {}; in "
                        "{} it starts over elsewhere",
                        trial.checkpoint->step, holder.row.name,
                        holder.session == 0 ? "is not connected" : "has nothing free",
                        seconds(*until - now.mono_ms)),
            {}};
  }
  Reason reason = lack(state, sweep, trial, now);
  if (reason.code != WhyCode::kBehind) return reason;
  const auto place = sweep.ready.find({-std::int64_t{trial.row.priority}, trial.row.id});
  const auto ahead = place == sweep.ready.end() ? 0 : std::distance(sweep.ready.begin(), place);
  reason.text = fmt::format("{} trials of its sweep are ahead of it", ahead);
  return reason;
}

Why explain_queued(const State& state, const Sweep& sweep, const Trial& trial, Now now) {
  const std::string again =
      trial.row.attempts == 0 ? ""
                              : fmt::format(" after attempt {} ended ({})", trial.row.attempts,
                                            cut(trial.row.message.empty()
                                                    ? protocol::end_class_name(trial.row.end_class)
                                                    : std::string_view(trial.row.message)));
  Reason reason = queued_reason(state, sweep, trial, now);
  Why why;
  why.code = reason.code;
  why.sentence = fmt::format("{} is queued{}: {}", trial.row.id.to_string(), again, reason.text);
  why.details = std::move(reason.details);
  const bool ready = sweep.ready.contains({-std::int64_t{trial.row.priority}, trial.row.id});
  why.since_ms = ready ? wall_of(trial.ready_since_ms, now) : trial.row.created_ms;
  if (const std::int64_t priority = priority_of(sweep, trial); priority != 0) {
    why.details.emplace("priority", std::to_string(priority));
  }
  return why;
}

std::string away_text(const State& state, const LiveAttempt& live, Now now) {
  for (const Member& member : live.members) {
    const Worker& worker = state.workers.at(member.row.worker);
    if (member.row.ended || worker.session != 0) continue;
    return fmt::format("; {} is not connected: without news within {} the trial is queued again",
                       live.is_gang() ? worker.row.name : "the worker",
                       seconds(member.lease_deadline_ms - now.mono_ms));
  }
  return "";
}

Why explain_running(const State& state, const Sweep& sweep, const Trial& trial, Now now) {
  const LiveAttempt& live = *trial.live;
  const Worker& worker = state.workers.at(live.row.worker);
  Why why;
  why.code = WhyCode::kRunning;
  why.since_ms = live.row.assigned_ms;
  why.sentence = fmt::format("{} runs as attempt {} on worker {} ({})", trial.row.id.to_string(),
                             live.row.id.number, worker.row.name, worker.row.id.to_string());
  if (live.is_gang()) {
    why.sentence += fmt::format(" and {} more, {} ranks together", live.members.size() - 1,
                                live.members.size() * sweep.demand.slots);
    for (const Member& member : live.members) {
      why.details.emplace(
          fmt::format("ranks {} to {}", member.row.first_rank,
                      member.row.first_rank + member.row.ranks - 1),
          fmt::format("on {}{}", state.workers.at(member.row.worker).row.name,
                      member.row.ended
                          ? fmt::format(": ended ({})", protocol::end_class_name(*member.row.ended))
                          : ""));
    }
  }
  if (live.row.state == storage::AttemptState::kAssigned) {
    why.code = WhyCode::kAssigned;
    why.sentence += "; its trainer has not reported yet";
  } else if (live.step >= 0) {
    why.details.emplace(
        "step", fmt::format("{}, {} ago", live.step, seconds(now.mono_ms - live.progress_ms)));
  }
  const bool some_ended = std::any_of(live.members.begin(), live.members.end(),
                                      [](const Member& m) { return m.row.ended.has_value(); });
  if (some_ended) {
    why.code = WhyCode::kMembersEnding;
    why.sentence += "; a part of the gang has ended, and the rest is told to stop";
  } else if (live.stop_reason != protocol::StopReason::kNone) {
    why.code = WhyCode::kStopping;
    why.sentence +=
        fmt::format("; it was told to stop ({})", protocol::stop_reason_name(live.stop_reason));
  }
  if (const std::string away = away_text(state, live, now); !away.empty()) {
    why.code = WhyCode::kWorkerAway;
    why.sentence += away;
  }
  const sweep::LimitSpec& limits = sweep.spec->limits;
  if (limits.progress_ms > 0) {
    why.details.emplace("progress limit",
                        "without a new step it is ended after " + seconds(limits.progress_ms));
  }
  if (limits.attempt_ms > 0 || limits.trial_ms > 0) {
    const std::int64_t ran = now.mono_ms - live.began_ms;
    why.details.emplace("run time", fmt::format("{}, with earlier attempts {}", seconds(ran),
                                                seconds(ran + trial.row.run_ms)));
  }
  return why;
}

Why explain_trial(const State& state, const Trial& trial, Now now) {
  const Sweep& sweep = state.sweeps.at(trial.row.sweep);
  if (trial.row.state == TrialState::kQueued) return explain_queued(state, sweep, trial, now);
  if (trial.row.state == TrialState::kRunning) return explain_running(state, sweep, trial, now);
  return why_ended(trial.row);
}

}  // namespace

Why why_ended(const storage::TrialRow& row) {
  const std::string id = row.id.to_string();
  Why why;
  why.state = row.state;
  why.since_ms = row.ended_ms;
  switch (row.state) {
    case TrialState::kCompleted:
      why.code = WhyCode::kCompleted;
      why.sentence = fmt::format("{} completed with validation loss {:.6g} after {}", id,
                                 row.objective.value_or(0), plural(row.attempts, "attempt"));
      break;
    case TrialState::kStopped:
      why.code = WhyCode::kStoppedEarly;
      why.sentence = fmt::format("{} was stopped early: {}", id, cut(row.message));
      break;
    case TrialState::kFailed:
      why.code = WhyCode::kFailed;
      why.sentence = fmt::format("{} failed ({}): {}; `tailor retry {}` tries again", id,
                                 protocol::end_class_name(row.end_class), cut(row.message), id);
      break;
    case TrialState::kCancelled:
      why.code = WhyCode::kCancelled;
      why.sentence = fmt::format("{} was cancelled", id);
      break;
    case TrialState::kQueued:
    case TrialState::kRunning:
      TAILOR_CHECK(false, "{} is not final", id);
  }
  return why;
}

std::string_view why_code_name(WhyCode code) {
  for (const auto& [item, name] : kWhyNames) {
    if (item == code) return name;
  }
  TAILOR_CHECK(false, "code={}", static_cast<int>(code));
  return {};
}

Why why(const State& state, TrialId id, Now now) {
  const auto found = state.trials.find(id);
  if (found == state.trials.end()) {
    Why none;
    for (const auto& [sweep, aside] : state.unreadable) {
      for (const storage::TrialRow& row : aside.open) {
        if (row.id != id) continue;
        none.code = WhyCode::kUnreadable;
        none.state = row.state;
        none.sentence =
            fmt::format("{} is not scheduled: its sweep {} cannot be read by this version ({})",
                        id.to_string(), sweep.to_string(), cut(aside.reason));
        return none;
      }
    }
    none.sentence = fmt::format("there is no trial {}", id.to_string());
    return none;
  }
  Why answer = explain_trial(state, found->second, now);
  answer.state = found->second.row.state;
  if (answer.details.size() > kWhyDetailsMax) {
    const std::size_t more = answer.details.size() - kWhyDetailsMax + 1;
    answer.details.erase(std::next(answer.details.begin(), kWhyDetailsMax - 1),
                         answer.details.end());
    answer.details.emplace("more", std::to_string(more));
  }
  return answer;
}

std::string explain(const State& state, TrialId id, Now now) {
  return text_of(why(state, id, now));
}

std::string text_of(const Why& answer) {
  std::string text = answer.sentence;
  for (const auto& [name, detail] : answer.details) text += fmt::format("; {}: {}", name, detail);
  return text;
}

}  // namespace tailor::core
