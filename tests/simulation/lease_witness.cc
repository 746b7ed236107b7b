#include "tests/simulation/lease_witness.h"

#include <fmt/format.h>

#include <algorithm>

namespace tailor::simulation {

void LeaseWitness::arrived(const core::Event& event, MonotonicMs at_ms) {
  if (const auto* opened = std::get_if<core::SessionOpened>(&event)) {
    names_[opened->session] = opened->hello.worker_name;
  }
  const auto* arrived = std::get_if<core::SessionMessage>(&event);
  if (arrived == nullptr) return;
  if (const auto* heartbeat = std::get_if<protocol::Heartbeat>(&arrived->message)) {
    for (const protocol::AttemptRef& ref : heartbeat->running) {
      heard_[{ref, arrived->session}] = at_ms;
    }
  } else if (const auto* reports = std::get_if<protocol::Reports>(&arrived->message)) {
    heard_[{reports->ref, arrived->session}] = at_ms;
  }
}

void LeaseWitness::dealt_with(const core::State& state, const core::Event& event) {
  const auto* message = std::get_if<core::SessionMessage>(&event);
  if (message == nullptr) return;
  const auto owner = state.worker_by_session.find(message->session);
  const auto counts = [&](const protocol::AttemptRef& ref) {
    if (owner == state.worker_by_session.end()) return false;
    const auto trial = state.trials.find(ref.attempt.trial);
    // One that has just ended is judged by its row.
    if (trial == state.trials.end() || !trial->second.live) return true;
    const auto& members = trial->second.live->members;
    return std::any_of(members.begin(), members.end(), [&](const core::Member& member) {
      return member.row.worker == owner->second && !member.row.ended;
    });
  };
  const auto judge = [&](const protocol::AttemptRef& ref) {
    if (!counts(ref)) heard_.erase({ref, message->session});
  };
  if (const auto* heartbeat = std::get_if<protocol::Heartbeat>(&message->message)) {
    for (const protocol::AttemptRef& ref : heartbeat->running) judge(ref);
  } else if (const auto* reports = std::get_if<protocol::Reports>(&message->message)) {
    judge(reports->ref);
  }
}

void LeaseWitness::committed(std::span<const storage::Mutation> rows, MonotonicMs heard_ms) {
  for (const storage::Mutation& row : rows) {
    const auto* attempt = std::get_if<storage::AttemptRow>(&row);
    if (attempt == nullptr || attempt->state != storage::AttemptState::kEnded) continue;
    const bool silence = attempt->message.ends_with("did not renew the lease");
    if (silence) c_.count("lease ran out");
    const protocol::AttemptRef ref{attempt->id, attempt->token};
    auto heard = heard_.lower_bound({ref, 0});
    while (heard != heard_.end() && heard->first.first == ref) {
      const MonotonicMs at_ms = heard->second;
      // Of a gang only one may have been silent.
      const bool accused =
          silence && attempt->message.find("worker " + names_[heard->first.second] + " did") !=
                         std::string::npos;
      heard = heard_.erase(heard);
      if (!accused || at_ms >= heard_ms || at_ms + lease_ms_ <= heard_ms) continue;
      c_.fail(fmt::format("the lease of {} ran out {} ms after its worker was heard of",
                          attempt->id.to_string(), heard_ms - at_ms));
    }
  }
}

}  // namespace tailor::simulation
