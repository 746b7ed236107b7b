#include "tests/simulation/stranger.h"

#include <iterator>
#include <limits>

namespace tailor::simulation {

using protocol::AttemptRef;

void Stranger::act() {
  if (!coordinator_.up()) return;
  c_.count("lie");
  if (c_.chance(0.3)) return introduce();
  if (c_.chance(0.5) && network_.inject(lie())) return;
  if (session_ != 0) coordinator_.post(core::SessionMessage{session_, lie()});
}

void Stranger::introduce() {
  session_ = network_.open_stranger();
  protocol::Hello hello;
  hello.worker_name = "stranger";
  hello.instance = c_.chance(0.5) ? "one" : "two";
  hello.version = "sim";
  hello.host = "nowhere";
  hello.held.push_back({some_attempt(), {0, 7}, c_.chance(0.5), c_.rng.below(100)});
  if (c_.chance(0.3)) {  // refused: two slots of one number, of a size that cannot be
    const protocol::Slot slot{0, protocol::DeviceKind::kCpu, "cpu",
                              std::numeric_limits<std::uint64_t>::max(), -1};
    hello.slots = {slot, slot};
  }
  coordinator_.post(core::SessionOpened{session_, std::move(hello)});
}

AttemptRef Stranger::some_attempt() {
  const auto& leases = coordinator_.state().deadlines.all(core::DeadlineKind::kLease);
  if (leases.empty()) return {{TrialId{1 + c_.rng.below(50)}, 1}, 1 + c_.rng.below(100)};
  const auto at =
      std::next(leases.begin(), static_cast<std::ptrdiff_t>(c_.rng.below(leases.size())));
  const core::Trial& trial = coordinator_.state().trials.at(TrialId{at->second});
  return {trial.live->row.id, trial.live->row.token};
}

protocol::WorkerMessage Stranger::lie() {
  AttemptRef ref = some_attempt();
  // In an honest stream the token must be wrong: with the right one it would be that worker's word.
  ref.token += c_.chance(0.5) ? 1'000'000 : -1;
  if (c_.chance(0.1)) ref.attempt.number += 3;
  switch (c_.rng.below(4)) {
    case 0:
      return protocol::Heartbeat{c_.rng.next_u64(), {ref, ref}};
    case 1: {
      protocol::Reports reports{ref, {}};
      const std::uint64_t first = c_.chance(0.5) ? 1 : c_.rng.next_u64() - 2;
      reports.reports.push_back(
          {first, c_.clock.wall_ms(), protocol::MetricReport{1, 1, {{"train_loss", -1.0}}}});
      protocol::EndReport end;
      end.end = protocol::EndClass::kCompleted;
      end.values = {{"validation_loss", 0.0}};
      reports.reports.push_back({first + 1, c_.clock.wall_ms(), end});
      return reports;
    }
    case 2:
      return protocol::LogChunk{ref, c_.chance(0.5) ? 0 : c_.rng.next_u64(), "nobody wrote this",
                                c_.rng.next_u64()};
    default:
      return protocol::Reports{ref, {}};
  }
}

}  // namespace tailor::simulation
