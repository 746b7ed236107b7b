#include "tests/simulation/world.h"

#include <fmt/format.h>

#include <memory>
#include <vector>

#include "tests/simulation/coordinator.h"
#include "tests/simulation/network.h"
#include "tests/simulation/node.h"
#include "tests/simulation/stranger.h"
#include "tests/simulation/users.h"

namespace tailor::simulation {
namespace {

/// After faults stop, everything must end within this:
/// some 40 trials of half a minute on as little as one slot.
constexpr std::int64_t kHealedMsMax = 3'600'000;
/// ... and so much later no worker may still hold anything.
constexpr std::int64_t kQuietMsMax = 60'000;
constexpr std::int64_t kLookMs = 50;

Faults faults_of(const RunOptions& options) {
  Faults faults = Faults::draw(options.seed);
  if (options.workers > 0) faults.enlarge(options.workers);
  return faults;
}

class World {
 public:
  World(const RunOptions& options)
      : options_(options),
        c_(options.seed, faults_of(options), options.print_trace),
        ledger_(c_),
        store_(c_, ledger_),
        network_(c_),
        coordinator_(c_, store_, ledger_),
        users_(c_, ledger_),
        stranger_(c_, coordinator_, network_) {
    connect();
    for (int i = 0; i < c_.faults.nodes; ++i) {
      nodes_.push_back(std::make_unique<Node>(c_, ledger_, network_, i));
    }
  }

  Outcome run() {
    coordinator_.start();
    for (auto& node : nodes_) {
      c_.after(c_.up_to(5'000), [&node] { node->start_daemon(); });
    }
    users_.begin();
    release_faults();
    while (c_.next_time() < options_.ticks * 1'000 && c_.run_next()) {
    }
    heal();
    const std::int64_t healed_at = c_.now();
    while (c_.failure().empty() && !all_done() && c_.now() - healed_at < kHealedMsMax &&
           c_.run_next()) {
    }
    const std::int64_t done_at = c_.now();
    if (c_.failure().empty() && !all_done())
      c_.fail("not everything ended after the world was healed:\n" + explain());
    // To look at thousands of nodes after each event would take the most time of all.
    std::int64_t look_at = done_at;
    while (c_.failure().empty() && c_.now() - done_at < kQuietMsMax) {
      if (c_.now() >= look_at) {
        if (all_quiet()) break;
        look_at = c_.now() + kLookMs;
      }
      if (!c_.run_next()) break;
    }
    if (c_.failure().empty() && !all_quiet())
      c_.fail("workers still hold something:\n" + describe_nodes());
    ledger_.check_completed();
    Outcome outcome;
    outcome.failure = c_.failure();
    outcome.trace_hash = c_.trace_hash();
    outcome.counters = c_.counters;
    outcome.healed_ms = done_at - healed_at;
    if (coordinator_.up()) outcome.final_state = core::durable_text(coordinator_.state());
    return outcome;
  }

 private:
  void connect() {
    network_.coordinator_up = [this] { return coordinator_.up(); };
    network_.to_coordinator = [this](core::Event event) { coordinator_.post(std::move(event)); };
    network_.opened = [this](int n, std::uint64_t life, std::uint64_t session) {
      nodes_[n]->opened(life, session);
    };
    network_.closed = [this](int n, std::uint64_t life, std::uint64_t session,
                             const Status& reason) { nodes_[n]->closed(life, session, reason); };
    network_.to_worker = [this](int n, std::uint64_t life, std::uint64_t session,
                                protocol::CoordinatorMessage message) {
      nodes_[n]->received(life, session, std::move(message));
    };
    coordinator_.send = [this](core::SessionId id, protocol::CoordinatorMessage message) {
      network_.send_down(id, std::move(message));
    };
    coordinator_.close = [this](core::SessionId id, const Status& reason) {
      network_.close_from_coordinator(id, reason);
    };
    coordinator_.reply = [this](const core::Reply& reply) {
      c_.after(0, [this, reply] { users_.on_reply(reply); });
    };
    users_.coordinator_up = [this] { return coordinator_.up(); };
    users_.post = [this](core::Event event) { coordinator_.post(std::move(event)); };
  }

  Node& any_node() { return *nodes_[c_.rng.below(nodes_.size())]; }

  /// `act` now and then, until the world is healed.
  void every(std::int64_t mean_ms, std::function<void()> act) {
    if (mean_ms <= 0) return;
    c_.after(c_.exponential(mean_ms), [this, mean_ms, act = std::move(act)] {
      if (c_.healed) return;
      act();
      every(mean_ms, act);
    });
  }

  void release_faults() {
    const Faults& f = c_.faults;
    every(f.stream_drop_mean_ms, [this] { network_.drop_one(); });
    every(f.partition_mean_ms, [this] {
      network_.partition(any_node().index(), 1 + c_.up_to(c_.faults.partition_ms_max));
    });
    every(f.coordinator_crash_mean_ms, [this] { crash_coordinator(); });
    every(f.daemon_crash_mean_ms, [this] { any_node().crash_daemon(); });
    every(f.node_crash_mean_ms, [this] { any_node().crash_node(false); });
    every(f.node_wipe_mean_ms, [this] { any_node().crash_node(true); });
    every(f.trainer_kill_mean_ms, [this] { any_node().kill_a_trainer(); });
    every(f.disk_full_mean_ms, [this] {
      store_.full = true;
      c_.after(c_.up_to(c_.faults.disk_full_ms_max), [this] { store_.full = false; });
    });
    every(f.request_mean_ms, [this] {
      if (c_.chance(0.05)) return any_node().drain("SIGTERM");
      users_.act(nodes_.size());
    });
    every(f.wall_jump_mean_ms, [this] { coordinator_.jump_wall(); });
    every(f.forgery_mean_ms, [this] { stranger_.act(); });
    every(f.disk_hang_mean_ms,
          [this] { coordinator_.hang_disk(1 + c_.up_to(c_.faults.disk_hang_ms_max)); });
  }

  void crash_coordinator() {
    if (!coordinator_.up()) return;
    coordinator_.crash();
    users_.coordinator_died();
    network_.coordinator_died();
    c_.after(c_.up_to(c_.faults.coordinator_down_ms_max), [this] {
      if (!coordinator_.up()) coordinator_.start();
    });
  }

  void heal() {
    c_.healed = true;
    c_.faults.message_twice = c_.faults.message_overtakes = 0;
    c_.trace("W", "healed");
    store_.full = false;
    network_.heal();
    resume_all();
  }

  void resume_all() {
    users_.resume_all();
    c_.after(5'000, [this] { resume_all(); });
  }

  bool all_done() const {
    if (!coordinator_.up() || !users_.satisfied()) return false;
    return coordinator_.state().open_sweeps.empty() &&
           coordinator_.state().deadlines.all(core::DeadlineKind::kLease).empty();
  }

  bool all_quiet() const {
    for (const auto& node : nodes_) {
      // Of two with one name, one is not let in while the other is there, and keeps what it has.
      if (c_.faults.same_name && node->index() < 2) continue;
      if (!node->idle()) return false;
    }
    return true;
  }

  std::string explain() const {
    if (!coordinator_.up()) return "the coordinator is down";
    std::string text;
    for (const auto& [id, trial] : coordinator_.state().trials) {
      if (storage::is_final(trial.row.state)) continue;
      text += "  " + core::explain(coordinator_.state(), id, coordinator_.read_clock()) + "\n";
    }
    return text + describe_nodes();
  }

  std::string describe_nodes() const {
    std::string text;
    for (const auto& node : nodes_) text += "  " + node->describe() + "\n";
    return text;
  }

  const RunOptions options_;
  Context c_;
  Ledger ledger_;
  CheckedStore store_;
  Network network_;
  Coordinator coordinator_;
  Users users_;
  Stranger stranger_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace

Outcome run_world(const RunOptions& options) { return World(options).run(); }

}  // namespace tailor::simulation
