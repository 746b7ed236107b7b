// Harness: the pure core with a store beside it and a clock in hand. Every step is checked: the
// invariants hold, its rows can be committed, and nothing it says names an attempt
// that is not there.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/step.h"
#include "storage/memory_store.h"

namespace tailor::core {

/// Text of a sweep file with small architectures; every part can be replaced.
struct SweepFile {
  std::string name = "taper";
  std::string candidates = R"(
[[candidate]]
name = "plain"
)";
  std::string space;  ///< "[space]\n..." and "[search]\n..."
  std::string budget;
  std::string seeds = "count = 1";
  std::string resources = "gpus = 0";
  std::string retry;   ///< lines of [retry]
  std::string limits;  ///< lines of [limits]
  std::string text() const;
};

/// Of a worker with `cpus` CPU slots and then `gpus` GPU slots of 24 GiB, in its own trials folder.
protocol::Hello hello(const std::string& name, int cpus, int gpus = 0,
                      const std::string& instance = "i1");

/// One named candidate with widths that differ from the others'.
std::string candidate(const std::string& name, int d_h);

class Harness {
 public:
  Harness() { state.options = options; }

  Options options;
  State state;
  storage::MemoryStore store;
  Now now{1'000'000, 1'700'000'000'000};

  /// What the last step did.
  Effects last;
  int recalls = 0;  ///< requests that were posted again with rows

  /// One step, checked and committed; a request that wants rows gets them in a second one.
  Effects& step(const Event& event);
  /// Moves the time and ticks.
  void advance(std::int64_t ms);
  /// A crash and a restart from the store; checks that nothing durable was lost.
  void restart();

  Reply submit(const SweepFile& file);
  Reply control(SweepAction action, SweepId sweep = SweepId{1});
  Reply trials(TrialAction action, std::vector<TrialId> ids, SweepId failed_of = {},
               bool dry_run = false);

  /// A worker with `slots` CPU slots connects. Returns its session.
  SessionId connect(const std::string& name, int slots = 1,
                    std::vector<protocol::HeldAttempt> held = {},
                    const std::string& instance = "i1");
  /// A worker that says `hello` connects. Returns its session, also when it is refused.
  SessionId connect(protocol::Hello hello);
  void disconnect(SessionId session) { step(SessionClosed{session}); }
  void send(SessionId session, protocol::WorkerMessage message) {
    step(SessionMessage{session, std::move(message)});
  }

  /// The live attempt of a trial. Fails the test when there is none.
  protocol::AttemptRef live(std::uint64_t trial) const;
  /// Names of the workers of the live attempt, by rank: "w1 w2"; "" = it has none.
  std::string workers_of(std::uint64_t trial) const;
  /// Messages of the events of a kind, in order.
  std::vector<std::string> said(const std::string& kind) const;
  const Worker& worker(const std::string& name) const {
    return state.workers.at(state.worker_by_name.at(name));
  }
  storage::TrialState trial_state(std::uint64_t trial) const {
    const auto row = store.trial(TrialId{trial});
    EXPECT_TRUE(row.has_value()) << "there is no t" << trial;
    return row ? row->state : storage::TrialState::kQueued;
  }
  /// A sweep, in memory or not; one that is not, without its candidates.
  const Sweep& sweep(std::uint64_t id = 1);
  storage::SweepState sweep_state(std::uint64_t sweep = 1) const {
    const auto row = store.sweep(SweepId{sweep});
    EXPECT_TRUE(row.has_value()) << "there is no s" << sweep;
    return row ? row->state : storage::SweepState::kRunning;
  }

  /// Sends reports `first`.. of an attempt: the bodies in order.
  using Body = decltype(protocol::Report::body);
  void report(SessionId session, const protocol::AttemptRef& ref, std::uint64_t first,
              std::vector<Body> bodies);
  /// The whole story of an attempt: started, one metric, the end.
  void finish(SessionId session, std::uint64_t trial, protocol::EndClass end, double loss = 3.0);

  /// Messages of type M in the last step, in order, whoever they went to.
  template <typename M>
  std::vector<M> sent() const {
    std::vector<M> found;
    for (const Outward& out : last.outward) {
      const auto* send_to = std::get_if<SendTo>(&out);
      if (send_to == nullptr) continue;
      if (const auto* message = std::get_if<M>(&send_to->message)) found.push_back(*message);
    }
    return found;
  }
  std::vector<CloseSession> closed() const;
  /// Kinds of all events in the store, in order, with duplicates.
  std::vector<std::string> event_kinds() const;

 private:
  RequestId next_request_ = 1;
  SessionId next_session_ = 1;
  std::map<std::uint64_t, Sweep> ended_;
  Reply only_reply() const;
  void one_step(const Event& event);
};

}  // namespace tailor::core
