// Workers: who is connected, what they hold, when they were last heard.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "coordinator/core/json.h"
#include "coordinator/core/transition.h"

namespace tailor::core {

using protocol::EndClass;
using storage::AttemptState;

namespace {

Status check_hello(const protocol::Hello& hello) {
  if (hello.worker_name.empty()) {
    return {Code::kInvalidArgument, "a worker needs a name"};
  }
  std::set<std::uint32_t> indexes;
  for (const protocol::Slot& slot : hello.slots) {
    if (!indexes.insert(slot.index).second) {
      return {Code::kInvalidArgument, fmt::format("worker '{}' has two slots with index {}",
                                                  hello.worker_name, slot.index)};
    }
  }
  return Status::ok();
}

Worker& find_or_create(Transition& t, const protocol::Hello& hello) {
  const auto found = t.state.worker_by_name.find(hello.worker_name);
  if (found != t.state.worker_by_name.end()) return t.state.workers.at(found->second);
  Worker worker;
  worker.row.id = WorkerId{t.state.counters.next_worker++};
  worker.row.name = hello.worker_name;
  worker.row.first_seen_ms = t.now.wall_ms;
  t.touch_counters();
  const WorkerId id = worker.row.id;
  t.state.worker_by_name.emplace(hello.worker_name, id);
  return t.state.workers.emplace(id, std::move(worker)).first->second;
}

/// A second stream under a name: one of the same daemon takes over; one of another daemon only when
/// nothing was heard of the first for a whole lease. False: it is refused, and the one that is
/// there stays.
bool take_over(Transition& t, Worker& worker, const SessionOpened& event) {
  if (worker.session == 0) return true;
  const protocol::Hello& hello = event.hello;
  const bool same = worker.row.instance == hello.instance;
  const std::int64_t silent_ms = t.now.mono_ms - worker.heard_ms;
  if (!same && silent_ms < t.state.options.lease_ms) {
    t.event(EventKind::kWorkerRefused, {{}, {}, 0, worker.row.id},
            fmt::format("another worker named {} (on {}) was refused: the one on {} is connected",
                        worker.row.name, hello.host, worker.row.host));
    t.close(event.session,
            {Code::kAlreadyExists,
             fmt::format("a worker named '{}' is connected already (on {}); names must be unique, "
                         "give this one another. If it is the same one, started anew, it is let "
                         "in when the other was not heard of for {} s",
                         hello.worker_name, worker.row.host, t.state.options.lease_ms / 1'000)});
    return false;
  }
  t.state.worker_by_session.erase(worker.session);
  t.close(worker.session,
          same ? Status{Code::kAborted, "the same worker opened a newer stream"}
               : Status{Code::kAlreadyExists,
                        fmt::format("nothing was heard of this worker for {} s, and another one "
                                    "named '{}' has connected (from {}); names must be unique",
                                    silent_ms / 1'000, hello.worker_name, hello.host)});
  worker.session = 0;
  return true;
}

/// Live attempts of a worker, through its slots.
std::set<TrialId> live_on(const Worker& worker) {
  std::set<TrialId> trials;
  for (const WorkerSlot& slot : worker.slots) {
    if (slot.held_by) trials.insert(slot.held_by->trial);
  }
  return trials;
}

/// The worker's member of the live attempt that holds slots there.
Member& member_on(Trial& trial, const Worker& worker) {
  auto& members = trial.live->members;
  const auto found = std::find_if(members.begin(), members.end(), [&](const Member& member) {
    return member.row.worker == worker.row.id && !member.row.ended;
  });
  TAILOR_CHECK(found != members.end(), "{} is not on {}", trial.live->row.id.to_string(),
               worker.row.id.to_string());
  return *found;
}

bool holds(const protocol::Hello& hello, const LiveAttempt& live) {
  return std::any_of(hello.held.begin(), hello.held.end(), [&](const protocol::HeldAttempt& held) {
    return held.ref == protocol::AttemptRef{live.row.id, live.row.token};
  });
}

bool slots_exist(const protocol::Hello& hello, const Member& member) {
  return std::all_of(member.row.slots.begin(), member.row.slots.end(), [&](std::uint32_t index) {
    return std::any_of(hello.slots.begin(), hello.slots.end(),
                       [&](const protocol::Slot& slot) { return slot.index == index; });
  });
}

bool is_of_another_generation(const State& state, const LiveAttempt& live) {
  return live.row.token >> storage::kGenerationShift != state.counters.generation;
}

/// Ends what the worker no longer has, then takes over the slots it has now.
void reconcile(Transition& t, Worker& worker, const protocol::Hello& hello) {
  for (const TrialId id : live_on(worker)) {
    Trial& trial = t.state.trials.at(id);
    if (!slots_exist(hello, member_on(trial, worker))) {
      end_member(t, trial, worker.row.id, EndClass::kNodeLost,
                 "its worker came back without the slot");
    } else if (trial.live->row.state == AttemptState::kRunning && !holds(hello, *trial.live)) {
      end_member(t, trial, worker.row.id, EndClass::kNodeLost, "its worker came back without it");
    } else if (is_of_another_generation(t.state, *trial.live) && !holds(hello, *trial.live)) {
      // It may have run to its end in the history that the restored file does not know, and its
      // folder is taken: the order is not given again.
      end_member(t, trial, worker.row.id, EndClass::kNodeLost,
                 "it was assigned before the database was restored");
    }
  }
  std::vector<WorkerSlot> slots;
  for (const protocol::Slot& slot : hello.slots) slots.push_back({slot, std::nullopt});
  for (const TrialId id : live_on(worker)) {
    Trial& trial = t.state.trials.at(id);
    const Member& member = member_on(trial, worker);
    for (WorkerSlot& slot : slots) {
      if (std::count(member.row.slots.begin(), member.row.slots.end(), slot.slot.index) > 0) {
        slot.held_by = trial.live->row.id;
      }
    }
  }
  worker.slots = std::move(slots);
}

protocol::Welcome make_welcome(Transition& t, const Worker& worker, const protocol::Hello& hello) {
  protocol::Welcome welcome;
  welcome.worker = worker.row.id;
  welcome.heartbeat_ms = t.state.options.heartbeat_ms;
  welcome.lease_ms = t.state.options.lease_ms;
  for (const protocol::HeldAttempt& held : hello.held) {
    protocol::HeldVerdict verdict;
    verdict.ref = held.ref;
    if (const LiveMember found = live_member(t.state, worker, held.ref); found.trial != nullptr) {
      verdict.keep = true;
      if (found.speaks()) {
        verdict.acked_sequence = found.trial->live->row.acked_sequence;
        verdict.log_offset = found.trial->live->row.log_bytes;
      }
    }
    welcome.held.push_back(std::move(verdict));
  }
  return welcome;
}

/// Leases of kept attempts, orders that may have been lost with the old stream.
void catch_up(Transition& t, Worker& worker, const protocol::Hello& hello) {
  for (const TrialId id : live_on(worker)) {
    Trial& trial = t.state.trials.at(id);
    const LiveAttempt& live = *trial.live;
    Member& member = member_on(trial, worker);
    renew_lease(t, trial, member);
    if (holds(hello, live)) {
      t.event(EventKind::kAttemptResumed, {trial.row.sweep, id, live.row.id.number, worker.row.id},
              "");
    } else {
      t.send(worker.session, make_assign(t.state, trial, member));
    }
    const protocol::AttemptRef ref{live.row.id, live.row.token};
    if (!live.rendezvous.empty() && &member != live.members.data()) {
      t.send(worker.session, protocol::Rendezvous{ref, live.rendezvous});
    }
    if (live.stop_reason != protocol::StopReason::kNone) {
      t.send(worker.session, protocol::Stop{ref, live.stop_reason, false});
    }
  }
  if (worker.row.draining) t.send(worker.session, protocol::Drain{});
}

/// Clocks that disagree lose nothing, but a person must know.
void hear_clock(Transition& t, Worker& worker, WallMs wall_ms) {
  if (wall_ms == 0) return;  // an earlier version does not say
  constexpr std::int64_t kWarnMs = 60'000;
  const auto far = [](std::int64_t skew_ms) { return skew_ms >= kWarnMs || skew_ms <= -kWarnMs; };
  const std::int64_t skew_ms = wall_ms - t.now.wall_ms;
  const bool was_far = worker.clock_skew_ms && far(*worker.clock_skew_ms);
  worker.clock_skew_ms = skew_ms;
  if (far(skew_ms) == was_far) return;
  t.event(EventKind::kWorkerClock, {{}, {}, 0, worker.row.id},
          far(skew_ms) ? fmt::format("{}'s clock is {:+.1f} s from the coordinator's: times in its "
                                     "curves and logs are off by so much",
                                     worker.row.name, static_cast<double>(skew_ms) / 1000.0)
                       : fmt::format("{}'s clock agrees again", worker.row.name));
}

/// What a worker says of itself when it connects.
void introduce(Transition& t, Worker& worker, const SessionOpened& event) {
  const protocol::Hello& hello = event.hello;
  if (worker.row.instance != hello.instance) {
    worker.row.draining = false;  // a new daemon takes work
    plan_drain(t, worker, 0);
    worker.unfit.clear();
    worker.silent = false;  // another one lost those leases
    if (worker.row.quarantine.empty()) {
      t.state.deadlines.clear(DeadlineKind::kPause, worker.row.id.value);
    }
  }
  worker.row.instance = hello.instance;
  worker.row.host = hello.host;
  worker.row.version = hello.version;
  worker.row.slots_json = slots_to_json(hello.slots);
  worker.row.folder = hello.folder;
  const std::set<std::string> labels(hello.labels.begin(), hello.labels.end());
  worker.row.labels.assign(labels.begin(), labels.end());
  worker.row.memory_bytes = hello.memory_bytes;
  worker.row.last_seen_ms = t.now.wall_ms;
  worker.session = event.session;
  t.state.worker_by_session[event.session] = worker.row.id;
  t.touch(worker);
}

void say_fitness(Transition& t, Worker& worker, const std::string& unfit) {
  if (worker.unfit == unfit) return;
  if (worker.unfit.empty() || unfit.empty()) {
    // Once for the whole time, not for each figure in the reason.
    t.event(unfit.empty() ? EventKind::kWorkerFit : EventKind::kWorkerUnfit,
            {{}, {}, 0, worker.row.id}, unfit.empty() ? "it takes work again" : unfit);
    t.placement_changed = true;
  }
  worker.unfit = unfit;
  refresh(t.state, worker);
}

}  // namespace

void on_session_opened(Transition& t, const SessionOpened& event) {
  const protocol::Hello& hello = event.hello;
  if (const Status status = check_hello(hello); !status.is_ok()) {
    return t.close(event.session, status);
  }
  Worker& worker = find_or_create(t, hello);
  if (!take_over(t, worker, event)) return;
  introduce(t, worker, event);
  t.placement_changed = true;
  t.event(EventKind::kWorkerConnected, {{}, {}, 0, worker.row.id},
          fmt::format("{} on {}, {} slots", worker.row.name, hello.host, hello.slots.size()));
  worker.clock_skew_ms.reset();
  hear_clock(t, worker, hello.wall_ms);
  reconcile(t, worker, hello);
  hear(t, worker);
  refresh(t.state, worker);
  t.send(worker.session, make_welcome(t, worker, hello));
  catch_up(t, worker, hello);
}

void on_session_closed(Transition& t, const SessionClosed& event) {
  const auto found = t.state.worker_by_session.find(event.session);
  if (found == t.state.worker_by_session.end()) return;  // superseded by a newer stream
  Worker& worker = t.state.workers.at(found->second);
  t.state.worker_by_session.erase(found);
  worker.session = 0;
  refresh(t.state, worker);
  t.event(EventKind::kWorkerDisconnected, {{}, {}, 0, worker.row.id}, worker.row.name);
  // Orders to stop that it may never have seen need nobody's answer now.
  for (const TrialId id : live_on(worker)) {
    Trial& trial = t.state.trials.at(id);
    if (trial.live->stop_reason == protocol::StopReason::kCancelled) {
      end_member(t, trial, worker.row.id, EndClass::kStopped, "cancelled; its worker went away");
    }
  }
}

void on_heartbeat(Transition& t, Worker& worker, const protocol::Heartbeat& message) {
  for (const protocol::AttemptRef& ref : message.running) {
    if (const LiveMember found = live_member(t.state, worker, ref); found.trial != nullptr) {
      renew_lease(t, *found.trial, *found.member);
    } else {
      t.send(worker.session, protocol::Stop{ref, protocol::StopReason::kFenced, true});
    }
  }
  worker.disk_free_bytes = message.disk_free_bytes;
  worker.disk_total_bytes = message.disk_total_bytes;
  say_fitness(t, worker, message.unfit);
  hear_clock(t, worker, message.wall_ms);
  t.send(worker.session, protocol::HeartbeatAck{message.serial});
}

void on_draining(Transition& t, Worker& worker, const protocol::Draining& message) {
  if (worker.row.draining) return;
  worker.row.draining = true;
  t.placement_changed = true;  // who waits for a checkpoint on it waits no more
  t.touch(worker);
  refresh(t.state, worker);
  t.event(EventKind::kWorkerDraining, {{}, {}, 0, worker.row.id}, message.reason);
}

namespace {

struct Receive {
  Transition& t;
  Worker& worker;
  void operator()(const protocol::Heartbeat& message) const { on_heartbeat(t, worker, message); }
  void operator()(const protocol::Reports& message) const { on_reports(t, worker, message); }
  void operator()(const protocol::LogChunk& message) const { on_log_chunk(t, worker, message); }
  void operator()(const protocol::Draining& message) const { on_draining(t, worker, message); }
  void operator()(const protocol::Refused& message) const { on_refused(t, worker, message); }
  void operator()(const protocol::MemberEnded& message) const {
    on_member_ended(t, worker, message);
  }
  void operator()(const protocol::Rendezvous& message) const { on_rendezvous(t, worker, message); }
  void operator()(const protocol::Hello&) const {
    const SessionId session = worker.session;
    t.close(session, {Code::kInvalidArgument, "Hello may only be the first message of a stream"});
    on_session_closed(t, SessionClosed{session});
  }
};

}  // namespace

void on_session_message(Transition& t, const SessionMessage& event) {
  const auto found = t.state.worker_by_session.find(event.session);
  if (found == t.state.worker_by_session.end())
    return;  // late news from a stream that was replaced
  Worker& worker = t.state.workers.at(found->second);
  hear(t, worker);
  std::visit(Receive{t, worker}, event.message);
}

}  // namespace tailor::core
