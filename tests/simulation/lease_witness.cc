#include "tests/simulation/lease_witness.h"

#include <fmt/format.h>

namespace tailor::simulation {

void LeaseWitness::arrived(const core::Event& event, MonotonicMs at_ms) {
  const auto* arrived = std::get_if<core::SessionMessage>(&event);
  if (arrived == nullptr) return;
  if (const auto* heartbeat = std::get_if<protocol::Heartbeat>(&arrived->message)) {
    for (const protocol::AttemptRef& ref : heartbeat->running) {
      heard_[ref] = {at_ms, arrived->session};
    }
  } else if (const auto* reports = std::get_if<protocol::Reports>(&arrived->message)) {
    heard_[reports->ref] = {at_ms, arrived->session};
  }
}

void LeaseWitness::dealt_with(const core::State& state, const core::Event& event) {
  const auto* message = std::get_if<core::SessionMessage>(&event);
  if (message == nullptr || state.worker_by_session.contains(message->session)) return;
  std::erase_if(heard_,
                [&](const auto& entry) { return entry.second.session == message->session; });
}

void LeaseWitness::committed(std::span<const storage::Mutation> rows, MonotonicMs heard_ms) {
  for (const storage::Mutation& row : rows) {
    const auto* attempt = std::get_if<storage::AttemptRow>(&row);
    if (attempt == nullptr || attempt->state != storage::AttemptState::kEnded) continue;
    const auto found = heard_.find({attempt->id, attempt->token});
    if (found == heard_.end()) continue;
    const Heard heard = found->second;
    heard_.erase(found);
    if (!attempt->message.ends_with("did not renew the lease")) continue;
    c_.count("lease ran out");
    if (heard.at_ms < heard_ms && heard.at_ms + lease_ms_ > heard_ms) {
      c_.fail(fmt::format("the lease of {} ran out {} ms after its worker was heard of",
                          attempt->id.to_string(), heard_ms - heard.at_ms));
    }
  }
}

}  // namespace tailor::simulation
