// Workers: who is connected, what they hold, when they were last heard.
#include <fmt/format.h>

#include <algorithm>
#include <set>

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

/// A second stream under a name takes over: the older one is dead,
/// or a mistake that its owner must see.
void take_over(Transition& t, Worker& worker, const protocol::Hello& hello) {
  if (worker.session == 0) return;
  t.state.worker_by_session.erase(worker.session);
  if (worker.row.instance == hello.instance) {
    t.close(worker.session, {Code::kAborted, "the same worker opened a newer stream"});
  } else {
    t.close(worker.session,
            {Code::kAlreadyExists,
             fmt::format("another worker named '{}' has connected (from {}); names must be unique",
                         hello.worker_name, hello.host)});
  }
  worker.session = 0;
}

/// Live attempts of a worker, through its slots.
std::set<TrialId> live_on(const Worker& worker) {
  std::set<TrialId> trials;
  for (const WorkerSlot& slot : worker.slots) {
    if (slot.held_by) trials.insert(slot.held_by->trial);
  }
  return trials;
}

bool holds(const protocol::Hello& hello, const LiveAttempt& live) {
  return std::any_of(hello.held.begin(), hello.held.end(), [&](const protocol::HeldAttempt& held) {
    return held.ref == protocol::AttemptRef{live.row.id, live.row.token};
  });
}

bool slots_exist(const protocol::Hello& hello, const LiveAttempt& live) {
  return std::all_of(live.row.slots.begin(), live.row.slots.end(), [&](std::uint32_t index) {
    return std::any_of(hello.slots.begin(), hello.slots.end(),
                       [&](const protocol::Slot& slot) { return slot.index == index; });
  });
}

/// Ends what the worker no longer has, then takes over the slots it has now.
void reconcile(Transition& t, Worker& worker, const protocol::Hello& hello) {
  for (const TrialId id : live_on(worker)) {
    Trial& trial = t.state.trials.at(id);
    if (!slots_exist(hello, *trial.live)) {
      end_attempt(t, trial, EndClass::kNodeLost, "its worker came back without the slot", nullptr);
    } else if (trial.live->row.state == AttemptState::kRunning && !holds(hello, *trial.live)) {
      end_attempt(t, trial, EndClass::kNodeLost, "its worker came back without it", nullptr);
    }
  }
  std::vector<WorkerSlot> slots;
  for (const protocol::Slot& slot : hello.slots) slots.push_back({slot, std::nullopt});
  for (const TrialId id : live_on(worker)) {
    const LiveAttempt& live = *t.state.trials.at(id).live;
    for (WorkerSlot& slot : slots) {
      if (std::count(live.row.slots.begin(), live.row.slots.end(), slot.slot.index) > 0) {
        slot.held_by = live.row.id;
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
    if (const Trial* trial = live_trial(t.state, worker, held.ref)) {
      verdict.keep = true;
      verdict.acked_sequence = trial->live->row.acked_sequence;
      verdict.log_offset = trial->live->row.log_bytes;
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
    renew_lease(t, trial);
    if (holds(hello, live)) {
      t.event("attempt_resumed", {trial.row.sweep, id, live.row.id.number, worker.row.id}, "");
    } else {
      t.send(worker.session, make_assign(t.state, trial));
    }
    if (live.stop_reason != protocol::StopReason::kNone) {
      t.send(worker.session,
             protocol::Stop{{live.row.id, live.row.token}, live.stop_reason, false});
    }
  }
  if (worker.row.draining) t.send(worker.session, protocol::Drain{});
}

}  // namespace

Trial* live_trial(State& state, const Worker& worker, const protocol::AttemptRef& ref) {
  const auto found = state.trials.find(ref.attempt.trial);
  if (found == state.trials.end() || !found->second.live) return nullptr;
  const storage::AttemptRow& row = found->second.live->row;
  if (row.id != ref.attempt || row.token != ref.token || row.worker != worker.row.id)
    return nullptr;
  return &found->second;
}

void on_session_opened(Transition& t, const SessionOpened& event) {
  const protocol::Hello& hello = event.hello;
  if (const Status status = check_hello(hello); !status.is_ok()) {
    return t.close(event.session, status);
  }
  Worker& worker = find_or_create(t, hello);
  take_over(t, worker, hello);
  if (worker.row.instance != hello.instance)
    worker.row.draining = false;  // a new daemon takes work
  worker.row.instance = hello.instance;
  worker.row.host = hello.host;
  worker.row.version = hello.version;
  worker.row.slots_json = slots_to_json(hello.slots);
  worker.row.last_seen_ms = t.now.wall_ms;
  worker.session = event.session;
  t.state.worker_by_session[event.session] = worker.row.id;
  t.touch(worker);
  t.placement_changed = true;
  t.event("worker_connected", {{}, {}, 0, worker.row.id},
          fmt::format("{} on {}, {} slots", worker.row.name, hello.host, hello.slots.size()));
  reconcile(t, worker, hello);
  t.send(worker.session, make_welcome(t, worker, hello));
  catch_up(t, worker, hello);
}

void on_session_closed(Transition& t, const SessionClosed& event) {
  const auto found = t.state.worker_by_session.find(event.session);
  if (found == t.state.worker_by_session.end()) return;  // superseded by a newer stream
  Worker& worker = t.state.workers.at(found->second);
  t.state.worker_by_session.erase(found);
  worker.session = 0;
  t.event("worker_disconnected", {{}, {}, 0, worker.row.id}, worker.row.name);
  // Orders to stop that it may never have seen need nobody's answer now.
  for (const TrialId id : live_on(worker)) {
    Trial& trial = t.state.trials.at(id);
    if (trial.live->stop_reason == protocol::StopReason::kCancelled) {
      end_attempt(t, trial, EndClass::kStopped, "cancelled; its worker went away", nullptr);
    }
  }
}

void on_heartbeat(Transition& t, Worker& worker, const protocol::Heartbeat& message) {
  for (const protocol::AttemptRef& ref : message.running) {
    if (const Trial* trial = live_trial(t.state, worker, ref)) {
      renew_lease(t, *trial);
    } else {
      t.send(worker.session, protocol::Stop{ref, protocol::StopReason::kFenced, true});
    }
  }
  t.send(worker.session, protocol::HeartbeatAck{message.serial});
}

void on_draining(Transition& t, Worker& worker, const protocol::Draining& message) {
  if (worker.row.draining) return;
  worker.row.draining = true;
  t.touch(worker);
  t.event("worker_draining", {{}, {}, 0, worker.row.id}, message.reason);
}

void on_session_message(Transition& t, const SessionMessage& event) {
  const auto found = t.state.worker_by_session.find(event.session);
  if (found == t.state.worker_by_session.end())
    return;  // late news from a stream that was replaced
  Worker& worker = t.state.workers.at(found->second);
  if (const auto* heartbeat = std::get_if<protocol::Heartbeat>(&event.message)) {
    on_heartbeat(t, worker, *heartbeat);
  } else if (const auto* reports = std::get_if<protocol::Reports>(&event.message)) {
    on_reports(t, worker, *reports);
  } else if (const auto* chunk = std::get_if<protocol::LogChunk>(&event.message)) {
    on_log_chunk(t, worker, *chunk);
  } else if (const auto* draining = std::get_if<protocol::Draining>(&event.message)) {
    on_draining(t, worker, *draining);
  } else if (const auto* refused = std::get_if<protocol::Refused>(&event.message)) {
    if (Trial* trial = live_trial(t.state, worker, refused->ref)) {
      end_attempt(t, *trial, refused->end, refused->reason, nullptr);
    }
  } else {
    t.close(event.session,
            {Code::kInvalidArgument, "Hello may only be the first message of a stream"});
    on_session_closed(t, SessionClosed{event.session});
  }
}

}  // namespace tailor::core
