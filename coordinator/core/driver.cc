#include "coordinator/core/driver.h"

#include <set>
#include <tuple>

#include "coordinator/core/transition.h"

namespace tailor::core {
namespace {

// Of a log: bytes that cost about as much as a row.
constexpr std::size_t kLogBytesPerRow = 1'024;
// Of a submission: its candidates and trials, of which there may be thousands.
constexpr std::size_t kSubmitWeight = 256;

struct Weigh {
  std::size_t operator()(const SubmitSweep&) const { return kSubmitWeight; }
  std::size_t operator()(const SessionOpened& event) const { return 1 + event.hello.held.size(); }
  std::size_t operator()(const SessionMessage& event) const {
    if (const auto* reports = std::get_if<protocol::Reports>(&event.message)) {
      std::size_t rows = 1;
      for (const protocol::Report& report : reports->reports) {
        const auto* metrics = std::get_if<protocol::MetricReport>(&report.body);
        const auto* profile = std::get_if<protocol::ProfileReport>(&report.body);
        rows += 1 + (metrics == nullptr ? 0 : metrics->values.size()) +
                (profile == nullptr ? 0 : profile->entries.size());
      }
      return rows;
    }
    if (const auto* log = std::get_if<protocol::LogChunk>(&event.message)) {
      return 1 + log->bytes.size() / kLogBytesPerRow;
    }
    return 1;
  }
  template <typename Other>
  std::size_t operator()(const Other&) const {
    return 1;
  }
};

// For so many lease times beyond the first one workers are waited for after a restart, as long as
// some of them still come.
constexpr std::int64_t kCallInLeases = 3;

/// What an acknowledgement is about; nullopt: it is none.
using AckKey = std::tuple<SessionId, std::size_t, protocol::AttemptRef>;
std::optional<AckKey> ack_key(const Outward& outward) {
  const auto* sent = std::get_if<SendTo>(&outward);
  if (sent == nullptr) return std::nullopt;
  const std::size_t kind = sent->message.index();
  if (std::holds_alternative<protocol::HeartbeatAck>(sent->message)) {
    return AckKey{sent->session, kind, {}};
  }
  if (const auto* reports = std::get_if<protocol::ReportsAck>(&sent->message)) {
    return AckKey{sent->session, kind, reports->ref};
  }
  if (const auto* log = std::get_if<protocol::LogAck>(&sent->message)) {
    return AckKey{sent->session, kind, log->ref};
  }
  return std::nullopt;
}

}  // namespace

Driver::Driver(State state) : state_(std::move(state)), changes_(state_.options) {
  // What runs was loaded with a whole lease.
  const auto& leases = state_.deadlines.all(DeadlineKind::kLease);
  if (leases.empty()) return;
  calling_in_until_ms_ = leases.begin()->first + kCallInLeases * state_.options.lease_ms;
}

bool Driver::still_calling_in(MonotonicMs heard_ms) const {
  return calling_in_until_ms_.has_value() && heard_ms < *calling_in_until_ms_ &&
         greeted_ms_.has_value() && heard_ms - *greeted_ms_ < state_.options.heartbeat_ms;
}

std::size_t weight_of(const Event& event) { return std::visit(Weigh{}, event); }

void coalesce_acks(std::vector<Outward>& outward) {
  std::set<AckKey> seen;
  std::vector<bool> superseded(outward.size(), false);
  bool any = false;
  for (std::size_t i = outward.size(); i-- > 0;) {
    const auto key = ack_key(outward[i]);
    if (key.has_value() && !seen.insert(*key).second) superseded[i] = any = true;
  }
  if (!any) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < outward.size(); ++i) {
    if (superseded[i]) continue;
    if (kept != i) outward[kept] = std::move(outward[i]);
    ++kept;
  }
  outward.resize(kept);
}

void Driver::apply(const Event& event, Now now) {
  heard_ms_ = std::max(heard_ms_, now.mono_ms);
  now.mono_ms = heard_ms_;
  if (std::holds_alternative<SessionOpened>(event)) greeted_ms_ = now.mono_ms;
  const std::size_t said = changes_.outward().size();
  step_into(state_, event, now, changes_);
  if (witness_) witness_(state_, event, changes_.outward().subspan(said));
}

Transaction Driver::run(Round round) {
  for (const Arrival& arrival : round.arrivals) apply(arrival.event, arrival.at);
  // After the messages, which set leases as of their own times: a lease is never shorter for it.
  if (round.deaf_ms > 0) apply(Stalled{round.deaf_ms}, round.heard);
  const auto& leases = state_.deadlines.all(DeadlineKind::kLease);
  if (!leases.empty() && leases.begin()->first <= round.heard.mono_ms &&
      still_calling_in(round.heard.mono_ms)) {
    // The queue to get in is the coordinator's doing, not the worker's.
    const std::int64_t late_ms = round.heard.mono_ms - leases.begin()->first;
    apply(Stalled{late_ms + state_.options.heartbeat_ms}, round.heard);
  }
  const auto due = call_at_ms();
  if (due.has_value() && *due <= round.heard.mono_ms) apply(Tick{}, round.heard);

  Effects effects = changes_.take(state_);
  coalesce_acks(effects.outward);
  return {std::move(effects.writes), std::move(effects.outward), call_at_ms()};
}

}  // namespace tailor::core
