// The members of an attempt: one worker as a rule, several for a gang. Each has its own lease and
// its own end; the attempt has the earliest lease, and one end when all its members have ended.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "coordinator/core/transition.h"
#include "coordinator/scheduler/retry.h"

namespace tailor::core {

using protocol::EndClass;
using protocol::StopReason;

namespace {

bool is_lost(const Member& member) {
  return member.row.ended == EndClass::kNodeLost || member.row.ended == EndClass::kLeaseLost;
}

Verdict word_of(const Member& member) {
  return {*member.row.ended, member.row.message, member.row.worker};
}

/// The durable part of the members of a gang; an ordinary attempt has it in its own columns.
void write_members(LiveAttempt& live) {
  if (!live.is_gang()) return;
  live.row.members.clear();
  for (const Member& member : live.members) live.row.members.push_back(member.row);
}

void free_slots(Transition& t, const LiveAttempt& live, const Member& member) {
  Worker& worker = t.worker_of(member);
  for (WorkerSlot& slot : worker.slots) {
    if (slot.held_by == live.row.id) slot.held_by.reset();
  }
  const std::uint64_t kept = t.sweep_of(t.state.trials.at(live.row.id.trial)).demand.memory_bytes;
  TAILOR_CHECK(worker.memory_kept >= kept, "worker={}", worker.row.id.to_string());
  worker.memory_kept -= kept;
  refresh(t.state, worker);
  t.placement_changed = true;
}

/// Ranks that ended well, or because they were told to, end nobody else's.
bool ends_the_others(const LiveAttempt& live, const Member& member) {
  const bool quiet =
      member.row.ended == EndClass::kCompleted || member.row.ended == EndClass::kStopped;
  return &member == live.members.data() || !quiet;
}

void stop_the_others(Transition& t, LiveAttempt& live) {
  if (live.stop_reason == StopReason::kNone) {
    live.stop_reason = StopReason::kGang;
    live.row.stop_reason = StopReason::kGang;
    t.touch(live);
  }
  for (const Member& other : live.members) {
    if (other.row.ended) continue;
    t.send(t.worker_of(other).session,
           protocol::Stop{{live.row.id, live.row.token}, StopReason::kGang, false});
  }
}

}  // namespace

LiveMember live_member(State& state, const Worker& worker, const protocol::AttemptRef& ref) {
  const auto found = state.trials.find(ref.attempt.trial);
  if (found == state.trials.end() || !found->second.live) return {};
  LiveAttempt& live = *found->second.live;
  if (live.row.id != ref.attempt || live.row.token != ref.token) return {};
  for (Member& member : live.members) {
    if (member.row.worker == worker.row.id && !member.row.ended) return {&found->second, &member};
  }
  return {};
}

void index_lease(State& state, const Trial& trial) {
  std::optional<MonotonicMs> earliest;
  for (const Member& member : trial.live->members) {
    if (member.row.ended) continue;
    earliest = std::min(earliest.value_or(member.lease_deadline_ms), member.lease_deadline_ms);
  }
  TAILOR_CHECK(earliest.has_value(), "{} has no member left", trial.live->row.id.to_string());
  state.deadlines.set(DeadlineKind::kLease, trial.row.id.value, *earliest);
}

void renew_lease(Transition& t, Trial& trial, Member& member) {
  // It may have been extended beyond that, for a time in which nobody could be heard.
  member.lease_deadline_ms =
      std::max(member.lease_deadline_ms, t.now.mono_ms + t.state.options.lease_ms);
  index_lease(t.state, trial);
}

void end_member(Transition& t, Trial& trial, WorkerId worker, EndClass end, std::string message) {
  LiveAttempt& live = *trial.live;
  const auto member = std::find_if(live.members.begin(), live.members.end(), [&](const Member& m) {
    return m.row.worker == worker && !m.row.ended;
  });
  TAILOR_CHECK(member != live.members.end(), "{} does not run on {}", live.row.id.to_string(),
               worker.to_string());
  member->row.ended = end;
  member->row.message = std::move(message);
  write_members(live);
  t.touch(live);
  free_slots(t, live, *member);
  const bool all = std::all_of(live.members.begin(), live.members.end(),
                               [](const Member& m) { return m.row.ended.has_value(); });
  if (all) return close_attempt(t, trial);
  t.event(EventKind::kMemberEnded, {trial.row.sweep, trial.row.id, live.row.id.number, worker},
          fmt::format("ranks {} to {}: {}{}{}", member->row.first_rank,
                      member->row.first_rank + member->row.ranks - 1, protocol::end_class_name(end),
                      member->row.message.empty() ? "" : ": ", member->row.message));
  if (ends_the_others(live, *member)) stop_the_others(t, live);
  index_lease(t.state, trial);
}

void end_all_members(Transition& t, Trial& trial, EndClass end, const std::string& message) {
  std::vector<WorkerId> left;
  for (const Member& member : trial.live->members) {
    if (!member.row.ended) left.push_back(member.row.worker);
  }
  for (const WorkerId worker : left) end_member(t, trial, worker, end, message);
}

// Completed is completed: rank 0 had the whole result. What a lost worker or another rank's own
// failure did to rank 0 ("lost rank 3") is not what happened; what happened to them is.
Verdict verdict_of(const LiveAttempt& live) {
  const Member& speaker = live.members.front();
  const EndClass end = *speaker.row.ended;
  if (end == EndClass::kCompleted || scheduler::is_own_fault(end)) return word_of(speaker);
  for (const Member& member : live.members) {
    if (scheduler::is_own_fault(*member.row.ended)) return word_of(member);
  }
  for (const Member& member : live.members) {
    if (is_lost(member)) return word_of(member);
  }
  if (end == EndClass::kStopped && live.stop_reason == StopReason::kGang) {
    for (const Member& member : live.members) {
      if (member.row.ended != EndClass::kCompleted && member.row.ended != EndClass::kStopped) {
        return word_of(member);
      }
    }
  }
  return word_of(speaker);
}

void on_refused(Transition& t, Worker& worker, const protocol::Refused& message) {
  const LiveMember found = live_member(t.state, worker, message.ref);
  if (found.trial == nullptr) return;  // it was given up already, and nothing runs
  found.trial->live->refused |= message.end == EndClass::kInfrastructure;
  end_member(t, *found.trial, worker.row.id, message.end,
             fmt::format("{} refused it: {}", worker.row.name, message.reason));
}

void on_member_ended(Transition& t, Worker& worker, const protocol::MemberEnded& message) {
  const LiveMember found = live_member(t.state, worker, message.ref);
  if (found.trial != nullptr) {
    end_member(t, *found.trial, worker.row.id, message.end, message.message);
  }
  // Either way nobody wants anything more of it: it may forget the attempt.
  t.send(worker.session, protocol::Stop{message.ref, StopReason::kFenced, true});
}

void on_rendezvous(Transition& t, Worker& worker, const protocol::Rendezvous& message) {
  const LiveMember found = live_member(t.state, worker, message.ref);
  if (!found.speaks()) return;
  LiveAttempt& live = *found.trial->live;
  live.rendezvous = message.address;
  for (const Member& other : live.members) {
    if (&other != found.member && !other.row.ended) {
      t.send(t.worker_of(other).session, message);
    }
  }
}

}  // namespace tailor::core
