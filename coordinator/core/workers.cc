// Workers as placement sees them: what they offer, and the trouble that they are in.
//
// Trouble costs the worker, not the trials: who loses leases, refuses orders or cannot start
// trainers is given nothing for a while, so that others go first, and is put into quarantine when
// it happens again and again. A quarantine for such troubles ends by itself: after a time one trial
// tries the worker. One by request, or for a line of a log, ends by request.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "coordinator/core/transition.h"
#include "coordinator/scheduler/retry.h"

namespace tailor::core {

using storage::QuarantineCause;

namespace {

constexpr std::int64_t kProbeMsMax = 86'400'000;
constexpr std::size_t kLogTailBytes = 4 << 10;
constexpr std::size_t kLogLineShown = 300;

About about(const Worker& worker) { return {{}, {}, 0, worker.row.id}; }

void pause_for(Transition& t, Worker& worker, std::int64_t ms, std::string reason) {
  const std::uint64_t id = worker.row.id.value;
  const auto before = t.state.deadlines.at(DeadlineKind::kPause, id);
  const MonotonicMs until = t.now.mono_ms + ms;
  if (before.value_or(0) < until) {
    t.state.deadlines.set(DeadlineKind::kPause, id, until);
    worker.pause_reason = std::move(reason);
  }
  refresh(t.state, worker);
}

/// Until one trial tries the worker again.
void wait_for_probe(Transition& t, Worker& worker) {
  worker.may_probe = false;
  std::int64_t ms = t.state.options.probe_after_ms;
  for (std::uint32_t i = 0; i < worker.probes && ms < kProbeMsMax; ++i) ms *= 2;
  pause_for(t, worker, std::min(ms, kProbeMsMax), worker.row.quarantine);
}

void forget_troubles(Worker& worker) {
  worker.troubles = 0;
  worker.trouble_trials.clear();
  worker.leases_lost = 0;
  worker.probes = 0;
}

void release(Transition& t, Worker& worker, std::string why) {
  worker.row.quarantine.clear();
  worker.row.quarantine_cause = QuarantineCause::kNone;
  worker.row.quarantined_ms = 0;
  worker.may_probe = false;
  t.state.deadlines.clear(DeadlineKind::kPause, worker.row.id.value);
  worker.pause_reason.clear();
  t.touch(worker);
  t.event(EventKind::kWorkerReleased, about(worker), std::move(why));
  refresh(t.state, worker);
  t.placement_changed = true;
}

/// The worker that a request is about; replies when there is none.
Worker* find_worker(Transition& t, RequestId request, WorkerId id) {
  const auto found = t.state.workers.find(id);
  if (found != t.state.workers.end()) return &found->second;
  t.reply(request, {Code::kNotFound, fmt::format("there is no worker {}", id.to_string())});
  return nullptr;
}

}  // namespace

bool takes_work(const State& state, const Worker& worker) {
  return worker.session != 0 && !worker.row.draining && !worker.silent && worker.unfit.empty() &&
         (worker.row.quarantine.empty() || worker.may_probe) &&
         !state.deadlines.contains(DeadlineKind::kPause, worker.row.id.value);
}

scheduler::Offer whole_offer(const Worker& worker) {
  scheduler::Offer offer;
  offer.worker = worker.row.id;
  offer.labels = worker.row.labels;
  offer.memory_bytes = worker.row.memory_bytes;
  for (const WorkerSlot& slot : worker.slots) {
    offer.free.push_back({slot.slot.index, slot.slot.kind, slot.slot.memory_bytes});
  }
  return offer;
}

scheduler::Offer offer_of(const State& state, const Worker& worker, TrialId trial) {
  scheduler::Offer offer;
  offer.worker = worker.row.id;
  offer.folder = folder_of(worker);
  offer.labels = worker.row.labels;
  offer.memory_bytes = worker.row.memory_bytes > worker.memory_kept
                           ? worker.row.memory_bytes - worker.memory_kept
                           : 0;
  for (const WorkerSlot& slot : worker.slots) {
    if (!slot.held_by) {
      offer.free.push_back({slot.slot.index, slot.slot.kind, slot.slot.memory_bytes});
    }
  }
  std::sort(offer.free.begin(), offer.free.end(),
            [](const auto& a, const auto& b) { return a.index < b.index; });
  if (!worker.reserved_for.valid() || worker.reserved_for == trial) return offer;
  const auto reserved = state.trials.find(worker.reserved_for);
  const scheduler::Demand& kept = state.sweeps.at(reserved->second.row.sweep).demand;
  std::uint32_t left = kept.slots;
  std::erase_if(offer.free, [&](const scheduler::FreeSlot& slot) {
    const bool keep =
        left > 0 && slot.kind == kept.kind && slot.memory_bytes >= kept.slot_memory_bytes;
    left -= keep ? 1 : 0;
    return keep;
  });
  offer.memory_bytes -= std::min(offer.memory_bytes, kept.memory_bytes);
  return offer;
}

void refresh(State& state, const Worker& worker) {
  if (takes_work(state, worker)) {
    state.offers.set(offer_of(state, worker, {}));
  } else {
    state.fewer_workers |= state.offers.find(worker.row.id) != nullptr;
    state.offers.erase(worker.row.id);
  }
}

void hear(Transition& t, Worker& worker) {
  worker.heard_ms = t.now.mono_ms;
  if (!worker.silent) return;
  worker.silent = false;
  pause_for(
      t, worker,
      scheduler::doubled(t.state.options.worker_pause_ms,
                         static_cast<std::int32_t>(worker.leases_lost)),
      fmt::format("it fell silent and lost a lease{}",
                  worker.leases_lost > 1 ? fmt::format(", {} times", worker.leases_lost) : ""));
}

void lose_lease(Transition& t, Worker& worker) {
  if (worker.silent) return;
  worker.silent = true;
  ++worker.leases_lost;
  refresh(t.state, worker);
}

bool is_probed(const Worker& worker) {
  return worker.row.quarantine_cause == QuarantineCause::kTroubles;
}

void quarantine(Transition& t, Worker& worker, QuarantineCause cause, std::string reason) {
  worker.row.quarantine = std::move(reason);
  worker.row.quarantine_cause = cause;
  worker.row.quarantined_ms = t.now.wall_ms;
  worker.may_probe = false;
  t.placement_changed = true;  // who waited for it to come back, for a checkpoint, waits no more
  t.touch(worker);
  t.event(EventKind::kWorkerQuarantined, about(worker), worker.row.quarantine);
  if (is_probed(worker)) {
    wait_for_probe(t, worker);
  } else {
    refresh(t.state, worker);
  }
}

void worker_trouble(Transition& t, Worker& worker, const LiveAttempt& ended, Trouble trouble,
                    const std::string& reason) {
  ++worker.troubles;
  // A gang, or a trial that goes wrong everywhere, must not condemn a node by itself.
  if (worker.trouble_trials.size() < 2) worker.trouble_trials.insert(ended.row.id.trial);
  if (!worker.row.quarantine.empty()) {
    if (!ended.probe || !is_probed(worker)) return;  // it ran there before
    ++worker.probes;
    return wait_for_probe(t, worker);
  }
  const bool certain = trouble == Trouble::kRefused || worker.trouble_trials.size() > 1;
  if (worker.troubles >= t.state.options.quarantine_after && certain) {
    return quarantine(t, worker, QuarantineCause::kTroubles,
                      fmt::format("{} attempts in a row went wrong there, the last: {}",
                                  worker.troubles, reason));
  }
  if (trouble == Trouble::kInfrastructure) return;
  pause_for(t, worker,
            scheduler::doubled(t.state.options.worker_pause_ms,
                               static_cast<std::int32_t>(worker.troubles)),
            reason);
}

void worker_well(Transition& t, Worker& worker) {
  forget_troubles(worker);
  if (is_probed(worker)) release(t, worker, "an attempt ended well");
}

void probe_succeeded(Transition& t, Trial& trial) {
  trial.live->probe = false;
  for (const Member& member : trial.live->members) {
    Worker& worker = t.worker_of(member);
    // One more trouble and it is back in quarantine: it has only shown that it can start.
    if (is_probed(worker)) release(t, worker, "the trial that tried it came to a step");
  }
}

void probe_ended(Transition& t, const LiveAttempt& ended) {
  for (const Member& member : ended.members) {
    Worker& worker = t.worker_of(member);
    if (!is_probed(worker)) continue;
    if (t.state.deadlines.contains(DeadlineKind::kPause, worker.row.id.value)) continue;
    worker.may_probe = true;
    refresh(t.state, worker);
    t.placement_changed = true;
  }
}

void watch_log(Transition& t, Worker& worker, LiveAttempt& live, std::string_view news) {
  const auto& patterns = t.state.options.quarantine_patterns;
  if (patterns.empty()) return;
  // A line may come in pieces; what has no end yet is looked at again with the next one.
  const std::string text = live.log_tail + std::string(news);
  const std::size_t last_line = text.rfind('\n') + 1;  // 0 when there is none
  live.log_tail =
      text.substr(std::max(last_line, text.size() - std::min(text.size(), kLogTailBytes)));
  if (!worker.row.quarantine.empty() && !is_probed(worker)) return;
  for (const std::string& pattern : patterns) {
    const std::size_t at = pattern.empty() ? std::string::npos : text.find(pattern);
    if (at == std::string::npos) continue;
    const std::size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(begin, std::min(end - begin, kLogLineShown));
    if (line.find(pattern) == std::string::npos) line = text.substr(at, kLogLineShown);
    return quarantine(
        t, worker, QuarantineCause::kLog,
        fmt::format("a log says: {} (log of {})", trim(line), live.row.id.to_string()));
  }
}

void on_quarantine_worker(Transition& t, const QuarantineWorker& event) {
  Worker* worker = find_worker(t, event.request, event.worker);
  if (worker == nullptr) return;
  quarantine(t, *worker, QuarantineCause::kRequest,
             "by request: " + (event.reason.empty() ? "no reason given" : event.reason));
  t.reply(event.request, Status::ok());
}

void on_release_worker(Transition& t, const ReleaseWorker& event) {
  Worker* worker = find_worker(t, event.request, event.worker);
  if (worker == nullptr) return;
  if (worker->row.draining) {
    return t.reply(event.request,
                   {Code::kFailedPrecondition,
                    fmt::format("worker {} is draining: its daemon ends when what runs there has "
                                "ended. Start it anew",
                                worker->row.id.to_string())});
  }
  forget_troubles(*worker);
  release(t, *worker, "by request");
  t.reply(event.request, Status::ok());
}

}  // namespace tailor::core
