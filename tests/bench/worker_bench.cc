// worker_bench: what one worker costs a trial: from an order to a started trainer, and how many
// trials of one step a second go through real processes. The coordinator is in this process and
// answers at once; the trainer is fake_trainer.
//
//     worker_bench [--trials N] [--slots N]      one line of JSON
#include <fmt/format.h>
#include <sys/signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/logging.h"
#include "model/shape/architecture.h"
#include "tests/support/temporary_folder.h"
#include "worker/agent/loop.h"
#include "worker/agent/process/cgroup.h"

namespace tailor::agent {
namespace {

/// Welcomes and acknowledges.
class Coordinator final : public Link {
 public:
  explicit Coordinator(Mailbox& mailbox) : mailbox_(mailbox) {}
  void open(std::uint64_t session) override {
    session_ = session;
    mailbox_.post(SessionOpened{session});
  }
  void close(std::uint64_t) override {}
  void send(std::uint64_t, const protocol::WorkerMessage& message) override {
    if (std::holds_alternative<protocol::Hello>(message)) {
      tell(protocol::Welcome{WorkerId{1}, 1'000, 60'000, {}});
    } else if (const auto* batch = std::get_if<protocol::Reports>(&message)) {
      const protocol::Report& last = batch->reports.back();
      tell(protocol::ReportsAck{batch->ref, last.sequence});
      if (std::holds_alternative<protocol::EndReport>(last.body)) ended.push_back(batch->ref);
    } else if (const auto* log = std::get_if<protocol::LogChunk>(&message)) {
      tell(protocol::LogAck{log->ref, log->offset + log->bytes.size()});
    } else if (const auto* beat = std::get_if<protocol::Heartbeat>(&message)) {
      tell(protocol::HeartbeatAck{beat->serial});
    } else if (const auto* refused = std::get_if<protocol::Refused>(&message)) {
      fmt::print(stderr, "refused: {}\n", refused->reason);
      std::exit(1);
    }
  }
  void tell(protocol::CoordinatorMessage message) {
    mailbox_.post(Received{session_, std::move(message)});
  }
  std::vector<protocol::AttemptRef> ended;

 private:
  Mailbox& mailbox_;
  std::uint64_t session_ = 0;
};

protocol::Assign assignment(std::uint64_t trial, std::uint32_t slot) {
  protocol::Assign assign;
  assign.slots = {slot};
  protocol::TrialSpec& spec = assign.spec;
  spec.trial = TrialId{trial};
  spec.attempt = 1;
  spec.token = trial;
  spec.sweep_name = "bench";
  spec.candidate_name = "c";
  spec.data = {"train.tokens", "validation.tokens", 16};
  spec.train.tokens = spec.train.batch_tokens = 64;
  shape::Architecture& a = spec.architecture;
  a.d_model = 16;
  a.heads = a.kv_heads = 2;
  a.head_dim = 8;
  a.vocab_size = 64;
  a.widths = shape::uniform_widths(1, 1, 32);
  return assign;
}

int run(std::uint64_t trials, std::uint32_t slots) {
  static_cast<void>(init_logging("error"));
  ::setenv("FAKE_STEP_MS", "0", 1);
  ::setenv("FAKE_CHECKPOINT_EVERY", "0", 1);
  Supervisor::become_subreaper();
  const test::TemporaryFolder folder;
  const SystemClock clock;
  LoopConfig config;
  config.options.worker_name = "bench";
  for (std::uint32_t i = 0; i < slots; ++i) {
    config.options.slots.push_back({i, protocol::DeviceKind::kCpu, "cpu", 0, 1});
    config.visible_devices.emplace_back();
  }
  config.trials_dir = folder.file("trials");
  config.trainer = program_folder() + "/fake_trainer";
  config.cgroup_parent = Cgroup::parent().value_or("");
  Mailbox mailbox;
  Coordinator coordinator(mailbox);
  AgentLoop loop(config, clock, coordinator, mailbox, -1);
  if (const Status started = loop.start(); !started) {
    fmt::print(stderr, "{}\n", started.message());
    return 1;
  }
  while (loop.state().session_phase != SessionPhase::kWelcomed) loop.run_once();

  std::map<protocol::AttemptRef, MonotonicMs> ordered;
  std::map<protocol::AttemptRef, std::uint32_t> slot_of;
  std::vector<std::int64_t> starts;
  std::uint64_t next = 1, ended = 0;
  const auto order = [&](std::uint32_t slot) {
    if (next > trials) return;
    const protocol::Assign assign = assignment(next++, slot);
    const protocol::AttemptRef ref{{assign.spec.trial, 1}, assign.spec.token};
    ordered[ref] = clock.now_ms();
    slot_of[ref] = slot;
    coordinator.tell(assign);
  };
  const MonotonicMs begin = clock.now_ms();
  for (std::uint32_t slot = 0; slot < slots; ++slot) order(slot);
  while (ended < trials) {
    loop.run_once();
    for (const auto& [ref, attempt] : loop.state().attempts) {
      const auto at = ordered.find(ref);
      if (at == ordered.end() || attempt.phase < Phase::kRunning) continue;
      starts.push_back(attempt.started_at_ms - at->second);
      ordered.erase(at);
    }
    std::vector<protocol::AttemptRef> done;
    std::swap(done, coordinator.ended);
    for (const protocol::AttemptRef& ref : done) {
      ++ended;
      order(slot_of.at(ref));
    }
  }
  const double seconds = static_cast<double>(clock.now_ms() - begin) / 1000;
  std::sort(starts.begin(), starts.end());
  const auto quantile = [&](double q) {
    return starts.empty()
               ? 0
               : starts[static_cast<std::size_t>(q * static_cast<double>(starts.size() - 1))];
  };
  double load = 0;
  ::getloadavg(&load, 1);
  fmt::print(
      "{{\"trials\": {}, \"slots\": {}, \"cgroups\": {}, \"trials_per_s\": {:.1f}, "
      "\"start_ms_p50\": {}, \"start_ms_p99\": {}, \"load\": {:.1f}}}\n",
      trials, slots, config.cgroup_parent.empty() ? "false" : "true",
      static_cast<double>(trials) / seconds, quantile(0.5), quantile(0.99), load);
  return 0;
}

}  // namespace
}  // namespace tailor::agent

int main(int argc, char** argv) {
  std::uint64_t trials = 500;
  std::uint32_t slots = 4;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--trials") trials = std::strtoull(argv[i + 1], nullptr, 10);
    if (option == "--slots")
      slots = static_cast<std::uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
  }
  return tailor::agent::run(trials, slots);
}
